"""Attention of relations over features as they came, projected afterwards.

Where features are wide and a destination has several in-edges, the sums of
attention have fewer rows than the features that are sent: sum_j a_ij (W x_j) is
W (sum_j a_ij x_j), for each head.  It serves where no loss asks for gradients
of the features, as in the first layer of a model.  Relations go one after the
other, so that only one has its sums [rows, heads, features] in memory; the
backward pass makes them again.
"""

import itertools

import torch
from torch.utils.checkpoint import checkpoint

from .... import _ways
from ...._modes import autocasting
from ...._relations.groups import take
from ....functional import gat_attention
from ....graph import Graph
from ....hetero import gatherer

# as many features as the kernels of a GPU attend over
MOST_FEATURES = 1024


def worth(graph, x, like, weights):
    """Whether gat() is faster here.  x: by type of sources."""
    first = next(iter(x.values()))
    if like.dropout or autocasting() or first.size(1) > MOST_FEATURES or \
            first.dtype not in (torch.float32, torch.float64):
        return False
    if torch.is_grad_enabled() and any(t.requires_grad for t in x.values()):
        return False
    # both passes project each sent row twice, or each pair's sum four times
    saved = 2 * graph.as_sent().size - 4 * graph.number_of_pairs()
    tf32 = first.is_cuda and torch.backends.cuda.matmul.allow_tf32
    return _ways.attention_of_relations(
        first.device, saved, weights[0].numel(), tf32) == "projected last"


def parts_of(graph):
    """By relation the Graph from the nodes of its source's type to its pairs,
    those of graph.pairs(); None of a relation without edges."""
    def make():
        pairs = graph.pairs(graph.by_node("src"))
        within, begin = pairs.within, graph.by_node("src").begin
        first = [0, *itertools.accumulate(graph.counts)]
        parts = []
        for r, ((source, _, _), count) in enumerate(zip(graph.relations,
                                                        graph.counts)):
            if not count:
                parts.append(None)
                continue
            edges = slice(first[r], first[r] + count)
            rows = slice(pairs.starts[r], pairs.starts[r + 1] + 1)
            order = within.edge_order
            parts.append(Graph(
                within.offsets[rows] - first[r],
                within.indices[edges] - begin[r], graph.num_src[source],
                edge_order=None if order is None else order[edges] - first[r],
                trusted=True, family=graph.family))
        return parts
    return graph._derive("parts by relation", make)


def gat(graph, x, like, weights, score_dst, score_src, edge_score):
    """[pairs, H, C] of graph.pairs(), as gat() of layers.py has them.

    x: by type of sources; weights: by relation [H * C, F]; score_dst
    [pairs, H]; score_src [rows by relation, H] of sources; edge_score [E, H]
    or None.
    """
    score_src = graph.split_blocks("src", score_src)
    starts = graph.pairs(graph.by_node("src")).starts
    blocks, sources = graph.blocks("src"), graph.edge_index[0].split(
        graph.counts)
    parts = [None] * len(weights) if edge_score is None else \
        edge_score.split(graph.counts)
    outs = []
    for r, part in enumerate(parts_of(graph)):
        if part is None:
            continue
        kind = graph.relations[r][0]
        slot = blocks[kind].relations.index(r)
        outs.append(_one(part, like, sources[r], x[kind], weights[r],
                         score_dst[starts[r]:starts[r + 1]],
                         score_src[kind][:, slot], parts[r]))
    return outs[0] if len(outs) == 1 else torch.cat(outs)


def _one(graph, like, source, x, weight, score_dst, score_src, edge_score):
    """[rows, H, C] of a relation; its sums are not kept for the backward
    pass."""
    heads = like.heads
    by_edge = take(score_src.contiguous(), graph._derive(
        "senders", lambda: gatherer(source, graph.num_src)))
    if edge_score is not None:
        by_edge = by_edge + edge_score

    def projected(weight, score_dst, by_edge):
        sums = gat_attention(  # [rows, H, F]
            graph, x.unsqueeze(1).expand(-1, heads, -1), score_dst,
            score_dst.new_zeros(1, 1).expand(graph.num_src, heads),
            edge_score=by_edge, negative_slope=like.slope)
        return torch.bmm(sums.transpose(0, 1), weight.view(
            heads, like.channels, -1).transpose(1, 2)).transpose(0, 1)
    return checkpoint(projected, weight, score_dst, by_edge,
                      use_reentrant=False, preserve_rng_state=False)
