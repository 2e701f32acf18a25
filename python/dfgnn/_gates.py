"""Gates of edges in the sums of dfgnn.edge_mlp: a number for each edge, made of
its features by a linear layer."""

import torch
import torch.nn.functional as F

from ._checks import check_tensor, describe
from .programs import (edge_program, max_in, max_out, softmax_in, softmax_out,
                       sum_in, sum_out)

NAMES = ("sigmoid", "softmax")


def _softmax_of(softmax, largest, total):
    """The program of a softmax whose exponentials may have weights; it is 0
    where all weights of a node are."""
    @edge_program(reduce=None)
    def shares(e):
        if not hasattr(e, "weight"):
            return softmax(e.score)
        part = torch.exp(e.score - largest(e.score)) * e.weight
        whole = total(part)
        return part / torch.where(whole > 0, whole, 1.0)
    return shares


_SOFTMAX = {"dst": _softmax_of(softmax_in, max_in, sum_in),
            "src": _softmax_of(softmax_out, max_out, sum_out)}


def _check(name, layer, width):
    """The (weight [1, width], bias [1] or None) of a gate."""
    if not isinstance(layer, (tuple, list)) or len(layer) != 2:
        raise TypeError(f"{name} must be (weight, bias) of a linear layer, "
                        f"got {type(layer).__name__}")
    weight, bias = layer
    if not isinstance(weight, torch.Tensor) or tuple(weight.shape) != (
            1, width):
        raise ValueError(f"the weight of {name} must be [1, {width}], a column "
                         "for each feature of edge, got " + describe(weight))
    if bias is not None and tuple(bias.shape) != (1,):
        raise ValueError(f"the bias of {name} must be [1], got "
                         + describe(bias))
    return weight, bias


def _scores(edge, layers):
    """[E, 1] of each layer, by one product of all."""
    weights, biases = zip(*layers)
    bias = None
    if any(b is not None for b in biases):
        bias = torch.cat([weights[0].new_zeros(1) if b is None else b
                          for b in biases])
    return F.linear(edge, torch.cat(weights), bias).split(1, 1)


def asked(call):
    """Whether a call of edge_mlp has gates."""
    return call.gate_by != "sigmoid" or any(x is not None for x in (
        call.dst_gate, call.src_gate, call.gate_weight))


def _check_call(graph, call, layers):
    """Raises if the gates do not fit the call."""
    for end, reduce in (("dst", call.reduce), ("src", call.reduce_src)):
        if end in layers and reduce not in ("sum", "mean"):
            raise ValueError(f"{end}_gate is a factor in a sum or mean, which "
                             f"is not asked for: found {reduce!r}")
    if call.gate_by not in NAMES:
        raise ValueError("gate_by must be 'sigmoid' or 'softmax', got "
                         f"{call.gate_by!r}")
    weight = call.gate_weight
    if weight is not None and (call.gate_by != "softmax" or not layers):
        raise ValueError("gate_weight has the weights of edges in a softmax, "
                         "which is not asked for")
    if layers and call.edge is None:
        raise ValueError("dst_gate and src_gate read edge, which is missing")
    if call.edge is not None:
        check_tensor("edge", call.edge, "EF", {"E": graph.num_edges},
                     graph.device, None)
    if weight is not None and tuple(weight.shape) != (
            graph.num_edges,):
        raise ValueError(f"gate_weight must be [{graph.num_edges}], got "
                         + describe(weight))


def as_factors(graph, call):
    """A call of edge_mlp with the factor of each edge in the place of gates."""
    layers = {end: layer for end, layer in (
        ("dst", call.dst_gate), ("src", call.src_gate)) if layer is not None}
    _check_call(graph, call, layers)
    if not layers:
        return call
    checked = [_check(end + "_gate", layer, call.edge.size(1))
               for end, layer in layers.items()]
    made = {}
    for end, score in zip(layers, _scores(call.edge, checked)):
        if call.gate_by == "sigmoid":
            gate = torch.sigmoid(score)
        else:
            tensors = {"score": score}
            if call.gate_weight is not None:
                tensors["weight"] = call.gate_weight.view(-1, 1)
            gate = _SOFTMAX[end](graph, e=tensors)
        factor = getattr(call, end + "_factor")
        gate = gate.squeeze(1)
        made[end + "_factor"] = gate if factor is None else gate * factor
    return call._replace(**made)
