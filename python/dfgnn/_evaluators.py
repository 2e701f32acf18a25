"""The receiver of values: a recorder writes the text of a program, or computes
with torch's operations."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ._trace import (
    DST, EDGE, ENDS, OVER_EDGES, PARAM, REL, SRC, Value, Writer, refuse)


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

    def value(self, x):
        """x as a value; a tensor that is not an argument is a parameter."""
        if isinstance(x, Value):
            return x
        if isinstance(x, (int, float)):
            return Value(self, self.number(float(x)), PARAM, ())
        if not isinstance(x, torch.Tensor):
            refuse(f"found a {type(x).__name__}, expected a value, a tensor "
                   "or a number")
        value = self._captured.get(id(x))
        if value is None:
            self._kept_alive.append(x)  # so that no other gets its id
            value = self._captured[id(x)] = self.input(
                f"tensor_{len(self._captured)}", x, PARAM)
        return value


class Text(Writer, Recorder):
    """Writes a program of tensors."""


# ---- by torch's operations --------------------------------------------------

HALVES = (torch.float16, torch.bfloat16)


class EdgeList(NamedTuple):
    """Edges as a graph whose order is theirs."""
    src: torch.Tensor
    dst: torch.Tensor
    num_src: int | None = None
    num_dst: int | None = None

    @property
    def num_edges(self):
        return self.src.size(0)

    def to_graph_order(self, rows):
        return rows

    def to_caller_order(self, rows):
        return rows


def gathered(x, index):
    """x[index]; gradients of types of 16 bits are added in float32."""
    if x.dtype in HALVES and x.requires_grad:
        return x.float().index_select(0, index).to(x.dtype)
    return x.index_select(0, index)


def _as_rows(index, x):
    return index.long().view(-1, *(1,) * (x.dim() - 1)).expand_as(x)


def counts(index, x, size):
    """[size, 1, ...] how many rows of x each node has, in the type of x."""
    index = index.long()
    count = index.new_zeros(size).index_add(0, index, torch.ones_like(index))
    return count.view(-1, *(1,) * (x.dim() - 1)).to(x.dtype)


def reduced(what, x, index, size):
    """x [E, ...] reduced over each node's edges, or in the softmax of each
    edge's node; index [E]: the node.  A node without edges has 0, of logsumexp
    -inf, and so has one whose edges have -inf alone.  Types of 16 bits are
    added in float32, where a hub's sum does not stop growing."""
    if x.dtype in HALVES:
        return reduced(what, x.float(), index, size).to(x.dtype)
    zero = x.new_zeros((size, *x.shape[1:]))
    if what in ("sum", "mean"):
        total = zero.index_add(0, index, x)
        return total if what == "sum" else \
            total / counts(index, x, size).clamp(min=1)
    full = _as_rows(index, x)
    if what in ("max", "min"):
        # scatter_reduce's gradient counts what was there as an edge, even
        # without include_self
        least = torch.full_like(zero, -math.inf if what == "max" else math.inf)
        extreme = least.scatter_reduce(0, full, x, "a" + what)
        return torch.where(counts(index, x, size) > 0, extreme, zero)
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


def inverse_root(x):
    """1 / sqrt(x), 0 of 0."""
    root = x.pow(-0.5)
    return root.masked_fill(root == float("inf"), 0)


def scattered(x, index, size, reduce):
    """reduced() as torch_scatter has it: of whole numbers, too, by "mul", 1 of
    a node without edges, or "any"."""
    zero = x.new_zeros((size, *x.shape[1:]))
    if reduce == "any":
        return zero.index_copy(0, index.long(), x)
    if reduce == "mul":
        return torch.ones_like(zero).scatter_reduce(
            0, _as_rows(index, x), x, "prod")
    if x.is_floating_point():
        return reduced(reduce, x, index, size)
    if reduce in ("min", "max"):
        return zero.scatter_reduce(0, _as_rows(index, x), x, "a" + reduce,
                                   include_self=False)
    total = zero.index_add(0, index, x)
    return total if reduce == "sum" else total.div(
        counts(index, x, size).clamp(min=1), rounding_mode="floor")


# The library's dropout, kernels/common/dropout.h, in wrapping int64.

def _signed(word):
    return word - (1 << 64) if word >= 1 << 63 else word


_STEP = _signed(0x9e3779b97f4a7c15)
_MIX = (_signed(0xbf58476d1ce4e5b9), _signed(0x94d049bb133111eb))


def _logical_shift(z, bits):
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _splitmix(z):
    z = (z ^ _logical_shift(z, 30)) * _MIX[0]
    z = (z ^ _logical_shift(z, 27)) * _MIX[1]
    return z ^ _logical_shift(z, 31)


def keep_factors(seed, edges, heads, dropout, edge_number=None):
    """[E, H] 0 where dropout drops a weight, else 1 / (1 - dropout).

    edge_number [E]: the number that each edge draws by; by default its
        position.
    """
    key = _splitmix(seed + _STEP)
    pairs = (heads + 1) // 2
    if edge_number is None:
        counter = torch.arange(1, edges * pairs + 1, device=seed.device)
    else:
        counter = (edge_number.view(-1, 1) * pairs + torch.arange(
            1, pairs + 1, device=seed.device)).view(-1)
    word = _splitmix(key + counter * _STEP)
    number = torch.stack([_logical_shift(word, 32), word & 0xffffffff], 1)
    kept = number.view(edges, 2 * pairs)[:, :heads] \
        >= int(dropout * 4294967296.0)
    return kept / (1.0 - dropout)


_OPERATORS = {"+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.div,
              "max": torch.maximum, "min": torch.minimum,
              "<": torch.lt, "<=": torch.le, "==": torch.eq}
_ALONG = {"sum", "mean", "amax", "amin", "logsumexp"}


class Torch(Recorder):
    """Computes with torch's operations: a value is a tensor [rows, its axes],
    of a parameter one without rows, or a number.  seed: of dropout, as the
    library draws it, or None for torch's."""

    def __init__(self, graph, seed=None):
        super().__init__()
        self.graph, self.seed, self.drops = graph, seed, 0
        self._lifted = {}  # by a tensor of nodes: it, and that of edges

    def call(self, function, *args, **kwargs):
        """The maker of all operations."""
        return function(*args, **kwargs)

    def whole(self, name, values, *numbers):
        return None

    def leaf(self, name, tensor, place, shape):
        return tensor

    def number(self, x):
        return x

    def _tensors(self, a):
        """Numbers as tensors of no axes."""
        like = next(x for x in a if not isinstance(x, float))
        return [self.call(Tensor.new_full, like, (), x) if isinstance(
            x, float) else x for x in a]

    def _at(self, v, place, rank=0):
        """The rows of a value at a place, with axes of size 1 in front."""
        x = v.handle
        if isinstance(x, float) or v.place == PARAM:
            return x
        if v.place != place:
            key = id(x), v.place
            if key not in self._lifted:
                self._lifted[key] = x, self._gathered(x, v.place)
            x = self._lifted[key][1]
        missing = rank - len(v.shape)
        return x if missing <= 0 else self.call(
            Tensor.view, x, (*x.shape[:1], *(1,) * missing, *x.shape[1:]))

    def _gathered(self, x, place):
        return gathered(x, self._node(place))

    def _node(self, place):
        return self.graph.dst if place == DST else self.graph.src if \
            place == SRC else self.graph.relation

    def _rows(self, place):
        """How many rows the values of a place have."""
        return getattr(self.graph, {
            DST: "num_dst", SRC: "num_src", EDGE: "num_edges",
            REL: "num_relations"}[place])

    def by_edge(self, v):
        """The value of each edge."""
        x = self._at(v, EDGE)
        if v.place == PARAM:
            x = self._parameter(v).expand(self.graph.num_edges, *v.shape)
        return Value(self, x, EDGE, v.shape)

    def _over(self, name, v):
        what, way = name.rsplit("_", 1)
        place = ENDS[way]
        return reduced(what, self.by_edge(v).handle, self._node(place),
                       self._rows(place))

    def _dropped(self, x, p, place):
        if self.seed is None:
            return self.call(F.dropout, x, p)
        number = self.graph.edge_number if place == EDGE else None
        rows = 1 if place == PARAM else x.size(0)
        factors = keep_factors(self.seed + self.drops, rows,
                               math.prod(x.shape) // max(rows, 1), p, number)
        self.drops += 1
        return x * factors.view(x.shape).to(x.dtype)

    def _product(self, name, x, weight, place, shape):
        rank = 0 if weight.place == PARAM else max(len(shape),
                                                   len(weight.shape))
        a, b = self._at(x, place, rank), self._at(weight, place, rank)
        if name == "linear":
            b = self.call(torch.transpose, b, -1, -2)
        product = self.call(torch.matmul, a, b)
        return product if weight.place == PARAM else self.call(
            Tensor.reshape, product, (*product.shape[:1], *shape))

    def _joined(self, values, shape):
        rows = next((x.shape[:1] for x, v in values if v.place != PARAM), ())
        return self.call(torch.cat, [
            x if (*x.shape,) == whole else self.call(Tensor.expand, x, whole)
            for x, v in values for whole in [
                (*rows, *shape[:-1], *(v.shape or (1,))[-1:])]], -1)

    def make(self, name, values, numbers, place, shape):
        return Value(self, self._operation(name, values, numbers, place, shape),
                     place, shape)

    def _operation(self, name, values, numbers, place, shape):
        if name in OVER_EDGES:
            return self._over(name, values[0])
        if name in ("linear", "matmul"):
            return self._product(name, *values, place, shape)
        a = [self._at(v, place, len(shape)) for v in values]
        if name == "dropout":
            return self._dropped(a[0], numbers[0], place)
        if name in ("reshape", "expand"):
            rows = () if place == PARAM else a[0].shape[:1]
            return self.call(getattr(Tensor, name), a[0], (*rows, *shape))
        if name == "cat":
            return self._joined(list(zip(self._tensors(a), values)), shape)
        if name == "where":
            a = self._tensors(a)
            return self.call(torch.where, self.call(torch.ne, a[0], 0), *a[1:])
        if name in _ALONG:
            return self.call(getattr(torch, name), a[0], *numbers,
                             keepdim=True)
        if name == "slice":
            begin, end, axis = numbers
            return self.call(torch.narrow, a[0], axis, begin, end - begin)
        if isinstance(a[0], float) or name in ("max", "min", "atan2"):
            a = self._tensors(a)
        function = _OPERATORS.get(name) or getattr(F, name, None) or getattr(
            torch, name)
        result = self.call(function, *a, *numbers)
        return self.call(Tensor.type_as, result, a[0]) if name in (
            "<", "<=", "==") else result

    def _parameter(self, v):
        """The tensor of a value that has no rows."""
        if not isinstance(v.handle, float):
            return v.handle
        return self.tensors[0].new_full(v.shape, v.handle)

    def result(self, v, count=None):
        """The tensor of a value; count: of its rows, if the graph does not
        say it."""
        if v.place == PARAM:
            return self._parameter(v)
        count = self._rows(v.place) if count is None else count
        return v.handle.expand(count, *v.shape)


class Picked(Torch):
    """Computes the message of one edge for each element of a destination's
    row: edges and sources [N, ...] say of which, and are alike."""

    def __init__(self, graph, edges, sources):
        super().__init__(graph)
        self.picked = {EDGE: edges, SRC: sources}

    def input(self, name, tensor, place):
        value = super().input(name, tensor, place)
        picked = self.picked.get(place)
        if picked is None:
            return value
        x = self._at(value, place, picked.dim() - 1)
        x = x.expand(-1, *picked.shape[1:]).gather(0, picked)
        return Value(self, x, DST, x.shape[1:])
