"""Subclasses that override methods of PyG's MessagePassing.

The kernels know nothing of a message() or an aggregate() that a subclass of a
layer brings, so PyG runs such a layer: forward() of PyG's class, over an
object that has the attributes of the layer and the methods of both classes.
"""

import functools

from ..graph import Graph

METHODS = ("message", "aggregate", "update", "edge_update",
           "message_and_aggregate", "propagate", "edge_updater")


@functools.lru_cache(None)
def overrides(cls):
    """Whether a subclass of a layer brings methods of MessagePassing: the
    layers themselves have none."""
    return any(hasattr(cls, name) for name in METHODS)


@functools.lru_cache(None)
def _classes(cls):
    """(PyG's class, a class that inherits from cls and PyG's class)."""
    own = next(c for c in cls.__mro__ if c.__module__.startswith("dfgnn.nn"))
    try:
        from torch_geometric import nn as pyg
    except ImportError as error:
        raise ImportError(
            f"{cls.__name__} overrides methods of PyG's MessagePassing; such "
            f"a dfgnn.nn.{own.__name__} needs torch_geometric") from error
    base = getattr(pyg, own.__name__)
    attributes = {"__module__": cls.__module__, "__doc__": cls.__doc__}
    # PyG reads the arguments of propagate() and edge_updater() in the source
    # of classes, which it tells apart by name alone: ours would hide its own
    from torch_geometric.inspector import Inspector
    for name in ("propagate", "edge_updater"):
        if not hasattr(cls, name + "_type"):
            found = Inspector(base).get_params_from_method_call(
                name, exclude=[0, "edge_index", "size"])
            attributes[name + "_type"] = {
                key: parameter.type for key, parameter in found.items()}
    return base, type(cls.__name__, (cls, base), attributes)


def _twin(layer):
    base, both = _classes(type(layer))
    twin = object.__new__(both)
    object.__setattr__(twin, "__dict__", layer.__dict__)
    return base, twin


def start_messages(layer, aggr, flow, node_dim, options):
    """Sets the attributes that the constructor of MessagePassing sets."""
    from torch_geometric.nn import MessagePassing
    _, twin = _twin(layer)
    MessagePassing.__init__(twin, aggr, flow=flow, node_dim=node_dim,
                            **options)
    layer.overridden = True
    # attributes that forward() of PyG's layers reads and ours do not have
    layer._cached_edge_index = layer._cached_adj_t = layer._alpha = None


def new_inspector(layer):
    """MessagePassing's record of the methods, which does not pickle: it knows
    a class that has no name of its own."""
    from torch_geometric.nn import MessagePassing
    _, both = _classes(type(layer))
    other = object.__new__(both)
    MessagePassing.__init__(other)
    return other.inspector


def by_pyg(layer, x, edge_index, *args, **kwargs):
    """The result of forward() of PyG's class."""
    base, twin = _twin(layer)
    if isinstance(edge_index, Graph):
        edge_index = edge_index.edge_index
    return base.forward(twin, x, edge_index, *args, **kwargs)
