"""Products of many small types and relations as a few batched ones: a tile is
so many nodes of a type, and the tiles of its relations lie one relation after
the other."""

import functools

import torch

from ...._relations.groups import Groups, take
from ...._modes import lasting
from ....graph import Graph


class Tiles:
    """The rows of types and of relations, in tiles.

    sizes: the number of nodes of each type.
    ends: the number of the type at one end of each relation.
    link: (index, count) -> the Graph between relations and the count types that
        index names: gatherer(), or adder().
    """

    def __init__(self, sizes, ends, device, align, link):
        self.types = Groups.of_sizes(sizes, device, align)
        self.relations = Groups.of_sizes([sizes[n] for n in ends], device,
                                         align)
        first = [start // align for start in self.types.starts]
        self.of_tile = link(torch.tensor(
            [n for end in ends for n in range(first[end], first[end + 1])],
            dtype=torch.int64).to(device), first[-1])
        self.of_relation = link(torch.tensor(ends).to(device), len(sizes))


@functools.lru_cache(16)
def tiles_of(*about):
    """The Tiles of these arguments: a whole graph has the same numbers of nodes
    in each step."""
    return lasting(lambda: Tiles(*about))


def adder(index, num_dst):
    """The Graph that adds row n to row index[n]."""
    counts = torch.bincount(index, minlength=num_dst)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Graph(offsets, index.argsort(stable=True), index.numel(),
                 trusted=True)


def padded(x, align):
    """[rows, F] features of types, each from a multiple of align on."""
    zeros = x[0].new_zeros(align, x[0].size(1))
    return torch.cat([t for part in x for t in (
        part, zeros[:-part.size(0) % align])])


def sums(graph, x, reduce, align, weights, biases, own_weights, own_biases):
    """By type of destination the sum over its relations of the reduced
    neighbours times weights [O, F], with biases and the linear layers of the
    node's own features; lists by relation, or None.

    reduce: (graph, table) -> the reduced neighbours.
    """
    ends = [end for _, _, end in graph.relations]
    kinds = list(dict.fromkeys(ends))
    tiles = tiles_of(tuple(graph.num_dst[kind] for kind in kinds),
                     tuple(map(kinds.index, ends)), graph.device, align,
                     adder)

    def of_types(parameters):
        return take(torch.stack(parameters), tiles.of_relation)
    table = torch.cat([x.src[kind] for kind, count in graph.num_src.items()
                       if count])
    reduced = reduce(graph.graph(graph.in_turn("dst", align),
                                 graph.by_node("src")), table)
    products = tiles.relations.linear(reduced, torch.stack(weights))
    out = take(tiles.relations.tiled(products), tiles.of_tile).flatten(0, 1)
    bias = [b for b in (biases, own_biases) if b is not None]
    bias = None if not bias else of_types(
        [sum(both[1:], both[0]) for both in zip(*bias)])
    if own_weights is not None:
        out = out + tiles.types.linear(
            padded([x.dst[kind] for kind in kinds], align),
            of_types(own_weights), bias)
    elif bias is not None:
        out = (tiles.types.tiled(out)
               + tiles.types.by_tile(bias).unsqueeze(1)).flatten(0, 1)
    return dict(zip(kinds, tiles.types.packed(out)))
