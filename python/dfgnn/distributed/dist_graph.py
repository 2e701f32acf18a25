"""DistGraph: a rank's share of a graph, used in place of a Graph."""

import torch

from ..graph import Graph
from . import calls, start
from .exchange import Exchange, extend
from .partition import Part, part_path

_HALO = ("keep", "fetch")


class Split:
    """The edges of a rank in two matrices: interior (columns are own nodes)
    and outer (columns are the halo), whose rows are those of `boundary`."""

    # if at least this share of the rows reads the halo, the outer matrix has
    # all rows, so that none are gathered
    ALL_ROWS = 0.7

    def __init__(self, table, num_dst, numbers):
        rows, columns = table.dst, table.indices
        far = columns >= num_dst
        self.near_edges = (~far).nonzero().view(-1)
        self.far_edges = far.nonzero().view(-1)
        far_rows = rows[self.far_edges]
        is_boundary = torch.zeros(num_dst, dtype=torch.bool, device=rows.device)
        is_boundary[far_rows] = True
        self.boundary, count = None, int(is_boundary.sum())
        if count < self.ALL_ROWS * num_dst:
            self.boundary = is_boundary.nonzero().view(-1)
            far_rows = is_boundary.cumsum(0)[far_rows] - 1
        else:
            count = num_dst
        self.interior = self._matrix(
            rows[self.near_edges], columns[self.near_edges], num_dst, num_dst)
        self.outer = self._matrix(
            far_rows, columns[self.far_edges] - num_dst, count,
            table.num_src - num_dst)
        if numbers is not None:
            self.interior.edge_number = numbers[self.near_edges].contiguous()
            self.outer.edge_number = numbers[self.far_edges].contiguous()

    @staticmethod
    def _matrix(rows, columns, num_dst, num_src):
        offsets = torch.bincount(rows, minlength=num_dst).cumsum(0)
        offsets = torch.cat([offsets.new_zeros(1), offsets])
        if columns.numel() < 1 << 31:
            offsets = offsets.int()
        return Graph(offsets, columns.int(), num_src)

    def at_boundary(self, tensor):
        """The rows of a tensor of own nodes that the outer matrix has."""
        return tensor if self.boundary is None or tensor is None else \
            tensor.index_select(0, self.boundary)

    def whole_of(self, near, far, num_edges):
        """The tensor by all edges, from those by the interior's edges and by
        the outer matrix's."""
        out = near.new_empty((num_edges,) + tuple(near.shape[1:]))
        out.index_copy_(0, self.near_edges, near)
        return out.index_copy_(0, self.far_edges, far)


def _share(graph, other):
    """Makes graph one of the same matrix and handle as other."""
    graph._fill((other.num_dst, other.num_src, other.num_edges), other.device,
                None, other.family, other.name)
    for name in ("_arrays", "_columns", "trusted", "loops", "unlooped_edges",
                 "_handle"):
        setattr(graph, name, getattr(other, name))


class DistGraph(Graph):
    """The rows of a rank's own nodes; layers of dfgnn.nn and the functions of
    dfgnn take it in place of a Graph, with tensors of the rank's own nodes.

    As a Graph its columns are own nodes, then the halo; edge_index, edge
    features and weights are by the rank's own edges, :attr:`edges`.
    """

    attend, sums = calls.attend, calls.sums

    def __init__(self, part, group=None, device="cpu", *, halo="keep",
                 family=None, name=None):
        """part: a :class:`Part`, of as many parts as the group has ranks.
        halo: "keep" the halo that came for the backward pass, or "fetch" it
            again, which takes less memory and more time.
        """
        if halo not in _HALO:
            raise ValueError(f"halo must be one of {_HALO}, got {halo!r}")
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        start.choose_alike(group, device)
        start.check_part(part, group, device)
        super().__init__(
            torch.from_numpy(part.offset).to(device),
            torch.from_numpy(part.index).to(device),
            len(part.node) + len(part.halo), family=family, name=name)
        self.halo_mode = halo
        self.group = group
        self.rank, self.world = part.rank, part.parts
        self.total_nodes, self.total_edges = part.total_nodes, part.total_edges
        self.fingerprint, self.digest = part.fingerprint, part.digest
        self.nodes = torch.from_numpy(part.node).to(device)
        self.halo = torch.from_numpy(part.halo).to(device)
        self.first_edge = torch.from_numpy(part.first_edge).to(device)
        self.exchange = Exchange(part, group, device)
        start.settle(self.exchange, group)
        self._split = None
        self.edge_number = self.edges

    @classmethod
    def _derived_of(cls, other, table, numbers):
        """A DistGraph of other's nodes with the edges of table, which have
        these numbers in the whole graph."""
        graph = cls.__new__(cls)
        _share(graph, table)
        for name in ("halo_mode", "group", "rank", "world", "total_nodes",
                     "total_edges", "fingerprint", "digest", "nodes", "halo",
                     "first_edge", "exchange"):
            setattr(graph, name, getattr(other, name))
        graph._split = None
        graph.edge_number = numbers
        return graph

    @property
    def split(self):
        """Interior and outer matrix, made when a fused path first asks."""
        if self._split is None:
            self._split = Split(self.table, self.num_dst, self.edge_number)
        return self._split

    @property
    def table(self):
        """The plain Graph whose sources are own nodes and then the halo."""
        return self._derive("table", self._make_table)

    def _make_table(self):
        graph = Graph.__new__(Graph)
        _share(graph, self)
        graph.edge_number = self.edge_number
        return graph

    def with_self_loops(self):
        if self.looped is None:
            plain = Graph.with_self_loops(self.table)
            numbers = self._loop_numbers(plain)
            self.looped = DistGraph._derived_of(self, plain, numbers)
        return self.looped

    def _loop_numbers(self, plain):
        """The numbers that with_self_loops() of the whole graph would give the
        edges: earlier rows have lost their loops, and have one new loop
        each."""
        looped = self.dst[self.indices == self.dst]
        gone = self.exchange_lists(self.nodes[looped])
        first = (self.first_edge + self.nodes
                 - torch.searchsorted(gone, self.nodes))
        place = (torch.arange(plain.num_edges, device=self.device)
                 - plain.offsets.long()[plain.dst])
        return first[plain.dst] + place

    def exchange_lists(self, mine):
        """The lists of all ranks as one, sorted."""
        if self.world == 1:
            return mine.sort()[0]
        lists = start.gather(mine.tolist(), self.group)
        return torch.tensor(sorted(sum(lists, [])), dtype=torch.int64,
                            device=self.device)

    @property
    def edges(self):
        """[E] the number in the whole graph of each of the rank's edges."""
        def make():
            place = (torch.arange(self.num_edges, device=self.device)
                     - self.offsets.long()[self.dst])
            return self.first_edge[self.dst] + place
        return self._derive("edges", make)

    def extend(self, x):
        """[own + halo, ...] from a tensor of own nodes; its gradient adds
        those of other ranks' copies.  Calls that cannot overlap with the
        exchange use it."""
        return extend(self, x)

    # ---- between the whole and a rank's share

    def local_nodes(self, tensor):
        """The rank's rows of a tensor [N, ...] by the nodes of the whole."""
        rows = self.nodes.to(tensor.device)
        return tensor.index_select(0, rows).to(self.device)

    def local_edges(self, tensor):
        """The rank's rows of a tensor [E, ...] by the edges of the whole, in
        its CSR order."""
        rows = self.edges.to(tensor.device)
        return tensor.index_select(0, rows).to(self.device)

    def gather_nodes(self, x, to=None):
        """[N, ...] by the nodes of the whole, from each rank's rows: on rank
        `to`, None elsewhere; on all ranks by default.  If it is saved, any
        number of ranks can load it."""
        x = x.detach().cpu()
        parts = start.gather((self.nodes.cpu(), x), self.group)
        if to is not None and to != self.rank:
            return None
        whole = x.new_zeros((self.total_nodes,) + tuple(x.shape[1:]))
        for rows, values in parts:
            whole[rows] = values
        return whole

    def to(self, device, non_blocking=False):
        raise NotImplementedError(
            "a DistGraph stays where it was made; load the part on the other "
            "device")

    def __reduce__(self):
        raise TypeError("a DistGraph belongs to its process; save the "
                        "Partition, and load it in each rank")

    def __repr__(self):
        return (f"DistGraph(rank={self.rank} of {self.world}, "
                f"nodes={self.num_dst} of {self.total_nodes}, "
                f"halo={self.num_src - self.num_dst}, "
                f"num_edges={self.num_edges}, device='{self.device}')")


def load(folder, group=None, device="cpu", **options):
    """The DistGraph of this rank, from a folder that Partition.save() or
    dfgnn-graph partition wrote; options are DistGraph's."""
    return DistGraph(start.load(
        lambda *rank: Part.load(part_path(folder, *rank)), group), group,
        device, **options)
