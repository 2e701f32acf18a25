"""PyG's layers with kernels behind them.

    from dfgnn.nn.pyg import GATConv    # was: from torch_geometric.nn

Each is a subclass of PyG's own class: parameters, results, hooks, explainers
and to_hetero are PyG's.  A call that a kernel can serve takes the kernel,
every other one PyG's own path; the log ``dfgnn`` says why, once for each
reason.  ``dfgnn.accelerate(model)`` gives a model's layers these classes.
"""

import torch_geometric.nn as _pyg

from ._gps import GPSConv
from ._mixin import Fused, fuse as _fuse
from ._table import rows as _rows
from .relations.hetero_conv import HeteroConv

__all__ = ["Fused", "CLASSES", "GPSConv", "HeteroConv", "UNITS"]

CLASSES = {}
"""The class with kernels for each class of PyG."""

for _row in _rows():
    _base = getattr(_pyg, _row.name)
    _class = _fuse(_base, _row, __module__=__name__)
    CLASSES[_base] = globals()[_row.name] = _class
    __all__.append(_row.name)
del _row, _base, _class

UNITS = {_pyg.HeteroConv: HeteroConv, _pyg.GPSConv: GPSConv}
"""The class with kernels for each class of PyG that holds layers."""
