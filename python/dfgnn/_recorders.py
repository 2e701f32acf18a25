"""What values are told to: a recorder writes the text of a program, or computes
with torch's operations."""

import math

import torch
import torch.nn.functional as F

from ._dropout import keep_factors
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
        self.drops = 0
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
        elif name == "dropout":
            text = self._dropped(a[0], values[0], *numbers)
        elif name in ("reshape", "expand"):
            text = f"{name}({a[0]}, [{','.join(map(str, shape or (1,)))}])"
        else:
            a += map(_text_number, numbers)
            text = f"{name}({', '.join(a)})"
        self.count += 1
        handle = f"v_{self.count}"
        self.lines.append(f"{handle} = {text}")
        return Value(self, handle, place, shape)

    def _dropped(self, handle, x, p, at=None):
        """at: the place where it is drawn, if that is not the value's."""
        number, self.drops = self.drops, self.drops + 1
        if at is None or at == x.place:
            return f"dropout({handle}, {_text_number(p)})"
        axes = f"[{','.join(map(str, x.shape))}]" if x.shape else ""
        return (f"{handle} * keep({number}, {_text_number(p)}, "
                f"{PLACES[at]}{axes})")

    def text(self, outputs):
        result = ", ".join(
            f"out_{k} = {v.handle} as {PLACES[v.place]}"
            + (f"[{','.join(map(str, v.shape))}]" if v.shape else "")
            for k, v in enumerate(outputs))
        return "\n".join(self.declared + self.lines
                         + [f"return {result}"]) + "\n"


# ---- by torch's operations --------------------------------------------------

HALVES = (torch.float16, torch.bfloat16)


def gathered(x, index):
    """x[index]; gradients of types of 16 bits are added in float32."""
    if x.dtype in HALVES and x.requires_grad:
        return x.float().index_select(0, index).to(x.dtype)
    return x.index_select(0, index)


def reduced(what, x, index, size):
    """x [E, ...] over the edges of each of size nodes, or in the softmax of each
    edge's node; index [E]: the node.  A node without edges has 0, of logsumexp
    -inf, and so has one whose edges have -inf alone.  Types of 16 bits are
    added in float32, where a hub's sum does not stop growing."""
    if x.dtype in HALVES:
        return reduced(what, x.float(), index, size).to(x.dtype)
    zero = x.new_zeros((size,) + tuple(x.shape[1:]))
    ones = (1,) * (x.dim() - 1)
    if what in ("sum", "mean"):
        total = zero.index_add(0, index, x)
        if what == "sum":
            return total
        count = torch.bincount(index, minlength=size).clamp(min=1)
        return total / count.view(-1, *ones).to(x.dtype)
    full = index.view(-1, *ones).expand_as(x)
    if what in ("max", "min"):
        # scatter_reduce's gradient counts what was there as an edge, even
        # without include_self
        least = torch.full_like(zero, -math.inf if what == "max" else math.inf)
        found = least.scatter_reduce(0, full, x, "a" + what)
        there = torch.bincount(index, minlength=size) > 0
        return torch.where(there.view(-1, *ones), found, zero)
    # detached, since no_grad() alone would leave the tangents of forward AD
    top = zero.scatter_reduce(0, full, x.detach(), "amax", include_self=False)
    top = torch.where(top.isinf(), torch.zeros_like(top), top)
    e = (x - top.index_select(0, index)).exp()
    total = zero.index_add(0, index, e)
    none = total == 0
    total = total.masked_fill(none, 1)
    if what == "softmax":
        return e / total.index_select(0, index)
    return torch.where(none, -math.inf, top + total.log())


def _extreme(function):
    """max and min, of which one operand may be a number."""
    def apply(a, b):
        if not torch.is_tensor(a):
            a, b = b, a
        if not torch.is_tensor(b):
            b = torch.full_like(a, b)
        return function(a, b)
    return apply


_SIGNS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b,
          "*": lambda a, b: a * b, "/": lambda a, b: a / b,
          "<": lambda a, b: (a < b) * 1.0, "<=": lambda a, b: (a <= b) * 1.0,
          "==": lambda a, b: (a == b) * 1.0,
          "max": _extreme(torch.maximum), "min": _extreme(torch.minimum),
          "neg": lambda a: -a,
          "linear": lambda a, b: a @ b.transpose(-1, -2),
          "matmul": lambda a, b: a @ b}


def computed(name, a, numbers):
    """The operation of this name on tensors."""
    if name in _SIGNS:
        return _SIGNS[name](*a)
    if name in ("sum", "mean", "amax", "amin", "logsumexp"):
        return getattr(torch, name)(a[0], numbers[0], keepdim=True)
    if name == "softmax":
        return a[0].softmax(numbers[0])
    if name == "slice":
        return a[0].narrow(numbers[2], numbers[0], numbers[1] - numbers[0])
    function = getattr(F, name, None) or getattr(torch, name)
    return function(*a, *numbers)


class Torch(Recorder):
    """Computes with torch's operations, a tensor for each value; seed: of
    dropout, as the library draws it, or None for torch's."""

    def __init__(self, graph, seed=None):
        super().__init__()
        self.graph, self.seed, self.drops = graph, seed, 0

    @staticmethod
    def _padded(x, rank):
        """Three axes after the rows."""
        return x.reshape(x.shape[:1] + (1,) * (3 - rank) + x.shape[1:])

    def leaf(self, name, tensor, place, shape):
        rows = tensor.unsqueeze(0) if place == PARAM else tensor
        return self._padded(rows, len(shape))

    def number(self, x):
        return x

    def _tensor(self, x):
        """A number as a tensor."""
        return x if torch.is_tensor(x) else torch.full(
            (1, 1, 1, 1), x, dtype=self.tensors[0].dtype,
            device=self.tensors[0].device)

    def _at(self, v, place):
        x = v.handle
        if isinstance(x, float) or v.place == place or v.place == PARAM:
            return x
        return gathered(x, self._node(v.place))

    def _node(self, place):
        """The node of each edge."""
        return self.graph.dst if place == DST else self.graph.src if \
            place == SRC else self.graph.relation

    def _rows(self, place):
        """How many rows the values of a place have."""
        return 1 if place == PARAM else getattr(self.graph, {
            DST: "num_dst", SRC: "num_src", EDGE: "num_edges",
            REL: "num_relations"}[place])

    def by_edge(self, v):
        """The value of each edge."""
        x = self._tensor(self._at(v, EDGE))
        if v.place == PARAM:
            x = x.expand(self.graph.num_edges, *x.shape[1:])
        return Value(self, x, EDGE, v.shape)

    def _over(self, name, v):
        what, way = name.rsplit("_", 1)
        place = ENDS[way]
        return reduced(what, self.by_edge(v).handle, self._node(place),
                       self._rows(place))

    def _dropped(self, x, p, place, shape):
        if self.seed is None:
            return F.dropout(x, p)
        number = self.graph.edge_number if place == EDGE else None
        factors = keep_factors(self.seed + self.drops, x.size(0),
                               math.prod(shape), p, number)
        self.drops += 1
        return x * factors.view(x.shape).to(x.dtype)

    def make(self, name, values, numbers, place, shape):
        if name in OVER_EDGES:
            return Value(self, self._over(name, values[0]), place, shape)
        a = [self._at(v, place) for v in values]
        if name == "dropout":
            made = self._dropped(a[0], numbers[0], place, shape)
        elif name == "reshape":
            made = self._padded(a[0].reshape(a[0].shape[:1] + tuple(shape)),
                                len(shape))
        elif name == "cat":
            rows = max(x.shape[0] for x in a)
            front = (1,) * (4 - len(shape)) + shape[:-1]
            made = torch.cat([x.expand(rows, *front[-2:], x.shape[-1])
                              for x in a], -1)
        elif name == "where":
            made = torch.where(a[0] != 0, *map(self._tensor, a[1:]))
        else:
            if name == "atan2":
                a = list(map(self._tensor, a))
            made = computed(name, a, numbers)
        return Value(self, made, place, shape)

    def result(self, v, count=None):
        """The tensor of a value; count: of its rows, if the graph does not
        say it."""
        x = self._tensor(v.handle)
        if v.place == PARAM:
            return x.reshape(v.shape)
        count = self._rows(v.place) if count is None else count
        return x.expand(count, *x.shape[1:]).reshape((count,) + v.shape)


class Picked(Torch):
    """Computes the message of one edge for each element of a destination's
    row: edges and sources [N, ...] say of which, and are alike."""

    def __init__(self, graph, edges, sources):
        super().__init__(graph)
        self.picked = {EDGE: edges, SRC: sources}

    def leaf(self, name, tensor, place, shape):
        rows = super().leaf(name, tensor, place, shape)
        picked = self.picked.get(place)
        if picked is None:
            return rows
        picked = self._padded(picked, picked.dim() - 1)
        return rows.expand(-1, *picked.shape[1:]).gather(0, picked)

    def _at(self, v, place):
        return v.handle
