"""dfgnn: fused, autotuned kernels for attention graph neural networks.

    graph = dfgnn.as_graph(edge_index, num_nodes)
    out = dfgnn.gt_attention(graph, query, key, value)

or swap an import: ``from dfgnn.nn import GATConv``.
"""

import sys

from ._lazy import lazy

__version__ = "0.3.0"

# A module here bears no name of a function: whichever of the two was imported
# last would hide the other.  report, a command, gives way to the function.
__all__, __getattr__, __dir__ = lazy(globals(), {
    "_accelerate": ["accelerate"],
    "_capacity": ["Capacity", "HeteroCapacity", "Room"],
    "_capture": ["capture"],
    "_library": ["version"],
    "_measure": ["measure"],
    "_report": ["Report", "report"],
    "aggregation": ["aggregate", "spmm"],
    "convert": ["as_graph"],
    "errors": ["CaptureError", "DeviceError", "Error", "InvalidError",
               "LibraryError", "NotTunedError", "StoreError",
               "UnsupportedError"],
    "functional": ["agnn_attention", "dense_attention", "edge_scores",
                   "gat_attention", "gatv2_attention", "gt_attention",
                   "score_attention"],
    "graph": ["Graph", "adjacency_values"],
    "hetero": ["HeteroGraph"],
    "merge": ["merge_attention"],
    "messages": ["gated_messages", "relu_messages"],
    "mlps": ["edge_mlp"],
    "negatives": ["batched_negative_sampling", "negative_sampling",
                  "structured_negative_sampling"],
    "programs": ["edge_program"],
    "recordings": ["Recording", "record"],
    "reductions": ["gather_csr", "install_as_torch_scatter", "scatter",
                   "scatter_log_softmax", "scatter_logsumexp",
                   "scatter_softmax", "scatter_std", "segment", "softmax"],
    "tuning": ["explain", "generate", "read", "tune", "tune_call", "tune_model",
               "tune_problem"],
    "distributed": [],
    "jax": [],
    "nn": [],
    "ops": [],
})

if "torch" in sys.modules:  # programs that torch.export saved name the operator
    from .errors import LibraryError
    try:
        from . import _torch_library  # noqa: F401
    except LibraryError:
        pass  # which the first call says
