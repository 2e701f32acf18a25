"""RGAT: attention over edges of several relations."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from ...._modes import compiling
from ...._relations.groups import take
from ....aggregation import degrees, spmm
from ....functional import gat_attention, score_attention
from ....hetero import HeteroGraph, typed_graph
from ..._exact import outside_autocast, result_type, softmax_type
from .._attention_convs import attends
from .._edges import flowed, reverse
from .._mixin import unfit


class _Call(NamedTuple):
    """A call's graph, and tables by relation and then by node."""
    graph: HeteroGraph
    value: Tensor  # [R * N, H * dim, C], of the nodes that send
    query: Tensor  # [R * N, H * dim], of those that receive
    key: Tensor
    own: Optional[Tensor]  # [E, H * dim] what features of edges bring

    @property
    def matrix(self):
        """The Graph of all in-edges of a node."""
        return self.graph.graph(self.graph.by_node("dst"),
                                self.graph.in_turn("src"))

    def of_edges(self, side):
        """[E, H * dim] the queries or keys of each edge's end."""
        return take(self.key if side == "src" else self.query,
                    self.graph.gathering(side, self.graph.in_turn(side)))


def _attended(layer, call, weights, dropout):
    """[N, H * dim, C] the attention, and, if weights, alpha [E, H * dim]
    before dropout."""
    graph, own, rows = call.graph, call.own, call.matrix
    within = layer.attention_mechanism == "within-relation"
    if within:
        pairs = graph.pairs(graph.in_turn("src"))
        rows = pairs.within
    options = dict(dropout=dropout, return_weights=weights,
                   result=result_type(call.key, call.value))
    if layer.attention_mode != "additive-self-attention":
        scores = call.of_edges("dst") * call.of_edges("src")
        found = outside_autocast(
            score_attention, rows, scores if own is None else scores * own,
            call.value, **options)
    else:
        # no tensor is by edge but scores
        if within:
            query = call.query.index_select(
                0, graph.pairs_in(graph.in_turn("dst")))
        else:
            query = call.query.new_zeros(1, 1).expand(rows.num_dst,
                                                      layer.heads)
            scores = call.of_edges("dst")
            own = scores if own is None else scores + own
        found = outside_autocast(
            gat_attention, rows, call.value, query, call.key, edge_score=own,
            negative_slope=layer.negative_slope, **options)
    out, alpha = found if weights else (found, None)
    return spmm(pairs.across, out) if within else out, alpha


def relational(layer, x, edge_index, edge_type=None, edge_attr=None,
               size=None, return_attention_weights=None):
    """RGATConv: nodes are transformed once for each relation, not for each
    edge.  edge_index may be a HeteroGraph, a rank's share of one, too."""
    wanted = isinstance(return_attention_weights, bool)
    if isinstance(edge_index, HeteroGraph):
        return _on_graph(layer, edge_index, x, edge_attr, wanted)
    reason = attends(layer, edge_index, x, edge_attr)
    if reason is None and (
            compiling() or size is not None
            or type(edge_type) is not Tensor or edge_type.dim() != 1
            or edge_attr is not None and (
                edge_attr.size(0) != edge_type.numel())):
        reason = "its edges have no types, or features of another number"
    if reason is not None:
        return unfit(layer, reason)
    graph = typed_graph(flowed(layer, edge_index), edge_type, x.size(0),
                        layer.num_relations)
    out, alpha = _run(layer, graph, x, edge_attr, wanted)
    return (out, (edge_index, alpha)) if wanted else out


def _on_graph(layer, graph, x, edge_attr, wanted):
    reason = attends(layer, graph.edge_index, x, edge_attr)
    if reason is None and (reverse(layer) or compiling()):
        reason = "messages flow to sources, or torch.compile traces"
    if reason is None and (graph.counts is not None or graph.num_relations
                           != layer.num_relations):
        reason = f"the graph has {graph.num_relations} relations, expected " \
            f"{layer.num_relations} of one edge list"
    if reason is None and wanted:
        reason = "attention weights are returned for an edge_index only"
    if reason is not None:
        raise ValueError("RGATConv does not run on a HeteroGraph: " + reason)
    return _run(layer, graph, graph.extend({"": x})[""], edge_attr, False)[0]


def _run(layer, graph, x, edge_attr, wanted):
    """(the layer's result, alpha or None), from features of the nodes that
    send, of which the first are those that receive; wanted: whether alpha
    is."""
    h, own = _transformed(layer, x), None  # [R * N, H * C]
    if edge_attr is not None:
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        own = torch.matmul(layer.lin_edge(edge_attr), layer.e)
    nodes, receive = graph.num_dst[""], h
    if nodes != x.size(0):
        receive = h.view(layer.num_relations, x.size(0), -1)[
            :, :nodes].flatten(0, 1)
    value = h.view(-1, layer.heads, layer.out_channels)
    if layer.dim > 1:
        value = value.unsqueeze(2).expand(-1, -1, layer.dim, -1).flatten(1, 2)
    out, alpha = _modulated(layer, _Call(graph, value, torch.matmul(
        receive, layer.q), torch.matmul(h, layer.k), own), wanted)
    if layer.attention_mode != "additive-self-attention":
        out = out.view(-1, layer.heads, layer.dim, layer.out_channels)
    return layer.update(out), alpha


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


def _modulated(layer, call, wanted):
    """([N, H * dim, C] the attention, modulated as layer.mod says, alpha as
    PyG returns it if it is wanted)."""
    mod = layer.mod
    dropout = layer.dropout if layer.training and mod not in (
        "additive", "scaled", "f-additive", "f-scaled") else 0.0
    out, alpha = _attended(layer, call, wanted or mod == "f-additive", dropout)
    matrix = call.matrix
    degree = degrees(matrix, out).view(-1, 1)
    if mod == "f-additive":
        # 1 is added to each weight that is not 0
        out = out + spmm(matrix, call.value,
                         (alpha.detach() > 0).to(call.value.dtype))
    elif mod == "additive":
        out = out + layer.w * spmm(matrix, call.value)
    elif mod == "scaled":
        factor = layer.activation(torch.matmul(degree, layer.l1) + layer.b1)
        factor = torch.matmul(factor, layer.l2) + layer.b2
        out = out * factor.unsqueeze(1)
    elif mod == "f-scaled":
        out = out * degree.unsqueeze(1)
    return out, alpha.to(softmax_type(call.key)) if wanted else None
