"""The text of an edge program, written value by value.  Nothing here needs
torch."""

import math

from ._program_handle import EDGE, PLACES
from ._trace import Value


def _number(x):
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return repr(x)


def _axes(shape):
    return f"[{','.join(map(str, shape))}]" if shape else ""


class Writer:
    """A recorder whose values are names in a text."""

    BETWEEN = {"+", "-", "*", "/", "<", "<=", "=="}

    def __init__(self):
        super().__init__()
        self.declared, self.lines = [], []
        self.drops = 0
        self.widest = 0  # most products of a linear map of an edge

    def whole(self, name, values, *numbers):
        """The value of a function that is otherwise written out as several;
        None if it is."""
        return None

    def leaf(self, name, tensor, place, shape):
        self.declared.append(f"{PLACES[place]} {name}{_axes(shape)}")
        return name

    def number(self, x):
        return f"({_number(x)})"

    def make(self, name, values, numbers, place, shape):
        a = [v.handle for v in values]
        if name in ("linear", "matmul") and place == EDGE:
            self.widest = max(self.widest, math.prod(shape)
                              * values[0].shape[-1])
        if name in self.BETWEEN:
            text = f"{a[0]} {name} {a[1]}"
        elif name == "slice":
            after = ", :" * (-1 - numbers[2])
            text = f"{a[0]}[{numbers[0]}:{numbers[1]}{after}]"
        elif name == "dropout":
            text = self._dropped(a[0], values[0], *numbers)
        elif name in ("reshape", "expand"):
            text = f"{name}({a[0]}, {_axes(shape or (1,))})"
        else:
            a += map(_number, numbers)
            text = f"{name}({', '.join(a)})"
        handle = f"v_{len(self.lines) + 1}"
        self.lines.append(f"{handle} = {text}")
        return Value(self, handle, place, shape)

    def _dropped(self, handle, x, p, at=None):
        """at: the place where it is drawn, if that is not the value's."""
        number, self.drops = self.drops, self.drops + 1
        if at is None or at == x.place:
            return f"dropout({handle}, {_number(p)})"
        return (f"{handle} * keep({number}, {_number(p)}, "
                f"{PLACES[at]}{_axes(x.shape)})")

    def text(self, outputs):
        result = ", ".join(
            f"out_{k} = {v.handle} as {PLACES[v.place]}{_axes(v.shape)}"
            for k, v in enumerate(outputs))
        return "\n".join([*self.declared, *self.lines, f"return {result}"]
                         ) + "\n"
