"""Layers whose messages are x_j, weighted or not, layers whose results follow
from sums of such messages, and layers whose messages have features of the edge,
which a kernel makes and reduces edge by edge, and keeps none of."""

import torch
import torch.nn.functional as F
from torch_geometric.nn import MLP, aggr

from ..._mlp_formula import REDUCTIONS as MLP_REDUCTIONS
from ..._modes import compiling
from ...aggregation import degrees, each_reduction, spmm
from ...graph import Graph
from ...messages import gated_messages, relu_messages
from ...mlps import edge_mlp
from .._linear import hooked, is_product, takes
from .._networks import after_linear
from .._node import watched
from ..sum_convs import gated_parts
from ._edges import (
    Looped, ends, graph_of, known, of_pyg, remember, reverse, with_names)
from ._mixin import fits, is_sum, unfit, usual
from ._reduce import (
    combine, edge_messages, factors_of, neighbours, reduce_messages,
    reductions)


def renamed(makers, otherwise=None, when=None):
    """A maker of forwards that are PyG's with other functions for making
    edges, those of makers; those of otherwise if when(layer) is true."""
    def make(pyg_forward):
        first = with_names(pyg_forward, **makers)
        second = with_names(pyg_forward, **otherwise) if otherwise else None
        if first is None:
            return pyg_forward

        def forward(self, *args, **kwargs):
            args = [of_pyg(self, v) for v in args]
            kwargs = {name: of_pyg(self, v) for name, v in kwargs.items()}
            if not usual(self):
                return pyg_forward(self, *args, **kwargs)
            ours = second if when is not None and when(self) else first
            return ours(self, *args, **kwargs)
        return forward
    return make


def keeps_edges(layer):
    """Whether the layer keeps or changes the edges that gcn_norm makes."""
    return layer.cached or (getattr(layer, "dropout", 0) > 0
                            and layer.training)


def own_edges(layer, edge_index, size, x, edge_weight=None):
    """Weighted sums over edges that forward made: in a call that torch.compile
    traces they are new each time, and no graph of them can be kept."""
    if compiling() and not isinstance(edge_index, Looped):
        return NotImplemented
    return neighbours(layer, edge_index, size, x, edge_weight)


def chebyshev(layer, edge_index, size, x, norm):
    return own_edges(layer, edge_index, size, x, norm)


def laplacian(layer_norm):
    """ChebConv's __norm__, made once for each graph if it depends on no
    parameter."""
    def __norm__(self, edge_index, num_nodes, edge_weight, normalization,
                 lambda_max=None, dtype=None, batch=None):
        def make():
            return layer_norm(self, edge_index, num_nodes, edge_weight,
                              normalization, lambda_max, dtype, batch)
        if (compiling() or not known(edge_index) or edge_weight is not None
                or isinstance(lambda_max, torch.Tensor) or not usual(self)):
            return make()
        def rescaled():
            return (lambda_max, *make())
        key = "laplacian", num_nodes, normalization, dtype
        cached = remember(edge_index, key, rescaled)
        return cached[1:] if cached[0] == lambda_max else make()
    return __norm__


def frequency_adaptive(layer, edge_index, size, x, alpha, edge_weight=None):
    """FAConv: weights tanh(a_j + b_i) w_ij."""
    if not (known(edge_index) and is_sum(layer) and fits(x, edge_weight)
            and edge_weight is not None and x.dim() == 2
            and not compiling()):
        return unfit(layer, "its messages are not summed by edge_weight")
    pair = ends(layer, x, size)
    send, take = (1, 0) if reverse(layer) else (0, 1)
    scores = (alpha[0].index_select(0, edge_index[send])
              + alpha[1].index_select(0, edge_index[take])).tanh()
    scores = layer._alpha = scores.squeeze(-1)
    scores = F.dropout(scores, p=layer.dropout, training=layer.training)
    weight = scores * edge_weight
    kind = torch.promote_types(weight.dtype, x.dtype)
    graph = graph_of(layer, edge_index, pair.num_src, pair.num_dst)
    return spmm(graph, x.to(kind), weight, num_dst=pair.num_dst)


def _modules(network):
    """The modules that a network calls one after the other."""
    if type(network) is torch.nn.Sequential:
        return list(network)
    if type(network) is not MLP or network.supports_norm_batch or (
            network.training and any(network.dropout)):
        return [network]
    act = [] if network.act is None else [network.act]
    modules = []
    for linear, norm in zip(network.lins, network.norms):
        modules += [linear, *act, norm] if network.act_first else [
            linear, norm, *act]
    return modules + list(network.lins)[len(network.norms):]


def _first_linear(network):
    """(the Linear that a message network begins with, the modules after it);
    (None, None) if it begins otherwise or a hook looks at it."""
    modules = _modules(network)
    first = modules[0] if modules else None
    if not is_product(first) or hooked(network):
        return None, None
    return first, modules[1:]


def principal(layer, edge_index, size, x, edge_attr=None):
    """PNAConv: a linear message network A x_i + B x_j needs no message for
    each edge: A x_i shifts mean, min and max, and leaves std and var alone."""
    names = reductions(layer.aggr_module)
    linears = [_first_linear(nn) for nn in layer.pre_nns]
    if (names is None or any(first is None or rest for first, rest in linears)
            or edge_attr is not None or layer.edge_dim
            or not known(edge_index) or not fits(x)):
        return edge_messages(layer, edge_index, size, x=x,
                             edge_attr=edge_attr)
    num_nodes = x.size(0)
    graph = graph_of(layer, edge_index, num_nodes, num_nodes)
    width = layer.F_in
    dst_part, src_part = (torch.stack(towers, 1) for towers in zip(*[
        (F.linear(rows, first.weight[:, :width], first.bias),
         F.linear(rows, first.weight[:, width:]))
        for rows, (first, _) in zip(x.unbind(1), linears)]))
    outs = _shifted(names, each_reduction(graph, src_part, names, num_nodes),
                    dst_part, graph)
    return combine(layer.aggr_module, outs, graph)


def _joined(tensors):
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)


def principal_layer(layer, x, edge_index, edge_attr=None):
    """PNAConv whose networks are single linear layers.  What a tower's network
    W makes of the scaled reductions is x W_x + sum over scalers s of f_s (r
    W_s), for a node's reductions r and its factors f, so that no features are
    held once for each scaler."""
    module, towers = layer.aggr_module, layer.towers
    names = reductions(module)
    linears = [_first_linear(nn) for nn in (*layer.pre_nns, *layer.post_nns)]
    if (names is None or any(first is None or rest or first.bias is None
                             for first, rest in linears)
            or type(module) is not aggr.DegreeScalerAggregation
            or layer.edge_dim or layer.divide_input and towers > 1
            or edge_attr is not None or not known(edge_index) or not fits(x)
            or x.dim() != 2 or not x.size(0)
            or not compiling() and watched()):
        return NotImplemented  # which propagate looks at again
    graph = graph_of(layer, edge_index, x.size(0), x.size(0))
    weights, biases = zip(*[(first.weight, first.bias)
                            for first, _ in linears])
    left, right = _joined(weights[:towers]).chunk(2, 1)
    dst_part, src_part = (t.view(x.size(0), towers, -1) for t in (
        F.linear(x, left, _joined(biases[:towers])), F.linear(x, right)))
    outs = each_reduction(graph, src_part, names, x.size(0))
    reduced = torch.stack(_shifted(names, outs, dst_part, graph), 2).flatten(
        2).transpose(0, 1)
    weight = torch.stack(weights[towers:])  # [towers, out, in]
    of_x, of_reduced = weight.tensor_split([x.size(1)], 2)
    factors = [torch.ones_like(x[:, 0]) if factor is None else factor
               for factor in factors_of(module, graph, x)]
    of_reduced = of_reduced.unflatten(2, (len(factors), -1)).transpose(
        1, 2).flatten(1, 2)
    products = reduced.bmm(of_reduced.transpose(1, 2)).unflatten(
        2, (len(factors), -1)) * torch.stack(factors, 1).unsqueeze(-1)
    out = F.linear(x, of_x.flatten(0, 1), _joined(biases[towers:]))
    return layer.lin(out + products.sum(2).transpose(0, 1).flatten(1))


def edge_network(layer, edge_index, size, x):
    """EdgeConv whose network begins with a Linear (A, B): (A - B) x_i + B x_j
    is made by node and, if the network has no other module, reduced by a
    kernel; layers that follow are one MLP on edges with it.  With 16 bits it
    matters that PyG subtracts before it multiplies: there x_j - x_i is the
    MLP's feature of edges."""
    names = reductions(layer.aggr_module)
    linear, rest = _first_linear(layer.nn)
    pair = ends(layer, x, size)
    if (names is None or linear is None or pair is None or pair.dst is None
            or not known(edge_index) or not fits(pair.src, pair.dst)
            or pair.src.dim() != 2 or not takes(linear, pair.src)
            or compiling() and isinstance(edge_index, Graph)):
        return edge_messages(layer, edge_index, size, x=x)
    network = after_linear(rest) if rest and len(names) == 1 and \
        names[0] in MLP_REDUCTIONS else None
    narrow = pair.src.dtype in (torch.float16, torch.bfloat16) or \
        torch.is_autocast_enabled(pair.src.device.type)
    if narrow and (network is None or compiling()):
        return edge_messages(layer, edge_index, size, x=x)
    graph = graph_of(layer, edge_index, pair.num_src, pair.num_dst)

    def by_mlp(weight, bias, **inputs):
        out = edge_mlp(
            graph, [weight, *network.weights], [bias, *network.biases],
            activation=network.activation, last=network.last,
            slope=network.slope, reduce=names[0], **inputs)
        return combine(layer.aggr_module, [out], graph)
    if narrow:
        src, dst = graph.edge_index
        return by_mlp(
            linear.weight, linear.bias, dst=pair.dst,
            edge=pair.src.index_select(0, src) - pair.dst.index_select(0, dst),
            columns=("dst", "edge", "src"))
    width = pair.src.size(1)
    right = linear.weight[:, width:]
    dst_part = F.linear(pair.dst, linear.weight[:, :width] - right, linear.bias)
    src_part = F.linear(pair.src, right)
    if network is not None and not compiling():
        return by_mlp(None, None, dst_part=dst_part, src_part=src_part)
    if rest:
        src, dst = graph if compiling() else graph.edge_index
        message = dst_part.index_select(0, dst) + src_part.index_select(0, src)
        for module in rest:
            message = module(message)
        if compiling():
            layer._dfgnn_constant("fused")
            return layer.aggregate(message, dst, dim_size=pair.num_dst)
        return combine(layer.aggr_module, reduce_messages(
            graph, message, names), graph)
    return combine(layer.aggr_module, _shifted(
        names, each_reduction(graph, src_part, names, pair.num_dst), dst_part,
        graph), graph)


def _shifted(names, outs, dst_part, graph):
    """Reductions of dst_part_i + src_part_j from outs, those of src_part_j."""
    degree = degrees(graph, dst_part).view([-1] + [1] * (dst_part.dim() - 1))
    shift = dst_part * (degree > 0)
    if {"var", "std"}.issuperset(names):  # a gradient of zeros is one
        return [outs[0] + 0 * shift, *outs[1:]]
    return [out + dst_part * degree if name == "sum" else
            out + shift if name in ("mean", "min", "max") else out
            for name, out in zip(names, outs)]


# ---- messages with features of the edge, which a kernel makes and reduces -----

def _relu_reductions(layer, edge_index, size, x, edge_attr, linear):
    """(list of reductions of relu(x_j + e), graph), or None if the kernels
    cannot make them: e is edge_attr, or a linear layer's result for it."""
    names, pair = reductions(layer.aggr_module), ends(layer, x, size)
    if (names is None or pair is None or edge_attr is None
            or not known(edge_index) or not fits(pair.src, edge_attr)
            or pair.src.dim() != 2 or edge_attr.dim() != 2):
        return None
    weight = bias = None
    if linear is not None and is_product(linear) and takes(linear, edge_attr):
        weight, bias = linear.weight, linear.bias
    elif linear is not None:
        edge_attr = linear(edge_attr)
    width = edge_attr.size(-1) if weight is None else weight.size(0)
    if width != pair.src.size(-1):
        return None
    graph = graph_of(layer, edge_index, pair.num_src, pair.num_dst)
    return relu_messages(graph, pair.src, edge_attr, weight, bias, list(names),
                         num_dst=pair.num_dst), graph


def isomorphism_with_edges(layer, edge_index, size, x, edge_attr=None):
    """Propagation of GINEConv."""
    result = _relu_reductions(layer, edge_index, size, x, edge_attr, layer.lin)
    if result is None:
        return edge_messages(layer, edge_index, size, x=x,
                             edge_attr=edge_attr)
    return combine(layer.aggr_module, *result)


def residual_gates(layer, edge_index, size, k, q, v, edge_attr=None):
    """Propagation of ResGatedGraphConv.  With edge features its linear layers
    are over the features of a node and of the edge together, the value's,
    too."""
    names, pair = reductions(layer.aggr_module), ends(layer, v, size)
    arguments = dict(k=k, q=q, v=v, edge_attr=edge_attr)
    linears = layer.lin_key, layer.lin_query, layer.lin_value
    if (names is None or pair is None or type(layer.act) is not torch.nn.Sigmoid
            or hooked(layer.act) or not known(edge_index) or not fits(k, q, v, edge_attr)
            or v.dim() != 2
            or (edge_attr is None) != (layer.edge_dim is None)
            or edge_attr is not None and (edge_attr.dim() != 2 or not all(
                map(is_product, linears)))):
        return edge_messages(layer, edge_index, size, **arguments)
    graph = graph_of(layer, edge_index, pair.num_src, k.size(0))
    nodes, edges = (v, k, q), {}
    if edge_attr is not None:
        nodes, edges = gated_parts(linears, k, q, v)
    outs = gated_messages(graph, *nodes, edge_attr, reduce=list(names),
                          num_dst=k.size(0), **edges)
    return combine(layer.aggr_module, outs, graph)
