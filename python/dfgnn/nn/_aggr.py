"""The argument aggr of a layer, which reduces its neighbours: a name, a list of
names, or a module, such as torch_geometric.nn.aggr has them."""

import torch
from torch import nn

from .._torch_library import untraced_graph
from ..aggregation import REDUCTIONS, aggregate, each_reduction

_NAMES = {"add", "sum"} | set(REDUCTIONS) - {"pna"}


class _Median(nn.Module):
    """The buffer that a median has in PyG's state_dict."""

    def __init__(self):
        super().__init__()
        self.register_buffer("q", torch.tensor([0.5]).view(-1, 1))

    def reset_parameters(self):
        """Nothing is drawn."""

    def __repr__(self):
        return "MedianAggregation()"


class Reduction:
    """The argument aggr of a layer; a module becomes its aggr_module, whose
    parameters are those of the layer."""

    def __init__(self, layer, aggr, kwargs):
        options = kwargs.pop("aggr_kwargs", None) or {}
        self.names = self.module = None
        if isinstance(aggr, (tuple, list)):
            self.name = [str(a) for a in aggr]
            if len(aggr) and not options and \
                    all(isinstance(a, str) and a in _NAMES - {"median"}
                        for a in aggr):
                self.names = list(aggr)
        else:
            self.name = str(aggr)
            if isinstance(aggr, nn.Module):
                self.module = aggr
            elif aggr in _NAMES and not options:
                self.names = [aggr]
                if aggr == "median":
                    layer.aggr_module = _Median()
        if self.names is None:
            if self.module is None:
                self.module = _resolve(aggr, options)
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
        if len(self.names) == 1:
            return aggregate(edges, x, self.names[0], edge_weight,
                             num_dst=num_dst)
        if edge_weight is None:
            outs = each_reduction(edges, x, self.names, num_dst)
        else:
            outs = [aggregate(edges, x, name, edge_weight, num_dst=num_dst)
                    for name in self.names]
        return torch.cat(outs, -1)

    def _by_module(self, edges, x, edge_weight, num_dst):
        graph = untraced_graph(edges, (x.size(0), num_dst))
        messages = graph.extend(x).index_select(0, graph.src)
        if edge_weight is not None:
            weight = graph.to_graph_order(edge_weight)
            messages = messages * weight.view([-1] + [1] * (x.dim() - 1))
        if x.dim() == 2:
            return self.module(messages, graph.dst, dim_size=graph.num_dst,
                               dim=-2)
        out = self.module(messages.transpose(0, 1), graph.dst,
                          dim_size=graph.num_dst, dim=-2)
        return out.transpose(0, 1)


def _resolve(aggr, options):
    try:
        from torch_geometric.nn.resolver import aggregation_resolver
    except ImportError as error:
        raise ValueError(
            f"aggr must be a module, or one or several of {sorted(_NAMES)}; "
            f"{aggr!r} needs torch_geometric") from error
    try:
        return aggregation_resolver(aggr, **options)
    except ValueError as error:
        raise ValueError(f"aggr must be a module, one or several of "
                         f"{sorted(_NAMES)}, or what torch_geometric knows, "
                         f"got {aggr!r}: {error}") from error
