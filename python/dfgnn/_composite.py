"""The operators by plain torch operations, edge by edge.

They serve what the kernels do not do (derivatives of derivatives, gradients
through returned weights, a type or a pass without a variant), and the tests
as a second opinion.  Tensors by edge are in the graph's own order; scores are
[E, H], messages [E, H, D].
"""

import torch

from ._derived import scores_by_torch
from ._operators import OPERATORS

def _gather(tensor, index):
    return tensor.index_select(0, index)


def _given(inputs, count):
    """count inputs from the fourth on, None for those that a call has not."""
    return (*inputs[3:], *[None] * count)[:count]


def _edge_sums(weights, graph, shape, edge_attr, edge_weight, edge_bias):
    """[N, H, D] sum over the edges of weight times W e + b."""
    if edge_attr.dim() == 3:
        messages = weights.unsqueeze(-1) * edge_attr
        return messages.new_zeros(shape).index_add(0, graph.dst, messages)
    weight = edge_weight.view(shape[1], shape[2], -1)
    messages = weights.unsqueeze(-1) * edge_attr.unsqueeze(1)
    sums = messages.new_zeros((shape[0],) + tuple(messages.shape[1:]))
    out = torch.einsum("nhf,hdf->nhd",
                       sums.index_add(0, graph.dst, messages), weight)
    if edge_bias is None:
        return out
    total = weights.new_zeros(shape[:2]).index_add(0, graph.dst, weights)
    return out + total.unsqueeze(-1) * edge_bias.view(shape[1:])


def softmax(scores, graph):
    """Softmax over the in-edges of each destination; a row whose scores are
    all -inf gives zeros."""
    rows = graph.dst.view(-1, 1).expand_as(scores)
    shape = (graph.num_dst, scores.size(1))
    # detached, since no_grad() alone would leave the tangents of forward AD
    fixed = scores.detach()
    with torch.no_grad():
        largest = fixed.new_full(shape, float("-inf"))
        largest = largest.scatter_reduce(0, rows, fixed, "amax")
        largest = largest.masked_fill(largest == float("-inf"), 0)
    exps = (scores - _gather(largest, graph.dst)).exp()
    sums = exps.new_zeros(shape).index_add(0, graph.dst, exps)
    sums = sums.masked_fill(sums == 0, 1)
    return exps / _gather(sums, graph.dst)


def weighted_sum(weights, value, graph):
    """[N, H, D] sum over the edges of weight [E, H] times value."""
    messages = weights.unsqueeze(-1) * _gather(value, graph.src)
    out = messages.new_zeros((graph.num_dst,) + tuple(messages.shape[1:]))
    return out.index_add(0, graph.dst, messages)


def attention(op, inputs, bias, seed, graph, settings):
    """(out, weights before dropout), differentiable as often as wanted."""
    place = OPERATORS[op].value
    dtype = inputs[place].dtype
    exact = dtype if dtype == torch.float64 else torch.float32
    inputs = [None if t is None else t.to(exact) for t in inputs]
    scores = scores_by_torch(graph, op, inputs, settings)
    if bias is not None:
        scores = scores + bias.to(exact)
    weights = softmax(scores, graph)
    kept = weights
    if settings.dropout:
        kept = weights * keep_factors(seed, graph.num_edges, weights.size(1),
                                      settings.dropout,
                                      graph.edge_number).to(exact)
    out = weighted_sum(kept, inputs[place], graph)
    edges = _given(inputs, 3)
    if op == "gt" and edges[0] is not None and settings.edge_use != "keys":
        out = out + _edge_sums(kept, graph, out.shape, *edges)
    return out.to(dtype), weights


def log_sums(op, inputs, bias, graph, settings):
    """[N, H] the log-sum-exp of attention's scores."""
    value = inputs[OPERATORS[op].value]
    exact = torch.float64 if value.dtype == torch.float64 else torch.float32
    scores = scores_by_torch(graph, op, [
        None if t is None else t.to(exact) for t in inputs], settings)
    if bias is not None:
        scores = scores + bias.to(exact)
    rows = graph.dst.view(-1, 1).expand_as(scores)
    shape = (graph.num_dst, scores.size(1))
    fixed = scores.detach()
    largest = fixed.new_full(shape, float("-inf")).scatter_reduce(
        0, rows, fixed, "amax")
    shift = largest.masked_fill(largest == float("-inf"), 0)
    sums = scores.new_zeros(shape).index_add(
        0, graph.dst, (scores - _gather(shift, graph.dst)).exp())
    none = sums == 0
    return torch.where(none, float("-inf"),
                       shift + sums.masked_fill(none, 1).log())


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


def _parts(given):
    """(e, e' or None), [E, H, D] each."""
    weight, attr = given.get("edge_weight"), given.get("edge_attr")
    if weight is None:
        return attr, None
    *_, heads, dim, fields = weight.shape
    parts = attr @ weight.reshape(-1, fields).t()
    parts = parts.view(parts.size(0), -1, heads, dim)
    if given.get("edge_bias") is not None:
        parts = parts + given["edge_bias"].view(parts.shape[1:])
    return parts[:, 0], parts[:, 1] if parts.size(1) > 1 else None


def _message(given, sent, of_dst, of_src, of_edge):
    """The messages where sent are the rows of value; of_dst and its like
    choose rows of tensors."""
    part, more = (None if x is None else of_edge(x) for x in _parts(given))
    if given.get("gate_dst") is None:
        return sent if part is None else (sent + part).relu()
    gate = of_dst(given["gate_dst"]) + of_src(given["gate_src"])
    if more is not None:
        sent = sent + more
    return (gate if part is None else gate + part).sigmoid() * sent


def _sent(graph, op, given):
    """[E, H, D] the message of each edge; given: the inputs by field."""
    value = scaled(given["value"], given.get("scale_src"))
    sent = _gather(value, graph.src)
    factor = given.get("edge_weight" if op == "spmm-weighted" else "factor")
    if factor is not None:
        return sent * factor.view(*factor.shape[:sent.dim() - 1], 1).to(
            sent.dtype)
    return _message(given, sent, lambda x: _gather(x, graph.dst),
                    lambda x: _gather(x, graph.src), lambda x: x)


def winners(graph, picked):
    """(edges, sources, whether there is one) of positions in their rows, of a
    graph that has edges."""
    edges = picked.long() + _along(graph.offsets[:-1].long(), picked)
    edges = edges.clamp(0, graph.num_edges - 1)
    return edges, graph.src[edges], picked >= 0


def winning(graph, given, picked):
    """Extremes as the messages of the edges that gave them, without those of
    other edges."""
    edges, sources, there = winners(graph, picked)
    return _message(given, given["value"].gather(0, sources), lambda x: x,
                    lambda x: x.gather(0, sources),
                    lambda x: x.gather(0, edges)) * there


def reduced(graph, reduce, message, saved=None):
    """The message [E, H, D] of each edge reduced by destination, as a tuple.

    saved: by field the position in its row of the edge that gave each extreme,
        if known: gradients then go to those edges alone.
    """
    dst = graph.dst
    zeros = message.new_zeros((graph.num_dst,) + tuple(message.shape[1:]))

    def total(x):
        return zeros.index_add(0, dst, x)

    def scattered(start, name):
        return start.scatter_reduce(
            0, _along(dst, message).expand_as(message), message, name,
            include_self=name == "prod")

    def extreme(name):
        picked = (saved or {}).get("arg_" + name)
        if not graph.num_edges:
            return zeros
        if picked is None or not picked.numel():
            return scattered(zeros, "a" + name)
        edges, _, there = winners(graph, picked)
        return message.gather(0, edges) * there
    if reduce in ("sum", "weighted"):
        return (total(message),)
    if reduce in ("min", "max"):
        return (extreme(reduce),)
    if reduce == "mul":
        return (scattered(torch.ones_like(zeros), "prod"),)
    if reduce == "median":
        return (_median(graph, message),)
    degrees = degrees_of(graph, message)
    mean = total(message) / degrees
    if reduce == "mean":
        return (mean,)
    deviation = message - _gather(mean, dst)
    var = total(deviation * deviation) / degrees
    if reduce == "var":
        return (var,)
    std = torch.where(var <= 1e-5, torch.zeros_like(var),
                      var.clamp(min=1e-5).sqrt())
    return (std,) if reduce == "std" else (mean, extreme("min"),
                                           extreme("max"), std)


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


def sums(graph, op, given, saved=None):
    """The results of a sum or reduction, "spmm-sum", as a tuple.

    given: the inputs by field; factor [E, H] multiplies the messages of any.
    saved: as in reduced().
    """
    _, _, reduce = op.partition("-")
    outs = reduced(graph, reduce, _sent(graph, op, given), saved)
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
    out, weights = attention(spec.name, inputs, bias, seed, graph, settings)
    found = dict(out=out, weights=weights)
    if "lse" in shown:
        found["lse"] = log_sums(spec.name, inputs, bias, graph, settings)
    return tuple(found[name] for name in shown)


# ---- the library's dropout, kernels/common/dropout.h, in wrapping int64 -----

def _signed(word):
    return word - (1 << 64) if word >= 1 << 63 else word


_STEP = _signed(0x9e3779b97f4a7c15)
_MIX = (_signed(0xbf58476d1ce4e5b9), _signed(0x94d049bb133111eb))


def _logical_shift(z, bits):
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _splitmix(z):
    z = (z ^ _logical_shift(z, 30)) * _MIX[0]
    z = (z ^ _logical_shift(z, 27)) * _MIX[1]
    return z ^ _logical_shift(z, 31)


def keep_factors(seed, edges, heads, dropout, edge_number=None):
    """[E, H] 0 where dropout drops a weight, else 1 / (1 - dropout).

    edge_number [E]: the number that each edge draws by; by default its
        position.
    """
    key = _splitmix(seed + _STEP)
    pairs = (heads + 1) // 2
    if edge_number is None:
        counter = torch.arange(1, edges * pairs + 1, device=seed.device)
    else:
        counter = (edge_number.view(-1, 1) * pairs + torch.arange(
            1, pairs + 1, device=seed.device)).view(-1)
    word = _splitmix(key + counter * _STEP)
    number = torch.stack([_logical_shift(word, 32), word & 0xffffffff], 1)
    kept = number.view(edges, 2 * pairs)[:, :heads] \
        >= int(dropout * 4294967296.0)
    return kept / (1.0 - dropout)
