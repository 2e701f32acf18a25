"""GATConv, as torch_geometric.nn has it."""

import torch
from torch import nn

from ..functional import gat_attention
from . import _attention_nodes
from ._additive import Additive, edge_score, finished, projected
from ._conv import destinations, like_pyg, pair, pair_of
from ._linear import Linear, glorot_, parameter
from ._node import first
from ._overrides import by_pyg
from ._scores import scores


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
        if self.overridden:
            return by_pyg(self, x, edge_index, edge_attr, size,
                          return_attention_weights)
        for part in pair(x):
            if part is not None:
                self.check_features(part)
        x_dst, residual = pair(x)[1], None
        if x_dst is not None and self.res is not None:
            residual = self.res(x_dst)
        h_src, h_dst = projected(self, x)
        if h_dst is h_src:
            score_src, score_dst = scores(h_src, self.att_src, self.att_dst)
        else:
            score_src = (h_src * self.att_src).sum(-1)
            if h_dst is None:
                num_dst = destinations(edge_index, size, score_src, self.flow)
                score_dst = score_src.new_zeros(num_dst, self.heads)
            else:
                score_dst = (h_dst * self.att_dst).sum(-1)
        sizes = (h_src.size(0), score_dst.size(0))
        graph, edge_attr = self.edges_and_features(edge_index, edge_attr,
                                                   sizes)
        out, alpha = self.with_options(
            gat_attention, graph, h_src, score_dst, score_src,
            weights=return_attention_weights,
            edge_score=edge_score(self, edge_attr))
        out = finished(self, like_pyg(out, h_src, score_src), residual)
        if alpha is None:
            return out
        return self.result(out, edge_index, graph, alpha.to(score_src.dtype),
                           sizes, self.add_self_loops)
