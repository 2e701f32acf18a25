"""Layers of dfgnn.nn in torch.func, forward AD, torch.jit.trace, checkpoints,
exports, copies and pickles: results are those of torch operations, and nothing
is kept that a later call could stumble over."""

import copy
import pickle

import pytest
import torch
from torch.func import (
    functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap)

import dfgnn
from dfgnn import nn

from conftest import close, random_edges
from nn_layers import IN, LAYERS, OUT, of_edges

N = 10


@pytest.mark.parametrize("form", ["edge_index", "graph"])
@pytest.mark.parametrize("name", LAYERS)
def test_torch_func_gives_the_gradients_of_autograd(name, form, place):
    layer, edges = LAYERS[name]().to(place), random_edges(N, N, 30, place)
    x = torch.randn(N, IN, device=place)
    args = of_edges(name, edges)
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
    x = torch.randn(3, N, IN).double()

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
    x = torch.randn(3, N, IN).double()
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
    layer, edges = nn.GCNConv(IN, OUT, cached=True, improved=True), \
        random_edges(N, N, 30)
    x = torch.randn(N, IN)
    grad(lambda x: layer(x, edges).sum())(x)
    graph = dfgnn.as_graph(edges, N)
    kept = [t for t in (*graph._derived.values(), graph.offsets,
                        graph.with_self_loops().edge_index)
            if isinstance(t, torch.Tensor)]
    assert kept
    for tensor in kept:
        assert not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    other = nn.GCNConv(IN, OUT, improved=True)
    other.load_state_dict(layer.state_dict())
    close(layer(x, edges), other(x, edges), 1e-6)
    close(layer(x, edges), other(x, edges), 1e-6)


def test_mapping_over_the_edges_is_refused_by_name():
    edges = torch.stack([random_edges(N, N, 30) for _ in range(2)])
    layer, x = nn.GATConv(IN, OUT), torch.randn(N, IN)
    with pytest.raises(ValueError, match="vmap must not map over the edges"):
        vmap(lambda e: layer(x, e))(edges)
    assert layer(x, edges[0]).shape == (N, OUT)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", LAYERS)
def test_a_trace_holds_for_other_edges(name):
    layer = LAYERS[name]().eval()
    edges, x = random_edges(N, N, 30), torch.randn(N, IN)
    traced = torch.jit.trace(layer, (x, edges, *of_edges(name, edges)))
    for count in (30, 12):
        other, x = random_edges(N, N, count), torch.randn(N, IN)
        more = of_edges(name, other)
        close(traced(x, other, *more), layer(x, other, *more), 1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_copies_and_pickles_give_the_same_numbers(name):
    layer, edges, x = LAYERS[name](), random_edges(N, N, 40), \
        torch.randn(N, IN)
    more = of_edges(name, edges)
    out = layer(x, edges, *more)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        close(other(x, edges, *more), out, 1e-6)
        with torch.no_grad():
            next(iter(other.parameters())).add_(1)
        close(layer(x, edges, *more), out, 1e-6)


def test_a_cached_layer_pickles_with_its_graph():
    layer, edges, x = nn.GCNConv(IN, OUT, cached=True), random_edges(N, N, 40), \
        torch.randn(N, IN)
    out = layer(x, edges)
    again = pickle.loads(pickle.dumps(copy.deepcopy(layer)))
    close(again(x, random_edges(N, N, 3)), out, 1e-6)


@pytest.mark.parametrize("name", ["transformer", "gat", "gcn"])
def test_checkpoints_and_exports(name):
    from torch.utils.checkpoint import checkpoint
    layer, edges = LAYERS[name](), random_edges(N, N, 40)
    x = torch.randn(N, IN, requires_grad=True)
    wanted, = torch.autograd.grad(layer(x, edges).sin().sum(), x)
    found, = torch.autograd.grad(
        checkpoint(layer, x, edges, use_reentrant=False).sin().sum(), x)
    close(found, wanted, 1e-6)
    program = torch.export.export(layer, (x.detach(), edges))
    close(program.module()(x, edges), layer(x, edges), 1e-5)
