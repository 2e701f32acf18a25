"""Operators of the library as edge programs, for gradients of gradients: the
gradient of a program is a program again, and holds no features of edges.

Tensors by edge are in the graph's own order.  A function returns None for a
call that it does not serve, which then runs by torch's operations.
"""

import functools

import torch

from . import _programs
from ._operators import OPERATORS
from ._programs import DST, EDGE, PARAM, SRC
from .errors import UnsupportedError

_PLACES = {PARAM: "param", DST: "dst", SRC: "src", EDGE: "edge"}


class _Text:
    """A program and its tensors, written line by line."""

    def __init__(self, graph, exact):
        self.graph, self.exact = graph, exact
        self.declared, self.tensors, self.lines = [], [], []
        self.names = set()

    def give(self, place, name, tensor, *axes):
        """Names a tensor, once; axes: those of a row, if the tensor has
        others."""
        if name in self.names:
            return
        self.names.add(name)
        if axes:
            tensor = tensor.reshape(tensor.shape[0], *axes)
        axes = ",".join(map(str, tensor.shape[place != PARAM:]))
        self.declared.append(f"{_PLACES[place]} {name}"
                             + (f"[{axes}]" if axes else ""))
        self.tensors.append(tensor)

    def line(self, text):
        self.lines.append(text)

    def _program(self, outputs):
        made = ", ".join(
            f"out_{k} = {what} as {_PLACES[place]}"
            f"[{','.join(map(str, axes))}]"
            for k, (what, place, axes) in enumerate(outputs))
        return _programs.parse("\n".join((*self.declared, *self.lines,
                                          f"return {made}\n")))

    def run(self, outputs, seed=None, read=True):
        """The outputs, (expression, place, axes) each, with gradients of any
        order; read: whether their values are, and not their gradients
        alone."""
        return _programs.run(self._program(outputs), self.graph,
                             (self.exact,) * len(outputs), seed,
                             *self.tensors, read=read)[:len(outputs)]


def _or_none(function):
    """function, or None for what has no kernel."""
    @functools.wraps(function)
    def tried(graph, *args):
        if not graph.num_edges or graph.exchange is not None:
            return None
        try:
            return function(graph, *args)
        except UnsupportedError:
            return None
    return tried


# ---- attention --------------------------------------------------------------

def _gt(t, inputs, settings):
    """(score, what a weight is multiplied with, what is added to the sum)."""
    query, key, _, *edges = inputs
    t.give(DST, "q", query), t.give(SRC, "k", key)
    attr, weight, shift = (*edges, None, None, None)[:3]
    scale = f" * ({settings.scale!r})"
    keys, values = (attr is not None and settings.edge_use != other
                    for other in ("values", "keys"))
    if attr is None or attr.dim() == 3:
        if attr is not None:
            t.give(EDGE, "x", attr)
        return (f"sum(q * {'(k + x)' if keys else 'k'}){scale}",
                "(v + x)" if values else "v", None)
    heads, dim = query.shape[1:]
    weight = weight.view(heads, dim, -1).to(t.exact)
    t.give(EDGE, "x", attr, 1, attr.size(1))
    score = "sum(q * k)"
    if keys:  # <q, W x + b> = <W^T q, x> + <q, b>
        t.give(DST, "p", torch.einsum("nhd,hdf->nhf", query.to(t.exact),
                                      weight))
        score += " + sum(p * x)"
        if shift is not None:
            t.give(PARAM, "b", shift.view(heads, dim))
            score += " + sum(q * b)"
    return f"({score}){scale}", "v", (weight, shift) if values else None


def _agnn(t, inputs, settings):
    query, value, beta = inputs
    t.give(DST, "q", query), t.give(SRC, "v", value)
    lengths = " * ".join(f"max(sqrt(sum({x} * {x})), 1e-12)" for x in "qv")
    score = f"sum(q * v) / ({lengths})"
    if beta is not None:
        t.give(PARAM, "beta", beta.reshape(()))
        score = f"beta * {score}"
    return score, "v", None


def _gat(t, inputs, settings):
    _, score_dst, score_src, *edges = inputs
    heads = score_src.size(1)
    t.give(DST, "a", score_dst, heads, 1), t.give(SRC, "b", score_src,
                                                 heads, 1)
    score = "a + b"
    if edges and edges[0] is not None:
        t.give(EDGE, "c", edges[0], heads, 1)
        score += " + c"
    return f"leaky_relu({score}, {settings.slope!r})", "v", None


def _gatv2(t, inputs, settings):
    query, value, att, *edges = inputs
    heads, dim = value.shape[1:]
    t.give(DST, "q", query), t.give(SRC, "v", value), t.give(PARAM, "a", att)
    attr, weight, shift = (*edges, None, None, None)[:3]
    hidden = "q + v"
    if attr is not None:
        if attr.dim() == 2:
            attr = torch.nn.functional.linear(attr, weight, shift)
        t.give(EDGE, "x", attr, heads, dim)
        hidden += " + x"
    return f"sum(a * leaky_relu({hidden}, {settings.slope!r}))", "v", None


_ATTENTION = {"gt": _gt, "agnn": _agnn, "gat": _gat, "gatv2": _gatv2}


def _exact(value):
    return torch.float64 if value.dtype == torch.float64 else torch.float32


@_or_none
def scores(graph, op, inputs, settings):
    """[E, H] the scores before a bias is added, for their gradients."""
    value = inputs[OPERATORS[op].value]
    heads = value.size(1)
    t = _Text(graph, _exact(value))
    score, *_ = _ATTENTION[op](t, inputs, settings)
    return t.run([(score, EDGE, (heads, 1))], read=False)[0].squeeze(-1)


@_or_none
def attention(graph, op, inputs, bias, seed, settings):
    """(out, weights before dropout)."""
    if settings.dropout and graph.edge_number is not None:
        return None  # a part of a graph numbers its edges otherwise
    value = inputs[OPERATORS[op].value]
    heads, dim = value.shape[1:]
    t = _Text(graph, _exact(value))
    t.give(SRC, "v", value)
    score, message, more = _ATTENTION[op](t, inputs, settings)
    if bias is None:
        t.line(f"w = softmax_in({score})")
    else:  # -inf leaves out an edge, of which the softmax then knows nothing
        t.give(EDGE, "bias", bias.to(t.exact), heads, 1)
        t.line("there = bias >= -1e30")
        t.line(f"w = there * softmax_in(where(there, {score} + bias, -1e30))")
    t.line(f"d = dropout(w, {settings.dropout!r})" if settings.dropout
           else "d = w")
    outputs = [(f"sum_in(d * {message})", DST, (heads, dim))]
    if settings.weights:
        outputs.append(("w", EDGE, (heads, 1)))
    if more is not None:
        width = more[0].size(-1)
        outputs += [("sum_in(d * x)", DST, (heads, width)),
                    ("sum_in(d)", DST, (heads, 1))]
    out, *rest = t.run(outputs, seed if settings.dropout else None)
    weights = rest.pop(0).squeeze(-1) if settings.weights else None
    if more is not None:
        weight, shift = more
        sums, total = rest
        out = out + torch.einsum("nhf,hdf->nhd", sums, weight)
        if shift is not None:
            out = out + total * shift.view(heads, dim)
    return out.to(value.dtype), weights


# ---- sums -------------------------------------------------------------------

@_or_none
def sum_out(graph, grad):
    """[M, ...] the sum over out-edges of rows of destinations."""
    t = _Text(graph, grad.dtype)
    t.give(DST, "g", grad)
    return t.run([("sum_out(g)", SRC, grad.shape[1:])])[0]


@_or_none
def weighted_sum(graph, value, weight):
    """[N, H, D] of value [M, H, D] and weight [E, H], or [N, D] of value
    [M, D] and weight [E, 1], for its gradients."""
    t = _Text(graph, value.dtype)
    t.give(SRC, "v", value)
    t.give(EDGE, "w", weight, *weight.shape[1:value.dim() - 1], 1)
    return t.run([("sum_in(w * v)", DST, value.shape[1:])], read=False)[0]


# ---- messages ---------------------------------------------------------------

# Extremes are none of these: equal ones share their gradient in a program.
_REDUCED = {"sum": "sum_in(m)", "mean": "mean_in(m)",
            "var": "mean_in((m - mean_in(m)) * (m - mean_in(m)))"}
_REDUCED["std"] = f"where({_REDUCED['var']} <= 1e-5, 0, " \
    f"sqrt(max({_REDUCED['var']}, 1e-5)))"


_REDUCED_TO = {**{name: (name,) for name in _REDUCED}, "pna": ("mean", "std")}


def _reduced(t, reduce, shape):
    """Those of the results of a reduction of m that are sums, for their
    gradients."""
    return t.run(_outputs(reduce, shape), read=False)


def _outputs(reduce, shape):
    return [(_REDUCED[name], DST, shape) for name in _REDUCED_TO[reduce]]


@_or_none
def values(graph, reduce, value):
    """What messages() gives where values [M, H, D] are the messages."""
    t = _Text(graph, value.dtype)
    t.give(SRC, "v", value)
    t.line("m = v")
    return _reduced(t, reduce, value.shape[1:])


@functools.lru_cache(maxsize=256)
def _of_relu_gradient(reduce, axes, names):
    axes = f"[{','.join(map(str, axes))}]"
    given = "".join(f"{place} {name}{axes}\n" for place, name in (
        ("src", "value"), ("edge", "edge_attr"), *names))
    way = " + ".join(name for _, name in names)
    return _programs.parse(
        f"{given}m = where(value + edge_attr > 0, {way}, 0)\n"
        f"return grad = {_REDUCED[reduce]} as dst{axes}\n")


def of_relu_gradient(graph, reduce, value, edge_attr, of_value, of_edges):
    """The gradient by the gradient [N, H, D] of a sum or mean of relu(value_j +
    edge_attr), from those by what relu_gradient() gives, either of which may be
    None; all else that it read has none."""
    given = [(name, tensor) for name, tensor in (
        (("src", "of_value"), of_value), (("edge", "of_edges"), of_edges))
        if tensor is not None]
    program = _of_relu_gradient(reduce, tuple(value.shape[1:]),
                                tuple(name for name, _ in given))
    return _programs.run(program, graph, (value.dtype,), None, value,
                         edge_attr, *[tensor for _, tensor in given])[0]


@_or_none
def messages(graph, reduce, given):
    """[N, H, D] each of messages, of the inputs by their fields: (mean, std)
    for "pna", whose extremes, as others, are those of the edges that gave
    them."""
    value = given["value"]
    t = _Text(graph, value.dtype)
    heads, dim = value.shape[1:]
    t.give(SRC, "v", value)
    attr, weight, shift = map(given.get, (
        "edge_attr", "edge_weight", "edge_bias"))
    sent = "v"
    if attr is not None and weight is not None:
        attr = torch.nn.functional.linear(
            attr, weight.reshape(-1, attr.size(1)),
            None if shift is None else shift.reshape(-1))
        if weight.dim() == 4:  # the value has features of edges
            attr, more = attr.chunk(2, dim=-1)
            t.give(EDGE, "y", more, heads, dim)
            sent = "(v + y)"
    if attr is not None:
        t.give(EDGE, "x", attr, heads, dim)
    if given.get("gate_dst") is None:
        t.line("m = relu(v + x)")
    else:
        t.give(DST, "a", given["gate_dst"])
        t.give(SRC, "b", given["gate_src"])
        t.line(f"m = sigmoid(a + b{'' if attr is None else ' + x'}) * {sent}")
    return _reduced(t, reduce, (heads, dim))
