"""Layers of attention step by step, of dfgnn.nn, PyG and DGL, under the names of
PyG's: for calls that are no one node of autograd, see _node.py.

Each is a function (layer, graph, x, edge_attr, weights, row, num_dst) that gives
(out, weights or None):

  x        features, or (sources, destinations), of a GATConv (sources, None), too
  weights  whether those of attention are returned
  row      of edge_index by which features of loops are reduced
  num_dst  the destinations, if they have no features

A call that the layer does not allow is a ValueError.
"""

import torch

from .._loops import all_loop_features
from ..functional import (
    agnn_attention, gat_attention, gatv2_attention, gt_attention)
from ..graph import Graph
from ._linear import of_edges, together


# ---- attention in the types that the layers of PyG and DGL have --------------

def outside_autocast(function, graph, *args, result=None, **kwargs):
    """function(graph, ...) in the type of its inputs: PyG computes scores so
    inside an autocast region, too.  result: the type of PyG's result."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        with torch.autocast(graph.device.type, enabled=False):
            attended = function(graph, *args, **kwargs)
        out = attended[0] if isinstance(attended, tuple) else attended
        if result is not None and out.dtype != result:
            out = out.to(result)
        return (out, attended[1]) if isinstance(attended, tuple) else out
    return function(graph, *args, **kwargs)


def softmax_type(scores):
    """The type that PyG's softmax gives such scores: autocast on a GPU makes
    exponentials float32."""
    return scores[:0].exp().dtype


def result_type(scores, value):
    return torch.promote_types(softmax_type(scores), value.dtype)


def pair(x):
    return (x, x) if isinstance(x, torch.Tensor) else tuple(x)


def both(layer, x):
    """The pair of a layer whose destinations need features."""
    x = pair(x)
    if x[1] is None:
        raise ValueError(f"{type(layer).__name__} needs features of "
                         "destinations, got x = (sources, None)")
    return x


def _attended(attention, layer, graph, *inputs, like, value, weights,
              **options):
    """(out [N, H, D], the weights after dropout or None) of an attention whose
    scores have the type of like."""
    out = outside_autocast(
        attention, graph, *inputs, dropout=layer.dropout,
        training=layer.training, return_weights=weights,
        result=result_type(like, value), **options)
    if not weights:
        return out, None
    return out[0], out[1].to(softmax_type(like))


def _with_loop_features(layer, graph, sizes, edge_attr, row):
    """[E + loops] features of the edges, and of the loops that the layer adds;
    edge_attr if it adds none."""
    if not layer.add_self_loops or edge_attr is None:
        return edge_attr
    edges = graph.edge_index if isinstance(graph, Graph) else graph
    return all_loop_features(edge_attr, edges, min(sizes), layer.fill_value,
                             row)


def _finished(layer, out, residual):
    """The layer's result from the heads [N, H, D] of its attention."""
    out = out.flatten(1) if layer.concat else out.mean(1)
    if residual is not None:
        out = out + residual
    return out if layer.bias is None else out + layer.bias


def _projected(layer, x):
    """(h of sources, h of destinations or None) of a GATConv."""
    shape = (-1, layer.heads, layer.out_channels)
    x_src, x_dst = pair(x)
    of_src = layer.lin_src if layer.lin is None else layer.lin
    of_dst = layer.lin_dst if layer.lin is None else layer.lin
    h_src = of_src(x_src).view(shape)
    if x_dst is x_src and of_dst is of_src:
        return h_src, h_src
    return h_src, None if x_dst is None else of_dst(x_dst).view(shape)


def edge_feature_scores(edge_attr, att, weight, bias=None):
    """[..., E, H] <a_h, W_h e + b_h> of features [..., E, F], att and bias [H,
    D] and weight [H, D, F].  It is <W_h^T a_h, e> + <a_h, b_h>, so that no
    tensor is [E, H, D]."""
    scores = edge_attr @ (att.unsqueeze(-1) * weight).sum(1).t()
    return scores if bias is None else scores + (att * bias).sum(-1)


def _edge_score(layer, edge_attr):
    """[E, H] what features of edges add to the scores of a GATConv."""
    if edge_attr is None or layer.lin_edge is None:
        return None
    att, (edge_attr, weight, bias) = layer.att_edge[0], of_edges(layer,
                                                                 edge_attr)
    if weight is None:
        return (edge_attr * att).sum(-1)
    shape, kind = (layer.heads, layer.out_channels), att.dtype
    return edge_feature_scores(
        edge_attr, att, weight.view(*shape, -1).to(kind),
        None if bias is None else bias.view(shape).to(kind))


def gat(layer, graph, x, edge_attr, weights, row, num_dst):
    residual, x_dst = None, pair(x)[1]
    if layer.res is not None and x_dst is not None:
        residual = layer.res(x_dst)  # first, as lazy layers draw weights
    h_src, h_dst = _projected(layer, x)
    score_src = (h_src * layer.att_src).sum(-1)
    score_dst = score_src.new_zeros(num_dst, layer.heads) if h_dst is None \
        else (h_dst * layer.att_dst).sum(-1)
    if layer.lin_edge is not None:
        edge_attr = _with_loop_features(layer, graph, (
            h_src.size(0), score_dst.size(0)), edge_attr, row)
    out, alpha = _attended(
        gat_attention, layer, graph, h_src, score_dst, score_src,
        like=score_src, value=h_src, weights="after" if weights else False,
        edge_score=_edge_score(layer, edge_attr),
        negative_slope=layer.negative_slope, self_loops=layer.add_self_loops)
    return _finished(layer, out, residual), alpha


def _edge_inputs(layer, edge_attr, like):
    """The edge_attr, edge_projection and edge_bias of an attention in the type
    of its values."""
    if edge_attr is None:
        return {}
    kind = like.dtype
    if edge_attr.dtype != kind and torch.is_autocast_enabled(
            like.device.type):
        edge_attr = edge_attr.to(kind)
    rows, weight, bias = of_edges(layer, edge_attr)
    if weight is None:
        return dict(edge_attr=rows.to(kind))
    return dict(edge_attr=rows, edge_projection=weight.to(kind),
                edge_bias=None if bias is None else bias.to(kind))


def gatv2(layer, graph, x, edge_attr, weights, row, num_dst):
    if edge_attr is not None and layer.lin_edge is None:
        raise ValueError("edge_attr is given, but the layer has no edge_dim")
    shape = (-1, layer.heads, layer.out_channels)
    x_l, x_r = both(layer, x)
    residual = None if layer.res is None else layer.res(x_r)
    h_l = layer.lin_l(x_l).view(shape)
    h_r = h_l if layer.share_weights and x_r is x_l else \
        layer.lin_r(x_r).view(shape)
    edge_attr = _with_loop_features(layer, graph, (h_l.size(0), h_r.size(0)),
                                    edge_attr, row)
    out, alpha = _attended(
        gatv2_attention, layer, graph, h_r, h_l, layer.att[0].to(h_l.dtype),
        like=(h_l[:0] * layer.att).sum(-1), value=h_l,
        weights="after" if weights else False,
        negative_slope=layer.negative_slope, self_loops=layer.add_self_loops,
        **_edge_inputs(layer, edge_attr, h_l))
    return _finished(layer, out, residual), alpha


def transformer(layer, graph, x, edge_attr, weights, row, num_dst):
    if (edge_attr is None) != (layer.lin_edge is None):
        raise ValueError(
            f"edge_attr is {'None' if edge_attr is None else 'given'}, but "
            f"the layer has edge_dim={layer.edge_dim}")
    src, dst = both(layer, x)
    sides = [(dst, layer.lin_query), (src, layer.lin_key),
             (src, layer.lin_value)]
    if layer.root_weight:
        sides.append((dst, layer.lin_skip))
    # a loss may read the weights alone, to which values and root do not lead
    products = [lin(side) for side, lin in sides] if weights else \
        together(sides)
    *parts, root = (*products, None)[:4]
    query, key, value = (part.view(-1, layer.heads, layer.out_channels)
                         for part in parts)
    out, alpha = _attended(
        gt_attention, layer, graph, query, key, value, weights=weights,
        like=(query[:0] * key[:0]).sum(-1), value=value,
        scale=layer.out_channels ** -0.5,
        **_edge_inputs(layer, edge_attr, key))
    out = out.flatten(1) if layer.concat else out.mean(1)
    if root is not None and layer.lin_beta is not None:
        beta = layer.lin_beta(torch.cat([out, root, out - root], -1)).sigmoid()
        out = beta * root + (1 - beta) * out
    elif root is not None:
        out = out + root
    return out, alpha


def agnn(layer, graph, x, edge_attr, weights, row, num_dst):
    like = x[:0]
    if torch.is_autocast_enabled(x.device.type):
        like = torch.nn.functional.normalize(like, p=2.0, dim=-1)
    else:
        x = x.to(torch.promote_types(x.dtype, layer.beta.dtype))
    return outside_autocast(
        agnn_attention, graph, x.unsqueeze(1), layer.beta,
        self_loops=layer.add_self_loops, result=result_type(
            layer.beta * (like * like).sum(-1), x)).squeeze(1), None
