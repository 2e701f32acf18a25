"""Sums and reductions of neighbours, SpMM, min, max, mean, var, std, and of
messages that are there for each edge."""

import torch
from torch import Tensor

from . import _formulas, _operators, ops
from ._autograd import Kind, Recorded
from ._checks import DTYPES, ShapeError, describe
from ._execute import sum_settings
from ._modes import compiling, jit_tracing, needs_composite
from ._operators import OPERATORS
from ._torch_library import untraced_graph, untraced_looped_graph
from ._values import is_adjacency, refuse_values, values_like
from .convert import known_graph
from .graph import Graph


# ---- calls over a graph of this process --------------------------------------

def sums(graph, op, fields, listed=False):
    """The results of a sum or reduction; fields: its inputs by field.  Tensors
    by edge are in the graph's order; if they are listed, edge features are in
    the caller's."""
    spec = OPERATORS.get(op)
    inputs = None if spec is None or needs_composite() else spec.given(fields)
    if inputs is None:
        if listed:
            fields["edge_attr"] = graph.to_graph_order(fields["edge_attr"])
        return _formulas.sums(_formulas.ByTorch, graph, op, fields)
    recipe = _operators.recipe(graph, op, inputs, sum_settings(), listed)
    if listed and not recipe.listed:
        place = spec.fields["edge_attr"]
        inputs[place] = graph.to_graph_order(inputs[place])
    return ops.call(graph, recipe, inputs)


def of_neighbours(graph, op, value, weight=None, symmetric=False):
    """sums() of rows of neighbours; weight [E, H] in the caller's order;
    symmetric: with the scales of GCN."""
    fields = {"value": value}
    if weight is not None:
        fields["edge_weight" if op == "spmm-weighted" else "factor"] = \
            graph.to_graph_order(weight)
    if symmetric:
        fields["scale_dst"], fields["scale_src"] = ops.normalization(
            graph, value.dtype)
    return sums(graph, op, fields)


def _graph_of(graph, size, self_loops):
    if isinstance(graph, Graph):
        return graph.with_self_loops() if self_loops else graph
    if not compiling():
        known = known_graph(graph, size, self_loops)
        if known is not None:
            return known
    make = untraced_looped_graph if self_loops else untraced_graph
    return make(graph, size)


def _heads(x):
    return 1 if x.dim() == 2 else x.size(1)


def check_call(graph, x, weight):
    if x.size(0) != graph.num_src or x.device != graph.device:
        raise ShapeError(f"x must have {graph.num_src} rows on {graph.device},"
                         " got " + describe(x))
    if weight is not None and weight.shape != (graph.num_edges, _heads(x)):
        raise ShapeError(
            f"weight must be [edges={graph.num_edges}, "
            f"heads={_heads(x)}], got " + describe(weight))


def _call(graph, op, x, weight, num_dst, self_loops=False, symmetric=False):
    if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
        raise TypeError("x must be float16, bfloat16, float32 or float64, got "
                        + describe(x))
    if x.dim() not in (2, 3):
        raise ValueError("x must be [sources, features] or [sources, heads, "
                         "features], got " + describe(x))
    if is_adjacency(graph):
        graph = untraced_graph(graph)
    if weight is not None and weight.dim() == 1:
        weight = weight.view(-1, 1).expand(-1, _heads(x))
    if num_dst is None:
        num_dst = graph.num_dst if isinstance(graph, Graph) else x.size(0)
    split = isinstance(graph, Graph) and graph.exchange is not None
    traced = compiling() and op in OPERATORS and (
        weight is None or op == "spmm-weighted")
    if not split and not traced:
        graph = _graph_of(graph, (x.size(0), num_dst), self_loops)
        if self_loops and weight is not None:
            weight = graph.to_looped_edges(weight)
        if not jit_tracing():  # a trace makes tensors of sizes
            check_call(graph, x, weight)
        return of_neighbours(graph, op, x, weight, symmetric)
    value = x.unsqueeze(1) if x.dim() == 2 else x
    if split:
        outs = graph.sums(op, value, weight, self_loops, symmetric)
    else:
        outs = ops.traced_sums(op, graph, num_dst, self_loops, symmetric,
                               value=value, edge_weight=weight)
    return [out.squeeze(1) if x.dim() == 2 else out for out in outs]


def spmm(graph, x: Tensor, weight: Tensor | None = None, reduce: str = "sum",
         *, num_dst: int | None = None, self_loops: bool = False) -> Tensor:
    """out_i = the sum (or "mean") over in-edges of w_ij x_j.

    x [M, F] or [M, H, D]; weight [E] or [E, H], in the caller's edge order:
    by default the values of a sparse matrix, and 1 for other graphs.
    num_dst: the number of destinations; by default the graph's, or, of an
        edge_index, that of the sources.
    self_loops: sums over the edges of ``graph.with_self_loops()``.  weight
        has an entry for each of them, or [E + nodes] entries: for all edges of
        the graph and then for a loop of each node; the entries of edges that
        are self loops are not read.
    """
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be 'sum' or 'mean', got {reduce!r}")
    if not isinstance(graph, Graph) and isinstance(x, torch.Tensor):
        if weight is not None:
            refuse_values(graph, "spmm with weight")
        elif self_loops:
            refuse_values(graph, "spmm with self_loops")
        else:
            weight = values_like(graph, x)
    if weight is None:
        return _call(graph, "spmm-" + reduce, x, None, num_dst, self_loops)[0]
    out = _call(graph, "spmm-weighted", x, weight, num_dst, self_loops)[0]
    if reduce == "sum":
        return out
    graph = _graph_of(graph, (x.size(0), num_dst or x.size(0)), self_loops)
    return out / _formulas.degrees_of(graph, out)


def gcn(graph, x, self_loops):
    """The sum over in-edges of x_j / sqrt(d_i d_j), d the number of in-edges
    of a square graph; no tensor by edge is made."""
    return _call(graph, "spmm-sum", x, None, x.size(0), self_loops, True)[0]


REDUCTIONS = ("min", "max", "mean", "var", "std", "pna", "mul", "median")


def aggregate(graph, x: Tensor, reduce: str, weight: Tensor | None = None, *,
              num_dst: int | None = None) -> Tensor | tuple[Tensor, ...]:
    """Neighbours reduced feature by feature: "sum", "mean", "min", "max",
    "var", "std", "mul", "median", or "pna": mean, min, max and std in one
    pass.  A destination without edges gives 0, or 1 for "mul".

    weight [E] or [E, H]: multiplies the features before they are reduced.
    Kernels take it for "sum" and "mean"; other reductions with a weight, "mul"
    and "median" run by torch operations, which hold every edge's features.

    Where several edges have the same minimum or maximum, the fused kernels
    give the whole gradient to the first of them in the graph's own order; PyG
    without torch_scatter divides it among them.
    """
    if reduce in ("sum", "add", "mean") and weight is not None:
        return spmm(graph, x, weight, "mean" if reduce == "mean" else "sum",
                    num_dst=num_dst)
    if reduce not in REDUCTIONS and reduce not in ("sum", "add"):
        raise ValueError("reduce must be one of sum, "
                         f"{', '.join(REDUCTIONS)}, got {reduce!r}")
    if not isinstance(graph, Graph):
        refuse_values(graph, f"reducing by {reduce!r}")
    op = "spmm-sum" if reduce in ("sum", "add") else "reduce-" + reduce
    outs = _call(graph, op, x, weight, num_dst)
    return tuple(outs) if reduce == "pna" else outs[0]


PNA = ("mean", "min", "max", "std")


def each_of(names, run):
    """[the result of each reduction], of run(name); two or more of PNA's are
    those of run("pna"), which is one pass."""
    results = {}
    if len(set(names) & set(PNA)) > 1:
        results = dict(zip(PNA, run("pna")))
    for name in names:
        if name not in results:
            results[name] = run(name)
    return [results[name] for name in names]


def each_reduction(graph, x, names, num_dst=None):
    """[each reduction] of neighbours."""
    def run(name):
        return spmm(graph, x, reduce=name, num_dst=num_dst) \
            if name in ("sum", "mean") else aggregate(
                graph, x, name, num_dst=num_dst)
    return each_of(names, run)


def degrees(graph, like):
    """[N] the in-edges of each destination, a row of like, in its type; while
    torch.compile traces, graph is an edge_index."""
    if isinstance(graph, Graph):
        return graph._derive(("degrees", like.dtype),
                             lambda: graph.offsets.diff().to(like.dtype))
    return like.new_zeros(like.size(0)).index_add(
        0, graph[1], like.new_ones(graph.size(1)))


def by_edge(graph, listed=True):
    """The Graph with the same destinations whose sources are the edges
    themselves: it reduces messages that were made edge by edge.  listed: in
    the caller's order, else in the graph's."""
    def make():
        order = graph.edge_order if listed else None
        if order is None:
            order = torch.arange(graph.num_edges, device=graph.device,
                                 dtype=graph.indices.dtype)
        return Graph(graph.offsets, order, graph.num_edges)
    return graph._derive("by edge" if listed and graph.edge_order is not None
                         else "by row", make)


class _EdgeSum(Kind):
    """Sums or means of messages [E, ...] by destination; the gradient of a
    message is that of its destination, so that no graph is transposed."""

    def record(self, about, tensors, needed):
        graph, name, listed = about
        return spmm(by_edge(graph, listed), *tensors, reduce=name), (), None

    def gradients(self, about, rest, kept, grads, needed, again):
        (graph, name, listed), (grad,) = about, grads
        if name == "mean":
            grad = grad / _formulas.degrees_of(graph, grad)
        return [grad.index_select(0, graph.edge_index[1] if listed
                                  else graph.dst)]


_EDGE_SUM = _EdgeSum()


def reduce_edges(graph, message, name, listed=True):
    """A reduction of messages [E, F] or [E, H, D], in the order of the
    caller's edges, or in the graph's."""
    if name in ("sum", "mean"):
        return Recorded.apply(_EDGE_SUM, (graph, name, listed), message)
    return aggregate(by_edge(graph, listed), message, name)
