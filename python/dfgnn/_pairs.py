"""Attention of all nodes of a graph to each other, by graph of a batch."""

from typing import Optional

import torch
from torch import Tensor

from ._checks import check_index, check_is_tensor, describe
from ._remember import remember
from .errors import InvalidError
from .functional import gt_attention
from .graph import Graph

__all__ = ["dense_attention"]

# A graph of more pairs takes a quarter of a gigabyte.
MOST_PAIRS = 1 << 26


def pairs_of(batch):
    """The Graph of all pairs of nodes with the same number in batch [N], which
    rises, made once for the tensor; raises InvalidError."""
    return remember(batch, "pairs of nodes", lambda: _pairs(batch))


def _pairs(batch):
    batch = batch.contiguous()
    first = torch.searchsorted(batch, batch)
    degrees = torch.searchsorted(batch, batch, right=True) - first
    offsets = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    falls = (batch[1:] < batch[:-1]).any()
    fallen, total = torch.stack([falls.long(), offsets[-1]]).tolist()
    if fallen:
        raise InvalidError("batch must never fall: the nodes of a graph stand "
                           "together")
    if total > MOST_PAIRS:
        raise InvalidError(f"the graphs of the batch have {total} pairs of "
                           f"nodes, and the most are {MOST_PAIRS}")
    # the edges of a node are the nodes of its graph in their order
    shift = (first - offsets[:-1]).repeat_interleave(degrees,
                                                     output_size=total)
    indices = (torch.arange(total, device=batch.device) + shift).int()
    ends = torch.unique_consecutive(first + degrees)
    return Graph(offsets, indices, trusted=True,
                 graph_ptr=torch.cat([ends.new_zeros(1), ends]))


def _places(batch, graph, most):
    """Where each pair is in a matrix [graphs, most, most]."""
    def make():
        first = torch.searchsorted(batch, batch)
        number = torch.zeros_like(batch)
        number[1:] = (batch[1:] != batch[:-1]).cumsum(0)
        place = torch.arange(batch.numel(), device=batch.device) - first
        dst, src = graph.dst.long(), graph.src.long()
        return (number[dst] * most + place[dst]) * most + place[src]
    return remember(batch, ("places of pairs", most), make)


def _of_pairs(batch, graph, bias):
    """bias [E, H] of a bias by pairs or by matrices."""
    check_is_tensor("bias", bias)
    if bias.dim() == 2 and bias.size(0) == graph.num_edges:
        return bias
    if bias.dim() != 4 or bias.size(2) != bias.size(3):
        raise ValueError(f"bias must be [pairs={graph.num_edges}, heads] or "
                         "[graphs, heads, nodes, nodes], got " + describe(bias))
    sizes = graph.graph_ptr.diff()
    if bias.size(0) != sizes.numel() or sizes.numel() and \
            bias.size(2) < int(sizes.max()):
        raise ValueError(
            f"bias must have {sizes.numel()} graphs of at least "
            f"{int(sizes.max())} nodes, got " + describe(bias))
    rows = bias.permute(0, 2, 3, 1).reshape(-1, bias.size(1))
    return rows.index_select(0, _places(batch, graph, bias.size(2)))


def dense_attention(batch: Tensor, query: Tensor, key: Tensor, value: Tensor,
                    bias: Optional[Tensor] = None, *,
                    scale: Optional[float] = None, dropout: float = 0.0,
                    training: bool = True) -> Tensor:
    """Dot-product attention of each node to all nodes of its graph.

    batch [N]: the number of each node's graph, which never falls.
    query, key, value [N, H, D].
    bias: added to the scores: [graphs, H, nodes, nodes], of which the largest
        graph has at most `nodes`, or [pairs, H], by receiving node and then by
        sending node.
    scale: 1 / sqrt(D) by default.
    dropout: probability that a pair's weight is dropped while training.

    No tensor of [graphs, nodes, nodes] is made but the bias; what is known of
    the pairs is kept with batch.
    """
    check_index("batch", batch)
    graph = pairs_of(batch)
    if bias is not None:
        bias = _of_pairs(batch, graph, bias)
    return gt_attention(graph, query, key, value, scale=scale, bias=bias,
                        dropout=dropout, training=training)
