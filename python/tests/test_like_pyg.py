"""Cases in which fuzzing found layers to differ from PyG's: static graphs,
messages of one's own, flows, types under autocast, reductions, lazy sizes,
initial parameters."""

import copy
import pickle

import pytest
import torch

pyg = pytest.importorskip("torch_geometric.nn")

from dfgnn import nn  # noqa: E402

from conftest import close, random_edges  # noqa: E402

N = 12


def pair(name, *args, **options):
    theirs = getattr(pyg, name)(*args, **options)
    mine = getattr(nn, name)(*args, **options)
    mine.load_state_dict(theirs.state_dict())
    return theirs, mine


def check(theirs, mine, x, edges, *args, tolerance=1e-4, **options):
    """Compares results, and gradients of x and of parameters."""
    found = []
    for layer in (mine, theirs):
        leaf = x.detach().clone().requires_grad_()
        out = layer(leaf, edges, *args, **options)
        torch.manual_seed(5)
        leaves = [leaf, *layer.parameters()]
        found.append((out, *torch.autograd.grad(
            (out * torch.randn(out.shape).to(out.device)).sum(), leaves,
            allow_unused=True)))
    close(found[0][0], found[1][0], tolerance)
    for a, b in zip(found[0][1:], found[1][1:]):
        assert (a is None) == (b is None)
        if b is not None and max(a.abs().max(), b.abs().max()) > 1e-5:
            close(a, b, 10 * tolerance, "gradients")


# ---- static graphs ----------------------------------------------------------

@pytest.mark.parametrize("name, options, weighted", [
    ("GCNConv", {}, False), ("GCNConv", {}, True),
    ("GCNConv", dict(normalize=False), True), ("GraphConv", {}, True),
    ("GraphConv", dict(aggr="max"), False), ("SAGEConv", {}, False),
    ("SAGEConv", dict(aggr=["mean", "max", "std"]), False),
    ("SAGEConv", dict(aggr="median"), False)])
@pytest.mark.parametrize("shape", [(3, N, 6), (2, 2, N, 6)])
def test_static_graphs(name, options, weighted, shape, place):
    edges = random_edges(N, N, 40, place)
    if weighted:  # on a GPU PyG takes either of two loops of a node
        edges = edges.unique(dim=1)
    args = (torch.rand(edges.size(1), device=place),) if weighted else ()
    if options.get("aggr") == "median":  # PyG's takes two dimensions alone
        mine = nn.SAGEConv(6, 4, **options).to(place)
        x = torch.randn(shape, device=place)
        flat = x.view(-1, N, 6)
        close(mine(x, edges).view(-1, N, 4),
              torch.stack([mine(t, edges) for t in flat]), 1e-5)
        return
    theirs, mine = (t.to(place) for t in pair(name, 6, 4, **options))
    check(theirs, mine, torch.randn(shape, device=place), edges, *args)


def test_static_graphs_of_gin():
    inner = torch.nn.Linear(6, 4)
    theirs, mine = pyg.GINConv(inner), nn.GINConv(inner)
    check(theirs, mine, torch.randn(3, N, 6), random_edges(N, N, 40))


@pytest.mark.parametrize("name", ["SAGEConv", "GraphConv"])
def test_static_bipartite_graphs(name):
    edges = random_edges(9, 7, 40)
    theirs, mine = pair(name, (6, 5), 4)
    x = torch.randn(3, 9, 6), torch.randn(3, 7, 5)
    close(mine(x, edges), theirs(x, edges), 1e-5)


@pytest.mark.parametrize("make", [
    lambda: nn.GATConv(6, 4), lambda: nn.GATv2Conv(6, 4), nn.AGNNConv,
    lambda: nn.TransformerConv(6, 4)])
def test_static_graphs_are_refused_by_name_elsewhere(make):
    layer = make()
    with pytest.raises(ValueError, match=f"{type(layer).__name__}.*static"):
        layer(torch.randn(3, N, 6), random_edges(N, N, 40))


# ---- messages of one's own --------------------------------------------------

def test_a_message_of_ones_own_is_sent_to_the_class_that_calls_it():
    with pytest.raises(TypeError, match=r"message\(\).*dfgnn.nn.pyg.GCNConv"):
        class _(nn.GCNConv):
            def message(self, x_j):
                return 2 * x_j


# ---- flows ------------------------------------------------------------------

@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
@pytest.mark.parametrize("fill_value", ["mean", "add", "max", 0.5])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_features_of_loops_in_either_flow(name, fill_value, flow):
    edges = random_edges(N, N, 40)
    theirs, mine = pair(name, 6, 4, heads=2, edge_dim=3, flow=flow,
                        fill_value=fill_value)
    features = torch.randn(edges.size(1), 3)
    check(theirs, mine, torch.randn(N, 6), edges, features)
    _, (their_edges, their_alpha) = theirs(
        torch.ones(N, 6), edges, features, return_attention_weights=True)
    _, (my_edges, my_alpha) = mine(
        torch.ones(N, 6), edges, features, return_attention_weights=True)
    close(my_alpha, their_alpha, 1e-5)
    assert torch.equal(my_edges, their_edges)


@pytest.mark.parametrize("weighted", [False, True])
def test_gcn_in_the_other_flow(weighted):
    edges = random_edges(N, N, 40)
    theirs, mine = pair("GCNConv", 6, 4, flow="target_to_source")
    check(theirs, mine, torch.randn(N, 6), edges,
          *((torch.rand(edges.size(1)),) if weighted else ()))


# ---- types and dropout ------------------------------------------------------

AUTOCAST = [
    ("AGNNConv", (), {}), ("GATConv", (6, 4), dict(bias=False)),
    ("GATConv", (6, 4), dict(heads=2)),
    ("GATv2Conv", (6, 4), dict(bias=False)),
    ("TransformerConv", (6, 4), dict(bias=False)),
    ("TransformerConv", (6, 4), dict(root_weight=False)),
    ("GCNConv", (6, 4), dict(bias=False)), ("GCNConv", (6, 4), {}),
    ("SAGEConv", (6, 4), dict(bias=False)), ("GraphConv", (6, 4), {}),
]


@pytest.mark.parametrize("name, sizes, options", AUTOCAST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_under_autocast_have_the_type_of_pygs(name, sizes, options,
                                                      dtype, place):
    edges, x = random_edges(N, N, 40, place), torch.randn(N, 6).to(place,
                                                                   dtype)
    theirs, mine = (t.to(place) for t in pair(name, *sizes, **options))
    with torch.autocast(place.type, torch.bfloat16):
        wanted, out = theirs(x, edges), mine(x, edges)
    assert out.dtype == wanted.dtype
    exact = name == "AGNNConv" and dtype == torch.float32
    close(out, wanted, 1e-5 if exact else 3e-2)
    if name in ("GATConv", "GATv2Conv", "TransformerConv"):
        with torch.autocast(place.type, torch.bfloat16):
            alphas = [layer(x, edges, return_attention_weights=True)[1][1]
                      for layer in (mine, theirs)]
        close(*alphas, 3e-2)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_everything_may_be_dropped(name, edge_dim):
    edges, x = random_edges(N, N, 40), torch.randn(N, 6)
    theirs, mine = pair(name, 6, 4, dropout=1.0, edge_dim=edge_dim)
    args = () if edge_dim is None else (torch.randn(edges.size(1), edge_dim),)
    check(theirs, mine, x, edges, *args)
    for layer in (theirs, mine):
        layer.eval()
    check(theirs, mine, x, edges, *args)
    alphas = [layer.train()(x, edges, *args, return_attention_weights=True)
              [1][1] for layer in (theirs, mine)]
    close(alphas[1], alphas[0], 1e-5)


# ---- reductions -------------------------------------------------------------

AGGREGATIONS = [
    "mean", "max", "min", "std", "var", "median", "mul",
    ["mean", "min", "max", "std"], ["sum", "mul"], ["mean"], "softmax",
    "powermean", "lstm",
    lambda: pyg.aggr.SoftmaxAggregation(learn=True),
    lambda: pyg.aggr.MultiAggregation(["mean", "max"], mode="sum")]


def name_of(aggr):
    return "a module" if callable(aggr) else str(aggr)


@pytest.mark.parametrize("aggr", AGGREGATIONS, ids=name_of)
@pytest.mark.parametrize("bipartite", [False, True])
def test_reductions_of_sage(aggr, bipartite):
    made = [aggr() if callable(aggr) else aggr for _ in range(2)]
    theirs = pyg.SAGEConv((6, 5) if bipartite else 6, 4, aggr=made[0])
    mine = nn.SAGEConv((6, 5) if bipartite else 6, 4, aggr=made[1])
    assert repr(mine) == repr(theirs)
    mine.load_state_dict(theirs.state_dict())
    edges = random_edges(N, N, 40)
    edges = edges[:, edges[1].argsort(stable=True)]  # for PyG's LSTM
    x = torch.rand(N, 6) + 0.5
    if bipartite:
        x = (x, torch.randn(N, 5))
        return close(mine(x, edges), theirs(x, edges), 1e-3)
    # PyG's deviation is a difference of squares
    loose = "std" in str(aggr) or "var" in str(aggr)
    check(theirs, mine, x, edges, tolerance=1e-3 if loose else 1e-4)


def test_a_reduction_that_nobody_knows_is_named():
    with pytest.raises(ValueError, match="aggr must be.*'nonsense'"):
        nn.SAGEConv(6, 4, aggr="nonsense")
    with pytest.raises(TypeError, match="takes no colour"):
        nn.SAGEConv(6, 4, colour=1)


@pytest.mark.parametrize("aggr", ["add", "mean", "max", "min", "std"])
def test_weights_of_graph_conv_in_every_reduction(aggr):
    edges = random_edges(N, N, 40)
    theirs, mine = pair("GraphConv", 6, 4, aggr=aggr)
    check(theirs, mine, torch.randn(N, 6), edges,
          torch.rand(edges.size(1)) + 0.1,
          tolerance=1e-3 if aggr == "std" else 1e-4)


def test_the_first_of_equal_maxima_has_the_gradient():
    """aggregate() documents it; PyG divides the gradient among them."""
    edges = torch.tensor([[2, 1, 0], [0, 0, 0]])
    x = torch.tensor([[1.0], [1.0], [0.5]], requires_grad=True)
    from dfgnn import aggregate
    aggregate(edges, x, "max", num_dst=3).sum().backward()
    assert x.grad.tolist() == [[0], [1], [0]]


# ---- lazy sizes -------------------------------------------------------------

LAZY = [
    ("SAGEConv", ((-1, -1), 4), {}), ("SAGEConv", (-1, 4), {}),
    ("TransformerConv", (-1, 4), dict(root_weight=False)),
    ("TransformerConv", (-1, 4), dict(edge_dim=3)),
    ("GATConv", (-1, 4), {}), ("GATConv", ((-1, -1), 4), {}),
    ("GATv2Conv", (-1, 4), {}), ("GraphConv", (-1, 4), {}),
    ("GCNConv", (-1, 4), {})]


@pytest.mark.parametrize("name, sizes, options", LAZY)
def test_lazy_layers_have_a_state_before_and_after_a_call(name, sizes,
                                                          options):
    edges, x = random_edges(N, N, 40), torch.randn(N, 6)
    args = (torch.randn(edges.size(1), 3),) if options.get("edge_dim") else ()
    theirs, mine, fresh = (getattr(where, name)(*sizes, **options)
                           for where in (pyg, nn, nn))
    assert list(mine.state_dict()) == list(theirs.state_dict())
    fresh.load_state_dict(mine.state_dict())  # still lazy
    copied = copy.deepcopy(mine)
    pickle.loads(pickle.dumps(mine.state_dict()))
    given = (x, x) if isinstance(sizes[0], tuple) else x
    theirs(given, edges, *args)
    mine.load_state_dict(theirs.state_dict())
    wanted = theirs(given, edges, *args)
    close(mine(given, edges, *args), wanted, 1e-5)
    for other in (fresh, copied):
        other.load_state_dict(mine.state_dict())
        close(other(given, edges, *args), wanted, 1e-5)
        for a, b in zip(other.state_dict().values(),
                        theirs.state_dict().values()):
            # A layer of PyG's that is never called has a bias that is not
            # initialised and may be NaN.
            if not torch.nn.parameter.is_lazy(a):
                torch.testing.assert_close(a, b, rtol=0, atol=0,
                                           equal_nan=True)


def test_a_projection_cannot_be_lazy():
    with pytest.raises(ValueError, match="project=True"):
        nn.SAGEConv(-1, 4, project=True)


# ---- initial parameters -----------------------------------------------------

STARTS = [
    ("GCNConv", (6, 4), {}), ("GraphConv", (6, 4), {}),
    ("GraphConv", ((6, 5), 4), dict(bias=False)), ("SAGEConv", (6, 4), {}),
    ("SAGEConv", (6, 4), dict(project=True, aggr=["mean", "max"])),
    ("GATConv", (6, 4), dict(heads=2, edge_dim=3, residual=True)),
    ("GATConv", ((6, 5), 4), dict(concat=False, heads=2, residual=True)),
    ("GATv2Conv", (6, 4), dict(heads=2, edge_dim=3, residual=True)),
    ("GATv2Conv", (6, 4), dict(share_weights=True)),
    ("TransformerConv", (6, 4), dict(heads=2, edge_dim=3, beta=True)),
    ("TransformerConv", ((6, 5), 4), dict(root_weight=False, bias=False)),
    ("AGNNConv", (), {}), ("GATConv", (-1, 4), {}), ("SAGEConv", (-1, 4), {})]


@pytest.mark.parametrize("name, sizes, options", STARTS)
def test_the_same_seed_draws_the_same_parameters(name, sizes, options):
    layers = []
    for where in (pyg, nn):
        torch.manual_seed(12)
        layer = getattr(where, name)(*sizes, **options)
        if sizes and sizes[0] == -1:
            layer(torch.randn(N, 6), random_edges(N, N, 40))
        layers.append((layer, torch.rand(1)))
    (theirs, their_next), (mine, my_next) = layers
    for (key, a), (other, b) in zip(theirs.state_dict().items(),
                                    mine.state_dict().items()):
        assert key == other and torch.equal(a, b), key
    assert torch.equal(their_next, my_next)
    torch.manual_seed(13)
    theirs.reset_parameters()
    torch.manual_seed(13)
    mine.reset_parameters()
    for a, b in zip(theirs.parameters(), mine.parameters()):
        assert torch.equal(a, b)


def test_the_network_of_gin_is_drawn_again():
    networks = []
    for where in (pyg, nn):
        torch.manual_seed(12)
        inner = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(),
                                    torch.nn.Linear(5, 4))
        networks.append(where.GINConv(inner, train_eps=True))
    for a, b in zip(*(n.parameters() for n in networks)):
        assert torch.equal(a, b)
