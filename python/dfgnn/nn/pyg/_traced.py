"""Layers of PyG's kind whose propagate() and edge_updater() run by what is made
of their graphs, which torch.compile finds: edge programs, with torch's calls
between them.  A graph of which none can be made runs as it is, and a layer of
which there is no graph by PyG's own path."""

import functools
import sys
import threading

import torch
from torch.nn.parameter import is_lazy
from torch_geometric.nn import MessagePassing

from ... import _dynamo
from ..._checks import ShapeError
from ..._modes import compiling
from ..._over import compared, over
from ..._remember import keep
from ..._trace import TraceError
from ...errors import InvalidError, UnsupportedError
from ._checked import difference
from ._deferred import Later, is_deferred
from ._edges import of_pyg, unknown, wide
from ._mixin import Fused, Row, attempt, fuse, unfit, usual
from ._propagate_steps import Programs, numbers_of, own_function

_thread = threading.local()  # .state: the State of the layer that runs
# after so many kinds of calls without a graph, none is looked for
MOST_REFUSED = 16


class State:
    """The facts about a layer."""

    def __init__(self, name):
        self.name = name
        self.checked = True  # whether first calls are compared
        self.reason = None  # why its latest call was not served
        self.served = 0  # calls by programs
        self.refused = {}  # by the kind of call, why there is no graph
        self.steps = None  # the Steps that served its latest call


def state(layer):
    things = keep(layer)
    record = things.get(State)
    if record is None:
        record = things.setdefault(State, State(type(layer).__name__))
    return record


class _Served:
    """The function that Dynamo calls in the place of a graph: Programs run, or the
    graph as it is, for a reason."""

    def __init__(self, module, programs, reason=None):
        self.module, self.programs, self.reason = module, programs, reason
        self.first = programs is not None
        module.code  # noqa: B018 - a first call would print its error, too

    def __call__(self, *args):
        state = _thread.state
        if self.first:
            self._try(state, args)
        state.reason, state.steps = self.reason, None
        if self.reason is not None:
            return self.module.forward(*args)
        outs = self.programs.run(args)
        state.served += 1
        state.steps = self.programs.steps
        return outs

    def _try(self, state, args):
        try:
            self.programs.probe(args)
            if state.checked:
                self.reason = difference(self.programs, args, state.name)
        except (TraceError, UnsupportedError) as error:
            self.reason = str(error)
        self.first = False  # where its own path raises, the next call tries


class _Maker:
    """Makes what runs of the graphs of a class.  The numbers of Python's that
    they read are constants at first, and parameters once they have changed."""

    def __init__(self):
        self.values = {}  # by source, the number of the first graph
        self.changed = set()  # the sources of numbers that have changed

    def __call__(self, module):
        for source, value in numbers_of(module).items():
            if self.values.setdefault(source, value) != value:
                self.changed.add(source)
        reason = None
        for numbers in dict.fromkeys((frozenset(self.changed), frozenset())):
            try:
                return _Served(module, Programs(module, numbers))
            except TraceError as error:
                reason = reason or str(error)
            except Exception as error:  # a graph that nobody thought of
                reason = reason or f"{type(error).__name__}: {error}"
        return _Served(module, None, reason)


@functools.lru_cache(None)
def _function(kind, *names):
    return _dynamo.Function(own_function(kind, *names), _Maker())


def _kind_of_call(layer, names, kwargs):
    """The key that tells calls from others of which there may be a graph."""
    def kind(v):
        if isinstance(v, dict):
            return tuple([(k, kind(inner)) for k, inner in v.items()])
        return (type(v), v.dtype, v.dim()) if isinstance(v, torch.Tensor) \
            else type(v)
    return names, layer.training, kind(kwargs)


def _served(layer, names, edge_index, size, kwargs):
    """The result of the function of these names; TraceError where it is not
    served."""
    reason = unknown(edge_index)
    if reason is None and not _dynamo.AVAILABLE:
        reason = "torch is too old for its messages to be looked at"
    edge_index = wide(of_pyg(layer, edge_index))
    if reason is None and not edge_index.size(1):
        reason = "there are no edges"
    if reason is not None:
        raise TraceError(reason)
    record = state(layer)
    kind = None
    if record.refused:
        kind = _kind_of_call(layer, names, kwargs)
        reason = record.refused.get(kind)
        if reason is not None or len(record.refused) > MOST_REFUSED:
            raise TraceError(reason or record.reason)
    before, _thread.state = getattr(_thread, "state", None), record
    try:
        result = _function(type(layer)._dfgnn_base, *names)(
            layer, layer, edge_index, size, kwargs)
    except TraceError as error:
        record.reason = str(error)
        if not any(map(is_lazy, layer.parameters())):  # the first call alone
            record.refused[kind or _kind_of_call(layer, names, kwargs)] = \
                record.reason
        raise
    except (IndexError, RuntimeError) as error:
        if isinstance(error, IndexError) or "out of DATA bounds" in str(
                error) or str(error).startswith("index_select()"):
            raise InvalidError(str(error)) from None  # PyG says it otherwise
        raise
    finally:
        _thread.state = before
    if record.reason is not None and len(names) > 1:  # each may have programs
        record.refused[_kind_of_call(layer, names, kwargs)] = record.reason
    return result


def _run(layer, name, edge_index, size, kwargs):
    try:
        return _served(layer, (name,), edge_index, size, kwargs)
    except TraceError as reason:
        return unfit(layer, str(reason))


def propagate(layer, edge_index, size=None, **kwargs):
    """PyG's propagate by programs, or NotImplemented."""
    if compiling():
        return NotImplemented  # _compiled.py has another way
    for name, value in kwargs.items():
        if type(value) is Later:
            return _with_update(layer, edge_index, size, kwargs, name)
    return _run(layer, "propagate", edge_index, size, kwargs)


def _with_update(layer, edge_index, size, kwargs, name):
    """The result of propagate() whose argument of this name edge_updater()
    makes, by one graph if there is one."""
    later = kwargs.pop(name)
    try:
        return _served(layer, ("propagate", name), edge_index, size, dict(
            size=later.size, edge_updater=later.kwargs, propagate=kwargs))
    except (TraceError, InvalidError, ShapeError):
        pass  # each may have programs, and has errors of its own
    kwargs[name] = layer.edge_updater(later.edge_index, later.size,
                                      **later.kwargs)
    return layer.propagate(edge_index, size, **kwargs)


def edge_updater(layer, edge_index, size=None, **kwargs):
    return _run(layer, "edge_updater", edge_index, size, kwargs)


def _edge_updater(own):
    def updater(self, edge_index, size=None, **kwargs):
        if not compiling() and usual(self):
            if type(self).propagate is Fused.propagate and \
                    is_deferred(sys._getframe(1)):
                return Later(edge_index, size, kwargs)
            out = attempt(edge_updater, self, edge_index, size, **kwargs)
            if out is not NotImplemented:
                return out
        return own(self, edge_index, size=size, **kwargs)
    return updater


def _takes_graphs(kind, _):
    """A forward that is kind's when it is called, of a Graph, too."""
    def forward(self, *args, **kwargs):
        return kind.forward(self, *[of_pyg(self, v) for v in args], **{
            name: of_pyg(self, v) for name, v in kwargs.items()})
    return forward


@functools.lru_cache(None)
def traced_class(kind):
    """A class over a layer's own that traces its messages."""
    methods = {}
    if kind.__module__.startswith("torch_geometric."):
        methods["forward"] = functools.partial(_takes_graphs, kind)
    if kind.edge_update is not MessagePassing.edge_update:
        methods["edge_updater"] = _edge_updater
    return fuse(kind, Row(kind.__name__, propagate, methods=methods),
                **over(traced_class, kind))


def traceable(kind):
    """Why the messages of a class are not traced, or None."""
    if not issubclass(kind, MessagePassing) or issubclass(kind, Fused):
        return "it is no layer of PyG, or has kernels already"
    if kind.message is MessagePassing.message and \
            kind.forward is MessagePassing.forward:
        return "it has no messages"
    # PyG makes propagate of a class from its template
    if any("propagate" in vars(c)
           and c.propagate is not MessagePassing.propagate
           and not c.propagate.__module__.endswith("_propagate")
           for c in kind.__mro__[:kind.__mro__.index(MessagePassing)]):
        return "its propagate is its own"
    if kind.__module__ == "torch.nn.utils.parametrize":
        return "torch parametrizes it, and looks for its class by place"
    place = compared(kind)
    return place and f"{place} compares its class"
