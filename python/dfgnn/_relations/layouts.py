"""Schema: relations between types of nodes, and where their nodes stand in
spaces of rows and columns."""

import functools
from typing import NamedTuple

from .._checks import check_count, describe
from .pairs import total
from .._modes import lasting


class Layout(NamedTuple):
    """Where nodes stand in a space of rows: node i of relation r is row
    begin[r] + i * step[r], of size rows in all.  Where step[r] is 0 each edge
    has a row of its own, the n-th of the relation begin[r] + n."""
    begin: tuple
    step: tuple
    size: int


class Block(NamedTuple):
    """The rows of a type of nodes in a layout by relation: node i has the
    len(relations) rows from first + i * len(relations) on."""
    first: int
    nodes: int
    relations: tuple  # their numbers, in order of the rows of a node


def derived(method):
    """A method whose result for the same arguments is made once."""
    @functools.wraps(method)
    def wrapper(self, *args):
        return self._derive((method.__name__, *args),
                            lambda: method(self, *args))
    return wrapper


class Schema:
    """Relations, numbers of nodes by type, and layouts of them.

    relations: [(source type, name, destination type)].
    num_src, num_dst: by type the number of nodes that send and that receive.
    counts: by relation its number of edges; None if they are in one list.
    """

    counts = None

    def _set_schema(self, relations, num_nodes):
        self.relations = tuple(map(_checked_relation, relations))
        self.num_relations = len(self.relations)
        self._derived = {}
        self._set_sizes(num_nodes)

    def _set_sizes(self, num_nodes):
        if not isinstance(num_nodes, dict):
            raise TypeError("num_nodes must be a dict by type of nodes, got "
                            + describe(num_nodes))
        self.num_src, self.num_dst = {}, {}
        for kind, value in num_nodes.items():
            pair = value if isinstance(value, (tuple, list)) else (value,) * 2
            if len(pair) != 2:
                raise ValueError(f"num_nodes of {kind!r} must be an int or "
                                 f"(sources, destinations), got {value!r}")
            self.num_src[kind], self.num_dst[kind] = (
                check_count(f"num_nodes of {kind!r}", n) for n in pair)
        for source, name, destination in self.relations:
            for kind in (source, destination):
                if kind not in self.num_src:
                    raise ValueError(
                        f"num_nodes has no type {kind!r}, which the relation "
                        f"{(source, name, destination)} has; it has "
                        + ", ".join(map(repr, self.num_src)))
        self.node_types = tuple(self.num_src)

    def _derive(self, key, make):
        value = self._derived.get(key)
        if value is None:
            value = self._derived[key] = lasting(make)
        return value

    def _side(self, side):
        at = {"src": 0, "dst": 2}[side]
        return ([relation[at] for relation in self.relations],
                self.num_dst if at else self.num_src)

    @derived
    def by_node(self, side, align=1):
        """The layout with a row for each node of side "src" or "dst", types
        one after the other; each begins at a multiple of align."""
        kinds, _ = self._side(side)
        begin = self.type_begins(side, align)
        return Layout(tuple(begin[kind] for kind in kinds), (1,) * len(kinds),
                      begin[None])

    @derived
    def type_begins(self, side, align=1):
        """The first row of each type in by_node(); under None, the number of
        rows."""
        _, sizes = self._side(side)
        return dict(zip((*sizes, None), total(
            -(-n // align) * align for n in sizes.values())))

    @derived
    def by_relation(self, side):
        """The layout with a row for each node of side "src" or "dst" and each
        relation of its type, those of a node one after the other."""
        begin, step = [0] * self.num_relations, [1] * self.num_relations
        blocks = self.blocks(side).values()
        for block in blocks:
            for slot, relation in enumerate(block.relations):
                begin[relation] = block.first + slot
                step[relation] = len(block.relations)
        return Layout(tuple(begin), tuple(step), sum(
            b.nodes * len(b.relations) for b in blocks))

    @derived
    def blocks(self, side):
        """By type that has relations on this side, its Block of
        by_relation()."""
        kinds, sizes = self._side(side)
        blocks, first = {}, 0
        for kind in dict.fromkeys(kinds):
            relations = tuple(r for r, k in enumerate(kinds) if k == kind)
            blocks[kind] = Block(first, sizes[kind], relations)
            first += sizes[kind] * len(relations)
        return blocks

    def split_blocks(self, side, rows):
        """By type the [nodes, relations, ...] of a tensor by the rows of
        by_relation(side)."""
        blocks = self.blocks(side)
        parts = rows.split([b.nodes * len(b.relations)
                            for b in blocks.values()])
        return {kind: part.view(block.nodes, len(block.relations),
                                *rows.shape[1:])
                for (kind, block), part in zip(blocks.items(), parts)}

    def split_types(self, side, rows):
        """By type the [nodes, ...] of a tensor by the rows of
        by_node(side)."""
        sizes = self._side(side)[1].values()
        return dict(zip(self.node_types, rows.split(list(sizes))))

    @derived
    def in_turn(self, side, align=1):
        """The layout with the nodes of the first relation, then those of the
        second and so on; each begins at a multiple of align."""
        kinds, sizes = self._side(side)
        starts = total(-(-sizes[kind] // align) * align for kind in kinds)
        return Layout(tuple(starts[:-1]), (1,) * len(kinds), starts[-1])

    @derived
    def as_sent(self):
        """The layout of sources in which each relation has the fewer rows: one
        for each node, or, where it has fewer edges, one for each edge."""
        nodes = [self.num_src[source] for source, _, _ in self.relations]
        if self.counts is None or all(
                3 * count >= 2 * n for n, count in zip(nodes, self.counts)):
            return self.by_relation("src")
        rows = [(count, 0) if 3 * count < 2 * n else (n, 1)
                for n, count in zip(nodes, self.counts)]
        starts = total(n for n, _ in rows)
        return Layout(tuple(starts[:-1]), tuple(s for _, s in rows),
                      starts[-1])


def _checked_relation(key):
    if not isinstance(key, (tuple, list)) or len(key) != 3:
        raise ValueError("a relation must be (source type, name, destination "
                         f"type), got {key!r}")
    return tuple(key)
