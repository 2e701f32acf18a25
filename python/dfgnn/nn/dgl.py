"""Layers with the arguments, parameters and results of dgl.nn.

Outputs are [nodes, heads, features].  The graph is a DGL graph or block, a
dfgnn.Graph, or CSR tensors by destination: DGL itself is not needed.
"""

import torch
from torch import nn

from ..convert import as_graph
from ..functional import (
    agnn_attention, gat_attention, gatv2_attention, gt_attention)

__all__ = ["AGNNConv", "DotGatConv", "GATConv", "GATv2Conv"]


class DGLError(RuntimeError):
    """As dgl.base.DGLError."""


class _Conv(nn.Module):
    def __init__(self, allow_zero_in_degree):
        super().__init__()
        self._allow_zero_in_degree = allow_zero_in_degree

    def set_allow_zero_in_degree(self, value):
        self._allow_zero_in_degree = value

    def _graph(self, graph, feat):
        """The graph, once it is known that each destination has an edge."""
        size = None
        if isinstance(feat, tuple):
            size = (feat[0].size(0), feat[1].size(0))
        elif isinstance(feat, torch.Tensor):
            size = feat.size(0)
        graph = as_graph(graph, size)
        if not self._allow_zero_in_degree and _has_isolated(graph):
            raise DGLError(
                "the graph has destinations without in-edges, whose output "
                "is 0; add self loops, or set allow_zero_in_degree=True")
        return graph


def _has_isolated(graph):
    """Looked up once a graph."""
    if not hasattr(graph, "_isolated"):
        graph._isolated = bool((graph.offsets.diff() == 0).any())
    return graph._isolated


def _pair(value):
    return value if isinstance(value, (tuple, list)) else (value, value)


def _split(graph, feat):
    """(features of sources, features of destinations): of a block, the
    destinations are the first sources."""
    if isinstance(feat, tuple):
        return feat
    return feat, feat[:graph.num_dst]


def _scaled(graph, weights, edge_weight, value):
    """sum over in-edges of weight times edge_weight [E] times value: DGL
    multiplies after softmax and dropout, which no softmax can express."""
    src, dst = graph.edge_index
    weights = weights * edge_weight.view(-1, 1)
    messages = weights.unsqueeze(-1) * value.index_select(0, src)
    out = messages.new_zeros((graph.num_dst,) + tuple(value.shape[1:]))
    return out.index_add(0, dst, messages.to(out.dtype)), weights


def _finish(layer, out, weights, get_attention):
    if layer.activation is not None:
        out = layer.activation(out)
    return (out, weights.unsqueeze(-1)) if get_attention else out


class GATConv(_Conv):
    """dgl.nn.GATConv."""

    def __init__(self, in_feats, out_feats, num_heads, feat_drop=0.0,
                 attn_drop=0.0, negative_slope=0.2, residual=False,
                 activation=None, allow_zero_in_degree=False, bias=True):
        super().__init__(allow_zero_in_degree)
        self._num_heads, self._out_feats = num_heads, out_feats
        src, dst = self._in_src_feats, self._in_dst_feats = _pair(in_feats)
        width = num_heads * out_feats
        if isinstance(in_feats, (tuple, list)):
            self.fc_src = nn.Linear(src, width, bias=False)
            self.fc_dst = nn.Linear(dst, width, bias=False)
        else:
            self.fc = nn.Linear(src, width, bias=False)
        self.attn_l = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.attn_r = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.feat_drop = nn.Dropout(feat_drop)
        self.attn_drop = nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.has_linear_res = residual and dst != width
        self.has_explicit_bias = bias and not self.has_linear_res
        if self.has_linear_res:
            self.res_fc = nn.Linear(dst, width, bias=bias)
        elif residual:
            self.res_fc = nn.Identity()
        else:
            self.register_buffer("res_fc", None)
        if self.has_explicit_bias:
            self.bias = nn.Parameter(torch.empty(width))
        else:
            self.register_buffer("bias", None)
        self.activation = activation
        self.reset_parameters()

    def reset_parameters(self):
        gain = nn.init.calculate_gain("relu")
        for name in ("fc", "fc_src", "fc_dst"):
            if hasattr(self, name):
                nn.init.xavier_normal_(getattr(self, name).weight, gain=gain)
        nn.init.xavier_normal_(self.attn_l, gain=gain)
        nn.init.xavier_normal_(self.attn_r, gain=gain)
        if self.has_explicit_bias:
            nn.init.zeros_(self.bias)
        if isinstance(self.res_fc, nn.Linear):
            nn.init.xavier_normal_(self.res_fc.weight, gain=gain)
            if self.res_fc.bias is not None:
                nn.init.zeros_(self.res_fc.bias)

    def forward(self, graph, feat, edge_weight=None, get_attention=False):
        graph = self._graph(graph, feat)
        shape = (-1, self._num_heads, self._out_feats)
        if isinstance(feat, tuple):
            h_src, h_dst = (self.feat_drop(t) for t in feat)
            fc_src = self.fc_src if hasattr(self, "fc_src") else self.fc
            fc_dst = self.fc_dst if hasattr(self, "fc_dst") else self.fc
            value, own = fc_src(h_src).view(shape), fc_dst(h_dst).view(shape)
        else:
            h_src = self.feat_drop(feat)
            value = self.fc(h_src).view(shape)
            h_dst, own = h_src[:graph.num_dst], value[:graph.num_dst]
        out, weights = _attend(
            self, graph, gat_attention,
            (value, (own * self.attn_r).sum(-1), (value * self.attn_l).sum(-1)),
            value, edge_weight, get_attention)
        if self.res_fc is not None:
            residual = self.res_fc(h_dst)
            out = out + residual.view(h_dst.size(0), -1, self._out_feats)
        if self.has_explicit_bias:
            out = out + self.bias.view(1, self._num_heads, self._out_feats)
        return _finish(self, out, weights, get_attention)


class GATv2Conv(_Conv):
    """dgl.nn.GATv2Conv."""

    def __init__(self, in_feats, out_feats, num_heads, feat_drop=0.0,
                 attn_drop=0.0, negative_slope=0.2, residual=False,
                 activation=None, allow_zero_in_degree=False, bias=True,
                 share_weights=False):
        super().__init__(allow_zero_in_degree)
        self._num_heads, self._out_feats = num_heads, out_feats
        src, dst = self._in_src_feats, self._in_dst_feats = _pair(in_feats)
        width = num_heads * out_feats
        self.fc_src = nn.Linear(src, width, bias=bias)
        if isinstance(in_feats, (tuple, list)) or not share_weights:
            self.fc_dst = nn.Linear(dst, width, bias=bias)
        else:
            self.fc_dst = self.fc_src
        self.attn = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.feat_drop = nn.Dropout(feat_drop)
        self.attn_drop = nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        if residual:
            self.res_fc = nn.Identity() if dst == width else nn.Linear(
                dst, width, bias=bias)
        else:
            self.register_buffer("res_fc", None)
        self.activation = activation
        self.share_weights = share_weights
        self.bias = bias
        self.reset_parameters()

    def reset_parameters(self):
        gain = nn.init.calculate_gain("relu")
        layers = [self.fc_src]
        if not self.share_weights:
            layers.append(self.fc_dst)
        if isinstance(self.res_fc, nn.Linear):
            layers.append(self.res_fc)
        for layer in layers:
            nn.init.xavier_normal_(layer.weight, gain=gain)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        nn.init.xavier_normal_(self.attn, gain=gain)

    def forward(self, graph, feat, get_attention=False):
        graph = self._graph(graph, feat)
        shape = (-1, self._num_heads, self._out_feats)
        if isinstance(feat, tuple):
            h_src, h_dst = (self.feat_drop(t) for t in feat)
            value, own = (self.fc_src(h_src).view(shape),
                          self.fc_dst(h_dst).view(shape))
        else:
            h_src = self.feat_drop(feat)
            h_dst = h_src[:graph.num_dst]
            value = self.fc_src(h_src).view(shape)
            own = value if self.share_weights else \
                self.fc_dst(h_src).view(shape)
            own = own[:graph.num_dst]
        out, weights = _attend(self, graph, gatv2_attention,
                               (own, value, self.attn[0]), value, None,
                               get_attention)
        if self.res_fc is not None:
            residual = self.res_fc(h_dst)
            out = out + residual.view(h_dst.size(0), -1, self._out_feats)
        return _finish(self, out, weights, get_attention)


def _attend(layer, graph, function, inputs, value, edge_weight,
            get_attention):
    """(out, weights as DGL returns them, after dropout)."""
    wanted = get_attention or edge_weight is not None
    result = function(
        graph, *inputs, negative_slope=layer.leaky_relu.negative_slope,
        dropout=layer.attn_drop.p, training=layer.training,
        return_weights="after" if wanted else False)
    if not wanted:
        return result, None
    out, weights = result
    if edge_weight is not None:
        return _scaled(graph, weights, edge_weight, value)
    return out, weights


class AGNNConv(_Conv):
    """dgl.nn.AGNNConv."""

    def __init__(self, init_beta=1.0, learn_beta=True,
                 allow_zero_in_degree=False):
        super().__init__(allow_zero_in_degree)
        if learn_beta:
            self.beta = nn.Parameter(torch.tensor([float(init_beta)]))
        else:
            self.register_buffer("beta", torch.tensor([float(init_beta)]))

    def forward(self, graph, feat):
        graph = self._graph(graph, feat)
        h_src, h_dst = _split(graph, feat)
        out = agnn_attention(graph, h_src.flatten(1).unsqueeze(1), self.beta,
                             h_dst=h_dst.flatten(1).unsqueeze(1))
        return out.view((graph.num_dst,) + tuple(h_src.shape[1:]))


class DotGatConv(_Conv):
    """dgl.nn.DotGatConv."""

    def __init__(self, in_feats, out_feats, num_heads,
                 allow_zero_in_degree=False):
        super().__init__(allow_zero_in_degree)
        self._in_src_feats, self._in_dst_feats = _pair(in_feats)
        self._out_feats, self._num_heads = out_feats, num_heads
        width = num_heads * out_feats
        if isinstance(in_feats, (tuple, list)):
            self.fc_src = nn.Linear(self._in_src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, width, bias=False)

    def forward(self, graph, feat, get_attention=False):
        graph = self._graph(graph, feat)
        shape = (-1, self._num_heads, self._out_feats)
        if isinstance(feat, tuple):
            bipartite = hasattr(self, "fc_src")
            value = (self.fc_src if bipartite else self.fc)(feat[0])
            own = (self.fc_dst if bipartite else self.fc)(feat[1])
            value, own = value.view(shape), own.view(shape)
        else:
            value = self.fc(feat).view(shape)
            own = value[:graph.num_dst]
        result = gt_attention(graph, own, value, value,
                              return_weights=get_attention)
        if not get_attention:
            return result
        out, weights = result
        return out, weights.unsqueeze(-1)
