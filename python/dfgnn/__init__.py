"""dfgnn: fused, autotuned kernels for attention graph neural networks.

    graph = dfgnn.as_graph(edge_index, num_nodes)
    out = dfgnn.gt_attention(graph, query, key, value)

or swap an import: ``from dfgnn.nn import GATConv``.
"""

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

__version__ = "0.1.0"


def __getattr__(name):
    """What is imported when it is first looked at."""
    if name in ("distributed", "nn"):
        return importlib.import_module("dfgnn." + name)
    raise AttributeError(f"module 'dfgnn' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), "distributed", "nn"])
