"""MLPs on edges: the blocks of MeshGraphNet, GraphCast, EdgeConv and ORB.

    e, out = dfgnn.edge_mlp(graph, [w1, w2, w3], [b1, b2, b3], dst=x, src=x,
                            edge=e, activation="silu", norm="layer",
                            residual=True, edges=True)
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from . import _execute, _mlp_formula, _mlp_kernels
from ._checks import DTYPES as TYPES, check_tensor, describe
from ._formulas import ByTorch, by_program
from ._modes import (
    autocast_dtype, common_type, compiling, needs_composite, untraced)
from ._program_handle import EDGE
from ._torch_library import place
from ._trace import method
from .convert import of_sizes
from .graph import Graph


class Call(NamedTuple):
    """The arguments of :func:`edge_mlp` that have names."""

    dst: torch.Tensor | None = None
    src: torch.Tensor | None = None
    edge: torch.Tensor | None = None
    dst_part: torch.Tensor | None = None
    src_part: torch.Tensor | None = None
    activation: str | None = "relu"
    last: str | None = None
    slope: float = 0.01
    gate: bool = False
    norm: str | None = None
    norm_weight: torch.Tensor | None = None
    norm_bias: torch.Tensor | None = None
    eps: float = 1e-5
    residual: bool = False
    reduce: str | None = "sum"
    reduce_src: str | None = None
    dst_factor: torch.Tensor | None = None
    src_factor: torch.Tensor | None = None
    dst_gate: tuple | None = None
    src_gate: tuple | None = None
    gate_by: str = "sigmoid"
    gate_weight: torch.Tensor | None = None
    edges: bool = False
    columns: tuple = ("dst", "src", "edge")


# its tensors, with a letter for each dimension
_TENSORS = {"dst": "NW", "src": "MW", "edge": "EF", "dst_part": "NW",
            "src_part": "MW", "dst_factor": "E", "src_factor": "E",
            "norm_weight": "W", "norm_bias": "W"}
_CHOICES = {"activation": _mlp_formula.ACTIVATIONS,
          "last": _mlp_formula.ACTIVATIONS, "norm": _mlp_formula.NORMS,
          "reduce": _mlp_formula.REDUCTIONS,
          "reduce_src": _mlp_formula.REDUCTIONS}
# those that are no tensors and no gates
_OPTIONS = (*_CHOICES, "slope", "gate", "eps", "residual", "edges", "columns")


def _check_arguments(call, sizes):
    """Raises if a name is unknown, or a tensor has a wrong shape or is on
    another device."""
    for what, table in _CHOICES.items():
        if getattr(call, what) not in table:
            names = ", ".join(map(repr, table))
            raise ValueError(f"{what} must be one of {names}, got "
                             f"{getattr(call, what)!r}")
    rows = {"N": sizes.num_dst, "M": sizes.num_src, "E": sizes.num_edges}
    for name, dims in _TENSORS.items():
        if getattr(call, name) is not None:
            check_tensor(name, getattr(call, name), dims, dict(rows),
                         sizes.device, None)
    if not (call.reduce or call.reduce_src or call.edges):
        raise ValueError("edge_mlp is asked for nothing: reduce and "
                         "reduce_src are None, and edges is False")
    for end, reduce in (("dst", call.reduce), ("src", call.reduce_src)):
        if getattr(call, end + "_factor") is not None and reduce not in (
                "sum", "mean"):
            raise ValueError(f"{end}_factor is a factor in a sum or mean, "
                             f"which is not asked for: found {reduce!r}")


def _check_layers(weights, biases, device):
    if not 1 <= len(weights) <= 4:
        raise ValueError(f"weights must be of 1 to 4 layers, got "
                         f"{len(weights)}")
    if len(biases) != len(weights):
        raise ValueError(f"biases must be {len(weights)}, as many as weights, "
                         f"got {len(biases)}")
    sizes = {}
    for i, (weight, bias) in enumerate(zip(weights, biases)):
        if weight is None and i == 0:
            continue
        check_tensor(f"weights[{i}]", weight, "OI", sizes, device, None)
        if bias is not None:
            check_tensor(f"biases[{i}]", bias, "O", sizes, device, None)
        sizes = {"I": sizes["O"]}


def _check_last(weight, call):
    """Raises if what follows the last layer does not fit it."""
    width = weight.size(0)
    if call.gate and width % 2:
        raise ValueError("gate takes half of the last layer's width, "
                         f"expected an even number, got {width}")
    width //= 2 if call.gate else 1
    if call.residual and (call.edge is None or call.edge.size(1) != width):
        raise ValueError(
            f"residual adds edge, expected [edges, {width}], got " + (
                "none" if call.edge is None else
                f"[edges, {call.edge.size(1)}]"))


def _layout(weight, call):
    """The Layout of the columns of dst, src and edge in the first weight."""
    if sorted(call.columns) != ["dst", "edge", "src"]:
        raise ValueError('columns must have "dst", "src" and "edge", got '
                         f"{call.columns!r}")
    sizes = {name: None if getattr(call, name) is None else
             getattr(call, name).size(1) for name in call.columns}
    have = 0 if weight is None else weight.size(1)
    counts = [size or 0 for size in sizes.values()]
    if have != sum(counts):
        raise ValueError(
            f"weights[0] must have {sum(counts)} columns, of "
            + ", ".join(call.columns) + " one after the other ("
            + " + ".join(map(str, counts)) + f"), got {have}")
    places, begin = {}, 0
    for name, size in sizes.items():
        places[name] = None if size is None else (begin, size)
        begin += size or 0
    if call.dst is None and call.src is None:
        return None
    return _mlp_formula.Layout(**places)


class _Sizes(NamedTuple):
    """How many rows the tensors of a call have."""
    num_dst: int
    num_src: int
    num_edges: int
    device: torch.device


def _rows(*tensors):
    return next((t.size(0) for t in tensors if t is not None), None)


def _sizes_of(call):
    """(sources, destinations) of an edge_index by the rows of tensors."""
    return _rows(call.src, call.src_part), _rows(call.dst, call.dst_part)


class _Formula(NamedTuple):
    """What the checks of a call find."""
    settings: _mlp_formula.Settings
    layout: _mlp_formula.Layout | None
    dtype: torch.dtype


def _checked(sizes, weights, biases, call):
    _check_arguments(call, sizes)
    _check_layers(weights, biases, sizes.device)
    layout = _layout(weights[0], call)
    if all(t is None for t in (call.dst, call.src, call.edge, call.dst_part,
                               call.src_part)):
        raise ValueError("edge_mlp needs one of dst, src, edge, dst_part and "
                         "src_part")
    if weights[-1] is not None:
        _check_last(weights[-1], call)
    dtype = common_type((call.dst, call.src, *_tensors(weights, biases, call)))
    if dtype not in TYPES:
        raise TypeError(f"the tensors of edge_mlp are of {dtype}, expected "
                        "float16, bfloat16, float32 or float64")
    return _Formula(
        _mlp_formula.Settings(
            len(weights), call.activation, call.last, float(call.slope),
            bool(call.gate), call.norm, float(call.eps), bool(call.residual),
            call.reduce, call.reduce_src, bool(call.edges)),
        layout, dtype)


def _normal(weights, biases, call):
    """(weights, biases, call) as lists, where tensors without columns are
    None."""
    weights = list(weights)
    biases = [None] * len(weights) if biases is None else list(biases)
    edge = call.edge
    if isinstance(edge, torch.Tensor) and edge.dim() == 2 and \
            not edge.size(1):
        call = call._replace(edge=None)
    if call.edge is None and call.dst is None and call.src is None and \
            weights and isinstance(weights[0], torch.Tensor) and \
            not weights[0].numel():
        weights[0] = None
    return weights, biases, call


def _tensors(weights, biases, call):
    """The tensors of the formula's fields."""
    return [*[getattr(call, name) for name in _mlp_formula.NAMES], *weights,
            *biases]


def edge_mlp(graph, weights, biases=None, **options):
    """An MLP of each edge's destination, source and features, and its sums at
    nodes.

    Each edge from j to i computes
    ``z = W[0] cat(dst[i], src[j], edge) + dst_part[i] + src_part[j] + b[0]``,
    then ``z = W[l] activation(z) + b[l]`` for each further layer, and
    ``e = norm(last(z)) (+ edge)``.  The parts of the first layer that depend
    on nodes alone are products over nodes.  On GPUs, in float16 and bfloat16,
    the rest is one call of the library in each direction, where it has kernels
    (dfgnn_mlp.h); elsewhere it is torch's products and activations, which
    torch.compile fuses.

    options: those of :class:`dfgnn.mlps.Call`.
    graph: a Graph, or what :func:`dfgnn.as_graph` takes.
    weights, biases: of 1 to 4 layers, as torch.nn.Linear has them; a bias may
        be None, and so may weights[0] if dst, src and edge are.
    dst, src, edge: [destinations, Cd], [sources, Cs], [edges, Ce] in the
        caller's order of edges, or None.
    dst_part, src_part: [nodes, width of the first layer], further terms of it.
    activation, last: between the layers and after the last one: None, "relu",
        "silu", "gelu", "gelu_tanh", "elu", "leaky_relu", "tanh", "sigmoid" or
        "softplus"; slope: of "elu" (alpha) and "leaky_relu".
    gate: the last layer gives two halves, and sigmoid(first) * last(second)
        goes on, as in CGConv.
    norm: None, "layer" or "rms", with norm_weight, norm_bias and eps.
    residual: edge is added to e.
    reduce, reduce_src: None, "sum", "mean", "max" or "min" of e at
        destinations, and at sources; a node without edges has 0.
    dst_factor, src_factor: [edges], factors of e in a sum or mean, such as a
        cutoff.
    dst_gate, src_gate: (weight [1, Ce], bias [1] or None), a linear layer of
        edge that gives another factor at that end, as ORB has it: its sigmoid,
        or with gate_by="softmax" its softmax over the edges of each
        destination (source).  A gate is a number for each edge in memory.
    gate_weight: [edges], not negative: the weight of an edge's exponential in
        the softmaxes; a node whose weights are 0 has gates 0.
    edges: whether e itself is returned.
    columns: the order in which dst, src and edge stand in weights[0].
    Returns e, the values of destinations and those of sources, as far as they
    are asked for: a tensor if it is one, else a tuple.
    """
    results = None
    if compiling():
        results = _compiled(graph, weights, biases, _call_of(options))
    if results is None:  # torch.compile cannot make a Call after it breaks
        results = _called(graph, weights, biases, options)
    return results[0] if len(results) == 1 else tuple(results)


def _key(graph, weights, biases, call):
    """The properties that a call's checks read; None if one is no tensor."""
    try:
        return ("edge_mlp", _execute.generation(),
                autocast_dtype(graph.device.type),
                call.dst is call.src, graph.loops is None,
                *[getattr(call, name) for name in _OPTIONS],
                *[None if t is None else (t.shape, t.dtype, t.device)
                  for t in (call.dst, call.src, *_tensors(weights, biases,
                                                          call))])
    except AttributeError:
        return None


def _call_of(options):
    call = Call(**options)
    return call._replace(columns=tuple(call.columns))


@untraced
def _called(graph, weights, biases, options):
    call = _call_of(options)
    if not isinstance(graph, Graph):
        graph = of_sizes(graph, lambda: _sizes_of(call))
    if graph.exchange is not None:
        call = call._replace(**{
            name: graph.extend(getattr(call, name))
            for name in ("src", "src_part") if getattr(call, name) is not None})
    if _has_gates(call):
        call = _gates_as_factors(graph, call)
    weights, biases, call = _normal(weights, biases, call)
    about = _execute.kept(
        graph, _key(graph, weights, biases, call), lambda: _checked(
            _Sizes(graph.num_dst, graph.num_src, graph.num_edges,
                   graph.device), weights, biases, call))
    tensors = _mlp_formula.fields(_tensors(weights, biases, call),
                                  about.layout, (call.dst, call.src),
                                  about.dtype)
    run = _mlp_formula.composite if needs_composite() else _mlp_kernels.run
    return run(graph, about.settings, tensors, about.dtype)


# ---- gates: a number for each edge, made of its features by a linear layer ---

_GATES = ("sigmoid", "softmax")


def _shares(way, graph, end, score, weight=None):
    """[E, 1] the softmax of scores over the edges of each node at an end, whose
    exponentials may have weights; it is 0 where all weights of a node are."""
    kind = score.dtype if weight is None else torch.promote_types(
        score.dtype, weight.dtype)
    t = way(graph, kind)
    softmax, largest, total = (method(name + end) for name in (
        "softmax", "max", "sum"))
    score = t.give(EDGE, "score", score)
    if weight is None:
        return t.run([softmax(score)])[0]
    part = (score - largest(score)).exp() * t.give(EDGE, "weight", weight)
    whole = total(part)
    return t.run([part / method("where")(whole > 0, whole, 1.0)])[0]


_ENDS = {"dst": "_in", "src": "_out"}


def _softmax(graph, end, *tensors):
    """_shares() of tensors in the caller's order."""
    tensors = _ENDS[end], *[graph.to_graph_order(t) for t in tensors]
    shares = None if needs_composite() else by_program(_shares, graph, *tensors)
    if shares is None:
        shares = _shares(ByTorch, graph, *tensors)
    return graph.to_caller_order(shares)


def _check_gate(name, layer, width):
    """The (weight [1, width], bias [1] or None) of a gate."""
    if not isinstance(layer, (tuple, list)) or len(layer) != 2:
        raise TypeError(f"{name} must be (weight, bias) of a linear layer, "
                        f"got {type(layer).__name__}")
    weight, bias = layer
    if not isinstance(weight, torch.Tensor) or tuple(weight.shape) != (
            1, width):
        raise ValueError(f"the weight of {name} must be [1, {width}], a column "
                         "for each feature of edge, got " + describe(weight))
    if bias is not None and tuple(bias.shape) != (1,):
        raise ValueError(f"the bias of {name} must be [1], got "
                         + describe(bias))
    return weight, bias


def _scores(edge, layers):
    """[E, 1] of each layer, by one product of all."""
    weights, biases = zip(*layers)
    bias = None
    if any(b is not None for b in biases):
        bias = torch.cat([weights[0].new_zeros(1) if b is None else b
                          for b in biases])
    return F.linear(edge, torch.cat(weights), bias).split(1, 1)


def _has_gates(call):
    """Whether a call of edge_mlp has gates."""
    return call.gate_by != "sigmoid" or any(x is not None for x in (
        call.dst_gate, call.src_gate, call.gate_weight))


def _check_gates(graph, call, layers):
    """Raises if the gates do not fit the call."""
    for end, reduce in (("dst", call.reduce), ("src", call.reduce_src)):
        if end in layers and reduce not in ("sum", "mean"):
            raise ValueError(f"{end}_gate is a factor in a sum or mean, which "
                             f"is not asked for: found {reduce!r}")
    if call.gate_by not in _GATES:
        raise ValueError("gate_by must be 'sigmoid' or 'softmax', got "
                         f"{call.gate_by!r}")
    weight = call.gate_weight
    if weight is not None and (call.gate_by != "softmax" or not layers):
        raise ValueError("gate_weight has the weights of edges in a softmax, "
                         "which is not asked for")
    if layers and call.edge is None:
        raise ValueError("dst_gate and src_gate read edge, which is missing")
    if call.edge is not None:
        check_tensor("edge", call.edge, "EF", {"E": graph.num_edges},
                     graph.device, None)
    if weight is not None and tuple(weight.shape) != (
            graph.num_edges,):
        raise ValueError(f"gate_weight must be [{graph.num_edges}], got "
                         + describe(weight))


def _gates_as_factors(graph, call):
    """A call of edge_mlp with the factor of each edge in the place of gates."""
    layers = {end: layer for end, layer in (
        ("dst", call.dst_gate), ("src", call.src_gate)) if layer is not None}
    _check_gates(graph, call, layers)
    if not layers:
        return call
    checked = [_check_gate(end + "_gate", layer, call.edge.size(1))
               for end, layer in layers.items()]
    factors = {}
    for end, score in zip(layers, _scores(call.edge, checked)):
        if call.gate_by == "sigmoid":
            gate = torch.sigmoid(score)
        else:
            weight = call.gate_weight
            gate = _softmax(graph, end, score, *(
                () if weight is None else (weight.view(-1, 1),)))
        factor = getattr(call, end + "_factor")
        gate = gate.squeeze(1)
        factors[end + "_factor"] = gate if factor is None else gate * factor
    return call._replace(**factors)


def _compiled(graph, weights, biases, call):
    """The outputs of the operator of torch.library; None if the call cannot be
    one."""
    if _has_gates(call):
        return None
    if isinstance(graph, Graph):
        if graph.exchange is not None:
            return None
        num_src, num_dst = graph.num_src, graph.num_dst
        num_edges = graph.num_edges
    elif isinstance(graph, torch.Tensor) and graph.layout == torch.strided:
        num_src, num_dst = _sizes_of(call)
        num_edges = graph.size(1)
        if num_src is None or num_dst is None:
            return None
    else:
        return None
    weights, biases, call = _normal(weights, biases, call)
    tensors = _tensors(weights, biases, call)
    some = next(t for t in (call.dst, call.src, *tensors) if t is not None)
    about = _checked(_Sizes(num_dst, num_src, num_edges, some.device),
                     weights, biases, call)
    tensors = [None if t is None else t.to(about.dtype)
               for t in _mlp_formula.fields(tensors, about.layout, (
                   call.dst, call.src), about.dtype)]
    # torch.compile need not have a slope as a constant; any will do here
    served = _mlp_kernels.may_serve(
        _mlp_formula.Settings(*[0.0 if isinstance(x, float) else x
                                for x in about.settings]),
        _mlp_kernels.widths_of(about.settings, tensors), about.dtype,
        some.device)
    where = place(graph, num_src, num_dst)
    if not served:
        return _mlp_kernels.around_products(about.settings, tensors,
                                            about.dtype, where)
    keep = torch.is_grad_enabled() and any([
        t is not None and t.requires_grad for t in tensors])
    return _mlp_kernels.traced(
        _mlp_kernels.about(about.settings, tensors, keep), where,
        [t for t in tensors if t is not None])[:len(about.settings.outputs)]
