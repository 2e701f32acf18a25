"""MLPs on edges: the blocks of MeshGraphNet, GraphCast, EdgeConv and ORB.

    e, out = dfgnn.edge_mlp(graph, [w1, w2, w3], [b1, b2, b3], dst=x, src=x,
                            edge=e, activation="silu", norm="layer",
                            residual=True, edges=True)
"""

from typing import NamedTuple, Optional

import torch

from . import _execute, _gates, _mlp_formula, _mlp_kernels, _mlp_operator
from ._autocast import autocast_dtype
from ._modes import compiling, needs_composite, untraced
from ._operators import DTYPES as TYPES, check_tensor
from .convert import as_graph
from .graph import Graph
from ._torch_operator import place

__all__ = ["edge_mlp"]

# the tensors of edge_mlp beside its layers, with a letter for each dimension
_TENSORS = {"dst": "NW", "src": "MW", "edge": "EF", "dst_part": "NW",
            "src_part": "MW", "dst_factor": "E", "src_factor": "E",
            "norm_weight": "W", "norm_bias": "W"}
# the arguments of edge_mlp that are no tensors and no gates
_OPTIONS = ("activation", "last", "slope", "gate", "norm", "eps", "residual",
            "reduce", "reduce_src", "edges", "columns")


def _check_name(what, value, table):
    if value not in table:
        names = ", ".join(repr(name) for name in table)
        raise ValueError(f"{what} must be one of {names}, got {value!r}")


def _check_tensors(given, sizes):
    """Raises if a tensor of given has a wrong shape or is on another device."""
    for name, dims in _TENSORS.items():
        if given[name] is not None:
            check_tensor(name, given[name], dims, {
                "N": sizes.num_dst, "M": sizes.num_src,
                "E": sizes.num_edges}, sizes.device, None)


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


def _check_outcome(weights, given, edge):
    """Raises if what follows the layers does not fit them."""
    if weights[-1] is not None:
        width = weights[-1].size(0)
        if given["gate"] and width % 2:
            raise ValueError("gate takes half of the last layer's width, "
                             f"expected an even number, got {width}")
        width //= 2 if given["gate"] else 1
        if given["residual"] and (edge is None or edge.size(1) != width):
            raise ValueError(
                f"residual adds edge, expected [edges, {width}], got "
                + ("none" if edge is None else f"[edges, {edge.size(1)}]"))
    for end, reduce in (("dst", given["reduce"]), ("src", given["reduce_src"])):
        if given[end + "_factor"] is not None and reduce not in ("sum",
                                                                 "mean"):
            raise ValueError(f"{end}_factor is a factor in a sum or mean, "
                             f"which is not asked for: found {reduce!r}")


def _layout(weight, given, columns):
    """The Layout of the first weight; given: the tensors by "dst", "src" and
    "edge" that its columns are of."""
    if sorted(columns) != ["dst", "edge", "src"]:
        raise ValueError('columns must have "dst", "src" and "edge", got '
                         f"{columns!r}")
    sizes = {name: 0 if given[name] is None else given[name].size(1)
             for name in columns}
    have = 0 if weight is None else weight.size(1)
    if have != sum(sizes.values()):
        raise ValueError(
            f"weights[0] must have {sum(sizes.values())} columns, of "
            + ", ".join(columns) + " one after the other ("
            + " + ".join(str(size) for size in sizes.values())
            + f"), got {have}")
    found, begin = {}, 0
    for name, size in sizes.items():
        found[name] = (begin, size) if given[name] is not None else None
        begin += size
    if given["dst"] is None and given["src"] is None:
        return None
    return _mlp_formula.Layout(**found)


def _common_type(tensors, device):
    """Autocast's type, or the one that torch promotes to."""
    given = [t for t in tensors if t is not None]
    dtype = autocast_dtype(device.type)
    if dtype is None or any(t.dtype == torch.float64 for t in given):
        dtype = given[0].dtype
        for t in given[1:]:
            dtype = torch.promote_types(dtype, t.dtype)
    if dtype not in TYPES:
        raise TypeError(f"the tensors of edge_mlp are of {dtype}, expected "
                        "float16, bfloat16, float32 or float64")
    return dtype


class _Sizes(NamedTuple):
    """How many rows the tensors of a call have."""
    num_dst: int
    num_src: int
    num_edges: int
    device: torch.device


def _rows(*tensors):
    return next((t.size(0) for t in tensors if t is not None), None)


def _is_list(graph):
    return isinstance(graph, torch.Tensor) and graph.layout == torch.strided


def _sizes_of(graph, given):
    """(sources, destinations) of an edge_index by the rows of tensors."""
    return (_rows(given["src"], given["src_part"]),
            _rows(given["dst"], given["dst_part"]))


class _CheckedCall(NamedTuple):
    """What is known of a call when it was checked."""
    settings: _mlp_formula.Settings
    layout: Optional[_mlp_formula.Layout]
    dtype: torch.dtype


def _checked(sizes, weights, biases, given, ends, tensors):
    """The _CheckedCall of a call."""
    _check_name("activation", given["activation"], _mlp_formula.ACTIVATIONS)
    _check_name("last", given["last"], _mlp_formula.ACTIVATIONS)
    _check_name("norm", given["norm"], _mlp_formula.NORMS)
    _check_name("reduce", given["reduce"], _mlp_formula.REDUCTIONS)
    _check_name("reduce_src", given["reduce_src"], _mlp_formula.REDUCTIONS)
    _check_tensors(given, sizes)
    _check_layers(weights, biases, sizes.device)
    layout = _layout(weights[0], {**given, "edge": tensors[0]},
                     given["columns"])
    edge, dst_part, src_part = tensors[:3]
    if layout is None and edge is None and dst_part is None and \
            src_part is None:
        raise ValueError("edge_mlp needs one of dst, src, edge, dst_part and "
                         "src_part")
    if not (given["reduce"] or given["reduce_src"] or given["edges"]):
        raise ValueError("edge_mlp is asked for nothing: reduce and "
                         "reduce_src are None, and edges is False")
    _check_outcome(weights, given, edge)
    return _CheckedCall(
        _mlp_formula.Settings(
            len(weights), given["activation"], given["last"],
            float(given["slope"]), bool(given["gate"]), given["norm"],
            float(given["eps"]), bool(given["residual"]), given["reduce"],
            given["reduce_src"], bool(given["edges"])),
        layout, _common_type((*ends, *tensors), sizes.device))


def _tensors(weights, biases, given):
    """(the weights, the biases, the ends, the tensors of _mlp's fields) of a
    call."""
    weights = list(weights)
    biases = [None] * len(weights) if biases is None else list(biases)
    edge = given["edge"]
    if isinstance(edge, torch.Tensor) and edge.dim() == 2 and \
            not edge.size(1):
        edge = None
    if edge is None and given["dst"] is None and given["src"] is None and \
            weights and isinstance(weights[0], torch.Tensor) and \
            not weights[0].numel():
        weights[0] = None
    return weights, biases, (given["dst"], given["src"]), [
        edge, given["dst_part"], given["src_part"], given["dst_factor"],
        given["src_factor"], given["norm_weight"], given["norm_bias"],
        *weights, *biases]


class _Gates(NamedTuple):
    """The gates of a call."""
    dst: Optional[tuple]
    src: Optional[tuple]
    by: str
    weight: Optional[torch.Tensor]

    def asked(self):
        return self.by != "sigmoid" or any(
            x is not None for x in (self.dst, self.src, self.weight))


def edge_mlp(graph, weights, biases=None, *, dst=None, src=None, edge=None,
             dst_part=None, src_part=None, activation="relu", last=None,
             slope=0.01, gate=False, norm=None, norm_weight=None,
             norm_bias=None, eps=1e-5, residual=False, reduce="sum",
             reduce_src=None, dst_factor=None, src_factor=None, dst_gate=None,
             src_gate=None, gate_by="sigmoid", gate_weight=None, edges=False,
             columns=("dst", "src", "edge")):
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
    given = dict(
        dst=dst, src=src, edge=edge, dst_part=dst_part, src_part=src_part,
        activation=activation, last=last, slope=slope, gate=gate, norm=norm,
        norm_weight=norm_weight, norm_bias=norm_bias, eps=eps,
        residual=residual, reduce=reduce, reduce_src=reduce_src,
        dst_factor=dst_factor, src_factor=src_factor, edges=edges,
        columns=tuple(columns))
    gates = _Gates(dst_gate, src_gate, gate_by, gate_weight)
    made = None
    if compiling() and not gates.asked():
        made = _compiled(graph, weights, biases, given)
    if made is None:
        made = _called(graph, weights, biases, given, gates)
    return made[0] if len(made) == 1 else tuple(made)


def _gate(graph, given, gates):
    """Makes the factors of gates."""
    for end, layer, reduce in (("dst", gates.dst, given["reduce"]),
                               ("src", gates.src, given["reduce_src"])):
        if layer is not None and reduce not in ("sum", "mean"):
            raise ValueError(f"{end}_gate is a factor in a sum or mean, which "
                             f"is not asked for: found {reduce!r}")
    if given["edge"] is not None:
        check_tensor("edge", given["edge"], "EF", {"E": graph.num_edges},
                     graph.device, None)
    made = _gates.factors(
        graph, given["edge"], {"dst": gates.dst, "src": gates.src}, gates.by,
        gates.weight, {"dst": given["dst_factor"],
                       "src": given["src_factor"]})
    given["dst_factor"], given["src_factor"] = made["dst"], made["src"]


def _key(graph, given, ends, tensors):
    """What the checks of a call look at; None if something is no tensor."""
    try:
        return ("edge_mlp", _execute.generation(),
                autocast_dtype(graph.device.type),
                ends[0] is ends[1], graph.loops is None,
                *[given[name] for name in _OPTIONS],
                *[None if t is None else (t.shape, t.dtype, t.device)
                  for t in (*ends, *tensors)])
    except AttributeError:
        return None


@untraced
def _called(graph, weights, biases, given, gates):
    if _is_list(graph):
        graph = as_graph(graph, _sizes_of(graph, given))
    graph = as_graph(graph)
    if graph.exchange is not None:
        for name in ("src", "src_part"):
            if given[name] is not None:
                given[name] = graph.extend(given[name])
    if gates.asked():
        _gate(graph, given, gates)
    weights, biases, ends, tensors = _tensors(weights, biases, given)

    def make():
        return _checked(_Sizes(graph.num_dst, graph.num_src, graph.num_edges,
                               graph.device),
                        weights, biases, given, ends, tensors)
    about = _execute.kept(graph, _key(graph, given, ends, tensors), make)
    tensors = _mlp_formula.fields(tensors, about.layout, ends, about.dtype)
    run = _mlp_formula.composite if needs_composite() else _mlp_kernels.run
    return run(graph, about.settings, tensors, about.dtype)


# ---- torch.compile ----------------------------------------------------------

def _compiled(graph, weights, biases, given):
    """The outputs of the operator of torch.library; None if the call cannot be
    one."""
    if isinstance(graph, Graph):
        if graph.exchange is not None:
            return None
        num_src, num_dst = graph.num_src, graph.num_dst
        num_edges = graph.num_edges
    elif _is_list(graph):
        num_src, num_dst = _sizes_of(graph, given)
        num_edges = graph.size(1)
        if num_src is None or num_dst is None:
            return None
    else:
        return None
    weights, biases, ends, tensors = _tensors(weights, biases, given)
    some = next(t for t in (*ends, *tensors) if t is not None)
    about = _checked(_Sizes(num_dst, num_src, num_edges, some.device),
                     weights, biases, given, ends, tensors)
    tensors = [None if t is None else t.to(about.dtype)
               for t in _mlp_formula.fields(tensors, about.layout, ends,
                                            about.dtype)]
    keep = _mlp_operator.keeps(
        about.settings, tensors, some.device, torch.is_grad_enabled() and any([
            t is not None and t.requires_grad for t in tensors]))
    return _mlp_operator.run(
        _mlp_operator.about(about.settings, tensors, keep),
        place(graph, num_src, num_dst),
        [t for t in tensors if t is not None])[:len(about.settings.outputs)]
