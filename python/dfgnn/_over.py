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
    over it; None if none does."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] in _LIBRARIES:
            continue
        for name, value in vars(base).items():
            value = getattr(value, "__func__", value)
            if not name.startswith("__") and isinstance(
                    value, types.FunctionType) and \
                    not {"type", "__class__"}.isdisjoint(
                        value.__code__.co_names) and _compares(value.__code__):
                return f"{base.__name__}.{name}"
    return None


def _compares(code):
    steps = [(s.opname.partition("_BORROW")[0], s.argval)
             for s in dis.get_instructions(code)
             if s.opname not in ("CACHE", "PRECALL", "PUSH_NULL")]
    module = ("LOAD_FAST", *code.co_varnames[:1])
    for at, step in enumerate(steps):
        of = steps[at - 1:at] == [("LOAD_GLOBAL", "type")] and 2 or \
            steps[at + 1:at + 2] == [("LOAD_ATTR", "__class__")] and 2
        if step == module and of and not steps[at + of][0].startswith(
                ("LOAD_ATTR", "LOAD_METHOD")):
            return True
    return False


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
