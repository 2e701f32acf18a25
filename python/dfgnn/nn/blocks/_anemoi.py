"""The blocks of graph transformers in ECMWF's anemoi-models, whose attention by
triton or PyG is one call of dfgnn.gt_attention."""

from typing import NamedTuple

import torch
from torch.nn import functional as F

from ...functional import gt_attention
from .._linear import hooked, is_product
from .._node import Other, known
from ._block import Row


class Projected(NamedTuple):
    """Features of edges and the linear layer of them that the attention
    multiplies by, so that [edges, heads, features] is never made."""
    rows: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor

    def projected(self):
        return F.linear(*self)


def _looked_at(block):
    """Raises Other where a hook looks at the layer that PyG's backend runs."""
    conv = block._modules.get("conv")
    if conv is not None and (hooked(conv) or conv.dropout):
        raise Other("a hook looks at its conv, or it drops edges")


def query_key_value_edges(block, x, edge_attr):
    """get_qkve, without the product of the features of edges."""
    linear = block.lin_edge
    if block.shard_strategy != "edges":
        raise Other("its heads are on several ranks")
    if not is_product(linear):
        raise Other(f"its lin_edge is a {type(linear).__name__}, or a hook "
                    "looks at it")
    _looked_at(block)
    src, dst = x if isinstance(x, tuple) else (x, x)
    rows = block.edge_pre_mlp(edge_attr)
    if rows.dim() != 2:
        raise Other("its features of edges have another axis")
    return (block.lin_query(dst), block.lin_key(src), block.lin_value(src),
            Projected(rows, linear.weight, linear.bias))


def _attention(edge_index, query, key, value, *edges):
    if not known(edge_index):
        raise Other(f"its edge_index is a {type(edge_index).__name__}")
    names = "edge_attr", "edge_projection", "edge_bias"
    return gt_attention(edge_index, query, key, value,
                        **dict(zip(names, edges)))


def edges_sharded(block, query, key, value, edges, edge_index, size,
                  num_chunks, edges_are_dst_sorted):
    """_forward_edges_sharded_attention; chunks of rows, which would save
    memory, save none."""
    if not isinstance(edges, Projected):
        raise Other("its edges are projected")
    heads = block.num_heads, block.out_channels_conv
    query, key, value = (t.view(-1, *heads) for t in (query, key, value))
    query, key = block._apply_qk_norm(query, key)
    return _attention(edge_index, query, key, value, *edges).flatten(1)


def apply_gt(block, query, key, value, edges, edge_index, size,
             edges_are_dst_sorted=True):
    """apply_gt, of edges that are projected already."""
    _looked_at(block)
    return _attention(edge_index, query, key, value, edges)


_METHODS = {
    "get_qkve": query_key_value_edges,
    "_forward_edges_sharded_attention": edges_sharded, "apply_gt": apply_gt,
}
TABLE = dict.fromkeys(
    ("GraphTransformerMapperBlock", "GraphTransformerProcessorBlock"),
    Row(_METHODS, "its attention is one call, which projects the features of "
        "edges", whole=True))
REFUSED = {}
