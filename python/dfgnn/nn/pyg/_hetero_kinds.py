"""What the layers of PyG that relations have bring to one pass, see
_relations.py."""

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch_geometric.nn.conv import gcn_conv

from ..._loops import loop_features
from ...aggregation import each_reduction, spmm
from .. import _relations as passes
from .._guards import Other, linear, own
from .._together import Kind
from ._attention_convs import can_fill
from ._edges import (
    NORM_TENSORS, Ends, edge_tensor, graph_of)
from ._reduce import NAMES, combine, is_sum, reductions


def _linears(relations, name):
    """(weights, biases) of the linear layers of this name."""
    return tuple(zip(*[linear(vars(r.layer), name) for r in relations]))


def _own_linears(relations, name):
    return passes.Own(*_linears(relations, name))


def _parameters(relations, name):
    return [own(r.layer.__dict__, name) for r in relations]


def _has_bias(layer, *names):
    found = map(vars(layer)["_modules"].get, names)
    return tuple(getattr(module, "bias", None) is None for module in found)


def _aggregation(layer):
    return vars(layer)["_modules"].get("aggr_module")


# ---- attention --------------------------------------------------------------

def _attention_reason(layer):
    if not is_sum(layer):
        return "its messages are not summed"
    if layer.training and layer.dropout >= 1:
        return "dropout leaves nothing"
    return None


def _heads(layer):
    return passes.Heads(
        layer.heads, layer.out_channels, layer.concat,
        layer.dropout if layer.training else 0.0,
        getattr(layer, "negative_slope", 0.2))


def with_loops(layer, edges, edge_attr, num_src, num_dst):
    """(edges, their features) with the self loops that the layer adds."""
    if not layer.add_self_loops:
        return edges, edge_attr
    if edge_attr is None or layer.lin_edge is None:
        graph = graph_of(layer, edges, num_src, num_dst).with_self_loops()
    elif not can_fill(layer, edge_attr, Ends(None, None, num_src, num_dst)):
        raise Other
    else:
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        if edge_attr.size(0) != edges.size(1):
            raise Other("edge_attr has no row for each edge")
        graph = graph_of(layer, edges, num_src, num_dst).with_self_loops()
        # these layers' messages flow to the second row
        edge_attr = loop_features(edge_attr, graph.kept, graph.edge_index,
                                  min(num_src, num_dst), layer.fill_value)
    return edge_tensor(graph), edge_attr


def _edge_parts(relations):
    """(features [E, F] of edges by relation, or how many have none; weights of
    their projections)."""
    parts, weights = [], []
    for relation in relations:
        weight, bias = linear(relation.layer.__dict__, "lin_edge")
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


def _gat_weights(layer):
    """(weight of sources, weight of destinations)."""
    state = layer.__dict__
    names = ("lin", "lin") if state["_modules"].get("lin") is not None \
        else ("lin_src", "lin_dst")
    found = [linear(state, name) for name in names]
    if any(weight is None or bias is not None for weight, bias in found):
        raise Other
    return [weight for weight, _ in found]


def _gat(graph, x, relations, summed):
    like = _heads(relations[0].layer)
    parts, weights = _edge_parts(relations)
    vectors = [None if weight is None else r.layer.att_edge[0]
               for r, weight in zip(relations, weights)]
    return passes.gat(
        graph, x, summed, like,
        tuple(zip(*[_gat_weights(r.layer) for r in relations])),
        (_parameters(relations, "att_src"), _parameters(relations, "att_dst")),
        (parts, vectors, weights),
        _own_linears(relations, "res"), _parameters(relations, "bias"))


def _gatv2_reason(layer):
    if layer.share_weights and layer.lin_l is not layer.lin_r:
        return "its projections are not PyG's"
    return _attention_reason(layer)


def _gatv2_settings(layer):
    return _heads(layer), _has_bias(layer, "lin_l", "lin_r")


# Edges times features up to which one pass of GATv2 layers, an edge program with a
# vector `att` of each row, is as fast on a CPU as an operator of each relation:
# 14 relations of 15 to 75 edges and 64 features take as long, of 150 to 700 edges
# and 16 to 128 features twice as long.
_MOST_ON_A_CPU = 1 << 15


def _gatv2(graph, x, relations, summed):
    like = _heads(relations[0].layer)
    if any(r.edge_attr is not None and r.layer.lin_edge is None
           for r in relations):
        raise Other
    if not relations[0].src.is_cuda and \
            graph.num_edges * like.heads * like.channels > _MOST_ON_A_CPU:
        raise Other("on a CPU the kernels of each relation are faster than "
                    "one pass")
    att = [a[0] for a in _parameters(relations, "att")]
    return passes.gatv2(
        graph, x, summed, like, _linears(relations, "lin_r"),
        _linears(relations, "lin_l"), att,
        _edge_parts(relations),
        _own_linears(relations, "res"), _parameters(relations, "bias"))


def _transformer_settings(layer):
    return (_heads(layer), layer.root_weight, layer.lin_beta is None,
            _has_bias(layer, "lin_query", "lin_key", "lin_value"))


def _transformer(graph, x, relations, summed):
    first = relations[0].layer
    like = _heads(first)
    if any((r.edge_attr is None) != (r.layer.lin_edge is None)
           for r in relations):
        raise Other
    post = None if first.lin_beta is None else lambda number, out, kind: \
        _gated(relations[number].layer, out, x.dst[kind])
    return passes.transformer(
        graph, x, summed, like, *(_linears(relations, name) for name in (
            "lin_query", "lin_key", "lin_value")),
        _edge_parts(relations),
        _own_linears(relations, "lin_skip")
        if first.root_weight and post is None else None, post)


def _gated(layer, out, x):
    """TransformerConv's sum with its own features, weighed by beta."""
    own_part = layer.lin_skip(x)
    beta = layer.lin_beta(torch.cat([out, own_part, out - own_part], -1))
    return torch.lerp(out, own_part, beta.sigmoid())


# ---- sums, means and extremes -----------------------------------------------

def _reduce(relations):
    """What reduces neighbours as the layers do, with the weights of edges."""
    module = _aggregation(relations[0].layer)
    weight = None
    if any(r.edge_weight is not None for r in relations):
        weight = passes.joined([
            r.src.new_ones(r.edges.size(1)) if r.edge_weight is None
            else r.edge_weight for r in relations])

    names = reductions(module)

    def run(rows, table, weight):
        if weight is not None:
            return spmm(rows, table, weight, names[0])
        return combine(module, each_reduction(
            rows, table, names, rows.num_dst), rows)
    op = passes.operator(names, weight) if type(module) in NAMES else None
    return passes.Reduction(run, op, weight)


def _reduce_reason(layer):
    module = _aggregation(layer)
    if type(module) not in NAMES or reductions(module) is None:
        return f"no kernel reduces by {type(module).__name__}"
    return None


def takes_weights(layer):
    """Whether neighbours are reduced with the weights of edges."""
    return reductions(_aggregation(layer)) in (("sum",), ("mean",))


def _reduction(layer):
    module = _aggregation(layer)
    return type(module), reductions(module)


def _sage_settings(layer):
    return (*_reduction(layer), layer.project, layer.normalize,
            _has_bias(layer, "lin"))


def _sage(graph, x, relations, summed):
    first = relations[0].layer
    return passes.linear_of_sums(
        graph, x, summed, _reduce(relations), *_linears(relations, "lin_l"),
        _own_linears(relations, "lin_r"),
        project=_linears(relations, "lin") if first.project else None,
        post=(lambda number, out, kind: F.normalize(out, p=2.0, dim=-1))
        if first.normalize else None)


def _graph_conv(graph, x, relations, summed):
    return passes.linear_of_sums(
        graph, x, summed, _reduce(relations),
        *_linears(relations, "lin_rel"), _own_linears(relations, "lin_root"))


_norm = NORM_TENSORS(gcn_conv.gcn_norm)


def normalized(layer, edges, edge_weight, num_nodes, dtype):
    """(edges, their weights) as GCNConv sums over them."""
    if not layer.normalize:
        return edges, edge_weight
    return _norm(edges, edge_weight, num_nodes, layer.improved,
                 layer.add_self_loops, layer.flow, dtype)


def _gcn_reason(layer):
    if layer.cached:
        return "it keeps its edges"
    if reductions(_aggregation(layer)) != ("sum",):
        return "its messages are not summed"
    return None


def _gcn(graph, x, relations, summed):
    weights, biases = _linears(relations, "lin")
    if any(bias is not None for bias in biases):
        raise Other
    return passes.linear_of_sums(graph, x, summed, _reduce(relations), weights,
                                 _parameters(relations, "bias"), None)


def _gin(graph, x, relations, summed):
    return passes.isomorphism(
        graph, x, summed, _reduce(relations),
        [r.layer.nn for r in relations], [r.layer.eps for r in relations])


KINDS = {
    pyg.GATConv: Kind(_attention_reason, _heads, _gat, ("edge_attr",)),
    pyg.GATv2Conv: Kind(_gatv2_reason, _gatv2_settings, _gatv2,
                        ("edge_attr",)),
    pyg.TransformerConv: Kind(_attention_reason, _transformer_settings,
                              _transformer, ("edge_attr",)),
    pyg.SAGEConv: Kind(_reduce_reason, _sage_settings, _sage),
    pyg.GraphConv: Kind(_reduce_reason, _reduction, _graph_conv,
                        ("edge_weight",)),
    pyg.GCNConv: Kind(_gcn_reason, _reduction, _gcn, ("edge_weight",)),
    pyg.GINConv: Kind(_reduce_reason, _reduction, _gin),
}
