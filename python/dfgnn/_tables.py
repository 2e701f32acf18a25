"""Linear layers of several inputs whose results stand one below the other: each
is written where it stands, and no copy joins them."""

import torch

from ._autograd import Kind, Recorded
from ._modes import autocast_dtype


def _sizes(rows, weights):
    return [x.size(0) * w.size(0) for x, w in zip(rows, weights)]


class _Tables(Kind):
    """The results of count linear layers in one flat tensor; given are their
    inputs [rows, F], their weights [O, F], and biases [O] or nothing."""

    def record(self, count, given, needed):
        rows, weights = given[:count], given[count:2 * count]
        biases, sizes = given[2 * count:], _sizes(rows, weights)
        flat = rows[0].new_empty(sum(sizes))
        for n, out in enumerate(flat.split(sizes)):
            out = out.view(rows[n].size(0), weights[n].size(0))
            if biases:
                torch.addmm(biases[n], rows[n], weights[n].t(), out=out)
            else:
                torch.mm(rows[n], weights[n].t(), out=out)
        return flat, given[:2 * count], None

    def gradients(self, count, rest, kept, grads, needed, again):
        rows, weights = kept[:count], kept[count:]
        grads = [part.view(-1, w.size(0)) for part, w in
                 zip(grads[0].split(_sizes(rows, weights)), weights)]
        found = [g @ w if want else None
                 for g, w, want in zip(grads, weights, needed)]
        found += [g.t() @ x if want else None
                  for g, x, want in zip(grads, rows, needed[count:])]
        return found + [g.sum(0) if want else None
                        for g, want in zip(grads, needed[2 * count:])]


_TABLES = _Tables()


def tables(rows, weights, biases=None):
    """A flat tensor of rows[n] @ weights[n].T + biases[n], one after the
    other; biases may be None."""
    kind = autocast_dtype(rows[0].device.type)
    given = [*rows, *weights, *(biases or ())]
    if kind is not None:
        given = [t.to(kind) for t in given]
    return Recorded.apply(_TABLES, len(rows), *given)
