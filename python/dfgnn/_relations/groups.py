"""Products of rows that lie in groups, each group with a matrix of its own.

Many small groups are one batched product: their rows begin at multiples of a
tile, and a tile's matrix is that of its group.  In bfloat16 on a GPU they are
torch's grouped product, which reads a group's matrix once and not for each
tile.  Few or large groups are multiplied one after the other.
"""

import itertools

import torch

from .. import _ways
from .._modes import autocast_dtype
from .._remember import remember
from ..aggregation import spmm
from .pairs import gatherer

# Rows of a tile where torch multiplies all groups by one kernel, which wants 16
# bytes of bfloat16.
ONE_KERNEL = 8
ALIGNMENTS = {"one by one": 1, "one kernel": ONE_KERNEL, "tiles of 32": 32,
              "tiles of 128": 128}


def alignment(rows, groups, device, dtype=None, widths=()):
    """The number that first rows of groups should be multiples of: the rows of a
    tile, or 1 where the groups are multiplied one by one.

    dtype: the product_type() of the rows, widths: theirs and those of their
        products, where weights are dense.
    """
    return ALIGNMENTS[_ways.products_of_groups(
        device, rows, groups,
        bool(widths) and _in_one_kernel(device, dtype, widths))]


def product_type(x):
    """The type that products of x are computed in."""
    return autocast_dtype(x.device.type) or x.dtype


def _in_one_kernel(device, dtype, widths):
    """Whether torch has a kernel for products of groups: elsewhere it copies
    their sizes to the host and multiplies them one by one."""
    return (device.type == "cuda" and dtype == torch.bfloat16
            and hasattr(torch, "_grouped_mm")
            and not any(width % ONE_KERNEL for width in widths)
            and torch.cuda.get_device_capability(device)[0] in (9, 10))


def take(table, graph):
    """The rows of a table [sources, ...] that a gatherer() names.  Gradients
    of rows that are taken several times are added in one order."""
    shape = table.shape[1:]
    heads = 1 if len(shape) < 2 else shape[0]
    flat = table.reshape(table.size(0), heads, shape.numel() // max(1, heads))
    return spmm(graph, flat).view(graph.num_dst, *shape)


class Groups:
    """Rows in groups: group g has the rows starts[g] to starts[g + 1] - 1."""

    def __init__(self, starts, device, align):
        self.starts, self.align = tuple(starts), align
        self.sizes = [b - a for a, b in zip(starts, starts[1:])]
        self.used = self.sizes
        self.device, self._rows = device, None
        if align > 1:
            tiles = torch.tensor([size // align for size in self.sizes])
            self.of_tile = torch.arange(len(self.sizes)).repeat_interleave(
                tiles).to(device)
            self._gatherer = gatherer(self.of_tile, len(self.sizes))
        if align == ONE_KERNEL:
            self._ends = torch.tensor(self.starts[1:], dtype=torch.int32).to(
                device)

    @classmethod
    def of_sizes(cls, sizes, device, align):
        """Groups with room for sizes[g] rows each."""
        sizes = list(sizes)
        starts = itertools.accumulate(
            [-(-size // align) * align for size in sizes], initial=0)
        groups = cls(list(starts), device, align)
        groups.used = sizes
        return groups

    def packed(self, rows):
        """The rows of each group, without the room beyond its size."""
        if self.align > 1:
            if self._rows is None:
                self._rows = torch.cat([
                    torch.arange(start, start + size) for start, size in
                    zip(self.starts, self.used)]).to(self.device)
            rows = rows.index_select(0, self._rows)
        return rows.split(self.used)

    def by_tile(self, table):
        """[tiles, ...] of a table [groups, ...]."""
        return take(table, self._gatherer)

    def tiled(self, rows):
        """[tiles, rows of a tile, ...] of [rows, ...]."""
        return rows.view(-1, self.align, *rows.shape[1:])

    def linear(self, rows, weight, bias=None):
        """product() of weight [groups, O, F], as linear layers have it."""
        if self.align in (1, ONE_KERNEL):
            return self.product(rows, weight.transpose(1, 2), bias)
        # transposed by tile, so that gradients are laid out as weights are
        return _dense(self.tiled(rows), self.by_tile(weight).transpose(1, 2),
                      None if bias is None else self.by_tile(bias)
                      ).flatten(0, 1)

    def product(self, rows, weight, bias=None):
        """[rows, O] of rows [rows, F], weight [groups, F, O] and bias
        [groups, O]; or of blocks, weight [groups, B, F / B, O / B]."""
        if self.align == ONE_KERNEL and weight.dim() == 3 and rows.size(0):
            return self._in_one_kernel(rows, weight, bias)
        multiply = _dense if weight.dim() == 3 else _blocks
        if self.align > 1:
            out = multiply(self.tiled(rows), self.by_tile(weight), None
                           if bias is None else self.by_tile(bias))
            return out.flatten(0, 1)
        parts = [(part.unsqueeze(0), weight[g:g + 1], None if bias is None
                  else bias[g:g + 1]) for g, part in
                 enumerate(rows.split(self.sizes)) if part.size(0)]
        if not parts:
            return multiply(rows.unsqueeze(0), weight[:1], None)[0]
        outs = [multiply(*part)[0] for part in parts]
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    def _in_one_kernel(self, rows, weight, bias):
        kind = product_type(rows)
        rows, weight = rows.to(kind), weight.to(kind)
        out = torch._grouped_mm(rows.contiguous(), weight, offs=self._ends)
        if out.requires_grad:  # its own gradient refuses others
            out.register_hook(torch.Tensor.contiguous)
        if bias is None:
            return out
        return (self.tiled(out) + self.by_tile(bias).to(out.dtype).unsqueeze(
            1)).flatten(0, 1)


def _dense(rows, weight, bias):
    """rows [B, T, F], weight [B, F, O], bias [B, O] or None."""
    if rows.size(0) == 1:
        out = (rows[0] @ weight[0]).unsqueeze(0)
        return out if bias is None else out + bias.unsqueeze(1)
    if bias is None or bias.dtype != rows.dtype:
        out = torch.bmm(rows, weight)
        return out if bias is None else out + bias.unsqueeze(1)
    return torch.baddbmm(bias.unsqueeze(1), rows, weight)


def _blocks(rows, weight, bias):
    """The same of a block-diagonal weight [B, blocks, F / blocks, ...]."""
    blocks = rows.view(*rows.shape[:2], *weight.shape[1:3])
    out = torch.einsum("ktbf,kbfo->ktbo", blocks, weight).flatten(2)
    return out if bias is None else out + bias.unsqueeze(1)


class Typed:
    """Rows in any order, each of one of count types: products by type.
    align: as alignment() has it."""

    def __init__(self, types, count, align):
        sizes = torch.bincount(types, minlength=count).tolist()
        if len(sizes) > count:
            raise ValueError(f"types must be 0 to {count - 1}, got "
                             f"{len(sizes) - 1}")
        self.groups = Groups.of_sizes(sizes, types.device, align)
        begins = itertools.accumulate(sizes, initial=0)
        shift = torch.tensor([a - b for a, b in zip(
            self.groups.starts, begins)][:count]).to(types.device)
        place = torch.arange(types.numel(), device=types.device)
        # [rows] where each row stands among the groups
        self.slot = torch.empty_like(place)
        ordered, order = types.sort(stable=True)
        self.slot[order] = place + shift.index_select(0, ordered.long())
        self._gatherer = gatherer(types.long(), count)

    def product(self, x, weight, bias=None):
        """[rows, O] of x [rows, F], weight [types, F, O] and bias [types, O]
        or None."""
        rows = x.new_zeros(self.groups.starts[-1], x.size(1)).index_copy(
            0, self.slot, x)
        return self.groups.product(rows, weight, bias).index_select(
            0, self.slot)

    def by_row(self, table):
        """[rows, ...] of a table [types, ...]."""
        return take(table, self._gatherer)


def typed(types, count, x, *widths):
    """The Typed of the nodes of x [N, F], the first of types, and of products
    of these widths; it is kept as long as types lives unchanged."""
    align = alignment(x.size(0), count, types.device, product_type(x),
                      (x.size(1), *widths))
    return remember(types, ("typed", count, x.size(0), align),
                    lambda: Typed(types[:x.size(0)], count, align))


# ---- sums over all relations of what each makes of its neighbours -----------

def multiplied(x, weight):
    """[N * R, O] each node by each relation's weight [R, F, O], or blocks
    [R, B, F / B, O / B]."""
    if weight.dim() == 3:
        return (x @ weight.transpose(0, 1).flatten(1)).view(
            -1, weight.size(2))
    blocks = x.view(x.size(0), *weight.shape[1:3])
    return torch.einsum("nbf,rbfo->nrbo", blocks, weight).reshape(
        -1, weight.size(1) * weight.size(3))


def way_of_sums(graph, bases=None, of_features=True):
    """The way of sums over typed edges; bases: how many the relations share, if
    they do."""
    return _ways.sums_over_relations(
        graph.device, graph.num_src[""], graph.num_edges, graph.num_relations,
        bases or 0, of_features)


def by_node(graph, x, weight, edge_weight=None):
    """[N, O] the sums over edges j -> i of relation r of edge_weight x_j W_r:
    nodes are multiplied first.  graph is HeteroGraph.from_edge_types()."""
    return spmm(graph.graph(graph.by_node("dst"), graph.by_relation("src")),
                multiplied(x, weight), edge_weight)


def groups_of(graph, pairs, align):
    """The Groups of a HeteroGraph's pairs or senders, which begin at multiples
    of align."""
    return graph._derive(("groups", align, pairs.starts), lambda: Groups(
        pairs.starts, graph.device, align))


def by_pair(graph, weight, reduce):
    """[N, O] the sums of by_node(): reduce(Graph) gives the rows of (node,
    relation) pairs that have edges, which are multiplied then."""
    align = alignment(
        graph.number_of_pairs(), graph.num_relations, graph.device,
        product_type(weight), weight.shape[1:] if weight.dim() == 3 else ())
    pairs = graph.pairs(graph.by_node("src"), align)
    groups = groups_of(graph, pairs, align)
    return spmm(pairs.across, groups.product(reduce(pairs.within), weight))
