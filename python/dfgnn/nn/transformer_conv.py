"""TransformerConv, as torch_geometric.nn has it."""

import torch

from ..functional import gt_attention
from . import _attention_nodes
from ._conv import Conv, edge_features, like_product_scores, pair, pair_of
from ._linear import Linear, of_edges, together
from ._node import first
from ._overrides import by_pyg


class TransformerConv(Conv):
    """Dot-product attention with a skip connection   Shi et al. 2021

    Arguments, parameters and results are those of
    torch_geometric.nn.TransformerConv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 beta=False, dropout=0.0, edge_dim=None, bias=True,
                 root_weight=True, **kwargs):
        super().__init__(**kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.beta = beta and root_weight
        self.root_weight = root_weight
        self.concat = concat
        self.dropout = dropout
        self.edge_dim = edge_dim
        in_channels = pair_of(in_channels)
        width = heads * out_channels
        self.lin_key = Linear(in_channels[0], width, bias)
        self.lin_query = Linear(in_channels[1], width, bias)
        self.lin_value = Linear(in_channels[0], width, bias)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width,
                                                             False)
        skip = width if concat else out_channels
        self.lin_skip = Linear(in_channels[1], skip, bias)
        self.lin_beta = Linear(3 * skip, 1, False) if self.beta else None
        self.reset_parameters()

    def reset_parameters(self):
        for child in self.children():
            child.reset_parameters()

    @first(_attention_nodes.transformer)
    def forward(self, x, edge_index, edge_attr=None,
                return_attention_weights=None):
        """x [N, F], or (sources, destinations); edge_index [2, E], a Graph or
        what dfgnn.as_graph takes; edge_attr [E, edge_dim].  If
        return_attention_weights is not None, be it True or False, also
        (edge_index, alpha [E, H] before dropout)."""
        if self.overridden:
            return by_pyg(self, x, edge_index, edge_attr,
                          return_attention_weights)
        heads, channels = self.heads, self.out_channels
        x = pair(x)
        for part in x:
            self.check_features(part)
        query, key, value, root = projections(self, x)
        shape = (-1, heads, channels)
        query, key, value = query.view(shape), key.view(shape), \
            value.view(shape)
        wanted = isinstance(return_attention_weights, bool)
        weight = bias = None
        if self.lin_edge is not None and edge_attr is None:
            edge_attr = edge_features(edge_index)
            graph = self.edges(edge_index, edge_attr)
        else:
            graph = self.edges(edge_index)
        if self.lin_edge is not None:
            if edge_attr is None:
                raise ValueError("edge_attr is None, but the layer has "
                                 f"edge_dim={self.edge_dim}")
            edge_attr, weight, bias = of_edges(self, edge_attr)
        else:
            edge_attr = None
        out = gt_attention(graph, query, key, value, dropout=self.dropout,
                           training=self.training, edge_attr=edge_attr,
                           edge_weight=weight, edge_bias=bias,
                           return_weights=wanted)
        alpha = None
        if wanted:
            out, alpha = out
        out = like_product_scores(out, value)
        out = out.flatten(1) if self.concat else out.mean(1)
        if self.root_weight:
            out = with_skip(self, out, root)
        if not wanted:
            return out
        return self.result(out, edge_index, graph,
                           like_product_scores(alpha, value))


def projections(layer, x):
    """(queries, keys, values, term of the skip connection or None), by a
    product of the sources and one of the destinations, or by a single one if
    they are the same; layer is ours or PyG's."""
    skips = (layer.lin_skip,) if layer.root_weight else ()
    if x[0] is x[1]:
        query, key, value, *root = together(
            x[0], (layer.lin_query, layer.lin_key, layer.lin_value, *skips))
    else:
        query, *root = together(x[1], (layer.lin_query, *skips))
        key, value = together(x[0], (layer.lin_key, layer.lin_value))
    return query, key, value, root[0] if root else None


def with_skip(layer, out, root):
    if layer.lin_beta is None:
        return out + root
    beta = layer.lin_beta(torch.cat([out, root, out - root], -1)).sigmoid()
    return beta * root + (1 - beta) * out
