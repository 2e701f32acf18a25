"""Programs of libdfgnn: parsed and derived.  Nothing here needs torch."""

import ctypes
import functools
import threading

from . import _abi
from ._library import check, library

PARAM, DST, SRC, EDGE, REL = 1, 2, 3, 4, 5
PLACES = {PARAM: "param", DST: "dst", SRC: "src", EDGE: "edge", REL: "rel"}
INPUT, OUTPUT, COTANGENT, GRADIENT = 1, 2, 3, 4
_ROWS = {DST: "num_dst", SRC: "num_src", EDGE: "num_edges",
         REL: "num_relations"}


class Port:
    """An input or output: .shape has the axes after the rows of its place."""

    def __init__(self, value):
        self.name = value.name.decode()
        self.place, self.role, self.of = value.place, value.role, value.of
        self.kept, self.zero = bool(value.kept), bool(value.zero)
        self.arguments = value.argument.decode().split()
        self.shape = tuple(value.axes[:value.rank])

    def rows(self, graph):
        if self.place == PARAM:
            return ()
        return (getattr(graph, _ROWS[self.place]),)


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
        self.bound = template(self.inputs), template(self.outputs)
        self._lock = threading.Lock()
        self._derived = {}
        self.described = {}  # what _program_calls.py knows of its calls, by kind

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

    def sized(self, sizes):
        """The program with these numbers in place of names of sizes."""
        array = (_abi.EdgeSize * max(len(sizes), 1))()
        for entry, (name, value) in zip(array, sizes.items()):
            entry.name, entry.value = name.encode(), value
        pointer = ctypes.c_void_p()
        check(library().dfgnn_edge_program_sized(
            ctypes.byref(pointer), self.pointer, array, len(sizes)))
        program = Program(pointer, "")
        return parse(program.text)

    def operator(self):
        """The operator that the program is, as an _abi.EdgeOperator, or None;
        a port's .arguments are what it is to the operator, "query"."""
        operator = _abi.EdgeOperator()
        check(library().dfgnn_edge_program_operator(ctypes.byref(operator),
                                                    self.pointer))
        return operator if operator.found else None

    def problem(self, dtype):
        """The _abi.Problem of a call with tensors of this type (a number of
        _abi.DTYPES): an operator's, where the program is one."""
        wanted = _abi.Problem()
        check(library().dfgnn_edge_program_problem(
            ctypes.byref(wanted), self.pointer, dtype))
        wanted.owner = self  # whose memory it names
        return wanted

    def _derive(self, how, outputs, inputs):
        key = how, bytes(outputs), bytes(inputs)
        with self._lock:
            program = self._derived.get(key)
            if program is None:
                pointer = ctypes.c_void_p()
                derive = getattr(library(), f"dfgnn_edge_program_{how}")
                check(derive(ctypes.byref(pointer), self.pointer, *key[1:]))
                program = self._derived[key] = Program(pointer, "".join((
                    self.name, _STEP, how, " ", _bits(outputs), " ",
                    _bits(inputs))))
        return program

    def gradient(self, outputs, inputs):
        """outputs: which have a cotangent; inputs: which want a gradient."""
        return self._derive("gradient", outputs, inputs)

    def keep(self, outputs, inputs):
        """The program with outputs that its gradient reads; itself, which may
        be an operator's gradient, if that reads no more."""
        program = self._derive("keep", outputs, inputs)
        return program if len(program.outputs) > len(self.outputs) else self


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


def gradient(program, present, wanted):
    """(the gradient's program or None, which inputs it is of): of the inputs
    that are wanted and whose gradient is not 0 in any case."""
    wanted = list(wanted)
    while any(wanted):
        derived = program.gradient(present, wanted)
        zero = {port.of for port in derived.outputs if port.zero}
        if not zero:
            return derived, wanted
        wanted = [w and n not in zero for n, w in enumerate(wanted)]
    return None, wanted


def template(ports):
    """The description of these tensors for the library, except their memory."""
    array = (_abi.EdgeTensor * max(len(ports), 1))()
    for bound, port in zip(array, ports):
        bound.name = port.name.encode()
        bound.rank = len(port.shape)
        bound.axes[:len(port.shape)] = port.shape
    return array


def trained(program, wanted=None):
    """The gradient's program, by the inputs that are wanted, or by all."""
    wanted = wanted or [True] * len(program.inputs)
    outputs = len(program.outputs)
    kept = program.keep((True,) * outputs, wanted)
    return kept.gradient([k < outputs for k in range(len(kept.outputs))],
                         wanted)
