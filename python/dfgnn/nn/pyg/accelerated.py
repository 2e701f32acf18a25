"""The class of dfgnn.nn.pyg that dfgnn.accelerate() gives a layer of PyG."""

import functools
import sys
import types

from torch_geometric.nn import MessagePassing

from ..._over import own
from . import _functions, _traced
from ._mixin import Fused
from ._table import CLASSES, UNITS
from ._traced import state  # noqa: F401 - asked for by name
from .relations import calls
from .relations.hetero_conv import HeteroConv
from .relations.to_hetero import restore, rewrite  # noqa: F401 - likewise

_THEIRS = {ours: theirs for theirs, ours in (*CLASSES.items(),
                                             *UNITS.items())}


_LIBRARIES = {"torch_geometric", "torch", "dfgnn", "abc"}


def _is_foreign(value):
    value = getattr(value, "__func__", value)
    return isinstance(value, functools.partial) or isinstance(
        value, types.FunctionType) and value.__globals__.get(
            "__name__", "").partition(".")[0] not in _LIBRARIES


def _is_patched(kind):
    """Whether somebody has put a function of their own into a class of PyG, or
    in the place of one that its module calls, such as another softmax."""
    return any(_is_foreign(value) for base in kind.__mro__
               if base.__module__.startswith("torch_geometric.")
               for scope in (base, sys.modules[base.__module__])
               for value in list(vars(scope).values()))


def with_kernels(kind):
    """The class with kernels for a class of PyG, or None."""
    ours = CLASSES.get(kind, UNITS.get(kind))
    return None if ours is None or _is_patched(kind) else ours


def detail(module):
    """The line of the report about a module that takes the layers inside it
    together; None of any other."""
    if type(module) is HeteroConv:
        return calls.described(dict(module.convs.items()))
    return None


def traced(kind):
    """A class that traces the messages of a layer's class, or None."""
    if not issubclass(kind, MessagePassing) or \
            _traced.traceable(kind) is not None:
        return None
    return _traced.traced_class(kind)


def with_functions(kind):
    """A class whose methods call functions of dfgnn, _dfgnn_called; None of a
    class that calls none."""
    return None if kind in CLASSES or kind in UNITS or issubclass(kind, (
        MessagePassing, *_THEIRS)) else _functions.calling(kind)


def without_functions(kind):
    return own(kind, _functions.calling)


def without_kernels(kind):
    """PyG's class of a class with kernels, or None."""
    return own(kind, _traced.traced_class) or _THEIRS.get(kind)


def why_not(kind):
    """Why a class has no kernels; None if it has, or is no layer of PyG."""
    if without_kernels(kind) or not issubclass(kind, MessagePassing):
        return None
    if issubclass(kind, Fused):
        return f"{kind.__name__} is a subclass of dfgnn.nn.pyg already"
    return _traced.traceable(kind)
