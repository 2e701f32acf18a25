"""Graphs of a captured step, whose edges are written anew in each."""

import weakref

import torch

from . import _handle, _remember
from ._counts import Faults
from ._modes import lasting
from .convert import forget
from .errors import InvalidError
from .graph import Graph
from .hetero import HeteroGraph


class Refilled(Graph):
    """A Graph of a fixed number of edges.  A subclass has refill(source), which
    hands all edges to write()."""

    def __init__(self, num_dst, num_src, num_edges, device):
        def numbers(size):
            return torch.empty(size, dtype=torch.int32, device=device)
        self._arrays = (numbers(num_dst + 1), numbers(num_edges),
                        numbers(num_edges))
        self._columns = (numbers(num_src + 1), numbers(num_edges),
                         numbers(num_edges))
        self._rows = [torch.arange(n + 1, dtype=torch.int32, device=device)
                      for n in (num_dst, num_src)]
        self.trusted, self.generation = True, 0
        self._fill((num_dst, num_src, num_edges), device, None, None, None)

    def begin(self, source):
        """Writes the first edges, which the library then looks at."""
        with torch.no_grad():
            self.refill(source)
        self._handle = self._make_handle()

    def _make_handle(self):
        return _handle.from_csr(
            self._arrays[0], self._arrays[1], self.num_src, None, None, None,
            True, self._columns, refilled=True)

    def write(self, src, dst):
        """Sorts edges by destination and by source."""
        self.generation += 1
        offsets, indices, order = self._arrays
        rows = self._sort(dst, offsets, order, self._rows[0])
        torch.index_select(src.to(torch.int32), 0, order, out=indices)
        begins, ends, edges = self._columns
        self._sort(indices, begins, edges, self._rows[1])
        torch.index_select(rows, 0, edges, out=ends)

    @staticmethod
    def _sort(keys, offsets, order, rows):
        """The sorted keys; writes their order, and where each row begins."""
        sorted_keys, places = torch.sort(keys.to(torch.int32), stable=True)
        order.copy_(places)
        torch.searchsorted(sorted_keys, rows, out_int32=True, out=offsets)
        return sorted_keys

    # what is derived from the edges lasts until they are written anew

    def _derive(self, key, make):
        entry = self._derived.get(key)
        if entry is None or entry[0] != self.generation:
            entry = self._derived[key] = self.generation, make()
        return entry[1]

    @property
    def edge_order(self):
        return self._arrays[2]

    def to(self, device, non_blocking=False):
        raise InvalidError("the graph of a captured step stays on its device")


class OfStep(Refilled):
    """The Graph of an edge_index that a captured step makes itself."""

    def __init__(self, edges, num_nodes):
        self.faults = Faults(edges.device)
        super().__init__(num_nodes[1], num_nodes[0], edges.size(1), edges.device)
        self.begin(edges)

    def refill(self, edges):
        self.owner = weakref.ref(edges)
        src, dst = edges
        strange = (src < 0) | (src >= self.num_src) | (dst < 0) | (
            dst >= self.num_dst)
        self.faults.number += strange.sum()
        self.faults.send()
        self.write(*edges.masked_fill(strange, 0))

    def tell(self):
        """Raises an error if steps that are over made edges of no nodes."""
        count = self.faults.take()
        if count:
            raise InvalidError(
                f"{count} edges that captured steps before made led from or to "
                f"none of their {self.num_src} sources and {self.num_dst} "
                "destinations: the results of those steps are wrong")


class GraphsOfStep:
    """The graphs of the edge_indexes that a captured step makes, in its order:
    the last step of the warm-up makes them, the recording writes their edges
    anew."""

    def __init__(self):
        self.graphs = []

    def begin(self):
        self.graphs = []

    def make(self, edges, num_nodes):
        self.graphs.append(lasting(lambda: OfStep(edges, num_nodes)))
        return self.graphs[-1]

    def again(self):
        """What takes the place of make() in a recording."""
        left = iter(self.graphs)

        def find(edges, num_nodes):
            # one that ran already is of a tensor that the step did not write
            used = _remember.current.graphs
            graph = next((g for g in left if id(g) not in used), None)
            if graph is None or edges.device != graph.device or (
                    *num_nodes, edges.size(1)) != (
                    graph.num_src, graph.num_dst, graph.num_edges):
                return None  # an error says that such a graph waits
            owner = graph.owner()
            if owner is not edges:
                forget(owner)  # which may outlive its step
            with torch.no_grad():
                graph.refill(edges)
            return graph
        return find

    def tell(self):
        for graph in self.graphs:
            graph.tell()


class _Between(Refilled):
    """The Graph of a HeteroGraph's layouts of rows and columns."""

    def __init__(self, relations, rows, columns):
        self.layouts = rows, columns
        super().__init__(rows.size, columns.size, relations.num_edges,
                         relations.device)
        self.begin(relations)

    def refill(self, relations):
        self.write(*relations.placed(*self.layouts))


# The keys of what Schema and layers derive from numbers of nodes alone.
_OF_SIZES = {"by_node", "type_begins", "by_relation", "blocks", "in_turn"}


class RefilledRelations(HeteroGraph):
    """The HeteroGraph of EdgeBuffers by relation.  Which edges there are
    changes from step to step, so that no layout depends on their number."""

    def __init__(self, buffers, num_nodes):
        self._set_schema(buffers, num_nodes)
        self._buffers = [weakref.ref(buffer) for buffer in buffers.values()]
        self.counts = tuple(buffer.capacity.most_edges
                            for buffer in buffers.values())
        self._between = {}
        self._set_edges(self._joined(), None, True)

    def _joined(self):
        """[2, E] the edges of all buffers."""
        self._of_edges = {}
        return torch.cat([buffer().sound for buffer in self._buffers], 1)

    def refill(self, _):
        self.edge_index = self._joined()
        for graph in self._between.values():
            graph.refill(self)

    def _derive(self, key, make):
        if (key if isinstance(key, str) else key[0]) in _OF_SIZES:
            return super()._derive(key, make)
        value = self._of_edges.get(key)
        if value is None:
            value = self._of_edges[key] = make()
        return value

    def graph(self, rows, columns):
        key = rows, columns
        graph = self._between.get(key)
        if graph is None:
            graph = self._between[key] = lasting(lambda: _Between(self, *key))
        return graph

    def as_sent(self):
        return self.by_relation("src")

    def has_few_pairs(self):
        return False
