"""Calls of torch on rows of edges and nodes, as a graph of which programs are
made; and the recorder that notes those of an edge program's function.

How many edges and nodes there are is not known meanwhile: numbers that no layer
has as a number of features stand for them in shapes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor
# the same nested tuples, lists, dicts and slices of function(leaf)
from torch.fx.node import map_aggregate as mapped

from . import _evaluators
from ._program_handle import DST, EDGE, PARAM, REL, SRC
from ._trace import Value
from ._trace_errors import place_of_line, refuse

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
        nodes = []
        mapped((self.args, self.kwargs), lambda x: nodes.append(x) if isinstance(
            x, Node) else None)
        return nodes

    def arguments(self, *names):
        """The arguments by name; names: of those that are given by place."""
        return dict(zip(names, self.args), **self.kwargs)

    def __repr__(self):
        return f"{self.name}{list(self.shape)}"


# ---- an edge program's function, as layers' messages are noted ---------------

_REDUCED = {"mean": "mean", "max": "amax", "min": "amin"}


class Noted(_evaluators.Torch):
    """Notes torch's calls: a value is a Node with the rows of its place and
    the value's axes."""

    def __init__(self):
        super().__init__(None)
        self.nodes, self._linear = [], {}
        self._sizes = {DST: DESTINATIONS, SRC: SOURCES,
                       EDGE: EDGES}
        self._index = {
            place: self._argument(("index", end), (EDGES,), torch.int64,
                                  EDGE, end)
            for place, end in ((DST, "i"), (SRC, "j"))}

    def _argument(self, key, shape, dtype, place, end=None):
        node = Node(None, str(key), (), {}, torch.empty(
            shape, dtype=dtype, device="meta"), "", place, key, end)
        self.nodes.append(node)
        return node

    def call(self, function, *args, **kwargs):
        metas = mapped((args, kwargs), lambda x: x.meta if isinstance(
            x, Node) else x)
        name = function.__name__ if function is not torch.index_select else \
            "index_select"  # which another package may have replaced
        node = Node(function, name, args, kwargs,
                    function(*metas[0], **metas[1]), place_of_line())
        if isinstance(args[0], Node) and name in ("view", "expand_as"):
            node.end = args[0].end  # that of an index stays
        self.nodes.append(node)
        return node

    def leaf(self, name, tensor, place, shape):
        if place == REL:
            refuse("an MLP on edges has no tensors of relations")
        rows = () if place == PARAM else (self._sizes[place],)
        key = "given", len(self.tensors) - 1
        return self._argument(key, rows + shape, tensor.dtype, place)

    def whole(self, name, values, *numbers):
        values = [None if v is None else self.value(v) for v in values]
        x, *more = [None if v is None else v.handle for v in values]
        if name == "gelu_tanh":
            handle = self.call(F.gelu, x, approximate="tanh")
        else:
            handle = self.call(getattr(F, name), x, x.shape[-1:], *more,
                               *numbers)
        return Value(self, handle, values[0].place, values[0].shape)

    def _gathered(self, x, place):
        return self.call(torch.index_select, x, 0, self._index[place])

    def _product(self, name, x, weight, place, shape):
        if weight.place != PARAM or x.place == PARAM or \
                len(weight.shape) != 2:
            refuse("a linear map that is no parameter's")
        if name != "linear":
            return super()._product(name, x, weight, place, shape)
        x = self._at(x, place)
        product = self.call(F.linear, x, weight.handle)
        self._linear[product] = x, weight.handle
        return product

    def _operation(self, name, values, numbers, place, shape):
        known = self._linear.get(values[0].handle) if name == "+" else None
        bias = values[-1]
        if known and bias.place == PARAM and bias.shape == shape[-1:] and \
                not isinstance(bias.handle, float):
            return self.call(F.linear, *known, bias.handle)
        return super()._operation(name, values, numbers, place, shape)

    def _over(self, name, v):
        what, end = name.rsplit("_", 1)
        place = {"in": DST, "out": SRC}.get(end)
        if place is None:
            refuse(f"an MLP on edges beside {name}")
        if isinstance(v.handle, float) or v.place == PARAM:
            refuse(f"{name} of what is the same for all edges")
        return self._reduced(what, self._at(v, EDGE), self._index[place],
                             self._sizes[place])

    def _reduced(self, what, x, index, size):
        """The same as Facts know it, which have no values to look at."""
        call = self.call
        zero = call(Tensor.new_zeros, x, (size, *x.shape[1:]))

        def add(x):
            return call(torch.index_add, zero, 0, index, x)

        def reduce(x, how):
            full = call(Tensor.view, index, (-1,) + (1,) * (len(x.shape) - 1))
            full = call(Tensor.expand_as, full, x)
            return call(torch.scatter_reduce, zero, 0, full, x, how,
                        include_self=False)

        def lift(x):
            return call(torch.index_select, x, 0, index)
        if what == "sum":
            return add(x)
        if what in _REDUCED:
            return reduce(x, _REDUCED[what])
        top = reduce(call(torch.detach, x), "amax")
        e = call(torch.exp, call(torch.sub, x, lift(top)))
        total = add(e)
        if what == "softmax":
            return call(torch.div, e, lift(total))
        return call(torch.add, top, call(torch.log, total))
