"""Sums, means, extremes and deviations of messages that have features of the
edge in them: those of GINE and GEN, and of gated graph networks."""

from typing import NamedTuple, Sequence, Union

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

REDUCTIONS = ("sum", "mean", "min", "max", "std", "var", "pna")
# The operator whose kernels make each reduction.
OPS = {"sum": "spmm-sum", "mean": "spmm-mean", "min": "reduce-min",
       "max": "reduce-max", "pna": "reduce-pna"}


class Tensors(NamedTuple):
    """value [M, H, D], edge_attr [E, F] (or [E, H, D] without edge_projection),
    edge_projection [H, D, F], edge_bias [H, D], gate_dst [N, H, D], gate_src
    [M, H, D].  All but value may be None; without gates a message is
    relu(x_j + e), with them sigmoid(a_i + b_j + e) x_j.  With an
    edge_projection [2, H, D, F] (and an edge_bias [2, H, D]) the value has
    features of the edge, too: sigmoid(a_i + b_j + e) (x_j + e')."""
    value: torch.Tensor
    edge_attr: torch.Tensor | None = None
    edge_projection: torch.Tensor | None = None
    edge_bias: torch.Tensor | None = None
    gate_dst: torch.Tensor | None = None
    gate_src: torch.Tensor | None = None

    def given(self):
        return {name: t for name, t in self._asdict().items()
                if t is not None}


def _with_heads(x, width, tensors):
    """The tensors with x as their value, all with dimensions of heads and of
    features."""
    heads = 1 if x.dim() == 2 else x.size(1)

    def split(tensor):
        if tensor is None or tensor.dim() == 3:
            return tensor
        if tensor.dim() == 2 and tensor.size(1) == width:
            return tensor.view(-1, heads, width // heads)
        return tensor
    weight, bias = tensors.edge_projection, tensors.edge_bias
    if weight is not None and weight.dim() == 2 and weight.size(0) == width:
        weight = weight.reshape(heads, width // heads, -1)
    if bias is not None and bias.numel() == width:
        bias = bias.reshape(heads, width // heads)
    attr = tensors.edge_attr if weight is not None else split(tensors.edge_attr)
    return Tensors(split(x), attr, weight, bias, split(tensors.gate_dst),
                   split(tensors.gate_src))


def _projected(tensors):
    """The tensors with edge features multiplied by their matrix."""
    heads, dim, fields = tensors.edge_projection.shape
    part = tensors.edge_attr @ tensors.edge_projection.reshape(-1, fields).t()
    if tensors.edge_bias is not None:
        part = part + tensors.edge_bias.reshape(-1)
    return tensors._replace(edge_attr=part.view(-1, heads, dim),
                            edge_projection=None, edge_bias=None)


def _check_names(reduce):
    for name in [reduce] if isinstance(reduce, str) else reduce:
        if name not in REDUCTIONS:
            raise ValueError("reduce must be 'sum', 'mean', 'min', 'max', "
                             "'std', 'var' or 'pna', or several of them, got "
                             f"{reduce!r}")


def _check_types(tensors):
    for tensor in tensors:
        if (tensor is not None or tensors.value is None) and (
                not isinstance(tensor, torch.Tensor)
                or tensor.dtype not in DTYPES):
            raise TypeError("x, gates and edge features must be float16, "
                            "bfloat16, float32 or float64, got "
                            + describe(tensor))
    if tensors.value.dim() not in (2, 3):
        raise ValueError("x must be [sources, features] or [sources, heads, "
                         "features], got " + describe(tensors.value))
    if tensors.edge_projection is not None and (
            tensors.edge_attr is None or tensors.edge_attr.dim() != 2):
        raise ValueError("edge_projection needs edge_attr [edges, F]")


def _with_value(tensors, value_weight, value_bias):
    """The tensors with those of edges of gate and value stacked."""
    weight, bias = tensors.edge_projection, tensors.edge_bias
    if weight is None or weight.shape != value_weight.shape:
        raise ValueError("value_weight needs edge_projection of its shape, "
                         "got " + describe(value_weight) + " and "
                         + ("None" if weight is None else describe(weight)))
    weight, value_weight = _same_types(weight, value_weight)
    if bias is None and value_bias is not None:
        bias = torch.zeros_like(value_bias)
    elif value_bias is None and bias is not None:
        value_bias = torch.zeros_like(bias)
    if bias is not None:
        bias = torch.stack(_same_types(bias, value_bias))
    return tensors._replace(edge_projection=torch.stack((weight, value_weight)),
                            edge_bias=bias)


def _same_types(a, b):
    kind = torch.promote_types(a.dtype, b.dtype)
    return a.to(kind), b.to(kind)


def _call(graph, tensors, reduce, num_dst, value_weight=None, value_bias=None):
    """A tensor; a tuple for "pna", a list for a list of reductions."""
    x = tensors.value
    _check_names(reduce)
    _check_types(tensors)
    if num_dst is None:
        num_dst = graph.num_dst if isinstance(graph, Graph) else (
            x.size(0) if tensors.gate_dst is None else tensors.gate_dst.size(0))
    width = x.size(1) if x.dim() == 2 else x.size(1) * x.size(2)
    tensors = _with_heads(x, width, tensors)
    if value_weight is not None:
        more = _with_heads(x, width, Tensors(
            x, edge_projection=value_weight, edge_bias=value_bias))
        tensors = _with_value(tensors, more.edge_projection, more.edge_bias)
    kind = common_type(tensors)
    tensors = Tensors(*(None if t is None else t.to(kind) for t in tensors))
    matrix = tensors.edge_projection
    if matrix is not None and matrix.dim() == 3 and \
            _ways.product_of_edge_features(
                x.device, tensors.edge_attr.size(1), width) == "before":
        tensors = _projected(tensors)
    if not isinstance(graph, Graph):
        refuse_values(graph, "messages of edges")
    if compiling():
        def reduced(name):
            return _traced(graph, name, tensors, num_dst)
    else:
        graph = untraced_graph(graph, (x.size(0), num_dst))
        if not jit_tracing():  # a trace makes tensors of sizes
            check_call(graph, OPERATORS["spmm-sum"],
                       OPERATORS["spmm-sum"].given(tensors.given()))
        names = [reduce] if isinstance(reduce, str) else reduce
        # kernels read features that need no matrix in the list's order
        listed = graph.handle.listed and tensors.edge_attr is not None and \
            tensors.edge_projection is None and all(
                name in ("sum", "mean") for name in names)
        if tensors.edge_attr is not None and not listed:
            tensors = tensors._replace(
                edge_attr=graph.to_graph_order(tensors.edge_attr))

        def reduced(name):
            return sums(graph, OPS.get(name, "message-" + name),
                        tensors.given(), listed)

    def run(name):
        outs = reduced("pna" if name == "std" else name)
        outs = [out.squeeze(1) if x.dim() == 2 else out for out in outs]
        return outs if name == "pna" else outs[-1]
    if reduce == "pna":
        return tuple(run(reduce))
    if isinstance(reduce, str):
        return run(reduce)
    return each_of([name for one in reduce for name in (
        PNA if one == "pna" else (one,))], run)


def _traced(graph, reduce, tensors, num_dst):
    """One reduction of a call that torch.compile traces."""
    if reduce in OPS:
        return ops.traced_sums(OPS[reduce], graph, num_dst, False, False,
                               **tensors.given())
    graph = untraced_graph(graph, (tensors.value.size(0), num_dst))
    if tensors.edge_attr is not None:
        tensors = tensors._replace(
            edge_attr=graph.to_graph_order(tensors.edge_attr))
    return sums(graph, "message-" + reduce, tensors.given())


Reductions = str | Sequence[str]
Reduced = Union[Tensor, tuple[Tensor, ...], list[Tensor]]


def relu_messages(graph, x: Tensor, edge_attr: Tensor,
                  edge_projection: Tensor | None = None,
                  edge_bias: Tensor | None = None, reduce: Reductions = "sum",
                  *, num_dst: int | None = None) -> Reduced:
    """out_i = the sum over in-edges of relu(x_j + e_ij), as GINEConv and
    GENConv have it, or another reduction.

    x [M, F] or [M, H, D].
    edge_attr: e, of as many features as x, in the caller's edge order.
    edge_projection [H * D, F'], edge_bias [H * D]: with them edge_attr is
        [E, F'] and e = W edge_attr + b, which is never made of all edges at
        once.
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
    return _call(graph, Tensors(x, edge_attr, edge_projection, edge_bias),
                 reduce, num_dst)


def gated_messages(graph, x: Tensor, gate_dst: Tensor, gate_src: Tensor,
                   edge_attr: Tensor | None = None,
                   edge_projection: Tensor | None = None,
                   edge_bias: Tensor | None = None, reduce: Reductions = "sum",
                   *, value_weight: Tensor | None = None,
                   value_bias: Tensor | None = None,
                   num_dst: int | None = None) -> Reduced:
    """out_i = the sum over in-edges of sigmoid(a_i + b_j [+ e_ij]) x_j,
    feature by feature, as GatedGCN has it, or another reduction.

    x and gate_src b [M, F] or [M, H, D], gate_dst a [N, F] or [N, H, D];
    the others as in relu_messages().
    value_weight [H * D, F'], value_bias [H * D]: the value has features of the
        edge, too, x_j + W' edge_attr + b', as ResGatedGraphConv has it.
    """
    return _call(graph, Tensors(
        x, edge_attr, edge_projection, edge_bias, gate_dst, gate_src), reduce,
        num_dst, value_weight, value_bias)
