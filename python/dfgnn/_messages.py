"""The fused passes over messages of edges, their gradients, and the same by
torch operations.

A call has six tensors, in this order: value [M, H, D], gate_dst [N, H, D],
gate_src [M, H, D], edge_attr [E, F] (or [E, H, D] without edge_weight),
edge_weight [H, D, F] and edge_bias [H, D].  All but value may be None; without
gates a message is relu(x_j + e), with them sigmoid(a_i + b_j + e) x_j.
Everything by edge is in the graph's own order.
"""

from typing import NamedTuple, Optional

import torch

from . import _abi
from ._attention import say_once
from ._execute import Plan
from ._modes import needs_composite
from ._operators import DTYPES, Settings
from .errors import UnsupportedError

FIELDS = ("value", "gate_dst", "gate_src", "edge_attr", "edge_weight",
          "edge_bias")
OPS = {"sum": "spmm-sum", "mean": "spmm-mean"}
REDUCTIONS = (*OPS, "max")


class Tensors(NamedTuple):
    value: torch.Tensor
    gate_dst: Optional[torch.Tensor] = None
    gate_src: Optional[torch.Tensor] = None
    edge_attr: Optional[torch.Tensor] = None
    edge_weight: Optional[torch.Tensor] = None
    edge_bias: Optional[torch.Tensor] = None


# ---- by torch operations ----------------------------------------------------

def composite(graph, reduce, given):
    """[N, H, D], differentiable as often as wanted."""
    src, dst = graph.src, graph.dst
    part = given.edge_attr
    if given.edge_weight is not None:
        heads, dim, fields = given.edge_weight.shape
        part = part @ given.edge_weight.reshape(heads * dim, fields).t()
        part = part.view(-1, heads, dim)
        if given.edge_bias is not None:
            part = part + given.edge_bias
    sent = given.value.index_select(0, src)
    if given.gate_dst is None:
        message = (sent + part).relu()
    else:
        gate = (given.gate_dst.index_select(0, dst)
                + given.gate_src.index_select(0, src))
        message = (gate if part is None else gate + part).sigmoid() * sent
    zeros = message.new_zeros((graph.num_dst,) + tuple(message.shape[1:]))
    if reduce == "max":
        return zeros.scatter_reduce(
            0, dst.view(-1, 1, 1).expand_as(message), message, "amax",
            include_self=False)
    out = zeros.index_add(0, dst, message)
    if reduce == "sum":
        return out
    degrees = graph.degrees.clamp(min=1).to(out.dtype)
    return out / degrees.view(-1, 1, 1)


def _differentiate(graph, reduce, given, grad, wants, create_graph):
    with torch.enable_grad():
        if create_graph:  # one leaf an argument: a tensor may be given twice
            given = [None if t is None else t.view_as(t) for t in given]
        else:
            given = [None if t is None else t.detach().requires_grad_(w)
                     for t, w in zip(given, wants)]
        out = composite(graph, reduce, Tensors(*given))
        sources = [t for t, w in zip(given, wants) if w]
        found = iter(torch.autograd.grad(out, sources, grad,
                                         create_graph=create_graph))
    return [next(found) if w else None for w in wants]


# ---- by kernels -------------------------------------------------------------

class _Recipe:
    """What calls with the same shapes and types share."""

    def __init__(self, graph, reduce, given):
        value, attr = given.value, given.edge_attr
        _, self.heads, self.dim = value.shape
        self.dtype = value.dtype
        self.exact = (torch.float64 if value.dtype == torch.float64
                      else torch.float32)
        self.op = OPS[reduce]
        self.message = "relu" if given.gate_dst is None else "gate"
        self.edge_dim = 0
        if given.edge_weight is not None:
            self.edge_dim = attr.size(1)
        elif attr is not None:
            self.edge_dim = _abi.EDGE_PROJECTED
        self.out_shape = (graph.num_dst, self.heads, self.dim)
        self.settings = Settings(
            0.0, 0.0, 0.0, False,
            torch.are_deterministic_algorithms_enabled(), False)
        self.plans = [None, None]

    def plan(self, graph, backward):
        if self.plans[backward] is None:
            problem = _abi.Problem(
                op=_abi.OPS[self.op], pass_=int(backward),
                dtype=DTYPES[self.dtype], heads=self.heads, dim=self.dim,
                deterministic=1, max_workspace=-1, edge_dim=self.edge_dim,
                message=_abi.MESSAGES[self.message])
            self.plans[backward] = Plan(graph.handle, graph.device, problem,
                                        self.settings)
        return self.plans[backward]

    def grad_dtype(self, name):
        return self.exact if name in ("edge_weight", "edge_bias") \
            else self.dtype


def _recipe(graph, reduce, given):
    recipes = graph.handle.recipes
    key = ("messages", reduce, given.value.shape[1:], given.value.dtype,
           given.gate_dst is None,
           None if given.edge_attr is None else given.edge_attr.shape[1:],
           torch.are_deterministic_algorithms_enabled())
    found = recipes.get(key)
    if found is None:
        found = recipes[key] = _Recipe(graph, reduce, given)
    return found


def _run(graph, made, backward, tensors):
    plan = made.plan(graph, backward)
    args = plan.arguments()
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(args, name, tensor.data_ptr())
    plan.run(args, graph.device)


def forward(graph, reduce, given):
    """[N, H, D] of contiguous tensors."""
    made = _recipe(graph, reduce, given)
    out = given.value.new_empty(made.out_shape)
    if not graph.num_edges:
        return out.zero_()
    _run(graph, made, False, dict(given._asdict(), out=out))
    return out


def backward(graph, reduce, given, grad, wants):
    """The gradients of the tensors, None where they are not wanted."""
    made = _recipe(graph, reduce, given)
    new = torch.empty if graph.num_edges else torch.zeros
    found = [new(t.shape, dtype=made.grad_dtype(name), device=t.device)
             if w else None
             for name, t, w in zip(FIELDS, given, wants)]
    if graph.num_edges:
        grads = {"grad_" + name: t for name, t in zip(FIELDS, found)}
        _run(graph, made, True, dict(given._asdict(), grad_out=grad, **grads))
    return [t if t is None or t.dtype == x.dtype else t.to(x.dtype)
            for t, x in zip(found, given)]


class Messages(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graph, reduce, *given):
        given = Tensors(*given)
        out = forward(graph, reduce, given)
        ctx.save_for_backward(*given)
        ctx.call = graph, reduce
        return out

    @staticmethod
    def backward(ctx, grad):
        graph, reduce = ctx.call
        given = Tensors(*ctx.saved_tensors)
        wants = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            say_once("gradients of gradients are made by torch operations, "
                     "which hold every edge's features")
            found = _differentiate(graph, reduce, given, grad, wants, True)
        else:
            found = gradients(graph, reduce, given, grad, wants)
        return (None, None, *found)


def gradients(graph, reduce, given, grad, wants):
    """By kernels, or by torch operations where there is none."""
    try:
        return backward(graph, reduce, given, grad.contiguous(), wants)
    except UnsupportedError as error:
        say_once(f"{error}; gradients are made by torch operations instead")
    return _differentiate(graph, reduce, given, grad, wants, False)


def fused(graph, reduce, given):
    """[N, H, D] with gradients; what is by edge is in the graph's order."""
    if needs_composite() or reduce not in OPS:
        return composite(graph, reduce, given)
    given = Tensors(*(None if t is None else t.contiguous() for t in given))
    try:
        return Messages.apply(graph, reduce, *given)
    except UnsupportedError as error:
        say_once(f"{error}; it runs by torch operations instead")
    return composite(graph, reduce, given)
