"""Edge programs of libdfgnn: parsed, derived, executed, differentiated."""

import ctypes
import functools
import threading

import torch

from . import _abi
from ._context import raw_stream, with_room
from ._library import check, library

TYPES = {torch.float32: _abi.DTYPES["f32"], torch.float16: _abi.DTYPES["f16"],
         torch.bfloat16: _abi.DTYPES["bf16"],
         torch.float64: _abi.DTYPES["f64"]}
PARAM, DST, SRC, EDGE = 1, 2, 3, 4
INPUT, OUTPUT, COTANGENT, GRADIENT = 1, 2, 3, 4


class Port:
    """An input or output: .shape has the axes after the rows of its place."""

    def __init__(self, value):
        self.name = value.name.decode()
        self.place, self.role, self.of = value.place, value.role, value.of
        self.kept = bool(value.kept)
        self.arguments = value.argument.decode().split()
        self.shape = tuple(value.axes[:value.rank])

    def rows(self, graph):
        if self.place == PARAM:
            return ()
        return ((graph.num_dst, graph.num_src, graph.num_edges)
                [self.place - DST],)


class Program:
    """A program of the library; immutable.

    .name is its text, and for a gradient how it is derived: named() finds it.
    """

    def __init__(self, pointer, name):
        self.pointer, self.name = pointer, name
        lib = library()
        self.inputs = self._ports(lib.dfgnn_edge_program_input_count,
                                  lib.dfgnn_edge_program_input)
        self.outputs = self._ports(lib.dfgnn_edge_program_output_count,
                                   lib.dfgnn_edge_program_output)
        self.bound = _template(self.inputs), _template(self.outputs)
        self._lock = threading.Lock()
        self._derived = {}

    def _ports(self, count, get):
        ports = []
        for i in range(count(self.pointer)):
            value = _abi.EdgeValue()
            check(get(ctypes.byref(value), self.pointer, i))
            ports.append(Port(value))
        return ports

    def __del__(self):
        if getattr(self, "pointer", None) and library is not None:
            library().dfgnn_edge_program_destroy(self.pointer)

    @property
    def text(self):
        return library().dfgnn_edge_program_text(self.pointer).decode()

    @property
    def hash(self):
        return library().dfgnn_edge_program_hash(self.pointer)

    def walks(self):
        rows, columns = ctypes.c_int(), ctypes.c_int()
        check(library().dfgnn_edge_program_walks(
            ctypes.byref(rows), ctypes.byref(columns), self.pointer))
        return rows.value, columns.value

    def operator(self):
        """The operator that the program is, as an _abi.EdgeOperator, or None;
        a port's .arguments are what it is to the operator, "query"."""
        found = _abi.EdgeOperator()
        check(library().dfgnn_edge_program_operator(ctypes.byref(found),
                                                    self.pointer))
        return found if found.found else None

    def problem(self, kind):
        """The _abi.Problem of a call with tensors of this type: an operator's,
        where the program is one."""
        wanted = _abi.Problem()
        check(library().dfgnn_edge_program_problem(
            ctypes.byref(wanted), self.pointer, TYPES[kind]))
        wanted.owner = self  # whose memory it names
        return wanted

    def _derive(self, how, outputs, inputs):
        key = how, bytes(outputs), bytes(inputs)
        with self._lock:
            found = self._derived.get(key)
            if found is None:
                pointer = ctypes.c_void_p()
                derive = getattr(library(), f"dfgnn_edge_program_{how}")
                check(derive(ctypes.byref(pointer), self.pointer, *key[1:]))
                found = self._derived[key] = Program(pointer, "".join((
                    self.name, _STEP, how, " ", _bits(outputs), " ",
                    _bits(inputs))))
        return found

    def gradient(self, outputs, inputs):
        """outputs: which have a cotangent; inputs: which want a gradient."""
        return self._derive("gradient", outputs, inputs)

    def keep(self, outputs, inputs):
        return self._derive("keep", outputs, inputs)


_STEP = "\n# "  # before each step of a derivation


def _bits(flags):
    return "".join("1" if flag else "0" for flag in flags)


@functools.lru_cache(maxsize=512)
def parse(text):
    pointer = ctypes.c_void_p()
    check(library().dfgnn_edge_program_create(ctypes.byref(pointer),
                                              text.encode()))
    return Program(pointer, text)


@functools.lru_cache(maxsize=512)
def named(name):
    """The program of this Program.name."""
    text, *steps = name.split(_STEP)
    program = parse(text)
    for step in steps:
        how, outputs, inputs = step.split(" ")
        program = program._derive(how, [b == "1" for b in outputs],
                                  [b == "1" for b in inputs])
    return program


def _template(ports):
    """What calls tell the library of these tensors, but for their memory."""
    array = (_abi.EdgeTensor * max(len(ports), 1))()
    for bound, port in zip(array, ports):
        bound.name = port.name.encode()
        bound.rank = len(port.shape)
        bound.axes[:len(port.shape)] = port.shape
    return array


def _bind(template, tensors):
    array = type(template).from_buffer_copy(template)
    for bound, tensor in zip(array, tensors):
        bound.data = tensor.data_ptr()
        bound.dtype = TYPES[tensor.dtype]
    return array


def execute(program, graph, tensors, dtypes, seed):
    """The outputs, in these types; edges are in the graph's order."""
    tensors = [t.detach().contiguous() for t in tensors]
    outputs = [torch.empty(port.rows(graph) + port.shape, dtype=dtype,
                           device=graph.device)
               for port, dtype in zip(program.outputs, dtypes)]
    bound = (program.pointer, graph.handle.pointer,
             _bind(program.bound[0], tensors), len(tensors),
             _bind(program.bound[1], outputs), len(outputs))
    stream = raw_stream(graph.device)
    room = _own_room(graph.device, bound)
    check(with_room(
        graph.device, lambda: library().dfgnn_edge_program_execute_in(
            *bound, seed, None if room is None else room.data_ptr(),
            stream)))
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
    gradient = kept.gradient([k < outputs for k in range(len(kept.outputs))],
                             everything)
    for one in (kept, gradient):
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


class Run(torch.autograd.Function):
    """A program's outputs, then those that its gradient reads.  The gradient
    is a program that is run in the same way, so that derivatives of any order
    are programs."""

    @staticmethod
    def forward(ctx, program, graph, types, seed, *tensors):
        wanted = [bool(w) for w in ctx.needs_input_grad[4:]]
        outputs = len(program.outputs)
        kept = program.keep((True,) * outputs, wanted)
        types = [*types, *[None] * (len(kept.outputs) - outputs)]
        made = execute(kept, graph, tensors, types_of(kept, tensors, types),
                       seed)
        ctx.save_for_backward(*tensors, *made)
        ctx.set_materialize_grads(False)
        ctx.about = kept, graph, seed, len(tensors)
        return tuple(made)

    @staticmethod
    def backward(ctx, *cotangents):
        program, graph, seed, count = ctx.about
        wanted = [bool(w) for w in ctx.needs_input_grad[4:]]
        present = [c is not None for c in cotangents]
        if not any(present) or not any(wanted):
            return (None,) * (4 + count)
        saved = ctx.saved_tensors
        gradient = program.gradient(present, wanted)
        sources = {INPUT: saved[:count], OUTPUT: saved[count:],
                   COTANGENT: cotangents}
        tensors = [sources[port.role][port.of] for port in gradient.inputs]
        types = [saved[port.of].dtype for port in gradient.outputs]
        made = iter(run(gradient, graph, types, seed, *tensors))
        return (None,) * 4 + tuple(next(made) if w else None for w in wanted)


def run(program, graph, types, seed, *tensors):
    """The program's outputs in these types, at least, with gradients where they
    are recorded: a backward pass that is not (create_graph=False) then runs no
    more than the gradient, which may be an operator's."""
    if torch.is_grad_enabled() and any(t.requires_grad for t in tensors):
        return Run.apply(program, graph, types, seed, *tensors)
    return execute(program, graph, tensors, types_of(program, tensors, types),
                   seed)
