"""What traces symbolically or scripts an accelerated model gets the numbers of
PyG's own."""

import copy
import sys

import pytest
import torch
from torch import Tensor

pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from conftest import close, random_edges  # noqa: E402
import torch_geometric.nn as G  # noqa: E402
from torch_geometric.utils import scatter, softmax  # noqa: E402

N, F = 12, 6
SCALE = 1.0


@torch.fx.wrap
def halved(x):
    return x / 2 if float(x.sum()) > 0 else x * 2


class Pooled(torch.nn.Module):
    def __init__(self, pool):
        super().__init__()
        self.lin, self.pool = torch.nn.Linear(F, F), pool

    def forward(self, x, batch):
        return self.lin(self.pool(self.lin(x), batch))


class Scattered(torch.nn.Module):
    def forward(self, x: Tensor, batch: Tensor) -> Tensor:
        return self.sums(softmax(x, batch), batch)

    def sums(self, x: Tensor, batch: Tensor) -> Tensor:
        return scatter(x, batch, dim=0, dim_size=4, reduce="sum")


class Wrapped(Scattered):
    def forward(self, x, batch):
        return halved(scatter(x, batch, dim=0, dim_size=4))


class Scaled(torch.nn.Module):
    def forward(self, x, batch):
        return SCALE * scatter(x, batch)


class Scaling(torch.nn.Module):
    softmax = 3.0  # an attribute of a function's name

    def forward(self, x, batch):
        global SCALE
        SCALE = self.softmax
        return scatter(softmax(x, batch), batch)


def accelerated(plain):
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast, guard=False)
    assert report.calling
    return fast


@pytest.fixture
def given():
    torch.manual_seed(1)
    return torch.randn(N, F), torch.tensor([0] * 4 + [1] * 5 + [2] * 3)


@pytest.mark.parametrize("pool", [
    G.SumAggregation, G.MeanAggregation, G.MaxAggregation, G.StdAggregation,
    G.SoftmaxAggregation, lambda: G.MultiAggregation(["mean", "max"],
                                                     mode="sum")])
def test_to_fixed_size_gives_pygs_numbers(pool, given):
    plain = Pooled(pool())
    for size in (3, 5):
        want, have = (G.to_fixed_size(model, size)(*given)
                      for model in (plain, accelerated(plain)))
        assert want.shape == (size, F)
        torch.testing.assert_close(have, want)


SCRIPTED = {
    **{name: getattr(G, name) for name in (
        "SumAggregation", "MeanAggregation", "MaxAggregation",
        "SoftmaxAggregation", "MeanSubtractionNorm", "GraphSizeNorm",
        "PairNorm", "LayerNorm", "InstanceNorm", "GraphNorm")},
    "FusedAggregation": lambda: G.aggr.fused.FusedAggregation(["sum", "max"]),
    "MultiAggregation": lambda: G.MultiAggregation(["mean", "std"]),
    "DegreeScaler": lambda: G.DegreeScalerAggregation(
        ["mean"], ["identity", "linear"], torch.tensor([1, 2, 3])),
    "SetTransformer": lambda: G.SetTransformerAggregation(F, heads=2),
    "caller's own": Scattered}


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_script_gives_pygs_numbers(name, given):
    kind = SCRIPTED[name]
    plain = kind(F) if name in ("LayerNorm", "InstanceNorm",
                                "GraphNorm") else kind()
    fast = accelerated(plain)
    want, before, have = (model(*given) for model in (
        plain, fast, torch.jit.script(fast)))
    torch.testing.assert_close(*(v if isinstance(v, list) else [v] for v in (have, want)))
    after = fast(*given)  # by dfgnn as before
    assert dfgnn.accelerate(fast, undo=True).verb == "restored"
    torch.testing.assert_close(after, before)


def test_a_script_of_a_copy_leaves_a_models_layers():
    """torch.jit.script puts what it compiles into the modules it was given."""
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = G.SAGEConv(F, F)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(x, edge_index).relu()
    fast, edges = Model(), torch.randint(0, N, (2, 40))
    x = torch.randn(N, F)
    want = fast(x, edges)
    dfgnn.accelerate(fast, guard=False)
    scripted = torch.jit.script(copy.deepcopy(fast))
    torch.testing.assert_close(scripted(x, edges), want)
    assert type(fast.conv) is dfgnn.nn.pyg.SAGEConv


def targets(graph):
    return [node.target for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("kind", [Scattered, Wrapped])
def test_wrapped_functions_are_leaves_of_a_trace(kind):
    """Those that torch.fx.wrap and a Tracer name."""
    want, have = (torch.fx.Tracer(autowrap_functions=[scatter, softmax]).trace(
        model) for model in (kind(), accelerated(kind())))
    assert scatter in targets(want)
    assert targets(want) == targets(have)


def test_a_module_reads_and_writes_its_globals(given):
    model, writer = accelerated(Scaled()), accelerated(Scaling())
    before = model(*given)
    assert SCALE == 1.0
    try:
        writer(*given)
        assert SCALE == 3.0
        torch.testing.assert_close(model(*given), 3 * before)
    finally:
        globals()["SCALE"] = 1.0


def test_what_a_test_puts_in_a_functions_place_is_called(given, monkeypatch):
    model = accelerated(Scattered())
    model(*given)
    monkeypatch.setattr(sys.modules[__name__], "scatter",
                        lambda x, *args, **kwargs: x + 7)
    monkeypatch.setattr(sys.modules[__name__], "softmax",
                        lambda x, *args, **kwargs: x)
    torch.testing.assert_close(model(*given), given[0] + 7)


def test_modules_keep_their_class_after_a_trace():
    fast = accelerated(Pooled(G.MeanAggregation()))
    fixed = G.to_fixed_size(fast, 3)
    assert type(fixed.pool) is type(fast.pool)
    assert type(fast.pool) is not G.MeanAggregation


@pytest.mark.parametrize("transform", [
    lambda f, x: torch.func.grad(lambda y: f(y).square().sum())(x),
    lambda f, x: torch.func.jvp(f, (x,), (x.cos(),))[1],
    lambda f, x: torch.func.vmap(f)(torch.stack([x, x + 1]))])
@pytest.mark.parametrize("kind", [G.SAGEConv, G.TransformerConv])
def test_torch_compile_of_transforms(kind, transform):
    layer, x, edges = kind(4, 4), torch.randn(9, 4), random_edges(9, 9, 30)
    fast = copy.deepcopy(layer)
    dfgnn.accelerate(fast)
    torch._dynamo.reset()
    compiled = torch.compile(lambda x, e: transform(
        lambda y: fast(y, e), x), backend="eager")
    close(compiled(x, edges), transform(lambda y: layer(y, edges), x), 1e-5)
