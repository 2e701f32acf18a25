"""What the layers of DGL that relations have bring to one pass, see
_relations.py."""

import torch

from ..._remember import remember
from ...aggregation import aggregate, spmm
from .. import _relations as passes
from .._guards import Other, linear
from .._together import Kind
from ._attention_convs import DotGatConv, GATConv, GATv2Conv
from ._sums import GINConv, GraphConv, SAGEConv


def _linears(relations, *names):
    """(weights, biases) of the linear layers of the first of these names that
    a layer has."""
    found = []
    for relation in relations:
        state = relation.layer.__dict__
        name = next((n for n in names if n in state["_modules"]), names[-1])
        found.append(linear(state, name))
    return tuple(zip(*found))


def _no_biases(relations):
    return [None] * len(relations)


def _training(layer, name):
    drop = getattr(layer, name, None)
    return drop.p if drop is not None and layer.training else 0.0


def _posts(relations, functions, shape=None):
    """The post of functions (layer) -> what its result goes through; None if
    no layer has any."""
    found = [functions(r.layer) for r in relations]
    if not any(found):
        return None

    def post(number, rows, kind):
        out = rows if shape is None else rows.view(shape)
        for function in found[number]:
            out = function(out)
        return out if shape is None else out.flatten(1)
    return post


def _activation(layer):
    function = getattr(layer, "activation", None)
    return [] if function is None else [function]


def _feature_reason(layer):
    if not getattr(layer, "_allow_zero_in_degree", True):
        return "it refuses destinations without edges"
    if _training(layer, "feat_drop"):
        return "dropout of features draws anew for each relation"
    return None


# ---- attention --------------------------------------------------------------

def _attention_reason(layer):
    if _training(layer, "attn_drop") >= 1:
        return "dropout leaves nothing"
    return _feature_reason(layer)


def _heads(layer):
    slope = getattr(layer, "leaky_relu", None)
    return passes.Heads(layer._num_heads, layer._out_feats, True,
                        _training(layer, "attn_drop"),
                        0.2 if slope is None else slope.negative_slope)


def _by_head(found, like):
    """Results [N, H, D], as DGL has them."""
    return {key: out.view(like.shape) for key, out in found.items()}


def _residuals(relations):
    """The Own of res_fc, which may be an identity or not there."""
    weights, biases, itself = [], [], []
    for number, relation in enumerate(relations):
        state = relation.layer.__dict__
        found = state["_modules"].get("res_fc")
        if type(found).__name__ == "Identity":  # torch's or DGL's
            itself.append(number)
            found = None
        weight, bias = (None, None) if found is None else linear(
            state, "res_fc")
        weights.append(weight)
        biases.append(bias)
    return passes.Own(weights, biases, tuple(itself))


def _gat(graph, x, relations, summed):
    like = _heads(relations[0].layer)
    sources, _ = _linears(relations, "fc_src", "fc")
    targets, _ = _linears(relations, "fc_dst", "fc")
    return _by_head(passes.gat(
        graph, x, summed, like, (sources, targets),
        ([r.layer.attn_l for r in relations],
         [r.layer.attn_r for r in relations]), None, _residuals(relations),
        [r.layer.bias for r in relations],
        _posts(relations, _activation, like.shape)), like)


def _gatv2_settings(layer):
    return _heads(layer), layer.fc_src.bias is None, layer.fc_dst.bias is None


def _gatv2(graph, x, relations, summed):
    like = _heads(relations[0].layer)
    return _by_head(passes.gatv2(
        graph, x, summed, like, _linears(relations, "fc_dst"),
        _linears(relations, "fc_src"), [r.layer.attn[0] for r in relations],
        None, _residuals(relations), _no_biases(relations),
        _posts(relations, _activation, like.shape)), like)


def _dot(graph, x, relations, summed):
    like = _heads(relations[0].layer)
    sent = _linears(relations, "fc_src", "fc")
    return _by_head(passes.transformer(
        graph, x, summed, like, _linears(relations, "fc_dst", "fc"), sent,
        sent, None, None), like)


# ---- sums, means and extremes -----------------------------------------------

def _reduce(relations, kind):
    """What reduces neighbours, with the weights of edges."""
    weight = None
    if any(r.edge_weight is not None for r in relations):
        weight = passes.joined([
            r.src.new_ones(r.edges.size(1)) if r.edge_weight is None
            else r.edge_weight for r in relations])
    if kind in ("sum", "mean"):
        return passes.Reduction(
            lambda rows, table, weight: spmm(rows, table, weight, kind),
            passes.operator((kind,), weight), weight)
    if weight is not None:
        raise Other("maxima have weights of edges")
    return passes.Reduction(
        lambda rows, table, weight: aggregate(rows, table, kind),
        passes.operator((kind,), None))


def normalized(layer, edges, edge_weight, num_src, num_dst, dtype):
    """The weights [E] of edges in a GraphConv's sums, None if all are 1."""
    def scale(side, count, power):
        degrees = torch.bincount(edges[side], minlength=count)
        return degrees.to(dtype).clamp(min=1).pow(power).index_select(
            0, edges[side])

    def make():
        power = -0.5 if layer._norm == "both" else -1.0
        weight = None
        if layer._norm in ("left", "both"):
            weight = scale(0, num_src, power)
        if layer._norm in ("right", "both"):
            other = scale(1, num_dst, power)
            weight = other if weight is None else weight * other
        return weight
    norm = remember(edges, ("norm of DGL", layer._norm, num_src, num_dst,
                            dtype), make)
    if norm is None or edge_weight is None:
        return edge_weight if norm is None else norm
    return norm * edge_weight


def _graph_conv_reason(layer):
    if layer.weight is None:
        return "it has no weight of its own"
    return _feature_reason(layer)


def _graph_conv(graph, x, relations, summed):
    return passes.linear_of_sums(
        graph, x, summed, _reduce(relations, "sum"),
        [r.layer.weight.t() for r in relations],
        [r.layer.bias for r in relations], None,
        post=_posts(relations, lambda layer: [] if layer._activation is None
                    else [layer._activation]))


def _sage_reason(layer):
    if layer._aggre_type not in ("mean", "pool"):
        return f"no pass has its aggregator, {layer._aggre_type}"
    return _feature_reason(layer)


def _sage_after(layer):
    return _activation(layer) + ([] if layer.norm is None else [layer.norm])


def _sage(graph, x, relations, summed):
    pool = relations[0].layer._aggre_type == "pool"
    return passes.linear_of_sums(
        graph, x, summed, _reduce(relations, "max" if pool else "mean"),
        *_linears(relations, "fc_neigh"),
        passes.Own(*_linears(relations, "fc_self")),
        project=_linears(relations, "fc_pool") if pool else None,
        post=_posts(relations, _sage_after))


def _gin(graph, x, relations, summed):
    def network(layer):
        functions = [f for f in (layer.apply_func, layer.activation)
                     if f is not None]

        def run(out):
            for function in functions:
                out = function(out)
            return out
        return run
    return passes.isomorphism(
        graph, x, summed,
        _reduce(relations, relations[0].layer._aggregator_type),
        [network(r.layer) for r in relations],
        [r.layer.eps for r in relations])


KINDS = {
    GATConv: Kind(_attention_reason, _heads, _gat),
    GATv2Conv: Kind(_attention_reason, _gatv2_settings, _gatv2),
    DotGatConv: Kind(_attention_reason, _heads, _dot),
    GraphConv: Kind(_graph_conv_reason, lambda layer: (), _graph_conv,
                    ("edge_weight",)),
    SAGEConv: Kind(_sage_reason, lambda layer: layer._aggre_type, _sage,
                   ("edge_weight",)),
    GINConv: Kind(lambda layer: None, lambda layer: layer._aggregator_type,
                  _gin, ("edge_weight",)),
}
