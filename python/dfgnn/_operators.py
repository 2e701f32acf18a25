"""The arguments of an operator's call, as the table of its tensors says, and
the checks of that."""

from collections import namedtuple

import torch

from . import _abi
from ._checks import describe
from ._table import OPERATORS, Operator  # noqa: F401 - used as this module's

DTYPES = {torch.float32: _abi.DTYPES["f32"], torch.float16: _abi.DTYPES["f16"],
          torch.bfloat16: _abi.DTYPES["bf16"],
          torch.float64: _abi.DTYPES["f64"]}

Settings = namedtuple(
    "Settings",
    "scale slope dropout weights deterministic tf32 edge_use lse",
    defaults=("both", False))

# those of sums and reductions, by whether they have to be deterministic
_SUMS = [Settings(0.0, 0.0, 0.0, False, deterministic, False)
         for deterministic in (False, True)]


def sum_settings():
    """The Settings of sums and reductions."""
    return _SUMS[int(torch.are_deterministic_algorithms_enabled())]


def by_edge(op, inputs, change):
    """The inputs; change() is applied to those by edge."""
    return tuple(change(t) if t is not None and spec.dims[0] == "E" else t
                 for spec, t in zip(op.inputs, inputs))


def input_of(op, inputs, field):
    """The input of this name, None where there is none."""
    number = op.fields.get(field)
    return None if number is None or number >= len(inputs) else inputs[number]


def edge_dim(op, inputs):
    """The edge_dim of a call's problem."""
    if input_of(op, inputs, "score_edge") is not None:
        return _abi.EDGE_PROJECTED
    attr = input_of(op, inputs, "edge_attr")
    if attr is None:
        return 0
    return attr.size(1) if attr.dim() == 2 else _abi.EDGE_PROJECTED


def message_of(op, inputs):
    """The message of a call's problem."""
    if op.attention or "gate_dst" not in op.fields:
        return "copy"
    if input_of(op, inputs, "gate_dst") is None:
        return "copy" if input_of(op, inputs, "edge_attr") is None else "relu"
    weight = input_of(op, inputs, "edge_weight")
    both = weight is not None and weight.dim() == 4
    return "gate-value" if both else "gate"


def is_flat(op, inputs):
    """Whether a call's features are [rows, D], those of one head: rows that
    are sent as they are may be."""
    return (not op.attention and message_of(op, inputs) == "copy"
            and getattr(inputs[op.value], "ndim", 3) == 2)


# ---- checks -----------------------------------------------------------------

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


def check_inputs(op, inputs, sizes, device):
    """Raises if an input is wrong; sizes holds N, M and E, or none of them
    where the graph is not built yet."""
    sizes = dict(sizes, **{"1": 1, "2": 2})
    projected = op.attention or input_of(op, inputs, "edge_weight") is not None
    both = message_of(op, inputs) == "gate-value"
    flat = is_flat(op, inputs)
    if flat:
        sizes["H"] = 1
    for spec, tensor in zip(op.inputs, inputs):
        if tensor is None and spec.optional:
            continue
        dims = spec.dims
        if dims == "EF" and (getattr(tensor, "ndim", 2) == 3
                             or not projected):
            dims = "EHD"  # projected already
        if both and spec.flag == "projection":
            dims = "2" + dims
        if flat:
            dims = dims.replace("HD", "D")
        if "P" in dims and "D" in sizes:
            sizes["P"] = sizes["H"] * sizes["D"]
        check_tensor(spec.name, tensor, dims, sizes, device)
    if sizes["H"] < 1 or sizes["D"] < 1:
        raise ValueError(
            f"{op.inputs[op.value].name} must have at least one head and one "
            "feature, got " + describe(inputs[op.value]))
    storage = [(spec.name, t) for spec, t in zip(op.inputs, inputs)
               if t is not None and not spec.scalar]
    for name, tensor in storage[1:]:
        if tensor.dtype != storage[0][1].dtype:
            raise TypeError(
                f"{storage[0][0]} and {name} must have one dtype, got "
                f"{storage[0][1].dtype} and {tensor.dtype}")


def check_call(graph, op, inputs):
    """check_inputs() of the tensors of a graph."""
    check_inputs(op, inputs, {"N": graph.num_dst, "M": graph.num_src,
                              "E": graph.num_edges}, graph.device)
