"""DGL's layers of attention as one node of autograd each, see ../_node.py:
DGL's names for what the recipes of PyG's layers read.  Other calls run by DGL's
own forward()."""

from torch import nn

from ..._kernel_links import Attention
from ..._links import Finish, Linear as Product, Slot
from ...aggregation import spmm
from ...functional import gat_attention, gatv2_attention
from .._attention_nodes import _agnn, _gat, _gatv2
from .._guards import Other, is_matrix, linear, number, product
from .._linear import hooked
from .._node import fits, node, recipe, run
from ._messages import graph_of


# ---- what layers have in common ---------------------------------------------

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
    if not state.get("_allow_zero_in_degree", True) and _has_isolated(graph):
        raise Other
    if dst is None and is_block:
        dst = src[:graph.num_dst]
    if graph.num_dst != (src if dst is None else dst).size(0):
        raise Other  # DGL takes one tensor for both ends
    return graph, src, dst


def _has_isolated(graph):
    """Whether a destination has no edges; asked once for each graph."""
    return graph._derive("isolated", lambda: bool(
        (graph.degrees == 0).any()))


def _parameter(state, name):
    """A parameter of the layer itself, or None."""
    if name in state["_parameters"]:
        return state["_parameters"][name]
    if name in state["_buffers"] and state["_buffers"][name] is None:
        return None
    raise Other  # parametrised, say


def _dropped(state, feat):
    """feat after the layer's dropout of features."""
    drop = state["_modules"]["feat_drop"]
    if type(drop) is nn.Dropout and not hooked(drop) and not (
            drop.p and drop.training):
        return feat
    return tuple(map(drop, feat)) if isinstance(feat, tuple) else drop(feat)


def _attention_of(state):
    """The dropout and the slope of a layer's attention."""
    drop, relu = (state["_modules"][name] for name in (
        "attn_drop", "leaky_relu"))
    if type(drop) is not nn.Dropout or hooked(drop) or \
            type(relu) is not nn.LeakyReLU or hooked(relu):
        raise Other
    dropout = drop.p if drop.training else 0.0
    if not 0 <= dropout < 1:
        raise Other
    return float(dropout), relu.negative_slope


def _with_residual(state, out, residual, own):
    """[N, H, D] the layer's result; residual: the module whose result for a
    node's own features is added, or None."""
    shape = (-1, state["_num_heads"], state["_out_feats"])
    out = out.view(shape)
    if residual is not None:
        out = out + residual(own).view(shape)
    return out


def _activated(state, out):
    function = state["_modules"].get("activation", state.get("activation"))
    return out if function is None else function(out)


# ---- layers -----------------------------------------------------------------

@node
def gat(state, graph, feat, edge_weight=None, get_attention=False):
    if edge_weight is not None or get_attention:
        raise Other
    dropout, slope = _attention_of(state)
    feat = _dropped(state, feat)
    modules = state["_modules"]
    graph, src, dst = ends(state, graph, feat)
    if "fc" in modules:
        weights = product(state, "fc"), None
    elif isinstance(feat, tuple):
        weights = product(state, "fc_src"), product(state, "fc_dst")
    else:
        raise Other
    residual, of_residual = modules.get("res_fc"), (None, None)
    if residual is not None and hasattr(residual, "weight"):
        of_residual, residual = linear(state, "res_fc"), None
    bias = of_residual[1] if of_residual[1] is not None else \
        _parameter(state, "bias")
    out = run(graph, _gat, (state["_num_heads"], True, None), src, dst,
              *weights, _parameter(state, "attn_l"),
              _parameter(state, "attn_r"), bias, of_residual[0], None, None,
              None, dropout=dropout, slope=slope)
    return _activated(state, _with_residual(
        state, out, residual, src if dst is None else dst))


def gat_by_steps(layer, graph, feat, edge_weight=None, get_attention=False):
    """The same for calls of autocast, with weights of edges, or whose
    projections are more than products."""
    state = layer.__dict__
    options = _attention_of(state)
    if edge_weight is not None and edge_weight.dim() != 1:
        raise Other
    feat = _dropped(state, feat)
    graph, src, dst = ends(state, graph, feat)
    if hasattr(layer, "fc_src"):
        value, own = layer.fc_src(src), dst if dst is None else \
            layer.fc_dst(dst)
    else:
        value = layer.fc(src)
        own = value if dst is None else value[:graph.num_dst] \
            if not isinstance(feat, tuple) else layer.fc(dst)
    shape = (-1, layer._num_heads, layer._out_feats)
    value, own = value.view(shape), own.view(shape)
    out, alpha = _attended(
        graph, gat_attention, (value, (own * layer.attn_r).sum(-1),
                               (value * layer.attn_l).sum(-1)), value,
        options, edge_weight, get_attention)
    out = _with_residual(state, out, layer.res_fc, src if dst is None else dst)
    if layer.has_explicit_bias:
        out = out + layer.bias.view(shape)
    return _returned(state, out, alpha)


def _attended(graph, attention, inputs, value, options, edge_weight, wanted):
    """(the sums of values, their weights by edge or None), as DGL has both:
    after dropout, times edge_weight."""
    dropout, slope = options
    found = attention(graph, *inputs, negative_slope=slope, dropout=dropout,
                      return_weights="after" if wanted or
                      edge_weight is not None else False)
    if edge_weight is None:
        return found if wanted else (found, None)
    alpha = found[1] * edge_weight.to(found[1].dtype).unsqueeze(-1)
    return spmm(graph, value, alpha.to(value.dtype)), alpha if wanted else None


def _returned(state, out, alpha):
    out = _activated(state, out)
    return out if alpha is None else (out, alpha.unsqueeze(-1))


@node
def gatv2(state, graph, feat, get_attention=False):
    if get_attention:
        raise Other
    dropout, slope = _attention_of(state)
    feat = _dropped(state, feat)
    graph, src, dst = ends(state, graph, feat)
    shared = state["share_weights"]
    if shared and dst is not None:
        raise Other
    out = run(graph, _gatv2, (state["_num_heads"], True, None), src, dst,
              *linear(state, "fc_src"), *(
                  (None, None) if shared else linear(state, "fc_dst")),
              _parameter(state, "attn"), None, None, None, None,
              dropout=dropout, slope=slope)
    return _activated(state, _with_residual(
        state, out, state["_modules"].get("res_fc"),
        src if dst is None else dst))


def gatv2_by_steps(layer, graph, feat, get_attention=False):
    state = layer.__dict__
    options = _attention_of(state)
    feat = _dropped(state, feat)
    graph, src, dst = ends(state, graph, feat)
    shape = (-1, layer._num_heads, layer._out_feats)
    value = layer.fc_src(src).view(shape)
    if layer.share_weights and not isinstance(feat, tuple):
        own = value[:graph.num_dst]
    else:
        own = layer.fc_dst(src if dst is None else dst).view(shape)
    out, alpha = _attended(
        graph, gatv2_attention, (own, value, layer.attn[0].to(value.dtype)),
        value, options, None, get_attention)
    return _returned(state, _with_residual(
        state, out, layer.res_fc, src if dst is None else dst), alpha)


@node
def agnn(state, graph, feat):
    if graph.srctypes != graph.dsttypes:
        raise Other  # DGL finds no features of destinations
    graph, src, dst = ends(state, graph, feat)
    if dst is not None:
        raise Other
    return run(graph, _agnn, (), src, number(state, "beta"), scale=1.0,
               slope=0.2)


@node
def dot_gat(state, graph, feat, get_attention=False):
    graph, src, dst = ends(state, graph, feat)
    if get_attention or dst is not None or "fc" not in state["_modules"]:
        raise Other
    heads, dim = state["_num_heads"], state["_out_feats"]
    return run(graph, _dot_gat, heads, src, product(state, "fc"),
               scale=dim ** -0.5).view(-1, heads, dim)


@recipe("x weight")
def _dot_gat(graph, settings, heads, x, weight):
    width = weight.size(0)
    if not fits(weight, None, x.size(1)) or width % heads:
        return None
    return [Product("x", ("weight",), (), (), "h"), Attention(
        "gt", (Slot("h"),) * 3, "sums", heads, width // heads, x.dtype,
        settings), Finish("sums", "out")]
