"""Torch's operations on rows, written as operations of edge programs.

Each function takes a node of _nodes, its arguments (values of _trace where the
node has nodes) and gives a value whose axes are the node's, without the rows.
"""

import torch

from . import _trace
from ._checks import DTYPES
from ._trace import (
    PARAM, Value, fit, joined, narrow, refuse, sum_of_products)

NAMES = {**_trace.SAME, "add": "__add__", "__neg__": "neg", "__abs__": "abs",
         "expit": "sigmoid", "__pow__": "pow", "swapaxes": "transpose",
         "float": "to", "double": "to", "half": "to", "type_as": "to",
         "bfloat16": "to", "type": "to", "__and__": "logical_and",
         "__or__": "logical_or", "__invert__": "logical_not",
         "bitwise_and": "logical_and", "bitwise_or": "logical_or",
         "bitwise_not": "logical_not", "vector_norm": "norm",
         "linalg_vector_norm": "norm", "linalg_norm": "norm",
         "__idiv__": "div", "broadcast_to": "expand", "data": "detach",
         "view_as": "view", "reshape_as": "view", "expand_as": "expand",
         "reshape": "view", "flatten": "view", "unflatten": "view",
         "unsqueeze": "view", "squeeze": "view", "contiguous": "view",
         "clone": "view", "bmm": "matmul", "__matmul__": "matmul",
         "linalg_cross": "cross", "arctan2": "atan2",
         "moveaxis": "movedim", "__ne__": "ne", "swapdims": "transpose",
         "hstack": "cat", "clamp_min": "clamp", "masked_fill_": "masked_fill"}


def canonical(name):
    """The one name of functions that do the same, in place or not."""
    if name.startswith("__i") and name.endswith("__") and \
            name != "__invert__":
        name = "__" + name[3:]
    elif name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return NAMES.get(name, name)


def _axis(node_shape, dim):
    """The axis without the rows, from the first, of a dimension."""
    axis = dim + len(node_shape) if dim < 0 else dim
    if axis <= 0:
        refuse(f"dimension {dim} is that of the rows")
    return axis - 1


def _getitem(node, value, key):
    first, *rest = key if isinstance(key, tuple) and key else (key,)
    if first is not Ellipsis and first != slice(None):
        refuse("an index of the rows")
    # fit() makes new axes, and drops that of an element, which has size 1
    keys = first, *[k for k in rest if k is not None]
    return value[keys]


def part(node, value):
    """One of the results of chunk, split or unbind."""
    parent, k = node.args
    dim = parent.kwargs.get("dim", parent.args[-1] if canonical(parent.name)
                            != "unbind" and len(parent.args) > 2 else 0)
    if canonical(parent.name) == "unbind" and len(parent.args) > 1:
        dim = parent.args[1]
    axis = _axis((0,) + value.shape, dim)
    if canonical(parent.name) == "unbind":
        return narrow(value, axis, k, k + 1)
    begin = sum(m.shape[axis + 1] for m in parent.meta[:k])
    return narrow(value, axis, begin, begin + parent.meta[k].shape[axis + 1])


def _cat(node, values, dim=0, axis=None):
    values = [v if isinstance(v, Value) else refuse("cat of a number")
              for v in values]
    rank = len(node.shape)
    return joined([
        fit(v, ((1,) * (rank - len(n.shape)) + n.shape)[1:])
        for v, n in zip(values, node.args[0])],
        _axis(node.shape, dim if axis is None else axis))


def _stack(node, values, dim=0):
    at = _axis(node.shape, dim)
    axes = node.shape[1:at + 1] + (1,) + node.shape[at + 2:]
    return joined([fit(v, axes) for v in values], at)


def _permute(node, value, *dims, **options):
    return _trace.method("permute")(value, *(dims or (options["dims"],)))


def _transpose(node, value, first=None, second=None, **options):
    return _trace.method("transpose")(
        value, options.get("dim0", options.get("axis0", first)),
        options.get("dim1", options.get("axis1", second)))


def _movedim(node, value, source, destination):
    if not isinstance(source, int) or not isinstance(destination, int):
        refuse("movedim of several axes")
    rank = len(node.shape)
    dims = [d for d in range(rank) if d != source % rank]
    dims.insert(destination % rank, source % rank)
    return _trace.method("permute")(value, dims)


def _einsum(node, equation, *values):
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = tuple(values[0])
    sides = equation.replace(" ", "").split("->")
    if len(values) != 2 or len(sides) != 2 or "." in equation:
        refuse(f"einsum {equation!r}; expected two tensors and '->'")
    terms, rows = sides[0].split(","), sides[1][0]
    if rows not in terms[0] + terms[1]:
        refuse(f"einsum {equation!r}")
    labels = []
    for value, term, operand in zip(values, terms, node.operands()):
        if rows in term:
            if term[0] != rows:
                refuse("an einsum whose rows are not first")
            term = term[1:]
        labels.append(term)
    return sum_of_products(*values, *labels, sides[1][1:])


def _matmul(node, x, y):
    first, second = (tuple(n.shape) for n in node.operands()[:2])
    if len(second) == 1:  # [..., k] by [k]
        return _trace.method("sum")(x * y, -1)
    if y.place == PARAM and len(second) == 2 or (
            len(first) == len(second) == 3):
        if not x.shape:
            refuse("a matrix product of rows without axes")
    elif len(x.shape) > 3 or len(y.shape) > 3 or \
            len(x.shape) != len(first) - 1:
        refuse(f"matmul of {list(first)} and {list(second)}")
    return _trace.method("matmul")(x, y)


def _linear(node, x, weight, bias=None):
    if len(weight.shape) == 1:
        product = _trace.method("sum")(x * weight, -1)
        return product if bias is None else product + bias
    return _trace.method("linear")(x, weight, bias)


def _norm(node, x, p=2, dim=None, keepdim=False, dtype=None, ord=None):
    p = p if ord is None else ord
    if dim is None or p not in (1, 2, 1.0, 2.0, "fro", None):
        refuse("a norm that is not norm(dim=-1)")
    if p in (1, 1.0):
        return _trace.method("sum")(abs(x), dim)
    return _trace.method("norm")(x, 2, dim)


def _normalize(node, x, p=2.0, dim=1, eps=1e-12, out=None):
    if p != 2:
        refuse("normalize with p")
    return x / _trace.method("norm")(x, 2, dim).clamp(min=eps)


def _cosine(node, x, y, dim=1, eps=1e-8):
    total = _trace.method("sum")
    norms = (total(x * x, dim).clamp(min=eps * eps).rsqrt()
             * total(y * y, dim).clamp(min=eps * eps).rsqrt())
    return total(x * y, dim) * norms


def _cross(node, x, y, dim=-1):
    axis = _axis(node.shape, dim if dim is not None else -1)
    if axis != len(node.shape) - 2 or node.shape[-1] != 3:
        refuse("a cross product of other than the last axis")
    a, b = ([narrow(v, axis, k, k + 1) for k in range(3)] for v in (x, y))
    parts = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2],
             a[0] * b[1] - a[1] * b[0]]
    return parts[0]._make("cat", parts, node.shape[1:])


def _clamp(node, x, *args, **options):
    names = ("min", "max")
    if node.name == "clamp_min" or node.name == "clamp_min_":
        names = ("min",)
    bounds = dict(zip(names, args), **options)
    for name, number in list(bounds.items()):
        if isinstance(number, Value):
            inside, beyond = (x >= number, "maximum") if name == "min" else (
                x <= number, "minimum")
            # x alone has the gradient where both are equal
            x = _trace.method("where")(
                inside, x, _trace.method(beyond)(x, number))
            del bounds[name]
    return _trace.method("clamp")(x, **bounds) if bounds else x


def _between(x, low, high):
    """clamp() whose gradient is 0 at the ends, too."""
    where = _trace.method("where")
    return where(x >= high, high, where(x <= low, low, x))


def _to(node, x, *args, **options):
    if not node.meta.is_floating_point() and node.meta.dtype != torch.bool:
        refuse("a conversion to integers")
    if node.meta.dtype == torch.bool:
        return 1 - (x == 0)
    if node.meta.dtype not in DTYPES:
        refuse(f"a conversion to {node.meta.dtype}")
    return x


def _where(node, condition, a=None, b=None):
    if a is None:
        refuse("where with a condition alone")
    return _trace.method("where")(condition, a, b)


def _repeat(node, x, *sizes):
    sizes = sizes[0] if len(sizes) == 1 and isinstance(
        sizes[0], (tuple, list)) else sizes
    shape = (1,) * (len(sizes) - 1 - len(x.shape)) + x.shape
    if sizes[0] != 1 or any(s != 1 and n != 1 for s, n in zip(
            sizes[1:], shape)):
        refuse("repeat of an axis that is not 1")
    return fit(x, shape)


def _by_values(name):
    """An operation that the values of _trace have."""
    function = _trace.method(name)

    def apply(node, *args, **options):
        options.pop("out", None)
        return function(*args, **options)
    return apply


def _extreme(name):
    def apply(node, x, other=None, dim=None, **options):
        if isinstance(other, (Value, float)) and dim is None:
            return _trace.method(name)(x, other)
        refuse(f"{node.name} of an axis, whose gradient goes to one place; "
               "amax and amin are")
    return apply


def _dropout(node, x, p=0.5, training=True, inplace=False, at=None):
    if not isinstance(p, (int, float)):
        refuse("dropout's p is no number")
    if not training or p == 0:
        return x
    if p >= 1:
        return x * 0.0
    dropped = x._make("dropout", [x], None, float(p), at)
    dropped.place = x.place if at is None else at
    return dropped


TABLE = {name: _by_values(name) for name in _trace.METHODS}
TABLE.update({
    "view": lambda node, x, *sizes, **options: x,
    "expand": lambda node, x, *sizes, **options: x,
    "transpose": _transpose, "permute": _permute, "movedim": _movedim,
    "__getitem__": _getitem, "select": lambda node, x, dim, index:
        x._slice(_axis((0,) + x.shape, dim), index),
    "narrow": lambda node, x, dim, start, length: narrow(
        x, _axis((0,) + x.shape, dim), start, start + length),
    "cat": _cat, "stack": _stack, "einsum": _einsum, "matmul": _matmul,
    "linear": _linear, "norm": _norm, "normalize": _normalize,
    "cosine_similarity": _cosine, "cross": _cross, "clamp": _clamp, "to": _to,
    "masked_fill": lambda node, x, mask, value: _trace.method("where")(
        mask, value, x),
    "where": _where, "repeat": _repeat,
    "max": _extreme("maximum"), "min": _extreme("minimum"),
    "dropout": _dropout, "ne": lambda node, x, other: 1 - (x == other),
    "logical_and": lambda node, x, other: (x != 0) * (other != 0),
    "logical_or": lambda node, x, other: _trace.method("maximum")(
        x != 0, other != 0),
    "logical_not": lambda node, x: x == 0,
    "relu6": lambda node, x, inplace=False: _between(x, 0, 6),
    "hardtanh": lambda node, x, min_val=-1.0, max_val=1.0, inplace=False:
        _between(x, min_val, max_val),
    "logsigmoid": lambda node, x: -_trace.method("softplus")(-x),
    "mish": lambda node, x, inplace=False: x * x._make(
        "softplus", [x]).tanh(),
    "rms_norm": lambda node, x, shape, weight=None, eps=None:
        _trace.method("rms_norm")(x, shape, weight, torch.finfo(
            node.meta.dtype).eps if eps is None else eps),
    "prelu": lambda node, x, weight: _trace.method("where")(
        x > 0, x, x * weight)})
