"""Edge programs with wide linear maps: their function is noted as torch's calls
on rows, as messages of layers are, and the MLPs on edges among these are calls
of _mlp."""

import torch
import torch.nn.functional as F

from . import _mlp, _recorders, _trace, _watch
from ._programs import REL
from ._steps import Steps, staged
from ._trace import DST, EDGE, PARAM, SRC, TraceError, Value, refuse
from .errors import InvalidError

# products of a linear map of an edge from which an MLP is looked for
WIDE = 128
# the most that a program computes for an edge: DFGNN_BIND_PRODUCTS of C
PROGRAM = 1 << 14

_REDUCED = {"mean": "mean", "max": "amax", "min": "amin"}


class Rows(_recorders.Recorder):
    """Has a watch note torch's calls: a value's tensor has the rows of its
    place and the value's axes."""

    def __init__(self, watch):
        super().__init__()
        self._watch, self._linear, self._lifted = watch, {}, {}
        self._rows = {DST: _watch.DESTINATIONS, SRC: _watch.SOURCES,
                      EDGE: _watch.EDGES}
        self._index = {
            place: watch.given(("index", end), (_watch.EDGES,), torch.int64,
                               EDGE, end)
            for place, end in ((DST, "i"), (SRC, "j"))}

    def leaf(self, name, tensor, place, shape):
        if place == REL:
            refuse("an MLP on edges has no tensors of relations")
        rows = () if place == PARAM else (self._rows[place],)
        key = "given", len(self.tensors) - 1
        return self._watch.given(key, rows + shape, tensor.dtype, place)

    def number(self, x):
        return x

    def whole(self, name, values, *numbers):
        values = [None if v is None else self.value(v) for v in values]
        x = values[0]
        a = [None if v is None else v.handle for v in values]
        with self._watch:
            if name == "gelu_tanh":
                made = F.gelu(a[0], approximate="tanh")
            elif name == "layer_norm":
                made = F.layer_norm(a[0], x.shape[-1:], a[1], a[2], *numbers)
            else:
                made = F.rms_norm(a[0], x.shape[-1:], a[1], *numbers)
        return Value(self, made, x.place, x.shape)

    def make(self, name, values, numbers, place, shape):
        with self._watch:
            return Value(self, self._made(name, values, numbers, place,
                                          shape), place, shape)

    def _made(self, name, values, numbers, place, shape):
        if name in _trace.OVER_EDGES:
            return self._over(name, values[0])
        if name == "linear":
            return self._map(values, place)
        if name == "+" and self._bias(values):
            x, weight = self._linear[id(values[0].handle)]
            return F.linear(x, weight, values[1].handle)
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
                self._lifted[key] = x, x.index_select(0, self._index[v.place])
            x = self._lifted[key][1]
        missing = rank - len(v.shape)
        return x.view(x.shape[:1] + (1,) * missing + v.shape) \
            if missing > 0 else x

    def _map(self, values, place):
        x, weight = values
        if weight.place != PARAM or x.place == PARAM or \
                len(weight.shape) != 2:
            refuse("a linear map that is no parameter's")
        x = self._at(x, place, 0)
        made = F.linear(x, weight.handle)
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

    @staticmethod
    def _reduced(what, x, index, size):
        """As the trace knows it, which has no values to look at."""
        zero = x.new_zeros((size, *x.shape[1:]))
        if what == "sum":
            return zero.index_add(0, index, x)
        full = index.view(-1, *(1,) * (x.dim() - 1)).expand_as(x)
        if what in _REDUCED:
            return zero.scatter_reduce(0, full, x, _REDUCED[what],
                                       include_self=False)
        top = zero.scatter_reduce(0, full, x.detach(), "amax",
                                  include_self=False)
        e = (x - top.index_select(0, index)).exp()
        total = zero.index_add(0, index, e)
        return e / total.index_select(0, index) if what == "softmax" else \
            top + total.log()

    def _compute(self, name, a, numbers, place, shape):
        if name == "reshape":
            rows = () if place == PARAM else a[0].shape[:1]
            return a[0].reshape(rows + shape)
        if name == "cat":
            return torch.cat(a, -1)
        if name == "where":
            return torch.where(a[0] != 0, *a[1:])
        return _recorders.computed(name, a, numbers)


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
        if kind != "mlp" and fact.rows == _watch.EDGES and (
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
        if fact.rows == _watch.EDGES and fact.role not in ("given", "lift"):
            raise TraceError(f"{list(node.shape[1:])} for each edge would be "
                             "written between it and a program")


def steps_of(trace, device, writes=True):
    """(the Steps, the tensors that it is given) of what a function returns,
    trace(recorder); raises TraceError if it is not one of MLPs on edges.
    writes: whether what is between those and programs may be written."""
    if device.type == "meta":  # of what torch.compile describes
        device = torch.device("cpu")
    with torch.autocast(device.type, enabled=False):
        watch = _watch.Watch(device, {})
    recorder = Rows(watch)
    try:
        values, _ = trace(recorder)
        handles = [v.handle for v in values]
        if any(isinstance(x, float) or v.place == PARAM
               for x, v in zip(handles, values)):
            raise TraceError("it returns a value that has no rows")
        if len({t.dtype for t in recorder.tensors}) != 1:
            raise TraceError("its tensors are of several types")
        steps = staged(watch, handles, whole=False)
    except (TraceError, TypeError, RuntimeError) as error:
        raise TraceError(watch.refused or str(error)) from None
    _check(steps, writes)
    return steps, recorder.tensors


def run(steps, graph, tensors):
    """The outputs; tensors by edge are in the caller's order."""
    with torch.autocast(graph.device.type, enabled=False):
        return steps.run(graph, lambda key: tensors[key[1]])


class _Asked(Steps):
    """Says which problem its MLP is, and runs none."""

    def __init__(self, steps, backward):
        vars(self).update(vars(steps))
        self.backward, self.problem = backward, None

    def _execute_mlp(self, graph, settings, tensors):
        self.problem = _mlp.recipe(graph, settings, tensors).problem_of(
            (None, None), tensors, self.backward)
        raise StopIteration


def problem(steps, graph, tensors, backward):
    """The _abi.Problem of steps that are one MLP."""
    count = sum(node.name == "mlp" for node in steps.called)
    if count != 1 or steps.programs:
        raise InvalidError(
            f"the program runs as {count} MLPs on edges and "
            f"{len(steps.programs)} programs beside them, expected one; "
            "dfgnn.tune(step, ...) of a function that does a step measures "
            "them all")
    asked = _Asked(steps, backward)
    try:
        run(asked, graph, tensors)
    except StopIteration:
        pass
    return asked.problem
