"""Calls of operators: their checks, shapes and plans."""

import functools
import operator

import torch

from . import _abi, _capture_reads, _execute
from ._execute import Field, new, operator_form, source_of
from ._operators import (
    DTYPES, OPERATORS, check_call, edge_dim, is_flat, message_of)

# what the library leaves as it is where there are no edges
_WITHOUT_EDGES = {"lse": float("-inf"), "arg_min": -1, "arg_max": -1}


@functools.lru_cache(maxsize=1024)
def problem(op, backward, dtype, heads, dim, settings, bias, edges=0,
            listed=False, message="copy"):
    made = _abi.Problem(
        op=OPERATORS[op].number, pass_=int(backward), dtype=DTYPES[dtype],
        math=_abi.MATH_TF32 if settings.tf32 else _abi.MATH_F32,
        effort=_abi.EFFORTS["default"], heads=heads, dim=dim,
        deterministic=1, weights=int(settings.weights and not backward),
        max_workspace=-1, bias=int(bias), dropout=int(settings.dropout > 0),
        edge_dim=edges, message=_abi.MESSAGES[message],
        edge_use=_abi.EDGE_USES[settings.edge_use] if edges else 0,
        edge_list=int(listed))
    made.packed = bytes(made)  # for the extension
    return made


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
                 "ungiven")

    def __init__(self, graph, op, inputs, settings, listed):
        self.op = op
        self.spec = spec = OPERATORS[op]
        check_call(graph, spec, inputs)
        value = inputs[spec.value]
        self.settings = settings
        self.dtype = value.dtype
        self.exact = (torch.float64 if value.dtype == torch.float64
                      else torch.float32)
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
        given = [None if t is None else (t.shape, t.dtype) for t in inputs]
        self.outs = []
        for t in first + rest:
            dims = t.dims.replace("HD", "D") if self.flat else t.dims
            shape, dtype = tuple(sizes[d] for d in dims), self._type(t)
            self.outs.append((t.field, shape, dtype,
                              source_of(given, shape, dtype)))

    def _backward(self, inputs):
        used = self._used()
        reads = {t.field for t in self.spec.backward if t.flag in used
                 and t.role in ("input", "modifier", "saved")}
        # (field, type to place it in, (shape, type) of a tensor)
        given = [("seed", torch.int64, None)] if self.settings.dropout else []
        given += [(field, dtype, (tensor.shape, tensor.dtype))
                  for (field, dtype), tensor in zip(self.places, inputs)
                  if field in reads and tensor is not None]
        given += [(field, dtype, (shape, dtype)) for field, shape, dtype, _
                  in self.outs if field in reads]
        self.back = tuple((field, dtype) for field, dtype, _ in given)
        self.kept = tuple(field for field, _, _ in given)
        shown = self.outs[:len(self.shown)]
        if shown[-1][0] == "weights":
            self.kept += ("weights",)
            shown.pop()
        self.pick = self._picker()
        self.cotangents = tuple(
            ("grad_" + field, None if self.spec.attention and field == "out"
             else dtype) for field, _, dtype, _ in shown)
        self._gradients(inputs, [about for _, _, about in given] + [None] * (
            len(self.kept) - len(given)) + [out[1:3] for out in shown])

    def _gradients(self, inputs, given):
        found = {t.field: t for t in self.spec.backward}
        self.grads, self.ungiven = [], (None,) * len(inputs)
        for (field, _), tensor in zip(self.places, inputs):
            field = "grad_" + field
            if tensor is None or field not in found:
                self.grads.append((field, None, None, None, None))
                continue
            shape, dtype = tuple(tensor.shape), self._type(found[field])
            self.grads.append((field, shape, dtype, tensor.dtype,
                               source_of(given, shape, dtype)))
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

    # ---- what the gradient reads

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

    # ---- passes

    def describe(self, graph, backward, tensors):
        return self.problem(backward), self.settings, operator_form(
            self.settings, self.fields(backward))

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
        found = [new(inputs[source], like, shape, dtype)
                 for _, shape, dtype, (source, like) in outs]
        if self.settings.dropout:
            call.run(self.device, [*inputs, seed, graph.edge_number, *found])
        else:
            call.run(self.device, [*inputs, *found])
        return found

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
        given = (*kept, *grads)  # perhaps weights, which no gradient reads
        tensors = [*kept[:len(self.back)], *grads]
        if self.settings.dropout:
            tensors.append(graph.edge_number)
        found = []
        for (_, shape, dtype, _, source), wanted, grad in zip(
                self.grads, needed, into or self.ungiven):
            if shape is not None:
                if wanted and grad is None:
                    number, like = source
                    grad = new(given[number], like, shape, dtype)
                tensors.append(grad if wanted else None)
            found.append(grad)
        call.run(self.device, tensors)
        if not self.casts:
            return found
        return [grad if grad is None or grad.dtype is kind else grad.to(kind)
                for grad, (_, _, _, kind, _) in zip(found, self.grads)]


def recipe(graph, op, inputs, settings, listed=False):
    """The Recipe of a call, whose inputs are checked when it is made.  listed:
    edge features are in the caller's order; if the recipe is not, they have to
    be in the graph's."""
    if _capture_reads.current is not None:
        _capture_reads.current.graph(graph)
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
