"""dfgnn: fused, autotuned kernels for attention graph neural networks.

    graph = dfgnn.as_graph(edge_index, num_nodes)
    out = dfgnn.gt_attention(graph, query, key, value)

or swap an import: ``from dfgnn.nn import GATConv``.
"""

<<<<<<< HEAD
from ._lazy import lazy
=======
import importlib

from ._library import version
from .accelerate import accelerate
from .aggregation import aggregate, spmm
from .capture import capture
from .convert import as_graph
from .errors import (
    CaptureError, DeviceError, Error, InvalidError, LibraryError,
    NotTunedError, StoreError, UnsupportedError)
from .functional import (
    agnn_attention, edge_scores, gat_attention, gatv2_attention, gt_attention,
    score_attention)
from .graph import Graph, adjacency_values
from .merge import merge_attention
from .messages import gated_messages, relu_messages
from .report import Report, report
from .tuning import explain, generate, read, tune
>>>>>>> 499db594cfbbde03877875b541307dcff3ae96e2

__version__ = "0.1.0"

# A module here bears no name of a function: whichever of the two was imported
# last would hide the other.
__all__, __getattr__, __dir__ = lazy(globals(), {
    "_accelerate": ["accelerate"],
    "_capture": ["capture"],
    "_library": ["version"],
    "aggregation": ["aggregate", "spmm"],
    "convert": ["as_graph"],
    "errors": ["CaptureError", "DeviceError", "Error", "InvalidError",
               "LibraryError", "NotTunedError", "StoreError",
               "UnsupportedError"],
    "functional": ["agnn_attention", "edge_scores", "gat_attention",
                   "gatv2_attention", "gt_attention", "score_attention"],
    "graph": ["Graph", "adjacency_values"],
    "merge": ["merge_attention"],
    "messages": ["gated_messages", "relu_messages"],
    "tuning": ["explain", "generate", "read", "tune"],
    "distributed": [],
    "nn": [],
    "ops": [],
})
