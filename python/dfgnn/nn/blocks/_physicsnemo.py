"""The blocks of MeshGraphNet and GraphCast in NVIDIA's physicsnemo."""

import torch
from torch.utils.weak import WeakIdKeyDictionary

from ..._formulas import degrees_of
from ...convert import as_graph
from .._linear import hooked
from .._node import Other, known
from ._block import Row, call, keeps_type, mlp_of, modules_of, then


def _edges_of(graph):
    """The edge_index of PyG's Data, or of HeteroData with one kind of edges."""
    if hasattr(graph, "node_types"):
        graph = graph[graph.edge_types[0]]
    edges = getattr(graph, "edge_index", None)
    if not known(edges):
        raise Other(f"its graph is a {type(graph).__name__} without an "
                    "edge_index")
    return edges


def _mlp(network, edge, src, dst):
    """The Mlp of a MeshGraphEdgeMLPConcat or MeshGraphEdgeMLPSum."""
    if hooked(network):
        raise Other("a hook looks at its network")
    sizes = edge.size(1), src.size(1), dst.size(1)
    if hasattr(network, "lin_efeat"):
        modules = modules_of(network.model)
        return then((network.lin_efeat, network.lin_src, network.lin_dst),
                    network.bias, modules)
    first, *modules = modules_of(network.model)
    return mlp_of(first, modules, sizes)


def _called(network, edge, nodes, edge_index, **options):
    src, dst = nodes if isinstance(nodes, tuple) else (nodes, nodes)
    graph = as_graph(edge_index, (src.size(0), dst.size(0)))
    return call(graph, _mlp(network, edge, src, dst), edge, src, dst,
                **options)


def edge_network(network, efeat, nfeat, graph):
    """MeshGraphEdgeMLPConcat and MeshGraphEdgeMLPSum."""
    return _called(network, efeat, nfeat, _edges_of(graph), edges=True,
                   reduce=None)


def edge_block(block, efeat, nfeat, graph):
    """MeshEdgeBlock; the same call sums its edges, for the MeshNodeBlock that
    follows."""
    edges = _edges_of(graph)
    if not keeps_type(efeat):
        new_edges = _called(block.edge_mlp, efeat, nfeat, edges, edges=True,
                            reduce=None)
        return new_edges + efeat, nfeat
    new_edges, total = _called(block.edge_mlp, efeat, nfeat, edges, edges=True,
                               residual=True)
    _sums[new_edges] = edges, _version(new_edges), total
    return new_edges, nfeat


# by tensor of edges: (the edge_index, the tensor's version, its sum)
_sums = WeakIdKeyDictionary()


def _version(tensor):
    return None if tensor.is_inference() else tensor._version


def _sum_of(efeat, edges, count):
    """The sum of edges at destinations, which their block made; it is removed
    from _sums."""
    entry = _sums.pop(efeat, None)
    if entry is None or entry[0] is not edges or \
            entry[1] != _version(efeat) or entry[2].size(0) != count:
        raise Other("its edges were not made by the call of a MeshEdgeBlock")
    return entry[2]


def node_block(block, efeat, nfeat, graph):
    """MeshNodeBlock after a MeshEdgeBlock."""
    edges = _edges_of(graph)
    if block.aggregation not in ("sum", "add", "mean"):
        raise Other(f"its aggregation is {block.aggregation!r}")
    total = _sum_of(efeat, edges, nfeat.size(0))
    if block.aggregation == "mean":
        total = total / degrees_of(as_graph(
            edges, (nfeat.size(0), nfeat.size(0))), total)
    new = block.node_mlp(torch.cat((total, nfeat), -1))
    return efeat, new + nfeat


def _summed(block, efeat, src, dst, graph):
    """cat(the edges' MLP reduced at destinations, destinations)."""
    if block.aggregation not in ("sum", "mean"):
        raise Other(f"its aggregation is {block.aggregation!r}")
    total = _called(block.edge_mlp, efeat, (src, dst), _edges_of(graph),
                    reduce=block.aggregation)
    return torch.cat((total, dst), -1)


def encoder(block, g2m_efeat, grid_nfeat, mesh_nfeat, graph):
    """MeshGraphEncoder"""
    summed = _summed(block, g2m_efeat, grid_nfeat, mesh_nfeat, graph)
    return (grid_nfeat + block.src_node_mlp(grid_nfeat),
            mesh_nfeat + block.dst_node_mlp(summed))


def decoder(block, m2g_efeat, grid_nfeat, mesh_nfeat, graph):
    """MeshGraphDecoder"""
    return block.node_mlp(_summed(block, m2g_efeat, mesh_nfeat, grid_nfeat,
                                  graph)) + grid_nfeat


_SUMMED = "its edges' MLP and their sum are one call"
TABLE = {
    "MeshEdgeBlock": Row({"forward": edge_block},
                         "its MLP, residual and sum are one call"),
    "MeshNodeBlock": Row({"forward": node_block}, "the sum of its edges comes "
                         "from the block before it"),
    "MeshGraphEncoder": Row({"forward": encoder}, _SUMMED),
    "MeshGraphDecoder": Row({"forward": decoder}, _SUMMED),
    "MeshGraphEdgeMLPConcat": Row({"forward": edge_network}),
    "MeshGraphEdgeMLPSum": Row({"forward": edge_network}),
}

REFUSED = dict.fromkeys(
    ("HybridMeshEdgeBlock", "HybridMeshNodeBlock",
     "MeshGraphHeteroEdgeMLPConcat"),
    "its edges are of two kinds, each with a network of its own")
