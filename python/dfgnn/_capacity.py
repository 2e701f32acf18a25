"""Room for arguments of dfgnn.capture whose rows or edges differ from call to
call: buffers of one size, and graphs whose edges are written anew."""

import inspect
import weakref

import torch
from torch.utils import _pytree as pytree

from . import _handle, convert
from ._checks import check_count, describe
from ._modes import lasting
from .errors import InvalidError
from .graph import Graph

__all__ = ["Capacity", "Room"]

# Edges that are not in use lie among so many spare nodes: few rows, none of
# them long.  It is one number, so that what one layer gives by its
# destinations the next one takes by its sources.
SPARE = 256


class Room:
    """A tensor of at most `most` rows.  The step sees one of ``rows`` rows:
    those after the caller's hold `fill`."""

    def __init__(self, most, fill=0, *, spare=0):
        self.most, self.fill = check_count("most", most), fill
        self.rows = self.most + spare

    def filled(self, fill):
        """The same room, with other values after the caller's rows."""
        return Room(self.most, fill, spare=self.rows - self.most)

    def __repr__(self):
        return f"Room({self.most}, fill={self.fill})"

    def buffer(self, like, device):
        return _Rows(self, like, device)


class Capacity:
    """Room for graphs of at most so many nodes and edges.

    nodes: an int, or (sources, destinations) of a bipartite graph.
    edges: an int.

    Its rooms are for arguments of a step: ``edges`` for an edge_index,
    ``by_edge`` for tensors by edge in its order, ``sources`` and
    ``destinations`` (``nodes`` where they are the same) for tensors by node.
    The step sees ``num_sources`` and ``num_destinations`` nodes, 256 more than
    were asked for: edges that a batch does not use lead from spare nodes to
    spare nodes.
    """

    def __init__(self, nodes, edges):
        pair = nodes if isinstance(nodes, (tuple, list)) else (nodes, nodes)
        if len(pair) != 2:
            raise ValueError("nodes must be an int or (sources, "
                             f"destinations), got {nodes!r}")
        self.most = tuple(check_count("nodes", n) for n in pair)
        self.most_edges = check_count("edges", edges)
        self.sources, self.destinations = (
            Room(n, spare=SPARE) for n in self.most)
        self.square = not isinstance(nodes, (tuple, list))
        self.num_sources, self.num_destinations = (n + SPARE
                                                   for n in self.most)
        self.edges, self.by_edge = EdgeRoom(self), Room(self.most_edges)

    @property
    def nodes(self):
        if not self.square:
            raise AttributeError("sources and destinations of this Capacity "
                                 "differ: give the room of one of them")
        return self.sources

    def __repr__(self):
        return f"Capacity({self.most}, {self.most_edges})"


class EdgeRoom:
    """The room of an edge_index."""

    def __init__(self, capacity):
        self.capacity = capacity

    def buffer(self, like, device):
        return EdgeBuffer(self.capacity, like, device)


# ---- which arguments have room ----------------------------------------------

def rooms_of(step, capacity, form):
    """The rooms of the leaves of a step's arguments, by their number; form is
    their tree."""
    numbers = range(form.num_leaves)
    args, kwargs = pytree.tree_unflatten(list(numbers), form)
    given = inspect.signature(step).bind(*args, **kwargs).arguments
    found = {}
    for name, rooms in capacity.items():
        if name not in given:
            raise TypeError(f"capacity names {name!r}, but the arguments of "
                            f"the step are {', '.join(given) or 'none'}")
        _pair(name, rooms, given[name], found)
    return found


def _pair(name, rooms, number, found):
    if rooms is None:
        return
    if isinstance(rooms, (Room, EdgeRoom)):
        if not isinstance(number, int):
            raise TypeError(f"capacity has one room for {name}, which holds "
                            "several things: give them rooms of their own")
        found[number] = rooms
        return
    pairs = None
    if isinstance(rooms, dict) and isinstance(number, dict):
        pairs = [(f"{name}[{k!r}]", room, number.get(k))
                 for k, room in rooms.items()]
    elif isinstance(rooms, (tuple, list)) and \
            isinstance(number, (tuple, list)) and len(rooms) == len(number):
        pairs = [(f"{name}[{k}]", room, n)
                 for k, (room, n) in enumerate(zip(rooms, number))]
    if pairs is None:
        raise TypeError(f"capacity for {name} must be a room, None, or rooms "
                        f"in the shape of the argument, got {rooms!r}")
    for pair in pairs:
        _pair(*pair, found)


# ---- buffers ----------------------------------------------------------------

class _Rows:
    """A tensor of as many rows as a room has, and how many are the
    caller's."""

    def __init__(self, room, like, device):
        self.room, self.used = room, 0
        self.tensor = torch.full(
            (room.rows, *like.shape[1:]), room.fill, dtype=like.dtype,
            device=device).requires_grad_(like.requires_grad)

    def check(self, number, tensor):
        if tensor.size(0) > self.room.most:
            raise InvalidError(
                f"argument {number} of a captured step has {tensor.size(0)} "
                f"rows, and its room is of {self.room.most}")

    def write(self, tensor):
        count = tensor.size(0)
        self.tensor[:count].copy_(tensor, non_blocking=True)
        if count < self.used:
            self.tensor[count:self.used].fill_(self.room.fill)
        self.used = count


class EdgeBuffer:
    """An edge_index of as many edges as a capacity has, and the graphs that
    layers made of it, which get its edges in each step."""

    def __init__(self, capacity, like, device):
        self.capacity, self.used = capacity, 0
        count = capacity.most_edges
        spare = torch.arange(count, dtype=like.dtype,
                             device=device) % SPARE
        self.unused = torch.stack([spare + n for n in capacity.most])
        self.tensor = self.unused.clone()
        self.graphs = _Graphs(self)
        self.limits = torch.tensor(capacity.most, dtype=like.dtype,
                                   device=device).unsqueeze(1)
        # how many edges were left out, since one of their nodes is none
        self.wrong = torch.zeros((), dtype=torch.int64, device=device)
        self.told = torch.zeros((), dtype=torch.int64)
        if device.type == "cuda":
            self.told = self.told.pin_memory()
        self._keep()

    def _keep(self):
        convert.keep(self.tensor, self.graphs)

    def check(self, number, edges):
        most = self.capacity.most_edges
        if edges.dim() != 2 or edges.size(0) != 2:
            raise InvalidError(f"argument {number} of a captured step must be "
                               f"an edge_index [2, E], got {describe(edges)}")
        if edges.size(1) > most:
            raise InvalidError(
                f"argument {number} of a captured step has {edges.size(1)} "
                f"edges, and its capacity is {most}")
        if edges.device.type == "cpu" and edges.numel():
            for row, (ends, count) in enumerate(zip(edges,
                                                    self.capacity.most)):
                least, last = map(int, torch.aminmax(ends))
                if least < 0 or last >= count:
                    raise InvalidError(
                        f"argument {number} of a captured step has the node "
                        f"{least if least < 0 else last} in row {row}, and "
                        f"its capacity is 0 to {count - 1}")
        if int(self.told):
            count = int(self.told)
            self.wrong.zero_()
            self.told.zero_()
            raise InvalidError(
                f"{count} edges of the steps before were left out: their "
                f"nodes are not in the capacity of {self.capacity.most} "
                "sources and destinations")

    def write(self, edges):
        count, before = edges.size(1), self.used
        if count:
            self.tensor[:, :count].copy_(edges, non_blocking=True)
        if count < max(before, 1):
            unused = slice(count, max(before, 1))
            self.tensor[:, unused].copy_(self.unused[:, unused])
        self.used = count

    def refill(self):
        """Writes the edges into the graphs; the operations of a step that is
        recorded begin with these."""
        with torch.no_grad():
            strange = ((self.tensor < 0) | (self.tensor >= self.limits)).any(0)
            unused = (self.tensor >= self.limits).all(0) & (
                self.tensor == self.unused).all(0)
            self.wrong += (strange & ~unused).sum()
            self.told.copy_(self.wrong, non_blocking=True)
            self.sound = torch.where(strange, self.unused, self.tensor)
            for graph in self.graphs.values():
                graph.refill(self)
        self._keep()


class _Graphs(dict):
    """The graphs of an EdgeBuffer, by the key that convert gives them.  convert
    keeps them for as long as the buffer's tensor lives, which therefore neither
    they nor their graphs keep alive."""

    def __init__(self, buffer):
        super().__init__()
        self.buffer = weakref.ref(buffer)

    def make(self, key, num_nodes, loops):
        buffer = self.buffer()
        capacity = buffer.capacity
        expected = capacity.num_sources, capacity.num_destinations
        sizes = num_nodes if isinstance(num_nodes, (tuple, list)) else (
            num_nodes, num_nodes)
        if tuple(sizes) != expected:
            raise InvalidError(
                f"a layer was given edges of {sizes[0]} sources and "
                f"{sizes[1]} destinations, and the capacity of its edge_index "
                f"has {expected[0]} and {expected[1]}, spare ones included: "
                "give the features room in the same Capacity")
        self[key] = lasting(lambda: RefilledGraph(buffer, loops))
        return self[key]


class RefilledGraph(Graph):
    """The graph of an EdgeBuffer, whose arrays are written anew by refill().

    With loops, edges from a node to itself become unused ones, and each node
    has a loop, as the last edges.
    """

    def __init__(self, buffer, loops=False):
        self.buffer, self.looping = weakref.ref(buffer), loops
        capacity, device = buffer.capacity, buffer.tensor.device
        sizes = capacity.num_destinations, capacity.num_sources
        count = capacity.most_edges
        self._added = torch.arange(min(sizes), device=device)
        if loops:
            self.unlooped_edges = count
            count += min(sizes)

        def numbers(size):
            return torch.empty(size, dtype=torch.int32, device=device)
        self._arrays = numbers(sizes[0] + 1), numbers(count), numbers(count)
        self._columns = (numbers(sizes[1] + 1), numbers(count),
                         numbers(count))
        self._rows = [torch.arange(n + 1, dtype=torch.int32, device=device)
                      for n in sizes]
        self.trusted, self.generation = True, 0
        self._fill((*sizes, count), device, None, None, None)
        self.unlooped_edges = capacity.most_edges if loops else None
        with torch.no_grad():
            self.refill(buffer)
        self._handle = self._make_handle()

    def _make_handle(self):
        return _handle.from_csr(
            self._arrays[0], self._arrays[1], self.num_src, None, None, None,
            True, self._columns, refilled=True)

    def refill(self, buffer):
        """Sorts the buffer's edges by destination and by source."""
        self.generation += 1
        src, dst = edges = buffer.sound
        if self.looping:
            own = src == dst
            src, dst = torch.where(own, buffer.unused, edges)
            src, dst = (torch.cat([ends, self._added.to(ends.dtype)])
                        for ends in (src, dst))
        offsets, indices, order = self._arrays
        rows = self._sort(dst, offsets, order, self._rows[0])
        torch.index_select(src.to(torch.int32), 0, order, out=indices)
        begins, ends, edges = self._columns
        self._sort(indices, begins, edges, self._rows[1])
        torch.index_select(rows, 0, edges, out=ends)

    @staticmethod
    def _sort(keys, offsets, order, rows):
        """The sorted keys; writes their order, and where each row begins."""
        found, places = torch.sort(keys.to(torch.int32), stable=True)
        order.copy_(places)
        torch.searchsorted(found, rows, out_int32=True, out=offsets)
        return found

    # what is derived from the edges lasts until they are written anew

    def _derive(self, key, make):
        found = self._derived.get(key)
        if found is None or found[0] != self.generation:
            found = self._derived[key] = self.generation, make()
        return found[1]

    @property
    def edge_order(self):
        return self._arrays[2]

    @property
    def kept(self):
        return None if not self.looping else self._derive(
            "kept", lambda: torch.arange(self.unlooped_edges,
                                         device=self.device))

    def with_self_loops(self):
        if self.looping:
            return self
        sizes = self.num_src, self.num_dst
        key = convert.key_of(sizes, loops=True)
        graphs = self.buffer().graphs
        return graphs.get(key) or graphs.make(key, sizes, True)

    def to(self, device, non_blocking=False):
        raise InvalidError("the graph of a captured step stays on its device")
