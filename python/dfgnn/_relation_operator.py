"""Sums of neighbours over all relations while torch.compile traces, as a
family of _torch_operator.py.

A call's text has what is made (sums, or the gradients of features), the
operator and, for each relation, the numbers of the types that it begins and
ends at.  Its tensors are the gradient of the sums, where those of features are
made, the features of each type, and the edge_index of each relation but the
first, which stands in the place of the call's own.
"""

import functools
from typing import NamedTuple

import torch

from . import _recording
from ._execute import generation
from ._kernel_links import Sum
from .hetero import hetero_graph
from ._torch_operator import Family


@functools.lru_cache(maxsize=64)
def _link(op, width, dtype, generation):
    return Sum(op, "x", "sums", width, dtype)


def _text(what, op, ends):
    return "|".join((what, op, ",".join([str(end) for end in ends])))


class _Read(NamedTuple):
    """A call as its text says it."""
    op: str
    ends: list
    grad: list  # the gradient of the sums, or nothing
    x: list
    edges: list

    @classmethod
    def of(cls, call):
        what, op, ends = call.text.split("|")
        ends = list(map(int, ends.split(",")))
        grad, x = (call.tensors[:1], call.tensors[1:]) \
            if what == "gradients" else ([], call.tensors)
        count = len(x) - len(ends) // 2 + 1
        return cls(op, ends, grad, x[:count],
                   [call.edge_index, *x[count:]])

    def ready(self):
        """(HeteroGraph, its Graph from nodes to rows by relation, its
        link)."""
        begins, finals = self.ends[::2], self.ends[1::2]
        graph = hetero_graph(
            {(begin, number, final): part for number, (begin, final, part) in
             enumerate(zip(begins, finals, self.edges))},
            {number: (part.size(0) if number in begins else 0,
                      part.size(0) if number in finals else 0)
             for number, part in enumerate(self.x)})
        matrix = graph.graph(graph.by_relation("dst"), graph.by_node("src"))
        if _recording.current is not None:
            _recording.current.graph(matrix)
        return graph, matrix, _link(self.op, self.x[0].size(1),
                                    self.x[0].dtype, generation())

    def rows_sent(self):
        begins = set(self.ends[::2])
        return [part.size(0) if kind in begins else 0
                for kind, part in enumerate(self.x)]

    def rows_made(self):
        return sum(self.rows_sent()) if self.grad else \
            sum(self.x[final].size(0) for final in self.ends[1::2])


class _Relations(Family):
    name = "relations"

    def run(self, call):
        """One tensor: the sums, or the gradients of the types that send, one
        below the other."""
        read = _Read.of(call)
        graph, matrix, link = read.ready()
        if not graph.num_edges:
            return [read.x[0].new_zeros(
                matrix.num_src if read.grad else matrix.num_dst,
                read.x[0].size(1))]
        if read.grad:
            grads = {"sums": read.grad[0].contiguous()}
            link.backward(matrix, {}, grads, {"x"})
            return [grads["x"]]
        values = {"x": torch.cat([
            read.x[kind] for kind, count in graph.num_src.items() if count])}
        link.forward(matrix, values, False)
        return [values["sums"]]

    def fake(self, call):
        read = _Read.of(call)
        return [read.x[0].new_empty(read.rows_made(), read.x[0].size(1))]

    def derive(self, call, outs, grads, wanted):
        read = _Read.of(call)
        found, = self(_text("gradients", read.op, read.ends), call[3:],
                      [*grads, *call.tensors])
        begins = set(read.ends[::2])
        return [part if want and kind in begins else None
                for kind, (part, want) in enumerate(zip(
                    found.split(read.rows_sent()), wanted))] + [None] * (
            len(read.edges) - 1)


run = _Relations()
"""The outputs of (text, place, tensors)."""


def sums(x, edges, ends, op):
    """[rows, F] the sums or means of the neighbours of each relation, in the
    rows of HeteroGraph.by_relation("dst").

    x: features of each type.
    edges: the edge_index of each relation; ends: for each the numbers of the
        types that it begins and ends at.
    op: spmm-sum or spmm-mean.
    """
    return run(_text("sums", op, ends), (edges[0], 0, 0, 0, 0),
               [*x, *edges[1:]])[0]
