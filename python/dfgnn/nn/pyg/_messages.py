"""Layers whose messages have features of the edge in them: a kernel makes and
sums them, edge by edge, and keeps none."""

import torch
from torch_geometric.nn import Linear

from ... import ops
from ...messages import gated_messages, relu_messages
from ._edges import degrees, ends, graph_of, known
from ._mixin import fits
from ._reduce import combine, edge_messages, reduce_edges, reductions


def _plain_linear(module):
    """Whether a module is x W^T + b, and nobody looks at it."""
    return type(module) in (torch.nn.Linear, Linear) and not (
        module._forward_hooks or module._forward_pre_hooks
        or module._backward_hooks or module._backward_pre_hooks)


def _reduction(layer):
    """"sum" or "mean", None if the layer reduces otherwise."""
    names = reductions(layer.aggr_module)
    return names[0] if names in (("sum",), ("mean",)) else None


def _relu_sums(layer, edge_index, size, x, edge_attr, linear):
    """(reductions of relu(x_j + e), graph), or None: e is edge_attr, or what a
    linear layer makes of it."""
    reduce, met = _reduction(layer), ends(layer, x, size)
    if (reduce is None or met is None or edge_attr is None
            or not known(edge_index) or not fits(met.src, edge_attr)
            or met.src.dim() != 2 or edge_attr.dim() != 2):
        return None
    weight = bias = None
    if linear is not None and _plain_linear(linear):
        weight, bias = linear.weight, linear.bias
    elif linear is not None:
        edge_attr = linear(edge_attr)
    width = edge_attr.size(-1) if weight is None else weight.size(0)
    if width != met.src.size(-1):
        return None
    graph = graph_of(layer, edge_index, met.num_src, met.num_dst)
    return relu_messages(graph, met.src, edge_attr, weight, bias, reduce,
                         num_dst=met.num_dst), graph


def isomorphism_with_edges(layer, edge_index, size, x, edge_attr=None):
    """GINEConv."""
    made = _relu_sums(layer, edge_index, size, x, edge_attr, layer.lin)
    if made is None:
        return edge_messages(layer, edge_index, size, x=x,
                             edge_attr=edge_attr)
    return combine(layer.aggr_module, [made[0]], made[1])


def generalized_with_edges(layer, edge_index, size, x, edge_attr):
    """GENConv with edge features, unless it reduces by a softmax; None if the
    kernels do not have it.  Each message is eps more than its relu."""
    if ops.compiling():
        return None
    made = _relu_sums(layer, edge_index, size, x, edge_attr,
                      getattr(layer, "lin_edge", None))
    if made is None:
        return None
    out, graph = made
    count = degrees(graph, out.dtype).view(-1, 1)
    if _reduction(layer) != "sum":
        count = (count > 0).to(out.dtype)
    return combine(layer.aggr_module, [out + layer.eps * count], graph)


# ---- gates ------------------------------------------------------------------

def residual_gates(layer, edge_index, size, k, q, v, edge_attr=None):
    """ResGatedGraphConv.  With edge features its value has some of them, too:
    then messages are made edge by edge of what is made by node."""
    reduce, met = _reduction(layer), ends(layer, v, size)
    given = dict(k=k, q=q, v=v, edge_attr=edge_attr)
    if (reduce is None or met is None or type(layer.act) is not torch.nn.Sigmoid
            or layer.act._forward_hooks or layer.act._forward_pre_hooks
            or not known(edge_index) or not fits(k, q, v, edge_attr)
            or v.dim() != 2):
        return edge_messages(layer, edge_index, size, **given)
    graph = graph_of(layer, edge_index, met.num_src, k.size(0))
    if edge_attr is None:
        out = gated_messages(graph, v, k, q, reduce=reduce,
                             num_dst=k.size(0))
        return combine(layer.aggr_module, [out], graph)
    linears = layer.lin_key, layer.lin_query, layer.lin_value
    if ops.compiling() or edge_attr.dim() != 2 or not all(
            map(_plain_linear, linears)):
        return edge_messages(layer, edge_index, size, **given)
    return _with_edge_values(layer, edge_index, graph, linears, given)


def _with_edge_values(layer, edge_index, graph, linears, given):
    def split(linear, nodes, index):
        width = nodes.size(1)
        made = torch.nn.functional.linear(
            nodes, linear.weight[:, :width], linear.bias)
        return made.index_select(0, index), linear.weight[:, width:]
    src, dst = graph.edge_index
    key, key_edge = split(linears[0], given["k"], dst)
    query, query_edge = split(linears[1], given["q"], src)
    value, value_edge = split(linears[2], given["v"], src)
    edges = given["edge_attr"]
    gate = (key + query + edges @ (key_edge + query_edge).t()).sigmoid()
    return reduce_edges(layer, edge_index,
                        gate * (value + edges @ value_edge.t()),
                        graph.num_src, graph.num_dst)


