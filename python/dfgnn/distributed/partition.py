"""Partitions: which rank owns each node, and the part that a rank loads."""

import ctypes
import os
import zipfile
from collections import namedtuple

import numpy
import torch

from .. import _abi
from .._checks import describe
from .._handle import csr_of
from .._library import check, library
from ..convert import as_graph

FORMAT = 1
PARTS_MAX = 4096  # DFGNN_PARTS_MAX
PART_NAME = "part-{rank}-of-{parts}.npz"
_HEAD = ("parts", "rank", "total_nodes", "total_edges", "fingerprint",
         "digest")
_ARRAYS = ("node", "halo", "receive", "send", "send_row", "first_edge",
           "offset", "index")


class Part(namedtuple("Part", _HEAD + _ARRAYS)):
    """One rank's share of a graph: numbers, and NumPy arrays.

    A row is one of its own nodes, and a column below len(node) is one, too;
    the columns after them are its halo.

    node, halo: the numbers of its own nodes and of its halo in the whole
        graph.
    receive [parts]: how many nodes of the halo each rank owns.
    send [parts], send_row: how many rows each rank reads, and which, rank by
        rank.
    first_edge: the number of each row's first edge in the whole graph's CSR
        order.
    offset, index: the matrix.
    """

    __slots__ = ()

    def save(self, path):
        """Writes the part as .npz, whole or not at all. Of files that are
        there, only a part and an empty one are replaced."""
        array = {name: numpy.ascontiguousarray(
            getattr(self, name),
            numpy.int32 if name == "index" else numpy.int64)
            for name in _ARRAYS}
        at = {name: array[name].ctypes.data for name in _ARRAYS}
        part = _abi.Part(
            parts=self.parts, rank=self.rank, total_nodes=self.total_nodes,
            total_edges=self.total_edges, nodes=len(self.node),
            halo=len(self.halo), edges=len(self.index),
            sends=len(self.send_row), fingerprint=self.fingerprint,
            digest=self.digest, halo_node=at.pop("halo"), **at)
        check(library().dfgnn_part_write(ctypes.byref(part), os.fsencode(path)))

    @classmethod
    def load(cls, path):
        """The part that save() or dfgnn-graph partition wrote."""
        try:
            file = numpy.load(path, allow_pickle=False)
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is no part: {error}") from None
        if not isinstance(file, numpy.lib.npyio.NpzFile):
            raise ValueError(f"{path} is one array, expected a part as "
                             "dfgnn-graph partition writes it")
        with file:
            missing = [n for n in ("part",) + _ARRAYS if n not in file]
            if missing:
                raise ValueError(
                    f"{path} has no array {missing[0]!r}; expected a part as "
                    "dfgnn-graph partition writes it")
            for name in ("part",) + _ARRAYS:
                _check_array(path, name, file[name])
            head = file["part"].tolist()
            if len(head) != 1 + len(_HEAD) or head[0] != FORMAT:
                raise ValueError(f"{path} is a part of format {head[:1]}, "
                                 f"expected {FORMAT}")
            part = cls(*head[1:], *(file[n] for n in _ARRAYS))
        _check(path, part)
        return part


def _check_array(path, name, array):
    if array.ndim != 1 or array.dtype.kind != "i":
        raise ValueError(f"{path} is damaged: {name} is {array.dtype} "
                         f"{list(array.shape)}, expected a list of signed "
                         "integers")


def _check(path, part):
    """Raises if the arrays contradict each other: a file is not trusted."""
    for name, least, most in (
            ("parts", 1, PARTS_MAX), ("rank", 0, part.parts - 1),
            ("total_nodes", len(part.node), 0x7fffffff),
            ("total_edges", len(part.index), 1 << 40)):
        value = getattr(part, name)
        if not least <= value <= most:
            raise ValueError(f"{path} is damaged: {name} is {value}, expected "
                             f"{least} to {most}")
    for name, most in (("node", part.total_nodes), ("halo", part.total_nodes),
                       ("first_edge", part.total_edges + 1)):
        array = getattr(part, name)
        if len(array) and not (0 <= array.min() and array.max() < most):
            raise ValueError(
                f"{path} is damaged: {name} goes from {array.min()} to "
                f"{array.max()}, expected 0 to {most - 1}")
    nodes, width = len(part.node), len(part.node) + len(part.halo)
    offset, index = part.offset, part.index
    refuse_unless(
        path,
        (len(part.send) == len(part.receive) == part.parts,
         "send or receive is not as long as there are parts"),
        (len(offset) == nodes + 1 and len(part.first_edge) == nodes,
         "offset or first_edge is not as long as node"),
        (int(part.receive.sum()) == len(part.halo)
         and (part.receive >= 0).all(), "receive does not add up to halo"),
        (int(part.send.sum()) == len(part.send_row)
         and (part.send >= 0).all(), "send does not add up to send_row"),
        (not len(part.send_row) or (0 <= part.send_row.min()
                                    and part.send_row.max() < nodes),
         "send_row names a row that is not there"),
        (offset[0] == 0 and (offset[1:] >= offset[:-1]).all()
         and offset[-1] == len(index), "offset does not rise to its edges"),
        (not len(index) or (0 <= index.min() and index.max() < width),
         "index names a column that is not there"))


def refuse_unless(path, *reasons):
    """Raises if one of these (whether it is sound, else the fault) is not."""
    for sound, fault in reasons:
        if not sound:
            raise ValueError(f"{path} is damaged: {fault}")


def _host_csr(graph):
    csr = csr_of(graph.handle)
    csr.on_device = 0
    return csr


def _array(pointer, count, dtype):
    """A copy of the library's array."""
    array = numpy.empty(count, dtype)
    if count:
        ctypes.memmove(array.ctypes.data, pointer, array.nbytes)
    return array


def _signed(number):
    return number - (1 << 64) if number >= 1 << 63 else number


class Partition:
    """A graph and the rank that owns each node: owner [N] int32."""

    def __init__(self, graph, owner, parts):
        self._graph = graph  # on the CPU
        self.owner, self.parts = owner, parts

    def part(self, rank):
        """The :class:`Part` of a rank."""
        pointer = ctypes.POINTER(_abi.Part)()
        lib = library()
        check(lib.dfgnn_part_create(
            ctypes.byref(pointer), ctypes.byref(_host_csr(self._graph)),
            self.owner.ctypes.data, self.parts, rank))
        try:
            p = pointer.contents
            wide = numpy.int64
            return Part(
                p.parts, p.rank, p.total_nodes, p.total_edges,
                _signed(p.fingerprint), _signed(p.digest),
                _array(p.node, p.nodes, wide),
                _array(p.halo_node, p.halo, wide),
                _array(p.receive, p.parts, wide),
                _array(p.send, p.parts, wide),
                _array(p.send_row, p.sends, wide),
                _array(p.first_edge, p.nodes, wide),
                _array(p.offset, p.nodes + 1, wide),
                _array(p.index, p.edges, numpy.int32))
        finally:
            lib.dfgnn_part_free(pointer)

    def save(self, folder):
        """Writes folder/part-R-of-P.npz for each rank."""
        os.makedirs(folder, exist_ok=True)
        for rank in range(self.parts):
            self.part(rank).save(os.path.join(
                folder, PART_NAME.format(rank=rank, parts=self.parts)))

    def __repr__(self):
        return f"Partition(parts={self.parts}, nodes={len(self.owner)})"


def part_path(folder, rank, parts):
    """The path of a rank's part; raises if there is no such file."""
    path = os.path.join(folder, PART_NAME.format(rank=rank, parts=parts))
    if not os.path.exists(path):
        there = sorted(n for n in os.listdir(folder)
                       if n.startswith("part-")) if os.path.isdir(folder) \
            else []
        raise FileNotFoundError(
            f"{path} does not exist; {folder} has "
            f"{', '.join(there[:4]) or 'no part'}; expected a partition in "
            f"{parts} parts, as dfgnn-graph partition makes it")
    return path


def partition(graph, parts, method="metis", *, num_nodes=None):
    """Divides the nodes of a square graph among ranks, each with about the
    same work (the edges of its rows, and 4 for each row).

    graph: a Graph or what :func:`dfgnn.as_graph` takes.
    method: "metis" (parts with few edges between them), "range" (rows in the
        order they have), or the rank of each node [N]: a tensor, an array or a
        list.
    Returns a :class:`Partition`; the same graph gives the same one anywhere.
    """
    parts = int(parts)
    graph = as_graph(graph, num_nodes)
    if graph.num_src != graph.num_dst:
        raise ValueError(
            f"graph has {graph.num_src} sources and {graph.num_dst} "
            "destinations, expected a square one, whose nodes are both")
    graph = graph.cpu()
    if not isinstance(method, str):
        owner = _owner_of(method, graph.num_dst, parts)
    elif method in _abi.PARTITIONINGS:
        owner = numpy.empty(graph.num_dst, numpy.int32)
        check(library().dfgnn_csr_partition(
            owner.ctypes.data, ctypes.byref(_host_csr(graph)), parts,
            _abi.PARTITIONINGS[method]))
    else:
        raise ValueError("method must be 'metis', 'range' or the rank of each "
                         f"node, got {method!r}")
    return Partition(graph, owner, parts)


def _owner_of(method, nodes, parts):
    owner = torch.as_tensor(method)
    if owner.dim() != 1 or owner.numel() != nodes or \
            owner.is_floating_point() or owner.dtype == torch.bool:
        raise ValueError(f"method must name the rank of each of {nodes} "
                         "nodes, got " + describe(owner))
    if nodes and not 0 <= int(owner.min()) <= int(owner.max()) < parts:
        raise ValueError(
            f"method has ranks {int(owner.min())} to {int(owner.max())}, "
            f"expected 0 to {parts - 1}")
    return numpy.ascontiguousarray(owner.cpu().numpy(), numpy.int32)
