"""DGL's layers and modules of one's own that send messages by DGL, accelerated,
against the same without: the real DGL."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

dgl = pytest.importorskip(
    "dgl", reason="no dgl: pip install --no-deps dgl==1.1.3, psutil, tqdm, "
    "requests and networkx")

import dgl.function as fn  # noqa: E402
import dgl.nn as theirs  # noqa: E402
import dgl.ops  # noqa: E402
from dgl.nn.functional import edge_softmax  # noqa: E402

import dfgnn  # noqa: E402
from conftest import close, fast_copy, random_edges  # noqa: E402
from dfgnn import _execute, _remember  # noqa: E402
from dfgnn.nn.dgl import _messages, accelerated  # noqa: E402

N, FEW, IN, OUT, H, E = 12, 7, 6, 4, 3, 5


# ---- graphs and calls -------------------------------------------------------

def edges_of(num_src=N, num_dst=N):
    """Edges such that each destination has one."""
    last = torch.stack([torch.zeros(num_dst, dtype=torch.int64),
                        torch.arange(num_dst)])
    return torch.cat([random_edges(num_src, num_dst, 40), last], 1)


def graph_of(kind="whole"):
    if kind == "whole":
        return dgl.graph(tuple(edges_of()), num_nodes=N)
    src, dst = edges_of(N, FEW)
    if kind == "block":
        return dgl.create_block((src, dst), N, FEW)
    return dgl.heterograph({("a", "to", "b"): (src, dst)}, {"a": N, "b": FEW})


class Plans:
    """Counts the calls of kernels."""

    def __enter__(self):
        self.count, self.room = 0, _execute.Plan.room

        def counted(plan, *args):
            self.count += 1
            return self.room(plan, *args)
        _execute.Plan.room = counted
        return self

    def __exit__(self, *_):
        _execute.Plan.room = self.room


def of_edges(*shape):
    return lambda graph: torch.rand(graph.num_edges(), *shape)


def relations(graph):
    return torch.randint(3, (graph.num_edges(),))


def kinds_of_nodes(graph):
    return torch.randint(2, (graph.num_src_nodes(),))


# by name: the layer of a width or a pair of widths, what makes its further
# arguments, and which graphs it takes
ANY, WHOLE = ("whole", "block", "two"), ("whole",)
CASES = {
    "GAT": (lambda i: theirs.GATConv(i, OUT, H, residual=True), (), ANY),
    "GAT bare": (lambda i: theirs.GATConv(i, OUT, H, bias=False), (), ANY),
    "GAT wide": (lambda i: theirs.GATConv(IN, 2, 3, residual=True,
                                          activation=F.elu), (), WHOLE),
    "GAT weighted": (lambda i: theirs.GATConv(i, OUT, H, residual=True),
                     (of_edges(),), ANY),
    "GATv2": (lambda i: theirs.GATv2Conv(i, OUT, H, residual=True), (), ANY),
    "GATv2 shared": (lambda i: theirs.GATv2Conv(
        IN, OUT, H, bias=False, share_weights=True), (), ("whole", "block")),
    "EdgeGAT": (lambda i: theirs.EdgeGATConv(i, E, OUT, H), (of_edges(E),),
                ANY),
    "DotGat": (lambda i: theirs.DotGatConv(i, OUT, H), (), ANY),
    "AGNN": (lambda i: theirs.AGNNConv(2.0), (), ANY),
    "Graph": (lambda i: theirs.GraphConv(IN, OUT, activation=F.elu), (), ANY),
    "Graph right": (lambda i: theirs.GraphConv(IN, 9, norm="right"), (), ANY),
    "Graph weighted": (lambda i: theirs.GraphConv(IN, OUT, norm="left"),
                       (lambda g: None, of_edges()), ANY),
    "SAGE mean": (lambda i: theirs.SAGEConv(i, OUT, "mean"), (), ANY),
    "SAGE weighted": (lambda i: theirs.SAGEConv(i, OUT, "mean"),
                      (of_edges(1),), ANY),
    "SAGE gcn": (lambda i: theirs.SAGEConv(IN, OUT, "gcn"), (), ANY),
    "SAGE pool": (lambda i: theirs.SAGEConv(i, OUT, "pool"), (), ANY),
    "GIN": (lambda i: theirs.GINConv(nn.Linear(IN, OUT), "sum", 0.5, True),
            (), ANY),
    "GIN max": (lambda i: theirs.GINConv(None, "max"), (), ANY),
    "RelGraph": (lambda i: theirs.RelGraphConv(IN, OUT, 3, activation=F.elu),
                 (relations, of_edges(1)), ("whole", "block")),
    "RelGraph bases": (lambda i: theirs.RelGraphConv(
        IN, OUT, 90, "basis", 3, self_loop=False, layer_norm=True),
        (relations,), ("whole", "block")),
    "RelGraph blocks": (lambda i: theirs.RelGraphConv(IN, OUT, 5, "bdd", 2),
                        (relations,), WHOLE),
    "HGT": (lambda i: theirs.HGTConv(IN, OUT, H, 2, 3, dropout=0.0,
                                     use_norm=True),
            (kinds_of_nodes, relations), ("whole", "block")),
    "HGT wide": (lambda i: theirs.HGTConv(IN, 2, 3, 2, 90, dropout=0.0),
                 (kinds_of_nodes, relations), WHOLE),
    "TAG": (lambda i: theirs.TAGConv(IN, OUT), (), WHOLE),
    "SG": (lambda i: theirs.SGConv(IN, OUT, 2), (), WHOLE),
    "APPNP": (lambda i: theirs.APPNPConv(3, 0.1), (), WHOLE),
    "Cheb": (lambda i: theirs.ChebConv(IN, OUT, 2), (), WHOLE),
    "GCN2": (lambda i: theirs.GCN2Conv(IN, 1),
             (lambda g: torch.randn(g.num_nodes(), IN),), WHOLE),
    "GINE": (lambda i: theirs.GINEConv(nn.Linear(IN, OUT)), (of_edges(IN),),
             ANY),
    "GatedGraph": (lambda i: theirs.GatedGraphConv(IN, IN, 2, 3),
                   (relations,), WHOLE),
    "GMM": (lambda i: theirs.GMMConv(i, OUT, 2, 3, "mean"), (of_edges(2),),
            ANY),
    "NN": (lambda i: theirs.NNConv(i, OUT, nn.Linear(E, IN * OUT), "sum"),
           (of_edges(E),), ANY),
    "CF": (lambda i: theirs.CFConv(IN, E, OUT, OUT), (of_edges(E),), WHOLE),
    "EGAT": (lambda i: theirs.EGATConv(IN, E, OUT, 5, H), (of_edges(E),),
             WHOLE),
    "PNA": (lambda i: theirs.PNAConv(IN, OUT, ["mean", "max"], ["identity"],
                                     2.5), (), WHOLE),
    "Edge": (lambda i: theirs.EdgeConv(IN, OUT), (), ANY),
    "EGNN": (lambda i: theirs.EGNNConv(IN, 5, OUT, E),
             (lambda g: torch.randn(g.num_nodes(), 3), of_edges(E)), WHOLE),
}
# DGL's own path alone has what these do edge by edge
WITHOUT_KERNELS = ("NN", "CF", "PNA")


def made(name, kind="whole"):
    """(DGL's layer, the same accelerated, a graph, features, arguments)."""
    make, more, _ = CASES[name]
    graph = graph_of(kind)
    layer = make((IN, IN) if kind == "two" else IN)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    fast = copy.deepcopy(layer)
    assert len(dfgnn.accelerate(fast).swapped) == 1
    feats = [torch.randn(graph.num_src_nodes(), IN)]
    if kind == "two":
        feats.append(torch.randn(graph.num_dst_nodes(), IN))
    return layer, fast, graph, feats, [m(graph) for m in more]


def results(layer, graph, feats, more):
    leaves = [x.clone().requires_grad_() for x in feats]
    out = layer(graph, tuple(leaves) if len(leaves) > 1 else leaves[0], *more)
    out = out if isinstance(out, tuple) else (out,)
    grads = torch.autograd.grad(
        sum(o.sin().sum() for o in out), [*leaves, *layer.parameters()],
        allow_unused=True)
    return [*out, *grads]


def agree(got, expected, tolerance=1e-9):
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name, kind", [
    (name, kind) for name, case in CASES.items() for kind in case[2]])
def test_results_and_gradients_are_those_of_dgl(name, kind, doubles):
    layer, fast, graph, feats, more = made(name, kind)
    expected = results(layer, graph, feats, more)
    with Plans() as plans:
        agree(results(fast, graph, feats, more), expected)
    assert bool(plans.count) == (name not in WITHOUT_KERNELS)


@pytest.mark.parametrize("name", ["GAT", "GAT weighted", "GATv2", "DotGat",
                                  "EdgeGAT"])
@pytest.mark.parametrize("kind", ["whole", "block"])
def test_attention_is_returned_as_dgl_does(name, kind, doubles):
    layer, fast, graph, (x,), more = made(name, kind)
    for a, b in zip(fast(graph, x, *more, get_attention=True),
                    layer(graph, x, *more, get_attention=True), strict=True):
        close(a, b, 1e-10)


@pytest.mark.parametrize("name", ["GAT", "GAT weighted", "AGNN", "SAGE mean",
                                  "GIN", "GIN max"])
def test_features_may_have_more_dimensions(name, doubles):
    layer, fast, graph, _, more = made(name)
    feats = [torch.randn(N, 2, IN)]
    if name == "GAT weighted":  # DGL broadcasts weights over the heads alone
        more = []
    agree(results(fast, graph, feats, more),
          results(layer, graph, feats, more))


def test_attention_under_autocast():
    layer, fast, graph, (x,), _ = made("GAT")
    expected = layer(graph, x)
    with torch.autocast("cpu", dtype=torch.bfloat16), Plans() as plans:
        out = fast(graph, x)
    assert plans.count
    close(out.float(), expected, 3e-2)


def test_dropout_keeps_the_mean_and_needs_training():
    layer = theirs.GATConv(IN, OUT, H, 0.2, 0.5)
    fast, graph, x = copy.deepcopy(layer), graph_of(), torch.randn(N, IN)
    dfgnn.accelerate(fast)
    fast.eval(), layer.eval()
    close(fast(graph, x), layer(graph, x), 1e-5)
    fast.train()
    assert not torch.equal(fast(graph, x), fast(graph, x))


@pytest.mark.parametrize("kind", ["GATConv", "GATv2Conv"])
def test_features_of_a_call_that_dgl_takes_are_dropped_once(kind):
    layer = getattr(theirs, kind)(IN, OUT, H, 0.5, residual=True,
                                  allow_zero_in_degree=True)
    fast, empty = copy.deepcopy(layer), dgl.graph(([], []), num_nodes=N)
    dfgnn.accelerate(fast, guard=False)
    x, found = torch.randn(N, IN), []
    for model in (layer, fast):
        torch.manual_seed(0)
        found.append((model(empty, x), torch.rand(4)))
    assert all(map(torch.equal, *found))


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_extremes_of_no_edges_are_those_of_dgl(reduce, doubles):
    """dgl.ops gives infinities, and update_all() zeros."""
    class Extremes(nn.Module):
        def forward(self, graph, x, e):
            graph.ndata["x"] = x
            graph.update_all(fn.copy_u("x", "m"), getattr(fn, reduce)("m", "y"))
            return (getattr(dgl.ops, "copy_u_" + reduce)(graph, x),
                    getattr(dgl.ops, "copy_e_" + reduce)(graph, e),
                    graph.ndata["y"])
    layer = Extremes()
    graph = dgl.graph(([0, 1], [1, 1]), num_nodes=3)
    given = graph, torch.randn(3, 2), torch.randn(2, 2)
    expected = layer(*given)
    dfgnn.accelerate(layer)
    with Plans() as plans:
        out = layer(*given)
    assert plans.count and out[0].isinf().any()
    for a, b in zip(out, expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", ["block", "pair", "same pair"])
def test_gatv2_shares_weights_as_dgl_does(kind, doubles):
    """A pair of widths makes two projections, of which one tensor has one."""
    graph = graph_of("whole" if kind == "same pair" else "block")
    layer = theirs.GATv2Conv((IN, IN), OUT, H, share_weights=True)
    x = torch.randn(graph.num_src_nodes(), IN)
    given = {"block": x, "pair": (x, torch.randn(FEW, IN)),
             "same pair": (x, x)}[kind]
    fast = fast_copy(layer)
    close(fast(graph, given), layer(graph, given), 1e-10)


@pytest.mark.parametrize("make, more", [
    (lambda: theirs.GATConv((IN, IN), OUT, H), lambda g, x: (x,)),
    (lambda: theirs.RelGraphConv(IN, OUT, 3), lambda g, x: (
        x, relations(g), torch.rand(g.num_edges()))),
    (lambda: theirs.RelGraphConv(IN, OUT, 3), lambda g, x: (
        (x, x[:FEW]), relations(g))),
    (lambda: theirs.HGTConv(IN, OUT, H, 2, 3), lambda g, x: (
        (x, x[:FEW]), kinds_of_nodes(g), relations(g)))])
def test_inputs_that_dgl_refuses_are_its_errors(make, more):
    layer, graph = make(), graph_of("block")
    given = more(graph, torch.randn(graph.num_src_nodes(), IN))
    with pytest.raises(Exception) as theirs_raises:
        layer(graph, *given)
    dfgnn.accelerate(layer)
    with pytest.raises(theirs_raises.type):
        layer(graph, *given)


# ---- what DGL says of both ends ---------------------------------------------

ONE_TENSOR = [
    lambda: theirs.GraphConv(IN, OUT, norm="right"),
    lambda: theirs.SAGEConv(IN, OUT, "mean"), lambda: theirs.GINConv(),
    lambda: theirs.GATConv(IN, OUT, 2, residual=True),
    lambda: theirs.GATv2Conv(IN, OUT, 2),
    lambda: theirs.DotGatConv(IN, OUT, 2), lambda: theirs.AGNNConv(),
    lambda: theirs.RelGraphConv(IN, OUT, 2),
    lambda: theirs.HGTConv(IN, 3, 2, 2, 2, dropout=0.0)]


@pytest.mark.parametrize("make", ONE_TENSOR)
@pytest.mark.parametrize("sizes", [(9, 5), (5, 5)])
def test_one_tensor_over_a_bipartite_graph_is_that_of_both_ends(make, sizes):
    """Only a block's destinations are its first sources."""
    src, dst = sizes
    graph = dgl.heterograph({("a", "r", "b"): (
        torch.randint(src, (40,)), torch.arange(40) % dst)},
        {"a": src, "b": dst})
    layer, x = make(), torch.randn(src, IN)
    more = {"RelGraphConv": (torch.randint(2, (40,)),),
            "HGTConv": (torch.zeros(src, dtype=torch.long),
                        torch.randint(2, (40,)))}.get(type(layer).__name__, ())
    fast = fast_copy(layer)

    def attempt(module):
        try:
            return module(graph, x, *more)
        except Exception as error:
            return type(error)
    expected, got = attempt(layer), attempt(fast)
    if isinstance(expected, type):
        assert got is expected
    else:
        close(got, expected, 1e-5)


@pytest.mark.parametrize("make", [
    lambda: theirs.DotGatConv((IN, IN), OUT, 2), lambda: theirs.AGNNConv(),
    lambda: theirs.SAGEConv(IN, OUT, "gcn"),
    lambda: theirs.GATConv((IN, IN), OUT, 2)])
def test_a_pair_over_one_kind_of_nodes_is_read_as_dgl_reads_it(make):
    layer, graph = make(), dgl.add_self_loop(graph_of())
    fast, pair = copy.deepcopy(layer), (torch.randn(N, IN),
                                        torch.randn(N, IN))
    dfgnn.accelerate(fast)
    close(fast(graph, pair), layer(graph, pair), 1e-5)
    hetero = dgl.heterograph({("u", "f", "u"): graph.edges()})
    both = theirs.HeteroGraphConv({"f": layer})
    fast = fast_copy(both)
    x = {"u": pair[0]}
    if "DotGat" in type(layer).__name__ or "GAT" in type(layer).__name__:
        x = (x, {"u": pair[1]})
    close(fast(hetero, x)["u"], both(hetero, x)["u"], 1e-5)


def test_maxima_of_no_edges_have_no_gradient(doubles):
    """DGL 1.1.3 sends the gradient of an isolated node to source 0."""
    graph = dgl.graph((torch.tensor([1, 2]), torch.tensor([3, 3])),
                      num_nodes=5)
    layer = theirs.GINConv(None, "max")
    dfgnn.accelerate(layer)
    x = torch.randn(5, 3, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: layer(graph, x), (x,))


def test_gradients_of_gradients(doubles):
    """DGL's own operators have none."""
    graph, x = graph_of(), torch.randn(N, 3, requires_grad=True)
    weight = torch.rand(graph.num_edges(), 1, requires_grad=True)
    with _messages.kernels(nn.Identity()):
        _messages.install()
        for function, inputs in (
                (lambda x, w: dgl.ops.u_mul_e_sum(graph, x, w), (x, weight)),
                (lambda x: dgl.ops.copy_u_sum(graph, x), (x,)),
                (lambda w: dgl.ops.copy_e_sum(graph, w), (weight,))):
            assert torch.autograd.gradgradcheck(function, inputs)


def test_destinations_without_edges_raise_dgls_error():
    graph = dgl.graph(([0], [1]), num_nodes=3)
    layer = theirs.GATConv(IN, OUT, H)
    dfgnn.accelerate(layer)
    with pytest.raises(dgl.DGLError):
        layer(graph, torch.randn(3, IN))
    layer.set_allow_zero_in_degree(True)
    assert layer(graph, torch.randn(3, IN)).shape == (3, H, OUT)
    empty = dgl.graph(([], []), num_nodes=0)
    assert layer(empty, torch.randn(0, IN)).shape == (0, H, OUT)


# ---- what a call costs ------------------------------------------------------

def test_weighted_attention_keeps_no_messages():
    graph = dgl.rand_graph(100, 4000)
    layer = theirs.GATConv(IN, 16, 8, allow_zero_in_degree=True)
    dfgnn.accelerate(layer)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
            lambda t: saved.append(t.numel()) or t, lambda t: t):
        layer(graph, torch.randn(100, IN), torch.rand(4000))
    assert saved and max(saved) < 4000 * 8 * 16


def test_a_layer_that_shrinks_projects_once():
    layer, calls = theirs.SAGEConv(16, 4, "gcn"), []
    dfgnn.accelerate(layer)
    layer.fc_neigh.register_forward_hook(lambda *_: calls.append(1))
    layer(graph_of(), torch.randn(N, 16))
    assert len(calls) == 1


# ---- messages of one's own --------------------------------------------------

class Own(nn.Module):
    """Attention as people write it with DGL's own words."""

    def __init__(self):
        super().__init__()
        self.score, self.value = nn.Linear(2 * IN, H), nn.Linear(IN, H * OUT)

    def forward(self, graph, x):
        with graph.local_scope():
            graph.ndata["h"] = x
            graph.ndata["v"] = self.value(x).view(-1, H, OUT)
            graph.apply_edges(lambda e: {"s": self.score(torch.cat(
                [e.src["h"], e.dst["h"]], 1))})
            graph.edata["a"] = edge_softmax(graph, graph.edata["s"].view(
                -1, H, 1))
            graph.update_all(fn.u_mul_e("v", "a", "m"), fn.sum("m", "o"))
            graph.update_all(fn.copy_u("v", "m"), fn.mean("m", "p"))
            return graph.ndata["o"] + graph.ndata["p"]


class ByFunctions(nn.Module):
    def __init__(self, names):
        super().__init__()
        self.names = names

    def forward(self, graph, x, e):
        out = dgl.ops.copy_u_sum(graph, x)
        for name in self.names:
            out = out + getattr(dgl.ops, name)(graph, *(
                (x, e) if name.startswith("u_") else
                (x,) if name.startswith("copy_u") else (e,)))
        return out


def test_own_modules_that_send_messages_are_served(doubles):
    layer, graph, x = Own(), graph_of(), torch.randn(N, IN)
    fast = copy.deepcopy(layer)
    report = dfgnn.accelerate(nn.ModuleDict({"a": fast, "b": nn.ReLU()}))
    assert [found.kind for found in report.swapped] == ["Own"]
    expected = results(layer, graph, [x], ())
    with Plans() as plans:
        agree(results(fast, graph, [x], ()), expected)
    assert plans.count >= 2


@pytest.mark.parametrize("names", [
    [f"u_{op}_e_{reduce}"] for op in ("add", "sub", "mul", "div")
    for reduce in ("sum", "max", "min", "mean")] + [
    [f"copy_{end}_{reduce}"] for end in "ue"
    for reduce in ("sum", "max", "min", "mean")])
@pytest.mark.parametrize("width", [1, IN])
def test_every_message_of_dgl(names, width, doubles):
    layer, graph = ByFunctions(names), graph_of()
    x, e = torch.randn(N, IN), torch.rand(graph.num_edges(), width) + 0.5
    fast = fast_copy(layer)

    def run(module):
        leaves = [x.clone().requires_grad_(), e.clone().requires_grad_()]
        out = module(graph, *leaves)
        return [out, *torch.autograd.grad(out.sin().sum(), leaves,
                                          allow_unused=True)]
    agree(run(fast), run(layer))


@pytest.mark.parametrize("x, e", [
    ((N, 2, 3), (1, 1)), ((N, 2, 3), (2, 1)), ((N, 2, 3), (1, 3)),
    ((N, 2, 3), (2, 3)), ((N, 2, 3), (1,)), ((N,), ()), ((N, 1), (3,)),
    ((N, 4, 2, 3), (4, 2, 1)), ((N, 4, 2, 3), (4, 1, 1)),
    ((N, 2, 1), (2, 1))])
def test_weights_are_broadcast_as_dgl_does(x, e, doubles):
    graph, layer = graph_of(), ByFunctions(["u_mul_e_sum"])
    x, e = torch.randn(x), torch.rand(graph.num_edges(), *e)
    fast = fast_copy(layer)
    if x.shape[1:] == e.shape[1:] or e.dim() <= x.dim():
        close(fast(graph, x, e), layer(graph, x, e), 1e-10)


def test_a_subclass_of_a_layer_has_its_sums_served():
    class Twice(theirs.GraphConv):
        def forward(self, graph, feat):
            return 2 * super().forward(graph, feat)
    layer, graph, x = Twice(IN, OUT), graph_of(), torch.randn(N, IN)
    expected = layer(graph, x)
    assert len(dfgnn.accelerate(layer).swapped) == 1
    with Plans() as plans:
        close(layer(graph, x), expected, 1e-5)
    assert plans.count == 1


def test_relations_are_converted_once():
    edges = {("a", "reads", "b"): random_edges(9, 7, 30),
             ("b", "cites", "b"): random_edges(7, 7, 20)}
    graph = dgl.heterograph({k: tuple(v) for k, v in edges.items()},
                            {"a": 9, "b": 7})
    model = theirs.HeteroGraphConv({
        "reads": theirs.SAGEConv((IN, IN), OUT, "mean"),
        "cites": theirs.GATConv((IN, IN), OUT, 1, allow_zero_in_degree=True)},
        aggregate=lambda outs, _: sum(out.view(7, -1) for out in outs))
    x = {"a": torch.randn(9, IN), "b": torch.randn(7, IN)}
    expected = model(graph, x)["b"]
    assert len(dfgnn.accelerate(model).swapped) == 2
    with Plans() as plans:
        close(model(graph, x)["b"], expected, 1e-5)
    assert plans.count == 2
    known = len(_remember._entries)
    model(graph, x)
    assert len(_remember._entries) == known


# ---- graphs -----------------------------------------------------------------

def test_a_graph_is_converted_once_until_it_changes():
    graph, x = graph_of(), torch.randn(N, IN)
    layer = theirs.GraphConv(IN, OUT, norm="none")
    plain = copy.deepcopy(layer)
    dfgnn.accelerate(layer)
    layer(graph, x)
    first = dfgnn.as_graph(graph)
    assert dfgnn.as_graph(graph.local_var()) is first
    graph.add_edges(torch.tensor([0, 1]), torch.tensor([2, 2]))
    close(layer(graph, x), plain(graph, x), 1e-5)
    assert dfgnn.as_graph(graph) is not first
    first, index = weakref.ref(first), weakref.ref(graph._graph)
    del graph
    gc.collect()
    assert first() is None and index() is None


def test_graphs_of_one_format_go_to_dgl():
    layer, graph = theirs.GraphConv(IN, OUT), graph_of().formats(["coo"])
    x = torch.randn(N, IN)
    expected = layer(graph, x)
    dfgnn.accelerate(layer)
    close(layer(graph, x), expected, 1e-5)


def test_a_batch_of_graphs():
    graph = dgl.batch([graph_of(), graph_of()])
    assert dfgnn.as_graph(graph).graph_ptr.tolist() == [0, N, 2 * N]
    layer, x = theirs.GATConv(IN, OUT, H), torch.randn(2 * N, IN)
    expected = layer(graph, x)
    dfgnn.accelerate(layer)
    close(layer(graph, x), expected, 1e-5)


# ---- the modules themselves -------------------------------------------------

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([
            theirs.GATConv(IN, OUT, H), theirs.GraphConv(H * OUT, 8),
            theirs.SAGEConv(8, OUT, "mean")])

    def forward(self, graph, x):
        x = self.layers[0](graph, x).flatten(1)
        return self.layers[2](graph, self.layers[1](graph, x).relu())


def test_state_hooks_and_classes_stay_and_undo_takes_it_back():
    model, graph, x = Model().eval(), graph_of(), torch.randn(N, IN)
    expected, seen = model(graph, x), []
    kinds, state = [type(m) for m in model.layers], model.state_dict()
    model.layers[0].register_forward_hook(lambda *_: seen.append(1))
    report = dfgnn.accelerate(model)
    assert [s.name for s in report.swapped] == ["layers.0", "layers.1",
                                                "layers.2"]
    close(model(graph, x), expected, 1e-5)
    assert seen == [1] and list(model.state_dict()) == list(state)
    for layer, kind in zip(model.layers, kinds):
        assert isinstance(layer, kind) and type(layer) is not kind
        assert type(layer) is getattr(dfgnn.nn.dgl, kind.__name__)
    again = dfgnn.accelerate(model)
    assert not again.swapped and not again.kept
    assert len(dfgnn.accelerate(model, undo=True).swapped) == 3
    assert [type(layer) for layer in model.layers] == kinds
    with Plans() as plans:
        close(model(graph, x), expected, 1e-6)
    assert not plans.count


@pytest.mark.parametrize("make", [Model, Own])
@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(
    pickle.dumps(m))])
def test_copies_and_pickles(make, how):
    model, graph, x = make().eval(), graph_of(), torch.randn(N, IN)
    dfgnn.accelerate(model)
    other = how(model)
    with Plans() as plans:
        close(other(graph, x), model(graph, x), 1e-6)
    assert plans.count
    assert [type(m) for m in other.modules()] == [type(m) for m in
                                                  model.modules()]


class Sub(accelerated.with_kernels(theirs.GraphConv)):
    pass


def test_a_subclass_pickles_as_itself():
    assert type(pickle.loads(pickle.dumps(Sub(2, 3)))) is Sub


def hooked(layer):
    layer.fc.register_forward_hook(lambda m, i, o: o * 2)


def parametrized(layer):
    class Double(nn.Module):
        def forward(self, weight):
            return 2 * weight
    parametrize.register_parametrization(layer, "attn_l", Double())


def other_slope(layer):
    layer.leaky_relu.register_forward_hook(lambda m, i, o: o * 2)


@pytest.mark.parametrize("change", [hooked, parametrized, other_slope])
def test_what_looks_into_a_layer_is_heard(change, doubles):
    layer, fast, graph, feats, _ = made("GAT")
    change(layer), change(fast)
    agree(results(fast, graph, feats, ()), results(layer, graph, feats, ()))


def test_layers_are_found_by_name():
    layer = dfgnn.nn.dgl.GATConv(IN, OUT, H)
    assert isinstance(layer, theirs.GATConv)
    with pytest.raises(AttributeError, match="sends messages"):
        dfgnn.nn.dgl.HeteroGraphConv
    with pytest.raises(AttributeError):
        dfgnn.nn.dgl.NoLayer
