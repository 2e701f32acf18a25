"""Gradients of a loss that reads the weights of an attention."""

import torch

from . import _derived, _recipe
from ._fallbacks import say_once
from ._operators import sum_settings
from .errors import UnsupportedError


def through_weights(graph, made, inputs, weights, grad_weights, grads,
                    needed):
    """The sum of grads, those by the fused passes, and of the gradients that
    grad_weights sends through the scores; weights [E, H] before dropout."""
    weighted = weights * grad_weights.to(weights.dtype)
    sums = weighted.new_zeros((graph.num_dst, weights.size(1))).index_add(
        0, graph.dst, weighted)
    scores = weighted - weights * sums.index_select(0, graph.dst)
    through = _through_scores
    if not made.edge_dim:
        through = _BY_KERNELS.get(made.op, through)
    count = len(made.spec.inputs) - 1
    more = through(graph, made, inputs[:count], scores, needed)
    if len(inputs) > count:
        more.append(scores if needed[-1] else None)
    return [_add(a, b, t) for a, b, t in zip(grads, more, inputs)]


def _add(a, b, like):
    if a is None or b is None:
        found = b if a is None else a
        return found if found is None else found.to(like.dtype)
    return a + b.to(a.dtype)


def _through_products(graph, made, inputs, scores, needed):
    """Those of GT: two products with a sparse matrix."""
    query, key = (t.detach().contiguous() for t in inputs[:2])
    given = key, (scores * made.settings.scale).contiguous()
    found = [None] * len(inputs)
    try:
        sums = _recipe.recipe(graph, "spmm-weighted", given, sum_settings())
        if needed[0]:
            found[0], = sums.forward(graph, given)
        if needed[1]:
            found[1], _ = sums.backward(graph, given, (query,),
                                       (True, False))
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
        found = _derived.by_program(_derived.scores, graph, made.op, given,
                                    made.settings)
        if found is None:
            say_once(f"gradients through the weights of {made.op} are made by "
                     "torch operations, which hold every edge's features")
            found = _derived.scores(_derived.ByTorch, graph, made.op, given,
                                    made.settings)
        sources = [t for t in given if t is not None and t.requires_grad]
        grads = iter(torch.autograd.grad(found, sources, scores,
                                         allow_unused=True)
                     if sources and found.requires_grad
                     else [None] * len(sources))
    return [next(grads) if t is not None and t.requires_grad else None
            for t in given]
