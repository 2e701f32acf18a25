"""GATConv, as torch_geometric.nn has it."""

import torch
from torch import nn

from . import _attention_nodes, _attention_steps as steps
from ._attention_steps import pair
from ._conv import Additive, destinations, pair_of
from ._linear import Linear, glorot_, parameter
from ._node import first


class GATConv(Additive):
    """Additive attention   Velickovic et al. 2018

    Arguments, parameters and results are those of torch_geometric.nn.GATConv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 negative_slope=0.2, dropout=0.0, add_self_loops=True,
                 edge_dim=None, fill_value="mean", bias=True, residual=False,
                 **kwargs):
        super().__init__(
            in_channels, out_channels, heads, concat, negative_slope, dropout,
            add_self_loops, edge_dim, fill_value, residual, **kwargs)
        width = heads * out_channels
        self.lin = self.lin_src = self.lin_dst = None
        if isinstance(in_channels, int):
            self.lin = Linear(in_channels, width, False, "glorot")
        else:
            self.lin_src = Linear(in_channels[0], width, False, "glorot")
            self.lin_dst = Linear(in_channels[1], width, False, "glorot")
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None if edge_dim is None else Linear(
            edge_dim, width, False, "glorot")
        self.register_parameter("att_edge", parameter(
            edge_dim is not None, 1, heads, out_channels))
        total = width if concat else out_channels
        self.res = Linear(pair_of(in_channels)[1], total, False, "glorot") \
            if residual else None
        self.register_parameter("bias", parameter(bias, total))
        self.reset_parameters()

    def reset_parameters(self):
        for child in self.children():
            child.reset_parameters()
        for att in (self.att_src, self.att_dst, self.att_edge):
            if att is not None:
                glorot_(att)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @first(_attention_nodes.gat)
    def forward(self, x, edge_index, edge_attr=None, size=None,
                return_attention_weights=None):
        """x [N, F], or (sources, destinations or None); edge_index [2, E], a
        Graph or what dfgnn.as_graph takes; edge_attr [E, edge_dim]; size
        (sources, destinations).  With return_attention_weights true, also
        (edge_index with loops, alpha [E, H] after dropout)."""
        for part in pair(x):
            if part is not None:
                self.check_features(part)
        sizes = (pair(x)[0].size(0), destinations(
            edge_index, size, pair(x)[0], self.flow)
            if pair(x)[1] is None else pair(x)[1].size(0))
        graph, edge_attr, row = self.edges_and_features(edge_index, edge_attr)
        out, alpha = steps.gat(self, graph, x, sizes[1], edge_attr,
                               return_attention_weights, row)
        return out if alpha is None else self.result(
            out, edge_index, graph, alpha, sizes, self.add_self_loops)
