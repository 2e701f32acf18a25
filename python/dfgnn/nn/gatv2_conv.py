"""GATv2Conv, as torch_geometric.nn has it."""

import torch
from torch import nn

from . import _attention_nodes, _attention_steps as steps
from ._attention_steps import pair
from ._conv import Additive, pair_of
from ._linear import Linear, glorot_, parameter
from ._node import first


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
        x = pair(x)
        for part in x:
            self.check_features(part)
        graph, edge_attr, row = self.edges_and_features(edge_index, edge_attr)
        if edge_attr is not None and self.lin_edge is None:
            raise ValueError("edge_attr is given, but the layer has no "
                             "edge_dim")
        out, alpha = steps.gatv2(self, graph, x, edge_attr,
                                 return_attention_weights, row)
        return out if alpha is None else self.result(
            out, edge_index, graph, alpha, (x[0].size(0), x[1].size(0)),
            self.add_self_loops)
