"""Layers that attend: GAT, GATv2, transformers and their kin."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import Linear

from ... import ops
from ..._loops import check_rows, loop_features
from ...functional import (
    agnn_attention, gat_attention, gatv2_attention, gt_attention)
from ...graph import Graph
from .._additive import edge_score, finished, projected
from .._exact import outside_autocast, result_type, softmax_type
from .._linear import hooked
from ..transformer_conv import projections, with_skip
from ._edges import edges_as_given, ends, graph_of, known, reverse
from ._mixin import attempt, fits, unfit, usual
from ._reduce import is_sum


def _certain_dropout(layer):
    return layer.training and getattr(layer, "dropout", 0) >= 1


def attends(layer, edge_index, *tensors):
    """The reason why a layer that attends takes PyG's path, or None."""
    if not known(edge_index):
        return "its edges are no edge_index, but a " \
            + type(edge_index).__name__
    if not is_sum(layer):
        return "its messages are not summed"
    if _certain_dropout(layer):
        return "dropout leaves nothing"
    if not fits(*tensors):
        return "features are not of floating point"
    return None


def _weights_result(layer, edge_index, graph, looped, alpha):
    """(edge_index, alpha) as PyG returns them."""
    if looped or isinstance(edge_index, Graph):
        edge_index = graph.edge_index.clone()
        if reverse(layer):
            edge_index = edge_index.flip(0)
    return edge_index, alpha


def _with_loops(layer, edge_index, num_src, num_dst, edge_attr):
    """(graph with self loops, edge features with those of the loops)."""
    graph = graph_of(layer, edge_index, num_src, num_dst)
    if edge_attr is not None:
        check_rows("edge_attr", edge_attr, graph.num_edges)
    graph = graph.with_self_loops()
    if edge_attr is not None:
        edges = graph.edge_index
        # PyG fills by the second row, whichever way messages flow
        edges = edges.flip(0) if reverse(layer) else edges
        edge_attr = loop_features(edge_attr, graph.kept, edges,
                                  min(num_src, num_dst), layer.fill_value)
    return graph, edge_attr


def _graph_and_loops(layer, edge_index, met, edge_attr, wanted):
    """(graph, edge features, whether the kernels add the loops): where features
    or weights of loops are asked for, the graph has them already."""
    if layer.add_self_loops and (wanted or edge_attr is not None):
        return *_with_loops(layer, edge_index, met.num_src, met.num_dst,
                            edge_attr), False
    return graph_of(layer, edge_index, met.num_src, met.num_dst), edge_attr, \
        layer.add_self_loops


def _can_fill(layer, edge_attr, met):
    """Whether PyG can fill in the features of loops: it reduces edge features
    for as many nodes as have loops, and fails if an edge leads to another
    node."""
    return (edge_attr is None or not isinstance(layer.fill_value, str)
            or met.num_src == met.num_dst)


def _loops_fit(layer, edge_attr, wanted):
    """False if torch.compile traces and the loops have to be made as edges,
    whose number depends on values."""
    return not (ops.compiling() and layer.add_self_loops
                and (wanted or edge_attr is not None))


# ---- GAT --------------------------------------------------------------------

def gat(pyg_forward):
    def forward(self, x, edge_index, edge_attr=None, size=None,
                return_attention_weights=None):
        wanted = bool(return_attention_weights)
        if usual(self):
            out = attempt(_gat, self, x, edge_index, edge_attr, size, wanted)
            if out is not NotImplemented:
                return out
        if isinstance(edge_index, Graph):
            edge_index = edges_as_given(self, edge_index)
        return pyg_forward(self, x, edge_index, edge_attr, size,
                           return_attention_weights)
    return forward


def _gat(layer, x, edge_index, edge_attr, size, wanted):
    given = (x,) if isinstance(x, Tensor) else x
    reason = attends(layer, edge_index, edge_attr, *given)
    if reason is None and (given[0] is None or any(
            t is not None and t.dim() != 2 for t in given)):
        reason = "x is not [nodes, features]"
    if reason is None and not _loops_fit(layer, edge_attr, wanted):
        reason = "torch.compile traces"
    if reason is None and _edges_looked_at(layer):
        reason = "its projection of edges is not PyG's, or a hook looks at it"
    if reason is not None:
        return unfit(layer, reason)
    met = ends(layer, (x, x) if isinstance(x, Tensor) else x, size)
    if met is None:
        return unfit(layer, "sizes contradict each other")
    if layer.add_self_loops and not _can_fill(layer, edge_attr, met):
        return unfit(layer, "PyG cannot fill the features of loops")
    residual = None  # before the rest: lazy layers draw their weights in order
    if layer.res is not None and met.dst is not None:
        residual = layer.res(met.dst)
    h_src, h_dst = projected(layer, x)
    score_src = (h_src * layer.att_src).sum(-1)
    score_dst = None if h_dst is None else (h_dst * layer.att_dst).sum(-1)
    if score_dst is None:
        score_dst = score_src.new_zeros(met.num_dst, layer.heads)
    graph, edge_attr, loops = _graph_and_loops(layer, edge_index, met,
                                               edge_attr, wanted)
    out = outside_autocast(
        gat_attention, graph, h_src, score_dst, score_src,
        negative_slope=layer.negative_slope,
        edge_score=edge_score(layer, edge_attr), dropout=layer.dropout,
        training=layer.training, return_weights="after" if wanted else False,
        self_loops=loops, result=result_type(score_src, h_src))
    if not wanted:
        return finished(layer, out, residual)
    out, alpha = out
    alpha = alpha.to(softmax_type(score_src))
    return finished(layer, out, residual), _weights_result(
        layer, edge_index, graph, layer.add_self_loops, alpha)


def _edges_looked_at(layer):
    """Whether the projection of edge features is more than a product with its
    weight: its class is another, or a hook looks at it."""
    lin = layer.lin_edge
    return lin is not None and (
        type(lin) not in (Linear, torch.nn.Linear) or hooked(lin))


# ---- GATv2 ------------------------------------------------------------------

def gatv2(pyg_forward):
    def forward(self, x, edge_index, edge_attr=None,
                return_attention_weights=None):
        wanted = bool(return_attention_weights)
        if usual(self):
            out = attempt(_gatv2, self, x, edge_index, edge_attr, wanted)
            if out is not NotImplemented:
                return out
        if isinstance(edge_index, Graph):
            edge_index = edges_as_given(self, edge_index)
        return pyg_forward(self, x, edge_index, edge_attr,
                           return_attention_weights)
    return forward


def _gatv2(layer, x, edge_index, edge_attr, wanted):
    single = isinstance(x, Tensor)
    x_l, x_r = (x, x) if single else x
    if x_l is None or x_r is None or x_l.dim() != 2 or x_r.dim() != 2:
        return unfit(layer, "x is not [nodes, features], or two such")
    reason = attends(layer, edge_index, edge_attr, x_l, x_r)
    if reason is None and not _loops_fit(layer, edge_attr, wanted):
        reason = "torch.compile traces"
    if reason is None and edge_attr is not None and layer.lin_edge is None:
        reason = "edge_attr is given, but the layer has no edge_dim"
    if reason is not None:
        return unfit(layer, reason)
    met = ends(layer, (x_l, x_r))
    if met is None:
        return unfit(layer, "sizes contradict each other")
    if layer.add_self_loops and not _can_fill(layer, edge_attr, met):
        return unfit(layer, "PyG cannot fill the features of loops")
    shape = (-1, layer.heads, layer.out_channels)
    residual = None if layer.res is None else layer.res(x_r)
    h_l = layer.lin_l(x_l).view(shape)
    if single and layer.share_weights:
        h_r = h_l
    else:
        h_r = layer.lin_r(x_r).view(shape)
    graph, edge_attr, loops = _graph_and_loops(layer, edge_index, met,
                                               edge_attr, wanted)
    weight = None
    if edge_attr is not None:
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        if _edges_looked_at(layer) or layer.lin_edge.bias is not None \
                or edge_attr.dtype != h_l.dtype:
            edge_attr = layer.lin_edge(edge_attr).view(shape).to(h_l.dtype)
        else:
            weight = layer.lin_edge.weight.to(h_l.dtype)
    like = (h_l[:0] * layer.att).sum(-1)
    out = outside_autocast(
        gatv2_attention, graph, h_r, h_l, layer.att[0].to(h_l.dtype),
        negative_slope=layer.negative_slope, edge_attr=edge_attr,
        edge_weight=weight, dropout=layer.dropout, training=layer.training,
        return_weights="after" if wanted else False, self_loops=loops,
        result=result_type(like, h_l))
    if not wanted:
        return finished(layer, out, residual)
    out, alpha = out
    return finished(layer, out, residual), _weights_result(
        layer, edge_index, graph, layer.add_self_loops,
        alpha.to(softmax_type(like)))


# ---- transformers -----------------------------------------------------------

def transformer(pyg_forward):
    """A forward() that sets _dfgnn_weights, since propagate() cannot know
    whether the caller wants the weights."""
    def forward(self, x, edge_index, edge_attr=None,
                return_attention_weights=None):
        graph = edge_index
        if isinstance(graph, Graph) and (
                isinstance(return_attention_weights, bool)
                or not usual(self)):
            edge_index = edges_as_given(self, graph)
        wanted = isinstance(return_attention_weights, bool)
        if ops.compiling() and not wanted and usual(self):
            return _in_few_products(self, x, edge_index, edge_attr)
        if getattr(self, "_dfgnn_weights", None) is not wanted:
            self._dfgnn_weights = wanted
        return pyg_forward(self, x, edge_index, edge_attr,
                           return_attention_weights)
    return forward


def _in_few_products(layer, x, edge_index, edge_attr):
    """PyG's forward without weights, with projections of one input as one
    product, which torch.compile does not make of several.  The layer gets no
    attribute by it, which would have torch.compile begin anew."""
    x = (x, x) if isinstance(x, Tensor) else tuple(x)
    shape = (-1, layer.heads, layer.out_channels)
    query, key, value, root = projections(layer, x)
    given = dict(query=query.view(shape), key=key.view(shape),
                 value=value.view(shape), edge_attr=edge_attr)
    out = NotImplemented
    if not layer.runs_in_steps():
        out = dot_products(layer, edge_index, None, **given, wanted=False)
    if out is NotImplemented:
        out = layer.propagate(edge_index, **given)
    out = out.flatten(1) if layer.concat else out.mean(dim=1)
    return with_skip(layer, out, root) if layer.root_weight else out


def dot_products(layer, edge_index, size, query, key, value, edge_attr=None,
                 wanted=None):
    """wanted: whether the layer keeps the weights; by default as its forward
    was asked."""
    linear = layer.lin_edge
    reason = attends(layer, edge_index, query, key, value, edge_attr)
    if reason is None and (linear is None) != (edge_attr is None):
        reason = "edge_attr and edge_dim do not go together"
    if reason is None and linear is not None and (
            _edges_looked_at(layer) or linear.bias is not None
            or edge_attr.dim() != 2):
        reason = "its projection of edges is not PyG's, or a hook looks at it"
    if reason is not None:
        return unfit(layer, reason)
    met = ends(layer, key)
    num_dst = query.size(0)
    graph = graph_of(layer, edge_index, met.num_src, num_dst)
    if wanted is None:
        wanted = getattr(layer, "_dfgnn_weights", True)
    like = (query[:0] * key[:0]).sum(-1)
    scale = 1 / math.sqrt(layer.out_channels)
    weight = None
    if linear is not None:
        if edge_attr.dtype != key.dtype and not torch.is_autocast_enabled(
                key.device.type):
            return unfit(layer, "edge_attr is of another type")
        edge_attr = edge_attr.to(key.dtype)
        weight = linear.weight.to(key.dtype)
    out = outside_autocast(
        gt_attention, graph, query, key, value, scale=scale,
        dropout=layer.dropout, training=layer.training, edge_attr=edge_attr,
        edge_weight=weight, return_weights=wanted,
        result=result_type(like, value))
    if wanted:
        out, alpha = out
        layer._alpha = alpha.to(softmax_type(like))
    return out


# ---- AGNN ------------------------------------------------------------------

def agnn(pyg_forward):
    def forward(self, x, edge_index):
        if usual(self):
            out = attempt(_agnn, self, x, edge_index)
            if out is not NotImplemented:
                return out
        if isinstance(edge_index, Graph):
            edge_index = edges_as_given(self, edge_index)
        return pyg_forward(self, x, edge_index)
    return forward


def _agnn(layer, x, edge_index):
    if not (known(edge_index) and is_sum(layer) and fits(x)) or x.dim() != 2 \
            or layer.node_dim not in (0, -2):
        return unfit(layer, "x is not [nodes, features], or its edges are no "
                     "edge_index")
    graph = graph_of(layer, edge_index, x.size(0), x.size(0))
    like = x[:0]
    if torch.is_autocast_enabled(x.device.type):
        like = F.normalize(like, p=2.0, dim=-1)
    like = layer.beta * (like * like).sum(-1)
    out = outside_autocast(agnn_attention, graph, x.unsqueeze(1), layer.beta,
                           self_loops=layer.add_self_loops,
                           result=result_type(like, x))
    return out.squeeze(1)
