"""DGL's layers.  Those of attention run under the names of PyG's, so that what
serves those serves these: one node of autograd, or the steps, for calls of
autocast, that return the weights, or whose projections are more than products.
RelGraphConv and HGTConv multiply nodes by the weights of relations, and make no
message.  Other calls run by DGL's own forward()."""

from types import SimpleNamespace

import torch
from dgl.nn.pytorch import TypedLinear
from torch import nn

from ..._kernel_links import Attention
from ..._links import Finish, Linear as Product, Slot
from ..._relations import groups
from ..._relations.groups import alignment, take, typed
from ...aggregation import spmm
from ...functional import gt_attention
from ...hetero import typed_graph
from .. import _attention_nodes as nodes, _attention_steps as steps
from .._linear import hooked
from .._node import (
    Other, fits, is_matrix, node, product, recipe, run, surroundings)
from ._messages import graph_of, without_edges


def ends(state, graph, feat):
    """(the Graph, features that are sent, those that receive or None if they
    are the same), as DGL's expand_as_pair() has them."""
    if not hasattr(graph, "is_block") or len(graph.etypes) != 1:
        raise Other
    src, dst = feat if isinstance(feat, tuple) else (feat, None)
    if not is_matrix(src) or dst is not None and not is_matrix(dst):
        raise Other
    is_block = graph.is_block
    graph = graph_of(graph._graph, src, "num_src")
    if not state.get("_allow_zero_in_degree", True) and graph._derive(
            "has isolated", lambda: bool(without_edges(graph).any())):
        raise Other
    if dst is None and is_block:
        dst = src[:graph.num_dst]
    if graph.num_dst != (src if dst is None else dst).size(0):
        raise Other  # DGL takes one tensor for both ends
    return graph, src, dst


def _features(layer, graph, feat):
    """(the Graph, features as PyG's layers take them) after the layer's
    dropout of features."""
    ends(layer.__dict__, graph, feat)  # Other, before dropout draws numbers
    drop = layer.__dict__["_modules"]["feat_drop"]
    if drop.p and drop.training or type(drop) is not nn.Dropout or \
            hooked(drop):
        feat = tuple(map(drop, feat)) if isinstance(feat, tuple) else \
            drop(feat)
    graph, src, dst = ends(layer.__dict__, graph, feat)
    return graph, src if dst is None else (src, dst)


def _named(layer, modules, parameters, **more):
    """A stand-in for the __dict__ of a layer of PyG's: the parts of one of
    DGL's by PyG's names."""
    state = layer.__dict__
    parts = state["_modules"]
    drop, relu = parts["attn_drop"], parts["leaky_relu"]
    if type(drop) is not nn.Dropout or hooked(drop) or \
            type(relu) is not nn.LeakyReLU or hooked(relu) or \
            drop.training and drop.p >= 1:
        raise Other
    residual = parts.get("res_fc")
    ours = {name: parts.get(part) for name, part in modules.items()}
    ours["lin_edge"] = None
    ours["res"] = residual if hasattr(residual, "weight") else None
    parameters = {name: getattr(layer, part)
                  for name, part in parameters.items()}
    parameters.setdefault("bias", None)
    return dict(
        heads=state["_num_heads"], out_channels=state["_out_feats"],
        concat=True, dropout=float(drop.p), training=drop.training, aggr="sum",
        negative_slope=relu.negative_slope, add_self_loops=False,
        _modules=ours, _parameters=parameters, **more)


def _called(layer, graph, x, state, node, step, with_alpha):
    """The result of a layer whose names are those of PyG's in state."""
    out = NotImplemented if with_alpha else node.of_state(state, x, graph)
    if out is not NotImplemented:
        return _result(layer, x, out)
    return _result(layer, x, *step(SimpleNamespace(
        **state, **state["_modules"], **state["_parameters"]), graph, x, None,
        with_alpha, 1, graph.num_dst))


def _result(layer, x, out, alpha=None):
    """The result of DGL's layer: [N, H, D], and the weights if there are
    some."""
    out = out.view(-1, layer._num_heads, layer._out_feats)
    residual = layer.__dict__["_modules"].get("res_fc")
    if residual is not None and not hasattr(residual, "weight"):
        receives = x[1] if isinstance(x, tuple) else x
        out = out + residual(receives).view(out.shape)
    if layer.activation is not None:  # a function or a module
        out = layer.activation(out)
    return out if alpha is None else (out, alpha.unsqueeze(-1))


def gat(layer, graph, feat, edge_weight=None, get_attention=False):
    if edge_weight is not None:  # which DGL's own path has as fast
        raise Other
    if type(feat) is not tuple and (not hasattr(layer, "fc") or
                                    graph.is_block and hooked(layer.fc)):
        raise Other  # DGL calls it once for both ends
    state = _named(
        layer, dict(lin="fc", lin_src="fc_src", lin_dst="fc_dst"),
        dict(att_src="attn_l", att_dst="attn_r", bias="bias"))
    graph, x = _features(layer, graph, feat)
    return _called(layer, graph, x, state, nodes.gat, steps.gat, get_attention)


def gatv2(layer, graph, feat, get_attention=False):
    shared = layer.share_weights and type(feat) is not tuple
    state = _named(layer, dict(
        lin_l="fc_src", lin_r="fc_src" if shared else "fc_dst"),
        dict(att="attn"), share_weights=shared)
    graph, x = _features(layer, graph, feat)
    return _called(layer, graph, x, state, nodes.gatv2, steps.gatv2,
                   get_attention)


def agnn(layer, graph, feat):
    if graph.srctypes != graph.dsttypes:
        raise Other  # DGL finds no features of destinations
    graph, src, dst = ends(layer.__dict__, graph, feat)
    if dst is not None:
        raise Other
    return nodes.agnn.of_state(dict(
        add_self_loops=False, aggr="sum", _modules={},
        _parameters={"beta": layer.beta}), src, graph)


@node
def dot_gat(state, graph, feat, get_attention=False):
    graph, src, dst = ends(state, graph, feat)
    if get_attention or dst is not None or "fc" not in state["_modules"]:
        raise Other
    heads, dim = state["_num_heads"], state["_out_feats"]
    return run(graph, _dot_gat, heads, src, product(state, "fc"),
               scale=dim ** -0.5).view(-1, heads, dim)


@recipe
def _dot_gat(graph, settings, heads, x, weight):
    width = weight.size(0)
    if not fits(weight, None, x.size(1)) or width % heads:
        return None
    return [Product("x", ("weight",), (), (), "h"), Attention(
        "gt", (Slot("h"),) * 3, "sums", heads, width // heads, x.dtype,
        settings), Finish("sums", "out")]


# ---- layers of relations ----------------------------------------------------

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
    if groups.way_of_sums(relations) == "by node":
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
    x_dst, shape = x if dst is None else dst, (-1, layer.num_heads,
                                               layer.head_size)
    query, *sent = (_weights(linear) for linear in (
        layer.linear_q, layer.linear_k, layer.linear_v))
    relations = _typed(graph, etype, layer.relation_pri[0].numel())
    types, width = len(query), query.size(2)
    receivers = typed(ntype[:x_dst.size(0)], types, x_dst, width)
    rows = typed(ntype, types, x, 2 * width).product(x, torch.cat(sent, 2))
    query = receivers.product(x_dst, query).view(shape)
    pairs, key, value = _of_pairs(layer, relations, rows)
    out = steps.outside_autocast(
        gt_attention, pairs, query, key.view(shape), value.view(shape),
        scale=1.0, result=steps.result_type((query[:0] * query[:0]).sum(-1), value))
    h = layer.drop(receivers.product(out.flatten(1), _weights(layer.linear_a)))
    alpha = receivers.by_row(layer.skip.sigmoid().view(-1, 1))
    if x_dst.shape != h.shape:
        x_dst = x_dst @ layer.residual_w
    h = h * alpha + x_dst * (1 - alpha)
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
