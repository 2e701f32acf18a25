"""The base of the message functions of edge programs, in PyTorch and in
JAX: i, j, e and r, the tensors that each is given by name, and what a function
finds outside of itself."""

import dis
import functools
import inspect
import types

from ._program_handle import DST, EDGE, REL, SRC

LETTERS = {"i": DST, "j": SRC, "e": EDGE, "r": REL}
_WORDS = {"i": "receiving node", "j": "sending node", "e": "edge",
          "r": "relation"}


class Names:
    """The i, j or e of a function: its tensors as attributes."""

    def __init__(self, letter, values):
        self.__dict__.update(values)
        self._letter = letter

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        letter = self.__dict__.get("_letter", "?")
        there = sorted(k for k in self.__dict__ if not k.startswith("_"))
        raise AttributeError(
            f"{letter}.{name} is not given; {letter} has "
            + (", ".join(there) or "nothing"))


class MessageFunction:
    """A function of some of i, j, e and r; letters: those that it may take."""

    letters = tuple(LETTERS)

    def __init__(self, function, reduce):
        if reduce not in ("sum", "mean", "max", "min", None):
            raise ValueError("reduce must be 'sum', 'mean', 'max', 'min' or "
                             f"None, got {reduce!r}")
        functools.update_wrapper(self, function)
        self.function, self.reduce = function, reduce
        self.names = list(inspect.signature(function).parameters)
        if not set(self.names) & set(self.letters):
            *most, last = self.letters
            raise TypeError(
                f"{function.__name__}({', '.join(self.names)}) takes none of "
                f"{', '.join(most)} and {last}: "
                + ", ".join(_WORDS[letter] for letter in self.letters))


_PLAIN = frozenset((int, float, bool, str, type(None), bytes, types.ModuleType,
                    types.BuiltinFunctionType, type))


def plain(value, depth=0):
    """The values that a function finds outside of itself, to be compared;
    raises TypeError where it may change without another value being there."""
    kind = type(value)
    if kind in _PLAIN or kind.__module__ == "torch" and kind.__name__ == "dtype":
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
    names = [i.argval for i in dis.get_instructions(code)
             if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            names += _global_names(inner)
    return tuple(dict.fromkeys(names))


def outside_of(function):
    """The values that a function finds by name in its module and where it was
    defined."""
    names = function.__globals__
    values = [names[name] for name in _global_names(function.__code__)
              if name in names]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # it is empty yet
            pass
    return values


def surroundings(function, depth=0):
    """A value that differs where functions do: outside_of() and defaults."""
    return (*[plain(value, depth) for value in outside_of(function)],
            plain(function.__defaults__ or (), depth))
