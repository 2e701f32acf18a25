"""Layers of attention as one node of autograd each, see _node.py."""

from .. import _abi
from .._checks import exact
from .._kernel_links import Attention, ByEdge, ByLoopedEdge
from .._links import (
    EdgeScores, Finish, Gate, Linear as Product, Scores, Slot,
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


def _additive(state, links, x, edge_index, edge_attr, size, *parameters):
    """The result of the links of _gat or _gatv2; parameters: their last
    tensors."""
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


def _around(static, width, x, x_dst, bias, w_res):
    """(links before those of the attention, the last link), or None where
    shapes contradict each other; width: of all heads."""
    heads, concat, _ = static
    out = width if concat else width // heads
    if width % heads or bias is not None and bias.shape != (out,):
        return None
    links, residual = [], None
    if w_res is not None:
        receives = x if x_dst is None else x_dst
        if not fits(w_res, None, receives.size(1)) or w_res.size(0) != out:
            return None
        links, residual = [Product("x" if x_dst is None else "x_dst",
                                   ("w_res",), (), (), "residual")], \
            Slot("residual")
    return links, Finish("sums", "out", heads, not concat, residual,
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


@recipe
def _gat(graph, settings, static, x, x_dst, bias, w_res, edge_attr, w_edge,
         weight, w_dst, att_src, att_dst, att_edge):
    heads, _, fill = static
    width = weight.size(0)
    around = _around(static, width, x, x_dst, bias, w_res)
    edges = _edges(graph, edge_attr, w_edge, width, fill, False)
    right = (around and edges and fits(weight, None, x.size(1))
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
        scores = Slot("scores", plane=0), Slot("scores", plane=1)
    else:
        links += [Product("x_dst", ("weight" if w_dst is None else "w_dst",),
                          (), (), "h_dst"),
                  Scores("h", ("att_src",), "score_src", kind),
                  Scores("h_dst", ("att_dst",), "score_dst", kind)]
        scores = Slot("score_dst", plane=0), Slot("score_src", plane=0)
    of_edges = 0
    if edge_attr is not None:
        links += [*edges[0], EdgeScores("by edge", "w_edge", "att_edge",
                                        "score_edge", kind)]
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


@recipe
def _gatv2(graph, settings, static, x, x_dst, bias, w_res, edge_attr, w_edge,
           w_l, b_l, w_r, b_r, att):
    heads, _, fill = static
    width = w_l.size(0)
    around = _around(static, width, x, x_dst, bias, w_res)
    edges = _edges(graph, edge_attr, w_edge, width, fill)
    sides = [("x", "l")]
    if w_r is not None:
        sides.append(("x" if x_dst is None else "x_dst", "r"))
    links, slots = _products(dict(x=x, x_dst=x_dst, w_l=w_l, b_l=b_l, w_r=w_r,
                                  b_r=b_r), sides, width)
    if not around or not edges or links is None or att.shape != (1, heads, width // heads):
        return None
    edge_links, edge_inputs, edge_dim = edges
    inputs = slots.get("r", slots["l"]), slots["l"], Slot("att"), *edge_inputs
    return [*around[0], *links, *edge_links,
            Attention("gatv2", inputs, "sums", heads, width // heads, x.dtype,
                      settings, edge_dim, graph.handle.listed), around[1]]


@node
def transformer(state, x, edge_index, edge_attr=None,
                return_attention_weights=None):
    if return_attention_weights is not None:
        raise Other
    sums(state)
    src, dst, sizes = pair(x)
    # backward does not read the skip's product: a large one is made by itself
    together = is_small(src, state["heads"] * state["out_channels"])
    own_part = "lin_skip" if state["root_weight"] else ""
    gated = own_part and state["_modules"].get("lin_beta") is not None
    return run(graph_of(edge_index, sizes), _transformer,
               (state["heads"], state["concat"], together), src, dst,
               *linear(state, "lin_query"), *linear(state, "lin_key"),
               *linear(state, "lin_value"), *linear(state, own_part),
               *edge_features(state, edge_attr, src),
               product(state, "lin_beta") if gated else None,
               dropout=dropout_of(state), scale=state["out_channels"] ** -0.5)


@recipe
def _transformer(graph, settings, static, x, x_dst, w_query, b_query, w_key,
                 b_key, w_value, b_value, w_skip, b_skip, edge_attr, w_edge,
                 w_beta):
    tensors, (heads, concat, together) = locals(), static
    width = w_value.size(0)
    edges = _edges(graph, edge_attr, w_edge, width)
    dim, dst = width // heads, "x" if x_dst is None else "x_dst"
    sides, skip = [(dst, "query"), ("x", "key"), ("x", "value")], []
    if w_skip is not None:
        skip = [(dst, "skip")]
        if w_skip.size(0) != (width if concat else dim):
            return None
    links, slots = _products(tensors, sides + skip if together else sides,
                             width)
    if links is not None and skip and not together:
        more, more_slots = _products(tensors, skip, width)
        links, slots = more and links + more, more and {**slots, **more_slots}
    root = slots and slots.get("skip")
    if not links or not edges or width != heads * dim or \
            w_beta is not None and w_beta.shape != (1, 3 * w_skip.size(0)):
        return None
    edge_links, edge_inputs, edge_dim = edges
    last = [Finish("sums", "out", heads, not concat, root)]
    if w_beta is not None:
        last = [Finish("sums", "attended", heads, not concat),
                Gate("attended", root, "w_beta", "out")]
    return [*links, *edge_links, Attention(
        "gt", (slots["query"], slots["key"], slots["value"], *edge_inputs),
        "sums", heads, dim, x.dtype, settings, edge_dim,
        graph.handle.listed), *last]


def _edges(graph, edge_attr, weight, width, fill=None, listed=True):
    """(links, last inputs of an operator, their number of features) for features
    of edges; None where they are of another shape.

    fill: what those of the loops are made by, one for each destination.
    listed: whether the operator takes them in the caller's order.
    """
    if edge_attr is None:
        return (), (), 0
    edges, dim = graph.num_edges, edge_attr.size(1)
    link = ByEdge("edge_attr", "by edge", listed and graph.handle.listed)
    if fill is not None:
        if type(graph) is not Graph or graph.loops != graph.num_dst:
            return None
        edges = graph.unlooped_edges
        link = ByLoopedEdge("edge_attr", "by edge", fill)
    if edge_attr.size(0) != edges or weight.shape != (width, dim):
        return None
    return (link,), (Slot("by edge"), Slot("w_edge"), None), dim


@node
def agnn(state, x, edge_index):
    sums(state)
    x, sizes = single(x)
    return run(graph_of(edge_index, sizes, state["add_self_loops"]), _agnn, (),
               x, number(state, "beta"), scale=1.0, slope=0.2)


@recipe
def _agnn(graph, settings, static, x, beta):
    if beta.dtype != x.dtype:
        return None
    return [Attention("agnn", (Slot("x"), Slot("x"), Slot("beta")),
                      "out", 1, x.size(1), x.dtype, settings)]
