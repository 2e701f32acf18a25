import contextlib
import copy
import logging
import os
import random
import shutil
from pathlib import Path

# inductor's cache may hold code for an operator that has changed since
os.environ.setdefault("TORCHINDUCTOR_FORCE_DISABLE_CACHES", "1")
# and compiles a program to see which vectors there are, and headers for later
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
# its pool of processes would import torch once more for a few small programs
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
if shutil.which("ccache"):
    os.environ.setdefault("CXX", str(Path(__file__).with_name("cxx.sh")))
os.environ.setdefault("DGLBACKEND", "pytorch")
# tests time nothing by themselves: test_measure.py does
os.environ.setdefault("DFGNN_MEASURE", "0")

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402
import torch._inductor.config  # noqa: E402

if hasattr(torch._inductor.config, "cpp_cache_precompile_headers"):
    torch._inductor.config.cpp_cache_precompile_headers = False

# Seconds that a test waits for another process.  They end one that hangs; on a
# machine with other work, Python and torch alone may take minutes to start.
PATIENCE = 900


@pytest.fixture(autouse=True)
def seed(request):
    """Seeds each test with a number made of its name and TEST_SEED."""
    number = int(os.environ.get("TEST_SEED", "1"))
    seed = number * 1000003 + sum(map(ord, request.node.name))
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    print(f"TEST_SEED={number}")


@pytest.fixture(autouse=True)
def kernels_stay(request, monkeypatch):
    """Small sums are no torch operations, and accelerate() has no steps by the
    own path, which would hide the kernels from a test of few steps;
    test_guard*.py are about these."""
    monkeypatch.setattr("dfgnn._ways.FEW_NUMBERS", {})
    if not request.module.__name__.startswith("test_guard"):
        monkeypatch.setattr("dfgnn._accelerate._watch", lambda report: None)


@pytest.fixture
def ways():
    """Has choices of _ways.py take ways, by name."""
    from dfgnn import _ways
    with contextlib.ExitStack() as stack:
        yield lambda **taken: stack.enter_context(_ways.forced(**taken))


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store of the test's own, which contexts read that are made in it."""
    from dfgnn import _handle
    monkeypatch.setenv("DFGNN_STORE", str(tmp_path / "own.db"))
    monkeypatch.setattr(_handle, "_contexts", {})
    return tmp_path / "own.db"


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no GPU")
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


@pytest.fixture(params=["cpu", "cuda"] if torch.cuda.is_available()
                else ["cpu"])
def place(request):
    """The same as device, for tests with many cases: without a GPU the cases
    for one do not exist, rather than being skipped."""
    return torch.device(request.param)


@pytest.fixture
def said(caplog):
    """What the log says of calls that take PyG's own path."""
    from dfgnn import _fallbacks
    before = set(_fallbacks._said)
    _fallbacks._said.clear()
    caplog.set_level(logging.INFO, "dfgnn")
    yield caplog
    _fallbacks._said.clear()
    _fallbacks._said.update(before)


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def to(value, device):
    """value on a device: a tensor or a module, or those of a tuple or a
    dict."""
    if isinstance(value, tuple):
        return tuple(to(v, device) for v in value)
    if isinstance(value, dict):
        return {k: to(v, device) for k, v in value.items()}
    return value.to(device) if isinstance(
        value, (torch.Tensor, torch.nn.Module)) else value


def fast_copy(module, **options):
    """A copy of a module, accelerated."""
    import dfgnn
    fast = copy.deepcopy(module)
    dfgnn.accelerate(fast, **options)
    return fast


def random_edges(num_src, num_dst, num_edges, device="cpu",
                 dtype=torch.int64):
    """Edges in random order, with duplicates, loops and nodes without any; the
    last source has one."""
    src = torch.randint(0, num_src, (num_edges,))
    src[:1] = num_src - 1
    dst = torch.randint(0, max(1, num_dst - 2), (num_edges,))
    loops = torch.arange(min(num_src, num_dst, 3))
    edges = torch.stack([torch.cat([src, loops]), torch.cat([dst, loops])])
    return edges[:, torch.randperm(edges.size(1))].to(device, dtype)


def difference(a, b):
    """Largest difference relative to the largest value."""
    scale = max(1e-30, float(b.detach().abs().max())) if b.numel() else 1.0
    return float((a - b).detach().abs().max()) / scale if b.numel() else 0.0


def close(a, b, tolerance, what="results"):
    assert a.shape == b.shape, f"{what}: {a.shape} and {b.shape}"
    assert a.dtype == b.dtype, f"{what}: {a.dtype} and {b.dtype}"
    found = difference(a, b)
    assert found < tolerance, f"{what} differ by {found:.3g}"
