"""Attention and sums of a rank's rows: the interior while the halo travels,
then the edges that read the halo, then the merge of both.  Other reductions
take the whole table."""

from typing import NamedTuple

import torch

from .. import _operators, functional
from .._autograd import savable
from .._checks import describe, exact
from .._evaluators import inverse_root
from .._execute import Settings, settings_of, sum_settings
from .._modes import untraced
from .._operators import OPERATORS, by_edge, check_inputs
from ..aggregation import of_neighbours


class _Call(NamedTuple):
    """A call except for its inputs."""
    graph: object  # a DistGraph
    name: str  # of the operator
    settings: Settings
    seed: torch.Tensor | None
    sources: tuple  # the numbers of the inputs that travel
    trains: bool  # whether backward will follow
    halo_scale: torch.Tensor | None  # scale_src of the halo

    @property
    def spec(self):
        return OPERATORS[self.name]

    def shipped(self, inputs):
        """The inputs that travel, in the types that kernels read."""
        kind = exact(inputs[self.spec.value].dtype)
        return [inputs[n].to(kind) if self.spec.inputs[n].scalar
                else inputs[n] for n in self.sources]

    def near(self, inputs):
        """The inputs of the interior matrix."""
        edges = self.graph.split.near_edges
        return by_edge(self.spec, inputs, lambda t: t.index_select(0, edges))

    def far(self, inputs, halo):
        """The inputs of the outer matrix: its destinations are the boundary,
        its sources the halo."""
        split, tensors = self.graph.split, []
        halo = dict(zip(self.sources, halo))
        halo[self.spec.fields.get("scale_src")] = self.halo_scale
        for number, (about, t) in enumerate(zip(self.spec.inputs, inputs)):
            if about.dims[0] == "M":
                t = halo.get(number)
            elif about.dims[0] == "N":
                t = split.at_boundary(t)
            tensors.append(t)
        return by_edge(self.spec, tensors,
                       lambda t: t.index_select(0, split.far_edges))

    def recipe(self, matrix, inputs):
        return _operators.recipe(matrix, self.name, inputs, self.settings)


def _merge(outs, rows, far):
    """Merges results over other edges into some rows of outs; rows None:
    all."""
    out, *lse = outs
    if lse:
        _merge_attention(out, *lse, rows, *far)
    elif rows is None:
        out += far[0]
    else:
        out.index_add_(0, rows, far[0])


def _merge_attention(out, lse, rows, far_out, far_lse):
    near_out, near_lse = (out, lse) if rows is None else (
        t.index_select(0, rows) for t in (out, lse))
    share = torch.sigmoid(far_lse - near_lse)
    share = torch.nan_to_num(share, nan=0.0)  # no edge in either
    both = torch.logaddexp(near_lse, far_lse)
    kind = share.dtype  # 16-bit features are mixed as exactly as kernels do
    mixed = near_out.to(kind).lerp_(far_out.to(kind), share.unsqueeze(-1))
    if rows is not None:
        out.index_copy_(0, rows, mixed.to(out.dtype))
        lse.index_copy_(0, rows, both)
    else:
        lse.copy_(both)
        if mixed is not out:
            out.copy_(mixed)


def _add_far(call, grads, far_grads):
    """Adds the outer matrix's gradients of own rows, of edges and of
    parameters to grads."""
    split = call.graph.split
    for number, about in enumerate(call.spec.inputs):
        if about.dims[0] == "M" or grads[number] is None:
            continue
        if about.dims[0] == "E":
            grads[number] = split.whole_of(grads[number], far_grads[number],
                                           call.graph.num_edges)
        elif about.dims[0] == "N" and split.boundary is not None:
            grads[number].index_add_(0, split.boundary, far_grads[number])
        else:
            grads[number] += far_grads[number]


class _OverRanks(torch.autograd.Function):
    """The results of own nodes, of which the first has a gradient; inputs are
    all that the operator has, None where one is not given."""

    @staticmethod
    def forward(ctx, call, *inputs):
        graph, split = call.graph, call.graph.split
        pending = graph.exchange.start(call.shipped(inputs))
        near_inputs = call.near(inputs)
        near = call.recipe(split.interior, near_inputs)
        outs = near.forward(split.interior, near_inputs, call.seed)
        far_inputs = call.far(inputs, pending.wait())
        far = call.recipe(split.outer, far_inputs)
        _merge(outs, split.boundary,
               far.forward(split.outer, far_inputs, call.seed))
        fields = [about.field for about in call.spec.inputs]
        reads_halo = any(fields[n] in near.kept for n in call.sources)
        keep = reads_halo and graph.halo_mode == "keep" and call.trains
        ctx.call, ctx.recipes, ctx.layout = call, (near, far), pending.layout
        ctx.pending, ctx.reads_halo = pending if keep else None, reads_halo
        if not keep:
            pending.done()
        ctx.save_for_backward(*savable([
            t if field in near.kept else None for field, t in zip(
                [*[out[0] for out in near.outs], *fields],
                [*outs, *inputs])]))
        ctx.mark_non_differentiable(*outs[1:])
        return tuple(outs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_out, *_):
        call, (near, far) = ctx.call, ctx.recipes
        split, exchange = call.graph.split, call.graph.exchange
        outs = ctx.saved_tensors[:len(near.outs)]
        inputs = ctx.saved_tensors[len(near.outs):]
        needed, pending, halo = ctx.needs_input_grad[1:], ctx.pending, []
        if pending is not None:
            halo = pending.layout.views(pending.got)
        elif ctx.reads_halo:
            pending = exchange.start(call.shipped(inputs))
            halo = pending.wait()
        buffer, there = exchange.begin_back(ctx.layout)
        into = [None] * len(inputs)
        for number, view in zip(call.sources, there):
            if not needed[number]:
                view.zero_()
            elif not far.empty and view.dtype == far.grads[number][1] and \
                    far.places[number][1] is None:
                into[number] = view
        far_grads = far.backward(
            split.outer, far.keep(call.seed, call.far(inputs, halo), [
                split.at_boundary(t) for t in outs]),
            (split.at_boundary(grad_out),), needed, into=into)
        for number, view in zip(call.sources, there):
            if needed[number] and into[number] is None:
                view.copy_(far_grads[number])
        if pending is not None:
            pending.done()
        ctx.pending = None
        back = exchange.start_back(ctx.layout, buffer)
        grads = near.backward(
            split.interior, near.keep(call.seed, call.near(inputs), outs),
            (grad_out,), needed)
        _add_far(call, grads, far_grads)
        returned = back.wait()
        exchange.add_returned([grads[n] for n in call.sources], returned)
        back.done()
        return (None, *grads)


def _run(graph, name, inputs, settings, seed=None, halo_scale=None):
    """The results of own nodes; inputs are in the graph's order of edges."""
    spec = OPERATORS[name]
    inputs = (*inputs, *[None] * (len(spec.inputs) - len(inputs)))
    sources = tuple(n for n, (about, t) in enumerate(zip(spec.inputs, inputs))
                    if about.dims[0] == "M" and t is not None
                    and about.field != "scale_src")
    trains = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in inputs)
    return _OverRanks.apply(_Call(graph, name, settings, seed, sources, trains,
                                  halo_scale), *inputs)


@untraced
def attend(graph, name, inputs, bias, dropout, scale, slope, return_weights,
           self_loops, return_lse, **edges):
    """functional.attend() of a DistGraph; inputs are of own nodes."""
    spec = OPERATORS[name]
    inputs = spec.with_bias(inputs, bias)
    if self_loops:
        graph = graph.with_self_loops()
        inputs = by_edge(spec, inputs, graph.to_looped_edges)
    if return_weights:
        # fused passes over two matrices return no weights: one pass over
        # graph.table waits for the whole halo
        *inputs, bias = [graph.extend(t) if about.dims[0] == "M" and
                         t is not None else t
                         for about, t in zip(spec.inputs, inputs)]
        return functional.attend(
            graph.table, name, tuple(inputs), bias, dropout,
            draw=graph.exchange.seed, return_lse=return_lse, scale=scale,
            slope=slope, return_weights=return_weights, self_loops=False,
            **edges)
    n = graph.num_dst
    check_inputs(spec, inputs, {"N": n, "M": n, "E": graph.num_edges},
                 graph.device)
    value = inputs[spec.value]
    settings = settings_of(
        value, scale, slope, dropout if dropout < 1 else 0.0, False, **edges)
    seed = graph.exchange.seed(value.device) if 0 < dropout < 1 else None
    out, lse = _run(graph, name, by_edge(spec, inputs, graph.to_graph_order),
                    settings, seed)
    if dropout == 1:
        out = out * 0
    return (out, None, None, lse) if return_lse else out


_SUMS = {"spmm-sum", "spmm-mean", "reduce-mean", "spmm-weighted"}


def _scales(graph, op, dtype, symmetric):
    """{scale_dst, scale_src} of own nodes, and scale_src of the halo; nothing
    where there are no scales."""
    if not symmetric and op not in ("spmm-mean", "reduce-mean"):
        return {}, None
    kind = exact(dtype)

    def make():
        degrees = graph.degrees.to(torch.float64)
        if not symmetric:
            mean = (1 / degrees.clamp(min=1)).to(kind)
            return mean, torch.ones_like(mean), mean.new_ones(
                graph.num_src - graph.num_dst)
        scale = inverse_root(degrees).to(kind)
        return scale, scale, graph.extend(scale)[graph.num_dst:]
    dst, src, halo = graph._derive(("scales", symmetric, kind), make)
    return {"scale_dst": dst, "scale_src": src}, halo


@untraced
def sums(graph, op, value, weight, self_loops, symmetric):
    """The results of an operator; value [n, H, D] of own nodes, weight in the
    caller's edge order."""
    if value.size(0) != graph.num_dst:
        raise ValueError(f"x must have a row for each of the rank's "
                         f"{graph.num_dst} nodes, got " + describe(value))
    if self_loops:
        graph = graph.with_self_loops()
        if weight is not None:
            weight = graph.to_looped_edges(weight)
    if weight is not None:
        if weight.shape != (graph.num_edges, value.size(1)):
            raise ValueError(
                f"weight must be [edges={graph.num_edges}, "
                f"heads={value.size(1)}], got " + describe(weight))
        weight = graph.to_graph_order(weight).to(
            exact(value.dtype)).contiguous()
    value = value.contiguous()
    if op in _SUMS and (weight is None) == (op != "spmm-weighted"):
        scales, halo = _scales(graph, op, value.dtype, symmetric)
        inputs = {"value": value, **scales}
        if weight is not None:
            inputs["edge_weight"] = weight
        name = "spmm-sum" if weight is None else "spmm-weighted"
        return _run(graph, name, OPERATORS[name].given(inputs), sum_settings(),
                    halo_scale=halo)
    table = graph.extend(value)
    # a rank without edges sends gradients back, too, since others wait for it
    none = table[:0].sum()
    outs = of_neighbours(graph.table, op, table, weight)
    return tuple(out + none for out in outs)
