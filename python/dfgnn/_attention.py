"""Attention with gradients: the fused passes, and torch operations for calls
that no kernel supports."""

import torch

from . import _composite, _derived, _execute, _neighbours
from ._fallbacks import say_once, say_unfused
from ._operators import by_edge
from .errors import UnsupportedError

def _ordered(graph, made, inputs):
    """The inputs of a call with edge features in the graph's order."""
    if not made.listed:
        return inputs
    return by_edge(made.spec, inputs, graph.to_graph_order)


def forward(graph, made, inputs, bias, seed, with_lse=True):
    """(out, lse or None, weights or None); records nothing for gradients."""
    try:
        return _execute.forward(graph, made, inputs, bias, seed, with_lse)
    except UnsupportedError as error:
        say_once(f"{error}; it runs by torch operations instead")
    with torch.no_grad():
        out, weights = _composite.attention(
            made.op, _ordered(graph, made, inputs), bias, seed, graph,
            made.settings)
    return out, None, weights if made.settings.weights else None


def backward(graph, made, inputs, bias, seed, out, lse, grad_out, needed):
    if lse is not None:
        try:
            return _execute.backward(graph, made, inputs, bias, seed, out, lse,
                                     grad_out, needed)
        except UnsupportedError as error:
            say_once(f"{error}; gradients are made by torch operations "
                     "instead")
    return differentiate(graph, made, inputs, bias, seed, grad_out, None,
                         needed, False)


def differentiate(graph, made, inputs, bias, seed, grad_out, grad_weights,
                  needed, create_graph):
    """Gradients by the composite path; with create_graph by an edge program
    where one serves, themselves differentiable."""
    given = list(inputs) + [bias]
    wanted = [n and t is not None for n, t in zip(needed, given)]
    with torch.enable_grad():
        if not create_graph:
            given = [None if t is None else t.detach().requires_grad_(w)
                     for t, w in zip(given, wanted)]
        else:  # a view for each argument: a tensor may be given twice
            given = [None if t is None else t.view_as(t) for t in given]
        call = made.op, _ordered(graph, made, given[:-1]), given[-1], seed
        found = None
        if create_graph:
            found = _derived.attention(graph, *call, made.settings)
            if found is None:
                say_unfused()
        out, weights = found or _composite.attention(*call, graph,
                                                     made.settings)
        pairs = [(y, g) for y, g in ((out, grad_out), (weights, grad_weights))
                 if g is not None and y.requires_grad]
        sources = [t for t, w in zip(given, wanted) if w]
        grads = iter(torch.autograd.grad(
            [y for y, _ in pairs], sources, [g for _, g in pairs],
            create_graph=create_graph, allow_unused=True))
    return [next(grads) if w else None for w in wanted]


def through_weights(graph, made, inputs, bias, seed, out, lse, weights,
                    grad_out, grad_weights, needed):
    """Gradients of a loss that reads the weights, too: the sum of the fused
    gradients and of those that grad_weights sends through the scores."""
    if lse is None or made.empty:
        return differentiate(graph, made, inputs, bias, seed, grad_out,
                             grad_weights, needed, False)
    if grad_out is None:
        grads = [None] * len(needed)
    else:
        grads = backward(graph, made, inputs, bias, seed, out, lse, grad_out,
                         needed)
    weighted = weights * grad_weights.to(weights.dtype)
    sums = weighted.new_zeros(made.lse_shape).index_add(0, graph.dst, weighted)
    scores = weighted - weights * sums.index_select(0, graph.dst)
    through = _through_scores
    if not made.edge_dim:
        through = _BY_KERNELS.get(made.op, through)
    more = through(graph, made, inputs, scores, needed)
    more.append(scores if needed[-1] else None)
    return [_add(a, b, t) for a, b, t in zip(grads, more, (*inputs, bias))]


def _add(a, b, like):
    if a is None or b is None:
        found = b if a is None else a
        return found if found is None else found.to(like.dtype)
    return a + b.to(a.dtype)


def _through_products(graph, made, inputs, scores, needed):
    """Those of GT: two products with a sparse matrix."""
    query, key = (t.detach().contiguous() for t in inputs[:2])
    scaled = (scores * made.settings.scale).contiguous()
    found = [None] * len(inputs)
    try:
        if needed[0]:
            sums, _ = _neighbours.forward(graph, "spmm-weighted", key, scaled)
            found[0] = sums["out"]
        if needed[1]:
            found[1], _ = _neighbours.backward(
                graph, "spmm-weighted", dict(value=key, edge_weight=scaled),
                {"grad_out": query}, True, False)
    except UnsupportedError:
        return _through_scores(graph, made, inputs, scores, needed)
    return found


def _through_sums(graph, made, inputs, scores, needed):
    """Those of GAT."""
    _, score_dst, score_src = inputs[:3]
    x = (score_dst.index_select(0, graph.dst)
         + score_src.index_select(0, graph.src))
    scores = torch.where(x > 0, scores, scores * made.settings.slope)
    return [None] + [
        torch.zeros_like(t, dtype=scores.dtype,
                         memory_format=torch.contiguous_format).index_add(
            0, index, scores) if wanted else None
        for t, index, wanted in ((score_dst, graph.dst, needed[1]),
                                 (score_src, graph.src, needed[2]))
    ] + [None] * (len(inputs) - 3)


# faster than programs, without features of edges
_BY_KERNELS = {"gt": _through_products, "gat": _through_sums}


def _through_scores(graph, made, inputs, scores, needed):
    """The inputs' gradients from those of the scores [E, H]."""
    with torch.enable_grad():
        given = [None if t is None else
                 t.detach().to(made.exact).requires_grad_(w)
                 for t, w in zip(inputs, needed)]
        found = _derived.scores(graph, made.op, given, made.settings)
        if found is None:
            say_once(f"gradients through the weights of {made.op} are made by "
                     "torch operations, which hold every edge's features")
            found = _composite.SCORES[made.op](given, graph, made.settings)
        sources = [t for t in given if t is not None and t.requires_grad]
        grads = iter(torch.autograd.grad(found, sources, scores,
                                         allow_unused=True)
                     if sources and found.requires_grad
                     else [None] * len(sources))
    return [next(grads) if t is not None and t.requires_grad else None
            for t in given]


class Attention(torch.autograd.Function):
    """Gives out, or (out, weights) if settings.weights."""

    @staticmethod
    def forward(ctx, graph, made, bias, seed, *inputs):
        out, lse, weights = forward(graph, made, inputs, bias, seed)
        ctx.save_for_backward(out, lse, weights, bias, seed, *inputs)
        ctx.call = graph, made
        ctx.set_materialize_grads(False)
        return out if weights is None else (out, weights)

    @staticmethod
    def backward(ctx, grad_out, grad_weights=None):
        graph, made = ctx.call
        out, lse, weights, bias, seed, *inputs = ctx.saved_tensors
        wants = ctx.needs_input_grad
        needed = wants[4:] + (wants[2],)
        if grad_out is None and grad_weights is None:
            return (None,) * len(wants)
        if torch.is_grad_enabled():
            grads = differentiate(graph, made, inputs, bias, seed, grad_out,
                                  grad_weights, needed, True)
        elif grad_weights is not None:
            grads = through_weights(graph, made, inputs, bias, seed, out, lse,
                                    weights, grad_out, grad_weights, needed)
        else:
            grads = backward(graph, made, inputs, bias, seed, out, lse,
                             grad_out, needed)
        return (None, None, grads[-1], None, *grads[:-1])


def _differentiable(inputs, bias):
    if bias is not None and bias.requires_grad:
        return True
    for tensor in inputs:
        if tensor is not None and tensor.requires_grad:
            return True
    return False


def attention(graph, made, inputs, bias, seed):
    """(out, weights or None)."""
    if torch.is_grad_enabled() and _differentiable(inputs, bias):
        result = Attention.apply(graph, made, bias, seed, *inputs)
        return result if made.settings.weights else (result, None)
    out, _, weights = forward(graph, made, inputs, bias, seed, False)
    return out, weights
