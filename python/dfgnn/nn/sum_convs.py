"""The layers of sums and reductions, as torch_geometric.nn has them."""

import torch
from torch import nn
from torch.nn import functional as F

from .._loops import check_rows, last_loops, loop_weights, normalize
from .._modes import compiling, in_transform
from .._torch_library import untraced_graph
from .._values import is_adjacency, values_like
from ..aggregation import (
    REDUCTIONS, aggregate, each_reduction, gcn, spmm)
from ..convert import as_graph
from ..graph import Graph
from ..messages import gated_messages, relu_messages
from . import _sum_nodes
from ._attention_steps import both, pair
from ._conv import Conv, Shape, edge_features, pair_of
from ._linear import Linear, parameter, reset
from ._node import first


class _Static(Conv):
    """A layer that takes x [..., nodes, features], too: features of graphs
    that share their edges."""

    default_node_dim = -2

    def with_values(self, edges, edge_weight, x, size):
        """(edges, edge_weight): where no weights are given, the values that
        come with the edges, which are a Graph of this size then."""
        if edge_weight is None and not isinstance(edges, Graph):
            edge_weight = values_like(edges, x)
            if edge_weight is not None:
                edges = untraced_graph(edges, size)
        return edges, edge_weight.flatten() if isinstance(
            edge_weight, torch.Tensor) else edge_weight  # [E, 1], say

    def shape_of(self, x):
        """The Shape by which kernels take each graph of a batch for a head."""
        if x.dim() < 2:
            raise ValueError("x must be [nodes, features] or, for static "
                             "graphs, [batch, nodes, features], got "
                             f"{list(x.shape)}")
        return Shape(self, x)


def _loop_weights(edges, weight, rows, num_nodes, fill):
    """[num_nodes] the weight of each node's loop, from the loops among edges;
    rows: the node of each loop, num_nodes for other edges."""
    if hasattr(edges, "sparse_sizes"):  # PyG drops those of a SparseTensor
        return weight.new_full((num_nodes,), fill)
    if isinstance(edges, torch.Tensor) and is_adjacency(edges):
        return fill + weight.new_zeros(num_nodes + 1).index_add(
            0, rows, weight)[:num_nodes]
    # if a node has several loops, the last counts, as PyG has it on a CPU
    return loop_weights(weight, last_loops(rows, num_nodes), fill,
                        lambda: rows)


class GCNConv(_Static):
    """Sums scaled by degrees   Kipf & Welling 2017"""

    def __init__(self, in_channels, out_channels, improved=False, cached=False,
                 add_self_loops=None, normalize=True, bias=True, **kwargs):
        super().__init__(**kwargs)
        if add_self_loops is None:
            add_self_loops = normalize
        if add_self_loops and not normalize:
            raise ValueError("'GCNConv' does not support adding self-loops to "
                             "the graph when no on-the-fly normalization is "
                             "applied")
        self.keep(locals())
        self._cached = None
        self.lin = Linear(in_channels, out_channels, False, "glorot")
        self.register_parameter("bias", parameter(bias, out_channels))
        self.reset_parameters()

    def reset_parameters(self):
        super().reset_parameters()
        self._cached = None

    def _normalized(self, edges, x, edge_weight):
        """(edges, the weight of each edge and then of each loop)."""
        if self._cached is not None:
            return self._cached
        original, num_nodes = edges, x.size(0)
        if is_adjacency(edges):
            edges, edge_weight = self.with_values(edges, None, x, num_nodes)
            if edge_weight is None:
                edges = untraced_graph(edges, num_nodes)
                edge_weight = x.new_ones(edges.num_edges)
        src, dst = edges.edge_index if isinstance(edges, Graph) else edges
        check_rows("edge_weight", edge_weight, src.numel())
        if self.add_self_loops:
            is_loop = src == dst
            edge_weight = torch.cat([
                edge_weight.masked_fill(is_loop, 0), _loop_weights(
                    original, edge_weight,
                    src.long().masked_fill(~is_loop, num_nodes), num_nodes,
                    2.0 if self.improved else 1.0)])
            loops = torch.arange(num_nodes, dtype=src.dtype, device=src.device)
            src, dst = torch.cat([src, loops]), torch.cat([dst, loops])
        result = edges, normalize(
            edge_weight, src, dst, num_nodes,
            edges.extend if isinstance(edges, Graph) else None)
        if self.cached and not in_transform() and not compiling():
            self._cached = as_graph(edges, num_nodes), result[1]
        return result

    def _by_degrees(self, edges, x):
        """Sums without edge weights, whose scales follow from the graph."""
        if self.cached and self._cached is None and not compiling():
            self._cached = as_graph(edges, x.size(0)), None
        if self._cached is not None:
            edges = self._cached[0]
        h = self.lin(x)
        # PyG scales in the type of x, which autocast has not cast
        return gcn(edges, h, self.add_self_loops).to(
            torch.promote_types(h.dtype, x.dtype))

    def _by_weights(self, edges, x, edge_weight):
        if self.normalize:
            edges, edge_weight = self._normalized(edges, x, edge_weight)
        h = self.lin(x)
        out = spmm(edges, h, edge_weight, self_loops=self.normalize and
                   self.add_self_loops)
        if edge_weight is None:
            return out
        return out.to(torch.promote_types(h.dtype, edge_weight.dtype))

    @first(_sum_nodes.gcn)
    def forward(self, x, edge_index, edge_weight=None):
        if isinstance(x, (tuple, list)):
            raise ValueError("'GCNConv' received a tuple of node features as "
                             "input while this layer does not support "
                             "bipartite message passing")
        edges = self.weighted_edges(edge_index, edge_weight)
        if not self.normalize or not is_adjacency(edges):
            edges, edge_weight = self.with_values(edges, edge_weight, x,
                                                  x.size(self.node_dim))
        shape = self.shape_of(x)
        heads = shape.enter(x)
        if self.normalize and (
                edge_weight is None and not is_adjacency(edges)
                if self._cached is None else self._cached[1] is None):
            out = self._by_degrees(edges, heads)
        else:
            out = self._by_weights(edges, heads, edge_weight)
        out = shape.leave(out)
        return out if self.bias is None else out + self.bias


_AGGREGATIONS = {"add", "sum"} | set(REDUCTIONS) - {"pna"}


class _Reduction:
    """The argument aggr of a layer, which reduces its neighbours: a name, a list
    of names, or a module, such as torch_geometric.nn.aggr has them, which
    becomes the layer's aggr_module."""

    def __init__(self, layer, aggr, kwargs):
        options = kwargs.pop("aggr_kwargs", None) or {}
        several = isinstance(aggr, (tuple, list))
        names = list(aggr) if several else [aggr]
        known = _AGGREGATIONS - {"median"} if several else _AGGREGATIONS
        self.name = list(map(str, aggr)) if several else str(aggr)
        self.names = self.module = None
        if names and not options and all(
                isinstance(name, str) and name in known for name in names):
            self.names = names
            if aggr == "median":  # has a buffer in PyG's state_dict
                layer.aggr_module = nn.Module()
                layer.aggr_module.register_buffer("q", torch.full((1, 1), 0.5))
            return
        self.module = aggr if isinstance(aggr, nn.Module) else _resolve(
            aggr, options)
        layer.aggr_module = self.module

    def out_channels(self, channels):
        if self.names is not None:
            return channels * len(self.names)
        count = getattr(self.module, "get_out_channels", None)
        return channels if count is None else count(channels)

    def __call__(self, edges, x, edge_weight, num_dst):
        """x [M, F] or [M, H, F]."""
        if self.names is None:
            return self._by_module(edges, x, edge_weight, num_dst)
        if edge_weight is None and len(self.names) > 1:
            outs = each_reduction(edges, x, self.names, num_dst)
        else:
            outs = [aggregate(edges, x, name, edge_weight, num_dst=num_dst)
                    for name in self.names]
        return outs[0] if len(outs) == 1 else torch.cat(outs, -1)

    def _by_module(self, edges, x, edge_weight, num_dst):
        graph = untraced_graph(edges, (x.size(0), num_dst))
        messages = graph.extend(x).index_select(0, graph.src)
        if edge_weight is not None:
            weight = graph.to_graph_order(edge_weight)
            messages = messages * weight.view([-1] + [1] * (x.dim() - 1))
        # nodes are the last axis but one
        return self.module(messages.transpose(0, -2), graph.dst,
                           dim_size=graph.num_dst, dim=-2).transpose(0, -2)


def _resolve(aggr, options):
    try:
        from torch_geometric.nn.resolver import aggregation_resolver
        return aggregation_resolver(aggr, **options)
    except (ImportError, ValueError) as error:
        raise ValueError(
            "aggr must be a module, one or several of "
            f"{sorted(_AGGREGATIONS)}, or what torch_geometric knows, got "
            f"{aggr!r}: {error}") from error


class _Pair(_Static):
    """A layer over (x of sources, x of destinations or None)."""

    def take_aggr(self, aggr, kwargs):
        self.reduction = _Reduction(self, aggr, kwargs)
        return self.reduction.name

    def gather(self, x, edges, size, edge_weight=None, weighted=False):
        """The reduced neighbours; weighted: whether values of an adjacency
        are edge weights."""
        shape = self.shape_of(x[0])
        sent = shape.enter(x[0])
        num_dst = self.destinations(
            edges, size, sent.size(0),
            None if x[1] is None else x[1].size(self.node_dim))
        if not weighted:
            edges = self.edges(edges)
        else:
            edges, edge_weight = self.with_values(
                self.weighted_edges(edges, edge_weight), edge_weight, x[0],
                (sent.size(0), num_dst))
        out = self.reduction(edges, sent, edge_weight, num_dst)
        if edge_weight is not None:
            out = out.to(torch.promote_types(x[0].dtype, edge_weight.dtype))
        return shape.leave(out)


class GraphConv(_Pair):
    """Sums and a node's own features   Morris et al. 2019"""

    def __init__(self, in_channels, out_channels, aggr="add", bias=True,
                 **kwargs):
        super().__init__(aggr, **kwargs)
        self.keep(locals())
        ins = pair_of(in_channels)
        self.lin_rel = Linear(ins[0], out_channels, bias)
        self.lin_root = Linear(ins[1], out_channels, False)
        self.reset_parameters()

    @first(_sum_nodes.graph_conv)
    def forward(self, x, edge_index, edge_weight=None, size=None):
        x = pair(x)
        out = self.lin_rel(self.gather(x, edge_index, size, edge_weight,
                                       weighted=True))
        return out if x[1] is None else out + self.lin_root(x[1])


class SAGEConv(_Pair):
    """Reduced neighbours and a node's own features   Hamilton et al. 2017"""

    def __init__(self, in_channels, out_channels, aggr="mean", normalize=False,
                 root_weight=True, project=False, bias=True, **kwargs):
        if aggr == "lstm":
            kwargs["aggr_kwargs"] = {
                **dict.fromkeys(("in_channels", "out_channels"),
                                pair_of(in_channels)[0]),
                **(kwargs.get("aggr_kwargs") or {})}
        super().__init__(aggr, **kwargs)
        self.keep(locals())
        ins = pair_of(in_channels)
        if project:
            if ins[0] <= 0:
                raise ValueError("'SAGEConv' does not support lazy "
                                 "initialization with `project=True`")
            self.lin = Linear(ins[0], ins[0], True)
        self.lin_l = Linear(self.reduction.out_channels(ins[0]), out_channels,
                            bias)
        if root_weight:
            self.lin_r = Linear(ins[1], out_channels, False)
        self.reset_parameters()

    @first(_sum_nodes.sage)
    def forward(self, x, edge_index, size=None):
        x = pair(x)
        if self.project:
            x = (self.lin(x[0]).relu(), x[1])
        out = self.lin_l(self.gather(x, edge_index, size))
        if self.root_weight and x[1] is not None:
            out = out + self.lin_r(x[1])
        return F.normalize(out, dim=-1) if self.normalize else out

    def __repr__(self):
        return (f"SAGEConv({self.in_channels}, {self.out_channels}, "
                f"aggr={self.aggr})")


class _OwnFeatures:
    """nn((1 + eps) x_i + the reduced neighbours), as GIN and GINE have it."""

    def start_own(self, network, eps, train_eps):
        self.nn = network
        self.initial_eps = eps
        start = torch.tensor([float(eps)])
        if train_eps:
            self.eps = nn.Parameter(start)
        else:
            self.register_buffer("eps", start)

    def reset_parameters(self):
        reset(self.nn)
        nn.init.constant_(self.eps, self.initial_eps)
        reset(getattr(self, "lin", None))

    def with_own(self, out, x):
        if x is not None:
            out = out + (1 + self.eps) * x
        return self.nn(out)

    def __repr__(self):
        return f"{type(self).__name__}(nn={self.nn})"


class GINConv(_OwnFeatures, _Pair):
    """A network of sums   Xu et al. 2019"""

    def __init__(self, nn, eps=0.0, train_eps=False, **kwargs):
        super().__init__(**kwargs)
        self.start_own(nn, eps, train_eps)
        self.reset_parameters()

    @first(_sum_nodes.gin)
    def forward(self, x, edge_index, size=None):
        x = pair(x)
        return self.with_own(self.gather(x, edge_index, size), x[1])


_NAMES = ("add", "sum", "mean", "min", "max", "std", "var")


def gated_parts(linears, k, q, v):
    """([value, key, query] of the nodes, the matrices of edge_attr by name) of
    three linear layers (key, query, value) over [nodes, edge_attr]; k, q and v
    are their node features."""
    key, query, value = linears
    nodes = [F.linear(x, linear.weight[:, :x.size(1)], linear.bias)
             for x, linear in ((v, value), (k, key), (q, query))]
    edges = dict(edge_projection=key.weight[:, k.size(1):]
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
        self._reduce = ["sum" if name == "add" else name for name in names]
        return aggr


def _joined(outs):
    return outs[0] if len(outs) == 1 else torch.cat(outs, -1)


class GINEConv(_OwnFeatures, _MessageConv):
    """A network of sums with edge features   Hu et al. 2019

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

    @first(_sum_nodes.gine)
    def forward(self, x, edge_index, edge_attr=None, size=None):
        src, dst, count = self.ends(x, edge_index, size)
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
    """Gated messages   Bresson & Laurent 2017

    The messages sigmoid(k_i + q_j + W e) (v_j + W' e) are made and reduced
    edge by edge; e are the edge features of layers with edge_dim.  With another
    act than a sigmoid, all messages [E, out_channels] are held at once.
    """

    sends_pairs = False

    def __init__(self, in_channels, out_channels, act=None, edge_dim=None,
                 root_weight=True, bias=True, **kwargs):
        super().__init__(**kwargs)
        self.keep(locals())
        self.act = nn.Sigmoid() if act is None else act
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

    def forward(self, x, edge_index, edge_attr=None):
        src, dst, count = self.ends(both(self, x), edge_index, None)
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
            out = out + self.lin_skip(dst)
        return out if self.bias is None else out + self.bias

    def _by_edge(self, edges, src, dst, edge_attr, count):
        source, target = edges.edge_index if isinstance(edges, Graph) \
            else edges

        def part(linear, nodes, index):
            width = nodes.size(1)
            out = F.linear(nodes, linear.weight[:, :width], linear.bias)
            out = out.index_select(0, index)
            return out if edge_attr is None else \
                out + edge_attr @ linear.weight[:, width:].t()
        gate = self.act(part(self.lin_key, dst, target)
                        + part(self.lin_query, src, source))
        message = gate * part(self.lin_value, src, source)
        places = torch.arange(target.size(0), dtype=target.dtype,
                              device=target.device)
        return _joined([aggregate(torch.stack([places, target]), message, name,
                                  num_dst=count) for name in self._reduce])
