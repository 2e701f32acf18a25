"""Checks of tensors and of what describes a graph, whose messages say what was
found."""

import operator

import torch

from . import _abi
from ._modes import unwrapped

DTYPES = {torch.float32: _abi.DTYPES["f32"], torch.float16: _abi.DTYPES["f16"],
          torch.bfloat16: _abi.DTYPES["bf16"],
          torch.float64: _abi.DTYPES["f64"]}
_INDEX_TYPES = torch.int32, torch.int64
_MOST_NODES = 0x7fffffff


def exact(dtype):
    """The type of the library's sums and scores of tensors of a type."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def describe(value):
    """An argument in the words of an error message."""
    if isinstance(value, torch.Tensor):
        shape = ", ".join(str(n) for n in value.shape)
        kind = str(value.dtype).replace("torch.", "")
        return f"a {kind} tensor [{shape}] on {value.device}"
    return f"{type(value).__name__} {value!r}"[:200]


def check_is_tensor(name, value):
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a tensor, got " + describe(value))


def check_number(name, value):
    """The value as a float."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, got "
                        + describe(value)) from None


def check_index(name, value, dim=1):
    """Raises unless the value is a tensor of whole numbers; dim: how many axes
    it has, None for any."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} must be a tensor of int32 or int64, got "
                        + describe(value))
    if value.dtype not in _INDEX_TYPES:
        raise TypeError(f"{name} must be int32 or int64, got "
                        + describe(value))
    if dim is not None and value.dim() != dim:
        raise ValueError(f"{name} must have {dim} dimension"
                         f"{'s' if dim > 1 else ''}, got " + describe(value))


def check_count(name, value):
    """A number of nodes as an int."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got "
                        + describe(value)) from None
    if not 0 <= number <= _MOST_NODES:
        raise ValueError(f"{name} must be 0 to {_MOST_NODES}, got {number}")
    return number


def check_order(order):
    """Raises unless the tensor holds each number from 0 once."""
    count = order.numel()
    foreign = ((order < 0) | (order >= count)).nonzero().view(-1)
    if foreign.numel():
        at = int(foreign[0])
        raise ValueError(
            f"edge_order must hold each number from 0 to {count - 1} once, "
            f"got {int(order[at])} at {at}")
    times = torch.bincount(order, minlength=count)
    repeated = (times > 1).nonzero().view(-1)
    if repeated.numel():
        number = int(repeated[0])
        raise ValueError(
            f"edge_order must hold each number from 0 to {count - 1} once, "
            f"got {number} {int(times[number])} times")


def check_columns(columns, indices, num_src):
    """The tensors of columns, raises if they do not fit."""
    columns = [unwrapped(tensor) for tensor in columns]
    sizes = (num_src + 1, indices.numel(), indices.numel())
    names = ("offsets", "destinations", "edges")
    if len(columns) != 3:
        raise ValueError("columns must be (offsets, destinations, edges), "
                         f"got {len(columns)} tensors")
    for name, tensor, size in zip(names, columns, sizes):
        check_index(f"{name} of columns", tensor)
        if tensor.numel() != size or tensor.device != indices.device:
            raise ValueError(
                f"{name} of columns must have {size} elements on "
                f"{indices.device}, got " + describe(tensor))
    return columns


def counted(count, noun):
    """"1 layer", "2 layers"."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


_WORDS = {"N": "destinations", "M": "sources", "H": "heads", "D": "features",
          "E": "edges", "F": "edge features", "P": "heads * features",
          "R": "relations", "W": "width", "O": "out", "I": "in", "1": "1",
          "2": "2", "*": "..."}


def _expected(dims, sizes):
    return "[" + ", ".join(
        f"{_WORDS[d]}={sizes[d]}" if d in sizes and d not in "12"
        else _WORDS[d] for d in dims) + "]"


class ShapeError(ValueError):
    """A tensor has another shape than it should."""


def check_tensor(name, tensor, dims, sizes, device=None, dtypes=DTYPES):
    """Raises if an argument is no tensor [dims] of one of these types on the
    graph's device, of those that are given.  dims: a letter for each dimension,
    and "*" for any further; sizes: by letter, gets those that it has not."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor {_expected(dims, sizes)}, "
                        "got " + describe(tensor))
    if dtypes is not None and tensor.dtype not in dtypes:
        raise TypeError(f"{name} must be float16, bfloat16, float32 or "
                        "float64, got " + describe(tensor))
    if device is not None and tensor.device != device:
        raise ValueError(f"{name} is {describe(tensor)}, the graph is on "
                         f"{device}; move one with .to()")
    any_more = dims.endswith("*")
    count = len(dims) - any_more
    known = dict(sizes)
    fits = tensor.dim() >= count if any_more else tensor.dim() == count
    for d, n in zip(dims[:count], tensor.shape):
        fits = fits and n == sizes.setdefault(d, n)
    if not fits:
        raise ShapeError(f"{name} must be {_expected(dims, known)}, got "
                         + describe(tensor))
