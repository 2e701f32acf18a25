"""Sums over many small relations as a few batched products: a tile is so many
nodes of a type, and the tiles of its relations lie one relation after the
other."""

import functools
import itertools

import torch

from ...._grouped import Groups, alignment, product_type, take
from ....aggregation import spmm
from ....graph import Graph


def tile(graph, x, weights):
    """The number of nodes of a tile, or 1 where a product for each type is
    better.  x: features by type, weights: all that multiply them."""
    return alignment(
        graph.by_relation("dst").size, graph.num_relations, graph.device,
        product_type(next(iter(x.src.values()))),
        {width for weight in weights for width in weight.shape})


class _Tiles:
    """What does not depend on edges.  ends: the type that each relation ends
    at; sizes: by type its number of nodes."""

    def __init__(self, ends, sizes, device, align):
        self.kinds, sizes = list(dict.fromkeys(ends)), dict(sizes)
        counts = [sizes[kind] for kind in self.kinds]
        self.types = Groups.of_sizes(counts, device, align)
        self.relations = Groups.of_sizes([sizes[kind] for kind in ends],
                                         device, align)
        mine = [[r for r, end in enumerate(ends) if end == kind]
                for kind in self.kinds]
        # the tiles of a type, and those of its relations that are added
        self.added = _sums_of([
            [self.relations.starts[r] // align + n for r in relations]
            for relations, size in zip(mine, counts)
            for n in range(-(-size // align))],
            self.relations.starts[-1] // align, device)
        self.of_type = _sums_of(mine, len(ends), device)


def _sums_of(lists, num_src, device):
    """The Graph whose rows have the sources of these lists."""
    offsets = list(itertools.accumulate(map(len, lists), initial=0))
    columns = [column for columns in lists for column in columns]
    return Graph(torch.tensor(offsets).to(device),
                 torch.tensor(columns, dtype=torch.int64).to(device), num_src,
                 trusted=True)


# a whole graph has the same numbers of nodes in each step
_tiles = functools.lru_cache(16)(_Tiles)


def padded(x, align):
    """[rows, F] features of types, each from a multiple of align on."""
    zeros = x[0].new_zeros(align, x[0].size(1))
    return torch.cat([t for part in x for t in (
        part, zeros[:-part.size(0) % align])])


def of_types(tiles, parameters):
    """[types, ...] the sums of parameters over the relations of a type."""
    stacked = torch.stack(parameters)
    return take(stacked, tiles.of_type)


def sums(graph, x, reduce, align, weights, biases, own_weights, own_biases):
    """By type of destination the sum over its relations of the reduced
    neighbours times weights [O, F], with biases and the linear layers of the
    node's own features; lists by relation, or None.

    reduce: (graph, table) -> the reduced neighbours.
    """
    tiles = _tiles(tuple(end for _, _, end in graph.relations),
                   tuple(graph.num_dst.items()), graph.device, align)
    kinds = [kind for kind, count in graph.num_src.items() if count]
    table = torch.cat([x.src[kind] for kind in kinds])
    reduced = reduce(graph.graph(graph.in_turn("dst", align),
                                 graph.by_node("src")), table)
    made = tiles.relations.linear(reduced, torch.stack(weights))
    out = spmm(tiles.added, tiles.relations.tiled(made)).flatten(0, 1)
    bias = [b for b in (biases, own_biases) if b is not None]
    bias = None if not bias else of_types(
        tiles, bias[0] if len(bias) == 1 else [
            a + b for a, b in zip(*bias)])
    if own_weights is not None:
        own = tiles.types.linear(
            padded([x.dst[kind] for kind in tiles.kinds], align),
            of_types(tiles, own_weights), bias)
        out = out + own
    elif bias is not None:
        out = (tiles.types.tiled(out)
               + tiles.types.by_tile(bias).unsqueeze(1)).flatten(0, 1)
    return dict(zip(tiles.kinds, tiles.types.packed(out)))
