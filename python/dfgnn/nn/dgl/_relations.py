"""RelGraphConv and HGTConv, as dgl.nn has them."""

import math

import torch
from torch import nn

from ... import _relational
from ..._grouped import alignment, take, typed
from ...aggregation import spmm
from ...functional import gt_attention
from ...hetero import typed_graph
from .._exact import outside_autocast, result_type
from .._linear import hooked
from ._base import Layer, dgl_error, split


class TypedLinear(nn.Module):
    """dgl.nn.TypedLinear's parameters: W, and coeff of bases; of "bdd" blocks
    on the diagonal."""

    def __init__(self, in_size, out_size, num_types, regularizer=None,
                 num_bases=None):
        super().__init__()
        if regularizer not in (None, "basis", "bdd"):
            raise dgl_error('regularizer must be None, "basis" or "bdd", got '
                            f"{regularizer!r}")
        self.in_size, self.out_size = in_size, out_size
        self.num_types, self.num_bases = num_types, num_bases
        self.regularizer, width = regularizer, in_size
        if regularizer == "bdd":
            if in_size % num_bases or out_size % num_bases:
                raise dgl_error(f"in_size {in_size} and out_size {out_size} "
                                "must be multiples of num_bases, "
                                f"{num_bases}")
            width = self.submat_in = in_size // num_bases
            self.submat_out = out_size // num_bases
            self.W = nn.Parameter(torch.empty(
                num_types, num_bases * width * self.submat_out))
        else:
            self.W = nn.Parameter(torch.empty(
                num_bases if regularizer else num_types, in_size, out_size))
        if regularizer == "basis":
            self.coeff = nn.Parameter(torch.empty(num_types, num_bases))
        self.reset_parameters()

    def reset_parameters(self):
        width = self.submat_in if self.regularizer == "bdd" else self.in_size
        nn.init.uniform_(self.W, -width ** -0.5, width ** -0.5)
        if self.regularizer == "basis":
            nn.init.xavier_uniform_(self.coeff,
                                    nn.init.calculate_gain("relu"))

    def get_weight(self):
        if self.regularizer != "basis":
            return self.W
        return torch.einsum("rb,bio->rio", self.coeff, self.W)


def _weights(linear):
    """[types, in, out] the weights of a TypedLinear, or their blocks [types,
    blocks, in / blocks, out / blocks]."""
    if hooked(linear):
        raise TypeError("a hook looks at its TypedLinear")
    if linear.regularizer != "bdd":
        return linear.get_weight()
    return linear.W.view(-1, linear.num_bases, linear.submat_in,
                         linear.submat_out)


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
        weight = _weights(self.linear_r)
        relations = typed_graph(graph.edge_index, etypes,
                                (graph.num_src, graph.num_dst),
                                weight.size(0))
        norm = None if norm is None else norm.view(-1)
        if not relations.num_edges or _relational.fits_by_node(relations,
                                                               feat):
            return _relational.by_node(relations, feat, weight, norm)
        return _relational.by_pair(relations, weight, lambda within: spmm(
            within, feat, norm))


class HGTConv(Layer):
    """dgl.nn.HGTConv   Hu et al. 2020: attention whose keys and values are of
    the relation of an edge, whose queries are of the type of a node."""

    def __init__(self, in_size, head_size, num_heads, num_ntypes, num_etypes,
                 dropout=0.2, use_norm=False):
        super().__init__()
        self.in_size, self.head_size = in_size, head_size
        self.num_heads, self.use_norm = num_heads, use_norm
        self.sqrt_d = math.sqrt(head_size)
        width = head_size * num_heads
        self.linear_k = TypedLinear(in_size, width, num_ntypes)
        self.linear_q = TypedLinear(in_size, width, num_ntypes)
        self.linear_v = TypedLinear(in_size, width, num_ntypes)
        self.linear_a = TypedLinear(width, width, num_ntypes)
        self.relation_pri = nn.ParameterList(
            [nn.Parameter(torch.ones(num_etypes)) for _ in range(num_heads)])
        self.relation_att, self.relation_msg = (nn.ModuleList(
            [TypedLinear(head_size, head_size, num_etypes)
             for _ in range(num_heads)]) for _ in range(2))
        self.skip = nn.Parameter(torch.ones(num_ntypes))
        self.drop = nn.Dropout(dropout)
        if use_norm:
            self.norm = nn.LayerNorm(width)
        if in_size != width:
            self.residual_w = nn.Parameter(torch.empty(in_size, width))
            nn.init.xavier_uniform_(self.residual_w)

    def forward(self, g, x, ntype, etype, *, presorted=False):
        """x [N, in_size], ntype [N] the type of each node, etype [E] the number
        of each edge's relation."""
        graph = self.graph(g, x)
        shape = (-1, self.num_heads, self.head_size)
        query, *sent = (_weights(linear) for linear in (
            self.linear_q, self.linear_k, self.linear_v))
        relations = typed_graph(graph.edge_index, etype,
                                (graph.num_src, graph.num_dst),
                                self.relation_pri[0].numel())
        types = len(query)
        _, x_dst = split(graph, x)
        width = query.size(2)
        own = typed(ntype, types, x_dst, width)
        query = own.product(x_dst, query).view(shape)
        rows = typed(ntype, types, x, 2 * width).product(
            x, torch.cat(sent, 2))
        pairs, key, value = self._of_pairs(relations, rows)
        out = outside_autocast(
            gt_attention, pairs, query, key.view(shape), value.view(shape),
            scale=1.0,
            result=result_type((query[:0] * query[:0]).sum(-1), value))
        return self._finish(own, x_dst, out.flatten(1))

    def _of_pairs(self, relations, rows):
        """(the Graph whose sources are (source, relation) pairs, their keys,
        their values) of rows [N, 2 * width]."""
        scale = torch.stack(list(self.relation_pri), 1) / self.sqrt_d
        keys, values = (torch.stack([_weights(linear) for linear in linears], 1)
                        for linears in (self.relation_att, self.relation_msg))
        # [relations, 2 * heads, D, D]
        weight = torch.cat([keys * scale[..., None, None], values], 1)
        align = alignment(relations.number_of_pairs("src"),
                          relations.num_relations, relations.device)
        pairs = relations.senders_of(relations.by_node("dst"), align)
        groups = _relational.groups_of(relations, pairs, align)
        made = groups.product(take(rows, pairs.rows), weight)
        return pairs.graph, *made.chunk(2, 1)

    def _finish(self, own, x_dst, h):
        h = self.drop(own.product(h, _weights(self.linear_a)))
        alpha = own.by_row(self.skip.sigmoid().view(-1, 1))
        if x_dst.shape != h.shape:
            x_dst = x_dst @ self.residual_w
        h = h * alpha + x_dst * (1 - alpha)
        return self.norm(h) if self.use_norm else h
