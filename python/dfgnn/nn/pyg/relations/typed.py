"""Layers of one list of edges that have types: RGCN, RGAT and HEAT, all relations
in one pass of the kernels.

RGCN is out_i = sum over relations r of W_r of the reduced neighbours of i along
r.  What is cheaper decides the order: each node is multiplied by each W_r, and the
products are summed with weights 1 / |N_r(i)|; or the neighbours are reduced for
each (node, relation) pair that has any, then multiplied, then summed.  With
bases a head is a basis, and its weights are those of the edges' relations.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor
from torch.nn import Embedding
from torch.nn.parameter import is_lazy
from torch_geometric import typing
from torch_geometric.nn.dense.linear import HeteroLinear, Linear

from ...._checks import exact
from ...._modes import compiling
from ...._relations import groups
from ...._relations.groups import take, typed
from ...._remember import remember
from ....aggregation import degrees, each_reduction, spmm
from ....functional import gat_attention, score_attention
from ....graph import Graph
from ....hetero import HeteroGraph, gatherer, typed_graph
from ....programs import edge_program, softmax
from ..._attention_steps import outside_autocast, result_type, softmax_type
from ..._linear import hooked
from .._attention_convs import attends
from .._edges import edges_as_given, flowed, graph_of, known, reverse
from .._mixin import fits, is_sum, unfit
from .._reduce import combine, reductions


# ---- RGCN -------------------------------------------------------------------

# what FastRGCNConv does for an aggr, whose module it does not call
_OF_FAST = {"add": ("sum",), "sum": ("sum",), "mean": ("mean",)}


def _is_fast(layer):
    return isinstance(layer, pyg.FastRGCNConv)


def _refusal(layer, x_l, x_r, edge_index, edge_type):
    if compiling():
        return "torch.compile traces"
    if not known(edge_index) or type(edge_type) is not Tensor \
            or edge_type.dim() != 1 \
            or edge_type.numel() != edge_index.size(1) \
            or edge_type.dtype not in (torch.int32, torch.int64):
        return "its edges are no edge_index with types"
    names = reductions(layer.aggr_module)
    if names is None or \
            _is_fast(layer) and names != _OF_FAST.get(layer.aggr):
        return "no kernel reduces by " + type(layer.aggr_module).__name__
    if typing.WITH_SEGMM and not is_sum(layer) and layer.num_bases is None \
            and layer.num_blocks is None and not _is_fast(layer):
        return "PyG's mean by pyg-lib is not that of each relation"
    if not fits(layer.weight) or x_r is None or any(
            torch.is_floating_point(t) and (not fits(t) or t.dim() != 2)
            for t in (x_l, x_r)):
        return "x is not [nodes, features]"
    if torch.is_floating_point(x_l) != torch.is_floating_point(x_r) or \
            layer.num_blocks is not None and not torch.is_floating_point(x_l):
        return "x is embedded at one end, or by blocks"
    return None


def rgcn(layer, x, edge_index, edge_type=None):
    """RGCNConv and FastRGCNConv."""
    if isinstance(edge_index, Graph):
        edge_index = edges_as_given(layer, edge_index)
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    index = x_l
    if x_l is None:
        x_l = torch.arange(layer.in_channels_l, device=layer.weight.device)
    if x_r is None and not isinstance(x, tuple):
        x_r = x_l
    reason = _refusal(layer, x_l, x_r, edge_index, edge_type)
    if reason is None and reverse(layer) and isinstance(x, tuple):
        reason = "pairs flow from targets to sources"
    if reason is not None:
        return unfit(layer, reason)
    try:
        graph = typed_graph(flowed(layer, edge_index), edge_type,
                            (x_l.size(0), x_r.size(0)), layer.num_relations)
    except ValueError as error:  # PyG has errors of its own
        return unfit(layer, str(error))
    embedded = not torch.is_floating_point(x_l)
    if embedded:
        out = _of_embeddings(layer, graph, index)
    else:
        out = _of_features(layer, graph, x_l)
    if not _is_fast(layer):  # PyG adds to float zeros
        out = out.to(torch.promote_types(torch.get_default_dtype(),
                                         out.dtype))
    if layer.root is not None:
        out = out + (layer.root[x_r] if embedded else x_r @ layer.root)
    return out if layer.bias is None else out + layer.bias


def _edge_weight(layer, graph):
    """[E] what each edge counts: 1 / |N_r(i)| in means; None in sums."""
    if is_sum(layer):
        return None
    kind = exact(layer.weight.dtype)
    return graph._derive(("means", kind),
                         lambda: graph.degrees().to(kind).reciprocal())


def _adds(layer):
    return reductions(layer.aggr_module) in (("sum",), ("mean",))


def _sum_over_bases(layer, graph, value):
    """value [M, bases, O], each edge with its relation's coefficients."""
    of_edge = take(layer.comp, graph._derive(
        "relations of edges",
        lambda: gatherer(graph.edge_type.long(), graph.num_relations)))
    count = _edge_weight(layer, graph)
    if count is not None:
        of_edge = of_edge * count.unsqueeze(-1).to(of_edge.dtype)
    out = spmm(graph.graph(graph.by_node("dst"), graph.by_node("src")), value,
               of_edge)
    return out.sum(1)


def _of_relations(layer):
    """[R, F, O] the weights of all relations, or their blocks."""
    if layer.num_bases is None:
        return layer.weight
    return (layer.comp @ layer.weight.flatten(1)).view(
        -1, *layer.weight.shape[1:])


def _of_embeddings(layer, graph, index):
    """The sums of rows of weights: x is the number of a row, index, or None
    where the nodes are the rows."""
    def picked(weight):
        if index is None:
            return weight
        if _is_fast(layer):  # FastRGCNConv reads row i for node i
            return weight[:, :index.numel()]
        return weight[:, index]
    if _adds(layer) and groups.way_of_sums(
            graph, layer.num_bases, False) == "by bases":
        return _sum_over_bases(layer, graph,
                               picked(layer.weight).transpose(0, 1))
    table = picked(_of_relations(layer)).reshape(-1, layer.out_channels)
    columns = graph.in_turn("src")
    if _adds(layer):
        return spmm(graph.graph(graph.by_node("dst"), columns), table,
                    _edge_weight(layer, graph))
    pairs = graph.pairs(columns)
    return spmm(pairs.across, _reduced(layer, pairs.within, table))


def _reduced(layer, graph, table):
    return combine(layer.aggr_module, each_reduction(
        graph, table, reductions(layer.aggr_module), graph.num_dst), graph)


def _of_features(layer, graph, x):
    way = groups.way_of_sums(graph, layer.num_bases) if _adds(layer) \
        else "by pair"
    if way == "by bases":
        weight = layer.weight.transpose(0, 1).flatten(1)
        return _sum_over_bases(layer, graph, (x @ weight).view(
            -1, layer.num_bases, layer.out_channels))
    weight = _of_relations(layer)
    if way == "by node":
        return groups.by_node(graph, x, weight, _edge_weight(layer, graph))
    return groups.by_pair(graph, weight, lambda within: _reduced(
        layer, within, x))


# ---- RGAT -------------------------------------------------------------------

class _Call(NamedTuple):
    """A call's graph, and tables by relation and then by node."""
    graph: HeteroGraph
    value: Tensor  # [R * N, H * dim, C], of the nodes that send
    query: Tensor  # [R * N, H * dim], of those that receive
    key: Tensor
    edge: Tensor | None  # [E, H * dim] what features of edges bring

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
    graph, edge, rows = call.graph, call.edge, call.matrix
    within = layer.attention_mechanism == "within-relation"
    if within:
        pairs = graph.pairs(graph.in_turn("src"))
        rows = pairs.within
    options = dict(dropout=dropout, return_weights=weights,
                   result=result_type(call.key, call.value))
    if layer.attention_mode != "additive-self-attention":
        scores = call.of_edges("dst") * call.of_edges("src")
        result = outside_autocast(
            score_attention, rows, scores if edge is None else scores * edge,
            call.value, **options)
    else:
        # scores are the only tensors by edge
        if within:
            query = call.query.index_select(
                0, graph.pairs_in(graph.in_turn("dst")))
        else:
            query = call.query.new_zeros(1, 1).expand(rows.num_dst,
                                                      layer.heads)
            scores = call.of_edges("dst")
            edge = scores if edge is None else scores + edge
        result = outside_autocast(
            gat_attention, rows, call.value, query, call.key, edge_score=edge,
            negative_slope=layer.negative_slope, **options)
    out, alpha = result if weights else (result, None)
    return spmm(pairs.across, out) if within else out, alpha


def relational(layer, x, edge_index, edge_type=None, edge_attr=None,
               size=None, return_attention_weights=None):
    """RGATConv: nodes are transformed once for each relation, not for each
    edge.  edge_index may be a HeteroGraph, a rank's share of one, too."""
    with_alpha = isinstance(return_attention_weights, bool)
    graph = edge_index if isinstance(edge_index, HeteroGraph) else None
    reason = attends(layer, edge_index if graph is None else graph.edge_index,
                     x, edge_attr)
    if layer.mod == "f-additive":
        reason = "what it adds depends on which weights round to 0"
    if reason is None:
        reason = _no_list(edge_type, edge_attr, size) if graph is None else \
            _other_graph(layer, graph, with_alpha)
    if reason is not None:
        return unfit(layer, reason)
    if graph is not None:
        return _run(layer, graph, graph.extend({"": x})[""], edge_attr,
                    False)[0]
    graph = typed_graph(flowed(layer, edge_index), edge_type, x.size(0),
                        layer.num_relations)
    out, alpha = _run(layer, graph, x, edge_attr, with_alpha)
    return (out, (edge_index, alpha)) if with_alpha else out


def _no_list(edge_type, edge_attr, size):
    """Why edges in a list do not go together, or None."""
    if compiling() or size is not None or type(edge_type) is not Tensor or \
            edge_type.dim() != 1 or edge_attr is not None and \
            edge_attr.size(0) != edge_type.numel():
        return "its edges have no types, or features of another number"
    return None


def _other_graph(layer, graph, with_alpha):
    """Why a HeteroGraph is none of the layer's, or None."""
    if reverse(layer) or compiling():
        return "messages flow to sources, or torch.compile traces"
    if graph.counts is not None or graph.num_relations != layer.num_relations:
        return f"the graph has {graph.num_relations} relations, expected " \
            f"{layer.num_relations} of one edge list"
    return "attention weights are returned for an edge_index only" \
        if with_alpha else None


def _run(layer, graph, x, edge_attr, with_alpha):
    """(the layer's result, alpha if with_alpha else None), from features of
    the nodes that send; the first of them are those that receive."""
    h, edge = _transformed(layer, x), None  # [R * N, H * C]
    if edge_attr is not None:
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        edge = torch.matmul(layer.lin_edge(edge_attr), layer.e)
    nodes, receive = graph.num_dst[""], h
    if nodes != x.size(0):
        receive = h.view(layer.num_relations, x.size(0), -1)[
            :, :nodes].flatten(0, 1)
    value = h.view(-1, layer.heads, layer.out_channels)
    if layer.dim > 1:
        value = value.unsqueeze(2).expand(-1, -1, layer.dim, -1).flatten(1, 2)
    out, alpha = _modulated(layer, _Call(graph, value, torch.matmul(
        receive, layer.q), torch.matmul(h, layer.k), edge), with_alpha)
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


def _modulated(layer, call, with_alpha):
    """([N, H * dim, C] the attention, modulated as layer.mod says, alpha as
    PyG returns it if with_alpha)."""
    mod = layer.mod
    dropout = layer.dropout if layer.training and mod not in (
        "additive", "scaled", "f-scaled") else 0.0
    out, alpha = _attended(layer, call, with_alpha, dropout)
    matrix = call.matrix
    degree = degrees(matrix, out).view(-1, 1)
    if mod == "additive":
        out = out + layer.w * spmm(matrix, call.value)
    elif mod == "scaled":
        factor = layer.activation(torch.matmul(degree, layer.l1) + layer.b1)
        factor = torch.matmul(factor, layer.l2) + layer.b2
        out = out * factor.unsqueeze(1)
    elif mod == "f-scaled":
        out = out * degree.unsqueeze(1)
    return out, alpha.to(softmax_type(call.key)) if with_alpha else None


# ---- HEAT: scores read types of nodes and edges, and features of edges, which
# are added to values, too

@edge_program
def _heat_messages(i, j, e, slope, dropout):
    weight = F.dropout(softmax(F.leaky_relu(
        i.score + j.score + e.score, slope)), dropout, dropout > 0)
    return weight * j.value, weight * e.value


def _heat_refusal(layer, x, edge_index, node_type, edge_type, edge_attr):
    for module, kind in ((layer.hetero_lin, HeteroLinear),
                         (layer.edge_type_emb, Embedding),
                         (layer.edge_attr_emb, Linear), (layer.att, Linear),
                         (layer.lin, Linear)):
        if type(module) is not kind or hooked(module) or is_lazy(
                module.weight):
            return "its projections are not PyG's, or a hook looks at them"
    if layer.att.bias is not None:
        return "its scores have a bias"
    embedding = layer.edge_type_emb
    if embedding.max_norm is not None or embedding.padding_idx is not None \
            or embedding.scale_grad_by_freq or embedding.sparse:
        return "its embeddings are more than rows of a table"
    if compiling():
        return "torch.compile traces"
    if isinstance(edge_index, HeteroGraph):
        edge_index = edge_index.edge_index
    reason = attends(layer, edge_index, x, edge_attr)
    if reason is None and (edge_attr is None or edge_attr.dim() != 2):
        reason = "edge_attr is no matrix"
    if reason is None and not all(
            type(types) is Tensor and types.dim() == 1
            and types.dtype == torch.int64 and types.numel() == t.size(0)
            for types, t in ((node_type, x), (edge_type, edge_attr))):
        reason = "node_type or edge_type is no list of types"
    return reason


def _gatherer(types, count):
    if types.numel() and not 0 <= int(types.min()) <= int(types.max()) < count:
        raise ValueError(f"edge_type has {int(types.min())} to "
                         f"{int(types.max())}, expected 0 to {count - 1}")
    return gatherer(types, count)


def heat(layer, x, edge_index, node_type, edge_type, edge_attr=None):
    reason = _heat_refusal(layer, x, edge_index, node_type, edge_type, edge_attr)
    relations = edge_index if isinstance(edge_index, HeteroGraph) else None
    if reason is not None:
        return unfit(layer, reason)
    try:
        types = typed(node_type, layer.hetero_lin.num_types, x,
                      layer.hetero_lin.out_channels)
        count = layer.edge_type_emb.num_embeddings
        of_edge = remember(edge_type, ("kinds", count), lambda: _gatherer(
            edge_type, count))
    except (ValueError, RuntimeError) as error:  # PyG has errors of its own
        return unfit(layer, str(error))
    width, slope = layer.out_channels, layer.negative_slope
    h = types.product(x, layer.hetero_lin.weight, layer.hetero_lin.bias)
    if relations is None:
        graph, sent = graph_of(layer, edge_index, x.size(0), x.size(0)), h
    else:
        graph = relations.graph(relations.by_node("dst"),
                                relations.by_node("src"))
        sent = relations.extend({"": h})[""]
    kinds = F.leaky_relu(layer.edge_type_emb.weight, slope)
    edge = F.leaky_relu(layer.edge_attr_emb(edge_attr), slope)
    att = layer.att.weight.split([width, width, kinds.size(1), edge.size(1)],
                                 1)
    of_kind = take(F.linear(kinds, att[2]), of_edge)
    w_node, w_edge = layer.lin.weight.split([width, edge.size(1)], 1)
    of_nodes, of_edges = _heat_messages(
        graph, slope=slope, dropout=layer.dropout if layer.training else 0.0,
        i={"score": F.linear(h, att[0]).unsqueeze(-1)},
        j={"score": F.linear(sent, att[1]).unsqueeze(-1),
           "value": F.linear(sent, w_node, layer.lin.bias).unsqueeze(1)},
        e={"score": (of_kind + F.linear(edge, att[3])).unsqueeze(-1),
           "value": edge.unsqueeze(1)})
    return _finish(layer, of_nodes + F.linear(of_edges, w_edge), h)


def _finish(layer, out, h):
    """The heads of out [N, H, O] joined, and the node's own features."""
    if layer.concat:
        if layer.root_weight:
            out = out + h.unsqueeze(1)
        return out.flatten(1)
    out = out.mean(1)
    return out + h if layer.root_weight else out
