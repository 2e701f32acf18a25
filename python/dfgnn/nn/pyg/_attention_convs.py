"""Layers that attend: GAT, GATv2, transformers and their kin."""

import torch

from ... import ops
from ...graph import Graph
from .. import _attention_steps as steps
from .._linear import is_product
from ._edges import edges_as_given, ends, graph_of, known, reverse
from ._mixin import fits, unfit, usual
from ._reduce import is_sum

_LOOKED_AT = "its projection of edges is not PyG's, or a hook looks at it"


def own_reason(layer):
    """The reason why a layer that attends has no kernels, or None."""
    if not is_sum(layer):
        return "its messages are not summed"
    return "dropout leaves nothing" if layer.training and getattr(
        layer, "dropout", 0) >= 1 else None


def attends(layer, edge_index, *tensors):
    """The reason why a layer that attends takes PyG's path, or None."""
    if not known(edge_index):
        return "its edges are no edge_index, but a " \
            + type(edge_index).__name__
    if not fits(*tensors):
        return "features are not of floating point"
    return own_reason(layer)


def _weights_result(layer, edge_index, graph, looped, alpha):
    """(edge_index, alpha) as PyG returns them."""
    if looped:
        graph = graph.with_self_loops()
    if looped or isinstance(edge_index, Graph):
        edge_index = graph.edge_index.clone()
        if reverse(layer):
            edge_index = edge_index.flip(0)
    return edge_index, alpha


def can_fill(layer, edge_attr, ends):
    """Whether PyG can fill in the features of loops: it reduces edge features
    for as many nodes as have loops, and fails if an edge leads to another
    node."""
    return (edge_attr is None or not isinstance(layer.fill_value, str)
            or ends.num_src == ends.num_dst)


# ---- GAT and GATv2 ----------------------------------------------------------

def edges_looked_at(layer):
    """Whether the projection of edge features is more than a product with its
    weight: its class is another, or a hook looks at it."""
    lin = layer.lin_edge
    return lin is not None and not is_product(lin)


def _additive_reason(layer, edge_index, edge_attr, given, wanted):
    """Why the kernels of GAT or GATv2 do not serve a call, or None."""
    reason = attends(layer, edge_index, edge_attr, *given)
    if reason is not None:
        return reason
    if given[0] is None or any(t is not None and t.dim() != 2 for t in given):
        return "x is not [nodes, features], or two such"
    if layer.add_self_loops and ops.compiling() and wanted:
        return "torch.compile traces"  # their number depends on values
    return None


def _additive(layer, x, edge_index, edge_attr, size, wanted, reason, step):
    """The result of step(graph, num_dst, row), where PyG fills loops by that
    row of edges as messages flow; reason: why there is none, or None."""
    wanted = bool(wanted)
    reason = _additive_reason(layer, edge_index, edge_attr, steps.pair(x),
                              wanted) or reason
    if reason is not None:
        return unfit(layer, reason)
    found = ends(layer, steps.pair(x), size)
    if found is None:
        return unfit(layer, "sizes contradict each other")
    if layer.add_self_loops and not can_fill(layer, edge_attr, found):
        return unfit(layer, "PyG cannot fill the features of loops")
    graph = graph_of(layer, edge_index, found.num_src, found.num_dst)
    out, alpha = step(graph, found.num_dst, 0 if reverse(layer) else 1, wanted)
    return out if alpha is None else (out, _weights_result(
        layer, edge_index, graph, layer.add_self_loops, alpha))


def gat(layer, x, edge_index, edge_attr=None, size=None,
        return_attention_weights=None):
    return _additive(
        layer, x, edge_index, edge_attr, size, return_attention_weights,
        _LOOKED_AT if edges_looked_at(layer) else None,
        lambda graph, num_dst, row, wanted: steps.gat(
            layer, graph, x, num_dst, edge_attr, wanted, row))


def gatv2(layer, x, edge_index, edge_attr=None,
          return_attention_weights=None):
    reason = None
    if steps.pair(x)[1] is None:
        reason = "x is not [nodes, features], or two such"
    elif edge_attr is not None and layer.lin_edge is None:
        reason = "edge_attr is given, but the layer has no edge_dim"
    elif edge_attr is not None and layer.add_self_loops and \
            edges_looked_at(layer):
        reason = _LOOKED_AT
    return _additive(
        layer, x, edge_index, edge_attr, None, return_attention_weights,
        reason, lambda graph, num_dst, row, wanted: steps.gatv2(
            layer, graph, x, edge_attr, wanted, row))


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
    *parts, root = steps.projections(layer, steps.pair(x))
    given = dict(zip(("query", "key", "value"), parts), edge_attr=edge_attr)
    out = NotImplemented
    if not layer.runs_in_steps():
        out = dot_products(layer, edge_index, None, **given, wanted=False)
    if out is NotImplemented:
        out = layer.propagate(edge_index, **given)
    return steps.with_skip(layer, out, root)


def dot_products(layer, edge_index, size, query, key, value, edge_attr=None,
                 wanted=None):
    """wanted: whether the layer keeps the weights; by default as its forward
    was asked."""
    linear = layer.lin_edge
    reason = attends(layer, edge_index, query, key, value, edge_attr)
    if reason is None and (linear is None) != (edge_attr is None):
        reason = "edge_attr and edge_dim do not go together"
    if reason is None and linear is not None and (
            edges_looked_at(layer) or edge_attr.dim() != 2):
        reason = _LOOKED_AT
    if reason is None and linear is not None and edge_attr.dtype != key.dtype \
            and not torch.is_autocast_enabled(key.device.type):
        reason = "edge_attr is of another type"
    if reason is not None:
        return unfit(layer, reason)
    graph = graph_of(layer, edge_index, ends(layer, key).num_src,
                     query.size(0))
    if wanted is None:
        wanted = getattr(layer, "_dfgnn_weights", True)
    out, alpha = steps.transformer(layer, graph, query, key, value, edge_attr,
                                   wanted)
    if wanted:
        layer._alpha = alpha
    return out


# ---- AGNN ------------------------------------------------------------------

def agnn(layer, x, edge_index):
    if not (known(edge_index) and is_sum(layer) and fits(x)) or x.dim() != 2 \
            or layer.node_dim not in (0, -2):
        return unfit(layer, "x is not [nodes, features], or its edges are no "
                     "edge_index")
    return steps.agnn(layer, graph_of(layer, edge_index, x.size(0),
                                      x.size(0)), x)
