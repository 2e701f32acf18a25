"""MLPs in messages that dfgnn.accelerate traces: each is one call, and gives
what the layer's own path gives.

GraphConv is written as anemoi-models 0.19 has it, and that of anemoi-models
itself is looked at where the package is installed; Interaction is written after
the description of orb-models, Egnn after equations 3 to 6 of EGNN (Satorras,
Hoogeboom and Welling, 2021)."""

import copy

import pytest
import torch

pyg = pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from dfgnn import _mlp_kernels, _nodes  # noqa: E402
from dfgnn.nn.pyg import _traced  # noqa: E402
from torch_geometric.nn import MessagePassing  # noqa: E402
from torch_geometric.utils import scatter  # noqa: E402

from conftest import fast_copy, random_edges  # noqa: E402

N, C = 14, 12


def network(inputs, width, out, activation=torch.nn.SiLU, *rest):
    return torch.nn.Sequential(
        torch.nn.Linear(inputs, width), activation(),
        torch.nn.Linear(width, width), activation(),
        torch.nn.Linear(width, out), *rest)


class LayerNorm(torch.nn.LayerNorm):
    """anemoi's AutocastLayerNorm."""

    def forward(self, x):
        return super().forward(x).type_as(x)


class GraphConv(MessagePassing):
    def __init__(self):
        super().__init__()
        self.edge_mlp = network(3 * C, C, C, torch.nn.GELU, LayerNorm(C))

    def forward(self, x, edge_attr, edge_index):
        return self.propagate(edge_index, x=x, edge_attr=edge_attr,
                              dim_size=x.size(0))

    def message(self, x_i, x_j, edge_attr):
        return self.edge_mlp(torch.cat([x_i, x_j, edge_attr], dim=1)) \
            + edge_attr

    def aggregate(self, edges_new, edge_index, dim_size=None):
        out = scatter(edges_new, edge_index[1], dim=0, dim_size=dim_size,
                      reduce="sum")
        return out, edges_new


class Interaction(MessagePassing):
    """A message of both ends and their distance; the mean at the receiver,
    and the sum at the sender."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.nn = network(2 * C + 1, C, C)

    def forward(self, x, pos, edge_index):
        return self.propagate(edge_index, x=x, pos=pos)

    def message(self, x_i, x_j, pos_i, pos_j):
        square = ((pos_i - pos_j) ** 2).sum(-1, keepdim=True)
        return self.nn(torch.cat([x_i, x_j, square], dim=-1))

    def aggregate(self, inputs, index, edge_index, dim_size=None):
        sent = scatter(inputs, edge_index[0], 0, dim_size, reduce="sum")
        return super().aggregate(inputs, index, dim_size=dim_size), sent


class Dropped(MessagePassing):
    """Dropout, which is nothing in eval()."""

    def __init__(self):
        super().__init__(aggr="max")
        self.nn = torch.nn.Sequential(
            torch.nn.Linear(2 * C, C), torch.nn.LeakyReLU(0.2),
            torch.nn.Dropout(0.5), torch.nn.Linear(C, C), torch.nn.ELU(0.2))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        return self.nn(torch.cat([x_i, x_j - x_i], dim=-1))


class Egnn(MessagePassing):
    """EGNN: messages of both ends and their distance, by which positions
    move, and their sum, by which nodes change."""

    def __init__(self):
        super().__init__(aggr="add")
        self.edge = torch.nn.Sequential(
            torch.nn.Linear(2 * C + 1, C), torch.nn.SiLU(),
            torch.nn.Linear(C, C), torch.nn.SiLU())
        self.move = torch.nn.Sequential(
            torch.nn.Linear(C, C), torch.nn.SiLU(),
            torch.nn.Linear(C, 1, bias=False))
        self.node = torch.nn.Linear(2 * C, C)

    def forward(self, x, pos, edge_index):
        moved, m = self.propagate(edge_index, x=x, pos=pos)
        return self.node(torch.cat([x, m], -1)) + x, pos + moved

    def message(self, x_i, x_j, pos_i, pos_j):
        apart = pos_i - pos_j
        square = apart.square().sum(-1, keepdim=True)
        m = self.edge(torch.cat([x_i, x_j, square], -1))
        return apart * self.move(m), m

    def aggregate(self, inputs, index, dim_size=None):
        return tuple(scatter(x, index, 0, dim_size, reduce="sum")
                     for x in inputs)


class Looked(MessagePassing):
    """A hidden value is read twice, so that it is no one MLP."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2 * C, C)
        self.second = torch.nn.Linear(C, C)

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_i, x_j):
        hidden = torch.tanh(self.first(torch.cat([x_i, x_j], -1)))
        return self.second(hidden) * hidden


def settings(**changes):
    return dict(dict(last=None, gate=False, norm=None, residual=False,
                     reduce_dst="sum", reduce_src=None, edges=False),
                **changes)


CASES = {
    "GraphConv": (GraphConv, "x e", settings(
        layers=3, activation="gelu", norm="layer", residual=True,
        edges=True)),
    "Interaction": (Interaction, "x pos", settings(
        layers=3, activation="silu", reduce_src="sum")),
    "Dropped": (lambda: Dropped().eval(), "x", settings(
        layers=2, activation="leaky_relu", last="elu", reduce_dst="max")),
    "PointNetConv": (lambda: pyg.PointNetConv(network(
        C + 3, C, C, torch.nn.ReLU)), "x pos", settings(
            layers=3, activation="relu", reduce_dst="max")),
}


def case(name):
    torch.manual_seed(2)
    edges = random_edges(N, N, 50)
    edges = edges[:, edges[0] != edges[1]]
    tensors = {"x": torch.randn(N, C), "pos": torch.randn(N, 3),
               "e": torch.randn(edges.size(1), C)}
    layer = CASES[name][0]().double()
    names = CASES[name][1].split()
    given = [tensors[k].double().requires_grad_() for k in names]
    return layer, [*given, edges], given


def calls(layer):
    """The settings of the MLPs that serve a layer."""
    steps = _traced.state(layer).steps
    assert steps is not None, _traced.state(layer).reason
    return steps, [step.function.settings for kind, step in steps.steps
                   if kind == "call" and step.name == "mlp"]


def results(layer, arguments, given):
    outs = layer(*arguments)
    outs = outs if isinstance(outs, tuple) else (outs,)
    leaves = [*given, *layer.parameters()]
    grads = torch.autograd.grad(sum((o * o.cos()).sum() for o in outs),
                                leaves, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in grads), leaves,
                                 allow_unused=True)
    return [*outs, *grads, *[g for g in second if g is not None]]


@pytest.mark.parametrize("name", CASES)
def test_a_message_is_one_mlp(name):
    layer, arguments, given = case(name)
    fast = copy.deepcopy(layer)
    report = dfgnn.accelerate(fast)
    have, want = results(fast, arguments, given), results(
        layer, arguments, given)
    assert len(report.traced) == 1 and not report.kept, report
    assert len(have) == len(want)
    torch.testing.assert_close(have, want, rtol=1e-8, atol=1e-8)
    _, (found,) = calls(fast)
    expected = CASES[name][2]
    if name == "Interaction":  # PyG's mean is a sum, then divided
        expected = dict(expected, reduce_dst="sum")
    assert {k: getattr(found, k) for k in expected} == expected


def test_a_message_of_one_product_is_a_program():
    edges = random_edges(N, N, 50)
    x = torch.randn(N, C, dtype=torch.double, requires_grad=True)
    e = torch.randn(edges.size(1), C, dtype=torch.double, requires_grad=True)
    assert agree_as_traced(pyg.CGConv(C, C).double(), [x, edges, e],
                           [x, e]) == []


def test_no_linear_map_of_edges_is_left():
    layer, arguments, _ = case("GraphConv")
    dfgnn.accelerate(layer)
    layer(*arguments)
    plan, _ = calls(layer)
    assert not plan.programs
    assert {plan.called[step] for kind, step in plan.steps} == {"pure", "mlp"}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("aggr", ["add", "mean"])
def test_matrices_of_edges_are_not_made(aggr, bias):
    maker = torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(),
        torch.nn.Linear(4, C * 2 * C, bias=bias))
    layer = pyg.NNConv(C, 2 * C, maker, aggr=aggr).double()
    edges = random_edges(N, N, 50)
    x = torch.randn(N, C, dtype=torch.double, requires_grad=True)
    e = torch.randn(edges.size(1), 3, dtype=torch.double, requires_grad=True)
    agree_as_traced(layer, [x, edges, e], [x, e])
    dfgnn.accelerate(layer)
    layer(x, edges, e)
    widths = [step.shape[1] for kind, step in calls(layer)[0].steps
              if kind == "call" and step.shape[0] == _nodes.EDGES]
    assert max(widths, default=0) < 2 * C * C


def agree_as_traced(layer, arguments, given):
    """The layer, accelerated, gives the same; returns its MLPs' settings."""
    fast = copy.deepcopy(layer)
    report = dfgnn.accelerate(fast)
    assert len(report.traced) == 1, report
    have, want = results(fast, arguments, given), results(
        layer, arguments, given)
    assert len(have) == len(want)
    torch.testing.assert_close(have, want, rtol=1e-8, atol=1e-8)
    return calls(fast)[1]


def test_a_message_of_egnn_is_read_by_the_next_mlp():
    x = torch.randn(N, C, dtype=torch.double, requires_grad=True)
    pos = torch.randn(N, 3, dtype=torch.double, requires_grad=True)
    edges = random_edges(N, N, 50)
    edges = edges[:, edges[0] != edges[1]]
    first, second = agree_as_traced(Egnn().double(), [x, pos, edges],
                                    [x, pos])
    assert first.layers == 2 and first.last == "silu" and first.edges
    assert first.reduce_dst == "sum"
    assert second.layers == 2 and second.edges and not second.reduce_dst


@pytest.mark.parametrize("extra", [0, 1])
def test_graph_conv_of_the_installed_anemoi_models(extra):
    conv = pytest.importorskip("anemoi.models.layers.conv")
    utils = pytest.importorskip("anemoi.models.layers.utils")
    torch.manual_seed(2)
    layer = conv.GraphConv(C, C, utils.load_layer_kernels(),
                           mlp_extra_layers=extra).double()
    edges = random_edges(N, N, 50)
    x = torch.randn(N, C, dtype=torch.double, requires_grad=True)
    e = torch.randn(edges.size(1), C, dtype=torch.double, requires_grad=True)
    found, = agree_as_traced(layer, [x, e, edges], [x, e])
    assert found.layers == 3 + extra and found.norm == "layer"
    assert found.residual and found.edges and found.reduce_dst == "sum"


def test_a_hidden_value_that_others_read_is_written():
    layer = Looked().double()
    fast = fast_copy(layer)
    x = torch.randn(N, C, dtype=torch.double)
    edges = random_edges(N, N, 50)
    torch.testing.assert_close(fast(x, edges), layer(x, edges))
    assert calls(fast)[1] == []


def test_dropout_that_drops_parts_two_layers():
    layer, arguments, _ = case("Dropped")
    layer.train()
    dfgnn.accelerate(layer)
    layer(*arguments)
    assert calls(layer)[1] == []


@pytest.fixture
def ran(monkeypatch):
    """The calls of MLPs."""
    found, call = [], _mlp_kernels.call
    monkeypatch.setattr(_mlp_kernels, "call", lambda *given: found.append(
        given[1]) or call(*given))
    return found


@pytest.mark.parametrize("kind", ["bf16", "f16", "autocast"])
@pytest.mark.parametrize("aggr", ["max", "mean"])
def test_edgeconv_in_16_bits_is_as_exact_as_pyg_s(kind, aggr, ran):
    """Points far from 0, whose differences are what counts."""
    torch.manual_seed(7)
    layer = pyg.EdgeConv(torch.nn.Sequential(
        torch.nn.Linear(2 * C, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)),
        aggr=aggr)
    with torch.no_grad():
        layer.nn[0].weight[:, :C].mul_(1e-3)
    x, edges = torch.randn(N, C) + 30, random_edges(N, N, 60)
    dtype = torch.float16 if kind == "f16" else torch.bfloat16
    if kind != "autocast":
        layer, x = layer.to(dtype), x.to(dtype)
    fast = fast_copy(layer)

    def run(one):
        given = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16,
                            enabled=kind == "autocast"):
            out = one(given, edges)
        return [out, *torch.autograd.grad(out.float().square().sum(), [
            given, *one.parameters()])]
    exact = copy.deepcopy(layer).double()
    given = x.double().requires_grad_()
    out = exact(given, edges)
    want = [out, *torch.autograd.grad(out.square().sum(), [
        given, *exact.parameters()])]
    for have, own, right in zip(run(fast), run(layer), want):
        assert have.dtype == own.dtype
        error, theirs = ((t.double() - right).norm() / right.norm()
                         for t in (have, own))
        assert error < max(1.5 * theirs, 1e-2), (error, theirs)
    assert len(ran) == 1


class Largest(GraphConv):
    def message(self, x_i, x_j, edge_attr):
        return self.edge_mlp(torch.cat([x_i, x_j, edge_attr], dim=1))

    def aggregate(self, edges_new, edge_index, dim_size=None):
        return scatter(edges_new, edge_index[1], dim=0, dim_size=dim_size,
                       reduce="max"), edges_new


@pytest.mark.parametrize("layer_class", [GraphConv, Largest])
def test_autocast_lowers_a_message_s_products(layer_class, ran):
    """But for a maximum, in which many of 16 bits would be the largest."""
    layer, arguments, _ = case("GraphConv")
    layer.__class__ = layer_class
    layer.float()
    arguments = [t.float() if t.is_floating_point() else t for t in arguments]
    fast = fast_copy(layer, check=False)
    with torch.autocast("cpu", torch.bfloat16):
        have, want = fast(*arguments), layer(*arguments)
    torch.testing.assert_close(have, want, rtol=0.05, atol=0.05)
    assert [made.dtype for made in ran] == [
        torch.float32 if layer_class is Largest else torch.bfloat16]


@pytest.mark.parametrize("kind", ["max", "mean", "kinks", "hook", "norm"])
def test_edgeconv_keeps_no_message(kind, ran):
    torch.manual_seed(4)
    rest = {"kinks": [torch.nn.LeakyReLU(0.1), torch.nn.Linear(C, C),
                      torch.nn.LeakyReLU(0.1)],
            "norm": [torch.nn.LayerNorm(C), torch.nn.Linear(C, C)]}.get(
                kind, [torch.nn.GELU(), torch.nn.Linear(C, C),
                       torch.nn.GELU(), torch.nn.Linear(C, 3)])
    layer = pyg.EdgeConv(torch.nn.Sequential(torch.nn.Linear(2 * C, C), *rest),
                         aggr="mean" if kind == "mean" else "max").double()
    if kind == "hook":
        layer.nn[2].register_forward_hook(lambda *_: None)
    fast = fast_copy(layer)
    x = torch.randn(N, C, dtype=torch.double, requires_grad=True)
    edges = random_edges(N, N, 50)
    torch.testing.assert_close(results(fast, [x, edges], [x]), results(layer, [x, edges], [x]),
                               rtol=1e-8, atol=1e-8)
    assert len(ran) == (kind not in ("hook", "norm"))
