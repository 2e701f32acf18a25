"""Edge programs with wide linear maps: their function is noted as torch's calls
on rows, as messages of layers are, and the MLPs on edges among these are calls
of _mlp_kernels."""

import torch
import torch.nn.functional as F

from . import _nodes, _recorders, _trace
from ._nodes import Node
from ._programs import REL
from ._steps import staged
from ._trace import DST, EDGE, PARAM, SRC, TraceError, Value, refuse
from ._trace_errors import place_of_line

# products of a linear map of an edge from which an MLP is looked for
WIDE = 128
# the most that a program computes for an edge: DFGNN_BIND_PRODUCTS of C
PROGRAM = 1 << 14

_REDUCED = {"mean": "mean", "max": "amax", "min": "amin"}


# torch's functions of operations that _trace names otherwise
_SIGNS = {"+": (torch.add, "add"), "-": (torch.sub, "sub"),
          "*": (torch.mul, "mul"), "/": (torch.div, "div"),
          "max": (torch.maximum, "maximum"),
          "min": (torch.minimum, "minimum"),
          "matmul": (torch.matmul, "matmul"), "neg": (torch.neg, "neg")}
_COMPARED = {"<": (torch.lt, "lt"), "<=": (torch.le, "le"),
             "==": (torch.eq, "eq")}


class Rows(_recorders.Recorder):
    """Notes torch's calls: a value is a Node with the rows of its place and
    the value's axes."""

    def __init__(self):
        super().__init__()
        self.nodes, self._linear, self._lifted = [], {}, {}
        self._rows = {DST: _nodes.DESTINATIONS, SRC: _nodes.SOURCES,
                      EDGE: _nodes.EDGES}
        self._index = {
            place: self._given(("index", end), (_nodes.EDGES,), torch.int64,
                               EDGE, end)
            for place, end in ((DST, "i"), (SRC, "j"))}

    def _given(self, key, shape, dtype, place, end=None):
        made = Node(None, str(key), (), {}, torch.empty(
            shape, dtype=dtype, device="meta"), "", place, key, end)
        self.nodes.append(made)
        return made

    def _call(self, function, name, *args, **kwargs):
        metas = _nodes.mapped((args, kwargs), lambda x: x.meta if isinstance(
            x, Node) else x)
        made = Node(function, name, args, kwargs,
                    function(*metas[0], **metas[1]), place_of_line())
        made.end = _nodes.end_of(made)
        self.nodes.append(made)
        return made

    def leaf(self, name, tensor, place, shape):
        if place == REL:
            refuse("an MLP on edges has no tensors of relations")
        rows = () if place == PARAM else (self._rows[place],)
        key = "given", len(self.tensors) - 1
        return self._given(key, rows + shape, tensor.dtype, place)

    def number(self, x):
        return x

    def whole(self, name, values, *numbers):
        values = [None if v is None else self.value(v) for v in values]
        x = values[0]
        a = [None if v is None else v.handle for v in values]
        if name == "gelu_tanh":
            made = self._call(F.gelu, "gelu", a[0], approximate="tanh")
        elif name == "layer_norm":
            made = self._call(F.layer_norm, name, a[0], x.shape[-1:], a[1],
                              a[2], *numbers)
        else:
            made = self._call(F.rms_norm, name, a[0], x.shape[-1:], a[1],
                              *numbers)
        return Value(self, made, x.place, x.shape)

    def make(self, name, values, numbers, place, shape):
        return Value(self, self._made(name, values, numbers, place, shape),
                     place, shape)

    def _made(self, name, values, numbers, place, shape):
        if name in _trace.OVER_EDGES:
            return self._over(name, values[0])
        if name == "linear":
            return self._map(values, place)
        if name == "+" and self._bias(values):
            x, weight = self._linear[id(values[0].handle)]
            return self._call(F.linear, "linear", x, weight,
                              values[1].handle)
        return self._compute(name, [self._at(v, place, len(shape))
                                    for v in values], numbers, place, shape)

    def _at(self, v, place, rank):
        """The tensor at a place, with axes of size 1 before its own."""
        x = v.handle
        if isinstance(x, float) or v.place == PARAM:
            return x
        if v.place != place:
            key = id(x)
            if key not in self._lifted:
                self._lifted[key] = x, self._call(
                    torch.index_select, "index_select", x, 0,
                    self._index[v.place])
            x = self._lifted[key][1]
        missing = rank - len(v.shape)
        return self._viewed(x, x.shape[:1] + (1,) * missing + v.shape) \
            if missing > 0 else x

    def _viewed(self, x, shape):
        return self._call(torch.Tensor.view, "view", x, tuple(shape))

    def _map(self, values, place):
        x, weight = values
        if weight.place != PARAM or x.place == PARAM or \
                len(weight.shape) != 2:
            refuse("a linear map that is no parameter's")
        x = self._at(x, place, 0)
        made = self._call(F.linear, "linear", x, weight.handle)
        self._linear[id(made)] = x, weight.handle
        self._kept_alive.append(made)  # so that no other gets its id
        return made

    def _bias(self, values):
        """Whether a sum is that of a map and its bias."""
        x, bias = values
        return id(x.handle) in self._linear and bias.place == PARAM and \
            not isinstance(bias.handle, float) and \
            bias.shape == x.shape[-1:]

    def _over(self, name, v):
        what, end = name.rsplit("_", 1)
        place = {"in": DST, "out": SRC}.get(end)
        if place is None:
            refuse(f"an MLP on edges beside {name}")
        if isinstance(v.handle, float) or v.place == PARAM:
            refuse(f"{name} of what is the same for all edges")
        return self._reduced(what, self._at(v, EDGE, 0), self._index[place],
                             self._rows[place])

    def _reduced(self, what, x, index, size):
        """As Facts know it, which have no values to look at."""
        call = self._call
        zero = call(torch.Tensor.new_zeros, "new_zeros", x,
                    (size, *x.shape[1:]))

        def add(x):
            return call(torch.index_add, "index_add", zero, 0, index, x)

        def reduce(x, how):
            full = self._viewed(index, (-1,) + (1,) * (len(x.shape) - 1))
            full = call(torch.Tensor.expand_as, "expand_as", full, x)
            return call(torch.scatter_reduce, "scatter_reduce", zero, 0, full,
                        x, how, include_self=False)

        def lift(x):
            return call(torch.index_select, "index_select", x, 0, index)
        if what == "sum":
            return add(x)
        if what in _REDUCED:
            return reduce(x, _REDUCED[what])
        top = reduce(call(torch.detach, "detach", x), "amax")
        e = call(torch.exp, "exp", call(torch.sub, "sub", x, lift(top)))
        total = add(e)
        if what == "softmax":
            return call(torch.div, "div", e, lift(total))
        return call(torch.add, "add", top, call(torch.log, "log", total))

    def _compute(self, name, a, numbers, place, shape):
        if name == "reshape":
            rows = () if place == PARAM else a[0].shape[:1]
            return self._viewed(a[0], rows + shape)
        if name == "cat":
            return self._call(torch.cat, "cat", a, -1)
        if name == "where":
            there = self._call(torch.ne, "ne", a[0], 0)
            return self._call(torch.where, "where", there, *a[1:])
        if name in _COMPARED:
            x = next(x for x in a if isinstance(x, Node))
            function, name = _COMPARED[name]
            made = self._call(function, name, *self._tensors(a, x))
            return self._call(torch.Tensor.to, "to", made, x.meta.dtype)
        if name in _SIGNS:
            function, name = _SIGNS[name]
            if name in ("maximum", "minimum"):
                a = self._tensors(a, next(x for x in a if isinstance(
                    x, Node)))
            elif not isinstance(a[0], Node) and name in ("sub", "div"):
                a = self._tensors(a, a[1])
            elif not isinstance(a[0], Node):
                a = a[::-1]
            return self._call(function, name, *a)
        if name in ("sum", "mean", "amax", "amin", "logsumexp"):
            return self._call(getattr(torch, name), name, a[0], numbers[0],
                              keepdim=True)
        if name == "slice":
            return self._call(torch.narrow, "narrow", a[0], numbers[2],
                              numbers[0], numbers[1] - numbers[0])
        function = getattr(F, name, None) or getattr(torch, name)
        return self._call(function, name, *a, *numbers)

    def _tensors(self, a, like):
        """Numbers as tensors of no axes."""
        return [x if isinstance(x, Node) else self._call(
            torch.Tensor.new_full, "new_full", like, (), float(x))
            for x in a]


def _check(steps, writes):
    """Raises TraceError unless MLPs and programs are all that runs by edge.
    writes: whether values between them may be tensors by edge."""
    kinds = steps.called
    if "mlp" not in kinds.values():
        raise TraceError("its linear maps are no MLP on edges: layers of sums "
                         "of maps of i, j and e, with one activation between "
                         "them")
    for node, kind in kinds.items():
        fact = steps.facts.of(node)
        if kind != "mlp" and fact.rows == _nodes.EDGES and (
                kind == "wide" or fact.place == EDGE):
            raise TraceError((node.line + ": " if node.line else "") +
                             f"{node.name} would write {list(node.shape[1:])} "
                             "for each edge outside of the MLP")
    if writes:
        return
    between = {node for stage in steps.programs for node in (
        *stage.inputs, *stage.outputs)} - set(steps.stages.outputs)
    for node in map(steps.facts.now, between):
        fact = steps.facts.of(node)
        if fact.rows == _nodes.EDGES and fact.role not in ("given", "lift"):
            raise TraceError(f"{list(node.shape[1:])} for each edge would be "
                             "written between it and a program")


def steps_of(trace, writes=True):
    """(the Steps, the tensors that it is given) of what a function returns,
    trace(recorder); raises TraceError if it is not one of MLPs on edges.
    writes: whether what is between those and programs may be written."""
    recorder = Rows()
    try:
        values, _ = trace(recorder)
        handles = [v.handle for v in values]
        if any(isinstance(x, float) or v.place == PARAM
               for x, v in zip(handles, values)):
            raise TraceError("it returns a value that has no rows")
        if len({t.dtype for t in recorder.tensors}) != 1:
            raise TraceError("its tensors are of several types")
        steps = staged(recorder.nodes, handles, whole=False)
    except (TraceError, TypeError, RuntimeError) as error:
        raise TraceError(str(error)) from None
    _check(steps, writes)
    return steps, recorder.tensors


def run(steps, graph, tensors):
    """The outputs; tensors by edge are in the caller's order."""
    with torch.autocast(graph.device.type, enabled=False):
        return steps.run(graph, lambda key: tensors[key[1]])
