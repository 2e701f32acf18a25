"""GCNConvs of a HeteroConv on a rank's share of a graph: its edges end at own
nodes, and what they are divided by needs the degrees of nodes of other
ranks."""

from typing import NamedTuple

import torch
import torch_geometric.nn as pyg
from torch import Tensor

from ...._evaluators import inverse_root
from ...._loops import with_remaining_loops
from ....aggregation import spmm
from ....convert import as_graph


class Normalized(NamedTuple):
    """The edges of a relation and their weights, None where all are 1, as
    GCNConv sums over them."""
    edges: Tensor
    weight: Tensor | None


def normalized(graph, calls):
    """The Calls with :class:`Normalized` edges for GCNConvs; one exchange
    brings the degrees of all of them.  All ranks have the same calls."""
    mine = [] if graph.is_whole else [
        call for call in calls if call.key[0] == call.key[2]
        and getattr(type(call.layer), "_dfgnn_base", None) is pyg.GCNConv]
    if not mine:
        return calls
    weights = {call.key: (*call.more, call.kwargs.get("edge_weight"))[0]
               for call in mine}
    if any(weight is not None for weight in weights.values()):
        results = _normalized(graph, mine, weights)
    else:
        about = tuple((call.key, call.layer.normalize, call.layer.improved,
                       call.layer.add_self_loops) for call in mine)
        results = graph._derive(("gcn", about, mine[0].src.dtype), lambda:
                                _normalized(graph, mine, weights))
    return [call if call.key not in results else call._replace(
        edges=results[call.key], more=(), kwargs={}) for call in calls]


def _normalized(graph, calls, weights):
    """By relation its Normalized edges."""
    results, degrees = {}, {kind: [] for kind in graph.num_dst}
    for call in calls:
        weight, edges = weights[call.key], call.edges
        if not call.layer.normalize:
            results[call.key] = Normalized(edges, weight)
            continue
        if call.layer.add_self_loops:
            edges, weight = _looped(call, weight)
        if weight is None:
            weight = call.src.new_ones(edges.size(1))
        results[call.key] = Normalized(edges, weight)
        degrees[call.key[0]].append((call.key, call.dst.new_zeros(
            call.dst.size(0)).index_add(0, edges[1], weight)))
    table = {kind: torch.stack([degree for _, degree in parts], 1) if parts
             else calls[0].dst.new_zeros(graph.num_dst[kind], 1)
             for kind, parts in degrees.items()}
    if not any(degrees.values()):
        return results
    for kind, part in graph.extend(table).items():
        for (key, _), factor in zip(degrees[kind],
                                    inverse_root(part).unbind(1)):
            edges, weight = results[key]
            results[key] = Normalized(
                edges, factor[edges[0]] * weight * factor[edges[1]])
    return results


def _looped(call, weight):
    """(edges, weights) with the loops that PyG adds, which have the weights of
    those that were there."""
    edges = as_graph(call.edges, (call.src.size(0), call.dst.size(0)))
    if weight is None:  # improved makes no difference then, as in PyG
        return edges.with_self_loops().edge_index, None
    looped, weight = with_remaining_loops(
        edges, weight, 2.0 if call.layer.improved else 1.0)
    return looped.edge_index, weight


def alone(call):
    """The result of a GCNConv whose edges are Normalized."""
    layer, (edges, weight) = call.layer, call.edges
    x = layer.lin(call.src)
    graph = as_graph(edges, (x.size(0), call.dst.size(0)))
    out = spmm(graph, x, weight)
    return out if layer.bias is None else out + layer.bias
