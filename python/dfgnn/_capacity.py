"""Room for arguments of dfgnn.capture whose rows or edges differ from call to
call: buffers of one size, whose graphs get their edges anew."""

import inspect
import weakref

import torch
from torch.utils import _pytree as pytree

from . import convert
from ._checks import check_count, describe
from ._counts import Faults
from ._modes import lasting
from ._refilled import Refilled, RefilledRelations
from ._remember import keep
from .errors import InvalidError

# Unused edges lie among this many spare nodes: few rows, none of them long.  It
# is one number, so that what one layer gives by its destinations the next one
# takes by its sources.
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


class HeteroCapacity:
    """Room for graphs of several relations.

    nodes: by type the most nodes.
    edges: by relation (source type, name, destination type) the most edges.

    Its rooms are dictionaries: ``nodes`` by type, ``edges`` and ``by_edge`` by
    relation, for arguments that are dictionaries of the same keys.
    ``num_nodes`` has by type how many the step sees.
    """

    def __init__(self, nodes, edges):
        for name, sizes in (("nodes", nodes), ("edges", edges)):
            if not isinstance(sizes, dict):
                raise TypeError(f"{name} must be a dict, got "
                                + describe(sizes))
        self.nodes = {kind: Room(n, spare=SPARE) for kind, n in nodes.items()}
        self.num_nodes = {kind: room.rows for kind, room in
                          self.nodes.items()}
        self.edges, self.by_edge = {}, {}
        for relation, most in edges.items():
            ends = relation[0], relation[-1]
            if not set(ends) <= set(nodes):
                raise ValueError(f"nodes has no type of {relation}; it has "
                                 + ", ".join(map(repr, nodes)))
            one = Capacity(tuple(nodes[kind] for kind in ends), most)
            self.edges[relation], self.by_edge[relation] = \
                one.edges, one.by_edge


class EdgeRoom:
    """The room of an edge_index."""

    def __init__(self, capacity):
        self.capacity = capacity

    def buffer(self, like, device):
        return EdgeBuffer(self.capacity, like, device)


def rooms_of(step, capacity, form):
    """The rooms of the leaves of a step's arguments, by their number; form is
    their tree."""
    numbers = range(form.num_leaves)
    args, kwargs = pytree.tree_unflatten(list(numbers), form)
    arguments = inspect.signature(step).bind(*args, **kwargs).arguments
    by_number = {}
    for name, rooms in capacity.items():
        if name not in arguments:
            raise TypeError(f"capacity names {name!r}, but the arguments of "
                            f"the step are {', '.join(arguments) or 'none'}")
        _pair(name, rooms, arguments[name], by_number)
    return by_number


def _pair(name, rooms, number, by_number):
    if rooms is None:
        return
    if isinstance(rooms, (Room, EdgeRoom)):
        if not isinstance(number, int):
            raise TypeError(f"capacity has one room for {name}, which holds "
                            "several things: give them rooms of their own")
        by_number[number] = rooms
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
        _pair(*pair, by_number)


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
        side_by_side([self])

    def keep(self):
        keep(self.tensor)[convert.GRAPHS] = self.graphs

    @property
    def sound(self):
        """The tensor with unused edges in the place of those that are
        wrong."""
        return self.among.sound.narrow(1, *self.among.places[id(self)])

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
        self.among.tell()

    def write(self, edges):
        count, before = edges.size(1), self.used
        if count:
            self.tensor[:, :count].copy_(edges, non_blocking=True)
        if count < max(before, 1):
            unused = slice(count, max(before, 1))
            self.tensor[:, unused].copy_(self.unused[:, unused])
        self.used = count


class _Among:
    """EdgeBuffers side by side in memory: one pass looks at all edges."""

    def __init__(self, buffers):
        counts = [b.capacity.most_edges for b in buffers]
        first, one = buffers[0], len(buffers) == 1

        def joined(parts):
            return parts[0] if one else torch.cat(parts, 1)
        self.tensor = joined([b.tensor for b in buffers])
        self.unused = joined([b.unused for b in buffers])
        self.limits = first.limits if one else torch.cat(
            [b.limits.expand(2, n) for b, n in zip(buffers, counts)], 1)
        self.most = list(dict.fromkeys(b.capacity.most for b in buffers))
        # edges that were left out, since one of their nodes is none
        self.faults = Faults(self.tensor.device)
        self.places = {}
        begin = 0
        for buffer, count in zip(buffers, counts):
            if not one:
                buffer.tensor = self.tensor.narrow(1, begin, count)
                buffer.unused = self.unused.narrow(1, begin, count)
            buffer.among, self.places[id(buffer)] = self, (begin, count)
            begin += count
        for buffer in buffers:
            buffer.keep()

    def look(self):
        strange = ((self.tensor < 0) | (self.tensor >= self.limits)).any(0)
        unused = (self.tensor >= self.limits).all(0) & (
            self.tensor == self.unused).all(0)
        self.faults.number += (strange & ~unused).sum()
        self.faults.send()
        self.sound = torch.where(strange, self.unused, self.tensor)

    def tell(self):
        count = self.faults.take()
        if not count:
            return
        raise InvalidError(
            f"{count} edges of the steps before were left out: their nodes "
            "are not in the capacity of " + " or ".join(map(str, self.most))
            + " sources and destinations")


def side_by_side(buffers):
    """Puts EdgeBuffers of one type of numbers side by side in memory."""
    for dtype in dict.fromkeys(b.tensor.dtype for b in buffers):
        _Among([b for b in buffers if b.tensor.dtype == dtype])


def refill(buffers):
    """Writes the edges of EdgeBuffers into their graphs; the operations of a
    step that is recorded begin with these."""
    with torch.no_grad():
        for among in {id(b.among): b.among for b in buffers}.values():
            among.look()
        for buffer in buffers:
            for graph in buffer.graphs.values():
                graph.refill(buffer)
    for buffer in buffers:
        buffer.keep()


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

    def relations(self, edges, num_nodes):
        """The HeteroGraph of the edge_index of several relations, all of which
        have room; this buffer's is the first."""
        key = ("relations", tuple(edges), tuple(num_nodes.items()))
        graph = self.get(key)
        if graph is None:
            buffers = {}
            for relation, tensor in edges.items():
                rooms = convert.rooms_of(tensor)
                if rooms is None:
                    raise InvalidError(f"the edges of {relation} have no room "
                                       "in the capacity of a captured step")
                buffers[relation] = rooms.buffer()
            _check_sizes(buffers, num_nodes)
            graph = self[key] = lasting(lambda: RefilledRelations(
                buffers, num_nodes))
        return graph


def _check_sizes(buffers, num_nodes):
    for relation, buffer in buffers.items():
        capacity = buffer.capacity
        for kind, side, count in zip(
                (relation[0], relation[-1]), (0, 1),
                (capacity.num_sources, capacity.num_destinations)):
            size = num_nodes[kind]
            size = size[side] if isinstance(size, tuple) else size
            if size != count:
                raise InvalidError(
                    f"{kind} has {size} nodes, and the capacity of the edges "
                    f"of {relation} has {count}, spare ones included: give "
                    "features and edges room in one HeteroCapacity")


class RefilledGraph(Refilled):
    """The graph of an EdgeBuffer, whose arrays are written anew by refill().

    With loops, edges from a node to itself become unused ones, and each node
    has a loop, as the last edges.
    """

    def __init__(self, buffer, loops=False):
        self.buffer, self.looping = weakref.ref(buffer), loops
        capacity, device = buffer.capacity, buffer.tensor.device
        sizes = capacity.num_destinations, capacity.num_sources
        self._added = torch.arange(min(sizes), device=device)
        count = capacity.most_edges
        super().__init__(*sizes, count + (min(sizes) if loops else 0), device)
        self.unlooped_edges = count if loops else None
        self.begin(buffer)

    def refill(self, buffer):
        src, dst = edges = buffer.sound
        if self.looping:
            loops = src == dst
            src, dst = torch.where(loops, buffer.unused, edges)
            src, dst = (torch.cat([ends, self._added.to(ends.dtype)])
                        for ends in (src, dst))
        self.write(src, dst)

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
