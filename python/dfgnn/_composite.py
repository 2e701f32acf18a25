"""Attention by plain torch operations, edge by edge.

It serves what the kernels do not do (derivatives of derivatives, gradients
through returned weights, a type or a pass without a variant), and the tests
as a second opinion.  Tensors by edge are in the graph's own order; scores are
[E, H], messages [E, H, D].
"""

from collections import namedtuple

import torch
import torch.nn.functional as F

# the part of a graph that scores read
Edges = namedtuple("Edges", "src dst")


def _gather(tensor, index):
    return tensor.index_select(0, index)


def _given(inputs, count):
    """count inputs from the fourth on, None for those that a call has not."""
    return (*inputs[3:], *[None] * count)[:count]


def _edge_products(x, graph, edge_attr, edge_weight, edge_bias):
    """[E, H] <x_i, W e + b>, computed as <W^T x_i, e> + <x_i, b>, so that no
    tensor is [E, H, D]."""
    if edge_attr.dim() == 3:
        return (_gather(x, graph.dst) * edge_attr).sum(-1)
    weight = edge_weight.view(x.size(1), x.size(2), -1)
    projected = torch.einsum("nhd,hdf->nhf", x, weight)
    products = (_gather(projected, graph.dst)
                * edge_attr.unsqueeze(1)).sum(-1)
    if edge_bias is None:
        return products
    shift = (x * edge_bias.view(x.shape[1:])).sum(-1)
    return products + _gather(shift, graph.dst)


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


def products_of_edges(query, inputs, graph, settings):
    """[E, H] the term that edge features add to the scores of gt before the
    scale; None if they add none."""
    edges = _given(inputs, 3)
    if edges[0] is None or settings.edge_use == "values":
        return None
    return _edge_products(query, graph, *edges)


def score_gt(inputs, graph, settings):
    query, key = inputs[:2]
    scores = (_gather(query, graph.dst) * _gather(key, graph.src)).sum(-1)
    more = products_of_edges(query, inputs, graph, settings)
    if more is not None:
        scores = scores + more
    return scores * settings.scale


def score_agnn(inputs, graph, settings):
    query, value, beta = inputs
    cosine = (_gather(F.normalize(query, dim=-1), graph.dst)
              * _gather(F.normalize(value, dim=-1), graph.src)).sum(-1)
    return cosine if beta is None else cosine * beta


def score_gat(inputs, graph, settings):
    _, score_dst, score_src = inputs[:3]
    scores = _gather(score_dst, graph.dst) + _gather(score_src, graph.src)
    edge_score, = _given(inputs, 1)
    if edge_score is not None:
        scores = scores + edge_score
    return F.leaky_relu(scores, settings.slope)


def score_gatv2(inputs, graph, settings):
    query, value, att = inputs[:3]
    edge_attr, edge_weight, edge_bias = _given(inputs, 3)
    x = _gather(query, graph.dst) + _gather(value, graph.src)
    if edge_attr is not None:
        if edge_attr.dim() == 2:
            edge_attr = F.linear(edge_attr, edge_weight, edge_bias)
        x = x + edge_attr.view(x.shape)
    return (F.leaky_relu(x, settings.slope) * att).sum(-1)


SCORES = {"gt": score_gt, "agnn": score_agnn, "gat": score_gat,
          "gatv2": score_gatv2}
VALUE = {"gt": 2, "agnn": 1, "gat": 0, "gatv2": 1}


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
    dtype = inputs[VALUE[op]].dtype
    exact = dtype if dtype == torch.float64 else torch.float32
    inputs = [None if t is None else t.to(exact) for t in inputs]
    scores = SCORES[op](inputs, graph, settings)
    if bias is not None:
        scores = scores + bias.to(exact)
    weights = softmax(scores, graph)
    kept = weights
    if settings.dropout:
        kept = weights * keep_factors(seed, graph.num_edges, weights.size(1),
                                      settings.dropout,
                                      graph.edge_number).to(exact)
    out = weighted_sum(kept, inputs[VALUE[op]], graph)
    edges = _given(inputs, 3)
    if op == "gt" and edges[0] is not None and settings.edge_use != "keys":
        out = out + _edge_sums(kept, graph, out.shape, *edges)
    return out.to(dtype), weights


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
