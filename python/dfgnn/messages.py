"""Sums, means, extremes and deviations of messages that have features of the
edge in them: those of GINE and GEN, and of gated graph networks."""

import torch

from . import _messages, ops
from ._messages import Tensors
from ._modes import jit_tracing
from ._neighbours import OPERATORS
from ._operators import DTYPES
from ._values import refuse_values
from ._autocast import autocast_dtype
from .graph import Graph, describe

__all__ = ["relu_messages", "gated_messages"]

# The most features of an edge that kernels multiply by the matrix, by type of
# device; more are projected by a matrix product first.  On an H200 with 1.2
# million edges and 128 features in f32, forward and backward take 3.7 ms for 11
# features of an edge and 9.8 ms for 64; for edges projected before they take
# 3.4 ms, to which the time of the matrix product is added.
MOST_PROJECTED = {"cuda": 16, "cpu": 64}


# ---- operators that torch.compile traces ------------------------------------

_CALL = ("Tensor value, Tensor? gate_dst, Tensor? gate_src, "
         "Tensor? edge_attr, Tensor? edge_weight, Tensor? edge_bias, "
         "Tensor? edge_index, SymInt graph, SymInt num_src, SymInt num_dst, "
         "str reduce")


def _ready(graph, given):
    """given with contiguous tensors, those by edge in the graph's order."""
    given = given._replace(edge_attr=None if given.edge_attr is None else
                           graph.to_graph_order(given.edge_attr))
    return Tensors(*(None if t is None else t.contiguous() for t in given))


# The results of the operator; those that a reduction does not have are empty.
_OUTS = ("out", "out_min", "out_max", "out_std")
_MADE = _OUTS + ("arg_min", "arg_max")


def _spread(found, like):
    return tuple(found.get(name, like.new_empty(0)) for name in _MADE)


def _forward(value, gate_dst, gate_src, edge_attr, edge_weight, edge_bias,
             edge_index, graph, num_src, num_dst, reduce):
    graph = ops._graph(edge_index, graph, num_src, num_dst, False)
    given = Tensors(value, gate_dst, gate_src, edge_attr, edge_weight,
                    edge_bias)
    _check(graph, given)
    outs, args = _messages.forward(graph, reduce, _ready(graph, given))
    return _spread({**outs, **args}, value)


def _forward_fake(value, gate_dst, gate_src, edge_attr, edge_weight,
                  edge_bias, edge_index, graph, num_src, num_dst, reduce):
    spec = OPERATORS[_messages.OPS[reduce]]
    shape = (num_dst, value.size(1), value.size(2))
    found = {name: value.new_empty(shape) for name in spec.outs}
    found.update({name: value.new_empty(shape, dtype=torch.int32)
                  for name in spec.args})
    return _spread(found, value)


def _backward(grads, saved, needed, value, gate_dst, gate_src, edge_attr,
              edge_weight, edge_bias, edge_index, graph, num_src, num_dst,
              reduce):
    graph = ops._graph(edge_index, graph, num_src, num_dst, False)
    given = Tensors(value, gate_dst, gate_src, edge_attr, edge_weight,
                    edge_bias)
    wants = [bool(needed >> i & 1) for i in range(len(given))]
    spec = OPERATORS[_messages.OPS[reduce]]
    known = {name: t for name, t in zip(_MADE, saved) if name in spec.saved}
    found = Tensors(*_messages.gradients(
        graph, reduce, _ready(graph, given), known, grads[:len(spec.outs)],
        wants))
    if found.edge_attr is not None:
        found = found._replace(
            edge_attr=graph.to_caller_order(found.edge_attr))
    return tuple(value.new_empty(0) if t is None else t for t in found)


def _backward_fake(grads, saved, needed, value, gate_dst, gate_src, edge_attr,
                   edge_weight, edge_bias, *rest):
    return tuple(
        torch.empty_like(t, memory_format=torch.contiguous_format)
        if t is not None and needed >> i & 1 else value.new_empty(0)
        for i, t in enumerate((value, gate_dst, gate_src, edge_attr,
                               edge_weight, edge_bias)))


def _save(ctx, inputs, output):
    *given, edge_index, graph, num_src, num_dst, reduce = inputs
    ctx.save_for_backward(edge_index, *output, *given)
    ctx.mark_non_differentiable(*output[len(_OUTS):])
    ctx.rest = graph, num_src, num_dst, reduce


def _derivative(ctx, *grads):
    edge_index, *saved = ctx.saved_tensors
    given = saved[len(_MADE):]
    needed = sum(1 << i for i in range(6) if ctx.needs_input_grad[i])
    found = torch.ops.dfgnn.messages_backward(
        grads[:len(_OUTS)], saved[:len(_MADE)], needed, *given, edge_index,
        *ctx.rest)
    return (*(g if needed >> i & 1 else None for i, g in enumerate(found)),
            *(None,) * 5)


if ops.AVAILABLE:
    ops._define("messages", f"({_CALL}) -> ("
                + ", ".join(["Tensor"] * len(_MADE)) + ")", _forward,
                _forward_fake)
    ops._define("messages_backward",
                f"(Tensor[] grads, Tensor[] saved, int needed, {_CALL}) -> ("
                + ", ".join(["Tensor"] * 6) + ")", _backward, _backward_fake)
    torch.library.register_autograd("dfgnn::messages", _derivative,
                                    setup_context=_save)


# ---- shapes, types and checks of a call -------------------------------------

def _same_type(given):
    """All tensors in one type, that of an autocast region if there is one."""
    tensors = [t for t in given if t is not None]
    kind = tensors[0].dtype
    for tensor in tensors[1:]:
        kind = torch.promote_types(kind, tensor.dtype)
    lower = autocast_dtype(tensors[0].device.type)
    if lower is not None and kind != torch.float64:
        kind = lower
    return Tensors(*(None if t is None else t.to(kind) for t in given))


def _check(graph, given):
    _, heads, dim = given.value.shape
    sizes = dict(value=(graph.num_src, heads, dim),
                 gate_dst=(graph.num_dst, heads, dim),
                 gate_src=(graph.num_src, heads, dim),
                 edge_attr=(graph.num_edges, heads, dim),
                 edge_bias=(heads, dim))
    if given.edge_weight is not None:
        fields = given.edge_attr.size(-1)
        parts = given.edge_weight.shape[:-3]
        sizes.update(edge_attr=(graph.num_edges, fields),
                     edge_weight=(*parts, heads, dim, fields),
                     edge_bias=(*parts, heads, dim))
    names = dict(value="x")
    for name, tensor in given._asdict().items():
        if tensor is None:
            continue
        if tuple(tensor.shape) != sizes[name] or tensor.device != graph.device:
            raise ValueError(
                f"{names.get(name, name)} must be {list(sizes[name])} on "
                f"{graph.device}, heads and features apart, got "
                + describe(tensor))


def _with_heads(x, width, given):
    """given with x as its value, and with heads and features as dimensions of
    their own in all tensors."""
    heads = 1 if x.dim() == 2 else x.size(1)

    def apart(tensor):
        if tensor is None or tensor.dim() == 3:
            return tensor
        if tensor.dim() == 2 and tensor.size(1) == width:
            return tensor.view(-1, heads, width // heads)
        return tensor
    weight, bias = given.edge_weight, given.edge_bias
    if weight is not None and weight.dim() == 2 and weight.size(0) == width:
        weight = weight.reshape(heads, width // heads, -1)
    if bias is not None and bias.numel() == width:
        bias = bias.reshape(heads, width // heads)
    attr = given.edge_attr if weight is not None else apart(given.edge_attr)
    return Tensors(apart(x), apart(given.gate_dst), apart(given.gate_src),
                   attr, weight, bias)


def _projected(given):
    """given with its edge features multiplied by their matrix."""
    heads, dim, fields = given.edge_weight.shape
    part = given.edge_attr @ given.edge_weight.reshape(-1, fields).t()
    if given.edge_bias is not None:
        part = part + given.edge_bias.reshape(-1)
    return given._replace(edge_attr=part.view(-1, heads, dim),
                          edge_weight=None, edge_bias=None)


def _check_names(reduce):
    for name in [reduce] if isinstance(reduce, str) else reduce:
        if name not in _messages.REDUCTIONS:
            raise ValueError("reduce must be 'sum', 'mean', 'min', 'max', "
                             "'std', 'var' or 'pna', or several of them, got "
                             f"{reduce!r}")


def _check_types(given):
    for tensor in given:
        if tensor is not None and (not isinstance(tensor, torch.Tensor)
                                   or tensor.dtype not in DTYPES):
            raise TypeError("x, gates and edge features must be float16, "
                            "bfloat16, float32 or float64, got "
                            + describe(tensor))
    if given.value.dim() not in (2, 3):
        raise ValueError("x must be [sources, features] or [sources, heads, "
                         "features], got " + describe(given.value))
    if given.edge_weight is not None and (
            given.edge_attr is None or given.edge_attr.dim() != 2):
        raise ValueError("edge_weight needs edge_attr [edges, F]")


def _with_value(given, value_weight, value_bias):
    """given with edge_weight and edge_bias stacked: the gate's, the value's."""
    weight, bias = given.edge_weight, given.edge_bias
    if weight is None or weight.shape != value_weight.shape:
        raise ValueError("value_weight needs edge_weight of the same shape, "
                         "got " + describe(value_weight) + " and "
                         + ("None" if weight is None else describe(weight)))
    weight, value_weight = _same_types(weight, value_weight)
    if bias is None and value_bias is not None:
        bias = torch.zeros_like(value_bias)
    elif value_bias is None and bias is not None:
        value_bias = torch.zeros_like(bias)
    if bias is not None:
        bias = torch.stack(_same_types(bias, value_bias))
    return given._replace(edge_weight=torch.stack((weight, value_weight)),
                          edge_bias=bias)


def _same_types(a, b):
    kind = torch.promote_types(a.dtype, b.dtype)
    return a.to(kind), b.to(kind)


def _call(graph, given, reduce, num_dst, value_weight=None, value_bias=None):
    """A tensor; a tuple for "pna", a list for a list of reductions."""
    x = given.value
    _check_names(reduce)
    _check_types(given)
    if num_dst is None:
        num_dst = graph.num_dst if isinstance(graph, Graph) else (
            x.size(0) if given.gate_dst is None else given.gate_dst.size(0))
    width = x.size(1) if x.dim() == 2 else x.size(1) * x.size(2)
    given = _with_heads(x, width, given)
    if value_weight is not None:
        more = _with_heads(x, width, Tensors(
            x, edge_weight=value_weight, edge_bias=value_bias))
        given = _with_value(given, more.edge_weight, more.edge_bias)
    given = _same_type(given)
    if given.edge_weight is not None and given.edge_weight.dim() == 3 and \
            given.edge_attr.size(1) > MOST_PROJECTED[x.device.type]:
        given = _projected(given)
    if not isinstance(graph, Graph):
        refuse_values(graph, "messages of edges")
    if ops.compiling() and ops.AVAILABLE:
        def run(name):
            return _traced(graph, name, given, num_dst)
    else:
        graph = ops.untraced_graph(graph, (x.size(0), num_dst))
        if not jit_tracing():  # a trace makes tensors of sizes
            _check(graph, given)
        names = [reduce] if isinstance(reduce, str) else reduce
        listed = (given.edge_attr is not None
                  and _messages.reads_lists(graph, names, given))
        if given.edge_attr is not None and not listed:
            given = given._replace(
                edge_attr=graph.to_graph_order(given.edge_attr))

        def run(name):
            return _messages.fused(graph, name, given, listed)

    def shaped(out):
        return out.squeeze(1) if x.dim() == 2 else out
    if not isinstance(reduce, str):
        return [shaped(out) for out in _each_reduction(run, reduce)]
    if reduce == "pna":
        return tuple(map(shaped, run("pna")))
    return shaped(_each_reduction(run, [reduce])[0])


def _each_reduction(run, names):
    """The results of the named reductions; two or more of PNA's are made in
    one pass."""
    found = {}
    names = [name for given in names for name in
             (_messages.PNA if given == "pna" else (given,))]
    together = set(names) & set(_messages.PNA)
    if len(together) > 1 or "std" in together:
        found = dict(zip(_messages.PNA, run("pna")))
    for name in names:
        if name not in found:
            found[name] = run(name)
    return [found[name] for name in names]


def _traced(graph, reduce, given, num_dst):
    """One reduction of a call that torch.compile traces."""
    if reduce not in _messages.OPS:
        graph = ops.untraced_graph(graph, (given.value.size(0), num_dst))
        if given.edge_attr is not None:
            given = given._replace(
                edge_attr=graph.to_graph_order(given.edge_attr))
        return _messages.composite(graph, reduce, given)
    edge_index, number, _ = ops._named(graph, given.value.size(0), num_dst)
    outs = torch.ops.dfgnn.messages(*given, edge_index, number,
                                    given.value.size(0), num_dst, reduce)
    return outs[:len(_OUTS)] if reduce == "pna" else outs[0]


# ---- the functions ----------------------------------------------------------

def relu_messages(graph, x, edge_attr, edge_weight=None, edge_bias=None,
                  reduce="sum", *, num_dst=None):
    """out_i = the sum over in-edges of relu(x_j + e_ij), as GINEConv and
    GENConv have it, or another reduction.

    x [M, F] or [M, H, D].
    edge_attr: e, of as many features as x, in the caller's edge order.
    edge_weight [H * D, F'], edge_bias [H * D]: with them edge_attr is [E, F']
        and e = W edge_attr + b, which is never made of all edges at once.
    reduce: "sum", "mean", "min", "max", "std", "var", or "pna": mean, min, max
        and std in one pass, as a tuple.  A list of names gives a list of
        results.  A destination without edges gives 0.  "var" runs by torch
        operations, which hold every edge's features.  The gradient of an
        extreme goes to the first of equal messages, where PyG without
        torch_scatter divides it among them.
    num_dst: the number of destinations; by default that of a Graph, and for
        other edges that of the sources.
    """
    if edge_attr is None:
        raise ValueError("edge_attr is None; relu_messages needs features of "
                         "the edges")
    return _call(graph, Tensors(x, None, None, edge_attr, edge_weight,
                                edge_bias), reduce, num_dst)


def gated_messages(graph, x, gate_dst, gate_src, edge_attr=None,
                   edge_weight=None, edge_bias=None, reduce="sum", *,
                   value_weight=None, value_bias=None, num_dst=None):
    """out_i = the sum over in-edges of sigmoid(a_i + b_j [+ e_ij]) x_j,
    feature by feature, as GatedGCN has it, or another reduction.

    x and gate_src b [M, F] or [M, H, D], gate_dst a [N, F] or [N, H, D];
    the others as in relu_messages().
    value_weight [H * D, F'], value_bias [H * D]: the value has features of the
        edge, too, x_j + W' edge_attr + b', as ResGatedGraphConv has it.
    """
    return _call(graph, Tensors(x, gate_dst, gate_src, edge_attr, edge_weight,
                                edge_bias), reduce, num_dst, value_weight,
                 value_bias)
