"""Sums of neighbours over all relations while torch.compile traces, as a
family of _torch_library.py.

A call is named by its operator and says whether gradients of features are made,
or sums, and for each relation the numbers of the types that it begins and
ends at.  Its tensors are the gradient of the sums, where those of features are
made, the features of each type, and the edge_index of each relation but the
first, which stands in the place of the call's own.
"""

import torch

from .. import _operators
from .._execute import sum_settings
from ..hetero import hetero_graph
from .._torch_library import Family


class _Read:
    """The arguments of a call by name."""

    def __init__(self, call):
        self.op, (gradients, *ends) = call.name, call.counts
        self.begins, self.finals = ends[::2], ends[1::2]
        tensors = list(call.tensors)
        self.grad = tensors.pop(0) if gradients else None
        count = len(tensors) - len(self.begins) + 1
        self.x, self.edges = tensors[:count], [call.edge_index,
                                               *tensors[count:]]
        # by type how many rows are sent
        self.sent = [part.size(0) if kind in self.begins else 0
                     for kind, part in enumerate(self.x)]

    def graph(self):
        relations = zip(self.begins, self.finals, self.edges)
        return hetero_graph(
            {(begin, number, final): part for number, (begin, final, part) in
             enumerate(relations)},
            {kind: (sent, self.x[kind].size(0) if kind in self.finals else 0)
             for kind, sent in enumerate(self.sent)})

    def empty(self):
        """The result before it is written."""
        rows = sum(self.x[final].size(0) for final in self.finals) \
            if self.grad is None else sum(self.sent)
        return self.x[0].new_empty(rows, self.x[0].size(1))


class _Relations(Family):
    name = "relations"

    def run(self, call):
        """One tensor: the sums, or the gradients of the types that send, one
        below the other."""
        read = _Read(call)
        graph = read.graph()
        if not graph.num_edges:
            return [read.empty().zero_()]
        matrix = graph.graph(graph.by_relation("dst"), graph.by_node("src"))
        if read.grad is None:
            x = torch.cat([part for part, rows in zip(read.x, read.sent)
                           if rows])
        else:  # a tensor of its shape, which nothing reads
            x = read.x[0].new_empty(()).expand(
                matrix.num_src, read.x[0].size(1))
        recipe = _operators.recipe(matrix, read.op, (x,), sum_settings())
        return recipe.forward(matrix, (x,)) if read.grad is None else \
            recipe.backward(matrix, (), (read.grad.contiguous(),), (True,))

    def fake(self, call):
        return [_Read(call).empty()]

    def derive(self, call, outs, grads, wanted):
        read = _Read(call)
        grad, = self((call.name, [1, *call.counts[1:]], ()), call[4:],
                     [*grads, *call.tensors])
        return [part if want and kind in read.begins else None
                for kind, (part, want) in enumerate(zip(
                    grad.split(read.sent), wanted))] + [None] * (
            len(read.edges) - 1)


run = _Relations()
"""The outputs of ((name, counts, numbers), place, tensors)."""


def sums(x, edges, ends, op):
    """[rows, F] the sums or means of the neighbours of each relation, in the
    rows of HeteroGraph.by_relation("dst").

    x: features of each type.
    edges: the edge_index of each relation; ends: for each the numbers of the
        types that it begins and ends at.
    op: spmm-sum or spmm-mean.
    """
    return run((op, [0, *ends], ()), (edges[0], 0, 0, 0, 0),
               [*x, *edges[1:]])[0]
