"""Graphs that are larger than one GPU, over torch.distributed.

    parts = dfgnn.distributed.partition(edge_index, world, num_nodes=n)
    parts.save("parts")                                   # once

    torch.distributed.init_process_group("nccl")          # in each rank
    graph = dfgnn.distributed.load("parts", device="cuda")
    x = graph.local_nodes(features)
    out = conv(x, graph)                       # any layer of dfgnn.nn

See docs/distributed.md.
"""

from .dist_graph import DistGraph, load
from ..errors import DistributedError
from .partition import Part, Partition, partition
from .start import agree
from .relations import (
    DistHeteroGraph, HeteroPart, HeteroPartition, load_relations,
    partition_relations)

__all__ = ["DistGraph", "DistHeteroGraph", "DistributedError", "HeteroPart",
           "HeteroPartition", "Part", "Partition", "agree", "load",
           "load_relations", "partition", "partition_relations"]
