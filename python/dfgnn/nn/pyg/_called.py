"""The arguments of a propagate() that is traced, and what stands for them."""

import copy
import operator
import types
import weakref

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from ... import _watch
from ..._autocast import autocast_dtype
from ..._steps import staged
from ..._trace import DST, EDGE, PARAM, SRC, TraceError
from ...convert import is_kept
from .._guards import PLAIN_TENSORS
from .._linear import hooked
from ._edges import graph_of, reverse

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype,
                    torch.device))
_CALLS = (types.FunctionType, types.BuiltinFunctionType, type)
_OWN = frozenset(vars(torch.nn.Module())) | {
    "inspector", "_user_args", "_fused_user_args", "_edge_user_args", "fuse",
    "_explain", "_edge_mask", "_loop_mask", "_apply_sigmoid",
    "_decomposed_layers", "propagate", "_dfgnn_weights", "training"}


def _plain(value):
    """A value that can be compared, of an attribute or argument; Ellipsis if
    it has none."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in (tuple, list):
        return tuple(map(_plain, value))
    if kind is dict:
        return tuple((k, _plain(v)) for k, v in value.items())
    return value if isinstance(value, _CALLS) else ...


def attributes(layer):
    """The attributes of a layer and its modules that Python may look at."""
    found = []
    for module in layer.modules():
        own = module.__dict__
        found.append((
            own["training"], type(module), hooked(module),
            tuple([(k, None if p is None or is_lazy(p) else
                    (p.shape, p.dtype))
                   for k, p in own["_parameters"].items()]),
            tuple([(k, v if type(v) in _PLAIN else _plain(v))
                   for k, v in own.items() if k not in _OWN])))
    return tuple(found)


class Seen:
    """The attributes() of a layer, and whether they are still the same, which
    costs less to ask than to find them again: calls in a row ask it.  It does
    not keep the layer alive."""

    def __init__(self, layer):
        self.found = attributes(layer)
        self.modules = [_one(module) for module in layer.modules()]

    def same(self):
        for module, kind, own, count, get, values, rest, tensors in \
                self.modules:
            if type(module()) is not kind or len(own) != count or \
                    get(own) != values:
                return False
            for name, value in rest:
                if _plain(own[name]) != value:
                    return False
            parameters = own["_parameters"]
            if len(parameters) != len(tensors):
                return False
            for name, tensor, shape, dtype in tensors:
                if parameters.get(name) is not tensor or tensor is not None \
                        and (tensor.dtype is not dtype
                             or tensor.shape != shape):
                    return False
        return True


_COMPARED = ("_modules", "_forward_hooks", "_forward_pre_hooks",
             "_backward_hooks", "_backward_pre_hooks")


def _one(module):
    """What Seen.same() compares of a module."""
    own = module.__dict__
    names = [k for k in own if k == "training" or k not in _OWN]
    plain = [k for k in names if type(own[k]) in _PLAIN]
    compared = (*[k for k in _COMPARED if k in own], *plain)
    values = tuple([copy.copy(own[k]) for k in compared])
    rest = [(k, _plain(own[k])) for k in names if k not in plain]
    tensors = [(k, p) + ((None, None) if p is None or is_lazy(p) else
                         (p.shape, p.dtype))
               for k, p in own["_parameters"].items()]
    return (weakref.ref(module), type(module), own, len(own),
            operator.itemgetter(*compared), values, rest, tensors)


def tensors_of(layer):
    """By id, (name of module, name) of each tensor that a layer has."""
    found = {}
    for path, module in layer.named_modules():
        for names in (module._parameters, module._buffers, vars(module)):
            for name, tensor in names.items():
                if isinstance(tensor, Tensor):
                    found.setdefault(id(tensor), ("module", path, name))
    return found


def _fetched(layer, path, name):
    module = layer
    for part in path.split(".") if path else ():
        module = module._modules[part]
    found = module._parameters.get(name)
    return getattr(module, name) if found is None else found


def about(edge_index, size, kwargs):
    """What tells a call of a layer from others: types and shapes; None if there
    is more to it."""
    found = [edge_index.shape, edge_index.dtype,
             None if size is None else tuple(size), torch.get_default_dtype(),
             autocast_dtype(edge_index.device.type)]
    for name, value in kwargs.items():
        found.append(name)
        if type(value) in (tuple, list):
            found.append(len(value))
        else:
            value = value,
        for x in value:
            if type(x) in PLAIN_TENSORS:
                found += x.dtype, x.shape, x.layout, x.device
            elif type(x) in _PLAIN:
                found.append(x)
            else:
                return None
    return found


class Latest:
    """A call that was served, of which the next are copies where about() is the
    same.  It keeps nothing of a call alive."""

    def __init__(self, told, call, seen, steps, graph):
        self.told, self.seen, self.steps = told, seen, steps
        self.edges = self.version = None
        if is_kept(graph, call.edge_index, (call.num_src, call.num_dst)):
            self.edges = weakref.ref(call.edge_index)
            self.version = call.edge_index._version
            self.made = weakref.ref(graph)
        self.rest = {name: value for name, value in vars(call).items()
                     if name not in ("layer", "kwargs", "edge_index",
                                     "tensors")}
        self.places = [(key, place) for key, (_, place) in
                       call.tensors.items()]

    def fits(self, told):
        return self.told == told and self.seen.same()

    def call(self, layer, edge_index, kwargs):
        made = object.__new__(Call)
        vars(made).update(self.rest, layer=layer, edge_index=edge_index,
                          kwargs=kwargs)
        made.tensors = {key: (made.argument(*key), place)
                        for key, place in self.places}
        return made

    def graph(self, call):
        """The graph of a call() of it."""
        if self.edges is not None and self.edges() is call.edge_index and \
                self.version == call.edge_index._version:
            return self.made() or call.graph()
        return call.graph()


class Call:
    """The arguments of a propagate or edge_updater, as PyG collects them:
    tensors by key, and what Python sees of them."""

    def __init__(self, layer, names, edge_index, size, kwargs):
        self.layer, self.kwargs = layer, kwargs
        self.edge_index, self.count = edge_index, edge_index.size(1)
        self.tensors, self.plain = {}, {}
        self.i, self.j = (0, 1) if reverse(layer) else (1, 0)
        self.sizes = layer._check_input(edge_index, size)
        raw = []
        for name in names:
            if name[-2:] in ("_i", "_j"):
                self._lifted(name)
            else:
                raw.append(name)
        sizes = self.sizes
        i, j = self.i, self.j
        self.num_dst = sizes[i] if sizes[i] is not None else sizes[j]
        self.num_src = sizes[j] if sizes[j] is not None else sizes[i]
        if self.num_dst is None:
            raise TraceError("no argument says how many nodes there are")
        for name in raw:
            self._raw(name, kwargs.get(name))

    def _lifted(self, name):
        dim = self.j if name.endswith("_j") else self.i
        data = self.kwargs.get(name[:-2])
        if isinstance(data, (tuple, list)):
            if len(data) != 2:
                raise TraceError(f"{name[:-2]} has {len(data)} parts")
            if isinstance(data[1 - dim], Tensor):
                self.layer._set_size(self.sizes, 1 - dim, data[1 - dim])
            data = data[dim]
        if not isinstance(data, Tensor):
            self.plain[name] = data
            return
        if self.layer.node_dim not in (0, -data.dim()):
            raise TraceError(f"the rows of {name[:-2]} {list(data.shape)} are "
                             f"axis {self.layer.node_dim}")
        self.layer._set_size(self.sizes, dim, data)
        self._tensor(("lifted", name), data, DST if dim == self.i else SRC)

    def argument(self, kind, name):
        """The tensor of a key."""
        if kind == "raw":
            return self.kwargs[name]
        data = self.kwargs[name[:-2]]
        return data[self.j if name.endswith("_j") else self.i] \
            if isinstance(data, (tuple, list)) else data

    def _raw(self, name, data):
        if isinstance(data, Tensor):
            place = PARAM
            if data.dim() and data.size(0) == self.count:
                place = EDGE
            elif data.dim() and data.size(0) == self.num_dst:
                place = DST
            elif data.dim() and data.size(0) == self.num_src:
                place = SRC
            self._tensor(("raw", name), data, place)
        elif isinstance(data, (tuple, list)) and any(
                isinstance(x, Tensor) for x in data):
            self.plain[name] = Pair(name, data)
        else:
            self.plain[name] = data

    def _tensor(self, key, data, place):
        if type(data) not in PLAIN_TENSORS or data.layout != torch.strided \
                or data.device != self.edge_index.device:
            raise TraceError(f"{key[1]} is no plain tensor on the device of "
                             "the edges")
        if data.is_floating_point() and data.dtype not in _FLOATS:
            raise TraceError(f"{key[1]} is {data.dtype}")
        self.tensors[key] = data, place

    def signature(self):
        """What steps depend on, beside the layer's attributes."""
        tensors = tuple(
            (key, data.dtype, place,
             tuple(data.shape)[place != PARAM:], data.dim())
            for key, (data, place) in self.tensors.items())
        return (tensors, tuple((k, _plain(v)) for k, v in self.plain.items()),
                self.num_dst == self.num_src, torch.get_default_dtype(),
                autocast_dtype(self.edge_index.device.type),
                reverse(self.layer))

    def fetch(self, key):
        if key[0] == "module":
            return _fetched(self.layer, *key[1:])
        return self.tensors[key][0]

    def graph(self):
        return graph_of(self.layer, self.edge_index, self.num_src,
                        self.num_dst)

    # ---- standing for tensors

    def watched(self, watch):
        """By name, what stands for each argument, the special ones of PyG's
        included."""
        square = self.num_dst == self.num_src
        dst = _watch.Count(_watch.DESTINATIONS)
        src = dst if square else _watch.Count(_watch.SOURCES)
        rows = {DST: int(dst), SRC: int(src), EDGE: _watch.EDGES}
        found = dict(self.plain)
        for key, (data, place) in self.tensors.items():
            shape = tuple(data.shape)
            if place != PARAM:
                shape = (_watch.EDGES if key[0] == "lifted" else rows[place],
                         *shape[1:])
            found[key[1]] = watch.given(key, shape, data.dtype, place)
        kind = self.edge_index.dtype
        edges = (_watch.EDGES,)

        def index(end):
            return watch.given(("index", end), edges, kind, EDGE, end)
        ends = ("j", "i") if self.i == 1 else ("i", "j")
        found["edge_index"] = watch.given(
            ("edge_index", *ends), (2, _watch.EDGES), kind, EDGE, "ij")
        found["edge_index_i"] = found["index"] = index("i")
        found["edge_index_j"] = index("j")
        found["ptr"] = found["adj_t"] = None
        sizes = [None, None]
        sizes[self.i], sizes[self.j] = dst, src
        found["size"] = sizes
        found["size_i"] = found["dim_size"] = dst
        found["size_j"] = src
        return found


class Pair:
    """An argument of two tensors, which message() cannot look at yet."""

    def __init__(self, name, pair):
        self.name, self.pair = name, pair


# ---- tracing ----------------------------------------------------------------

def apply(layer, names, arguments):
    """What the methods of these names return, one after the other."""
    made = None
    for name in names:
        given = {key: arguments[key] for key in
                 layer.inspector.get_param_names(name) if key in arguments}
        pair = next((k for k, v in given.items() if isinstance(v, Pair)), None)
        if pair is not None:
            raise TraceError(f"{name} takes {pair}, a pair of tensors")
        method = getattr(layer, name)
        made = method(**given) if made is None else method(made, **given)
    return made


def _told(error):
    if isinstance(error, TraceError):
        return str(error)
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    return (f"{step.tb_frame.f_code.co_filename}, line {step.tb_lineno}: "
            f"{type(error).__name__}: {error}")


def trace(layer, methods, call, with_dropout=True):
    """The Steps of a call: of what the methods return, and of attributes of the
    layer that they set to tensors."""
    for module in layer.modules():
        if module is not layer and hooked(module):
            raise TraceError(f"a hook looks at its {type(module).__name__}")
    watch = _watch.Watch(call.edge_index.device, tensors_of(layer))
    arguments, plain = call.watched(watch), attributes(layer)
    before = [(vars(m), dict(vars(m))) for m in layer.modules()]
    try:
        with watch:
            made = apply(layer, methods, arguments)
        kept = {name: value for name, value in vars(layer).items()
                if isinstance(value, _watch.Watched)}
        for name in kept:
            vars(layer)[name] = before[0][1].get(name)
        if attributes(layer) != plain:
            names = [k for k, v in vars(layer).items()
                     if before[0][1].get(k) is not v]
            raise TraceError(f"{methods[0]} sets " + ", ".join(
                f"self.{n}" for n in names or ["an attribute"]))
    except Exception as error:
        # A TypeError of ours reaches us as torch's error that no type
        # implements the operator, so that the reason was noted.
        raise TraceError(watch.refused or _told(error)) from None
    finally:
        for own, values in before:
            own.clear()
            own.update(values)
    if watch.refused:
        raise TraceError(watch.refused)
    return staged(watch, (made, kept), with_dropout)
