"""Attention over a graph of this process: the inputs in the graph's edge order,
dropout's seed, and the choice between kernels and torch operations."""

import torch

from . import _attention, _composite, _execute, merge, ops
from ._modes import constant, jit_tracing, needs_composite, untraced
from ._operators import OPERATORS, Settings, by_edge, check_inputs
from .convert import as_graph, known_graph, looped_graph
from .graph import Graph


@constant  # torch.compile starts again when the setting changes
def tf32_allowed():
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        # get_float32_matmul_precision() raises if the newer settings are used
        return torch.backends.cuda.matmul.fp32_precision == "tf32"
    return torch.get_float32_matmul_precision() != "highest"


def settings_of(value, scale, slope, dropout, return_weights, edge_use="both"):
    tf32 = (value.is_cuda and value.dtype == torch.float32
            and tf32_allowed())
    return Settings(float(scale), float(slope), dropout, bool(return_weights),
                    torch.are_deterministic_algorithms_enabled(), tf32,
                    edge_use)


def make_seed(device):
    """[1] a number of torch's generator, on the device: the host does not wait
    for it, and a captured CUDA graph draws a new one at each replay."""
    return torch.randint((1 << 63) - 1, (1,), dtype=torch.int64,
                         device=device)


def _size(spec, inputs):
    """(sources, destinations) by the shapes of the inputs."""
    size = {}
    for input_, tensor in zip(spec.inputs, inputs):
        if isinstance(tensor, torch.Tensor) and tensor.dim():
            size.setdefault(input_.dims[0], tensor.size(0))
    return size.get("M"), size.get("N")


def attend(name, graph, inputs, bias=None, dropout=0.0, *, draw=None,
           return_lse=False, **call):
    """out, or (out, weights before dropout, factors of dropout or None), the
    latter two in the caller's edge order.  With return_lse (out, weights or
    None, factors or None, lse).

    draw: makes the seed of dropout, of a device; make_seed by default.
    call: scale, slope, return_weights, self_loops, edge_use.
    """
    draw = draw or make_seed
    if return_lse:
        return _with_lse(name, graph, inputs, bias, dropout, draw, **call)
    if dropout == 1:
        return _all_dropped(_run(name, graph, inputs, bias, 0.0, draw, **call),
                            call["return_weights"])
    return _run(name, graph, inputs, bias, dropout, draw, **call)


def _all_dropped(result, return_weights):
    """The result if every weight is dropped: zeros, with gradients of zero."""
    if not return_weights:
        return result * 0
    out, weights, _ = result
    return out * 0, weights, torch.zeros_like(weights)


def _run(name, graph, inputs, bias, dropout, draw, scale, slope,
         return_weights, self_loops, **edges):
    spec = OPERATORS[name]
    seed = draw(inputs[spec.value].device) if dropout else None
    settings = settings_of(inputs[spec.value], scale, slope, dropout,
                         return_weights, **edges)
    if ops.compiling():
        # the operator has to know the number of weights, loops included
        if self_loops and return_weights:
            graph, inputs, bias = _looped(spec, graph, inputs, bias)
            self_loops = False
        return ops.attend(name, graph, inputs, bias, seed, settings,
                          self_loops)
    if not isinstance(graph, Graph):
        size = _size(spec, inputs)
        known = known_graph(graph, size, self_loops)
        if known is None:
            make = looped_graph if self_loops else as_graph
            known = make(graph, size)
        graph = known
    elif self_loops:
        graph = graph.with_self_loops()
    if self_loops:
        inputs = by_edge(spec, inputs, graph.to_looped_edges)
        if bias is not None:
            bias = graph.to_looped_edges(bias)
    if needs_composite():
        return _by_torch(spec, graph, inputs, bias, seed, settings)
    made = _execute.recipe(graph, name, inputs, bias, settings, True)
    if made.edge_dim and not made.listed:
        inputs = by_edge(spec, inputs, graph.to_graph_order)
    if bias is not None:
        bias = graph.to_graph_order(bias)
    out, weights = _attention.attention(graph, made, inputs, bias, seed)
    if not return_weights:
        return out
    factors = None
    if dropout:
        factors = graph.to_caller_order(_composite.keep_factors(
            seed, weights.size(0), weights.size(1), dropout,
            graph.edge_number)).to(weights.dtype)
    return out, graph.to_caller_order(weights), factors


@untraced
def _with_lse(name, graph, inputs, bias, dropout, draw, scale, slope,
              return_weights, self_loops, **edges):
    """(out, weights or None, factors or None, lse)."""
    spec = OPERATORS[name]
    seed = draw(inputs[spec.value].device) if 0 < dropout < 1 else None
    settings = settings_of(inputs[spec.value], scale, slope,
                         dropout if dropout < 1 else 0.0, False, **edges)
    if not isinstance(graph, Graph):
        graph = as_graph(graph, _size(spec, inputs))
    if self_loops:
        graph = graph.with_self_loops()
        inputs = by_edge(spec, inputs, graph.to_looped_edges)
        if bias is not None:
            bias = graph.to_looped_edges(bias)
    _check_inputs(spec, graph, inputs, bias)
    inputs, bias = _in_graph_order(spec, graph, inputs, bias)
    found = None
    if not needs_composite():
        made = _execute.recipe(graph, name, inputs, bias, settings)
        found = merge.attention(graph, made, inputs, bias, seed)
    if found is None:
        out, _, lse = merge.by_torch(graph, name, inputs, bias, seed, settings)
        found = out, lse
    out, lse = found
    weights = factors = None
    if return_weights:
        settings = settings._replace(weights=True)
        made = _execute.recipe(graph, name, inputs, bias, settings)
        weights = graph.to_caller_order(
            _attention.attention(graph, made, inputs, bias, seed)[1])
        if settings.dropout:
            factors = graph.to_caller_order(_composite.keep_factors(
                seed, weights.size(0), weights.size(1), dropout,
                graph.edge_number)).to(weights.dtype)
    if dropout == 1:
        out = out * 0
        factors = None if weights is None else torch.zeros_like(weights)
    return out, weights, factors, lse


def _looped(spec, graph, inputs, bias):
    """(graph, inputs, bias) with the loops in the graph."""
    if not isinstance(graph, Graph) or graph.looped is None:
        graph = _make_loops(graph, _size(spec, inputs))
    else:
        graph = graph.looped
    return (graph, by_edge(spec, inputs, graph.to_looped_edges),
            None if bias is None else graph.to_looped_edges(bias))


@untraced
def _make_loops(graph, size):
    return looped_graph(graph, size)


def _check_inputs(spec, graph, inputs, bias):
    check_inputs(spec, inputs, bias,
                 {"N": graph.num_dst, "M": graph.num_src,
                  "E": graph.num_edges}, graph.device)


def _in_graph_order(spec, graph, inputs, bias):
    """(inputs, bias) with all tensors by edge in the graph's own order."""
    inputs = by_edge(spec, inputs, graph.to_graph_order)
    return inputs, None if bias is None else graph.to_graph_order(bias)


def _by_torch(spec, graph, inputs, bias, seed, settings):
    """_run() inside torch.func, forward AD and torch.jit.trace."""
    if not jit_tracing():  # a trace makes tensors of sizes
        _check_inputs(spec, graph, inputs, bias)
    inputs, bias = _in_graph_order(spec, graph, inputs, bias)
    out, weights = _composite.attention(spec.name, inputs, bias, seed, graph,
                                        settings)
    if not settings.weights:
        return out
    factors = None
    if settings.dropout:
        factors = graph.to_caller_order(_composite.keep_factors(
            seed, graph.num_edges, weights.size(1),
            settings.dropout, graph.edge_number)).to(weights.dtype)
    return out, graph.to_caller_order(weights), factors
