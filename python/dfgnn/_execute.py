"""Running plans: pointers in, tensors out."""

import ctypes
import functools
import weakref

import torch

from . import _abi, _calls, _recording
from ._context import current_raw_stream, with_room
from ._library import check, failure, library
from ._operators import DTYPES, OPERATORS, check_inputs, edge_dim

_generation = 0


@functools.lru_cache(maxsize=256)
def _template(scale, slope, dropout):
    """Arguments that nobody writes to: calls have copies of them."""
    return _abi.Args(scale=scale, slope=slope, dropout=dropout)


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

    __slots__ = ("pointer", "workspace", "template", "execute", "handle",
                 "wanted")

    def __init__(self, handle, device, wanted, settings):
        lib = library()
        pointer = self.pointer = ctypes.c_void_p()
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
        handle.owned_plans.append(self.pointer)
        self.handle, self.wanted = weakref.ref(handle), wanted
        self.workspace = lib.dfgnn_plan_workspace(pointer)
        self.template = _template(settings.scale, settings.slope,
                                  settings.dropout)
        self.execute = lib.dfgnn_execute

    def arguments(self):
        return _abi.Args.from_buffer_copy(self.template)

    def run(self, args, device):
        if _calls.watching is not None:
            _calls.watching.timed(lambda: self._run(args, device),
                                  self.handle(), self.wanted, device)
        else:
            self._run(args, device)

    def _run(self, args, device):
        workspace = None
        if self.workspace:
            # the caching allocator keeps it until the stream is done with it
            scratch = torch.empty(self.workspace, dtype=torch.uint8,
                                  device=device)
            workspace = scratch.data_ptr()
        status = self.execute(
            self.pointer, args, workspace,
            None if device.type == "cpu" else current_raw_stream(device.index))
        if status:
            raise failure(status)


class Call:
    """A plan, and its arguments but for the pointers that each call tells:
    those of the fields, in their order; None is NULL."""

    __slots__ = ("plan", "template", "fields")

    def __init__(self, plan, template, fields):
        self.plan, self.template, self.fields = plan, template, fields

    def run(self, device, *pointers):
        args = _abi.Args.from_buffer_copy(self.template)
        for field, pointer in zip(self.fields, pointers):
            setattr(args, field, pointer)
        self.plan.run(args, device)


@functools.lru_cache(maxsize=1024)
def problem(op, backward, dtype, heads, dim, settings, bias, edges=0,
            listed=False):
    """The _abi.Problem of an attention, which nobody writes to."""
    return _abi.Problem(
        op=OPERATORS[op].number, pass_=int(backward), dtype=DTYPES[dtype],
        math=_abi.MATH_TF32 if settings.tf32 else _abi.MATH_F32,
        effort=_abi.EFFORTS["default"], heads=heads, dim=dim,
        deterministic=1, weights=int(settings.weights and not backward),
        max_workspace=-1, bias=int(bias), dropout=int(settings.dropout > 0),
        edge_dim=edges,
        edge_use=_abi.EDGE_USES[settings.edge_use] if edges else 0,
        edge_list=int(listed))


class Recipe:
    """The checks, shapes and plans that calls with the same shapes, types and
    settings share: they are made once."""

    __slots__ = ("op", "spec", "settings", "dtype", "exact", "device", "heads",
                 "dim", "biased", "edge_dim", "listed", "inputs", "out_shape",
                 "lse_shape", "weights_shape", "empty", "plans", "places",
                 "grads", "casts")

    def __init__(self, graph, op, inputs, bias, settings, listed):
        self.op = op
        self.spec = spec = OPERATORS[op]
        check_inputs(spec, inputs, bias,
                     {"N": graph.num_dst, "M": graph.num_src,
                      "E": graph.num_edges}, graph.device)
        value = inputs[spec.value]
        self.settings = settings
        self.dtype = value.dtype
        self.exact = (torch.float64 if value.dtype == torch.float64
                      else torch.float32)
        self.device = value.device
        _, self.heads, self.dim = value.shape
        self.biased = bias is not None
        self.edge_dim = edge_dim(spec, inputs)
        self.listed = bool(listed and graph.handle.listed and self.edge_dim
                           and op != "gat" and not settings.weights)
        self.inputs = spec.inputs[:len(inputs)]
        self.out_shape = (graph.num_dst, self.heads, self.dim)
        self.lse_shape = (graph.num_dst, self.heads)
        self.weights_shape = (graph.num_edges, self.heads)
        self.empty = not graph.num_edges
        self.plans = [None, None]
        self.places = self._places()
        self.grads = self._grads()
        self.casts = any(t is not None and t.dtype != dtype for t, (_, dtype)
                         in zip((*inputs, bias), self.grads))

    def _places(self):
        """(field, dtype) of each input; dtype is None if the input may have
        strides and keeps its own."""
        found = []
        for input_ in self.inputs:
            dtype = self.exact if input_.scalar else None
            if not input_.scalar and input_.dims[0] not in "NM":
                dtype = self.dtype
            found.append((input_.field, dtype))
        return found

    def _grads(self):
        """(field, dtype) of the gradient of each input and of the bias."""
        return [("grad_" + input_.field,
                 self.exact if input_.scalar or input_.dims[0] not in "NME"
                 else self.dtype) for input_ in self.inputs] + [
                     ("grad_bias", self.exact)]

    def plan(self, graph, backward):
        found = self.plans[backward]
        if found is None:
            wanted = problem(self.op, backward, self.dtype, self.heads,
                             self.dim, self.settings, self.biased,
                             self.edge_dim, self.listed)
            found = self.plans[backward] = Plan(
                graph.handle, graph.device, wanted, self.settings)
        return found

    def new(self, shape, dtype):
        return torch.empty(shape, dtype=dtype, device=self.device)


def recipe(graph, op, inputs, bias, settings, listed=False):
    """The Recipe of a call, whose inputs are checked when it is made.  listed:
    edge features are in the caller's order; if the recipe is not, they have to
    be in the graph's."""
    if _recording.current is not None:
        _recording.current.graph(graph)
    recipes = graph.handle.recipes
    key = (op, settings, _generation, listed,
           *[None if t is None else (t.shape, t.dtype, t.device)
             if isinstance(t, torch.Tensor) else id(t) for t in inputs],
           None if bias is None else (bias.shape, bias.dtype, bias.device))
    found = recipes.get(key)
    if found is None:
        found = recipes[key] = Recipe(graph, op, inputs, bias, settings,
                                      listed)
    return found


def usable(tensor):
    """The tensor, or a copy of it, with features one after another."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _place(args, name, tensor):
    """Returns the tensor that was placed, to be kept until the call."""
    if tensor.is_contiguous():
        setattr(args, name, tensor.data_ptr())
        return tensor
    tensor = usable(tensor)
    setattr(args, name, tensor.data_ptr())
    if not tensor.is_contiguous():
        setattr(args, name + "_strides", _abi.Strides(*tensor.stride()))
    return tensor


def _place_exact(args, name, tensor, dtype):
    if tensor.dtype != dtype:
        tensor = tensor.to(dtype)
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    setattr(args, name, tensor.data_ptr())
    return tensor


def _place_inputs(args, graph, made, inputs, bias, seed):
    """Returns the tensors that must stay alive until the call was made."""
    kept = []
    for (field, dtype), tensor in zip(made.places, inputs):
        if tensor is None:
            continue
        if dtype is None:
            kept.append(_place(args, field, tensor))
        else:
            kept.append(_place_exact(args, field, tensor, dtype))
    if bias is not None:
        kept.append(_place_exact(args, "bias", bias, made.exact))
    if seed is not None:
        args.seed = seed.data_ptr()
        if graph.edge_number is not None:
            args.edge_number = graph.edge_number.data_ptr()
    return kept


def _like(tensor, dtype):
    """A new dense tensor of the same shape; torch's empty_like() takes less
    time than its empty()."""
    if tensor.dtype == dtype and tensor.is_contiguous():
        return torch.empty_like(tensor)
    return torch.empty(tensor.shape, dtype=dtype, device=tensor.device)


def forward(graph, made, inputs, bias, seed, with_lse=True):
    """(out, lse or None, weights in the graph's edge order or None)."""
    if made.empty:
        return _without_edges(made)
    plan = made.plan(graph, False)
    args = plan.arguments()
    kept = _place_inputs(  # noqa: F841
        args, graph, made, inputs, bias, seed)
    out = inputs[0]
    out = _like(out, made.dtype) if out.shape == made.out_shape else \
        made.new(made.out_shape, made.dtype)
    args.out = out.data_ptr()
    lse = weights = None
    if with_lse:
        lse = made.new(made.lse_shape, made.exact)
        args.lse = lse.data_ptr()
    if made.settings.weights:
        weights = made.new(made.weights_shape, made.exact)
        args.weights = weights.data_ptr()
    plan.run(args, made.device)
    return out, lse, weights


def _without_edges(made):
    weights = None
    if made.settings.weights:
        weights = made.new(made.weights_shape, made.exact)
    return (made.new(made.out_shape, made.dtype).zero_(),
            made.new(made.lse_shape, made.exact).fill_(float("-inf")), weights)


def backward(graph, made, inputs, bias, seed, out, lse, grad_out, needed,
             grad_lse=None, into=None):
    """Gradients of the inputs and of bias; None where needed is false.
    grad_lse: the gradient of lse, if it has one; into: for each input the
    tensor that takes its gradient, or None for a new one."""
    if made.empty:
        return [torch.zeros_like(t) if n and t is not None else None
                for t, n in zip((*inputs, bias), needed)]
    plan = made.plan(graph, True)
    args = plan.arguments()
    kept = _place_inputs(args, graph, made, inputs, bias, seed)
    kept.append(_place(args, "grad_out", grad_out))
    if grad_lse is not None:
        kept.append(_place_exact(args, "grad_lse", grad_lse, made.exact))
    args.out = out.data_ptr()
    args.lse = lse.data_ptr()
    grads = []
    places = into or (None,) * len(inputs)
    for (field, dtype), tensor, wanted, place in zip(
            made.grads, (*inputs, bias), needed, (*places, None)):
        grad = place
        if wanted and tensor is not None:
            if grad is None:
                grad = _like(tensor, dtype)
            elif not grad.is_contiguous():
                setattr(args, field + "_strides",
                        _abi.Strides(*grad.stride()))
            setattr(args, field, grad.data_ptr())
        grads.append(grad)
    plan.run(args, made.device)
    if not made.casts:
        return grads
    return [g if g is None or g.dtype == t.dtype else g.to(t.dtype)
            for g, t in zip(grads, (*inputs, bias))]
