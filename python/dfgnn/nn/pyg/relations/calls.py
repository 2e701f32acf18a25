"""Calls of layers, one for each relation: those that do the same go through
the kernels together, see layers.py, each of the others by itself."""

import operator
import weakref
from typing import NamedTuple

import torch
from torch import Tensor

from ...._modes import compiling
from ....errors import InvalidError
from ....hetero import hetero_graph
from ..._linear import hooked
from ..._node import _GLOBAL_HOOKS, Other, surroundings
from .._edges import known
from .._mixin import Fused, fits, own_obstacle
from . import shares
from .rows import Features


class Call(NamedTuple):
    """A call of a layer: the relation, the features of its sources and of its
    destinations, its edges, further arguments by place and by name; of one that
    can go together with others, a Relation, edges is its edge_index, and its
    features and weights are those of the edges."""
    key: tuple
    layer: torch.nn.Module
    src: Tensor
    dst: Tensor
    edges: object
    more: tuple
    kwargs: dict
    edge_attr: Tensor | None = None
    edge_weight: Tensor | None = None

    def alone(self):
        """The layer's own result."""
        if type(self.edges) is shares.Normalized:
            return shares.alone(self)
        single = self.key[0] == self.key[2] and self.src is self.dst
        return self.layer(self.src if single else (self.src, self.dst),
                          self.edges, *self.more, **self.kwargs)


def kind_of(kind):
    """How the layers of a class go together, or None; the class is one with
    kernels, and no class that a user derives from it."""
    return vars(kind).get("_dfgnn_relation")


def _obstacle(layer):
    """Why a layer's relation goes by itself, whatever is around the call, or
    None."""
    kind = kind_of(type(layer))
    if kind is None:
        return (f"{type(layer).__name__} is none of the layers that go "
                "together (" + ", ".join(
                    k.__name__ for k in Fused.__subclasses__()
                    if kind_of(k)) + ")")
    reason = own_obstacle(layer) or kind.reason(layer)
    if reason is None and hooked(layer):
        reason = "a hook looks at it"
    if reason is None and (layer.flow != "source_to_target"
                           or layer.node_dim not in (-2, 0)):
        reason = "its messages flow to sources, or nodes are on another axis"
    return reason and f"{type(layer).__name__}: {reason}"


def group_key(layer):
    """(class, settings) of a layer that can go together with others, or
    None."""
    if _obstacle(layer) is not None:
        return None
    return type(layer), kind_of(type(layer)).settings(layer)


def described(layers):
    """The text in the report of accelerate() for layers by relation: who goes
    together as far as the layers alone say, and who does not and why."""
    together, reasons = {}, {}
    for key, layer in layers.items():
        reason = _obstacle(layer)
        if reason is not None:
            reasons.setdefault(reason, []).append(key)
        else:
            together.setdefault(group_key(layer), []).append(key)
    parts = []
    for (kind, _), keys in together.items():
        if len(keys) > 1:
            parts.append(f"{len(keys)} {kind.__name__} in one pass")
        else:
            reasons.setdefault(f"no other layer is a {kind.__name__} of its "
                               "settings", []).append(keys[0])
    return "; ".join(parts + [
        ", ".join(key if isinstance(key, str) else " ".join(map(str, key))
                  for key in keys) + f" one by one ({reason})"
        for reason, keys in reasons.items()])


class _Watch:
    """Tells whether layers are as they were.

    Asking twenty layers for their options, hooks and parameters takes longer
    than some training steps' products: the attributes of the layers and of
    their modules are compared instead, and the dictionaries among these, which
    hold hooks, parameters and modules.
    """

    def __init__(self, layers):
        self._modules = [module for layer in layers
                         for module in layer.modules()]
        self._types = list(map(type, self._modules))
        states = list(map(vars, self._modules))
        self._live = states + [value for state in states
                               for value in state.values()
                               if isinstance(value, dict)]
        self._before = [attributes.copy() for attributes in self._live]

    def holds(self):
        try:
            # attributes are compared by identity first, as dicts do
            return self._live == self._before and \
                list(map(type, self._modules)) == self._types
        except (RuntimeError, ValueError, TypeError):
            return False  # another tensor or array, which has no truth


_kept_keys = weakref.WeakKeyDictionary()  # by owner: (layers, _Watch, keys)


def _group_keys(owner, layers):
    """[group_key(layer)], kept with owner while the layers are the same and as
    they were."""
    before, watch, keys = _kept_keys.get(owner, ((), None, None))
    if watch is None or len(before) != len(layers) or \
            not all(map(operator.is_, before, layers)) or not watch.holds():
        keys = [group_key(layer) for layer in layers]
        _kept_keys[owner] = layers, _Watch(layers), keys
    return keys


def _relation(call):
    """The Relation of a call of a layer that can go together with others, or
    None if this call goes by itself."""
    layer, src, dst, edges, more, kwargs = call[1:7]
    ready = edges if type(edges) is shares.Normalized else None
    if ready is not None:
        edges = ready.edges
    if not known(edges) \
            or not isinstance(edges, Tensor) \
            or src is None or dst is None or not fits(src, dst) \
            or src.dim() != 2 or dst.dim() != 2 or src.dtype != dst.dtype:
        return None
    kind = kind_of(type(layer))
    kwargs = {**dict(zip(kind.takes[:1], more)), **kwargs}
    if len(more) > len(kind.takes[:1]) or set(kwargs) - set(kind.takes):
        return None
    attr, weight = kwargs.get("edge_attr"), kwargs.get("edge_weight")
    if not fits(attr, weight) or attr is not None and (
            attr.dim() > 2 or attr.size(0) != edges.size(1)):
        return None
    if weight is not None and (
            weight.dim() != 1 or weight.numel() != edges.size(1)
            or weight.dtype != src.dtype):
        return None
    if ready is not None:
        return call._replace(edges=edges, edge_weight=ready.weight)
    try:
        return kind.prepared(call._replace(edge_attr=attr, edge_weight=weight))
    except Other:
        return None


def _grouped(owner, calls):
    """(groups of Relations of two and more, Calls that go by themselves)."""
    together, alone = {}, []
    for call, group in zip(calls, _group_keys(
            owner, [call.layer for call in calls])):
        relation = None if group is None else _relation(call)
        if relation is None:
            alone.append(call)
            continue
        key = (*group, relation.src.dtype, relation.src.device,
               relation.src.size(1), relation.dst.size(1),
               relation.edges.dtype)
        together.setdefault(key, []).append((call, relation))
    groups = []
    for group in together.values():
        if len(group) > 1:
            groups.append([relation for _, relation in group])
        else:
            alone.append(group[0][0])
    return groups, alone


def _run_group(relations, summed):
    """By type of destination the sum over the relations if summed, else by
    relation its result."""
    x, sizes = Features({}, {}), {}
    for relation in relations:
        for side, kind, rows in ((0, relation.key[0], relation.src),
                                 (1, relation.key[2], relation.dst)):
            # relations share the features of a type
            if x[side].setdefault(kind, rows) is not rows:
                raise Other(f"two relations read other features of {kind}")
            sizes.setdefault(kind, [0, 0])[side] = rows.size(0)
    graph = hetero_graph({r.key: r.edges for r in relations}, {
        kind: tuple(size) for kind, size in sizes.items()})
    if not graph.num_edges:
        raise Other("it has no edges")
    return kind_of(type(relations[0].layer)).run(graph, x, relations, summed)


def run_calls(owner, calls, summed):
    """(by type the sums of what went together, if summed; by relation the
    results of the rest) of Calls of the layers of a module; raises Other with
    the reason where nothing goes together."""
    reason = _watched()
    if reason is not None:
        raise Other(reason)
    by_type, by_relation = {}, {}
    try:
        groups, alone = _grouped(owner, calls)
        if not groups:
            raise Other("no two of its layers go together")
        for group in groups:
            results = _run_group(group, summed)
            if not summed:
                by_relation.update(results)
                continue
            for key, part in results.items():
                by_type[key] = by_type[key] + part if key in by_type else part
    except (Other, InvalidError, ValueError) as error:
        # the layers themselves say what is wrong with the edges
        raise Other(str(error) or "a layer's parameters are not its "
                    "library's, or a hook looks at them") from None
    by_relation.update(one_by_one(alone))
    return by_type, by_relation


def one_by_one(calls):
    """By relation the layers' own results."""
    return {call.key: call.alone() for call in calls}


def added(calls, by_type, by_relation):
    """By type of destination, in the order of calls, the sum of run_calls()'s
    results over all its relations."""
    results = {call.key[2]: by_type.get(call.key[2]) for call in calls}
    for (_, _, kind), part in by_relation.items():
        results[kind] = part if results[kind] is None else results[kind] + part
    return results


def _watched():
    """The circumstance that makes a call go relation by relation, or
    None."""
    if compiling():
        return "torch.compile traces"
    if any(_GLOBAL_HOOKS) or torch.is_anomaly_enabled():
        return "something watches modules"
    return surroundings()
