"""The (node, relation) pairs of a HeteroGraph that have an edge."""

import itertools
from typing import NamedTuple

import torch

from ..graph import Graph

# Up to so many rows for an edge are marked one by one; more are sorted.
_MOST_MARKS = 4


def total(sizes):
    """[0, a, a + b, ...] of [a, b, ...]."""
    return list(itertools.accumulate(sizes, initial=0))


class Pairs(NamedTuple):
    """The (destination, relation) pairs that have an edge, by relation and then
    by destination."""
    within: Graph  # the pairs are its destinations
    across: Graph  # the pairs are its sources: those of a destination
    starts: tuple  # [relations + 1] where the pairs of a relation begin
    counts: tuple  # [relations] how many pairs a relation has
    node: torch.Tensor  # [pairs] int64, the destination's row by node

    @property
    def relation(self):
        """[pairs] int64, the number of each pair's relation."""
        counts = torch.tensor(self.counts).to(self.node.device)
        return torch.arange(len(self.counts), device=self.node.device) \
            .repeat_interleave(counts, output_size=self.node.numel())


class Senders(NamedTuple):
    """The (source, relation) pairs that have an edge, by relation."""
    graph: Graph  # the pairs are its sources
    rows: Graph  # gives each pair its source's row by node
    starts: tuple  # [relations + 1] where the pairs of a relation begin


class Numbered(NamedTuple):
    """The pairs of a side."""
    rows: torch.Tensor  # [pairs] int64, their rows in_turn(), rising
    of_edge: torch.Tensor  # [E] int64, the pair of each edge
    counts: tuple  # [relations] how many pairs a relation has


def numbered(graph, side):
    """The :class:`Numbered` pairs of a HeteroGraph."""
    layout = graph.in_turn(side)
    row = graph.positions(side, layout).long()
    if layout.size <= _MOST_MARKS * graph.num_edges:
        marks = torch.zeros(layout.size, dtype=torch.bool,
                            device=graph.device).index_fill_(0, row, True)
        rows = marks.nonzero().view(-1)
        of_edge = marks.cumsum(0).index_select(0, row).sub_(1)
    else:
        rows, of_edge = torch.unique(row, return_inverse=True)
    begins = torch.tensor((*layout.begin, layout.size)).to(graph.device)
    starts = torch.searchsorted(rows, begins).tolist()
    return Numbered(rows, of_edge, tuple(
        b - a for a, b in zip(starts, starts[1:])))


def pairs_in(graph, layout, side="dst"):
    """[pairs] int64 the rows of a side's pairs in a layout that has one for
    each node of each relation, or of each type."""
    numbered, turn = graph.numbered(side), graph.in_turn(side)
    return moved(numbered.rows.clone(), numbered.counts, layout.step, [
        begin - first * step for begin, step, first in zip(
            layout.begin, layout.step, turn.begin)])


def moved(numbers, counts, steps, begins):
    """numbers, where each n of relation r has become begins[r] + n * steps[r];
    counts: how many each relation has."""
    parts = [(part, step, begin) for part, step, begin in zip(
        numbers.split(counts), steps, begins) if part.numel()]
    scaled = [(part, step) for part, step, _ in parts if step != 1]
    added = [(part, begin) for part, _, begin in parts if begin]
    if scaled:
        torch._foreach_mul_(*map(list, zip(*scaled)))
    if added:
        torch._foreach_add_(*map(list, zip(*added)))
    return numbers


def _placed(graph, side, align):
    """(each pair's place, each edge's, where those of a relation begin)."""
    rows, of_edge, counts = graph.numbered(side)
    starts = total(-(-n // align) * align for n in counts)
    place = torch.arange(rows.numel(), device=graph.device)
    if align > 1:
        moved(place, counts, (1,) * len(counts), [
            a - b for a, b in zip(starts, total(counts))])
        of_edge = place.index_select(0, of_edge)
    return place, of_edge, tuple(starts)


def pairs(graph, columns, align=1):
    """The :class:`Pairs` over sources laid out as columns says; those of a
    relation begin at a multiple of align."""
    place, of_edge, starts = _placed(graph, "dst", align)
    within = graph.graph_between(
        torch.stack([graph.positions("src", columns), of_edge]), starts[-1],
        columns.size)
    nodes = graph.by_node("dst")
    node = graph.pairs_in(nodes)
    return Pairs(within, graph.graph_between(
        torch.stack([place, node]), nodes.size, starts[-1]), starts,
        graph.numbered("dst").counts, node)


def senders(graph, rows, align=1):
    """The :class:`Senders` whose destinations are laid out as rows says; those
    of a relation begin at a multiple of align."""
    place, of_edge, starts = _placed(graph, "src", align)
    nodes = graph.by_node("src")
    node = graph.pairs_in(nodes, "src")
    # a place without a pair has no edge
    pair_rows = gatherer(node, nodes.size) if align == 1 else \
        graph.graph_between(torch.stack([node, place]), starts[-1], nodes.size)
    return Senders(graph.graph_between(
        torch.stack([of_edge, graph.positions("dst", rows)]), rows.size,
        starts[-1]), pair_rows, starts)


def gatherer(index, num_src):
    """The Graph with one edge for each row, from the source index[row]."""
    offsets = torch.arange(index.numel() + 1, device=index.device,
                           dtype=index.dtype)
    return Graph(offsets, index.contiguous(), num_src, trusted=True)
