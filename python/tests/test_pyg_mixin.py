"""When the layers of dfgnn.nn.pyg take kernels, and when PyG's own path."""

import copy
import functools
import pickle

import pytest
import torch
import torch_geometric.nn as G
from torch_geometric.nn import MessagePassing

import dfgnn
import dfgnn.nn.pyg as ours
from conftest import fast_copy, random_edges
from fuzz_pyg import Watch, near

N, F = 20, 6


@pytest.fixture
def edges():
    return random_edges(N, N, 60)


@pytest.fixture
def x():
    return torch.randn(N, F, dtype=torch.float64, requires_grad=True)


def pairs(name, *args, **options):
    """(PyG's layer, ours with the same parameters)."""
    theirs = getattr(G, name)(*args, **options).double()
    mine = getattr(ours, name)(*args, **options).double()
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine


def kernels(function):
    with Watch() as watch:
        result = function()
    return result, watch.count


@pytest.mark.parametrize("base", list(ours.CLASSES),
                         ids=lambda base: base.__name__)
def test_each_class_is_pygs(base):
    kind = ours.CLASSES[base]
    assert issubclass(kind, base) and issubclass(kind, MessagePassing)
    assert kind.__name__ == base.__name__
    assert getattr(ours, base.__name__) is kind
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_the_issues_layers_are_all_there():
    names = """GCN SAGE Graph GIN GINE GAT GATv2 Transformer AGNN SuperGAT SG
        TAG SSG GCN2 LG Cheb ARMA GatedGraph PDN ClusterGCN Simple MixHop PNA
        GEN RGCN FastRGCN RGAT HGT HAN HEAT FA LE ResGatedGraph Edge General
        FiLM EG""".split()
    missing = [n for n in names if not hasattr(ours, n + "Conv")]
    assert not missing and hasattr(ours, "APPNP")
    assert len(ours.CLASSES) == len(names) + 1


@pytest.mark.parametrize("kind", [
    "propagate_forward_pre", "propagate_forward", "message_forward_pre",
    "message_forward", "aggregate_forward_pre", "aggregate_forward"])
def test_a_hook_takes_pygs_path_and_is_called(kind, x, edges):
    theirs, mine = pairs("SAGEConv", F, 4)
    called = []

    def hook(module, *rest):
        called.append(module)
        if kind.endswith("forward"):
            return 2 * rest[-1]
    for layer in (theirs, mine):
        handle = getattr(layer, f"register_{kind}_hook")(hook)
    out, count = kernels(lambda: mine(x, edges))
    assert called == [mine] and not count
    near(out, theirs(x, edges), 1e-12)
    handle.remove()
    assert kernels(lambda: mine(x, edges))[1]


def test_a_hook_of_edge_updates_is_called(x, edges):
    theirs, mine = pairs("GATConv", F, 4, heads=2)
    for layer in (theirs, mine):
        layer.register_edge_update_forward_hook(lambda m, i, out: out * 0.5)
    near(mine(x, edges), theirs(x, edges), 1e-12)


class Louder(ours.GCNConv):
    def message(self, x_j, edge_weight):
        return 3 * super().message(x_j, edge_weight)


class Wider(ours.SAGEConv):
    """Its message has an argument that SAGEConv's has not."""

    def message(self, x_i, x_j):
        return x_j - x_i


class Same(ours.GATConv):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index).relu()


def test_a_subclass_with_another_message_takes_pygs_path(x, edges):
    mine = Louder(F, 4).double()
    theirs = G.GCNConv(F, 4).double()
    theirs.load_state_dict(mine.state_dict())
    out, count = kernels(lambda: mine(x, edges))
    assert not count
    near(out - mine.bias, 3 * (theirs(x, edges) - theirs.bias), 1e-12)


def test_a_subclass_may_change_the_arguments_of_message(x, edges):
    mine = Wider(F, 4).double()
    degree = torch.bincount(edges[1], minlength=N).view(-1, 1)
    theirs = G.SAGEConv(F, 4).double()
    theirs.load_state_dict(mine.state_dict())
    less = mine.lin_l.weight @ (x * (degree > 0)).T
    near(mine(x, edges), theirs(x, edges) - less.T, 1e-12)


class Flat(ours.SuperGATConv):
    def get_attention(self, edge_index_i, x_i, x_j, num_nodes,
                      return_logits=False):
        return torch.ones_like(x_i[..., 0])


def test_a_subclass_may_change_what_message_calls(x, edges):
    mine = Flat(F, 4, add_self_loops=False, bias=False).double().eval()
    sums = torch.zeros(N, 4, dtype=torch.float64).index_add(
        0, edges[1], mine.lin(x)[edges[0]])
    near(mine(x, edges), sums, 1e-12)


class Halved(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) / 2


@pytest.mark.parametrize("name", ["GATConv", "TransformerConv"])
def test_another_projection_of_edges_is_called(name, x, edges):
    theirs, mine = pairs(name, F, 4, edge_dim=3)
    weight = theirs.lin_edge.weight
    for layer in (theirs, mine):
        layer.lin_edge = Halved(3, 4, bias=False).double()
        layer.lin_edge.weight = torch.nn.Parameter(weight.detach().clone())
    attr = torch.randn(edges.size(1), 3, dtype=torch.float64)
    near(mine(x, edges, attr), theirs(x, edges, attr), 1e-12)


def test_what_is_remembered_does_not_grow(x, edges):
    from dfgnn import _remember
    theirs, mine = pairs("RGATConv", F, 4, 3)
    for layer in (theirs, mine):
        torch.nn.init.ones_(layer.l2)
    sizes = []
    for _ in range(4):
        kinds = torch.randint(0, 3, (edges.size(1),))
        near(mine(x, edges, kinds), theirs(x, edges, kinds), 1e-12)
        sizes.append(len(_remember.kept(edges)))
    assert sizes == [sizes[0]] * 4
    assert sizes[0]


def test_chebyshev_laplacians_of_other_scales_are_others(x, edges):
    theirs, mine = pairs("ChebConv", F, 4, 3)
    for scale in (2.0, 3.0, None, 2.0):
        near(mine(x, edges, lambda_max=scale),
             theirs(x, edges, lambda_max=scale), 1e-12)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv",
                                  "AGNNConv", "SAGEConv"])
def test_a_subclass_may_have_a_propagate_of_its_own(name, x, edges):
    calls = []

    class Counted(getattr(ours, name)):
        def propagate(self, *args, **kwargs):
            calls.append(self)
            return super().propagate(*args, **kwargs)
    sizes = () if name == "AGNNConv" else (x.size(1), 4)
    layer, own = Counted(*sizes).double(), getattr(G, name)(*sizes).double()
    own.load_state_dict(layer.state_dict())
    near(layer(x, edges), own(x, edges))
    assert calls == [layer]


def test_a_subclass_that_changes_no_message_takes_kernels(x, edges):
    mine = Same(F, 4).double()
    out, count = kernels(lambda: mine(x, edges))
    assert count
    theirs = G.GATConv(F, 4).double()
    theirs.load_state_dict(mine.state_dict())
    near(out, theirs(x, edges).relu(), 1e-12)


def test_decomposed_layers_are_pygs(x, edges):
    theirs, mine = pairs("GCNConv", F, 4)
    mine.decomposed_layers = theirs.decomposed_layers = 2
    out, count = kernels(lambda: mine(x, edges))
    assert not count
    near(out, theirs(x, edges), 1e-12)
    mine.decomposed_layers = 1
    assert kernels(lambda: mine(x, edges))[1]


def test_why_is_said_once(x, edges, said):
    layer = ours.SAGEConv(F, 4, aggr="median").double()
    for _ in range(2):
        layer(x, edges)
    assert said.messages == ["SAGEConv takes PyG's own path: no kernel "
                             "reduces by MedianAggregation"]


def _without_features(layer):
    layer.root_weight = False


def _with_another_variance(layer):
    layer.aggr_module.var_aggr = G.MeanAggregation()


@pytest.mark.parametrize("make, change", [
    (lambda: G.TransformerConv(F, 4, 2, beta=True), _without_features),
    (lambda: G.SAGEConv(F, 4, aggr="std"), _with_another_variance)])
def test_settings_of_a_layer_may_change_between_calls(make, change, x, edges):
    plain = make().double()
    fast = fast_copy(plain)
    near(fast(x, edges), plain(x, edges), 1e-10)
    for layer in (plain, fast):
        change(layer)
    near(fast(x, edges), plain(x, edges), 1e-10)


@pytest.mark.parametrize("node", [N + 3, -1])
@pytest.mark.parametrize("name", [
    "GCNConv", "SAGEConv", "GATConv", "GATv2Conv", "TransformerConv",
    "SuperGATConv", "ClusterGCNConv", "RGATConv", "RGCNConv"])
def test_errors_are_pygs(name, node, x):
    relations = name.startswith("R")
    theirs, mine = pairs(name, F, 4, *[2] * relations)
    wrong = torch.tensor([[0, node], [1, 2]])
    more = [torch.tensor([0, 1])] * relations
    with pytest.raises(Exception) as expected:
        theirs(x, wrong, *more)
    with pytest.raises(type(expected.value)):
        mine(x, wrong, *more)
    with pytest.raises(type(expected.value)):  # also once it is remembered
        mine(x, wrong, *more)


@pytest.mark.parametrize("make, width", [
    (lambda: G.GINEConv(torch.nn.Linear(F, 4), edge_dim=3), 3),
    (lambda: G.GATConv(F, 4, 2, edge_dim=3), 3),
    (lambda: G.GATv2Conv(F, 4, 2, edge_dim=3), 3),
    (lambda: G.TransformerConv(F, 4, 2, edge_dim=3), 3),
    (lambda: G.ResGatedGraphConv(F, 4, edge_dim=3), 3),
    (lambda: G.CGConv(F, 3), 3),
    (lambda: G.EdgeConv(torch.nn.Sequential(torch.nn.Linear(2 * F, 4))), 0)])
def test_a_hook_on_all_modules_is_called_as_pyg_calls_it(make, width, x,
                                                         edges):
    layer = make().double()
    more = [torch.randn(edges.size(1), width, dtype=x.dtype)] * bool(width)
    hook = torch.nn.modules.module.register_module_forward_hook(
        lambda module, given, out: 2 * out
        if isinstance(module, (torch.nn.Linear, G.Linear)) else None)
    try:
        expected = layer(x, edges, *more)
        dfgnn.accelerate(layer)
        near(layer(x, edges, *more), expected, 1e-12)
    finally:
        hook.remove()
    found, count = kernels(lambda: layer(x, edges, *more))
    assert count and not torch.allclose(found, expected)


def network(width):
    return torch.nn.Sequential(torch.nn.Linear(width, 4), torch.nn.ReLU(),
                               torch.nn.Linear(4, 4))


def doubled(layer, name):
    """Puts a method on the layer, or on one of its modules, that gives twice
    what its class gives."""
    owner = layer if hasattr(type(layer), name) else layer.get_submodule(name)
    name = name if owner is layer else "forward"
    own = getattr(owner, name)
    setattr(owner, name, functools.wraps(own)(
        lambda *args, **kwargs: 2 * own(*args, **kwargs)))


@pytest.mark.parametrize("when", ["before", "after the first call"])
@pytest.mark.parametrize("make", [
    lambda: G.GCNConv(F, 4), lambda: G.SAGEConv(F, 4, "max", project=True),
    lambda: G.GATConv(F, 4, 2), lambda: G.GATv2Conv(F, 4, 2),
    lambda: G.AGNNConv(), lambda: G.EdgeConv(network(2 * F)),
    lambda: G.GINConv(network(F)), lambda: G.FeaStConv(F, 4, 2),
    lambda: G.PNAConv(F, 4, ["mean", "std"], ["identity", "amplification"],
                      torch.tensor([0, 3, 5, 8, 4]))],
    ids="GCN SAGE GAT GATv2 AGNN Edge GIN FeaSt PNA".split())
def test_methods_that_an_object_has_of_its_own_are_called(make, when, x,
                                                          edges):
    original = make().double()
    methods = [name for name in ("message", "aggregate", "update", "propagate",
                                 "edge_update", "edge_updater")
               if name[:4] != "edge" or type(original).edge_update
               is not MessagePassing.edge_update]
    for name in methods + [n for n, _ in original.named_modules() if n]:
        theirs, mine = copy.deepcopy(original), copy.deepcopy(original)
        doubled(theirs, name)
        if when == "before":
            doubled(mine, name)
        dfgnn.accelerate(mine, guard=False)
        if when != "before":
            mine(x, edges)
            doubled(mine, name)
        for _ in range(2):
            near(mine(x, edges), theirs(x, edges), 1e-12)


@pytest.mark.parametrize("aggr", ["max", "add"])
@pytest.mark.parametrize("act", [torch.relu, torch.nn.functional.elu,
                                 torch.relu_, lambda x: x.sin()])
def test_an_activation_may_be_a_function(act, aggr, x, edges):
    theirs = G.EdgeConv(G.MLP([2 * F, 8, 4], act=act), aggr).double().eval()
    mine = fast_copy(theirs, guard=False)
    near(mine(x, edges), theirs(x, edges), 1e-12)


@pytest.mark.parametrize("make, width", [
    (lambda: G.GINEConv(torch.nn.Linear(F, 4), edge_dim=3), 3),
    (lambda: G.GATConv(F, 4, 2, add_self_loops=False), 0),
    (lambda: G.SAGEConv(F, 4), 0),
    (lambda: G.CGConv(F, 3), 3)])
def test_devices_without_kernels_take_pygs_path(make, width):
    layer = make().to("meta")
    dfgnn.accelerate(layer)
    x = torch.empty(N, F, device="meta")
    edges = torch.empty(2, 9, dtype=torch.long, device="meta")
    more = [torch.empty(9, width, device="meta")] * bool(width)
    assert layer(x, edges, *more).device.type == "meta"


def test_layers_take_a_graph_of_ours(x, edges):
    graph = dfgnn.as_graph(edges, N)
    for name in ("GCNConv", "SAGEConv", "GATConv", "GATv2Conv",
                 "TransformerConv", "SGConv", "ChebConv"):
        rest = (3,) if name == "ChebConv" else ()
        theirs, mine = pairs(name, F, 4, *rest)
        out, count = kernels(lambda: mine(x, graph))
        assert count, name
        near(out, theirs(x, edges), 1e-12, name)


def test_a_graph_of_ours_serves_pygs_path_too(x, edges):
    graph = dfgnn.as_graph(edges, N)
    for name in ("GCNConv", "SAGEConv", "GATConv", "TransformerConv"):
        theirs, mine = pairs(name, F, 4)
        mine.register_propagate_forward_hook(lambda m, i, out: out)
        near(mine(x, graph), theirs(x, edges), 1e-12, name)


@pytest.mark.parametrize("where", ["jit.trace", "func.grad", "vmap",
                                   "forward AD", "dispatch mode"])
def test_what_transforms_operations_sees_pygs(where, x, edges):
    theirs, mine = pairs("GCNConv", F, 4)
    before = mine(x, edges)

    def loss(layer, given):
        return layer(given, edges).square().sum()
    if where == "jit.trace":
        traced = torch.jit.trace(mine, (x, edges))
        other = torch.randn_like(x)
        near(traced(other, edges), theirs(other, edges), 1e-12)
    elif where == "func.grad":
        near(torch.func.grad(lambda v: loss(mine, v))(x),
              torch.func.grad(lambda v: loss(theirs, v))(x), 1e-12)
    elif where == "vmap":
        many = torch.randn(3, N, F, dtype=torch.float64)
        near(torch.func.vmap(lambda v: mine(v, edges))(many),
              torch.stack([theirs(v, edges) for v in many]), 1e-12)
    elif where == "forward AD":
        step = torch.randn_like(x)
        found = torch.func.jvp(lambda v: mine(v, edges), (x,), (step,))[1]
        near(found, torch.func.jvp(lambda v: theirs(v, edges), (x,),
                                    (step,))[1], 1e-12)
    else:
        from torch.utils.flop_counter import FlopCounterMode
        with FlopCounterMode(display=False) as counter:
            mine(x, edges)
        assert counter.get_total_flops() > 0
    out, count = kernels(lambda: mine(x, edges))
    assert count  # and later calls are untouched
    near(out, before, 1e-12)
