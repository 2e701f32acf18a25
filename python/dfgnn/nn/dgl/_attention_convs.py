"""GATConv, GATv2Conv, EdgeGATConv, AGNNConv and DotGatConv, as dgl.nn has
them."""

import torch
from torch import nn

from ...functional import (
    agnn_attention, gat_attention, gatv2_attention, gt_attention)
from .._scores import edge_feature_scores
from .._node import first
from . import _nodes
from ._base import Checked, as_pair, dgl_error, heads_of, split


def _scaled(graph, weights, edge_weight, value):
    """(the sum over in-edges of weight times edge_weight [E] times value,
    weight times edge_weight): DGL multiplies after softmax and dropout, which
    no change of the scores can express."""
    src, dst = graph.edge_index
    weights = weights * edge_weight.view(-1, 1)
    messages = weights.unsqueeze(-1) * value.index_select(0, src)
    out = messages.new_zeros((graph.num_dst,) + tuple(value.shape[1:]))
    return out.index_add(0, dst, messages.to(out.dtype)), weights


def _finish(layer, out, weights, get_attention, shape=None):
    """The layer's result; shape: that of a destination's output [..., H, D],
    if it is not [H, D]."""
    if layer.activation is not None:
        out = layer.activation(out)
    if not get_attention:
        return out
    if shape is not None:
        weights = weights.reshape((weights.size(0),) + tuple(shape[:-1]))
    return out, weights.unsqueeze(-1)


def _matrix_only(layer, feat):
    for part in feat if isinstance(feat, tuple) else (feat,):
        if part.dim() != 2:
            raise dgl_error(f"{type(layer).__name__} takes features "
                            f"[nodes, features], got {list(part.shape)}")


def _projected(layer, graph, feat):
    """([N, ..., H, D] products of sources, those of destinations, features of
    destinations after dropout)."""
    def view(h, out):
        return out.view(tuple(h.shape[:-1]) + (layer._num_heads,
                                               layer._out_feats))
    if isinstance(feat, tuple):
        h_src, h_dst = (layer.feat_drop(t) for t in feat)
        fc_src = layer.fc_src if hasattr(layer, "fc_src") else layer.fc
        fc_dst = layer.fc_dst if hasattr(layer, "fc_dst") else layer.fc
        return view(h_src, fc_src(h_src)), view(h_dst, fc_dst(h_dst)), h_dst
    h_src = layer.feat_drop(feat)
    value = view(h_src, layer.fc(h_src))
    return value, value[:graph.num_dst], h_src[:graph.num_dst]


class _Additive(Checked):
    """What GATConv and EdgeGATConv have in common."""

    def start(self, in_feats, out_feats, num_heads, feat_drop, attn_drop,
              negative_slope, activation):
        """Makes what comes before the residual; returns the features of
        destinations and the width of all heads."""
        self._num_heads, self._out_feats = num_heads, out_feats
        src, dst = self._in_src_feats, self._in_dst_feats = as_pair(in_feats)
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
        self.activation = activation
        return dst, width

    def reset_parameters(self):
        gain = nn.init.calculate_gain("relu")
        for name in ("fc", "fc_src", "fc_dst"):
            if hasattr(self, name):
                nn.init.xavier_normal_(getattr(self, name).weight, gain=gain)
        nn.init.xavier_normal_(self.attn_l, gain=gain)
        nn.init.xavier_normal_(self.attn_r, gain=gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if isinstance(self.res_fc, nn.Linear):
            nn.init.xavier_normal_(self.res_fc.weight, gain=gain)
            if self.res_fc.bias is not None:
                nn.init.zeros_(self.res_fc.bias)

    def scores_of_nodes(self, value, own):
        """Those of destinations and of sources [N, heads]."""
        return ((own * self.attn_r).sum(-1).flatten(1),
                (value * self.attn_l).sum(-1).flatten(1))

    def finish(self, graph, out, weights, h_dst, shape, get_attention):
        out = out.view((graph.num_dst,) + shape)
        if self.res_fc is not None:
            out = out + self.res_fc(h_dst).view(out.shape)
        if self.bias is not None:
            out = out + self.bias.view(self._num_heads, self._out_feats)
        return _finish(self, out, weights, get_attention, shape)


class GATConv(_Additive):
    """dgl.nn.GATConv; features are [N, ..., in_feats], outputs [N, ...,
    heads, out_feats]."""

    def __init__(self, in_feats, out_feats, num_heads, feat_drop=0.0,
                 attn_drop=0.0, negative_slope=0.2, residual=False,
                 activation=None, allow_zero_in_degree=False, bias=True):
        super().__init__(allow_zero_in_degree)
        dst, width = self.start(in_feats, out_feats, num_heads, feat_drop,
                                attn_drop, negative_slope, activation)
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
        self.reset_parameters()

    @first(_nodes.gat)
    def forward(self, graph, feat, edge_weight=None, get_attention=False):
        graph = self.graph(graph, feat)
        value, own, h_dst = _projected(self, graph, feat)
        shape = tuple(value.shape[1:])
        out, weights = _weighted(
            self, graph, gat_attention,
            (heads_of(value), *self.scores_of_nodes(value, own)),
            heads_of(value), edge_weight, get_attention)
        return self.finish(graph, out, weights, h_dst, shape, get_attention)


class EdgeGATConv(_Additive):
    """dgl.nn.EdgeGATConv: GATConv whose messages and scores have features of
    edges, too."""

    def __init__(self, in_feats, edge_feats, out_feats, num_heads,
                 feat_drop=0.0, attn_drop=0.0, negative_slope=0.2,
                 residual=True, activation=None, allow_zero_in_degree=False,
                 bias=True):
        super().__init__(allow_zero_in_degree)
        dst, width = self.start(in_feats, out_feats, num_heads, feat_drop,
                                attn_drop, negative_slope, activation)
        self._edge_feats = edge_feats
        if bias:
            self.bias = nn.Parameter(torch.empty(width))
        else:
            self.register_buffer("bias", None)
        if residual:
            self.res_fc = nn.Linear(dst, width, bias=False)
        else:
            self.register_buffer("res_fc", None)
        self.fc_edge = nn.Linear(edge_feats, width, bias=False)
        self.attn_edge = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.reset_parameters()

    def reset_parameters(self):
        super().reset_parameters()
        gain = nn.init.calculate_gain("relu")
        nn.init.xavier_normal_(self.fc_edge.weight, gain=gain)
        nn.init.xavier_normal_(self.attn_edge, gain=gain)

    def forward(self, graph, feat, edge_feat, get_attention=False):
        """feat [N, ..., in_feats]; edge_feat [E, edge_feats], or as many
        dimensions between as feat has."""
        graph = self.graph(graph, feat)
        if edge_feat.size(0) != graph.num_edges:
            raise dgl_error(f"edge_feat must be [edges={graph.num_edges}, "
                            f"{self._edge_feats}], got "
                            f"{list(edge_feat.shape)}")
        value, own, h_dst = _projected(self, graph, feat)
        shape = tuple(value.shape[1:])
        batch = heads_of(value).size(1) // self._num_heads
        # sum alpha W e = W sum alpha e
        weight = self.fc_edge.weight.view(self._num_heads, self._out_feats, -1)
        features = heads_of(edge_feat)
        scores = edge_feature_scores(features, self.attn_edge[0], weight)
        out, weights = gat_attention(
            graph, heads_of(value), *self.scores_of_nodes(value, own),
            edge_score=scores.expand(-1, batch, -1).flatten(1),
            negative_slope=self.leaky_relu.negative_slope,
            dropout=self.attn_drop.p, training=self.training,
            return_weights="after")
        alpha = weights.view(-1, batch, self._num_heads, 1)
        messages = alpha * features.unsqueeze(2)
        sums = messages.new_zeros((graph.num_dst,) + tuple(messages.shape[1:]))
        sums = sums.index_add(0, graph.edge_index[1], messages)
        edges = torch.einsum("nbhf,hdf->nbhd", sums.to(weight.dtype), weight)
        return self.finish(graph, out + edges.flatten(1, 2), weights, h_dst,
                           shape, get_attention)


class GATv2Conv(Checked):
    """dgl.nn.GATv2Conv."""

    def __init__(self, in_feats, out_feats, num_heads, feat_drop=0.0,
                 attn_drop=0.0, negative_slope=0.2, residual=False,
                 activation=None, allow_zero_in_degree=False, bias=True,
                 share_weights=False):
        super().__init__(allow_zero_in_degree)
        self._num_heads, self._out_feats = num_heads, out_feats
        src, dst = self._in_src_feats, self._in_dst_feats = as_pair(in_feats)
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

    @first(_nodes.gatv2)
    def forward(self, graph, feat, get_attention=False):
        _matrix_only(self, feat)
        graph = self.graph(graph, feat)
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
        out, weights = _weighted(self, graph, gatv2_attention,
                                 (own, value, self.attn[0]), value, None,
                                 get_attention)
        if self.res_fc is not None:
            residual = self.res_fc(h_dst)
            out = out + residual.view(h_dst.size(0), self._num_heads,
                                      self._out_feats)
        return _finish(self, out, weights, get_attention)


def _weighted(layer, graph, function, inputs, value, edge_weight,
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


class AGNNConv(Checked):
    """dgl.nn.AGNNConv; features are [N, ..., D]."""

    def __init__(self, init_beta=1.0, learn_beta=True,
                 allow_zero_in_degree=False):
        super().__init__(allow_zero_in_degree)
        if learn_beta:
            self.beta = nn.Parameter(torch.tensor([float(init_beta)]))
        else:
            self.register_buffer("beta", torch.tensor([float(init_beta)]))

    @first(_nodes.agnn)
    def forward(self, graph, feat):
        graph = self.graph(graph, feat)
        h_src, h_dst = split(graph, feat)
        out = agnn_attention(graph, heads_of(h_src), self.beta,
                             h_dst=heads_of(h_dst))
        return out.view((graph.num_dst,) + tuple(h_src.shape[1:]))


class DotGatConv(Checked):
    """dgl.nn.DotGatConv."""

    def __init__(self, in_feats, out_feats, num_heads,
                 allow_zero_in_degree=False):
        super().__init__(allow_zero_in_degree)
        self._in_src_feats, self._in_dst_feats = as_pair(in_feats)
        self._out_feats, self._num_heads = out_feats, num_heads
        width = num_heads * out_feats
        if isinstance(in_feats, (tuple, list)):
            self.fc_src = nn.Linear(self._in_src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, width, bias=False)

    @first(_nodes.dot_gat)
    def forward(self, graph, feat, get_attention=False):
        _matrix_only(self, feat)
        graph = self.graph(graph, feat)
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
