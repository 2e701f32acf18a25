"""DGL's layers of attention under the names of PyG's, so that what serves those
serves these: one node of autograd, or the steps, for calls of autocast, that
return the weights, or whose projections are more than products.  Other calls
run by DGL's own forward()."""

from types import SimpleNamespace

from torch import nn

from ..._kernel_links import Attention
from ..._links import Finish, Linear as Product, Slot
from .. import _attention_nodes as nodes, _attention_steps as steps
from .._linear import hooked
from .._node import Other, fits, is_matrix, node, product, recipe, run
from ._messages import graph_of, without_edges


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
    return graph._derive("has isolated", lambda: bool(
        without_edges(graph).any()))


def _features(layer, graph, feat):
    """(the Graph, features as PyG's layers take them) after the layer's
    dropout of features."""
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
    found = state["_modules"]
    drop, relu = found["attn_drop"], found["leaky_relu"]
    if type(drop) is not nn.Dropout or hooked(drop) or \
            type(relu) is not nn.LeakyReLU or hooked(relu) or \
            drop.training and drop.p >= 1:
        raise Other
    residual = found.get("res_fc")
    ours = {name: found.get(part) for name, part in modules.items()}
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


def _called(layer, graph, x, state, node, in_steps, wanted):
    """The result of a layer whose names are those of PyG's in state."""
    out = NotImplemented if wanted else node.of_state(state, x, graph)
    if out is not NotImplemented:
        return _result(layer, x, out)
    return _result(layer, x, *in_steps(SimpleNamespace(
        **state, **state["_modules"], **state["_parameters"]), wanted))


def _result(layer, x, out, alpha=None):
    """The result of DGL's layer: [N, H, D], and the weights if there are
    some."""
    out = out.view(-1, layer._num_heads, layer._out_feats)
    residual = layer.__dict__["_modules"].get("res_fc")
    if residual is not None and not hasattr(residual, "weight"):
        own = x[1] if isinstance(x, tuple) else x
        out = out + residual(own).view(out.shape)
    if layer.activation is not None:  # a function or a module
        out = layer.activation(out)
    return out if alpha is None else (out, alpha.unsqueeze(-1))


# ---- layers -----------------------------------------------------------------

def gat(layer, graph, feat, edge_weight=None, get_attention=False):
    if edge_weight is not None:  # which DGL's own path has as fast
        raise Other
    graph, x = _features(layer, graph, feat)
    if type(feat) is not tuple and (not hasattr(layer, "fc") or
                                    type(x) is tuple and hooked(layer.fc)):
        raise Other  # DGL calls it once for both ends
    state = _named(
        layer, dict(lin="fc", lin_src="fc_src", lin_dst="fc_dst"),
        dict(att_src="attn_l", att_dst="attn_r", bias="bias"))
    return _called(
        layer, graph, x, state, nodes.gat, lambda named, wanted: steps.gat(
            named, graph, x, graph.num_dst, None, wanted), get_attention)


def gatv2(layer, graph, feat, get_attention=False):
    graph, x = _features(layer, graph, feat)
    shared = layer.share_weights and type(feat) is not tuple
    state = _named(layer, dict(
        lin_l="fc_src", lin_r="fc_src" if shared else "fc_dst"),
        dict(att="attn"), share_weights=shared)
    return _called(
        layer, graph, x, state, nodes.gatv2, lambda named, wanted: steps.gatv2(
            named, graph, x, None, wanted), get_attention)


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


@recipe("x weight")
def _dot_gat(graph, settings, heads, x, weight):
    width = weight.size(0)
    if not fits(weight, None, x.size(1)) or width % heads:
        return None
    return [Product("x", ("weight",), (), (), "h"), Attention(
        "gt", (Slot("h"),) * 3, "sums", heads, width // heads, x.dtype,
        settings), Finish("sums", "out")]
