"""Values of an edge program in JAX, and the writer of their text; functions that
only edge programs have, as primitives of JAX."""

import math
import typing

import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import batching

from .._program import DST, EDGE, PARAM, PLACES, SRC

OVER_EDGES = [f"{what}_{way}" for way in ("in", "out") for what in (
    "sum", "mean", "max", "min", "softmax", "logsumexp")]


class TraceError(TypeError):
    """A function does what edge programs do not have."""


class Refused(Exception):
    """A TraceError that has no line yet."""


# ---- what only edge programs have -------------------------------------------

def _primitive(name):
    primitive = core.Primitive("dfgnn_" + name)
    primitive.def_abstract_eval(lambda x, **_: x)

    def outside(*_, **__):
        raise TypeError(f"{name} is called outside of the function of an "
                        "edge_program")
    primitive.def_impl(outside)
    batching.defvectorized(primitive)
    return primitive


OVER = {name: _primitive(name) for name in OVER_EDGES}
_DROPOUT = _primitive("dropout")


def over(name):
    def function(x):
        return OVER[name].bind(jnp.asarray(x))
    what, way = name.rsplit("_", 1)
    edges = ("in-edges of each destination" if way == "in"
             else "out-edges of each source")
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {what} over the {edges}, in an edge program."
    return function


def softmax(x):
    """The softmax over the in-edges of each destination, in an edge program;
    each element has its own."""
    return OVER["softmax_in"].bind(jnp.asarray(x))


def dropout(x, rate):
    """Drops elements with this probability and scales the others, in an edge
    program, whose call then takes a ``key``.  A value of a node is dropped, or
    not, for all of its edges."""
    return _DROPOUT.bind(jnp.asarray(x), rate=float(rate))


# ---- values -----------------------------------------------------------------

class Value(typing.NamedTuple):
    """text names the value; shape has 1, or nothing at all, where axes of the
    jaxpr's value are spread."""
    text: str
    place: int
    shape: tuple


class Exchanged(typing.NamedTuple):
    """A value whose axes are exchanged, which only products may read."""
    value: Value
    order: tuple
    where: str

    def refuse(self):
        raise TraceError(self.where + "axes are exchanged; edge programs keep "
                         "their order")

    text = place = shape = property(refuse)


def _join(places):
    """The place where values meet."""
    met = max(places, default=PARAM)
    return EDGE if {DST, SRC} <= set(places) else met


def number_of(x):
    x = float(x)
    if math.isinf(x):
        return "(inf)" if x > 0 else "(-inf)"
    return f"({x!r})"


def _spread(*shapes):
    rank = max(map(len, shapes), default=0)
    return tuple(max(sizes) for sizes in zip(*(
        (1,) * (rank - len(shape)) + tuple(shape) for shape in shapes)))


class Writer:
    """Writes a program; inputs are named by the caller."""

    def __init__(self):
        self.declared, self.lines = [], []
        self.tensors = []  # that the function finds outside of itself
        self.random = False
        self.where = ""  # the line that is translated

    def input(self, name, place, shape):
        if len(shape) > 3:
            raise TraceError(f"{name} has {len(shape)} axes, expected at most "
                             "3 after the rows")
        axes = f"[{','.join(map(str, shape))}]" if shape else ""
        self.declared.append(f"{PLACES[place]} {name}{axes}")
        return Value(name, place, tuple(shape))

    def captured(self, array):
        """A parameter that is no argument."""
        self.tensors.append(array)
        return self.input(f"tensor_{len(self.tensors)}", PARAM,
                          jnp.shape(array))

    def line(self, text, place, shape):
        if len(shape) > 3:
            raise Refused(f"a value has {len(shape)} axes, expected at "
                             "most 3")
        name = f"v_{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Value(name, place, tuple(shape))

    def apply(self, form, *values, shape=None):
        """form: the text, with {0} for the first value."""
        return self.line(form.format(*(v.text for v in values)),
                         _join([v.place for v in values]),
                         _spread(*(v.shape for v in values))
                         if shape is None else shape)

    def reshape(self, value, shape):
        shape = tuple(shape)
        if value.shape == shape:
            return value
        axes = ",".join(map(str, shape or (1,)))
        return self.apply(f"reshape({{0}}, [{axes}])", value, shape=shape)

    def expand(self, value, shape):
        shape = tuple(shape)
        if value.shape == shape:
            return value
        axes = ",".join(map(str, shape or (1,)))
        return self.apply(f"expand({{0}}, [{axes}])", value, shape=shape)

    def over(self, name, value):
        made = self.apply(name + "({0})", value)
        return made._replace(
            place=EDGE if name.startswith("softmax") else
            SRC if name.endswith("_out") else DST)

    def text(self, outputs, shapes):
        result = ", ".join(
            f"out_{k} = {v.text} as {PLACES[v.place]}"
            + (f"[{','.join(map(str, shape))}]" if shape else "")
            for k, (v, shape) in enumerate(zip(outputs, shapes)))
        return "\n".join(self.declared + self.lines
                         + [f"return {result}"]) + "\n"
