"""Graphs of several relations over several ranks: each owns some nodes of all
types and the in-edges of these."""

import json
import os
from typing import NamedTuple

import numpy
import torch
import torch.nn.functional as F

from .._checks import describe
from .._modes import lasting
from ..hetero import HeteroGraph
from . import start
from .dist_graph import DistGraph
from .partition import (
    PART_NAME, Part, part_path, partition, refuse_unless)

_NAME = "relations-{rank}-of-{parts}.npz"


class HeteroPart(NamedTuple):
    """One rank's share of a :class:`dfgnn.HeteroGraph`.

    part: the :class:`Part` of the graph of all types, whose nodes are those of
        the first type, then those of the second and so on.
    sizes: by type its number of nodes in the whole graph.
    relations: [(source type, name, destination type)], or how many there are
        in a graph whose edges came in one list.
    edge_type, edge_number: by the part's edges the number of the relation, and
        the edge's number among those of the relation, or in the one list.
    """
    part: Part
    sizes: dict
    relations: object
    edge_type: numpy.ndarray
    edge_number: numpy.ndarray

    def save(self, folder):
        """Writes folder/part-R-of-P.npz and folder/relations-R-of-P.npz."""
        os.makedirs(folder, exist_ok=True)
        names = dict(rank=self.part.rank, parts=self.part.parts)
        self.part.save(os.path.join(folder, PART_NAME.format(**names)))
        about = json.dumps({"types": list(self.sizes.items()),
                            "relations": self.relations})
        path = os.path.join(folder, _NAME.format(**names))
        numpy.savez(path + ".new.npz", edge_type=self.edge_type,
                    edge_number=self.edge_number,
                    about=numpy.frombuffer(about.encode(), numpy.uint8))
        os.replace(path + ".new.npz", path)

    @classmethod
    def load(cls, folder, rank, parts):
        """The part that save() wrote for a rank."""
        part = Part.load(part_path(folder, rank, parts))
        path = os.path.join(folder, _NAME.format(rank=rank, parts=parts))
        if not os.path.exists(path):
            raise FileNotFoundError(
                f"{path} does not exist; expected a partition of relations, "
                "as HeteroPartition.save() writes it")
        with numpy.load(path, allow_pickle=False) as file:
            about = json.loads(bytes(file["about"]).decode())
            result = cls(part, dict(map(tuple, about["types"])),
                         about["relations"] if isinstance(
                             about["relations"], int)
                         else [tuple(r) for r in about["relations"]],
                         file["edge_type"], file["edge_number"])
        result._check(path)
        return result

    def _check(self, path):
        count = self.relations if isinstance(self.relations, int) else len(
            self.relations)
        edges = len(self.part.index)
        refuse_unless(
            path,
            (sum(self.sizes.values()) == self.part.total_nodes,
             "its types do not add up to the nodes of the part"),
            (len(self.edge_type) == len(self.edge_number) == edges,
             "it has not a relation for each edge of the part"),
            (not edges or 0 <= self.edge_type.min()
             and self.edge_type.max() < count,
             "an edge has a relation that is not there"))


class HeteroPartition:
    """A HeteroGraph and the rank that owns each node; owner: by type [N]
    int32."""

    def __init__(self, graph, parts, method):
        for kind, count in graph.num_src.items():
            if count != graph.num_dst[kind]:
                raise ValueError(
                    f"{kind!r} has {count} sources and {graph.num_dst[kind]} "
                    "destinations, expected a whole graph, whose nodes are "
                    "both")
        self._graph = graph
        self._union = graph.graph(graph.by_node("dst"), graph.by_node("src"))
        self._whole = partition(self._union, parts, self._owners(method))
        self.parts = parts
        self.owner = dict(zip(graph.num_dst, numpy.split(
            self._whole.owner, numpy.cumsum(list(graph.num_dst.values()))
            [:-1])))

    def _owners(self, method):
        if not isinstance(method, dict):
            return method
        missing = set(self._graph.num_dst) - set(method)
        if missing:
            raise ValueError("method names no ranks for " + ", ".join(
                map(repr, sorted(missing))))
        return torch.cat([torch.as_tensor(method[kind])
                          for kind in self._graph.num_dst])

    def part(self, rank):
        """The :class:`HeteroPart` of a rank."""
        part, graph = self._whole.part(rank), self._graph
        counts = numpy.diff(part.offset)
        number = numpy.repeat(part.first_edge - part.offset[:-1], counts) \
            + numpy.arange(len(part.index))
        order = self._union.edge_order
        number = torch.from_numpy(number).to(graph.device)
        number = number if order is None else order.long()[number]
        kind = graph.edge_type.long()[number]
        relations = graph.num_relations
        if graph.counts is not None:
            starts = torch.tensor([0, *graph.counts]).cumsum(0)
            number = number - starts.to(graph.device)[kind]
            relations = list(graph.relations)
        return HeteroPart(part, dict(graph.num_dst), relations,
                          kind.cpu().numpy(), number.cpu().numpy())

    def save(self, folder):
        """Writes the files of each rank."""
        for rank in range(self.parts):
            self.part(rank).save(folder)


def partition_relations(graph, parts, method="metis"):
    """Divides the nodes of a :class:`dfgnn.HeteroGraph` among ranks, each with
    about the same work, whatever the types are.

    method: as of :func:`partition`; or by type of nodes the rank of each.
    Returns a :class:`HeteroPartition`.
    """
    if not isinstance(graph, HeteroGraph):
        raise TypeError("graph must be a dfgnn.HeteroGraph, got "
                        + describe(graph))
    return HeteroPartition(graph, int(parts), method)


class DistHeteroGraph(HeteroGraph):
    """A rank's share of a HeteroGraph: its destinations are the rank's own
    nodes, its sources these and then the halo.  Accelerated HeteroConv, HGTConv
    and HANConv take it in the place of edge_index_dict, with features of own
    nodes by type; other layers over pairs take extend(x).

    nodes, halo: by type the numbers of the rank's own nodes and of its halo in
        the whole graph.
    edges: by relation the numbers, in the whole graph, of the rank's edges, in
        the order of edge_index; of a graph of one list, the numbers in it.
    """

    is_whole = False

    def __init__(self, part, group=None, device="cpu", *, halo="keep",
                 family=None):
        """part: a :class:`HeteroPart`; the rest as of DistGraph."""
        self.ranks = DistGraph(part.part, group, device, halo=halo)
        self.total_nodes = dict(part.sizes)
        place = self._place_nodes(part.sizes)
        one_list = isinstance(part.relations, int)
        self._set_schema([("", r, "") for r in range(part.relations)]
                         if one_list else part.relations, {
            kind: (count, len(self.nodes[kind]))
            for kind, count in zip(self.nodes, self._counts)})
        kind, number = (torch.from_numpy(t).to(self.ranks.device)
                        for t in (part.edge_type, part.edge_number))
        # own nodes come before the halo, in the part and in each type
        edges = torch.stack([place[self.ranks.indices.long()],
                             place[self.ranks.dst.long()]])
        if one_list:
            self._edge_type, self.edges = lasting(kind.clone), number
        else:
            order = kind.argsort(stable=True)
            self.counts = tuple(torch.bincount(
                kind, minlength=self.num_relations).tolist())
            edges = edges[:, order]
            self.edges = dict(zip(self.relations,
                                  number[order].split(self.counts)))
        self._set_edges(lasting(edges.clone), family, True)

    def _place_nodes(self, sizes):
        """The place of each node of the part among those of its type."""
        everyone = torch.cat([self.ranks.nodes, self.ranks.halo])
        ends = torch.tensor(list(sizes.values())).cumsum(0).to(everyone.device)
        kind = torch.searchsorted(ends, everyone, right=True)
        own_kind = kind[:self.ranks.nodes.numel()]
        if bool((own_kind.diff() < 0).any()):
            raise ValueError("nodes of the part are not in order of types")
        # extend() joins the nodes of a type: its own, then its halo
        self._order = kind.argsort(stable=True)
        counts, own_counts = (torch.bincount(t, minlength=len(sizes)).tolist()
                              for t in (kind, own_kind))
        self._counts, self.nodes, self.halo = counts, {}, {}
        place, first = torch.empty_like(everyone), 0
        for (name, size), nodes, n in zip(
                sizes.items(), self._order.split(counts), own_counts):
            numbers = everyone[nodes] - first
            self.nodes[name], self.halo[name] = numbers[:n], numbers[n:]
            place[nodes] = torch.arange(nodes.numel(), device=nodes.device)
            first += size
        return place

    def extend(self, x):
        """By type the features of own nodes and then of the halo, from those of
        own nodes.  Gradients of the halo go to the ranks that own it: all ranks
        call it, and its backward pass, in the same order."""
        for kind, count in self.num_dst.items():
            if kind not in x or x[kind].size(0) != count:
                raise ValueError(
                    f"x must have a row for each of the rank's {count} nodes "
                    f"of type {kind!r}, got " + (
                        describe(x[kind]) if kind in x else "none"))
        rows = [x[kind].flatten(1) for kind in self.num_dst]
        widest = max(part.size(1) for part in rows)
        table = self.ranks.extend(torch.cat(
            [F.pad(part, (0, widest - part.size(1))) for part in rows]))
        parts = table.index_select(0, self._order).split(self._counts)
        return {kind: part[:, :flat.size(1)].reshape(
            -1, *x[kind].shape[1:]) for (kind, part), flat in zip(
                zip(self.num_dst, parts), rows)}

    def mean_of(self, kind, rows):
        """The mean over all nodes of a type, of all ranks."""
        total = rows.sum(0)
        if self.ranks.world > 1:
            from torch.distributed.nn.functional import all_reduce
            total = all_reduce(total, group=self.ranks.group)
        return total / max(1, self.total_nodes[kind])

    # ---- between the whole and a rank's share

    def local_nodes(self, by_type):
        """The rank's rows of tensors [N, ...] by type."""
        return {kind: t.index_select(0, self.nodes[kind].to(t.device)).to(
            self.device) for kind, t in by_type.items()}

    def local_edges(self, edges):
        """The rank's rows of tensors [E, ...] by relation, or of one tensor by
        the edges of one list."""
        def mine(tensor, numbers):
            return tensor.index_select(0, numbers.to(tensor.device)).to(
                self.device)
        if isinstance(edges, dict):
            return {key: mine(t, self.edges[key]) for key, t in edges.items()}
        return mine(edges, self.edges)

    def to(self, device):
        raise NotImplementedError(
            "a DistHeteroGraph stays where it was made; load the part on the "
            "other device")

    def __reduce__(self):
        raise TypeError("a DistHeteroGraph belongs to its process; save the "
                        "HeteroPartition, and load it in each rank")

    def __repr__(self):
        return (f"DistHeteroGraph(rank={self.ranks.rank} of "
                f"{self.ranks.world}, {self.num_relations} relations, nodes="
                f"{self.num_dst}, num_edges={self.num_edges}, "
                f"device='{self.device}')")


def load_relations(folder, group=None, device="cpu", **options):
    """The DistHeteroGraph of this rank, from a folder that
    HeteroPartition.save() wrote; options are DistHeteroGraph's."""
    return DistHeteroGraph(start.load(
        lambda *rank: HeteroPart.load(folder, *rank), group), group, device,
        **options)
