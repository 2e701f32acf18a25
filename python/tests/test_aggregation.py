"""SpMM and reductions, and their gradients, against PyG's."""

import pytest
import torch

import dfgnn

from conftest import close, random_edges, to

SIZES = (14, 17)
REDUCTIONS = ["sum", "mean", "min", "max", "var", "std"]


@pytest.mark.parametrize("reduce", [*REDUCTIONS, "median", "mul"])
@pytest.mark.parametrize("heads", [None, 3])
def test_reductions_are_those_of_pyg(reduce, heads, device):
    aggr = pytest.importorskip("torch_geometric.nn.aggr")
    edges = random_edges(*SIZES, 60, device)
    shape = (14, 8) if heads is None else (14, heads, 8)
    x = torch.randn(shape, device=device, requires_grad=True)
    out = dfgnn.aggregate(edges, x, reduce, num_dst=17)
    theirs = {"sum": aggr.SumAggregation, "mean": aggr.MeanAggregation,
              "min": aggr.MinAggregation, "max": aggr.MaxAggregation,
              "var": aggr.VarAggregation, "std": aggr.StdAggregation,
              "median": aggr.MedianAggregation,
              "mul": aggr.MulAggregation}[reduce]().to(device)
    flat = x.flatten(1).double()  # PyG's variance loses digits in float32
    wanted = theirs(flat[edges[0]], edges[1], dim_size=17).view_as(out).float()
    close(out, wanted, 1e-5)
    grad = torch.randn_like(out)
    close(torch.autograd.grad(out, x, grad)[0],
          torch.autograd.grad(wanted, x, grad)[0], 1e-4, "gradients")


def test_pna_is_its_four_parts(device):
    edges = random_edges(*SIZES, 60, device)
    x = torch.randn(14, 8, device=device, requires_grad=True)
    parts = dfgnn.aggregate(edges, x, "pna", num_dst=17)
    singles = [dfgnn.aggregate(edges, x, name, num_dst=17)
               for name in ("mean", "min", "max", "std")]
    for a, b in zip(parts, singles):
        close(a, b, 1e-5)
    close(torch.autograd.grad(sum(p.sin().sum() for p in parts), x)[0],
          torch.autograd.grad(sum(p.sin().sum() for p in singles), x)[0], 1e-4)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_of_the_float64_path(weighted):
    edges = random_edges(6, 7, 15)
    x = torch.randn(6, 2, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(edges.size(1), 2, dtype=torch.float64,
                         requires_grad=True)
    inputs = (x, weight) if weighted else (x,)

    def function(*tensors):
        return dfgnn.spmm(edges, *tensors, num_dst=7)
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("reduce", ["mean", "min", "max", "var", "std"])
def test_gradients_of_gradients_of_reductions(reduce):
    edges = random_edges(6, 7, 15)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)

    def function(x):
        return dfgnn.aggregate(edges, x, reduce, num_dst=7)
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))


def test_gradients_of_gradients_with_normalization():
    edges = random_edges(6, 6, 15)
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)

    def function(x):
        return dfgnn.aggregation.gcn(edges, x, True)
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))


def test_sums_keep_nothing_for_backward():
    edges = random_edges(14, 14, 60)
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor
    x = torch.randn(14, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        dfgnn.aggregate(edges, x, "sum").sum()
    assert not kept


def test_weights_are_in_the_order_of_the_caller(device):
    edges = random_edges(*SIZES, 60, device)
    x = torch.randn(14, 8, device=device)
    weight = torch.randn(edges.size(1), device=device)
    wanted = torch.zeros(17, 8, device=device).index_add(
        0, edges[1], weight.view(-1, 1) * x[edges[0]])
    close(dfgnn.spmm(edges, x, weight, num_dst=17), wanted, 1e-5)


@pytest.mark.parametrize("call, message", [
    (lambda e: dfgnn.spmm(e, torch.randn(14, 8), reduce="max"), "'sum'"),
    (lambda e: dfgnn.aggregate(e, torch.randn(14, 8), "lstm"), "lstm"),
    (lambda e: dfgnn.spmm(e, torch.randn(14)), "x must be"),
    (lambda e: dfgnn.spmm(e, torch.randn(14, 8), torch.randn(3)),
     r"weight must be \[edges=17"),
    (lambda e: dfgnn.spmm(dfgnn.as_graph(e, 14), torch.randn(15, 8)),
     "14 rows"),
])
def test_what_is_wrong_is_named(call, message):
    edges = random_edges(14, 14, 14)
    with pytest.raises(ValueError, match=message):
        call(edges)


def test_a_type_that_is_no_number_with_a_point_is_named():
    with pytest.raises(TypeError, match="x must be float16.*int64"):
        dfgnn.spmm(random_edges(14, 14, 14), torch.ones(14, 8).long())


LAYERS = [
    ("GCNConv", (6, 5), dict(improved=i, add_self_loops=loops, bias=b), w)
    for i in (False, True) for loops in (None, False) for b in (False, True)
    for w in (False, True)
] + [("GCNConv", (6, 5), dict(normalize=False), True)] + [
    ("GraphConv", (6, 5), dict(aggr=a), w)
    for a, w in (("add", True), ("add", False), ("mean", False),
                 ("max", False))
] + [
    ("SAGEConv", (6, 5), dict(aggr=a, normalize=n, root_weight=r, project=p),
     False) for a in ("mean", "max", "add") for n in (False, True)
    for r in (False, True) for p in (False, True)
]


@pytest.mark.parametrize("name, sizes, options, weighted", LAYERS)
def test_layers_are_those_of_pyg(name, sizes, options, weighted, place):
    pyg = pytest.importorskip("torch_geometric.nn")
    from dfgnn import nn
    theirs = getattr(pyg, name)(*sizes, **options)
    mine = getattr(nn, name)(*sizes, **options)
    mine.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(mine.state_dict())
    edges = random_edges(14, 14, 60)
    if weighted:  # which of several loops PyG takes is not defined on a GPU
        edges = loops_once(edges)
    args = (torch.rand(edges.size(1)),) if weighted else ()
    compare(theirs, mine, edges, args, place)


def loops_once(edges):
    """The edges without any but the first loop of each node."""
    seen, kept = set(), []
    for i, (a, b) in enumerate(edges.t().tolist()):
        if a != b or a not in seen:
            kept.append(i)
        if a == b:
            seen.add(a)
    return edges[:, kept]


def test_the_last_of_several_loops_gives_its_weight(place):
    from dfgnn import nn
    layer = nn.GCNConv(2, 2, bias=False).to(place)
    edges = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 1, 0, 1]], device=place)
    weight = torch.tensor([1.0, 5.0, 7.0, 2.0, 3.0], device=place)
    once = torch.tensor([[0, 1, 0], [1, 1, 0]], device=place)
    x = torch.randn(3, 2, device=place)
    close(layer(x, edges, weight),
          layer(x, once, torch.tensor([1.0, 3.0, 2.0], device=place)), 1e-6)


@pytest.mark.parametrize("train_eps", [False, True])
def test_gin_conv_is_that_of_pyg(train_eps, place):
    pyg = pytest.importorskip("torch_geometric.nn")
    from dfgnn import nn
    inner = torch.nn.Linear(6, 5)
    theirs = pyg.GINConv(inner, 0.3, train_eps)
    mine = nn.GINConv(inner, 0.1, train_eps)
    mine.load_state_dict(theirs.state_dict())
    compare(theirs, mine, random_edges(14, 14, 60), (), place)


def compare(theirs, mine, edges, args, place):
    results = []
    theirs, mine = theirs.to(place), mine.to(place)
    x, grad, edges, args = to(
        (torch.randn(14, 6), torch.randn(14, 5), edges, args), place)
    for layer in (mine, theirs):
        leaf = x.clone().requires_grad_()
        out = layer(leaf, edges, *args)
        leaves = [leaf, *layer.parameters()]
        results.append((out, *torch.autograd.grad(out, leaves, grad)))
    close(results[0][0], results[1][0], 1e-5)
    for a, b in zip(results[0][1:], results[1][1:]):
        close(a, b, 1e-4, "gradients")
