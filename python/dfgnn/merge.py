"""Attention over parts of the edges: each part's result with its log-sum-exp,
and the merge of them, which is exactly the attention over all edges.

    parts = [dfgnn.gt_attention(g, q, k, v, return_lse=True) for g in graphs]
    out, lse = dfgnn.merge_attention(parts)
"""

import torch

from ._autograd import savable
from ._checks import describe

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
        tensors = savable(tensors)
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


def merge_attention(parts) -> tuple[torch.Tensor, torch.Tensor]:
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
