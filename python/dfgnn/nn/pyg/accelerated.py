"""The class of dfgnn.nn.pyg that dfgnn.accelerate() gives a layer of PyG."""

from torch_geometric.nn import MessagePassing

from . import CLASSES, Fused

_THEIRS = {ours: theirs for theirs, ours in CLASSES.items()}


def with_kernels(kind):
    """The class with kernels for a class of PyG, or None."""
    return CLASSES.get(kind)


def without_kernels(kind):
    """PyG's class of a class with kernels, or None."""
    return _THEIRS.get(kind)


def why_not(kind):
    """Why a class has no kernels; None if it has, or is no layer of PyG."""
    if kind in _THEIRS or not issubclass(kind, MessagePassing):
        return None
    if issubclass(kind, Fused):
        return f"{kind.__name__} is a subclass of dfgnn.nn.pyg already"
    for base in kind.__mro__:
        if base in CLASSES:
            return (f"{kind.__name__} is a subclass of {base.__name__}; "
                    f"derive it from dfgnn.nn.pyg.{base.__name__} instead")
    return "no kernel has its messages"
