"""The layers that attend, as torch_geometric.nn has them: their arguments,
parameters and results are those of PyG's."""

import torch
from torch import nn

from . import _attention_nodes as nodes, _attention_steps as steps
from ._attention_steps import pair
from ._conv import FLOWS, Conv, destinations, edge_features, pair_of
from ._linear import Linear, parameter
from ._node import first
from ..graph import Graph


class _Attention(Conv):
    add_self_loops = False

    def check_pair(self, x):
        """(features of sources, of destinations), which are matrices."""
        x = pair(x)
        for part in x:
            self.check_features(part)
        return x

    def run(self, step, edges, edge_attr, sizes):
        """The result of step(graph, edge_attr, row), where features of loops
        are reduced by that row of the edge_index."""
        values = None
        if edge_attr is None and self.lin_edge is not None:
            edge_attr = values = edge_features(edges)
        graph = self.edges(edges, values)
        # PyG reduces over row 1 of edge_index whatever the flow is
        flipped = self.flow == FLOWS[1] and not isinstance(graph, Graph)
        out, alpha = step(graph, edge_attr, 0 if flipped else 1)
        return out if alpha is None else self.result(
            out, edges, graph, alpha, sizes, self.add_self_loops)

    def __repr__(self):
        return (f"{type(self).__name__}({self.in_channels}, "
                f"{self.out_channels}, heads={self.heads})")


class _Additive(_Attention):
    """Scores add terms of sources, destinations and edges."""

    def keep(self, names, arguments):
        super().keep("in_channels out_channels heads concat negative_slope "
                     "dropout add_self_loops edge_dim fill_value residual "
                     + names, arguments)

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
    """Additive attention   Velickovic et al. 2018

    Arguments, parameters and results are those of torch_geometric.nn.GATConv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 negative_slope=0.2, dropout=0.0, add_self_loops=True,
                 edge_dim=None, fill_value="mean", bias=True, residual=False,
                 **kwargs):
        super().__init__(**kwargs)
        self.keep("", locals())
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
        """x [N, F], or (sources, destinations or None); edge_index [2, E], a
        Graph or what dfgnn.as_graph takes; edge_attr [E, edge_dim]; size
        (sources, destinations).  With return_attention_weights true, also
        (edge_index with loops, alpha [E, H] after dropout)."""
        src, dst = pair(x)
        for part in (src, dst):
            if part is not None:
                self.check_features(part)
        count = destinations(edge_index, size, src, self.flow) \
            if dst is None else dst.size(0)
        return self.run(
            lambda graph, edge_attr, row: steps.gat(
                self, graph, x, count, edge_attr, return_attention_weights,
                row),
            edge_index, edge_attr, (src.size(0), count))


class GATv2Conv(_Additive):
    """Dynamic attention   Brody et al. 2022

    Arguments, parameters and results are those of
    torch_geometric.nn.GATv2Conv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 negative_slope=0.2, dropout=0.0, add_self_loops=True,
                 edge_dim=None, fill_value="mean", bias=True,
                 share_weights=False, residual=False, **kwargs):
        super().__init__(**kwargs)
        self.keep("share_weights", locals())
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
        """x [N, F], or (sources, destinations); edge_index [2, E], a Graph or
        what dfgnn.as_graph takes; edge_attr [E, edge_dim].  With
        return_attention_weights true, also (edge_index with loops, alpha
        [E, H] after dropout)."""
        x = self.check_pair(x)

        def step(graph, edge_attr, row):
            if edge_attr is not None and self.lin_edge is None:
                raise ValueError("edge_attr is given, but the layer has no "
                                 "edge_dim")
            return steps.gatv2(self, graph, x, edge_attr,
                               return_attention_weights, row)
        return self.run(step, edge_index, edge_attr,
                        (x[0].size(0), x[1].size(0)))


class TransformerConv(_Attention):
    """Dot-product attention with a skip connection   Shi et al. 2021

    Arguments, parameters and results are those of
    torch_geometric.nn.TransformerConv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 beta=False, dropout=0.0, edge_dim=None, bias=True,
                 root_weight=True, **kwargs):
        super().__init__(**kwargs)
        self.keep("in_channels out_channels heads root_weight concat dropout "
                  "edge_dim", locals())
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
        """x [N, F], or (sources, destinations); edge_index [2, E], a Graph or
        what dfgnn.as_graph takes; edge_attr [E, edge_dim].  If
        return_attention_weights is not None, be it True or False, also
        (edge_index, alpha [E, H] before dropout)."""
        x = self.check_pair(x)

        def step(graph, edge_attr, row):
            if self.lin_edge is not None and edge_attr is None:
                raise ValueError("edge_attr is None, but the layer has "
                                 f"edge_dim={self.edge_dim}")
            return steps.transformer(
                self, graph, x, None if self.lin_edge is None else edge_attr,
                isinstance(return_attention_weights, bool))
        return self.run(step, edge_index, edge_attr,
                        (x[0].size(0), x[1].size(0)))


class AGNNConv(Conv):
    """Attention by cosine   Thekumparampil et al. 2018

    Arguments, parameters and results are those of torch_geometric.nn.AGNNConv.
    """

    default_node_dim = -2

    def __init__(self, requires_grad=True, add_self_loops=True, **kwargs):
        super().__init__(**kwargs)
        self.keep("requires_grad add_self_loops", locals())
        if requires_grad:
            self.beta = nn.Parameter(torch.ones(1))
        else:
            self.register_buffer("beta", torch.ones(1))

    def reset_parameters(self):
        if self.requires_grad:
            nn.init.ones_(self.beta)

    @first(nodes.agnn)
    def forward(self, x, edge_index):
        """x [N, F]; edge_index [2, E], a Graph or what dfgnn.as_graph
        takes."""
        self.check_features(x)
        return steps.agnn(self, self.edges(edge_index), x)

    def __repr__(self):
        return "AGNNConv()"
