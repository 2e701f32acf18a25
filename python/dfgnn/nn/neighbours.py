"""GCNConv, GraphConv, SAGEConv and GINConv, as torch_geometric.nn has them."""

import torch
from torch import nn
from torch.nn import functional as F

from ..aggregation import aggregate, gcn, spmm
from .. import ops
from .._modes import untraced
from ..convert import as_graph
from ._conv import Conv, pair
from ._linear import Linear


def _size(x, size):
    """(sources, destinations) of a pair of features."""
    if size is not None:
        return size
    return x[0].size(0), (x[0] if x[1] is None else x[1]).size(0)


@untraced
def _with_remaining_loops(edges, num_nodes, edge_weight, fill_value):
    """(Graph, weights): a loop for each node, those there were with their
    weight."""
    graph = as_graph(edges, num_nodes)
    looped = graph.with_self_loops()
    if edge_weight is None:
        return looped, None
    src, dst = graph.edge_index
    loops = (src == dst).nonzero().view(-1)
    filled = edge_weight.new_full((num_nodes,), fill_value)
    filled = filled.index_put((src[loops],), edge_weight[loops])
    return looped, torch.cat([edge_weight[looped.kept], filled])


class GCNConv(Conv):
    """Sums scaled by degrees   Kipf & Welling 2017

    Arguments, parameters and results are those of torch_geometric.nn.GCNConv.
    """

    def __init__(self, in_channels, out_channels, improved=False, cached=False,
                 add_self_loops=None, normalize=True, bias=True, **kwargs):
        super().__init__(**kwargs)
        if add_self_loops is None:
            add_self_loops = normalize
        if add_self_loops and not normalize:
            raise ValueError("'GCNConv' does not support adding self-loops to "
                             "the graph when no on-the-fly normalization is "
                             "applied")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.improved = improved
        self.cached = cached
        self.add_self_loops = add_self_loops
        self.normalize = normalize
        self._cached = self._graph = None
        self.lin = Linear(in_channels, out_channels, False, "glorot")
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_channels))
        else:
            self.register_parameter("bias", None)

    def reset_parameters(self):
        self.lin.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        self._cached = self._graph = None

    def _normalized(self, edges, num_nodes, edge_weight, dtype):
        if self._cached is not None:
            return self._cached
        if self.add_self_loops:
            graph, edge_weight = _with_remaining_loops(
                edges, num_nodes, edge_weight, 2.0 if self.improved else 1.0)
        else:
            graph = as_graph(edges, num_nodes)
        src, dst = graph.edge_index
        if edge_weight is None:
            edge_weight = torch.ones(src.numel(), dtype=dtype,
                                     device=src.device)
        degree = edge_weight.new_zeros(num_nodes).index_add(0, dst,
                                                            edge_weight)
        scale = degree.pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0)
        found = graph, scale[src] * edge_weight * scale[dst]
        if self.cached:
            self._cached = found
        return found

    def _scaled(self, graph, x):
        """Without weights the graph is enough to know the scales."""
        if self.cached and not ops.compiling():
            graph = self._graph = self._graph or as_graph(graph, x.size(0))
        return gcn(graph, self.lin(x), self.add_self_loops)

    def forward(self, x, edge_index, edge_weight=None):
        """x [N, F]; edge_index [2, E], a Graph or what dfgnn.as_graph takes;
        edge_weight [E]."""
        if isinstance(x, (tuple, list)):
            raise ValueError("'GCNConv' received a tuple of node features as "
                             "input while this layer does not support "
                             "bipartite message passing")
        graph = self.edges(edge_index)
        if self.normalize and edge_weight is None and not self.improved \
                and self._cached is None:
            out = self._scaled(graph, x)
        else:
            if self.normalize:
                graph, edge_weight = self._normalized(graph, x.size(0),
                                                      edge_weight, x.dtype)
            out = spmm(graph, self.lin(x), edge_weight)
        return out if self.bias is None else out + self.bias

    def __repr__(self):
        return f"GCNConv({self.in_channels}, {self.out_channels})"


class _Pair(Conv):
    """A layer over (x of sources, x of destinations or None)."""

    reductions = ("add", "sum", "mean", "min", "max")

    def __init__(self, aggr="add", **kwargs):
        super().__init__(**kwargs)
        if aggr not in self.reductions:
            raise ValueError(f"aggr must be one of {self.reductions}, got "
                             f"{aggr!r}")
        self.aggr = aggr

    def gather(self, x, edges, size, edge_weight=None):
        graph, size = self.edges(edges), _size(x, size)
        if edge_weight is None:
            return aggregate(graph, x[0], self.aggr, num_dst=size[1])
        out = spmm(graph, x[0], edge_weight, num_dst=size[1])
        if self.aggr in ("add", "sum"):
            return out
        raise ValueError("edge_weight goes with aggr='add', got "
                         f"{self.aggr!r}")


class GraphConv(_Pair):
    """torch_geometric.nn.GraphConv   Morris et al. 2019"""

    def __init__(self, in_channels, out_channels, aggr="add", bias=True,
                 **kwargs):
        super().__init__(aggr, **kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        ins = pair_of(in_channels)
        self.lin_rel = Linear(ins[0], out_channels, bias)
        self.lin_root = Linear(ins[1], out_channels, False)

    def reset_parameters(self):
        self.lin_rel.reset_parameters()
        self.lin_root.reset_parameters()

    def forward(self, x, edge_index, edge_weight=None, size=None):
        x = pair(x)
        out = self.lin_rel(self.gather(x, edge_index, size, edge_weight))
        return out if x[1] is None else out + self.lin_root(x[1])

    def __repr__(self):
        return f"GraphConv({self.in_channels}, {self.out_channels})"


class SAGEConv(_Pair):
    """torch_geometric.nn.SAGEConv   Hamilton et al. 2017"""

    def __init__(self, in_channels, out_channels, aggr="mean", normalize=False,
                 root_weight=True, project=False, bias=True, **kwargs):
        super().__init__(aggr, **kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.normalize = normalize
        self.root_weight = root_weight
        self.project = project
        ins = pair_of(in_channels)
        if project:
            self.lin = Linear(ins[0], ins[0], True)
        self.lin_l = Linear(ins[0], out_channels, bias)
        if root_weight:
            self.lin_r = Linear(ins[1], out_channels, False)

    def reset_parameters(self):
        for child in self.children():
            child.reset_parameters()

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


class GINConv(_Pair):
    """torch_geometric.nn.GINConv   Xu et al. 2019"""

    def __init__(self, nn, eps=0.0, train_eps=False, **kwargs):
        super().__init__(**kwargs)
        self.nn = nn
        self.initial_eps = eps
        start = torch.tensor([float(eps)])
        if train_eps:
            self.eps = torch.nn.Parameter(start)
        else:
            self.register_buffer("eps", start)

    def reset_parameters(self):
        with torch.no_grad():
            self.eps.fill_(self.initial_eps)
        for module in self.nn.modules():
            if module is not self.nn and hasattr(module, "reset_parameters"):
                module.reset_parameters()

    def forward(self, x, edge_index, size=None):
        x = pair(x)
        out = self.gather(x, edge_index, size)
        if x[1] is not None:
            out = out + (1 + self.eps) * x[1]
        return self.nn(out)

    def __repr__(self):
        return f"GINConv(nn={self.nn})"


def pair_of(channels):
    return (channels, channels) if isinstance(channels, int) else channels
