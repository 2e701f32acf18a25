"""Gates of edges in the sums of dfgnn.edge_mlp: a number for each edge, made of
its features by a linear layer."""

import torch
import torch.nn.functional as F

from ._checks import describe
from .convert import as_graph
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


def factors(graph, edge, layers, by, weight, given):
    """The factor of each edge at each end whose gate there is, by end.

    layers: by "dst" and "src" the (weight, bias) of a gate, or None.
    by: "sigmoid" or "softmax", the latter over the edges of a node.
    weight: [E] of the edges in a softmax, or None.
    given: by end, further factors or None.
    """
    ends = [end for end in ("dst", "src") if layers[end] is not None]
    if by not in NAMES:
        raise ValueError("gate_by must be 'sigmoid' or 'softmax', got "
                         f"{by!r}")
    if weight is not None and (by != "softmax" or not ends):
        raise ValueError("gate_weight has the weights of edges in a softmax, "
                         "which is not asked for")
    if not ends:
        return given
    if edge is None:
        raise ValueError("dst_gate and src_gate read edge, which is missing")
    width = edge.size(1)
    checked = [_check(end + "_gate", layers[end], width) for end in ends]
    if weight is not None and tuple(weight.shape) != (edge.size(0),):
        raise ValueError(f"gate_weight must be [{edge.size(0)}], got "
                         + describe(weight))
    made = dict(given)
    for end, score in zip(ends, _scores(edge, checked)):
        if by == "sigmoid":
            gate = torch.sigmoid(score)
        else:
            tensors = {"score": score}
            if weight is not None:
                tensors["weight"] = weight.view(-1, 1)
            gate = _SOFTMAX[end](as_graph(graph), e=tensors)
        gate = gate.squeeze(1)
        made[end] = gate if given[end] is None else gate * given[end]
    return made
