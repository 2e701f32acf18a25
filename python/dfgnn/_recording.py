"""What a step that dfgnn.capture() runs reads beside its tensors: the graphs,
and the tensors they were made of."""

import contextlib

current = None
"""The Recording at work, or None."""


class Recording:
    """graphs: those that kernels ran on.  sources: (tensor, its version) of
    whatever something was made of once and kept."""

    def __init__(self):
        self.graphs = {}
        self.sources = {}

    def graph(self, graph):
        self.graphs[id(graph)] = graph

    def source(self, tensor):
        self.sources[id(tensor)] = (tensor, tensor._version)


@contextlib.contextmanager
def recording(into):
    global current
    before, current = current, into
    try:
        yield
    finally:
        current = before
