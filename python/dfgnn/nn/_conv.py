"""What the layers share."""

import torch
from torch import nn

from .._loops import loop_features
from .._modes import untraced
from ..convert import as_graph
from ..graph import Graph

_FLOWS = ("source_to_target", "target_to_source")


class Conv(nn.Module):
    """Takes the arguments of PyG's MessagePassing that mean something here."""

    def __init__(self, aggr="add", flow="source_to_target", node_dim=0,
                 **kwargs):
        super().__init__()
        if aggr not in ("add", "sum"):
            raise ValueError(f"{type(self).__name__} has aggr='add', got "
                             f"{aggr!r}")
        if flow not in _FLOWS:
            raise ValueError(f"flow must be one of {_FLOWS}, got {flow!r}")
        if node_dim not in (0, -2):
            raise ValueError("node_dim must be 0: x is [nodes, features]; got "
                             f"{node_dim!r}")
        if kwargs:
            raise TypeError(f"{type(self).__name__} takes no "
                            + ", ".join(sorted(kwargs)))
        self.flow = flow

    def edges(self, edges):
        """Edges from sources to destinations."""
        if self.flow == "source_to_target" or isinstance(edges, Graph):
            return edges
        return edges.flip(0)

    def __repr__(self):
        return (f"{type(self).__name__}({self.in_channels}, "
                f"{self.out_channels}, heads={self.heads})")


@untraced
def _make_loops(edges, size):
    return as_graph(edges, size).with_self_loops()


def with_loops(edges, size, edge_attr, fill_value):
    """(Graph with self loops, edge_attr with those of the loops).  How many
    edges that has depends on their values, so torch.compile breaks its graph
    here, unless the edges are a Graph whose loops were made before."""
    looped = edges.looped if isinstance(edges, Graph) else None
    if looped is None:
        looped = _make_loops(edges, size)
    if edge_attr is not None:
        edge_attr = loop_features(edge_attr, looped.kept, looped.edge_index,
                                  min(size), fill_value)
    return looped, edge_attr


def pair(x):
    return (x, x) if isinstance(x, torch.Tensor) else x


def attention_result(out, edges, graph, alpha):
    """PyG's (out, (edge_index, alpha))."""
    if isinstance(graph, Graph):
        edges = graph.edge_index
    return out, (edges, alpha)
