"""Self loops as PyG's attention layers make them."""

import torch

from . import _operators
from ._checks import DTYPES
from ._evaluators import inverse_root, scattered
from ._execute import sum_settings
from ._library import check, library
from .errors import InvalidError
from .graph import Graph


def loop_features(edge_attr, kept, edge_index, num_nodes, fill_value):
    """Features of the kept edges and of the loops that follow them; edge_index
    is that of the graph with loops."""
    return _with_loops(edge_attr.index_select(0, kept), num_nodes, fill_value,
                       lambda: edge_index[1, :kept.numel()])


def check_rows(name, tensor, num_edges):
    """Raises unless a tensor has a row for each edge: what drops the loops of a
    list would pass over further rows."""
    if tensor.size(0) != num_edges:
        raise InvalidError(f"{name} has {tensor.size(0)} rows, expected one "
                           f"for each of {num_edges} edges")


def all_loop_features(edge_attr, edge_index, num_nodes, fill_value, row=1):
    """[E + num_nodes] features of all edges, and of a loop for each node.  A
    reduction takes the edges that are no loops, by edge_index[row].  The
    length depends on no value, so that torch.compile can trace it."""
    check_rows("edge_attr", edge_attr, edge_index.size(1))

    def rows():
        is_loop = edge_index[0] == edge_index[1]
        return edge_index[row].long().masked_fill(is_loop, num_nodes)
    return _with_loops(edge_attr, num_nodes, fill_value, rows)


def _with_loops(edge_attr, num_nodes, fill_value, rows):
    """Features of edges, and then of the loops; rows() are the destinations of
    the edges."""
    shape = (num_nodes,) + tuple(edge_attr.shape[1:])
    if fill_value is None or isinstance(fill_value, (int, float)):
        loops = edge_attr.new_full(shape, 1 if fill_value is None
                                   else fill_value)
    elif isinstance(fill_value, torch.Tensor):
        loops = fill_value.to(edge_attr.device, edge_attr.dtype)
        if edge_attr.dim() != loops.dim():
            loops = loops.unsqueeze(0)
        loops = loops.expand(shape)
    elif isinstance(fill_value, str):
        loops = reduce_edges(edge_attr, rows(), num_nodes, fill_value)
    else:
        raise AttributeError("fill_value must be a number, a tensor or the "
                             f"name of a reduction, got {fill_value!r}")
    return torch.cat([edge_attr, loops])


_REDUCTIONS = "add", "sum", "mean", "min", "max", "mul"


def reduce_edges(edge_attr, destinations, num_nodes, reduction):
    """The reduced features of the edges into each of the first num_nodes
    nodes; edges into other nodes are left out."""
    if reduction not in _REDUCTIONS:
        raise ValueError(f"fill_value must be one of {sorted(_REDUCTIONS)}, "
                         f"got {reduction!r}")
    # an edge into a node that has no loop is reduced into a spare row
    return scattered(edge_attr, destinations.clamp(max=num_nodes),
                     num_nodes + 1, "sum" if reduction == "add" else reduction
                     )[:num_nodes]


def fill_loops(graph, features, fill, backward=False):
    """Features [E, F] of the edges before there were loops as those of a graph
    that with_self_loops() made, in its order, a loop for each destination; fill
    is "mean", "add" or "sum".  backward: the gradient of the former, from that
    of the latter."""
    features = features.contiguous()
    if graph.device.type != "cpu":
        return _fill_by_sums(_filling(graph), features.unsqueeze(1), fill,
                             backward).squeeze(1)
    rows = graph.unlooped_edges if backward else graph.num_edges
    out = features.new_empty(rows, features.size(1))
    lib = library()
    run = lib.dfgnn_graph_fill_loops_backward if backward else \
        lib.dfgnn_graph_fill_loops
    check(run(graph.handle.pointer, DTYPES[features.dtype], features.size(1),
              fill == "mean", features.data_ptr(), out.data_ptr()))
    return out


def _fill_by_sums(graph, features, fill, backward):
    op = "spmm-mean" if fill == "mean" else "spmm-sum"
    value = features.new_empty(graph.num_src, *features.shape[1:]) \
        if backward else features
    recipe = _operators.recipe(graph, op, (value,), sum_settings())
    if not backward:
        return recipe.forward(graph, (value,))[0]
    return recipe.backward(graph, (), (features,), (True,))[0]


def _filling(graph):
    """The graph by which features of edges become those of a graph that
    with_self_loops() made, in its order: its rows are that graph's edges, and
    its columns the caller's edges before there were loops.  An edge has itself
    as its only neighbour, a loop the other edges of its row, so that a sum over
    neighbours fills the loops by "add", and a mean by "mean".

    Each destination has a loop, which is the last edge of its row.
    """
    def make():
        nodes, edges = graph.num_dst, graph.num_edges
        offsets, dst = graph.offsets.long(), graph.dst
        numbers = torch.arange(edges, device=graph.device)
        # row i of k edges without its loop has 2 k neighbours
        begins = numbers + (offsets[:-1] - 2 * torch.arange(
            nodes, device=graph.device)).index_select(0, dst)
        sizes = (graph.degrees - 1).index_select(0, dst)
        order = graph._array(2).long()
        last = torch.zeros(edges, dtype=torch.bool, device=graph.device)
        last[offsets[1:] - 1] = True
        kept = last.logical_not_().nonzero().view(-1)
        first, order = begins[kept], order[kept]
        neighbours = torch.empty(2 * kept.numel(), dtype=torch.int32,
                                 device=graph.device)
        neighbours[torch.cat([first, first + sizes[kept]])] = torch.cat(
            [order, order]).int()
        ends = begins.new_full((1,), neighbours.numel())
        return Graph(torch.cat([begins, ends]).int(), neighbours,
                     graph.unlooped_edges, trusted=True)
    return graph._derive("filling", make)


def normalize(weight, src, dst, count, sent=None):
    """Weights w_ij / sqrt(d_i d_j), d the sums of weights of in-edges of the
    first count nodes; sent(scale) has that of each node that src numbers."""
    scale = inverse_root(weight.new_zeros(count).index_add(0, dst, weight))
    of_src = scale if sent is None else sent(scale)
    return of_src.index_select(0, src) * weight * scale.index_select(0, dst)


def last_loops(rows, count):
    """[count] the last of the edges that have this row, -1 of a row without
    edges; rows may be count, too.  An assignment by index would take any of
    them on a GPU."""
    places = torch.arange(rows.numel(), device=rows.device)
    return places.new_full((count + 1,), -1).scatter_reduce(
        0, rows, places, "amax")[:count]


def loop_weights(weight, last, fill, rows):
    """The weight of each node's loop: that of its last loop, by last_loops() of
    rows(), fill of a node without.  All loops that a node had get the gradient
    of the one that counts, as PyG's do."""
    filled = weight.new_full(last.shape, fill)
    if not weight.numel():
        return filled
    value = weight.detach()
    filled = torch.where(last >= 0, value.index_select(0, last.clamp(min=0)),
                         filled)
    return filled if not weight.requires_grad else filled + weight.new_zeros(
        last.numel() + 1).index_add(0, rows(), weight - value)[:-1]


def with_remaining_loops(graph, weight, fill):
    """(graph with a loop for each node, weights): the last loop that a node
    had keeps its weight, the others have weight fill."""
    check_rows("edge_weight", weight, graph.num_edges)
    looped, count = graph.with_self_loops(), graph.num_dst

    def rows():  # of the loops that there are; other edges have a spare row
        src, dst = graph.edge_index
        return src.masked_fill(src != dst, count)

    last = graph._derive("loops", lambda: last_loops(rows(), count))
    filled = loop_weights(weight, last, fill, lambda: graph._derive(
        "rows of loops", rows))
    return looped, torch.cat([weight[looped.kept], filled])


def gcn_weights(graph, weight, loops, fill):
    """(graph, weights) by which GCN sums: those of with_remaining_loops() if
    loops, scaled by degrees."""
    if loops:
        graph, weight = with_remaining_loops(graph, weight, fill)
    return graph, normalize(weight, *graph.edge_index, graph.num_dst)
