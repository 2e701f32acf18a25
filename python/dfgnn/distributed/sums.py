"""Sums of a rank's rows, in the order of its attention: the interior while the
halo travels, then the outer matrix.  Other reductions take the whole table."""

import torch

from .. import _fused, _recipe
from .._autograd import savable
from .._checks import describe
from .._modes import untraced
from .._operators import OPERATORS, sum_settings

_SUMS = {"spmm-sum", "spmm-mean", "reduce-mean", "spmm-weighted"}


class _Pass:
    """A sum or reduction over one of a rank's matrices; scales: (r, c)."""

    def __init__(self, graph, op, value, weight=None, scales=None):
        dst, src = scales or (None, None)
        given = {"value": value, "edge_weight": weight, "scale_dst": dst,
                 "scale_src": src}
        inputs = OPERATORS[op].given({
            field: t for field, t in given.items() if t is not None})
        self.graph, self.scales = graph, inputs[1:] if weight is None else \
            inputs[2:]
        self.made = _recipe.recipe(graph, op, inputs, sum_settings())

    def forward(self, value, *weight):
        return self.made.forward(self.graph, (value, *weight, *self.scales))

    def backward(self, grad, *inputs, wants_weight=False):
        """(gradient of the value, that of the weight or None); inputs: the
        value and the weight, where the gradient reads them."""
        made = self.made
        inputs = (*(inputs or (None,)), *self.scales)
        found = made.backward(
            self.graph, made.keep(None, inputs, (None,)), (grad,),
            (True, wants_weight, *made.ungiven)[:len(inputs)])
        return found[0], found[1] if wants_weight else None


class _Sum(torch.autograd.Function):
    """out_i = r_i sum_j c_j w_ij x_j; near and far: the scales (r, c) of the
    interior and of the outer matrix."""

    @staticmethod
    def forward(ctx, graph, near, far, value, weight):
        split = graph.split
        op = "spmm-sum" if weight is None else "spmm-weighted"
        pending = graph.exchange.start([value])
        weights = split.parts_of(weight)
        given = [() if weight is None else (part,) for part in weights]
        near = _Pass(split.interior, op, value, weights[0], near)
        out, = near.forward(value, *given[0])
        halo = pending.wait()[0].contiguous()
        far = _Pass(split.outer, op, halo, weights[1], far)
        more, = far.forward(halo, *given[1])
        if split.boundary is None:
            out += more
        else:
            out.index_add_(0, split.boundary, more)
        if weight is not None:  # its gradient reads the values
            ctx.save_for_backward(*savable((value, weight)), halo.clone())
        pending.done()
        ctx.call = graph, near, far, weight is not None
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        graph, near, far, weighted = ctx.call
        split, exchange = graph.split, graph.exchange
        grad = grad.contiguous()
        there = split.at_boundary(grad)
        wants_weight = ctx.needs_input_grad[4]
        here, beyond = (), ()
        if weighted:
            value, weight, halo = ctx.saved_tensors
            weights = split.parts_of(weight)
            here, beyond = (value, weights[0]), (halo, weights[1])
        layout, buffer, (view,) = exchange.begin_back([grad])
        far_grad, far_weight = far.backward(there, *beyond,
                                            wants_weight=wants_weight)
        view.copy_(far_grad)
        back = exchange.start_back(layout, buffer)
        found, near_weight = near.backward(grad, *here,
                                           wants_weight=wants_weight)
        returned = back.wait()
        exchange.add_returned([found], returned)
        back.done()
        return None, None, None, found, split.whole_of(
            near_weight, far_weight, graph.num_edges)


# ---- the call that aggregation._call() makes --------------------------------

def _scales(graph, op, dtype, symmetric):
    """(scales of the interior, scales of the outer matrix), None without
    scales."""
    exact = torch.float64 if dtype == torch.float64 else torch.float32

    def make():
        degrees = graph.degrees.to(torch.float64)
        if not symmetric:
            mean = (1 / degrees.clamp(min=1)).to(exact)
            return mean, None, None
        scale = degrees.pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0).to(exact)
        pending = graph.exchange.start([scale.view(-1, 1)])
        halo = pending.wait()[0].reshape(-1).clone()
        pending.done()
        return scale, scale, halo
    if symmetric or op in ("spmm-mean", "reduce-mean"):
        dst, near, far = graph._derive(
            ("scales", symmetric, exact), make)
        split = graph.split
        n, m = graph.num_dst, graph.num_src - graph.num_dst
        near = dst.new_ones(n) if near is None else near
        far = dst.new_ones(m) if far is None else far
        return (dst, near), (split.at_boundary(dst), far)
    return None, None


@untraced
def call(graph, op, value, weight, self_loops, symmetric):
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
            torch.float64 if value.dtype == torch.float64
            else torch.float32).contiguous()
    value = value.contiguous()
    if op in _SUMS and (weight is None) == (op != "spmm-weighted"):
        near, far = _scales(graph, op, value.dtype, symmetric)
        return (_Sum.apply(graph, near, far, value, weight),)
    table = graph.extend(value)
    # a rank without edges sends gradients back, too, since others wait for it
    none = table[:0].sum()
    outs = _fused.of_neighbours(graph.table, op, table, weight)
    return tuple(out + none for out in outs)
