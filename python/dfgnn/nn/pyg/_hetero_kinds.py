"""How the layers of relations that do the same go through the kernels
together, see _hetero_conv.py.

The layers of a group keep their parameters.  What a relation projects is one
product for all relations of a type of nodes, whose weights stand one below the
other; what differs by relation reaches the kernels as tables and scores.
"""

from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor

from ..._grouped import take
from ..._tables import tables
from ...aggregation import spmm
from ...functional import gat_attention, gt_attention
from ...hetero import gatherer
from .._guards import Other, linear, own
from .._scores import edge_feature_scores
from . import _hetero_tiles as tiles
from ._attention import _attend, _result_type
from ._reduce import NAMES, combine, reduce_neighbours, reductions


class Relation(NamedTuple):
    """A call of a layer: the key of its edges in the graph of its group."""
    key: tuple
    layer: torch.nn.Module
    src: Tensor
    dst: Tensor
    edges: Tensor
    edge_attr: Tensor


class Kind(NamedTuple):
    """How the layers of a class go together."""
    reason: Callable  # layer -> why it goes by itself, or None
    settings: Callable  # layer -> what a group has in common
    # (graph, x by type, relations, summed) -> by type of destination the sum
    # over the relations if summed, else by relation its result
    run: Callable


# ---- tables by relation -----------------------------------------------------

def _joined(parts, dim=0):
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim)


def _sum(tensors):
    """The sum of parameters; None if there are none."""
    tensors = [t for t in tensors if t is not None]
    if not tensors:
        return None
    return tensors[0] if len(tensors) == 1 else torch.stack(tensors).sum(0)


def _project(graph, side, x, weights, biases=None):
    """[rows by relation, width] of x by type, each relation with its own
    weight [width, features] and bias."""
    wide, rows, more = [], [], []
    for kind, block in graph.blocks(side).items():
        rows.append(x[kind])
        wide.append(_joined([weights[r] for r in block.relations]))
        if biases is not None and biases[0] is not None:
            more.append(_joined([biases[r] for r in block.relations]))
    return tables(rows, wide, more).view(-1, weights[0].size(0))


def _sent(graph, x, weights, biases=None):
    """The same of sources, laid out as graph.as_sent()."""
    layout = graph.as_sent()
    if 0 not in layout.step:
        return _project(graph, "src", x, weights, biases)
    if biases is not None and biases[0] is None:
        biases = None
    return tables(_rows_sent(graph, x), weights, biases).view(
        -1, weights[0].size(0))


def _rows_sent(graph, x):
    """By relation the features that graph.as_sent() has rows for."""
    found = [x[source] for source, _, _ in graph.relations]
    for kind, rows in x.items():
        numbers = [n for n, step in enumerate(graph.as_sent().step)
                   if not step and graph.relations[n][0] == kind]
        if not numbers:
            continue
        edges = graph.edge_index[0].split(graph.counts)
        index = _joined([edges[n] for n in numbers])
        if rows.requires_grad and torch.is_grad_enabled():
            among = rows.size(0)
            rows = take(rows, graph._derive(
                ("sent by", kind), lambda: gatherer(index, among)))
        else:
            rows = rows.index_select(0, index)
        parts = rows.split([graph.counts[n] for n in numbers])
        for number, part in zip(numbers, parts):
            found[number] = part
    return found


def _sent_twice(graph, x, weights, others):
    """_sent() by weights and by others; rows that are gathered are gathered
    once."""
    if 0 not in graph.as_sent().step:
        return [_project(graph, "src", x, w) for w in (weights, others)]
    rows = _rows_sent(graph, x)
    return [tables(rows, w).view(-1, w[0].size(0)) for w in (weights, others)]


def _rows(graph, few):
    """The Graph of attention within relations: its rows are by relation, or,
    if few of them have edges, those of pairs()."""
    if few:
        return graph.pairs(graph.as_sent()).within
    return graph.graph(graph.by_relation("dst"), graph.as_sent())


def _shares(graph, out, relations, summed, own_term):
    """The result of a Kind's run, from rows by relation [rows, F].

    own_term: (kind, numbers of relations) -> what the nodes of a type add to
        the sum of these relations, or None.
    """
    found = {}
    few = summed and graph.has_few_pairs()
    parts = graph.split_types("dst", spmm(
        graph.pairs(graph.as_sent()).across, out)) if few \
        else graph.split_blocks("dst", out)
    for kind, block in graph.blocks("dst").items():
        part = parts[kind]
        groups = [(block.relations, part if few else part.sum(1))] \
            if summed else [
            ((r,), one) for r, one in zip(block.relations, part.unbind(1))]
        for numbers, total in groups:
            more = own_term(kind, numbers)
            total = total if more is None else total + more
            found[kind if summed else relations[numbers[0]].key] = total
    return found


def _own_linear(x, relations, name):
    """An own_term of linear layers of the destinations' features."""
    layers = [linear(r.layer.__dict__, name) for r in relations]

    def term(kind, numbers):
        weight = _sum([layers[n][0] for n in numbers])
        bias = _sum([layers[n][1] for n in numbers])
        return bias if weight is None else F.linear(x[kind], weight, bias)
    return term


# ---- attention --------------------------------------------------------------

def _gat_reason(layer):
    if reductions(layer.aggr_module) != ("sum",):
        return "its messages are not summed"
    if layer.add_self_loops and layer.lin_edge is not None:
        return "self loops have features of edges"
    if layer.training and layer.dropout >= 1:
        return "dropout leaves nothing"
    return None


def _gat_settings(layer):
    return (layer.heads, layer.out_channels, layer.concat,
            layer.negative_slope, layer.dropout if layer.training else 0)


def _gat_weights(layer):
    """(weight of sources, weight of destinations)."""
    state = layer.__dict__
    names = ("lin", "lin") if state["_modules"].get("lin") is not None \
        else ("lin_src", "lin_dst")
    found = [linear(state, name) for name in names]
    if any(weight is None or bias is not None for weight, bias in found):
        raise Other
    return [weight for weight, _ in found]


def _gat(graph, x, relations, summed):
    first = relations[0].layer
    heads, channels = first.heads, first.out_channels
    shape = (-1, heads, channels)
    w_src, w_dst = zip(*[_gat_weights(r.layer) for r in relations])
    def scores(weights, *names):
        # <a, W x> = <Wt a, x>: one row a head and relation
        att = torch.stack([torch.cat([own(r.layer.__dict__, name)
                                      for r in relations])
                           for name in names], 2)  # [R, H, names, C]
        stacked = torch.stack(weights).view(len(weights), heads, channels, -1)
        return [rows.unbind(0) for rows in (att @ stacked).unbind(2)]
    if all(a is b for a, b in zip(w_src, w_dst)):
        of_src, of_dst = scores(w_src, "att_src", "att_dst")
    else:
        of_src, = scores(w_src, "att_src")
        of_dst, = scores(w_dst, "att_dst")
    sent = _sent_twice(graph, x, w_src, of_src)
    value, score_src = sent[0].view(shape), sent[1]
    score_dst = _project(graph, "dst", x, of_dst)
    few = summed and graph.has_few_pairs()
    rows = _rows(graph, few)
    if few:
        score_dst = score_dst.index_select(0, graph.pairs_among(
            graph.by_relation("dst")))
    out = _attend(
        gat_attention, rows, value, score_dst, score_src,
        negative_slope=first.negative_slope,
        edge_score=_edge_scores(relations, score_src), dropout=first.dropout,
        training=first.training, result=_result_type(score_src, value))
    out = out.flatten(1) if first.concat else out.mean(1)
    residual = _own_linear(x, relations, "res")
    biases = [own(r.layer.__dict__, "bias") for r in relations]

    def term(kind, numbers):
        more = residual(kind, numbers)
        bias = _sum([biases[n] for n in numbers])
        return more if bias is None else bias if more is None else more + bias
    return _shares(graph, out, relations, summed, term)


def _edge_scores(relations, like):
    """[E, H] what edge features add to the scores; None if no layer has
    any."""
    if all(r.edge_attr is None or r.layer.lin_edge is None
           for r in relations):
        return None
    found = []
    for relation in relations:
        layer, attr = relation.layer, relation.edge_attr
        if attr is None or layer.lin_edge is None:
            found.append(like.new_zeros(relation.edges.size(1), layer.heads))
            continue
        weight, bias = linear(layer.__dict__, "lin_edge")
        if bias is not None or attr.size(0) != relation.edges.size(1):
            raise Other
        attr = attr.view(-1, 1) if attr.dim() == 1 else attr
        weight = weight.view(layer.heads, layer.out_channels, -1)
        found.append(edge_feature_scores(attr, layer.att_edge[0], weight))
    return _joined(found)


def _transformer_reason(layer):
    if reductions(layer.aggr_module) != ("sum",):
        return "its messages are not summed"
    if layer.lin_beta is not None:
        return "beta weighs each relation's result"
    if layer.lin_edge is not None:
        return "features of edges are projected by relation"
    if layer.training and layer.dropout >= 1:
        return "dropout leaves nothing"
    return None


def _transformer_settings(layer):
    return (layer.heads, layer.out_channels, layer.concat, layer.root_weight,
            layer.dropout if layer.training else 0,
            layer.lin_key.bias is None)


def _transformer(graph, x, relations, summed):
    first = relations[0].layer
    shape = (-1, first.heads, first.out_channels)

    def of(name):
        return zip(*[linear(r.layer.__dict__, name) for r in relations])
    query = _project(graph, "dst", x, *of("lin_query"))
    few = summed and graph.has_few_pairs()
    if few:
        query = query.index_select(0, graph.pairs_among(
            graph.by_relation("dst")))
    query, key, value = (t.view(shape) for t in (
        query, _sent(graph, x, *of("lin_key")),
        _sent(graph, x, *of("lin_value"))))
    out = _attend(
        gt_attention, _rows(graph, few), query, key, value,
        scale=first.out_channels ** -0.5,
        dropout=first.dropout, training=first.training,
        result=_result_type((query[:0] * key[:0]).sum(-1), value))
    out = out.flatten(1) if first.concat else out.mean(1)
    skip = _own_linear(x, relations, "lin_skip") if first.root_weight \
        else lambda kind, numbers: None
    return _shares(graph, out, relations, summed, skip)


# ---- sums, means and extremes -----------------------------------------------

def _reduced(graph, x, relations):
    """[rows by relation, F] the neighbours of each relation, reduced as its
    layer does; features are those of nodes, which relations share."""
    kinds = [kind for kind, count in graph.num_src.items() if count]
    table = _joined([x[kind] for kind in kinds])
    return _reduce(graph.graph(graph.by_relation("dst"),
                               graph.by_node("src")), table, relations)


def _reduce(rows, table, relations):
    module = relations[0].layer.aggr_module
    return combine(module, reduce_neighbours(
        rows, table, reductions(module), rows.num_dst), rows)


def _reduce_reason(layer):
    if type(layer.aggr_module) not in NAMES \
            or reductions(layer.aggr_module) is None:
        return f"no kernel reduces by {type(layer.aggr_module).__name__}"
    return None


def _sage_reason(layer):
    if layer.project:
        return "it projects its sources first"
    if layer.normalize:
        return "it normalizes each relation's result"
    return _reduce_reason(layer)


def _reduction(layer):
    return (type(layer.aggr_module), reductions(layer.aggr_module))


def _linear_of_reduced(of_sums, of_own):
    """The run of a Kind: a linear layer of the reduced neighbours, and one of
    the node's own features."""
    def run(graph, x, relations, summed):
        align = tiles.tile(graph, x) if summed else 1
        if align > 1:
            found = _by_tiles(graph, x, relations, align, of_sums, of_own)
            if found is not None:
                return found
        out = _reduced(graph, x, relations)
        layers = [linear(r.layer.__dict__, of_sums) for r in relations]
        own_term = _own_linear(x, relations, of_own)
        found, parts = {}, graph.split_blocks("dst", out)
        for kind, block in graph.blocks("dst").items():
            part = parts[kind]
            # over all relations it is one product, [N, R F] by [R F, out]
            groups = [(block.relations, part.flatten(1))] if summed else [
                ((r,), one) for r, one in zip(block.relations,
                                              part.unbind(1))]
            for numbers, rows in groups:
                weight = _joined([layers[n][0] for n in numbers], 1)
                bias = _sum([layers[n][1] for n in numbers])
                total = F.linear(rows, weight, bias)
                more = own_term(kind, numbers)
                found[kind if summed else relations[numbers[0]].key] = \
                    total if more is None else total + more
        return found
    return run


def _by_tiles(graph, x, relations, align, of_sums, of_own):
    """_linear_of_reduced() summed by batched products; None if some relations
    have a parameter that others lack."""
    parameters = []
    for name in (of_sums, of_own):
        for given in zip(*[linear(r.layer.__dict__, name)
                           for r in relations]):
            absent = sum(parameter is None for parameter in given)
            if 0 < absent < len(given):
                return None
            parameters.append(None if absent else given)
    return tiles.sums(graph, x, lambda rows, table: _reduce(
        rows, table, relations), align, *parameters)


def _gin(graph, x, relations, summed):
    out = _reduced(graph, x, relations)
    found, parts = {}, graph.split_blocks("dst", out)
    for kind, block in graph.blocks("dst").items():
        for part, number in zip(parts[kind].unbind(1), block.relations):
            layer = relations[number].layer
            more = layer.nn(part + (1 + layer.eps) * x[kind])
            if not summed:
                found[relations[number].key] = more
            else:
                found[kind] = found[kind] + more if kind in found else more
    return found


KINDS = {
    pyg.GATConv: Kind(_gat_reason, _gat_settings, _gat),
    pyg.TransformerConv: Kind(_transformer_reason, _transformer_settings,
                              _transformer),
    pyg.SAGEConv: Kind(_sage_reason, _reduction,
                       _linear_of_reduced("lin_l", "lin_r")),
    pyg.GraphConv: Kind(_reduce_reason, _reduction,
                        _linear_of_reduced("lin_rel", "lin_root")),
    pyg.GINConv: Kind(_reduce_reason, _reduction, _gin),
}
