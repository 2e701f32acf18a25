"""HeteroConv: relations whose layers do the same go through the kernels
together, each of the others by itself."""

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.nn.conv import hetero_conv as theirs

from ... import _fallbacks, ops
from ...errors import InvalidError
from ...hetero import hetero_graph
from .._guards import _GLOBAL_HOOKS, Other, surroundings
from .._linear import hooked
from ._edges import edge_tensor, graph_of, known
from ._hetero_kinds import KINDS, Relation
from ._mixin import Fused, _say, fits, obstacle


# ---- who goes together ------------------------------------------------------

def apart(layer):
    """Why a layer's relation goes by itself, or None."""
    base = type(layer).__dict__.get("_dfgnn_base")
    kind = KINDS.get(base)
    if kind is None:
        name = type(layer).__name__
        if base is pyg.GATv2Conv:
            return f"{name} scores with a vector of each relation's own"
        return f"{name} is none of the layers that go together (" + ", ".join(
            k.__name__ for k in KINDS) + ")"
    reason = obstacle(layer) or kind.reason(layer)
    if reason is None and hooked(layer):
        reason = "a hook looks at it"
    if reason is None and (layer.flow != "source_to_target"
                           or layer.node_dim not in (-2, 0)):
        reason = "its messages flow to sources, or nodes are on another axis"
    return reason and f"{type(layer).__name__}: {reason}"


def described(layers):
    """What the report of accelerate() says of layers by relation: who goes
    together as far as the layers alone say, and who does not and why."""
    together, reasons = {}, {}
    for key, layer in layers.items():
        reason = apart(layer)
        if reason is not None:
            reasons.setdefault(reason, []).append(key)
            continue
        base = type(layer)._dfgnn_base
        together.setdefault((base, KINDS[base].settings(layer)),
                            []).append(key)
    parts = []
    for (base, _), keys in together.items():
        if len(keys) > 1:
            parts.append(f"{len(keys)} {base.__name__} in one pass")
        else:
            reasons.setdefault(f"no other layer is a {base.__name__} of its "
                               "settings", []).append(keys[0])
    return "; ".join(parts + [
        f"{', '.join(' '.join(map(str, key)) for key in keys)} one by one "
        f"({reason})" for reason, keys in reasons.items()])


# ---- a call -----------------------------------------------------------------

def _calls(module, x_dict, edge_index_dict, kwargs):
    """[(relation, layer, arguments)] as PyG's HeteroConv makes them."""
    found = []
    for key, layer in module.convs.items():
        if key not in edge_index_dict:
            if any(key in given for given in kwargs.values()):
                raise Other  # PyG calls it without edges
            continue
        src, _, dst = key
        if src not in x_dict or dst not in x_dict:
            raise Other
        for given in kwargs.values():
            if src in given or dst in given:
                raise Other  # an argument by nodes
        own_kwargs = {name[:-5]: given[key] for name, given in kwargs.items()
                      if key in given}
        found.append((key, layer, x_dict[src], x_dict[dst],
                      edge_index_dict[key], own_kwargs))
    return found


def _mergeable(call):
    """The Relation of a call, or None if it goes by itself."""
    key, layer, src, dst, edges, kwargs = call
    if apart(layer) is not None or not known(edges) \
            or not isinstance(edges, Tensor) or not fits(src, dst) \
            or src.dim() != 2 or dst.dim() != 2 or src.dtype != dst.dtype:
        return None
    edge_attr = kwargs.get("edge_attr")
    if set(kwargs) - {"edge_attr"} or edge_attr is not None and (
            type(layer)._dfgnn_base is not pyg.GATConv
            or not fits(edge_attr) or edge_attr.dim() > 2):
        return None
    if getattr(layer, "add_self_loops", False):
        edges = edge_tensor(graph_of(
            layer, edges, src.size(0), dst.size(0)).with_self_loops())
    return Relation(key, layer, src, dst, edges, edge_attr)


def _run_group(relations, summed):
    nodes, x = {}, {}
    for r in relations:
        source, _, destination = r.key
        x[source], x[destination] = r.src, r.dst
        at = nodes.setdefault(source, [0, 0])
        at[0] = r.src.size(0)
        at = nodes.setdefault(destination, [0, 0])
        at[1] = r.dst.size(0)
    graph = hetero_graph({r.key: r.edges for r in relations},
                         {kind: tuple(n) for kind, n in nodes.items()})
    if not graph.num_edges:
        raise Other
    kind = KINDS[type(relations[0].layer)._dfgnn_base]
    return kind.run(graph, x, relations, summed)


def _grouped(calls):
    """(groups of Relations of two and more, calls that go by themselves)."""
    together, alone = {}, []
    for call in calls:
        found = _mergeable(call)
        if found is None:
            alone.append(call)
            continue
        base = type(found.layer)._dfgnn_base
        key = (base, KINDS[base].settings(found.layer), found.src.dtype,
               found.src.device, found.src.size(1), found.dst.size(1),
               found.edges.dtype)
        together.setdefault(key, []).append((call, found))
    groups = []
    for group in together.values():
        if len(group) > 1:
            groups.append([found for _, found in group])
        else:
            alone.append(group[0][0])
    return groups, alone


def run_calls(calls, summed, by_type, by_relation):
    """Runs (relation, layer, features of sources, of destinations, edges,
    arguments): what goes together is added to by_type if summed, else, like
    what goes by itself, put into by_relation.  Returns the reason why nothing
    goes together, or None."""
    try:
        groups, alone = _grouped(calls)
        if not groups:
            return "no two of its layers go together"
        for group in groups:
            found = _run_group(group, summed)
            for key, part in found.items() if summed else ():
                by_type[key] = by_type[key] + part if key in by_type else part
            if not summed:
                by_relation.update(found)
    except (Other, InvalidError, ValueError) as error:
        # what is wrong with the edges PyG's layers say themselves
        by_type.clear()
        return str(error) or "a layer's parameters are not PyG's, or a hook " \
            "looks at them"
    for key, layer, src, dst, edges, own_kwargs in alone:
        x = src if key[0] == key[-1] else (src, dst)
        by_relation[key] = layer(x, edges, **own_kwargs)
    return None


def _forward(module, x_dict, edge_index_dict, kwargs):
    """The dict of results, or the reason why layers go one by one."""
    try:
        calls = _calls(module, x_dict, edge_index_dict, kwargs)
    except Other:
        return "it is called with features or edges that are not there, or " \
            "arguments by nodes"
    summed = module.aggr in ("sum", "mean")
    by_type, by_relation = {}, {}
    reason = run_calls(calls, summed, by_type, by_relation)
    if reason is not None:
        return reason
    outs = {}
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


def obstacle_of():
    """What is around a call that makes it go relation by relation, or
    None."""
    if ops.compiling():
        return "torch.compile traces"
    if any(_GLOBAL_HOOKS) or torch.is_anomaly_enabled():
        return "something watches modules"
    return surroundings()


def _obstacle(args, kwargs):
    """Why a call goes relation by relation, or None."""
    if len(args) != 2 or not all(isinstance(a, dict) for a in args):
        return "it is called with other arguments than x_dict and " \
            "edge_index_dict"
    if not all(name in ("edge_attr_dict", "edge_weight_dict")
               and isinstance(given, dict) for name, given in kwargs.items()):
        return "its layers get other arguments than features of edges"
    return obstacle_of()


class HeteroConv(pyg.HeteroConv):
    __doc__ = pyg.HeteroConv.__doc__
    _dfgnn_base = pyg.HeteroConv

    def forward(self, *args_dict, **kwargs_dict):
        reason = _obstacle(args_dict, kwargs_dict)
        if reason is None:
            found = _forward(self, *args_dict, kwargs_dict)
            if isinstance(found, dict):
                return found
            reason = found
        if not ops.compiling():
            _say(type(self).__name__, reason)
            _fallbacks.note(self, reason)
        return super().forward(*args_dict, **kwargs_dict)


HeteroConv.__module__ = Fused.__module__.rpartition(".")[0]
