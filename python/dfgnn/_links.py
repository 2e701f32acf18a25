"""The links of the chains of nn/_node.py: each computes a tensor from those
before it, and their gradients from its own.

Links write no tensor but their own: ``values`` has the tensors of a pass by
name, ``grads`` their gradients, and ``wanted`` the names of those whose
gradient is asked for.  ``reads`` are the names that a link reads, ``makes``
those that it writes, and ``saves`` those that backward reads.  Each link
computes three ways:

  forward   quickly; nothing is recorded for gradients
  backward  quickly, the gradients of what it read
  plain     the same as forward by operations that autograd records, for
            gradients of gradients and passes without a kernel
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F


class Slot(NamedTuple):
    """A tensor; or, with a width, its columns [start, start + width) of
    pitch; or, with a plane, that of the tensors that it stacks."""
    name: str
    start: int = 0
    width: int | None = None
    pitch: int = 0
    plane: int | None = None

    @property
    def part(self):
        return self.width is not None or self.plane is not None

    def of(self, values):
        tensor = values[self.name]
        if self.plane is not None:
            return tensor[self.plane]
        if self.width is None:
            return tensor
        return tensor.narrow(1, self.start, self.width)

    def give(self, values, grads, grad):
        """Makes grad that of the tensor, or of its columns."""
        if self.width is None:
            grads[self.name] = grad
            return
        if self.name not in grads:
            grads[self.name] = torch.empty_like(values[self.name])
        self.of(grads).copy_(grad)


def add(grads, name, grad):
    """Adds a new tensor to a gradient."""
    before = grads.get(name)
    grads[name] = grad if before is None else grad.add_(before)


# Matrices of at most so many elements are small, by type of device: passes over
# what elementwise operations hold cost less than a product with a matrix of
# mostly zeros, and a product of several layers may hold memory that not all of
# them need.  On a CPU a copy of a product's gradient costs more than another
# call, too, where they are not small.
SMALL = {"cpu": 1 << 15, "cuda": 1 << 20}


def is_small(x, columns):
    """Whether a matrix of the rows of x and so many columns is small."""
    return x.size(0) * columns <= SMALL.get(x.device.type, 0)


class Link:
    """A link whose quick way is the plain one, unless it has another."""

    def forward(self, graph, values, keep):
        self.plain(graph, values)


class Linear(Link):
    """out = x [W_1; W_2; ...]^T + [b_1; b_2; ...], by one product; plus another
    tensor of its shape, which is overwritten.

    weights, biases: names; biases is empty or has as many as weights.
    rows: of each weight.
    """

    def __init__(self, x, weights, biases, rows, out, plus=None):
        self.x, self.weights, self.biases = x, weights, biases
        self.rows, self.out, self.plus = rows, out, plus
        self.reads = (x, *weights, *biases, *(() if plus is None else (plus,)))
        self.weight = weights[0] if len(weights) == 1 else out + " weight"
        self.makes = (out, self.weight)
        self.saves = (x, *weights, self.weight)

    def _parts(self, values):
        """(weight, bias or None) of the product."""
        weight, bias = values.get(self.weight), None
        if weight is None:
            weight = values[self.weight] = torch.cat(
                [values[name] for name in self.weights])
        if len(self.biases) == 1:
            bias = values[self.biases[0]]
        elif self.biases:
            bias = torch.cat([values[name] for name in self.biases])
        return weight, bias

    def forward(self, graph, values, keep):
        weight, bias = self._parts(values)
        if self.plus is None:
            values[self.out] = F.linear(values[self.x], weight, bias)
            return
        out = values[self.plus].addmm_(values[self.x], weight.t())
        values[self.out] = out if bias is None else out.add_(bias)

    def backward(self, graph, values, grads, wanted):
        grad, x = grads[self.out], values[self.x]
        if not wanted.isdisjoint(self.weights):
            self._split(grads, self.weights, grad.t().mm(x))
        if not wanted.isdisjoint(self.biases):
            self._split(grads, self.biases, grad.sum(0))
        if self.x in wanted:
            weight, before = values[self.weight], grads.get(self.x)
            grads[self.x] = grad.mm(weight) if before is None else \
                before.addmm_(grad, weight)
        if self.plus is not None:
            grads[self.plus] = grad

    def _split(self, grads, names, grad):
        parts = (grad,) if len(names) == 1 else \
            grad.unsafe_split_with_sizes(self.rows)
        for name, part in zip(names, parts):
            add(grads, name, part)

    def plain(self, graph, values):
        out = F.linear(values[self.x], *self._parts(values))
        values[self.out] = out if self.plus is None else \
            out + values[self.plus]


class Scores(Link):
    """out[k, n, h] = <h[n, h, :], a_k[h, :]> of several a_k [1, H, D], in the
    type that kernels read scores in; h [N, H * D]."""

    def __init__(self, h, atts, out, exact):
        self.h, self.atts, self.out, self.exact = h, atts, out, exact
        self.reads = self.saves = (h, *atts)
        self.makes = (out,)

    @staticmethod
    def _matrices(atts):
        """[K, H * D, H] of a_k [K, H, D]: column h has head h of a_k."""
        return torch.diag_embed(atts.transpose(1, 2), dim1=1, dim2=3).flatten(
            1, 2)

    def forward(self, graph, values, keep):
        h = values[self.h]
        if not is_small(h, h.size(1)):
            atts = torch.cat([values[name] for name in self.atts])
            values[self.out] = h.expand(len(self.atts), *h.shape).bmm(
                self._matrices(atts))
        else:
            self.plain(graph, values)
        if values[self.out].dtype is not self.exact:
            values[self.out] = values[self.out].to(self.exact)

    def backward(self, graph, values, grads, wanted):
        h, shape = values[self.h], values[self.atts[0]].shape
        grad = grads[self.out]
        if grad.dtype is not h.dtype:
            grad = grad.to(h.dtype)
        if not is_small(h, h.size(1)):
            self._through_matrices(values, grads, wanted, h, grad, shape)
            return
        grad = grad.unsqueeze(-1)
        if not wanted.isdisjoint(self.atts):
            att_grads = (h.view(1, -1, *shape[1:]) * grad).sum(1)
            grads.update(zip(self.atts, att_grads.unsafe_split_with_sizes(
                [1] * len(self.atts))))
        if self.h in wanted:
            before = grads.get(self.h)
            if before is None:
                before = grads[self.h] = torch.zeros_like(h)
            before = before.view(-1, *shape[1:])
            for one, att in zip(grad.unbind(), self.atts):
                before.addcmul_(one, values[att])

    def _through_matrices(self, values, grads, wanted, h, grad, shape):
        grad = grad.transpose(0, 1).flatten(1)  # [N, K * H]
        if not wanted.isdisjoint(self.atts):
            _, heads, dim = shape
            att_grads = h.t().mm(grad).view(heads, dim, -1, heads).diagonal(
                dim1=0, dim2=3).permute(1, 2, 0)
            grads.update(zip(self.atts, att_grads.split(1)))
        if self.h in wanted:
            matrices = self._matrices(torch.cat(
                [values[name] for name in self.atts]))
            matrix = matrices.transpose(0, 1).flatten(1).t()
            before = grads.get(self.h)
            grads[self.h] = grad.mm(matrix) if before is None else \
                before.addmm_(grad, matrix)

    def plain(self, graph, values):
        atts = torch.stack([values[name] for name in self.atts])
        h = values[self.h].view(1, -1, *atts.shape[2:])
        values[self.out] = (h * atts).sum(-1)


class EdgeScores(Link):
    """out [E, H] = <a_h, W_h e> of edge features e [E, F], for att [1, H, D]
    and weight [H * D, F], in the type that kernels read scores in."""

    def __init__(self, edges, weight, att, out, exact):
        self.edges, self.weight, self.att = edges, weight, att
        self.out, self.exact = out, exact
        self.reads = self.saves = (edges, weight, att)
        self.makes = (out,)

    def _matrix(self, values):
        """([H, F] the weights of features, W [H, D, F], a [H, D, 1])."""
        att = values[self.att][0].unsqueeze(-1)
        weight = values[self.weight].view(*att.shape[:2], -1)
        return (att * weight).sum(1), weight, att

    def forward(self, graph, values, keep):
        self.plain(graph, values)
        if values[self.out].dtype is not self.exact:
            values[self.out] = values[self.out].to(self.exact)

    def backward(self, graph, values, grads, wanted):
        edges, grad = values[self.edges], grads[self.out]
        if grad.dtype is not edges.dtype:
            grad = grad.to(edges.dtype)
        matrix, weight, att = self._matrix(values)
        if self.edges in wanted:
            add(grads, self.edges, grad.mm(matrix))
        if wanted.isdisjoint((self.weight, self.att)):
            return
        product = grad.t().mm(edges).unsqueeze(1)
        if self.weight in wanted:
            grads[self.weight] = (product * att).flatten(0, 1)
        if self.att in wanted:
            grads[self.att] = (product * weight).sum(-1).unsqueeze(0)

    def plain(self, graph, values):
        values[self.out] = values[self.edges] @ self._matrix(values)[0].t()


class Own(Link):
    """out = x plus (1 + eps) times a node's own row."""

    def __init__(self, x, own, eps, out):
        self.x, self.own, self.eps, self.out = x, own, eps, out
        self.reads, self.saves, self.makes = (x, own, eps), (own, eps), (out,)

    def backward(self, graph, values, grads, wanted):
        grad, own = grads[self.out], values[self.own]
        grads[self.x] = grad
        if self.eps in wanted:
            grads[self.eps] = (grad * own).sum().view(
                values[self.eps].shape)
        if self.own in wanted:
            add(grads, self.own, torch.addcmul(grad, grad, values[self.eps]))

    def plain(self, graph, values):
        values[self.out] = torch.addcmul(values[self.x], values[self.own],
                                         1 + values[self.eps])


class Normalized(Link):
    """out: the rows of x, each over its length."""

    least = 1e-12  # the length of a row of zeros, as F.normalize has it

    def __init__(self, x, out):
        self.x, self.out = x, out
        self.reads, self.saves, self.makes = (x,), (x,), (out,)

    def backward(self, graph, values, grads, wanted):
        x, grad = values[self.x], grads[self.out]
        length = x.norm(dim=-1, keepdim=True)
        long = length > self.least
        length = length.clamp(min=self.least)
        along = (grad * x).sum(-1, keepdim=True) / (length * length)
        add(grads, self.x, (grad - x * along * long) / length)

    def plain(self, graph, values):
        values[self.out] = F.normalize(values[self.x], dim=-1)


class Gate(Link):
    """out = b r + (1 - b) x, where b [N, 1] is the sigmoid of the product of
    [x, r, x - r] with weight [1, 3 C]; r is a Slot."""

    def __init__(self, x, r, weight, out):
        self.x, self.r, self.weight, self.out = x, r, weight, out
        self.gate = out + " gate"
        self.reads = (x, r.name, weight)
        self.makes = (out, self.gate)
        self.saves = (*self.reads, self.gate)

    def _weights(self, values):
        """Those of x and those of r, each [1, C]."""
        x, r, both = values[self.weight].chunk(3, 1)
        return x + both, r - both

    def backward(self, graph, values, grads, wanted):
        x, r, gate = values[self.x], self.r.of(values), values[self.gate]
        grad, (of_x, of_r) = grads[self.out], self._weights(values)
        inner = ((r - x) * grad).sum(1, keepdim=True) * gate * (1 - gate)
        if self.weight in wanted:
            along_x, along_r = inner.t().mm(x), inner.t().mm(r)
            grads[self.weight] = torch.cat(
                [along_x, along_r, along_x - along_r], 1)
        if self.r.name in wanted:
            self.r.give(values, grads, grad * gate + inner * of_r)
        if self.x in wanted:
            add(grads, self.x, grad * (1 - gate) + inner * of_x)

    def plain(self, graph, values):
        x, r = values[self.x], self.r.of(values)
        of_x, of_r = self._weights(values)
        gate = values[self.gate] = (
            x @ of_x.t() + r @ of_r.t()).sigmoid()
        values[self.out] = gate * r + (1 - gate) * x


class Finish(Link):
    """out [N, C], from x [N, H * D]: all heads side by side, or their mean;
    plus the columns of another tensor, and a bias."""

    def __init__(self, x, out, heads=1, mean=False, plus=None, bias=None):
        self.x, self.out, self.heads = x, out, heads
        self.mean = mean and heads > 1  # the mean of one head is that head
        self.plus, self.bias = plus, bias
        self.reads = (x, *(() if plus is None else (plus.name,)),
                      *(() if bias is None else (bias,)))
        self.saves, self.makes = (), (out,)

    def backward(self, graph, values, grads, wanted):
        grad = grads[self.out]
        if self.bias in wanted:
            grads[self.bias] = grad.sum(0)
        if self.plus is not None and self.plus.name in wanted:
            self.plus.give(values, grads, grad)
        if self.mean:
            grad = (grad / self.heads).repeat(1, self.heads)
        grads[self.x] = grad

    def plain(self, graph, values):
        out = values[self.x]
        if self.mean:
            out = out.view(out.size(0), self.heads, -1).mean(1)
        if self.plus is not None:
            out = out + self.plus.of(values)
        if self.bias is not None:
            out = out + values[self.bias]
        values[self.out] = out
