"""Calls of layers, one for each relation: those that do the same go through
the kernels together, see _relations.py, each of the others by itself."""

import itertools
import operator
import weakref
from typing import Callable, NamedTuple

import torch
from torch import Tensor

from .. import ops
from ..errors import InvalidError
from ..hetero import hetero_graph
from ._guards import _GLOBAL_HOOKS, Other, surroundings
from ._relations import Features


class Call(NamedTuple):
    """A call of a layer: the relation, the features of its sources and of its
    destinations, its edges as the library has them, further arguments by
    place and by name."""
    key: tuple
    layer: torch.nn.Module
    src: Tensor
    dst: Tensor
    edges: object
    more: tuple
    given: dict


class Relation(NamedTuple):
    """A call that can go together with others; edges is its edge_index."""
    key: tuple
    layer: torch.nn.Module
    src: Tensor
    dst: Tensor
    edges: Tensor
    edge_attr: Tensor = None
    edge_weight: Tensor = None


class Kind(NamedTuple):
    """How the layers of a class go together."""
    reason: Callable  # layer -> why it goes by itself, or None
    settings: Callable  # layer -> what a group has in common
    # (graph, Features, relations, summed) -> by type of destination the sum
    # over the relations if summed, else by relation its result
    run: Callable
    takes: tuple = ()  # arguments beside edges, the first of them by place, too


class Library(NamedTuple):
    """What a library brings to calls of its layers."""
    kinds: dict  # by class of layers their Kind
    base: Callable  # layer -> its class, a key of kinds, or None
    apart: Callable  # layer -> why its relation goes by itself, or None
    # (Call, class of its layer) -> Relation, or None if it goes by itself
    relation: Callable
    alone: Callable  # Call -> the layer's own result

    def kind(self, layer):
        return self.kinds[self.base(layer)]

    def group_key(self, layer):
        """(class, settings) of a layer that can go together with others, or
        None."""
        if self.apart(layer) is not None:
            return None
        base = self.base(layer)
        return base, self.kinds[base].settings(layer)


def described(library, layers):
    """What the report of accelerate() says of layers by relation: who goes
    together as far as the layers alone say, and who does not and why."""
    together, reasons = {}, {}
    for key, layer in layers.items():
        reason = library.apart(layer)
        if reason is not None:
            reasons.setdefault(reason, []).append(key)
        else:
            together.setdefault(library.group_key(layer), []).append(key)
    parts = []
    for (base, _), keys in together.items():
        if len(keys) > 1:
            parts.append(f"{len(keys)} {base.__name__} in one pass")
        else:
            reasons.setdefault(f"no other layer is a {base.__name__} of its "
                               "settings", []).append(keys[0])
    return "; ".join(parts + [
        f"{', '.join(map(_named, keys))} one by one ({reason})"
        for reason, keys in reasons.items()])


def _named(key):
    return key if isinstance(key, str) else " ".join(map(str, key))


# ---- layers that stay as they were ------------------------------------------

_HOOKS = "_hooks"  # attributes that end so are dicts, empty where nobody looks


class _Watch:
    """Tells whether layers are as they were.

    Asking twenty layers for their options, hooks and parameters takes longer
    than some training steps' products: what can change the answers is compared
    instead, attributes of the layers and of their modules, which of these
    there are, hooks, and which tensors are parameters.
    """

    def __init__(self, layers):
        modules = self._modules = [module for layer in layers
                                   for module in layer.modules()]
        self._types = [type(module) for module in modules]
        self._states = [vars(module) for module in modules]
        self._before = [state.copy() for state in self._states]
        self._children = [state["_modules"] for state in self._states]
        self._children_before = [of.copy() for of in self._children]
        self._hooks = [value for state in self._states
                       for name, value in state.items()
                       if name.endswith(_HOOKS) and isinstance(value, dict)]
        self._held = [state["_parameters"] for state in self._states]
        self._parameters = self._now()

    def _now(self):
        return list(itertools.chain.from_iterable(
            map(dict.values, self._held)))

    def holds(self):
        if any(self._hooks):
            return False
        now = self._now()
        try:
            # attributes are compared by identity first, as dicts do
            return len(now) == len(self._parameters) and \
                all(map(operator.is_, now, self._parameters)) and \
                [type(module) for module in self._modules] == self._types \
                and self._children == self._children_before \
                and self._states == self._before
        except (RuntimeError, ValueError, TypeError):
            return False  # another tensor or array, which has no truth


_kept_keys = weakref.WeakKeyDictionary()  # by owner: (layers, _Watch, keys)


def _group_keys(owner, layers, key_of):
    """[key_of(layer)], kept with owner while the layers are the same and as
    they were."""
    before, watch, keys = _kept_keys.get(owner, ((), None, None))
    if watch is None or len(before) != len(layers) or \
            not all(map(operator.is_, before, layers)) or not watch.holds():
        keys = [key_of(layer) for layer in layers]
        _kept_keys[owner] = list(layers), _Watch(layers), keys
    return keys


# ---- a call -----------------------------------------------------------------

def _one(features, kind, x):
    """Keeps the features of a type, which relations share."""
    if features.setdefault(kind, x) is not x:
        raise Other(f"two relations read other features of {kind}")


def _run_group(library, relations, summed):
    x = Features({}, {})
    for relation in relations:
        _one(x.src, relation.key[0], relation.src)
        _one(x.dst, relation.key[2], relation.dst)
    sizes = {kind: (x.src[kind].size(0) if kind in x.src else 0,
                    x.dst[kind].size(0) if kind in x.dst else 0)
             for kind in dict.fromkeys(
                 end for r in relations for end in (r.key[0], r.key[2]))}
    graph = hetero_graph({r.key: r.edges for r in relations}, sizes)
    if not graph.num_edges:
        raise Other("it has no edges")
    return library.kind(relations[0].layer).run(graph, x, relations, summed)


def _grouped(library, owner, calls):
    """(groups of Relations of two and more, Calls that go by themselves)."""
    together, alone = {}, []
    for call, group_key in zip(calls, _group_keys(
            owner, [call.layer for call in calls], library.group_key)):
        found = None if group_key is None else library.relation(
            call, group_key[0])
        if found is None:
            alone.append(call)
            continue
        key = (*group_key, found.src.dtype, found.src.device,
               found.src.size(1), found.dst.size(1), found.edges.dtype)
        together.setdefault(key, []).append((call, found))
    groups = []
    for group in together.values():
        if len(group) > 1:
            groups.append([found for _, found in group])
        else:
            alone.append(group[0][0])
    return groups, alone


def run_calls(library, owner, calls, summed, by_type, by_relation):
    """Runs Calls of the layers of a module: what goes together is added to
    by_type if summed, else, like what goes by itself, put into by_relation.
    Returns the reason why nothing goes together, or None."""
    try:
        groups, alone = _grouped(library, owner, calls)
        if not groups:
            return "no two of its layers go together"
        for group in groups:
            found = _run_group(library, group, summed)
            for key, part in found.items() if summed else ():
                by_type[key] = by_type[key] + part if key in by_type else part
            if not summed:
                by_relation.update(found)
    except (Other, InvalidError, ValueError) as error:
        # what is wrong with the edges the layers say themselves
        by_type.clear()
        return str(error) or "a layer's parameters are not its library's, " \
            "or a hook looks at them"
    for call in alone:
        by_relation[call.key] = library.alone(call)
    return None


def watched():
    """What is around a call that makes it go relation by relation, or
    None."""
    if ops.compiling():
        return "torch.compile traces"
    if any(_GLOBAL_HOOKS) or torch.is_anomaly_enabled():
        return "something watches modules"
    return surroundings()
