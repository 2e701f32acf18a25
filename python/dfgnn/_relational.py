"""Sums over all relations of what each makes of its neighbours."""

import torch

from ._grouped import Groups, alignment, product_type
from .aggregation import spmm

# A table with a row for each node and relation may have so many times the
# rows of a table by edge.
MOST_ROWS = 4


def multiplied(x, weight):
    """[N * R, O] each node by each relation's weight [R, F, O], or blocks
    [R, B, F / B, O / B]."""
    if weight.dim() == 3:
        return (x @ weight.transpose(0, 1).flatten(1)).view(
            -1, weight.size(2))
    blocks = x.view(x.size(0), *weight.shape[1:3])
    return torch.einsum("nbf,rbfo->nrbo", blocks, weight).reshape(
        -1, weight.size(1) * weight.size(3))


def fits_by_node(graph, x):
    """Whether each node by each relation is not much more than the edges."""
    return graph.num_relations * x.size(0) <= MOST_ROWS * graph.num_edges


def by_node(graph, x, weight, edge_weight=None):
    """[N, O] the sums over edges j -> i of relation r of edge_weight x_j W_r:
    nodes are multiplied first.  graph is HeteroGraph.from_edge_types()."""
    return spmm(graph.graph(graph.by_node("dst"), graph.by_relation("src")),
                multiplied(x, weight), edge_weight)


def groups_of(graph, pairs, align):
    """The Groups of a HeteroGraph's pairs or senders, which begin at multiples
    of align."""
    return graph._derive(("groups", align, pairs.starts), lambda: Groups(
        pairs.starts, graph.device, align))


def by_pair(graph, weight, reduce):
    """The same: reduce(Graph) gives the rows of (node, relation) pairs that
    have edges, which are multiplied then."""
    align = alignment(
        graph.number_of_pairs(), graph.num_relations, graph.device,
        product_type(weight), weight.shape[1:] if weight.dim() == 3 else ())
    pairs = graph.pairs(graph.by_node("src"), align)
    groups = groups_of(graph, pairs, align)
    return spmm(pairs.across, groups.product(reduce(pairs.within), weight))
