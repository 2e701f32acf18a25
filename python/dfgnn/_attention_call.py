"""Attention over a graph of this process: the inputs in the graph's edge order,
dropout's seed, and the choice between kernels and torch operations."""

import torch

from . import _composite, _fused, _recipe, ops
from ._context import make_seed
from ._derived import ByTorch
from ._modes import constant, jit_tracing, needs_composite
from ._operators import OPERATORS, Settings, by_edge, check_call
from .convert import known_graph, looped_graph
from .graph import Graph


@constant  # torch.compile starts again when the setting changes
def tf32_allowed():
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        # get_float32_matmul_precision() raises if the newer settings are used
        return torch.backends.cuda.matmul.fp32_precision == "tf32"
    return torch.get_float32_matmul_precision() != "highest"


def settings_of(value, scale, slope, dropout, return_weights, edge_use="both",
                lse=False):
    tf32 = (value.is_cuda and value.dtype == torch.float32
            and tf32_allowed())
    return Settings(float(scale), float(slope), dropout, bool(return_weights),
                    torch.are_deterministic_algorithms_enabled(), tf32,
                    edge_use, lse)


def _size(spec, inputs):
    """(sources, destinations) by the shapes of the inputs."""
    size = {}
    for input_, tensor in zip(spec.inputs, inputs):
        if isinstance(tensor, torch.Tensor) and tensor.dim():
            size.setdefault(input_.dims[0], tensor.size(0))
    return size.get("M"), size.get("N")


def attend(name, graph, inputs, bias=None, dropout=0.0, *, draw=None,
           scale, slope, return_weights, self_loops, edge_use="both",
           return_lse=False):
    """out, or (out, weights before dropout, factors of dropout or None), the
    latter two in the caller's edge order.  With return_lse (out, weights or
    None, factors or None, lse).

    draw: makes the seed of dropout, of a device; make_seed by default.
    """
    spec, value = OPERATORS[name], inputs[OPERATORS[name].value]
    kept = dropout if dropout < 1 else 0.0
    seed = (draw or make_seed)(value.device) if kept else None
    settings = settings_of(value, scale, slope, kept, return_weights, edge_use,
                           return_lse)
    if bias is not None:
        inputs = spec.with_bias(inputs, bias)
    outs = _run(spec, graph, inputs, seed, settings, self_loops)
    if not (settings.weights or settings.lse or dropout == 1):
        return outs[0]
    found = dict(zip(shown(settings), outs))
    out, weights = found["out"], found.get("weights")
    factors = found.get("factors")
    if dropout == 1:  # every weight is dropped: zeros, with gradients of zero
        out = out * 0
        factors = None if weights is None else torch.zeros_like(weights)
    if return_lse:
        return out, weights, factors, found["lse"]
    return (out, weights, factors) if return_weights else out


def shown(settings):
    """The results of a call, in the order of the library's table, and then the
    factors of dropout of the weights."""
    return ("out", *(("lse",) if settings.lse else ()),
            *(("weights", "factors") if settings.weights else ()))


def _run(spec, graph, inputs, seed, settings, self_loops):
    """The results that shown() names."""
    if ops.compiling():
        # the operator has to know the number of weights, loops included
        if self_loops and settings.weights:
            graph, inputs = _looped(spec, graph, inputs)
            self_loops = False
        return ops.traced_attention(spec, graph, inputs, seed, settings,
                                    self_loops)
    if not isinstance(graph, Graph):
        size = _size(spec, inputs)
        known = known_graph(graph, size, self_loops)
        if known is None:
            known = looped_graph(graph, size, self_loops)
        graph = known
    elif self_loops:
        graph = graph.with_self_loops()
    if self_loops:
        inputs = by_edge(spec, inputs, graph.to_looped_edges)
    if needs_composite():
        if not jit_tracing():  # a trace makes tensors of sizes
            check_call(graph, spec, inputs)
        results = shown(settings)
        outs = _composite.run(
            ByTorch, graph, spec,
            results[:-1] if settings.weights else results,
            by_edge(spec, inputs, graph.to_graph_order), seed, settings)
    else:
        made = _recipe.recipe(graph, spec.name, inputs, settings, True)
        if made.listed:
            if made.biased:
                inputs = (*inputs[:-1], graph.to_graph_order(inputs[-1]))
        elif made.biased or made.edge_dim:
            inputs = by_edge(spec, inputs, graph.to_graph_order)
        outs = _fused.call(graph, made, inputs, seed)
    if not settings.weights:
        return outs
    weights, factors = outs[-1], None
    if settings.dropout:
        factors = graph.to_caller_order(_composite.keep_factors(
            seed, graph.num_edges, weights.size(1), settings.dropout,
            graph.edge_number)).to(weights.dtype)
    return (*outs[:-1], graph.to_caller_order(weights), factors)


def _looped(spec, graph, inputs):
    """(graph, inputs) with the loops in the graph."""
    if not isinstance(graph, Graph) or graph.looped is None:
        graph = ops.untraced_looped_graph(graph, _size(spec, inputs))
    else:
        graph = graph.looped
    return graph, by_edge(spec, inputs, graph.to_looped_edges)
