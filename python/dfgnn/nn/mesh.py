"""The blocks of models on meshes: MeshGraphNet, GraphCast, interaction
networks."""

import functools

import torch
from torch import nn

from .._modes import compiling
from ..graph import Graph
from ..mlps import edge_mlp

_ACTIVATIONS = {"relu": nn.ReLU, "silu": nn.SiLU, "gelu": nn.GELU,
                "elu": nn.ELU, "leaky_relu": nn.LeakyReLU, "tanh": nn.Tanh}
_SLOPES = {"elu": 1.0, "leaky_relu": 0.01}  # torch's own


def _network(sizes, activation, norm):
    """Linear layers with activations between them, then a LayerNorm."""
    if activation not in _ACTIVATIONS:
        names = ", ".join(repr(name) for name in _ACTIVATIONS)
        raise ValueError(f"activation must be one of {names}, got "
                         f"{activation!r}")
    modules = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        modules += [nn.Linear(inputs, outputs), _ACTIVATIONS[activation]()]
    modules.pop()
    if norm:
        modules.append(nn.LayerNorm(sizes[-1]))
    return nn.Sequential(*modules)


def _call(network, activation, graph, **options):
    """dfgnn.edge_mlp by the modules that _network() made."""
    linears = [m for m in network if isinstance(m, nn.Linear)]
    norm = network[-1] if isinstance(network[-1], nn.LayerNorm) else None
    return edge_mlp(
        graph, [m.weight for m in linears], [m.bias for m in linears],
        activation=activation, slope=_SLOPES.get(activation, 0),
        norm=norm and "layer", norm_weight=norm and norm.weight,
        norm_bias=norm and norm.bias, eps=norm.eps if norm else 0.0, **options)


@functools.lru_cache(maxsize=8)
def _rows(count, device):
    """The graph that joins each of these nodes to itself: an MLP on its edges
    is one of rows."""
    row = torch.arange(count, device=device)
    return Graph.from_edge_index(torch.stack([row, row]), (count, count),
                                 sorted=True, trusted=True)


class EdgeBlock(nn.Module):
    """e' = mlp(cat(edge_attr, x_src, x_dst)) (+ edge_attr), and the sum of e'
    at each destination.

    The mlp is that of NVIDIA's physicsnemo: ``hidden_layers`` + 1 linear
    layers (1 to 3 hidden ones), an activation between them and a LayerNorm at
    the end, the columns of the first in the order edge, source, destination;
    its parameters are those of ``block.mlp``, a torch.nn.Sequential.

    node_dim: width of x, or (that of sources, that of destinations).
    edge_dim: width of edge_attr; 0: there is none.
    residual: edge_attr is added, if out_dim is edge_dim; by default then.
    reduce: "sum", "mean", "max", "min" or None at destinations.
    """

    def __init__(self, node_dim, edge_dim, out_dim, *, hidden_dim=None,
                 hidden_layers=2, activation="silu", norm=True, residual=None,
                 reduce="sum"):
        super().__init__()
        if not 1 <= hidden_layers <= 3:
            raise ValueError("hidden_layers must be 1 to 3, got "
                             f"{hidden_layers}")
        src, dst = node_dim if isinstance(node_dim, (tuple, list)) else (
            node_dim, node_dim)
        if residual and edge_dim != out_dim:
            raise ValueError(f"residual wants out_dim = edge_dim, got {out_dim}"
                             f" and {edge_dim}")
        self.sizes = edge_dim, src, dst
        self.residual = edge_dim == out_dim if residual is None else residual
        self.activation, self.reduce = activation, reduce
        hidden = [hidden_dim or out_dim] * hidden_layers
        self.mlp = _network([sum(self.sizes), *hidden, out_dim], activation,
                            norm)

    def forward(self, x, edge_index, edge_attr=None):
        """(e' in the order of the edges, [destinations, out_dim]).

        x: [nodes, node_dim], or (x of sources, x of destinations).
        edge_index: [2, E], or a dfgnn.Graph.
        """
        src, dst = x if isinstance(x, (tuple, list)) else (x, x)
        result = _call(self.mlp, self.activation, edge_index, dst=dst, src=src,
                       edge=edge_attr, columns=("edge", "src", "dst"),
                       residual=self.residual, reduce=self.reduce, edges=True)
        return result if isinstance(result, tuple) else (result, None)


class MeshBlock(nn.Module):
    """A step of message passing of MeshGraphNet (Pfaff et al. 2021) and
    GraphCast: an :class:`EdgeBlock` with a residual, then
    x' = x + mlp(cat(sum of e', x)).

    width: of nodes, edges and everything between.
    """

    def __init__(self, width, *, hidden_layers=2, activation="silu",
                 norm=True):
        super().__init__()
        self.edge = EdgeBlock(width, width, width, activation=activation,
                              hidden_layers=hidden_layers, norm=norm)
        self.node = _network([2 * width, *[width] * hidden_layers, width],
                             activation, norm)

    def forward(self, x, edge_index, edge_attr):
        """(x', e')"""
        edge_attr, total = self.edge(x, edge_index, edge_attr)
        return x + self._update(x, total), edge_attr

    def _update(self, x, total):
        low = total.dtype in (torch.float16, torch.bfloat16)
        if compiling() or not (x.is_cuda and low):
            return self.node(torch.cat([total, x], 1))
        return _call(self.node, self.edge.activation,
                     _rows(x.size(0), x.device), edge=total, dst=x,
                     columns=("edge", "dst", "src"), reduce=None, edges=True)
