"""The operators by torch's operations, edge by edge: their formulas are those
of _derived.py.

They serve what the kernels do not do (derivatives of derivatives, gradients
through returned weights, a type or a pass without a variant), and the tests
as a second opinion.  Tensors by edge are in the graph's own order; scores are
[E, H], messages [E, H, D].
"""

from ._derived import (
    EXTREMES, REDUCED, ByTorch, Formula, attention_formula, exact_of, message)
from ._dropout import keep_factors  # noqa: F401 - used as this module's
from ._operators import OPERATORS
from ._recorders import Picked


def attention(op, inputs, bias, seed, graph, settings, lse=False):
    """(out, weights before dropout or None, log-sum-exp of scores or None),
    differentiable as often as wanted."""
    value = inputs[OPERATORS[op].value]
    t = ByTorch(graph, exact_of(value), seed)
    out, *more = attention_formula(t, op, [
        None if x is None else x.to(t.exact) for x in inputs], bias, settings,
        t.run, lse)
    return out.to(value.dtype), *more


# ---- sums and reductions ----------------------------------------------------

# Features are [rows, H, D], or [rows, D] of one head.

def _along(x, like):
    """A number for each row, x [N], as rows of another tensor."""
    return x.view(-1, *(1,) * (like.dim() - 1))


def scaled(x, scale):
    return x if scale is None else x * _along(scale, x).to(x.dtype)


def degrees_of(graph, like):
    """[N, 1, ...] edges of each destination, at least 1, as rows of another
    tensor and in its type."""
    return _along(graph.degrees.clamp(min=1).to(like.dtype), like)


def winners(graph, picked):
    """(edges, sources, whether there is one) of positions in their rows, of a
    graph that has edges."""
    edges = picked.long() + _along(graph.offsets[:-1].long(), picked)
    edges = edges.clamp(0, graph.num_edges - 1)
    return edges, graph.src[edges], picked >= 0


def winning(graph, given, picked):
    """Extremes as the messages of the edges that gave them, without those of
    other edges; given: as sums() has them."""
    edges, sources, there = winners(graph, picked)
    recorder = Picked(graph, edges, sources)
    found = message(Formula(recorder, given["value"].dtype), given)
    return recorder.result(found, graph.num_dst) * there


def _median(graph, messages):
    """The lower median of each destination, as PyG's MedianAggregation has
    it; messages [E, H, D]."""
    flat = messages.flatten(1)
    by_value = flat.detach().sort(dim=0, stable=True)[1]
    by_row = graph.dst[by_value].sort(dim=0, stable=True)[1]
    rows = by_value.gather(0, by_row)
    degrees = graph.degrees
    first = degrees.cumsum(0) - degrees
    middle = first + (degrees - 1).clamp(min=0) // 2
    shape = (graph.num_dst,) + tuple(messages.shape[1:])
    if not flat.size(0):
        return messages.new_zeros(shape)
    picked = rows[middle.clamp(max=flat.size(0) - 1)]
    out = flat.gather(0, picked) * (degrees > 0).view(-1, 1)
    return out.view(shape)


def _product(graph, messages):
    rows = messages.new_ones((graph.num_dst,) + tuple(messages.shape[1:]))
    return rows.scatter_reduce(0, _along(graph.dst, messages).expand_as(
        messages), messages, "prod")


_BY_EDGE = {"median": _median, "mul": _product}


def sums(graph, op, given, saved=None):
    """The results of a sum or reduction, "spmm-sum", as a tuple.

    given: the inputs by field; factor [E, H] multiplies the messages of any.
    saved: by field the position in its row of the edge that gave each extreme,
        if known: gradients then go to those edges alone.
    """
    reduce, value = op.partition("-")[2], given["value"]
    if reduce == "weighted":
        reduce, given = "sum", {**given, "factor": given["edge_weight"]}
    t = ByTorch(graph, value.dtype)
    m = message(t, given)

    def result(way):
        picked = (saved or {}).get(EXTREMES.get(way))
        if picked is not None and picked.numel() and graph.num_edges:
            return winning(graph, given, picked)
        return t.run([way(m)])[0]
    if reduce in _BY_EDGE:
        by_edge = t.recorder.result(t.recorder.by_edge(m))
        outs = (_BY_EDGE[reduce](graph, by_edge),)
    else:
        outs = map(result, REDUCED[reduce])
    return tuple(scaled(out, given.get("scale_dst")) for out in outs)


# ---- any operator -----------------------------------------------------------

def run(graph, spec, shown, inputs, seed, settings, saved=None):
    """The results that shown names ("out", "weights") of a call, as often
    differentiable as wanted; saved: what forward kept, by field, if known."""
    if not spec.attention:
        return sums(graph, spec.name, dict(zip(spec.fields, inputs)), saved)
    bias = None
    if len(inputs) == len(spec.inputs):
        inputs, bias = inputs[:-1], inputs[-1]
    found = dict(zip(("out", "weights", "lse"), attention(
        spec.name, inputs, bias, seed, graph, settings, "lse" in shown)))
    return tuple(found[name] for name in shown)
