"""The base of the blocks: a class over theirs whose forward is one call of
dfgnn.edge_mlp where it can be, and the network of such a call."""

from typing import NamedTuple

import torch
from torch.nn import functional as F

from ..._fallbacks import own_path
from ..._guard import takes_own_path
from ..._modes import autocast_dtype, compiling
from ...errors import InvalidError, UnsupportedError
from ...mlps import edge_mlp
from .._linear import LINEARS
from .._networks import Norm, after_linear, flat, norm_of, without_nothing
from .._node import PLAIN_TENSORS, Other, surroundings


class Row(NamedTuple):
    """The functions that serve a class: by name of a method that by kernels,
    whose arguments after the block have the method's names; what the report
    says of it; whether its layers of PyG are called where the kernels are not,
    and else never."""
    methods: dict
    detail: str | None = None
    whole: bool = False


class Mlp(NamedTuple):
    """An MLP whose first layer has columns of the edge, its source and its
    destination."""
    weight: object  # whole, or (of edge, of source, of destination)
    bias: torch.Tensor
    rest: object  # the layers after it, see _networks.py
    norm: Norm


def mlp_of(first, modules, sizes):
    """The Mlp of a first Linear, split at these widths, and of the modules
    after it; raises Other."""
    if type(first) not in LINEARS:
        raise Other(f"its first layer is a {type(first).__name__}")
    if first.weight.size(1) != sum(sizes):
        raise Other(f"its first layer takes {first.weight.size(1)} features, "
                    f"edges and nodes have {sum(sizes)}")
    return then(first.weight, first.bias, modules)


def then(weight, bias, modules):
    """The Mlp of a first layer's weight and bias and of the modules after
    it."""
    modules = without_nothing(modules)
    norm = norm_of(modules[-1]) if modules else None
    rest = after_linear(modules[:-1] if norm else modules)
    if rest is None or rest.last:
        raise Other("its network is " + ", ".join(
            type(m).__name__ for m in modules) + " after the first layer, "
            "expected up to three Linear with one activation between them, "
            "and a LayerNorm or RMSNorm")
    return Mlp(weight, bias, rest, norm or Norm())


def modules_of(network):
    """The modules of a Sequential; raises Other."""
    modules = flat(network)
    if modules is None:
        raise Other("a hook looks at its network")
    return modules


def call(graph, mlp, edge, src, dst, **options):
    """dfgnn.edge_mlp of rows by edge, source and destination."""
    for tensor in (edge, src, dst):
        if type(tensor) not in PLAIN_TENSORS or tensor.dim() != 2:
            raise Other("edges and nodes must be plain tensors of two axes")
    if isinstance(mlp.weight, tuple):
        weight, by_src, by_dst = mlp.weight
        ends = dict(src_part=F.linear(src, by_src),
                    dst_part=F.linear(dst, by_dst))
    else:
        weight, ends = mlp.weight, dict(src=src, dst=dst)
    return edge_mlp(
        graph, [weight, *mlp.rest.weights], [mlp.bias, *mlp.rest.biases],
        **ends, columns=("edge", "src", "dst"), edge=edge,
        activation=mlp.rest.activation, slope=mlp.rest.slope,
        **mlp.norm._asdict(), **options)


def keeps_type(edge):
    """Whether a sum of edge and its MLP has the MLP's type: not under autocast,
    where a residual stays of float."""
    dtype = autocast_dtype(edge.device.type)
    return dtype is None or dtype == edge.dtype


def served(theirs, name, run):
    """A method of a class over theirs: run(block, ...) by kernels, or theirs
    where that raises Other."""
    def method(self, *args, **kwargs):
        if not compiling() and takes_own_path(self):
            return getattr(theirs, name)(self, *args, **kwargs)
        reason = "torch.compile traces" if compiling() else surroundings()
        if reason is None:
            try:
                return run(self, *args, **kwargs)
            except (Other, InvalidError, UnsupportedError) as error:
                reason = str(error)
        if not compiling():
            own_path(self, reason, "its library's")
        return getattr(theirs, name)(
            self, *map(_computed, args),
            **{key: _computed(value) for key, value in kwargs.items()})
    return method


def _computed(argument):
    """An argument, computed now if another method's kernels put it off."""
    return argument.projected() if hasattr(argument, "projected") else argument
