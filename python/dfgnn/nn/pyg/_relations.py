"""RGAT: attention over edges of several relations."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.utils import softmax

from ... import ops
from ..._grouped import take
from ...aggregation import spmm
from ...convert import as_graph
from ...functional import gat_attention
from ...hetero import gatherer, typed_graph
from .._exact import outside_autocast, result_type
from ._attention_convs import attends
from ._edges import degrees, flowed, remember, reverse
from ._mixin import unfit


def tells_weights(make):
    """A maker of forwards that tell propagate whether its weights are
    wanted."""
    def made(pyg_forward):
        inner = make(pyg_forward)

        def forward(self, *args, **kwargs):
            wanted = kwargs.get("return_attention_weights",
                                args[5] if len(args) > 5 else None)
            if getattr(self, "_dfgnn_weights", None) is not (
                    wanted is not None):
                self._dfgnn_weights = wanted is not None
            return inner(self, *args, **kwargs)
        return forward
    return made


def _in_one_pass(layer):
    """Whether scores are sums of what a relation makes of both ends, and
    nothing is done to the weights: then no tensor is by edge but scores."""
    return (layer.attention_mode == "additive-self-attention"
            and layer.mod is None and layer.dim == 1
            and not getattr(layer, "_dfgnn_weights", True))


def _attended(layer, edge_index, edge_type, h, own, num_nodes):
    """[N, H, C] the attention; own: [E, H] the scores of edge features, or
    None."""
    graph = typed_graph(flowed(layer, edge_index), edge_type, num_nodes,
                        layer.num_relations)
    value = h.view(-1, layer.heads, layer.out_channels)
    # by relation and then by node
    query, key = torch.matmul(h, layer.q), torch.matmul(h, layer.k)
    columns, result = graph.in_turn("src"), result_type(key, value)
    options = dict(negative_slope=layer.negative_slope, result=result,
                   dropout=layer.dropout, training=layer.training)
    if layer.attention_mechanism == "within-relation":
        pairs = graph.pairs(columns)
        of_pairs = take(query, graph._derive("queries", lambda: gatherer(
            pairs.relation * num_nodes + pairs.node, query.size(0))))
        return spmm(pairs.across, outside_autocast(
            gat_attention, pairs.within, value, of_pairs, key, edge_score=own,
            **options))
    scores = take(query, graph.senders("dst", graph.in_turn("dst")))
    return outside_autocast(
        gat_attention, graph.graph(graph.by_node("dst"), columns), value,
        query.new_zeros(1, 1).expand(num_nodes, layer.heads), key,
        edge_score=scores if own is None else scores + own, **options)


def _by_type(edge_index, edge_type, num_nodes, layer):
    """The edges with source relation * num_nodes + node."""
    def make():
        send = 1 if reverse(layer) else 0
        src = edge_type * num_nodes + edge_index[send]
        return torch.stack([src, edge_index[1 - send]])
    return remember(edge_index, ("types", num_nodes, layer.flow), make,
                    (edge_type,))


def relational(layer, edge_index, size, x, edge_type, edge_attr=None):
    """RGATConv: nodes are transformed once for each relation, not for each
    edge."""
    reason = attends(layer, edge_index, x, edge_attr)
    if reason is None and (
            ops.compiling() or x.dim() != 2 or size is not None
            or type(edge_type) is not Tensor or edge_type.dim() != 1
            or edge_attr is not None and (
                edge_attr.size(0) != edge_type.numel())):
        reason = "its edges have no types, or features of another number"
    if reason is not None:
        return unfit(layer, reason)
    num_nodes = x.size(0)
    h = _transformed(layer, x)  # [R * N, H * C]
    own = None
    if edge_attr is not None:
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        own = torch.matmul(layer.lin_edge(edge_attr), layer.e)
    if _in_one_pass(layer):
        out = _attended(layer, edge_index, edge_type, h, own, num_nodes)
        layer._alpha = out  # PyG asks that it is set, and returns it to nobody
        return layer.update(out)
    own = 0 if own is None else own
    edges = _by_type(edge_index, edge_type, num_nodes, layer)
    src, dst = edges
    query = torch.matmul(h, layer.q)
    key = torch.matmul(h, layer.k)
    queries = query.index_select(0, edge_type * num_nodes + dst)
    keys = key.index_select(0, src)
    additive = layer.attention_mode == "additive-self-attention"
    if additive:
        scores = F.leaky_relu(queries + keys + own, layer.negative_slope)
    else:
        scores = queries * keys
        scores = scores if edge_attr is None else scores * own
    if layer.attention_mechanism == "within-relation":
        alpha = softmax(scores, edge_type * num_nodes + dst,
                        num_nodes=layer.num_relations * num_nodes)
    else:
        alpha = softmax(scores, dst, num_nodes=num_nodes)
    layer._alpha = alpha
    graph = as_graph(edges, (h.size(0), num_nodes))
    out = _modulated(layer, graph, h, alpha, num_nodes)
    return layer.update(out if not additive else out.squeeze(2))


def _transformed(layer, x):
    """[R * N, H * C] each node transformed by each relation."""
    width = layer.heads * layer.out_channels
    if layer.num_blocks is not None:
        blocks = x.view(x.size(0), layer.num_blocks, -1)
        return torch.einsum("nbi,rbio->rnbo", blocks,
                            layer.weight).reshape(-1, width)
    weight = layer.weight if layer.num_bases is None else torch.matmul(
        layer.att, layer.basis.view(layer.num_bases, -1)).view(
            layer.num_relations, layer.in_channels, width)
    return torch.matmul(x, weight).reshape(-1, width)


def _modulated(layer, graph, h, alpha, num_nodes):
    """[N, H, dim, C] the sums weighted by alpha [E, H * dim], modulated as
    layer.mod says."""
    heads, dim, channels = layer.heads, layer.dim, layer.out_channels
    value = h.view(-1, heads, channels)
    degree = degrees(graph, alpha.dtype).view(-1, 1)
    mod = layer.mod
    if mod == "f-additive":
        alpha = torch.where(alpha > 0, alpha + 1, alpha)
    elif mod is None and layer.training and layer.dropout > 0:
        alpha = F.dropout(alpha, p=layer.dropout, training=True)
    kind = torch.promote_types(alpha.dtype, value.dtype)
    wide = value.unsqueeze(2).expand(-1, -1, dim, -1).reshape(
        -1, heads * dim, channels).to(kind)
    out = spmm(graph, wide, alpha, num_dst=num_nodes)
    if mod == "additive":
        out = out + layer.w * spmm(graph, wide, num_dst=num_nodes)
    elif mod == "scaled":
        factor = layer.activation(torch.matmul(degree, layer.l1) + layer.b1)
        factor = torch.matmul(factor, layer.l2) + layer.b2
        out = out * factor.unsqueeze(1)
    elif mod == "f-scaled":
        out = out * degree.unsqueeze(1)
    return out.view(num_nodes, heads, dim, channels)
