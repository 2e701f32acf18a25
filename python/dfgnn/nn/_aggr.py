"""The argument aggr of a layer, which reduces its neighbours: a name, a list of
names, or a module, such as torch_geometric.nn.aggr has them."""

import torch
from torch import nn

from .._torch_library import untraced_graph
from ..aggregation import REDUCTIONS, aggregate, each_reduction

_NAMES = {"add", "sum"} | set(REDUCTIONS) - {"pna"}


class Reduction:
    """The argument aggr of a layer; a module becomes its aggr_module, whose
    parameters are those of the layer."""

    def __init__(self, layer, aggr, kwargs):
        options = kwargs.pop("aggr_kwargs", None) or {}
        several = isinstance(aggr, (tuple, list))
        names = list(aggr) if several else [aggr]
        known = _NAMES - {"median"} if several else _NAMES
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
