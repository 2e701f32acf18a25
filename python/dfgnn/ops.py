"""The same attention as operators of torch.library.

torch.compile keeps a graph whole when what it meets is an operator with a fake
kernel and a derivative.  These are pure functions of their tensors: a graph is
named by its number, or given as an edge_index tensor.  Old versions of torch
do without.
"""

import torch

from . import _attention, _composite, _execute
from ._operators import OPERATORS, Settings
from .convert import as_graph
from .graph import Graph, by_id

AVAILABLE = hasattr(torch, "library") and hasattr(
    torch.library, "register_fake")

if AVAILABLE and hasattr(torch.compiler, "is_compiling"):
    compiling = torch.compiler.is_compiling
else:
    def compiling():
        return False


if hasattr(torch, "compiler") and hasattr(torch.compiler, "disable"):
    # what makes a graph depends on the values of its edges
    untraced_graph = torch.compiler.disable(as_graph)
else:
    untraced_graph = as_graph


_CALL = ("Tensor a, Tensor b, Tensor? c, Tensor? bias, Tensor? seed, "
         "Tensor? edge_index, SymInt graph, SymInt num_src, SymInt num_dst, "
         "SymInt num_edges, bool loops, str op, float scale, float slope, "
         "float dropout, bool weights, bool deterministic, bool tf32")


def _graph(edge_index, number, num_src, num_dst, loops):
    if edge_index is None:
        graph = by_id(number)
    else:
        graph = as_graph(edge_index, (num_src, num_dst))
    return graph.with_self_loops() if loops else graph


def _inputs(op, a, b, c):
    return (a, b, c)[:len(OPERATORS[op].inputs)]


def _empty(like, *shape, dtype=None):
    return like.new_empty(shape, dtype=dtype or like.dtype)


def _exact(tensor):
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _value(op, a, b, c):
    return (a, b, c)[OPERATORS[op].value]


def _forward(a, b, c, bias, seed, edge_index, graph, num_src, num_dst,
             num_edges, loops, op, scale, slope, dropout, weights,
             deterministic, tf32):
    graph = _graph(edge_index, graph, num_src, num_dst, loops)
    inputs = _inputs(op, a, b, c)
    made = _execute.recipe(
        graph, op, inputs, bias,
        Settings(scale, slope, dropout, weights, deterministic, tf32))
    if bias is not None:
        bias = graph.to_graph_order(bias)
    out, lse, alpha = _attention.forward(graph, made, inputs, bias, seed)
    value = _value(op, a, b, c)
    if lse is None:
        lse = _empty(value, 0, dtype=_exact(value))
    if alpha is None:
        alpha = _empty(value, 0, dtype=_exact(value))
    else:
        alpha = graph.to_caller_order(alpha)
    return out, lse, alpha


def _forward_fake(a, b, c, bias, seed, edge_index, graph, num_src, num_dst,
                  num_edges, loops, op, scale, slope, dropout, weights,
                  deterministic, tf32):
    value = _value(op, a, b, c)
    heads = value.size(1)
    exact = _exact(value)
    return (_empty(value, num_dst, heads, value.size(2)),
            _empty(value, num_dst, heads, dtype=exact),
            _empty(value, num_edges, heads, dtype=exact) if weights
            else _empty(value, 0, dtype=exact))


def _backward(grad_out, grad_weights, alpha, out, lse, needed, a, b, c, bias,
              seed, edge_index, graph, num_src, num_dst, num_edges, loops, op,
              scale, slope, dropout, weights, deterministic, tf32):
    graph = _graph(edge_index, graph, num_src, num_dst, loops)
    inputs = _inputs(op, a, b, c)
    made = _execute.recipe(
        graph, op, inputs, bias,
        Settings(scale, slope, dropout, weights, deterministic, tf32))
    wanted = [bool(needed >> i & 1) for i in range(4)]
    wanted = tuple(wanted[:len(inputs)]) + (wanted[3],)
    ordered = None if bias is None else graph.to_graph_order(bias)
    if grad_weights is not None:
        grads = _attention.through_weights(
            graph, made, inputs, ordered, seed, out, lse,
            graph.to_graph_order(alpha), grad_out,
            graph.to_graph_order(grad_weights), wanted)
    else:
        grads = _attention.backward(graph, made, inputs, ordered, seed, out,
                                    lse, grad_out, wanted)
    if grads[-1] is not None:
        grads[-1] = graph.to_caller_order(grads[-1])
    *grads, grad_bias = grads
    grads += [None] * (3 - len(grads))
    return tuple(grad_out.new_empty(0) if g is None else g
                 for g in (*grads, grad_bias))


def _backward_fake(grad_out, grad_weights, alpha, out, lse, needed, a, b, c,
                   bias, *rest):
    return tuple(
        torch.empty_like(t, memory_format=torch.contiguous_format)
        if t is not None and needed >> i & 1 else grad_out.new_empty(0)
        for i, t in enumerate((a, b, c, bias)))


def _save(ctx, inputs, output):
    a, b, c, bias, seed, edge_index, *rest = inputs
    ctx.save_for_backward(a, b, c, bias, seed, edge_index, *output)
    ctx.rest = rest
    ctx.set_materialize_grads(False)


def _derivative(ctx, grad_out, grad_lse, grad_weights):
    a, b, c, bias, seed, edge_index, out, lse, alpha = ctx.saved_tensors
    if grad_out is None and grad_weights is None:
        return (None,) * 18
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    if not ctx.rest[-3]:  # weights were not asked for
        grad_weights = None
    wants = ctx.needs_input_grad
    needed = sum(1 << i for i in range(4) if wants[i])
    grads = torch.ops.dfgnn.attention_backward(
        grad_out, grad_weights, alpha, out, lse, needed, a, b, c, bias, seed,
        edge_index, *ctx.rest)
    return (*(g if w else None for g, w in zip(grads, wants)),
            *(None,) * 14)


def _keep(seed, like, edge_index, graph, num_src, num_dst, num_edges,
          dropout):
    graph = _graph(edge_index, graph, num_src, num_dst, False)
    return graph.to_caller_order(_composite.keep_factors(
        seed, graph.num_edges, like.size(1), dropout)).to(like.dtype)


def _keep_fake(seed, like, edge_index, graph, num_src, num_dst, num_edges,
               dropout):
    return torch.empty_like(like)


def _define(name, schema, function, fake):
    torch.library.define(f"dfgnn::{name}", schema)
    torch.library.impl(f"dfgnn::{name}", ("cpu", "cuda"))(function)
    torch.library.register_fake(f"dfgnn::{name}")(fake)


if AVAILABLE:
    _define("attention", f"({_CALL}) -> (Tensor, Tensor, Tensor)", _forward,
            _forward_fake)
    _define("attention_backward",
            "(Tensor grad_out, Tensor? grad_weights, Tensor alpha, Tensor out, "
            f"Tensor lse, int needed, {_CALL}) "
            "-> (Tensor, Tensor, Tensor, Tensor)",
            _backward, _backward_fake)
    _define("keep_factors",
            "(Tensor seed, Tensor like, Tensor? edge_index, SymInt graph, "
            "SymInt num_src, SymInt num_dst, SymInt num_edges, float dropout) "
            "-> Tensor", _keep, _keep_fake)
    torch.library.register_autograd("dfgnn::attention", _derivative,
                                    setup_context=_save)


def attend(op, graph, inputs, bias, seed, settings, loops):
    """functional._attend while torch.compile traces."""
    spec = OPERATORS[op]
    size = {input_.dims[0]: tensor.size(0) for input_, tensor in
            zip(spec.inputs, inputs) if tensor is not None}
    num_src, num_dst = size["M"], size["N"]
    if not isinstance(graph, Graph) and not (
            isinstance(graph, torch.Tensor) and graph.layout == torch.strided):
        graph = untraced_graph(graph, (num_src, num_dst))
    if isinstance(graph, Graph):
        edge_index, number, num_edges = None, graph.id, graph.num_edges
    else:
        edge_index, number, num_edges = graph, 0, graph.size(-1)
    a, b, c = (*inputs, None)[:3]
    out, _, weights = torch.ops.dfgnn.attention(
        a, b, c, bias, seed, edge_index, number, num_src, num_dst, num_edges,
        loops, op, *settings)
    if not settings.weights:
        return out
    factors = None
    if settings.dropout:
        factors = torch.ops.dfgnn.keep_factors(
            seed, weights, edge_index, number, num_src, num_dst, num_edges,
            settings.dropout)
    return out, weights, factors
