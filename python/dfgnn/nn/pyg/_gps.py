"""GPSConv: the attention of all nodes of a graph to each other runs by kernels,
over the graph of all pairs of nodes of the same graph."""

import torch
import torch_geometric.nn as pyg

from ..._guard import guarded
from ..._kernel_links import Attention
from ..._links import Linear as Product, Slot
from ..._modes import compiling
from ...errors import InvalidError
from ...functional import pairs_of
from .._linear import LINEARS, hooked
from .._node import (
    Other, PLAIN_TENSORS, fits, is_matrix, linear, own, recipe, run,
    surroundings, watched)
from ._mixin import Fused

LINEARS.add(torch.nn.modules.linear.NonDynamicallyQuantizableLinear)


@recipe
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
    """The result of MultiheadAttention for each node; raises Other where it is to
    be called itself."""
    attn = layer.attn
    state = attn.__dict__
    if type(attn) is not torch.nn.MultiheadAttention or hooked(attn) or \
            not is_matrix(x) or \
            type(batch) not in PLAIN_TENSORS or batch.dim() != 1 or \
            batch.dtype != torch.int64 or batch.shape != x.shape[:1] or \
            not attn.batch_first or not attn._qkv_same_embed_dim or \
            attn.bias_k is not None or attn.add_zero_attn:
        raise Other
    graph = pairs_of(batch)
    heads = attn.num_heads
    return run(graph, _attention, heads, x, own(state, "in_proj_weight"),
               own(state, "in_proj_bias"), *linear(state, "out_proj"),
               dropout=attn.dropout if attn.training else 0.0,
               scale=(x.size(1) // heads) ** -0.5)


class GPSConv(pyg.GPSConv):
    __doc__ = pyg.GPSConv.__doc__
    _dfgnn_base = pyg.GPSConv

    @guarded
    def forward(self, x, edge_index, batch=None, **kwargs):
        if compiling() or watched() or surroundings() is not None:
            return super().forward(x, edge_index, batch, **kwargs)
        try:
            attended = _attended(self, x, batch)
        except (Other, InvalidError):
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
