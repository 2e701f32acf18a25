"""The scores of GAT: of sources and destinations, in one pass over x W, and
of edges."""

import torch

from .._modes import needs_composite
from .._autocast import autocast_dtype
from .._autograd import savable
from ..ops import compiling


def _matrix(att_src, att_dst):
    """[H * D, 2 * H] the matrix whose product with features is the scores:
    column h has att_src of head h, column H + h its att_dst, and zeros for the
    other heads."""
    _, heads, dim = att_src.shape
    att = torch.cat([att_src, att_dst]).permute(1, 2, 0)
    eye = torch.eye(heads, dtype=att.dtype, device=att.device)
    return (att.unsqueeze(-1) * eye.view(heads, 1, 1, heads)).reshape(
        heads * dim, 2 * heads)


class _Scores(torch.autograd.Function):
    """Gives (score_src, score_dst) [N, H].  Gradients are made of saved tensors
    by operations that have derivatives, so they have derivatives, too."""

    @staticmethod
    def forward(ctx, h, att_src, att_dst):
        h, att_src, att_dst = savable((h, att_src, att_dst))
        ctx.save_for_backward(h, att_src, att_dst)
        heads = h.size(1)
        both = h.flatten(1) @ _matrix(att_src, att_dst)
        return both[:, :heads].contiguous(), both[:, heads:].contiguous()

    @staticmethod
    def backward(ctx, grad_src, grad_dst):
        h, att_src, att_dst = ctx.saved_tensors
        _, heads, dim = h.shape
        grad = torch.cat([grad_src, grad_dst], 1)
        found = [None, None, None]
        if ctx.needs_input_grad[0]:
            found[0] = (grad @ _matrix(att_src, att_dst).t()).view_as(h)
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            of_all = (h.flatten(1).t() @ grad).view(heads, dim, 2, heads)
            mine = of_all.diagonal(dim1=0, dim2=3)  # [D, 2, H]
            found[1] = mine[:, 0].t().unsqueeze(0)
            found[2] = mine[:, 1].t().unsqueeze(0)
        return tuple(found)


# With more heads, the product with the zeros of _matrix() costs more than two
# passes over the features.
_MOST_HEADS = 16


def scores(h, att_src, att_dst):
    """((h * att_src).sum(-1), (h * att_dst).sum(-1)), h [N, H, D]."""
    if (h.size(1) <= _MOST_HEADS and h.dtype == att_src.dtype
            and att_src.dtype == att_dst.dtype and h.is_contiguous()
            and not compiling() and not needs_composite()
            and autocast_dtype(h.device.type) is None):
        return _Scores.apply(h, att_src, att_dst)
    return (h * att_src).sum(-1), (h * att_dst).sum(-1)


def edge_feature_scores(edge_attr, att, weight, bias=None):
    """[..., E, H] <a_h, W_h e + b_h> of features [..., E, F], att and bias [H,
    D] and weight [H, D, F].  It is <W_h^T a_h, e> + <a_h, b_h>, so that no
    tensor is [E, H, D]."""
    scores = edge_attr @ (att.unsqueeze(-1) * weight).sum(1).t()
    return scores if bias is None else scores + (att * bias).sum(-1)
