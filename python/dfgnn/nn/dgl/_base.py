"""The base classes and helpers of the layers of dfgnn.nn.dgl."""

import functools
import sys

import torch
from torch import nn

from ..._recorders import reduced as over_edges
from ...aggregation import aggregate
from ...convert import as_graph
from .._guards import surroundings


class DGLError(RuntimeError):
    """The counterpart of dgl.DGLError; if dgl was imported, the error that is
    raised is also a dgl.DGLError."""


@functools.lru_cache(None)
def _both(theirs):
    return type("DGLError", (DGLError, theirs), {"__doc__": DGLError.__doc__})


def dgl_error(message):
    theirs = getattr(sys.modules.get("dgl"), "DGLError", None)
    return (DGLError if theirs is None else _both(theirs))(message)


class Layer(nn.Module):
    """A layer over a graph and features of its sources, or of its sources and
    destinations."""

    def runs_in_steps(self):
        """Whether this call cannot be one node of autograd, whatever its
        arguments are."""
        return surroundings() is not None

    def graph(self, graph, feat):
        if isinstance(feat, tuple):
            size = (feat[0].size(0), feat[1].size(0))
        else:
            size = feat.size(0)
        return as_graph(graph, size)


class Checked(Layer):
    """A Layer that refuses destinations without edges unless told otherwise."""

    def __init__(self, allow_zero_in_degree):
        super().__init__()
        self._allow_zero_in_degree = allow_zero_in_degree

    def set_allow_zero_in_degree(self, value):
        self._allow_zero_in_degree = value

    def graph(self, graph, feat):
        graph = super().graph(graph, feat)
        if not self._allow_zero_in_degree and has_isolated(graph):
            raise dgl_error(
                "the graph has destinations without in-edges, whose output "
                "is 0; add self loops, or set allow_zero_in_degree=True")
        return graph


def has_isolated(graph):
    """Whether a destination has no edges; found once for each graph."""
    if not hasattr(graph, "_isolated"):
        graph._isolated = bool((graph.degrees == 0).any())
    return graph._isolated


def out_degrees(graph):
    return graph._derive("out degrees", lambda: torch.bincount(
        graph.src, minlength=graph.num_src))


def as_pair(value):
    return value if isinstance(value, (tuple, list)) else (value, value)


def split(graph, feat):
    """(features of sources, features of destinations): of a block, the
    destinations are the first sources."""
    if isinstance(feat, tuple):
        return feat
    return feat, feat[:graph.num_dst]


def heads_of(feat):
    """[N, heads, D] of features [N, ..., D]."""
    if feat.dim() < 2:
        raise dgl_error("features must be [nodes, ..., features], got "
                        f"{list(feat.shape)}")
    count = 1
    for size in feat.shape[1:-1]:
        count *= size
    return feat.reshape(feat.size(0), count, feat.size(-1))


def reduced(graph, feat, reduce, edge_weight=None):
    """[num_dst, ..., F] neighbours of feat [N, ..., F], each times the weight
    of its edge, reduced."""
    if edge_weight is not None:
        if edge_weight.size(0) != graph.num_edges:
            raise dgl_error(f"edge_weight must be [edges={graph.num_edges}], "
                            f"got {list(edge_weight.shape)}")
        if edge_weight.numel() != graph.num_edges:
            # a number for each feature: DGL broadcasts weights and features
            src, dst = graph.edge_index
            return over_edges(reduce, feat.index_select(0, src) * edge_weight,
                              dst, graph.num_dst)
        edge_weight = edge_weight.reshape(-1)
    value = feat.reshape(-1, 1, 1) if feat.dim() == 1 else heads_of(feat)
    out = aggregate(graph, value, reduce, edge_weight, num_dst=graph.num_dst)
    return out.reshape((graph.num_dst,) + tuple(feat.shape[1:]))
