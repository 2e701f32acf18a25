"""The fused passes of every operator with gradients, and torch operations for
the calls that no kernel supports.

Inputs are those of _operators.OPERATORS, in their order; tensors by edge are in
the graph's own order, except for edge features of a recipe that is listed, which
are in the caller's.
"""

import torch

from . import _composite, _derived, _recipe
from ._autograd import Kind, Recorded, by_operations, wants_gradient
from ._fallbacks import say_once, say_unfused
from ._modes import needs_composite
from ._operators import OPERATORS, input_of, sum_settings
from .errors import UnsupportedError

INSTEAD = "; it runs by torch operations instead"


class _Reordered(Kind):
    """A tensor by edge in the caller's order, or in the graph's; its gradient
    is brought back as it was brought, instead of being added to zeros."""

    def record(self, about, given, needed):
        return _moved(about[0], *given, about[1]), (), None

    def gradients(self, about, rest, kept, grads, needed, again):
        graph, to_caller = about
        return [reordered(graph, *grads, not to_caller)]


_REORDERED = _Reordered()


def _moved(graph, edges, to_caller):
    if not edges.stride(0):  # all rows are one
        return edges.view_as(edges)
    return graph.to_caller_order(edges) if to_caller else \
        graph.to_graph_order(edges)


def reordered(graph, edges, to_caller=False):
    """A tensor by edge in the graph's order, from one in the caller's, or the
    other way round, where gradients of gradients are recorded."""
    if graph.edge_order is None:
        return edges
    if not torch.is_grad_enabled():
        return _moved(graph, edges, to_caller)
    return Recorded.apply(_REORDERED, (graph, to_caller), edges)


def ordered(graph, made, inputs):
    """The inputs with edge features in the graph's order."""
    if not made.listed:
        return inputs
    place = made.spec.fields["edge_attr"]
    return (*inputs[:place], reordered(graph, inputs[place]),
            *inputs[place + 1:])


def _by_torch(graph, made, inputs, seed, saved=None):
    return _composite.run(_derived.ByTorch, graph, made.spec, made.shown,
                          ordered(graph, made, inputs), seed, made.settings,
                          saved)


# ---- gradients --------------------------------------------------------------

def _by_program(graph, made, inputs, seed, saved, grads):
    """_by_torch() by an edge program, whose gradients hold no features of
    edges; None where none serves."""
    if dict(zip(made.shown, grads)).get("lse") is not None or (
            # a part of a graph numbers its edges otherwise
            made.settings.dropout and graph.edge_number is not None):
        return None
    shown = [name for name in made.shown if name != "lse"]
    found = _derived.by_program(
        lambda way, graph: _composite.run(
            way, graph, made.spec, shown, ordered(graph, made, inputs), seed,
            made.settings, saved), graph)
    if found is None or len(shown) == len(made.shown):
        return found
    return [dict(zip(shown, found)).get(name) for name in made.shown]


def _transposed(graph, made, inputs, saved, grad):
    """The gradient of a value whose messages are copies: a sum over
    out-edges, which reads no features of forward."""
    zeros = grad.new_zeros((graph.num_src,) + tuple(grad.shape[1:]))
    picked = saved.get("arg_" + made.op[-3:])
    if picked is not None and graph.num_edges:
        _, rows, there = _composite.winners(graph, picked)
        return zeros.scatter_add(0, rows, grad * there)
    grad = _composite.scaled(grad, input_of(made.spec, inputs, "scale_dst"))
    if made.op != "spmm-sum":
        grad = grad / _composite.degrees_of(graph, grad)
    total = _derived.by_program(_derived.sum_out, graph, grad)
    if total is None:
        total = _derived.sum_out(_derived.ByTorch, graph, grad)
    return _composite.scaled(total, input_of(made.spec, inputs, "scale_src"))


def _differentiate(graph, made, kept, grads, needed, create_graph):
    """Gradients by the composite path; with create_graph by an edge program
    where one serves, themselves differentiable."""
    inputs, saved, seed = made.parted(kept)
    if inputs[made.spec.value] is None:
        return [_transposed(graph, made, inputs, saved, grads[0])
                if w and n == made.spec.value else None
                for n, w in enumerate(needed)]

    def outs(given):
        found = None
        if create_graph:
            found = _by_program(graph, made, given, seed, saved, grads)
            if found is None:
                say_unfused()
        return _by_torch(graph, made, given, seed, saved) if found is None \
            else found
    return by_operations(outs, inputs, grads, [
        n and t is not None for n, t in zip(needed, inputs)], create_graph)


def by_kernels(graph, made, kept, grads, needed):
    """grads: those of made.cotangents."""
    try:
        return made.backward(graph, kept, grads, needed)
    except UnsupportedError as error:
        say_once(f"{error}; gradients are made by torch operations instead")
    return _differentiate(graph, made, kept, grads, needed, False)


# ---- those of a loss that reads the weights of an attention ------------------

def _through_weights(graph, made, inputs, weights, grad_weights, grads,
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
    """The formulas of GAT."""
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


# ---- all of a call -----------------------------------------------------------

def gradients(graph, made, kept, grads, needed):
    """The gradient of each input, None where it is not needed.

    kept: the tensors of made.kept, None for what forward did not make.
    grads: those of made.shown, or None.
    """
    outs = list(grads[:len(made.cotangents)])
    of_weights = grads[-1] if len(outs) < len(grads) else None
    for tensor in kept:
        if tensor is None or of_weights is not None and made.empty:
            return _differentiate(graph, made, kept, grads, needed, False)
    found = made.ungiven
    if any(grad is not None for grad in outs):
        for number, grad in enumerate(outs):
            field, shape, dtype, _ = made.outs[number]
            if grad is None and field != "lse":
                outs[number] = torch.zeros(shape, dtype=dtype,
                                           device=made.device)
        found = by_kernels(graph, made, kept, outs, needed)
    if of_weights is None:
        return found
    inputs, saved, _ = made.parted(kept)
    return _through_weights(graph, made, inputs, saved["weights"], of_weights,
                            found, needed)


class _Operators(Kind):
    """The results of made.shown; about: (graph, made, seed)."""

    def record(self, about, inputs, needed):
        graph, made, seed = about
        outs = made.forward(graph, inputs, seed)
        kept = made.keep(seed, inputs, outs) if made.kept else ()
        shown = len(made.shown)
        return outs[0] if shown == 1 else tuple(outs[:shown]), kept, None

    def gradients(self, about, rest, kept, grads, needed, again):
        graph, made, *_ = about
        if again:
            return _differentiate(graph, made, kept, grads, needed, True)
        if made.plain and len(grads) == 1:
            return by_kernels(graph, made, kept, grads, needed)
        return gradients(graph, made, kept, grads, needed)


_OPERATORS = _Operators()


# ---- calls ------------------------------------------------------------------

def call(graph, made, inputs, seed=None):
    """The results of made.shown, with gradients."""
    try:
        if wants_gradient(inputs):
            found = Recorded.apply(_OPERATORS, (graph, made, seed), *inputs)
            return (found,) if len(made.shown) == 1 else found
        return made.forward(graph, inputs, seed, False)
    except UnsupportedError as error:
        say_once(f"{error}{INSTEAD}")
    return _by_torch(graph, made, inputs, seed)


def forward(graph, made, inputs, seed=None):
    """All results of made.outs, without gradients; None for what torch's
    operations do not keep."""
    try:
        return made.forward(graph, inputs, seed)
    except UnsupportedError as error:
        say_once(f"{error}{INSTEAD}")
    with torch.no_grad():
        found = _by_torch(graph, made, inputs, seed)
    return [*found, *[None] * (len(made.outs) - len(found))]


# ---- sums and reductions ----------------------------------------------------

def normalization(graph, dtype):
    """Scales of GCN, 1 / sqrt(degree) of destinations and of sources, made
    once for each graph."""
    def make():
        degrees = graph.degrees.to(torch.float64)
        scale = degrees.pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0)
        return scale.to(torch.float64 if dtype == torch.float64
                        else torch.float32)
    scale = graph._derive(("normalization", dtype == torch.float64), make)
    return scale, scale


def sums(graph, op, given, listed=False):
    """The results of a sum or reduction; given: its inputs by field.  Tensors
    by edge are in the graph's order; if they are listed, edge features are in
    the caller's."""
    spec = OPERATORS.get(op)
    inputs = None if spec is None or needs_composite() else spec.given(given)
    if inputs is None:
        if listed:
            given["edge_attr"] = graph.to_graph_order(given["edge_attr"])
        return _composite.sums(_derived.ByTorch, graph, op, given)
    made = _recipe.recipe(graph, op, inputs, sum_settings(), listed)
    if listed and not made.listed:
        place = spec.fields["edge_attr"]
        inputs[place] = graph.to_graph_order(inputs[place])
    return call(graph, made, inputs)


def of_neighbours(graph, op, value, weight=None, symmetric=False):
    """sums() of rows of neighbours; weight [E, H] in the caller's order;
    symmetric: with the scales of GCN."""
    given = {"value": value}
    if weight is not None:
        given["edge_weight" if op == "spmm-weighted" else "factor"] = \
            graph.to_graph_order(weight)
    if symmetric:
        given["scale_dst"], given["scale_src"] = normalization(
            graph, value.dtype)
    return sums(graph, op, given)
