"""The text of an edge program from a jaxpr.

JAX traces a function of the values of one edge; each operation of its jaxpr
becomes a line of the program.  A value that was spread keeps axes of size 1
until an operation wants all of its elements, since those of edge programs
spread by themselves.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from .._program_handle import PARAM
from .._trace import (
    Value, Writer, fit, joined, method, narrow, ordered, refuse,
    sum_of_products)
from .._trace_errors import at_line, place_of_line
from ._primitives import OVER


class Program(Writer):
    """The text of a program, and the arrays that its function finds outside of
    itself."""

    def __init__(self):
        super().__init__()
        self.tensors = []
        self.exchanged = {}  # by a transposed value's handle: (before, order)

    def input(self, name, place, shape):
        if len(shape) > 3:
            refuse(f"{name} has {len(shape)} axes, expected at most 3 after "
                   "the rows")
        return Value(self, self.leaf(name, None, place, shape), place, shape)

    def captured(self, array):
        """A parameter that is no argument."""
        self.tensors.append(array)
        return self.input(f"tensor_{len(self.tensors)}", PARAM,
                          jnp.shape(array))

    def value(self, x):
        """A value; a constant array is a number, or a parameter that the caller
        gives."""
        if isinstance(x, Value):
            return x
        x = np.asarray(x)
        if x.size and (x == x.flat[0]).all():
            return Value(self, self.number(float(x.flat[0])), PARAM, ())
        return self.captured(x)


_where, _sum, _max, _min = map(method, ("where", "sum", "maximum", "minimum"))

_ELEMENTWISE = {
    **{name: method(name) for name in (
        "sub", "mul", "div", "neg", "exp", "log", "log1p", "expm1", "tanh",
        "sin", "cos", "sign", "sqrt", "rsqrt", "square", "erf", "lt", "le",
        "gt", "ge", "eq")},
    **{name: method(known) for name, known in (
        ("add", "__add__"), ("add_any", "__add__"), ("max", "maximum"),
        ("min", "minimum"), ("logistic", "sigmoid"),
        ("stop_gradient", "detach"))},
    "tan": lambda x: x.sin() / x.cos(),
    "abs": lambda x: _where(x < 0, -x, x),  # its derivative at 0 is 1
    "erfc": lambda x: 1 - x.erf(), "exp2": lambda x: (x * math.log(2)).exp(),
    "ne": lambda x, y: x != y, "clamp": lambda low, x, high: _min(
        _max(x, low), high),
}
_LOGICAL = {"and": lambda x, y: x * y, "or": _max, "not": lambda x: 1 - x}
_SAME = {"copy", "copy_p", "optimization_barrier"}
_REDUCE = {"reduce_sum": "sum", "reduce_max": "amax", "reduce_min": "amin"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call",
          "remat", "checkpoint", "remat2"}


def _pow(eqn, x, y=None):
    if y is None:  # integer_pow
        exponent = eqn.params["y"]
        return x.square() if exponent == 2 else x ** exponent
    if isinstance(eqn.invars[1], core.Literal):
        return x ** float(eqn.invars[1].val)
    refuse("a power whose exponent is no number; jnp.exp(y * jnp.log(x)) has "
           "one for x above 0")


def _select(eqn, which, *cases):
    if len(cases) != 2:
        refuse(f"a choice among {len(cases)}, expected 2")
    return _where(which, *cases[::-1])


def _convert(eqn, x):
    kind = eqn.params["new_dtype"]
    if kind == bool:
        return 1 - (x == 0)
    if not jnp.issubdtype(kind, jnp.floating):
        refuse(f"a conversion to {kind}, expected a real number")
    return x


def _reduce(eqn, x):
    x = fit(x, eqn.invars[0].aval.shape)
    for axis in eqn.params["axes"]:
        x = method(_REDUCE[eqn.primitive.name])(x, axis - len(x.shape))
    return fit(x, eqn.outvars[0].aval.shape)


def _broadcast(eqn, x):
    if not x.shape:
        return x
    shape = [1] * len(eqn.params["shape"])
    for axis, size in zip(eqn.params["broadcast_dimensions"], x.shape):
        shape[axis] = size
    return fit(x, shape)


def _reshape(eqn, x):
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    if eqn.params.get("dimensions"):
        refuse("a reshape that exchanges axes")
    if x.shape and [n for n in before if n != 1] == [
            n for n in after if n != 1]:
        sizes = iter(m for n, m in zip(before, x.shape) if n != 1)
        return fit(x, [1 if n == 1 else next(sizes) for n in after])
    return fit(fit(x, before), after) if x.shape else x


def _squeeze(eqn, x):
    gone = {axis % len(eqn.invars[0].aval.shape)
            for axis in eqn.params["dimensions"]}
    return fit(x, [n for k, n in enumerate(x.shape) if k not in gone])


def _transpose(eqn, x):
    order = eqn.params["permutation"]
    if not x.shape:
        return x
    result = ordered(x, order)
    x.recorder.exchanged[result.handle] = x, order
    return result


def _slice(eqn, x):
    strides = eqn.params.get("strides")
    if strides and any(s != 1 for s in strides):
        refuse("a slice with a step")
    for axis, (begin, end) in enumerate(zip(eqn.params["start_indices"],
                                            eqn.params["limit_indices"])):
        if x.shape and x.shape[axis] != 1:
            x = narrow(x, axis, int(begin), int(end))
    return x


def _split(eqn, x):
    x, axis = fit(x, eqn.invars[0].aval.shape), eqn.params["axis"]
    ends = list(itertools.accumulate(map(int, eqn.params["sizes"])))
    return [narrow(x, axis, begin, end) for begin, end in zip([0, *ends], ends)]


def _concatenate(eqn, *values):
    return joined([fit(v, var.aval.shape) for v, var in zip(
        values, eqn.invars)], eqn.params["dimension"])


def _stack(eqn, *values):
    axis, shape = eqn.params["axis"], eqn.outvars[0].aval.shape
    one = shape[:axis] + (1,) + shape[axis + 1:]
    return joined([fit(fit(v, var.aval.shape), one) for v, var in zip(
        values, eqn.invars)], axis)


def _dot_general(eqn, *values):
    """A sum of products of two values, whose axes get letters."""
    (contract, batch), letters = eqn.params["dimension_numbers"], \
        iter("abcdefgh")
    labels = []
    for side, var in enumerate(eqn.invars):
        mine = [None] * len(var.aval.shape)
        for group in (batch, contract):
            for k, axis in enumerate(group[side]):
                mine[axis] = (labels[0][group[0][k]] if side
                              else next(letters))
        labels.append([one or next(letters) for one in mine])
    gone = [labels[0][axis] for axis in contract[0]]
    shared = [labels[0][axis] for axis in batch[0]]
    out = shared + [c for mine in labels for c in mine
                    if c not in gone and c not in shared]
    sides = []
    for value, var, mine in zip(values, eqn.invars, labels):
        shape = var.aval.shape
        value, order = value.recorder.exchanged.get(
            value.handle, (value, range(len(shape))))
        back = np.argsort(order)  # its axes as they were
        sides.append((fit(value, [shape[k] for k in back]),
                      [mine[k] for k in back]))
    shape = eqn.outvars[0].aval.shape
    for (x, of_x), (y, of_y) in (sides, sides[::-1]):
        # a linear map of the last axis
        if len(gone) == 1 and len(of_y) == 2 and of_x[-1:] == gone and \
                out == of_x[:-1] + [c for c in of_y if c not in gone]:
            name = "matmul" if of_y[0] == gone[0] else "linear"
            return x._make(name, [x, y], shape)
    (x, of_x), (y, of_y) = sides
    return fit(sum_of_products(x, y, of_x, of_y, out), shape)


def _reduce_precision(eqn, x):
    kind = jnp.finfo(eqn.outvars[0].aval.dtype)
    if (eqn.params["exponent_bits"], eqn.params["mantissa_bits"]) < (
            kind.nexp, kind.nmant):
        refuse("reduce_precision to fewer bits")
    return x


def _drop(eqn, x):  # each element draws
    return method("dropout")(fit(x, eqn.invars[0].aval.shape),
                             eqn.params["rate"], eqn.params["rate"] > 0)


_OPERATIONS = {
    "integer_pow": _pow, "pow": _pow, "select_n": _select,
    "convert_element_type": _convert, "broadcast_in_dim": _broadcast,
    "reshape": _reshape, "squeeze": _squeeze, "transpose": _transpose,
    "slice": _slice, "split": _split, "concatenate": _concatenate,
    "stack": _stack, "dot_general": _dot_general,
    "dfgnn_dropout": _drop, "reduce_precision": _reduce_precision,
    **{name: _reduce for name in _REDUCE},
}


# ---- functions that have a name of their own --------------------------------

def _form(jaxpr):
    """The operations of a jaxpr, to be compared."""
    numbers = {var: k for k, var in enumerate(
        [*jaxpr.invars, *(v for e in jaxpr.eqns for v in e.outvars)])}
    return [(eqn.primitive.name,
             [float(v.val) if isinstance(v, core.Literal) else numbers[v]
              for v in eqn.invars],
             [_form(inner) for inner in [_inner(eqn)] if inner is not None])
            for eqn in jaxpr.eqns]


def _inner(eqn):
    if eqn.primitive.name not in _CALLS:
        return None
    jaxpr = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    return getattr(jaxpr, "jaxpr", jaxpr)


_NAMED = {  # of JAX: the function, its second argument, and the operation
    "silu": (jax.nn.silu, (), method("silu")),
    "elu": (jax.nn.elu, (), method("elu")),
    # GATv2's operator has it: its derivative at 0 is that of x < 0
    "leaky_relu": (jax.nn.leaky_relu, (0.2,), method("leaky_relu")),
    "logaddexp": (jnp.logaddexp, (0.0,), lambda x, _: method("softplus")(x)),
}


def _named(eqn, values):
    """The value of a call of one of these functions, or None: a function of
    the user's may have the same name."""
    name, further = eqn.params.get("name"), eqn.invars[1:]
    if name not in _NAMED or not all(isinstance(v, core.Literal)
                                     for v in further):
        return None
    function, numbers, operation = _NAMED[name]
    if name == "logaddexp" and further[0].val != 0:
        return None
    known = jax.make_jaxpr(lambda x: function(x, *numbers))(
        eqn.invars[0].aval)
    if _form(_inner(known.eqns[0])) != _form(_inner(eqn)):
        return None
    return operation(values[0], *(float(v.val) for v in further))


# by the number of arguments, functions of JAX that have a derivative of their own
_DERIVED = {
    1: ((jax.nn.relu, method("relu")),
        (jax.nn.relu6, lambda x: _where(6 <= x, 6, _where(x <= 0, 0, x)))),
    2: ((jnp.logaddexp, lambda x, y: _where(
        x - y == x - y, _max(x, y) + (-abs(x - y)).exp().log1p(), x + y)),),
}


def _custom(eqn, inner, values):
    """The value of a function with a derivative of its own; None if it is the
    derivative of the function's operations, as in JAX's functions."""
    variables = inner.invars
    outer = inner.replace(eqns=[eqn.replace(invars=variables)],
                          outvars=eqn.outvars)
    if not all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in variables):
        refuse("a derivative of its own by numbers that are not real")
    for function, operation in _DERIVED.get(len(variables), ()):
        known = jax.make_jaxpr(function)(*(v.aval for v in variables)).jaxpr
        if _form(inner) == _form(_inner(known.eqns[0])) and \
                _same_derivatives(outer, known, variables):
            return operation(*values)
    if not _same_derivatives(outer, inner, variables):
        refuse("a function with a derivative of its own (jax.custom_jvp)")
    return None


def _same_derivatives(first, second, variables):
    """Whether two jaxprs have equal derivatives at points with corners."""
    points = np.array([0, 1, -1, 6, .3, -.7, 3, -3, -6])
    for k in range(len(points)):
        inputs = [jnp.asarray(np.resize(np.roll(points, k), v.aval.shape),
                              v.aval.dtype) for v in variables]
        along = [jnp.cos(x + n) for n, x in enumerate(inputs)]
        a, b = (jax.jvp(lambda *x, one=one: jax.core.eval_jaxpr(
            one, (), *x), inputs, along)[1] for one in (first, second))
        if not all(np.allclose(x, y, 1e-3, 1e-5, equal_nan=True)
                   for x, y in zip(a, b)):
            return False
    return True


def _line_of(eqn):
    try:
        from jax._src import source_info_util
        line = source_info_util.summarize(eqn.source_info)
        return "" if line == "unknown" else line
    except Exception:  # private, so that it may go
        return ""


def _translate(w, eqn, values):
    name = eqn.primitive.name
    inner = _inner(eqn)
    if inner is not None:
        result = _named(eqn, values)
        if result is None and name == "custom_jvp_call":
            with jax.ensure_compile_time_eval():
                result = _custom(eqn, inner, values)
        if result is not None:
            return result
        consts = getattr(eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")),
                         "consts", ())
        return walk(w, inner, consts, values)
    if name in _SAME:
        return values[0]
    if name in _ELEMENTWISE:
        return _ELEMENTWISE[name](*values)
    if name in _LOGICAL:
        if eqn.outvars[0].aval.dtype != bool:
            refuse(f"{name} of the bits of integers")
        return _LOGICAL[name](*values)
    if name.startswith("dfgnn_") and name[6:] in OVER:
        return method(name[6:])(values[0])
    if name not in _OPERATIONS:
        refuse(f"edge programs have no {name}")
    return _OPERATIONS[name](eqn, *values)


def walk(w, jaxpr, consts, values):
    """The values of a jaxpr's results.  Numpy arrays among the values are
    constants; what is made of them alone is computed here."""
    by_var = dict(zip(jaxpr.constvars, map(w.captured, consts)))
    by_var.update(zip(jaxpr.invars, values))

    def read(var):
        return (np.asarray(var.val) if isinstance(var, core.Literal)
                else by_var[var])

    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        if all(isinstance(v, np.ndarray) for v in values) and \
                not eqn.primitive.name.startswith("dfgnn_"):
            with jax.ensure_compile_time_eval():
                result = eqn.primitive.bind(*values, **eqn.params)
            result = (list(map(np.asarray, result))
                      if eqn.primitive.multiple_results else np.asarray(result))
        else:
            with at_line(_line_of(eqn) or place_of_line()):
                if any(0 in var.aval.shape for var in eqn.outvars):
                    refuse("an array without elements")
                result = _translate(w, eqn, list(map(w.value, values)))
        by_var.update(zip(eqn.outvars,
                          result if isinstance(result, list) else [result]))
    return [read(v) for v in jaxpr.outvars]
