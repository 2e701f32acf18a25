"""Values that stand for tensors while an edge program's function runs, and the
text of a program, written value by value.  Nothing here needs torch.

A function of the user's is called with them once; what it does with them is
told to a recorder (_evaluators.py), which writes the text of a program or
computes with torch.  Values have the axes of a row of their place, at most
three.  Sums along an axis leave it with size 1, so that the number of a head
spreads over a row of it.
"""

import itertools
import math

from ._program_handle import DST, EDGE, PARAM, PLACES, REL, SRC
from ._trace_errors import (  # noqa: F401 - used as this module's
    TraceError, refuse)

ENDS = {"in": DST, "out": SRC, "rel": REL}


def join(a, b):
    """The place where values of two places meet."""
    if PARAM in (a, b):
        return max(a, b)
    return a if a == b else EDGE


def _spread(a, b, what):
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    for x, y in zip(a, b):
        if x != y and 1 not in (x, y):
            refuse(f"{what} of {list(a)} and {list(b)}: expected axes that "
                   "are equal or 1")
    return tuple(max(x, y) if 1 in (x, y) else x for x, y in zip(a, b))


_NO_SLICE = "an index that is no slice of axes after the rows, as x[..., 2:5] " \
    "or x[:, 0, 2:5]"


class Value:
    """A value of an edge program."""

    __slots__ = ("recorder", "handle", "place", "shape")
    __array_ufunc__ = None

    def __init__(self, recorder, handle, place, shape):
        self.recorder, self.handle = recorder, handle
        self.place, self.shape = place, tuple(shape)

    def __repr__(self):
        return f"a value of {PLACES[self.place]} {list(self.shape)}"

    def _make(self, name, values, shape=None, *numbers):
        values = [self.recorder.value(v) for v in values]
        place = values[0].place
        for v in values[1:]:
            place = join(place, v.place)
        if shape is None:
            shape = values[0].shape
            for v in values[1:]:
                shape = _spread(shape, v.shape, name)
        if len(shape) > 3:
            refuse(f"{name} makes {len(shape)} axes, expected at most 3")
        return self.recorder.make(name, values, numbers, place, tuple(shape))

    # operators are methods of the table below

    def __ne__(self, other):
        return 1 - (self == other)

    __hash__ = object.__hash__

    def __bool__(self):
        refuse("a value decides what Python does next: a program is the same "
               "for all edges; torch.where chooses for each")

    def __float__(self):
        refuse("a value is wanted as a number, which it is not before the "
               "program runs")

    __int__ = __index__ = __len__ = __float__

    def __iter__(self):
        refuse("a value is taken apart; slice its last axis instead")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        if name in METHODS:
            return lambda *args, **options: METHODS[name](self, *args,
                                                           **options)
        refuse(f"edge programs have no .{name}")

    @classmethod
    def __torch_function__(cls, function, types, args=(), options=None):
        name = getattr(function, "__name__", str(function))
        name = SAME.get(name, name)
        if name not in METHODS:
            refuse(f"edge programs have no {name}")
        return METHODS[name](*args, **(options or {}))

    def axis(self, dim):
        """A dimension as PyTorch counts them, from the end."""
        rank = len(self.shape)
        if not isinstance(dim, int):
            refuse(f"a dimension is {dim!r}, expected a number")
        axis = dim if dim < 0 else dim - 1 - rank
        if dim == 0 or not -rank <= axis < 0:
            refuse(f"dimension {dim} of {self!r}: expected -{max(rank, 1)} to "
                   "-1; rows of nodes or edges are reduced by sum_in and its "
                   "like")
        return axis

    def __getitem__(self, key):
        keys = list(key) if isinstance(key, tuple) else [key]
        rank = len(self.shape)
        at = next((n for n, k in enumerate(keys) if k is Ellipsis), None)
        if at is not None:
            keys[at:at + 1] = [slice(None)] * (2 + rank - len(keys))
        elif len(keys) == rank == 1:
            keys.insert(0, slice(None))
        value = self
        # the first axis is that of rows
        if len(keys) > 1 + rank or keys[0] != slice(None):
            refuse(_NO_SLICE)
        for axis, one in enumerate(keys[1:]):
            value = value._slice(axis, one)
        return value

    def _slice(self, axis, key):
        """A slice, or one element, of an axis counted from the first."""
        size = self.shape[axis]
        if isinstance(key, int) and not isinstance(key, bool):
            if not -size <= key < size:
                refuse(f"index {key} of an axis of {size}")
            key = slice(key % size, key % size + 1)
        if not isinstance(key, slice) or key.step not in (None, 1):
            refuse(_NO_SLICE)
        begin, end, _ = key.indices(size)
        if end <= begin:
            refuse(f"an empty slice, {begin} to {end}")
        return narrow(self, axis, begin, end)


# ---- what torch calls its functions

SAME = {"subtract": "sub", "multiply": "mul", "divide": "div",
        "true_divide": "div", "concat": "cat", "concatenate": "cat",
        "absolute": "abs", "negative": "neg", "special_expit": "sigmoid",
        "clip": "clamp"}


def _unary(name):
    def method(x, inplace=False):
        return x._make(name, [x])
    return method


def _binary(name, swapped=False):
    def method(x, other, alpha=1, rounding_mode=None):
        if alpha != 1 or rounding_mode:
            refuse(f"{name} with alpha or rounding_mode")
        pair = [other, x] if swapped else [x, other]
        value = x if isinstance(x, Value) else other
        return value._make(name, pair)
    return method


def _along(name):
    def method(x, dim=None, keepdim=True, dtype=None, axis=None):
        dim = axis if dim is None else dim
        if isinstance(dim, (tuple, list)):
            for one in dim:
                x = method(x, one)
            return x
        if dim is None:
            refuse(f"{name} of all axes; name one, as {name}(-1)")
        axis = x.axis(dim)
        shape = list(x.shape)
        if name not in ("softmax",):
            shape[axis] = 1
        return x._make(name, [x], shape, axis)
    return method


def _number(x, name):
    if not isinstance(x, (int, float)):
        refuse(f"{name} is {x!r}, expected a number")
    return float(x)


def _with_number(name, default, what):
    def method(x, *args, inplace=False, **options):
        value = options.get(what, args[0] if args else default)
        return x._make(name, [x], None, _number(value, what))
    return method


def _clamp(x, min=None, max=None):
    low = -math.inf if min is None else _number(min, "min")
    high = math.inf if max is None else _number(max, "max")
    return x._make("clamp", [x], None, low, high)


def _cat(values, dim=0, axis=None):
    some = next(v for v in values if isinstance(v, Value))
    values = [some.recorder.value(v) for v in values]
    rank = max(1, *(len(v.shape) for v in values))
    dim = dim if axis is None else axis
    at = dim if dim < 0 else dim - 1 - rank
    if not -rank <= at < 0:
        refuse(f"cat along dimension {dim} of values with {rank} axes beside "
               "the rows")
    shapes = [(1,) * (rank - len(v.shape)) + v.shape for v in values]
    axes = ()
    for shape in shapes:
        axes = _spread(axes, shape[:at] + (1,) + shape[rank + at + 1:], "cat")
    return joined([fit(v, axes[:at] + shape[at:rank + at + 1]
                       + axes[rank + at + 1:])
                   for v, shape in zip(values, shapes)], rank + at)


def fit(value, axes):
    """The value with these axes: those of size 1 come and go, and spread."""
    axes = tuple(axes)
    if value.shape == axes:
        return value
    if len(axes) > 3:
        refuse(f"{len(axes)} axes beside the rows, expected at most 3")
    if math.prod(value.shape) == math.prod(axes):
        return value._make("reshape", [value], axes)
    return value._make("expand", [value], axes)


def narrow(value, axis, begin, end):
    """A part of an axis, counted from the first."""
    axes = value.shape
    if (begin, end) == (0, axes[axis]):
        return value
    return value._make("slice", [value], axes[:axis] + (end - begin,)
                       + axes[axis + 1:], begin, end, axis - len(axes))


def joined(values, at):
    """The values one after the other along an axis, counted from the first."""
    front = math.prod(values[0].shape[:at])
    axes = list(values[0].shape)
    axes[at] = sum(v.shape[at] for v in values)
    if at == len(axes) - 1:
        return values[0]._make("cat", values, axes)
    if front == 1:  # whole rows of the axes behind it
        flat = [fit(v, (math.prod(v.shape),)) for v in values]
        return fit(flat[0]._make("cat", flat, (math.prod(axes),)), axes)
    at -= len(axes)
    return _transpose(joined([_transpose(v, at, -1) for v in values],
                             len(axes) - 1), at, -1)


def ordered(value, order):
    """The value with its axes in this order, each counted from the first."""
    kept = [axis for axis in order if value.shape[axis] != 1]
    if kept == sorted(kept):  # nothing moves but axes of size 1
        return fit(value, [value.shape[axis] for axis in order])
    rank, now = len(order), list(range(len(order)))
    for at, axis in enumerate(order):
        other = now.index(axis)
        if other != at:
            value = _transpose(value, at - rank, other - rank)
            now[at], now[other] = now[other], now[at]
    return value


def sum_of_products(a, b, labels_a, labels_b, out):
    """The einsum of values whose axes have these letters."""
    gone = [c for c in dict.fromkeys([*labels_a, *labels_b]) if c not in out]
    if len(out) + len(gone) > 3:
        refuse("a product of more than three axes")
    # an order that both have, if there is one, exchanges nothing
    order = next((o for o in itertools.permutations([*out, *gone]) if all(
        sorted(labels, key=o.index) == list(labels)
        for labels in (labels_a, labels_b, out))), [*out, *gone])

    def placed(value, labels):
        axes = [labels.index(c) for c in order if c in labels]
        value = ordered(value, axes)
        sizes = dict(zip([labels[k] for k in axes], value.shape))
        return fit(value, [sizes.get(c, 1) for c in order])
    product = placed(a, labels_a) * placed(b, labels_b)
    for c in gone:
        product = METHODS["sum"](product, order.index(c) - len(order))
    return fit(product, [product.shape[order.index(c)] for c in out])


def _transpose(x, first, second):
    """Exchanges two axes after the rows."""
    first, second = x.axis(first), x.axis(second)
    shape = list(x.shape)
    shape[first], shape[second] = shape[second], shape[first]
    return x._make("transpose", [x], shape, first, second)


def _permute(x, *dims):
    if len(dims) == 1 and isinstance(dims[0], (tuple, list)):
        dims = tuple(dims[0])
    rank = len(x.shape)
    wanted = [d % (1 + rank) - 1 for d in dims if isinstance(d, int)]
    if sorted(wanted) != list(range(-1, rank)) or wanted[0] != -1:
        refuse(f"permute{dims} of {x!r}: expected 0, the rows, and then each "
               "axis once")
    return ordered(x, wanted[1:])


def _where_(condition, a, b):
    some = next(v for v in (condition, a, b) if isinstance(v, Value))
    return some._make("where", [condition, a, b])


def _linear(x, weight, bias=None):
    value = x if isinstance(x, Value) else weight
    x, weight = value.recorder.value(x), value.recorder.value(weight)
    if len(weight.shape) < 2 or weight.shape[-1] != x.shape[-1]:
        refuse(f"linear of {list(x.shape)} by {list(weight.shape)}")
    y = value._make("linear", [x, weight],
                    x.shape[:-1] + (weight.shape[-2],))
    return y if bias is None else y + bias


def _matmul(x, other):
    value = x if isinstance(x, Value) else other
    x, other = value.recorder.value(x), value.recorder.value(other)
    if (len(other.shape) < 2 or not x.shape
            or other.shape[-2] != x.shape[-1]):
        refuse(f"matmul of {list(x.shape)} by {list(other.shape)}")
    return value._make("matmul", [x, other],
                       x.shape[:-1] + (other.shape[-1],))


def _reshape(x, *shape):
    if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
        shape = tuple(shape[0])
    if not shape or shape[0] != -1 and shape[0] is not x.recorder.rows:
        refuse("view or reshape that does not begin with -1, the rows")
    shape, size = list(shape[1:]), math.prod(x.shape)
    if -1 in shape:
        rest = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = size // max(rest, 1)
    if math.prod(shape) != size:
        refuse(f"view of {list(x.shape)} as {shape}")
    return x._make("reshape", [x], shape)


def _unsqueeze(x, dim):
    rank = len(x.shape)
    at = dim + rank + 1 if dim < 0 else dim - 1
    if dim == -1 and x.shape and x.shape[-1] == 1:
        return x  # a sum has left the axis there
    if not 0 <= at <= rank:
        refuse(f"unsqueeze({dim}) of {x!r}")
    return x._make("reshape", [x], x.shape[:at] + (1,) + x.shape[at:])


def _squeeze(x, dim=None):
    if dim is None or x.shape[x.axis(dim)] != 1:
        refuse("squeeze of an axis that is not named, or not 1")
    axis = x.axis(dim) % len(x.shape)
    return x._make("reshape", [x], x.shape[:axis] + x.shape[axis + 1:])


def _norm(x, p=2, dim=None, keepdim=True):
    if p not in (2, 2.0, "fro") or dim is None:
        refuse("a norm that is not norm(dim=-1)")
    square = METHODS["sum"](x * x, dim)
    nothing = square == 0  # where the gradient is 0, as torch's
    return METHODS["sqrt"](square + nothing) * (1 - nothing)


def _dropout(x, p=0.5, training=True, inplace=False):
    return x._make("dropout", [x], None, _number(p, "p")) if training else x


def _softplus(x, beta=1, threshold=20):
    if beta != 1 or threshold < 20:  # beyond which it is x to the last digit
        refuse("softplus with beta or a threshold")
    return x._make("softplus", [x])


def _gelu(x, approximate="none"):
    if approximate == "none":
        return x._make("gelu", [x])
    whole = x.recorder.whole("gelu_tanh", [x])
    if whole is not None:
        return whole
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1 + inner.tanh())


def _layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    if len(shape) != 1:
        refuse("layer_norm of more than the last axis")
    whole = x.recorder.whole("layer_norm", [x, weight, bias], eps)
    if whole is not None:
        return whole
    centred = x - METHODS["mean"](x, -1)
    y = centred * METHODS["rsqrt"](
        METHODS["mean"](centred * centred, -1) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _rms_norm(x, shape, weight=None, eps=None):
    if len(shape) != 1 or eps is None:
        refuse("rms_norm without eps, or of more than the last axis")
    whole = x.recorder.whole("rms_norm", [x, weight], eps)
    if whole is not None:
        return whole
    y = x * METHODS["rsqrt"](METHODS["mean"](x * x, -1) + eps)
    return y if weight is None else y * weight


def _over(name):
    def method(x):
        place = ENDS[name.rsplit("_", 1)[1]]
        place = EDGE if name.startswith("softmax") else place
        value = x._make(name, [x], x.shape)
        value.place = place
        return value
    return method


_OVER_EDGES = [f"{what}_{way}" for way in ("in", "out", "rel") for what in (
    "sum", "mean", "max", "min", "softmax", "logsumexp")]


def _pow(x, exponent):
    if not isinstance(exponent, (int, float)):
        refuse("an exponent that is no number; (y * x.log()).exp() has one")
    return x._make("pow", [x], None, float(exponent))


METHODS = {name: _unary(name) for name in (
    "exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos",
    "abs", "sign", "relu", "silu", "neg", "sqrt", "rsqrt", "reciprocal",
    "square", "detach")}
METHODS.update({name: _along(name) for name in (
    "sum", "mean", "amax", "amin", "logsumexp")})
METHODS.update({
    "add": _binary("+"), "radd": _binary("+", True), "sub": _binary("-"),
    "rsub": _binary("-", True), "mul": _binary("*"),
    "rmul": _binary("*", True), "div": _binary("/"), "truediv": _binary("/"),
    "rtruediv": _binary("/", True), "rdiv": _binary("/", True),
    "lt": _binary("<"), "le": _binary("<="), "gt": _binary("<", True),
    "ge": _binary("<=", True), "eq": _binary("=="), "pow": _pow,
    "matmul": _matmul, "rmatmul": lambda x, other: _matmul(other, x)})
for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv",
              "rtruediv", "rdiv", "neg", "abs", "pow", "lt", "le", "gt", "ge",
              "eq", "matmul", "rmatmul"):
    METHODS[f"__{_name}__"] = METHODS[_name]
    setattr(Value, f"__{_name}__", METHODS[_name])
METHODS.update({
    "atan2": _binary("atan2"), "arctan2": _binary("atan2"),
    "maximum": _binary("max"), "minimum": _binary("min"),
    "leaky_relu": _with_number("leaky_relu", 0.01, "negative_slope"),
    "elu": _with_number("elu", 1.0, "alpha"),
    "clamp": _clamp, "cat": _cat, "where": _where_, "linear": _linear,
    "view": _reshape, "reshape": _reshape,
    "unsqueeze": _unsqueeze, "squeeze": _squeeze, "norm": _norm,
    "dropout": _dropout, "softplus": _softplus, "gelu": _gelu,
    "layer_norm": _layer_norm, "rms_norm": _rms_norm,
    "softmax": lambda x, dim=None, _stacklevel=3, dtype=None: _along(
        "softmax")(x, dim),
    "transpose": _transpose, "swapaxes": _transpose, "permute": _permute,
    "contiguous": lambda x: x})
METHODS.update({name: _over(name) for name in _OVER_EDGES})


method = METHODS.__getitem__


def _function_over(name):
    def over(x):
        if not isinstance(x, Value):
            raise TypeError(f"{name} is called in the function of an "
                            f"edge_program, with a value; got "
                            f"{type(x).__name__}")
        return METHODS[name](x)
    return as_over(over, name)


def as_over(function, name):
    """The function with the name and the words of a reduction over edges."""
    what, way = name.rsplit("_", 1)
    edges = {"in": "in-edges of each destination",
             "out": "out-edges of each source",
             "rel": "edges of each relation"}[way]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {what} over the {edges}, in an edge program."
    return function


OVER_EDGES = {name: _function_over(name) for name in _OVER_EDGES}
"""By name the functions that reduce over edges, for functions of the user's."""


def _written(x):
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
        return f"({_written(x)})"

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
            a += map(_written, numbers)
            text = f"{name}({', '.join(a)})"
        handle = f"v_{len(self.lines) + 1}"
        self.lines.append(f"{handle} = {text}")
        return Value(self, handle, place, shape)

    def _dropped(self, handle, x, p, at=None):
        """at: the place where it is drawn, if that is not the value's."""
        number, self.drops = self.drops, self.drops + 1
        if at is None or at == x.place:
            return f"dropout({handle}, {_written(p)})"
        return (f"{handle} * keep({number}, {_written(p)}, "
                f"{PLACES[at]}{_axes(x.shape)})")

    def text(self, outputs):
        result = ", ".join(
            f"out_{k} = {v.handle} as {PLACES[v.place]}{_axes(v.shape)}"
            for k, v in enumerate(outputs))
        return "\n".join([*self.declared, *self.lines, f"return {result}"]
                         ) + "\n"
