"""Attention over parts of the edges: each part's result with its log-sum-exp,
and the merge of them, which is exactly the attention over all edges.

    parts = [dfgnn.gt_attention(g, q, k, v, return_lse=True) for g in graphs]
    out, lse = dfgnn.merge_attention(parts)
"""

import torch

from ._checks import describe


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
    lses = torch.stack([lse for _, lse in parts])
    empty = (lses == float("-inf")).all(0)  # rows without edges in any part
    lse = torch.logsumexp(lses.masked_fill(empty, 0), 0)
    out = sum(share.unsqueeze(-1) * part.to(share.dtype)
              for share, (part, _) in zip((lses - lse).exp(), parts))
    return out.to(first.dtype), lse.masked_fill(empty, float("-inf"))
