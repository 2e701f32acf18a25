"""Edge programs of libdfgnn: executed on torch's tensors, differentiated."""

import ctypes

import torch

from . import _abi
from ._context import raw_stream, with_room
from ._library import check, library
from ._program import (  # noqa: F401: used as this module's
    COTANGENT, DST, EDGE, GRADIENT, INPUT, OUTPUT, PARAM, REL, SRC, Program,
    gradient, named, parse)

TYPES = {torch.float32: _abi.DTYPES["f32"], torch.float16: _abi.DTYPES["f16"],
         torch.bfloat16: _abi.DTYPES["bf16"],
         torch.float64: _abi.DTYPES["f64"]}


def _bind(template, tensors):
    array = type(template).from_buffer_copy(template)
    for bound, tensor in zip(array, tensors):
        bound.data = tensor.data_ptr()
        bound.dtype = TYPES[tensor.dtype]
    return array


def execute(program, graph, tensors, dtypes, seed=None):
    """The outputs, in these types; edges are in the graph's order.  seed: a
    number of dropout's in the graph's memory, as make_seed() makes it."""
    tensors = [t.detach().contiguous() for t in tensors]
    outputs = [torch.empty(port.rows(graph) + port.shape, dtype=dtype,
                           device=graph.device)
               for port, dtype in zip(program.outputs, dtypes)]
    bound = (program.pointer, graph.handle.pointer,
             _bind(program.bound[0], tensors), len(tensors),
             _bind(program.bound[1], outputs), len(outputs))
    how = _abi.EdgeRun(stream=raw_stream(graph.device))
    room = _own_room(graph.device, bound)
    if room is not None:
        how.workspace = room.data_ptr()
    if seed is not None:
        how.seed = seed.data_ptr()
    check(with_room(
        graph.device, lambda: library().dfgnn_edge_program_run(
            *bound, ctypes.byref(how))))
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
    wide = torch.float64 if any(
        t.dtype == torch.float64 for t in tensors) else torch.float32
    return [wide if port.kept else kind
            for port, kind in zip(program.outputs, own)]


def _unread(program, wanted):
    """Whether its gradient reads no output of a program."""
    found, _ = gradient(program, [True] * len(program.outputs), wanted)
    return found is None or all(port.role != OUTPUT for port in found.inputs)


def zeros(like, shape, dtype):
    """Zeros that take no memory."""
    return like.new_zeros((), dtype=dtype).expand(shape)


def nothing(wanted, made, inputs):
    """Zeros for the gradients that are wanted but not made."""
    return tuple(zeros(t, t.shape, t.dtype) if w and not m else None
                 for w, m, t in zip(wanted, made, inputs))


class Run(torch.autograd.Function):
    """A program's outputs, then those that its gradient reads.  The gradient
    is a program that is run in the same way, so that derivatives of any order
    are programs."""

    @staticmethod
    def forward(ctx, program, graph, types, seed, read, *tensors):
        wanted = [bool(w) for w in ctx.needs_input_grad[5:]]
        outputs = len(program.outputs)
        kept = program.keep((True,) * outputs, wanted)
        types = types_of(kept, tensors, [
            *types, *[None] * (len(kept.outputs) - outputs)])
        if read or not _unread(kept, wanted):
            made = execute(kept, graph, tensors, types, seed)
        else:
            made = [zeros(tensors[0], port.rows(graph) + port.shape, dtype)
                    for port, dtype in zip(kept.outputs, types)]
        ctx.save_for_backward(*tensors, *made)
        ctx.set_materialize_grads(False)
        ctx.about = kept, graph, seed, len(tensors)
        return tuple(made)

    @staticmethod
    def backward(ctx, *cotangents):
        program, graph, seed, count = ctx.about
        wanted = [bool(w) for w in ctx.needs_input_grad[5:]]
        present = [c is not None for c in cotangents]
        if not any(present):
            return (None,) * (5 + count)
        saved = ctx.saved_tensors
        derived, made = gradient(program, present, wanted)
        if derived is None:
            return (None,) * 5 + nothing(wanted, made, saved)
        sources = {INPUT: saved[:count], OUTPUT: saved[count:],
                   COTANGENT: cotangents}
        tensors = [sources[port.role][port.of] for port in derived.inputs]
        types = [saved[port.of].dtype for port in derived.outputs]
        found = iter(run(derived, graph, types, seed, *tensors))
        return (None,) * 5 + tuple(next(found) if m else none for none, m in
                                   zip(nothing(wanted, made, saved), made))


def run(program, graph, types, seed, *tensors, read=True):
    """The program's outputs in these types, at least, with gradients where they
    are recorded: a backward pass that is not (create_graph=False) then runs no
    more than the gradient, which may be an operator's.

    read: whether anything reads the outputs; else they are there for their
        gradient, and the program runs only if that reads one."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return Run.apply(program, graph, types, seed, read, *tensors)
    return execute(program, graph, tensors, types_of(program, tensors, types),
                   seed)
