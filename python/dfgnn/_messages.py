"""The fused passes over messages of edges, their gradients, and the torch
operations that stand in for both.

A call has six tensors, in this order: value [M, H, D], gate_dst [N, H, D],
gate_src [M, H, D], edge_attr [E, F] (or [E, H, D] without edge_weight),
edge_weight [H, D, F] and edge_bias [H, D].  All but value may be None; without
gates a message is relu(x_j + e), with them sigmoid(a_i + b_j + e) x_j.  With
an edge_weight [2, H, D, F] (and an edge_bias [2, H, D]) the value has features
of the edge, too: sigmoid(a_i + b_j + e) (x_j + e').  Tensors by edge are in
the graph's own order.
"""

import functools
from typing import NamedTuple, Optional

import torch

from . import _abi, _derived, _recording
from ._fallbacks import say_once, say_unfused
from ._execute import Plan, generation
from ._modes import needs_composite
from ._neighbours import OPERATORS, winners
from ._operators import DTYPES, Settings
from .errors import UnsupportedError

FIELDS = ("value", "gate_dst", "gate_src", "edge_attr", "edge_weight",
          "edge_bias")
# The operator whose kernels make each reduction.
OPS = {"sum": "spmm-sum", "mean": "spmm-mean", "min": "reduce-min",
       "max": "reduce-max", "pna": "reduce-pna"}
PNA = ("mean", "min", "max", "std")
REDUCTIONS = ("sum", *PNA, "var", "pna")


class Tensors(NamedTuple):
    value: torch.Tensor
    gate_dst: Optional[torch.Tensor] = None
    gate_src: Optional[torch.Tensor] = None
    edge_attr: Optional[torch.Tensor] = None
    edge_weight: Optional[torch.Tensor] = None
    edge_bias: Optional[torch.Tensor] = None


# ---- by torch operations ----------------------------------------------------

def _parts(given):
    """(e, e' or None), [E, H, D] each."""
    if given.edge_weight is None:
        return given.edge_attr, None
    *_, heads, dim, fields = given.edge_weight.shape
    parts = given.edge_attr @ given.edge_weight.reshape(-1, fields).t()
    parts = parts.view(parts.size(0), -1, heads, dim)
    if given.edge_bias is not None:
        parts = parts + given.edge_bias.view(parts.shape[1:])
    return parts[:, 0], parts[:, 1] if parts.size(1) > 1 else None


def _made(given, of_src, of_dst, of_edge):
    """The messages; of_src and its like choose rows of tensors."""
    part, more = (None if x is None else of_edge(x) for x in _parts(given))
    sent = of_src(given.value)
    if given.gate_dst is None:
        return (sent + part).relu()
    gate = of_dst(given.gate_dst) + of_src(given.gate_src)
    if more is not None:
        sent = sent + more
    return (gate if part is None else gate + part).sigmoid() * sent


def _sent(graph, given):
    """The messages [E, H, D]."""
    return _made(given, lambda x: x.index_select(0, graph.src),
                 lambda x: x.index_select(0, graph.dst), lambda x: x)


def _winning(graph, given, positions):
    """The extremes [N, H, D] as messages of the edges that gave them."""
    edges, sources, there = winners(graph, positions)
    return _made(given, lambda x: x.gather(0, sources), lambda x: x,
                 lambda x: x.gather(0, edges)) * there


def composite(graph, reduce, given, args=None, listed=False):
    """[N, H, D], or a tuple of four such for "pna"; differentiable as often as
    wanted.

    listed: edge_attr is in the caller's order.
    args: by name the position in its row of the edge that gave each extreme,
        if known: gradients then go to those edges alone.
    """
    if listed:
        given = given._replace(
            edge_attr=graph.to_graph_order(given.edge_attr))
    message = _sent(graph, given)
    dst = graph.dst
    zeros = message.new_zeros((graph.num_dst,) + tuple(message.shape[1:]))

    def total(x):
        return zeros.index_add(0, dst, x)

    def extreme(name):
        if not graph.num_edges:
            return zeros
        if args is not None:
            return _winning(graph, given, args["arg_" + name])
        return zeros.scatter_reduce(
            0, dst.view(-1, 1, 1).expand_as(message), message, "a" + name,
            include_self=False)
    if reduce == "sum":
        return total(message)
    if reduce in ("min", "max"):
        return extreme(reduce)
    degrees = graph.degrees.clamp(min=1).to(zeros.dtype).view(-1, 1, 1)
    mean = total(message) / degrees
    if reduce == "mean":
        return mean
    deviation = message - mean.index_select(0, dst)
    var = total(deviation * deviation) / degrees
    if reduce == "var":
        return var
    std = torch.where(var <= 1e-5, torch.zeros_like(var),
                      var.clamp(min=1e-5).sqrt())
    return std if reduce == "std" else (mean, extreme("min"), extreme("max"),
                                        std)


def _tuple(outs):
    return outs if isinstance(outs, tuple) else (outs,)


def _by_program(graph, reduce, given, args):
    """composite() without messages of all edges; None if no program serves."""
    if reduce in ("min", "max"):
        return (_winning(graph, given, args["arg_" + reduce]),)
    outs = _derived.messages(graph, reduce, given)
    if outs is None or reduce != "pna":
        return outs
    return (outs[0], *(_winning(graph, given, args["arg_" + name])
                       for name in ("min", "max")), outs[1])


def _outs(graph, reduce, given, args, create_graph, listed):
    """composite(); by an edge program where gradients of gradients are wanted
    and one serves."""
    if create_graph:
        if listed and given.edge_attr is not None:
            given = given._replace(
                edge_attr=graph.to_graph_order(given.edge_attr))
            listed = False
        outs = _by_program(graph, reduce, given, args)
        if outs is not None:
            return outs
        say_unfused()
    return _tuple(composite(graph, reduce, given, args, listed))


def _differentiate(graph, reduce, given, args, grads, wants, create_graph,
                   listed):
    with torch.enable_grad():
        if create_graph:  # a view for each argument: one may be given twice
            given = [None if t is None else t.view_as(t) for t in given]
        else:
            given = [None if t is None else t.detach().requires_grad_(w)
                     for t, w in zip(given, wants)]
        outs = _outs(graph, reduce, Tensors(*given), args, create_graph,
                     listed)
        sources = [t for t, w in zip(given, wants) if w]
        found = iter(torch.autograd.grad(outs, sources, grads,
                                         create_graph=create_graph))
    return [next(found) if w else None for w in wants]


# ---- by kernels -------------------------------------------------------------

@functools.lru_cache(maxsize=1024)
def _problem(op, message, backward, dtype, heads, dim, edge_dim, listed):
    """The _abi.Problem of messages, which nobody writes to."""
    return _abi.Problem(
        op=_abi.OPS[op], pass_=int(backward), dtype=DTYPES[dtype],
        heads=heads, dim=dim, deterministic=1, max_workspace=-1,
        edge_dim=edge_dim, message=_abi.MESSAGES[message],
        edge_list=int(listed))


class _Recipe:
    """The shapes and plans that calls with the same shapes and types share."""

    def __init__(self, graph, reduce, given, listed):
        self.listed = listed
        value, attr = given.value, given.edge_attr
        _, self.heads, self.dim = value.shape
        self.dtype = value.dtype
        self.exact = (torch.float64 if value.dtype == torch.float64
                      else torch.float32)
        self.op = OPS[reduce]
        self.message = "relu" if given.gate_dst is None else "gate"
        if given.edge_weight is not None and given.edge_weight.dim() == 4:
            self.message = "gate-value"
        self.edge_dim = 0
        if given.edge_weight is not None:
            self.edge_dim = attr.size(1)
        elif attr is not None:
            self.edge_dim = _abi.EDGE_PROJECTED
        self.out_shape = (graph.num_dst, self.heads, self.dim)
        self.settings = Settings(
            0.0, 0.0, 0.0, False,
            torch.are_deterministic_algorithms_enabled(), False)
        self.plans = [None, None]

    def plan(self, graph, backward):
        if self.plans[backward] is None:
            self.plans[backward] = Plan(
                graph.handle, graph.device, _problem(
                    self.op, self.message, backward, self.dtype, self.heads,
                    self.dim, self.edge_dim, self.listed), self.settings)
        return self.plans[backward]

    def grad_dtype(self, name):
        return self.exact if name in ("edge_weight", "edge_bias") \
            else self.dtype


def _recipe(graph, reduce, given, listed):
    if _recording.current is not None:
        _recording.current.graph(graph)
    recipes = graph.handle.recipes
    key = ("messages", generation(), reduce, listed, given.value.shape[1:],
           given.value.dtype,
           given.gate_dst is None,
           None if given.edge_attr is None else given.edge_attr.shape[1:],
           None if given.edge_weight is None else given.edge_weight.dim(),
           torch.are_deterministic_algorithms_enabled())
    found = recipes.get(key)
    if found is None:
        found = recipes[key] = _Recipe(graph, reduce, given, listed)
    return found


def _run(graph, made, backward, tensors):
    plan = made.plan(graph, backward)
    args = plan.arguments()
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(args, name, tensor.data_ptr())
    plan.run(args, graph.device)


def forward(graph, reduce, given, listed=False):
    """(results, positions of the extremes in their rows) by name; all tensors
    of given are contiguous."""
    made = _recipe(graph, reduce, given, listed)
    spec = OPERATORS[made.op]
    outs = {name: given.value.new_empty(made.out_shape) for name in spec.outs}
    args = {name: torch.empty(made.out_shape, dtype=torch.int32,
                              device=graph.device) for name in spec.args}
    if graph.num_edges:
        _run(graph, made, False, dict(given._asdict(), **outs, **args))
        return outs, args
    return ({n: t.zero_() for n, t in outs.items()},
            {n: t.fill_(-1) for n, t in args.items()})


def _saved(reduce, outs, args):
    """The results of forward() that the gradient reads, by name."""
    known = dict(outs, **args)
    return {name: known[name] for name in OPERATORS[OPS[reduce]].saved
            if name in known}


def backward(graph, reduce, given, saved, grads, wants, listed=False):
    """The gradients of the tensors, None where they are not wanted."""
    made = _recipe(graph, reduce, given, listed)
    new = torch.empty if graph.num_edges else torch.zeros
    found = [new(t.shape, dtype=made.grad_dtype(name), device=t.device)
             if w else None
             for name, t, w in zip(FIELDS, given, wants)]
    if graph.num_edges:
        found_by_name = {"grad_" + name: t for name, t in zip(FIELDS, found)}
        names = OPERATORS[made.op].outs
        given_grads = {"grad_" + name: t for name, t in zip(names, grads)}
        _run(graph, made, True, dict(given._asdict(), **saved, **given_grads,
                                     **found_by_name))
    return [t if t is None or t.dtype == x.dtype else t.to(x.dtype)
            for t, x in zip(found, given)]


class Messages(torch.autograd.Function):
    @staticmethod
    def forward(ctx, graph, reduce, listed, *given):
        given = Tensors(*given)
        outs, args = forward(graph, reduce, given, listed)
        saved = _saved(reduce, outs, args)
        ctx.save_for_backward(*given, *saved.values())
        ctx.call = graph, reduce, listed, tuple(saved)
        return tuple(outs.values())

    @staticmethod
    def backward(ctx, *grads):
        graph, reduce, listed, names = ctx.call
        tensors = ctx.saved_tensors  # a checkpoint allows it once
        given = Tensors(*tensors[:len(FIELDS)])
        saved = dict(zip(names, tensors[len(FIELDS):]))
        wants = ctx.needs_input_grad[3:]
        if torch.is_grad_enabled():
            found = _differentiate(graph, reduce, given, saved, grads, wants,
                                   True, listed)
        else:
            found = gradients(graph, reduce, given, saved, grads, wants,
                              listed)
        return (None, None, None, *found)


def gradients(graph, reduce, given, saved, grads, wants, listed=False):
    """backward(), or its torch operations where no kernel supports it."""
    try:
        return backward(graph, reduce, given, saved,
                        [g.contiguous() for g in grads], wants, listed)
    except UnsupportedError as error:
        say_once(f"{error}; gradients are made by torch operations instead")
    return _differentiate(graph, reduce, given, saved, grads, wants, False,
                          listed)


def reads_lists(graph, names, given):
    """Whether kernels read the edge features in the order of the list that the
    graph was made of: for sums, on CPUs, of features that need no matrix."""
    return (graph.handle.listed and given.edge_weight is None
            and all(name in ("sum", "mean") for name in names))


def fused(graph, reduce, given, listed=False):
    """[N, H, D], or a tuple of four such for "pna", with gradients; tensors by
    edge are in the graph's order, if they are not listed: then in the
    caller's."""
    if needs_composite() or reduce not in OPS:
        return composite(graph, reduce, given, listed=listed)
    given = Tensors(*(None if t is None else t.contiguous() for t in given))
    try:
        outs = Messages.apply(graph, reduce, listed, *given)
        return outs if len(outs) > 1 else outs[0]
    except UnsupportedError as error:
        say_once(f"{error}; it runs by torch operations instead")
    return composite(graph, reduce, given, listed=listed)
