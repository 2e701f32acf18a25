"""The steps made of the graph of a layer's propagate() or edge_updater(): programs,
and torch's calls between them."""

import operator
import re

import torch

from ..._fx import Notes, source_of
from ..._nodes import EDGES
from ..._step_times import tensors_in
from ..._steps import staged
from ..._trace import TraceError
from ._edges import graph_made_of


def own_function(kind, name, argument=None):
    """A class's own propagate() or edge_updater(); with an argument, the
    propagate() whose argument of this name edge_updater() makes."""
    if argument is not None:
        def function(layer, edge_index, size, kwargs):
            value = kind.edge_updater(layer, edge_index, size=kwargs["size"],
                                      **kwargs["edge_updater"])
            return kind.propagate(layer, edge_index, size=size,
                                  **kwargs["propagate"], **{argument: value})
    elif name == "propagate":
        def function(layer, edge_index, size, kwargs):
            return kind.propagate(layer, edge_index, size=size, **kwargs)
    else:
        def function(layer, edge_index, size, kwargs):
            return kind.edge_updater(layer, edge_index, size=size, **kwargs)
    return function


def notes_of(module, numbers=()):
    """(the Notes of a graph, the number of its edge_index)."""
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    for k, node in enumerate(placeholders):
        if source_of(node) == "L['edge_index']":
            return Notes(module, node, numbers), k
    raise TraceError("its result does not depend on the edges")


class Sizes:
    """Where the numbers of nodes and edges of a call are found."""

    def __init__(self, module, rows):
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        self.sources = self._place_of(placeholders, rows.sources)
        self.destinations = self._place_of(placeholders, rows.destinations)
        self.flipped = rows.flipped
        # placeholders that are numbers of edges or of nodes
        self.edges, self.nodes = [], []
        for k, node in enumerate(placeholders):
            value = node.meta["example_value"]
            if isinstance(value, torch.SymInt):
                rows_of = rows.counted.get(value.node.expr)
                if rows_of is not None:
                    (self.edges if rows_of == EDGES else self.nodes).append(k)

    @staticmethod
    def _place_of(placeholders, size):
        if isinstance(size, int):
            return None, size
        for k, node in enumerate(placeholders):
            value = node.meta["example_value"]
            if isinstance(value, torch.SymInt):
                if value.node.expr == size.node.expr:
                    return k, None
            elif isinstance(value, torch.Tensor):
                for dim, n in enumerate(value.shape):
                    if isinstance(n, torch.SymInt) and \
                            n.node.expr == size.node.expr:
                        return k, dim
        raise TraceError("nothing says how many nodes there are")

    def number(self, where, args):
        k, dim = where
        if k is None:
            return dim
        return int(args[k]) if dim is None else args[k].size(dim)

    def graph(self, args, edges):
        return graph_made_of(edges, self.flipped, self.number(
            self.sources, args), self.number(self.destinations, args))


class Programs:
    """Steps in the place of a graph, called with its arguments."""

    def __init__(self, module, numbers):
        notes, self.edges = notes_of(module, numbers)
        self.sizes = Sizes(module, notes.rows)
        self.places = notes.places
        # what may have a gradient: arguments and parameters
        self.derived = {k for k, node in enumerate(
            n for n in module.graph.nodes if n.op == "placeholder")
            if source_of(node).startswith("L['kwargs']") or getattr(
                node.meta["example_value"], "requires_grad", False)}
        self.apart = _apart(module)
        self.numbers = numbers_of(module)
        self.sources = [source_of(n) for n in module.graph.nodes
                        if n.op == "placeholder"]
        self.steps = self._staged(notes)
        self.written = [node.key[1] for node in notes.written]
        self.notes = notes
        self.module = module

    @staticmethod
    def hint(size):
        """A size as it was when the graph was made."""
        return size if isinstance(size, int) else size.node.hint

    @staticmethod
    def _staged(notes, with_dropout=True):
        return staged(notes.nodes, notes.tree, notes.effects, with_dropout)

    def without_dropout(self):
        return self._staged(self.notes, False) if self.steps.random \
            else self.steps

    def run(self, args, steps=None):
        graph = self.sizes.graph(args, args[self.edges])

        def fetch(key):
            if key[0] == "given":  # of those apart it is None, and not zeros
                x = args[key[1]]
                return x.detach() if key[1] in self.apart else x
            raise TraceError("an index is used as numbers")
        return (steps or self.steps).run(graph, fetch)

    def probe(self, args):
        self.steps.probe(self.sizes.graph(args, args[self.edges]))


def _has_real(node):
    """Whether a gradient may lead to the value of a node."""
    return any(x.is_floating_point() or x.is_complex() for x in tensors_in(
        node.meta.get("example_value", torch.ones(()))))


def _apart(module):
    """The numbers of the placeholders to which no gradient of the results leads,
    as autograd follows calls."""
    followed, nodes = set(), module.graph.nodes
    for node in reversed(nodes):
        name = node.target if isinstance(node.target, str) else getattr(
            node.target, "__name__", "")
        writes = re.search("[^_]_$", name) or name == "setitem" or \
            name.startswith("i") and hasattr(operator, name) or \
            not {"inplace", "out"}.isdisjoint(node.kwargs)
        ends = re.search("^detach$|^new_|_like$", name) or not _has_real(node)
        if writes or node.op == "output" or node in followed and not ends:
            # view_as(y), say, asks for y's shape or type alone
            only = node.op != "output" and re.search("^to$|_as$", name)
            followed.update(node.all_input_nodes[:1 if only else None])
    return {k for k, node in enumerate(
        n for n in nodes if n.op == "placeholder")
        if node not in followed and _has_real(node)}


def numbers_of(module):
    """By source, the numbers that a graph is given as tensors."""
    numbers = {}
    for node in module.graph.nodes:
        value = node.meta.get("example_value")
        if isinstance(value, torch.SymFloat) and node.args and isinstance(
                node.args[0], torch.fx.Node) and \
                node.args[0].op == "placeholder":
            numbers[source_of(node.args[0])] = value.node.hint
    return numbers
