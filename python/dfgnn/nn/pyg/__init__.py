"""PyG's layers with kernels behind them.

    from dfgnn.nn.pyg import GATConv    # was: from torch_geometric.nn

Each is a subclass of PyG's own class: parameters, results, hooks, explainers
and to_hetero are PyG's.  A call that a kernel can serve takes the kernel,
every other one PyG's own path; the log ``dfgnn`` says why, once for each
reason.  ``dfgnn.accelerate(model)`` gives a model's layers these classes.
"""

from ._mixin import Fused
from ._table import CLASSES, UNITS

__all__ = ["Fused", "CLASSES", "UNITS"]

for _class in (*CLASSES.values(), *UNITS.values()):
    globals()[_class.__name__] = _class
    __all__.append(_class.__name__)
del _class
