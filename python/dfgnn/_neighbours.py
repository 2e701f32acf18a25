"""The fused passes of SpMM and reductions, without gradients."""

import torch

from . import _abi
from ._execute import Plan
from ._operators import DTYPES, Settings

# by operator: what it writes besides out, and what only its gradient reads
_WRITES = {
    "spmm-sum": ((), ()), "spmm-mean": ((), ()), "spmm-weighted": ((), ()),
    "reduce-mean": ((), ()), "reduce-var": ((), ()), "reduce-std": ((), ()),
    "reduce-min": ((), ("arg_min",)), "reduce-max": ((), ("arg_max",)),
    "reduce-pna": (("out_min", "out_max", "out_std"), ("arg_min", "arg_max")),
}


class _Recipe:
    """What calls with the same shapes and types share."""

    def __init__(self, graph, op, value, deterministic):
        self.op = op
        self.dtype, self.device = value.dtype, value.device
        self.exact = (torch.float64 if value.dtype == torch.float64
                      else torch.float32)
        _, self.heads, self.dim = value.shape
        self.out_shape = (graph.num_dst, self.heads, self.dim)
        self.settings = Settings(0.0, 0.0, 0.0, False, deterministic, False)
        self.plans = [None, None]

    def plan(self, graph, backward):
        if self.plans[backward] is None:
            problem = _abi.Problem(
                op=_abi.OPS[self.op], pass_=int(backward),
                dtype=DTYPES[self.dtype], heads=self.heads, dim=self.dim,
                deterministic=1, max_workspace=-1)
            self.plans[backward] = Plan(graph.handle, graph.device, problem,
                                        self.settings)
        return self.plans[backward]


def _recipe(graph, op, value):
    recipes = graph.handle.recipes
    deterministic = torch.are_deterministic_algorithms_enabled()
    key = (op, value.shape, value.dtype, deterministic)
    found = recipes.get(key)
    if found is None:
        found = recipes[key] = _Recipe(graph, op, value, deterministic)
    return found


def _run(graph, made, backward, tensors):
    plan = made.plan(graph, backward)
    args = plan.arguments()
    for name, tensor in tensors.items():
        if tensor is not None:
            setattr(args, name, tensor.data_ptr())
    plan.run(args, made.device)


def forward(graph, op, value, weight):
    """(outputs, what else was written)."""
    made = _recipe(graph, op, value)
    more, indices = _WRITES[op]
    outs = {name: value.new_empty(made.out_shape) for name in ("out", *more)}
    args = {name: torch.empty(made.out_shape, dtype=torch.int32,
                              device=value.device) for name in indices}
    if not graph.num_edges:
        return ({n: t.zero_() for n, t in outs.items()},
                {n: t.fill_(-1) for n, t in args.items()})
    _run(graph, made, False, dict(value=value, edge_weight=weight, **outs,
                                  **args))
    return outs, args


def backward(graph, op, value, weight, saved, grads, wants_weight):
    made = _recipe(graph, op, value)
    grad_value = torch.zeros_like(value)
    grad_weight = torch.zeros_like(weight) if wants_weight else None
    if graph.num_edges:
        _run(graph, made, True, dict(
            value=value, edge_weight=weight, grad_value=grad_value,
            grad_edge_weight=grad_weight, **saved, **grads))
    return grad_value, grad_weight
