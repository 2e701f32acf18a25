"""Linear layers of several inputs whose results stand one below the other: each
is written where it stands, and no copy joins them."""

import torch

from ._autocast import autocast_dtype
from ._autograd import savable


class _Tables(torch.autograd.Function):
    """The results of count linear layers in one flat tensor; given are their
    inputs [rows, F], their weights [O, F], and biases [O] or nothing."""

    @staticmethod
    def forward(ctx, count, *given):
        given = savable(given)
        rows, weights = given[:count], given[count:2 * count]
        biases = given[2 * count:]
        ctx.sizes = [x.size(0) * w.size(0) for x, w in zip(rows, weights)]
        ctx.save_for_backward(*rows, *weights)
        flat = rows[0].new_empty(sum(ctx.sizes))
        for n, out in enumerate(flat.split(ctx.sizes)):
            out = out.view(rows[n].size(0), weights[n].size(0))
            if biases:
                torch.addmm(biases[n], rows[n], weights[n].t(), out=out)
            else:
                torch.mm(rows[n], weights[n].t(), out=out)
        return flat

    @staticmethod
    def backward(ctx, grad):
        count = len(ctx.sizes)
        saved, wants = ctx.saved_tensors, ctx.needs_input_grad[1:]
        rows, weights = saved[:count], saved[count:]
        grads = [part.view(-1, w.size(0)) for part, w in
                 zip(grad.split(ctx.sizes), weights)]
        found = [g @ w if want else None
                 for g, w, want in zip(grads, weights, wants)]
        found += [g.t() @ x if want else None
                  for g, x, want in zip(grads, rows, wants[count:])]
        found += [g.sum(0) if want else None
                  for g, want in zip(grads, wants[2 * count:])]
        return (None, *found)


def tables(rows, weights, biases=None):
    """A flat tensor of rows[n] @ weights[n].T + biases[n], one after the
    other; biases may be None."""
    kind = autocast_dtype(rows[0].device.type)
    given = [*rows, *weights, *(biases or ())]
    if kind is not None:
        given = [t.to(kind) for t in given]
    return _Tables.apply(len(rows), *given)
