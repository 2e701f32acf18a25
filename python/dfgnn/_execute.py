"""Running plans: pointers in, tensors out."""

import ctypes

import torch

from . import _abi
from ._context import current_raw_stream
from ._library import check, failure, library
from ._operators import DTYPES, OPERATORS

_generation = [0]


def forget_plans():
    """Plans are chosen anew: something was measured."""
    _generation[0] += 1


class Plan:
    """A dfgnn_plan and what a call of it needs."""

    __slots__ = ("pointer", "workspace", "template", "execute")

    def __init__(self, pointer, template):
        lib = library()
        self.pointer = pointer
        self.workspace = lib.dfgnn_plan_workspace(pointer)
        self.template = template
        self.execute = lib.dfgnn_execute

    def run(self, args, device):
        on_cpu = device.type == "cpu"
        workspace = None
        if self.workspace:
            # the caching allocator keeps it until the stream is done with it
            scratch = torch.empty(self.workspace, dtype=torch.uint8,
                                  device=device)
            workspace = scratch.data_ptr()
        status = self.execute(
            self.pointer, ctypes.addressof(args), workspace,
            None if on_cpu else current_raw_stream(device.index))
        if status:
            raise failure(status)


def problem(op, backward, dtype, heads, dim, settings, bias):
    return _abi.Problem(
        op=OPERATORS[op].number, pass_=int(backward), dtype=DTYPES[dtype],
        math=_abi.MATH_TF32 if settings.tf32 else _abi.MATH_F32,
        effort=_abi.EFFORTS["default"], heads=heads, dim=dim,
        deterministic=int(settings.deterministic),
        weights=int(settings.weights and not backward), max_workspace=-1,
        bias=int(bias), dropout=int(settings.dropout > 0))


def plan(graph, op, backward, dtype, heads, dim, settings, bias):
    handle = graph.handle
    key = (op, backward, dtype, heads, dim, settings, bias, _generation[0])
    found = handle.plans.get(key)
    if found is None:
        found = handle.plans[key] = _make_plan(
            handle, op, problem(op, backward, dtype, heads, dim, settings,
                                bias), settings)
    return found


def _make_plan(handle, op, wanted, settings):
    pointer = ctypes.c_void_p()
    check(library().dfgnn_plan_create(
        ctypes.byref(pointer), handle.context.handle, handle.pointer,
        ctypes.byref(wanted)))
    handle.owned_plans.append(pointer)
    return Plan(pointer, _abi.Args(scale=settings.scale, slope=settings.slope,
                                   dropout=settings.dropout))


def usable(tensor):
    """The tensor, or a copy of it, with features one after another."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _place(args, name, tensor):
    setattr(args, name, tensor.data_ptr())
    if not tensor.is_contiguous():
        node, head, feature = tensor.stride()
        setattr(args, name + "_strides", _abi.Strides(node, head, feature))


def _place_inputs(args, spec, inputs, dtype):
    """Returns what must stay alive until the call was made."""
    exact = dtype if dtype == torch.float64 else torch.float32
    kept = []
    for input_, tensor in zip(spec.inputs, inputs):
        if tensor is None:
            continue
        if input_.scalar:
            tensor = tensor.to(exact).contiguous()
            setattr(args, input_.field, tensor.data_ptr())
        elif input_.dims == "HD":
            tensor = tensor.contiguous()
            setattr(args, input_.field, tensor.data_ptr())
        else:
            tensor = usable(tensor)
            _place(args, input_.field, tensor)
        kept.append(tensor)
    return kept


def _place_modifiers(args, bias, seed, exact):
    kept = []
    if bias is not None:
        bias = bias.to(exact).contiguous()
        args.bias = bias.data_ptr()
        kept.append(bias)
    if seed is not None:
        args.seed = seed.data_ptr()
    return kept


def forward(graph, op, inputs, bias, seed, settings):
    """(out, lse, weights or None); per edge in the graph's order."""
    spec = OPERATORS[op]
    value = inputs[spec.value]
    dtype, device = value.dtype, value.device
    exact = dtype if dtype == torch.float64 else torch.float32
    _, heads, dim = value.shape
    if not graph.num_edges:
        return _without_edges(graph, value, exact, settings)
    made = plan(graph, op, False, dtype, heads, dim, settings,
                bias is not None)
    args = _abi.Args.from_buffer_copy(made.template)
    kept = _place_inputs(args, spec, inputs, dtype)
    kept += _place_modifiers(args, bias, seed, exact)
    rows = graph.num_dst
    out = torch.empty((rows, heads, dim), dtype=dtype, device=device)
    lse = torch.empty((rows, heads), dtype=exact, device=device)
    weights = None
    args.out = out.data_ptr()
    args.lse = lse.data_ptr()
    if settings.weights:
        weights = torch.empty((graph.num_edges, heads), dtype=exact,
                              device=device)
        args.weights = weights.data_ptr()
    made.run(args, device)
    return out, lse, weights


def _without_edges(graph, value, exact, settings):
    heads = value.size(1)
    lse = value.new_full((graph.num_dst, heads), float("-inf"), dtype=exact)
    weights = None
    if settings.weights:
        weights = value.new_empty((0, heads), dtype=exact)
    return value.new_zeros((graph.num_dst,) + value.shape[1:]), lse, weights


def backward(graph, op, inputs, bias, seed, settings, out, lse, grad_out,
             needed):
    """Gradients of the inputs and of bias; None where needed is false."""
    spec = OPERATORS[op]
    value = inputs[spec.value]
    dtype, device = value.dtype, value.device
    exact = dtype if dtype == torch.float64 else torch.float32
    _, heads, dim = value.shape
    if not graph.num_edges:
        return [torch.zeros_like(t) if n and t is not None else None
                for t, n in zip((*inputs, bias), needed)]
    made = plan(graph, op, True, dtype, heads, dim, settings,
                bias is not None)
    args = _abi.Args.from_buffer_copy(made.template)
    kept = _place_inputs(args, spec, inputs, dtype)
    kept += _place_modifiers(args, bias, seed, exact)
    grad_out = usable(grad_out)
    _place(args, "grad_out", grad_out)
    args.out = out.data_ptr()
    args.lse = lse.data_ptr()
    grads = []
    for input_, tensor, wanted in zip(spec.inputs, inputs, needed):
        grad = None
        if wanted and tensor is not None:
            scalar = input_.scalar or input_.dims == "HD"
            grad = torch.empty(tensor.shape, dtype=exact if scalar else dtype,
                               device=device)
            setattr(args, "grad_" + input_.field, grad.data_ptr())
        grads.append(grad)
    grad_bias = None
    if bias is not None and needed[-1]:
        grad_bias = torch.empty(bias.shape, dtype=exact, device=device)
        args.grad_bias = grad_bias.data_ptr()
    made.run(args, device)
    grads = [g if g is None or g.dtype == t.dtype else g.to(t.dtype)
             for g, t in zip(grads, inputs)]
    if grad_bias is not None and grad_bias.dtype != bias.dtype:
        grad_bias = grad_bias.to(bias.dtype)
    return grads + [grad_bias]
