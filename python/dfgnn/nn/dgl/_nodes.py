"""Layers of dfgnn.nn.dgl as one node of autograd each, see ../_node.py: DGL's
names for what the recipes of PyG's layers read."""

import torch
from torch import nn

from ... import _fused
from ..._kernel_links import Attention, Sum
from ..._links import Finish, Linear as Product, Slot, add
from ...convert import as_graph
from ...graph import Graph
from .._attention_nodes import _agnn, _gat, _gatv2
from .._guards import Other, is_matrix, linear, number, product
from .._linear import hooked
from .._node import fits, named, node, recipe, run
from .._sum_nodes import _gin, _neighbours
from ._base import has_isolated, out_degrees

SUMS = {"sum": "spmm-sum", "mean": "spmm-mean", "max": "reduce-max"}


# ---- what layers have in common ---------------------------------------------

def _given(state, graph, feat):
    """(graph, features that are sent, those that receive or None if they are
    the same)."""
    src, dst = feat if isinstance(feat, tuple) else (feat, None)
    if not is_matrix(src) or dst is not None and not is_matrix(dst):
        raise Other
    size = src.size(0) if dst is None else (src.size(0), dst.size(0))
    try:
        graph = as_graph(graph, size)
    except (TypeError, ValueError):  # which the steps say
        raise Other from None
    if type(graph) is not Graph or graph.num_src != src.size(0) or \
            not state.get("_allow_zero_in_degree", True) and \
            has_isolated(graph):
        raise Other
    if dst is None and graph.num_dst != graph.num_src:  # a block
        dst = src[:graph.num_dst]
    if dst is not None and dst.size(0) != graph.num_dst:
        raise Other
    return graph, src, dst


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
    return dict(dropout=float(dropout), slope=relu.negative_slope)


def _after(state, out, *names):
    """out after the functions or modules of these names."""
    for name in names:
        function = state["_modules"].get(name, state.get(name))
        if function is not None:
            out = function(out)
    return out


# ---- sums -------------------------------------------------------------------

class Matrix:
    """out = x W, for a weight W [F, G]."""

    def __init__(self, x, weight, out):
        self.x, self.weight, self.out = x, weight, out
        self.reads = self.saves = (x, weight)
        self.makes = (out,)

    def forward(self, graph, values, keep):
        self.plain(graph, values)

    def backward(self, graph, values, grads, wanted):
        grad = grads[self.out]
        if self.weight in wanted:
            grads[self.weight] = values[self.x].t().mm(grad)
        if self.x in wanted:
            add(grads, self.x, grad.mm(values[self.weight].t()))

    def plain(self, graph, values):
        values[self.out] = values[self.x].mm(values[self.weight])


def _scales(graph, dtype):
    """1 / sqrt(degree) of destinations by their in-edges, of sources by their
    out-edges."""
    def make():
        kind = torch.float64 if dtype == torch.float64 else torch.float32
        return tuple(degrees.clamp(min=1).to(kind).pow(-0.5)
                     for degrees in (graph.degrees, out_degrees(graph)))
    return graph._derive(("scales of both ends", dtype == torch.float64), make)


_NORMS = {"none": ("spmm-sum", None), "right": ("spmm-mean", None),
          "both": ("spmm-sum", _scales)}


@node
def graph_conv(state, graph, feat, weight=None, edge_weight=None):
    if edge_weight is not None or state["_norm"] not in _NORMS:
        raise Other
    own = _parameter(state, "weight")
    if own is None or weight is not None:
        raise Other
    graph, src, _ = _given(state, graph, feat)
    return _after(state, run(graph, _graph_conv, state["_norm"], src, own,
                             _parameter(state, "bias")), "_activation")


@recipe("x weight bias")
def _graph_conv(graph, settings, norm, x, weight, bias):
    if x.size(1) != weight.size(0) or \
            bias is not None and bias.shape != weight.shape[1:]:
        return None
    op, scales = _NORMS[norm]

    def summed(name, out, width):
        return Sum(op, name, out, width, x.dtype, scales)
    if weight.size(0) > weight.size(1):
        links = [Matrix("x", "weight", "h"),
                 summed("h", "sums", weight.size(1))]
    else:
        links = [summed("x", "h", weight.size(0)),
                 Matrix("h", "weight", "sums")]
    return [*links, Finish("sums", "out", bias=named("bias", bias))]


@node
def sage(state, graph, feat, edge_weight=None):
    kind = state["_aggre_type"]
    if edge_weight is not None or kind not in ("mean", "pool"):
        raise Other
    graph, src, dst = _given(state, graph, _dropped(state, feat))
    both = *linear(state, "fc_neigh"), *linear(state, "fc_self")
    if both[1] is not None:
        raise Other
    if kind == "pool":
        out = run(graph, _neighbours, ("reduce-max", False), src, dst, *both,
                  *linear(state, "fc_pool"), None)
    elif both[0].size(1) > both[0].size(0):
        out = run(graph, _products_first, (), src, dst, both[0], *both[2:])
    else:
        out = run(graph, _neighbours, ("spmm-mean", False), src, dst, *both,
                  None, None, None)
    return _after(state, out, "activation", "norm")


@recipe("x x_dst weight w_own b_own")
def _products_first(graph, settings, static, x, x_dst, weight, w_own, b_own):
    own, width = x if x_dst is None else x_dst, weight.size(0)
    if not fits(weight, None, x.size(1)) or w_own.size(0) != width or \
            not fits(w_own, b_own, own.size(1)):
        return None
    return [Product("x" if x_dst is None else "x_dst", ("w_own",),
                    () if b_own is None else ("b_own",), (), "own"),
            Product("x", ("weight",), (), (), "h"),
            Sum("spmm-mean", "h", "sums", width, x.dtype),
            Finish("sums", "out", plus=Slot("own"))]


@node
def gin(state, graph, feat, edge_weight=None):
    if edge_weight is not None:
        raise Other
    graph, src, dst = _given(state, graph, feat)
    out = run(graph, _gin, SUMS[state["_aggregator_type"]], src, dst,
              number(state, "eps"))
    return _after(state, out, "apply_func", "activation")


# ---- attention --------------------------------------------------------------

@node
def gat(state, graph, feat, edge_weight=None, get_attention=False):
    if edge_weight is not None or get_attention:
        raise Other
    feat = _dropped(state, feat)
    graph, src, dst = _given(state, graph, feat)
    modules, heads = state["_modules"], state["_num_heads"]
    if "fc" in modules:
        weights = product(state, "fc"), None
    elif isinstance(feat, tuple):
        weights = product(state, "fc_src"), product(state, "fc_dst")
    else:
        raise Other
    residual, of_residual = modules.get("res_fc"), (None, None)
    if residual is not None and type(residual) is not nn.Identity:
        of_residual, residual = linear(state, "res_fc"), None
    bias = of_residual[1] if of_residual[1] is not None else \
        _parameter(state, "bias")
    out = run(graph, _gat, (heads, True, None), src, dst, *weights,
              _parameter(state, "attn_l"), _parameter(state, "attn_r"), bias,
              of_residual[0], None, None, None, **_attention_of(state))
    return _by_head(state, out, residual, src if dst is None else dst)


def _by_head(state, out, residual, own):
    """[N, H, D] the layer's result; residual: what is made of a node's own
    features and added, or None."""
    if residual is not None:
        out = out + residual(own)
    return _after(state, out.view(-1, state["_num_heads"],
                                  state["_out_feats"]), "activation")


@node
def gatv2(state, graph, feat, get_attention=False):
    if get_attention:
        raise Other
    feat = _dropped(state, feat)
    graph, src, dst = _given(state, graph, feat)
    shared = state["share_weights"]
    if shared and dst is not None:
        raise Other
    heads = state["_num_heads"]
    out = run(graph, _gatv2, (heads, True, None), src, dst,
              *linear(state, "fc_src"), *(
                  (None, None) if shared else linear(state, "fc_dst")),
              _parameter(state, "attn"), None, None, None, None,
              **_attention_of(state))
    return _by_head(state, out, state["_modules"].get("res_fc"),
                    src if dst is None else dst)


@node
def agnn(state, graph, feat):
    graph, src, dst = _given(state, graph, feat)
    if dst is not None:
        raise Other
    return run(graph, _agnn, (), src, number(state, "beta"), scale=1.0,
               slope=0.2)


@node
def dot_gat(state, graph, feat, get_attention=False):
    graph, src, dst = _given(state, graph, feat)
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
