"""The formula of an MLP on edges, and its outputs by torch operations."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from ._evaluators import gathered, reduced
from ._modes import autocasting

ACTIVATIONS = (None, "relu", "silu", "gelu", "gelu_tanh", "elu", "leaky_relu",
               "tanh", "sigmoid", "softplus")
NORMS = None, "layer", "rms"
REDUCTIONS = None, "sum", "mean", "max", "min"


class Settings(NamedTuple):
    """A call's formula."""
    layers: int
    activation: str | None = None
    last: str | None = None
    slope: float = 0.0
    gate: bool = False
    norm: str | None = None
    epsilon: float = 0.0
    residual: bool = False
    reduce_dst: str | None = None
    reduce_src: str | None = None
    edges: bool = False  # whether e' is asked for

    @property
    def outputs(self):
        """The names of what a call returns, in order."""
        return [name for name, wanted in (
            ("edge_out", self.edges), ("out_dst", self.reduce_dst),
            ("out_src", self.reduce_src)) if wanted]


# The tensors of a call before its weights and biases, as fields of the args.
NAMES = ("edge", "dst_part", "src_part", "dst_factor", "src_factor",
         "norm_weight", "norm_bias")
BY_EDGE = "edge", "dst_factor", "src_factor"


def fields_of(settings):
    """The field of each tensor of a call."""
    return [*NAMES, *[f"{name}[{i}]" for name in ("weight", "bias")
                      for i in range(settings.layers)]]


def width_of(settings, tensors):
    """C, the width of e'."""
    last = tensors[len(NAMES) + settings.layers - 1]
    width = last.size(0) if last is not None else next(
        t for t in tensors[1:3] if t is not None).size(1)
    return width // 2 if settings.gate else width


def kept_widths(settings, tensors):
    """Numbers of an edge that each layer of a call keeps between its passes, as
    dfgnn_edge_mlp_kept_width says, also where sizes are traced."""
    widths = [w.size(0) for w in tensors[len(NAMES):][:settings.layers]]
    return widths if settings.norm else widths[:-1]


FIRST = len(NAMES)  # the place of the first weight


class Layout(NamedTuple):
    """The columns of the first weight, (the first of them, their number); None
    for what is not there.  Those of the ends are products over nodes, dst_part
    and src_part, and not one over edges."""
    dst: tuple | None
    src: tuple | None
    edge: tuple | None


def fields(tensors, layout, ends, dtype):
    """The tensors of the fields, rows of the type, from those of a call whose
    first weight has columns of the ends (dst, src), too."""
    tensors = [t if t is None or n >= 5 or t.dtype is dtype else t.to(dtype)
               for n, t in enumerate(tensors)]
    if layout is None:
        return tensors
    whole = tensors[FIRST]
    weight = whole.to(dtype)
    for n, x, columns in zip((1, 2), ends, layout):
        if columns is not None:
            part = F.linear(x.to(dtype), weight.narrow(1, *columns))
            tensors[n] = part if tensors[n] is None else part + tensors[n]
    tensors[FIRST] = None if layout.edge is None else \
        whole.narrow(1, *layout.edge)
    return tensors


def activate(name, x, slope):
    if name is None:
        return x
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    if name == "elu":
        return F.elu(x, slope)
    if name == "leaky_relu":
        return F.leaky_relu(x, slope)
    if name in ("tanh", "sigmoid"):
        return getattr(torch, name)(x)
    return getattr(F, name)(x)


def _normalize(settings, x, weight, bias):
    if settings.norm == "layer":
        return F.layer_norm(x, x.shape[-1:], weight, bias, settings.epsilon)
    inverse = torch.rsqrt(x.square().mean(-1, keepdim=True)
                          + settings.epsilon)
    return x * inverse if weight is None else x * inverse * weight


def _sent(reduce, x, factor):
    return x if factor is None or reduce in ("max", "min") else \
        x * factor.view(-1, 1)


class ByTorch:
    """The parts of a call that read nodes by edge or add edges at nodes, by
    torch operations; rows of edges are in the graph's order."""

    def __init__(self, graph):
        self.graph = graph
        self.to, self.back = graph.to_graph_order, graph.to_caller_order

    def added(self, edge, dst_part, src_part, activation, slope):
        """The activation of edge + dst_part[i] + src_part[j]; None is
        nothing."""
        terms = [] if edge is None else [edge]
        terms += [gathered(part, index) for part, index in (
            (dst_part, self.graph.dst), (src_part, self.graph.src))
            if part is not None]
        return activate(activation, sum(terms[1:], terms[0]), slope)

    def at_destinations(self, what, x):
        return reduced(what, x, self.graph.dst, self.graph.num_dst)

    def at_sources(self, what, x):
        return reduced(what, x, self.graph.src, self.graph.num_src)


def composite(graph, settings, tensors, dtype=None, parts=ByTorch):
    """The outputs by torch's products, which are differentiable; rows of edges
    in the caller's order.  dtype: the type that all are computed in, inside an
    autocast region, too."""
    if dtype is not None:
        tensors = [None if t is None else t.to(dtype) for t in tensors]
        if autocasting():
            kind = next(t for t in tensors if t is not None).device.type
            with torch.autocast(kind, enabled=False):
                return composite(graph, settings, tensors, None, parts)
    parts = parts(graph)
    edge, dst_part, src_part, dst_factor, src_factor, scale, shift = [
        t if t is None or name not in BY_EDGE else parts.to(t)
        for t, name in zip(tensors, NAMES)]
    weights = tensors[len(NAMES):len(NAMES) + settings.layers]
    biases = tensors[len(NAMES) + settings.layers:]
    if edge is not None:
        edge_part = F.linear(edge, weights[0], biases[0])
    elif biases[0] is None:
        edge_part = None
    elif dst_part is not None:
        edge_part, dst_part = None, dst_part + biases[0]
    else:
        edge_part, src_part = None, src_part + biases[0]
    x = parts.added(edge_part, dst_part, src_part, settings.activation if
                    settings.layers > 1 else None, settings.slope)
    for n, (weight, bias) in enumerate(zip(weights[1:], biases[1:])):
        if n:
            x = activate(settings.activation, x, settings.slope)
        x = F.linear(x, weight, bias)
    if settings.gate:
        gate, x = x.chunk(2, -1)
        x = torch.sigmoid(gate) * activate(settings.last, x, settings.slope)
    else:
        x = activate(settings.last, x, settings.slope)
    if settings.norm:
        x = _normalize(settings, x, scale, shift)
    if settings.residual:
        x = x + edge
    results = {"edge_out": lambda: parts.back(x),
               "out_dst": lambda: parts.at_destinations(
                settings.reduce_dst, _sent(settings.reduce_dst, x, dst_factor)),
               "out_src": lambda: parts.at_sources(
                settings.reduce_src, _sent(settings.reduce_src, x, src_factor))}
    return tuple(results[name]() for name in settings.outputs)
