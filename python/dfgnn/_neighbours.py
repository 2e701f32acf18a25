"""The fused passes of SpMM and reductions, without gradients."""

import functools
from collections import namedtuple

import torch

from . import _abi, _recording
from ._execute import Plan, generation
from ._operators import DTYPES, Settings

# The tensors of an operator: outs, which forward writes; args, which hold the
# positions of the extremes in their rows; saved, which the gradient reads.
Op = namedtuple("Op", "outs args saved")
_PNA = ("out", "out_min", "out_max", "out_std")

OPERATORS = {
    "spmm-sum": Op(("out",), (), ()),
    "spmm-mean": Op(("out",), (), ()),
    "spmm-weighted": Op(("out",), (), ("value", "edge_weight")),
    "reduce-mean": Op(("out",), (), ()),
    "reduce-var": Op(("out",), (), ("value",)),
    "reduce-std": Op(("out",), (), ("value",)),
    "reduce-min": Op(("out",), ("arg_min",), ("arg_min",)),
    "reduce-max": Op(("out",), ("arg_max",), ("arg_max",)),
    "reduce-pna": Op(_PNA, ("arg_min", "arg_max"),
                     ("value", "out", "out_std", "arg_min", "arg_max")),
}


# the operators whose gradient reads no tensor of forward
SUMS = frozenset(("spmm-sum", "spmm-mean", "reduce-mean"))


@functools.lru_cache(maxsize=1024)
def _problem(op, backward, dtype, heads, dim):
    """The _abi.Problem of a sum, which nobody writes to."""
    return _abi.Problem(
        op=_abi.OPS[op], pass_=int(backward), dtype=DTYPES[dtype],
        heads=heads, dim=dim, deterministic=1, max_workspace=-1)


class _Recipe:
    """The shapes and plans that calls with the same shapes and types share."""

    def __init__(self, graph, op, heads, dim, dtype, deterministic):
        self.op, self.dtype = op, dtype
        self.exact = torch.float64 if dtype == torch.float64 else \
            torch.float32
        self.heads, self.dim = heads, dim
        self.out_shape = (graph.num_dst, heads, dim)
        self.value_shape = (graph.num_src, heads, dim)
        self.settings = Settings(0.0, 0.0, 0.0, False, deterministic, False)
        self.plans = [None, None]

    def plan(self, graph, backward):
        if self.plans[backward] is None:
            self.plans[backward] = Plan(
                graph.handle, graph.device, _problem(
                    self.op, backward, self.dtype, self.heads, self.dim),
                self.settings)
        return self.plans[backward]


def _recipe(graph, op, like):
    if _recording.current is not None:
        _recording.current.graph(graph)
    recipes = graph.handle.recipes
    _, heads, dim = like.shape
    deterministic = torch.are_deterministic_algorithms_enabled()
    key = (op, generation(), heads, dim, like.dtype, deterministic)
    found = recipes.get(key)
    if found is None:
        found = recipes[key] = _Recipe(graph, op, heads, dim, like.dtype,
                                       deterministic)
    return found


def _run(graph, made, backward, tensors, scales):
    plan = made.plan(graph, backward)
    args = plan.arguments()
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(args, name, tensor.data_ptr())
    if scales is not None:
        args.scale_dst, args.scale_src = (t.data_ptr() for t in scales)
    plan.run(args, graph.device)


def forward(graph, op, value, weight, scales=None):
    """(outputs, positions of the extremes in their rows) by name; value
    [M, H, D] and weight [E, H] contiguous; scales None or (of destinations, of
    sources)."""
    made = _recipe(graph, op, value)
    spec = OPERATORS[op]
    outs = {name: value.new_empty(made.out_shape) for name in spec.outs}
    args = {name: torch.empty(made.out_shape, dtype=torch.int32,
                              device=value.device) for name in spec.args}
    if not graph.num_edges:
        return ({n: t.zero_() for n, t in outs.items()},
                {n: t.fill_(-1) for n, t in args.items()})
    _run(graph, made, False, dict(value=value, edge_weight=weight, **outs,
                                  **args), scales)
    return outs, args


def winners(graph, picked):
    """(edges, sources, whether there is one) of the positions in their rows
    that forward() gave."""
    edges = picked.long() + graph.offsets[:-1].long().view(-1, 1, 1)
    edges = edges.clamp(0, graph.num_edges - 1)
    return edges, graph.src[edges], picked >= 0


def backward(graph, op, saved, grads, wants_value, wants_weight, scales=None):
    """(gradient of value, gradient of weight), None where not wanted; saved:
    the tensors that OPERATORS names, by name; grads: grad_out and the other
    gradients of outputs, by name."""
    made = _recipe(graph, op, grads["grad_out"])
    new = torch.empty if graph.num_edges else torch.zeros
    device = graph.device
    found = {}
    if wants_value:
        found["grad_value"] = new(made.value_shape, dtype=made.dtype,
                                  device=device)
    if wants_weight:
        found["grad_edge_weight"] = new(
            (graph.num_edges, made.heads), dtype=made.exact, device=device)
    if graph.num_edges and found:
        _run(graph, made, True, dict(saved, **grads, **found), scales)
    return found.get("grad_value"), found.get("grad_edge_weight")


# ---- sums, with as little Python in each call as can be

def _run_sum(graph, made, backward, value, out, scales):
    plan = made.plan(graph, backward)
    args = plan.arguments()
    if backward:
        args.grad_out, args.grad_value = value.data_ptr(), out.data_ptr()
    else:
        args.value, args.out = value.data_ptr(), out.data_ptr()
    if scales is not None:
        args.scale_dst, args.scale_src = (t.data_ptr() for t in scales)
    plan.run(args, graph.device)


def sum_forward(graph, op, value, scales):
    """forward() of an operator of SUMS; value [M, H, D] contiguous."""
    made = _recipe(graph, op, value)
    if not graph.num_edges:
        return value.new_zeros(made.out_shape)
    out = value.new_empty(made.out_shape)
    _run_sum(graph, made, False, value, out, scales)
    return out


def sum_backward(graph, op, grad, scales):
    """backward() of an operator of SUMS; grad [N, H, D] contiguous."""
    made = _recipe(graph, op, grad)
    if not graph.num_edges:
        return grad.new_zeros(made.value_shape)
    found = grad.new_empty(made.value_shape)
    _run_sum(graph, made, True, grad, found, scales)
    return found
