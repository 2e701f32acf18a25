"""torch.func, forward AD and torch.jit.trace: results are those of torch
operations, and nothing is kept that a later call could stumble over."""

import pytest
import torch
from torch.func import (
    functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap)

import dfgnn
from dfgnn import nn

from conftest import close, random_edges

LAYERS = {
    "transformer": lambda: nn.TransformerConv(6, 4, heads=2),
    "transformer with edges": lambda: nn.TransformerConv(6, 4, heads=2,
                                                         edge_dim=3),
    "gat": lambda: nn.GATConv(6, 4, heads=2),
    "gat with edges": lambda: nn.GATConv(6, 4, heads=2, edge_dim=3),
    "gatv2": lambda: nn.GATv2Conv(6, 4, heads=2),
    "agnn": nn.AGNNConv,
    "gcn": lambda: nn.GCNConv(6, 4),
    "gcn improved": lambda: nn.GCNConv(6, 4, improved=True),
    "sage": lambda: nn.SAGEConv(6, 4),
    "sage of largest": lambda: nn.SAGEConv(6, 4, aggr="max"),
    "graph": lambda: nn.GraphConv(6, 4),
    "gin": lambda: nn.GINConv(torch.nn.Linear(6, 4)),
}
N = 10


def extras(name, edges):
    if "edges" not in name:
        return ()
    return (torch.randn(edges.size(1), 3, device=edges.device),)


@pytest.mark.parametrize("form", ["edge_index", "graph"])
@pytest.mark.parametrize("name", LAYERS)
def test_torch_func_gives_the_gradients_of_autograd(name, form, place):
    layer, edges = LAYERS[name]().to(place), random_edges(N, N, 30, place)
    x = torch.randn(N, 6, device=place)
    args = extras(name, edges)
    given = dfgnn.as_graph(edges, N) if form == "graph" else edges
    parameters = dict(layer.named_parameters())

    def loss(parameters, x):
        return functional_call(layer, parameters,
                               (x, given, *args)).sin().sum()
    found, found_x = grad(loss, argnums=(0, 1))(parameters, x)
    # the graph that was made inside serves later calls
    leaf = x.clone().requires_grad_()
    out = layer(leaf, given, *args).sin().sum()
    wanted = torch.autograd.grad(out, [leaf, *layer.parameters()])
    close(found_x, wanted[0], 1e-5)
    for key, value in zip(parameters, wanted[1:]):
        if value.abs().max() > 1e-5:  # a key's bias has a rounding error alone
            close(found[key], value, 1e-4, key)


@pytest.mark.parametrize("name", ["transformer", "gat", "sage of largest"])
def test_jacobians_forward_and_backward_and_batches_are_those_of_a_loop(name):
    layer, edges = LAYERS[name]().double(), random_edges(N, N, 30)
    x = torch.randn(3, N, 6).double()

    def function(x):
        return layer(x, edges)
    close(vmap(function)(x), torch.stack([function(t) for t in x]), 1e-9)
    backward = jacrev(function)(x[0])
    close(jacfwd(function)(x[0]), backward, 1e-9)
    out, tangent = jvp(function, (x[0],), (x[1],))
    close(out, function(x[0]), 1e-9)
    close(tangent, torch.einsum("nfmg,mg->nf", backward, x[1]), 1e-9)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x[0], x[1])
        found = torch.autograd.forward_ad.unpack_dual(function(dual)).tangent
    close(found, tangent, 1e-9)


@pytest.mark.parametrize("name", ["transformer", "gat", "gatv2", "gcn"])
def test_hessians_and_gradients_of_each_sample(name):
    layer, edges = LAYERS[name]().double(), random_edges(N, N, 30)
    x = torch.randn(3, N, 6).double()
    parameters = dict(layer.named_parameters())

    def loss(parameters, x):
        return functional_call(layer, parameters, (x, edges)).sin().sum()
    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i in range(3):
        one = grad(loss)(parameters, x[i])
        for key in parameters:
            assert torch.allclose(found[key][i], one[key], atol=1e-9)
    wanted = torch.autograd.functional.hessian(
        lambda x: loss(parameters, x), x[0])
    close(hessian(lambda x: loss(parameters, x))(x[0]), wanted, 1e-8)


def test_nothing_of_a_transform_is_kept():
    layer, edges = nn.GCNConv(6, 4, cached=True, improved=True), \
        random_edges(N, N, 30)
    x = torch.randn(N, 6)
    grad(lambda x: layer(x, edges).sum())(x)
    graph = dfgnn.as_graph(edges, N)
    kept = [t for t in (*graph._derived.values(), graph.offsets,
                        graph.with_self_loops().edge_index)
            if isinstance(t, torch.Tensor)]
    assert kept
    for tensor in kept:
        assert not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    other = nn.GCNConv(6, 4, improved=True)
    other.load_state_dict(layer.state_dict())
    close(layer(x, edges), other(x, edges), 1e-6)
    close(layer(x, edges), other(x, edges), 1e-6)


def test_mapping_over_the_edges_is_refused_by_name():
    edges = torch.stack([random_edges(N, N, 30) for _ in range(2)])
    layer, x = nn.GATConv(6, 4), torch.randn(N, 6)
    with pytest.raises(ValueError, match="vmap must not map over the edges"):
        vmap(lambda e: layer(x, e))(edges)
    assert layer(x, edges[0]).shape == (N, 4)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_a_trace_holds_for_other_edges(name):
    layer = LAYERS[name]().eval()
    edges, x = random_edges(N, N, 30), torch.randn(N, 6)
    traced = torch.jit.trace(layer, (x, edges, *extras(name, edges)))
    for count in (30, 12):
        other, x = random_edges(N, N, count), torch.randn(N, 6)
        more = extras(name, other)
        close(traced(x, other, *more), layer(x, other, *more), 1e-5)
