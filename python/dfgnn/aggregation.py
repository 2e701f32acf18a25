"""Sums and reductions of neighbours: SpMM, min, max, mean, var, std."""

import torch

from . import _neighbours, ops
from ._attention import say_once
from ._operators import DTYPES
from .convert import as_graph
from .errors import UnsupportedError
from .functional import _endpoints
from .graph import Graph, describe

__all__ = ["spmm", "aggregate"]

# ---- the same by torch operations -------------------------------------------

def _composite(op, src, dst, num_dst, value, weight):
    """Outputs in the order of the fused operator; differentiable."""
    messages = value.index_select(0, src)
    shape = (num_dst,) + tuple(value.shape[1:])
    if weight is not None:
        messages = messages * weight.unsqueeze(-1).to(messages.dtype)

    def total(x):
        return x.new_zeros(shape).index_add(0, dst, x)

    def extreme(name):
        index = dst.long().view(-1, 1, 1).expand_as(messages)
        return messages.new_zeros(shape).scatter_reduce(
            0, index, messages, name, include_self=False)
    if op in ("spmm-sum", "spmm-weighted"):
        return (total(messages),)
    count = messages.new_zeros(num_dst).index_add(
        0, dst, messages.new_ones(dst.numel())).clamp(min=1).view(-1, 1, 1)
    mean = total(messages) / count
    if op in ("spmm-mean", "reduce-mean"):
        return (mean,)
    if op == "reduce-min":
        return (extreme("amin"),)
    if op == "reduce-max":
        return (extreme("amax"),)
    deviation = messages - mean.index_select(0, dst)
    var = total(deviation * deviation) / count
    if op == "reduce-var":
        return (var,)
    std = torch.where(var > 1e-5, var.clamp(min=1e-5).sqrt(),
                      torch.zeros_like(var))
    if op == "reduce-std":
        return (std,)
    return mean, extreme("amin"), extreme("amax"), std


class Aggregation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graph, op, value, weight):
        outs, args = _neighbours.forward(graph, op, value, weight)
        ctx.call = graph, op, tuple(outs), tuple(args)
        ctx.save_for_backward(value, weight, *outs.values(), *args.values())
        return tuple(outs.values())

    @staticmethod
    def backward(ctx, *grads):
        graph, op, outs, args = ctx.call
        value, weight, *saved = ctx.saved_tensors
        wants = ctx.needs_input_grad
        if torch.is_grad_enabled():
            say_once("gradients of gradients are made by torch operations, "
                     "which hold every edge's features")
            return _twice(graph, op, value, weight, grads, wants)
        grads = {"grad_" + name: grad.contiguous()
                 for name, grad in zip(outs, grads)}
        return (None, None, *_neighbours.backward(
            graph, op, value, weight, dict(zip(outs + args, saved)), grads,
            weight is not None and wants[3]))


def _twice(graph, op, value, weight, grads, wants):
    with torch.enable_grad():
        outs = _composite(op, graph.src, graph.dst, graph.num_dst, value,
                          weight)
        sources = [t for t, w in ((value, wants[2]), (weight, wants[3])) if w]
        found = iter(torch.autograd.grad(outs, sources, grads,
                                         create_graph=True))
    return (None, None, next(found) if wants[2] else None,
            next(found) if wants[3] else None)


def _call(graph, op, x, weight, num_dst):
    if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
        raise TypeError("x must be float16, bfloat16, float32 or float64, got "
                        + describe(x))
    if x.dim() not in (2, 3):
        raise ValueError("x must be [sources, features] or [sources, heads, "
                         "features], got " + describe(x))
    value = x.unsqueeze(1) if x.dim() == 2 else x
    if weight is not None and weight.dim() == 1:
        weight = weight.view(-1, 1).expand(-1, value.size(1))
    if num_dst is None:
        num_dst = graph.num_dst if isinstance(graph, Graph) else x.size(0)
    if ops.compiling():
        src, dst = _endpoints(graph, (x.size(0), num_dst))
        outs = _composite(op, src, dst, num_dst, value, weight)
    else:
        outs = _fused(as_graph(graph, (x.size(0), num_dst)), op, value, weight)
    return [out.squeeze(1) if x.dim() == 2 else out for out in outs]


def _fused(graph, op, value, weight):
    if value.size(0) != graph.num_src or value.device != graph.device:
        raise ValueError(f"x must have {graph.num_src} rows on {graph.device},"
                         " got " + describe(value))
    if weight is not None:
        if weight.shape != (graph.num_edges, value.size(1)):
            raise ValueError(
                f"weight must be [edges={graph.num_edges}, "
                f"heads={value.size(1)}], got " + describe(weight))
        exact = torch.float64 if value.dtype == torch.float64 else \
            torch.float32
        weight = graph.to_graph_order(weight).to(exact).contiguous()
    try:
        return Aggregation.apply(graph, op, value.contiguous(), weight)
    except UnsupportedError as error:
        say_once(f"{error}; it runs by torch operations instead")
        return _composite(op, graph.src, graph.dst, graph.num_dst, value,
                          weight)


def spmm(graph, x, weight=None, reduce="sum", *, num_dst=None):
    """out_i = the sum (or "mean") over in-edges of w_ij x_j.

    x [M, F] or [M, H, D]; weight [E] or [E, H], in the caller's edge order.
    num_dst: destinations; those of the graph, or as many as there are sources.
    """
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be 'sum' or 'mean', got {reduce!r}")
    if weight is None:
        return _call(graph, "spmm-" + reduce, x, None, num_dst)[0]
    if reduce == "mean":
        raise ValueError("weight goes with reduce='sum'")
    return _call(graph, "spmm-weighted", x, weight, num_dst)[0]


def aggregate(graph, x, reduce, *, num_dst=None):
    """Neighbours reduced feature by feature: "sum", "mean", "min", "max",
    "var", "std", or "pna": the four (mean, min, max, std) in one pass.  A
    destination without edges gives 0."""
    names = ("min", "max", "mean", "var", "std", "pna")
    if reduce in ("sum", "add"):
        return spmm(graph, x, num_dst=num_dst)
    if reduce not in names:
        raise ValueError(f"reduce must be one of sum, {', '.join(names)}, got "
                         f"{reduce!r}")
    outs = _call(graph, "reduce-" + reduce, x, None, num_dst)
    return tuple(outs) if reduce == "pna" else outs[0]
