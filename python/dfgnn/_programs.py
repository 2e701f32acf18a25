"""Edge programs of libdfgnn: executed on torch's tensors, differentiated."""

import ctypes
import functools
import struct
from typing import NamedTuple

import torch

from . import _abi
from ._autograd import Kind, Recorded, wants_gradient
from ._context import raw_stream, with_room
from ._library import check, library
from ._operators import DTYPES as TYPES
from ._program import (  # noqa: F401: used as this module's
    COTANGENT, DST, EDGE, GRADIENT, INPUT, OUTPUT, PARAM, REL, SRC, Program,
    gradient, named, parse)

_MEMORY = struct.Struct("Pi")  # of an EdgeTensor: data, and after it dtype
_FIRST, _NEXT = _abi.EdgeTensor.data.offset, ctypes.sizeof(_abi.EdgeTensor)


def _bind(template, tensors):
    array, at = type(template).from_buffer_copy(template), _FIRST
    for tensor in tensors:
        _MEMORY.pack_into(array, at, tensor.data_ptr(), TYPES[tensor.dtype])
        at += _NEXT
    return array


def execute(program, graph, tensors, dtypes, seed=None):
    """The outputs, in these types; edges are in the graph's order.  seed: a
    number of dropout's in the graph's memory, as make_seed() makes it."""
    device = graph.device
    tensors = [t if t.is_contiguous() else t.detach().contiguous()
               for t in tensors]
    outputs = [torch.empty(port.rows(graph) + port.shape, dtype=dtype,
                           device=device)
               for port, dtype in zip(program.outputs, dtypes)]
    bound = (program.pointer, graph.handle.pointer,
             _bind(program.bound[0], tensors), len(tensors),
             _bind(program.bound[1], outputs), len(outputs))
    how = _abi.EdgeRun(stream=raw_stream(device))
    room = _own_room(device, bound)
    if room is not None:
        how.workspace = room.data_ptr()
    if seed is not None:
        how.seed = seed.data_ptr()
    check(with_room(device, library().dfgnn_edge_program_run, *bound,
                    ctypes.byref(how)))
    return outputs


def _own_room(device, bound):
    """Memory for a call that a CUDA graph records: the context's may move."""
    if device.type == "cpu" or not torch.cuda.is_current_stream_capturing():
        return None
    size = ctypes.c_size_t()
    check(library().dfgnn_edge_program_workspace(ctypes.byref(size), *bound))
    return torch.empty(max(size.value, 1), dtype=torch.uint8, device=device)


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
