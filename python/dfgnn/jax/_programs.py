"""Edge programs in JAX: message functions of your own, fused, with gradients.

    @dfgnn.jax.edge_program
    def attention(i, j, e):              # receiving node, sending node, edge
        score = (i.q * (j.k + e.x)).sum(-1) / 32 ** .5
        return dfgnn.jax.softmax(score)[:, None] * (j.v + e.x)

    out = attention(graph, i={"q": q}, j={"k": k, "v": v}, e={"x": x})
"""

import functools
import re
import typing

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .. import _abi, _program_handle
from .._names import LETTERS, MessageFunction, Names
from .._program_handle import COTANGENT, DST, EDGE, INPUT, OUTPUT, PARAM, SRC
from .._trace import Value, method
from . import _jaxpr
from ._graph import DTYPES, TARGET, described, ffi, register


_ROWS = {PARAM: [], DST: ["destinations"], SRC: ["sources"], EDGE: ["edges"]}


def _rows(graph):
    """By place, the first dimension of its tensors."""
    return {PARAM: (), DST: (graph.num_dst,), SRC: (graph.num_src,),
            EDGE: (graph.indices.shape[0],)}


def _execute(program, dtypes, tf32, graph, seed, tensors):
    """The program's outputs; tensors of edges are in the graph's order."""
    register()
    (edges,), rows = graph.indices.shape, _rows(graph)
    call = ffi.ffi_call(
        TARGET, [jax.ShapeDtypeStruct(rows[port.place] + port.shape, dtype)
                 for port, dtype in zip(program.outputs, dtypes)],
        vmap_method="sequential")
    outs = call(
        graph.offsets, graph.indices, seed, *tensors, program=program.name,
        arguments=",".join(("offsets", "indices", "seed", *(
            port.name for port in program.inputs))),
        results=",".join(port.name for port in program.outputs),
        sources=np.int64(graph.num_src), family=graph.family,
        trusted=np.int64(graph.trusted), tf32=np.int64(tf32))

    def finished(port, x):  # nothing is written to the padding
        if port.place != EDGE:
            return x
        real = jnp.arange(edges) < graph.offsets[-1]
        return jnp.where(real.reshape((edges,) + (1,) * (x.ndim - 1)), x, 0)
    return tuple(map(finished, program.outputs, outs))


@jax.tree_util.register_pytree_node_class
class _Static:
    """The settings of a backward pass that are no arrays."""

    def __init__(self, value):
        self.value = value

    def tree_flatten(self):
        return (), self.value

    @classmethod
    def tree_unflatten(cls, value, _):
        return cls(value)


def _wide(dtypes):
    """The type of what is kept for gradients."""
    return "float64" if "float64" in dtypes else "float32"


@functools.lru_cache(maxsize=512)
def _runner(name, dtypes, tf32=False):
    """The function of (graph, seed, tensors) that executes a program, whose
    outputs have these types; tf32: whether an operator may round to it.  The
    gradient is such a function of the derived program, and so on."""
    program = _program_handle.named(name)

    @jax.custom_vjp
    def run(graph, seed, tensors):
        return _execute(program, dtypes, tf32, graph, seed, tensors)

    def forward(graph, seed, tensors):
        needed = tuple(bool(t.perturbed) for t in tensors)
        graph, seed, tensors = jax.tree.map(
            lambda leaf: leaf.value, (graph, seed, tensors),
            is_leaf=lambda leaf: hasattr(leaf, "perturbed"))
        recording = program.keep((True,) * len(program.outputs), needed)
        wide = _wide([t.dtype.name for t in tensors])
        outs = _runner(recording.name, dtypes + (wide,) * (
            len(recording.outputs) - len(dtypes)), tf32)(graph, seed, tensors)
        about = _Static((recording.name, needed))
        return outs[:len(dtypes)], (about, graph, seed, tensors, outs)

    def backward(saved, cotangents):
        about, graph, seed, tensors, outs = saved
        name, needed = about.value
        recording = _program_handle.named(name)
        present = [not isinstance(c, SymbolicZero) for c in cotangents]
        if not any(present) or not any(needed):
            return None, None, tuple(map(jnp.zeros_like, tensors))
        present += [False] * (len(recording.outputs) - len(present))
        gradient = recording.gradient(present, needed)
        sources = {INPUT: tensors, OUTPUT: outs, COTANGENT: cotangents}
        read = tuple(sources[port.role][port.of] for port in gradient.inputs)
        # gradients of parameters are sums over all rows
        wide = _wide([t.dtype.name for t in tensors])
        grads = iter(_runner(gradient.name, tuple(
            wide if port.place == PARAM else tensors[port.of].dtype.name
            for port in gradient.outputs), tf32)(graph, seed, read))
        return None, None, tuple(
            next(grads).astype(t.dtype) if w else jnp.zeros_like(t)
            for w, t in zip(needed, tensors))

    run.defvjp(forward, backward, symbolic_zeros=True)
    return run


def _seed(key, name, random):
    """Two numbers of a key, or a seed."""
    if key is None:
        if random:
            raise TypeError(f"{name} has dropout: a call takes a key, as "
                            "key=jax.random.key(0)")
        return jnp.zeros(2, jnp.uint32)
    if isinstance(key, int):
        key = jax.random.PRNGKey(key)
    if jnp.issubdtype(key.dtype, jax.dtypes.prng_key):
        key = jax.random.key_data(key)
    return jnp.asarray(key, jnp.uint32).reshape(-1)[:2]


def _real(name, array):
    array = jnp.asarray(array)
    if array.dtype.name in DTYPES:
        return array
    if jnp.issubdtype(array.dtype, jnp.complexfloating):
        raise TypeError(f"{name} is {array.dtype}, expected one of "
                        f"{sorted(DTYPES)}")
    if not isinstance(array, jax.core.Tracer) and array.size and \
            array.dtype != bool and abs(array).max() > 1 << 24:
        raise ValueError(f"{name} has integers above 2**24, which programs "
                         "would round")
    return array.astype(jnp.float32)


def _to_graph_order(graph, array):
    return array if graph.edge_order is None else array[graph.edge_order]


def _to_caller_order(graph, array):
    if graph.edge_order is None:
        return array
    return jnp.zeros_like(array).at[graph.edge_order].set(
        array, unique_indices=True)


class _Call(typing.NamedTuple):
    """A program with the tensors of a call."""
    program: _program_handle.Program
    names: list
    places: list
    tensors: list
    outputs: list  # the place of each
    dtypes: tuple
    single: bool
    random: bool


class EdgeProgram(MessageFunction):
    """The program that :func:`edge_program` makes of a function."""

    letters = "i", "j", "e"

    def _inputs(self, by_letter, others):
        """(names, places, tensors) of a call, and the function of the values
        of one edge."""
        names, places, tensors = [], [], []
        for letter, arrays in by_letter.items():
            if arrays and letter not in self.names:
                raise TypeError(f"{self.__name__} takes no {letter}")
            for name, array in (arrays or {}).items():
                names.append(f"{letter}_{name}")
                places.append(LETTERS[letter])
                tensors.append(_real(f"{letter}.{name}", array))
                if tensors[-1].ndim == 0:
                    raise ValueError(f"{letter}.{name} must have rows, got a "
                                     "number")
        leaves, tree = jax.tree.flatten(others)
        is_array = [hasattr(leaf, "shape") and hasattr(leaf, "dtype")
                    for leaf in leaves]
        for k, leaf in enumerate(leaves):
            if is_array[k]:
                names.append(f"p_{k}")
                places.append(PARAM)
                tensors.append(_real("an array among the arguments", leaf))

        def function(*values):
            values = iter(values)
            arguments = {letter: Names(letter, {
                name: next(values) for name in by_letter[letter] or {}})
                for letter in self.letters if letter in self.names}
            filled = [next(values) if here else leaf
                      for here, leaf in zip(is_array, leaves)]
            return self.function(**arguments,
                                 **jax.tree.unflatten(tree, filled))
        return names, places, tensors, function

    def _traced(self, i, j, e, others):
        names, places, tensors, function = self._inputs(
            {"i": i, "j": j, "e": e}, others)
        single = []

        def flat(*values):
            result = function(*values)
            single.append(not isinstance(result, (tuple, list)))
            return [result] if single[-1] else list(result)
        closed = jax.make_jaxpr(flat)(*(
            jax.ShapeDtypeStruct(t.shape[place != PARAM:], t.dtype)
            for t, place in zip(tensors, places)))
        writer = _jaxpr.Program()
        values = [writer.input(name, place, t.shape[place != PARAM:])
                  for name, place, t in zip(names, places, tensors)]
        values = list(map(writer.value, _jaxpr.walk(
            writer, closed.jaxpr, closed.consts, values)))
        if self.reduce:
            over = method(self.reduce + "_in")
            values = [over(v) if v.place in (SRC, EDGE) else v
                      for v in values]
        text = writer.text([  # values spread to the shapes of the jaxpr
            Value(writer, v.handle, v.place, var.aval.shape)
            for v, var in zip(values, closed.jaxpr.outvars)])
        dtypes = tuple(v.aval.dtype.name if v.aval.dtype.name in DTYPES
                       else "float32" for v in closed.jaxpr.outvars)
        captured = [_real("an array outside of the function", t)
                    for t in writer.tensors]
        return _Call(_program_handle.parse(text), names, places,
                     tensors + captured, [v.place for v in values], dtypes,
                     single[-1], writer.drops > 0)

    def __call__(self, graph, i=None, j=None, e=None, *, key=None, **others):
        """graph: of :func:`dfgnn.jax.csr` or :func:`dfgnn.jax.from_edges`.
        i, j, e: arrays by name, [destinations, ...], [sources, ...] and
            [edges, ...] in the caller's order of edges, with at most three
            further axes.
        key: of jax.random, for dropout.
        others: the function's further arguments; arrays in them, which may
            stand in a pytree, are parameters.
        """
        call = self._traced(i, j, e, others)
        rows, tensors = _rows(graph), list(call.tensors)
        for k, (name, place) in enumerate(zip(call.names, call.places)):
            if place != PARAM and tensors[k].shape[:1] != rows[place]:
                raise ValueError(
                    f"{name.replace('_', '.', 1)} must have {rows[place][0]} "
                    f"rows, got {described(tensors[k])}")
            if place == EDGE:
                tensors[k] = _to_graph_order(graph, tensors[k])
        outs = _runner(call.program.name, call.dtypes)(
            graph, _seed(key, self.__name__, call.random), tuple(tensors))
        outs = tuple(_to_caller_order(graph, x) if place == EDGE else x
                     for x, place in zip(outs, call.outputs))
        return outs[0] if call.single else outs

    def text(self, i=None, j=None, e=None, **others):
        """The program of these arrays, as text: dfgnn-program(5)."""
        return self._traced(i, j, e, others).program.text

    def problem(self, i=None, j=None, e=None, *, backward=False, **others):
        """The _abi.Problem of a call with these arrays, or of its gradient by
        all of them."""
        call = self._traced(i, j, e, others)
        return _problem(call.program, [t.dtype.name for t in call.tensors],
                        backward)


def _problem(program, dtypes, backward):
    if backward:
        program = _program_handle.trained(program)
    narrow = sorted(set(dtypes) - {"float32", "float64"})
    kind = ("float64" if "float64" in dtypes
            else narrow[0] if narrow else "float32")
    return program.problem(_abi.DTYPES[DTYPES[kind]])


class TextProgram:
    """The program that :func:`edge_program` makes of a text."""

    __name__ = "program"

    def __init__(self, text):
        self.program = _program_handle.parse(text)

    def _axes(self, port):
        """The axes after the rows, names or numbers, as the text has them."""
        if not port.shape:
            return []
        match = re.search(rf"\b{port.name}\[([^]]*)\]", self.program.text)
        return [axis.strip() for axis in match[1].split(",")]

    def _sized(self, tensors):
        """The program with the sizes of these tensors."""
        names = {port.name for port in self.program.inputs}
        if set(tensors) != names:
            raise TypeError(f"the program takes {', '.join(sorted(names))}; "
                            f"got {', '.join(sorted(tensors)) or 'nothing'}")
        sizes = {axis: size for port in self.program.inputs
                 for axis, size in zip(self._axes(port), jnp.shape(
                     tensors[port.name])[port.place != PARAM:])
                 if axis.isidentifier()}
        return self.program.sized(sizes) if sizes else self.program

    def run(self, graph, tensors, kind, key=None, tf32=False):
        """The outputs, of this type."""
        program, ordered = self._sized(tensors), []
        for port, declared in zip(program.inputs, self.program.inputs):
            array, rows = tensors[port.name], _rows(graph)[port.place]
            if array.shape != rows + port.shape:
                axes = [*_ROWS[port.place], *self._axes(declared)]
                raise ValueError(
                    f"{port.name} must be [{', '.join(axes)}] = "
                    f"{list(rows + port.shape)}, got {described(array)}")
            ordered.append(_to_graph_order(graph, array)
                           if port.place == EDGE else array)
        outs = _runner(program.name, (kind,) * len(program.outputs), tf32)(
            graph, _seed(key, "the program", "dropout(" in program.text),
            tuple(ordered))
        return tuple(_to_caller_order(graph, x) if port.place == EDGE else x
                     for x, port in zip(outs, program.outputs))

    def __call__(self, graph, *, key=None, **tensors):
        """tensors: the program's inputs by name.  Returns its output, or a
        tuple of them."""
        tensors = {name: _real(name, t) for name, t in tensors.items()}
        outs = self.run(graph, tensors, jnp.result_type(
            *tensors.values()).name, key)
        return outs[0] if len(outs) == 1 else outs

    def text(self, **tensors):
        return self._sized(tensors).text

    def problem(self, *, backward=False, **tensors):
        tensors = {name: _real(name, t) for name, t in tensors.items()}
        return _problem(self._sized(tensors),
                        [t.dtype.name for t in tensors.values()], backward)


def edge_program(function=None, *, reduce="sum"):
    """Makes a fused operation of a function of destination, source and edge,
    or of a text (dfgnn-program(5)).

    The function takes ``i`` (the receiving node), ``j`` (the sending node),
    ``e`` (the edge), or some of them, and further arguments by name.  It says
    what one edge computes: ``i.q`` of an array [N, heads, features] is
    [heads, features] there, as under vmap, and jax.numpy does what it does.
    :func:`softmax` and the functions named ``sum_in``, ``max_out`` and so on
    reduce over the edges of a node.  What it returns for an edge, or of a
    source, is reduced over the in-edges of each destination, as ``reduce``
    says: "sum", "mean", "max", "min", or None for the values themselves;
    values of destinations stay.  Several values may be returned.

    A text is called with its inputs by name.  Gradients are programs that are
    derived, of any order, in reverse mode.  An operation that edge programs do
    not have is refused by name, with its line (:class:`TraceError`).
    """
    if function is None:
        return functools.partial(edge_program, reduce=reduce)
    if isinstance(function, str):
        return TextProgram(function)
    return EdgeProgram(function, reduce)
