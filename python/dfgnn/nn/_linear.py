"""Linear layers like those in PyG's layers: the same parameters, and the same
numbers drawn for them from the same seed."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter, is_lazy

from .._links import is_small
from .._modes import compiling


def glorot_(tensor):
    bound = math.sqrt(6.0 / (tensor.size(-2) + tensor.size(-1)))
    with torch.no_grad():
        return tensor.uniform_(-bound, bound)


def parameter(exists, *shape):
    """A parameter that is not drawn yet; None unless it exists."""
    return nn.Parameter(torch.empty(shape)) if exists else None


def reset(module):
    """Draws the parameters of a module, or of its children, anew."""
    if hasattr(module, "reset_parameters"):
        module.reset_parameters()
    else:
        for child in module.children() if hasattr(module, "children") else ():
            reset(child)


class Linear(nn.Module):
    """torch.nn.Linear as PyG starts it; in_channels = -1 is found at the first
    call."""

    def __new__(cls, in_channels=1, *args, **kwargs):
        return super().__new__(cls if in_channels > 0 else _Lazy)

    def __init__(self, in_channels, out_channels, bias=True, initializer=None):
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.initializer = initializer
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels)) \
            if in_channels > 0 else UninitializedParameter()
        self.register_parameter("bias", parameter(bias, out_channels))
        self.reset_parameters()

    def reset_parameters(self):
        if is_lazy(self.weight):
            return
        inputs = self.weight.size(1)
        with torch.no_grad():
            if self.initializer == "glorot":
                glorot_(self.weight)
            else:  # He's initialization with torch.nn.Linear's slope
                bound = math.sqrt(6 / ((1 + math.sqrt(5) ** 2) * inputs))
                self.weight.uniform_(-bound, bound)
            if self.bias is not None:
                bound = 1.0 / math.sqrt(inputs)
                self.bias.uniform_(-bound, bound)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self):
        return (f"{self.in_channels}, {self.out_channels}, "
                f"bias={self.bias is not None}")


class _Lazy(LazyModuleMixin, Linear):
    cls_to_become = Linear

    def initialize_parameters(self, x):
        if is_lazy(self.weight):
            self.weight.materialize((self.out_channels, x.size(-1)))
            self.reset_parameters()
        self.in_channels = self.weight.size(1)


# classes whose call is a product and nothing else; dfgnn.nn.pyg adds PyG's
LINEARS = {Linear, nn.Linear}


def hooked(module):
    """Whether a hook looks at the calls of a module or at their gradients, or
    a forward() that was put on the module itself takes them."""
    return bool(module._forward_hooks or module._forward_pre_hooks
                or module._backward_hooks or module._backward_pre_hooks
                or "forward" in module.__dict__)


def is_product(layer):
    """Whether calling the layer is its product and nothing else: it is of no
    subclass (a parametrization is one), has no hook, and knows its size."""
    return type(layer) in LINEARS and not hooked(layer)


def takes(layer, x):
    """Whether torch multiplies such features by the weight of a product: kernels
    would convert them."""
    return x.dtype == layer.weight.dtype or torch.is_autocast_enabled(
        x.device.type)


def of_edges(layer, edge_attr):
    """(edge_attr, edge_projection, edge_bias) of a layer's attention: a
    lin_edge that is more than a product makes edge_attr [E, H, D]."""
    linear = layer.lin_edge
    if edge_attr.dim() == 1:
        edge_attr = edge_attr.view(-1, 1)
    if is_product(linear):
        return edge_attr, linear.weight, linear.bias
    return linear(edge_attr).view(-1, layer.heads, layer.out_channels), None, \
        None


def together(sides):
    """[layer(x) for x, layer in sides], those of one x as one product where
    that gives the same and is no slower: kernels want rows of a product to be
    dense, which is a copy, and torch.compile makes it of what they come of."""
    layers = [layer for _, layer in sides]
    if not all(map(is_product, layers)) or len(
            {layer.bias is None for layer in layers}) > 1 or \
            not compiling() and not is_small(sides[0][0], sum(
                layer.weight.size(0) for layer in layers)):
        return [layer(x) for x, layer in sides]
    outs = [None] * len(sides)
    for n, (x, first) in enumerate(sides):
        if outs[n] is not None:
            continue
        same = [k for k, (y, _) in enumerate(sides) if y is x]
        weight, bias = torch.cat([layers[k].weight for k in same]), None
        if first.bias is not None:
            bias = torch.cat([layers[k].bias for k in same])
        parts = F.linear(x, weight, bias).split(
            [layers[k].weight.size(0) for k in same], -1)
        for k, part in zip(same, parts):
            outs[k] = part
    return outs
