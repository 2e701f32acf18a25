"""The operators of the library as operators of torch.library.

torch.compile does not break its graph at an operator that has a fake kernel
and a derivative.  The operators are pure functions of their tensors: a Graph is
named by its number, or given as an edge_index tensor.  Versions of torch
without register_fake() have none of them.
"""

import functools
from collections import namedtuple

import torch

from . import _composite, _execute, _fused
from ._modes import refuse_in_cuda_graphs, untraced
from ._operators import OPERATORS, Settings, sum_settings
from .convert import as_graph, known_graph, looped_graph
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


# The arguments of a call: its inputs that are given, and their fields of
# dfgnn_args ("query,key,value"); symmetric: GCN's scales, made once a graph.
_CALL = ("Tensor[] inputs, str fields, Tensor? seed, Tensor? edge_index, "
         "SymInt graph, SymInt num_src, SymInt num_dst, SymInt num_edges, "
         "bool loops, bool symmetric, str op, float scale, float slope, "
         "float dropout, bool weights, bool deterministic, bool tf32, "
         "str edge_use, bool lse")
_BEFORE = ("inputs", "fields", "seed", "edge_index", "graph", "num_src",
           "num_dst", "num_edges", "loops", "symmetric", "op")
_Call = namedtuple("_Call", (*_BEFORE, "settings"))


def _call(arguments):
    count = len(_BEFORE)
    return _Call(*arguments[:count], Settings(*arguments[count:]))


def _graph(edge_index, number, num_src, num_dst, loops, given=None):
    """The Graph of a call; given: a tensor by edge of the call, or None."""
    if edge_index is None:
        graph = by_id(number)
    else:
        if given is not None:
            refuse_in_cuda_graphs("an edge_index with features, weights or "
                                  "biases of its edges")
        sizes = num_src, num_dst
        known = known_graph(edge_index, sizes, loops)
        if known is not None:
            return known
        return looped_graph(edge_index, sizes, loops)
    return graph.with_self_loops() if loops else graph


@functools.lru_cache(maxsize=256)
def _fields(op, fields):
    """(the fields of a call, those of them that are tensors by edge)."""
    spec, names = OPERATORS[op], tuple(fields.split(","))
    return names, tuple(name for name in names if spec.inputs[
        spec.fields[name]].dims[0] == "E")


def _ready(call):
    """(graph, recipe, inputs in the order of the operator); tensors by edge
    are those of the graph's edges, its loops included, in its order."""
    spec = OPERATORS[call.op]
    names, of_edges = _fields(call.op, call.fields)
    given = dict(zip(names, call.inputs))
    graph = _graph(call.edge_index, call.graph, call.num_src, call.num_dst,
                   call.loops, given[of_edges[0]] if of_edges else None)
    for name in of_edges:
        given[name] = graph.to_looped_edges(given[name])
    if call.symmetric:
        given["scale_dst"], given["scale_src"] = _fused.normalization(
            graph, given["value"].dtype)
    made = _execute.recipe(graph, call.op, spec.given(given), call.settings)
    for name in of_edges:
        given[name] = graph.to_graph_order(given[name])
    return graph, made, spec.given(given)


def _outs(call):
    """(field, dimensions, dtype or None for the value's) of each result: those
    of the operator's table that the call has."""
    value = call.inputs[call.fields.split(",").index("value")]
    spec, settings = OPERATORS[call.op], call.settings
    exact = torch.float64 if value.dtype == torch.float64 else torch.float32
    sizes = dict(N=call.num_dst, M=call.num_src, E=call.num_edges,
                 H=value.size(1), D=value.size(2))
    first, rest = spec.results(settings)
    return value, [
        (t.field, [sizes[d] for d in t.dims], torch.int32 if t.index else
         exact if t.scalar else value.dtype) for t in first + rest]


def _forward(*arguments):
    call = _call(arguments)
    graph, made, inputs = _ready(call)
    found = _fused.forward(graph, made, inputs, call.seed)
    like = inputs[made.spec.value]
    return [like.new_empty(0, dtype=dtype) if out is None else
            graph.to_caller_order(out) if field == "weights" else out
            for (field, _, dtype, _), out in zip(made.outs, found)]


def _forward_fake(*arguments):
    value, outs = _outs(_call(arguments))
    return [value.new_empty(shape, dtype=dtype) for _, shape, dtype in outs]


def _backward(grads, outs, needed, *arguments):
    call = _call(arguments)
    graph, made, inputs = _ready(call)
    fields, of_edges = _fields(call.op, call.fields)
    outs = [out if out.shape == shape else None
            for (_, shape, _, _), out in zip(made.outs, outs)]
    grads = list(grads[:len(made.shown)])
    if "weights" in made.shown:
        place = made.shown.index("weights")
        outs[place] = graph.to_graph_order(outs[place])
        if grads[place] is not None:
            grads[place] = graph.to_graph_order(grads[place])
    wanted = {field for number, field in enumerate(fields)
              if needed >> number & 1}
    places = made.spec.inputs[:len(inputs)]
    found = dict(zip((t.field for t in places), _fused.gradients(
        graph, made, made.keep(call.seed, inputs, outs), grads,
        tuple(t.field in wanted for t in places))))
    given = []
    for field, tensor in zip(fields, call.inputs):
        grad = found[field]
        if grad is None:
            grad = tensor.new_empty(0)
        elif field in of_edges:
            grad = graph.from_looped_edges(graph.to_caller_order(grad),
                                           tensor.size(0))
        given.append(grad.to(tensor.dtype))
    return given


def _backward_fake(grads, outs, needed, inputs, *rest):
    return [torch.empty_like(t, memory_format=torch.contiguous_format)
            if needed >> number & 1 else t.new_empty(0)
            for number, t in enumerate(inputs)]


def _save(ctx, inputs, output):
    tensors, fields, seed, edge_index, *rest = inputs
    ctx.save_for_backward(seed, edge_index, *tensors, *output)
    ctx.about = len(tensors), fields, rest
    ctx.set_materialize_grads(False)


def _derivative(ctx, grads):
    count, fields, rest = ctx.about
    seed, edge_index, *tensors = ctx.saved_tensors
    inputs, outs = tensors[:count], tensors[count:]
    wants = list(ctx.needs_input_grad[0])
    nothing = (None,) * (3 + len(rest))
    if all(grad is None for grad in grads):
        return ([None] * count, *nothing)
    needed = sum(1 << number for number, w in enumerate(wants) if w)
    found = _op("fused_backward", edge_index)(
        list(grads), outs, needed, inputs, fields, seed, edge_index, *rest)
    return ([g if w else None for g, w in zip(found, wants)], *nothing)


def _keep(seed, like, edge_index, graph, num_src, num_dst, num_edges,
          dropout):
    graph = _graph(edge_index, graph, num_src, num_dst, False)
    return graph.to_caller_order(_composite.keep_factors(
        seed, graph.num_edges, like.size(1), dropout)).to(like.dtype)


def _keep_fake(seed, like, edge_index, graph, num_src, num_dst, num_edges,
               dropout):
    return torch.empty_like(like)


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
    _define("fused", f"({_CALL}) -> Tensor[]", _forward, _forward_fake,
            _derivative, _save)
    _define("fused_backward", "(Tensor?[] grads, Tensor[] outs, int needed, "
            f"{_CALL}) -> Tensor[]", _backward, _backward_fake)
    _define("keep_factors",
            "(Tensor seed, Tensor like, Tensor? edge_index, SymInt graph, "
            "SymInt num_src, SymInt num_dst, SymInt num_edges, float dropout) "
            "-> Tensor", _keep, _keep_fake)


def _named(graph, num_src, num_dst):
    """(edge_index or None, number of the graph, edges)."""
    if not isinstance(graph, Graph) and not (
            isinstance(graph, torch.Tensor) and graph.layout == torch.strided):
        graph = untraced_graph(graph, (num_src, num_dst))
    if isinstance(graph, Graph):
        return None, graph.id, graph.num_edges
    return graph, 0, graph.size(-1)


def _run(spec, given, edges, seed, settings, loops, symmetric=False):
    """The results that a call shows; edges: those of _named() and the numbers
    of nodes."""
    edge_index, *numbers = edges
    outs = _op("fused", edge_index)(
        list(given.values()), ",".join(given), seed, edge_index, *numbers,
        loops, symmetric, spec.name, *settings)
    return tuple(outs[:len(spec.results(settings)[0])])


def reduce(op, graph, num_dst, self_loops, symmetric, **given):
    """_fused.sums() while torch.compile traces."""
    given = {field: t for field, t in given.items() if t is not None}
    num_src = given["value"].size(0)
    edge_index, number, num_edges = _named(graph, num_src, num_dst)
    return _run(OPERATORS[op], given, (edge_index, number, num_src, num_dst,
                                       num_edges), None,
                sum_settings(), self_loops, symmetric)


def attend(spec, graph, inputs, seed, settings, loops):
    """_attention_call._run() while torch.compile traces."""
    given = {t.field: tensor for t, tensor in zip(spec.inputs, inputs)
             if tensor is not None}
    size = {spec.inputs[spec.fields[field]].dims[0]: tensor.size(0)
            for field, tensor in given.items()}
    num_src, num_dst = size["M"], size["N"]
    edge_index, number, num_edges = _named(graph, num_src, num_dst)
    outs = _run(spec, given, (edge_index, number, num_src, num_dst,
                              num_edges), seed, settings, loops)
    if not settings.weights:
        return outs
    factors = None
    if settings.dropout:
        factors = _op("keep_factors", edge_index)(
            seed, outs[-1], edge_index, number, num_src, num_dst, num_edges,
            settings.dropout)
    return (*outs, factors)
