"""What PyG's layers are made of: the same parameters, started the same way."""

import math

import torch
from torch import nn
from torch.nn import functional as F


def glorot_(tensor):
    bound = math.sqrt(6.0 / (tensor.size(-2) + tensor.size(-1)))
    with torch.no_grad():
        return tensor.uniform_(-bound, bound)


class Linear(nn.Module):
    """torch.nn.Linear as PyG starts it; in_channels = -1 is found at the first
    call."""

    def __init__(self, in_channels, out_channels, bias=True, initializer=None):
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.initializer = initializer
        if in_channels > 0:
            self.weight = nn.Parameter(torch.empty(out_channels, in_channels))
        else:
            self.weight = nn.parameter.UninitializedParameter()
            self._hook = self.register_forward_pre_hook(self._find_size)
        if bias:
            self.bias = nn.Parameter(torch.empty(out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        if self.in_channels <= 0:
            return
        bound = 1 / math.sqrt(self.in_channels)
        with torch.no_grad():
            if self.initializer == "glorot":
                glorot_(self.weight)
            else:
                self.weight.uniform_(-bound, bound)
            if self.bias is not None:
                self.bias.uniform_(-bound, bound)

    def _materialize(self, in_channels):
        self.in_channels = in_channels
        self.weight.materialize((self.out_channels, in_channels))
        self._hook.remove()
        del self._hook
        self.reset_parameters()

    @staticmethod
    def _find_size(module, inputs):
        module._materialize(inputs[0].size(-1))

    def _load_from_state_dict(self, state_dict, prefix, *args):
        weight = state_dict.get(prefix + "weight")
        if self.in_channels <= 0 and weight is not None and not \
                nn.parameter.is_lazy(weight):
            self._materialize(weight.size(-1))
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self):
        return (f"{self.in_channels}, {self.out_channels}, "
                f"bias={self.bias is not None}")
