"""Attention by plain torch operations, edge by edge.

The path of what the kernels do not do (derivatives of derivatives, gradients
through returned weights, a type or a pass without a variant) and the tests'
second opinion.  Everything per edge is in the graph's own order; scores are
[E, H], messages [E, H, D].
"""

from collections import namedtuple

import torch
import torch.nn.functional as F

# what scores look at of a graph
Edges = namedtuple("Edges", "src dst")


def _gather(tensor, index):
    return tensor.index_select(0, index)


def score_gt(inputs, graph, settings):
    query, key, _ = inputs
    products = _gather(query, graph.dst) * _gather(key, graph.src)
    return products.sum(-1) * settings.scale


def score_agnn(inputs, graph, settings):
    query, value, beta = inputs
    cosine = (_gather(F.normalize(query, dim=-1), graph.dst)
              * _gather(F.normalize(value, dim=-1), graph.src)).sum(-1)
    return cosine if beta is None else cosine * beta


def score_gat(inputs, graph, settings):
    _, score_dst, score_src = inputs
    return F.leaky_relu(_gather(score_dst, graph.dst)
                        + _gather(score_src, graph.src), settings.slope)


def score_gatv2(inputs, graph, settings):
    query, value, att = inputs
    x = _gather(query, graph.dst) + _gather(value, graph.src)
    return (F.leaky_relu(x, settings.slope) * att).sum(-1)


SCORES = {"gt": score_gt, "agnn": score_agnn, "gat": score_gat,
          "gatv2": score_gatv2}
VALUE = {"gt": 2, "agnn": 1, "gat": 0, "gatv2": 1}


def softmax(scores, graph):
    """Over the in-edges of each destination; a row whose scores are all -inf
    gives zeros."""
    rows = graph.dst.view(-1, 1).expand_as(scores)
    shape = (graph.num_dst, scores.size(1))
    # no_grad() alone would leave the tangents of forward AD
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
    return weighted_sum(kept, inputs[VALUE[op]], graph).to(dtype), weights


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
    """[E, H] 0 where dropout drops a weight, else 1 / (1 - dropout);
    edge_number [E]: what it draws by, the place of an edge by default."""
    key = _splitmix(seed + _STEP)
    if edge_number is None:
        counter = torch.arange(1, edges * heads + 1, device=seed.device)
    else:
        counter = (edge_number.view(-1, 1) * heads + torch.arange(
            1, heads + 1, device=seed.device)).view(-1)
    number = _logical_shift(_splitmix(key + counter * _STEP), 32)
    kept = number >= int(dropout * 4294967296.0)
    return (kept / (1.0 - dropout)).view(edges, heads)
