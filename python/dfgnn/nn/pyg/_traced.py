"""Layers of PyG's kind whose messages are traced: their message, edge_update
and aggregate run once with tensors that hold nothing, and what they do becomes
edge programs.  A layer that cannot be traced runs as it is."""

import functools
import weakref

import torch
from torch_geometric.nn import MessagePassing

from ... import _recording, ops
from ..._steps import Steps
from ..._trace import TraceError
from ...errors import UnsupportedError
from ...graph import Graph
from ._called import Call, Latest, Seen, about, trace
from . import _compiled
from ._checked import checked
from ._edges import edges_as_given, known
from ._mixin import Fused, Row, fuse, unfit, usual

class State:
    """What is known of a layer: its steps, or why there are none, for each kind
    of call."""

    def __init__(self):
        self.steps = {}
        # by methods, (signature, Seen, steps) of their last call
        self.last = {}
        self.latest = {}  # by methods, the Latest of their calls
        self.names = {}  # by methods, the names of their arguments
        self.checked = False  # whether first calls are compared
        self.reason = None  # why its latest call was not traced
        self.served = 0  # calls by programs


_states = weakref.WeakKeyDictionary()


def state(layer):
    found = _states.get(layer)
    if found is None:
        found = _states.setdefault(layer, State())
    return found


# ---- running ----------------------------------------------------------------

def _obstacle(layer, edge_index):
    if not known(edge_index):
        return "its edges are no edge_index, but a " + \
            type(edge_index).__name__
    if ops.compiling():
        return "torch.compile traces"
    return None


def _steps(layer, found, methods, call):
    """The steps of a call, which most often is that of the one before; found:
    the layer's State."""
    signature, last = call.signature(), found.last.get(methods)
    if last is None or last[0] != signature or not last[1].same():
        seen = Seen(layer)
        steps = _steps_of(layer, found, (methods, signature, seen.found), call)
        last = found.last[methods] = signature, seen, steps
    return last[2]


def _steps_of(layer, found, key, call):
    steps = found.steps.get(key)
    if steps is None:
        if _captured(call):
            raise TraceError("a CUDA graph is captured by its first call")
        if len(found.steps) > 64:  # such as an attribute that counts calls
            raise TraceError("its attributes change with every call")
        methods = key[0]
        try:
            steps = trace(layer, methods, call)
            steps.probe(call.graph())
        except (TraceError, UnsupportedError) as error:
            steps = TraceError(str(error))
        found.steps[key] = steps
        if found.checked and isinstance(steps, Steps):
            steps = found.steps[key] = checked(layer, methods, call, steps)
    if isinstance(steps, TraceError):
        raise steps
    return steps


def _names(layer, found, methods):
    """The arguments of the methods of a layer."""
    names = found.names.get(methods)
    if names is None:
        names = found.names[methods] = layer.inspector.get_flat_param_names(
            list(methods), exclude=layer.special_args)
    return names


def _captured(call):
    return call.edge_index.is_cuda and \
        torch.cuda.is_current_stream_capturing()


def _run(layer, methods, edge_index, size, kwargs):
    reason = _obstacle(layer, edge_index)
    if reason is None and isinstance(edge_index, Graph):
        edge_index = edges_as_given(layer, edge_index)
    if reason is None and not edge_index.size(1):
        reason = "there are no edges"
    if reason is not None:
        return unfit(layer, reason)
    found = state(layer)
    told = None if _recording.current is not None else about(
        edge_index, size, kwargs)
    latest = found.latest.get(methods)
    if told is not None and latest is not None and latest.fits(told):
        call, steps = latest.call(layer, edge_index, kwargs), latest.steps
        graph = latest.graph(call)
    else:
        try:
            try:
                call = Call(layer, _names(layer, found, methods), edge_index,
                            size, kwargs)
            except ValueError as error:  # PyG raises it again
                raise TraceError(str(error)) from None
            steps = _steps(layer, found, methods, call)
        except TraceError as error:
            found.reason = str(error)
            return unfit(layer, str(error))
        graph = call.graph()
        if told is not None:
            found.latest[methods] = Latest(
                told, call, found.last[methods][1], steps, graph)
    made, kept = steps.run(graph, call.fetch)
    for name, tensor in kept.items():
        setattr(layer, name, tensor)
    found.served, found.reason = found.served + 1, None
    return made, call


def propagate(layer, edge_index, size=None, **kwargs):
    """PyG's propagate by programs, or NotImplemented."""
    if ops.compiling():
        return _compiled.propagate(layer, edge_index, size, kwargs)
    found = _run(layer, ("message", "aggregate"), edge_index, size, kwargs)
    if found is NotImplemented:
        return found
    made, call = found
    if type(layer).update is MessagePassing.update:
        return made
    return layer.update(made, **_update_arguments(layer, call))


def _update_arguments(layer, call):
    """The arguments of update(), gathered where it wants them by edge."""
    given, special = {}, dict(
        index=call.i, edge_index_i=call.i, edge_index_j=call.j)
    for name in layer.inspector.get_param_names("update"):
        if name in special:
            given[name] = call.edge_index[special[name]]
        elif name in ("size_i", "dim_size"):
            given[name] = call.num_dst
        elif name == "size_j":
            given[name] = call.num_src
        elif name == "edge_index":
            given[name] = call.edge_index
        elif name == "size":
            given[name] = list(call.sizes)
        elif name in ("ptr", "adj_t"):
            given[name] = None
        elif name[-2:] in ("_i", "_j") and name[:-2] in call.kwargs:
            data, dim = call.kwargs[name[:-2]], (
                call.i if name.endswith("_i") else call.j)
            data = data[dim] if isinstance(data, (tuple, list)) else data
            given[name] = data.index_select(0, call.edge_index[dim])
        elif name in call.kwargs:
            given[name] = call.kwargs[name]
    return given


def edge_updater(layer, edge_index, size=None, **kwargs):
    found = _run(layer, ("edge_update",), edge_index, None, kwargs)
    return found if found is NotImplemented else found[0]


# ---- classes ----------------------------------------------------------------

def _reduced(self, protocol):
    """Pickles as its own class, which is made anew when it is read."""
    return _restore, (type(self)._dfgnn_base,), self.__getstate__() if hasattr(
        self, "__getstate__") else self.__dict__.copy()


def _restore(kind):
    return object.__new__(traced_class(kind))


def _edge_updater(own):
    def updater(self, edge_index, size=None, **kwargs):
        if usual(self):
            out = edge_updater(self, edge_index, size, **kwargs)
            if out is not NotImplemented:
                return out
        return own(self, edge_index, size=size, **kwargs)
    return updater


@functools.lru_cache(None)
def traced_class(kind):
    """A class over a layer's own that traces its messages."""
    methods = {}
    if kind.edge_update is not MessagePassing.edge_update:
        methods["edge_updater"] = _edge_updater
    made = fuse(kind, Row(kind.__name__, propagate, methods=methods),
                kind.__module__)
    made.__qualname__ = kind.__qualname__
    made.__reduce_ex__ = _reduced
    made._dfgnn_traced = True
    return made


def is_traced(kind):
    return "_dfgnn_traced" in vars(kind)


def _generated(function):
    """Whether PyG has made this propagate of a class from its template."""
    return function is MessagePassing.propagate or \
        function.__module__.endswith("_propagate")


def traceable(kind):
    """Why the messages of a class are not traced, or None."""
    if not issubclass(kind, MessagePassing) or issubclass(kind, Fused):
        return "it is no layer of PyG, or has kernels already"
    if kind.message is MessagePassing.message and \
            kind.forward is MessagePassing.forward:
        return "it has no messages"
    if any("propagate" in vars(c) and not _generated(c.propagate)
           for c in kind.__mro__[:kind.__mro__.index(MessagePassing)]):
        return "its propagate is its own"
    return None
