"""Classes over those of other libraries, of which one is made when dfgnn first
meets a class: copies and pickles name the library's class."""

import dis
import functools
import types

_LIBRARIES = {"torch", "torch_geometric", "dgl", "dfgnn", "builtins"}


class Over:
    """The first base of a class over another, of which no __init_subclass__ is
    told: it may keep a list of the classes that users define, or refuse one."""

    def __init_subclass__(cls, **kwargs):
        if "_dfgnn_over" not in vars(cls):
            super().__init_subclass__(**kwargs)


def bases(kind):
    return (kind,) if issubclass(kind, Over) else (Over, kind)


def over(maker, kind):
    """The attributes that a class over kind begins with; maker(kind) gives the
    same class in another process."""
    return {"__module__": kind.__module__, "__doc__": kind.__doc__,
            "__qualname__": kind.__qualname__, "__reduce_ex__": _reduced,
            "_dfgnn_over": (maker, kind)}


@functools.lru_cache(None)
def compared(kind):
    """The method of a class or its bases that does more with the class of its
    module than read an attribute (`type(self) is Mine`), which would be another
    over it; None if none does.  A class method that no other method names is
    called by the class, and may."""
    methods = [(f"{base.__name__}.{name}", name, isinstance(value, classmethod),
                code, module) for base in kind.__mro__
               if base.__module__.partition(".")[0] not in _LIBRARIES
               for name, value in vars(base).items()
               if not name.startswith("__") for code, module in _codes(value)]
    called = {name for *_, of_class, code, _ in methods if not of_class
              for name in code.co_names}
    for place, name, of_class, code, module in methods:
        uses = set(_uses(code, module, of_class)) - _READS
        if uses and (not of_class or name in called or uses & _WRITES):
            return place
    return None


_READS = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"}
_WRITES = {"STORE_ATTR", "DELETE_ATTR", "COPY", "DUP_TOP"}
_METHODS = (types.FunctionType, classmethod, staticmethod, property,
            functools.cached_property)


def _codes(value):
    """(code, the name of its first argument) of a method, of what its decorators
    wrap, and of the functions inside."""
    waiting = [(value, None)]
    for one, first in waiting:
        if isinstance(one, types.CodeType):
            first = first or "".join(one.co_varnames[:1])
            yield one, first
            waiting += [(constant, first) for constant in one.co_consts]
        elif isinstance(one, _METHODS):
            waiting += [(getattr(one, name, None), None) for name in (
                "__code__", "__func__", "__wrapped__", "fget", "fset", "func")]


def _uses(code, module, of_class):
    """The steps that follow each place where code has the class of a module, or
    the module is a class."""
    if not of_class and {"type", "__class__"}.isdisjoint(code.co_names):
        return
    steps = [(s.opname.partition("_BORROW")[0], s.argval)
             for s in dis.get_instructions(code)
             if s.opname not in ("CACHE", "PRECALL", "PUSH_NULL")]
    for at, step in enumerate(steps):
        if step not in (("LOAD_FAST", module), ("LOAD_DEREF", module)):
            continue
        if of_class:
            yield steps[at + 1][0]
        elif steps[at - 1:at] == [("LOAD_GLOBAL", "type")] or \
                steps[at + 1:at + 2] == [("LOAD_ATTR", "__class__")]:
            yield steps[at + 2][0]


def own(kind, maker):
    """The class over which a maker made this one, or None."""
    made_by, base = vars(kind).get("_dfgnn_over", (None, None))
    return base if made_by is maker else None


def _reduced(self, protocol):
    parts = object.__reduce_ex__(self, max(protocol, 2))
    base = vars(type(self)).get("_dfgnn_over")  # subclasses have names
    return parts if base is None else (_restored, base, *parts[2:])


def _restored(maker, kind):
    return object.__new__(maker(kind))
