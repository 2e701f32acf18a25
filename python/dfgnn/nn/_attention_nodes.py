"""Layers of attention as one node of autograd each, see _node.py."""

from .. import _abi
from .._checks import exact
from .._kernel_links import Attention, ByEdge, ByLoopedEdge
from .._links import (
    EdgeScores, Finish, Gate, Linear as Product, Plane, Scores, Slot,
    is_small)
from ..graph import Graph
from ._node import (
    Other, dropout_of, edge_features, fits, graph_of, linear, named, node,
    number, own, pair, product, recipe, run, single, sums)


def _products(tensors, sides, width):
    """(links, slots by name) of linear layers "w_name" and "b_name", those of
    one input in one product; (None, None) where shapes contradict each other.

    sides: (input, name) of each layer; width: what each gives, except for
        "skip".
    """
    links, slots = [], {}
    for x in dict.fromkeys(source for source, _ in sides):
        names = [name for source, name in sides if source == x]
        weights = [tensors["w_" + name] for name in names]
        biases = [tensors["b_" + name] for name in names]
        if not all(fits(w, b, tensors[x].size(1)) for w, b in
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
        b = tuple("b_" + name for name in names if biases[0] is not None)
        links.append(Product(
            x, tuple("w_" + name for name in names), b, rows, out))
    return links, slots


# ---- GAT and GATv2 ----------------------------------------------------------

# the inputs that begin both recipes
_COMMON = "x x_dst bias w_res edge_attr w_edge "


def _additive(state, links, x, edge_index, edge_attr, size, *parameters):
    """The result of the links of _gat or _gatv2; parameters: after _COMMON."""
    sums(state)
    src, dst, sizes = pair(x, size)
    loops, fill = state["add_self_loops"], None
    if loops and edge_attr is not None:
        fill = state["fill_value"]
        if not isinstance(fill, str) or fill not in ("mean", "add", "sum"):
            raise Other
    bias, (w_res, of_residual) = own(state, "bias"), linear(state, "res")
    if of_residual is not None:
        if bias is not None:
            raise Other
        bias = of_residual
    return run(graph_of(edge_index, sizes, loops), links,
               (state["heads"], state["concat"], fill), src, dst, bias, w_res,
               *edge_features(state, edge_attr, src), *parameters,
               dropout=dropout_of(state), slope=state["negative_slope"])


def _around(graph, static, width, x, x_dst, bias, w_res, edge_attr, w_edge):
    """(links before those of the attention, the last link), or None where
    shapes contradict each other; width: of all heads."""
    heads, concat, fill = static
    out = width if concat else width // heads
    if width % heads or bias is not None and bias.shape != (out,) or \
            not _edges_fit(graph, edge_attr, w_edge, width, fill):
        return None
    if w_res is None:
        return [], Finish("sums", "out", heads, not concat, None,
                          named("bias", bias))
    receives = x if x_dst is None else x_dst
    if not fits(w_res, None, receives.size(1)) or w_res.size(0) != out:
        return None
    return [Product("x" if x_dst is None else "x_dst", ("w_res",), (), (),
                    "residual")], Finish(
        "sums", "out", heads, not concat, Slot("residual"),
        named("bias", bias))


@node
def gat(state, x, edge_index, edge_attr=None, size=None,
        return_attention_weights=None):
    if return_attention_weights:
        raise Other
    if state["_modules"].get("lin") is not None:
        weights = product(state, "lin"), None
    elif type(x) is tuple and x[0] is not x[-1]:
        # destinations have a layer of their own
        weights = product(state, "lin_src"), product(state, "lin_dst")
    else:
        raise Other
    return _additive(state, _gat, x, edge_index, edge_attr, size, *weights,
                     own(state, "att_src"), own(state, "att_dst"),
                     None if edge_attr is None else own(state, "att_edge"))


@recipe(_COMMON + "weight w_dst att_src att_dst att_edge")
def _gat(graph, settings, static, x, x_dst, bias, w_res, edge_attr, w_edge,
         weight, w_dst, att_src, att_dst, att_edge):
    heads, _, fill = static
    width = weight.size(0)
    around = _around(graph, static, width, x, x_dst, bias, w_res, edge_attr,
                     w_edge)
    right = (around and fits(weight, None, x.size(1))
             and att_src.shape == att_dst.shape == (1, heads, width // heads)
             and (edge_attr is None or att_edge.shape == att_src.shape))
    if right and x_dst is not None:
        other = weight if w_dst is None else w_dst
        right = fits(other, None, x_dst.size(1)) and other.size(0) == width
    if not right:
        return None
    links = [*around[0], Product("x", ("weight",), (), (), "h")]
    kind = exact(x.dtype)
    if x_dst is None:
        links.append(Scores("h", ("att_dst", "att_src"), "scores", kind))
        scores = Plane("scores", 0), Plane("scores", 1)
    else:
        links += [Product("x_dst", ("weight" if w_dst is None else "w_dst",),
                          (), (), "h_dst"),
                  Scores("h", ("att_src",), "score_src", kind),
                  Scores("h_dst", ("att_dst",), "score_dst", kind)]
        scores = Plane("score_dst", 0), Plane("score_src", 0)
    of_edges = 0
    if edge_attr is not None:
        links += [*_edge_links(graph, edge_attr, fill, False), EdgeScores(
            "by edge", "w_edge", "att_edge", "score_edge", kind)]
        scores = *scores, Slot("score_edge")
        of_edges = _abi.EDGE_PROJECTED
    return [*links, Attention("gat", (Slot("h"), *scores), "sums", heads,
                              width // heads, x.dtype, settings, of_edges),
            around[1]]


@node
def gatv2(state, x, edge_index, edge_attr=None,
          return_attention_weights=None):
    shared = state["share_weights"]
    if return_attention_weights or shared and type(x) is tuple:
        raise Other
    return _additive(state, _gatv2, x, edge_index, edge_attr, None,
                     *linear(state, "lin_l"), *(
                         (None, None) if shared else linear(state, "lin_r")),
                     own(state, "att"))


@recipe(_COMMON + "w_l b_l w_r b_r att")
def _gatv2(graph, settings, static, x, x_dst, bias, w_res, edge_attr, w_edge,
           w_l, b_l, w_r, b_r, att):
    heads, _, fill = static
    width = w_l.size(0)
    around = _around(graph, static, width, x, x_dst, bias, w_res, edge_attr,
                     w_edge)
    sides = [("x", "l")]
    if w_r is not None:
        sides.append(("x" if x_dst is None else "x_dst", "r"))
    links, slots = _products(dict(x=x, x_dst=x_dst, w_l=w_l, b_l=b_l, w_r=w_r,
                                  b_r=b_r), sides, width)
    if not around or links is None or att.shape != (1, heads, width // heads):
        return None
    inputs = (slots.get("r", slots["l"]), slots["l"], Slot("att"),
              *_edge_slots(edge_attr))
    return [*around[0], *links, *_edge_links(graph, edge_attr, fill),
            Attention("gatv2", inputs, "sums", heads, width // heads, x.dtype,
                      settings, _edge_dim(edge_attr), graph.handle.listed),
            around[1]]


# ---- the others -------------------------------------------------------------

@node
def transformer(state, x, edge_index, edge_attr=None,
                return_attention_weights=None):
    if return_attention_weights is not None:
        raise Other
    sums(state)
    src, dst, sizes = pair(x)
    # backward does not read the skip's product: a large one is made by itself
    together = is_small(src, state["heads"] * state["out_channels"])
    return run(graph_of(edge_index, sizes), _transformer,
               (state["heads"], state["concat"], together), src, dst,
               *linear(state, "lin_query"), *linear(state, "lin_key"),
               *linear(state, "lin_value"), *(
                   linear(state, "lin_skip") if state["root_weight"]
                   else (None, None)), *edge_features(state, edge_attr, src),
               None if state["_modules"].get("lin_beta") is None else
               product(state, "lin_beta"),
               dropout=dropout_of(state), scale=state["out_channels"] ** -0.5)


@recipe("x x_dst w_query b_query w_key b_key w_value b_value w_skip b_skip "
        "edge_attr w_edge w_beta")
def _transformer(graph, settings, static, *inputs):
    heads, concat, together = static
    tensors = dict(zip(_transformer.names, inputs))
    x, edge_attr = tensors["x"], tensors["edge_attr"]
    width = tensors["w_value"].size(0)
    dim = width // heads
    dst = "x" if tensors["x_dst"] is None else "x_dst"
    sides, skip = [(dst, "query"), ("x", "key"), ("x", "value")], []
    if tensors["w_skip"] is not None:
        skip = [(dst, "skip")]
        if tensors["w_skip"].size(0) != (width if concat else dim):
            return None
    links, slots = _products(tensors, sides + skip if together else sides,
                             width)
    if links is not None and skip and not together:
        more, more_slots = _products(tensors, skip, width)
        links, slots = more and links + more, more and {**slots, **more_slots}
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
        "gt", (slots["query"], slots["key"], slots["value"],
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
    return run(graph_of(edge_index, sizes, state["add_self_loops"]), _agnn, (),
               x, number(state, "beta"), scale=1.0, slope=0.2)


@recipe("x beta")
def _agnn(graph, settings, static, x, beta):
    return [Attention("agnn", (Slot("x"), Slot("x"), Slot("beta")),
                      "out", 1, x.size(1), x.dtype, settings)]
