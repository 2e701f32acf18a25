"""Sums and reductions of neighbours in the graph's edge order: by kernels, with
gradients, or by torch operations."""

import torch

from . import _derived, _neighbours
from ._fallbacks import say_once, say_unfused
from ._modes import needs_composite
from .errors import UnsupportedError
from .graph import describe


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
    mean = total(messages) / degrees_of(graph, messages.dtype)
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
    var = total(deviation * deviation) / degrees_of(graph, messages.dtype)
    if op == "reduce-var":
        return (var,)
    std = torch.where(var > 1e-5, var.clamp(min=1e-5).sqrt(),
                      torch.zeros_like(var))
    if op == "reduce-std":
        return (std,)
    return mean, extreme("amin"), extreme("amax"), std


def degrees_of(graph, dtype):
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
        outs = _by_program(graph, op, value, weight, scales, saved)
        if outs is None:
            say_unfused()
            outs = _composite(graph, op, value, weight, scales)
        sources = [t for t, w in zip((value, weight), wants) if w]
        found = iter(torch.autograd.grad(outs, sources, grads,
                                         create_graph=True))
    return [next(found) if w else None for w in wants]


def _by_program(graph, op, value, weight, scales, saved):
    """_composite(), whose gradients hold no messages; None if no program
    serves."""
    if op == "spmm-weighted":
        scale_dst, scale_src = scales or (None, None)
        out = _derived.weighted_sum(graph, _scaled(value, scale_src), weight)
        return None if out is None else (_scaled(out, scale_dst),)
    outs = _derived.values(graph, op[len("reduce-"):], value)
    if outs is None or op != "reduce-pna":
        return outs
    mean, std = outs
    return (mean, *_extremes(graph, value, saved), std)


def _extremes(graph, value, saved):
    """(minima, maxima), as values of the sources that gave them."""
    for name in ("arg_min", "arg_max"):
        _, sources, there = _neighbours.winners(graph, saved[name])
        yield value.gather(0, sources) * there


def _transposed(graph, op, scales, saved, grad):
    zeros = grad.new_zeros((graph.num_src,) + tuple(grad.shape[1:]))
    if op in ("reduce-min", "reduce-max"):
        _, rows, there = _neighbours.winners(graph, saved["arg_" + op[-3:]])
        return zeros.scatter_add(0, rows, grad * there)
    scale_dst, scale_src = scales or (None, None)
    grad = _scaled(grad, scale_dst)
    if op != "spmm-sum":
        grad = grad / degrees_of(graph, grad.dtype)
    total = _derived.sum_out(graph, grad)
    if total is None:
        total = zeros.index_add(0, graph.src, grad.index_select(0, graph.dst))
    return _scaled(total, scale_src)


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


def check_call(graph, value, weight):
    if value.size(0) != graph.num_src or value.device != graph.device:
        raise ValueError(f"x must have {graph.num_src} rows on {graph.device},"
                         " got " + describe(value))
    if weight is not None and (
            weight.shape != (graph.num_edges, value.size(1))):
        raise ValueError(
            f"weight must be [edges={graph.num_edges}, "
            f"heads={value.size(1)}], got " + describe(weight))


def in_order(graph, value, weight):
    """The weights in the graph's edge order and the type that kernels read."""
    exact = torch.float64 if value.dtype == torch.float64 else torch.float32
    return graph.to_graph_order(weight).to(exact).contiguous()
