"""Which layers of a HeteroConv go through the kernels together."""

import torch_geometric.nn as pyg
from torch import Tensor

from .. import _together
from .._guards import Other
from .._linear import hooked
from .._together import Library, Relation
from . import _shares
from ._edges import known
from ._hetero_kinds import KINDS, normalized, takes_weights, with_loops
from ._mixin import fits, own_obstacle


def _base(layer):
    return type(layer).__dict__.get("_dfgnn_base")


def apart(layer):
    """Why a layer's relation goes by itself, whatever is around the call, or
    None."""
    kind = KINDS.get(_base(layer))
    if kind is None:
        return (f"{type(layer).__name__} is none of the layers that go "
                "together (" + ", ".join(k.__name__ for k in KINDS) + ")")
    reason = own_obstacle(layer) or kind.reason(layer)
    if reason is None and hooked(layer):
        reason = "a hook looks at it"
    if reason is None and (layer.flow != "source_to_target"
                           or layer.node_dim not in (-2, 0)):
        reason = "its messages flow to sources, or nodes are on another axis"
    return reason and f"{type(layer).__name__}: {reason}"


def _relation(call, base):
    """The Relation of a call of a layer of PyG's class base, or None if it
    goes by itself."""
    key, layer, src, dst, edges, more, given = call
    ready = edges if type(edges) is _shares.Normalized else None
    if ready is not None:
        edges = ready.edges
    if not known(edges) \
            or not isinstance(edges, Tensor) or not fits(src, dst) \
            or src.dim() != 2 or dst.dim() != 2 or src.dtype != dst.dtype:
        return None
    if more or given:
        takes = KINDS[base].takes
        if len(more) > len(takes[:1]):
            return None
        given = {**dict(zip(takes, more)), **given}
        if set(given) - set(takes):
            return None
    attr, weight = given.get("edge_attr"), given.get("edge_weight")
    if not fits(attr, weight) or attr is not None and (
            attr.dim() > 2 or attr.size(0) != edges.size(1)):
        return None
    if attr is not None and getattr(layer, "lin_edge", None) is None:
        if base is not pyg.GATConv:
            return None
        attr = None  # GATConv does not look at it
    if weight is not None and (
            weight.dim() != 1 or weight.numel() != edges.size(1)
            or weight.dtype != src.dtype or not takes_weights(layer)):
        return None
    if ready is not None:
        weight = ready.weight
    elif base is pyg.GCNConv:
        if src is not dst:
            return None
        edges, weight = normalized(layer, edges, weight, src.size(0),
                                   src.dtype)
    elif getattr(layer, "add_self_loops", False):
        try:
            edges, attr = with_loops(layer, edges, attr, src.size(0),
                                     dst.size(0))
        except Other:
            return None
    return Relation(key, layer, src, dst, edges, attr, weight)


def alone(call):
    if type(call.edges) is _shares.Normalized:
        return _shares.alone(call)
    single = call.key[0] == call.key[-1] and call.src is call.dst
    x = call.src if single else (call.src, call.dst)
    return call.layer(x, call.edges, *call.more, **call.given)


LIBRARY = Library(KINDS, _base, apart, _relation, alone)


def described(layers):
    return _together.described(LIBRARY, layers)
