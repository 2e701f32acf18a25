"""The block of ORB in orb-models."""

import torch

from ..._remember import remember
from ...convert import as_graph
from .._linear import hooked
from .._node import Other
from ._block import Row, call, mlp_of, modules_of


def _conditioned(block, rows, kind, projection, condition):
    """The tensor that a block adds to its nodes or edges, or puts beside them."""
    if kind == "none" or condition is None:
        return rows
    condition = projection(condition)
    return rows + condition if kind == "additive" else \
        torch.cat([rows, condition], -1)


def _gate(layer):
    if hooked(layer) or type(layer) is not torch.nn.Linear:
        raise Other("its gates are made by a " + type(layer).__name__ +
                    ", or a hook looks at them")
    return layer.weight, layer.bias


def interaction(block, nodes, edges, senders, receivers, cutoff,
                cond_nodes=None, cond_edges=None):
    """AttentionInteractionNetwork: an MLP of each edge and its ends, and its
    sums at senders and receivers, each with a gate."""
    nodes = _conditioned(block, nodes, block._node_cond, getattr(
        block, "_cond_node_proj", None), cond_nodes)
    edges = _conditioned(block, edges, block._edge_cond, getattr(
        block, "_cond_edge_proj", None), cond_edges)
    first, *modules = modules_of(block._edge_mlp)
    while isinstance(first, torch.nn.Dropout) and not (
            first.training and first.p):
        first, *modules = modules
    mlp = mlp_of(first, modules, (edges.size(1), nodes.size(1),
                                  nodes.size(1)))
    by = "softmax" if block._attention_gate == "softmax" else "sigmoid"
    near = cutoff.reshape(-1) if block._distance_cutoff else None
    count = nodes.size(0)
    graph = remember(senders, ("edges", count), lambda: as_graph(
        torch.stack([senders, receivers]), count), (receivers,))
    new_edges, received, sent = call(
        graph, mlp, edges, nodes, nodes, edges=True, reduce="sum",
        reduce_src="sum",
        dst_gate=_gate(block._receive_attn), src_gate=_gate(block._send_attn),
        gate_by=by, gate_weight=near if by == "softmax" else None,
        dst_factor=near, src_factor=near)
    new_nodes = block._node_mlp(torch.cat([nodes, received, sent], 1))
    width = block.latent_dim
    return nodes[:, :width] + new_nodes, edges[:, :width] + new_edges


TABLE = {
    "AttentionInteractionNetwork": Row(
        {"forward": interaction},
        "its MLP and its gated sums at both ends are one call"),
}
REFUSED = {}
