"""Edge programs of libdfgnn: executed on torch's tensors, differentiated."""

import ctypes
import functools
import os
from typing import NamedTuple

import torch

from . import _abi, _execute
from ._autograd import ResultAlias, Kind, Recorded, wants_gradient
from ._checks import DTYPES as TYPES
from ._execute import sum_settings
from ._library import check, library
from ._program_handle import (  # noqa: F401 - used as this module's
    COTANGENT, DST, EDGE, GRADIENT, INPUT, OUTPUT, PARAM, REL, SRC, Program,
    gradient, named, parse, trained)
from .errors import UnsupportedError


class _Recipe(_execute.Recipe):
    """The state that calls of a program share.  Its tensors are those that the
    program declares; calls has one for False, and one for True where the device
    has no variant of the operator that the program is.

    outs: (shape, dtype) of each output; types: of inputs and outputs.
    places: the number of the tensor of each field of a call: an operator may
        read one as two.
    as_program: whether it runs as none; is_operator: whether it is one.
    """

    __slots__ = ("program", "outs", "types", "places", "as_program",
                 "is_operator")

    def __init__(self, graph, program, inputs, outputs):
        self.program, self.calls = program, {}
        self.outs = [(port.rows(graph) + port.shape, dtype)
                     for port, dtype in zip(program.outputs, outputs)]
        self.types = (*inputs, *outputs)
        self.as_program = self.is_operator = False

    def run(self, graph, tensors):
        """tensors: the inputs, the outputs, and the seed if there is one."""
        try:
            call = self.call(graph, self.as_program, tensors)
            call.run(graph.device, [tensors[n] for n in self.places])
        except UnsupportedError:
            if self.as_program or not self.is_operator:
                raise
            self.as_program = True
            self.run(graph, tensors)

    def describe(self, graph, as_program, tensors):
        """The description, which calls on other graphs share: a caller may
        have a new one in each step.  No operator takes an empty tensor."""
        key = (self.types, len(tensors), as_program, graph.device.type,
               os.environ.get("DFGNN_PROGRAMS"),
               all([t.numel() for t in tensors]))
        entry = self.program.described.get(key)
        if entry is None:
            entry = self.program.described[key] = self._describe(
                graph, as_program, tensors)
        self.is_operator, self.places, *described = entry
        return described

    def _describe(self, graph, as_program, tensors):
        first, count = len(self.program.inputs), len(self.types)
        inputs = _bound(self.program.bound[0], tensors[:first])
        outputs = _bound(self.program.bound[1], tensors[first:count])
        seeds = tensors[count:]
        wanted = _abi.Problem()
        args = _abi.Args(seed=seeds[0].data_ptr() if seeds else None)
        check(library().dfgnn_edge_program_call(
            ctypes.byref(wanted), ctypes.byref(args), self.program.pointer,
            graph.handle.pointer, inputs, first, outputs, count - first,
            int(as_program)))
        wanted.owner = self.program  # whose memory it names
        settings = sum_settings()._replace(deterministic=True)
        wanted.packed = bytes(wanted)  # for the extension
        is_operator = wanted.op != _abi.OP_PROGRAM
        if is_operator:
            pairs = [(n, _execute.Field(name, self.types[n]))
                     for n, port in enumerate((*self.program.inputs,
                                               *self.program.outputs))
                     for name in port.arguments]
        else:
            pairs = [(n, _execute.Bound(n, kind))
                     for n, kind in enumerate(self.types)]
        pairs += [(count, _execute.Field("seed"))] * len(seeds)
        fields = [field for _, field in pairs]
        form = _execute.Form(args, fields) if is_operator else \
            _execute.program_form(args, inputs[:first],
                                  outputs[:count - first], fields)
        return is_operator, [n for n, _ in pairs], wanted, settings, form


def _bound(template, tensors):
    """The array of _abi.EdgeTensor of a call's tensors."""
    array = type(template).from_buffer_copy(template)
    for entry, tensor in zip(array, tensors):
        entry.data, entry.dtype = tensor.data_ptr(), TYPES[tensor.dtype]
    return array


def execute(program, graph, tensors, dtypes, seed=None):
    """The outputs, in these types; edges are in the graph's order.  seed: a
    number of dropout's in the graph's memory, as make_seed() makes it."""
    types = [t.dtype for t in tensors]
    recipe = _execute.kept(graph, (
        program, _execute.generation(), seed is None, *types, *dtypes),
        lambda: _Recipe(graph, program, types, dtypes))
    outputs = [torch.empty(shape, dtype=dtype, device=graph.device)
               for shape, dtype in recipe.outs]
    recipe.run(graph, [*tensors, *outputs] if seed is None else
               [*tensors, *outputs, seed])
    return outputs


def probe(program, graph, kind):
    """Raises UnsupportedError if no kernel can be made of a program whose
    tensors have this type, or of its gradient."""
    number = TYPES.get(kind, TYPES[torch.float32])
    for one in (program.keep([True] * len(program.outputs),
                             [True] * len(program.inputs)), trained(program)):
        bound = []
        for template in one.bound:
            array = type(template).from_buffer_copy(template)
            for tensor in array:  # nothing reads the memory
                tensor.data, tensor.dtype = 1 << 12, number
            bound += [array, len(array)]
        try:
            _plan(one, graph, bound, 0)
        except UnsupportedError:
            _plan(one, graph, bound, 1)


def _plan(program, graph, bound, as_program):
    """Raises UnsupportedError if nothing runs it."""
    problem, args, plan = _abi.Problem(), _abi.Args(), ctypes.c_void_p()
    check(library().dfgnn_edge_program_call(
        ctypes.byref(problem), ctypes.byref(args), program.pointer,
        graph.handle.pointer, *bound, as_program))
    check(library().dfgnn_plan_create(
        ctypes.byref(plan), graph.handle.context.handle,
        graph.handle.pointer, ctypes.byref(problem)))
    library().dfgnn_plan_destroy(plan)


def types_of(program, tensors, types):
    """The types of outputs: that of sums for kept ones, else these."""
    if not any(port.kept for port in program.outputs):
        return types
    wide = torch.float64 if any(
        t.dtype == torch.float64 for t in tensors) else torch.float32
    return [wide if port.kept else kind
            for port, kind in zip(program.outputs, types)]


class _Training(NamedTuple):
    """The form of a program where some of its inputs want a gradient."""
    kept: Program  # with the outputs that its gradient reads
    more: tuple    # a None for each output of those
    inputs: tuple  # whether each of its tensors is kept for the gradient
    outputs: tuple
    shown: tuple   # the numbers of outputs of the program that are


@functools.lru_cache(maxsize=1024)
def _training(program, wanted):
    outputs = (True,) * len(program.outputs)
    kept = program.keep(outputs, wanted)
    derived, _ = gradient(kept, [True] * len(kept.outputs), wanted)
    reads = frozenset() if derived is None else \
        frozenset([(port.role, port.of) for port in derived.inputs])
    shown = tuple([n for n in range(len(outputs)) if (OUTPUT, n) in reads])
    return _Training(
        kept, (None,) * (len(kept.outputs) - len(outputs)),
        tuple([bool(shown) or (INPUT, n) in reads
               for n in range(len(kept.inputs))]),
        tuple([(OUTPUT, n) in reads for n in range(len(kept.outputs))]), shown)


@functools.lru_cache(maxsize=1024)
def _gradient(program, recorded, present, wanted):
    """(the gradient's program or None, which inputs it is of, whether it is of
    all outputs).  If it reads a tensor that _training() has not kept for the
    inputs that were recorded, it is the gradient of all of these."""
    training = _training(program, recorded)
    kept = {INPUT: training.inputs, OUTPUT: training.outputs}
    derived, has_grad = gradient(training.kept, present, wanted)
    if derived is None or all([
            port.role == COTANGENT or kept[port.role][port.of]
            for port in derived.inputs]):
        return derived, has_grad, False
    return *gradient(training.kept, (True,) * len(present), recorded), True


def zeros(like, shape, dtype):
    """Zeros that take no memory."""
    return like.new_zeros((), dtype=dtype).expand(shape)


def nothing(wanted, has_grad, inputs):
    """Zeros for the gradients that are wanted and that no program computes."""
    return tuple(zeros(t, t.shape, t.dtype) if w and not m else None
                 for w, m, t in zip(wanted, has_grad, inputs))


def _as_laid(grad, like):
    """The gradient with its tensor's strides along axes of size 1: optimizers
    that take many tensors at once compare all of them."""
    stride = tuple(target if size == 1 else s for size, s, target in zip(
        grad.shape, grad.stride(), like.stride))
    if stride == grad.stride() or grad.requires_grad:
        return grad
    return grad.as_strided(grad.shape, stride)


class _Like(NamedTuple):
    """The shape, type and strides that a tensor's gradient has."""
    shape: tuple
    dtype: torch.dtype
    stride: tuple


class _Runs(Kind):
    """A program's outputs, then those that its gradient reads.  The gradient
    is a program that is run in the same way, so that derivatives of any order
    are programs.  about: (program, graph, types, seed).

    The caller may write to what the program returns, as to what torch's own
    operations return: what the gradient does not read is not kept, and outputs
    that it reads are computed again then, and for gradients of gradients."""

    def record(self, about, tensors, needed):
        program, graph, types, seed = about
        training = _training(program, needed)
        kept = training.kept
        types = types_of(kept, tensors, (*types, *training.more))
        results = execute(kept, graph, tensors, types, seed)
        outs = list(results)
        aliases = [ResultAlias(results[n]) for n in training.shown]
        for n, one in zip(training.shown, aliases):
            results[n] = one.alias
        saved = [t if reads else None for reads, t in zip(
            (*training.inputs, *training.outputs), (*tensors, *results))]
        return tuple(outs), saved, (kept, types, aliases, needed, [
            _Like(t.shape, t.dtype, t.stride()) for t in tensors])

    def gradients(self, about, rest, saved, grads, needed, again):
        program, graph, _, seed = about
        kept, types, aliases, recorded, like = rest
        derived, has_grad, of_all = _gradient(
            program, recorded, tuple([g is not None for g in grads]), needed)
        some = next(g for g in grads if g is not None)
        if of_all:
            grads = [some.new_zeros(port.rows(graph) + port.shape, dtype=kind)
                     if g is None else g
                     for g, port, kind in zip(grads, kept.outputs, types)]
        nothing = [zeros(some, of.shape, of.dtype) if w and not m else None
                   for w, m, of in zip(needed, has_grad, like)]
        if derived is None:
            return nothing
        inputs, outputs = saved[:len(like)], saved[len(like):]
        if aliases and (again or any([one.written for one in aliases])):
            outputs = run(kept, graph, types, seed, *inputs)
        sources = {INPUT: inputs, OUTPUT: outputs, COTANGENT: grads}
        # gradients by parameters are sums of all rows: they are rounded once
        targets = [like[port.of] for port in derived.outputs]
        results = iter([_as_laid(g.to(of.dtype), of) for g, of in zip(run(
            derived, graph, [
                torch.float32 if port.place == PARAM and of.dtype.itemsize == 2
                else of.dtype for port, of in zip(derived.outputs, targets)],
            seed, *[sources[port.role][port.of] for port in derived.inputs]),
            targets)])
        return [next(results) if m else none
                for m, none in zip(has_grad, nothing)]


_RUNS = _Runs()


def run(program, graph, types, seed, *tensors):
    """The program's outputs in these types, at least, with gradients where they
    are recorded: a backward pass that is not (create_graph=False) then runs no
    more than the gradient, which may be an operator's."""
    if wants_gradient(tensors):
        return Recorded.apply(_RUNS, (program, graph, types, seed), *tensors)
    return execute(program, graph, tensors, types_of(program, tensors, types),
                   seed)
