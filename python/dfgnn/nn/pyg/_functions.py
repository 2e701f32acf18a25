"""The functions that models and aggregations of PyG call by an index outside of layers: the
functions of torch_geometric that know their groups, and reduce by kernels where
these win.  A module gets a class over its own whose methods call them.  What
traces symbolically or scripts, such as torch.fx, sees PyG's own calls, with the
arguments as they were given."""

import dis
import functools
import inspect
import types

import torch
import torch_geometric.nn as pyg
from torch import nn
from torch_geometric import utils

from ... import _remember, negatives, reductions
from ..._modes import compiling
from ..._over import bases, compared, over, own
from ..._remember import remember
from ...errors import UnsupportedError
from ...reductions import group_count


def _counts(index, count):
    return count is None and isinstance(index, torch.Tensor) \
        and index.dim() == 1 and index.numel() > 0


def _by_kernels(src, index, reduce, count):
    return isinstance(src, torch.Tensor) and isinstance(
        index, torch.Tensor) and index.dim() == 1 and src.dim() and \
        count is not None and reductions.fit(src, index, count, reduce)


def _scatter(theirs):
    def scatter(src, index, dim=0, dim_size=None, reduce="sum"):
        if _counts(index, dim_size):
            dim_size = group_count(index)
        if _by_kernels(src, index, reduce, dim_size):
            return reductions.scatter(src, index, dim, dim_size, reduce)
        return theirs(src, index, dim, dim_size, reduce)
    return scatter


def _softmax(theirs):
    def softmax(src, index=None, ptr=None, num_nodes=None, dim=0):
        if _counts(index, num_nodes):
            num_nodes = group_count(index)
        if ptr is None and _by_kernels(src, index, "max", num_nodes):
            return reductions.softmax(src, index, None, num_nodes, dim)
        return theirs(src, index, ptr, num_nodes, dim)
    return softmax


def _pool(reduce):
    def make(theirs):
        def pool(x, batch, size=None):
            if _counts(batch, size):
                size = group_count(batch)
            if _by_kernels(x, batch, reduce, size):
                return reductions.scatter(x, batch, -1 if x.dim() == 1 else -2,
                                          size, reduce)
            return theirs(x, batch, size)
        return pool
    return make


def _dense(theirs):
    def to_dense_batch(x, batch=None, fill_value=0.0, max_num_nodes=None,
                       batch_size=None):
        if _counts(batch, batch_size) and not batch.is_inference():
            batch_size = group_count(batch)
            if max_num_nodes is None:
                max_num_nodes = remember(batch, "largest graph", lambda: int(
                    torch.bincount(batch).max()))
        return theirs(x, batch, fill_value, max_num_nodes, batch_size)
    return to_dense_batch


def _drawn(ours):
    """Serves captured steps alone: elsewhere a seed draws PyG's pairs."""
    def make(theirs):
        def sample(edge_index, *args, **kwargs):
            current = _remember.current
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


def _called(scope, name):
    """The function of dfgnn for a name of a module, or what the module has
    there while torch.fx or a test has put something else in its place."""
    theirs = scope[name]
    ours = FUNCTIONS[theirs]

    def call(*args, **kwargs):
        if compiling():
            return theirs(*args, **kwargs)
        current = scope[name]
        return (ours if current is theirs else current)(*args, **kwargs)
    return call


def _names(code, scope):
    """The names by which code calls functions of PyG and nothing else."""
    uses = {}
    for step in dis.get_instructions(code):
        value = scope.get(step.argval) if isinstance(step.argval, str) else None
        if isinstance(value, types.FunctionType) and value in FUNCTIONS:
            uses.setdefault(step.argval, set()).add(step.opname)
    return [name for name, ops in uses.items() if ops == {"LOAD_GLOBAL"}]


def _with_functions(method, called):
    """A function of a class with the functions that it calls replaced, whose
    names are added to called; itself if it calls none.  Its globals are its
    module's, which get ours by names of their own."""
    plain = inspect.unwrap(method)
    if not isinstance(plain, types.FunctionType) or plain is not method:
        return method
    code, scope = plain.__code__, plain.__globals__
    names = _names(code, scope)
    if not names:
        return method
    for name in names:
        scope.setdefault(f"_dfgnn_{name}", _called(scope, name))
    called.update(names)
    function = types.FunctionType(
        code.replace(co_names=tuple(f"_dfgnn_{name}" if name in names else name
                                    for name in code.co_names)),
        scope, plain.__name__, plain.__defaults__, plain.__closure__)
    function.__kwdefaults__ = plain.__kwdefaults__
    return functools.wraps(plain)(function)


def replaced(method):
    """A method of a layer that has kernels, with the functions that it calls
    replaced."""
    return _with_functions(inspect.unwrap(method), set())


def _counting(kind, called):
    """A __call__ that gives forward() the number of groups; None if there is no
    such argument."""
    names = list(inspect.signature(kind.forward).parameters)[1:]
    count = next((n for n, index in _COUNTED.items()
                  if n in names and index in names), None)
    if count is None:
        return None
    index, place = _COUNTED[count], names.index(count)
    called.add(f"{count} of {index}")

    def __call__(self, *args, **kwargs):
        arguments = dict(zip(names, args), **kwargs)
        if not compiling() and arguments.get("ptr") is None and _counts(
                arguments.get(index), arguments.get(count)):
            kwargs[count] = group_count(arguments[index])
            if len(args) > place:
                args = *args[:place], kwargs.pop(count), *args[place + 1:]
        return kind.__call__(self, *args, **kwargs)
    return __call__


@functools.lru_cache(None)
def calling(kind):
    """A class over the kind, whose _dfgnn_called are the names of what its
    methods call; None if they call nothing of ours."""
    if kind.__module__.startswith("torch.") or "forward" not in dir(kind) or \
            own(kind, calling) is not None:
        return None
    called, methods = set(), {}
    for base in reversed(kind.__mro__):
        if base in (object, nn.Module) or \
                base.__module__.startswith("torch."):
            continue
        for name, value in vars(base).items():
            if name.startswith("__") or not isinstance(
                    value, types.FunctionType):
                continue
            method = _with_functions(value, called)
            if method is not value or name in methods:
                methods[name] = method
    if issubclass(kind, pyg.aggr.Aggregation) or \
            kind.__module__.startswith("torch_geometric.nn.norm"):
        call = _counting(kind, called)
        if call is not None:
            methods["__call__"] = call
    return type(kind.__name__, bases(kind), {
        **over(calling, kind), **methods,
        "_dfgnn_called": sorted(called)}) if called and not compared(
            kind) else None
