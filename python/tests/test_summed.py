"""Sums of one linear map of rows: W maps the sums, with the layer's own numbers
and gradients."""

import pytest
import torch

pyg = pytest.importorskip("torch_geometric.nn")

from dfgnn.nn.pyg import _traced  # noqa: E402
from torch_geometric.nn import MessagePassing  # noqa: E402
from torch_geometric.utils import scatter  # noqa: E402

from conftest import fast_copy, random_edges  # noqa: E402

N, X, E, OUT = 12, 10, 7, 16


class Mapped(MessagePassing):
    """As GraphGym writes GeneralEdgeConv."""

    def __init__(self, bias=False, out=OUT, both=False, **options):
        super().__init__(**{"aggr": "add", **options})
        self.both = both
        self.lin = torch.nn.Linear(X * (1 + both) + E, out, bias=bias)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr)

    def message(self, x_i, x_j, edge_attr):
        rows = [x_i, x_j, edge_attr] if self.both else [x_j, edge_attr]
        return self.lin(torch.cat(rows, dim=-1))


class OfEdges(Mapped):
    """The rows are the edges' alone."""

    def __init__(self, **options):
        super().__init__(**options)
        self.lin = torch.nn.Linear(E, 32)

    def forward(self, x, edge_index, edge_attr):
        return self.propagate(edge_index, edge_attr=edge_attr, size=(N, N))

    def message(self, edge_attr):
        return self.lin(edge_attr)


class Read(Mapped):
    """The map's result is read twice."""

    def message(self, x_j, edge_attr):
        mapped = self.lin(torch.cat([x_j, edge_attr], dim=-1))
        return mapped * mapped.sigmoid()


class Kept(Mapped):
    """Somebody else reads it."""

    def __init__(self, **options):
        super().__init__(**options)
        self.last = None

    def message(self, x_j, edge_attr):
        self.last = self.lin(torch.cat([x_j, edge_attr], dim=-1))
        return self.last


class ToSenders(Mapped):
    """The sums are of the edges that a node sends."""

    def message(self, x_i, edge_attr):
        return self.lin(torch.cat([x_i, edge_attr], dim=-1))

    def aggregate(self, inputs, edge_index_j, size_j):
        return scatter(inputs, edge_index_j, 0, size_j)


def _given(dtype=torch.float32):
    edges = random_edges(N, N, 70)
    return (torch.randn(N, X, dtype=dtype, requires_grad=True), edges,
            torch.randn(edges.size(1), E, dtype=dtype, requires_grad=True))


def _both(layer, x, edges, features):
    """[outputs and gradients] of the layer and of what accelerate makes, and
    the latter's steps."""
    found = []
    fast = fast_copy(layer)
    for one in (layer, fast):
        out = one(x, edges, features)
        found.append([out, *torch.autograd.grad(
            out.square().sum(), [x, features, *one.parameters()],
            allow_unused=True)])
    steps = _traced.state(fast).steps
    return found, [node.name if kind == "call" else "program"
                   for kind, node in steps.steps]


def _equal(found):
    for own, ours in zip(*found):
        assert (own is None) == (ours is None)
        if own is not None:
            size = own.abs().max().item()
            torch.testing.assert_close(ours, own, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("aggr", ["add", "mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind,options", [
    (Mapped, {}), (Mapped, {"both": True}), (OfEdges, {}),
    (Mapped, {"flow": "target_to_source"})])
def test_the_map_is_of_sums(kind, options, bias, aggr, dtype):
    layer = kind(bias=bias, aggr=aggr, **options).to(dtype)
    found, steps = _both(layer, *_given(dtype))
    assert "mlp" not in steps and steps.count("linear") == 1
    assert "program" in steps[:steps.index("linear")]
    _equal(found)


def test_of_the_edges_that_a_node_sends():
    found, steps = _both(ToSenders(), *_given())
    assert "mlp" not in steps and "linear" in steps
    _equal(found)


@pytest.mark.parametrize("layer", [
    Read(), Kept(), Mapped(aggr="max"), Mapped(out=8)],
    ids=["read", "kept", "max", "wide"])
def test_other_maps_stay(layer):
    found, steps = _both(layer, *_given())
    assert "mlp" in steps or steps[-1:] == ["program"]
    _equal(found)


def test_16_bits_are_summed_after_the_map():
    _, steps = _both(Mapped().bfloat16(), *_given(torch.bfloat16))
    assert "linear" in steps[:-1]


def test_two_orders_of_derivatives():
    layer = Mapped(bias=True).double()
    fast = fast_copy(layer)
    x, edges, features = _given(torch.float64)
    assert torch.autograd.gradgradcheck(
        lambda x, e: fast(x, edges, e).sin(), (x, features))


def test_torch_compile_maps_sums():
    layer = Mapped(bias=True)
    fast = fast_copy(layer)
    given = _given()
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*given), layer(*given))
