"""GATConv, as torch_geometric.nn has it."""

import torch
from torch import nn

from ..functional import gat_attention
from . import _attention_nodes
from ._conv import Conv, destinations, edge_features, like_pyg
from ._linear import Linear, glorot_
from ._node import first
from ._overrides import by_pyg
from ._scores import edge_feature_scores, scores


class GATConv(Conv):
    """Additive attention   Velickovic et al. 2018

    Arguments, parameters and results are those of torch_geometric.nn.GATConv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 negative_slope=0.2, dropout=0.0, add_self_loops=True,
                 edge_dim=None, fill_value="mean", bias=True, residual=False,
                 **kwargs):
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
        width = heads * out_channels
        self.lin = self.lin_src = self.lin_dst = None
        if isinstance(in_channels, int):
            self.lin = Linear(in_channels, width, False, "glorot")
        else:
            self.lin_src = Linear(in_channels[0], width, False, "glorot")
            self.lin_dst = Linear(in_channels[1], width, False, "glorot")
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        if edge_dim is not None:
            self.lin_edge = Linear(edge_dim, width, False, "glorot")
            self.att_edge = nn.Parameter(torch.empty(1, heads, out_channels))
        else:
            self.lin_edge = None
            self.register_parameter("att_edge", None)
        total = width if concat else out_channels
        self.res = None
        if residual:
            last = in_channels if isinstance(in_channels, int) else \
                in_channels[1]
            self.res = Linear(last, total, False, "glorot")
        if bias:
            self.bias = nn.Parameter(torch.empty(total))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        for child in self.children():
            child.reset_parameters()
        for att in (self.att_src, self.att_dst, self.att_edge):
            if att is not None:
                glorot_(att)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def _transform(self, x):
        """(h of sources, h of destinations or None, residual or None)."""
        shape = (-1, self.heads, self.out_channels)
        x_src, x_dst = (x, x) if isinstance(x, torch.Tensor) else x
        for part in (x_src, x_dst):
            if part is not None:
                self.check_features(part)
        residual = None
        if x_dst is not None and self.res is not None:
            residual = self.res(x_dst)
        if self.lin is not None:
            h_src = self.lin(x_src).view(shape)
            if x_dst is x_src:
                return h_src, h_src, residual
            h_dst = None if x_dst is None else self.lin(x_dst).view(shape)
        else:
            h_src = self.lin_src(x_src).view(shape)
            h_dst = None if x_dst is None else self.lin_dst(x_dst).view(shape)
        return h_src, h_dst, residual

    def _edge_score(self, edge_attr):
        if edge_attr is None or self.lin_edge is None:
            return None
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        weight = self.lin_edge.weight.view(self.heads, self.out_channels, -1)
        return edge_feature_scores(edge_attr, self.att_edge[0], weight)

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
        h_src, h_dst, residual = self._transform(x)
        if h_dst is h_src:
            score_src, score_dst = scores(h_src, self.att_src, self.att_dst)
        else:
            score_src = (h_src * self.att_src).sum(-1)
            if h_dst is None:
                num_dst = destinations(edge_index, size, score_src, self.flow)
                score_dst = score_src.new_zeros(num_dst, self.heads)
            else:
                score_dst = (h_dst * self.att_dst).sum(-1)
        values = None
        if edge_attr is None and self.lin_edge is not None:
            edge_attr = values = edge_features(edge_index)
        graph = self.edges(edge_index, values)
        loops, wanted = self.add_self_loops, bool(return_attention_weights)
        sizes = (h_src.size(0), score_dst.size(0))
        if loops and edge_attr is not None and self.lin_edge is not None:
            edge_attr = self.with_loop_features(graph, sizes, edge_attr,
                                                self.fill_value)
        out = gat_attention(
            graph, h_src, score_dst, score_src,
            negative_slope=self.negative_slope,
            edge_score=self._edge_score(edge_attr), dropout=self.dropout,
            training=self.training, return_weights="after" if wanted else
            False, self_loops=loops)
        alpha = None
        if wanted:
            out, alpha = out
        out = like_pyg(out, h_src, score_src)
        out = out.flatten(1) if self.concat else out.mean(1)
        if residual is not None:
            out = out + residual
        if self.bias is not None:
            out = out + self.bias
        if not wanted:
            return out
        return self.result(out, edge_index, graph, alpha.to(score_src.dtype),
                           sizes, loops)
