"""DGL's layers with the kernels: ``from dfgnn.nn.dgl import GATConv`` in place of
``from dgl.nn import GATConv``.

Each class is DGL's own, whose sums of messages run by the kernels, and whose
attention does as a whole.  dfgnn.accelerate() gives them, and modules of your
own that send messages, to the layers of a model.
"""

import importlib


def __getattr__(name):
    if name.startswith("_") or name == "accelerated":
        raise AttributeError(name)  # a module, which is imported then
    accelerated = importlib.import_module(__name__ + ".accelerated")
    kind = getattr(importlib.import_module("dgl.nn"), name, None)
    fast = accelerated.with_kernels(kind) if isinstance(kind, type) else None
    if fast is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}: "
                             "dgl.nn has no layer of this name that sends "
                             "messages")
    return fast
