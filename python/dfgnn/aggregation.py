"""Sums and reductions of neighbours: SpMM, min, max, mean, var, std."""

import torch

from . import _neighbours, ops
from ._attention import say_once
from ._operators import DTYPES
from .convert import as_graph
from .errors import UnsupportedError
from .graph import Graph, describe

__all__ = ["spmm", "aggregate"]


# ---- the same by torch operations -------------------------------------------

def _scaled(x, scale):
    return x if scale is None else x * scale.view(-1, 1, 1).to(x.dtype)


def _composite(graph, op, value, weight, scales):
    """Outputs in the order of the fused operator; differentiable."""
    src, dst, num_dst = graph.src, graph.dst, graph.num_dst
    scale_dst, scale_src = scales or (None, None)
    messages = _scaled(value, scale_src).index_select(0, src)
    shape = (num_dst,) + tuple(value.shape[1:])
    if weight is not None:
        messages = messages * weight.unsqueeze(-1).to(messages.dtype)

    def total(x):
        return x.new_zeros(shape).index_add(0, dst, x)

    def extreme(name):
        index = dst.view(-1, 1, 1).expand_as(messages)
        return messages.new_zeros(shape).scatter_reduce(
            0, index, messages, name, include_self=False)
    if op in ("spmm-sum", "spmm-weighted"):
        return (_scaled(total(messages), scale_dst),)
    mean = total(messages) / _degrees(graph, messages.dtype)
    if op in ("spmm-mean", "reduce-mean"):
        return (_scaled(mean, scale_dst),)
    if op == "reduce-min":
        return (extreme("amin"),)
    if op == "reduce-max":
        return (extreme("amax"),)
    deviation = messages - mean.index_select(0, dst)
    var = total(deviation * deviation) / _degrees(graph, messages.dtype)
    if op == "reduce-var":
        return (var,)
    std = torch.where(var > 1e-5, var.clamp(min=1e-5).sqrt(),
                      torch.zeros_like(var))
    if op == "reduce-std":
        return (std,)
    return mean, extreme("amin"), extreme("amax"), std


def _degrees(graph, dtype):
    """[N, 1, 1] edges of each destination, at least 1."""
    return graph.offsets.diff().clamp(min=1).to(dtype).view(-1, 1, 1)


def _differentiate(graph, op, scales, saved, grads, wants):
    """Gradients that are differentiable themselves."""
    if "value" not in saved:  # linear in the gradients, or picks of them
        return _transposed(graph, op, scales, saved, grads[0]), None
    value, weight = saved["value"], saved.get("edge_weight")
    with torch.enable_grad():
        outs = _composite(graph, op, value, weight, scales)
        sources = [t for t, w in zip((value, weight), wants) if w]
        found = iter(torch.autograd.grad(outs, sources, grads,
                                         create_graph=True))
    return [next(found) if w else None for w in wants]


def _transposed(graph, op, scales, saved, grad):
    zeros = grad.new_zeros((graph.num_src,) + tuple(grad.shape[1:]))
    if op in ("reduce-min", "reduce-max"):
        picked = saved["arg_" + op[-3:]].long()
        edges = picked + graph.offsets[:-1].long().view(-1, 1, 1)
        rows = graph.src[edges.clamp(min=0, max=graph.num_edges - 1)]
        return zeros.scatter_add(0, rows, grad * (picked >= 0))
    scale_dst, scale_src = scales or (None, None)
    grad = _scaled(grad, scale_dst)
    if op != "spmm-sum":
        grad = grad / _degrees(graph, grad.dtype)
    return _scaled(zeros.index_add(
        0, graph.src, grad.index_select(0, graph.dst)), scale_src)


# ---- the fused passes with gradients ----------------------------------------

class Aggregation(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graph, op, scales, value, weight):
        outs, args = _neighbours.forward(graph, op, value, weight, scales)
        names = _neighbours.OPERATORS[op].saved
        known = dict(outs, **args, value=value, edge_weight=weight)
        ctx.call = graph, op, scales, names
        ctx.save_for_backward(*[known[name] for name in names])
        return tuple(outs.values())

    @staticmethod
    def backward(ctx, *grads):
        graph, op, scales, names = ctx.call
        saved = dict(zip(names, ctx.saved_tensors))
        wants = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled() and graph.num_edges:
            say_once("gradients of gradients are made by torch operations, "
                     "which hold every edge's features")
            found = _differentiate(graph, op, scales, saved, grads, wants)
        else:
            grads = {"grad_" + name: grad.contiguous() for name, grad in
                     zip(_neighbours.OPERATORS[op].outs, grads)}
            found = _neighbours.backward(graph, op, saved, grads, *wants,
                                         scales)
        return (None, None, None, *found)


def normalization(graph, dtype):
    """Scales of GCN, 1 / sqrt(degree) of destinations and of sources, made
    once a graph."""
    def make():
        degrees = graph.offsets.diff().to(torch.float64)
        scale = degrees.pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0)
        return scale.to(torch.float64 if dtype == torch.float64
                        else torch.float32)
    scale = graph._derive(("normalization", dtype == torch.float64), make)
    return scale, scale


def fused(graph, op, value, weight, symmetric):
    """Outputs in the order of the operator; weight in the graph's order."""
    scales = normalization(graph, value.dtype) if symmetric else None
    try:
        return Aggregation.apply(graph, op, scales, value.contiguous(),
                                 weight)
    except UnsupportedError as error:
        say_once(f"{error}; it runs by torch operations instead")
    return _composite(graph, op, value, weight, scales)


def _check(graph, value, weight):
    if value.size(0) != graph.num_src or value.device != graph.device:
        raise ValueError(f"x must have {graph.num_src} rows on {graph.device},"
                         " got " + describe(value))
    if weight is not None and (
            weight.shape != (graph.num_edges, value.size(1))):
        raise ValueError(
            f"weight must be [edges={graph.num_edges}, "
            f"heads={value.size(1)}], got " + describe(weight))


def _call(graph, op, x, weight, num_dst, self_loops=False, symmetric=False):
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
        outs = ops.gather(op, graph, value, weight, num_dst, self_loops,
                          symmetric)
    else:
        graph = as_graph(graph, (x.size(0), num_dst))
        if self_loops:
            graph = graph.with_self_loops()
        _check(graph, value, weight)
        if weight is not None:
            weight = in_order(graph, value, weight)
        outs = fused(graph, op, value, weight, symmetric)
    return [out.squeeze(1) if x.dim() == 2 else out for out in outs]


def in_order(graph, value, weight):
    """Weights as the kernels read them."""
    exact = torch.float64 if value.dtype == torch.float64 else torch.float32
    return graph.to_graph_order(weight).to(exact).contiguous()


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


def gcn(graph, x, self_loops):
    """The sum over in-edges of x_j / sqrt(d_i d_j), d the number of in-edges
    of a square graph: nothing is as long as the edges."""
    return _call(graph, "spmm-sum", x, None, x.size(0), self_loops, True)[0]


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
