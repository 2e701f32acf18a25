"""PyG's layers with kernels behind them.

    from dfgnn.nn.pyg import GATConv    # was: from torch_geometric.nn

Each is a subclass of PyG's own class: parameters, results, hooks, explainers
and to_hetero are PyG's.  A call that a kernel can serve takes the kernel,
every other one PyG's own path; the log ``dfgnn`` says why, once a reason.
``dfgnn.accelerate(model)`` makes these classes of a model's layers.
"""

import torch_geometric.nn as _pyg

from ._mixin import Fused, fuse as _fuse
from ._table import rows as _rows

__all__ = ["Fused", "CLASSES"]

CLASSES = {}
"""Our class of each class of PyG."""

for _row in _rows():
    _base = getattr(_pyg, _row.name)
    _class = _fuse(_base, _row.fused, _row.forward, _row.methods, __name__)
    CLASSES[_base] = globals()[_row.name] = _class
    __all__.append(_row.name)
del _row, _base, _class
