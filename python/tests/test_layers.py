"""The layers of dfgnn.nn against PyG's: what test_pyg_fuzz.py does not draw.
Static graphs, flows, attention of all forms of edges, lazy sizes, initial
parameters, types under autocast, and parameters that each loads from the
other."""

import copy
import pickle

import pytest
import torch

pyg = pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from dfgnn import nn  # noqa: E402

from conftest import close, random_edges, to  # noqa: E402

N, IN, OUT = 12, 6, 4


def pair(name, *args, **options):
    """(PyG's layer, ours with its parameters); each loads the other's."""
    theirs = getattr(pyg, name)(*args, **options)
    mine = getattr(nn, name)(*args, **options)
    mine.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(mine.state_dict())
    assert repr(mine) == repr(theirs)
    return theirs, mine


def check(theirs, mine, x, edges, *args, given=None, tolerance=1e-5,
          **options):
    """Compares results, attention weights, and gradients of x and of
    parameters; given: the edges for ours."""
    found = []
    for layer in (mine, theirs):
        leaf = x.detach().clone().requires_grad_()
        out = layer(leaf, given if layer is mine and given is not None
                    else edges, *args, **options)
        alpha = None
        if isinstance(out, tuple):
            out, alpha = out
        torch.manual_seed(5)
        leaves = [leaf, *layer.parameters()]
        found.append((out, alpha, torch.autograd.grad(
            (out * torch.randn(out.shape).to(out.device)).sum(), leaves,
            allow_unused=True)))
    (out, alpha, grads), (wanted, of_theirs, expected) = found
    close(out, wanted, tolerance)
    for a, b in zip(grads, expected):
        assert (a is None) == (b is None)
        # a gradient that is zero except for rounding
        if b is not None and max(a.abs().max(), b.abs().max()) > 1e-5:
            close(a, b, 10 * tolerance, "gradients")
    if of_theirs is not None:
        assert torch.equal(alpha[0], of_theirs[0])
        close(alpha[1], of_theirs[1], tolerance, "attention weights")


# ---- edges ------------------------------------------------------------------

FORMS = [
    ("TransformerConv", dict(heads=2, beta=True)),
    ("GATConv", dict(heads=2, residual=True)),
    ("GATv2Conv", dict(heads=3, concat=False)),
    ("GCNConv", {}), ("GCNConv", dict(normalize=False)),
    ("GraphConv", dict(aggr="max")),
    ("SAGEConv", dict(project=True, normalize=True))]


@pytest.mark.parametrize("name, options", FORMS)
@pytest.mark.parametrize("form", ["list", "int32", "graph", "no edges"])
def test_a_layer_takes_its_edges_in_any_form(name, options, form, place):
    theirs, mine = to(pair(name, IN, OUT, **options), place)
    edges = random_edges(N, N, 0 if form == "no edges" else 40, place)
    if form == "no edges":
        edges = edges[:, :0]
    given = {"graph": lambda: dfgnn.as_graph(edges, N),
             "int32": lambda: edges.int()}.get(form, lambda: edges)()
    for weights in [{}, *[dict(return_attention_weights=w) for w in (
            True, False)] * ("heads" in options)]:
        check(theirs, mine, torch.randn(N, IN, device=place), edges,
              given=given, **weights)


def test_gat_without_features_of_destinations():
    x, edges = torch.randn(14, IN), random_edges(14, 17, 60)
    for loops in (True, False):
        theirs, mine = pair("GATConv", (IN, 5), 8, heads=2,
                            add_self_loops=loops)
        for size in (None, (14, 17)):
            used = edges.clamp(max=13) if size is None else edges
            close(mine((x, None), used, size=size),
                  theirs((x, None), used, size=size), 1e-5)


def test_the_last_of_several_loops_gives_its_weight(place):
    layer = nn.GCNConv(2, 2, bias=False).to(place)
    edges = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 0, 1]], device=place)
    weight = torch.tensor([1.0, 5.0, 7.0, 2.0, 3.0], device=place)
    once = torch.tensor([[0, 1, 0], [1, 1, 0]], device=place)
    x = torch.randn(3, 2, device=place)
    close(layer(x, edges, weight),
          layer(x, once, torch.tensor([1.0, 3.0, 2.0], device=place)), 1e-6)


@pytest.mark.parametrize("name, options", [
    ("GCNConv", {}), ("GCNConv", dict(normalize=False)), ("GraphConv", {})])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1)])
def test_gradients_of_weights_of_several_loops(name, options, shape):
    edges = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 0, 1]])
    weight = torch.rand(5, requires_grad=True)
    x, results = torch.randn(3, IN), []
    for layer in pair(name, IN, OUT, **options):
        out = layer(x, edges, weight.view(shape))
        results.append([out, *torch.autograd.grad(out.square().sum(), weight)])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name, options", [
    ("SAGEConv", {}), ("GraphConv", {}), ("GATConv", dict(add_self_loops=False))])
@pytest.mark.parametrize("size", [(14, None), (None, None), (None, 17)])
def test_a_size_may_leave_out_what_x_tells(name, options, size):
    theirs, mine = pair(name, (IN, 5), OUT, **options)
    given = ((torch.randn(14, IN), torch.randn(17, 5)),
             random_edges(14, 17, 60))
    close(mine(*given, size=size), theirs(*given, size=size), 1e-5)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "SAGEConv"])
def test_backward_flow_between_sets_of_two_sizes_is_refused(name):
    layer = getattr(nn, name)((IN, 5), OUT, flow="target_to_source")
    with pytest.raises(ValueError, match="x of 4 and 3 nodes.*flip"):
        layer((torch.randn(4, IN), torch.randn(3, 5)),
              torch.tensor([[0, 1], [1, 2]]))


@pytest.mark.parametrize("weighted", [False, True])
def test_edges_that_a_layer_keeps_serve_all_calls(weighted):
    theirs, mine = pair("GCNConv", IN, OUT, cached=True)
    edges, x = random_edges(N, N, 40), torch.randn(N, IN)
    weight = torch.rand(edges.size(1))
    kept = theirs(x, edges, weight if weighted else None)
    close(mine(x, edges, weight if weighted else None), kept, 1e-5)
    others = edges.flip(0)
    for layer in (theirs, mine, theirs, mine):
        close(layer(x, others), kept, 1e-5)
        close(layer(x, others, weight), kept, 1e-5)
        with torch.autocast("cpu", torch.bfloat16):
            close(layer(x, others).float(), kept, 3e-2)
        layer.cached = False


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
@pytest.mark.parametrize("fill_value", ["mean", "add", "max", 0.5])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_features_of_loops_in_either_flow(name, fill_value, flow):
    edges = random_edges(N, N, 40)
    check(*pair(name, IN, OUT, heads=2, edge_dim=3, flow=flow,
                fill_value=fill_value), torch.randn(N, IN), edges,
          torch.randn(edges.size(1), 3), return_attention_weights=True)


def test_a_message_of_ones_own_is_sent_to_the_class_that_calls_it():
    with pytest.raises(TypeError, match=r"message\(\).*dfgnn.nn.pyg.GCNConv"):
        class _(nn.GCNConv):
            def message(self, x_j):
                return 2 * x_j


# ---- static graphs ----------------------------------------------------------

@pytest.mark.parametrize("name, options, weighted", [
    ("GCNConv", {}, True), ("GCNConv", dict(normalize=False), True),
    ("GraphConv", {}, True), ("GraphConv", dict(aggr="max"), False),
    ("SAGEConv", {}, False),
    ("SAGEConv", dict(aggr=["mean", "max", "std"]), False),
    ("SAGEConv", dict(aggr="median"), False)])
@pytest.mark.parametrize("shape", [(3, N, IN), (2, 2, N, IN)])
def test_static_graphs(name, options, weighted, shape, place):
    edges = random_edges(N, N, 40, place)
    if weighted:  # on a GPU PyG takes either of two loops of a node
        edges = edges.unique(dim=1)
    args = (torch.rand(edges.size(1), device=place),) if weighted else ()
    x = torch.randn(shape, device=place)
    if options.get("aggr") == "median":  # PyG's takes two dimensions alone
        mine = nn.SAGEConv(IN, OUT, **options).to(place)
        close(mine(x, edges).view(-1, N, OUT),
              torch.stack([mine(t, edges) for t in x.view(-1, N, IN)]), 1e-5)
        return
    check(*to(pair(name, IN, OUT, **options), place), x, edges, *args,
          tolerance=1e-4)


@pytest.mark.parametrize("name", ["SAGEConv", "GraphConv"])
def test_static_bipartite_graphs(name):
    edges = random_edges(9, 7, 40)
    theirs, mine = pair(name, (IN, 5), OUT)
    x = torch.randn(3, 9, IN), torch.randn(3, 7, 5)
    close(mine(x, edges), theirs(x, edges), 1e-5)


@pytest.mark.parametrize("make", [
    lambda: nn.GATConv(IN, OUT), lambda: nn.GATv2Conv(IN, OUT), nn.AGNNConv,
    lambda: nn.TransformerConv(IN, OUT)])
def test_static_graphs_are_refused_by_name_elsewhere(make):
    layer = make()
    with pytest.raises(ValueError, match=f"{type(layer).__name__}.*static"):
        layer(torch.randn(3, N, IN), random_edges(N, N, 40))


# ---- types, dropout and reductions ------------------------------------------

AUTOCAST = [
    ("AGNNConv", (), {}), ("GATConv", (IN, OUT), dict(bias=False)),
    ("GATConv", (IN, OUT), dict(heads=2)),
    ("GATv2Conv", (IN, OUT), dict(bias=False)),
    ("TransformerConv", (IN, OUT), dict(bias=False)),
    ("TransformerConv", (IN, OUT), dict(root_weight=False)),
    ("GCNConv", (IN, OUT), dict(bias=False)), ("GCNConv", (IN, OUT), {}),
    ("SAGEConv", (IN, OUT), dict(bias=False)), ("GraphConv", (IN, OUT), {}),
]


@pytest.mark.parametrize("name, sizes, options", AUTOCAST)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_under_autocast_have_the_type_of_pygs(name, sizes, options,
                                                      dtype, place):
    edges, x = random_edges(N, N, 40, place), torch.randn(N, IN).to(place,
                                                                    dtype)
    layers = to(pair(name, *sizes, **options), place)
    weights = dict(return_attention_weights=True) if name in (
        "GATConv", "GATv2Conv", "TransformerConv") else {}
    with torch.autocast(place.type, torch.bfloat16):
        wanted, out = (layer(x, edges, **weights) for layer in layers)
    if weights:
        close(out[1][1], wanted[1][1], 3e-2)
        wanted, out = wanted[0], out[0]
    exact = name == "AGNNConv" and dtype == torch.float32
    close(out, wanted, 1e-5 if exact else 3e-2)  # and the type


def test_agnn_takes_features_of_another_type_than_its_number():
    edges, x = random_edges(N, N, 40), torch.randn(N, IN)
    theirs, mine = pair("AGNNConv")
    for layer in (theirs.double(), mine.double()):
        close(layer(x, edges), theirs(x.double(), edges), 1e-6)  # and the type


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
@pytest.mark.parametrize("edge_dim", [None, 3])
def test_everything_may_be_dropped(name, edge_dim):
    edges, x = random_edges(N, N, 40), torch.randn(N, IN)
    theirs, mine = pair(name, IN, OUT, dropout=1.0, edge_dim=edge_dim)
    args = () if edge_dim is None else (torch.randn(edges.size(1), edge_dim),)
    check(theirs, mine, x, edges, *args, return_attention_weights=True)
    for mode in (True, False):
        check(theirs.train(mode), mine.train(mode), x, edges, *args)


@pytest.mark.parametrize("aggr", [
    "softmax", "powermean", "lstm",
    lambda: pyg.aggr.SoftmaxAggregation(learn=True),
    lambda: pyg.aggr.MultiAggregation(["mean", "max"], mode="sum")],
    ids=lambda aggr: "a module" if callable(aggr) else aggr)
@pytest.mark.parametrize("bipartite", [False, True])
def test_aggregations_of_pyg_in_sage(aggr, bipartite):
    """The fuzz of test_pyg_fuzz.py draws aggregations that kernels have."""
    made = [aggr() if callable(aggr) else aggr for _ in range(2)]
    theirs, mine = (where.SAGEConv((IN, 5) if bipartite else IN, OUT, aggr=a)
                    for where, a in zip((pyg, nn), made))
    assert repr(mine) == repr(theirs)
    mine.load_state_dict(theirs.state_dict())
    edges = random_edges(N, N, 40)
    edges = edges[:, edges[1].argsort(stable=True)]  # for PyG's LSTM
    x = torch.rand(N, IN) + 0.5
    if bipartite:
        x = (x, torch.randn(N, 5))
        close(mine(x, edges), theirs(x, edges), 1e-3)
    else:
        check(theirs, mine, x, edges, tolerance=1e-4)


def test_a_reduction_that_nobody_knows_is_named():
    with pytest.raises(ValueError, match="aggr must be.*'nonsense'"):
        nn.SAGEConv(IN, OUT, aggr="nonsense")
    with pytest.raises(TypeError, match="takes no colour"):
        nn.SAGEConv(IN, OUT, colour=1)


def test_the_first_of_equal_maxima_has_the_gradient():
    """aggregate() documents it; PyG divides the gradient among them."""
    edges = torch.tensor([[2, 1, 0], [0, 0, 0]])
    x = torch.tensor([[1.0], [1.0], [0.5]], requires_grad=True)
    dfgnn.aggregate(edges, x, "max", num_dst=3).sum().backward()
    assert x.grad.tolist() == [[0], [1], [0]]


# ---- lazy sizes -------------------------------------------------------------

LAZY = [
    ("SAGEConv", ((-1, -1), OUT), {}), ("SAGEConv", (-1, OUT), {}),
    ("TransformerConv", (-1, OUT), dict(root_weight=False)),
    ("TransformerConv", (-1, OUT), dict(edge_dim=3)),
    ("GATConv", (-1, OUT), {}), ("GATConv", ((-1, -1), OUT), {}),
    ("GATv2Conv", (-1, OUT), {}), ("GraphConv", (-1, OUT), {}),
    ("GCNConv", (-1, OUT), {})]


@pytest.mark.parametrize("name, sizes, options", LAZY)
def test_lazy_layers_have_a_state_before_and_after_a_call(name, sizes,
                                                          options):
    edges, x = random_edges(N, N, 40), torch.randn(N, IN)
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
        nn.SAGEConv(-1, OUT, project=True)


# ---- initial parameters -----------------------------------------------------

STARTS = [
    ("GCNConv", (IN, OUT), {}), ("GraphConv", (IN, OUT), {}),
    ("GraphConv", ((IN, 5), OUT), dict(bias=False)), ("SAGEConv", (IN, OUT), {}),
    ("SAGEConv", (IN, OUT), dict(project=True, aggr=["mean", "max"])),
    ("GATConv", (IN, OUT), dict(heads=2, edge_dim=3, residual=True)),
    ("GATConv", ((IN, 5), OUT), dict(concat=False, heads=2, residual=True)),
    ("GATv2Conv", (IN, OUT), dict(heads=2, edge_dim=3, residual=True)),
    ("GATv2Conv", (IN, OUT), dict(share_weights=True)),
    ("TransformerConv", (IN, OUT), dict(heads=2, edge_dim=3, beta=True)),
    ("TransformerConv", ((IN, 5), OUT), dict(root_weight=False, bias=False)),
    ("ResGatedGraphConv", (IN, OUT), {}),
    ("AGNNConv", (), {}), ("GATConv", (-1, OUT), {}), ("SAGEConv", (-1, OUT), {}),
    *[(name, (lambda: torch.nn.Sequential(
        torch.nn.Linear(IN, 5), torch.nn.Linear(5, OUT)),), options)
      for name, options in (("GINConv", dict(train_eps=True)),
                            ("GINEConv", dict(edge_dim=3)))]]


@pytest.mark.parametrize("name, sizes, options", STARTS)
def test_the_same_seed_draws_the_same_parameters(name, sizes, options):
    layers = []
    for where in (pyg, nn):
        torch.manual_seed(12)
        layer = getattr(where, name)(*(size() if callable(size) else size
                                       for size in sizes), **options)
        if sizes and sizes[0] == -1:
            layer(torch.randn(N, IN), random_edges(N, N, 40))
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
