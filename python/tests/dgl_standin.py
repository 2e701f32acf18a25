"""A stand-in for DGL on machines without it: the graphs, and the layers with
DGL's arguments and attributes, that dfgnn looks at.  A forward() is the
documented formula written edge by edge; test_dgl_accelerate.py compares it with
DGL's where DGL is installed."""

import functools
import sys
import types

import torch
from torch import nn

_PLACE = "dgl.nn.pytorch.conv.standin"


class DGLError(Exception):
    pass


class Graph:
    """A graph with one type of edges; of a block, the destinations are the
    first sources."""

    batch_size = 1

    def __init__(self, src, dst, num_src, num_dst, is_block=False):
        self.src, self.dst = src, dst
        self.num_src, self.num_dst, self.is_block = num_src, num_dst, is_block
        self._graph = types.SimpleNamespace()

    def adj_tensors(self, form):
        assert form == "csc"
        order = self.dst.argsort(stable=True)
        counts = torch.bincount(self.dst, minlength=self.num_dst)
        offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return offsets, self.src[order], order

    def num_src_nodes(self):
        return self.num_src

    def in_degrees(self):
        return torch.bincount(self.dst, minlength=self.num_dst)

    def out_degrees(self):
        return torch.bincount(self.src, minlength=self.num_src)


def _pair(value):
    return value if isinstance(value, tuple) else (value, value)


def _ends(graph, feat):
    if isinstance(feat, tuple):
        return feat
    return feat, feat[:graph.num_dst] if graph.is_block else feat


def _sum(graph, messages):
    return messages.new_zeros(graph.num_dst, *messages.shape[1:]).index_add(
        0, graph.dst, messages)


def _max(graph, messages):
    rows = [messages[graph.dst == i] for i in range(graph.num_dst)]
    return torch.stack([r.amax(0) if len(r) else messages.new_zeros(
        messages.shape[1:]) for r in rows])


def _by_node(degrees, like):
    return degrees.clamp(min=1).to(like).view([-1] + [1] * (like.dim() - 1))


def _reduced(graph, h, kind, weight=None):
    messages = h[graph.src]
    if weight is not None:
        messages = messages * weight.view([-1] + [1] * (h.dim() - 1))
    if kind == "max":
        return _max(graph, messages)
    out = _sum(graph, messages)
    return out / _by_node(graph.in_degrees(), out) if kind == "mean" else out


def _softmax(graph, scores):
    weights = (scores - _max(graph, scores.detach())[graph.dst]).exp()
    return weights / _sum(graph, weights)[graph.dst]


class _Layer(nn.Module):
    def set_allow_zero_in_degree(self, set_value):
        self._allow_zero_in_degree = set_value

    def check(self, graph):
        if not self._allow_zero_in_degree and (graph.in_degrees() == 0).any():
            raise DGLError("There are 0-in-degree nodes in the graph")


class GraphConv(_Layer):
    def __init__(self, in_feats, out_feats, norm="both", weight=True,
                 bias=True, activation=None, allow_zero_in_degree=False):
        super().__init__()
        self._in_feats, self._out_feats, self._norm = in_feats, out_feats, norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.weight = nn.Parameter(torch.randn(in_feats, out_feats)) \
            if weight else None
        self.bias = nn.Parameter(torch.randn(out_feats)) if bias else None
        self._activation = activation

    def forward(self, graph, feat, weight=None, edge_weight=None):
        self.check(graph)
        h, _ = _ends(graph, feat)
        power = -0.5 if self._norm == "both" else -1
        if self._norm in ("both", "left"):
            h = h * _by_node(graph.out_degrees(), h) ** power
        h = _reduced(graph, h, "sum", edge_weight) @ (
            self.weight if weight is None else weight)
        if self._norm in ("both", "right"):
            h = h * _by_node(graph.in_degrees(), h) ** power
        h = h if self.bias is None else h + self.bias
        return h if self._activation is None else self._activation(h)


class SAGEConv(_Layer):
    def __init__(self, in_feats, out_feats, aggregator_type, feat_drop=0.0,
                 bias=True, norm=None, activation=None):
        super().__init__()
        self._in_src_feats, self._in_dst_feats = _pair(in_feats)
        self._out_feats, self._aggre_type = out_feats, aggregator_type
        self.norm, self.activation = norm, activation
        self.feat_drop = nn.Dropout(feat_drop)
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(self._in_src_feats, self._in_src_feats)
        self.fc_neigh = nn.Linear(self._in_src_feats, out_feats, bias=False)
        if aggregator_type == "gcn":
            self.bias = nn.Parameter(torch.zeros(out_feats))
        else:
            self.fc_self = nn.Linear(self._in_dst_feats, out_feats, bias=bias)

    def forward(self, graph, feat, edge_weight=None):
        h, own = _ends(graph, feat)
        h, own = self.feat_drop(h), self.feat_drop(own)
        if self._aggre_type == "gcn":
            h = _reduced(graph, h, "sum", edge_weight) + own
            out = self.fc_neigh(h / (graph.in_degrees().to(h) + 1).view(-1, 1))
            out = out + self.bias
        else:
            if self._aggre_type == "pool":
                h = _reduced(graph, self.fc_pool(h).relu(), "max", edge_weight)
            else:
                h = _reduced(graph, h, "mean", edge_weight)
            out = self.fc_self(own) + self.fc_neigh(h)
        out = out if self.activation is None else self.activation(out)
        return out if self.norm is None else self.norm(out)


class GINConv(_Layer):
    def __init__(self, apply_func=None, aggregator_type="sum", init_eps=0,
                 learn_eps=False, activation=None):
        super().__init__()
        self.apply_func, self._aggregator_type = apply_func, aggregator_type
        self.activation = activation
        eps = torch.tensor([float(init_eps)])
        if learn_eps:
            self.eps = nn.Parameter(eps)
        else:
            self.register_buffer("eps", eps)

    def forward(self, graph, feat, edge_weight=None):
        h, own = _ends(graph, feat)
        out = (1 + self.eps) * own + _reduced(
            graph, h, self._aggregator_type, edge_weight)
        for function in (self.apply_func, self.activation):
            out = out if function is None else function(out)
        return out


class GATConv(_Layer):
    """GATConv, and the base of EdgeGATConv."""

    def __init__(self, in_feats, out_feats, num_heads, feat_drop=0.0,
                 attn_drop=0.0, negative_slope=0.2, residual=False,
                 activation=None, allow_zero_in_degree=False, bias=True):
        super().__init__()
        self._num_heads, self._out_feats = num_heads, out_feats
        self._in_src_feats, self._in_dst_feats = _pair(in_feats)
        self._allow_zero_in_degree = allow_zero_in_degree
        width = num_heads * out_feats
        for name, size in zip(("fc_src", "fc_dst"), in_feats) \
                if isinstance(in_feats, tuple) else (("fc", in_feats),):
            setattr(self, name, nn.Linear(size, width, bias=False))
        self.attn_l = nn.Parameter(torch.randn(1, num_heads, out_feats))
        self.attn_r = nn.Parameter(torch.randn(1, num_heads, out_feats))
        self.feat_drop, self.attn_drop = nn.Dropout(feat_drop), nn.Dropout(
            attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.residual(residual, width, bias)
        self.activation = activation

    def residual(self, residual, width, bias):
        self.has_linear_res = residual and self._in_dst_feats != width
        self.has_explicit_bias = bias and not self.has_linear_res
        self.res_fc = None if not residual else nn.Linear(
            self._in_dst_feats, width, bias=bias) if self.has_linear_res \
            else nn.Identity()
        self.bias = nn.Parameter(torch.randn(width)) \
            if self.has_explicit_bias else None

    def forward(self, graph, feat, edge_weight=None, get_attention=False):
        return self.attend(graph, feat, edge_weight, None, get_attention)

    def attend(self, graph, feat, edge_weight, edge, get_attention):
        self.check(graph)
        size = (-1, self._num_heads, self._out_feats)
        h_src, h_dst = (self.feat_drop(h) for h in _ends(graph, feat))
        src = getattr(self, "fc_src", getattr(self, "fc", None))(h_src)
        dst = getattr(self, "fc_dst", getattr(self, "fc", None))(h_dst)
        src, dst = src.view(size), dst.view(size)
        scores = ((src * self.attn_l).sum(-1, keepdim=True)[graph.src]
                  + (dst * self.attn_r).sum(-1, keepdim=True)[graph.dst])
        messages = src[graph.src]
        if edge is not None:
            edge = self.fc_edge(edge).view(size)
            scores = scores + (edge * self.attn_edge).sum(-1, keepdim=True)
            messages = messages + edge
        alpha = self.attn_drop(_softmax(graph, self.leaky_relu(scores)))
        if edge_weight is not None:
            alpha = alpha * edge_weight.view(-1, 1, 1)
        out = _sum(graph, messages * alpha)
        if self.res_fc is not None:
            out = out + self.res_fc(h_dst).view(size)
        if self.bias is not None:
            out = out + self.bias.view(size)
        out = out if self.activation is None else self.activation(out)
        return (out, alpha) if get_attention else out


class EdgeGATConv(GATConv):
    def __init__(self, in_feats, edge_feats, out_feats, num_heads, *args,
                 residual=True, **kwargs):
        super().__init__(in_feats, out_feats, num_heads, *args,
                         residual=residual, **kwargs)
        self._edge_feats = edge_feats
        self.fc_edge = nn.Linear(edge_feats, out_feats * num_heads, bias=False)
        self.attn_edge = nn.Parameter(torch.randn(1, num_heads, out_feats))

    def residual(self, residual, width, bias):
        self.res_fc = nn.Linear(self._in_dst_feats, width, bias=False) \
            if residual else None
        self.bias = nn.Parameter(torch.randn(width)) if bias else None

    def forward(self, graph, feat, edge_feat, get_attention=False):
        return self.attend(graph, feat, None, edge_feat, get_attention)


class TypedLinear(nn.Module):
    def __init__(self, in_size, out_size, num_types, regularizer=None,
                 num_bases=None):
        super().__init__()
        self.in_size, self.out_size = in_size, out_size
        self.num_types, self.regularizer = num_types, regularizer
        if regularizer is not None:
            self.num_bases = num_bases
        if regularizer == "bdd":
            self.submat_in = in_size // num_bases
            self.submat_out = out_size // num_bases
            self.W = nn.Parameter(torch.randn(
                num_types, num_bases * self.submat_in * self.submat_out))
            return
        self.W = nn.Parameter(torch.randn(
            num_types if regularizer is None else num_bases, in_size,
            out_size))
        if regularizer is not None:
            self.coeff = nn.Parameter(torch.randn(num_types, num_bases))

    def get_weight(self):
        if self.regularizer != "basis":
            return self.W
        return (self.coeff @ self.W.flatten(1)).view(-1, *self.W.shape[1:])

    def forward(self, x, x_type, sorted_by_type=False):
        weight = self.get_weight()[x_type]
        if self.regularizer != "bdd":
            return (x.unsqueeze(1) @ weight).squeeze(1)
        blocks = x.view(-1, self.num_bases, 1, self.submat_in)
        weight = weight.view(-1, self.num_bases, self.submat_in,
                             self.submat_out)
        return (blocks @ weight).reshape(-1, self.out_size)


class RelGraphConv(nn.Module):
    def __init__(self, in_feat, out_feat, num_rels, regularizer=None,
                 num_bases=None, bias=True, activation=None, self_loop=True,
                 dropout=0.0, layer_norm=False):
        super().__init__()
        self.linear_r = TypedLinear(in_feat, out_feat, num_rels, regularizer,
                                    num_bases)
        self.bias, self.activation = bias, activation
        self.self_loop, self.layer_norm = self_loop, layer_norm
        self.presorted = False
        if bias:
            self.h_bias = nn.Parameter(torch.randn(out_feat))
        if layer_norm:
            self.layer_norm_weight = nn.LayerNorm(out_feat)
        if self_loop:
            self.loop_weight = nn.Parameter(torch.randn(in_feat, out_feat))
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph, feat, etypes, norm=None, *, presorted=False):
        messages = self.linear_r(feat[graph.src], etypes)
        h = _sum(graph, messages if norm is None else messages * norm)
        h = self.layer_norm_weight(h) if self.layer_norm else h
        h = h + self.h_bias if self.bias else h
        if self.self_loop:
            h = h + feat[:graph.num_dst] @ self.loop_weight
        return self.dropout(self.activation(h) if self.activation else h)


class HGTConv(nn.Module):
    def __init__(self, in_size, head_size, num_heads, num_ntypes, num_etypes,
                 dropout=0.2, use_norm=False):
        super().__init__()
        self.in_size, self.head_size = in_size, head_size
        self.num_heads, self.use_norm = num_heads, use_norm
        self.sqrt_d, width = head_size ** 0.5, head_size * num_heads
        self.presorted = False
        for name in "kqv":
            setattr(self, "linear_" + name,
                    TypedLinear(in_size, width, num_ntypes))
        self.linear_a = TypedLinear(width, width, num_ntypes)
        self.relation_pri = nn.ParameterList(
            [nn.Parameter(torch.rand(num_etypes)) for _ in range(num_heads)])
        for name in ("relation_att", "relation_msg"):
            setattr(self, name, nn.ModuleList(
                [TypedLinear(head_size, head_size, num_etypes)
                 for _ in range(num_heads)]))
        self.skip = nn.Parameter(torch.randn(num_ntypes))
        self.drop = nn.Dropout(dropout)
        if use_norm:
            self.norm = nn.LayerNorm(width)
        if in_size != width:
            self.residual_w = nn.Parameter(torch.randn(in_size, width))

    def forward(self, graph, x, ntype, etype, *, presorted=False):
        shape = (-1, self.num_heads, self.head_size)
        _, own = _ends(graph, x)
        kind = ntype[:len(own)]
        q = self.linear_q(own, kind).view(shape)[graph.dst]
        k, v = (linear(x, ntype).view(shape)[graph.src]
                for linear in (self.linear_k, self.linear_v))
        scores = [(self.relation_att[i](k[:, i], etype) * q[:, i]).sum(-1)
                  * self.relation_pri[i][etype] / self.sqrt_d
                  for i in range(self.num_heads)]
        alpha = _softmax(graph, torch.stack(scores, 1)).unsqueeze(-1)
        messages = torch.stack([self.relation_msg[i](v[:, i], etype)
                                for i in range(self.num_heads)], 1)
        h = _sum(graph, messages * alpha).flatten(1)
        h = self.drop(self.linear_a(h, kind))
        alpha = self.skip[kind].sigmoid().unsqueeze(-1)
        if own.shape != h.shape:
            own = own @ self.residual_w
        h = h * alpha + own * (1 - alpha)
        return self.norm(h) if self.use_norm else h


class HeteroGraph:
    """A graph of several relations; of a block, the destinations of a type are
    its first sources."""

    def __init__(self, relations, sizes, is_block=False):
        self.relations, self.sizes, self.is_block = relations, sizes, is_block
        self.canonical_etypes = list(relations)
        self.srctypes = sorted({k for k, (n, _) in sizes.items()
                                if n or not is_block})
        self.dsttypes = sorted({k for k, (_, n) in sizes.items()
                                if n or not is_block})
        self._graph = types.SimpleNamespace()
        self._parts = {}

    def edges(self, etype, order="eid"):
        assert order == "eid"
        return tuple(self.relations[etype])

    def num_src_nodes(self, kind):
        return self.sizes[kind][0]

    def num_dst_nodes(self, kind):
        return self.sizes[kind][1]

    number_of_dst_nodes = num_dst_nodes

    def __getitem__(self, key):
        if key not in self._parts:
            self._parts[key] = Graph(
                *self.relations[key], self.sizes[key[0]][0],
                self.sizes[key[2]][1], self.is_block and key[0] == key[2])
        return self._parts[key]


def _sum_reduce_func(inputs, dim):
    return torch.sum(inputs, dim=dim)


def _mean_reduce_func(inputs, dim):
    return torch.mean(inputs, dim=dim)


def _max_reduce_func(inputs, dim):
    return torch.max(inputs, dim=dim)[0]


def _agg_func(inputs, dsttype, fn):
    return fn(torch.stack(inputs, dim=0), dim=0)


def _stack_agg_func(inputs, dsttype):
    return torch.stack(inputs, dim=1)


class HeteroGraphConv(nn.Module):
    def __init__(self, mods, aggregate="sum"):
        super().__init__()
        self.mod_dict = mods
        self.mods = nn.ModuleDict({str(k): v for k, v in mods.items()})
        for module in self.mods.values():
            if hasattr(module, "set_allow_zero_in_degree"):
                module.set_allow_zero_in_degree(True)
        self.agg_fn = aggregate if callable(aggregate) else \
            _stack_agg_func if aggregate == "stack" else functools.partial(
                _agg_func, fn=globals()[f"_{aggregate}_reduce_func"])

    def _get_module(self, etype):
        found = self.mod_dict.get(etype)
        return self.mod_dict[etype[1]] if found is None else found

    def forward(self, g, inputs, mod_args=None, mod_kwargs=None):
        src = dst = inputs
        if isinstance(inputs, tuple):
            src, dst = inputs
        elif g.is_block:
            dst = {k: v[:g.num_dst_nodes(k)] for k, v in inputs.items()}
        outs = {kind: [] for kind in g.dsttypes}
        for key in g.canonical_etypes:
            if key[0] in src and key[2] in dst:
                outs[key[2]].append(self._get_module(key)(
                    g[key], (src[key[0]], dst[key[2]]),
                    *(mod_args or {}).get(key[1], ()),
                    **(mod_kwargs or {}).get(key[1], {})))
        return {kind: self.agg_fn(found, kind)
                for kind, found in outs.items() if found}


class GATv2Conv(_Layer):
    def __init__(self, in_feats, out_feats, num_heads, feat_drop=0.0,
                 attn_drop=0.0, negative_slope=0.2, residual=False,
                 activation=None, allow_zero_in_degree=False, bias=True,
                 share_weights=False):
        super().__init__()
        self._num_heads, self._out_feats = num_heads, out_feats
        src, dst = self._in_src_feats, self._in_dst_feats = _pair(in_feats)
        self._allow_zero_in_degree = allow_zero_in_degree
        width = num_heads * out_feats
        self.fc_src = nn.Linear(src, width, bias=bias)
        self.fc_dst = self.fc_src if share_weights else nn.Linear(
            dst, width, bias=bias)
        self.attn = nn.Parameter(torch.randn(1, num_heads, out_feats))
        self.feat_drop, self.attn_drop = nn.Dropout(feat_drop), nn.Dropout(
            attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.res_fc = None if not residual else nn.Identity() \
            if dst == width else nn.Linear(dst, width, bias=bias)
        self.activation, self.share_weights = activation, share_weights
        self.bias = bias

    def forward(self, graph, feat, get_attention=False):
        self.check(graph)
        size = (-1, self._num_heads, self._out_feats)
        h_src, h_dst = (self.feat_drop(h) for h in _ends(graph, feat))
        src, dst = self.fc_src(h_src).view(size), self.fc_dst(h_dst).view(size)
        scores = self.leaky_relu(src[graph.src] + dst[graph.dst])
        alpha = self.attn_drop(_softmax(
            graph, (scores * self.attn).sum(-1, keepdim=True)))
        out = _sum(graph, src[graph.src] * alpha)
        if self.res_fc is not None:
            out = out + self.res_fc(h_dst).view(size)
        out = out if self.activation is None else self.activation(out)
        return (out, alpha) if get_attention else out


class DotGatConv(_Layer):
    def __init__(self, in_feats, out_feats, num_heads,
                 allow_zero_in_degree=False):
        super().__init__()
        self._in_src_feats, self._in_dst_feats = _pair(in_feats)
        self._out_feats, self._num_heads = out_feats, num_heads
        self._allow_zero_in_degree = allow_zero_in_degree
        for name, size in zip(("fc_src", "fc_dst"), in_feats) \
                if isinstance(in_feats, tuple) else (("fc", in_feats),):
            setattr(self, name, nn.Linear(size, num_heads * out_feats,
                                          bias=False))

    def forward(self, graph, feat, get_attention=False):
        self.check(graph)
        size = (-1, self._num_heads, self._out_feats)
        h_src, h_dst = _ends(graph, feat)
        src = getattr(self, "fc_src", getattr(self, "fc", None))(h_src)
        dst = getattr(self, "fc_dst", getattr(self, "fc", None))(h_dst)
        src, dst = src.view(size)[graph.src], dst.view(size)[graph.dst]
        alpha = _softmax(graph, (src * dst).sum(-1, keepdim=True)
                         / self._out_feats ** 0.5)
        out = _sum(graph, src * alpha)
        return (out, alpha) if get_attention else out


class AGNNConv(_Layer):
    def __init__(self, init_beta=1.0, learn_beta=True,
                 allow_zero_in_degree=False):
        super().__init__()
        self._allow_zero_in_degree = allow_zero_in_degree
        beta = torch.tensor([float(init_beta)])
        if learn_beta:
            self.beta = nn.Parameter(beta)
        else:
            self.register_buffer("beta", beta)

    def forward(self, graph, feat):
        self.check(graph)
        src, dst = _ends(graph, feat)
        unit = nn.functional.normalize
        scores = self.beta * (unit(src, dim=-1)[graph.src]
                              * unit(dst, dim=-1)[graph.dst]).sum(
                                  -1, keepdim=True)
        return _sum(graph, src[graph.src] * _softmax(graph, scores))


class SGConv(_Layer):
    """A layer that dfgnn.nn.dgl does not have."""

    def __init__(self, in_feats, out_feats):
        super().__init__()
        self.fc = nn.Linear(in_feats, out_feats)


LAYERS = [GraphConv, SAGEConv, GINConv, GATConv, EdgeGATConv, GATv2Conv,
          DotGatConv, AGNNConv, RelGraphConv, HGTConv, HeteroGraphConv,
          SGConv]


def install(monkeypatch):
    """Installs modules dgl and dgl.nn with the classes of this file."""
    top, layers = types.ModuleType("dgl"), types.ModuleType("dgl.nn")
    top.DGLError, top.nn = DGLError, layers
    for kind in LAYERS:
        kind.__module__ = _PLACE
        setattr(layers, kind.__name__, kind)
    monkeypatch.setitem(sys.modules, "dgl", top)
    monkeypatch.setitem(sys.modules, "dgl.nn", layers)
    return layers
