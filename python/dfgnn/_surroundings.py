"""The values that a function finds outside of itself, to be compared with what it found
when it was traced."""

import dis
import functools
import types

import torch

_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype, bytes,
                    types.ModuleType, types.BuiltinFunctionType, type))


def plain(value, depth=0):
    """The values that a function finds outside of itself, to be compared; raises
    TypeError where it may change without another value being there."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in (tuple, list) and depth < 3:
        return kind, *[plain(v, depth + 1) for v in value]
    if kind is types.FunctionType and depth < 3:
        if (value.__module__ or "").startswith(("torch", "dfgnn")):
            return value
        return value, surroundings(value, depth + 1)
    raise TypeError(kind)


@functools.lru_cache(maxsize=1024)
def _global_names(code):
    """The names that code, and functions inside of it, look up in the
    module."""
    found = [i.argval for i in dis.get_instructions(code)
             if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found += _global_names(inner)
    return tuple(dict.fromkeys(found))


def surroundings(function, depth=0):
    """The values that a function finds in its module and where it was
    defined."""
    names = function.__globals__
    found = [plain(names[name], depth)
             for name in _global_names(function.__code__) if name in names]
    found += [plain(cell.cell_contents, depth)
              for cell in function.__closure__ or ()]
    return (*found, plain(function.__defaults__ or (), depth))
