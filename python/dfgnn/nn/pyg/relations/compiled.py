"""HeteroConvs while torch.compile traces: sums of neighbours over all relations
that end at a type of nodes are one operator, and the linear layers around it are
torch's, which the compiler joins with what stands beside them.  Types that no
loss reads are left out by the compiler, which an operator over all types would
not let it do."""

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg

from ...._checks import DTYPES
from ...._modes import autocast_dtype
from ...._relations import operator
from .._reduce import reductions
from . import sums
from .calls import group_key, kind_of


def plan(module):
    """(operator, linear layer of sums, of own features) if all layers do the
    same and can go together; else None."""
    layers = list(module.convs.values())
    found = set(map(group_key, layers))
    if len(found) != 1 or None in found or module.aggr not in ("sum", "mean"):
        return None
    first = layers[0]
    linears = kind_of(type(first)).linears(first)
    op = sums.operator(reductions(first.aggr_module), None)
    if not linears or op not in ("spmm-sum", "spmm-mean"):
        return None
    if any(type(layer._modules.get(name)) is not pyg.Linear
           for layer in layers for name in linears if name in layer._modules):
        return None
    return op, *linears


def _fits(x_dict, edges, keys):
    kinds = {end for key in keys for end in (key[0], key[2])}
    if not keys or any(kind not in x_dict for kind in kinds):
        return False
    first = x_dict[keys[0][0]]
    return first.dim() == 2 and first.dtype in DTYPES and \
        first.size(1) > 0 and autocast_dtype(first.device.type) is None \
        and all(x_dict[kind].dim() == 2 and x_dict[kind].dtype == first.dtype
                and x_dict[kind].device == first.device
                and x_dict[kind].size(1) == first.size(1) for kind in kinds) \
        and all(isinstance(edges[key], torch.Tensor)
                and edges[key].dim() == 2
                and edges[key].layout == torch.strided for key in keys)


def forward(module, x_dict, edges):
    """The dict of results, or None where layers go one by one."""
    keys = [key for key in module.convs.keys() if key in edges]
    made = module._dfgnn_plan()
    if made is None or not _fits(x_dict, edges, keys):
        return None
    return {kind: _of_type(module, x_dict, edges, kind, [
        key for key in keys if key[2] == kind], *made)
        for kind in dict.fromkeys(key[2] for key in keys)}


def _of_type(module, x_dict, edges, kind, keys, op, of_sums, of_own):
    """The result of a type of nodes, from its relations."""
    kinds = list(dict.fromkeys(end for key in keys
                               for end in (key[0], key[2])))
    number = {kind: n for n, kind in enumerate(kinds)}
    made = operator.sums(
        [x_dict[kind] for kind in kinds], [edges[key] for key in keys],
        [number[end] for key in keys for end in (key[0], key[2])], op)
    layers = [module.convs[key] for key in keys]
    out = _added(layers, of_sums, made.view(
        x_dict[kind].size(0), len(layers) * made.size(1)), 1)
    own = [layer for layer in layers if hasattr(layer, of_own)]
    if own:
        out = out + _added(own, of_own, x_dict[kind], None)
    return out / len(layers) if module.aggr == "mean" and \
        len(layers) > 1 else out


def _added(layers, name, rows, dim):
    """The sum of linear layers: of one input, or side by side along dim."""
    linears = [getattr(layer, name) for layer in layers]
    weights = [linear.weight for linear in linears]
    biases = [linear.bias for linear in linears if linear.bias is not None]
    weight = sum(weights[1:], weights[0]) if dim is None \
        else torch.cat(weights, dim)
    return F.linear(rows, weight, sum(biases[1:], biases[0])
                    if biases else None)
