"""HGT and HAN: layers over dictionaries of nodes and edges, whose relations
go through the kernels together."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch_geometric.nn.dense.linear import (
    HeteroDictLinear, HeteroLinear, Linear)

from ...._modes import compiling
from ...._relations.groups import alignment, product_type, take
from ....functional import gat_attention, gt_attention
from ....hetero import HeteroGraph, gatherer, hetero_graph
from ..._attention_steps import outside_autocast, result_type
from ..._linear import hooked
from ..._node import Other
from .._attention_convs import own_reason
from .._edges import known, of_pyg, reverse
from .._mixin import attempt, fits, unfit, usual
from .leading import Leading
from .rows import Features, in_product_type, project, tables
from .tiles import padded, tiles_of


def together(function, reason_of=lambda layer: None):
    """Makes a forward that tries function(layer, graph, Features, ...) on the
    HeteroGraph of a call, where reason_of(layer) names nothing against it."""
    def decorate(pyg_forward):
        def forward(self, x_dict, edge_index_dict, *args, **kwargs):
            if isinstance(edge_index_dict, dict):
                edge_index_dict = {key: of_pyg(self, edges) for key, edges in
                                   edge_index_dict.items()}
            if usual(self, whole=True):
                reason = reason_of(self) or _refusal(self, x_dict,
                                                     edge_index_dict)
                out = unfit(self, reason) if reason else attempt(
                    _run, self, function, x_dict, edge_index_dict, *args,
                    **kwargs)
                if out is not NotImplemented:
                    return out
            if isinstance(edge_index_dict, HeteroGraph):
                edge_index_dict = _by_relation(edge_index_dict)
            return pyg_forward(self, x_dict, edge_index_dict, *args, **kwargs)
        return forward
    return decorate


def _by_relation(graph):
    """The edge_index_dict for PyG's own path."""
    if graph.num_src != graph.num_dst:
        raise ValueError("PyG's own path has no halo: a rank's share of a "
                         "graph needs a layer that goes in one pass")
    return graph.edges_by_relation()


def _run(layer, function, x_dict, edges, *args, **kwargs):
    if isinstance(edges, HeteroGraph):
        return function(layer, edges, Features(edges.extend(x_dict), x_dict),
                        *args, **kwargs)
    try:
        graph = hetero_graph(edges, {
            kind: x.size(0) for kind, x in x_dict.items()})
        return function(layer, graph, Features(x_dict, x_dict), *args,
                        **kwargs)
    except (Other, ValueError) as error:  # PyG has errors of its own
        return unfit(layer, str(error) or "its modules are not PyG's")


def _refusal(layer, x_dict, edge_index_dict):
    if compiling():
        return "torch.compile traces"
    edges = edge_index_dict
    if not isinstance(x_dict, dict) or not isinstance(edges, HeteroGraph) and (
            not isinstance(edges, dict) or not edges or not all(
                known(t) and isinstance(t, Tensor) for t in edges.values())):
        return "its edges are no dict of edge_index"
    if len({(x.dtype, x.device) for x in x_dict.values()}) != 1 or \
            not fits(*x_dict.values()) or \
            any(x.dim() != 2 for x in x_dict.values()):
        return "features are not [nodes, features] of one floating type"
    return "its messages flow to sources" if reverse(layer) else \
        own_reason(layer)


def _han(layer, graph, x, return_semantic_attention_weights=False):
    """A softmax within each relation, whose scores are of each relation and
    whose values are of nodes; then one over the relations of a type."""
    heads = layer.heads
    shape = (-1, heads, layer.out_channels // heads)
    leading = Leading(graph.relations)
    h, of_src, of_dst = leading.enter(_projected(layer, graph, x, shape), *[
        [parameters["__".join(key)] for key in graph.relations]
        for parameters in (layer.lin_src, layer.lin_dst)])
    columns = graph.by_relation("src")
    score_src = take(_scores(of_src, graph, "src", h.src),
                     graph.gathering("src", columns))
    score_dst = _scores(of_dst, graph, "dst", h.dst)
    value = torch.cat([h.src[kind] for kind in graph.node_types])
    rows = graph.graph(graph.by_relation("dst"), graph.by_node("src"))
    out = outside_autocast(
        gat_attention, rows, value, score_dst,
        score_dst.new_zeros(1, 1).expand(value.size(0), heads),
        edge_score=score_src, negative_slope=layer.negative_slope,
        dropout=layer.dropout, training=layer.training,
        result=result_type(score_dst, value))
    out = out.flatten(1).relu()
    results, weights = {}, {}
    parts = graph.split_blocks("dst", out)
    for kind in x.dst:
        results[kind], weights[kind] = _semantic(
            layer, graph, kind, parts[kind]) if kind in parts else (None, None)
    for tensors in (results, weights):  # a loss may read either
        leading.leave({kind: tensor for kind, tensor in tensors.items()
                       if tensor is not None}, True)
    return (results, weights) if return_semantic_attention_weights else results


def _projected(layer, graph, x, shape):
    """The features that messages are made of; no gradient leads to types that
    no edge has."""
    met = {kind for relation in graph.relations for kind in relation[::2]}

    def of(side):
        parts = {kind: layer.proj[kind](rows).view(shape)
                 for kind, rows in side.items()}
        return {kind: part if kind in met else part.detach()
                for kind, part in parts.items()}
    h = of(x.src)
    return Features(h, h if x.dst is x.src else of(x.dst))


def _scores(parameters, graph, side, h):
    """[rows by relation, H] <a_r, h> of each node and relation."""
    parts = []
    for kind, block in graph.blocks(side).items():
        att = torch.cat([parameters[r] for r in block.relations])
        parts.append(torch.einsum("nhd,rhd->nrh", h[kind], att).flatten(0, 1))
    return torch.cat(parts)


def _semantic(layer, graph, kind, out):
    """Attention over the relations of out [N, R, F]."""
    if not out.numel() and graph.is_whole:
        return out.sum(1), None
    scores = (layer.q * graph.mean_of(kind, torch.tanh(layer.k_lin(out)))
              ).sum(-1)
    weights = F.softmax(scores, dim=0)
    return (weights.view(1, -1, 1) * out).sum(1), weights


han = together(_han)


# ---- HGT --------------------------------------------------------------------
#
# Keys and values of a relation are W_r W_type x with its prior on the keys;
# W_r W_type is made first, so that each relation is one product of x.

def _hgt_reason(layer):
    for module, kind in ((layer.kqv_lin, HeteroDictLinear),
                         (layer.out_lin, HeteroDictLinear),
                         (layer.k_rel, HeteroLinear),
                         (layer.v_rel, HeteroLinear)):
        if type(module) is not kind or hooked(module):
            return "its projections are not PyG's, or a hook looks at them"
    for lin in (*layer.kqv_lin.lins.values(), *layer.out_lin.lins.values()):
        if type(lin) is not Linear or hooked(lin) or is_lazy(lin.weight):
            return "its projections are not PyG's, or a hook looks at them"
    for module in (layer.kqv_lin, layer.out_lin):
        if len({lin.bias is None for lin in module.lins.values()}) > 1:
            return "some of its projections have a bias, others have none"
    if layer.k_rel.bias is not None or layer.v_rel.bias is not None:
        return "its relations have a bias"
    return None


def _relations_of(layer, graph):
    """(k_rel, v_rel [R, H, D, D], the keys times prior and scale)."""
    heads = layer.heads
    numbers = [layer.edge_types_map[key] for key in graph.relations]
    every = numbers == list(range(len(layer.edge_types)))

    def weight(module):
        weights = module.weight.view(heads, len(layer.edge_types),
                                     *module.weight.shape[1:])
        return (weights if every else weights[:, numbers]).transpose(0, 1)
    prior = torch.cat([layer.p_rel["__".join(key)]
                       for key in graph.relations])
    keys = weight(layer.k_rel) * prior.unsqueeze(-1).unsqueeze(-1)
    return keys, weight(layer.v_rel)


def _hgt(layer, graph, features):
    kinds = [kind for kind in layer.kqv_lin.lins if kind in features.dst]
    if any(kind not in features.dst for kind in graph.node_types) or \
            len(kinds) != len(features.dst):
        raise Other
    x = [features.dst[kind] for kind in graph.node_types]
    align = 1
    if graph.is_whole and len({part.size(1) for part in x}) == 1:
        align = alignment(
            sum(part.size(0) for part in x), len(x), x[0].device,
            product_type(x[0]), (x[0].size(1), layer.out_channels))
    parts = _by_tiles(layer, graph, x, align) if align > 1 else \
        _by_type(layer, graph, features.src, x)
    parts = dict(zip(graph.node_types, parts))
    return {kind: parts[kind] for kind in kinds
            if kind in layer.dst_node_types}


def _dot_products(layer, graph, rows, columns, query, key, value):
    shape = (-1, layer.heads, layer.out_channels // layer.heads)
    query, key, value = (t.view(shape) for t in (query, key, value))
    out = outside_autocast(
        gt_attention, graph.graph(rows, columns), query, key, value,
        scale=1 / math.sqrt(shape[2]),
        result=result_type((query[:0] * key[:0]).sum(-1), value))
    return out.flatten(1)


# ---- few types, or large ones: a product for each type

def _by_type(layer, graph, sent, x):
    """Each type's result.  sent: features of the nodes that send, by type; x:
    of those that receive, in the order of types."""
    width, kinds = layer.out_channels, graph.node_types
    lins = [layer.kqv_lin.lins[kind] for kind in kinds]
    cast = in_product_type(Features(sent, dict(zip(kinds, x))))
    # PyG splits keys, queries, values
    query = tables([cast.dst[kind] for kind in kinds],
                   [lin.weight[width:2 * width] for lin in lins],
                   [lin.bias[width:2 * width] for lin in lins
                    if lin.bias is not None])
    key, value = (project(graph, "src", cast.src, *_composed(
        layer, graph, relation, first)) for relation, first in zip(
            _relations_of(layer, graph), (0, 2 * width)))
    out = _dot_products(layer, graph, graph.by_node("dst"),
                        graph.by_relation("src"), query, key, value)
    outs = []
    for kind, part, rows in zip(kinds, out.split(
            [t.size(0) for t in x]), x):
        part = layer.out_lin.lins[kind](F.gelu(part))
        if part.size(-1) == rows.size(-1):
            alpha = layer.skip[kind].sigmoid()
            part = alpha * part + (1 - alpha) * rows
        outs.append(part)
    return outs


def _composed(layer, graph, relation, first):
    """By relation the weights and biases of W_r W_type, whose W_type is that
    of the rows of a type's layer from first on."""
    weights, biases = {}, {}
    for kind, block in graph.blocks("src").items():
        # a list as an index would wait for the device
        of_block = torch.stack([relation[r] for r in block.relations])
        weight, bias = (None if t is None else t[
            first:first + layer.out_channels].unflatten(0, (layer.heads, -1))
            for t in (layer.kqv_lin.lins[kind].weight,
                      layer.kqv_lin.lins[kind].bias))
        parts = torch.einsum("hdi,rhde->rhei", weight, of_block).flatten(1, 2)
        weights.update(zip(block.relations, parts))
        if bias is not None:
            parts = torch.einsum("hd,rhde->rhe", bias, of_block).flatten(1)
            biases.update(zip(block.relations, parts))
    return weights, biases or None


# ---- many small types: one batched product for all

def _by_tiles(layer, graph, x, align):
    heads, width, kinds = layer.heads, layer.out_channels, graph.node_types
    tiles = tiles_of(
        tuple(graph.num_src.values()), tuple(
            kinds.index(source) for source, _, _ in graph.relations),
        graph.device, align, gatherer)
    types, x = tiles.types, padded(x, align)

    def stacked(weights, biases):
        return torch.stack(weights), \
            None if biases[0] is None else torch.stack(biases)
    # parameters of a type whose result no loss reads get no gradient
    leading = Leading([(kind, "", kind) for kind in kinds])
    nothing = dict.fromkeys(kinds)
    _, *last, skips = leading.enter(
        Features(nothing, nothing), *_of_types(layer.out_lin, kinds),
        [layer.skip[kind] for kind in kinds])
    weight, bias = stacked(*_of_types(layer.kqv_lin, kinds))
    query = types.linear(x, weight[:, width:2 * width], None
                         if bias is None else bias[:, width:2 * width])
    sent = take(types.tiled(x), tiles.of_tile).flatten(0, 1)
    keys_and_values = []
    for relation, first in zip(_relations_of(layer, graph), (0, 2 * width)):
        of_types = take(weight[:, first:first + width], tiles.of_relation)
        # [R, H, D, F] the weights W_r W_type
        composed = relation.transpose(2, 3) @ of_types.view(
            -1, heads, width // heads, of_types.size(2))
        more = None
        if bias is not None:
            more = take(bias[:, first:first + width], tiles.of_relation).view(
                -1, heads, 1, width // heads) @ relation
            more = more.flatten(1)
        keys_and_values.append(tiles.relations.linear(
            sent, composed.flatten(1, 2), more))
    out = _dot_products(layer, graph, graph.by_node("dst", align),
                        graph.in_turn("src", align), query,
                        *keys_and_values)
    out = types.linear(F.gelu(out), *stacked(*last))
    if out.size(1) == x.size(1):
        alpha = types.by_tile(torch.stack(skips).sigmoid()).unsqueeze(-1)
        out = (alpha * types.tiled(out) + (1 - alpha) * types.tiled(x)
               ).flatten(0, 1)
    outs = dict(zip(kinds, types.packed(out)))
    return [*leading.leave(outs, True).values()]


def _of_types(lins, kinds):
    """(weights, biases) by type."""
    return [[getattr(lins.lins[kind], name) for kind in kinds]
            for name in ("weight", "bias")]


hgt = together(_hgt, _hgt_reason)
