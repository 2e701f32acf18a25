"""The edges of a graph: their ends, relations, orders and self
loops, each made when it is asked for."""

import torch

from ._checks import check_count, check_index, describe
from ._device import raw_stream
from ._library import check, library
from ._modes import compiling, lasting, untraced
from ._remember import is_stamped

# torch.compile leaves it alone: what it compiles is memory of its CUDA graphs
_kept = untraced(lasting)


class Edges:
    """Of a Graph, which has offsets, indices, edge_order, sizes and a
    device."""

    _derived = None  # what was made once, by its key
    loops = None  # how many self loops the library added, if it did
    unlooped_edges = None  # how many edges there were before loops
    looped = None  # the result of with_self_loops()

    def _derive(self, key, make):
        result = self._derived.get(key)
        if result is None:
            if compiling():  # the memory may belong to torch's CUDA graphs
                return make()
            result = self._derived[key] = _kept(make)
        return result

    def met(self, receives):
        """([N] whether an edge begins, or ends, at a node; [1] such a node), or
        None where all are known to have an edge."""
        def make():
            nodes, count = (self.dst, self.num_dst) if receives else (
                self.src, self.num_src)
            there = nodes.new_zeros(count, dtype=torch.bool).index_fill_(
                0, nodes, True)
            if there.device.type == "cpu" and bool(there.all()):
                return ()
            return there, nodes[:1]
        return self._derive(("met", receives), make) or None

    @property
    def src(self):
        """[E] source of each edge, in the graph's own order."""
        return self._derive("src", lambda: self.indices.long())

    @property
    def dst(self):
        """[E] destination of each edge, in the graph's own order."""
        def make():
            rows = torch.arange(self.num_dst, device=self.device)
            return rows.repeat_interleave(self.degrees,
                                          output_size=self.num_edges)
        return self._derive("dst", make)

    @property
    def degrees(self):
        """[N] how many edges each destination has."""
        return self._derive("degrees", lambda: self.offsets.long().diff())

    # [E] int64: the relation of each edge, in the graph's own order
    relation = None
    num_relations = 0

    def set_relations(self, relation, count=None):
        """Gives each edge its relation, once, for edge programs that have
        values of relations.

        relation: [E] int32 or int64, in the caller's order of edges.
        count: how many relations there are; the largest and one more, if not
            given.
        """
        check_index("relation", relation)
        if relation.numel() != self.num_edges or \
                relation.device != self.device:
            raise ValueError(
                f"relation must have {self.num_edges} numbers on "
                f"{self.device}, got " + describe(relation))
        some = relation.numel() > 0
        least, most = (int(relation.min()), int(relation.max())) if some \
            else (0, 0)
        count = most + 1 if count is None else check_count("count", count)
        if least < 0 or most >= count:
            raise ValueError(f"relations are {least} to {most}, expected 0 "
                             f"to {count - 1}")
        relation = self.to_graph_order(relation)
        narrow = relation.int().contiguous()
        on_device = self.device.type != "cpu"
        check(library().dfgnn_graph_set_relations(
            self.handle.pointer, count, narrow.data_ptr(), int(on_device),
            raw_stream(self.device)))
        self.relation, self.num_relations = relation.long(), count

    # ---- the caller's order and the graph's

    @property
    def order(self):
        """edge_order as int64, or None."""
        if self.edge_order is None:
            return None
        return self._derive("order", lambda: self.edge_order.long())

    @property
    def inverse(self):
        """Where each of the caller's edges is in the graph, or None."""
        def make():
            inverse = torch.empty_like(self.order)
            inverse[self.order] = torch.arange(self.num_edges,
                                               device=self.device)
            return inverse
        positions = self._derived.get("inverse")
        if positions is None and self.edge_order is not None:
            positions = self._derive("inverse", make)
        return positions

    @property
    def edge_index(self):
        """[2, E] sources and destinations in the caller's order."""
        def make():
            edges = None if compiling() else self._given()
            if edges is None:
                edges = torch.stack([self.src, self.dst])
                return edges if self.inverse is None else edges[:, self.inverse]
            if self.loops is None:
                return edges.to(torch.int64, copy=True)
            loops = torch.arange(self.loops, device=self.device)
            return torch.cat([edges[:, self.kept], loops.expand(2, -1)], 1)
        return self._derive("edge_index", make)

    def to_graph_order(self, edges):
        """A tensor by edge in the graph's order, from one in the caller's."""
        if self.edge_order is None:
            return edges
        return edges.index_select(0, self.order)

    def to_caller_order(self, edges):
        """A tensor by edge in the caller's order, from one in the graph's."""
        inverse = self.inverse
        return edges if inverse is None else edges.index_select(0, inverse)

    def with_self_loops(self):
        """The graph without its self loops, and with one new loop for each
        node that is both a source and a destination, as the last edges: PyG's
        attention layers do the same."""
        if self.looped is None:
            self.looped = lasting(self._make_looped)
        return self.looped

    def _given(self):
        """The edge list that the graph was made of, before loops, if it still
        exists and is unchanged."""
        if self._edge_list is None:
            return None
        edges, known = self._edge_list[0](), self._edge_list[1]
        return edges if edges is not None and is_stamped(edges, known) else None

    def in_order(self, edges):
        """to_graph_order() of to_looped_edges()."""
        rows = self._rows(edges.size(0))
        return edges if rows is None else edges.index_select(0, rows)

    def as_given(self, edges, count):
        """The inverse of in_order(), with count rows: those of removed loops
        are 0."""
        if count == self.num_edges or self.loops is None:
            return self.to_caller_order(edges)
        out = edges.new_zeros((count,) + tuple(edges.shape[1:]))
        return out.index_copy_(0, self._rows(count), edges)

    def _rows(self, count):
        """[E] the row of each edge in a tensor of count rows in the caller's
        order; None if it has them in the graph's."""
        def make():
            return self.order if count == self.num_edges else \
                self.to_graph_order(self.to_looped_edges(torch.arange(
                    count, device=self.device)))
        rows = self._derived.get(("rows", count))
        if rows is None and (self.loops is not None or (
                count == self.num_edges and self.edge_order is not None)):
            rows = self._derive(("rows", count), make)
        return rows

    def to_looped_edges(self, edges):
        """A tensor by the edges of this graph, which with_self_loops() made,
        from one [E + min(M, N)] by the edges before loops were added and then
        by the loops."""
        if edges.size(0) == self.num_edges or self.loops is None:
            return edges
        if edges.size(0) != self.unlooped_edges + self.loops:
            raise ValueError(
                f"a tensor by edge has {edges.size(0)} rows, expected "
                f"{self.num_edges} of the edges with loops, or "
                f"{self.unlooped_edges} of those before and {self.loops} of "
                "loops")
        return edges.index_select(0, self._looped_rows())

    def _looped_rows(self):
        def make():
            loops = torch.arange(self.loops, device=self.device)
            return torch.cat([self.kept, loops + self.unlooped_edges])
        return self._derive("looped rows", make)

    def _number_looped(self):
        """edge_order of a graph with loops: the library numbers all edges
        and then the loops, the caller the kept edges and then the loops."""
        order = self._array(2).long()
        compact = torch.empty(self.unlooped_edges + self.loops,
                              dtype=order.dtype, device=self.device)
        compact[self._looped_rows()] = torch.arange(self.num_edges,
                                                    device=self.device)
        return compact[order]

    @property
    def kept(self):
        """The numbers of the edges that were kept when the library replaced
        the self loops; None if it did not."""
        if self.loops is None:
            return None

        def make():
            there = torch.zeros(self.unlooped_edges + self.loops,
                                dtype=torch.bool, device=self.device)
            there[self._array(2).long()] = True
            there = there[:self.unlooped_edges]
            if compiling():  # the size of nonzero() would be unknown
                return there.logical_not().byte().argsort(stable=True)[
                    :self.num_edges - self.loops]
            return there.nonzero().view(-1)
        return self._derive("kept", make)
