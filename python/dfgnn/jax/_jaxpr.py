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

from .._program import PARAM
from ._writer import OVER, Exchanged, Refused, TraceError, Value, number_of

_ELEMENTWISE = {
    "add": "{0} + {1}", "add_any": "{0} + {1}", "sub": "{0} - {1}",
    "mul": "{0} * {1}", "div": "{0} / {1}", "max": "max({0}, {1})",
    "min": "min({0}, {1})", "neg": "neg({0})", "exp": "exp({0})",
    "log": "log({0})", "log1p": "log1p({0})", "expm1": "expm1({0})",
    "tanh": "tanh({0})", "sin": "sin({0})", "cos": "cos({0})",
    "tan": "sin({0}) / cos({0})", "sign": "sign({0})",
    # whose derivative at 0 is 1
    "abs": "where({0} < 0, neg({0}), {0})",
    "sqrt": "sqrt({0})", "rsqrt": "rsqrt({0})", "square": "square({0})",
    "logistic": "sigmoid({0})", "erf": "erf({0})", "erfc": "1 - erf({0})",
    "exp2": f"exp({{0}} * {math.log(2)!r})", "stop_gradient": "detach({0})",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{1} < {0}",
    "ge": "{1} <= {0}", "eq": "{0} == {1}", "ne": "1 - ({0} == {1})",
}
_SAME = {"copy", "copy_p", "optimization_barrier"}
_REDUCE = {"reduce_sum": "sum", "reduce_max": "amax", "reduce_min": "amin"}
_CALLS = {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call",
          "remat", "checkpoint", "remat2"}


def _integer_pow(w, eqn, x):
    y = eqn.params["y"]
    return w.apply("square({0})" if y == 2 else f"pow({{0}}, {float(y)})", x)


def _pow(w, eqn, x, y):
    exponent = eqn.invars[1]
    if isinstance(exponent, core.Literal):
        return w.apply(f"pow({{0}}, {float(exponent.val)})", x)
    raise Refused("a power whose exponent is no number; jnp.exp(y * "
                  "jnp.log(x)) has one for x above 0")


def _select(w, eqn, which, *cases):
    if len(cases) != 2:
        raise Refused(f"a choice among {len(cases)}, expected 2")
    return w.apply("where({0}, {2}, {1})", which, *cases)


def _convert(w, eqn, x):
    kind = eqn.params["new_dtype"]
    if kind == bool:
        return w.apply("1 - ({0} == 0)", x)
    if not jnp.issubdtype(kind, jnp.floating):
        raise Refused(f"a conversion to {kind}, expected a real number")
    return x


def _reduce(w, eqn, x):
    shape = eqn.invars[0].aval.shape
    x = w.expand(x, shape)
    for axis in eqn.params["axes"]:
        left = list(x.shape)
        left[axis] = 1
        x = w.apply(f"{_REDUCE[eqn.primitive.name]}({{0}}, "
                    f"{axis - len(left)})", x, shape=left)
    return w.reshape(x, eqn.outvars[0].aval.shape)


def _broadcast(w, eqn, x):
    if not x.shape:
        return x
    shape = [1] * len(eqn.params["shape"])
    for axis, size in zip(eqn.params["broadcast_dimensions"], x.shape):
        shape[axis] = size
    return w.reshape(x, shape)


def _reshape(w, eqn, x):
    before, after = eqn.invars[0].aval.shape, eqn.outvars[0].aval.shape
    if eqn.params.get("dimensions"):
        raise Refused("a reshape that exchanges axes")
    if x.shape and [n for n in before if n != 1] == [
            n for n in after if n != 1]:
        sizes = iter(m for n, m in zip(before, x.shape) if n != 1)
        return w.reshape(x, [1 if n == 1 else next(sizes) for n in after])
    return w.reshape(w.expand(x, before), after) if x.shape else x


def _squeeze(w, eqn, x):
    gone = {axis % len(eqn.invars[0].aval.shape)
            for axis in eqn.params["dimensions"]}
    return w.reshape(x, [n for k, n in enumerate(x.shape) if k not in gone])


def _transpose(w, eqn, x):
    order = eqn.params["permutation"]
    sizes = eqn.invars[0].aval.shape
    kept = [k for k in order if sizes[k] != 1]
    if not x.shape:
        return x
    if kept == sorted(kept):
        return w.reshape(x, [x.shape[k] for k in order])
    return Exchanged(x, tuple(order), w.where)


def _part(w, x, axis, begin, end):
    """A part of an axis of a value that is not spread."""
    shape = x.shape[:axis] + (end - begin,) + x.shape[axis + 1:]
    if (begin, end) == (0, x.shape[axis]):
        return x
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1:])
    if after == 1:
        flat = w.reshape(x, x.shape[:axis + 1])
    elif before == 1:
        flat = w.reshape(x, (x.shape[axis] * after,))
    else:
        raise Refused("a part of an axis that stands between others")
    flat = w.apply(f"{{0}}[{begin * after}:{end * after}]", flat,
                   shape=flat.shape[:-1] + ((end - begin) * after,))
    return w.reshape(flat, shape)


def _slice(w, eqn, x):
    strides = eqn.params.get("strides")
    if strides and any(s != 1 for s in strides):
        raise Refused("a slice with a step")
    if not x.shape:
        return x
    for axis, (begin, end) in enumerate(zip(eqn.params["start_indices"],
                                            eqn.params["limit_indices"])):
        if x.shape[axis] != 1:
            x = _part(w, x, axis, int(begin), int(end))
    return x


def _split(w, eqn, x):
    x, axis = w.expand(x, eqn.invars[0].aval.shape), eqn.params["axis"]
    ends = list(itertools.accumulate(map(int, eqn.params["sizes"])))
    return [_part(w, x, axis, begin, end)
            for begin, end in zip([0, *ends], ends)]


def _joined(w, values, axis, shape):
    after = math.prod(shape[axis + 1:])
    if axis == len(shape) - 1:
        flat = values
    elif math.prod(shape[:axis]) == 1:
        flat = [w.reshape(v, (v.shape[axis] * after,)) for v in values]
    else:
        raise Refused("a concatenation along an axis between others")
    made = w.apply("cat(" + ", ".join(f"{{{k}}}" for k in range(len(flat)))
                   + ")", *flat, shape=flat[0].shape[:-1] + (
                       sum(v.shape[-1] for v in flat),))
    return w.reshape(made, shape)


def _concatenate(w, eqn, *values):
    values = [w.expand(v, var.aval.shape)
              for v, var in zip(values, eqn.invars)]
    return _joined(w, values, eqn.params["dimension"],
                   eqn.outvars[0].aval.shape)


def _stack(w, eqn, *values):
    axis, shape = eqn.params["axis"], eqn.outvars[0].aval.shape
    one = shape[:axis] + (1,) + shape[axis + 1:]
    values = [w.reshape(w.expand(v, var.aval.shape), one)
              for v, var in zip(values, eqn.invars)]
    return _joined(w, values, axis, shape)


def _dot_general(w, eqn, a, b):
    (contract, batch), letters = eqn.params["dimension_numbers"], iter("abcdefgh")
    labels = []
    for side, (value, var) in enumerate(zip((a, b), eqn.invars)):
        rank = len(var.aval.shape)
        mine = [None] * rank
        for group in (batch, contract):
            for k, axis in enumerate(group[side]):
                mine[axis] = (labels[0][group[0][k]] if side
                              else next(letters))
        labels.append([one or next(letters) for one in mine])
    gone = [labels[0][axis] for axis in contract[0]]
    shared = [labels[0][axis] for axis in batch[0]]
    out = shared + [c for mine in labels for c in mine
                    if c not in gone and c not in shared]
    sizes = [var.aval.shape for var in eqn.invars]
    values = []
    for k, value in enumerate((a, b)):
        if isinstance(value, Exchanged):  # its axes as they were
            back = np.argsort(value.order)
            labels[k] = [labels[k][axis] for axis in back]
            sizes[k] = tuple(sizes[k][axis] for axis in back)
            value = value.value
        values.append(w.expand(value, sizes[k]))
    return _product(w, values, labels, gone, out, eqn.outvars[0].aval.shape)


def _product(w, values, labels, gone, out, shape):
    """A sum of products of two values whose axes have these letters."""
    for (x, y), (of_x, of_y) in ((values, labels),
                                 (values[::-1], labels[::-1])):
        # a linear map of the last axis
        if len(gone) == 1 and len(of_y) == 2 and of_x[-1:] == gone and \
                out == of_x[:-1] + [c for c in of_y if c not in gone]:
            name = "matmul" if of_y[0] == gone[0] else "linear"
            return w.apply(f"{name}({{0}}, {{1}})", x, y, shape=shape)
    everything = out + gone
    for order in itertools.permutations(everything):
        if all([c for c in order if c in some] == list(some)
               for some in (*labels, out)):
            break
    else:
        raise Refused("a product whose axes are exchanged")
    if len(order) > 3:
        raise Refused(f"a product of {len(order)} axes, expected 3 at most")
    factors = [w.reshape(v, [v.shape[mine.index(c)] if c in mine else 1
                             for c in order])
               for v, mine in zip(values, labels)]
    made = w.apply("{0} * {1}", *factors)
    for letter in gone:
        axis = order.index(letter)
        left = list(made.shape)
        left[axis] = 1
        made = w.apply(f"sum({{0}}, {axis - len(order)})", made, shape=left)
    return w.reshape(made, shape)


def _logical(form):
    def operation(w, eqn, *values):
        if eqn.outvars[0].aval.dtype != bool:
            raise Refused(f"{eqn.primitive.name} of the bits of integers")
        return w.apply(form, *values)
    return operation


def _reduce_precision(w, eqn, x):
    kind = jnp.finfo(eqn.outvars[0].aval.dtype)
    if (eqn.params["exponent_bits"], eqn.params["mantissa_bits"]) < (
            kind.nexp, kind.nmant):
        raise Refused("reduce_precision to fewer bits")
    return x


def _clamp(w, eqn, low, x, high):
    return w.apply("min(max({1}, {0}), {2})", low, x, high)


def _drop(w, eqn, x):
    rate = eqn.params["rate"]
    if rate == 0:
        return x
    w.random = True
    # each element draws
    x = w.expand(x, eqn.invars[0].aval.shape)
    return w.apply(f"dropout({{0}}, {rate!r})", x)


_OPERATIONS = {
    "integer_pow": _integer_pow, "pow": _pow, "select_n": _select,
    "convert_element_type": _convert, "broadcast_in_dim": _broadcast,
    "reshape": _reshape, "squeeze": _squeeze, "transpose": _transpose,
    "slice": _slice, "split": _split, "concatenate": _concatenate,
    "stack": _stack, "dot_general": _dot_general, "clamp": _clamp,
    "dfgnn_dropout": _drop, "reduce_precision": _reduce_precision,
    "and": _logical("{0} * {1}"), "or": _logical("max({0}, {1})"),
    "not": _logical("1 - {0}"),
    **{name: _reduce for name in _REDUCE},
}


# ---- functions that have a name of their own --------------------------------

def _form(jaxpr):
    """What a jaxpr does, to be compared."""
    numbers = {var: k for k, var in enumerate(
        [*jaxpr.invars, *(v for e in jaxpr.eqns for v in e.outvars)])}
    return [(eqn.primitive.name,
             [float(v.val) if isinstance(v, core.Literal) else numbers[v]
              for v in eqn.invars],
             [_form(inner) for inner in [_inner(eqn)] if inner is not None])
            for eqn in jaxpr.eqns]


def _inner(eqn):
    """The jaxpr of a call, or None."""
    if eqn.primitive.name not in _CALLS:
        return None
    found = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
    return getattr(found, "jaxpr", found)


_NAMED = {  # of JAX: the function, its second argument, and the text
    "silu": (jax.nn.silu, (), "silu({0})"),
    "elu": (jax.nn.elu, (), "elu({0}, 1.0)"),
    # the operator of GATv2 has it, whose derivative at 0 is that below
    "leaky_relu": (jax.nn.leaky_relu, (0.2,), "leaky_relu({0}, {1})"),
    "logaddexp": (jnp.logaddexp, (0.0,), "softplus({0})"),
}


def _named(eqn):
    """The text of a call of one of these functions, or None: a function of
    the user's may have the same name."""
    name, further = eqn.params.get("name"), eqn.invars[1:]
    if name not in _NAMED or not all(isinstance(v, core.Literal)
                                     for v in further):
        return None
    function, numbers, text = _NAMED[name]
    if name == "logaddexp" and further[0].val != 0:
        return None
    known = jax.make_jaxpr(lambda x: function(x, *numbers))(
        eqn.invars[0].aval)
    if _form(_inner(known.eqns[0])) != _form(_inner(eqn)):
        return None
    return text.format("{0}", *(float(v.val) for v in further))


# by the number of arguments, functions of JAX that have a derivative of their own
_DERIVED = {
    1: ((jax.nn.relu, "relu({0})"),
        (jax.nn.relu6, "where(6 <= {0}, 6, where({0} <= 0, 0, {0}))")),
    2: ((jnp.logaddexp, "where({0} - {1} == {0} - {1}, max({0}, {1}) + "
         "log1p(exp(neg(abs({0} - {1})))), {0} + {1})"),),
}


def _custom(w, eqn, inner, values):
    """A function that has a derivative of its own, or None if it is that of
    what the function does, as the derivatives of JAX's functions are."""
    variables = inner.invars
    outer = inner.replace(eqns=[eqn.replace(invars=variables)],
                          outvars=eqn.outvars)
    if not all(jnp.issubdtype(v.aval.dtype, jnp.floating) for v in variables):
        raise Refused("a derivative of its own by numbers that are not real")
    for function, text in _DERIVED.get(len(variables), ()):
        known = jax.make_jaxpr(function)(*(v.aval for v in variables)).jaxpr
        if _form(inner) == _form(_inner(known.eqns[0])) and \
                _same_derivatives(outer, known, variables):
            return w.apply(text, *values)
    if not _same_derivatives(outer, inner, variables):
        raise Refused("a function with a derivative of its own "
                      "(jax.custom_jvp)")
    return None


def _same_derivatives(first, second, variables):
    """Whether they are the same at points where derivatives have corners."""
    points = np.array([0, 1, -1, 6, .3, -.7, 3, -3, -6])
    for k in range(len(points)):
        given = [jnp.asarray(np.resize(np.roll(points, k), v.aval.shape),
                             v.aval.dtype) for v in variables]
        along = [jnp.cos(x + n) for n, x in enumerate(given)]
        a, b = (jax.jvp(lambda *x, one=one: jax.core.eval_jaxpr(
            one, (), *x), given, along)[1] for one in (first, second))
        if not all(np.allclose(x, y, 1e-3, 1e-5, equal_nan=True)
                   for x, y in zip(a, b)):
            return False
    return True


# ---- the walk over a jaxpr ---------------------------------------------------

def _line_of(eqn):
    try:
        from jax._src import source_info_util
        found = source_info_util.summarize(eqn.source_info)
        return "" if found in ("", "unknown") else found + ": "
    except Exception:  # private, so that it may go
        return ""


def _constant(w, array):
    """A number, or a parameter that the caller gives."""
    array = np.asarray(array)
    if array.size and (array == array.flat[0]).all():
        return Value(number_of(array.flat[0]), PARAM, ())
    return w.captured(array)


def as_value(w, value):
    """A result of walk() that may be a constant, as a Value."""
    return _constant(w, value) if isinstance(value, np.ndarray) else value


def _translate(w, eqn, values):
    name = eqn.primitive.name
    inner = _inner(eqn)
    if inner is not None:
        known = _named(eqn)
        if known:
            return w.apply(known, values[0])
        if name == "custom_jvp_call":
            with jax.ensure_compile_time_eval():
                made = _custom(w, eqn, inner, values)
            if made is not None:
                return made
        consts = getattr(eqn.params.get("jaxpr", eqn.params.get("call_jaxpr")),
                         "consts", ())
        return walk(w, inner, consts, values)
    if name in _SAME:
        return values[0]
    if name in _ELEMENTWISE:
        return w.apply(_ELEMENTWISE[name], *values)
    if name.startswith("dfgnn_") and name[6:] in OVER:
        return w.over(name[6:], values[0])
    if name not in _OPERATIONS:
        raise Refused(f"edge programs have no {name}")
    return _OPERATIONS[name](w, eqn, *values)


def walk(w, jaxpr, consts, values):
    """The values of a jaxpr's results.  Numpy arrays among the values are
    constants; what is made of them alone is computed here."""
    found = dict(zip(jaxpr.constvars, map(w.captured, consts)))
    found.update(zip(jaxpr.invars, values))

    def read(var):
        return (np.asarray(var.val) if isinstance(var, core.Literal)
                else found[var])

    outer = w.where
    for eqn in jaxpr.eqns:
        values = [read(v) for v in eqn.invars]
        w.where = _line_of(eqn) or outer
        try:
            if all(isinstance(v, np.ndarray) for v in values) and \
                    not eqn.primitive.name.startswith("dfgnn_"):
                with jax.ensure_compile_time_eval():
                    made = eqn.primitive.bind(*values, **eqn.params)
                made = (list(map(np.asarray, made))
                        if eqn.primitive.multiple_results
                        else np.asarray(made))
            else:
                made = _translate(w, eqn, [as_value(w, v) for v in values])
        except Refused as reason:
            raise TraceError(w.where + str(reason)) from None
        found.update(zip(eqn.outvars,
                         made if isinstance(made, list) else [made]))
    w.where = outer
    return [read(v) for v in jaxpr.outvars]
