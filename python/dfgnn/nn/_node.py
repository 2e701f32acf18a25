"""Layers, of dfgnn.nn, PyG and DGL, as one node of autograd each, for the calls
that most training steps make: what _attention_nodes.py and _sum_nodes.py have
in common.

Whatever looks into a layer (a hook, a parametrisation, a transform, autocast,
anomaly mode, an explainer) gets the layer's other path, which does the same
step by step.
"""

import functools

from .. import _recording, ops
from .._attention_call import make_seed, settings_of
from .._chain import Chain
from .._execute import generation
from .._operators import DTYPES
from ..convert import known_graph, looped_graph
from ..errors import InvalidError, UnsupportedError
from ..graph import Graph
from ._guards import PLAIN_TENSORS, Other, known, watched


# ---- calls ------------------------------------------------------------------

def node(call):
    """What a layer's forward tries first: call(state, ...) with the layer's
    __dict__; NotImplemented where the other path is to be taken."""
    @functools.wraps(call)
    def attempt(layer, *args, **kwargs):
        if ops.compiling() or watched() or layer.runs_in_steps():
            return NotImplemented
        state = layer.__dict__  # DGL's layers have no flow
        if state.get("flow", "source_to_target") != "source_to_target" or \
                state.get("node_dim", 0) not in (-2, 0):
            return NotImplemented
        try:
            return call(state, *args, **kwargs)
        except (Other, InvalidError, UnsupportedError):
            return NotImplemented
    return attempt


def first(node):
    """Decorates a layer's forward, which runs where node() does not."""
    def decorate(forward):
        @functools.wraps(forward)
        def tried(self, *args, **kwargs):
            out = node(self, *args, **kwargs)
            if out is NotImplemented:
                return forward(self, *args, **kwargs)
            return out
        return tried
    return decorate


def recipe(names):
    """Decorates a function (graph, settings, static, *tensors) that returns
    the links of a chain, or None where shapes are not as they should be; names
    are those of the tensors in the links.  The first has features of nodes."""
    def with_names(function):
        function.names = tuple(names.split())
        return function
    return with_names


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
        found = looped_graph(edges, sizes, loops)
    return found


def run(graph, links, static, *tensors, dropout=0.0, scale=0.0, slope=0.0):
    """The result of the links of a recipe for its tensors.

    static: what the links depend on beside the shapes.
    """
    first = tensors[0]
    dtype, device, shapes = first.dtype, first.device, []
    for tensor in tensors:
        if tensor is None:
            shapes.append(None)
            continue
        if type(tensor) not in PLAIN_TENSORS or tensor.dtype is not dtype \
                or tensor.device != device:
            raise Other
        shapes.append(tensor.shape)
        if not tensor.is_contiguous():
            tensors = [t if t is None else t.contiguous() for t in tensors]
    if _recording.current is not None:
        _recording.current.graph(graph)
    settings = settings_of(first, scale, slope, dropout, False)
    recipes = graph.handle.recipes
    key = (links, static, settings, generation(), dtype, *shapes)
    chain = recipes.get(key)
    if chain is None:
        chain = recipes[key] = _chain(graph, links, settings, static, tensors)
    if chain is Other:
        raise Other
    if dropout:
        tensors = (*tensors, make_seed(device))
    return chain(graph, tensors)


def _chain(graph, links, settings, static, tensors):
    """The Chain of a call, or Other."""
    first = tensors[0]
    if not graph.num_edges or not first.numel() or first.dtype not in DTYPES \
            or first.device != graph.device:
        return Other
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
