"""The inputs of each attention operator, and their checks."""

from collections import namedtuple

import torch

from . import _abi
from .graph import describe

# dims: a letter for each dimension: N destinations, M sources, H heads, D
# features of a head, E edges, F features of an edge, P = H * D.  scalar: the
# library reads float32, or float64 beside features of float64.
Input = namedtuple("Input", "name field dims scalar optional")
Operator = namedtuple("Operator", "name number inputs value")


def _input(name, field, dims, scalar=False, optional=False):
    return Input(name, field, dims, scalar, optional)


# the inputs that problems with edge features add
_EDGES = (_input("edge_attr", "edge_attr", "EF", optional=True),
          _input("edge_weight", "edge_weight", "PF", optional=True),
          _input("edge_bias", "edge_bias", "P", optional=True))

OPERATORS = {op.name: op for op in (
    Operator("gt", _abi.OPS["gt"], (
        _input("query", "query", "NHD"), _input("key", "key", "MHD"),
        _input("value", "value", "MHD"), *_EDGES), 2),
    Operator("agnn", _abi.OPS["agnn"], (
        _input("h_dst", "query", "NHD"), _input("h_src", "value", "MHD"),
        _input("beta", "beta", "1", scalar=True, optional=True)), 1),
    Operator("gat", _abi.OPS["gat"], (
        _input("h", "value", "MHD"),
        _input("score_dst", "score_dst", "NH", scalar=True),
        _input("score_src", "score_src", "MH", scalar=True),
        _input("edge_score", "score_edge", "EH", scalar=True,
               optional=True)), 0),
    Operator("gatv2", _abi.OPS["gatv2"], (
        _input("x_dst", "query", "NHD"), _input("x_src", "value", "MHD"),
        _input("att", "att", "HD"), *_EDGES), 1),
)}

DTYPES = {torch.float32: _abi.DTYPES["f32"], torch.float16: _abi.DTYPES["f16"],
          torch.bfloat16: _abi.DTYPES["bf16"],
          torch.float64: _abi.DTYPES["f64"]}

Settings = namedtuple(
    "Settings", "scale slope dropout weights deterministic tf32 edge_use",
    defaults=("both",))

_WORDS = {"N": "destinations", "M": "sources", "H": "heads", "D": "features",
          "E": "edges", "F": "edge features", "P": "heads * features",
          "1": "1"}


def by_edge(op, inputs, change):
    """The inputs; change() is applied to those by edge."""
    return tuple(change(t) if t is not None and spec.dims[0] == "E" else t
                 for spec, t in zip(op.inputs, inputs))


def edge_dim(op, inputs):
    """The edge_dim of a call's problem."""
    for spec, tensor in zip(op.inputs, inputs):
        if tensor is None or spec.field not in ("edge_attr", "score_edge"):
            continue
        if spec.scalar or tensor.dim() == 3:
            return _abi.EDGE_PROJECTED
        return tensor.size(1)
    return 0


def _expected(dims, sizes):
    return "[" + ", ".join(
        f"{_WORDS[d]}={sizes[d]}" if d in sizes and d != "1" else _WORDS[d]
        for d in dims) + "]"


def _check_tensor(name, tensor, dims, sizes, device):
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a tensor {_expected(dims, sizes)}, "
                        "got " + describe(tensor))
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{name} must be float16, bfloat16, float32 or "
                        "float64, got " + describe(tensor))
    if tensor.device != device:
        raise ValueError(f"{name} is {describe(tensor)}, the graph is on "
                         f"{device}; move one with .to()")
    fits = tensor.dim() == len(dims) and all(
        n == sizes.setdefault(d, n) for d, n in zip(dims, tensor.shape))
    if not fits:
        raise ValueError(f"{name} must be {_expected(dims, sizes)}, got "
                         + describe(tensor))


def check_inputs(op, inputs, bias, sizes, device):
    """Raises if an input is wrong; sizes holds N, M and E, or none of them
    where the graph is not built yet."""
    sizes = dict(sizes, **{"1": 1})
    for spec, tensor in zip(op.inputs, inputs):
        if tensor is None and spec.optional:
            continue
        dims = spec.dims
        if dims == "EF" and getattr(tensor, "ndim", 2) == 3:
            dims = "EHD"  # projected already
        if "P" in dims and "D" in sizes:
            sizes["P"] = sizes["H"] * sizes["D"]
        _check_tensor(spec.name, tensor, dims, sizes, device)
    if bias is not None:
        _check_tensor("bias", bias, "EH", sizes, device)
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
