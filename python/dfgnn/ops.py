"""Attention, sums and reductions as operators of torch.library.

torch.compile does not break its graph at an operator that has a fake kernel
and a derivative.  The operators are pure functions of their tensors: a Graph is
named by its number, or given as an edge_index tensor.  Versions of torch
without register_fake() have none of them.
"""

from collections import namedtuple

import torch

from . import _attention, _composite, _execute, _neighbours, _reduce
from ._modes import refuse_in_cuda_graphs, untraced
from ._operators import OPERATORS, Settings, by_edge
from .convert import as_graph, looped_graph
from .graph import Graph, by_id

AVAILABLE = hasattr(torch, "library") and hasattr(
    torch.library, "register_fake")

if AVAILABLE and hasattr(torch.compiler, "is_compiling"):
    compiling = torch.compiler.is_compiling
else:
    def compiling():
        return False


# torch.compile cannot trace them: they depend on the values of the edges
untraced_graph = untraced(as_graph)
untraced_looped_graph = untraced(looped_graph)


# the most inputs an operator has
INPUTS = max(len(spec.inputs) for spec in OPERATORS.values())
_NAMES = "abcdefghijklmnop"[:INPUTS]
_CALL = (", ".join(f"Tensor{'?' if i > 1 else ''} {name}"
                   for i, name in enumerate(_NAMES))
         + ", Tensor? bias, Tensor? seed, "
         "Tensor? edge_index, SymInt graph, SymInt num_src, SymInt num_dst, "
         "SymInt num_edges, bool loops, str op, float scale, float slope, "
         "float dropout, bool weights, bool deterministic, bool tf32, "
         "str edge_use")

# the arguments of _CALL: all inputs, these, and the fields of Settings
_BETWEEN = ("bias", "seed", "edge_index", "graph", "num_src", "num_dst",
            "num_edges", "loops", "op")
_Call = namedtuple("_Call", ("inputs", *_BETWEEN, "settings"))
_TENSORS = INPUTS + _BETWEEN.index("graph")  # numbers and names follow
_OP = INPUTS + _BETWEEN.index("op")
_SETTINGS = INPUTS + len(_BETWEEN)


def _call(arguments):
    inputs = arguments[:len(OPERATORS[arguments[_OP]].inputs)]
    if all(t is None for t in inputs[3:]):
        inputs = inputs[:3]
    return _Call(inputs, *arguments[INPUTS:_SETTINGS],
                 Settings(*arguments[_SETTINGS:]))


def _of_edges(spec, call):
    """A tensor by edge of a call, or None if it has none."""
    found = [call.bias, *(t for t, input_ in zip(call.inputs, spec.inputs)
                          if input_.dims[0] == "E")]
    return next((t for t in found if t is not None), None)


def _graph(edge_index, number, num_src, num_dst, loops, given=None):
    """The Graph of a call; given: a tensor by edge of the call, or None."""
    if edge_index is None:
        graph = by_id(number)
    else:
        if given is not None:
            refuse_in_cuda_graphs("an edge_index with features, weights or "
                                  "biases of its edges")
        make = looped_graph if loops else as_graph
        return make(edge_index, (num_src, num_dst))
    return graph.with_self_loops() if loops else graph


def _empty(like, *shape, dtype=None):
    return like.new_empty(shape, dtype=dtype or like.dtype)


def _exact(tensor):
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _value(call):
    return call.inputs[OPERATORS[call.op].value]


def _ordered(graph, spec, inputs, bias):
    """(inputs in the caller's order, inputs in the graph's order, bias in the
    graph's order), all by the edges of graph, its loops included."""
    inputs = by_edge(spec, inputs, graph.to_looped_edges)
    return (inputs, by_edge(spec, inputs, graph.to_graph_order),
            None if bias is None else graph.to_graph_order(
                graph.to_looped_edges(bias)))


def _forward(*arguments):
    call = _call(arguments)
    spec = OPERATORS[call.op]
    graph = _graph(call.edge_index, call.graph, call.num_src, call.num_dst,
                   call.loops, _of_edges(spec, call))
    inputs, ordered, bias = _ordered(graph, spec, call.inputs, call.bias)
    made = _execute.recipe(graph, call.op, inputs, bias, call.settings)
    out, lse, alpha = _attention.forward(graph, made, ordered, bias, call.seed)
    value = _value(call)
    if lse is None:
        lse = _empty(value, 0, dtype=_exact(value))
    if alpha is None:
        alpha = _empty(value, 0, dtype=_exact(value))
    else:
        alpha = graph.to_caller_order(alpha)
    return out, lse, alpha


def _forward_fake(*arguments):
    call = _call(arguments)
    value = _value(call)
    heads = value.size(1)
    exact = _exact(value)
    return (_empty(value, call.num_dst, heads, value.size(2)),
            _empty(value, call.num_dst, heads, dtype=exact),
            _empty(value, call.num_edges, heads, dtype=exact)
            if call.settings.weights else _empty(value, 0, dtype=exact))


def _backward(grad_out, grad_weights, alpha, out, lse, needed, *arguments):
    call = _call(arguments)
    spec = OPERATORS[call.op]
    graph = _graph(call.edge_index, call.graph, call.num_src, call.num_dst,
                   call.loops, _of_edges(spec, call))
    inputs, ordered, bias = _ordered(graph, spec, call.inputs, call.bias)
    made = _execute.recipe(graph, call.op, inputs, bias, call.settings)
    wanted = tuple(bool(needed >> i & 1)
                   for i in (*range(len(inputs)), INPUTS))
    if grad_weights is not None:
        grads = _attention.through_weights(
            graph, made, ordered, bias, call.seed, out, lse,
            graph.to_graph_order(alpha), grad_out,
            graph.to_graph_order(grad_weights), wanted)
    else:
        grads = _attention.backward(graph, made, ordered, bias, call.seed, out,
                                    lse, grad_out, wanted)
    *grads, grad_bias = grads

    def given(grad, tensor):
        if grad is None:
            return None
        return graph.from_looped_edges(graph.to_caller_order(grad),
                                       tensor.size(0))
    grads = [given(g, t) if input_.dims[0] == "E" else g
             for g, t, input_ in zip(grads, call.inputs, spec.inputs)]
    grads += [None] * (INPUTS - len(grads))
    return tuple(grad_out.new_empty(0) if g is None else g
                 for g in (*grads, given(grad_bias, call.bias)))


def _backward_fake(grad_out, grad_weights, alpha, out, lse, needed,
                   *arguments):
    return tuple(
        torch.empty_like(t, memory_format=torch.contiguous_format)
        if t is not None and needed >> i & 1 else grad_out.new_empty(0)
        for i, t in enumerate(arguments[:INPUTS + 1]))


def _save(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:_TENSORS], *output)
    ctx.rest = inputs[_TENSORS:]
    ctx.set_materialize_grads(False)


def _derivative(ctx, grad_out, grad_lse, grad_weights):
    *given, out, lse, alpha = ctx.saved_tensors
    count = len(given) + len(ctx.rest)
    if grad_out is None and grad_weights is None:
        return (None,) * count
    if grad_out is None:
        grad_out = torch.zeros_like(out)
    call = _call((*given, *ctx.rest))
    if not call.settings.weights:
        grad_weights = None
    wants = ctx.needs_input_grad
    needed = sum(1 << i for i in range(INPUTS + 1) if wants[i])
    grads = _op("attention_backward", call.edge_index)(
        grad_out, grad_weights, alpha, out, lse, needed, *given, *ctx.rest)
    return (*(g if w else None for g, w in zip(grads, wants)),
            *(None,) * (count - INPUTS - 1))


def _keep(seed, like, edge_index, graph, num_src, num_dst, num_edges,
          dropout):
    graph = _graph(edge_index, graph, num_src, num_dst, False)
    return graph.to_caller_order(_composite.keep_factors(
        seed, graph.num_edges, like.size(1), dropout)).to(like.dtype)


def _keep_fake(seed, like, edge_index, graph, num_src, num_dst, num_edges,
               dropout):
    return torch.empty_like(like)


# ---- sums and reductions ----------------------------------------------------

_GATHER = ("Tensor value, Tensor? weight, Tensor? edge_index, SymInt graph, "
           "SymInt num_src, SymInt num_dst, bool loops, str op, "
           "bool symmetric")


def _spread(found, names, like):
    """The tensor found for each name, or an empty one."""
    return tuple(found[n] if n in found else like.new_empty(0) for n in names)


_GATHERED = ("out", "out_min", "out_max", "out_std", "arg_min", "arg_max")


def _gather(value, weight, edge_index, graph, num_src, num_dst, loops, op,
            symmetric):
    graph = _graph(edge_index, graph, num_src, num_dst, loops, weight)
    if weight is not None:
        weight = graph.to_looped_edges(weight)
    _reduce.check_call(graph, value, weight)
    scales = _reduce.normalization(graph, value.dtype) if symmetric \
        else None
    if weight is not None:
        weight = _reduce.in_order(graph, value, weight)
    outs, args = _neighbours.forward(graph, op, value.contiguous(), weight,
                                     scales)
    return _spread({**outs, **args}, _GATHERED, value)


def _gather_fake(value, weight, edge_index, graph, num_src, num_dst, loops,
                 op, symmetric):
    spec = _neighbours.OPERATORS[op]
    shape = (num_dst, value.size(1), value.size(2))
    found = {name: _empty(value, *shape) for name in spec.outs}
    found.update({name: _empty(value, *shape, dtype=torch.int32)
                  for name in spec.args})
    return _spread(found, _GATHERED, value)


def _gather_backward(grad, grad_min, grad_max, grad_std, out, out_std,
                     arg_min, arg_max, needed, value, weight, edge_index,
                     graph, num_src, num_dst, loops, op, symmetric):
    graph = _graph(edge_index, graph, num_src, num_dst, loops, weight)
    scales = _reduce.normalization(graph, value.dtype) if symmetric \
        else None
    known = dict(value=value.contiguous(), out=out, out_std=out_std,
                 arg_min=arg_min, arg_max=arg_max)
    if weight is not None:
        known["edge_weight"] = _reduce.in_order(
            graph, value, graph.to_looped_edges(weight))
    spec = _neighbours.OPERATORS[op]
    given = dict(zip(_GATHERED, (grad, grad_min, grad_max, grad_std)))
    found, found_weight = _neighbours.backward(
        graph, op, {name: known[name] for name in spec.saved},
        {"grad_" + name: given[name].contiguous() for name in spec.outs},
        bool(needed & 1), bool(needed & 2), scales)
    if found_weight is not None:
        found_weight = graph.from_looped_edges(
            graph.to_caller_order(found_weight), weight.size(0)).to(
                weight.dtype)
    return tuple(grad.new_empty(0) if t is None else t
                 for t in (found, found_weight))


def _gather_backward_fake(grad, grad_min, grad_max, grad_std, out, out_std,
                          arg_min, arg_max, needed, value, weight, *rest):
    return tuple(
        torch.empty_like(t, memory_format=torch.contiguous_format)
        if t is not None and needed >> i & 1 else grad.new_empty(0)
        for i, t in enumerate((value, weight)))


def _gather_save(ctx, inputs, output):
    value, weight, edge_index, *rest = inputs
    out, _, _, out_std, arg_min, arg_max = output
    ctx.save_for_backward(value, weight, edge_index, out, out_std, arg_min,
                          arg_max)
    ctx.mark_non_differentiable(arg_min, arg_max)
    ctx.rest = rest


def _gather_derivative(ctx, *grads):
    value, weight, edge_index, out, out_std, arg_min, arg_max = \
        ctx.saved_tensors
    needed = sum(1 << i for i in range(2) if ctx.needs_input_grad[i])
    found = _op("gather_backward", edge_index)(
        *grads[:4], out, out_std, arg_min, arg_max, needed, value, weight,
        edge_index, *ctx.rest)
    return (*(g if needed >> i & 1 else None for i, g in enumerate(found)),
            *(None,) * 7)


# An operator that is given an edge_index may have to make its graph, which
# waits for the device: torch's own CUDA graphs are to leave it out.
_OF_EDGES = "_of_edges"
_UNSAFE = [tag for tag in (getattr(getattr(torch, "Tag", None),
                                 "cudagraph_unsafe", None),)
           if tag is not None]


def _op(name, edge_index):
    return getattr(torch.ops.dfgnn,
                   name if edge_index is None else name + _OF_EDGES)


def _define(name, schema, function, fake, derivative=None, save=None):
    for full, tags in ((f"dfgnn::{name}", ()),
                       (f"dfgnn::{name}{_OF_EDGES}", _UNSAFE)):
        torch.library.define(full, schema, tags=tags)
        torch.library.impl(full, ("cpu", "cuda"))(function)
        torch.library.register_fake(full)(fake)
        if derivative is not None:
            torch.library.register_autograd(full, derivative,
                                            setup_context=save)


if AVAILABLE:
    _define("attention", f"({_CALL}) -> (Tensor, Tensor, Tensor)", _forward,
            _forward_fake, _derivative, _save)
    _define("attention_backward",
            "(Tensor grad_out, Tensor? grad_weights, Tensor alpha, Tensor out, "
            f"Tensor lse, int needed, {_CALL}) "
            "-> (" + ", ".join(["Tensor"] * (INPUTS + 1)) + ")",
            _backward, _backward_fake)
    _define("keep_factors",
            "(Tensor seed, Tensor like, Tensor? edge_index, SymInt graph, "
            "SymInt num_src, SymInt num_dst, SymInt num_edges, float dropout) "
            "-> Tensor", _keep, _keep_fake)
    _define("gather", f"({_GATHER}) -> (" + ", ".join(["Tensor"] * 6) + ")",
            _gather, _gather_fake, _gather_derivative, _gather_save)
    _define("gather_backward",
            "(Tensor grad, Tensor grad_min, Tensor grad_max, Tensor grad_std, "
            "Tensor out, Tensor out_std, Tensor arg_min, Tensor arg_max, "
            f"int needed, {_GATHER}) -> (Tensor, Tensor)",
            _gather_backward, _gather_backward_fake)


def _named(graph, num_src, num_dst):
    """(edge_index or None, number of the graph, edges)."""
    if not isinstance(graph, Graph) and not (
            isinstance(graph, torch.Tensor) and graph.layout == torch.strided):
        graph = untraced_graph(graph, (num_src, num_dst))
    if isinstance(graph, Graph):
        return None, graph.id, graph.num_edges
    return graph, 0, graph.size(-1)


def gather(op, graph, value, weight, num_dst, self_loops, symmetric):
    """aggregation._call while torch.compile traces."""
    edge_index, number, _ = _named(graph, value.size(0), num_dst)
    outs = _op("gather", edge_index)(value, weight, edge_index, number,
                                     value.size(0), num_dst, self_loops, op,
                                     symmetric)
    return outs[:len(_neighbours.OPERATORS[op].outs)]


def attend(op, graph, inputs, bias, seed, settings, loops):
    """_attention_call.attend() while torch.compile traces."""
    spec = OPERATORS[op]
    size = {input_.dims[0]: tensor.size(0) for input_, tensor in
            zip(spec.inputs, inputs) if tensor is not None}
    num_src, num_dst = size["M"], size["N"]
    edge_index, number, num_edges = _named(graph, num_src, num_dst)
    out, _, weights = _op("attention", edge_index)(
        *inputs, *[None] * (INPUTS - len(inputs)), bias, seed, edge_index,
        number, num_src, num_dst, num_edges, loops, op, *settings)
    if not settings.weights:
        return out
    factors = None
    if settings.dropout:
        factors = _op("keep_factors", edge_index)(
            seed, weights, edge_index, number, num_src, num_dst, num_edges,
            settings.dropout)
    return out, weights, factors
