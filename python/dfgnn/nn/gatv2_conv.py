"""GATv2Conv, as torch_geometric.nn has it."""

import torch
from torch import nn

from ..functional import gatv2_attention
from . import _attention_nodes
from ._conv import Conv, edge_features, like_pyg
from ._linear import Linear, glorot_
from ._node import first
from ._overrides import by_pyg


class GATv2Conv(Conv):
    """Dynamic attention   Brody et al. 2022

    Arguments, parameters and results are those of
    torch_geometric.nn.GATv2Conv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 negative_slope=0.2, dropout=0.0, add_self_loops=True,
                 edge_dim=None, fill_value="mean", bias=True,
                 share_weights=False, residual=False, **kwargs):
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
        self.share_weights = share_weights
        ins = (in_channels, in_channels) if isinstance(in_channels, int) \
            else in_channels
        width = heads * out_channels
        self.lin_l = Linear(ins[0], width, bias, "glorot")
        self.lin_r = self.lin_l if share_weights else Linear(
            ins[1], width, bias, "glorot")
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else Linear(
            edge_dim, width, False, "glorot")
        total = width if concat else out_channels
        self.res = Linear(ins[1], total, False, "glorot") if residual else None
        if bias:
            self.bias = nn.Parameter(torch.empty(total))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        # shared weights are drawn twice, as PyG draws them
        for layer in (self.lin_l, self.lin_r, self.lin_edge, self.res):
            if layer is not None:
                layer.reset_parameters()
        glorot_(self.att)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @first(_attention_nodes.gatv2)
    def forward(self, x, edge_index, edge_attr=None,
                return_attention_weights=None):
        """x [N, F], or (sources, destinations); edge_index [2, E], a Graph or
        what dfgnn.as_graph takes; edge_attr [E, edge_dim].  With
        return_attention_weights true, also (edge_index with loops, alpha
        [E, H] after dropout)."""
        if self.overridden:
            return by_pyg(self, x, edge_index, edge_attr,
                          return_attention_weights)
        shape = (-1, self.heads, self.out_channels)
        x_src, x_dst = (x, x) if isinstance(x, torch.Tensor) else x
        for part in (x_src, x_dst):
            self.check_features(part)
        residual = None if self.res is None else self.res(x_dst)
        h_src = self.lin_l(x_src).view(shape)
        if self.share_weights and x_dst is x_src:
            h_dst = h_src
        else:
            h_dst = self.lin_r(x_dst).view(shape)
        values = None
        if edge_attr is None and self.lin_edge is not None:
            edge_attr = values = edge_features(edge_index)
        graph = self.edges(edge_index, values)
        loops, wanted = self.add_self_loops, bool(return_attention_weights)
        sizes = (h_src.size(0), h_dst.size(0))
        if loops and edge_attr is not None:
            edge_attr = self.with_loop_features(graph, sizes, edge_attr,
                                                self.fill_value)
        if edge_attr is not None:
            if self.lin_edge is None:
                raise ValueError("edge_attr is given, but the layer has no "
                                 "edge_dim")
            if edge_attr.dim() == 1:
                edge_attr = edge_attr.view(-1, 1)
        weight = None if edge_attr is None else self.lin_edge.weight
        out = gatv2_attention(
            graph, h_dst, h_src, self.att[0],
            negative_slope=self.negative_slope, edge_attr=edge_attr,
            edge_weight=weight, dropout=self.dropout, training=self.training,
            return_weights="after" if wanted else False, self_loops=loops)
        alpha = None
        if wanted:
            out, alpha = out
        out = like_pyg(out, h_src, self.att)
        out = out.flatten(1) if self.concat else out.mean(1)
        if residual is not None:
            out = out + residual
        if self.bias is not None:
            out = out + self.bias
        if not wanted:
            return out
        return self.result(out, edge_index, graph,
                           like_pyg(alpha, h_src, self.att), sizes, loops)
