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
from ....hetero import Layout, gatherer
from .rows import joined, tables

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


def scores(graph, x, of_src, of_dst):
    """(scores [pairs, H] of destinations, those of sources by type [nodes,
    relations, H]) of weights [H, F] by relation.  A type's features are read
    once for both: they are wide, the products narrow."""
    into, out_of = graph.blocks("dst"), graph.blocks("src")
    begin, step, first = [0] * graph.num_relations, \
        [1] * graph.num_relations, 0
    parts, sources = [], {}
    for rows, kind, side in _sides(x, graph.node_types):
        received = into[kind].relations if "d" in side and kind in into else ()
        sent = out_of[kind].relations if "s" in side and kind in out_of else ()
        weights = [of_dst[r] for r in received] + [of_src[r] for r in sent]
        if not weights:
            continue
        for slot, relation in enumerate(received):
            begin[relation], step[relation] = first + slot, len(weights)
        if sent:
            sources[kind] = len(parts), len(received)
        parts.append((rows, joined(weights), len(weights)))
        first += rows.size(0) * len(weights)
    heads = of_src[0].size(0)
    table = tables([rows for rows, *_ in parts],
                   [weight for _, weight, _ in parts]).view(-1, heads)
    of_pairs = table.index_select(0, graph.pairs_in(
        Layout(tuple(begin), tuple(step), first)))
    products = [part.view(-1, count, heads) for part, (_, _, count) in zip(
        table.split([rows.size(0) * count for rows, _, count in parts]), parts)]
    return of_pairs, {kind: products[number][:, slot:]
                      for kind, (number, slot) in sources.items()}


def _sides(x, kinds):
    """(features, type, "sd" if they are those of both sides, or one of
    these)."""
    for kind in kinds:
        src, dst = x.src.get(kind), x.dst.get(kind)
        if src is dst:
            yield src, kind, "sd"
            continue
        for rows, side in ((src, "s"), (dst, "d")):
            if rows is not None:
                yield rows, kind, side


def gat(graph, x, like, weights, score_dst, score_src, edge_score):
    """[pairs, H, C] of graph.pairs(), as gat() of layers.py has them.

    x: by type of sources; weights: by relation [H * C, F]; score_dst
    [pairs, H]; score_src: by type of sources [nodes, relations, H];
    edge_score [E, H] or None.
    """
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
        arguments = (part, like, sources[r], x[kind], weights[r],
                     score_dst[starts[r]:starts[r + 1]],
                     score_src[kind][:, slot], parts[r])
        outs.append(_one(*arguments))
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
