"""PyG's layers as one node of autograd each, for the calls that most training
steps make.

Whatever looks into a layer (a hook, a parametrisation, a transform, autocast,
anomaly mode, an explainer) gets the layer's other path, which does the same
step by step.
"""

import torch
from torch import Tensor
from torch.nn.modules import module as _module
from torch_geometric.nn import Linear

from ... import _recording, ops
from ..._attend import make_seed, settings_of
from ..._autocast import autocast_dtype
from ..._chain import (
    Attention, ByEdge, Chain, Finish, Linear as Product, Own, Scores, Slot,
    Sum)
from ..._execute import generation
from ..._operators import DTYPES
from ...convert import as_graph, known_graph, looped_graph
from ...errors import InvalidError, UnsupportedError
from ...functional import MOST_EDGE_FEATURES
from ...graph import Graph
from ._edges import known
from ._mixin import obstacle
from ._reduce import is_sum, reductions

_PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
_LINEARS = (Linear, torch.nn.Linear)

# Products whose result has more elements stay apart from those that backward
# reads, so that no memory is held in vain.
_SMALL = 1 << 20


class _Other(Exception):
    """The call takes the layer's other path."""


# ---- guards -----------------------------------------------------------------

def _watched():
    """Whether something in this process looks at modules or operations."""
    return (torch.is_anomaly_enabled()
            or autocast_dtype("cpu") is not None
            or autocast_dtype("cuda") is not None
            or _module._global_forward_hooks
            or _module._global_forward_pre_hooks
            or _module._global_backward_hooks
            or _module._global_backward_pre_hooks)


def _linear(state, name):
    """(weight, bias or None) of a linear layer whose call would be a product
    and nothing else; None if the layer has none of this name."""
    found = state["_modules"].get(name)
    if found is None:
        return None
    inner = found.__dict__
    if type(found) not in _LINEARS or inner["_forward_hooks"] \
            or inner["_forward_pre_hooks"] or inner["_backward_hooks"] \
            or inner["_backward_pre_hooks"] or "forward" in inner:
        raise _Other
    parameters = inner["_parameters"]
    try:
        return parameters["weight"], parameters["bias"]
    except KeyError:  # pruned, say, or sharded
        raise _Other from None


def _parameter(state, name):
    try:
        return state["_parameters"][name]
    except KeyError:
        raise _Other from None


def _absent(state, *names):
    """The layer has no submodules of these names."""
    modules = state["_modules"]
    for name in names:
        if modules.get(name) is not None:
            raise _Other


# ---- calls ------------------------------------------------------------------

def _graph(edges, sizes, loops):
    """The graph of a call, from PyG's edge_index or a Graph."""
    if isinstance(edges, Graph):
        if edges.exchange is not None or \
                (edges.num_src, edges.num_dst) != sizes:
            raise _Other
        return edges.with_self_loops() if loops else edges
    found = known_graph(edges, sizes, loops)
    if found is None:
        if not known(edges):
            raise _Other
        found = (looped_graph if loops else as_graph)(edges, sizes)
    return found


def _run(graph, make, static, tensors, dropout=0.0, scale=0.0, slope=0.0):
    """The result of a layer.

    make: (graph, settings, static, *tensors) -> the links of a chain, or None
        where shapes are not as they should be.
    static: what the links depend on beside the tensors.
    tensors: by name, the first of them features.
    """
    given = list(tensors.values())
    dtype, device = given[0].dtype, given[0].device
    shapes = []
    for number, tensor in enumerate(given):
        if tensor is None:
            shapes.append(None)
            continue
        if type(tensor) not in _PLAIN_TENSORS or tensor.dtype is not dtype \
                or tensor.device != device:
            raise _Other
        shapes.append(tensor.shape)
        if not tensor.is_contiguous():
            given[number] = tensor.contiguous()
    if _recording.current is not None:
        _recording.current.graph(graph)
    settings = settings_of(given[0], scale, slope, dropout, False)
    recipes = graph.handle.recipes
    key = (make, static, settings, generation(), dtype, *shapes)
    chain = recipes.get(key)
    if chain is None:
        links = None
        if graph.num_edges and given[0].numel() and dtype in DTYPES \
                and device == graph.device:
            links = make(graph, settings, static, *given)
        names = (*tensors, "seed") if dropout else tuple(tensors)
        chain = recipes[key] = _Other if links is None else Chain(names, links)
    if chain is _Other:
        raise _Other
    if dropout:
        given.append(make_seed(device))
    return chain(graph, given)


def node(call):
    """The first thing that a layer's forward tries: call(state, ...) with the
    layer's __dict__; NotImplemented where the other path is to be taken."""
    def attempt(layer, *args, **kwargs):
        if ops.compiling():
            return NotImplemented
        if obstacle(layer) is not None or _watched():
            return NotImplemented
        state = layer.__dict__
        if state["flow"] != "source_to_target" or \
                state["node_dim"] not in (-2, 0):
            return NotImplemented
        try:
            return call(layer, state, *args, **kwargs)
        except (_Other, InvalidError, UnsupportedError):
            return NotImplemented
    return attempt


def _one(x, size=None):
    """The features of a call whose nodes send and receive alike."""
    if type(x) not in _PLAIN_TENSORS or x.dim() != 2 or size is not None:
        raise _Other
    return x


def _pair(x, size=None):
    """(features that are sent, features that receive or None, sizes)."""
    if type(x) in _PLAIN_TENSORS:
        x = (x, x)
    if type(x) is not tuple or len(x) != 2 or size is not None:
        raise _Other
    src, dst = x
    if type(src) not in _PLAIN_TENSORS or src.dim() != 2 or dst is None or \
            type(dst) not in _PLAIN_TENSORS or dst.dim() != 2:
        raise _Other
    return src, dst, (src.size(0), dst.size(0))


def _fit(weight, bias, inputs):
    """Whether a linear layer takes so many features."""
    return (weight.dim() == 2 and weight.size(1) == inputs
            and (bias is None or bias.shape == weight.shape[:1]))


# ---- attention --------------------------------------------------------------

def _dropout(state):
    """The probability that attention drops an edge in this call."""
    if not state["training"]:
        return 0.0
    dropout = state["dropout"]
    if not 0 <= dropout < 1:
        raise _Other
    return float(dropout)


def _exact(x):
    return torch.float64 if x.dtype == torch.float64 else torch.float32


@node
def gat(layer, state, x, edge_index, edge_attr=None, size=None,
        return_attention_weights=None):
    if edge_attr is not None or return_attention_weights or \
            not is_sum(layer):
        raise _Other
    x = _one(x, size)
    _absent(state, "res")
    linear = _linear(state, "lin")
    if linear is None or linear[1] is not None:
        raise _Other
    graph = _graph(edge_index, (x.size(0), x.size(0)),
                   state["add_self_loops"])
    return _run(graph, _gat, (state["heads"], state["concat"]), dict(
        x=x, weight=linear[0], att_src=_parameter(state, "att_src"),
        att_dst=_parameter(state, "att_dst"),
        bias=_parameter(state, "bias")), _dropout(state),
        slope=state["negative_slope"])


def _gat(graph, settings, static, x, weight, att_src, att_dst, bias):
    heads, concat = static
    width = weight.size(0)
    dim = width // heads
    if not (_fit(weight, None, x.size(1)) and width == heads * dim
            and att_src.shape == att_dst.shape == (1, heads, dim)
            and _fits_out(bias, heads, dim, concat)):
        return None
    return [Product("x", ("weight",), (), "h"),
            Scores("h", "att_src", "score_src", heads, _exact(x)),
            Scores("h", "att_dst", "score_dst", heads, _exact(x)),
            Attention(graph, "gat", (Slot("h"), Slot("score_dst"),
                                     Slot("score_src")), "sums", heads, dim,
                      x.dtype, settings),
            Finish("sums", "out", heads, not concat,
                   bias=None if bias is None else "bias")]


def _fits_out(bias, heads, dim, concat):
    return bias is None or bias.shape == (heads * dim if concat else dim,)


@node
def gatv2(layer, state, x, edge_index, edge_attr=None,
          return_attention_weights=None):
    if return_attention_weights or not is_sum(layer):
        raise _Other
    shared = state["share_weights"]
    if shared and isinstance(x, tuple):
        raise _Other
    x_l, x_r, sizes = _pair(x)
    _absent(state, "res")
    left, right = _linear(state, "lin_l"), _linear(state, "lin_r")
    edges = _edge_features(state, edge_attr, x_l)
    if edge_attr is not None and state["add_self_loops"]:
        raise _Other
    graph = _graph(edge_index, sizes, state["add_self_loops"])
    tensors = dict(x=x_l)
    if x_r is not x_l:
        tensors["x_dst"] = x_r
    tensors.update(w_l=left[0], b_l=left[1])
    if not shared:
        tensors.update(w_r=right[0], b_r=right[1])
    return _run(graph, _gatv2, (state["heads"], state["concat"],
                                tuple(tensors)), dict(
        tensors, att=_parameter(state, "att"),
        bias=_parameter(state, "bias"), edge_attr=edges[0], w_e=edges[1]),
        _dropout(state), slope=state["negative_slope"])


def _gatv2(graph, settings, static, *given):
    heads, concat, names = static
    tensors = dict(zip((*names, "att", "bias", "edge_attr", "w_e"), given))
    x, att, bias = tensors["x"], tensors["att"], tensors["bias"]
    width = tensors["w_l"].size(0)
    dim = width // heads
    if not (width == heads * dim and att.shape == (1, heads, dim)
            and _fits_out(bias, heads, dim, concat)):
        return None
    sides = [("x", "l")]
    if "w_r" in tensors:
        sides.append(("x_dst" if "x_dst" in tensors else "x", "r"))
    links, slots = _products(tensors, sides, width)
    if links is None:
        return None
    edges, more = _edge_links(tensors, width)
    return [*links, *more,
            Attention(graph, "gatv2", (slots.get("r", slots["l"]), slots["l"],
                                       Slot("att"), *edges), "sums", heads,
                      dim, x.dtype, settings, _edge_dim(tensors)),
            Finish("sums", "out", heads, not concat,
                   bias=None if bias is None else "bias")]


@node
def transformer(layer, state, x, edge_index, edge_attr=None,
                return_attention_weights=None):
    if return_attention_weights is not None or not is_sum(layer):
        raise _Other
    x_src, x_dst, sizes = _pair(x)
    _absent(state, "lin_beta")
    edges = _edge_features(state, edge_attr, x_src)
    tensors = dict(x=x_src)
    if x_dst is not x_src:
        tensors["x_dst"] = x_dst
    for name in ("query", "key", "value", "skip"):
        if name != "skip" or state["root_weight"]:
            tensors["w_" + name], tensors["b_" + name] = \
                _linear(state, "lin_" + name)
    graph = _graph(edge_index, sizes, False)
    return _run(graph, _transformer, (state["heads"], state["concat"],
                                      tuple(tensors)), dict(
        tensors, edge_attr=edges[0], w_e=edges[1]), _dropout(state),
        scale=state["out_channels"] ** -0.5)


def _transformer(graph, settings, static, *given):
    heads, concat, names = static
    tensors = dict(zip((*names, "edge_attr", "w_e"), given))
    x, width = tensors["x"], tensors["w_value"].size(0)
    dim = width // heads
    dst = "x_dst" if "x_dst" in tensors else "x"
    if width != heads * dim:
        return None
    sides = [(dst, "query"), ("x", "key"), ("x", "value")]
    links, slots = _products(tensors, sides, width)
    plus = None
    if "w_skip" in tensors:
        rows = tensors[dst].size(0)
        skip = [(dst, "skip")]
        if tensors["w_skip"].size(0) != (width if concat else dim):
            return None
        if rows * width <= _SMALL and dst == "x":
            links, slots = _products(tensors, sides + skip, width)
            plus = slots and slots["skip"]
        elif links is not None:
            more, own = _products(tensors, skip, None)
            links, plus = more and links + more, own and own["skip"]
    if links is None:
        return None
    edges, more = _edge_links(tensors, width)
    return [*links, *more,
            Attention(graph, "gt", (slots["query"], slots["key"],
                                    slots["value"], *edges), "sums", heads,
                      dim, x.dtype, settings, _edge_dim(tensors)),
            Finish("sums", "out", heads, not concat, plus)]


def _products(tensors, sides, width):
    """(links, slots by name) of linear layers "w_name" and "b_name", those of
    one input in one product; (None, None) where shapes contradict each other.

    sides: (input, name) of each layer; width: what each gives, but for
        "skip".
    """
    links, slots = [], {}
    for x in dict.fromkeys(source for source, _ in sides):
        names = [name for source, name in sides if source == x]
        weights = [tensors["w_" + name] for name in names]
        biases = [tensors["b_" + name] for name in names]
        if not all(_fit(w, b, tensors[x].size(1)) for w, b in
                   zip(weights, biases)) \
                or any(width not in (None, w.size(0)) and name != "skip"
                       for name, w in zip(names, weights)) \
                or len({b is None for b in biases}) > 1:
            return None, None
        out, start = "+".join(names), 0
        pitch = sum(w.size(0) for w in weights)
        for name, w in zip(names, weights):
            slots[name] = Slot(out) if len(names) == 1 else \
                Slot(out, start, w.size(0), pitch)
            start += w.size(0)
        links.append(Product(
            x, tuple("w_" + name for name in names), tuple(
                "b_" + name for name in names if biases[0] is not None), out))
    return links, slots


def _edge_features(state, edge_attr, x):
    """(edge_attr, weight of its projection), or (None, None)."""
    linear = _linear(state, "lin_edge")
    if edge_attr is None and linear is None:
        return None, None
    if edge_attr is None or linear is None or linear[1] is not None \
            or type(edge_attr) not in _PLAIN_TENSORS or edge_attr.dim() != 2 \
            or not edge_attr.size(1) \
            or x.is_cuda and edge_attr.size(1) > MOST_EDGE_FEATURES:
        raise _Other
    return edge_attr, linear[0]


def _edge_dim(tensors):
    edge_attr = tensors["edge_attr"]
    return 0 if edge_attr is None else edge_attr.size(1)


def _edge_links(tensors, width):
    """(slots of the operator's inputs by edge, links that make them)."""
    if tensors["edge_attr"] is None:
        return (), ()
    return (Slot("by edge"), Slot("w_e"), None), \
        (ByEdge("edge_attr", "by edge"),)


@node
def agnn(layer, state, x, edge_index):
    if not is_sum(layer):
        raise _Other
    x = _one(x)
    beta = state["_parameters"].get("beta")
    if beta is None:
        beta = state["_buffers"].get("beta")
    if beta is None or beta.shape != (1,):
        raise _Other
    graph = _graph(edge_index, (x.size(0), x.size(0)),
                   state["add_self_loops"])
    return _run(graph, _agnn, (), dict(x=x, beta=beta), slope=0.2, scale=1.0)


def _agnn(graph, settings, static, x, beta):
    return [Attention(graph, "agnn", (Slot("x"), Slot("x"), Slot("beta")),
                      "out", 1, x.size(1), x.dtype, settings)]


# ---- sums -------------------------------------------------------------------

def _sum_of(layer):
    """The operator that reduces as a layer does."""
    names = reductions(layer.aggr_module)
    if names not in (("sum",), ("mean",)):
        raise _Other
    return "spmm-" + names[0]


@node
def gcn(layer, state, x, edge_index, edge_weight=None):
    if edge_weight is not None or not state["normalize"] or state["cached"] \
            or not is_sum(layer):
        raise _Other
    x = _one(x)
    linear = _linear(state, "lin")
    if linear is None or linear[1] is not None:
        raise _Other
    graph = _graph(edge_index, (x.size(0), x.size(0)),
                   state["add_self_loops"])
    return _run(graph, _gcn, (), dict(x=x, weight=linear[0],
                                      bias=_parameter(state, "bias")))


def _gcn(graph, settings, static, x, weight, bias):
    if not _fit(weight, bias, x.size(1)):
        return None
    return [Product("x", ("weight",), (), "h"),
            Sum(graph, "spmm-sum", "h", "sums", weight.size(0), x.dtype,
                symmetric=True),
            Finish("sums", "out", bias=None if bias is None else "bias")]


def _two_linear(layer, state, x, edge_index, size, of_sums, of_own):
    """A linear layer of the neighbours' sums plus one of a node's own
    features."""
    x_src, x_dst, sizes = _pair(x, size)
    names = ("w_sums", "b_sums", "w_own", "b_own")
    parameters = (*(_linear(state, of_sums) or (None, None)),
                  *((of_own and _linear(state, of_own)) or (None, None)))
    tensors = dict(x=x_src)
    if x_dst is not x_src:
        tensors["x_dst"] = x_dst
    tensors.update(zip(names, parameters))
    return _run(_graph(edge_index, sizes, False), _sums_and_own,
                (_sum_of(layer), "x_dst" in tensors), tensors)


def _sums_and_own(graph, settings, static, x, *given):
    op, apart = static
    own, given = (given[0], given[1:]) if apart else (x, given)
    w_sums, b_sums, w_own, b_own = given
    if w_sums is None or not _fit(w_sums, b_sums, x.size(1)):
        return None
    links = [Sum(graph, op, "x", "sums", x.size(1), x.dtype)]
    biases = ("b_sums",) if b_sums is not None else ()
    if w_own is None:
        return [*links, Product("sums", ("w_sums",), biases, "out")]
    if not _fit(w_own, b_own, own.size(1)) or \
            w_own.size(0) != w_sums.size(0):
        return None
    # the gradient by x of the sums is there before that of a node's own
    return [Product("x_dst" if apart else "x", ("w_own",),
                    ("b_own",) if b_own is not None else (), "own"),
            *links, Product("sums", ("w_sums",), biases, "out", plus="own")]


@node
def sage(layer, state, x, edge_index, size=None):
    if state["project"] or state["normalize"]:
        raise _Other
    return _two_linear(layer, state, x, edge_index, size, "lin_l",
                       "lin_r" if state["root_weight"] else None)


@node
def graph_conv(layer, state, x, edge_index, edge_weight=None, size=None):
    if edge_weight is not None:
        raise _Other
    return _two_linear(layer, state, x, edge_index, size, "lin_rel",
                       "lin_root")


@node
def gin(layer, state, x, edge_index, size=None):
    x_src, x_dst, sizes = _pair(x, size)
    eps = state["_parameters"].get("eps")
    if eps is None:
        eps = state["_buffers"].get("eps")
    if eps is None or x_src.size(1) != x_dst.size(1):
        raise _Other
    tensors = dict(x=x_src, eps=eps)
    if x_dst is not x_src:
        tensors["x_dst"] = x_dst
    out = _run(_graph(edge_index, sizes, False), _gin,
               (_sum_of(layer), "x_dst" in tensors), tensors)
    return state["_modules"]["nn"](out)


def _gin(graph, settings, static, x, eps, *given):
    op, apart = static
    if eps.numel() != 1:
        return None
    return [Sum(graph, op, "x", "sums", x.size(1), x.dtype),
            Own("sums", "x_dst" if apart else "x", "eps", "out")]
