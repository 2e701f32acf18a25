"""Layers of one's own and how they are compared, for the tests of traced
layers."""

import copy

import pytest
import torch
import torch.nn.functional as F

pyg = pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from torch_geometric.nn import MessagePassing  # noqa: E402
from torch_geometric.utils import scatter, softmax  # noqa: E402

from conftest import random_edges  # noqa: E402

N, M, W, H = 12, 15, 6, 2


class Own(MessagePassing):
    """forward() hands its arguments on."""

    def __init__(self, **options):
        super().__init__(**{"aggr": "add", "node_dim": 0, **options})

    def forward(self, edge_index, **given):
        return self.propagate(edge_index, **given)


class Attention(Own):
    """As anemoi-models writes GraphTransformerConv."""

    def __init__(self, dropout=0.0, **options):
        super().__init__(**options)
        self.dropout = dropout

    def message(self, x_i, x_j, edge_attr, index, ptr, size_i):
        x_j = x_j if edge_attr is None else x_j + edge_attr
        alpha = (x_i * x_j).sum(dim=-1) / W ** 0.5
        alpha = softmax(alpha, index, ptr, size_i)
        alpha = F.dropout(alpha, p=self.dropout, training=self.training)
        return x_j * alpha.view(-1, H, 1)


class NoSize(Own):
    def message(self, x_i, x_j, index):
        return softmax(x_i - x_j, index) * x_j


class Network(Own):
    """An edge network over both ends, with a module that writes in place."""

    def __init__(self, **options):
        super().__init__(aggr="max", **options)
        self.nn = torch.nn.Sequential(
            torch.nn.Linear(2 * W + 3, 8), torch.nn.ReLU(inplace=True),
            torch.nn.Linear(8, 5), torch.nn.LayerNorm(5))

    def message(self, x_i, x_j, e):
        return self.nn(torch.cat([x_i, x_j - x_i, e], dim=-1))


class Wide(Own):
    """Linear maps that are too wide for a program stand between two."""

    def __init__(self):
        super().__init__(aggr=["mean", "max"])
        self.first = torch.nn.Linear(2 * W, 40)
        self.second = torch.nn.Linear(40, 40)

    def message(self, x_i, x_j):
        hidden = torch.tanh(self.first(torch.cat([x_i, x_j], -1)))
        return F.silu(self.second(hidden))


class Asserts(Own):
    """Here, since pytest writes the asserts of tests anew."""

    def message(self, x_j):
        assert (x_j < 100).all(), "much"
        return x_j


class Normed(Own):
    """Statistics of all edges, which the module keeps, too."""

    def __init__(self):
        super().__init__()
        self.lin, self.norm = torch.nn.Linear(W, W), torch.nn.BatchNorm1d(W)

    def message(self, x_i, x_j):
        return self.norm(self.lin(x_j) * x_i).relu()


class NormedEnd(Own):
    """Statistics of the nodes that receive, each as often as it does."""

    def __init__(self):
        super().__init__()
        self.nn = torch.nn.Sequential(
            torch.nn.Linear(W, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(),
            torch.nn.Linear(5, W))

    def message(self, x_i, x_j):
        return x_j - self.nn(x_i)


class Filter(Own):
    """CFConv with a filter of Gaussians, updated by position."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.register_buffer("centres", torch.linspace(0, 2, 5))
        self.lin = torch.nn.Linear(5, W)

    def message(self, x_j, pos_i, pos_j):
        distance = (pos_i - pos_j).norm(dim=-1, keepdim=True)
        return x_j * self.lin(torch.exp(-(distance - self.centres) ** 2))

    def update(self, inputs, x):
        return inputs + x


class Scattered(Own):
    """An aggregate of its own that returns two tensors, as GraphConv of
    anemoi-models, and a degree."""

    def message(self, x_i, x_j):
        return torch.sigmoid(x_i) * x_j

    def aggregate(self, inputs, edge_index, dim_size):
        ones = torch.ones(inputs.size(0), 1)
        count = scatter(ones, edge_index[1], 0, dim_size, reduce="sum")
        out = scatter(inputs, edge_index[1], 0, dim_size, reduce="sum")
        return out / count.clamp(min=1), inputs


class Updated(Own):
    """Scores by edge_updater, as GATConv's, which are kept in self._alpha."""

    def forward(self, edge_index, x, score):
        alpha = self.edge_updater(edge_index, alpha=(score, score))
        self._alpha = None
        out = self.propagate(edge_index, x=x, alpha=alpha)
        alpha, self._alpha = self._alpha, None
        return out, alpha

    def edge_update(self, alpha_i, alpha_j, index, size_i):
        return softmax(F.leaky_relu(alpha_i + alpha_j, 0.2), index,
                       num_nodes=size_i)

    def message(self, x_j, alpha):
        self._alpha = alpha.exp()
        return x_j * alpha.unsqueeze(-1)


class Einsum(Own):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(H, W, 4))

    def message(self, x_j, x_i):
        first, second = x_j.chunk(2, dim=-1)
        gate = torch.stack([first.sum(-1), second.sum(-1)], -1)
        return torch.einsum("nhc,hcd->nhd", x_j, self.weight) * \
            torch.where(gate > 0, gate, -gate)[..., :1] + x_i[..., 1:5].exp()


class Exchanged(Own):
    """Axes that change places, and parts and rows of an axis between."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(W, H, W) / W)

    def message(self, x_i, x_j):
        turned = torch.tanh(x_j.transpose(1, 2) * x_i.permute(0, 2, 1))
        rows = torch.stack([turned, turned.cos()], dim=2)  # [E, W, 2, H]
        both = torch.cat([rows, rows[:, :, 1:].sin()], dim=2)
        angle = torch.atan2(both[:, :, 0], 2 + both[:, :, 2])
        mixed = torch.einsum("nwh,whv->nhv", angle, self.weight)
        return mixed + both.sum(2).movedim(1, -1) @ self.weight[:, 0]


class Table(Own):
    """Tensors by node, taken by an index, and a table of kinds."""

    def __init__(self):
        super().__init__()
        self.kinds = torch.nn.Embedding(3, W)

    def message(self, x_j, kind, degree, edge_index):
        scale = (degree[edge_index[0]] * degree[edge_index[1]]).rsqrt()
        return x_j * self.kinds(kind) * scale.unsqueeze(-1)


class Crossed(Own):
    """A sum over in-edges that is read by the sending node."""

    def message(self, x_j, index, edge_index, size_i):
        total = scatter(x_j.exp(), index, 0, size_i, "sum")
        return torch.log1p(total[edge_index[0]]) * x_j


def edges():
    torch.manual_seed(3)
    return random_edges(N, N, 40)


def case(kind):
    e, options = edges(), {}
    count = e.size(1)

    def some(*shape):
        return torch.randn(*shape, dtype=torch.double, requires_grad=True)
    given = {"x": some(N, W)}
    if kind in (Attention, Einsum, Exchanged, Largest):
        given = {"x": some(N, H, W)}
    if kind is Attention:
        given["edge_attr"] = some(count, H, W)
    if kind is Network:
        given["e"] = some(count, 3)
    if kind is Filter:
        given["pos"] = some(N, 3)
        e = e[:, e[0] != e[1]]  # second derivatives of a norm of 0 are nan
    if kind is Updated:
        given = {"x": some(N, H, W), "score": some(N, H)}
    if kind is Table:
        given.update(kind=torch.randint(0, 3, (count,)), degree=torch.rand(
            N, dtype=torch.double) + 1)
    torch.manual_seed(1)
    return kind(**options).double(), e, given


class Largest(Own):
    """The largest of an edge's numbers, and the least of each head."""

    def message(self, x_i, x_j):
        most = (x_i * x_j).max(dim=-1, keepdim=True).values
        return most * torch.tanh(x_j) - x_i.min(-1)[0].unsqueeze(-1)


KINDS = [Attention, NoSize, Network, Wide, Normed, NormedEnd, Filter,
         Scattered, Updated, Einsum, Exchanged,
         Table, Crossed, Largest]
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)


def flat(made):
    return [x for x in made if x is not None] if isinstance(made, tuple) \
        else [made]


def derivatives(layer, e, given, order=2):
    """Outputs, gradients, and gradients of those."""
    outs = flat(layer(e, **given))
    leaves = [t for t in given.values() if t.requires_grad]
    leaves += list(layer.parameters())
    first = torch.autograd.grad(sum((x * x.cos()).sum() for x in outs),
                                leaves, create_graph=True, allow_unused=True)
    there = [g for g in first if g is not None and g.requires_grad]
    second = torch.autograd.grad(sum((g * g).sum() for g in there), leaves,
                                 allow_unused=True) if order > 1 else []
    return [*outs, *first, *second]


def same(have, want, tolerance=1e-9):
    assert len(have) == len(want)
    for a, b in zip(have, want):
        a = torch.zeros_like(b) if a is None and b is not None else a
        b = torch.zeros_like(a) if b is None and a is not None else b
        if a is not None:
            assert a.shape == b.shape and a.dtype == b.dtype
            torch.testing.assert_close(a.detach(), b.detach(), rtol=tolerance,
                                       atol=tolerance)


def accelerated(layer, **options):
    fast = copy.deepcopy(layer)
    return fast, dfgnn.accelerate(fast, **options)
