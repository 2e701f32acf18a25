"""The base of the message functions of edge programs, in PyTorch and in
JAX: i, j, e and r, and the tensors that each is given by name."""

import functools
import inspect

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
