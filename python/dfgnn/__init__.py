"""dfgnn: fused, autotuned kernels for attention graph neural networks.

    graph = dfgnn.as_graph(edge_index, num_nodes)
    out = dfgnn.gt_attention(graph, query, key, value)

or swap an import: ``from dfgnn.nn import GATConv``.
"""

from ._library import version
from .accelerate import accelerate
from .aggregation import aggregate, spmm
from .convert import as_graph
from .errors import (
    DeviceError, Error, InvalidError, LibraryError, NotTunedError, StoreError,
    UnsupportedError)
from .functional import (
    agnn_attention, edge_scores, gat_attention, gatv2_attention, gt_attention,
    score_attention)
from .graph import Graph
from .tuning import explain, generate, read, tune

__version__ = "0.1.0"
