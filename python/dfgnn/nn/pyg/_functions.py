"""The functions that models and aggregations of PyG call by an index outside of layers: the
functions of torch_geometric that know their groups, and reduce by kernels where
these win.  A module gets a class over its own whose methods call them."""

import functools
import inspect
import types

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric import utils

from ... import _capture_reads, negatives, reductions
from ..._modes import compiling
from ..._remember import remember
from ...errors import UnsupportedError
from ...reductions import group_count


def _counts(index, count):
    return count is None and isinstance(index, torch.Tensor) \
        and index.dim() == 1 and not compiling()


def _by_kernels(src, index, reduce, count):
    return isinstance(src, torch.Tensor) and isinstance(
        index, torch.Tensor) and index.dim() == 1 and src.dim() and \
        reductions.fit(src, index, count, reduce)


def _scatter(theirs):
    def scatter(src, index, dim=0, dim_size=None, reduce="sum"):
        if _counts(index, dim_size):
            dim_size = group_count(index)
        if not compiling() and _by_kernels(src, index, reduce, dim_size):
            return reductions.scatter(src, index, dim, dim_size, reduce)
        return theirs(src, index, dim, dim_size, reduce)
    return scatter


def _softmax(theirs):
    def softmax(src, index=None, ptr=None, num_nodes=None, dim=0):
        if _counts(index, num_nodes):
            num_nodes = group_count(index)
        if ptr is None and not compiling() and _by_kernels(src, index, "max",
                                                           num_nodes):
            return reductions.softmax(src, index, None, num_nodes, dim)
        return theirs(src, index, ptr, num_nodes, dim)
    return softmax


def _pool(reduce):
    def make(theirs):
        def pool(x, batch, size=None):
            if _counts(batch, size):
                size = group_count(batch)
            if not compiling() and _by_kernels(x, batch, reduce, size):
                return reductions.scatter(x, batch, -1 if x.dim() == 1 else -2,
                                          size, reduce)
            return theirs(x, batch, size)
        return pool
    return make


def _largest(batch):
    """The nodes of the largest graph."""
    return remember(batch, "largest", lambda: int(torch.bincount(
        batch).max()))


def _dense(theirs):
    def to_dense_batch(x, batch=None, fill_value=0.0, max_num_nodes=None,
                       batch_size=None):
        if _counts(batch, batch_size) and batch.numel() and \
                not batch.is_inference():
            batch_size = group_count(batch)
            if max_num_nodes is None:
                max_num_nodes = _largest(batch)
        return theirs(x, batch, fill_value, max_num_nodes, batch_size)
    return to_dense_batch


def _drawn(ours):
    """In captured steps alone: elsewhere a seed gives the pairs that it gave."""
    def make(theirs):
        def sample(edge_index, *args, **kwargs):
            current = _capture_reads.current
            if current is not None and current.counts is not None and \
                    type(edge_index) is torch.Tensor:
                try:
                    return ours(edge_index, *args, **kwargs)
                except UnsupportedError:
                    pass  # too many pairs
            return theirs(edge_index, *args, **kwargs)
        return sample
    return make


_MAKERS = {utils.scatter: _scatter, utils.softmax: _softmax,
           utils.to_dense_batch: _dense,
           pyg.global_add_pool: _pool("sum"),
           pyg.global_mean_pool: _pool("mean"),
           pyg.global_max_pool: _pool("max"),
           **{getattr(utils, name): _drawn(getattr(negatives, name))
              for name in negatives.__all__}}
FUNCTIONS = {theirs: functools.wraps(theirs)(make(theirs))
             for theirs, make in _MAKERS.items()}
"""Ours by theirs."""

# arguments of forward() that are the number of an index's groups
_COUNTED = {"batch_size": "batch", "dim_size": "index"}


def _with_functions(method, found):
    """A function of a class with the functions that it calls replaced, whose
    names are added to found; itself if it calls none."""
    plain = inspect.unwrap(method)
    if not isinstance(plain, types.FunctionType) or plain is not method:
        return method
    names = [name for name in plain.__code__.co_names
             if _hashable(plain.__globals__.get(name)) in FUNCTIONS]
    if not names:
        return method
    scope = dict(plain.__globals__)
    for name in names:
        scope[name] = FUNCTIONS[scope[name]]
    found.update(names)
    # without __name__, torch.compile reads this scope and not the module
    del scope["__name__"]
    made = types.FunctionType(plain.__code__, scope, plain.__name__,
                              plain.__defaults__, plain.__closure__)
    made.__kwdefaults__ = plain.__kwdefaults__
    return functools.wraps(plain)(made)


def replaced(method):
    """A method of a layer that has kernels, with the functions that it calls
    replaced."""
    return _with_functions(inspect.unwrap(method), set())


def _hashable(value):
    return value if isinstance(value, types.FunctionType) else None


def _with_count(forward, found):
    """forward() that is given the number of groups, if it can be."""
    parameters = list(inspect.signature(forward).parameters)
    name = next((n for n in _COUNTED if n in parameters
                 and _COUNTED[n] in parameters), None)
    if name is None:
        return forward
    place, index_at = (parameters.index(n) - 1 for n in (
        name, _COUNTED[name]))
    found.add(f"{name} of {_COUNTED[name]}")

    @functools.wraps(forward)
    def counted(self, *args, **kwargs):
        if len(args) <= place and kwargs.get(name) is None:
            index = args[index_at] if len(args) > index_at else \
                kwargs.get(_COUNTED[name])
            if _counts(index, None):
                kwargs[name] = group_count(index)
        return forward(self, *args, **kwargs)
    return counted


def _aggregation(kind, found):
    """PyG's Aggregation asks for the number before its forward."""
    def __call__(self, x, index=None, ptr=None, dim_size=None, dim=-2,
                 **kwargs):
        if ptr is None and _counts(index, dim_size):
            dim_size = group_count(index)
        return kind.__call__(self, x, index, ptr, dim_size, dim, **kwargs)
    found.add("dim_size of index")
    return __call__


@functools.lru_cache(None)
def calling(kind):
    """(a class over the kind, names of what its methods call); (None, ())."""
    if kind.__module__.startswith("torch.") or "forward" not in dir(kind) or \
            own(kind) is not None:
        return None, ()
    found, methods = set(), {}
    for base in reversed(kind.__mro__):
        if base in (object, nn.Module) or \
                base.__module__.startswith("torch."):
            continue
        for name, value in vars(base).items():
            if name.startswith("__") or not isinstance(
                    value, types.FunctionType):
                continue
            made = _with_functions(value, found)
            if made is not value or name in methods:
                methods[name] = made
    if issubclass(kind, pyg.aggr.Aggregation):
        methods["__call__"] = _aggregation(kind, found)
    elif kind.__module__.startswith("torch_geometric.nn.norm"):
        forward = methods.get("forward", kind.forward)
        made = _with_count(forward, found)
        if made is not forward:
            methods["forward"] = made
    if not found:
        return None, ()
    made = type(kind.__name__, (kind,), {
        **methods, "__module__": kind.__module__, "__doc__": kind.__doc__,
        "__qualname__": kind.__qualname__, "__reduce_ex__": _reduced,
        "_dfgnn_calling": kind})
    return made, tuple(sorted(found))


def own(kind):
    """The class of which calling() made another, or None."""
    return vars(kind).get("_dfgnn_calling")


def _reduced(self, protocol):
    """Pickles as its own class, which is made anew when it is read."""
    made = object.__reduce_ex__(self, max(protocol, 2))
    return (_restore, (type(self)._dfgnn_calling,), *made[2:])


def _restore(kind):
    return object.__new__(calling(kind)[0])
