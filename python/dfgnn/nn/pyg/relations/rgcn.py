"""RGCN: all relations in one pass of the kernels.

out_i = sum over relations r of W_r of the reduced neighbours of i along r.
What is cheaper decides the order: each node is multiplied by each W_r, and the
products are summed with weights 1 / |N_r(i)|; or the neighbours are reduced for
each (node, relation) pair that has any, then multiplied, then summed.  With
bases a head is a basis, and its weights are those of the edges' relations.
"""

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric import typing

from ...._modes import compiling
from ...._relations import groups
from ...._relations.groups import take
from ....aggregation import each_reduction, spmm
from ....graph import Graph
from ....hetero import gatherer, typed_graph
from .._edges import edges_as_given, flowed, known, reverse
from .._mixin import fits, unfit
from .._reduce import combine, is_sum, reductions


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
    if reductions(layer.aggr_module) is None:
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


# ---- weights ----------------------------------------------------------------

def _edge_weight(layer, graph):
    """[E] what each edge counts: 1 / |N_r(i)| in means; None in sums."""
    if is_sum(layer):
        return None
    exact = torch.float64 if layer.weight.dtype == torch.float64 \
        else torch.float32
    return graph._derive(("means", exact),
                         lambda: graph.degrees().to(exact).reciprocal())


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


# ---- embeddings of nodes ----------------------------------------------------

def _of_embeddings(layer, graph, index):
    """The sums of rows of weights: x is the number of a row, index, or None
    where the nodes are the rows."""
    def picked(weight):
        if index is None:
            return weight
        if _is_fast(layer):  # it takes the number of a node for that of a row
            return weight[:, :index.numel()]
        return weight[:, index]
    if _adds(layer) and groups.cheapest(graph, layer.num_bases, (
            "by node", "by bases")) == "by bases":
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


# ---- features ---------------------------------------------------------------

def _of_features(layer, graph, x):
    way = groups.cheapest(graph, layer.num_bases) if _adds(layer) \
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
