"""RelGraphConv, as dgl.nn has it."""

import torch
from torch import nn

from ... import _relational
from ...aggregation import spmm
from ...hetero import typed_graph
from ._base import Layer, dgl_error


class TypedLinear(nn.Module):
    """dgl.nn.TypedLinear's parameters: W, and coeff of bases."""

    def __init__(self, in_size, out_size, num_types, regularizer=None,
                 num_bases=None):
        super().__init__()
        if regularizer not in (None, "basis"):
            raise dgl_error('regularizer must be None or "basis", got '
                            f"{regularizer!r}")
        count = num_types if regularizer is None else num_bases
        self.regularizer = regularizer
        self.W = nn.Parameter(torch.empty(count, in_size, out_size))
        if regularizer is not None:
            self.coeff = nn.Parameter(torch.empty(num_types, num_bases))
            nn.init.xavier_uniform_(self.coeff,
                                    nn.init.calculate_gain("relu"))
        nn.init.uniform_(self.W, -in_size ** -0.5, in_size ** -0.5)

    def get_weight(self):
        if self.regularizer is None:
            return self.W
        return torch.einsum("rb,bio->rio", self.coeff, self.W)


class RelGraphConv(Layer):
    """dgl.nn.RelGraphConv   Schlichtkrull et al. 2018"""

    def __init__(self, in_feat, out_feat, num_rels, regularizer=None,
                 num_bases=None, bias=True, activation=None, self_loop=True,
                 dropout=0.0, layer_norm=False):
        super().__init__()
        if regularizer is not None and num_bases is None:
            num_bases = num_rels
        self.linear_r = TypedLinear(in_feat, out_feat, num_rels, regularizer,
                                    num_bases)
        self.bias, self.activation = bias, activation
        self.self_loop, self.layer_norm = self_loop, layer_norm
        if bias:
            self.h_bias = nn.Parameter(torch.zeros(out_feat))
        if layer_norm:
            self.layer_norm_weight = nn.LayerNorm(out_feat)
        if self_loop:
            self.loop_weight = nn.Parameter(torch.empty(in_feat, out_feat))
            nn.init.xavier_uniform_(self.loop_weight,
                                    nn.init.calculate_gain("relu"))
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph, feat, etypes, norm=None, *, presorted=False):
        """feat [N, in_feat], etypes [E] the number of each edge's relation,
        norm [E, 1] what its message is multiplied with."""
        if self.linear_r.regularizer not in (None, "basis"):
            raise TypeError("regularizer is "
                            f"{self.linear_r.regularizer!r}, not basis")
        graph = self.graph(graph, feat)
        h = self._sums(graph, feat, etypes, norm)
        if self.layer_norm:
            h = self.layer_norm_weight(h)
        if self.bias:
            h = h + self.h_bias
        if self.self_loop:
            h = h + feat[:graph.num_dst] @ self.loop_weight
        if self.activation:
            h = self.activation(h)
        return self.dropout(h)

    def _sums(self, graph, feat, etypes, norm):
        weight = self.linear_r.get_weight()
        relations = typed_graph(graph.edge_index, etypes,
                                (graph.num_src, graph.num_dst),
                                weight.size(0))
        norm = None if norm is None else norm.view(-1)
        if not relations.num_edges or _relational.fits_by_node(relations,
                                                               feat):
            return _relational.by_node(relations, feat, weight, norm)
        return _relational.by_pair(relations, weight, lambda within: spmm(
            within, feat, norm))
