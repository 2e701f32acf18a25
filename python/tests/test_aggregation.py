"""SpMM and reductions, and their gradients, against PyG's."""

import pytest
import torch

import dfgnn

from conftest import close, random_edges

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


@pytest.mark.parametrize("reduce", [*REDUCTIONS, "median", "mul"])
def test_without_edges_gradients_are_zeros(reduce, device):
    x = torch.randn(14, 8, device=device, requires_grad=True)
    out = dfgnn.aggregate(random_edges(*SIZES, 0, device)[:, :0], x, reduce,
                          num_dst=17)
    assert torch.equal(torch.autograd.grad(out.sum(), x)[0],
                       torch.zeros_like(x))


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
