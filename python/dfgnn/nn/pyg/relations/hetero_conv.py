"""HeteroConv: relations whose layers do the same go through the kernels
together, each of the others by itself."""

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch_geometric.nn.conv import hetero_conv as theirs

from ...._checks import DTYPES
from ...._fallbacks import own_path
from ...._guard import guarded
from ...._modes import autocast_dtype, compiling, constant
from ...._relations import operator
from ....hetero import HeteroGraph
from ..._node import Other
from .._mixin import Fused
from .._reduce import reductions
from . import shares, sums
from .calls import Call, added, group_key, kind_of, one_by_one, run_calls
from .rows import Features


def _calls(module, x, edge_index_dict, more, kwargs):
    """The Calls that PyG's HeteroConv makes of Features; more: further dicts
    by relation."""
    calls, further = [], (*more, *kwargs.values())
    for key, layer in module.convs.items():
        src, _, dst = key
        by_nodes = any(src in by_key or dst in by_key for by_key in further)
        if key not in edge_index_dict and not any(
                key in by_key for by_key in further):
            continue
        if key not in edge_index_dict or by_nodes or src not in x.src \
                or dst not in x.dst:
            raise Other("it is called with features or edges that are not "
                        "there, or arguments by nodes")
        calls.append(Call(
            key, layer, x.src[src], x.dst[dst], edge_index_dict[key],
            tuple(by_key[key] for by_key in more if key in by_key),
            {name[:-5]: by_key[key] for name, by_key in kwargs.items()
             if key in by_key}))
    return calls


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
               and isinstance(value, dict) for name, value in kwargs.items()):
        raise Other("its layers get other arguments than features of edges")
    x_dict, edge_index_dict, *more = args
    return _run(module, _calls(module, Features(x_dict, x_dict),
                               edge_index_dict, more, kwargs))


# ---- while torch.compile traces ----------------------------------------------
#
# Sums of neighbours over all relations that end at a type of nodes are one
# operator, and the linear layers around it are torch's, which the compiler joins
# with what stands beside them.  Types that no loss reads are left out by the
# compiler, which an operator over all types would not let it do.

def _fits(x_dict, edges, keys):
    kinds = {end for key in keys for end in (key[0], key[2])}
    if not keys or any(kind not in x_dict for kind in kinds):
        return False
    first = x_dict[keys[0][0]]
    return first.dim() == 2 and first.dtype in DTYPES and \
        first.size(1) > 0 and autocast_dtype(first.device.type) is None \
        and all(x_dict[kind].dim() == 2 and x_dict[kind].dtype == first.dtype
                and x_dict[kind].device == first.device
                and x_dict[kind].size(1) == first.size(1) for kind in kinds) \
        and all(isinstance(edges[key], torch.Tensor)
                and edges[key].dim() == 2
                and edges[key].layout == torch.strided for key in keys)


def _traced(module, x_dict, edges):
    """The dict of results, or None where layers go one by one."""
    keys = [key for key in module.convs.keys() if key in edges]
    plan = module._dfgnn_plan()
    if plan is None or not _fits(x_dict, edges, keys):
        return None
    return {kind: _of_type(module, x_dict, edges, kind, [
        key for key in keys if key[2] == kind], *plan)
        for kind in dict.fromkeys(key[2] for key in keys)}


def _of_type(module, x_dict, edges, kind, keys, op, of_sums, of_own):
    """The result of a type of nodes, from its relations."""
    kinds = list(dict.fromkeys(end for key in keys
                               for end in (key[0], key[2])))
    number = {kind: n for n, kind in enumerate(kinds)}
    reduced = operator.sums(
        [x_dict[kind] for kind in kinds], [edges[key] for key in keys],
        [number[end] for key in keys for end in (key[0], key[2])], op)
    layers = [module.convs[key] for key in keys]
    out = _linear_of(layers, of_sums, reduced.view(
        x_dict[kind].size(0), len(layers) * reduced.size(1)), 1)
    root_layers = [layer for layer in layers if hasattr(layer, of_own)]
    if root_layers:
        out = out + _linear_of(root_layers, of_own, x_dict[kind], None)
    return out / len(layers) if module.aggr == "mean" and \
        len(layers) > 1 else out


def _linear_of(layers, name, rows, dim):
    """The sum of linear layers: of one input, or side by side along dim."""
    linears = [getattr(layer, name) for layer in layers]
    weights = [linear.weight for linear in linears]
    biases = [linear.bias for linear in linears if linear.bias is not None]
    weight = sum(weights[1:], weights[0]) if dim is None \
        else torch.cat(weights, dim)
    return F.linear(rows, weight, sum(biases[1:], biases[0])
                    if biases else None)


class HeteroConv(pyg.HeteroConv):
    __doc__ = pyg.HeteroConv.__doc__
    _dfgnn_base = pyg.HeteroConv

    @constant
    def _dfgnn_plan(self):
        """(operator, linear layer of sums, of own features) if all layers do
        the same and can go together; else None."""
        layers = list(self.convs.values())
        keys = set(map(group_key, layers))
        if len(keys) != 1 or None in keys or self.aggr not in ("sum", "mean"):
            return None
        first = layers[0]
        linears = kind_of(type(first)).linears(first)
        op = sums.operator(reductions(first.aggr_module), None)
        if not linears or op not in ("spmm-sum", "spmm-mean"):
            return None
        if any(type(layer._modules.get(name)) is not pyg.Linear for layer in
               layers for name in linears if name in layer._modules):
            return None
        return op, *linears

    @guarded
    def forward(self, *args_dict, **kwargs_dict):
        if len(args_dict) > 1 and isinstance(args_dict[1], HeteroGraph):
            return _on_graph(self, kwargs_dict, *args_dict)
        if compiling():
            result = None
            if len(args_dict) == 2 and not kwargs_dict:
                result = _traced(self, *args_dict)
            return super().forward(*args_dict, **kwargs_dict) \
                if result is None else result
        try:
            return _forward(self, kwargs_dict, args_dict)
        except Other as reason:
            own_path(self, str(reason))
        return super().forward(*args_dict, **kwargs_dict)


HeteroConv.__module__ = Fused.__module__.rpartition(".")[0]
