"""The layers of DGL that sum, EdgeGATConv, inputs of more dimensions, errors
and graphs: against formulas with dense matrices."""

import gc
import sys
import types
import weakref

import pytest
import torch
from torch.nn import functional as F

import dfgnn
from dfgnn import convert
from dfgnn.nn import dgl

from conftest import close
from test_dgl import everyone, softmax_sum
from test_graph import DGLGraph

N, IN, OUT, H = 12, 6, 4, 3


def dense(edges, weight=None, num_dst=N, num_src=N):
    if weight is None:
        weight = torch.ones(edges.size(1))
    return torch.zeros(num_dst, num_src).index_put(
        (edges[1], edges[0]), weight, accumulate=True)


def check_gradients(layer, graph, wanted, x, *args):
    """Compares a layer's result and gradients with those of a formula."""
    leaf = x.clone().requires_grad_()
    out, expected = layer(graph, leaf, *args), wanted(leaf)
    close(out, expected, 1e-5)
    grad = torch.randn(out.shape)
    leaves = [leaf, *layer.parameters()]
    for a, b in zip(torch.autograd.grad(out, leaves, grad),
                    torch.autograd.grad(expected, leaves, grad)):
        close(a, b, 1e-4, "gradients")


@pytest.mark.parametrize("norm", ["none", "both", "right", "left"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [(IN, OUT), (OUT, IN)])
@pytest.mark.parametrize("between", [(), (2,)])
def test_graph_conv(norm, weighted, sizes, between):
    edges, x = everyone(), torch.randn(N, *between, sizes[0])
    weight = torch.rand(edges.size(1)) if weighted else None
    layer = dgl.GraphConv(*sizes, norm=norm, activation=F.elu)
    torch.nn.init.normal_(layer.bias)
    plain, matrix = dense(edges), dense(edges, weight)
    left = plain.sum(0).clamp(min=1)
    right = plain.sum(1).clamp(min=1)
    if norm in ("both", "left"):
        matrix = matrix * left.pow(-0.5 if norm == "both" else -1)
    if norm in ("both", "right"):
        matrix = matrix * right.pow(
            -0.5 if norm == "both" else -1).view(-1, 1)

    def wanted(x):
        return F.elu(torch.einsum("ij,j...f->i...f", matrix, x)
                     @ layer.weight + layer.bias)
    check_gradients(layer, dfgnn.as_graph(edges, N), wanted, x, None, weight)


def test_weights_of_graph_conv_from_outside():
    edges, x = everyone(), torch.randn(N, IN)
    graph, weight = dfgnn.as_graph(edges, N), torch.randn(IN, OUT)
    layer = dgl.GraphConv(IN, OUT, "none", weight=False, bias=False)
    assert not list(layer.parameters())
    close(layer(graph, x, weight), dense(edges) @ x @ weight, 1e-5)
    with pytest.raises(dgl.DGLError, match="weight=False"):
        dgl.GraphConv(IN, OUT)(graph, x, weight)
    with pytest.raises(dgl.DGLError, match="norm must be.*'all'"):
        dgl.GraphConv(IN, OUT, norm="all")


@pytest.mark.parametrize("kind", ["mean", "gcn", "pool"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [(IN, OUT), (OUT, IN)])
def test_sage_conv(kind, weighted, sizes):
    edges, x = everyone(), torch.randn(N, sizes[0])
    weight = torch.rand(edges.size(1)) if weighted else None
    layer = dgl.SAGEConv(*sizes, kind, activation=F.elu)
    matrix, degrees = dense(edges, weight), dense(edges).sum(1).view(-1, 1)

    def wanted(x):
        if kind == "gcn":
            h = (matrix @ x + x) / (degrees + 1)
            return F.elu(layer.fc_neigh(h) + layer.bias)
        if kind == "mean":
            h = matrix @ x / degrees
        else:
            messages = layer.fc_pool(x).relu()[edges[0]]
            if weighted:
                messages = messages * weight.view(-1, 1)
            h = torch.stack([messages[edges[1] == i].max(0).values
                             for i in range(N)])
        return F.elu(layer.fc_self(x) + layer.fc_neigh(h))
    if kind == "pool":  # no gradients: equal maxima may share one or not
        close(layer(dfgnn.as_graph(edges, N), x, weight), wanted(x), 1e-5)
        return
    check_gradients(layer, dfgnn.as_graph(edges, N), wanted, x, weight)


def test_sage_conv_by_lstm_reads_neighbours_in_the_order_of_edges():
    edges, x = everyone(), torch.randn(N, IN)
    layer = dgl.SAGEConv(IN, OUT, "lstm")
    states = []
    for i in range(N):
        _, (state, _) = layer.lstm(x[edges[0][edges[1] == i]].unsqueeze(0))
        states.append(state.view(-1))
    wanted = layer.fc_self(x) + layer.fc_neigh(torch.stack(states))
    close(layer(dfgnn.as_graph(edges, N), x), wanted, 1e-5)


@pytest.mark.parametrize("kind", ["mean", "gcn", "pool", "lstm"])
def test_sage_conv_without_edges_and_over_blocks(kind):
    none = dfgnn.as_graph(torch.empty(2, 0, dtype=torch.int64), 3)
    layer, x = dgl.SAGEConv(IN, OUT, kind, norm=F.normalize), \
        torch.randn(9, IN)
    assert torch.isfinite(layer(none, x[:3])).all()
    graph = dfgnn.as_graph(everyone(9, 4), (9, 4))
    block = DGLGraph(graph.offsets, graph.indices, graph.order, 9)
    close(layer(block, x), layer(graph, (x, x[:4])), 1e-6)
    with pytest.raises(dgl.DGLError, match="aggregator_type.*'sum'"):
        dgl.SAGEConv(IN, OUT, "sum")


@pytest.mark.parametrize("kind", ["sum", "mean", "max"])
@pytest.mark.parametrize("shape", [(IN,), (2, IN), ()])
def test_gin_conv(kind, shape):
    edges, x = everyone(), torch.randn(N, *shape)
    layer = dgl.GINConv(torch.sin, kind, init_eps=0.5, learn_eps=True)
    messages = x[edges[0]]
    rows = [messages[edges[1] == i] for i in range(N)]
    h = torch.stack([getattr(torch, "amax" if kind == "max" else kind)(r, 0)
                     for r in rows])
    close(layer(dfgnn.as_graph(edges, N), x), (1.5 * x + h).sin(), 1e-5)
    weight = torch.rand(edges.size(1), 1)
    if kind == "sum" and shape == (IN,):
        h = dense(edges, weight.view(-1)) @ x
        close(layer(dfgnn.as_graph(edges, N), x, weight),
              (1.5 * x + h).sin(), 1e-5)
        # a weight for each feature
        many = torch.rand(edges.size(1), IN)
        h = torch.zeros(N, IN).index_add(0, edges[1], many * messages)
        close(layer(dfgnn.as_graph(edges, N), x, many), (1.5 * x + h).sin(),
              1e-5)
    with pytest.raises(KeyError, match="'std'"):
        dgl.GINConv(None, "std")


@pytest.mark.parametrize("residual", ["none", "identity", "linear"])
def test_edge_gat_conv(residual):
    width = H * OUT if residual == "identity" else IN
    edges, x = everyone(), torch.randn(N, width)
    features = torch.randn(edges.size(1), 5)
    layer = dgl.EdgeGATConv(width, 5, OUT, H, residual=residual != "none",
                            activation=F.elu)
    torch.nn.init.normal_(layer.bias)
    src, dst = edges

    def wanted(x, every=False):
        h = layer.fc(x).view(N, H, OUT)
        e = layer.fc_edge(features).view(-1, H, OUT)
        scores = F.leaky_relu((h * layer.attn_l).sum(-1)[src]
                              + (h * layer.attn_r).sum(-1)[dst]
                              + (e * layer.attn_edge).sum(-1), 0.2)
        _, alpha = softmax_sum(scores, h, edges, N)
        out = torch.zeros(N, H, OUT).index_add(
            0, dst, alpha.unsqueeze(-1) * (h[src] + e))
        if layer.res_fc is not None:
            out = out + layer.res_fc(x).view(N, H, OUT)
        out = F.elu(out + layer.bias.view(1, H, OUT))
        return (out, alpha.unsqueeze(-1)) if every else out
    graph = dfgnn.as_graph(edges, N)
    check_gradients(layer, graph, wanted, x, features)
    for a, b in zip(layer(graph, x, features, True), wanted(x, True)):
        close(a, b, 1e-5)
    with pytest.raises(dgl.DGLError, match="edge_feat must be"):
        layer(graph, x, features[1:])


def columns(layer, graph, x, *args):
    """A layer's results for each index of the dimensions between, one by
    one."""
    flat = x.flatten(1, -2)
    outs = [layer(graph, flat[:, i], *args) for i in range(flat.size(1))]
    return torch.stack(outs, 1).view(
        (N,) + tuple(x.shape[1:-1]) + tuple(outs[0].shape[1:]))


@pytest.mark.parametrize("between", [(2,), (2, 3)])
@pytest.mark.parametrize("name, make, args", [
    ("gat", lambda: dgl.GATConv(IN, OUT, H, residual=True), 0),
    ("gat weighted", lambda: dgl.GATConv(IN, OUT, H), 1),
    ("edge", lambda: dgl.EdgeGATConv(IN, 5, OUT, H), 5),
    ("agnn", lambda: dgl.AGNNConv(2.0), 0),
    ("sage", lambda: dgl.SAGEConv(IN, OUT, "mean"), 0),
    ("gcn", lambda: dgl.SAGEConv(IN, OUT, "gcn"), 0),
    ("gin", lambda: dgl.GINConv(torch.nn.Linear(IN, OUT)), 0)])
def test_features_of_more_dimensions_are_columns(name, make, args, between):
    edges, x = everyone(), torch.randn(N, *between, IN)
    layer, graph = make(), dfgnn.as_graph(edges, N)
    more = {0: (), 1: (torch.rand(edges.size(1)),),
            5: (torch.randn(edges.size(1), 5),)}[args]
    close(layer(graph, x, *more), columns(layer, graph, x, *more), 1e-5)
    if name in ("gat", "edge"):
        out, weights = layer(graph, x, *more, get_attention=True)
        assert weights.shape == (edges.size(1), *between, H, 1)


@pytest.mark.parametrize("make", [lambda: dgl.GATv2Conv(IN, OUT, H),
                                  lambda: dgl.DotGatConv(IN, OUT, H)])
def test_layers_of_matrices_alone_say_so(make):
    layer = make()
    with pytest.raises(dgl.DGLError,
                       match=type(layer).__name__ + ".*nodes, features"):
        layer(dfgnn.as_graph(everyone(), N), torch.randn(N, 2, IN))


@pytest.mark.parametrize("make", [
    lambda: dgl.GATConv(IN, OUT, H, residual=True),
    lambda: dgl.GATConv(H * OUT, OUT, H, residual=True),
    lambda: dgl.GATv2Conv(IN, OUT, H, residual=True),
    lambda: dgl.EdgeGATConv(IN, 5, OUT, H)])
def test_residuals_without_destinations(make):
    layer = make()
    graph = dfgnn.as_graph(torch.empty(2, 0, dtype=torch.int64), (3, 0))
    x = torch.randn(3, layer._in_src_feats)
    args = (torch.randn(0, 5),) if isinstance(layer, dgl.EdgeGATConv) else ()
    assert layer(graph, x, *args).shape == (0, H, OUT)
    assert layer(graph, (x, x[:0]), *args).shape == (0, H, OUT)


def test_errors_are_those_of_dgl_where_it_is_there(monkeypatch):
    class Theirs(Exception):
        pass
    layer = dgl.GATConv(IN, OUT, H)
    graph, x = dfgnn.as_graph(torch.tensor([[0], [1]]), 3), torch.randn(3, IN)
    with pytest.raises(dgl.DGLError) as found:
        layer(graph, x)
    assert not isinstance(found.value, Theirs)
    monkeypatch.setitem(sys.modules, "dgl",
                        types.SimpleNamespace(DGLError=Theirs))
    with pytest.raises(Theirs, match="allow_zero_in_degree"):
        layer(graph, x)
    with pytest.raises(dgl.DGLError, match="allow_zero_in_degree"):
        layer(graph, x)


class Index:
    """The object that holds a DGL graph's edges; a change of the graph replaces
    it."""


class CountingGraph(DGLGraph):
    def __init__(self, graph, index):
        super().__init__(graph.offsets, graph.indices, graph.order,
                         graph.num_src)
        self._graph = index
        self.conversions = 0

    def adj_tensors(self, form):
        self.conversions += 1
        return super().adj_tensors(form)


def test_a_dgl_graph_is_converted_once_until_it_changes():
    graph, index = dfgnn.as_graph(everyone(), N), Index()
    theirs, x = CountingGraph(graph, index), torch.randn(N, IN)
    layer = dgl.GraphConv(IN, OUT)
    out = layer(theirs, x)
    close(layer(theirs, x), out, 1e-6)
    assert theirs.conversions == 1
    local = CountingGraph(graph, index)  # local_var() shares edges like this
    layer(local, x)
    assert local.conversions == 0
    other = dfgnn.as_graph(everyone(), N)
    theirs._graph = Index()
    theirs.arrays = other.offsets, other.indices, other.order
    close(layer(theirs, x), layer(other, x), 1e-6)
    assert theirs.conversions == 2
    kept, number = weakref.ref(dfgnn.as_graph(local)), id(index)
    del theirs, local, index, out
    gc.collect()
    assert kept() is None and number not in convert._cache
