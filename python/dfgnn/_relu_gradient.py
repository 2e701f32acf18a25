"""The gradient of sums of rectified messages as a step of autograd of its own,
which a loss of forces differentiates again."""

import torch

from . import _derived, _fused


class ReluGradient(torch.autograd.Function):
    """The gradients of value [M, F] and edge_attr [E, F], of a sum or mean of
    relu(value_j + edge_attr) whose gradient is grad [N, F], by the operator's
    kernel.  They are linear in grad and do not change with what else they
    read, so that their own gradient is one walk over the rows.

    link: a Reduced, whose edge_attr is in the caller's order if its recipe is
        listed.
    wanted: the names of tensors whose gradient is asked for.
    """

    @staticmethod
    def forward(ctx, link, graph, value, edge_attr, grad, wanted):
        names = link.given["value"], link.given["edge_attr"]
        found = link.gradients(graph, dict(zip(names, (value, edge_attr))),
                               grad.contiguous(), wanted)
        ctx.save_for_backward(value, edge_attr)
        ctx.set_materialize_grads(False)
        ctx.about = graph, link.reduce, link.recipe.listed
        return tuple([found.get(name) for name in names])

    @staticmethod
    def backward(ctx, of_value, of_edges):
        graph, reduce, listed = ctx.about
        if not ctx.needs_input_grad[4] or of_value is of_edges is None:
            return (None,) * 6
        value, edge_attr = ctx.saved_tensors
        if listed:
            edge_attr = _fused.reordered(graph, edge_attr)
            if of_edges is not None:
                of_edges = _fused.reordered(graph, of_edges)
        return (None, None, None, None, _derived.of_relu_gradient(
            graph, reduce, value, edge_attr, of_value, of_edges), None)
