"""The layers that attend, as torch_geometric.nn has them."""

import torch
from torch import nn

from . import _attention_nodes as nodes, _attention_steps as steps
from ._conv import FLOWS, Conv, edge_features, pair_of
from ._linear import Linear, parameter
from ._node import first
from ..graph import Graph


class _Attention(Conv):
    add_self_loops = False

    def run(self, step, x, edges, edge_attr, weights, size=None):
        """The result of a step of _attention_steps.py."""
        src, dst, count = self.ends(x, edges, size)
        values = None
        if edge_attr is None and self.lin_edge is not None:
            edge_attr = values = edge_features(edges)
        graph = self.edges(edges, values)
        # PyG reduces over row 1 of edge_index whatever the flow is
        flipped = self.flow == FLOWS[1] and not isinstance(graph, Graph)
        out, alpha = step(self, graph, x, edge_attr, weights,
                          0 if flipped else 1, count)
        return out if alpha is None else self.result(
            out, edges, graph, alpha, (src.size(0), count),
            self.add_self_loops)

    def __repr__(self):
        return (f"{type(self).__name__}({self.in_channels}, "
                f"{self.out_channels}, heads={self.heads})")


class _Additive(_Attention):
    """Scores add terms of sources, destinations and edges."""

    def add_parts(self, own_in, bias):
        """Makes the layers of edge features and the residual, and the bias."""
        width = self.heads * self.out_channels
        self.lin_edge = None if self.edge_dim is None else Linear(
            self.edge_dim, width, False, "glorot")
        total = width if self.concat else self.out_channels
        self.res = Linear(own_in, total, False, "glorot") \
            if self.residual else None
        self.register_parameter("bias", parameter(bias, total))


class GATConv(_Additive):
    """Additive attention   Velickovic et al. 2018"""

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 negative_slope=0.2, dropout=0.0, add_self_loops=True,
                 edge_dim=None, fill_value="mean", bias=True, residual=False,
                 **kwargs):
        super().__init__(**kwargs)
        self.keep(locals())
        width = heads * out_channels
        self.lin = self.lin_src = self.lin_dst = None
        if isinstance(in_channels, int):
            self.lin = Linear(in_channels, width, False, "glorot")
        else:
            self.lin_src = Linear(in_channels[0], width, False, "glorot")
            self.lin_dst = Linear(in_channels[1], width, False, "glorot")
        for name in ("att_src", "att_dst", "att_edge"):
            self.register_parameter(name, parameter(
                name != "att_edge" or edge_dim is not None, 1, heads,
                out_channels))
        self.add_parts(pair_of(in_channels)[1], bias)
        self.reset_parameters()

    @first(nodes.gat)
    def forward(self, x, edge_index, edge_attr=None, size=None,
                return_attention_weights=None):
        return self.run(steps.gat, x, edge_index, edge_attr,
                        return_attention_weights, size)


class GATv2Conv(_Additive):
    """Dynamic attention   Brody et al. 2022"""

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 negative_slope=0.2, dropout=0.0, add_self_loops=True,
                 edge_dim=None, fill_value="mean", bias=True,
                 share_weights=False, residual=False, **kwargs):
        super().__init__(**kwargs)
        self.keep(locals())
        ins, width = pair_of(in_channels), heads * out_channels
        self.lin_l = Linear(ins[0], width, bias, "glorot")
        self.lin_r = self.lin_l if share_weights else Linear(
            ins[1], width, bias, "glorot")
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.add_parts(ins[1], bias)
        self.reset_parameters()

    @first(nodes.gatv2)
    def forward(self, x, edge_index, edge_attr=None,
                return_attention_weights=None):
        return self.run(steps.gatv2, x, edge_index, edge_attr,
                        return_attention_weights)


class TransformerConv(_Attention):
    """Dot-product attention with a skip connection   Shi et al. 2021"""

    sends_pairs = False

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 beta=False, dropout=0.0, edge_dim=None, bias=True,
                 root_weight=True, **kwargs):
        super().__init__(**kwargs)
        self.keep(locals())
        self.beta = beta and root_weight
        src, dst = pair_of(in_channels)
        width = heads * out_channels
        self.lin_key = Linear(src, width, bias)
        self.lin_query = Linear(dst, width, bias)
        self.lin_value = Linear(src, width, bias)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width,
                                                             False)
        skip = width if concat else out_channels
        self.lin_skip = Linear(dst, skip, bias)
        self.lin_beta = Linear(3 * skip, 1, False) if self.beta else None
        self.reset_parameters()

    @first(nodes.transformer)
    def forward(self, x, edge_index, edge_attr=None,
                return_attention_weights=None):
        return self.run(steps.transformer, x, edge_index, edge_attr,
                        isinstance(return_attention_weights, bool))


class AGNNConv(_Attention):
    """Attention by cosine   Thekumparampil et al. 2018"""

    default_node_dim, lin_edge = -2, None

    def __init__(self, requires_grad=True, add_self_loops=True, **kwargs):
        super().__init__(**kwargs)
        self.keep(locals())
        if requires_grad:
            self.beta = nn.Parameter(torch.ones(1))
        else:
            self.register_buffer("beta", torch.ones(1))

    def reset_parameters(self):
        if self.requires_grad:
            nn.init.ones_(self.beta)

    @first(nodes.agnn)
    def forward(self, x, edge_index):
        return self.run(steps.agnn, x, edge_index, None, False)

    def __repr__(self):
        return "AGNNConv()"
