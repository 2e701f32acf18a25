"""Graphs of the edges that layers get, and the self loops and the normalisation
that PyG's layers add before they send messages, made once for each graph."""

import functools
import inspect
import types
import weakref
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import remove_self_loops

from ..._loops import check_rows, gcn_weights, loop_features
from ..._modes import compiling
from ..._remember import recall, remember
from ...convert import as_graph
from ...errors import InvalidError
from ...graph import Graph
from ...hetero import HeteroGraph
from .._node import known


def unknown(edges):
    """Why the kernels' graph cannot be made of these edges, or None."""
    return None if known(edges) else \
        "its edges are no edge_index, but a " + type(edges).__name__


def reverse(layer):
    return layer.flow == "target_to_source"


def flowed(layer, edge_index):
    """The edges with the nodes that send in their first row."""
    if not reverse(layer) or isinstance(edge_index, Graph):
        return edge_index
    return _flipped(edge_index)


def _flipped(edge_index):
    if compiling():
        return edge_index.flip(0)
    return remember(edge_index, "flipped", lambda: edge_index.flip(0))


def graph_of(layer, edge_index, num_src, num_dst):
    """The Graph of a layer's edges; while torch.compile traces, the edge_index
    itself.  The checks are not deferred: they find a list that is in order, whose
    rows of edges need no copy."""
    edges = flowed(layer, edge_index)
    if compiling() or isinstance(edges, Graph):
        return edges
    return graph_made_of(edges, False, num_src, num_dst)


def graph_made_of(edges, reversed, num_src, num_dst):
    """The Graph of an edge_index; reversed: whether the nodes of its first row
    receive."""
    edges = _flipped(edges) if reversed else edges
    reference = recall(edges, "graph")  # of edge_tensor()
    ours = reference and reference()
    if ours is not None and (ours.num_src, ours.num_dst) == (num_src, num_dst):
        return ours
    return as_graph(edges, (num_src, num_dst))


def edge_tensor(graph):
    """[2, E] the edges of a Graph; from this tensor graph_of() finds the
    Graph."""
    edges = graph.edge_index
    remember(edges, "graph", lambda: weakref.ref(graph))
    return edges


def edges_as_given(layer, graph):
    """The edge_index that a caller of the layer would give for a Graph."""
    edges = edge_tensor(graph)
    return edges.flip(0) if reverse(layer) else edges


def of_pyg(layer, value):
    """The edge_index of a Graph, for a forward that reads it; anything else but
    a HeteroGraph is itself."""
    if isinstance(value, HeteroGraph):
        raise TypeError(f"this call of {type(layer).__name__} does not run on a "
                        "HeteroGraph; pass its edge_index [2, E], or a Graph")
    return edges_as_given(layer, value) if isinstance(value, Graph) else value


def wide(edges):
    """The int64 copy of an edge_index of int32, for PyG's own operations:
    gradients of torch's scatter are wrong for an index of int32.  Anything
    else is itself."""
    if type(edges) is Tensor and edges.dtype is torch.int32 and \
            edges.dim() == 2:
        return edges.long() if compiling() else remember(
            edges, "wide", edges.long)
    return edges


class Ends(NamedTuple):
    """Features and numbers of the nodes that send and of those that
    receive."""
    src: Tensor
    dst: Tensor | None
    num_src: int
    num_dst: int


def ends(layer, value, size=None):
    """Ends of a tensor or of a pair (x that is sent, x that receives); None
    where it is neither, or sizes contradict each other.

    Whichever way messages flow, PyG's layers send the first of a pair; only
    the edges are turned around.  PyG mixes the sizes of pairs up then, unless
    both have as many rows.
    """
    send = 1 if reverse(layer) else 0
    pair = (value, None) if isinstance(value, Tensor) else value
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or \
            pair[0] is None:
        return None
    src, dst = pair
    sizes = (None, None) if size is None else size
    num_src = src.size(layer.node_dim)
    if sizes[send] is not None and sizes[send] != num_src:
        return None
    num_dst = sizes[1 - send]
    if dst is not None:
        if num_dst is not None and num_dst != dst.size(layer.node_dim):
            return None
        num_dst = dst.size(layer.node_dim)
    if send and not isinstance(value, Tensor) and num_dst != num_src:
        return None
    return Ends(src, dst, num_src, num_src if num_dst is None else num_dst)


# ---- self loops and normalisation -------------------------------------------

class Looped(NamedTuple):
    """Stands for the edges and weights that gcn_norm would make, where the
    kernel needs no tensors of them."""
    edges: object
    num_nodes: int
    loops: bool
    graph: Graph | None  # the graph with loops, if weights were given
    flipped: bool
    dtype: torch.dtype

    def tensors(self, edge_weight):
        """(edge_index, edge_weight) as PyG has them."""
        graph = self.graph
        if graph is None:
            graph = self.looped()
            edge_weight = symmetric_weights(graph, self.dtype)
        edges = edge_tensor(graph)
        return (edges.flip(0) if self.flipped else edges), \
            edge_weight.to(self.dtype)

    def looped(self):
        graph = as_graph(self.edges, self.num_nodes)
        return graph.with_self_loops() if self.loops else graph


def symmetric_weights(graph, dtype):
    """[E] 1 / sqrt(d_i d_j), in the order of the caller's edges."""
    def make():
        ones = torch.ones(graph.num_edges, dtype=dtype, device=graph.device)
        return gcn_weights(graph, ones, False, 1)[1]
    return graph._derive(("symmetric", dtype), make)


def _norm(make_tensors, original):
    """A gcn_norm that gives Looped edges, or tensors for a layer that reads
    them."""
    def gcn_norm(edge_index, edge_weight=None, num_nodes=None, improved=False,
                 add_self_loops=True, flow="source_to_target", dtype=None):
        def theirs():
            return original(edge_index, edge_weight, num_nodes, improved,
                            add_self_loops, flow, dtype)
        fit = (known(edge_index) and num_nodes is not None
               and (dtype is None or dtype.is_floating_point)
               and (edge_weight is None or edge_weight.dim() == 1
                    and edge_weight.is_floating_point()))
        symmetric = edge_weight is None  # PyG ignores improved then, too
        if not fit or compiling() and (make_tensors or not symmetric):
            return theirs()
        flipped = flow == "target_to_source"
        if compiling():
            edges = edge_index.flip(0) if flipped else edge_index
            return Looped(edges, num_nodes, add_self_loops, None, flipped,
                          dtype or torch.get_default_dtype()), None
        edges = _flipped(edge_index) if flipped else edge_index
        try:
            graph = as_graph(edges, num_nodes)
        except InvalidError:  # PyG has an error of its own
            return theirs()
        if symmetric:
            looped = Looped(graph, num_nodes, add_self_loops, None, flipped,
                            dtype or torch.get_default_dtype())
        elif edge_weight.numel() != graph.num_edges:  # which PyG says
            return theirs()
        else:
            kind = edge_weight.dtype
            if kind in (torch.float16, torch.bfloat16):
                edge_weight = edge_weight.float()  # for sums and their roots
            graph, edge_weight = gcn_weights(
                graph, edge_weight, add_self_loops, 2.0 if improved else 1.0)
            looped = Looped(graph, num_nodes, add_self_loops, graph, flipped,
                            kind)
        return looped.tensors(edge_weight) if make_tensors else (looped,
                                                                 edge_weight)
    return gcn_norm


def _keep_loops(original):
    """remove_self_loops of a layer that calls add_self_loops next."""
    def keep_loops(edge_index, edge_attr=None):
        if compiling() or not known(edge_index) or edge_attr is not None:
            return original(edge_index, edge_attr)
        return edge_index, None
    return keep_loops


def _replace_loops(original):
    """add_self_loops of a layer that called remove_self_loops before."""
    def add_self_loops(edge_index, edge_attr=None, fill_value=None,
                       num_nodes=None):
        if (compiling() or not known(edge_index) or edge_attr is not None
                or not isinstance(num_nodes, int)):
            return original(edge_index, edge_attr, fill_value, num_nodes)
        try:
            graph = as_graph(edge_index, num_nodes)
        except InvalidError:  # PyG has an error of its own
            return original(remove_self_loops(edge_index)[0], edge_attr,
                            fill_value, num_nodes)
        return edge_tensor(graph.with_self_loops()), None
    return add_self_loops


def _append_loops(original):
    """add_self_loops of a layer that keeps the loops that the edges have."""
    def add_self_loops(edge_index, edge_attr=None, fill_value=None,
                       num_nodes=None):
        if compiling() or not known(edge_index):
            return original(edge_index, edge_attr, fill_value, num_nodes)
        edges = remember(edge_index, ("appended", num_nodes), lambda: original(
            edge_index, None, None, num_nodes)[0])
        if edge_attr is None:
            return edges, None
        check_rows("edge_attr", edge_attr, edge_index.size(1))
        numbers = torch.arange(edge_index.size(1), device=edge_index.device)
        return edges, loop_features(edge_attr, numbers, edge_index, num_nodes,
                                    fill_value)
    return add_self_loops


def with_wide_edges(function):
    """A function or method that gets each edge_index of int32 as int64."""
    @functools.wraps(function)
    def called(*args, **kwargs):
        return function(*[wide(v) for v in args],
                        **{name: wide(v) for name, v in kwargs.items()})
    return called


def with_names(forward, **makers):
    """PyG's forward with some of the functions that it calls replaced: each
    maker gets the function of its name.  None if there is no such name."""
    forward = inspect.unwrap(forward)
    scope = dict(forward.__globals__)
    for name, make in makers.items():
        if name not in scope:
            return None
        scope[name] = make(with_wide_edges(scope[name]))
    # without __name__, torch.compile reads this scope and not PyG's module
    del scope["__name__"]
    function = types.FunctionType(forward.__code__, scope, forward.__name__,
                                  forward.__defaults__, forward.__closure__)
    function.__kwdefaults__ = forward.__kwdefaults__
    return function


NORM = functools.partial(_norm, False)
NORM_TENSORS = functools.partial(_norm, True)
REPLACE_LOOPS = dict(remove_self_loops=_keep_loops,
                     add_self_loops=_replace_loops)
APPEND_LOOPS = dict(add_self_loops=_append_loops)
