"""HeteroConv: relations whose layers do the same go through the kernels
together, each of the others by itself."""

import torch_geometric.nn as pyg
from torch_geometric.nn.conv import hetero_conv as theirs

from ...._fallbacks import own_path
from ...._guard import guarded
from ...._modes import compiling, constant
from ....hetero import HeteroGraph
from ..._node import Other
from .._mixin import Fused
from . import compiled, shares
from .calls import Call, added, one_by_one, run_calls
from .rows import Features


def _calls(module, x, edge_index_dict, more, kwargs):
    """The Calls that PyG's HeteroConv makes of Features; more: further dicts
    by relation."""
    found, further = [], (*more, *kwargs.values())
    for key, layer in module.convs.items():
        src, _, dst = key
        by_nodes = any(src in given or dst in given for given in further)
        if key not in edge_index_dict and not any(
                key in given for given in further):
            continue
        if key not in edge_index_dict or by_nodes or src not in x.src \
                or dst not in x.dst:
            raise Other("it is called with features or edges that are not "
                        "there, or arguments by nodes")
        found.append(Call(
            key, layer, x.src[src], x.dst[dst], edge_index_dict[key],
            tuple(given[key] for given in more if key in given),
            {name[:-5]: given[key] for name, given in kwargs.items()
             if key in given}))
    return found


def _reduced(module, calls, by_type, by_relation):
    """The dict of results of what run_calls() gave."""
    parts = {}
    for call in calls:
        parts.setdefault(call.key[2], []).append(by_relation.get(call.key))
    if module.aggr not in ("sum", "mean"):
        return {kind: theirs.group(outs, module.aggr)
                for kind, outs in parts.items()}
    return {kind: out if module.aggr == "sum" or len(parts[kind]) == 1
            else out / len(parts[kind])
            for kind, out in added(calls, by_type, by_relation).items()}


def _run(module, calls):
    return _reduced(module, calls, *run_calls(
        module, calls, module.aggr in ("sum", "mean")))


def _on_graph(module, kwargs, x_dict, graph, *more):
    """The dict of results over a HeteroGraph, which may be a rank's share of
    one."""
    x = Features(graph.extend(x_dict), x_dict)
    try:
        calls = shares.normalized(graph, _calls(
            module, x, graph.edges_by_relation(), more, kwargs))
    except Other as error:
        raise ValueError(str(error)) from None
    try:
        outs = _run(module, calls)
    except Other as reason:
        own_path(module, str(reason))
        outs = _reduced(module, calls, {}, one_by_one(calls))
    # gradients of the halo go back from a rank without edges, too
    none = sum(part[:0].sum() for part in x.src.values())
    return {kind: out + none for kind, out in outs.items()}


def _forward(module, kwargs, args):
    """The dict of results; raises Other with the reason why layers go one by
    one."""
    if not 2 <= len(args) <= 3 or not all(isinstance(a, dict) for a in args):
        raise Other("it is called with other arguments than x_dict, "
                    "edge_index_dict and features of edges")
    if not all(name in ("edge_attr_dict", "edge_weight_dict")
               and isinstance(given, dict) for name, given in kwargs.items()):
        raise Other("its layers get other arguments than features of edges")
    x_dict, edge_index_dict, *more = args
    return _run(module, _calls(module, Features(x_dict, x_dict),
                               edge_index_dict, more, kwargs))


class HeteroConv(pyg.HeteroConv):
    __doc__ = pyg.HeteroConv.__doc__
    _dfgnn_base = pyg.HeteroConv

    @constant
    def _dfgnn_plan(self):
        """The values that torch.compile takes as constants."""
        return compiled.plan(self)

    @guarded
    def forward(self, *args_dict, **kwargs_dict):
        if len(args_dict) > 1 and isinstance(args_dict[1], HeteroGraph):
            return _on_graph(self, kwargs_dict, *args_dict)
        if compiling():
            found = None
            if len(args_dict) == 2 and not kwargs_dict:
                found = compiled.forward(self, *args_dict)
            return super().forward(*args_dict, **kwargs_dict) \
                if found is None else found
        try:
            return _forward(self, kwargs_dict, args_dict)
        except Other as reason:
            own_path(self, str(reason))
        return super().forward(*args_dict, **kwargs_dict)


HeteroConv.__module__ = Fused.__module__.rpartition(".")[0]
