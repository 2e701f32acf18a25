"""The graph of a call that torch.jit.trace records, by torch operations."""

import torch

from ._checks import check_index
from ._loops import loop_plan
from .graph import Graph


class EdgeList(Graph):
    """The interface of Graph over an edge_index that a trace takes as an
    input: nothing of it is in the library, and nothing of it is kept."""

    def __init__(self, edge_index, num_src, num_dst):
        check_index("edge_index", edge_index, 2)
        self._edge_index = edge_index
        self.num_src, self.num_dst = num_src, num_dst
        self._edges = edge_index.size(1)
        self.device = edge_index.device
        self.graph_ptr = self.family = self.name = None
        self.looped = self.unlooped_edges = self._kept = None

    def _derive(self, key, make):
        return make()

    @property
    def handle(self):
        raise RuntimeError("torch.jit.trace records torch operations; this "
                           "call needs a graph of libdfgnn")

    edge_order = None

    @property
    def kept(self):
        return self._kept

    @property
    def edge_index(self):
        return self._edge_index

    @property
    def src(self):
        return self._edge_index[0].long()

    @property
    def dst(self):
        return self._edge_index[1].long()

    @property
    def degrees(self):
        dst = self.dst
        return dst.new_zeros(self.num_dst).index_add(
            0, dst, torch.ones_like(dst))

    def with_self_loops(self):
        if self.looped is None:
            kept, edges = loop_plan(self._edge_index,
                                    min(self.num_src, self.num_dst))
            self.looped = EdgeList(edges, self.num_src, self.num_dst)
            self.looped._kept = kept
            self.looped.loops = min(self.num_src, self.num_dst)
            self.looped.unlooped_edges = self.num_edges
        return self.looped
