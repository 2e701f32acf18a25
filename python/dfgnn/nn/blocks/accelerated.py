"""The classes that dfgnn.accelerate() gives the blocks of other libraries."""

import functools
import inspect

from ..._guard import guarded
from ..._over import bases, over, own
from . import _anemoi, _orb, _physicsnemo
from ._block import served

LIBRARIES = {"physicsnemo": _physicsnemo, "modulus": _physicsnemo,
             "orb_models": _orb, "anemoi": _anemoi}
"""The functions that serve the classes of a package, by its name."""


def _row(kind):
    library = LIBRARIES.get(kind.__module__.split(".")[0])
    return None if library is None else library.TABLE.get(kind.__name__)


@functools.lru_cache(None)
def with_kernels(kind):
    """The class with kernels for a class of a library, or None."""
    row = _row(kind)
    if row is None or without_kernels(kind) or _other_arguments(kind, row):
        return None
    methods = {name: functools.wraps(getattr(kind, name))(
        served(kind, name, run)) for name, run in row.methods.items()}
    methods["forward"] = guarded(methods.get("forward", kind.forward))
    return type(kind.__name__, bases(kind), {
        **over(with_kernels, kind), "_dfgnn_base": kind, **methods})


def without_kernels(kind):
    """The library's class of a class with kernels, or None."""
    return own(kind, with_kernels)


def _other_arguments(kind, row):
    """The first method whose arguments are not those that its kernels know, as
    (its name, its arguments, those); None if there is none."""
    for name, run in row.methods.items():
        arguments, known = (
            [] if function is None else [*inspect.signature(
                function).parameters][1:]
            for function in (getattr(kind, name, None), run))
        if arguments[:len(known)] != known:
            return name, arguments, known
    return None


def why_not(kind):
    """Why a class has no kernels; None if it has, or is no such block."""
    library = LIBRARIES.get(kind.__module__.split(".")[0])
    if library is None or without_kernels(kind):
        return None
    row = library.TABLE.get(kind.__name__)
    if row is not None:
        name, arguments, known = _other_arguments(kind, row)
        return (f"its {name} takes {', '.join(arguments)}, expected "
                + ", ".join(known) + ": it is of another version")
    return library.REFUSED.get(kind.__name__)


def detail(module):
    """The line of the report about a module with kernels; None for any other."""
    kind = without_kernels(type(module))
    return None if kind is None else _row(kind).detail


def whole(module):
    """Whether kernels run in place of the layers in a module with kernels."""
    kind = without_kernels(type(module))
    return kind is not None and _row(kind).whole
