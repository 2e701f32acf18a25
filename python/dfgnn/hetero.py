"""HeteroGraph: the edges of many relations as one graph of the kernels.

A relation has sources of one type of nodes and destinations of one.  The
destinations of all relations stand in one space of rows, the sources in one of
columns, so that one kernel serves all relations.  Two choices are open on each
side, and a :class:`Layout` says which was taken:

  by node       a node has one row, whatever its relations are: a softmax or a
                sum over all in-edges, features that all relations share;
  by relation   a node has a row for each relation that ends (or begins) at its
                type, one after the other: a softmax within a relation, tables
                that were projected for each relation.

Where few of the (destination, relation) pairs have an edge, :meth:`pairs`
numbers those that have.
"""

import functools

import torch

from . import _ways
from ._checks import check_count, check_index, describe
from ._handle import INDEX_TYPES
from ._modes import lasting, unwrapped
from ._relations import pairs as _pairs
from ._relations.layouts import Schema, derived
from ._relations.pairs import gatherer, moved
from ._remember import remember
from .convert import rooms_of
from .errors import InvalidError
from .graph import Graph


class HeteroGraph(Schema):
    """Edges of several relations.

    edges: by relation (source type, name, destination type) an edge_index
        [2, E], row 0 sources, row 1 destinations, in any order: PyG's
        edge_index_dict.  A relation without edges may be there.
    num_nodes: by type the number of nodes, or (sources, destinations) where
        they differ, as in a sampled block.
    trusted: nothing is checked; a node out of range is then undefined
        behaviour.
    family: a name that batches of one loader share, see :class:`Graph`.

    Edge features and attention weights of :meth:`graph` are in the order of
    :attr:`edge_index`: that of the relations, each in its caller's order
    (:meth:`concatenate` makes it of a dictionary, :meth:`split` the reverse).
    The tensors must not change while the graph lives.
    """

    is_whole = True  # False of a rank's share, whose sources have a halo

    def __init__(self, edges, num_nodes, *, family=None, trusted=False):
        if not isinstance(edges, dict):
            raise TypeError("edges must be a dict of edge_index by relation, "
                            "got " + describe(edges))
        if not edges:
            raise ValueError("edges is empty, expected at least one relation")
        self._set_schema(edges, num_nodes)
        parts = [unwrapped(part) for part in edges.values()]
        first = parts[0]
        for relation, part in zip(self.relations, parts):
            _check_part(relation, part, first)
        self.counts = tuple(part.size(1) for part in parts)
        # other objects than the caller's, which a kept graph must not keep
        self._set_edges(lasting(lambda: first.detach() if len(parts) == 1
                                else torch.cat(parts, 1)), family, trusted)

    @classmethod
    def from_edge_types(cls, edge_index, edge_type, num_nodes, num_relations,
                        *, family=None, trusted=False):
        """The graph of one edge list whose edges carry the number of their
        relation, as RGCN has it; its one type of nodes is called "".

        edge_index [2, E], edge_type [E] of 0 to num_relations - 1.
        num_nodes: an int or (sources, destinations).
        """
        edge_index, edge_type = unwrapped(edge_index), unwrapped(edge_type)
        _check_part(None, edge_index, edge_index)
        check_index("edge_type", edge_type)
        if edge_type.shape != edge_index.shape[1:] or \
                edge_type.device != edge_index.device:
            raise ValueError(f"edge_type must be [{edge_index.size(1)}] on "
                             f"{edge_index.device}, got "
                             + describe(edge_type))
        graph = cls.__new__(cls)
        count = check_count("num_relations", num_relations)
        graph._set_schema([("", r, "") for r in range(count)],
                          {"": num_nodes})
        graph._edge_type = edge_type.detach()
        graph._set_edges(edge_index.detach(), family, trusted)
        return graph

    @classmethod
    def from_data(cls, data, **options):
        """The graph of PyG's HeteroData or a batch of them, or of a
        heterogeneous graph or block of DGL."""
        if hasattr(data, "canonical_etypes"):
            edges = {kind: torch.stack(data.edges(etype=kind))
                     for kind in data.canonical_etypes}
            nodes = {t: (data.num_src_nodes(t), 0) for t in data.srctypes}
            for t in data.dsttypes:
                nodes[t] = nodes.get(t, (0, 0))[0], data.num_dst_nodes(t)
            return cls(edges, nodes, **options)
        if not hasattr(data, "edge_index_dict"):
            raise TypeError("data must be PyG's HeteroData or a graph of DGL, "
                            "got " + describe(data))
        return cls(data.edge_index_dict,
                   {t: data[t].num_nodes for t in data.node_types}, **options)

    _edge_type = None

    def _set_edges(self, edge_index, family, trusted):
        self.edge_index = edge_index
        self.family, self.trusted = family, bool(trusted)
        self.device = edge_index.device
        self.num_edges = edge_index.size(1)
        if not trusted:
            self._check()

    def _check(self):
        """Raises where a node or a relation is out of its range."""
        if not self.num_edges:
            return
        if self.counts is None:
            _check_range("edge_type", self._edge_type, self.num_relations)
        ends = [self._side(side) for side in ("src", "dst")]
        sizes = self._by_edge([[nodes[kind] for kind in kinds]
                               for kinds, nodes in ends])
        wrong = (self.edge_index < 0) | (self.edge_index >= sizes)
        if not bool(wrong.any()):
            return
        row, edge = wrong.nonzero()[0].tolist()
        relation, size = int(self.edge_type[edge]), int(sizes[row, edge])
        first = 0 if self.counts is None else sum(self.counts[:relation])
        raise InvalidError(
            f"edge_index[{row}, {edge - first}] of {self.relations[relation]} "
            f"is {int(self.edge_index[row, edge])}, but there are {size} "
            f"{'destination' if row else 'source'}s: expected 0 to {size - 1}")

    @property
    def edge_type(self):
        """[E] the number of each edge's relation."""
        if self._edge_type is None:
            self._edge_type = lasting(lambda: self._by_edge(
                [list(range(self.num_relations))])[0])
        return self._edge_type

    def _by_edge(self, rows):
        """[rows, E] of numbers by relation."""
        table = torch.tensor(rows, dtype=torch.int64).to(self.device)
        if self.counts is None:
            return table.index_select(1, self._edge_type.long())
        counts = torch.tensor(self.counts).to(self.device)
        return table.repeat_interleave(counts, 1, output_size=self.num_edges)

    def positions(self, side, layout):
        """[E] the row of each edge's end in a layout."""
        at = 0 if side == "src" else 1
        return self._in_layouts(self.edge_index[at:at + 1], layout)[0]

    def placed(self, rows, columns):
        """[2, E] the column of each edge's source and the row of its
        destination."""
        return self._in_layouts(self.edge_index, columns, rows)

    def _in_layouts(self, ends, *layouts):
        """The rows of ends [sides, E], which have a layout each."""
        begins = [layout.begin for layout in layouts]
        steps = [layout.step for layout in layouts]
        if not any(map(any, begins)) and all(set(step) == {1}
                                             for step in steps):
            return ends
        if self.counts is None:
            begin, step = self._by_edge(begins + steps).chunk(2)
            return ends * step + begin
        placed = ends.clone(memory_format=torch.contiguous_format)
        moved(placed.view(-1), self.counts * len(layouts), sum(steps, ()),
              sum(begins, ()))
        for end, layout in zip(placed, layouts):
            self._number_edges(end.split(self.counts), layout)
        return placed

    def _number_edges(self, parts, layout):
        """Adds to the rows of relations that have one for each edge which of
        its edges it is."""
        each = [n for n, step in enumerate(layout.step)
                if not step and self.counts[n]]
        if each:
            numbers = torch.arange(max(self.counts[n] for n in each),
                                   dtype=parts[0].dtype, device=self.device)
            torch._foreach_add_([parts[n] for n in each], [
                numbers[:self.counts[n]] for n in each])

    @derived
    def graph(self, rows, columns):
        """The :class:`Graph` whose destinations are laid out as rows says and
        whose sources as columns says; it is made once."""
        return self.graph_between(self.placed(rows, columns), rows.size,
                                  columns.size)

    @derived
    def with_relations(self):
        """The Graph of all nodes by_node() whose edges have their relations,
        as edge programs take it."""
        graph = self.graph(self.by_node("dst"), self.by_node("src"))
        graph.set_relations(self.edge_type, self.num_relations)
        return graph

    def graph_between(self, ends, num_dst, num_src):
        """The Graph of edges [2, E], sources first, which are in range."""
        for what, number in (("rows", num_dst), ("columns", num_src)):
            check_count(f"the number of {what}", number)
        return Graph.from_edge_index(ends, (num_src, num_dst), trusted=True,
                                     family=self.family)

    # ---- (node, relation) pairs that have an edge

    numbered = derived(_pairs.numbered)
    pairs_in = derived(_pairs.pairs_in)
    pairs = derived(_pairs.pairs)
    senders = derived(_pairs.senders)

    def number_of_pairs(self, side="dst"):
        """How many (node of a side, relation) pairs have an edge."""
        return self.numbered(side).rows.numel()

    def has_few_pairs(self):
        """Whether attention has a row for each pair alone."""
        return _ways.rows_of_relations(
            self.device, self.by_relation("dst").size,
            self.num_edges) == "pairs"

    @derived
    def gathering(self, side, layout):
        """The Graph that gives each edge its row of a table in a layout: row e
        has one edge, from where edge e begins (side "src") or ends ("dst").
        Sums over it are a gather whose gradient is added in one order."""
        return gatherer(self.positions(side, layout), layout.size)

    @derived
    def degrees(self):
        """[E] for each edge how many edges of its relation its destination
        has."""
        rows = self.by_relation("dst")
        if rows.size <= 4 * self.num_edges:
            number = self.positions("dst", rows)
        else:
            number = self.numbered("dst").of_edge
        counts = number.new_zeros(min(rows.size, max(4 * self.num_edges, 1)))
        return counts.index_add(0, number, torch.ones_like(number)) \
            .index_select(0, number)

    @derived
    def edges_by_relation(self):
        """By relation its edge_index."""
        return {key: part.t() for key, part in
                self.split(self.edge_index.t()).items()}

    def extend(self, x):
        """Features by type of the sources, from those of the destinations: the
        same, unless the graph is a rank's share of one."""
        return x

    def mean_of(self, kind, rows):
        """The mean of rows, those of the destinations of a type."""
        return rows.mean(0)

    def concatenate(self, by_relation):
        """[E, ...] of a dict of tensors by relation, each in its edges'
        order."""
        return torch.cat([by_relation[r] for r in self.relations])

    def split(self, edges):
        """A dict by relation of a tensor by edge."""
        if self.counts is None:
            raise ValueError("the edges of this graph came in one list; "
                             "edge_type says which relation each has")
        return dict(zip(self.relations, edges.split(self.counts)))

    def to(self, device):
        """The graph on another device; itself if it is there already."""
        moved = self.edge_index.to(device)
        if moved is self.edge_index:
            return self
        sizes = {kind: (self.num_src[kind], self.num_dst[kind])
                 for kind in self.node_types}
        options = dict(family=self.family, trusted=True)
        if self.counts is None:
            return HeteroGraph.from_edge_types(
                moved, self._edge_type.to(device), sizes[""],
                self.num_relations, **options)
        return HeteroGraph(dict(zip(
            self.relations, moved.split(self.counts, 1))), sizes, **options)

    def __repr__(self):
        return (f"HeteroGraph({self.num_relations} relations, "
                f"{len(self.node_types)} types of nodes, "
                f"num_edges={self.num_edges}, device='{self.device}')")


def hetero_graph(edges, num_nodes):
    """HeteroGraph(edges, num_nodes), kept for as long as the tensors of edges
    live and are not written to; that of a captured step where these are its
    buffers."""
    tensors = list(edges.values())
    rooms = rooms_of(tensors[0])
    if rooms is not None:
        return rooms.relations(edges, num_nodes)
    key = ("hetero", tuple(edges), tuple(num_nodes.items()))
    return remember(tensors[0], key, lambda: HeteroGraph(edges, num_nodes),
                    tensors[1:])


def typed_graph(edge_index, edge_type, num_nodes, num_relations):
    """HeteroGraph.from_edge_types(), kept likewise."""
    return remember(
        edge_index, ("hetero", num_nodes, num_relations), functools.partial(
            HeteroGraph.from_edge_types, edge_index, edge_type, num_nodes,
            num_relations), (edge_type,))


def _check_part(relation, part, first):
    if type(part) is torch.Tensor and part.dtype in INDEX_TYPES and \
            part.dim() == 2 and part.size(0) == 2 and \
            part.dtype == first.dtype and part.device == first.device:
        return
    name = "edge_index" if relation is None else f"edge_index of {relation}"
    check_index(name, part, 2)
    if part.size(0) != 2:
        raise ValueError(f"{name} must be [2, edges], got " + describe(part))
    if part.device != first.device or part.dtype != first.dtype:
        raise ValueError(f"{name} is {describe(part)}, but the first relation "
                         f"has {describe(first)}: all must be of one type on "
                         "one device")


def _check_range(name, tensor, count):
    least, most = (int(n) for n in torch.aminmax(tensor))
    if least < 0 or most >= count:
        raise InvalidError(f"{name} must be 0 to {count - 1}, got "
                           f"{least if least < 0 else most}")
