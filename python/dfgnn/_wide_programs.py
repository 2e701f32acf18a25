"""Edge programs with wide linear maps: their function is noted as torch's calls
on rows, as messages of layers are, and the MLPs on edges among these are calls
of _mlp_kernels."""

import torch
import torch.nn.functional as F
from torch import Tensor

from . import _evaluators, _nodes
from ._nodes import Node
from ._program_calls import REL
from ._steps import staged
from ._trace import DST, EDGE, PARAM, SRC, TraceError, Value, refuse
from ._trace_errors import place_of_line

# the most that a program computes for an edge: DFGNN_BIND_PRODUCTS of C
PROGRAM = 1 << 14

_REDUCED = {"mean": "mean", "max": "amax", "min": "amin"}


class Rows(_evaluators.Torch):
    """Notes torch's calls: a value is a Node with the rows of its place and
    the value's axes."""

    def __init__(self):
        super().__init__(None)
        self.nodes, self._linear = [], {}
        self._sizes = {DST: _nodes.DESTINATIONS, SRC: _nodes.SOURCES,
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

    def call(self, function, *args, **kwargs):
        metas = _nodes.mapped((args, kwargs), lambda x: x.meta if isinstance(
            x, Node) else x)
        name = function.__name__ if function is not torch.index_select else \
            "index_select"  # which another package may have replaced
        made = Node(function, name, args, kwargs,
                    function(*metas[0], **metas[1]), place_of_line())
        if isinstance(args[0], Node) and name in ("view", "expand_as"):
            made.end = args[0].end  # that of an index stays
        self.nodes.append(made)
        return made

    def leaf(self, name, tensor, place, shape):
        if place == REL:
            refuse("an MLP on edges has no tensors of relations")
        rows = () if place == PARAM else (self._sizes[place],)
        key = "given", len(self.tensors) - 1
        return self._given(key, rows + shape, tensor.dtype, place)

    def whole(self, name, values, *numbers):
        values = [None if v is None else self.value(v) for v in values]
        x, *more = [None if v is None else v.handle for v in values]
        if name == "gelu_tanh":
            made = self.call(F.gelu, x, approximate="tanh")
        else:
            made = self.call(getattr(F, name), x, x.shape[-1:], *more,
                             *numbers)
        return Value(self, made, values[0].place, values[0].shape)

    def _gathered(self, x, place):
        return self.call(torch.index_select, x, 0, self._index[place])

    def _product(self, name, x, weight, place, shape):
        if weight.place != PARAM or x.place == PARAM or \
                len(weight.shape) != 2:
            refuse("a linear map that is no parameter's")
        if name != "linear":
            return super()._product(name, x, weight, place, shape)
        x = self._at(x, place)
        made = self.call(F.linear, x, weight.handle)
        self._linear[made] = x, weight.handle
        return made

    def _made(self, name, values, numbers, place, shape):
        known = self._linear.get(values[0].handle) if name == "+" else None
        bias = values[-1]
        if known and bias.place == PARAM and bias.shape == shape[-1:] and \
                not isinstance(bias.handle, float):
            return self.call(F.linear, *known, bias.handle)
        return super()._made(name, values, numbers, place, shape)

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
