"""Networks of linear layers and activations as dfgnn.edge_mlp takes them."""

from typing import NamedTuple, Optional

import torch
from torch_geometric.nn import Linear

from .._linear import hooked


class Network(NamedTuple):
    """The layers of a network after its first Linear."""
    weights: list
    biases: list
    activation: Optional[str]  # between the layers
    last: Optional[str]
    slope: float


_PLAIN = {torch.nn.ReLU: "relu", torch.nn.SiLU: "silu", torch.nn.Tanh: "tanh",
          torch.nn.Sigmoid: "sigmoid"}


def _activation(module):
    """(name, slope), or None."""
    kind = type(module)
    if kind in _PLAIN:
        return _PLAIN[kind], 0.0
    if kind is torch.nn.GELU:
        return ("gelu_tanh" if module.approximate == "tanh" else "gelu"), 0.0
    if kind is torch.nn.ELU:
        return "elu", float(module.alpha)
    if kind is torch.nn.LeakyReLU:
        return "leaky_relu", float(module.negative_slope)
    return None


def after_linear(modules):
    """The Network that these modules are after a Linear; None if there is
    something else among them, or a hook looks at one."""
    modules = [m for m in modules if type(m) is not torch.nn.Identity and not (
        type(m) is torch.nn.Dropout and (not m.training or m.p == 0))]
    if any(hooked(m) for m in modules):
        return None
    weights, biases, found = [], [], []
    for i, module in enumerate(modules):
        if i % 2 == 0:
            found.append(_activation(module))
        elif type(module) in (torch.nn.Linear, Linear):
            weights.append(module.weight)
            biases.append(module.bias)
        else:
            return None
    if None in found or len(weights) > 3:
        return None
    last = found.pop() if len(found) > len(weights) else (None, 0.0)
    names, slopes = {n for n, _ in found}, {s for _, s in [*found, last] if s}
    if len(names) > 1 or len(slopes) > 1:
        return None
    return Network(weights, biases, names.pop() if names else None, last[0],
                   slopes.pop() if slopes else 0.0)
