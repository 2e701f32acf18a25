"""GraphConv, SAGEConv and GINConv, as dgl.nn has them."""

import torch
from torch import nn
from torch.nn import functional as F

from .._linear import parameter
from .._node import first
from . import _nodes
from ._base import (
    Checked, Layer, as_pair, dgl_error, out_degrees, reduced, split)

_NORMS = ("none", "both", "right", "left")


def _scaled(feat, degrees, power):
    scale = degrees.to(feat.dtype).clamp(min=1).pow(power)
    return feat * scale.view([-1] + [1] * (feat.dim() - 1))


class GraphConv(Checked):
    """dgl.nn.GraphConv   Kipf & Welling 2017"""

    def __init__(self, in_feats, out_feats, norm="both", weight=True,
                 bias=True, activation=None, allow_zero_in_degree=False):
        super().__init__(allow_zero_in_degree)
        if norm not in _NORMS:
            raise dgl_error(f"norm must be one of {_NORMS}, got {norm!r}")
        self._in_feats, self._out_feats = in_feats, out_feats
        self._norm = norm
        self.register_parameter(
            "weight", parameter(weight, in_feats, out_feats))
        self.register_parameter("bias", parameter(bias, out_feats))
        self._activation = activation
        self.reset_parameters()

    def reset_parameters(self):
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @first(_nodes.graph_conv)
    def forward(self, graph, feat, weight=None, edge_weight=None):
        """feat [N, ..., in_feats], or a pair of sources' and destinations';
        edge_weight [E]."""
        graph = self.graph(graph, feat)
        if weight is not None and self.weight is not None:
            raise dgl_error("a weight is given, but the layer has its own; "
                            "make it with weight=False")
        weight = self.weight if weight is None else weight
        h, _ = split(graph, feat)
        power = -0.5 if self._norm == "both" else -1.0
        if self._norm in ("left", "both"):
            h = _scaled(h, out_degrees(graph), power)
        shrinks = self._in_feats > self._out_feats
        if weight is not None and shrinks:
            h = h @ weight
        h = reduced(graph, h, "sum", edge_weight)
        if weight is not None and not shrinks:
            h = h @ weight
        if self._norm in ("right", "both"):
            h = _scaled(h, graph.degrees, power)
        if self.bias is not None:
            h = h + self.bias
        return h if self._activation is None else self._activation(h)

    def extra_repr(self):
        return f"in={self._in_feats}, out={self._out_feats}, " \
               f"normalization={self._norm}"


class SAGEConv(Layer):
    """dgl.nn.SAGEConv   Hamilton et al. 2017"""

    kinds = ("mean", "gcn", "pool", "lstm")

    def __init__(self, in_feats, out_feats, aggregator_type, feat_drop=0.0,
                 bias=True, norm=None, activation=None):
        super().__init__()
        if aggregator_type not in self.kinds:
            raise dgl_error(f"aggregator_type must be one of {self.kinds}, "
                            f"got {aggregator_type!r}")
        src, dst = self._in_src_feats, self._in_dst_feats = as_pair(in_feats)
        self._out_feats = out_feats
        self._aggre_type = aggregator_type
        self.norm, self.activation = norm, activation
        self.feat_drop = nn.Dropout(feat_drop)
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(src, src)
        if aggregator_type == "lstm":
            self.lstm = nn.LSTM(src, src, batch_first=True)
        self.fc_neigh = nn.Linear(src, out_feats, bias=False)
        if aggregator_type != "gcn":
            self.fc_self = nn.Linear(dst, out_feats, bias=bias)
        elif bias:
            self.bias = nn.Parameter(torch.zeros(out_feats))
        else:
            self.register_buffer("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        gain = nn.init.calculate_gain("relu")
        if self._aggre_type == "pool":
            nn.init.xavier_uniform_(self.fc_pool.weight, gain=gain)
        if self._aggre_type == "lstm":
            self.lstm.reset_parameters()
        if self._aggre_type != "gcn":
            nn.init.xavier_uniform_(self.fc_self.weight, gain=gain)
        nn.init.xavier_uniform_(self.fc_neigh.weight, gain=gain)

    @first(_nodes.sage)
    def forward(self, graph, feat, edge_weight=None):
        """feat [N, ..., in_feats], or a pair of sources' and destinations';
        edge_weight [E]."""
        graph = self.graph(graph, feat)
        if isinstance(feat, tuple):
            h_src, h_dst = (self.feat_drop(t) for t in feat)
        else:
            h_src, h_dst = split(graph, self.feat_drop(feat))
        neighbours = getattr(self, "_" + self._aggre_type)(
            graph, h_src, h_dst, edge_weight)
        if self._aggre_type == "gcn":
            out = neighbours if self.bias is None else neighbours + self.bias
        else:
            out = self.fc_self(h_dst) + neighbours
        if self.activation is not None:
            out = self.activation(out)
        return out if self.norm is None else self.norm(out)

    def _mean(self, graph, h_src, h_dst, edge_weight):
        if self._in_src_feats > self._out_feats:
            return reduced(graph, self.fc_neigh(h_src), "mean", edge_weight)
        return self.fc_neigh(reduced(graph, h_src, "mean", edge_weight))

    def _gcn(self, graph, h_src, h_dst, edge_weight):
        if h_src.size(-1) != h_dst.size(-1):
            raise dgl_error(
                "aggregator_type 'gcn' adds features of destinations to those "
                "of sources and needs as many of both, got "
                f"{h_dst.size(-1)} and {h_src.size(-1)}")
        first = self._in_src_feats > self._out_feats
        if first:
            h_src, h_dst = self.fc_neigh(h_src), self.fc_neigh(h_dst)
        total = reduced(graph, h_src, "sum", edge_weight) + h_dst
        count = (graph.degrees + 1).to(total.dtype)
        out = total / count.view([-1] + [1] * (total.dim() - 1))
        return out if first else self.fc_neigh(out)

    def _pool(self, graph, h_src, h_dst, edge_weight):
        return self.fc_neigh(reduced(graph, F.relu(self.fc_pool(h_src)), "max",
                                     edge_weight))

    def _lstm(self, graph, h_src, h_dst, edge_weight):
        """The last state over the neighbours of each destination, in the order
        of its edges: destinations of one degree are one batch."""
        messages = h_src.index_select(0, graph.src)
        if edge_weight is not None:
            messages = messages * graph.to_graph_order(edge_weight).view(-1, 1)
        out = h_src.new_zeros(graph.num_dst, self._in_src_feats)
        degrees = graph.degrees
        first = degrees.cumsum(0) - degrees
        for degree in degrees.unique().tolist():
            if not degree:
                continue
            rows = (degrees == degree).nonzero().view(-1)
            steps = torch.arange(degree, device=graph.device)
            _, (state, _) = self.lstm(
                messages[first[rows].view(-1, 1) + steps])
            out = out.index_copy(0, rows, state.squeeze(0))
        return self.fc_neigh(out)


class GINConv(Layer):
    """dgl.nn.GINConv   Xu et al. 2019"""

    kinds = ("sum", "max", "mean")

    def __init__(self, apply_func=None, aggregator_type="sum", init_eps=0,
                 learn_eps=False, activation=None):
        super().__init__()
        if aggregator_type not in self.kinds:
            raise KeyError(f"aggregator_type must be one of {self.kinds}, got "
                           f"{aggregator_type!r}")
        self.apply_func = apply_func
        self._aggregator_type = aggregator_type
        self.activation = activation
        eps = torch.tensor([float(init_eps)])
        if learn_eps:
            self.eps = nn.Parameter(eps)
        else:
            self.register_buffer("eps", eps)

    @first(_nodes.gin)
    def forward(self, graph, feat, edge_weight=None):
        """feat [N, ...], or a pair of sources' and destinations'; edge_weight
        [E]."""
        graph = self.graph(graph, feat)
        h_src, h_dst = split(graph, feat)
        out = (1 + self.eps) * h_dst + reduced(
            graph, h_src, self._aggregator_type, edge_weight)
        for function in (self.apply_func, self.activation):
            if function is not None:
                out = function(out)
        return out
