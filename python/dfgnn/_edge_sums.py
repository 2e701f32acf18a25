"""Reductions of messages that are there for each edge."""

import torch

from ._autograd import Kind, Recorded
from .aggregation import aggregate, spmm
from .graph import Graph


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

    def record(self, about, given, needed):
        graph, name, listed = about
        return spmm(by_edge(graph, listed), *given, reduce=name), (), None

    def gradients(self, about, rest, kept, grads, needed, again):
        (graph, name, listed), (grad,) = about, grads
        if name == "mean":
            count = degrees(graph, grad).clamp(min=1)
            grad = grad / count.view([-1] + [1] * (grad.dim() - 1))
        return [grad.index_select(0, graph.edge_index[1] if listed
                                  else graph.dst)]


_EDGE_SUM = _EdgeSum()


def reduce_edges(graph, message, name, listed=True):
    """A reduction of messages [E, F] or [E, H, D], in the order of the
    caller's edges, or in the graph's."""
    if name in ("sum", "mean"):
        return Recorded.apply(_EDGE_SUM, (graph, name, listed), message)
    return aggregate(by_edge(graph, listed), message, name)
