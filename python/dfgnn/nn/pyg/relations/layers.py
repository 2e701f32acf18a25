"""How the layers of PyG go together whose relations are one pass of the
kernels; ../_table.py says which class goes how.

Layers keep their parameters, which come here as lists by relation, in the order
of the relations of a HeteroGraph.  What relations project of a type is one
product, whose weights stand one below the other; what differs by relation
reaches the kernels as tables and scores.
"""

from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F
from torch_geometric.nn.conv import gcn_conv

from .... import _ways
from ...._loops import loop_features
from ....aggregation import each_reduction, spmm
from ....functional import gat_attention, gt_attention
from ....programs import edge_program, softmax
from ..._attention_steps import (
    edge_feature_scores, outside_autocast, result_type)
from ..._node import Other, linear, own, product
from .._attention_convs import can_fill, own_reason
from .._edges import NORM_TENSORS, Ends, edge_tensor, graph_of
from .._reduce import NAMES, combine, reductions
from . import features
from .leading import Leading
from .rows import (
    Own, Rows, by_group, in_product_type, joined, own_terms, project, put,
    sent)
from .sums import Reduction, linear_of_sums, neighbours, operator


class Kind(NamedTuple):
    """How the layers of a class go together."""
    reason: Callable  # layer -> why it goes by itself, or None
    settings: Callable  # layer -> what a group has in common
    # (graph, Features, relations, summed) -> by type of destination the sum
    # over the relations if summed, else by relation its result
    run: Callable
    takes: tuple = ()  # arguments beside edges, the first of them by place, too
    # Relation -> the same with the edges that the layer makes of those given;
    # raises Other where it goes by itself
    prepared: Callable = lambda call: call
    # layer -> names of the linear layers of reduced neighbours and of a node's
    # own features, where there is nothing else
    linears: Callable = lambda layer: ()


def _linears(relations, name):
    """(weights, biases) of the linear layers of this name."""
    return tuple(zip(*[linear(vars(r.layer), name) for r in relations]))


def _own(relations, name):
    """The Own of the linear layers of this name; of none where it is None."""
    return Own(*_linears(relations, name))


def _parameters(relations, name):
    return [own(vars(r.layer), name) for r in relations]


def _has_bias(layer, *names):
    modules = map(vars(layer)["_modules"].get, names)
    return tuple(getattr(module, "bias", None) is None for module in modules)


def _aggregation(layer):
    return vars(layer)["_modules"].get("aggr_module")


class Heads(NamedTuple):
    """The parts that attention layers of a group have in common."""
    heads: int
    channels: int
    concat: bool  # heads stand side by side, or their mean is taken
    dropout: float  # 0 unless the layers train
    slope: float

    @property
    def shape(self):
        return (-1, self.heads, self.channels)

    def joined(self, out):
        return out.flatten(1) if self.concat else out.mean(1)


def _heads(layer):
    return Heads(layer.heads, layer.out_channels, layer.concat,
                 layer.dropout if layer.training else 0.0,
                 getattr(layer, "negative_slope", 0.2))


def _projects_edges(call):
    """The Relation, unless it has features of edges that the layer has no
    projection of."""
    if call.edge_attr is not None and call.layer.lin_edge is None:
        raise Other
    return call


def _looped(call):
    """The Relation with the self loops that the layer adds."""
    layer, edge_attr = call.layer, call.edge_attr
    if not layer.add_self_loops:
        return call
    num_src, num_dst = call.src.size(0), call.dst.size(0)
    graph = graph_of(layer, call.edges, num_src, num_dst)
    if edge_attr is None:
        return call._replace(edges=edge_tensor(graph.with_self_loops()))
    if not can_fill(layer, edge_attr, Ends(None, None, num_src, num_dst)):
        raise Other
    if edge_attr.dim() == 1:
        edge_attr = edge_attr.view(-1, 1)
    graph = graph.with_self_loops()
    # these layers' messages flow to the second row
    return call._replace(edges=edge_tensor(graph), edge_attr=loop_features(
        edge_attr, graph.kept, graph.edge_index, min(num_src, num_dst),
        layer.fill_value))


def _gat_edges(call):
    if call.layer.lin_edge is None:  # it does not look at features of edges
        call = call._replace(edge_attr=None)
    return _looped(call)


def _edge_parts(relations):
    """(features [E, F] of edges by relation, or how many have none; weights of
    their projections)."""
    parts, weights = [], []
    for relation in relations:
        weight, bias = linear(vars(relation.layer), "lin_edge")
        attr = relation.edge_attr
        if attr is None or weight is None:
            attr = relation.edges.size(1)
        elif bias is not None or attr.size(0) != relation.edges.size(1):
            raise Other
        elif attr.dim() == 1:
            attr = attr.view(-1, 1)
        parts.append(attr)
        weights.append(weight)
    return parts, weights


def _of_edges(parts, project):
    """A tensor by the edges of all relations: project(number, features) of each
    relation's, zeros of one without; None if no relation has features."""
    projected = {number: project(number, part) for number, part in
                 enumerate(parts) if not isinstance(part, int)}
    if not projected:
        return None
    like = next(iter(projected.values()))
    return joined([projected[number] if number in projected else
                   like.new_zeros(part, like.size(1))
                   for number, part in enumerate(parts)])


def _edge_table(like, parts, weights):
    """[E, H, C] the projected features of edges, or None."""
    table = _of_edges(parts, lambda number, part: F.linear(
        part, weights[number]))
    return None if table is None else table.view(like.shape)


def _gat_weights(layer):
    """(weight of sources, weight of destinations)."""
    state = vars(layer)
    names = ("lin_src", "lin_dst") if state["_modules"].get("lin") is None \
        else ("lin", "lin")
    return [product(state, name) for name in names]


def _scoring(like, sources, targets, att_src, att_dst):
    """By relation the weights [H, F] of both ends' scores: <a, W x> is
    <Wt a, x>."""
    def of(weights, *attention):
        att = torch.stack([torch.cat(list(a)) for a in attention], 2)
        stacked = torch.stack(list(weights)).view(
            len(weights), like.heads, like.channels, -1)
        return [rows.unbind(0) for rows in (att @ stacked).unbind(2)]
    if all(a is b for a, b in zip(sources, targets)):
        return of(sources, att_src, att_dst)
    return of(sources, att_src)[0], of(targets, att_dst)[0]


def _gat(graph, x, relations, summed):
    """Scores are sums of what a relation makes of both ends."""
    like, leading = _heads(relations[0].layer), Leading(graph.relations)
    parts, edge_weights = _edge_parts(relations)
    x, sources, targets, att_src, att_dst, parts, edge_weights, vectors = \
        leading.enter(
            x, *zip(*[_gat_weights(r.layer) for r in relations]),
            _parameters(relations, "att_src"),
            _parameters(relations, "att_dst"), parts, edge_weights,
            [None if weight is None else r.layer.att_edge[0]
             for r, weight in zip(relations, edge_weights)])
    edge_score = _of_edges(parts, lambda n, part: edge_feature_scores(
        part, vectors[n],
        edge_weights[n].view(like.heads, like.channels, -1)))
    of_src, of_dst = _scoring(like, sources, targets, att_src, att_dst)
    own_term = own_terms(x.dst, _own(relations, "res"),
                         _parameters(relations, "bias"))
    if summed and graph.has_few_pairs() and features.worth(
            graph, x.src, like, sources):
        rows = Rows(graph, True, graph.by_node("src"))
        out = features.gat(
            graph, x.src, like, sources, rows.project(x.dst, of_dst),
            project(graph, "src", x.src, of_src), edge_score)
    else:
        rows, cast = Rows(graph, summed), in_product_type(x)
        value, score_src = sent(graph, cast.src, (sources, None),
                                (of_src, None))
        value = value.view(like.shape)
        out = outside_autocast(
            gat_attention, rows.matrix, value, rows.project(cast.dst, of_dst),
            score_src, negative_slope=like.slope, edge_score=edge_score,
            dropout=like.dropout, result=result_type(score_src, value))
    return leading.leave(rows.results(like.joined(out), summed, own_term),
                         summed)


@edge_program
def _dynamic(i, j, e, slope, dropout):
    """Attention of scores <att, leaky_relu(query + value + edges)>, att by
    row."""
    x = i.x + j.x
    if hasattr(e, "x"):
        x = x + e.x
    weight = softmax((F.leaky_relu(x, slope) * i.att).sum(-1))
    return F.dropout(weight, dropout, dropout > 0) * j.x


def _gatv2_reason(layer):
    if layer.share_weights and layer.lin_l is not layer.lin_r:
        return "its projections are not PyG's"
    return own_reason(layer)


def _gatv2(graph, x, relations, summed):
    """Scores are <att, leaky_relu(query + value)>, att [H, C] by relation."""
    like, leading = _heads(relations[0].layer), Leading(graph.relations)
    if _ways.gatv2_of_relations(
            graph.device, graph.num_edges,
            like.heads * like.channels) == "each relation":
        raise Other("the kernels of each relation are faster than one pass")
    x, att, *lists = leading.enter(
        x, [a[0] for a in _parameters(relations, "att")],
        *_linears(relations, "lin_r"), *_linears(relations, "lin_l"),
        *_edge_parts(relations))
    edges = _edge_table(like, *lists[4:])
    rows, cast = Rows(graph, summed), in_product_type(x)
    query = rows.project(cast.dst, *lists[:2]).view(like.shape)
    value = sent(graph, cast.src, lists[2:4])[0].view(like.shape)
    out = outside_autocast(
        _dynamic, rows.matrix,
        {"x": query, "att": rows.spread(att).to(value.dtype)}, {"x": value},
        None if edges is None else {"x": edges.to(value.dtype)},
        slope=like.slope, dropout=like.dropout,
        result=result_type((value[:0] * att[0]).sum(-1), value))
    return leading.leave(rows.results(like.joined(out), summed, own_terms(
        x.dst, _own(relations, "res"), _parameters(relations, "bias"))),
        summed)


def _transformer_settings(layer):
    return (_heads(layer), layer.root_weight, layer.lin_beta is None,
            _has_bias(layer, "lin_query", "lin_key", "lin_value"))


def _transformer(graph, x, relations, summed):
    """Scores are <query, key>; features of edges are added to keys and
    values."""
    first, leading = relations[0].layer, Leading(graph.relations)
    like, skip = _heads(first), _own(relations, None)
    if any((r.edge_attr is None) != (r.layer.lin_edge is None)
           for r in relations):
        raise Other
    post = None
    if first.root_weight and first.lin_beta is not None:
        def post(number, out, kind):
            return _gated(relations[number].layer, out, x.dst[kind])
    elif first.root_weight:
        skip = _own(relations, "lin_skip")
    x, *lists = leading.enter(
        x, *_linears(relations, "lin_query"), *_linears(relations, "lin_key"),
        *_linears(relations, "lin_value"), *_edge_parts(relations))
    edges = _edge_table(like, *lists[6:])
    rows, cast = Rows(graph, summed and post is None), in_product_type(x)
    query, key, value = (t.view(like.shape) for t in (
        rows.project(cast.dst, *lists[:2]),
        *sent(graph, cast.src, lists[2:4], lists[4:6])))
    out = outside_autocast(
        gt_attention, rows.matrix, query, key, value,
        scale=like.channels ** -0.5, dropout=like.dropout,
        edge_attr=None if edges is None else edges.to(key.dtype),
        result=result_type((query[:0] * key[:0]).sum(-1), value))
    return leading.leave(rows.results(like.joined(out), summed, own_terms(
        x.dst, skip), post), summed)


def _gated(layer, out, x):
    """TransformerConv's sum with its own features, weighed by beta."""
    own_part = layer.lin_skip(x)
    beta = layer.lin_beta(torch.cat([out, own_part, out - own_part], -1))
    return torch.lerp(out, own_part, beta.sigmoid())


def _reduce(relations):
    """The Reduction of neighbours that the layers do, with the weights of
    edges."""
    module = _aggregation(relations[0].layer)
    names, weight = reductions(module), None
    if any(r.edge_weight is not None for r in relations):
        weight = joined([
            r.src.new_ones(r.edges.size(1)) if r.edge_weight is None
            else r.edge_weight for r in relations])

    def run(rows, table, weight):
        if weight is not None:
            return spmm(rows, table, weight, names[0])
        return combine(module, each_reduction(
            rows, table, names, rows.num_dst), rows)
    return Reduction(run, operator(names, weight)
                     if type(module) in NAMES else None, weight)


def _reduce_reason(layer):
    module = _aggregation(layer)
    if type(module) not in NAMES or reductions(module) is None:
        return f"no kernel reduces by {type(module).__name__}"
    return None


def _weighted(call):
    """The Relation, unless its layer reduces otherwise than with the weights
    of its edges."""
    if call.edge_weight is not None and reductions(
            _aggregation(call.layer)) not in (("sum",), ("mean",)):
        raise Other
    return call


def _reduction(layer):
    module = _aggregation(layer)
    return type(module), reductions(module)


def _sage(graph, x, relations, summed):
    first = relations[0].layer
    return linear_of_sums(
        graph, x, summed, _reduce(relations), *_linears(relations, "lin_l"),
        _own(relations, "lin_r"),
        project=_linears(relations, "lin") if first.project else None,
        post=(lambda number, out, kind: F.normalize(out, p=2.0, dim=-1))
        if first.normalize else None)


def _graph_conv(graph, x, relations, summed):
    return linear_of_sums(
        graph, x, summed, _reduce(relations), *_linears(relations, "lin_rel"),
        _own(relations, "lin_root"))


_norm = NORM_TENSORS(gcn_conv.gcn_norm)


def _normalized(call):
    """The Relation with the edges and the weights that GCNConv sums over."""
    layer, call = call.layer, _weighted(call)
    if call.src is not call.dst:
        raise Other
    if not layer.normalize:
        return call
    edges, weight = _norm(
        call.edges, call.edge_weight, call.src.size(0), layer.improved,
        layer.add_self_loops, layer.flow, call.src.dtype)
    return call._replace(edges=edges, edge_weight=weight)


def _gcn_reason(layer):
    if layer.cached or layer._cached_edge_index is not None:
        return "it keeps its edges"
    if reductions(_aggregation(layer)) != ("sum",):
        return "its messages are not summed"
    return None


def _gcn(graph, x, relations, summed):
    weights, biases = _linears(relations, "lin")
    if any(bias is not None for bias in biases):
        raise Other
    return linear_of_sums(graph, x, summed, _reduce(relations), weights,
                          _parameters(relations, "bias"),
                          _own(relations, None))


def _gin(graph, x, relations, summed):
    """Each relation's network of its sum and (1 + eps) of the node."""
    leading, results = Leading(graph.relations), {}
    x, = leading.enter(x)
    parts = graph.split_blocks("dst", neighbours(graph, x, _reduce(relations)))
    for kind, (number,), rows in by_group(graph, parts, False, None):
        layer = relations[number].layer
        put(results, graph, kind, (number,), layer.nn(
            rows + (1 + layer.eps) * x.dst[kind]), summed)
    return leading.leave(results, summed)


GAT = Kind(own_reason, _heads, _gat, ("edge_attr",), _gat_edges)
GATV2 = Kind(_gatv2_reason, lambda layer: (
    _heads(layer), _has_bias(layer, "lin_l", "lin_r")), _gatv2,
    ("edge_attr",), lambda call: _looped(_projects_edges(call)))
TRANSFORMER = Kind(own_reason, _transformer_settings, _transformer,
                   ("edge_attr",), _projects_edges)
SAGE = Kind(_reduce_reason, lambda layer: (
    *_reduction(layer), layer.project, layer.normalize,
    _has_bias(layer, "lin")), _sage, linears=lambda layer: ()
    if layer.project or layer.normalize else ("lin_l", "lin_r"))
GRAPH = Kind(_reduce_reason, _reduction, _graph_conv, ("edge_weight",),
             _weighted, lambda layer: ("lin_rel", "lin_root"))
GCN = Kind(_gcn_reason, _reduction, _gcn, ("edge_weight",), _normalized)
GIN = Kind(_reduce_reason, _reduction, _gin)
