"""Calls of torch on rows of edges and nodes, as a graph of which programs are
made.

How many edges and nodes there are is not known meanwhile: numbers that no layer
has as a number of features stand for them in shapes.
"""

import torch

# Primes that no layer has as a number of features, so that the rows of edges
# and nodes are known in a shape.
EDGES, DESTINATIONS, SOURCES = 1299709, 1299721, 1299743
# rows up to the largest index of a destination, and of a source
TOP_DESTINATION, TOP_SOURCE = 1299763, 1299791
ROWS = {EDGES: "edges", DESTINATIONS: "destinations", SOURCES: "sources",
        TOP_DESTINATION: "destinations that have an edge",
        TOP_SOURCE: "sources that have an edge"}

VIEWS = {"view", "reshape", "unsqueeze", "squeeze", "transpose", "permute",
         "expand", "expand_as", "flatten", "unflatten", "__getitem__",
         "select", "narrow", "chunk", "split", "unbind", "detach", "t", "T",
         "mT", "view_as", "contiguous", "to", "float", "double", "type_as",
         "movedim", "swapaxes", "reshape_as", "broadcast_to", "data", "type"}


class Node:
    """One call, or a tensor that is given (function is None).

    meta: a tensor of its shape and type, or several; line: of the caller;
    place: of a given tensor; key: what the given tensor is to the caller;
    end: "i" or "j" of an index by edge, "ij" of both.
    """

    __slots__ = ("function", "name", "args", "kwargs", "meta", "line", "place",
                 "key", "end", "clones", "flat")

    def __init__(self, function, name, args, kwargs, meta, line, place=None,
                 key=None, end=None):
        self.function, self.name = function, name
        self.args, self.kwargs, self.meta = args, kwargs, meta
        self.line, self.place, self.key, self.end = line, place, key, end
        self.clones = False  # whether the first argument is written to
        self.flat = not any(isinstance(x, (tuple, list, dict, slice))
                            for x in (*args, *kwargs.values()))

    @property
    def shape(self):
        return tuple(self.meta.shape)

    def operands(self):
        found = []
        _each((self.args, self.kwargs), found.append)
        return found

    def __repr__(self):
        return f"{self.name}{list(self.shape)}"


def _each(tree, function):
    if isinstance(tree, Node):
        function(tree)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            _each(item, function)
    elif isinstance(tree, dict):
        for item in tree.values():
            _each(item, function)


def mapped(tree, function):
    """The same nested tuples, lists and dicts of function(leaf)."""
    if type(tree) is tuple or type(tree) is torch.Size:
        return tuple(mapped(item, function) for item in tree)
    if isinstance(tree, tuple):  # a named one
        return type(tree)(*(mapped(item, function) for item in tree))
    if isinstance(tree, list):
        return [mapped(item, function) for item in tree]
    if isinstance(tree, dict):
        return {k: mapped(item, function) for k, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(mapped(x, function)
                       for x in (tree.start, tree.stop, tree.step)))
    return function(tree)
