"""The formula of an MLP on edges, and its outputs by torch operations."""

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F

from ._evaluators import gathered, reduced

ACTIVATIONS = (None, "relu", "silu", "gelu", "gelu_tanh", "elu", "leaky_relu",
               "tanh", "sigmoid", "softplus")
NORMS = None, "layer", "rms"
REDUCTIONS = None, "sum", "mean", "max", "min"


class Settings(NamedTuple):
    """A call's formula."""
    layers: int
    activation: Optional[str] = None
    last: Optional[str] = None
    slope: float = 0.0
    gate: bool = False
    norm: Optional[str] = None
    epsilon: float = 0.0
    residual: bool = False
    reduce_dst: Optional[str] = None
    reduce_src: Optional[str] = None
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


def ordered(graph, tensors):
    """The tensors with rows of edges in the graph's order."""
    return [graph.to_graph_order(t) if t is not None and i < len(NAMES)
            and NAMES[i] in BY_EDGE else t for i, t in enumerate(tensors)]


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


# ---- the first layer --------------------------------------------------------

FIRST = len(NAMES)  # the place of the first weight


class Layout(NamedTuple):
    """The columns of the first weight, (the first of them, their number); None
    for what is not there.  Those of the ends are products over nodes, dst_part
    and src_part, and not one over edges."""
    dst: Optional[tuple]
    src: Optional[tuple]
    edge: Optional[tuple]


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


# ---- by torch operations ----------------------------------------------------

def _activate(name, x, slope):
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


def composite(graph, settings, tensors, dtype=None):
    """The outputs by torch operations, which are differentiable; rows of edges
    in the caller's order.  dtype: the type that all are computed in."""
    if dtype is not None:
        tensors = [None if t is None else t.to(dtype) for t in tensors]
    edge, dst_part, src_part, dst_factor, src_factor, scale, shift = \
        ordered(graph, tensors)[:len(NAMES)]
    weights = tensors[len(NAMES):len(NAMES) + settings.layers]
    biases = tensors[len(NAMES) + settings.layers:]
    terms = [] if edge is None else [F.linear(edge, weights[0])]
    terms += [gathered(part, index) for part, index in (
        (dst_part, graph.dst), (src_part, graph.src)) if part is not None]
    x = sum(terms[1:], terms[0])
    if biases[0] is not None:
        x = x + biases[0]
    for weight, bias in zip(weights[1:], biases[1:]):
        x = F.linear(_activate(settings.activation, x, settings.slope),
                     weight, bias)
    if settings.gate:
        gate, x = x.chunk(2, -1)
        x = torch.sigmoid(gate) * _activate(settings.last, x, settings.slope)
    else:
        x = _activate(settings.last, x, settings.slope)
    if settings.norm:
        x = _normalize(settings, x, scale, shift)
    if settings.residual:
        x = x + edge
    made = {"edge_out": lambda: graph.to_caller_order(x),
            "out_dst": lambda: reduced(settings.reduce_dst, _sent(
                settings.reduce_dst, x, dst_factor), graph.dst, graph.num_dst),
            "out_src": lambda: reduced(settings.reduce_src, _sent(
                settings.reduce_src, x, src_factor), graph.src, graph.num_src)}
    return tuple(made[name]() for name in settings.outputs)
