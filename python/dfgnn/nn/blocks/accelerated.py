"""The classes that dfgnn.accelerate() gives the blocks of other libraries."""

import functools
import inspect

from ..._guard import guarded
from . import _anemoi, _orb, _physicsnemo
from ._block import served

LIBRARIES = {"physicsnemo": _physicsnemo, "modulus": _physicsnemo,
             "orb_models": _orb, "anemoi": _anemoi}
"""The functions that serve the classes of a package, by its name."""


class Block:
    """The first base of a class over a block of another library."""

    _dfgnn_base = None  # the library's class

    def __reduce_ex__(self, protocol):
        """Pickles as its own class, which is made anew when it is read."""
        made = object.__reduce_ex__(self, max(protocol, 2))
        return (_restore, (type(self)._dfgnn_base,), *made[2:])


def _restore(kind):
    return object.__new__(with_kernels(kind))


def _row(kind):
    """The Row of a class, or None."""
    library = LIBRARIES.get(kind.__module__.split(".")[0])
    return None if library is None else library.TABLE.get(kind.__name__)


@functools.lru_cache(None)
def with_kernels(kind):
    """The class with kernels for a class of a library, or None."""
    row = _row(kind)
    if row is None or issubclass(kind, Block) or _other_arguments(kind, row):
        return None
    methods = {name: functools.wraps(getattr(kind, name))(
        served(kind, name, run)) for name, (run, _) in row.methods.items()}
    methods["forward"] = guarded(methods.get("forward", kind.forward))
    return type(kind.__name__, (Block, kind), {
        "__module__": kind.__module__, "__doc__": kind.__doc__,
        "__qualname__": kind.__qualname__, "_dfgnn_base": kind, **methods})


def without_kernels(kind):
    """The library's class of a class with kernels, or None."""
    return kind.__dict__.get("_dfgnn_base") if issubclass(kind, Block) \
        else None


def _other_arguments(kind, row):
    """The first method whose arguments are not those that its kernels know, as
    (its name, its arguments, those); None if there is none."""
    for name, (_, known) in row.methods.items():
        method = getattr(kind, name, None)
        found = [] if method is None else list(
            inspect.signature(method).parameters)[1:]
        if found[:len(known)] != list(known):
            return name, found, known
    return None


def why_not(kind):
    """Why a class has no kernels; None if it has, or is no such block."""
    library = LIBRARIES.get(kind.__module__.split(".")[0])
    if library is None or issubclass(kind, Block):
        return None
    row = library.TABLE.get(kind.__name__)
    if row is not None:
        name, found, known = _other_arguments(kind, row)
        return (f"its {name} takes {', '.join(found)}, expected "
                + ", ".join(known) + ": it is of another version")
    return library.REFUSED.get(kind.__name__)


def detail(module):
    """The line of the report about a module with kernels; None for any other."""
    own = without_kernels(type(module))
    return None if own is None else _row(own).detail


def whole(module):
    """Whether kernels run in place of the layers in a module with kernels."""
    own = without_kernels(type(module))
    return own is not None and _row(own).whole
