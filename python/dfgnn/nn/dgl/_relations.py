"""RelGraphConv and HGTConv of DGL: nodes are multiplied by the weights of
relations, and no message is made."""

import torch
from dgl.nn.pytorch import TypedLinear

from ..._relations import groups
from ..._relations.groups import alignment, take, typed
from ...aggregation import spmm
from ...functional import gt_attention
from ...hetero import typed_graph
from .._exact import outside_autocast, result_type
from .._linear import hooked
from .._node import Other, surroundings
from ._attention import ends


def _weights(linear):
    """[types, in, out] the weights of a TypedLinear, or their blocks [types,
    blocks, in / blocks, out / blocks]."""
    if type(linear) is not TypedLinear or hooked(linear):
        raise Other
    if linear.regularizer == "bdd":
        return linear.W.view(-1, linear.num_bases, linear.submat_in,
                             linear.submat_out)
    return linear.get_weight()


def _typed(graph, types, count):
    """The HeteroGraph of a graph whose edges have types."""
    if surroundings() is not None or type(types) is not torch.Tensor:
        raise Other
    try:
        return typed_graph(graph.edge_index, types,
                           (graph.num_src, graph.num_dst), count)
    except ValueError as error:  # DGL has errors of its own
        raise Other(str(error)) from error


def _ends(layer, graph, feat):
    """ends() of one tensor, since these layers take no pair."""
    if isinstance(feat, tuple):
        raise Other
    return ends(layer.__dict__, graph, feat)


def rel_graph(layer, graph, feat, etypes, norm=None, *, presorted=False):
    graph, src, dst = _ends(layer, graph, feat)
    if hooked(layer.dropout):
        raise Other
    weight = _weights(layer.linear_r)
    relations = _typed(graph, etypes, weight.size(0))
    if norm is not None:
        if norm.shape != (graph.num_edges, 1):
            raise Other  # DGL multiplies feature by feature
        norm = norm.view(-1)
    if groups.cheapest(relations) == "by node":
        h = groups.by_node(relations, src, weight, norm)
    else:
        h = groups.by_pair(relations, weight, lambda within: spmm(
            within, src, norm))
    if layer.layer_norm:
        h = layer.layer_norm_weight(h)
    if layer.bias:
        h = h + layer.h_bias
    if layer.self_loop:
        h = h + (src if dst is None else dst) @ layer.loop_weight
    if layer.activation:
        h = layer.activation(h)
    return layer.dropout(h)


def hgt(layer, graph, x, ntype, etype, *, presorted=False):
    graph, x, dst = _ends(layer, graph, x)
    own_x, shape = x if dst is None else dst, (-1, layer.num_heads,
                                               layer.head_size)
    query, *sent = (_weights(linear) for linear in (
        layer.linear_q, layer.linear_k, layer.linear_v))
    relations = _typed(graph, etype, layer.relation_pri[0].numel())
    types, width = len(query), query.size(2)
    own = typed(ntype[:own_x.size(0)], types, own_x, width)
    rows = typed(ntype, types, x, 2 * width).product(x, torch.cat(sent, 2))
    query = own.product(own_x, query).view(shape)
    pairs, key, value = _of_pairs(layer, relations, rows)
    out = outside_autocast(
        gt_attention, pairs, query, key.view(shape), value.view(shape),
        scale=1.0, result=result_type((query[:0] * query[:0]).sum(-1), value))
    h = layer.drop(own.product(out.flatten(1), _weights(layer.linear_a)))
    alpha = own.by_row(layer.skip.sigmoid().view(-1, 1))
    if own_x.shape != h.shape:
        own_x = own_x @ layer.residual_w
    h = h * alpha + own_x * (1 - alpha)
    return layer.norm(h) if layer.use_norm else h


def _of_pairs(layer, relations, rows):
    """(the Graph whose sources are (source, relation) pairs, their keys,
    their values) of rows [N, 2 * width]."""
    scale = torch.stack(list(layer.relation_pri), 1) / layer.sqrt_d
    keys, values = (torch.stack([_weights(linear) for linear in linears], 1)
                    for linears in (layer.relation_att, layer.relation_msg))
    # [relations, 2 * heads, D, D]
    weight = torch.cat([keys * scale[..., None, None], values], 1)
    align = alignment(relations.number_of_pairs("src"),
                      relations.num_relations, relations.device)
    pairs = relations.senders(relations.by_node("dst"), align)
    products = groups.groups_of(relations, pairs, align).product(
        take(rows, pairs.rows), weight)
    return pairs.graph, *products.chunk(2, 1)
