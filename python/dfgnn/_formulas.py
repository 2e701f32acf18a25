"""The operators by their formulas, which edge programs or torch's operations
compute, edge by edge.

They serve what the kernels do not do (derivatives of derivatives, gradients
through returned weights, a type or a pass without a variant), and the tests as
a second opinion.  The gradient of a program is a program again, and holds no
features of edges.  Tensors by edge are in the graph's own order; scores are
[E, H], messages [E, H, D].
"""

import torch

from . import _evaluators, _program_calls, _trace
from ._checks import exact
from ._evaluators import Picked, scattered
from ._operators import OPERATORS
from ._program_calls import DST, EDGE, PARAM, SRC
from .errors import UnsupportedError

_maximum, _where, _softmax, _log_sum, _dropout, _sum_in, _mean_in, _min_in, \
    _max_in, _sum_out = map(_trace.method, (
        "maximum", "where", "softmax_in", "logsumexp_in", "dropout", "sum_in",
        "mean_in", "min_in", "max_in", "sum_out"))


class Formula:
    """Values of tensors, told to a recorder; exact: the type that they are
    computed in."""

    def __init__(self, recorder, exact):
        self.recorder, self.exact, self.values = recorder, exact, {}

    def give(self, place, name, tensor, *axes):
        """The value of a tensor, which is named once; axes: those of a row, if
        the tensor has others."""
        if name not in self.values:
            if axes:
                tensor = tensor.reshape(tensor.shape[0], *axes)
            self.values[name] = self.recorder.input(name, tensor, place)
        return self.values[name]


class ByProgram(Formula):
    """A formula that an edge program computes; seed: of its dropout."""

    def __init__(self, graph, exact, seed=None):
        super().__init__(_evaluators.Text(), exact)
        self.graph, self.seed = graph, seed

    def cast(self, tensor):
        """A tensor for operations beside the recorder's."""
        return tensor

    def run(self, outputs):
        """The values, with gradients of any order."""
        recorder = self.recorder
        return _program_calls.run(
            _program_calls.parse(recorder.text(outputs)), self.graph,
            (self.exact,) * len(outputs), self.seed if recorder.drops else None,
            *recorder.tensors)[:len(outputs)]


class ByTorch(Formula):
    """A formula that torch's operations compute."""

    def __init__(self, graph, exact, seed=None):
        super().__init__(_evaluators.Torch(graph, seed), exact)

    def cast(self, tensor):
        return tensor.to(self.exact)

    def give(self, place, name, tensor, *axes):
        return super().give(place, name, self.cast(tensor), *axes)

    def run(self, outputs):
        return [self.recorder.result(value) for value in outputs]


def by_program(function, graph, *args):
    """function(ByProgram, graph, *args), None for what has no kernel."""
    if not graph.num_edges or graph.exchange is not None:
        return None
    try:
        return function(ByProgram, graph, *args)
    except UnsupportedError:
        return None


# ---- attention --------------------------------------------------------------

def _gt(t, inputs, settings):
    """(score, what a weight is multiplied with, what is added to the sum)."""
    query, key, value, *edges = inputs
    q, k = t.give(DST, "q", query), t.give(SRC, "k", key)
    v = None if value is None else t.give(SRC, "v", value)
    attr, weight, shift = (*edges, None, None, None)[:3]
    keys, values = (attr is not None and settings.edge_use != other
                    for other in ("values", "keys"))
    if attr is None or attr.dim() == 3:
        x = None if attr is None else t.give(EDGE, "x", attr)
        score = (q * (k + x if keys else k)).sum(-1)
        return score * settings.scale, v + x if values else v, None
    heads, dim = query.shape[1:]
    weight = weight.view(heads, dim, -1).to(t.exact)
    x = t.give(EDGE, "x", attr, 1, attr.size(1))
    score = (q * k).sum(-1)
    if keys:  # <q, W x + b> = <W^T q, x> + <q, b>
        score = score + (t.give(DST, "p", torch.einsum(
            "nhd,hdf->nhf", query.to(t.exact), weight)) * x).sum(-1)
        if shift is not None:
            score = score + (q * t.give(
                PARAM, "b", shift.view(heads, dim))).sum(-1)
    return score * settings.scale, v, (weight, shift) if values else None


def _agnn(t, inputs, settings):
    query, value, beta = inputs
    q, v = t.give(DST, "q", query), t.give(SRC, "v", value)
    lengths = [_maximum(x.norm(2, -1), 1e-12) for x in (q, v)]
    score = (q * v).sum(-1) / (lengths[0] * lengths[1])
    if beta is not None:
        score = t.give(PARAM, "beta", beta.reshape(())) * score
    return score, v, None


def _gat(t, inputs, settings):
    value, score_dst, score_src, *edges = inputs
    heads = score_src.size(1)
    score = t.give(DST, "a", score_dst, heads, 1) + t.give(
        SRC, "b", score_src, heads, 1)
    if edges and edges[0] is not None:
        score = score + t.give(EDGE, "c", edges[0], heads, 1)
    return score.leaky_relu(settings.slope), None if value is None else \
        t.give(SRC, "v", value), None


def _gatv2(t, inputs, settings):
    query, value, att, *edges = inputs
    heads, dim = value.shape[1:]
    v = t.give(SRC, "v", value)
    hidden, a = t.give(DST, "q", query) + v, t.give(PARAM, "a", att)
    attr, weight, shift = (*edges, None, None, None)[:3]
    if attr is not None:
        if attr.dim() == 2:
            attr = torch.nn.functional.linear(attr, weight, shift)
        hidden = hidden + t.give(EDGE, "x", attr, heads, dim)
    return (a * hidden.leaky_relu(settings.slope)).sum(-1), v, None


_ATTENTION = {"gt": _gt, "agnn": _agnn, "gat": _gat, "gatv2": _gatv2}


def scores(way, graph, op, inputs, settings):
    """[E, H] the scores before a bias is added."""
    t = way(graph, next(x for x in inputs if x is not None).dtype)
    score, *_ = _ATTENTION[op](t, inputs, settings)
    return t.run([score])[0].squeeze(-1)


def attention(t, op, inputs, bias, settings, lse=False):
    """(out, weights before dropout or None, [N, H] the log-sum-exp of scores or
    None)."""
    value = inputs[OPERATORS[op].value]
    heads, dim = value.shape[1:]
    score, message, more = _ATTENTION[op](
        t, [None if x is None else t.cast(x) for x in inputs], settings)
    outputs, shifted = {}, score
    if bias is None:
        w = _softmax(score)
    else:  # -inf leaves out an edge, of which the softmax then knows nothing
        bias = t.give(EDGE, "bias", bias.to(t.exact), heads, 1)
        there, shifted = bias >= -1e30, score + bias
        w = there * _softmax(_where(there, shifted, -1e30))
    d = _dropout(w, settings.dropout) if settings.dropout else w
    outputs["out"] = _sum_in(d * message)
    if settings.weights:
        outputs["weights"] = w
    if lse:
        outputs["lse"] = _log_sum(shifted)
    if more is not None:
        outputs["sums"], outputs["total"] = _sum_in(d * t.values["x"]), \
            _sum_in(d)
    results = dict(zip(outputs, t.run(list(outputs.values()))))
    out = results["out"]
    if more is not None:
        weight, shift = more
        out = out + torch.einsum("nhf,hdf->nhd", results["sums"], weight)
        if shift is not None:
            out = out + results["total"] * shift.view(heads, dim)
    return out.to(value.dtype), *[
        results[name].squeeze(-1) if name in results else None
        for name in ("weights", "lse")]


# ---- sums -------------------------------------------------------------------

def sum_out(way, graph, grad):
    """[M, ...] the sum over out-edges of rows of destinations."""
    t = way(graph, grad.dtype)
    return t.run([_sum_out(t.give(DST, "g", grad))])[0]


def message(t, fields):
    """The message of each edge; fields: the inputs of a sum by their fields,
    of which factor [E, H] multiplies it."""
    value = fields["value"]
    axes = value.shape[1:]
    sent = v = t.give(SRC, "v", value)
    if fields.get("scale_src") is not None:
        sent = v = v * t.give(SRC, "scale", fields["scale_src"])
    if fields.get("factor") is not None:
        factor = fields["factor"]
        return t.give(EDGE, "w", factor, *factor.shape[1:value.dim() - 1],
                      1) * v
    attr, weight, shift = map(fields.get, (
        "edge_attr", "edge_projection", "edge_bias"))
    if attr is not None and weight is not None:
        attr = torch.nn.functional.linear(
            attr, weight.reshape(-1, attr.size(1)),
            None if shift is None else shift.reshape(-1))
        if weight.dim() == 4:  # the value has features of edges
            attr, more = attr.chunk(2, dim=-1)
            sent = v + t.give(EDGE, "y", more, *axes)
    x = None if attr is None else t.give(EDGE, "x", attr, *axes)
    if fields.get("gate_dst") is None:
        return v if x is None else (v + x).relu()
    gate = t.give(DST, "a", fields["gate_dst"]) + t.give(
        SRC, "b", fields["gate_src"])
    return (gate if x is None else gate + x).sigmoid() * sent


def _variance(m):
    centred = m - _mean_in(m)
    return _mean_in(centred * centred)


def _deviation(m):
    variance = _variance(m)
    return _where(variance <= 1e-5, 0, _maximum(variance, 1e-5).sqrt())


# what a reduction makes of messages, in the order of its results
REDUCED = {"sum": (_sum_in,), "mean": (_mean_in,), "var": (_variance,),
           "std": (_deviation,), "min": (_min_in,), "max": (_max_in,),
           "pna": (_mean_in, _min_in, _max_in, _deviation)}
# Equal extremes share their gradient in a program: those that the library
# found are the messages of one edge each, see winning().
EXTREMES = {_min_in: "arg_min", _max_in: "arg_max"}


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


def winning(graph, fields, picked):
    """Extremes as the messages of the edges that gave them, without those of
    other edges; fields: those of sums()."""
    edges, sources, there = winners(graph, picked)
    recorder = Picked(graph, edges, sources)
    messages = message(Formula(recorder, fields["value"].dtype), fields)
    return recorder.result(messages, graph.num_dst) * there


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
        return messages.sum(0) + messages.new_zeros(shape)
    picked = rows[middle.clamp(max=flat.size(0) - 1)]
    out = flat.gather(0, picked) * (degrees > 0).view(-1, 1)
    return out.view(shape)


_BY_EDGE = {"median": _median, "mul": lambda graph, messages: scattered(
    messages, graph.dst, graph.num_dst, "mul")}


def sums(way, graph, op, fields, saved=None):
    """The results of a sum or reduction, "spmm-sum", as a tuple.

    way: ByTorch or ByProgram.
    fields: the inputs by field; factor [E, H] multiplies the messages of any.
    saved: by field the position in its row of the edge that gave each extreme,
        if known: gradients then go to those edges alone.
    """
    reduce, value = op.partition("-")[2], fields["value"]
    if reduce == "weighted":
        reduce, fields = "sum", {**fields, "factor": fields["edge_weight"]}
    t = way(graph, value.dtype)
    if reduce in _BY_EDGE:
        m = t.recorder.result(t.recorder.by_edge(message(t, fields)))
        return scaled(_BY_EDGE[reduce](graph, m), fields.get("scale_dst")),
    outs, others = {}, []
    for result in REDUCED[reduce]:
        picked = (saved or {}).get(EXTREMES.get(result))
        if picked is not None and picked.numel() and graph.num_edges:
            outs[result] = winning(graph, fields, picked)
        else:
            others.append(result)
    if others:
        m = message(t, fields)
        outs.update(zip(others, t.run([result(m) for result in others])))
    return tuple(scaled(outs[result], fields.get("scale_dst"))
                 for result in REDUCED[reduce])


def run(way, graph, spec, shown, inputs, seed, settings, saved=None):
    """The results that shown names ("out", "weights", "lse") of a call, as
    often differentiable as wanted.

    way: ByTorch or ByProgram.
    saved: what forward kept, by field, if known.
    """
    if not spec.attention:
        return sums(way, graph, spec.name, dict(zip(spec.fields, inputs)),
                    saved)
    bias = None
    if len(inputs) == len(spec.inputs):
        inputs, bias = inputs[:-1], inputs[-1]
    t = way(graph, exact(inputs[spec.value].dtype), seed)
    results = dict(zip(("out", "weights", "lse"), attention(
        t, spec.name, inputs, bias, settings, "lse" in shown)))
    return tuple(results[name] for name in shown)
