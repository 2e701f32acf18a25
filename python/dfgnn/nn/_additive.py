"""What GATConv and GATv2Conv have in common, in dfgnn.nn and in PyG."""

import torch

from ._conv import Conv, edge_features
from ._linear import of_edges
from ._scores import edge_feature_scores


class Additive(Conv):
    """A layer whose scores add terms of sources, destinations and edges."""

    def __init__(self, in_channels, out_channels, heads, concat,
                 negative_slope, dropout, add_self_loops, edge_dim, fill_value,
                 residual, **kwargs):
        super().__init__(**kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.concat = concat
        self.negative_slope = negative_slope
        self.dropout = dropout
        self.add_self_loops = add_self_loops
        self.edge_dim = edge_dim
        self.fill_value = fill_value
        self.residual = residual

    def edges_and_features(self, edges, edge_attr, sizes):
        """(the edges, their features with those of self loops)."""
        values = None
        if edge_attr is None and self.lin_edge is not None:
            edge_attr = values = edge_features(edges)
        graph = self.edges(edges, values)
        if self.add_self_loops and edge_attr is not None and \
                self.lin_edge is not None:
            edge_attr = self.with_loop_features(graph, sizes, edge_attr,
                                                self.fill_value)
        if edge_attr is not None and edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        return graph, edge_attr

    def with_options(self, attention, graph, *inputs, weights, **options):
        """(out, weights or None) of an attention with the layer's options."""
        found = attention(
            graph, *inputs, negative_slope=self.negative_slope,
            dropout=self.dropout, training=self.training,
            return_weights="after" if weights else False,
            self_loops=self.add_self_loops, **options)
        return found if weights else (found, None)


# ---- of ours and of PyG's ---------------------------------------------------

def projected(layer, x):
    """(h of sources, h of destinations or None) of a GATConv."""
    shape = (-1, layer.heads, layer.out_channels)
    x_src, x_dst = (x, x) if isinstance(x, torch.Tensor) else x
    of_src = layer.lin_src if layer.lin is None else layer.lin
    of_dst = layer.lin_dst if layer.lin is None else layer.lin
    h_src = of_src(x_src).view(shape)
    if x_dst is x_src and of_dst is of_src:
        return h_src, h_src
    return h_src, None if x_dst is None else of_dst(x_dst).view(shape)


def edge_score(layer, edge_attr):
    """[E, H] what features of edges add to the scores of a GATConv."""
    if edge_attr is None or layer.lin_edge is None:
        return None
    if edge_attr.dim() == 1:
        edge_attr = edge_attr.view(-1, 1)
    att, (edge_attr, weight, bias) = layer.att_edge[0], of_edges(layer,
                                                                 edge_attr)
    if weight is None:
        return (edge_attr * att).sum(-1)
    shape, kind = (layer.heads, layer.out_channels), att.dtype
    return edge_feature_scores(
        edge_attr, att, weight.view(*shape, -1).to(kind),
        None if bias is None else bias.view(shape).to(kind))


def finished(layer, out, residual):
    """The layer's result from the heads [N, H, D] of its attention."""
    out = out.flatten(1) if layer.concat else out.mean(1)
    if residual is not None:
        out = out + residual
    return out if layer.bias is None else out + layer.bias
