"""Reductions of messages that are there for each edge."""

import torch

from ._autograd import Kind, Recorded
from .aggregation import aggregate, spmm
from .graph import Graph


def degrees(graph, dtype):
    """[N] the in-edges of each destination."""
    return graph._derive(("degrees", dtype),
                         lambda: graph.offsets.diff().to(dtype))


def by_edge(graph):
    """The Graph with the same destinations whose sources are the edges
    themselves: it reduces messages that were made edge by edge."""
    def make():
        order = graph.edge_order
        if order is None:
            order = torch.arange(graph.num_edges, device=graph.device,
                                 dtype=graph.indices.dtype)
        return Graph(graph.offsets, order, graph.num_edges)
    return graph._derive("by edge", make)


class _EdgeSum(Kind):
    """Sums or means of messages [E, ...] by destination; the gradient of a
    message is that of its destination, so that no graph is transposed."""

    def record(self, about, given, needed):
        graph, name = about
        return spmm(by_edge(graph), *given, reduce=name), (), None

    def gradients(self, about, rest, kept, grads, needed, again):
        (graph, name), (grad,) = about, grads
        if name == "mean":
            count = degrees(graph, grad.dtype).clamp(min=1)
            grad = grad / count.view([-1] + [1] * (grad.dim() - 1))
        return [grad.index_select(0, graph.edge_index[1])]


_EDGE_SUM = _EdgeSum()


def reduce_edges(graph, message, name):
    """A reduction of messages [E, F] or [E, H, D], in the order of the
    caller's edges."""
    if name in ("sum", "mean"):
        return Recorded.apply(_EDGE_SUM, (graph, name), message)
    return aggregate(by_edge(graph), message, name)
