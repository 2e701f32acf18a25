"""GINEConv and ResGatedGraphConv, as torch_geometric.nn has them: reductions
of messages that have features of the edge in them."""

import torch
from torch import nn
from torch.nn import functional as F

from .. import ops
from ..aggregation import aggregate
from ..graph import Graph
from ..messages import gated_messages, relu_messages
from . import _sum_nodes
from ._attention_steps import pair
from ._conv import Conv, OwnFeatures, destinations, edge_features, pair_of
from ._linear import Linear, added, parameter
from ._node import first


_NAMES = ("add", "sum", "mean", "min", "max", "std", "var")


def gated_parts(linears, k, q, v):
    """([value, key, query] of the nodes, the matrices of edge_attr by name) of
    three linear layers (key, query, value) over [nodes, edge_attr]; k, q and v
    are their node features."""
    key, query, value = linears
    nodes = [F.linear(x, linear.weight[:, :x.size(1)], linear.bias)
             for x, linear in ((v, value), (k, key), (q, query))]
    edges = dict(edge_weight=key.weight[:, k.size(1):]
                 + query.weight[:, q.size(1):],
                 value_weight=value.weight[:, v.size(1):])
    return nodes, edges


class _MessageConv(Conv):
    def take_aggr(self, aggr, kwargs):
        names = [aggr] if isinstance(aggr, str) else aggr
        if not isinstance(names, (list, tuple)) or not names or any(
                name not in _NAMES for name in names):
            raise ValueError(f"{type(self).__name__} has aggr one or several "
                             f"of {', '.join(_NAMES)}, got {aggr!r}; "
                             "dfgnn.nn.pyg takes every aggregation of PyG")
        return aggr

    @property
    def _reduce(self):
        names = [self.aggr] if isinstance(self.aggr, str) else self.aggr
        return ["sum" if name == "add" else name for name in names]

    def _take(self, x, edge_index, size):
        """(features of sources, features of destinations or None, number of
        destinations)."""
        src, dst = pair(x)
        self.check_features(src)
        if dst is not None:
            self.check_features(dst)
        count = destinations(edge_index, size, src, self.flow) \
            if dst is None or size is not None else dst.size(0)
        return src, dst, count


def _joined(outs):
    return outs[0] if len(outs) == 1 else torch.cat(outs, -1)


class GINEConv(OwnFeatures, _MessageConv):
    """torch_geometric.nn.GINEConv   Hu et al. 2019

    The messages relu(x_j + W e_ij) are made and summed edge by edge.
    """

    def __init__(self, nn, eps=0.0, train_eps=False, edge_dim=None, **kwargs):
        super().__init__(**kwargs)
        self.start_own(nn, eps, train_eps)
        self.lin = None
        if edge_dim is not None:
            first = nn[0] if isinstance(nn, torch.nn.Sequential) else nn
            width = getattr(first, "in_features",
                            getattr(first, "in_channels", None))
            if width is None:
                raise ValueError("Could not infer input channels from `nn`.")
            self.lin = Linear(edge_dim, width)
        self.reset_parameters()

    def reset_parameters(self):
        self.reset_own()
        if self.lin is not None:
            self.lin.reset_parameters()

    @first(_sum_nodes.gine)
    def forward(self, x, edge_index, edge_attr=None, size=None):
        """x [N, F], or (sources, destinations or None); edge_index [2, E], a
        Graph or what dfgnn.as_graph takes; edge_attr [E, F], or [E, edge_dim]
        where the layer has one."""
        src, dst, count = self._take(x, edge_index, size)
        if edge_attr is None:
            edge_attr = edge_features(edge_index)
        if edge_attr is None:
            raise ValueError("edge_attr is None; GINEConv needs features of "
                             "the edges")
        width = edge_attr.size(-1) if self.lin is None else \
            self.lin.out_channels
        if width != src.size(-1):
            raise ValueError("Node and edge feature dimensionalities do not "
                             "match. Consider setting the 'edge_dim' "
                             "attribute of 'GINEConv'")
        weight, bias = (None, None) if self.lin is None else \
            (self.lin.weight, self.lin.bias)
        outs = relu_messages(self.edges(edge_index, edge_attr), src, edge_attr,
                             weight, bias, self._reduce, num_dst=count)
        return self.with_own(_joined(outs), dst)


class ResGatedGraphConv(_MessageConv):
    """torch_geometric.nn.ResGatedGraphConv   Bresson & Laurent 2017

    The messages sigmoid(k_i + q_j + W e) (v_j + W' e) are made and reduced
    edge by edge; e are the edge features of layers with edge_dim.  With another
    act than a sigmoid, all messages [E, out_channels] are held at once.
    """

    def __init__(self, in_channels, out_channels, act=None, edge_dim=None,
                 root_weight=True, bias=True, **kwargs):
        super().__init__(**kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.act = nn.Sigmoid() if act is None else act
        self.edge_dim = edge_dim
        self.root_weight = root_weight
        ins = pair_of(in_channels)
        more = 0 if edge_dim is None else edge_dim
        self.lin_key = Linear(ins[1] + more, out_channels)
        self.lin_query = Linear(ins[0] + more, out_channels)
        self.lin_value = Linear(ins[0] + more, out_channels)
        if root_weight:
            self.lin_skip = Linear(ins[1], out_channels, bias=False)
        else:
            self.register_parameter("lin_skip", None)
        self.register_parameter("bias", parameter(bias, out_channels))
        self.reset_parameters()

    def reset_parameters(self):
        for linear in self.children():
            if isinstance(linear, Linear):
                linear.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x, edge_index, edge_attr=None):
        """x [N, F], or (sources, destinations); edge_index [2, E], a Graph or
        what dfgnn.as_graph takes; edge_attr [E, edge_dim], for layers that
        have one."""
        src, dst, count = self._take(x, edge_index, None)
        if dst is None:
            self.check_features(None)
        if (edge_attr is None) != (self.edge_dim is None):
            raise ValueError(
                f"edge_dim is {self.edge_dim}, and edge_attr is "
                + ("None" if edge_attr is None else "given"))
        edges = self.edges(edge_index, edge_attr)
        if type(self.act) is nn.Sigmoid:
            nodes, matrices = gated_parts(
                (self.lin_key, self.lin_query, self.lin_value), dst, src, src)
            if edge_attr is None:
                matrices = {}
            out = _joined(gated_messages(
                edges, *nodes, edge_attr, reduce=self._reduce, num_dst=count,
                **matrices))
        else:
            out = self._by_edge(edges, src, dst, edge_attr, count)
        if self.root_weight:
            out = added(out, dst, self.lin_skip)
        return out if self.bias is None else out + self.bias

    def _by_edge(self, edges, src, dst, edge_attr, count):
        if not isinstance(edges, (torch.Tensor, Graph)) or (
                isinstance(edges, torch.Tensor) and
                edges.layout != torch.strided):
            edges = ops.untraced_graph(edges, (src.size(0), count))
        source, target = edges.edge_index if isinstance(edges, Graph) \
            else edges

        def part(linear, nodes, index):
            width = nodes.size(1)
            made = F.linear(nodes, linear.weight[:, :width], linear.bias)
            made = made.index_select(0, index)
            return made if edge_attr is None else \
                made + edge_attr @ linear.weight[:, width:].t()
        gate = self.act(part(self.lin_key, dst, target)
                        + part(self.lin_query, src, source))
        message = gate * part(self.lin_value, src, source)
        places = torch.arange(target.size(0), dtype=target.dtype,
                              device=target.device)
        return _joined([aggregate(torch.stack([places, target]), message, name,
                                  num_dst=count) for name in self._reduce])

    def __repr__(self):
        return f"ResGatedGraphConv({self.in_channels}, {self.out_channels})"
