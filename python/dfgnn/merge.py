"""Attention over parts of the edges: each part's result with its log-sum-exp,
and the merge of them, which is exactly the attention over all edges.

    parts = [dfgnn.gt_attention(g, q, k, v, return_lse=True) for g in graphs]
    out, lse = dfgnn.merge_attention(parts)
"""

import torch

from . import _attention, _composite, _execute
from ._fallbacks import say_once
from .errors import UnsupportedError
from .graph import describe

__all__ = ["merge_attention"]


# ---- the merge --------------------------------------------------------------

def _merged(outs, lses):
    """(out, lse, share [N, H] of each part)."""
    lse = torch.logsumexp(torch.stack(lses), 0)
    # a row without edges in any part would give -inf - -inf
    fixed = torch.where(lse == float("-inf"), torch.zeros_like(lse), lse)
    shares = [(part - fixed).exp() for part in lses]
    out = sum(share.unsqueeze(-1) * part.to(share.dtype)
              for share, part in zip(shares, outs))
    return out.to(outs[0].dtype), lse, shares


class _Merge(torch.autograd.Function):
    @staticmethod
    def forward(ctx, count, *tensors):
        out, lse, shares = _merged(tensors[:count], tensors[count:])
        ctx.save_for_backward(out, *tensors)
        ctx.count = count
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx, grad_out, grad_lse):
        out, *tensors = ctx.saved_tensors
        outs, lses = tensors[:ctx.count], tensors[ctx.count:]
        if grad_out is None and grad_lse is None:
            return (None,) * (1 + 2 * ctx.count)
        if torch.is_grad_enabled():  # gradients of gradients
            out, _, shares = _merged(outs, lses)
        else:
            shares = _merged(outs, lses)[2]
        by_out, by_lse = [], []
        for part, share in zip(outs, shares):
            along = share.new_zeros(share.shape)
            if grad_out is not None:
                by_out.append((share.unsqueeze(-1) * grad_out).to(part.dtype))
                along = ((part.to(share.dtype) - out.to(share.dtype))
                         * grad_out.to(share.dtype)).sum(-1)
            else:
                by_out.append(None)
            if grad_lse is not None:
                along = along + grad_lse
            by_lse.append(share * along)
        return (None, *by_out, *by_lse)


def merge_attention(parts):
    """(out, lse) of attention over the edges of all parts, from the (out, lse)
    of each: lse = log sum exp(lse_p), out = sum exp(lse_p - lse) out_p.

    parts: pairs of out [N, H, D] and lse [N, H] as attention functions return
        them with return_lse=True: over the same destinations, and different
        edges.  A destination without edges in any part gives zeros and -inf.
    """
    parts = [tuple(part) for part in parts]
    if not parts:
        raise ValueError("parts is empty, expected at least one (out, lse)")
    for number, part in enumerate(parts):
        if len(part) != 2:
            raise ValueError(f"parts[{number}] has {len(part)} elements, "
                             "expected (out, lse)")
        out, lse = part
        first = parts[0][0]
        if (not isinstance(out, torch.Tensor) or out.dim() != 3
                or out.shape != first.shape or out.dtype != first.dtype):
            raise ValueError(f"out of parts[{number}] is {describe(out)}, "
                             f"expected [nodes, heads, features] as parts[0] "
                             f"has it: {describe(first)}")
        if not isinstance(lse, torch.Tensor) or lse.shape != out.shape[:2]:
            raise ValueError(f"lse of parts[{number}] is {describe(lse)}, "
                             f"expected {list(out.shape[:2])}")
    return _Merge.apply(len(parts), *[out for out, _ in parts],
                        *[lse for _, lse in parts])


# ---- attention that returns its log-sum-exp ---------------------------------

def by_torch(graph, name, inputs, bias, seed, settings):
    """(out, weights, lse) by torch operations, differentiable as often as
    wanted."""
    out, weights = _composite.attention(name, inputs, bias, seed, graph,
                                        settings)
    exact = weights.dtype
    scores = _composite.SCORES[name](
        [None if t is None else t.to(exact) for t in inputs], graph, settings)
    if bias is not None:
        scores = scores + bias.to(exact)
    return out, weights, _log_sums(scores, graph)


def _log_sums(scores, graph):
    rows = graph.dst.view(-1, 1).expand_as(scores)
    shape = (graph.num_dst, scores.size(1))
    fixed = scores.detach()
    largest = fixed.new_full(shape, float("-inf")).scatter_reduce(
        0, rows, fixed, "amax")
    shift = largest.masked_fill(largest == float("-inf"), 0)
    sums = scores.new_zeros(shape).index_add(
        0, graph.dst, (scores - shift.index_select(0, graph.dst)).exp())
    none = sums == 0
    return torch.where(none, float("-inf"),
                       shift + sums.masked_fill(none, 1).log())


class _AttentionWithLse(torch.autograd.Function):
    """Gives (out, lse), each with a gradient."""

    @staticmethod
    def forward(ctx, graph, made, bias, seed, *inputs):
        out, lse, _ = _execute.forward(graph, made, inputs, bias, seed)
        ctx.save_for_backward(out, lse, bias, seed, *inputs)
        ctx.call = graph, made
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx, grad_out, grad_lse):
        graph, made = ctx.call
        out, lse, bias, seed, *inputs = ctx.saved_tensors
        wants = ctx.needs_input_grad
        needed = wants[4:] + (wants[2],)
        if grad_out is None and grad_lse is None:
            return (None,) * len(wants)
        if torch.is_grad_enabled():
            say_once("gradients of gradients are made by torch operations, "
                     "which hold every edge's features")
            grads = _differentiate(graph, made, inputs, bias, seed, grad_out,
                                   grad_lse, needed)
        else:
            if grad_out is None:
                grad_out = torch.zeros_like(out)
            grads = _execute.backward(graph, made, inputs, bias, seed, out,
                                      lse, grad_out, needed, grad_lse)
        return (None, None, grads[-1], None, *grads[:-1])


def _differentiate(graph, made, inputs, bias, seed, grad_out, grad_lse,
                   needed):
    given = [*inputs, bias]
    wanted = [n and t is not None for n, t in zip(needed, given)]
    with torch.enable_grad():
        given = [None if t is None else t.view_as(t) for t in given]
        out, _, lse = by_torch(graph, made.op, given[:-1], given[-1], seed,
                               made.settings)
        pairs = [(y, g) for y, g in ((out, grad_out), (lse, grad_lse))
                 if g is not None and y.requires_grad]
        grads = iter(torch.autograd.grad(
            [y for y, _ in pairs], [t for t, w in zip(given, wanted) if w],
            [g for _, g in pairs], create_graph=True, allow_unused=True))
    return [next(grads) if w else None for w in wanted]


def attention(graph, made, inputs, bias, seed):
    """(out, lse) by the fused passes; None if no kernel supports the call."""
    try:
        if not made.empty:
            made.plan(graph, False)
            made.plan(graph, True)
    except UnsupportedError as error:
        say_once(f"{error}; it runs by torch operations instead")
        return None
    if torch.is_grad_enabled() and _attention._differentiable(inputs, bias):
        return _AttentionWithLse.apply(graph, made, bias, seed, *inputs)
    return _execute.forward(graph, made, inputs, bias, seed)[:2]
