"""Layers that attend: GAT, GATv2, transformers and their kin."""

import torch

from ..._modes import compiling
from ...graph import Graph
from .. import _attention_steps as steps
from .._linear import is_product
from ._edges import ends, graph_of, known, reverse, unknown
from ._mixin import fits, is_sum, unfit

_LOOKED_AT = "its projection of edges is not PyG's, or a hook looks at it"
_NO_MATRICES = "x is not [nodes, features], or two such"


def own_reason(layer):
    """The reason why a layer that attends has no kernels, or None."""
    if not is_sum(layer):
        return "its messages are not summed"
    return "dropout leaves nothing" if layer.training and getattr(
        layer, "dropout", 0) >= 1 else None


def attends(layer, edge_index, x, edge_attr=None):
    """The reason why a layer that attends takes PyG's path, or None.  x:
    features, or those of sources and those of destinations or None."""
    if not known(edge_index):
        return unknown(edge_index)
    src, *dst = steps.pair(x)
    if not fits(src, *dst, edge_attr):
        return "features are not of floating point"
    if src is None or any(t is not None and t.dim() != 2 for t in (src, *dst)):
        return _NO_MATRICES
    return own_reason(layer)


def _result(layer, edge_index, graph, looped, out, alpha):
    """out, and (edge_index, alpha) as PyG returns them unless alpha is
    None."""
    if alpha is None:
        return out
    if looped:
        graph = graph.with_self_loops()
    if looped or isinstance(edge_index, Graph):
        edge_index = graph.edge_index.clone()
        if reverse(layer):
            edge_index = edge_index.flip(0)
    return out, (edge_index, alpha)


def can_fill(layer, edge_attr, ends):
    """Whether PyG can fill in the features of loops: it reduces edge features
    for as many nodes as have loops, and fails if an edge leads to another
    node."""
    return (edge_attr is None or not isinstance(layer.fill_value, str)
            or ends.num_src == ends.num_dst)


def edges_looked_at(layer):
    """Whether the projection of edge features is more than a product with its
    weight: its class is another, or a hook looks at it."""
    lin = layer.lin_edge
    return lin is not None and not is_product(lin)


def _stepwise(step, layer, x, edge_index, edge_attr, size, with_alpha, reason):
    """The result of a step of _attention_steps.py; reason: why there is none, or
    None."""
    loops = getattr(layer, "add_self_loops", False)
    reason = attends(layer, edge_index, x, edge_attr) or reason
    if reason is None and loops and with_alpha and compiling():
        reason = "torch.compile traces"  # their number depends on values
    if reason is not None:
        return unfit(layer, reason)
    pair = ends(layer, steps.pair(x), size)
    # PyG compares the sizes of a graph that gets loops
    if pair is None or loops and size is not None and None in size:
        return unfit(layer, "sizes contradict each other")
    if loops and not can_fill(layer, edge_attr, pair):
        return unfit(layer, "PyG cannot fill the features of loops")
    graph = graph_of(layer, edge_index, pair.num_src, pair.num_dst)
    # PyG fills features of loops by that row of edges to which messages flow
    return _result(layer, edge_index, graph, loops, *step(
        layer, graph, x, edge_attr, bool(with_alpha),
        0 if reverse(layer) else 1, pair.num_dst))


def gat(layer, x, edge_index, edge_attr=None, size=None,
        return_attention_weights=None):
    return _stepwise(
        steps.gat, layer, x, edge_index, edge_attr, size,
        return_attention_weights,
        _LOOKED_AT if edges_looked_at(layer) else None)


def gatv2(layer, x, edge_index, edge_attr=None,
          return_attention_weights=None):
    return _stepwise(
        steps.gatv2, layer, x, edge_index, edge_attr, None,
        return_attention_weights,
        _LOOKED_AT if edge_attr is not None and layer.add_self_loops
        and edges_looked_at(layer) else None)


def agnn(layer, x, edge_index):
    reason = None
    if not isinstance(x, torch.Tensor) or layer.node_dim not in (0, -2):
        reason = _NO_MATRICES
    elif x.dtype != layer.beta.dtype and \
            not torch.is_autocast_enabled(x.device.type):
        reason = "x is of another type than beta"
    return _stepwise(steps.agnn, layer, x, edge_index, None, None, False,
                     reason)


def transformer(layer, x, edge_index, edge_attr=None,
                return_attention_weights=None):
    reason = None
    if edge_attr is not None and layer.lin_edge is None:
        reason = "edge_attr and edge_dim do not go together"
    elif edge_attr is not None and (edges_looked_at(layer)
                                    or edge_attr.dim() != 2):
        reason = _LOOKED_AT
    elif edge_attr is not None:
        like = steps.pair(x)[0]
        if edge_attr.dtype != like.dtype and \
                not torch.is_autocast_enabled(like.device.type):
            reason = "edge_attr is of another type"
    return _stepwise(
        steps.transformer, layer, x, edge_index, edge_attr, None,
        isinstance(return_attention_weights, bool), reason)
