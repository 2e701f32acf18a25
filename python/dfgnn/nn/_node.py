"""Layers, of dfgnn.nn, PyG and DGL, as one node of autograd each, for the calls
that most training steps make: what _attention_nodes.py and _sum_nodes.py have
in common.

Whatever looks into a layer (a hook, a parametrisation, a transform, autocast,
anomaly mode, an explainer) gets the layer's other path, which does the same
step by step.
"""

import functools

from .. import _recording, ops
from .._attention_call import settings_of
from .._context import make_seed
from .._chain import Chain
from .._execute import generation
from .._operators import DTYPES
from ..convert import batch_graph, known_graph
from ..errors import InvalidError, UnsupportedError
from ..graph import Graph
from ._guards import PLAIN_TENSORS, Other, known, watched


# ---- calls ------------------------------------------------------------------

def node(call):
    """The call that a layer's forward tries first: call(state, ...) with the layer's
    __dict__; NotImplemented where the other path is to be taken.  Its of_state
    takes what stands for a __dict__."""
    def of_state(state, *args, **kwargs):
        # DGL's layers have no flow
        if ops.compiling() or watched() or \
                state.get("flow", "source_to_target") != "source_to_target" \
                or state.get("node_dim", 0) not in (-2, 0):
            return NotImplemented
        try:
            return call(state, *args, **kwargs)
        except (Other, InvalidError, UnsupportedError):
            return NotImplemented

    @functools.wraps(call)
    def attempt(layer, *args, **kwargs):
        return NotImplemented if layer.runs_in_steps() else \
            of_state(layer.__dict__, *args, **kwargs)
    attempt.of_state = of_state
    return attempt


def first(node):
    """Decorates a layer's forward, which runs where node() does not."""
    def decorate(forward):
        @functools.wraps(forward)
        def tried(self, *args, **kwargs):
            out = node(self, *args, **kwargs)
            return forward(self, *args, **kwargs) if out is NotImplemented \
                else out
        return tried
    return decorate


# Tensors with a row for each node, whose graph has as many, and those with a
# row for each edge.
_OF_NODES, _OF_EDGES = ("x", "x_dst"), ("edge_attr", "edge_weight")


def recipe(names):
    """Decorates a function (graph, settings, static, *tensors) that returns
    the links of a chain, or None where shapes are not as they should be; names
    are those of the tensors in the links.  The first has features of nodes.

    The links serve all graphs alike: the function asks nothing of a graph but
    what its keys have of it, and nothing of how many rows nodes and edges have
    but whether these are the graph's.
    """
    def with_names(function):
        function.names = tuple(names.split())
        function.keys = tuple(
            _key_of_nodes if name in _OF_NODES else
            _key_of_edges if name in _OF_EDGES else _key_of_all
            for name in function.names)
        return function
    return with_names


def _key_of_nodes(graph, tensor):
    return tensor.shape[1:]


def _key_of_edges(graph, tensor):
    rows = tensor.shape[:1]
    return (rows == (graph.num_edges,), rows == (graph.unlooped_edges,),
            graph.loops == graph.num_dst, graph.handle.listed, type(graph),
            tensor.shape[1:])


def _key_of_all(graph, tensor):
    return tensor.shape


def graph_of(edges, sizes, loops=False):
    """The graph of a call, from PyG's edge_index or a Graph."""
    if isinstance(edges, Graph):
        if edges.exchange is not None or \
                (edges.num_src, edges.num_dst) != sizes:
            raise Other
        return edges.with_self_loops() if loops else edges
    found = known_graph(edges, sizes, loops)
    if found is None:
        if not known(edges):
            raise Other
        found = batch_graph(edges, sizes, loops)
    return found


_chains = {}  # by what tells them apart
_MOST_CHAINS = 4096


def run(graph, links, static, *tensors, dropout=0.0, scale=0.0, slope=0.0):
    """The result of the links of a recipe for its tensors.

    static: what the links depend on beside the shapes.
    """
    first = tensors[0]
    dtype, device, keys = first.dtype, first.device, []
    if graph.empty or not first.numel() or dtype not in DTYPES or \
            device != graph.device:
        raise Other
    for tensor, key in zip(tensors, links.keys):
        if tensor is None:
            keys.append(None)
            continue
        if type(tensor) not in PLAIN_TENSORS or tensor.dtype is not dtype \
                or tensor.device != device:
            raise Other
        keys.append(key(graph, tensor))
        if not tensor.is_contiguous():
            tensors = [t if t is None else t.contiguous() for t in tensors]
    if _recording.current is not None:
        _recording.current.graph(graph)
    settings = settings_of(first, scale, slope, dropout, False)
    key = (links, static, settings, generation(), dtype, *keys)
    chain = _chains.get(key)
    if chain is None:
        if len(_chains) >= _MOST_CHAINS:
            _chains.clear()
        chain = _chains[key] = _chain(graph, links, settings, static, tensors)
    if chain is Other:
        raise Other
    if dropout:
        tensors = (*tensors, make_seed(device))
    return chain(graph, tensors)


def _chain(graph, links, settings, static, tensors):
    """The Chain of a call, or Other."""
    found = links(graph, settings, static, *tensors)
    if found is None:
        return Other
    return Chain((*links.names, "seed") if settings.dropout else links.names,
                 found)


def fits(weight, bias, inputs):
    """Whether a linear layer takes so many features."""
    return (weight.dim() == 2 and weight.size(1) == inputs
            and (bias is None or bias.shape == weight.shape[:1]))


def named(name, tensor):
    return None if tensor is None else name
