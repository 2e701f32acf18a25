"""Sums, means, extremes and deviations of messages that have features of the
edge in them: those of GINE and GEN, and of gated graph networks."""

from typing import NamedTuple, Optional, Sequence, Union

import torch
from torch import Tensor

from . import _ways, ops
from ._checks import DTYPES, describe
from ._modes import common_type, compiling, jit_tracing
from ._operators import OPERATORS, check_call
from ._torch_library import untraced_graph
from ._values import refuse_values
from .aggregation import PNA, each_of, sums
from .graph import Graph

__all__ = ["relu_messages", "gated_messages"]

REDUCTIONS = ("sum", "mean", "min", "max", "std", "var", "pna")
# The operator whose kernels make each reduction.
OPS = {"sum": "spmm-sum", "mean": "spmm-mean", "min": "reduce-min",
       "max": "reduce-max", "pna": "reduce-pna"}


class Tensors(NamedTuple):
    """value [M, H, D], edge_attr [E, F] (or [E, H, D] without edge_weight),
    edge_weight [H, D, F], edge_bias [H, D], gate_dst [N, H, D], gate_src
    [M, H, D].  All but value may be None; without gates a message is
    relu(x_j + e), with them sigmoid(a_i + b_j + e) x_j.  With an edge_weight
    [2, H, D, F] (and an edge_bias [2, H, D]) the value has features of the
    edge, too: sigmoid(a_i + b_j + e) (x_j + e')."""
    value: torch.Tensor
    edge_attr: Optional[torch.Tensor] = None
    edge_weight: Optional[torch.Tensor] = None
    edge_bias: Optional[torch.Tensor] = None
    gate_dst: Optional[torch.Tensor] = None
    gate_src: Optional[torch.Tensor] = None

    def given(self):
        return {name: t for name, t in self._asdict().items()
                if t is not None}


def reads_lists(graph, names, given):
    """Whether kernels read the edge features in the order of the list that the
    graph was made of: for sums, on CPUs, of features that need no matrix."""
    return (graph.handle.listed and given.edge_attr is not None
            and given.edge_weight is None
            and all(name in ("sum", "mean") for name in names))


# ---- shapes, types and checks of a call -------------------------------------

def _same_type(given):
    """All tensors in one type, that of an autocast region if there is one."""
    kind = common_type(given)
    return Tensors(*(None if t is None else t.to(kind) for t in given))


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
    return Tensors(apart(x), attr, weight, bias, apart(given.gate_dst),
                   apart(given.gate_src))


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
        if name not in REDUCTIONS:
            raise ValueError("reduce must be 'sum', 'mean', 'min', 'max', "
                             "'std', 'var' or 'pna', or several of them, got "
                             f"{reduce!r}")


def _check_types(given):
    for tensor in given:
        if (tensor is not None or given.value is None) and (
                not isinstance(tensor, torch.Tensor)
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
            _ways.product_of_edge_features(
                x.device, given.edge_attr.size(1), width) == "before":
        given = _projected(given)
    if not isinstance(graph, Graph):
        refuse_values(graph, "messages of edges")
    if compiling():
        def made(name):
            return _traced(graph, name, given, num_dst)
    else:
        graph = untraced_graph(graph, (x.size(0), num_dst))
        if not jit_tracing():  # a trace makes tensors of sizes
            check_call(graph, OPERATORS["spmm-sum"],
                       OPERATORS["spmm-sum"].given(given.given()))
        names = [reduce] if isinstance(reduce, str) else reduce
        listed = reads_lists(graph, names, given)
        if given.edge_attr is not None and not listed:
            given = given._replace(
                edge_attr=graph.to_graph_order(given.edge_attr))

        def made(name):
            return sums(graph, OPS.get(name, "message-" + name),
                        given.given(), listed)

    def run(name):
        outs = made("pna" if name == "std" else name)
        outs = [out.squeeze(1) if x.dim() == 2 else out for out in outs]
        return outs if name == "pna" else outs[-1]
    if reduce == "pna":
        return tuple(run(reduce))
    if isinstance(reduce, str):
        return run(reduce)
    return each_of([name for given in reduce for name in (
        PNA if given == "pna" else (given,))], run)


def _traced(graph, reduce, given, num_dst):
    """One reduction of a call that torch.compile traces."""
    if reduce in OPS:
        return ops.traced_sums(OPS[reduce], graph, num_dst, False, False,
                               **given.given())
    graph = untraced_graph(graph, (given.value.size(0), num_dst))
    if given.edge_attr is not None:
        given = given._replace(edge_attr=graph.to_graph_order(given.edge_attr))
    return sums(graph, "message-" + reduce, given.given())


# ---- the functions ----------------------------------------------------------

Reductions = Union[str, Sequence[str]]
Reduced = Union[Tensor, tuple[Tensor, ...], list[Tensor]]


def relu_messages(graph, x: Tensor, edge_attr: Tensor,
                  edge_weight: Optional[Tensor] = None,
                  edge_bias: Optional[Tensor] = None,
                  reduce: Reductions = "sum", *,
                  num_dst: Optional[int] = None) -> Reduced:
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
    return _call(graph, Tensors(x, edge_attr, edge_weight, edge_bias), reduce,
                 num_dst)


def gated_messages(graph, x: Tensor, gate_dst: Tensor, gate_src: Tensor,
                   edge_attr: Optional[Tensor] = None,
                   edge_weight: Optional[Tensor] = None,
                   edge_bias: Optional[Tensor] = None,
                   reduce: Reductions = "sum", *,
                   value_weight: Optional[Tensor] = None,
                   value_bias: Optional[Tensor] = None,
                   num_dst: Optional[int] = None) -> Reduced:
    """out_i = the sum over in-edges of sigmoid(a_i + b_j [+ e_ij]) x_j,
    feature by feature, as GatedGCN has it, or another reduction.

    x and gate_src b [M, F] or [M, H, D], gate_dst a [N, F] or [N, H, D];
    the others as in relu_messages().
    value_weight [H * D, F'], value_bias [H * D]: the value has features of the
        edge, too, x_j + W' edge_attr + b', as ResGatedGraphConv has it.
    """
    return _call(graph, Tensors(x, edge_attr, edge_weight, edge_bias, gate_dst,
                                gate_src), reduce, num_dst, value_weight,
                 value_bias)
