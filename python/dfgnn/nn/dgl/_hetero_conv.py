"""HeteroGraphConv, as dgl.nn has it: relations whose layers do the same go
through the kernels together, each of the others by itself."""

import functools
import logging
import weakref

import torch
from torch import nn

from .. import _together
from .._guards import is_matrix
from .._linear import hooked
from .._together import Call, Library, Relation, watched
from ... import _fallbacks
from ..._operators import DTYPES
from ._base import dgl_error
from ._hetero_kinds import KINDS, normalized
from ._sums import GINConv, GraphConv, SAGEConv

log = logging.getLogger("dfgnn")


# ---- who goes together ------------------------------------------------------

def _base(layer):
    """The class of dfgnn.nn.dgl of a layer whose forward is its own."""
    kind = type(layer)
    if "_dfgnn_base" in vars(kind):  # made by accelerate()
        kind = next((c for c in kind.__mro__ if c in KINDS), None)
    return kind if kind in KINDS else None


def apart(layer):
    """Why a layer's relation goes by itself, or None."""
    base = _base(layer)
    if base is None:
        return (f"{type(layer).__name__} is none of the layers that go "
                "together (" + ", ".join(k.__name__ for k in KINDS) + ")")
    reason = KINDS[base].reason(layer)
    if reason is None and hooked(layer):
        reason = "a hook looks at it"
    return reason and f"{base.__name__}: {reason}"


def _relation(call, base):
    """The Relation of a call of a layer of this class, or None if it goes by
    itself."""
    key, layer, src, dst, graph, more, given = call
    if more or not is_matrix(src) \
            or not is_matrix(dst) or src.dtype != dst.dtype \
            or src.dtype not in DTYPES \
            or set(given) - set(KINDS[base].takes):
        return None
    edges, weight = graph.edges, given.get("edge_weight")
    if edges.device != src.device or weight is not None and (
            weight.numel() != edges.size(1) or weight.dtype != src.dtype
            or base is SAGEConv and layer._aggre_type == "pool"
            or base is GINConv and layer._aggregator_type == "max"):
        return None
    weight = None if weight is None else weight.reshape(-1)
    if base is GraphConv:
        weight = normalized(layer, edges, weight, src.size(0), dst.size(0),
                            src.dtype)
    return Relation(key, layer, src, dst, edges, None, weight)


def _alone(call):
    return call.layer(call.edges.whole[call.key], (call.src, call.dst),
                      *call.more, **call.given)


LIBRARY = Library(KINDS, _base, apart, _relation, _alone, trusted=True)


def described(layers):
    return _together.described(LIBRARY, layers)


# ---- graphs -----------------------------------------------------------------

_edges = {}


class _Edges:
    """A relation of a graph of DGL, and its edge_index."""

    def __init__(self, whole, edges):
        self.whole, self.edges = whole, edges


def _edges_of(graph):
    """By relation the edge_index of a heterogeneous graph, kept for as long as
    DGL's own structure of it lives."""
    def make():
        return {key: torch.stack(graph.edges(etype=key, order="eid"))
                for key in graph.canonical_etypes}
    owner = getattr(graph, "_graph", None)
    entry = _edges.get(id(owner))
    if entry is not None and entry[0]() is owner:
        return entry[1]
    try:
        number = id(owner)
        reference = weakref.ref(owner, lambda _: _edges.pop(number, None))
    except TypeError:
        return make()
    _edges[number] = (reference, make())
    return _edges[number][1]


# ---- a call -----------------------------------------------------------------

def _reducer(aggregate):
    """"sum" or "mean" of DGL's functions, or of their names; else None."""
    if isinstance(aggregate, functools.partial):
        name = getattr(aggregate.keywords.get("fn"), "__name__", "")
        return {"_sum_reduce_func": "sum", "_mean_reduce_func": "mean"}.get(
            name)
    return None


def _ends(graph, inputs):
    """(features of sources by type, of destinations) as DGL splits them."""
    if isinstance(inputs, tuple):
        return inputs
    if not graph.is_block:
        return inputs, inputs
    return inputs, {kind: x[:graph.num_dst_nodes(kind)]
                    for kind, x in inputs.items()}


def calls_of(module, graph, inputs, mod_args, mod_kwargs):
    """The Calls that DGL's HeteroGraphConv makes."""
    src, dst = _ends(graph, inputs)
    strict = not graph.is_block and not isinstance(inputs, tuple)
    edges, found = _edges_of(graph), []
    for key in graph.canonical_etypes:
        if key[0] not in src or key[2] not in dst and not strict:
            continue
        found.append(Call(
            key, module._get_module(key), src[key[0]], dst[key[2]],
            _Edges(graph, edges[key]), tuple((mod_args or {}).get(key[1], ())),
            dict((mod_kwargs or {}).get(key[1], {}))))
    return found


def together(module, graph, inputs, mod_args=None, mod_kwargs=None):
    """The dict of results, or the reason why layers go one by one."""
    reason = watched()
    if reason is not None:
        return reason
    calls = calls_of(module, graph, inputs, mod_args, mod_kwargs)
    reducer = _reducer(module.agg_fn)
    by_type, by_relation = {}, {}
    reason = _together.run_calls(LIBRARY, module, calls, reducer is not None,
                                 by_type, by_relation)
    if reason is not None:
        return reason
    return _reduced(module, graph, calls, reducer, by_type, by_relation)


def _reduced(module, graph, calls, reducer, by_type, by_relation):
    outs = {}
    for kind in graph.dsttypes:
        mine = [call.key for call in calls if call.key[2] == kind]
        if not mine:
            continue
        parts = [by_relation[key] for key in mine if key in by_relation]
        if reducer is None:
            outs[kind] = module.agg_fn(parts, kind)
            continue
        parts += [by_type[kind]] if kind in by_type else []
        total = sum(parts[1:], parts[0])
        outs[kind] = total if reducer == "sum" else total / len(mine)
    return outs


def say(module, reason):
    name = type(module).__name__
    log.info("%s goes relation by relation: %s", name, reason)
    _fallbacks.note(module, reason)


# ---- the layer --------------------------------------------------------------

def _sum_reduce_func(inputs, dim):
    return torch.sum(inputs, dim=dim)


def _mean_reduce_func(inputs, dim):
    return torch.mean(inputs, dim=dim)


_REDUCERS = {"sum": _sum_reduce_func, "mean": _mean_reduce_func,
             "max": torch.amax, "min": torch.amin}


def _stacked(inputs, kind, fn):
    return fn(torch.stack(inputs), dim=0)


def _side_by_side(inputs, kind):
    return torch.stack(inputs, dim=1)


class HeteroGraphConv(nn.Module):
    """dgl.nn.HeteroGraphConv: a layer for each relation of a heterogeneous
    graph or block of DGL, {name or (source, name, destination): layer}."""

    def __init__(self, mods, aggregate="sum"):
        super().__init__()
        self.mod_dict = mods
        self.mods = nn.ModuleDict({str(k): v for k, v in mods.items()})
        for layer in self.mods.values():
            if hasattr(layer, "set_allow_zero_in_degree"):
                layer.set_allow_zero_in_degree(True)
        if not isinstance(aggregate, str):
            self.agg_fn = aggregate
        elif aggregate == "stack":
            self.agg_fn = _side_by_side
        elif aggregate in _REDUCERS:
            self.agg_fn = functools.partial(_stacked, fn=_REDUCERS[aggregate])
        else:
            raise dgl_error("aggregate must be sum, max, min, mean, stack or "
                            f"a function, got {aggregate!r}")

    def _get_module(self, etype):
        found = self.mod_dict.get(etype)
        return self.mod_dict[etype[1]] if found is None else found

    def forward(self, g, inputs, mod_args=None, mod_kwargs=None):
        """inputs: features by type, or (those of sources, of destinations);
        mod_args and mod_kwargs: further arguments by name of a relation."""
        found = together(self, g, inputs, mod_args, mod_kwargs)
        if isinstance(found, dict):
            return found
        say(self, found)
        calls = calls_of(self, g, inputs, mod_args, mod_kwargs)
        return _reduced(self, g, calls, None, {}, {
            call.key: _alone(call) for call in calls})
