"""GPSConv: on a CPU the attention of all nodes of a graph to each other runs by
kernels, over the graph of all pairs of nodes of the same graph."""

import torch
import torch_geometric.nn as pyg

from ... import ops
from ..._kernel_links import Attention
from ..._links import Linear as Product, Slot
from ...convert import kept_with
from ...graph import Graph
from .._guards import (
    PLAIN_TENSORS, Other, is_matrix, linear, own, surroundings, watched)
from .._linear import LINEARS, hooked
from .._node import fits, recipe, run
from ._mixin import Fused

LINEARS.add(torch.nn.modules.linear.NonDynamicallyQuantizableLinear)

# Graphs with more nodes than this are left to products of matrices, which are
# faster then: layers of 23, 64, 128 and 256 nodes take 1.5, 1.03, 1.02 and .9
# times as long without kernels (one thread of a busy machine).
_MOST_PAIRS = 64


# ---- pairs of nodes ---------------------------------------------------------

def _pairs(batch):
    """The Graph of all pairs of nodes with the same number in batch [N], which
    rises."""
    count = batch.numel()
    sizes = torch.bincount(batch)
    if bool((batch[1:] < batch[:-1]).any()) or \
            count and int(sizes.max()) > _MOST_PAIRS:
        raise Other
    ends = sizes.cumsum(0)
    degrees = sizes[batch]
    offsets = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    # the edges of a node are the nodes of its graph in their order
    shift = (ends - sizes)[batch] - offsets[:-1]
    indices = torch.arange(int(offsets[-1])) + shift.repeat_interleave(degrees)
    return Graph(offsets, indices.int(), trusted=True,
                 graph_ptr=torch.cat([ends.new_zeros(1), ends]))


@recipe("x w_in b_in w_out b_out")
def _attention(graph, settings, heads, x, w_in, b_in, w_out, b_out):
    width = x.size(1)
    if not fits(w_in, b_in, width) or w_in.size(0) != 3 * width or \
            not fits(w_out, b_out, width):
        return None
    parts = [Slot("in", i * width, width, 3 * width) for i in range(3)]
    return [Product("x", ("w_in",), () if b_in is None else ("b_in",), (),
                    "in"),
            Attention("gt", parts, "sums", heads, width // heads, x.dtype,
                      settings),
            Product("sums", ("w_out",), () if b_out is None else ("b_out",),
                    (), "out")]


def _attended(layer, x, batch):
    """What MultiheadAttention gives for each node; raises Other where it is to
    be called itself."""
    attn = layer.attn
    state = attn.__dict__
    if type(attn) is not torch.nn.MultiheadAttention or hooked(attn) or \
            "forward" in state or not is_matrix(x) or x.is_cuda or \
            type(batch) not in PLAIN_TENSORS or batch.dim() != 1 or \
            batch.dtype != torch.int64 or batch.shape != x.shape[:1] or \
            not attn.batch_first or not attn._qkv_same_embed_dim or \
            attn.bias_k is not None or attn.add_zero_attn:
        raise Other
    graph = kept_with(batch, "pairs of nodes", lambda: _pairs(batch))
    heads = attn.num_heads
    return run(graph, _attention, heads, x, own(state, "in_proj_weight"),
               own(state, "in_proj_bias"), *linear(state, "out_proj"),
               dropout=attn.dropout if attn.training else 0.0,
               scale=(x.size(1) // heads) ** -0.5)


# ---- the layer --------------------------------------------------------------

class GPSConv(pyg.GPSConv):
    __doc__ = pyg.GPSConv.__doc__
    _dfgnn_base = pyg.GPSConv

    def forward(self, x, edge_index, batch=None, **kwargs):
        if ops.compiling() or watched() or surroundings() is not None:
            return super().forward(x, edge_index, batch, **kwargs)
        try:
            attended = _attended(self, x, batch)
        except Other:
            return super().forward(x, edge_index, batch, **kwargs)
        parts = [self._added(attended, x, self.norm2, batch)]
        if self.conv is not None:
            local = self.conv(x, edge_index, **kwargs)
            parts.insert(0, self._added(local, x, self.norm1, batch))
        out = sum(parts)
        return self._normed(out + self.mlp(out), self.norm3, batch)

    def _added(self, new, x, norm, batch):
        new = torch.nn.functional.dropout(new, self.dropout, self.training)
        return self._normed(new + x, norm, batch)

    def _normed(self, x, norm, batch):
        if norm is None:
            return x
        return norm(x, batch=batch) if self.norm_with_batch else norm(x)


GPSConv.__module__ = Fused.__module__.rpartition(".")[0]
