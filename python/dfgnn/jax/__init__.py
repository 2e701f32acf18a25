"""dfgnn for JAX: attention, sparse products and edge programs of graphs, with
gradients.

    import dfgnn.jax as dfgnn
    graph = dfgnn.from_edges(src, dst, num_dst)
    out = dfgnn.gt_attention(graph, query, key, value)

Each operator is one custom call of XLA (jax.ffi) into libdfgnn, under jit, grad
and vmap, on the CPU and on NVIDIA GPUs.  Nothing here needs torch.
"""

from .._trace_errors import TraceError
from ._graph import Graph, csr, from_edges
from ._operators import (
    agnn_attention, gat_attention, gatv2_attention, gt_attention, spmm)
from ._primitives import OVER_EDGES, dropout, over, softmax
from ._programs import EdgeProgram, edge_program
from ._tuning import explain, tune

globals().update({name: over(name) for name in OVER_EDGES})

__all__ = ["EdgeProgram", "Graph", "TraceError", "agnn_attention", "csr",
           "dropout", "edge_program", "explain", "from_edges",
           "gat_attention", "gatv2_attention", "gt_attention", "softmax",
           "spmm", "tune", *OVER_EDGES]
