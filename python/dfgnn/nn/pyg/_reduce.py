"""PyG's aggregations by kernels: of neighbours, whose messages are not made,
and of messages that PyG's layers make edge by edge."""

import torch
from torch_geometric.nn import MessagePassing, aggr

from ... import aggregation
from ..._formulas import degrees_of
from ..._modes import compiling
from ...aggregation import PNA, by_edge, degrees, each_reduction, gcn, spmm
from ...graph import Graph
from .._conv import Shape
from .._linear import hooked
from .._node import REDUCTIONS
from ._edges import (
    Looped, ends, graph_of, known, reverse, unknown, wide)
from ._mixin import fits, is_sum, unfit

NAMES = {aggr.SumAggregation: "sum", aggr.MeanAggregation: "mean",
         aggr.MinAggregation: "min", aggr.MaxAggregation: "max",
         aggr.VarAggregation: "var", aggr.StdAggregation: "std"}
REDUCTIONS.update({kind: REDUCTIONS[name] for kind, name in NAMES.items()
                   if name in REDUCTIONS})


def _name(module):
    name = NAMES.get(type(module))
    if name is None or hooked(module):
        return None
    if name not in ("var", "std"):
        return name
    variance = module.var_aggr if name == "std" else module
    return None if type(variance) is not aggr.VarAggregation or \
        getattr(variance, "semi_grad", False) or hooked(variance) else name


def reductions(module):
    """The names of an aggregation module's reductions, or None if the kernels
    do not have all of them."""
    if type(module) is aggr.DegreeScalerAggregation:
        if hooked(module):
            return None
        return reductions(module.aggr)
    if type(module) is not aggr.MultiAggregation:
        name = _name(module)
        return None if name is None else (name,)
    if hooked(module):
        return None
    names = tuple(_name(child) for child in module.aggrs)
    return None if None in names else names


def combine(module, outs, graph):
    """The result of an aggregation module from those of its reductions."""
    is_scaled = type(module) is aggr.DegreeScalerAggregation
    inner = module.aggr if is_scaled else module
    out = outs[0] if len(outs) == 1 else inner.combine(outs)
    if not is_scaled:
        return out
    outs = [out if factor is None else out * factor.view(
        [-1] + [1] * (out.dim() - 1))
        for factor in factors_of(module, graph, out)]
    return torch.cat(outs, dim=-1) if len(outs) > 1 else outs[0]


def factors_of(module, graph, like):
    """[N] what each scaler of a DegreeScalerAggregation multiplies by, None for
    1; like: as degrees() takes it."""
    def of_degrees(least, log):
        def make():
            degree = degrees(graph, like).clamp(min=least)
            return torch.log(degree + 1) if log else degree
        return make() if not isinstance(graph, Graph) else graph._derive(
            ("scale", least, log, like.dtype), make)
    factors = {
        "identity": lambda: None,
        "amplification": lambda: of_degrees(0, True) / module.avg_deg_log,
        "attenuation": lambda: module.avg_deg_log / of_degrees(1, True),
        "linear": lambda: of_degrees(0, False) / module.avg_deg_lin,
        "inverse_linear": lambda: module.avg_deg_lin / of_degrees(1, False)}
    return [factors[name]() for name in module.scaler]


def _power(module, x, inverse=False):
    """x to the power of a PowerMeanAggregation, or to the inverse power."""
    p = module.p if module.channels == 1 else module.p.view(-1, module.channels)
    if not isinstance(p, torch.Tensor) and p == 1:
        return x
    return x.clamp(min=module.min_value, max=module.max_value).pow(
        1. / p if inverse else p)


def neighbours(layer, edge_index, size, x, edge_weight=None):
    """PyG's propagate of x_j, or of edge_weight * x_j."""
    if isinstance(edge_index, Looped):
        return _normalized(layer, edge_index, x, edge_weight)
    if not known(edge_index):
        return unfit(layer, unknown(edge_index))
    module, pair = layer.aggr_module, ends(layer, x, size)
    # a mean between two powers, each of a node
    powers = pair is not None and edge_weight is None and \
        type(module) is aggr.PowerMeanAggregation and pair.src.dim() == 2 \
        and not hooked(module) and hasattr(module, "min_value")
    names = ("mean",) if powers else reductions(module)
    if names is None:
        return unfit(layer, "no kernel reduces by " + type(module).__name__)
    if pair is None or not fits(pair.src, edge_weight):
        return unfit(layer, "features are not of floating point, or sizes "
                     "contradict each other")
    shape = Shape(layer, pair.src)
    if not shape.served:
        return unfit(layer, "nodes are on another axis")
    graph = graph_of(layer, edge_index, pair.num_src, pair.num_dst)
    if edge_weight is None:
        src = _power(module, pair.src) if powers else pair.src
        outs = [shape.leave(out) for out in each_reduction(
            graph, shape.enter(src), names, pair.num_dst)]
        return _power(module, outs[0], True) if powers else \
            combine(module, outs, graph)
    count = edge_index.num_edges if isinstance(edge_index, Graph) else \
        edge_index.size(1)
    if not shape.weights or edge_weight.numel() != count:
        return unfit(layer, "edge_weight is not [edges]")
    if names not in (("sum",), ("mean",)) or (names == ("mean",)
                                              and compiling()):
        return unfit(layer, "weights go with sums and means")
    value = shape.enter(pair.src)
    kind = torch.promote_types(edge_weight.dtype, value.dtype)
    out = spmm(graph, value.to(kind), edge_weight.view(-1),
               num_dst=pair.num_dst)
    if names == ("mean",):
        out = out / degrees_of(graph, out)
    return shape.leave(out)


def _normalized(layer, looped, x, edge_weight):
    """Sums over the edges that a Looped stands for."""
    shape = Shape(layer, x)
    if not (is_sum(layer) and fits(x, edge_weight) and shape.served
            and shape.weights):
        return unfit(layer, "its messages are not summed")
    value = shape.enter(x)
    if looped.graph is None:
        out = gcn(looped.edges, value, looped.loops)
        return shape.leave(out).to(torch.promote_types(looped.dtype, x.dtype))
    kind = torch.promote_types(looped.dtype, x.dtype)
    return shape.leave(spmm(looped.graph, value.to(kind), edge_weight,
                            num_dst=looped.num_nodes))


def edge_messages(layer, edge_index, size, **arguments):
    """Messages made edge by edge as PyG makes them, reduced by a kernel."""
    module = layer.aggr_module
    names = reductions(module)
    if not known(edge_index) or isinstance(edge_index, Graph):
        return unfit(layer, "its edges are no edge_index, but a "
                     + type(edge_index).__name__)
    if names is None or type(layer).update is not MessagePassing.update:
        return unfit(layer, "no kernel reduces by " + type(module).__name__)
    if compiling():
        return NotImplemented
    if reverse(layer) and any(isinstance(v, (tuple, list))
                              and v[0] is not v[1] for v in arguments.values()):
        return unfit(layer, "pairs flow from targets to sources")
    collected = layer._collect(layer._user_args, wide(edge_index),
                               layer._check_input(edge_index, size), arguments)
    message = layer.message(**layer.inspector.collect_param_data("message",
                                                                 collected))
    axis = layer.node_dim + (message.dim() if layer.node_dim < 0 else 0)
    if axis != 0 or message.dim() not in (2, 3) or not fits(message):
        return layer.aggregate(message, **layer.inspector.collect_param_data(
            "aggregate", collected))
    num_src, num_dst = collected["size_j"], collected["dim_size"]
    graph = graph_of(layer, edge_index,
                     num_dst if num_src is None else num_src, num_dst)
    return combine(module, reduce_messages(graph, message, names), graph)


def reduce_messages(graph, message, names):
    """Each reduction of messages [E, F] or [E, H, D], in the order of the
    caller's edges."""
    if len(set(names) & set(PNA)) > 1:
        return each_reduction(by_edge(graph), message, names, graph.num_dst)
    return [aggregation.reduce_edges(graph, message, name) for name in names]
