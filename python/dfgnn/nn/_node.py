"""Layers, of dfgnn.nn and of PyG, as one node of autograd each, for the calls that most training
steps make.

Whatever looks into a layer (a hook, a parametrisation, a transform, autocast,
anomaly mode, an explainer) gets the layer's other path, which does the same
step by step.
"""

import functools
import weakref

import torch

from .. import _abi, _recording, ops
from .._attention_call import make_seed, settings_of
from .._chain import Chain
from .._execute import generation
from .._kernel_links import Attention, ByEdge, ByLoopedEdge, Reduced, Sum
from .._links import (
    EdgeScores, Finish, Gate, Linear as Product, Normalized, Own, Plane, Relu,
    Scores, Slot)
from .._loops import normalize, with_remaining_loops
from .._operators import DTYPES
from ..convert import known_graph, looped_graph
from ..errors import InvalidError, UnsupportedError
from ..graph import Graph
from ..messages import MOST_PROJECTED
from ._guards import (
    PLAIN_TENSORS, Other, dropout_of, edge_features, is_matrix, known, linear,
    number, own, pair, product, reduction, single, sums, watched)

# Products whose result has more elements stay apart from those that backward
# reads, so that no memory is held in vain.
_SMALL = 1 << 20


# ---- calls ------------------------------------------------------------------

def node(call):
    """What a layer's forward tries first: call(state, ...) with the layer's
    __dict__; NotImplemented where the other path is to be taken."""
    @functools.wraps(call)
    def attempt(layer, *args, **kwargs):
        if ops.compiling() or watched() or layer.runs_in_steps():
            return NotImplemented
        state = layer.__dict__
        if state["flow"] != "source_to_target" or \
                state["node_dim"] not in (-2, 0):
            return NotImplemented
        try:
            return call(state, *args, **kwargs)
        except (Other, InvalidError, UnsupportedError):
            return NotImplemented
    return attempt


def first(node):
    """Decorates a layer's forward, which runs where node() does not."""
    def decorate(forward):
        @functools.wraps(forward)
        def tried(self, *args, **kwargs):
            out = node(self, *args, **kwargs)
            if out is NotImplemented:
                return forward(self, *args, **kwargs)
            return out
        return tried
    return decorate


def recipe(names):
    """Decorates a function (graph, settings, static, *tensors) that returns
    the links of a chain, or None where shapes are not as they should be; names
    are those of the tensors in the links.  The first has features of nodes."""
    def named(function):
        function.names = tuple(names.split())
        return function
    return named


def _graph(edges, sizes, loops=False):
    """The graph of a call, from PyG's edge_index or a Graph."""
    if isinstance(edges, Graph):
        if edges.exchange is not None or \
                (edges.num_src, edges.num_dst) != sizes:
            raise Other
        return edges.with_self_loops() if loops else edges
    found = known_graph(edges, sizes, loops)
    if found is None:
        if not known(edges):
            raise Other
        found = looped_graph(edges, sizes, loops)
    return found


def _run(graph, links, static, *tensors, dropout=0.0, scale=0.0, slope=0.0):
    """The result of the links of a recipe for its tensors.

    static: what the links depend on beside the shapes.
    """
    first = tensors[0]
    dtype, device, shapes = first.dtype, first.device, []
    for tensor in tensors:
        if tensor is None:
            shapes.append(None)
            continue
        if type(tensor) not in PLAIN_TENSORS or tensor.dtype is not dtype \
                or tensor.device != device:
            raise Other
        shapes.append(tensor.shape)
        if not tensor.is_contiguous():
            tensors = [t if t is None else t.contiguous() for t in tensors]
    if _recording.current is not None:
        _recording.current.graph(graph)
    settings = settings_of(first, scale, slope, dropout, False)
    recipes = graph.handle.recipes
    key = (links, static, settings, generation(), dtype, *shapes)
    chain = recipes.get(key)
    if chain is None:
        chain = recipes[key] = _chain(graph, links, settings, static, tensors)
    if chain is Other:
        raise Other
    if dropout:
        tensors = (*tensors, make_seed(device))
    return chain(graph, tensors)


def _chain(graph, links, settings, static, tensors):
    """The Chain of a call, or Other."""
    first = tensors[0]
    if not graph.num_edges or not first.numel() or first.dtype not in DTYPES \
            or first.device != graph.device:
        return Other
    found = links(graph, settings, static, *tensors)
    if found is None:
        return Other
    return Chain((*links.names, "seed") if settings.dropout else links.names,
                 found)


def _fit(weight, bias, inputs):
    """Whether a linear layer takes so many features."""
    return (weight.dim() == 2 and weight.size(1) == inputs
            and (bias is None or bias.shape == weight.shape[:1]))


def _fits_out(bias, heads, dim, concat):
    return bias is None or bias.shape == (heads * dim if concat else dim,)


def _name(name, tensor):
    return None if tensor is None else name


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
                or any(w.size(0) != width and name != "skip"
                       for name, w in zip(names, weights)) \
                or len({b is None for b in biases}) > 1:
            return None, None
        out, start = "+".join(names), 0
        rows = tuple(w.size(0) for w in weights)
        for name, count in zip(names, rows):
            slots[name] = Slot(out) if len(names) == 1 else \
                Slot(out, start, count, sum(rows))
            start += count
        links.append(Product(
            x, tuple("w_" + name for name in names), tuple(
                "b_" + name for name in names if biases[0] is not None),
            rows, out))
    return links, slots


# ---- attention --------------------------------------------------------------

@node
def gat(state, x, edge_index, edge_attr=None, size=None,
        return_attention_weights=None):
    if return_attention_weights:
        raise Other
    sums(state)
    src, dst, sizes = pair(x, size)
    loops, fill = _loops(state, edge_attr)
    graph = _graph(edge_index, sizes, loops)
    if state["_modules"].get("lin") is not None:
        weight, w_dst = product(state, "lin"), None
    elif dst is not None:  # with a layer of its own for those that receive
        weight, w_dst = product(state, "lin_src"), product(state, "lin_dst")
    else:
        raise Other
    return _run(graph, _gat, (state["heads"], state["concat"], fill), src, dst,
                weight, w_dst, own(state, "att_src"), own(state, "att_dst"),
                own(state, "bias"), _residual(state),
                *edge_features(state, edge_attr, src),
                None if edge_attr is None else own(state, "att_edge"),
                dropout=dropout_of(state), slope=state["negative_slope"])


def _loops(state, edge_attr):
    """(whether a layer adds self loops, what it fills their features with,
    None where they have none)."""
    loops = state["add_self_loops"]
    if edge_attr is None or not loops:
        return loops, None
    fill = state["fill_value"]
    if not isinstance(fill, str) or fill not in ("mean", "add", "sum"):
        raise Other
    return loops, fill


def _residual(state):
    """The weight of what is added to a result, or None."""
    return None if state["_modules"].get("res") is None else \
        product(state, "res")


def _residual_links(x, x_dst, w_res, width):
    """(links of a residual, its Slot or None), or None if it does not fit."""
    if w_res is None:
        return [], None
    own = x if x_dst is None else x_dst
    if not _fit(w_res, None, own.size(1)) or w_res.size(0) != width:
        return None
    return [Product("x" if x_dst is None else "x_dst", ("w_res",), (), (),
                    "residual")], Slot("residual")


@recipe("x x_dst weight w_dst att_src att_dst bias w_res edge_attr w_edge "
        "att_edge")
def _gat(graph, settings, static, x, x_dst, weight, w_dst, att_src, att_dst,
         bias, w_res, edge_attr, w_edge, att_edge):
    heads, concat, fill = static
    dim = weight.size(0) // heads
    fits = (_fit(weight, None, x.size(1)) and weight.size(0) == heads * dim
            and att_src.shape == att_dst.shape == (1, heads, dim)
            and _fits_out(bias, heads, dim, concat))
    if fits and x_dst is not None:
        other = weight if w_dst is None else w_dst
        fits = _fit(other, None, x_dst.size(1)) and \
            other.size(0) == weight.size(0)
    residual = _residual_links(x, x_dst, w_res,
                               heads * dim if concat else dim)
    if not fits or residual is None or not _edges_fit(
            graph, edge_attr, w_edge, heads * dim, fill) or \
            edge_attr is not None and att_edge.shape != att_src.shape:
        return None
    links = [*residual[0], Product("x", ("weight",), (), (), "h")]
    exact = torch.float64 if x.dtype == torch.float64 else torch.float32
    if x_dst is None:
        links.append(Scores("h", ("att_dst", "att_src"), "scores", exact,
                            x.size(0) * heads * dim > _SMALL))
        scores = [Plane("scores", k, k * x.size(0) * heads) for k in range(2)]
    else:
        links += [Product("x_dst", ("weight" if w_dst is None else "w_dst",),
                          (), (), "h_dst"),
                  Scores("h", ("att_src",), "score_src", exact,
                         x.size(0) * heads * dim > _SMALL),
                  Scores("h_dst", ("att_dst",), "score_dst", exact,
                         x_dst.size(0) * heads * dim > _SMALL)]
        scores = Plane("score_dst", 0, 0), Plane("score_src", 0, 0)
    of_edges = 0
    if edge_attr is not None:
        links += [*_edge_links(graph, edge_attr, fill, False), EdgeScores(
            "by edge", "w_edge", "att_edge", "score_edge", exact)]
        scores = *scores, Slot("score_edge")
        of_edges = _abi.EDGE_PROJECTED
    return [*links, Attention(graph, "gat", (Slot("h"), *scores), "sums",
                              heads, dim, x.dtype, settings, of_edges),
            Finish("sums", "out", heads, not concat, residual[1],
                   _name("bias", bias))]


@node
def gatv2(state, x, edge_index, edge_attr=None,
          return_attention_weights=None):
    if return_attention_weights:
        raise Other
    sums(state)
    shared = state["share_weights"]
    if shared and type(x) is tuple:
        raise Other
    src, dst, sizes = pair(x)
    loops, fill = _loops(state, edge_attr)
    return _run(_graph(edge_index, sizes, loops), _gatv2,
                (state["heads"], state["concat"], fill), src, dst,
                *linear(state, "lin_l"), *(
                    (None, None) if shared else linear(state, "lin_r")),
                own(state, "att"), own(state, "bias"), _residual(state),
                *edge_features(state, edge_attr, src),
                dropout=dropout_of(state), slope=state["negative_slope"])


@recipe("x x_dst w_l b_l w_r b_r att bias w_res edge_attr w_edge")
def _gatv2(graph, settings, static, x, x_dst, w_l, b_l, w_r, b_r, att, bias,
           w_res, edge_attr, w_edge):
    heads, concat, fill = static
    width = w_l.size(0)
    dim = width // heads
    if not (width == heads * dim and att.shape == (1, heads, dim)
            and _fits_out(bias, heads, dim, concat)):
        return None
    sides = [("x", "l")]
    if w_r is not None:
        sides.append(("x" if x_dst is None else "x_dst", "r"))
    links, slots = _products(dict(x=x, x_dst=x_dst, w_l=w_l, b_l=b_l, w_r=w_r,
                                  b_r=b_r), sides, width)
    residual = _residual_links(x, x_dst, w_res,
                               width if concat else dim)
    if links is None or residual is None or not _edges_fit(
            graph, edge_attr, w_edge, width, fill):
        return None
    inputs = (slots.get("r", slots["l"]), slots["l"], Slot("att"),
              *_edge_slots(edge_attr))
    return [*residual[0], *links, *_edge_links(graph, edge_attr, fill),
            Attention(graph, "gatv2", inputs, "sums", heads, dim, x.dtype,
                      settings, _edge_dim(edge_attr), graph.handle.listed),
            Finish("sums", "out", heads, not concat, residual[1],
                   _name("bias", bias))]


@node
def transformer(state, x, edge_index, edge_attr=None,
                return_attention_weights=None):
    if return_attention_weights is not None:
        raise Other
    sums(state)
    src, dst, sizes = pair(x)
    return _run(_graph(edge_index, sizes), _transformer,
                (state["heads"], state["concat"]), src, dst,
                *linear(state, "lin_query"), *linear(state, "lin_key"),
                *linear(state, "lin_value"), *(
                    linear(state, "lin_skip") if state["root_weight"]
                    else (None, None)), *edge_features(state, edge_attr, src),
                None if state["_modules"].get("lin_beta") is None else
                product(state, "lin_beta"),
                dropout=dropout_of(state), scale=state["out_channels"] ** -0.5)


@recipe("x x_dst w_query b_query w_key b_key w_value b_value w_skip b_skip "
        "edge_attr w_edge w_beta")
def _transformer(graph, settings, static, *given):
    heads, concat = static
    tensors = dict(zip(_transformer.names, given))
    x, edge_attr = tensors["x"], tensors["edge_attr"]
    width = tensors["w_value"].size(0)
    dim = width // heads
    dst = "x" if tensors["x_dst"] is None else "x_dst"
    sides, skip = [(dst, "query"), ("x", "key"), ("x", "value")], []
    if tensors["w_skip"] is not None:
        skip = [(dst, "skip")]
        if tensors["w_skip"].size(0) != (width if concat else dim):
            return None
    together = x.size(0) * width <= _SMALL
    links, slots = _products(tensors, sides + skip if together else sides,
                             width)
    if links is not None and skip and not together:
        more, apart = _products(tensors, skip, width)
        links, slots = more and links + more, more and {**slots, **apart}
    w_beta, root = tensors["w_beta"], slots and slots.get("skip")
    if not links or width != heads * dim or not _edges_fit(
            graph, edge_attr, tensors["w_edge"], width) or \
            w_beta is not None and w_beta.shape != (
                1, 3 * tensors["w_skip"].size(0)):
        return None
    last = [Finish("sums", "out", heads, not concat, root)]
    if w_beta is not None:
        last = [Finish("sums", "attended", heads, not concat),
                Gate("attended", root, "w_beta", "out")]
    return [*links, *_edge_links(graph, edge_attr), Attention(
        graph, "gt", (slots["query"], slots["key"], slots["value"],
                      *_edge_slots(edge_attr)),
        "sums", heads, dim, x.dtype, settings, _edge_dim(edge_attr),
        graph.handle.listed), *last]


def _edges_fit(graph, edge_attr, weight, width, fill=None):
    """Whether edges have features of the right shape; fill: what those of the
    loops are made by, one for each destination."""
    if edge_attr is None:
        return True
    edges = graph.num_edges
    if fill is not None:
        if type(graph) is not Graph or graph.loops != graph.num_dst:
            return False
        edges = graph.unlooped_edges
    return edge_attr.size(0) == edges and weight.shape == (
        width, edge_attr.size(1))


def _edge_dim(edge_attr):
    return 0 if edge_attr is None else edge_attr.size(1)


def _edge_links(graph, edge_attr, fill=None, listed=True):
    if edge_attr is None:
        return ()
    if fill is not None:
        return ByLoopedEdge("edge_attr", "by edge", fill),
    return ByEdge("edge_attr", "by edge", listed and graph.handle.listed),


def _edge_slots(edge_attr):
    """The last inputs of an operator with edge features."""
    return () if edge_attr is None else (Slot("by edge"), Slot("w_edge"), None)


@node
def agnn(state, x, edge_index):
    sums(state)
    x, sizes = single(x)
    return _run(_graph(edge_index, sizes, state["add_self_loops"]), _agnn, (),
                x, number(state, "beta"), scale=1.0, slope=0.2)


@recipe("x beta")
def _agnn(graph, settings, static, x, beta):
    return [Attention(graph, "agnn", (Slot("x"), Slot("x"), Slot("beta")),
                      "out", 1, x.size(1), x.dtype, settings)]


# ---- sums -------------------------------------------------------------------

@node
def gcn(state, x, edge_index, edge_weight=None):
    if not state["normalize"]:
        raise Other
    sums(state)
    x, sizes = single(x)
    loops = state["add_self_loops"]
    if state["cached"]:
        graph, edge_weight = _cached(state, edge_index, sizes)
    elif edge_weight is None:
        graph = _graph(edge_index, sizes, loops)
    else:
        graph, edge_weight = _normalized(
            _graph(edge_index, sizes), edge_weight, loops,
            2.0 if state["improved"] else 1.0,
            "inspector" in state)  # a layer of PyG's
    return _run(graph, _gcn, (), x, product(state, "lin"), own(state, "bias"),
                edge_weight)


def _cached(state, edge_index, sizes):
    """(graph, weights of its edges or None) that a call before kept."""
    if not known(edge_index):
        raise Other
    pygs, loops = "inspector" in state, state["add_self_loops"]
    kept = state["_cached_edge_index" if pygs else "_cached"]
    if kept is None:
        if pygs or state["_graph"] is None:
            raise Other
        return _graph(state["_graph"], sizes, loops), None
    edges, weight = kept
    graph = _graph(edges, sizes, loops and not pygs)
    if loops and not pygs:
        weight = graph.to_looped_edges(weight)
    _check_weights(graph, weight)
    return graph, weight


def _check_weights(graph, weight):
    if type(weight) not in PLAIN_TENSORS or weight.dtype not in (
            torch.float32, torch.float64) or \
            weight.shape != (graph.num_edges,) or \
            weight.device != graph.device:
        raise Other


def _normalized(graph, weight, loops, fill, shared):
    """(graph, weights by its edges) as GCN sums by them; kept with the graph
    as long as weights that need no gradient are the same."""
    _check_weights(graph, weight)
    key, keeps = ("gcn weights", loops, fill), type(graph) is Graph and \
        not weight.requires_grad and not weight.is_inference()
    held = graph._derived.get(key) if keeps else None
    if _recording.current is not None:
        _recording.current.source(weight)
    if held is None or held[0]() is not weight or held[1] != weight._version:
        made = with_remaining_loops(graph, weight, fill, shared) \
            if loops else (graph, weight)
        made = made[0], normalize(*made)
        if not keeps:
            return made
        held = graph._derived[key] = (weakref.ref(weight), weight._version,
                                      made)
    return held[2]


@recipe("x weight bias edge_weight")
def _gcn(graph, settings, static, x, weight, bias, edge_weight):
    if not _fit(weight, bias, x.size(1)):
        return None
    links = [Product("x", ("weight",), (), (), "h")]
    if edge_weight is None:
        links.append(Sum(graph, "spmm-sum", "h", "sums", weight.size(0),
                         x.dtype, symmetric=True))
    else:
        links += [ByEdge("edge_weight", "by edge"),
                  Reduced("spmm-weighted", "sums", value="h",
                          edge_weight="by edge")]
    return [*links, Finish("sums", "out", bias=_name("bias", bias))]


@node
def sage(state, x, edge_index, size=None):
    weights = linear(state, "lin") if state["project"] else (None, None)
    return _sums_and_own(state, x, edge_index, size, "lin_l",
                         "lin_r" if state["root_weight"] else "", *weights,
                         normalize=state["normalize"])


@node
def graph_conv(state, x, edge_index, edge_weight=None, size=None):
    return _sums_and_own(state, x, edge_index, size, "lin_rel", "lin_root",
                         edge_weight=edge_weight)


def _sums_and_own(state, x, edge_index, size, of_sums, of_own, w_first=None,
                  b_first=None, edge_weight=None, normalize=False):
    """A linear layer of the reduced neighbours, plus one of a node's own
    features unless its name is empty."""
    src, dst, sizes = pair(x, size)
    return _run(_graph(edge_index, sizes), _neighbours,
                (reduction(state), normalize), src, dst,
                *linear(state, of_sums), *linear(state, of_own), w_first,
                b_first, edge_weight)


def _reduced(graph, op, x, out, width, dtype, weight=None):
    """The link that reduces neighbours."""
    if weight is None and op.startswith("spmm"):
        return Sum(graph, op, x, out, width, dtype)
    return Reduced(op if weight is None else "spmm-weighted", out, value=x,
                   edge_weight=weight)


@recipe("x x_dst w_sums b_sums w_own b_own w_first b_first edge_weight")
def _neighbours(graph, settings, static, x, x_dst, w_sums, b_sums, w_own,
                b_own, w_first, b_first, edge_weight):
    op, normalize = static
    own = x if x_dst is None else x_dst
    links, sent, width, weight = [], "x", x.size(1), None
    if w_sums is None or w_own is not None and (
            not _fit(w_own, b_own, own.size(1))
            or w_own.size(0) != w_sums.size(0)):
        return None
    if w_own is not None:
        # first, so that its gradient by x is added to that of the sums
        links.append(Product("x" if x_dst is None else "x_dst", ("w_own",),
                             () if b_own is None else ("b_own",), (), "own"))
    if w_first is not None:
        if not _fit(w_first, b_first, width):
            return None
        links += [Product("x", ("w_first",), () if b_first is None else
                          ("b_first",), (), "first"), Relu("first", "sent")]
        sent, width = "sent", w_first.size(0)
    if edge_weight is not None:
        if op != "spmm-sum" or edge_weight.shape != (graph.num_edges,) or \
                x.dtype not in (torch.float32, torch.float64):
            return None
        links.append(ByEdge("edge_weight", "by edge"))
        weight = "by edge"
    if not _fit(w_sums, b_sums, width):
        return None
    made = "whole" if normalize else "out"
    links += [_reduced(graph, op, sent, "sums", width, x.dtype, weight),
              Product("sums", ("w_sums",), () if b_sums is None else
                      ("b_sums",), (), made,
                      None if w_own is None else "own")]
    return links + [Normalized("whole", "out")] if normalize else links


@node
def gin(state, x, edge_index, size=None):
    src, dst, sizes = pair(x, size)
    out = _run(_graph(edge_index, sizes), _gin, reduction(state), src, dst,
               number(state, "eps"))
    return state["_modules"]["nn"](out)


@recipe("x x_dst eps")
def _gin(graph, settings, op, x, x_dst, eps):
    if x_dst is not None and x_dst.size(1) != x.size(1):
        return None
    return [_reduced(graph, op, "x", "sums", x.size(1), x.dtype),
            Own("sums", "x" if x_dst is None else "x_dst", "eps", "out")]


@node
def gine(state, x, edge_index, edge_attr=None, size=None):
    src, dst, sizes = pair(x, size)
    weight, bias = linear(state, "lin")
    if not is_matrix(edge_attr) or weight is not None and \
            edge_attr.size(1) > MOST_PROJECTED[src.device.type]:
        raise Other
    op = reduction(state)
    if not op.startswith("spmm"):
        raise Other
    out = _run(_graph(edge_index, sizes), _gine, op, src, dst,
               number(state, "eps"), edge_attr, weight, bias)
    return state["_modules"]["nn"](out)


@recipe("x x_dst eps edge_attr w_edge b_edge")
def _gine(graph, settings, op, x, x_dst, eps, edge_attr, w_edge, b_edge):
    width = edge_attr.size(1) if w_edge is None else w_edge.size(0)
    if width != x.size(1) or edge_attr.size(0) != graph.num_edges \
            or w_edge is not None and not _fit(w_edge, b_edge,
                                               edge_attr.size(1)) \
            or x_dst is not None and x_dst.size(1) != x.size(1):
        return None
    listed = graph.handle.listed and w_edge is None
    return [ByEdge("edge_attr", "by edge", listed),
            Reduced(op, "sums", listed, value="x", edge_attr="by edge",
                    edge_weight=_name("w_edge", w_edge),
                    edge_bias=_name("b_edge", b_edge)),
            Own("sums", "x" if x_dst is None else "x_dst", "eps", "out")]
