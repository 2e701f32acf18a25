"""MLPs on edges as torch's operations write them, for the tests of both."""

import torch
import torch.nn.functional as F

ACTIVATIONS = {
    None: lambda x: x, "relu": F.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu": lambda x: F.elu(x, 0.3), "tanh": torch.tanh,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3), "sigmoid": torch.sigmoid,
    "softplus": F.softplus}


def graph_of(num_src=23, num_dst=19, edges=150, seed=0):
    """A bipartite list in no order; the last nodes have no edges."""
    torch.manual_seed(seed)
    return torch.stack([torch.randint(0, num_src - 2, (edges,)),
                        torch.randint(0, num_dst - 2, (edges,))])


def layers_of(widths, dtype=torch.float64):
    """Weights and biases of layers from one width to the next."""
    pairs = list(zip(widths, widths[1:]))
    return ([(torch.randn(o, i, dtype=dtype) / i ** 0.5).requires_grad_()
             for i, o in pairs],
            [torch.randn(o, dtype=dtype, requires_grad=True)
             for _, o in pairs])


def tensor(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def reduced(name, x, index, count, factor=None):
    out = x.new_zeros(count, x.size(1))
    if name in ("max", "min"):
        return out.scatter_reduce(0, index.view(-1, 1).expand_as(x), x,
                                  "a" + name, include_self=False)
    out = out.index_add(0, index, x if factor is None else
                        x * factor.view(-1, 1))
    if name == "mean":
        out = out / torch.bincount(index, minlength=count).clamp(
            min=1).view(-1, 1)
    return out


def agree(have, want, leaves, tolerance=1e-9):
    """Values and gradients by these tensors are the same."""
    torch.testing.assert_close(have, want, rtol=tolerance, atol=tolerance)
    grads = [torch.randn_like(b) for b in want]
    found = torch.autograd.grad(have, leaves, grads)
    expected = torch.autograd.grad(want, leaves, grads)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
