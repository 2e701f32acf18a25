"""Running plans: tensors in, tensors out.  Calls of operators and of edge
programs are one: a recipe on the graph has a Call for each of its passes, which
is a plan of the library and the form of its arguments."""

import ctypes
import functools
import struct
import weakref
from collections import namedtuple
from typing import NamedTuple

import torch

from . import _abi, _library, _measure, _remember
from ._checks import check_number
from ._device import current_raw_stream, with_room
from ._library import check, failure, library
from ._modes import constant

Settings = namedtuple(
    "Settings",
    "scale slope dropout weights deterministic tf32 edge_use lse",
    defaults=("both", False))

# those of sums and reductions, by whether they have to be deterministic
_SUMS = [Settings(0.0, 0.0, 0.0, False, deterministic, False)
         for deterministic in (False, True)]


@constant  # torch.compile starts again when the setting changes
def tf32_allowed():
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        # get_float32_matmul_precision() raises if the newer settings are used
        return torch.backends.cuda.matmul.fp32_precision == "tf32"
    return torch.get_float32_matmul_precision() != "highest"


def settings_of(value, scale, slope, dropout, return_weights, edge_use="both",
                lse=False):
    tf32 = (value.is_cuda and value.dtype == torch.float32
            and tf32_allowed())
    return Settings(check_number("scale", scale),
                    check_number("negative_slope", slope), dropout, bool(return_weights),
                    torch.are_deterministic_algorithms_enabled(), tf32,
                    edge_use, lse)


def sum_settings():
    return _SUMS[int(torch.are_deterministic_algorithms_enabled())]


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
        plan = None
        if _library.extension is not None:
            plan = _library.extension.plan(
                _library.functions, handle.context.address, handle.pointer,
                getattr(wanted, "packed", None) or bytes(wanted))
        if type(plan) is not tuple:
            wanted, plan = _plan(handle, device, wanted, settings)
        self.address, self.workspace = plan
        handle.owned_plans.append(self.address)
        self.handle, self.wanted = weakref.ref(handle), wanted
        self.settings = settings
        self.on_host = device.type == "cpu"

    def arguments(self):
        return arguments(self.settings)

    def again(self, device, effort=0):
        """A plan of the same problem, as it is chosen now."""
        wanted = _abi.Problem.from_buffer_copy(self.wanted)
        wanted.effort = effort
        plan = Plan(self.handle(), device, wanted, self.settings)
        plan.wanted = self.wanted
        return plan

    @property
    def execute(self):
        return library().dfgnn_execute

    def run(self, args, device):
        if _measure.takes_calls():
            _measure.watching.timed(lambda: self._run(args, device),
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
    common = ctypes.byref(pointer), handle.context.handle, handle.pointer
    status = with_room(device, lib.dfgnn_plan_create, *common,
                       ctypes.byref(wanted))
    # a variant that is not deterministic serves where no other does
    if status == _abi.ERROR_UNSUPPORTED and not settings.deterministic:
        wanted = _abi.Problem.from_buffer_copy(wanted)
        wanted.deterministic = 0
        status = with_room(device, lib.dfgnn_plan_create, *common,
                           ctypes.byref(wanted))
    check(status)
    return wanted, (pointer.value, lib.dfgnn_plan_workspace(pointer))


class Field(NamedTuple):
    """A tensor of each call: the member of dfgnn_args that points to it, the
    type that it has to have, and how many bytes into its memory the member
    points.  Without a type it may have strides, if they have a member."""
    name: str
    dtype: torch.dtype | None = None
    begin: int = 0

    @property
    def offset(self):
        """Of the member."""
        return getattr(_abi.Args, self.name).offset

    @property
    def strides(self):
        """The offset of the member for its strides; -1 if it is dense."""
        name = self.name + "_strides"
        return getattr(_abi.Args, name).offset \
            if self.dtype is None and name in _STRIDES else -1


class Bound(NamedTuple):
    """Likewise a tensor of a program, whose dfgnn_edge_tensor is behind
    dfgnn_args."""
    number: int
    dtype: torch.dtype
    begin = 0
    strides = -1

    @property
    def offset(self):
        return _BEHIND + self.number * ctypes.sizeof(_abi.EdgeTensor) + \
            _abi.EdgeTensor.data.offset


_STRIDES = {name for name, _ in _abi.Args._fields_
            if name.endswith("_strides")}
_BEHIND = ctypes.sizeof(_abi.Args)  # where that begins which args point to


@functools.lru_cache(maxsize=256)
def _program_args(count):
    """The type of the arguments of a call of a program of so many tensors,
    whose program_inputs and program_outputs point to the second part."""
    return type("_ProgramArgs", (ctypes.Structure,), {"_fields_": [
        ("args", _abi.Args), ("tensors", _abi.EdgeTensor * count)]})


class Form:
    """The arguments of calls except for the tensors that each tells: those of
    the fields, in their order.  links: (the offset of a pointer in the
    arguments, that of what it points to, behind dfgnn_args).  The plans of many
    graphs share it."""

    __slots__ = ("template", "links", "fields", "types", "slots", "packed")

    def __init__(self, template, fields, links=()):
        self.template, self.fields, self.links = template, fields, links
        self.types = tuple([field.dtype for field in fields])
        self.slots = [(field.offset, field.strides, field.begin)
                      for field in fields]
        self.packed = _library.form(template, links, self.slots)

    def arguments(self, tensors):
        """(the dfgnn_args of these tensors, what has to stay alive until the
        call was made)."""
        whole = type(self.template).from_buffer_copy(self.template)
        alive = _place(whole, self, tensors)
        for offset, to in self.links:
            _POINTER.pack_into(whole, offset, ctypes.addressof(whole) + to)
        return whole.args if self.links else whole, alive


@functools.lru_cache(maxsize=256)
def operator_form(numbers, fields):
    """The Form of calls of an operator; numbers: the first of their
    Settings."""
    return Form(_template(*numbers), fields)


def program_form(args, inputs, outputs, fields):
    """The Form of calls of a program that is no operator; inputs, outputs: the
    arrays of _abi.EdgeTensor that args point to."""
    template = _program_args(len(inputs) + len(outputs))(args)
    template.tensors[:] = [*inputs, *outputs]
    return Form(template, fields, [
        (_abi.Args.program_inputs.offset, _BEHIND),
        (_abi.Args.program_outputs.offset,
         _BEHIND + ctypes.sizeof(_abi.EdgeTensor) * len(inputs))])


class Call:
    """A plan, and the form of its calls.  again: what measures it if its graph
    comes again (_measure.py), or None."""

    __slots__ = ("plan", "form", "again")

    def __init__(self, plan, form):
        self.plan, self.form = plan, form
        self.again = _measure.Again() if _measure.enabled else None

    def run(self, device, tensors):
        """Runs the plan; tensors: a list of tensors, of addresses, and of None
        for NULL.  The extension takes tensors that lie as they should, ctypes
        any."""
        again = self.again
        if again is not None:
            self.again = again.before(self, device, tensors)
        plan, form = self.plan, self.form
        native = _library.call if form.packed is not None else None
        if native is not None and not _measure.takes_calls():
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


class Recipe:
    """The state that calls on one graph with the same settings, shapes and
    types share: they are made once, and the graph's handle keeps them.  calls
    has a Call for each key: a pass, and what else a problem depends on.  Of
    several that threads make at once the first stays, which setdefault() sees
    to: its calls are counted until they are measured."""

    __slots__ = ("calls",)

    def describe(self, graph, key, tensors):
        """(the _abi.Problem, the Settings, the Form) of the calls of a key;
        tensors: those of the first."""
        raise NotImplementedError

    def call(self, graph, key, tensors=None):
        call = self.calls.get(key)
        if call is None:
            wanted, settings, form = self.describe(graph, key, tensors)
            call = self.calls.setdefault(key, Call(Plan(
                graph.handle, graph.device, wanted, settings), form))
        return call


def kept(graph, key, make):
    """The Recipe that the graph has for a key, which make() makes; it keeps
    none if the key is None."""
    if _remember.current is not None:
        _remember.note_graph(graph)
    recipes = graph.handle.recipes
    recipe = recipes.get(key)
    if recipe is None:
        recipe = make()
        if key is not None:
            recipe = recipes.setdefault(key, recipe)
    return recipe


def source_of(tensors, shape, dtype):
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


def new(source, like, shape, dtype):
    """A new dense tensor; like: whether source has this shape and type: torch
    makes such tensors in the least time, and others of source's type in
    less than any."""
    if source.dtype is not dtype:
        return source.new_empty(shape, dtype=dtype)
    if like and source.is_contiguous():
        return torch.empty_like(source)
    return source.new_empty(shape)
