"""Attention of a rank's rows: the interior while the halo travels, then the
edges that read the halo, then the merge of both."""

from collections import namedtuple

import torch

from .. import _attention_call, _recipe
from .._autograd import savable
from .._modes import untraced
from .._operators import OPERATORS, by_edge, check_inputs

# sources: which inputs are by source; trains: whether backward will follow
Call = namedtuple("Call", "graph name settings seed sources trains")


def lerp_rows(out, rows, far, share):
    """out[rows] = (1 - share) out[rows] + share far; rows None: all."""
    near = out if rows is None else out.index_select(0, rows)
    kind = share.dtype  # 16-bit features are mixed as exactly as kernels do
    mixed = near.to(kind).lerp_(far.to(kind), share.unsqueeze(-1))
    if rows is not None:
        out.index_copy_(0, rows, mixed.to(out.dtype))
    elif mixed is not out:
        out.copy_(mixed)


def merge_into(out, lse, rows, far_out, far_lse):
    """Merges attention over other edges into some rows of out and lse; rows
    None: all."""
    near = lse if rows is None else lse.index_select(0, rows)
    share = torch.sigmoid(far_lse - near)
    share = torch.nan_to_num(share, nan=0.0)  # no edge in either
    lerp_rows(out, rows, far_out, share)
    both = torch.logaddexp(near, far_lse)
    if rows is None:
        lse.copy_(both)
    else:
        lse.index_copy_(0, rows, both)


def _near_inputs(call, inputs):
    """The inputs of the interior matrix."""
    edges = call.graph.split.near_edges
    return by_edge(OPERATORS[call.name], inputs,
                   lambda t: t.index_select(0, edges))


def _far_inputs(call, inputs, halo):
    """The inputs of the outer matrix: its destinations are the boundary, its
    sources the halo."""
    split, halo = call.graph.split, iter(halo)
    inputs = [next(halo) if spec.dims[0] == "M" and t is not None else
              split.at_boundary(t) if spec.dims[0] == "N" else t
              for spec, t in zip(OPERATORS[call.name].inputs, inputs)]
    return by_edge(OPERATORS[call.name], inputs,
                   lambda t: t.index_select(0, split.far_edges))


def _shipped(call, inputs):
    """The inputs of sources, in the types that kernels read."""
    exact = torch.float64 if inputs[OPERATORS[call.name].value].dtype == \
        torch.float64 else torch.float32
    return [t.to(exact) if OPERATORS[call.name].inputs[i].scalar else t
            for i, t in ((i, inputs[i]) for i in call.sources)]


class DistAttention(torch.autograd.Function):
    """Gives (out, lse) of own nodes; lse has no gradient."""

    @staticmethod
    def forward(ctx, call, bias, *inputs):
        graph, split = call.graph, call.graph.split
        pending = graph.exchange.start(_shipped(call, inputs))
        biases = split.parts_of(bias)
        near_inputs = _near_inputs(call, inputs)
        spec = OPERATORS[call.name]
        near_inputs = spec.with_bias(near_inputs, biases[0])
        near = _recipe.recipe(split.interior, call.name, near_inputs,
                              call.settings)
        out, lse = near.forward(split.interior, near_inputs, call.seed)
        halo = pending.wait()
        far_inputs = spec.with_bias(_far_inputs(call, inputs, halo), biases[1])
        far = _recipe.recipe(split.outer, call.name, far_inputs,
                             call.settings)
        far_out, far_lse = far.forward(split.outer, far_inputs, call.seed)
        merge_into(out, lse, split.boundary, far_out, far_lse)
        keep = graph.halo_mode == "keep" and call.trains
        ctx.call, ctx.pending = call, pending if keep else None
        if not keep:
            pending.done()
        ctx.save_for_backward(out, lse, *savable((bias, *inputs)))
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_out, _):
        call = ctx.call
        graph, split = call.graph, call.graph.split
        exchange = graph.exchange
        out, lse, bias, *inputs = ctx.saved_tensors
        wants = ctx.needs_input_grad
        spec = OPERATORS[call.name]
        count = len(spec.inputs) - 1
        needed = (*wants[2:], *(False,) * (count - len(inputs)), wants[1])
        pending = ctx.pending
        if pending is None:
            pending = exchange.start(_shipped(call, inputs))
            halo = pending.wait()
        else:
            halo = pending.layout.views(pending.got)
        biases = split.parts_of(bias)
        far_inputs = spec.with_bias(_far_inputs(call, inputs, halo), biases[1])
        near_inputs = spec.with_bias(_near_inputs(call, inputs), biases[0])
        near = _recipe.recipe(split.interior, call.name, near_inputs,
                              call.settings)
        far = _recipe.recipe(split.outer, call.name, far_inputs,
                             call.settings)
        layout, buffer, there = exchange.begin_back(_shipped(call, inputs))
        into = [None] * len(far_inputs)
        for number, view in zip(call.sources, there):
            if not needed[number]:
                view.zero_()
            elif far.empty or view.dtype != far.grads[number][1] or (
                    far.places[number][1] is not None):
                pass  # copied below
            else:
                into[number] = view
        far_grads = far.backward(
            split.outer, far.keep(call.seed, far_inputs, (
                split.at_boundary(out), split.at_boundary(lse))),
            (split.at_boundary(grad_out),), needed, into=into)
        for number, view in zip(call.sources, there):
            if needed[number] and into[number] is None:
                view.copy_(far_grads[number])
        pending.done()
        ctx.pending = None
        back = exchange.start_back(layout, buffer)
        grads = near.backward(
            split.interior, near.keep(call.seed, near_inputs, (out, lse)),
            (grad_out,), needed)
        _add_rows(call, grads, far_grads, split)
        if needed[-1]:
            grads[-1] = split.whole_of(grads[-1], far_grads[-1],
                                       graph.num_edges)
        returned = back.wait()
        exchange.add_returned([grads[i] for i in call.sources], returned)
        back.done()
        return (None, grads[-1], *grads[:len(inputs)])


def _add_rows(call, grads, far_grads, split):
    """Adds the outer matrix's gradients of own rows, of edges and of
    parameters to grads."""
    for number, spec in enumerate(
            OPERATORS[call.name].inputs[:len(grads) - 1]):
        if spec.dims[0] == "M" or grads[number] is None:
            continue
        if spec.dims[0] == "E":
            grads[number] = split.whole_of(grads[number], far_grads[number],
                                           call.graph.num_edges)
        elif spec.dims[0] == "N" and split.boundary is not None:
            grads[number].index_add_(0, split.boundary, far_grads[number])
        else:
            grads[number] += far_grads[number]


@untraced
def attend_over_ranks(name, graph, inputs, bias, dropout, scale, slope,
                      return_weights, self_loops, return_lse, **edges):
    """_attention_call.attend() of a DistGraph; inputs are of own nodes."""
    spec = OPERATORS[name]
    if self_loops:
        graph = graph.with_self_loops()
        inputs = by_edge(spec, inputs, graph.to_looped_edges)
        if bias is not None:
            bias = graph.to_looped_edges(bias)
    if return_weights:
        # over graph.table, after the whole halo has come: fused passes over
        # two matrices return no weights
        inputs = tuple(graph.extend(t) if s.dims[0] == "M" and t is not None
                       else t for s, t in zip(spec.inputs, inputs))
        return _attention_call.attend(
            name, graph.table, inputs, bias, dropout,
            draw=graph.exchange.seed, return_lse=return_lse, scale=scale,
            slope=slope, return_weights=return_weights, self_loops=False,
            **edges)
    n = graph.num_dst
    check_inputs(spec, spec.with_bias(inputs, bias),
                 {"N": n, "M": n, "E": graph.num_edges}, graph.device)
    value = inputs[spec.value]
    settings = _attention_call.settings_of(
        value, scale, slope, dropout if dropout < 1 else 0.0, False, **edges)
    seed = graph.exchange.seed(value.device) if 0 < dropout < 1 else None
    inputs = by_edge(spec, inputs, graph.to_graph_order)
    if bias is not None:
        bias = graph.to_graph_order(bias)
    sources = tuple(i for i, (s, t) in enumerate(zip(spec.inputs, inputs))
                    if s.dims[0] == "M" and t is not None)
    trains = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (bias, *inputs))
    out, lse = DistAttention.apply(
        Call(graph, name, settings, seed, sources, trains), bias, *inputs)
    if dropout == 1:
        out = out * 0
    return (out, None, None, lse) if return_lse else out
