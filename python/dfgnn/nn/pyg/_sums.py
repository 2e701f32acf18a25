"""Layers whose messages are x_j, weighted or not, and what can be made of
them by sums over nodes."""

import torch
import torch.nn.functional as F
from torch_geometric import typing
from torch_geometric.nn import Linear, aggr

from ... import ops
from ...aggregation import spmm
from ...functional import gat_attention
from ...graph import Graph
from ._edges import (
    Looped, degrees, edge_tensor, ends, graph_of, known, remember, reverse,
    with_names)
from ._mixin import fits, unfit, usual
from ._reduce import (
    combine, is_sum, neighbours, reduce_neighbours, reductions)


# ---- forwards ------------------------------------------------------------------

def _tensors_for_graphs(layer, values):
    """A dfgnn.Graph as the edge_index that PyG's forward looks at."""
    return [_edges_as_given(layer, v) if isinstance(v, Graph) else v
            for v in values]


def _edges_as_given(layer, graph):
    edges = edge_tensor(graph)
    return edges.flip(0) if reverse(layer) else edges


def renamed(makers, otherwise=None, when=None):
    """A forward that is PyG's with other functions for making edges; those of
    otherwise when a predicate of the layer says so."""
    def make(pyg_forward):
        first = with_names(pyg_forward, **makers)
        second = with_names(pyg_forward, **otherwise) if otherwise else None
        if first is None:
            return pyg_forward

        def forward(self, *args, **kwargs):
            args = _tensors_for_graphs(self, args)
            if kwargs:
                kwargs = dict(zip(kwargs, _tensors_for_graphs(
                    self, kwargs.values())))
            if not usual(self):
                return pyg_forward(self, *args, **kwargs)
            ours = second if when is not None and when(self) else first
            return ours(self, *args, **kwargs)
        return forward
    return make


def keeps_edges(layer):
    """Whether the layer holds or changes what gcn_norm makes."""
    return layer.cached or (getattr(layer, "dropout", 0) > 0
                            and layer.training)


# ---- propagates ----------------------------------------------------------------

def x_only(layer, edge_index, size, x):
    return neighbours(layer, edge_index, size, x)


def weighted(layer, edge_index, size, x, edge_weight=None):
    return neighbours(layer, edge_index, size, x, edge_weight)


def own_edges(layer, edge_index, size, x, edge_weight=None):
    """Weighted sums over edges that forward made: what torch.compile traces
    makes them anew each time, and no graph can be kept of them."""
    if ops.compiling() and not isinstance(edge_index, Looped):
        return NotImplemented
    return neighbours(layer, edge_index, size, x, edge_weight)


def chebyshev(layer, edge_index, size, x, norm):
    return own_edges(layer, edge_index, size, x, norm)


def laplacian(layer_norm):
    """ChebConv's __norm__, made once a graph where nothing in it learns."""
    def __norm__(self, edge_index, num_nodes, edge_weight, normalization,
                 lambda_max=None, dtype=None, batch=None):
        def make():
            return layer_norm(self, edge_index, num_nodes, edge_weight,
                              normalization, lambda_max, dtype, batch)
        if (ops.compiling() or not known(edge_index) or edge_weight is not None
                or isinstance(lambda_max, torch.Tensor) or not usual(self)):
            return make()
        return remember(edge_index, ("laplacian", num_nodes, normalization,
                                     lambda_max, dtype), make)
    return __norm__


def local_extrema(layer, edge_index, size, a, b, edge_weight=None):
    """LEConv: the sum of w (a_j - b_i) is the sum of w a_j, less b_i times the
    sum of w."""
    met = ends(layer, a, size)
    if not (known(edge_index) and is_sum(layer) and a.dim() == 2
            and fits(a, b, edge_weight)):
        return unfit(layer, "its messages are not summed")
    num_dst = b.size(0)
    graph = graph_of(layer, edge_index, met.num_src, num_dst)
    if edge_weight is None:
        ones = a.new_ones(met.num_src, 1)
        total = spmm(graph, ones, num_dst=num_dst)
        return spmm(graph, a, num_dst=num_dst) - b * total
    edge_weight = edge_weight.view(-1)
    kind = torch.promote_types(edge_weight.dtype, a.dtype)
    ones = a.new_ones(met.num_src, 1, dtype=kind)
    total = spmm(graph, ones, edge_weight, num_dst=num_dst)
    return spmm(graph, a.to(kind), edge_weight, num_dst=num_dst) - b * total


def frequency_adaptive(layer, edge_index, size, x, alpha, edge_weight=None):
    """FAConv: weights tanh(a_j + b_i) w_ij."""
    if not (known(edge_index) and is_sum(layer) and fits(x, edge_weight)
            and edge_weight is not None and x.dim() == 2
            and not ops.compiling()):
        return unfit(layer, "its messages are not summed by edge_weight")
    met = ends(layer, x, size)
    send, take = (1, 0) if reverse(layer) else (0, 1)
    scores = (alpha[send].index_select(0, edge_index[send])
              + alpha[take].index_select(0, edge_index[take])).tanh()
    scores = layer._alpha = scores.squeeze(-1)
    scores = F.dropout(scores, p=layer.dropout, training=layer.training)
    weight = scores * edge_weight
    kind = torch.promote_types(weight.dtype, x.dtype)
    graph = graph_of(layer, edge_index, met.num_src, met.num_dst)
    return spmm(graph, x.to(kind), weight, num_dst=met.num_dst)


# ---- principal neighbourhood aggregation ----------------------------------------

def _only_linear(network):
    """The Linear that a message network is, if it is one and nobody looks at
    it."""
    first = network
    if isinstance(network, torch.nn.Sequential) \
            and len(network) == 1:
        first = network[0]
    if type(first) not in (torch.nn.Linear, Linear):
        return None
    if first._forward_hooks or first._forward_pre_hooks \
            or network._forward_hooks or network._forward_pre_hooks:
        return None
    return first


def _scaled(module, graph, out):
    """What DegreeScalerAggregation does after it has reduced."""
    degree = degrees(graph, out.dtype).view([-1] + [1] * (out.dim() - 1))
    least = degree.clamp(min=1)
    factors = {
        "identity": lambda: None,
        "amplification": lambda: torch.log(degree + 1) / module.avg_deg_log,
        "attenuation": lambda: module.avg_deg_log / torch.log(least + 1),
        "linear": lambda: degree / module.avg_deg_lin,
        "inverse_linear": lambda: module.avg_deg_lin / least}
    outs = []
    for name in module.scaler:
        factor = factors[name]()
        outs.append(out if factor is None else out * factor)
    return torch.cat(outs, dim=-1) if len(outs) > 1 else outs[0]


def principal(layer, edge_index, size, x, edge_attr=None):
    """PNAConv: a linear message network A x_i + B x_j needs no message an
    edge: A x_i only shifts mean, min and max, and std and var not at all."""
    module = layer.aggr_module
    linears = [_only_linear(nn) for nn in layer.pre_nns]
    names = None
    if type(module) is aggr.DegreeScalerAggregation:
        names = reductions(module.aggr)
    if (names is None or None in linears or edge_attr is not None
            or layer.edge_dim or not known(edge_index) or not fits(x)
            or ops.compiling() or reverse(layer)):
        return unfit(layer, "its messages are made by a network of several "
                     "layers, of edge features, or reduced by no kernel")
    num_nodes = x.size(0)
    graph = graph_of(layer, edge_index, num_nodes, num_nodes)
    width = layer.F_in
    own, sent = [], []
    for tower, linear in enumerate(linears):
        own.append(F.linear(x[:, tower], linear.weight[:, :width],
                            linear.bias))
        sent.append(F.linear(x[:, tower], linear.weight[:, width:]))
    own, sent = torch.stack(own, 1), torch.stack(sent, 1)
    degree = degrees(graph, own.dtype).view(-1, 1, 1)
    shift = own * (degree > 0)
    shifts = {"sum": own * degree, "mean": shift, "min": shift, "max": shift}
    outs = reduce_neighbours(graph, sent, names, num_nodes)
    outs = [out + shifts[name] if name in shifts else out
            for name, out in zip(names, outs)]
    return _scaled(module, graph, combine(module.aggr, outs))


# ---- messages of one node -------------------------------------------------------

def generalized(layer, edge_index, size, x, edge_attr=None):
    """GENConv without edge features: relu(x_j) + eps is made by node.  Its
    softmax is an attention whose heads are the features."""
    met = ends(layer, x, size)
    if (edge_attr is not None or met is None or not known(edge_index)
            or not fits(met.src) or met.src.dim() != 2):
        return unfit(layer, "its messages depend on edge features")
    value = met.src.relu() + layer.eps
    module = layer.aggr_module
    graph = graph_of(layer, edge_index, met.num_src, met.num_dst)
    names = reductions(module)
    if names is not None:
        return combine(module, reduce_neighbours(graph, value, names,
                                                 met.num_dst))
    if module._forward_hooks or module._forward_pre_hooks:
        return unfit(layer, "a hook looks at its aggregation")
    if type(module) is aggr.SoftmaxAggregation and not module.semi_grad:
        scores = value * (module.t if module.channels == 1
                          else module.t.view(-1, module.channels))
        return gat_attention(
            graph, value.unsqueeze(-1), value.new_zeros(1, 1).expand(
                met.num_dst, value.size(1)), scores,
            negative_slope=1.0).squeeze(-1)
    if type(module) is aggr.PowerMeanAggregation and module.channels == 1:
        power = module.p
        value = value.clamp(min=module.min_value,
                            max=module.max_value).pow(power)
        out = spmm(graph, value, reduce="mean", num_dst=met.num_dst)
        return out.clamp(min=module.min_value,
                         max=module.max_value).pow(1.0 / power)
    return unfit(layer, "no kernel reduces by " + type(module).__name__)


def edge_network(layer, edge_index, size, x):
    """EdgeConv whose network is one Linear (A, B): (A - B) x_i + B x_j."""
    names = reductions(layer.aggr_module)
    linear = _only_linear(layer.nn)
    met = ends(layer, x, size)
    if (names is None or linear is None or met is None or met.dst is None
            or not known(edge_index) or not fits(met.src, met.dst)
            or met.src.dim() != 2 or ops.compiling()):
        return unfit(layer, "its network has several layers")
    graph = graph_of(layer, edge_index, met.num_src, met.num_dst)
    width = met.src.size(1)
    sender = linear.weight[:, width:]
    own = F.linear(met.dst, linear.weight[:, :width] - sender, linear.bias)
    degree = degrees(graph, own.dtype).view(-1, 1)
    shift = own * (degree > 0)
    shifts = {"sum": own * degree, "mean": shift, "min": shift, "max": shift}
    outs = reduce_neighbours(graph, F.linear(met.src, sender), names,
                             met.num_dst)
    return combine(layer.aggr_module, [
        out + shifts[name] if name in shifts else out
        for name, out in zip(names, outs)])


def film(layer, edge_index, size, x, beta, gamma):
    """FiLMConv without an activation: gamma_i times the sum of x_j, and beta_i
    times as many."""
    met = ends(layer, x, size)
    names = reductions(layer.aggr_module)
    if (layer.act is not None or names not in (("sum",), ("mean",))
            or layer.num_relations > 1 or not known(edge_index)
            or not fits(x, beta, gamma) or x.dim() != 2 or ops.compiling()):
        return unfit(layer, "its messages pass an activation")
    num_dst = gamma.size(0)
    graph = graph_of(layer, edge_index, met.num_src, num_dst)
    out = spmm(graph, x, reduce=names[0], num_dst=num_dst)
    degree = degrees(graph, out.dtype).view(-1, 1)
    return gamma * out + beta * (degree if names == ("sum",) else degree > 0)


# ---- messages of edges -------------------------------------------------------------

def edge_features(layer, edge_index, size, x, edge_attr):
    """GINEConv: relu(x_j + e)."""
    return unfit(layer, "no kernel has its messages")


def gates(layer, edge_index, size, k, q, v, edge_attr=None):
    """ResGatedGraphConv: act(k_i + q_j) v_j."""
    return unfit(layer, "no kernel has its messages")


# ---- relations --------------------------------------------------------------------

def relations(pyg_forward):
    """RGCNConv: the edges of each relation are a graph, kept with those of
    all."""
    def forward(self, x, edge_index, edge_type=None):
        if isinstance(edge_index, Graph):
            edge_index = _edges_as_given(self, edge_index)
        if (not known(edge_index) or edge_type is None or ops.compiling()
                or typing.WITH_SEGMM or not usual(self)
                or type(edge_type) is not torch.Tensor
                or edge_type.dim() != 1
                or edge_type.numel() != edge_index.size(1)):
            return pyg_forward(self, x, edge_index, edge_type)
        parts = _parts(edge_index, edge_type, self.num_relations)
        return _by_relation(self, x, parts)
    return forward


def _parts(edge_index, edge_type, count):
    """The edges of each relation; kept as long as both tensors are as they
    were."""
    def make():
        return [edge_index[:, edge_type == r] for r in range(count)]
    if edge_type.is_inference():
        return make()
    return remember(edge_index, ("relations", id(edge_type),
                                 edge_type._version, count),
                    lambda: (edge_type, make()))[1]


def _by_relation(layer, x, parts):
    x_l, x_r = x if isinstance(x, tuple) else (x, x)
    if x_l is None:
        x_l = torch.arange(layer.in_channels_l, device=layer.weight.device)
    if x_r is None:
        x_r = x_l
    size = (x_l.size(0), x_r.size(0))
    embedded = not torch.is_floating_point(x_r)
    weight = layer.weight
    if layer.num_bases is not None:
        weight = (layer.comp @ weight.view(layer.num_bases, -1)).view(
            layer.num_relations, layer.in_channels_l, layer.out_channels)
    if layer.num_blocks is not None and embedded:
        raise ValueError("Block-diagonal decomposition not supported for "
                         "non-continuous input features.")
    out = torch.zeros(x_r.size(0), layer.out_channels, device=x_r.device)
    for number, edges in enumerate(parts):
        if not edges.size(1):
            continue
        if layer.num_blocks is not None:
            h = layer.propagate(edges, x=x_l, edge_type_ptr=None, size=size)
            h = h.view(-1, weight.size(1), weight.size(2))
            h = torch.einsum("abc,bcd->abd", h, weight[number])
            out = out + h.contiguous().view(-1, layer.out_channels)
        elif embedded:
            out = out + layer.propagate(edges, x=weight[number, x_l],
                                        edge_type_ptr=None, size=size)
        else:
            h = layer.propagate(edges, x=x_l, edge_type_ptr=None, size=size)
            out = out + h @ weight[number]
    if layer.root is not None:
        out = out + (layer.root[x_r] if embedded else x_r @ layer.root)
    return out if layer.bias is None else out + layer.bias


def one_relation(layer, edge_index, size, x, edge_type_ptr=None):
    if edge_type_ptr is not None:
        return unfit(layer, "relations are multiplied edge by edge")
    if ops.compiling():
        return NotImplemented
    return neighbours(layer, edge_index, size, x)
