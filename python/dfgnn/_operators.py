"""The operators, from the library's table of the tensors of each: the arguments
of a call, the checks of these, and the recipe by which calls run."""

import ctypes
import functools
import operator
from collections import namedtuple

import torch

from . import _abi, _execute, _remember
from ._checks import DTYPES, check_tensor, describe, exact
from ._execute import Field, new, operator_form, source_of
from ._library import check, library

# A tensor of a pass: field is its member of dfgnn_args, name what users call
# it.  dims: a letter for each dimension: N destinations, M sources, H heads, D
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
    info, tensors = _abi.TensorInfo(), []
    while True:
        check(library().dfgnn_operator_tensor(
            ctypes.byref(info), number, _abi.PASSES[pass_], len(tensors)))
        if not info.name:
            return tuple(tensors)
        tensors.append(_tensor(op, info))


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


# the most features of an edge that kernels on a GPU multiply by W
MOST_EDGE_FEATURES = 64


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
    weight = input_of(op, inputs, "edge_projection")
    both = weight is not None and weight.dim() == 4
    return "gate-value" if both else "gate"


def is_flat(op, inputs):
    """Whether a call's features are [rows, D], those of one head: rows that
    are sent as they are may be."""
    return (not op.attention and message_of(op, inputs) == "copy"
            and getattr(inputs[op.value], "ndim", 3) == 2)


def check_inputs(op, inputs, sizes, device):
    """Raises if an input is wrong; sizes holds N, M and E, or none of them
    where the graph is not built yet."""
    sizes = dict(sizes, **{"1": 1, "2": 2})
    projected = op.attention or \
        input_of(op, inputs, "edge_projection") is not None
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
    check_inputs(op, inputs, {"N": graph.num_dst, "M": graph.num_src,
                              "E": graph.num_edges}, graph.device)


# what the library leaves as it is where there are no edges
_WITHOUT_EDGES = {"lse": float("-inf"), "arg_min": -1, "arg_max": -1}


@functools.lru_cache(maxsize=1024)
def problem(op, backward, dtype, heads, dim, settings, bias, edges=0,
            listed=False, message="copy"):
    wanted = _abi.Problem(
        op=OPERATORS[op].number, pass_=int(backward), dtype=DTYPES[dtype],
        math=_abi.MATH_TF32 if settings.tf32 else _abi.MATH_F32,
        effort=_abi.EFFORTS["default"], heads=heads, dim=dim,
        deterministic=1, weights=int(settings.weights and not backward),
        max_workspace=-1, bias=int(bias), dropout=int(settings.dropout > 0),
        edge_dim=edges, message=_abi.MESSAGES[message],
        edge_use=_abi.EDGE_USES[settings.edge_use] if edges else 0,
        edge_list=int(listed))
    wanted.packed = bytes(wanted)  # for the extension
    return wanted


class Recipe(_execute.Recipe):
    """The state that calls of an operator share.

    places: (field, dtype) of each input; dtype is None if the input may have
        strides.
    outs: (field, shape, dtype, source) of what forward writes: those that a
        call returns, of which there are as many as shown has names, then those
        that the gradient alone reads.  source: the input that it is made
        from, see source_of().
    kept: the names of the tensors that the gradient reads, "seed", fields of
        inputs and of outputs; and weights that a call returns.
    back, cotangents: (field, dtype) of the tensors of kept, and of the
        gradients, that the gradient is given.
    grads: (field, shape, dtype, type of the input, source) of the gradient of
        each input; shape is None where there is none; source: of kept and of
        the gradients that are given.
    casts: whether gradients have another type than their inputs.
    flat: whether features are [rows, D].
    plain: whether the gradient is that of one call of the library.
    """

    __slots__ = ("op", "spec", "settings", "dtype", "exact", "device", "heads",
                 "dim", "flat", "message", "edge_dim", "listed", "biased",
                 "empty", "places", "outs", "shown", "kept",
                 "pick", "back", "cotangents", "grads", "casts", "plain",
                 "no_grads")

    def __init__(self, graph, op, inputs, settings, listed):
        self.op = op
        self.spec = spec = OPERATORS[op]
        check_call(graph, spec, inputs)
        value = inputs[spec.value]
        self.settings = settings
        self.dtype = value.dtype
        self.exact = exact(value.dtype)
        self.device = value.device
        self.flat = is_flat(spec, inputs)
        _, self.heads, self.dim = (len(value), 1, value.size(1)) \
            if self.flat else value.shape
        self.message = message_of(spec, inputs)
        self.edge_dim = edge_dim(spec, inputs)
        self.biased = (spec.attention and len(inputs) == len(spec.inputs)
                       and inputs[-1] is not None)
        self.listed = bool(listed and graph.handle.listed and self.edge_dim
                           and op != "gat" and not settings.weights)
        self.empty = not graph.num_edges
        self.calls = {}
        self._forward(graph, inputs)
        self._backward(inputs)

    def _forward(self, graph, inputs):
        self.places = tuple(
            (t.field, None if t.strided else self._type(t))
            for t, _ in zip(self.spec.inputs, inputs))
        sizes = {"N": graph.num_dst, "M": graph.num_src,
                 "E": graph.num_edges, "H": self.heads, "D": self.dim}
        first, rest = self.spec.results(self.settings)
        self.shown = tuple(t.field for t in first)
        self.plain = self.shown[-1] not in ("lse", "weights")
        sources = [None if t is None else (t.shape, t.dtype) for t in inputs]
        self.outs = []
        for t in first + rest:
            dims = t.dims.replace("HD", "D") if self.flat else t.dims
            shape, dtype = tuple(sizes[d] for d in dims), self._type(t)
            self.outs.append((t.field, shape, dtype,
                              source_of(sources, shape, dtype)))

    def _backward(self, inputs):
        used = self._used()
        reads = {t.field for t in self.spec.backward if t.flag in used
                 and t.role in ("input", "modifier", "saved")}
        # (field, type to place it in, (shape, type) of a tensor)
        entries = [("seed", torch.int64, None)] if self.settings.dropout else []
        entries += [(field, dtype, (tensor.shape, tensor.dtype))
                    for (field, dtype), tensor in zip(self.places, inputs)
                    if field in reads and tensor is not None]
        entries += [(field, dtype, (shape, dtype)) for field, shape, dtype, _
                    in self.outs if field in reads]
        self.back = tuple((field, dtype) for field, dtype, _ in entries)
        self.kept = tuple(field for field, _, _ in entries)
        shown = self.outs[:len(self.shown)]
        if shown[-1][0] == "weights":
            self.kept += ("weights",)
            shown.pop()
        self.pick = self._picker()
        self.cotangents = tuple(
            ("grad_" + field, None if self.spec.attention and field == "out"
             else dtype) for field, _, dtype, _ in shown)
        self._gradients(inputs, [about for _, _, about in entries] + [None] * (
            len(self.kept) - len(entries)) + [out[1:3] for out in shown])

    def _gradients(self, inputs, sources):
        by_field = {t.field: t for t in self.spec.backward}
        self.grads, self.no_grads = [], (None,) * len(inputs)
        for (field, _), tensor in zip(self.places, inputs):
            field = "grad_" + field
            if tensor is None or field not in by_field:
                self.grads.append((field, None, None, None, None))
                continue
            shape, dtype = tuple(tensor.shape), self._type(by_field[field])
            self.grads.append((field, shape, dtype, tensor.dtype,
                               source_of(sources, shape, dtype)))
        self.casts = any(grad[2] != grad[3] for grad in self.grads)

    def _type(self, tensor):
        if tensor.index:
            return torch.int32
        return self.exact if tensor.scalar else self.dtype

    def _used(self):
        """The flags of the tensors that the call has."""
        return {flag for flag, used in (
            ("none", True), ("weights", self.settings.weights),
            ("bias", self.biased), ("edge", self.edge_dim != 0),
            ("projection", self.edge_dim > 0),
            ("message", self.message != "copy"),
            ("gate", self.message.startswith("gate"))) if used}

    def _picker(self):
        names = ("seed", *[field for field, _ in self.places],
                 *[out[0] for out in self.outs])
        numbers = [names.index(name) for name in self.kept]
        if len(numbers) > 1:
            return operator.itemgetter(*numbers)
        return lambda tensors: [tensors[number] for number in numbers]

    def keep(self, seed, inputs, outs):
        """The tensors of kept; outs: those of forward()."""
        return self.pick((seed, *inputs, *outs))

    def parted(self, kept):
        """(inputs, None where not kept; outputs by field; seed) of kept."""
        tensors = dict(zip(self.kept, kept))
        inputs = [tensors.pop(field, None) for field, _ in self.places]
        return inputs, tensors, tensors.pop("seed", None)

    def describe(self, graph, backward, tensors):
        return self.problem(backward), self.settings, operator_form(
            self.settings[:3], tuple(self.fields(backward)))

    def problem(self, backward):
        return problem(self.op, backward, self.dtype, self.heads, self.dim,
                       self.settings, self.biased, self.edge_dim, self.listed,
                       self.message)

    def fields(self, backward):
        """The tensors that forward() and backward() give a call."""
        drops = self.settings.dropout > 0
        if not backward:
            return [*[Field(*place) for place in self.places],
                    *[Field(name) for name in ("seed", "edge_number")
                      if drops], *[Field(out[0]) for out in self.outs]]
        return [*[Field(*place) for place in self.back + self.cotangents],
                *[Field("edge_number")] * drops,
                *[Field(field) for field, shape, *_ in self.grads
                  if shape is not None]]

    def forward(self, graph, inputs, seed=None, keep=True):
        """The tensors of outs; without keep those that are shown.  Tensors by
        edge are in the graph's order."""
        outs = self.outs if keep else self.outs[:len(self.shown)]
        if self.empty:
            return [torch.full(shape, _WITHOUT_EDGES.get(field, 0), dtype=dtype,
                               device=self.device)
                    for field, shape, dtype, _ in outs]
        call = self.calls.get(False) or self.call(graph, False)
        results = [new(inputs[source], like, shape, dtype)
                   for _, shape, dtype, (source, like) in outs]
        if self.settings.dropout:
            call.run(self.device, [*inputs, seed, graph.edge_number, *results])
        else:
            call.run(self.device, [*inputs, *results])
        return results

    def backward(self, graph, kept, grads, needed, into=None):
        """The gradient of each input, None where needed is false.

        kept, grads: the tensors of .kept and of .cotangents.
        into: for each input the tensor that takes its gradient, or None for a
            new one.
        """
        if self.empty:
            return [torch.zeros(shape, dtype=kind, device=self.device)
                    if wanted and shape is not None else None
                    for (_, shape, _, kind, _), wanted in zip(
                        self.grads, needed)]
        call = self.calls.get(True) or self.call(graph, True)
        sources = (*kept, *grads)  # perhaps weights, which no gradient reads
        tensors = [*kept[:len(self.back)], *grads]
        if self.settings.dropout:
            tensors.append(graph.edge_number)
        results = []
        for (_, shape, dtype, _, source), wanted, grad in zip(
                self.grads, needed, into or self.no_grads):
            if shape is not None:
                if wanted and grad is None:
                    number, like = source
                    grad = new(sources[number], like, shape, dtype)
                tensors.append(grad if wanted else None)
            results.append(grad)
        call.run(self.device, tensors)
        if not self.casts:
            return results
        return [grad if grad is None or grad.dtype is kind else grad.to(kind)
                for grad, (_, _, _, kind, _) in zip(results, self.grads)]


def recipe(graph, op, inputs, settings, listed=False):
    """The Recipe of a call, whose inputs are checked when it is made.  listed:
    edge features are in the caller's order; if the recipe is not, they have to
    be in the graph's."""
    if _remember.current is not None:
        _remember.note_graph(graph)
    recipes = graph.handle.recipes
    try:
        key = (op, settings, _execute.generation(), listed,
               *[None if t is None else (t.shape, t.dtype, t.device)
                 for t in inputs])
        return recipes[key]
    except KeyError:
        return recipes.setdefault(
            key, Recipe(graph, op, inputs, settings, listed))
    except AttributeError:  # one is no tensor, which is an error
        return Recipe(graph, op, inputs, settings, listed)
