"""Sums of neighbours over all relations as an operator of torch.library, which
torch.compile takes into its graph."""

import functools

import torch

from . import _recording
from ._execute import generation
from ._kernel_links import Sum
from .hetero import hetero_graph
from ._torch_operator import AVAILABLE, define

# x: features of each type; edges: the edge_index of each relation; ends: for
# each the numbers of the types that it begins and ends at; op: spmm-sum or
# spmm-mean.
_CALL = "Tensor[] x, Tensor[] edges, int[] ends, str op"


@functools.lru_cache(maxsize=64)
def _link(op, width, dtype, generation):
    return Sum(op, "x", "sums", width, dtype)


def _ready(x, edges, ends, op):
    """(HeteroGraph, its Graph from nodes to rows by relation, its link)."""
    begins, finals = ends[::2], ends[1::2]
    graph = hetero_graph(
        {(begin, number, final): part for number, (begin, final, part) in
         enumerate(zip(begins, finals, edges))},
        {number: (part.size(0) if number in begins else 0,
                  part.size(0) if number in finals else 0)
         for number, part in enumerate(x)})
    matrix = graph.graph(graph.by_relation("dst"), graph.by_node("src"))
    if _recording.current is not None:
        _recording.current.graph(matrix)
    return graph, matrix, _link(op, x[0].size(1), x[0].dtype, generation())


def _sums(x, edges, ends, op):
    graph, matrix, link = _ready(x, edges, ends, op)
    if not graph.num_edges:
        return x[0].new_zeros(matrix.num_dst, x[0].size(1))
    values = {"x": torch.cat([x[kind] for kind, count in graph.num_src.items()
                              if count])}
    link.forward(matrix, values, False)
    return values["sums"]


def _sums_fake(x, edges, ends, op):
    rows = sum(x[final].size(0) for final in ends[1::2])
    return x[0].new_empty(rows, x[0].size(1))


def _gradients(grad, x, edges, ends, op):
    """Those of the types that send, one below the other."""
    graph, matrix, link = _ready(x, edges, ends, op)
    if not graph.num_edges:
        return grad.new_zeros(matrix.num_src, grad.size(1))
    grads = {"sums": grad.contiguous()}
    link.backward(matrix, {}, grads, {"x"})
    return grads["x"]


def _rows_sent(x, ends):
    begins = set(ends[::2])
    return [part.size(0) if kind in begins else 0
            for kind, part in enumerate(x)]


def _gradients_fake(grad, x, edges, ends, op):
    return grad.new_empty(sum(_rows_sent(x, ends)), grad.size(1))


def _save(ctx, inputs, output):
    x, edges, ends, op = inputs
    ctx.save_for_backward(*x, *edges)
    ctx.about = len(x), ends, op


def _derivative(ctx, grad):
    count, ends, op = ctx.about
    saved = ctx.saved_tensors
    x, begins = saved[:count], set(ends[::2])
    found = torch.ops.dfgnn.relation_gradients_of_edges(
        grad, x, saved[count:], ends, op).split(_rows_sent(x, ends))
    return ([part if wanted and kind in begins else None
             for kind, (part, wanted) in enumerate(
                 zip(found, ctx.needs_input_grad[0]))],
            [None] * (len(saved) - count), None, None)


if AVAILABLE:
    define("relation_sums", f"({_CALL}) -> Tensor", _sums, _sums_fake,
           _derivative, _save)
    define("relation_gradients", f"(Tensor grad, {_CALL}) -> Tensor",
           _gradients, _gradients_fake)


def sums(x, edges, ends, op):
    """[rows, F] the sums or means of the neighbours of each relation, in the
    rows of HeteroGraph.by_relation("dst")."""
    return torch.ops.dfgnn.relation_sums_of_edges(x, edges, ends, op)
