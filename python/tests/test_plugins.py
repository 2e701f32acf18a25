"""packaging/plugins: what packages need beside dfgnn.accelerate, in the packages as they
are installed; tests of one that is not are skipped."""

import copy
import importlib.util
import os

import pytest
import torch

pytest.importorskip("torch_geometric")

from torch_geometric.data import Data  # noqa: E402
from torch_geometric.utils import scatter, softmax  # noqa: E402

from blocks import block as block_of  # noqa: E402
from conftest import random_edges  # noqa: E402

PLUGINS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                       "packaging", "plugins")
N, C = 14, 12


def plugin(name):
    spec = importlib.util.spec_from_file_location(
        name + "_plugin", os.path.join(PLUGINS, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same(first, second, inputs, tolerance=1e-9):
    """Two functions have the same results and gradients."""
    leaves = [t for t in inputs if isinstance(t, torch.Tensor)
              and t.requires_grad]
    results = []
    for function in (first, second):
        out = function(*inputs)
        results.append([out, *torch.autograd.grad(torch.sin(out).sum(),
                                                  leaves)])
    torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)


def tensor(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def attention_by_rows(query, key, value, edges, edge_index):
    """What anemoi's backends compute."""
    source, target = edge_index
    score = (query[target] * (key[source] + edges)).sum(-1, keepdim=True)
    weight = softmax(score / query.size(-1) ** .5, target,
                     num_nodes=query.size(0))
    return scatter(weight * (value[source] + edges), target,
                   dim_size=query.size(0))


def test_attention_of_anemoi_models():
    attention = plugin("anemoi_models").attention
    edges = random_edges(9, N, 60)
    rows = (tensor(N, 3, 4), tensor(9, 3, 4), tensor(9, 3, 4),
            tensor(edges.size(1), 3, 4), edges)
    same(attention, attention_by_rows, rows)


def test_the_backend_of_anemoi_models(monkeypatch):
    try:
        from anemoi.models.distributed.shapes import GraphShardInfo
        from anemoi.models.layers.block import GraphTransformerBaseBlock
        from anemoi.models.layers.processor import GraphTransformerProcessor
    except ImportError:
        pytest.skip("anemoi-models is not installed")
    for name in "set_attention_function", "apply_gt":
        monkeypatch.setattr(GraphTransformerBaseBlock, name, getattr(
            GraphTransformerBaseBlock, name))
    plugin("anemoi_models").install()
    edges = random_edges(N, N, 60)
    edges = edges[:, edges[1].argsort(stable=True)]
    models = []
    for backend in "pyg", "dfgnn":
        torch.manual_seed(0)
        models.append(GraphTransformerProcessor(
            num_layers=2, num_channels=C, num_chunks=2, num_heads=3,
            mlp_hidden_ratio=2, edge_dim=5, layer_kernels=None,
            graph_attention_backend=backend).double())
    same(*[lambda x, e, m=m: m(x, 1, GraphShardInfo(), edge_attr=e,
                               edge_index=edges) for m in models],
         (tensor(N, C), tensor(edges.size(1), 5)))


@pytest.mark.parametrize("activation", [torch.nn.SiLU, torch.nn.ReLU])
def test_edge_blocks_of_physicsnemo(activation):
    forward = plugin("physicsnemo").forward
    block = block_of("MeshEdgeBlock")(
        C, C, C, 16, 2, activation_fn=activation()).double()
    graph = Data(edge_index=random_edges(N, N, 60), num_nodes=N)
    same(lambda *x: forward(block, *x, graph)[0],
         lambda *x: block(*x, graph)[0],
         (tensor(graph.num_edges, C), tensor(N, C)))


def test_filters_of_torchmd_net(monkeypatch):
    gn = pytest.importorskip("torchmdnet.models.torchmd_gn")
    torch.manual_seed(0)
    block = gn.InteractionBlock(C, 8, 16, torch.nn.SiLU, 0., 5.,
                                dtype=torch.float64)
    plain, edges = copy.deepcopy(block), random_edges(N, N, 60).flip(0)
    forward = plugin("torchmd_net").forward
    block.conv.forward = forward.__get__(block.conv)
    distance = (5 * torch.rand(edges.size(1), dtype=torch.float64)
                ).requires_grad_()
    inputs = tensor(N, C), edges, distance, tensor(edges.size(1), 8), N
    same(block, plain, inputs)
    seconds = []
    for module in (block, plain):  # forces that are trained on
        (force,) = torch.autograd.grad(torch.sin(module(*inputs)).sum(),
                                       distance, create_graph=True)
        seconds.append(torch.autograd.grad(force.square().sum(), inputs[0]))
    torch.testing.assert_close(*[s[0] for s in seconds])
