"""Sums and reductions of neighbours: SpMM, min, max, mean, var, std."""

import torch

from . import _neighbours, ops
from ._attention import say_once
from ._modes import jit_tracing, needs_composite
from ._operators import DTYPES
from ._values import is_adjacency, refuse_values, values_like
from .convert import known_graph
from .errors import UnsupportedError
from .graph import Graph, describe

__all__ = ["spmm", "aggregate"]


# ---- by torch operations ----------------------------------------------------

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
    if op == "reduce-mul":
        index = dst.view(-1, 1, 1).expand_as(messages)
        return (messages.new_ones(shape).scatter_reduce(0, index, messages,
                                                        "prod"),)
    if op == "reduce-median":
        return (_median(graph, messages),)
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
    return graph.degrees.clamp(min=1).to(dtype).view(-1, 1, 1)


def _median(graph, messages):
    """The lower median of each destination, as PyG's MedianAggregation has
    it; messages [E, H, D]."""
    flat = messages.flatten(1)
    by_value = flat.detach().sort(dim=0, stable=True)[1]
    by_row = graph.dst[by_value].sort(dim=0, stable=True)[1]
    rows = by_value.gather(0, by_row)
    degrees = graph.degrees
    first = degrees.cumsum(0) - degrees
    middle = first + (degrees - 1).clamp(min=0) // 2
    if not flat.size(0):
        return messages.new_zeros((graph.num_dst,)
                                  + tuple(messages.shape[1:]))
    picked = rows[middle.clamp(max=flat.size(0) - 1)]
    out = flat.gather(0, picked) * (degrees > 0).view(-1, 1)
    return out.view((graph.num_dst,) + tuple(messages.shape[1:]))


def _differentiate(graph, op, scales, saved, grads, wants):
    """Gradients that are differentiable themselves."""
    if "value" not in saved:  # a linear function of the gradient
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


class Sum(torch.autograd.Function):
    """Aggregation by an operator of _neighbours.SUMS: its gradient reads no
    tensor of forward, so none is saved."""

    @staticmethod
    def forward(ctx, graph, op, scales, value):
        ctx.call = graph, op, scales
        return _neighbours.sum_forward(graph, op, value, scales)

    @staticmethod
    def backward(ctx, grad):
        graph, op, scales = ctx.call
        if torch.is_grad_enabled() and graph.num_edges:
            say_once("gradients of gradients are made by torch operations, "
                     "which hold every edge's features")
            found = _transposed(graph, op, scales, {}, grad)
        else:
            found = _neighbours.sum_backward(graph, op, grad.contiguous(),
                                             scales)
        return None, None, None, found


def normalization(graph, dtype):
    """Scales of GCN, 1 / sqrt(degree) of destinations and of sources, made
    once for each graph."""
    def make():
        degrees = graph.degrees.to(torch.float64)
        scale = degrees.pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0)
        return scale.to(torch.float64 if dtype == torch.float64
                        else torch.float32)
    scale = graph._derive(("normalization", dtype == torch.float64), make)
    return scale, scale


def fused(graph, op, value, weight, symmetric):
    """Outputs in the order of the operator; weight in the graph's order."""
    scales = normalization(graph, value.dtype) if symmetric else None
    if op not in _neighbours.OPERATORS or needs_composite() or (
            weight is not None and op != "spmm-weighted"):
        return _composite(graph, op, value, weight, scales)
    try:
        if op in _neighbours.SUMS:
            return (Sum.apply(graph, op, scales, value.contiguous()),)
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


def _graph_of(graph, size, self_loops):
    if isinstance(graph, Graph):
        return graph.with_self_loops() if self_loops else graph
    if not ops.compiling():
        known = known_graph(graph, size, self_loops)
        if known is not None:
            return known
    make = ops.untraced_looped_graph if self_loops else ops.untraced_graph
    return make(graph, size)


def _call(graph, op, x, weight, num_dst, self_loops=False, symmetric=False):
    if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
        raise TypeError("x must be float16, bfloat16, float32 or float64, got "
                        + describe(x))
    if x.dim() not in (2, 3):
        raise ValueError("x must be [sources, features] or [sources, heads, "
                         "features], got " + describe(x))
    value = x.unsqueeze(1) if x.dim() == 2 else x
    if is_adjacency(graph):
        graph = ops.untraced_graph(graph)
    if weight is not None and weight.dim() == 1:
        weight = weight.view(-1, 1).expand(-1, value.size(1))
    if num_dst is None:
        num_dst = graph.num_dst if isinstance(graph, Graph) else x.size(0)
    if isinstance(graph, Graph) and graph.exchange is not None:
        from .distributed import sums
        outs = sums.call(graph, op, value, weight, self_loops, symmetric)
    elif ops.compiling() and op in _neighbours.OPERATORS:
        outs = ops.gather(op, graph, value, weight, num_dst, self_loops,
                          symmetric)
    else:
        graph = _graph_of(graph, (x.size(0), num_dst), self_loops)
        if self_loops and weight is not None:
            weight = graph.to_looped_edges(weight)
        if not jit_tracing():  # a trace makes tensors of sizes
            _check(graph, value, weight)
        if weight is not None:
            weight = in_order(graph, value, weight)
        outs = fused(graph, op, value, weight, symmetric)
    return [out.squeeze(1) if x.dim() == 2 else out for out in outs]


def in_order(graph, value, weight):
    """The weights in the graph's edge order and the type that kernels read."""
    exact = torch.float64 if value.dtype == torch.float64 else torch.float32
    return graph.to_graph_order(weight).to(exact).contiguous()


def spmm(graph, x, weight=None, reduce="sum", *, num_dst=None,
         self_loops=False):
    """out_i = the sum (or "mean") over in-edges of w_ij x_j.

    x [M, F] or [M, H, D]; weight [E] or [E, H], in the caller's edge order:
    by default the values of a sparse matrix, and 1 for other graphs.
    num_dst: the number of destinations; by default the graph's, or, of an
        edge_index, that of the sources.
    self_loops: sums over the edges of ``graph.with_self_loops()``.  weight
        has an entry for each of them, or [E + nodes] entries: for all edges of
        the graph and then for a loop of each node; the entries of edges that
        are self loops are not read.
    """
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be 'sum' or 'mean', got {reduce!r}")
    if not isinstance(graph, Graph) and isinstance(x, torch.Tensor):
        if weight is not None:
            refuse_values(graph, "spmm with weight")
        elif self_loops:
            refuse_values(graph, "spmm with self_loops")
        else:
            weight = values_like(graph, x)
    if weight is None:
        return _call(graph, "spmm-" + reduce, x, None, num_dst, self_loops)[0]
    out = _call(graph, "spmm-weighted", x, weight, num_dst, self_loops)[0]
    if reduce == "sum":
        return out
    graph = _graph_of(graph, (x.size(0), num_dst or x.size(0)), self_loops)
    degrees = _degrees(graph, out.dtype)
    return out / (degrees if out.dim() == 3 else degrees.squeeze(1))


def gcn(graph, x, self_loops):
    """The sum over in-edges of x_j / sqrt(d_i d_j), d the number of in-edges
    of a square graph; no tensor by edge is made."""
    return _call(graph, "spmm-sum", x, None, x.size(0), self_loops, True)[0]


REDUCTIONS = ("min", "max", "mean", "var", "std", "pna", "mul", "median")


def aggregate(graph, x, reduce, weight=None, *, num_dst=None):
    """Neighbours reduced feature by feature: "sum", "mean", "min", "max",
    "var", "std", "mul", "median", or "pna": mean, min, max and std in one
    pass.  A destination without edges gives 0, or 1 for "mul".

    weight [E] or [E, H]: multiplies the features before they are reduced.
    Kernels take it for "sum" and "mean"; other reductions with a weight, "mul"
    and "median" run by torch operations, which hold every edge's features.

    Where several edges have the same minimum or maximum, the fused kernels
    give the whole gradient to the first of them in the graph's own order; PyG
    without torch_scatter divides it among them.
    """
    if reduce in ("sum", "add", "mean") and weight is not None:
        return spmm(graph, x, weight, "mean" if reduce == "mean" else "sum",
                    num_dst=num_dst)
    if reduce not in REDUCTIONS and reduce not in ("sum", "add"):
        raise ValueError("reduce must be one of sum, "
                         f"{', '.join(REDUCTIONS)}, got {reduce!r}")
    if not isinstance(graph, Graph):
        refuse_values(graph, f"reducing by {reduce!r}")
    op = "spmm-sum" if reduce in ("sum", "add") else "reduce-" + reduce
    outs = _call(graph, op, x, weight, num_dst)
    return tuple(outs) if reduce == "pna" else outs[0]
