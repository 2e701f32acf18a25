"""The graphs that a step of dfgnn.capture() reads, and the tensors that they
were made of."""

import contextlib

from ._stamp import stamp

current = None
"""The Recording at work, or None."""


class Recording:
    """graphs: by id, those that kernels ran on.  sources: by id, (tensor, its
    stamp) of the tensors that kept objects were made of.  counts: a Counts of
    the step, or None.  graph_of_own: the graph of an edge_index that the step
    itself makes, of num_nodes (sources, destinations); None: one as of others."""

    def __init__(self, counts=None, graph_of_own=None):
        self.counts, self.graph_of_own = counts, graph_of_own
        self.graphs = {}
        self.sources = {}

    def graph(self, graph):
        self.graphs[id(graph)] = graph

    def source(self, tensor):
        self.sources[id(tensor)] = (tensor, stamp(tensor))


@contextlib.contextmanager
def recording(into):
    global current
    before, current = current, into
    try:
        yield
    finally:
        current = before
