"""HeteroConv: relations whose layers do the same go through the kernels
together, each of the others by itself."""

import torch_geometric.nn as pyg
from torch_geometric.nn.conv import hetero_conv as theirs

from ... import _fallbacks, ops
from ..._guard import guarded
from ..._modes import constant
from ...hetero import HeteroGraph
from .. import _together
from .._guards import Other
from .._relations import Features
from .._together import Call, watched
from . import _hetero_compiled, _shares
from ._hetero_library import LIBRARY, alone
from ._mixin import Fused, _say


# ---- a call -----------------------------------------------------------------

def _calls(module, x, edge_index_dict, more, kwargs):
    """The Calls that PyG's HeteroConv makes of Features; more: further dicts
    by relation."""
    found, further = [], (*more, *kwargs.values())
    for key, layer in module.convs.items():
        if key not in edge_index_dict:
            if any(key in given for given in further):
                raise Other  # PyG calls it without edges
            continue
        src, _, dst = key
        if src not in x.src or dst not in x.dst:
            raise Other
        by_place, by_name = (), {}
        if further:
            if any(src in given or dst in given for given in further):
                raise Other  # an argument by nodes
            by_place = tuple(given[key] for given in more if key in given)
            by_name = {name[:-5]: given[key] for name, given in
                       kwargs.items() if key in given}
        found.append(Call(key, layer, x.src[src], x.dst[dst],
                          edge_index_dict[key], by_place, by_name))
    return found


def _forward(module, kwargs, x_dict, edge_index_dict, *more):
    """The dict of results, or the reason why layers go one by one."""
    try:
        calls = _calls(module, Features(x_dict, x_dict), edge_index_dict,
                       more, kwargs)
    except Other:
        return "it is called with features or edges that are not there, or " \
            "arguments by nodes"
    summed = module.aggr in ("sum", "mean")
    by_type, by_relation = {}, {}
    reason = _together.run_calls(LIBRARY, module, calls, summed, by_type,
                                 by_relation)
    if reason is not None:
        return reason
    return _reduced(module, calls, by_type, by_relation)


def _reduced(module, calls, by_type, by_relation):
    """The dict of results of what run_calls() gave."""
    summed, outs = module.aggr in ("sum", "mean"), {}
    for key, *_ in calls:
        outs.setdefault(key[-1], []).append(key)
    for kind, keys in outs.items():
        parts = [by_relation[key] for key in keys if key in by_relation]
        if not summed:
            outs[kind] = theirs.group(parts, module.aggr)
            continue
        total = by_type.get(kind)
        for part in parts:
            total = part if total is None else total + part
        outs[kind] = total if module.aggr == "sum" or len(keys) == 1 \
            else total / len(keys)
    return outs


def _on_graph(module, kwargs, x_dict, graph, *more):
    """The dict of results over a HeteroGraph, which may be a rank's share of
    one."""
    x = Features(graph.extend(x_dict), x_dict)
    try:
        calls = _shares.normalized(graph, _calls(
            module, x, graph.edges_by_relation(), more, kwargs))
    except Other:
        raise ValueError("x_dict has no features of a type that a relation "
                         "begins or ends at, or an argument is by nodes"
                         ) from None
    summed, by_type, by_relation = module.aggr in ("sum", "mean"), {}, {}
    reason = watched()
    if reason is None:
        reason = _together.run_calls(LIBRARY, module, calls, summed, by_type,
                                     by_relation)
    if reason is not None:
        _say(type(module).__name__, reason)
        by_relation = {call.key: alone(call) for call in calls}
    # gradients of the halo go back from a rank without edges, too
    none = sum(part[:0].sum() for part in x.src.values())
    return {kind: out + none for kind, out in _reduced(
        module, calls, by_type, by_relation).items()}


def _obstacle(args, kwargs):
    """Why a call goes relation by relation, or None."""
    if not 2 <= len(args) <= 3 or not all(isinstance(a, dict) for a in args):
        return "it is called with other arguments than x_dict, " \
            "edge_index_dict and features of edges"
    if not all(name in ("edge_attr_dict", "edge_weight_dict")
               and isinstance(given, dict) for name, given in kwargs.items()):
        return "its layers get other arguments than features of edges"
    return watched()


class HeteroConv(pyg.HeteroConv):
    __doc__ = pyg.HeteroConv.__doc__
    _dfgnn_base = pyg.HeteroConv

    @constant
    def _dfgnn_plan(self):
        """What torch.compile takes as a constant."""
        return _hetero_compiled.plan(self)

    @guarded
    def forward(self, *args_dict, **kwargs_dict):
        if len(args_dict) > 1 and isinstance(args_dict[1], HeteroGraph):
            return _on_graph(self, kwargs_dict, *args_dict)
        if ops.compiling() and len(args_dict) == 2 and not kwargs_dict:
            found = _hetero_compiled.forward(self, *args_dict)
            if found is not None:
                return found
        reason = _obstacle(args_dict, kwargs_dict)
        if reason is None:
            found = _forward(self, kwargs_dict, *args_dict)
            if isinstance(found, dict):
                return found
            reason = found
        if not ops.compiling():
            _say(type(self).__name__, reason)
            _fallbacks.note(self, reason)
        return super().forward(*args_dict, **kwargs_dict)


HeteroConv.__module__ = Fused.__module__.rpartition(".")[0]
