"""The operators, from the library's table of the tensors of each: the arguments
of a call, and the checks of these."""

import ctypes
from collections import namedtuple

import torch

from . import _abi
from ._checks import describe
from ._library import check, library

# A tensor of a pass: field is its member of dfgnn_args, name what users call it.
# dims: a letter for each dimension: N destinations, M sources, H heads, D
# features of a head, E edges, F features of an edge, P = H * D.  scalar: the
# library reads float32, or float64 beside features of float64.
Tensor = namedtuple("Tensor", "name field dims scalar index strided flag "
                    "optional role")

_ROLES = {number: name for name, number in
          _abi.numbers("dfgnn_role", "DFGNN_ROLE_").items()}
_FLAGS = {number: name for name, number in
          _abi.numbers("dfgnn_flag", "DFGNN_FLAG_").items()}
_ELEMENTS = _abi.numbers("dfgnn_element", "DFGNN_ELEMENT_")
_STRIDES = {name for name, _ in _abi.Args._fields_
            if name.endswith("_strides")}
_NAMES = {("agnn", "query"): "h_dst", ("agnn", "value"): "h_src",
          ("gat", "value"): "h", ("gatv2", "query"): "x_dst",
          ("gatv2", "value"): "x_src", ("gat", "score_edge"): "edge_score",
          ("gt", "value"): "value", ("spmm-weighted", "edge_weight"): "weight"}


def _tensor(op, info):
    field, dims = info.name.decode(), info.shape.decode() or "1"
    role, flag = _ROLES[info.role], _FLAGS[info.flag]
    attention = "-" not in op
    if attention and flag == "projection":
        dims = dims.replace("HD", "P")
    default = "x" if field == "value" else field
    return Tensor(
        _NAMES.get((op, field), default), field, dims,
        info.element == _ELEMENTS["scalar"],
        info.element == _ELEMENTS["index"],
        attention and field + "_strides" in _STRIDES, flag,
        role == "modifier" or flag != "none" or field == "beta", role)


def _tensors(op, number, pass_):
    info, found = _abi.TensorInfo(), []
    while True:
        check(library().dfgnn_operator_tensor(
            ctypes.byref(info), number, _abi.PASSES[pass_], len(found)))
        if not info.name:
            return tuple(found)
        found.append(_tensor(op, info))


class Operator:
    """forward and backward: the tensors of each pass; inputs and outs: those
    that the forward pass reads and writes.  value: the number of the input
    whose rows are summed."""

    def __init__(self, name):
        self.name, self.number = name, _abi.OPS[name]
        self.attention = "-" not in name
        self.forward, self.backward = (
            _tensors(name, self.number, pass_)
            for pass_ in ("forward", "backward"))
        self.inputs = tuple(t for t in self.forward
                            if t.role in ("input", "modifier"))
        self.outs = tuple(t for t in self.forward
                          if t.role in ("output", "optional"))
        self.fields = {t.field: number
                       for number, t in enumerate(self.inputs)}
        self.value = self.fields["value"]
        self._orders = {}  # by the fields given: those of given()

    def results(self, settings):
        """(those that a call returns, those that its gradient alone reads) of
        outs."""
        shown = [t for t in self.outs if t.role == "output"
                 or t.flag == "weights" and settings.weights
                 or t.field == "lse" and settings.lse]
        return shown, [t for t in self.outs
                       if t not in shown and t.flag != "weights"]

    def given(self, tensors):
        """The inputs of a call, whose last is not None, from a dict by their
        fields; None if it has another field."""
        fields = tuple(tensors)
        if fields not in self._orders:
            numbers = [self.fields.get(field) for field in fields]
            self._orders[fields] = None if None in numbers else \
                tuple(self.fields)[:max(numbers) + 1]
        order = self._orders[fields]
        return order and [tensors.get(field) for field in order]

    def with_bias(self, inputs, bias):
        """The inputs of attention and its bias [E, H], which is the last."""
        missing = len(self.inputs) - 1 - len(inputs)
        return (*inputs, *(None,) * missing, bias)


# read at once: torch.compile cannot trace what reads it later
OPERATORS = {name: Operator(name) for name in _abi.OPS}


# ---- calls ------------------------------------------------------------------

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
