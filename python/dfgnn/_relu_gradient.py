"""The gradient of sums of rectified messages as a step of autograd of its own,
which a loss of forces differentiates again."""

from . import _derived, _fused
from ._autograd import Kind, Recorded


class _ReluGradient(Kind):
    """The gradients of value [M, F] and edge_attr [E, F], of a sum or mean of
    relu(value_j + edge_attr) whose gradient is grad [N, F], by the operator's
    kernel.  They are linear in grad and do not change with what else they
    read, so that their own gradient is one walk over the rows.
    """

    def record(self, about, given, needed):
        link, graph, wanted = about
        value, edge_attr, grad = given
        names = link.given["value"], link.given["edge_attr"]
        found = link.gradients(graph, dict(zip(names, (value, edge_attr))),
                               grad.contiguous(), wanted)
        return tuple([found.get(name) for name in names]), given[:2], \
            link.recipe.listed

    def gradients(self, about, listed, kept, grads, needed, again):
        link, graph, _ = about
        if not needed[2]:
            return [None] * 3
        of_value, of_edges = grads
        value, edge_attr = kept
        if listed:
            edge_attr = _fused.reordered(graph, edge_attr)
            if of_edges is not None:
                of_edges = _fused.reordered(graph, of_edges)
        return [None, None, _derived.of_relu_gradient(
            graph, link.reduce, value, edge_attr, of_value, of_edges)]


_RELU_GRADIENT = _ReluGradient()


def relu_gradient(link, graph, value, edge_attr, grad, wanted):
    """The gradients of value and edge_attr.

    link: a Reduced, whose edge_attr is in the caller's order if its recipe is
        listed.
    wanted: the names of tensors whose gradient is asked for.
    """
    return Recorded.apply(_RELU_GRADIENT, (link, graph, wanted), value,
                          edge_attr, grad)
