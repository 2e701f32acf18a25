"""Layers whose edges are of several relations: RGCN and RGAT."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric import typing
from torch_geometric.utils import softmax

from ... import ops
from ...aggregation import spmm
from ...functional import gat_attention
from ...convert import as_graph
from ...graph import Graph
from ...merge import merge_attention
from ._attention import FEW_RELATIONS, _attend, attends
from ._edges import (
    degrees, edges_as_given, graph_of, known, remember, reverse)
from ._mixin import unfit, usual
from ._reduce import neighbours


# ---- RGCN -------------------------------------------------------------------

def by_relation(pyg_forward):
    """RGCNConv: the edges of each relation are a graph, kept for as long as
    edge_index is."""
    def forward(self, x, edge_index, edge_type=None):
        if isinstance(edge_index, Graph):
            edge_index = edges_as_given(self, edge_index)
        if (not known(edge_index) or edge_type is None or ops.compiling()
                or typing.WITH_SEGMM or not usual(self)
                or type(edge_type) is not Tensor or edge_type.dim() != 1
                or edge_type.numel() != edge_index.size(1)
                or reverse(self) and isinstance(x, tuple)):
            return pyg_forward(self, x, edge_index, edge_type)
        parts = _parts(edge_index, edge_type, self.num_relations)
        return _by_relation(self, x, parts)
    return forward


def _parts(edge_index, edge_type, count):
    """The edges of each relation; kept as long as both tensors are
    unchanged."""
    return remember(
        edge_index, ("relations", count),
        lambda: [edge_index[:, edge_type == r] for r in range(count)],
        (edge_type,))


def _by_relation(layer, x, parts):
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    if x_l is None:
        x_l = torch.arange(layer.in_channels_l, device=layer.weight.device)
    if x_r is None:
        x_r = x_l
    size = (x_l.size(0), x_r.size(0))
    embedded = not torch.is_floating_point(x_r)
    weight = layer.weight
    if layer.num_bases is not None:
        weight = (layer.comp @ weight.view(layer.num_bases, -1)).view(
            layer.num_relations, layer.in_channels_l, layer.out_channels)
    if layer.num_blocks is not None and embedded:
        raise ValueError("Block-diagonal decomposition not supported for "
                         "non-continuous input features.")
    out = torch.zeros(x_r.size(0), layer.out_channels, device=x_r.device)
    for number, edges in enumerate(parts):
        if layer.num_blocks is not None:
            h = layer.propagate(edges, x=x_l, edge_type_ptr=None, size=size)
            h = h.view(-1, weight.size(1), weight.size(2))
            h = torch.einsum("abc,bcd->abd", h, weight[number])
            out = out + h.contiguous().view(-1, layer.out_channels)
        elif embedded:
            out = out + layer.propagate(edges, x=weight[number, x_l],
                                        edge_type_ptr=None, size=size)
        else:
            h = layer.propagate(edges, x=x_l, edge_type_ptr=None, size=size)
            out = out + h @ weight[number]
    if layer.root is not None:
        out = out + (layer.root[x_r] if embedded else x_r @ layer.root)
    return out if layer.bias is None else out + layer.bias


def one_relation(layer, edge_index, size, x, edge_type_ptr=None):
    if edge_type_ptr is not None:
        return unfit(layer, "relations are multiplied edge by edge")
    if ops.compiling():
        return NotImplemented
    return neighbours(layer, edge_index, size, x)


# ---- RGAT -------------------------------------------------------------------

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


def _merges(layer):
    """Whether the layer takes one softmax over all relations and does nothing
    else: that is the merge of an attention for each relation."""
    return (layer.attention_mode == "additive-self-attention"
            and layer.attention_mechanism == "across-relation"
            and layer.mod is None and layer.dim == 1
            and layer.num_relations <= FEW_RELATIONS
            and not (layer.training and layer.dropout > 0)
            and not getattr(layer, "_dfgnn_weights", True))


def _merged(layer, edge_index, edge_type, h, own, num_nodes):
    """[N, H, C] the merged attention; no tensor is by edge but own [E, H], the
    scores of edge features."""
    heads, channels = layer.heads, layer.out_channels
    value = h.view(layer.num_relations, num_nodes, heads, channels)
    query = torch.matmul(h, layer.q).view(-1, num_nodes, heads)
    key = torch.matmul(h, layer.k).view(-1, num_nodes, heads)
    parts = []
    for r, edges in enumerate(_parts(edge_index, edge_type,
                                     layer.num_relations)):
        if edges.size(1):
            graph = graph_of(layer, edges, num_nodes, num_nodes)
            parts.append(_attend(
                gat_attention, graph, value[r], query[r], key[r],
                negative_slope=layer.negative_slope, return_lse=True,
                edge_score=None if own is None else own[edge_type == r]))
    if not parts:
        return value[0] * 0
    return merge_attention(parts)[0]


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
    if _merges(layer):
        out = _merged(layer, edge_index, edge_type, h, own, num_nodes)
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
