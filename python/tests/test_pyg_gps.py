"""GPSConv of dfgnn.nn.pyg, whose attention of all nodes runs by kernels: the
same numbers as PyG's, and PyG's own path where kernels do not serve."""

import copy

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from conftest import random_edges
from dfgnn import functional
from dfgnn.nn.pyg import _gps
from fuzz_pyg import near

WIDTH = 8
SIZES = {"alike": [5] * 4, "uneven": [1, 7, 2, 0, 13, 3], "one": [9]}


def batch_of(sizes):
    return torch.repeat_interleave(torch.arange(len(sizes)),
                                   torch.tensor(sizes))


def layer(conv=True, **options):
    torch.manual_seed(3)
    inner = G.GINConv(torch.nn.Linear(WIDTH, WIDTH)) if conv else None
    return G.GPSConv(WIDTH, inner, heads=2, **options).double()


def both(plain):
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    assert type(fast).__module__ == "dfgnn.nn.pyg"
    assert "GPSConv" in [found.kind for found in report.swapped]
    return plain, fast


def step(model, x, edges, batch):
    x = x.detach().clone().requires_grad_()
    model.zero_grad()
    out = model(x, edges, batch)
    out.square().sum().backward()
    # norm1 has no part in a layer without conv
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return [out, x.grad, *grads]


@pytest.fixture
def counted(monkeypatch):
    """The calls of kernels."""
    calls = []
    attended = _gps._attended

    def count(*args):
        out = attended(*args)
        calls.append(out)
        return out
    monkeypatch.setattr(_gps, "_attended", count)
    return calls


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("options", [
    {}, {"norm": None}, {"norm": "layer_norm"}, {"conv": False},
    {"attn_kwargs": {"bias": False}}], ids=str)
@pytest.mark.parametrize("train", [True, False])
def test_numbers_and_gradients_are_those_of_pyg(sizes, options, train,
                                                counted):
    batch = batch_of(SIZES[sizes])
    count = batch.numel()
    x, edges = torch.randn(count, WIDTH).double(), random_edges(
        count, count, 3 * count)
    models = both(layer(**options).train(train))
    one, other = (step(model, x, edges, batch) for model in models)
    assert len(counted) == 1 and len(one) == len(other)
    for number, (a, b) in enumerate(zip(one, other)):
        near(a, b, 1e-9, f"number {number}")


def test_gradients_of_gradients_are_right():
    batch = batch_of([3, 2])
    model = both(layer(norm=None))[1]
    edges = random_edges(5, 5, 9)
    x = torch.randn(5, WIDTH, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradgradcheck(
        lambda y: model(y, edges, batch), (x,), atol=1e-4)


def test_dropout_of_attention_drops_weights_and_keeps_their_mean():
    model = both(layer(conv=False, norm=None,
                       attn_kwargs={"dropout": 0.5}))[1]
    batch = batch_of([11, 12])
    x = torch.randn(23, WIDTH).double()
    want = model.eval()(x, None, batch)
    with torch.no_grad():
        attend = lambda: _gps._attended(model, x, batch)  # noqa: E731
        whole = attend()
        model.train()
        found = torch.stack([attend() for _ in range(2000)])
    assert not torch.equal(found[0], found[1])
    near(found.mean(0), whole, 0.1, "mean")
    near(model.eval()(x, None, batch), want, 1e-12, "evaluation")


def test_pairs_are_kept_with_the_batch_and_made_anew_when_it_changes():
    model = both(layer())[1]
    batch = batch_of([4, 6])
    x, edges = torch.randn(10, WIDTH).double(), random_edges(10, 10, 20)
    plain = layer()
    made = []
    pairs = functional._make_pairs
    functional._make_pairs = lambda b: made.append(1) or pairs(b)
    try:
        model(x, edges, batch), model(x, edges, batch)
        assert len(made) == 1
        batch[4] = 0
        near(model(x, edges, batch), plain(x, edges, batch), 1e-9, "changed")
        assert len(made) == 2
    finally:
        functional._make_pairs = pairs


def test_a_batch_that_does_not_rise_is_refused_as_by_pyg(counted):
    model = both(layer().eval())[1]
    x, edges = torch.randn(10, WIDTH).double(), random_edges(10, 10, 20)
    with pytest.raises(RuntimeError):
        model(x, edges, torch.tensor([0, 1] * 5))
    assert not counted


@pytest.mark.parametrize("case", ["hook", "no batch", "performer", "large"])
def test_other_calls_take_pygs_own_path(case, counted, monkeypatch):
    options = dict(attn_type="performer") if case == "performer" else {}
    plain, fast = both(layer(**options).eval())
    batch = batch_of([5, 5])
    x, edges = torch.randn(10, WIDTH).double(), random_edges(10, 10, 20)
    if case == "no batch":
        batch = None
    if case == "large":
        monkeypatch.setattr(functional, "MOST_PAIRS", 4)
    if case == "hook":
        seen = []
        fast.attn.register_forward_hook(lambda *_: seen.append(1))
    near(fast(x, edges, batch), plain(x, edges, batch), 1e-9, case)
    assert not counted
    if case == "hook":
        assert seen


def test_undo_gives_pygs_class_back():
    model = both(layer())[1]
    dfgnn.accelerate(model, undo=True)
    assert type(model) is G.GPSConv
