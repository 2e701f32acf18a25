"""Classes over DGL's own and over modules that send messages by DGL, which give
these messages the kernels.

They are made when dfgnn.accelerate() first meets a class, since DGL need not
be installed.  Parameters and everything beside forward() are the class's own.
"""

import functools
import importlib
import types

from torch import nn

from ... import _fallbacks
from ..._guard import guarded
from ..._over import Over, compared, over, own
from ...errors import InvalidError, UnsupportedError
from .._node import Other, runs_in_steps
from . import _messages

# Methods of a graph, and the functions of dgl.ops, that reduce messages.
_METHODS = {"update_all", "multi_update_all", "send_and_recv", "prop_nodes"}


def _rows():
    """By name of a layer of dgl.nn what its forward tries first."""
    from . import _layers as layers
    return {"GATConv": layers.gat, "GATv2Conv": layers.gatv2,
            "AGNNConv": layers.agnn, "DotGatConv": layers.dot_gat,
            "RelGraphConv": layers.rel_graph, "HGTConv": layers.hgt}


class Accelerated(Over, nn.Module):
    """The first base of a class that also inherits from the module's own."""

    _dfgnn_base = None  # the module's own class
    _dfgnn_row = None

    runs_in_steps = runs_in_steps

    @guarded
    def forward(self, *args, **kwargs):
        with _messages.kernels(self):
            out = self._tried(args, kwargs)
            if out is NotImplemented:
                out = self._dfgnn_base.forward(self, *args, **kwargs)
            return out

    def _tried(self, args, kwargs):
        attempt = type(self)._dfgnn_row
        if attempt is None or self.runs_in_steps():
            return NotImplemented
        try:
            return attempt(self, *args, **kwargs)
        except (Other, InvalidError, UnsupportedError) as error:
            _fallbacks.note(self, str(error) or "the call is no usual one")
            return NotImplemented


def _code_of(function):
    """The code of a function and of those that are written inside it."""
    pending = [getattr(function, "__code__", None)]
    while pending:
        code = pending.pop()
        if code is not None:
            yield code
            pending += [c for c in code.co_consts
                        if isinstance(c, types.CodeType)]


@functools.lru_cache(None)
def _names():
    return _METHODS | set(importlib.import_module("dgl.ops.spmm").__all__)


def _sends(kind):
    """Whether a method of the class, or of its bases, reduces messages."""
    for base in kind.__mro__:
        if base.__module__.startswith("torch."):
            continue
        for value in vars(base).values():
            value = getattr(value, "__func__", value)
            if any(not _names().isdisjoint(code.co_names)
                   for code in _code_of(value)):
                return True
    return False


@functools.lru_cache(None)
def with_kernels(kind):
    """The class with kernels for a class, or None."""
    if issubclass(kind, Accelerated) or kind.__module__.startswith(
            ("torch.", "torch_geometric.")) or not _sends(kind) or \
            compared(kind):
        return None
    _messages.install()
    row = None
    if kind.__module__.startswith("dgl.nn."):
        row = _rows().get(kind.__name__)
    return type(kind.__name__, (Accelerated, kind), {
        **over(with_kernels, kind), "_dfgnn_base": kind, "_dfgnn_row": row})


def without_kernels(kind):
    """A module's own class of a class with kernels, or None."""
    return own(kind, with_kernels)


def why_not(kind):
    """Why a class has no kernels; None if it has, or is no layer of DGL."""
    if issubclass(kind, Accelerated) and without_kernels(kind) is None:
        return f"{kind.__name__} is a subclass of an accelerated layer already"
    return None
