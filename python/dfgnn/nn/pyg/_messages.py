"""Layers whose messages have features of the edge in them: a kernel makes and
reduces them, edge by edge, and keeps none."""

import torch

from ...messages import gated_messages, relu_messages
from .._linear import hooked, is_product, takes
from ..sum_convs import gated_parts
from ._edges import ends, graph_of, known
from ._mixin import fits
from ._reduce import combine, edge_messages, reductions


def _relu_reductions(layer, edge_index, size, x, edge_attr, linear):
    """(list of reductions of relu(x_j + e), graph), or None if the kernels
    cannot make them: e is edge_attr, or a linear layer's result for it."""
    names, met = reductions(layer.aggr_module), ends(layer, x, size)
    if (names is None or met is None or edge_attr is None
            or not known(edge_index) or not fits(met.src, edge_attr)
            or met.src.dim() != 2 or edge_attr.dim() != 2):
        return None
    weight = bias = None
    if linear is not None and is_product(linear) and takes(linear, edge_attr):
        weight, bias = linear.weight, linear.bias
    elif linear is not None:
        edge_attr = linear(edge_attr)
    width = edge_attr.size(-1) if weight is None else weight.size(0)
    if width != met.src.size(-1):
        return None
    graph = graph_of(layer, edge_index, met.num_src, met.num_dst)
    return relu_messages(graph, met.src, edge_attr, weight, bias, list(names),
                         num_dst=met.num_dst), graph


def isomorphism_with_edges(layer, edge_index, size, x, edge_attr=None):
    """Propagation of GINEConv."""
    made = _relu_reductions(layer, edge_index, size, x, edge_attr, layer.lin)
    if made is None:
        return edge_messages(layer, edge_index, size, x=x,
                             edge_attr=edge_attr)
    return combine(layer.aggr_module, *made)


# ---- gates ------------------------------------------------------------------

def residual_gates(layer, edge_index, size, k, q, v, edge_attr=None):
    """Propagation of ResGatedGraphConv.  With edge features its linear layers
    are over the features of a node and of the edge together, the value's,
    too."""
    names, met = reductions(layer.aggr_module), ends(layer, v, size)
    given = dict(k=k, q=q, v=v, edge_attr=edge_attr)
    linears = layer.lin_key, layer.lin_query, layer.lin_value
    if (names is None or met is None or type(layer.act) is not torch.nn.Sigmoid
            or hooked(layer.act) or not known(edge_index) or not fits(k, q, v, edge_attr)
            or v.dim() != 2
            or (edge_attr is None) != (layer.edge_dim is None)
            or edge_attr is not None and (edge_attr.dim() != 2 or not all(
                map(is_product, linears)))):
        return edge_messages(layer, edge_index, size, **given)
    graph = graph_of(layer, edge_index, met.num_src, k.size(0))
    nodes, edges = (v, k, q), {}
    if edge_attr is not None:
        nodes, edges = gated_parts(linears, k, q, v)
    outs = gated_messages(graph, *nodes, edge_attr, reduce=list(names),
                          num_dst=k.size(0), **edges)
    return combine(layer.aggr_module, outs, graph)
