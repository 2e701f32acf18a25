"""The operators, from the library's table of the tensors of each."""

import ctypes
from collections import namedtuple

from . import _abi
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
