"""Edge programs of libdfgnn: executed on torch's tensors, differentiated."""

import ctypes
import functools
import os
from typing import NamedTuple

import torch

from . import _abi, _execute
from ._autograd import Kind, Recorded, wants_gradient
from ._library import check, library
from ._operators import DTYPES as TYPES, sum_settings
from ._program import (  # noqa: F401: used as this module's
    COTANGENT, DST, EDGE, GRADIENT, INPUT, OUTPUT, PARAM, REL, SRC, Program,
    gradient, named, parse)
from .errors import UnsupportedError


# ---- calls ------------------------------------------------------------------

class _Recipe(_execute.Recipe):
    """What calls of a program share.  Its tensors are those that the program
    declares; calls has one for False, and one for True where the device has no
    variant of the operator that the program is.

    outs: (shape, dtype) of each output; types: of inputs and outputs.
    told: the number of the tensor that each field of a call is: an operator
        may read one as two.
    as_program: whether it runs as none; is_operator: whether it is one.
    """

    __slots__ = ("program", "outs", "types", "told", "as_program",
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
            call.run(graph.device, [tensors[n] for n in self.told])
        except UnsupportedError:
            if self.as_program or not self.is_operator:
                raise
            self.as_program = True
            self.run(graph, tensors)

    def describe(self, graph, as_program, tensors):
        """Calls on other graphs share it, for those who have a new one in each
        step; but where a tensor has no memory, an operator is none."""
        key = (self.types, len(tensors), as_program, graph.device.type,
               os.environ.get("DFGNN_PROGRAMS"),
               all([t.numel() for t in tensors]))
        found = self.program.described.get(key)
        if found is None:
            found = self.program.described[key] = self._describe(
                graph, as_program, tensors)
        self.is_operator, self.told, *described = found
        return described

    def _describe(self, graph, as_program, tensors):
        first, count = len(self.program.inputs), len(self.types)
        inputs = _bound(self.program.bound[0], tensors[:first])
        outputs = _bound(self.program.bound[1], tensors[first:count])
        seeds = tensors[count:]
        wanted, args = _abi.Problem(), _abi.Args()
        check(library().dfgnn_edge_program_call(
            ctypes.byref(wanted), ctypes.byref(args), self.program.pointer,
            graph.handle.pointer, inputs, first, outputs, count - first,
            ctypes.byref(_abi.EdgeRun(
                seed=seeds[0].data_ptr() if seeds else None)),
            int(as_program)))
        wanted.owner = self.program  # whose memory it names
        settings = sum_settings()._replace(deterministic=True)
        wanted.packed = bytes(wanted)  # for the extension
        is_operator = wanted.op != _abi.OP_PROGRAM
        if is_operator:
            told = [(n, _execute.Field(name, self.types[n]))
                    for n, port in enumerate((*self.program.inputs,
                                              *self.program.outputs))
                    for name in port.arguments]
        else:
            told = [(n, _execute.Bound(n, kind))
                    for n, kind in enumerate(self.types)]
        told += [(count, _execute.Field("seed"))] * len(seeds)
        fields = [field for _, field in told]
        form = _execute.Form(args, fields) if is_operator else \
            _execute.program_form(args, inputs[:first],
                                  outputs[:count - first], fields)
        return is_operator, [n for n, _ in told], wanted, settings, form


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
    made = _execute.kept(graph, (
        program, _execute.generation(), seed is None, *types, *dtypes),
        lambda: _Recipe(graph, program, types, dtypes))
    outputs = [torch.empty(shape, dtype=dtype, device=graph.device)
               for shape, dtype in made.outs]
    made.run(graph, [*tensors, *outputs] if seed is None else
             [*tensors, *outputs, seed])
    return outputs


def probe(program, graph, kind):
    """Raises UnsupportedError if no kernel can be made of a program whose
    tensors have this type, or of its gradient."""
    outputs = len(program.outputs)
    everything = [True] * len(program.inputs)
    number = TYPES.get(kind, TYPES[torch.float32])
    kept = program.keep([True] * outputs, everything)
    derived = kept.gradient([k < outputs for k in range(len(kept.outputs))],
                            everything)
    for one in (kept, derived):
        bound = []
        for template in one.bound:
            array = type(template).from_buffer_copy(template)
            for tensor in array:  # nothing reads the memory
                tensor.data, tensor.dtype = 1 << 12, number
            bound += [array, len(array)]
        size = ctypes.c_size_t()
        check(library().dfgnn_edge_program_workspace(
            ctypes.byref(size), one.pointer, graph.handle.pointer, *bound))


def types_of(program, tensors, own):
    """Kept outputs have the type of sums, gradients that of their input."""
    if not any(port.kept for port in program.outputs):
        return own
    wide = torch.float64 if any(
        t.dtype == torch.float64 for t in tensors) else torch.float32
    return [wide if port.kept else kind
            for port, kind in zip(program.outputs, own)]


class _Training(NamedTuple):
    """What a program becomes where some of its inputs want a gradient."""
    kept: Program  # with the outputs that its gradient reads
    more: tuple    # a None for each output of those
    unread: bool   # whether its gradient reads no output


@functools.lru_cache(maxsize=1024)
def _training(program, wanted):
    outputs = (True,) * len(program.outputs)
    kept = program.keep(outputs, wanted)
    found, _ = gradient(kept, [True] * len(kept.outputs), wanted)
    return _Training(
        kept, (None,) * (len(kept.outputs) - len(outputs)),
        found is None or all(port.role != OUTPUT for port in found.inputs))


_gradient = functools.lru_cache(maxsize=1024)(gradient)


def zeros(like, shape, dtype):
    """Zeros that take no memory."""
    return like.new_zeros((), dtype=dtype).expand(shape)


def nothing(wanted, made, inputs):
    """Zeros for the gradients that are wanted but not made."""
    return tuple(zeros(t, t.shape, t.dtype) if w and not m else None
                 for w, m, t in zip(wanted, made, inputs))


class _Runs(Kind):
    """A program's outputs, then those that its gradient reads.  The gradient
    is a program that is run in the same way, so that derivatives of any order
    are programs.  about: (program, graph, types, seed, read)."""

    def record(self, about, tensors, needed):
        program, graph, types, seed, read = about
        kept, more, unread = _training(program, needed)
        types = types_of(kept, tensors, (*types, *more))
        if read or not unread:
            made = execute(kept, graph, tensors, types, seed)
        else:
            made = [zeros(tensors[0], port.rows(graph) + port.shape, dtype)
                    for port, dtype in zip(kept.outputs, types)]
        return tuple(made), (*tensors, *made), kept

    def gradients(self, about, kept, saved, grads, needed, again):
        _, graph, _, seed, _ = about
        count = len(needed)
        derived, made = _gradient(
            kept, tuple([g is not None for g in grads]), needed)
        if derived is None:
            return nothing(needed, made, saved)
        sources = {INPUT: saved[:count], OUTPUT: saved[count:],
                   COTANGENT: grads}
        tensors = [sources[port.role][port.of] for port in derived.inputs]
        types = [saved[port.of].dtype for port in derived.outputs]
        found = iter(run(derived, graph, types, seed, *tensors))
        return [next(found) if m else none for m, none in zip(
            made, nothing(needed, made, saved))]


_RUNS = _Runs()


def run(program, graph, types, seed, *tensors, read=True):
    """The program's outputs in these types, at least, with gradients where they
    are recorded: a backward pass that is not (create_graph=False) then runs no
    more than the gradient, which may be an operator's.

    read: whether anything reads the outputs; else they are there for their
        gradient, and the program runs only if that reads one."""
    if wants_gradient(tensors):
        return Recorded.apply(_RUNS, (program, graph, types, seed, read),
                              *tensors)
    return execute(program, graph, tensors, types_of(program, tensors, types),
                   seed)
