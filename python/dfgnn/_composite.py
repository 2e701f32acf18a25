"""The operators by their formulas (_derived.py), which torch's operations
compute edge by edge, or edge programs.

They serve what the kernels do not do (derivatives of derivatives, gradients
through returned weights, a type or a pass without a variant), and the tests
as a second opinion.  Tensors by edge are in the graph's own order; scores are
[E, H], messages [E, H, D].
"""

from ._derived import (
    EXTREMES, REDUCED, Formula, attention, exact_of, message)
from ._dropout import keep_factors  # noqa: F401 - used as this module's
from ._evaluators import Picked, scattered


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
    return scattered(messages, graph.dst, graph.num_dst, "mul")


_BY_EDGE = {"median": _median, "mul": _product}


def sums(way, graph, op, given, saved=None):
    """The results of a sum or reduction, "spmm-sum", as a tuple.

    way: ByTorch or ByProgram.
    given: the inputs by field; factor [E, H] multiplies the messages of any.
    saved: by field the position in its row of the edge that gave each extreme,
        if known: gradients then go to those edges alone.
    """
    reduce, value = op.partition("-")[2], given["value"]
    if reduce == "weighted":
        reduce, given = "sum", {**given, "factor": given["edge_weight"]}
    t = way(graph, value.dtype)
    if reduce in _BY_EDGE:
        m = t.recorder.result(t.recorder.by_edge(message(t, given)))
        return scaled(_BY_EDGE[reduce](graph, m), given.get("scale_dst")),
    outs, others = {}, []
    for result in REDUCED[reduce]:
        picked = (saved or {}).get(EXTREMES.get(result))
        if picked is not None and picked.numel() and graph.num_edges:
            outs[result] = winning(graph, given, picked)
        else:
            others.append(result)
    if others:
        m = message(t, given)
        outs.update(zip(others, t.run([result(m) for result in others])))
    return tuple(scaled(outs[result], given.get("scale_dst"))
                 for result in REDUCED[reduce])


# ---- any operator -----------------------------------------------------------

def run(way, graph, spec, shown, inputs, seed, settings, saved=None):
    """The results that shown names ("out", "weights", "lse") of a call, as often
    differentiable as wanted.

    way: ByTorch or ByProgram.
    saved: what forward kept, by field, if known.
    """
    if not spec.attention:
        return sums(way, graph, spec.name, dict(zip(spec.fields, inputs)),
                    saved)
    bias = None
    if len(inputs) == len(spec.inputs):
        inputs, bias = inputs[:-1], inputs[-1]
    t = way(graph, exact_of(inputs[spec.value]), seed)
    found = dict(zip(("out", "weights", "lse"), attention(
        t, spec.name, inputs, bias, settings, "lse" in shown)))
    return tuple(found[name] for name in shown)
