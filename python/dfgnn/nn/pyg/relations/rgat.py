"""RGAT: attention over edges of several relations."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from .... import ops
from ...._edge_sums import degrees
from ...._grouped import take
from ....aggregation import spmm
from ....functional import gat_attention, score_attention
from ....hetero import HeteroGraph, Layout, gatherer, typed_graph
from ..._exact import outside_autocast, result_type, softmax_type
from .._attention_convs import attends
from .._edges import flowed, reverse
from .._mixin import unfit


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


class _Call(NamedTuple):
    """A call's graph, and tables by relation and then by node."""
    graph: HeteroGraph
    columns: Layout
    value: Tensor  # [R * N, H * dim, C], of the nodes that send
    query: Tensor  # [R * N, H * dim], of those that receive
    key: Tensor
    own: Optional[Tensor]  # [E, H * dim] what features of edges bring
    num_nodes: int  # that receive

    @property
    def matrix(self):
        """The Graph of all in-edges of a node."""
        return self.graph.graph(self.graph.by_node("dst"), self.columns)


def _attended(layer, call, weights, dropout):
    """[N, H * dim, C] the attention, and, if weights, alpha [E, H * dim]
    before dropout."""
    within = layer.attention_mechanism == "within-relation"
    pairs = call.graph.pairs(call.columns) if within else None
    rows = pairs.within if within else call.matrix
    options = dict(dropout=dropout, return_weights=weights,
                   result=result_type(call.key, call.value))
    if layer.attention_mode == "additive-self-attention":
        found = _of_sums(layer, call, rows, pairs, options)
    else:
        found = outside_autocast(score_attention, rows, _products(call),
                                 call.value, **options)
    out, alpha = found if weights else (found, None)
    return spmm(pairs.across, out) if within else out, alpha


def _queries(call):
    """[E, H * dim] of each edge's end."""
    return take(call.query, call.graph.senders(
        "dst", call.graph.in_turn("dst")))


def _of_sums(layer, call, rows, pairs, options):
    """Scores are sums of what a relation makes of both ends: no tensor is by
    edge but scores."""
    options = dict(options, negative_slope=layer.negative_slope)
    if pairs is not None:
        query = take(call.query, call.graph._derive("queries", lambda: gatherer(
            pairs.relation * call.num_nodes + pairs.node,
            call.query.size(0))))
        return outside_autocast(gat_attention, rows, call.value, query,
                                call.key, edge_score=call.own, **options)
    scores = _queries(call)
    none = call.query.new_zeros(1, 1).expand(call.num_nodes, layer.heads)
    return outside_autocast(
        gat_attention, rows, call.value, none, call.key,
        edge_score=scores if call.own is None else scores + call.own,
        **options)


def _products(call):
    """[E, H * dim] scores that are products of both ends and the edge."""
    scores = _queries(call) * take(call.key, call.graph.senders(
        "src", call.columns))
    return scores if call.own is None else scores * call.own


def relational(layer, edge_index, size, x, edge_type, edge_attr=None):
    """RGATConv: nodes are transformed once for each relation, not for each
    edge.  edge_index may be a HeteroGraph, a rank's share of one, too."""
    if isinstance(edge_index, HeteroGraph):
        return _on_graph(layer, edge_index, x, edge_attr)
    reason = attends(layer, edge_index, x, edge_attr)
    if reason is None and (
            ops.compiling() or x.dim() != 2 or size is not None
            or type(edge_type) is not Tensor or edge_type.dim() != 1
            or edge_attr is not None and (
                edge_attr.size(0) != edge_type.numel())):
        reason = "its edges have no types, or features of another number"
    if reason is not None:
        return unfit(layer, reason)
    return _run(layer, typed_graph(
        flowed(layer, edge_index), edge_type, x.size(0),
        layer.num_relations), x, edge_attr)


def _on_graph(layer, graph, x, edge_attr):
    reason = attends(layer, graph.edge_index, x, edge_attr)
    if reason is None and (reverse(layer) or x.dim() != 2 or ops.compiling()):
        reason = "messages flow to sources, x is no matrix, or torch.compile " \
            "traces"
    if reason is None and (graph.counts is not None or graph.num_relations
                           != layer.num_relations):
        reason = f"the graph has {graph.num_relations} relations, expected " \
            f"{layer.num_relations} of one edge list"
    if reason is None and getattr(layer, "_dfgnn_weights", False):
        reason = "attention weights are returned for an edge_index only"
    if reason is not None:
        raise ValueError("RGATConv does not run on a HeteroGraph: " + reason)
    return _run(layer, graph, graph.extend({"": x})[""], edge_attr)


def _run(layer, graph, x, edge_attr):
    """The layer's result, from features of the nodes that send, of which the
    first are those that receive."""
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
    out = _modulated(layer, _Call(
        graph, graph.in_turn("src"), value, torch.matmul(receive, layer.q),
        torch.matmul(h, layer.k), own, nodes))
    if layer.attention_mode != "additive-self-attention":
        out = out.view(-1, layer.heads, layer.dim, layer.out_channels)
    return layer.update(out)


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


def _modulated(layer, call):
    """[N, H * dim, C] the attention, modulated as layer.mod says; sets the
    weights that PyG returns."""
    mod = layer.mod
    dropout = layer.dropout if layer.training and mod not in (
        "additive", "scaled", "f-additive", "f-scaled") else 0.0
    wanted = getattr(layer, "_dfgnn_weights", True) or mod == "f-additive"
    out, alpha = _attended(layer, call, wanted, dropout)
    # PyG asks that it is set, and returns it only if it is wanted
    layer._alpha = out if alpha is None else alpha.to(softmax_type(call.key))
    matrix = call.matrix
    degree = degrees(matrix, out.dtype).view(-1, 1)
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
    return out
