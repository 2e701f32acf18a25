"""The layers of DGL, against their formulas written out edge by edge."""

import pytest
import torch
from torch.nn import functional as F

import dfgnn
from dfgnn.nn import dgl

from conftest import close, random_edges
from test_graph import DGLGraph

N, IN, OUT, H = 12, 6, 4, 3


def everyone(num_src=N, num_dst=N):
    """Edges such that each destination has one."""
    edges = random_edges(num_src, num_dst, 40)
    last = torch.stack([torch.zeros(num_dst, dtype=torch.int64),
                        torch.arange(num_dst)])
    return torch.cat([edges, last], 1)


def softmax_sum(scores, value, edges, num_dst, factors=None):
    src, dst = edges
    out = torch.zeros(num_dst, *value.shape[1:])
    alpha = torch.zeros_like(scores)
    for i in range(num_dst):
        rows = dst == i
        alpha[rows] = torch.softmax(scores[rows], 0)
    if factors is not None:
        alpha = alpha * factors.view(-1, 1)
    return out.index_add(0, dst, alpha.unsqueeze(-1) * value[src]), alpha


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("residual", [None, "identity", "linear"])
@pytest.mark.parametrize("weighted", [True, False])
def test_gat_conv(bias, residual, weighted):
    width = H * OUT if residual == "identity" else IN
    edges, x = everyone(), torch.randn(N, width)
    layer = dgl.GATConv(width, OUT, H, residual=residual is not None,
                        activation=F.elu, bias=bias)
    edge_weight = torch.rand(edges.size(1)) if weighted else None
    out, weights = layer(dfgnn.as_graph(edges, N), x, edge_weight, True)
    h = layer.fc(x).view(N, H, OUT)
    src, dst = edges
    scores = F.leaky_relu((h * layer.attn_l).sum(-1)[src]
                          + (h * layer.attn_r).sum(-1)[dst], 0.2)
    wanted, alpha = softmax_sum(scores, h, edges, N, edge_weight)
    if residual == "identity":
        wanted = wanted + x.view(N, H, OUT)
    elif residual:
        wanted = wanted + F.linear(x, layer.res_fc.weight,
                                   layer.res_fc.bias).view(N, H, OUT)
        assert (layer.res_fc.bias is not None) == bias
    if layer.bias is not None:
        wanted = wanted + layer.bias.view(1, H, OUT)
    close(out, F.elu(wanted), 1e-5)
    close(weights, alpha.unsqueeze(-1), 1e-5)
    close(layer(dfgnn.as_graph(edges, N), x, edge_weight), out, 1e-6)


@pytest.mark.parametrize("shared", [True, False])
def test_gatv2_conv(shared):
    edges, x = everyone(), torch.randn(N, IN)
    layer = dgl.GATv2Conv(IN, OUT, H, share_weights=shared, residual=True)
    out, weights = layer(dfgnn.as_graph(edges, N), x, get_attention=True)
    left = layer.fc_src(x).view(N, H, OUT)
    right = layer.fc_dst(x).view(N, H, OUT)
    src, dst = edges
    scores = (F.leaky_relu(left[src] + right[dst], 0.2) * layer.attn).sum(-1)
    wanted, alpha = softmax_sum(scores, left, edges, N)
    close(out, wanted + layer.res_fc(x).view(N, H, OUT), 1e-5)
    close(weights, alpha.unsqueeze(-1), 1e-5)


def test_agnn_conv():
    edges, x = everyone(), torch.randn(N, IN)
    layer = dgl.AGNNConv(init_beta=2.5)
    unit = F.normalize(x, dim=-1)
    src, dst = edges
    scores = 2.5 * (unit[src] * unit[dst]).sum(-1, keepdim=True)
    wanted, _ = softmax_sum(scores, x.unsqueeze(1), edges, N)
    close(layer(dfgnn.as_graph(edges, N), x), wanted.squeeze(1), 1e-5)


def test_dot_gat_conv():
    edges, x = everyone(), torch.randn(N, IN)
    layer = dgl.DotGatConv(IN, OUT, H)
    out, weights = layer(dfgnn.as_graph(edges, N), x, get_attention=True)
    h = layer.fc(x).view(N, H, OUT)
    src, dst = edges
    scores = (h[src] * h[dst]).sum(-1) / OUT ** 0.5
    wanted, alpha = softmax_sum(scores, h, edges, N)
    close(out, wanted, 1e-5)
    close(weights, alpha.unsqueeze(-1), 1e-5)


LAYERS = [lambda i: dgl.GATConv(i, OUT, H), lambda i: dgl.GATv2Conv(i, OUT, H),
          lambda i: dgl.DotGatConv(i, OUT, H), lambda i: dgl.AGNNConv()]


@pytest.mark.parametrize("make", LAYERS)
def test_destinations_without_edges_are_refused_unless_allowed(make):
    edges = torch.tensor([[0, 1], [1, 1]])
    layer = make(IN)
    x = torch.randn(3, IN)
    with pytest.raises(dgl.DGLError, match="allow_zero_in_degree"):
        layer(dfgnn.as_graph(edges, 3), x)
    layer.set_allow_zero_in_degree(True)
    assert layer(dfgnn.as_graph(edges, 3), x)[0].abs().sum() == 0


@pytest.mark.parametrize("make", LAYERS[:3])
def test_bipartite_features_and_two_sizes(make):
    edges = everyone(9, 7)
    layer = make((IN, IN + 1))
    out = layer(dfgnn.as_graph(edges, (9, 7)),
                (torch.randn(9, IN), torch.randn(7, IN + 1)))
    assert out.shape == (7, H, OUT)


@pytest.mark.parametrize("make", LAYERS)
def test_the_destinations_of_a_block_are_its_first_sources(make):
    edges = everyone(9, 4)
    graph = dfgnn.as_graph(edges, (9, 4))
    block = DGLGraph(graph.offsets, graph.indices, graph.order, 9)
    x, layer = torch.randn(9, IN), make(IN)
    close(layer(block, x), layer(graph, (x, x[:4])), 1e-6)
