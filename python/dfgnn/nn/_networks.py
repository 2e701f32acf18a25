"""Networks of linear layers and activations as dfgnn.edge_mlp takes them."""

from typing import NamedTuple

import torch
from torch.nn.functional import softplus

from ._linear import LINEARS, hooked


class Network(NamedTuple):
    """The layers of a network after its first Linear."""
    weights: list
    biases: list
    activation: str | None  # between the layers
    last: str | None
    slope: float


class Norm(NamedTuple):
    """The step after the last layer, in the words of dfgnn.edge_mlp."""
    norm: str | None = None
    norm_weight: torch.Tensor | None = None
    norm_bias: torch.Tensor | None = None
    eps: float = 0.0


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
    if (kind is torch.nn.Softplus or _is_shifted(module)) and \
            module.beta == 1 and module.threshold >= 20:
        return "softplus", 0.0
    return None


def _is_shifted(module):
    """Whether it is softplus(x) - softplus(0), as orb-models has it."""
    kind = type(module)
    return kind.__name__ == "SSP" and kind.__module__.startswith("orb_models.")


def _lowered(bias, weight):
    """The bias of a layer whose input lacks softplus(0) in each column, which
    orb-models computes in torch's default type."""
    shift = softplus(torch.zeros(1, device=weight.device)).to(weight.dtype)
    shift = weight.sum(1) * shift
    return -shift if bias is None else bias - shift


def flat(module):
    """The modules of nested Sequentials in order; None if a hook looks at one
    of them."""
    if hooked(module):
        return None
    if not _is_sequence(module):
        return [module]
    parts = [flat(part) for part in module]
    return None if None in parts else [m for part in parts for m in part]


def _is_sequence(module):
    """A Sequential, also one of orb-models that keeps no inner values."""
    kind = type(module)
    return kind is torch.nn.Sequential or kind.__name__ == \
        "CheckpointedSequential" and kind.__module__.startswith("orb_models.")


def without_nothing(modules):
    """The modules that change what they are given."""
    return [m for m in modules if type(m) is not torch.nn.Identity and not (
        type(m) is torch.nn.Dropout and (not m.training or m.p == 0))]


def norm_of(module):
    """The Norm that a module is; None if it is no LayerNorm or RMSNorm of
    rows."""
    forward = type(module).forward
    if forward is torch.nn.LayerNorm.forward:
        name, eps = "layer", module.eps
    elif forward is torch.nn.RMSNorm.forward:
        name, eps = "rms", module.eps
    else:
        return None
    if len(module.normalized_shape) != 1 or hooked(module):
        return None
    if eps is None:  # of an RMSNorm: that of its numbers' type
        weight = module.weight
        if weight is None:
            return None
        eps = torch.finfo(weight.dtype).eps
    return Norm(name, module.weight, getattr(module, "bias", None),
                float(eps))


def after_linear(modules):
    """The Network that these modules are after a Linear; None if there is
    something else among them (a function, which an MLP of PyG's may have as
    its activation), or a hook looks at one."""
    if not all(isinstance(m, torch.nn.Module) and not hooked(m)
               for m in modules):
        return None
    modules = without_nothing(modules)
    weights, biases, activations = [], [], []
    for i, module in enumerate(modules):
        if i % 2 == 0:
            activations.append(_activation(module))
        elif type(module) in LINEARS:
            lowered = _is_shifted(modules[i - 1])
            weights.append(module.weight)
            biases.append(_lowered(module.bias, module.weight) if lowered
                          else module.bias)
        else:
            return None
    if None in activations or len(weights) > 3:
        return None
    last = activations.pop() if len(activations) > len(weights) else (None, 0.0)
    if last[0] and _is_shifted(modules[-1]):
        return None
    names = {name for name, _ in activations}
    slopes = {slope for _, slope in [*activations, last] if slope}
    if len(names) > 1 or len(slopes) > 1:
        return None
    return Network(weights, biases, names.pop() if names else None, last[0],
                   slopes.pop() if slopes else 0.0)
