"""What values are told to: a recorder writes the text of a program, or computes
with torch's operations."""

import math

import torch
import torch.nn.functional as F

from ._trace import (
    DST, EDGE, ENDS, OVER_EDGES, PARAM, PLACES, REL, SRC, Value, refuse)


class Recorder:
    """Notes the inputs; subclasses say what a value is."""

    rows = object()

    def __init__(self):
        self.tensors, self.names, self.places = [], [], []
        self._captured, self._kept_alive = {}, []

    def input(self, name, tensor, place):
        if not (tensor.is_floating_point() or tensor.is_complex()):
            tensor = tensor.to(torch.get_default_dtype())
        shape = tuple(tensor.shape)[place != PARAM:]
        if len(shape) > 3:
            refuse(f"{name} has {len(shape)} axes, expected at most 3 after "
                   "the rows")
        self.tensors.append(tensor)
        self.names.append(name)
        self.places.append(place)
        return Value(self, self.leaf(name, tensor, place, shape), place, shape)

    def whole(self, name, values, *numbers):
        """The value of a function that is otherwise written out as several;
        None if it is."""
        return None

    def value(self, x):
        """x as a value; a tensor that is not an argument is a parameter."""
        if isinstance(x, Value):
            return x
        if isinstance(x, (int, float)):
            return Value(self, self.number(float(x)), PARAM, ())
        if not isinstance(x, torch.Tensor):
            refuse(f"found a {type(x).__name__}, expected a value, a tensor "
                   "or a number")
        found = self._captured.get(id(x))
        if found is None:
            self._kept_alive.append(x)  # so that no other gets its id
            found = self._captured[id(x)] = self.input(
                f"tensor_{len(self._captured)}", x, PARAM)
        return found


def _text_number(x):
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return repr(x)


class Text(Recorder):
    """Writes a program."""

    BETWEEN = {"+", "-", "*", "/", "<", "<=", "=="}

    def __init__(self):
        super().__init__()
        self.declared, self.lines, self.count = [], [], 0
        self.widest = 0  # most products of a linear map of an edge

    def leaf(self, name, tensor, place, shape):
        axes = f"[{','.join(map(str, shape))}]" if shape else ""
        self.declared.append(f"{PLACES[place]} {name}{axes}")
        return name

    def number(self, x):
        return f"({_text_number(x)})"

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
        elif name in ("reshape", "expand"):
            text = f"{name}({a[0]}, [{','.join(map(str, shape or (1,)))}])"
        else:
            a += map(_text_number, numbers)
            text = f"{name}({', '.join(a)})"
        self.count += 1
        handle = f"v_{self.count}"
        self.lines.append(f"{handle} = {text}")
        return Value(self, handle, place, shape)

    def text(self, outputs):
        result = ", ".join(
            f"out_{k} = {v.handle} as {PLACES[v.place]}"
            + (f"[{','.join(map(str, v.shape))}]" if v.shape else "")
            for k, v in enumerate(outputs))
        return "\n".join(self.declared + self.lines
                         + [f"return {result}"]) + "\n"


class Torch(Recorder):
    """Computes with torch's operations, a tensor for each value."""

    def __init__(self, graph, seed=None):
        super().__init__()
        self.graph, self.seed = graph, seed

    @staticmethod
    def _padded(x, rank):
        """Three axes after the rows."""
        return x.reshape(x.shape[:1] + (1,) * (3 - rank) + x.shape[1:])

    def leaf(self, name, tensor, place, shape):
        rows = tensor.unsqueeze(0) if place == PARAM else tensor
        return self._padded(rows, len(shape))

    def number(self, x):
        return x

    def _at(self, v, place):
        x = v.handle
        if isinstance(x, float) or v.place == place or v.place == PARAM:
            return x
        return x.index_select(0, self._node(v.place))

    def _node(self, place):
        """The node of each edge."""
        return self.graph.dst if place == DST else self.graph.src if \
            place == SRC else self.graph.relation

    def _ends(self, place):
        """The node of each edge, and how many there are."""
        return self._node(place), getattr(self.graph, {
            DST: "num_dst", SRC: "num_src", REL: "num_relations"}[place])

    def _all_edges(self, v):
        x = self._at(v, EDGE)
        count = self.graph.num_edges
        if isinstance(x, float):
            like = self.tensors[0]
            x = torch.full((1, 1, 1, 1), x, dtype=like.dtype,
                           device=like.device)
        return x.expand(count, *x.shape[1:]) if v.place == PARAM else x

    def _over(self, name, v):
        what, way = name.rsplit("_", 1)
        x = self._all_edges(v)
        index, size = self._ends(ENDS[way])
        zero = x.new_zeros((size,) + x.shape[1:])
        if what in ("sum", "mean"):
            total = zero.index_add(0, index, x)
            if what == "sum":
                return total
            count = torch.bincount(index, minlength=size).clamp(min=1)
            return total / count.view(-1, 1, 1, 1).to(x.dtype)
        full = index.view(-1, 1, 1, 1).expand_as(x)
        if what in ("max", "min"):
            # scatter_reduce's gradient counts what was there as an edge, even
            # without include_self
            least = torch.full_like(zero, -math.inf if what == "max"
                                    else math.inf)
            found = least.scatter_reduce(0, full, x, "a" + what)
            there = torch.bincount(index, minlength=size) > 0
            return torch.where(there.view(-1, 1, 1, 1), found, zero)
        top = zero.scatter_reduce(0, full, x.detach(), "amax",
                                  include_self=False)
        top = torch.where(top.isinf(), torch.zeros_like(top), top)
        e = (x - top[index]).exp()
        total = zero.index_add(0, index, e)
        return e / total[index] if what == "softmax" else top + total.log()

    def make(self, name, values, numbers, place, shape):
        if name in OVER_EDGES:
            return Value(self, self._over(name, values[0]), place, shape)
        a = [self._at(v, place) for v in values]
        made = self._compute(name, a, values, numbers, shape)
        return Value(self, made, place, shape)

    def _compute(self, name, a, values, numbers, shape):
        if name in SIGNS:
            return SIGNS[name](*a)
        if name in ("sum", "mean", "amax", "amin", "logsumexp"):
            return getattr(torch, name)(a[0], numbers[0], keepdim=True)
        if name == "softmax":
            return a[0].softmax(numbers[0])
        if name == "slice":
            return a[0].narrow(numbers[2], numbers[0], numbers[1] - numbers[0])
        if name == "reshape":
            return self._padded(a[0].reshape(a[0].shape[:1] + tuple(shape)),
                                len(shape))
        if name == "cat":
            rows = max(x.shape[0] for x in a)
            front = (1,) * (4 - len(shape)) + shape[:-1]
            return torch.cat([x.expand(rows, *front[-2:], x.shape[-1])
                              for x in a], -1)
        if name in ("linear", "matmul"):
            other = a[1].transpose(-1, -2) if name == "linear" else a[1]
            return a[0] @ other
        if name == "atan2":
            return torch.atan2(*[
                x if torch.is_tensor(x) else torch.full(
                    (1, 1, 1, 1), x, dtype=self.tensors[0].dtype,
                    device=self.graph.device) for x in a])
        if name == "where":
            return torch.where(a[0] != 0, *(
                x if torch.is_tensor(x) else torch.tensor(
                    x, dtype=self.tensors[0].dtype, device=a[0].device)
                for x in a[1:]))
        if name == "dropout":
            return F.dropout(a[0], numbers[0])
        if name == "neg":
            return -a[0]
        function = getattr(F, name, None) or getattr(torch, name)
        return function(a[0], *numbers)

    def result(self, v, count):
        x = v.handle
        if isinstance(x, float):
            x = self.tensors[0].new_full((1, 1, 1, 1), x)
        if v.place == PARAM:
            return x.reshape(v.shape)
        x = x.expand(count, *x.shape[1:])
        return x.reshape((count,) + v.shape)


def _extreme(function):
    """max and min, of which one operand may be a number."""
    def apply(a, b):
        if not torch.is_tensor(a):
            a, b = b, a
        if not torch.is_tensor(b):
            b = torch.full_like(a, b)
        return function(a, b)
    return apply


SIGNS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b,
         "*": lambda a, b: a * b, "/": lambda a, b: a / b,
         "<": lambda a, b: (a < b) * 1.0, "<=": lambda a, b: (a <= b) * 1.0,
         "==": lambda a, b: (a == b) * 1.0,
         "max": _extreme(torch.maximum), "min": _extreme(torch.minimum)}
