"""Traced layers while torch.compile traces: the steps of a call, as a module of
torch's calls and of programs that are operators, stands in its graph.

torch.compile follows propagate() with tensors of its own.  What the steps
depend on, shapes and attributes of the layer, it takes as constants, on which
its guards then are; the steps themselves are made outside of what it follows.
"""

import functools
import operator
import weakref

import torch
from torch import Tensor
from torch.fx.experimental import symbolic_shapes
from torch_geometric.nn import MessagePassing

from ... import _recorded
from ..._autocast import autocast_dtype
from ..._fallbacks import say_once
from ..._trace import TraceError
from ...errors import Error
from ...graph import Graph
from . import _called
from ._called import _OWN, Call, trace

_MODULES = {}
_RECORDED = weakref.WeakKeyDictionary()
# rows of tensors that stand for those of a call: as many are equal
_ROWS = (11, 7, 5, 3, 13, 17, 19, 23, 29, 31, 37, 41, 43)
_BY_EDGE = ("index", "edge_index")
_GUARDED = (int, float, bool, str, type(None))


def attributes(layer):
    """"module:name" of each attribute that Python may look at."""
    return "|".join(
        f"{path}:{name}" for path, module in layer.named_modules()
        for name, value in vars(module).items()
        if type(value) in _GUARDED and (
            name == "training" or name not in _OWN))


def attribute(layer, path, name):
    return getattr(_module(layer, path), name)


def recorded(layer, *about):
    """_record(), the same again: torch.compile may begin anew."""
    found = _RECORDED.setdefault(layer, {})
    try:
        key = about, _called.attributes(layer)
    except TraceError:
        return _record(layer, *about)  # which says why
    if key not in found:
        found[key] = _record(layer, *about)
    return found[key]


def _record(layer, edge_dtype, device, rows, size, given, training, autocast):
    """Of a call: the number of its module, which rows are its sources'
    and destinations', and the keys of its tensors; "" if there is none."""
    device = torch.device(device)
    if autocast != autocast_dtype(device.type) or rows > len(_ROWS):
        return ""
    try:
        call = _stand_in(layer, edge_dtype, device, size, given)
        steps = trace(layer, ("message", "aggregate"), call)
        steps.probe_device(device)
        module, keys = _recorded.record(steps, device, training,
                                        edge_dtype is not None)
    except (TraceError, Error, ValueError) as reason:
        say_once(f"{type(layer).__name__} takes PyG's own path under "
                 f"torch.compile: {reason}")
        return ""
    number = str(len(_MODULES))
    _MODULES[number] = module
    return "|".join((
        number, str(_ROWS.index(call.num_src)),
        str(_ROWS.index(call.num_dst)),
        *(":".join((*key, *("",) * (3 - len(key)))) for key in keys)))


def _stand_in(layer, edge_dtype, device, size, given):
    """A Call of tensors that hold nothing, as many rows of which are equal."""
    def tensor(about):
        if about is None:
            return None
        rows, shape, dtype = about
        shape = shape if rows is None else (_ROWS[rows], *shape)
        return torch.empty(shape, dtype=dtype, device=device)
    kwargs = {}
    for name, kind, about in given:
        kwargs[name] = (tensor(about) if kind == "tensor" else
                        tuple(map(tensor, about)) if kind == "pair" else about)
    names = layer.inspector.get_flat_param_names(
        ["message", "aggregate"], exclude=layer.special_args)
    edges = torch.zeros(2, _ROWS[0], dtype=edge_dtype or torch.int64,
                        device=device)
    if size is not None:
        size = tuple(n if n is None else _ROWS[n] for n in size)
    return Call(layer, list(names), edges, size, kwargs)


def _static(shape):
    """Sizes that torch.compile then takes as they are."""
    return tuple([operator.index(n) for n in shape])


# sizes that torch.export knows from values alone, such as that of edges after
# remove_self_loops(), are equal to no others
_surely = getattr(symbolic_shapes, "guard_or_false", bool)


class _Rows:
    """Tells which rows are as many, by comparing them: a guard each."""

    def __init__(self, edges):
        self.sizes = [edges]

    def number(self, count):
        for k, size in enumerate(self.sizes):
            if _surely(size == count):
                return k
        self.sizes.append(count)
        return len(self.sizes) - 1

    def tensor(self, x):
        if x is None:
            return None
        if x.dim() == 0:
            return None, (), x.dtype
        return self.number(x.size(0)), _static(x.shape[1:]), x.dtype


def _described(kwargs, rows):
    """The arguments of a call as constants; None if they cannot be."""
    found = []
    for name, value in kwargs.items():
        if isinstance(value, Tensor):
            found.append((name, "tensor", rows.tensor(value)))
        elif isinstance(value, (tuple, list)) and len(value) == 2 and all(
                [x is None or isinstance(x, Tensor) for x in value]):
            found.append((name, "pair", tuple([rows.tensor(x)
                                               for x in value])))
        elif value is None or isinstance(value, (bool, int, float, str)):
            found.append((name, "plain", value))
        else:
            return None
    return tuple(found)


def _module(layer, path):
    return functools.reduce(getattr, path.split("."), layer) if path \
        else layer


def _tensor(layer, key, kwargs, reverse):
    """The tensor of a key, as Call.fetch() finds it."""
    kind, first, second = key.split(":")
    if kind == "module":
        return getattr(_module(layer, first), second)
    if kind == "raw":
        return kwargs[first]
    data = kwargs[first[:-2]]
    if isinstance(data, (tuple, list)):
        sends = first.endswith("_j")
        return data[0 if sends != reverse else 1]
    return data


def update_names(layer):
    """The arguments of update(); "" if it is MessagePassing's own."""
    if type(layer).update is MessagePassing.update:
        return ""
    return "|".join(("inputs", *layer.inspector.get_param_names("update")))


def _updated(layer, names, made, edge_index, src, dst, kwargs, reverse):
    """What update() makes of the reduced messages; names: see
    update_names()."""
    i, j = (0, 1) if reverse else (1, 0)
    special = {"size_i": dst, "dim_size": dst, "size_j": src,
               "size": [dst, src] if reverse else [src, dst],
               "ptr": None, "adj_t": None}
    if edge_index is not None:
        special.update(index=edge_index[i], edge_index_i=edge_index[i],
                       edge_index_j=edge_index[j], edge_index=edge_index)
    given = {}
    for name in names.split("|")[1:]:
        if name in special:
            given[name] = special[name]
        elif name[-2:] in ("_i", "_j") and name[:-2] in kwargs:
            end = i if name.endswith("_i") else j
            data = kwargs[name[:-2]]
            data = data[end] if isinstance(data, (tuple, list)) else data
            given[name] = data.index_select(0, edge_index[end])
        elif name in kwargs:
            given[name] = kwargs[name]
    return layer.update(made, **given)


def propagate(layer, edge_index, size, kwargs):
    """PyG's propagate, or NotImplemented, as torch.compile follows it."""
    graph = edge_index if isinstance(edge_index, Graph) and \
        edge_index.exchange is None else None
    if graph is None and not isinstance(edge_index, Tensor):
        return NotImplemented
    names = layer._dfgnn_constant("update_names")
    if graph is not None and any([n in _BY_EDGE or n[-2:] in ("_i", "_j")
                                  for n in names.split("|")]):
        return NotImplemented  # update() wants an edge_index
    rows = _Rows(edge_index.size(1) if graph is None else graph.num_edges)
    given = _described(kwargs, rows)
    if given is None:
        return NotImplemented
    if size is not None:
        size = tuple([None if n is None else rows.number(n) for n in size])
    for name in layer._dfgnn_constant("attributes").split("|"):
        path, attribute = name.split(":")
        # a guard each, of a float too that stands for any with dynamic sizes
        if getattr(_module(layer, path), attribute) != layer._dfgnn_constant(
                "attribute", path, attribute):
            return NotImplemented
    device = edge_index.device
    about = layer._dfgnn_constant(
        "recorded", None if graph is not None else edge_index.dtype,
        str(device), len(rows.sizes), size, given,
        torch.is_grad_enabled(), autocast_dtype(device.type))
    if not about:
        return NotImplemented
    number, src, dst, *keys = about.split("|")
    reverse = layer.flow == "target_to_source"
    src, dst = rows.sizes[int(src)], rows.sizes[int(dst)]
    if graph is None:
        edges = edge_index.flip(0) if reverse else edge_index
    elif (graph.num_src, graph.num_dst) == (src, dst):
        edges, edge_index = graph.id, None
    else:
        return NotImplemented
    made, kept = _MODULES[number](
        edges, src, dst, rows.sizes[0],
        *[_tensor(layer, key, kwargs, reverse) for key in keys])
    for name, tensor in kept.items():
        setattr(layer, name, tensor)
    return _updated(layer, names, made, edge_index, src, dst, kwargs,
                    reverse) if names else made
