"""Pairs of nodes without an edge, drawn at random on the device of the edges.

The signatures and the distributions are PyG's.  No function waits for the
device, where the graph has room for all pairs that are asked for, so that
dfgnn.capture() takes them: each replay draws anew.  The generator is torch's.
"""

import math

import torch
from torch import Tensor

from .errors import InvalidError, UnsupportedError
from .reductions import group_count

__all__ = ["negative_sampling", "structured_negative_sampling",
           "batched_negative_sampling"]

_MOST_SHUFFLED = 1 << 27  # pairs of a batch, which take 40 bytes each


class _Free:
    """The numbers below total that are not in ids [E]; total means none."""

    def __init__(self, ids, total):
        self.ids = ids = ids.sort().values
        first = ids < total
        first[1:] &= ids[1:] != ids[:-1]
        # the different ids among the first so many
        self.distinct = torch.cat([ids.new_zeros(1), first.cumsum(0)])
        self.below = ids - self.distinct[1:] + 1  # free numbers below each id
        self.count = total - self.distinct[-1]

    def until(self, numbers):
        """How many free numbers are below each of these."""
        return numbers - self.distinct[torch.searchsorted(self.ids, numbers)]

    def number(self, rank):
        """The free numbers with these ranks."""
        return rank + self.distinct[torch.searchsorted(self.below, rank,
                                                       right=True)]


# The pairs (row, col) of a graph have numbers below pairs(): (how many there
# are, the number of each, the pair of each).  n: the nodes; of a bipartite
# graph those on either side.

def _pairs(n, m, kind):
    return n * m if kind == "bipartite" else n * (n - 1) // (
        2 if kind == "undirected" else 1)


def _number(row, col, n, m, kind, none):
    if kind == "bipartite":
        return row * m + col
    if kind == "directed":
        return torch.where(row == col, none,
                           row * (n - 1) + col - (row < col).long())
    # the way from one end around a ring of n to the other, the shorter one
    row, col = torch.minimum(row, col), torch.maximum(row, col)
    way = col - row
    back = 2 * way > n
    begin, way = torch.where(back, col, row), torch.where(back, n - way, way)
    return torch.where(row < col, (way - 1) * n + begin, none)


def _ends(number, n, m, kind):
    if kind == "bipartite":
        return number // m, number % m
    if kind == "directed":
        row, col = number // (n - 1), number % (n - 1)
        return row, col + (row <= col).long()
    row = number % n
    col = (row + number // n + 1) % n
    return torch.minimum(row, col), torch.maximum(row, col)


def _uniform(shape, below):
    """Random numbers from 0 to below - 1, a tensor."""
    drawn = torch.rand(shape, dtype=torch.float64, device=below.device)
    return torch.minimum((drawn * below).long(), below - 1)


def _distinct(count, below, least):
    """count different numbers below a tensor, each as likely: the first ones of
    more draws.  least: at most the tensor, and at least 4 count."""
    # Each draw is new with at least this chance; fewer than count of them are
    # once in 10^14 calls, which then have a pair twice.
    chance = 1 - count / least
    draws = int((count + 8 * math.sqrt(count) + 64) / chance)
    drawn = _uniform(draws, below)
    values, places = drawn.sort(stable=True)
    again = torch.zeros_like(values, dtype=torch.bool)
    again[1:] = values[1:] == values[:-1]
    new = torch.empty_like(again).scatter_(0, places, ~again)
    rank = torch.where(new, new.cumsum(0) - 1, count).clamp_(max=count)
    return drawn.new_zeros(count + 1).scatter_(0, rank, drawn)[:count]


def _shuffled(free, total, ends, wanted):
    """(free numbers, their graphs): of each graph, whose numbers end before
    ends, as many as are wanted, or all."""
    device = ends.device
    ends = free.until(ends)
    order = torch.rand(total, dtype=torch.float64, device=device).argsort()
    # the ranks beyond all free numbers are those of no graph
    graph, places = torch.bucketize(order, ends, right=True).sort(stable=True)
    begins = torch.cat([ends.new_zeros(1), ends])
    wanted = torch.cat([wanted, wanted.new_zeros(1)])
    chosen = torch.arange(total, device=device) - begins[graph] < wanted[graph]
    chosen = chosen.nonzero().view(-1)
    return free.number(order[places][chosen]), graph[chosen]


def _check(edge_index, method):
    if method not in ("sparse", "dense"):
        raise ValueError("method must be 'sparse' or 'dense', which mean the "
                         f"same here, got {method!r}")
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or \
            edge_index.size(0) != 2:
        raise InvalidError("edge_index must be a tensor [2, E], got "
                           + (f"{list(edge_index.shape)}" if isinstance(
                               edge_index, Tensor)
                               else type(edge_index).__name__))


def _joined(row, col, kind):
    if kind == "undirected":
        row, col = torch.cat([row, col]), torch.cat([col, row])
    return torch.stack([row, col])


def negative_sampling(
        edge_index: Tensor,
        num_nodes: int | tuple[int, int] | None = None,
        num_neg_samples: int | float | None = None,
        method: str = "sparse", force_undirected: bool = False) -> Tensor:
    """[2, n] different pairs of nodes that have no edge, each set of them as
    likely: num_neg_samples, or all where there are fewer.  The arguments are
    those of torch_geometric.utils.negative_sampling."""
    _check(edge_index, method)
    num_nodes = group_count(edge_index) if num_nodes is None else num_nodes
    kind = "bipartite" if not isinstance(num_nodes, int) else \
        "undirected" if force_undirected else "directed"
    n, m = (num_nodes, num_nodes) if isinstance(num_nodes, int) else num_nodes
    edges, total = edge_index.size(1), _pairs(n, m, kind)
    count = edges if num_neg_samples is None else \
        int(num_neg_samples * edges) if isinstance(num_neg_samples, float) \
        else num_neg_samples
    count = count // 2 if kind == "undirected" else count
    if not total or not count:
        return edge_index.new_empty((2, 0))
    row, col = edge_index.long()
    free = _Free(_number(row, col, n, m, kind, total), total)
    if 4 * count <= total - edges:
        numbers = free.number(_distinct(count, free.count, total - edges))
    else:
        one = torch.ones_like(free.count).view(1)
        numbers, _ = _shuffled(free, total, total * one, count * one)
    row, col = _ends(numbers, n, m, kind)
    return _joined(row, col, kind)


def structured_negative_sampling(
        edge_index: Tensor, num_nodes: int | None = None,
        contains_neg_self_loops: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """(i, j, k) of each edge (i, j), with a k of which (i, k) is no edge.  The
    arguments are those of torch_geometric.utils.structured_negative_sampling.
    Raises InvalidError if a node has edges to all."""
    _check(edge_index, "sparse")
    n = group_count(edge_index) if num_nodes is None else num_nodes
    row, col = edge_index.long()
    ids = row * n + col
    if not contains_neg_self_loops:
        ids = torch.cat([ids, torch.arange(n, device=ids.device) * (n + 1)])
    free = _Free(ids, n * n)
    begins = free.until(torch.stack([row, row + 1]) * n)
    counts = begins[1] - begins[0]
    full = int((counts == 0).sum())
    if full:
        raise InvalidError(f"{full} edges begin at a node that has edges to all "
                           f"{n} nodes: there is no pair without an edge")
    ranks = begins[0] + _uniform(counts.shape, counts)
    return edge_index[0], edge_index[1], free.number(ranks) - row * n


def batched_negative_sampling(
        edge_index: Tensor, batch: Tensor | tuple[Tensor, Tensor],
        num_neg_samples: int | float | None = None,
        method: str = "sparse", force_undirected: bool = False) -> Tensor:
    """[2, n] different pairs of nodes of the same graph of a batch that have no
    edge, num_neg_samples of each graph.  The arguments are those of
    torch_geometric.utils.batched_negative_sampling.

    All pairs of the batch are shuffled: UnsupportedError if they are more than
    2^27.
    """
    _check(edge_index, method)
    sides = (batch, batch) if isinstance(batch, Tensor) else batch
    kind = "bipartite" if sides is batch else \
        "undirected" if force_undirected else "directed"
    graphs = max(map(group_count, sides))
    sizes = [_of_graphs(graphs, side) for side in sides]
    first = [size.cumsum(0) - size for size in sizes]
    counts = _pairs(sizes[0], sizes[1], kind)
    ends = counts.cumsum(0)
    total = int(ends.max()) if graphs else 0
    if total > _MOST_SHUFFLED:
        raise UnsupportedError(
            f"the graphs of the batch have {total} pairs of nodes, and "
            f"at most {_MOST_SHUFFLED} are drawn from")
    if not total:
        return edge_index.new_empty((2, 0))
    row, col = edge_index.long()
    graph = sides[0][row]
    ids = _number(row - first[0][graph], col - first[1][graph],
                  sizes[0][graph], sizes[1][graph], kind, -1)
    ids = torch.where(ids < 0, total, ids + (ends - counts)[graph])
    wanted = _of_graphs(graphs, graph)
    if isinstance(num_neg_samples, float):
        wanted = (num_neg_samples * wanted.double()).long()
    elif num_neg_samples is not None:
        wanted = torch.full_like(wanted, num_neg_samples)
    if kind == "undirected":
        wanted = wanted // 2
    numbers, graph = _shuffled(_Free(ids, total), total, ends, wanted)
    row, col = _ends(numbers - (ends - counts)[graph], sizes[0][graph],
                     sizes[1][graph], kind)
    return _joined(row + first[0][graph], col + first[1][graph], kind)


def _of_graphs(graphs, index):
    """How often each graph is in an index."""
    return torch.zeros(graphs, dtype=torch.int64, device=index.device) \
        .scatter_add_(0, index, torch.ones_like(index, dtype=torch.int64))
