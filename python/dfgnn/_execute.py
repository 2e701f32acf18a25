"""Running plans: pointers in, tensors out."""

import ctypes
import functools
import operator
import struct
import weakref
from typing import NamedTuple, Optional

import torch

from . import _abi, _calls, _native, _recording
from ._context import current_raw_stream, with_room
from ._library import check, failure, library
from ._operators import (
    DTYPES, OPERATORS, check_call, edge_dim, is_flat, message_of, sum_settings)
from ._table import MLP

_generation = 0


@functools.lru_cache(maxsize=256)
def _template(scale, slope, dropout):
    """Arguments that nobody writes to: calls have copies of them."""
    return _abi.Args(scale=scale, slope=slope, dropout=dropout)


def arguments(settings):
    """Arguments of calls, without a tensor."""
    return _abi.Args.from_buffer_copy(_template(
        settings.scale, settings.slope, settings.dropout))


def forget_plans():
    """Makes later calls choose their plans anew: something was measured."""
    global _generation
    _generation += 1


def generation():
    """A part of the keys of recipes, which forget_plans() changes."""
    return _generation


class Plan:
    """A dfgnn_plan, its workspace size, and the arguments that its calls
    share."""

    __slots__ = ("address", "workspace", "settings", "handle", "wanted",
                 "on_host")

    def __init__(self, handle, device, wanted, settings):
        found = None
        if _native.extension is not None:
            found = _native.extension.plan(
                _native.functions, handle.context.address, handle.pointer,
                getattr(wanted, "packed", None) or bytes(wanted))
        if type(found) is not tuple:
            wanted, found = _plan(handle, device, wanted, settings)
        self.address, self.workspace = found
        handle.owned_plans.append(self.address)
        self.handle, self.wanted = weakref.ref(handle), wanted
        self.settings = settings
        self.on_host = device.type == "cpu"

    def arguments(self):
        return arguments(self.settings)

    @property
    def execute(self):
        return library().dfgnn_execute

    def run(self, args, device):
        if _calls.watching is not None:
            _calls.watching.timed(lambda: self._run(args, device),
                                  self.handle(), self.wanted, device)
        else:
            self._run(args, device)

    def room(self, device):
        """The workspace of a call, or None; the caching allocator keeps it
        until the stream is done with it."""
        if not self.workspace:
            return None
        return torch.empty(self.workspace, dtype=torch.uint8, device=device)

    def _run(self, args, device):
        room = self.room(device)
        status = self.execute(
            self.address, args, None if room is None else room.data_ptr(),
            None if self.on_host else current_raw_stream(device.index))
        if status:
            raise failure(status)


def _plan(handle, device, wanted, settings):
    """(the problem that a plan is of, (its address, its workspace))."""
    lib, pointer = library(), ctypes.c_void_p()
    given = ctypes.byref(pointer), handle.context.handle, handle.pointer
    status = with_room(device, lib.dfgnn_plan_create, *given,
                       ctypes.byref(wanted))
    # a variant that is not deterministic serves where no other does
    if status == _abi.ERROR_UNSUPPORTED and not settings.deterministic:
        wanted = _abi.Problem.from_buffer_copy(wanted)
        wanted.deterministic = 0
        status = with_room(device, lib.dfgnn_plan_create, *given,
                           ctypes.byref(wanted))
    check(status)
    return wanted, (pointer.value, lib.dfgnn_plan_workspace(pointer))


class Field(NamedTuple):
    """A tensor that each call tells: the member of dfgnn_args, or of the
    dfgnn_edge_mlp_args behind it, that points to it, the type that it has to
    have, and how many bytes into its memory the member points.  Without a type
    it may have strides, if there is a member for them."""
    name: str
    dtype: Optional[torch.dtype] = None
    begin: int = 0

    @property
    def offset(self):
        """Of the member."""
        if self.name in MLP:
            return _MlpArgs.mlp.offset + MLP[self.name].offset
        return getattr(_abi.Args, self.name).offset

    @property
    def strides(self):
        """The offset of the member for its strides; -1 if it is dense."""
        name = self.name + "_strides"
        return getattr(_abi.Args, name).offset \
            if self.dtype is None and name in _STRIDES else -1


_STRIDES = {name for name, _ in _abi.Args._fields_
            if name.endswith("_strides")}


class _MlpArgs(ctypes.Structure):
    """The arguments of a call of an MLP, whose mlp_args points to the second
    part."""
    _fields_ = [("args", _abi.Args), ("mlp", _abi.EdgeMlpArgs)]


class Form:
    """The arguments of calls but for the tensors that each tells: those of the
    fields, in their order.  The plans of many graphs share it."""

    __slots__ = ("template", "block", "fields", "types", "slots", "packed")

    def __init__(self, template, fields):
        self.template, self.fields = template, fields
        self.block = _MlpArgs.mlp.offset if isinstance(template, _MlpArgs) \
            else 0
        self.types = tuple([field.dtype for field in fields])
        self.slots = [(field.offset, field.strides, field.begin)
                      for field in fields]
        self.packed = _native.form(template, self.block, self.slots)

    def arguments(self, tensors):
        """(the dfgnn_args of these tensors, what has to stay alive until the
        call was made)."""
        whole = type(self.template).from_buffer_copy(self.template)
        alive = _place(whole, self, tensors)
        if not self.block:
            return whole, alive
        whole.args.mlp_args = ctypes.addressof(whole) + self.block
        return whole.args, alive


def mlp_form(mlp, names):
    """The Form of calls of an _abi.EdgeMlp, which has to live as long."""
    template = _MlpArgs(arguments(sum_settings()), _abi.EdgeMlpArgs())
    template.args.mlp = ctypes.addressof(mlp)
    return Form(template, list(map(Field, names)))


@functools.lru_cache(maxsize=256)
def _form(numbers, fields):
    return Form(_template(*numbers), fields)


class Call:
    """A plan, and the form of its calls."""

    __slots__ = ("plan", "form")

    def __init__(self, plan, form):
        self.plan, self.form = plan, form

    def run(self, device, tensors):
        """Runs the plan; tensors: a list of tensors, of addresses, and of None
        for NULL.  The extension takes tensors that lie as they should, ctypes
        any."""
        plan, form = self.plan, self.form
        native = _native.call if form.packed is not None else None
        if native is not None and _calls.watching is None:
            status = native(
                form.packed, plan.address, form.types, plan.room(device),
                None if plan.on_host else current_raw_stream(device.index),
                tensors)
            if not status:
                return
            if status > 0:
                raise failure(status)
        args, alive = form.arguments(tensors)  # noqa: F841
        plan.run(args, device)


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


class Recipe:
    """The checks, shapes and plans that calls with the same shapes, types and
    settings share: they are made once.

    places: (field, dtype) of each input; dtype is None if the input may have
        strides.
    outs: (field, shape, dtype, source) of what forward writes: those that a
        call returns, of which there are as many as shown has names, then those
        that the gradient alone reads.  source: the input that it is made
        from, see _source().
    kept: the names of the tensors that the gradient reads, "seed", fields of
        inputs and of outputs; and weights that a call returns.
    keeps_outs: whether outputs are among them.
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
                 "empty", "calls", "places", "outs", "shown", "kept",
                 "keeps_outs", "pick", "back", "cotangents", "grads", "casts",
                 "plain", "ungiven")

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
        self.calls = [None, None]
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
                              _source(given, shape, dtype)))

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
        self.keeps_outs = any(out[0] in self.kept for out in self.outs)
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
                               _source(given, shape, dtype)))
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

    def call(self, graph, backward):
        found = self.calls[backward]
        if found is None:
            plan = Plan(graph.handle, graph.device, self.problem(backward),
                        self.settings)
            found = self.calls[backward] = Call(plan, _form(
                self.settings[:3], tuple(self.fields(backward))))
        return found

    def problem(self, backward):
        return problem(self.op, backward, self.dtype, self.heads, self.dim,
                       self.settings, self.biased, self.edge_dim, self.listed,
                       self.message)

    def fields(self, backward):
        """Those that forward() and backward() give a call."""
        drops = self.settings.dropout > 0
        if not backward:
            return [*[Field(*place) for place in self.places],
                    *[Field(name) for name in ("seed", "edge_number")
                      if drops], *[Field(out[0]) for out in self.outs]]
        return [*[Field(*place) for place in self.back + self.cotangents],
                *[Field("edge_number")] * drops,
                *[Field(field) for field, shape, *_ in self.grads
                  if shape is not None]]


def recipe(graph, op, inputs, settings, listed=False):
    """The Recipe of a call, whose inputs are checked when it is made.  listed:
    edge features are in the caller's order; if the recipe is not, they have to
    be in the graph's."""
    if _recording.current is not None:
        _recording.current.graph(graph)
    recipes = graph.handle.recipes
    try:
        key = (op, settings, _generation, listed,
               *[None if t is None else (t.shape, t.dtype, t.device)
                 for t in inputs])
        return recipes[key]
    except KeyError:
        found = recipes[key] = Recipe(graph, op, inputs, settings, listed)
        return found
    except AttributeError:  # one is no tensor, which is an error
        return Recipe(graph, op, inputs, settings, listed)


def recipe_of(owner, graph, *about):
    """recipe() of a graph for an owner that always asks for the same one: it is
    graph.handle.recipes[owner] from then on."""
    recipes = graph.handle.recipes
    found = recipes.get(owner)
    if found is None:
        found = recipes[owner] = recipe(graph, *about)
    return found


def _source(tensors, shape, dtype):
    """(the number of the tensor that a new one of this shape and type is made
    from, whether it is like it); tensors: (shape, dtype) of each or None."""
    if (shape, dtype) in tensors:
        return tensors.index((shape, dtype)), True
    types = [None if t is None else t[1] for t in tensors]
    if dtype in types:
        return types.index(dtype), False
    return next(n for n, t in enumerate(tensors) if t is not None), False


_POINTER = struct.Struct("P")


def _place(args, form, tensors):
    """Fills in the arguments; returns the tensors that must stay alive until
    the call was made."""
    alive = []
    for (offset, strides, begin), dtype, tensor in zip(form.slots, form.types,
                                                       tensors):
        if tensor is None or isinstance(tensor, int):
            _POINTER.pack_into(args, offset, tensor or 0)
            continue
        if dtype is not None and tensor.dtype is not dtype:
            tensor = tensor.to(dtype)
        if not tensor.is_contiguous():
            if strides < 0 or tensor.stride(-1) != 1:
                tensor = tensor.contiguous()
            else:
                struct.pack_into(f"{tensor.dim()}q", args, strides,
                                 *tensor.stride())
        _POINTER.pack_into(args, offset, tensor.data_ptr() + begin)
        alive.append(tensor)
    return alive


def _new(source, like, shape, dtype):
    """A new dense tensor; like: whether source has this shape and type: torch
    makes such tensors in the least time, and others of source's type in
    less than any."""
    if source.dtype is not dtype:
        return source.new_empty(shape, dtype=dtype)
    if like and source.is_contiguous():
        return torch.empty_like(source)
    return source.new_empty(shape)


# what the library leaves as it is where there are no edges
_WITHOUT_EDGES = {"lse": float("-inf"), "arg_min": -1, "arg_max": -1}


def forward(graph, made, inputs, seed=None, keep=True):
    """The tensors of made.outs; without keep those that are shown.  Tensors by
    edge are in the graph's order."""
    outs = made.outs if keep else made.outs[:len(made.shown)]
    if made.empty:
        return [torch.full(shape, _WITHOUT_EDGES.get(field, 0), dtype=dtype,
                           device=made.device)
                for field, shape, dtype, _ in outs]
    call = made.calls[0] or made.call(graph, False)
    found = [_new(inputs[source], like, shape, dtype)
             for _, shape, dtype, (source, like) in outs]
    if made.settings.dropout:
        call.run(made.device, [*inputs, seed, graph.edge_number, *found])
    else:
        call.run(made.device, [*inputs, *found])
    return found


def backward(graph, made, kept, grads, needed, into=None):
    """The gradient of each input, None where needed is false.

    kept, grads: the tensors of made.kept and of made.cotangents.
    into: for each input the tensor that takes its gradient, or None for a new
        one.
    """
    if made.empty:
        return [torch.zeros(shape, dtype=kind, device=made.device)
                if wanted and shape is not None else None
                for (_, shape, _, kind, _), wanted in zip(made.grads, needed)]
    call = made.calls[1] or made.call(graph, True)
    given = (*kept, *grads)  # kept: perhaps weights, which no gradient reads
    tensors = [*kept[:len(made.back)], *grads]
    if made.settings.dropout:
        tensors.append(graph.edge_number)
    found = []
    for (_, shape, dtype, _, source), wanted, grad in zip(
            made.grads, needed, into or made.ungiven):
        if shape is not None:
            if wanted and grad is None:
                number, like = source
                grad = _new(given[number], like, shape, dtype)
            tensors.append(grad if wanted else None)
        found.append(grad)
    call.run(made.device, tensors)
    if not made.casts:
        return found
    return [grad if grad is None or grad.dtype is kind else grad.to(kind)
            for grad, (_, _, _, kind, _) in zip(found, made.grads)]
