"""Layers of several relations that do the same, in one pass: what each kind of
layer computes, whichever library it comes from.

The layers keep their parameters, which come here as lists by relation, in the
order of the relations of a HeteroGraph.  What relations project of a type is
one product, whose weights stand one below the other; what differs by relation
reaches the kernels as tables and scores.  Each function gives, if summed, by
type of destination the sum over its relations, else by relation its result.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..functional import gat_attention, gt_attention
from ..programs import edge_program, softmax
from . import _relation_features, _relation_sums, _relation_tiles as tiles
from ._exact import outside_autocast, result_type
from ._leading import Leading
from ._relation_rows import (  # noqa: F401
    Features, Own, Rows, by_group, finished, in_product_type, own_terms,
    put, sent, sent_twice, total, with_bias)
from ._relation_sums import Reduction, joined, operator  # noqa: F401
from ._attention_steps import edge_feature_scores


# Sums of more types of destinations than these are batched products.
MOST_TYPES = 16


class Heads(NamedTuple):
    """What attention layers of a group have in common."""
    heads: int
    channels: int
    concat: bool  # heads stand side by side, or their mean is taken
    dropout: float  # 0 unless the layers train
    slope: float = 0.2

    @property
    def shape(self):
        return (-1, self.heads, self.channels)

    def joined(self, out):
        return out.flatten(1) if self.concat else out.mean(1)


# ---- attention --------------------------------------------------------------

def gat(graph, x, summed, like, weights, scores, edges, own, biases,
        post=None):
    """Scores are sums of what a relation makes of both ends.

    weights: (those of sources, those of destinations) [H * C, F], scores: the
    vectors [1, H, C] of each; edges: what edge_scores() takes, or None.
    """
    leading = Leading(graph)
    edges = edges or ([0] * graph.num_relations,) * 3
    x, sources, targets, *given = leading.enter(x, *weights, *scores, *edges)
    edge_score = edge_scores(like, *given[2:])
    of_src, of_dst = _scoring(like, sources, targets, *given[:2])
    summed_rows = summed and post is None
    own_term = with_bias(own_terms(x.dst, own), biases)
    if summed_rows and graph.has_few_pairs() and _relation_features.worth(
            graph, x.src, like, sources):
        rows = Rows(graph, True, graph.by_node("src"))
        out = _relation_features.gat(
            graph, x.src, like, sources,
            *_relation_features.scores(graph, x, of_src, of_dst), edge_score)
        return leading.leave(rows.results(like.joined(out), summed, own_term,
                                          post), summed)
    cast = in_product_type(x)
    value, score_src = sent_twice(graph, cast.src, sources, of_src)
    value = value.view(like.shape)
    rows = Rows(graph, summed_rows)
    out = outside_autocast(
        gat_attention, rows.matrix, value, rows.project(cast.dst, of_dst),
        score_src, negative_slope=like.slope, edge_score=edge_score,
        dropout=like.dropout, result=result_type(score_src, value))
    return leading.leave(rows.results(like.joined(out), summed, own_term,
                                      post), summed)


def _scoring(like, sources, targets, att_src, att_dst):
    """By relation the weights [H, F] of both ends' scores: <a, W x> is
    <Wt a, x>."""
    def of(weights, *attention):
        att = torch.stack([torch.cat(list(a)) for a in attention], 2)
        stacked = torch.stack(list(weights)).view(
            len(weights), like.heads, like.channels, -1)
        return [rows.unbind(0) for rows in (att @ stacked).unbind(2)]
    if all(a is b for a, b in zip(sources, targets)):
        return of(sources, att_src, att_dst)
    return of(sources, att_src)[0], of(targets, att_dst)[0]


def edge_scores(like, parts, vectors, weights):
    """[E, H] what edge features add to the scores; None if no relation has
    any.  parts: by relation features [E, F], or how many edges have none;
    vectors [H, C]."""
    if all(isinstance(part, int) for part in parts):
        return None
    made = next(v for v in vectors if v is not None)
    return joined([made.new_zeros(part, like.heads) if isinstance(part, int)
                   else edge_feature_scores(part, vector, weight.view(
                       like.heads, like.channels, -1))
                   for part, vector, weight in zip(parts, vectors, weights)])


def edge_table(like, parts, weights):
    """[E, H, C] the projected features of edges; None if no relation has
    any."""
    if all(isinstance(part, int) for part in parts):
        return None
    kept = [w for w in weights if w is not None][0]
    return joined([kept.new_zeros(part, kept.size(0)) if isinstance(part, int)
                   else F.linear(part, weight)
                   for part, weight in zip(parts, weights)]).view(like.shape)


def transformer(graph, x, summed, like, query, key, value, edges, own,
                post=None):
    """Scores are <query, key>.  query, key, value: (weights, biases); edges:
    what edge_table() takes, or None, is added to keys and values."""
    leading = Leading(graph)
    edges = edges or ([0] * graph.num_relations,) * 2
    x, *given = leading.enter(x, *query, *key, *value, *edges)
    query, key, value, edges = zip(given[::2], given[1::2])
    edges = edge_table(like, *edges)
    rows, cast = Rows(graph, summed and post is None), in_product_type(x)
    query, key, value = (t.view(like.shape) for t in (
        rows.project(cast.dst, *query), sent(graph, cast.src, *key),
        sent(graph, cast.src, *value)))
    out = outside_autocast(
        gt_attention, rows.matrix, query, key, value,
        scale=like.channels ** -0.5, dropout=like.dropout,
        edge_attr=None if edges is None else edges.to(key.dtype),
        result=result_type((query[:0] * key[:0]).sum(-1), value))
    return leading.leave(rows.results(like.joined(out), summed, own_terms(
        x.dst, own), post), summed)


@edge_program
def _dynamic(i, j, e, slope):
    x = i.x + j.x
    if hasattr(e, "x"):
        x = x + e.x
    weight = softmax((F.leaky_relu(x, slope) * i.att).sum(-1))
    if hasattr(e, "keep"):
        weight = weight * e.keep
    return weight * j.x


def _dynamic_attention(rows, query, value, att, edges, slope, dropout):
    """[rows, H, C] of scores <att, leaky_relu(query + value + edges)>, att by
    row."""
    e = {} if edges is None else {"x": edges}
    if dropout:
        e["keep"] = F.dropout(value.new_ones(
            rows.num_edges, value.size(1), 1), dropout)
    return _dynamic(rows, i={"x": query, "att": att}, j={"x": value},
                    e=e or None, slope=slope)


def gatv2(graph, x, summed, like, query, value, att, edges, own, biases,
          post=None):
    """Scores are <att, leaky_relu(query + value)>, att [H, C] by relation;
    query and value: (weights, biases); edges: what edge_table() takes, or
    None."""
    leading = Leading(graph)
    edges = edges or ([0] * graph.num_relations,) * 2
    x, att, *given = leading.enter(x, att, *query, *value, *edges)
    query, value, edges = zip(given[::2], given[1::2])
    edges = edge_table(like, *edges)
    rows, cast = Rows(graph, summed and post is None), in_product_type(x)
    query = rows.project(cast.dst, *query).view(like.shape)
    value = sent(graph, cast.src, *value).view(like.shape)
    found = result_type((value[:0] * att[0]).sum(-1), value)
    out = outside_autocast(
        _dynamic_attention, rows.matrix, query, value,
        rows.spread(att).to(value.dtype),
        None if edges is None else edges.to(value.dtype), like.slope,
        like.dropout, result=found)
    return leading.leave(rows.results(
        like.joined(out), summed, with_bias(own_terms(x.dst, own), biases),
        post), summed)


# ---- sums, means and extremes -----------------------------------------------

def neighbours(graph, x, reduce, project=None):
    """[rows by relation, F] the neighbours of each relation, reduced.

    reduce: (Graph, table) -> what its destinations get.
    project: (weights, biases) of what sources go through first, with a ReLU;
        by default relations share the features of nodes.
    """
    if project is not None:
        return reduce(graph.graph(graph.by_relation("dst"), graph.as_sent()),
                      sent(graph, x.src, *project).relu())
    kinds = [kind for kind, count in graph.num_src.items() if count]
    return reduce(graph.graph(graph.by_relation("dst"), graph.by_node("src")),
                  joined([x.src[kind] for kind in kinds]))


def linear_of_sums(graph, x, summed, reduce, weights, biases, own,
                   project=None, post=None):
    """A linear layer of the reduced neighbours, and what own adds."""
    if summed and post is None and project is None:
        found = _in_one_node(graph, x, reduce, weights, biases, own)
        if found is not None:
            return found
    leading = Leading(graph)
    none = [None] * graph.num_relations
    x, *project_of = leading.enter(x, *(project or (none, none)))
    return leading.leave(_by_type(
        graph, x, summed, reduce, weights, biases, own,
        project and project_of, post), summed)


def _in_one_node(graph, x, reduce, weights, biases, own):
    """The same summed, by batched products where there are many types, else by
    one node of autograd; None where neither serves."""
    if len(graph.blocks("dst")) > MOST_TYPES:
        found = _by_tiles(graph, x, reduce, weights, biases, own)
        if found is not None:
            return found
    if own is not None and own.itself:
        return None
    return _relation_sums.linear_of_sums(
        graph, x, reduce, weights, biases, own,
        lambda x, reduce, *parameters: _by_type(graph, x, True, reduce,
                                                *parameters))


def _by_type(graph, x, summed, reduce, weights, biases, own, project=None,
             post=None):
    groups = by_group(
        graph, graph.split_blocks("dst", neighbours(graph, x, reduce,
                                                    project)),
        summed and post is None, lambda part: part.flatten(1))
    # over all relations it is one product, [N, R F] by [R F, out]
    made = ((kind, numbers, F.linear(
        rows, joined([weights[n] for n in numbers], 1),
        total([biases[n] for n in numbers])))
        for kind, numbers, rows in groups)
    return finished(graph, made, summed, own_terms(x.dst, own), post)


def _by_tiles(graph, x, reduce, weights, biases, own):
    """The same summed by batched products; None where a product for each type
    is better, or some relations have a parameter that others lack."""
    lists = [weights, biases, *((own.weights, own.biases) if own
                                else ([None], [None]))]
    align = tiles.tile(graph, x, [weight for given in lists[::2]
                                  for weight in given if weight is not None])
    if align == 1 or own is not None and own.itself:
        return None
    parameters = []
    for given in lists:
        absent = sum(parameter is None for parameter in given)
        if 0 < absent < len(given):
            return None
        parameters.append(None if absent else list(given))
    return tiles.sums(graph, x, reduce, align, *parameters)


def isomorphism(graph, x, summed, reduce, networks, eps):
    """GIN: each relation's network of its sum and (1 + eps) of the node."""
    leading = Leading(graph)
    x, = leading.enter(x)
    parts, found = graph.split_blocks("dst", neighbours(graph, x, reduce)), {}
    for kind, (number,), rows in by_group(graph, parts, False, None):
        made = networks[number](rows + (1 + eps[number]) * x.dst[kind])
        put(found, graph, kind, (number,), made, summed)
    return leading.leave(found, summed)
