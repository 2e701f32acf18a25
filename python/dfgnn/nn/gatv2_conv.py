"""GATv2Conv, as torch_geometric.nn has it."""

import torch
from torch import nn

from ..functional import gatv2_attention
from . import _attention_nodes
from ._additive import Additive, finished
from ._conv import like_pyg, pair, pair_of
from ._linear import Linear, glorot_, of_edges, parameter
from ._node import first
from ._overrides import by_pyg


class GATv2Conv(Additive):
    """Dynamic attention   Brody et al. 2022

    Arguments, parameters and results are those of
    torch_geometric.nn.GATv2Conv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 negative_slope=0.2, dropout=0.0, add_self_loops=True,
                 edge_dim=None, fill_value="mean", bias=True,
                 share_weights=False, residual=False, **kwargs):
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout,
            add_self_loops, edge_dim, fill_value, residual, **kwargs)
        self.share_weights = share_weights
        ins = pair_of(in_channels)
        width = heads * out_channels
        self.lin_l = Linear(ins[0], width, bias, "glorot")
        self.lin_r = self.lin_l if share_weights else Linear(
            ins[1], width, bias, "glorot")
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else Linear(
            edge_dim, width, False, "glorot")
        total = width if concat else out_channels
        self.res = Linear(ins[1], total, False, "glorot") if residual else None
        self.register_parameter("bias", parameter(bias, total))
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
        x_src, x_dst = pair(x)
        for part in (x_src, x_dst):
            self.check_features(part)
        residual = None if self.res is None else self.res(x_dst)
        h_src = self.lin_l(x_src).view(shape)
        if self.share_weights and x_dst is x_src:
            h_dst = h_src
        else:
            h_dst = self.lin_r(x_dst).view(shape)
        sizes = (h_src.size(0), h_dst.size(0))
        graph, edge_attr = self.edges_and_features(edge_index, edge_attr,
                                                   sizes)
        weight = bias = None
        if edge_attr is not None:
            if self.lin_edge is None:
                raise ValueError("edge_attr is given, but the layer has no "
                                 "edge_dim")
            edge_attr, weight, bias = of_edges(self, edge_attr)
        out, alpha = self.with_options(
            gatv2_attention, graph, h_dst, h_src, self.att[0],
            weights=return_attention_weights, edge_attr=edge_attr,
            edge_weight=weight, edge_bias=bias)
        out = finished(self, like_pyg(out, h_src, self.att), residual)
        if alpha is None:
            return out
        return self.result(out, edge_index, graph,
                           like_pyg(alpha, h_src, self.att), sizes,
                           self.add_self_loops)
