"""Classes that are both a layer of dfgnn.nn.dgl and DGL's own of that name.

They are made when dfgnn.accelerate() first meets a layer, since DGL need not
be installed.  Parameters and everything beside forward() are DGL's; a call
that the kernels cannot serve goes to DGL's forward().
"""

import functools
import importlib
import logging

from ... import _fallbacks
from ...convert import as_graph
from ...errors import UnsupportedError
from ...graph import Graph
from .. import dgl as ours
from . import _hetero_conv

log = logging.getLogger("dfgnn")
_LAYERS = [name for name in ours.__all__ if name != "DGLError"]
_UNITS = ("HeteroGraphConv",)
_PACKAGE = "dgl.nn.pytorch.conv"


@functools.lru_cache(None)
def _say(name, reason):
    log.info("%s takes DGL's own path: %s", name, reason)


class Accelerated:
    """The first base of a class that also inherits from a layer of
    dfgnn.nn.dgl and from DGL's own."""

    _dfgnn_base = None  # DGL's class

    def forward(self, graph, feat, *args, **kwargs):
        try:
            ready = _converted(graph)
            return super().forward(ready, feat, *args, **kwargs)
        except (TypeError, ValueError, UnsupportedError, _NoGraph) as error:
            _say(type(self).__name__, str(error))
            _fallbacks.note(self, str(error))
        return self._dfgnn_base.forward(self, graph, feat, *args, **kwargs)


class AcceleratedUnit(Accelerated):
    """The same of a layer that takes the layers inside it together."""

    def forward(self, g, inputs, mod_args=None, mod_kwargs=None):
        found = _hetero_conv.together(self, g, inputs, mod_args, mod_kwargs)
        if isinstance(found, dict):
            return found
        _hetero_conv.say(self, found)
        return self._dfgnn_base.forward(self, g, inputs, mod_args, mod_kwargs)


class _NoGraph(Exception):
    """The graph cannot be converted for the kernels."""


def _converted(graph):
    if isinstance(graph, Graph):
        return graph
    if not hasattr(graph, "adj_tensors"):
        raise _NoGraph(f"{type(graph).__name__} has no adj_tensors()")
    try:
        return as_graph(graph)
    except Exception as error:  # such as a graph restricted to one format
        raise _NoGraph(str(error)) from error


@functools.lru_cache(None)
def _over(theirs):
    names = {name: value for name, value in vars(theirs).items()
             if name == "__init__" or not name.startswith("__")}
    names.pop("forward")
    names.update(__module__=__name__, __doc__=theirs.__doc__,
                 _dfgnn_base=theirs)
    first = AcceleratedUnit if theirs.__name__ in _UNITS else Accelerated
    return type(theirs.__name__,
                (first, getattr(ours, theirs.__name__), theirs), names)


def detail(module):
    """What the report says of a module that takes the layers inside it
    together; None of any other."""
    if isinstance(module, AcceleratedUnit):
        return _hetero_conv.described(dict(module.mods.items()))
    return None


def __getattr__(name):
    """Pickles find the classes here."""
    if name in _LAYERS:
        return _over(getattr(importlib.import_module("dgl.nn"), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def with_kernels(kind):
    """The class with kernels for a class of DGL, or None."""
    if kind.__name__ in _LAYERS and kind is getattr(
            importlib.import_module("dgl.nn"), kind.__name__, None):
        return _over(kind)
    return None


def without_kernels(kind):
    """DGL's class of a class with kernels, or None."""
    return vars(kind).get("_dfgnn_base") if issubclass(kind, Accelerated) \
        else None


def why_not(kind):
    """Why a class has no kernels; None if it has, or is no layer of DGL."""
    if without_kernels(kind) is not None:
        return None
    if issubclass(kind, Accelerated):
        return f"{kind.__name__} is a subclass of an accelerated layer already"
    base = next((c for c in kind.__mro__ if c.__module__.startswith(_PACKAGE)),
                None)
    if base is None:
        return None
    if base.__name__ not in _LAYERS:
        return f"dfgnn.nn.dgl has no {base.__name__}"
    return (f"{kind.__name__} is a subclass of {base.__name__}; derive it "
            f"from dfgnn.nn.dgl.{base.__name__} instead")
