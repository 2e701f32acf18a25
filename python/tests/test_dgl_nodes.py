"""Layers of dfgnn.nn.dgl as one node of autograd: they give what they give step
by step."""

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils import parametrize

import dfgnn
from dfgnn.nn import dgl

from conftest import close
from node_layers import all_close, is_node, step_by_step
from test_dgl import everyone

N, FEW, IN, OUT, H = 12, 7, 6, 4, 3

LAYERS = {
    "GraphConv": lambda: dgl.GraphConv(IN, OUT, activation=F.elu),
    "GraphConv wider": lambda: dgl.GraphConv(IN, 9, bias=False),
    "GraphConv right": lambda: dgl.GraphConv(IN, OUT, norm="right"),
    "GraphConv none": lambda: dgl.GraphConv(IN, 9, norm="none"),
    "SAGE": lambda: dgl.SAGEConv(IN, OUT, "mean", activation=F.elu),
    "SAGE wider": lambda: dgl.SAGEConv(IN, 9, "mean", bias=False,
                                       norm=torch.nn.LayerNorm(9)),
    "SAGE pool": lambda: dgl.SAGEConv(IN, OUT, "pool"),
    "GIN": lambda: dgl.GINConv(torch.nn.Linear(IN, OUT), learn_eps=True),
    "GIN max": lambda: dgl.GINConv(None, "max", activation=F.elu),
    "GAT": lambda: dgl.GATConv(IN, OUT, H, activation=F.elu),
    "GAT dropouts": lambda: dgl.GATConv(IN, OUT, H, 0.3, 0.4),
    "GAT residual": lambda: dgl.GATConv(IN, OUT, H, residual=True),
    "GAT identity": lambda: dgl.GATConv(IN, 2, H, residual=True, bias=False),
    "GATv2": lambda: dgl.GATv2Conv(IN, OUT, H),
    "GATv2 residual": lambda: dgl.GATv2Conv(IN, OUT, H, residual=True,
                                            attn_drop=0.2),
    "GATv2 shared": lambda: dgl.GATv2Conv(IN, 2, H, residual=True,
                                          share_weights=True),
    "AGNN": lambda: dgl.AGNNConv(),
    "DotGat": lambda: dgl.DotGatConv(IN, OUT, H),
}
# of pairs of features, by name; the others take any features
PAIRS = {"GAT": lambda: dgl.GATConv((IN, 5), OUT, H),
         "GATv2": lambda: dgl.GATv2Conv((IN, 5), OUT, H, residual=True),
         "SAGE": lambda: dgl.SAGEConv((IN, 5), OUT, "mean"),
         "SAGE pool": lambda: dgl.SAGEConv((IN, 5), OUT, "pool")}
ALONE = ("AGNN", "DotGat", "GATv2 shared")  # over blocks they run in steps


def made(make, *shapes, dtype=torch.float64):
    """(layer, features) with parameters that are not 0."""
    torch.manual_seed(0)
    layer = make()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    feats = [torch.randn(shape, dtype=dtype, requires_grad=True)
             for shape in shapes]
    return layer.to(dtype), feats


def leaves_of(layer, feats):
    return [*feats, *(p for p in layer.parameters() if p.requires_grad)]


def agree(layer, graph, feats, tolerance=1e-12, node=True):
    leaves = leaves_of(layer, feats)
    given = tuple(feats) if len(feats) > 1 else feats[0]

    def results():
        torch.manual_seed(5)
        out = layer(graph, given)
        first = torch.autograd.grad(out.square().sum(), leaves,
                                    create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first),
                                     leaves, allow_unused=True)
        return is_node(out), [out, *first, *(
            torch.zeros_like(t) if s is None else s
            for s, t in zip(second, leaves))]
    was_node, found = results()
    assert was_node == node
    with step_by_step():
        was_node, expected = results()
    assert not was_node
    count = 1 + len(leaves)
    all_close(found[:count], expected[:count], tolerance)
    all_close(found[count:], expected[count:], 1e3 * tolerance)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_it_gives_step_by_step(name):
    layer, feats = made(LAYERS[name], (N, IN))
    agree(layer, dfgnn.as_graph(everyone(), N), feats)


@pytest.mark.parametrize("name", LAYERS)
def test_over_a_block(name):
    layer, feats = made(LAYERS[name], (N, IN))
    graph = dfgnn.as_graph(everyone(N, FEW), (N, FEW))
    agree(layer, graph, feats, node=name not in ALONE)


@pytest.mark.parametrize("name", PAIRS)
def test_features_of_both_ends(name):
    layer, feats = made(PAIRS[name], (N, IN), (FEW, 5))
    agree(layer, dfgnn.as_graph(everyone(N, FEW), (N, FEW)), feats)


@pytest.mark.parametrize("name", ["GraphConv", "SAGE", "GAT", "GATv2"])
def test_sixteen_bits(name):
    layer, (x,) = made(LAYERS[name], (N, IN), dtype=torch.bfloat16)
    graph = dfgnn.as_graph(everyone(), N)
    out = layer(graph, x)
    assert is_node(out)
    with step_by_step():
        close(out, layer(graph, x), 3e-2)


def hooked(layer):
    layer.fc.register_forward_hook(lambda m, i, o: o * 2)


def parametrized(layer):
    class Double(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight
    parametrize.register_parametrization(layer, "attn_l", Double())


def other_dropout(layer):
    layer.attn_drop = torch.nn.AlphaDropout(0.0)


def other_slope(layer):
    layer.leaky_relu.register_forward_hook(lambda m, i, o: o * 2)


@pytest.mark.parametrize("change", [hooked, parametrized, other_dropout,
                                    other_slope], ids=lambda f: f.__name__)
def test_what_looks_into_a_layer_sees_its_steps(change):
    layer, (x,) = made(LAYERS["GAT"], (N, IN))
    graph = dfgnn.as_graph(everyone(), N)
    assert is_node(layer(graph, x))
    change(layer)
    out = layer(graph, x)
    assert not is_node(out)
    with step_by_step():
        close(out, layer(graph, x), 1e-12)


def test_weights_of_edges_and_those_asked_for_take_the_steps():
    layer, (x,) = made(LAYERS["GAT"], (N, IN))
    edges = everyone()
    graph = dfgnn.as_graph(edges, N)
    assert not is_node(layer(graph, x, torch.rand(edges.size(1)).double()))
    assert not is_node(layer(graph, x, get_attention=True)[0])
    for name in ("GraphConv", "SAGE", "GIN"):
        layer, (x,) = made(LAYERS[name], (N, IN))
        out = layer(graph, x, edge_weight=torch.rand(edges.size(1)).double())
        assert not is_node(out)


def test_destinations_without_edges_are_still_refused():
    layer, (x,) = made(LAYERS["GAT"], (N, IN))
    graph = dfgnn.as_graph(torch.tensor([[0, 1], [1, 2]]), N)
    with pytest.raises(dgl.DGLError, match="without in-edges"):
        layer(graph, x)
    layer.set_allow_zero_in_degree(True)
    assert is_node(layer(graph, x))


def test_autocast_takes_the_steps():
    layer, (x,) = made(LAYERS["SAGE"], (N, IN), dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not is_node(layer(dfgnn.as_graph(everyone(), N), x))
