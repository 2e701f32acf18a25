"""Sums of relations as one node of autograd, against PyG in float64."""

import copy

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from dfgnn.nn import _relation_sums
from relation_cases import KINDS, NODES, WIDTH, compare, schema, spread

# name: (layer, whether its edges have weights)
LAYERS = {
    "SAGE": (lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH), False),
    "SAGE, sums": (lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH, aggr="sum"),
                   False),
    "SAGE, maxima": (lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH,
                                            aggr="max"), False),
    "SAGE without own": (lambda key: G.SAGEConv(
        (WIDTH, WIDTH), WIDTH, root_weight=key[2] == "a",
        bias=key[0] == "a"), False),
    "Graph": (lambda key: G.GraphConv((WIDTH, WIDTH), WIDTH), False),
    "Graph with weights": (lambda key: G.GraphConv((WIDTH, WIDTH), WIDTH),
                           True),
}


@pytest.fixture
def nodes(monkeypatch):
    """The calls that were one node."""
    found, forward = [], _relation_sums._Call.forward
    monkeypatch.setattr(_relation_sums._Call, "forward", lambda call, given: (
        found.append(call), forward(call, given))[1])
    return found


class Two(torch.nn.Module):
    def __init__(self, layer, aggr="sum"):
        super().__init__()
        self.convs = torch.nn.ModuleList(
            G.HeteroConv({key: layer(key) for key in KINDS}, aggr)
            for _ in range(2))

    def forward(self, x, edges, **options):
        for conv in self.convs:
            x = {kind: t.tanh() for kind, t in conv(x, edges,
                                                    **options).items()}
        return x


def both(layer, aggr="sum"):
    plain = spread(Two(layer, aggr).double())
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    return plain, fast


def weights_of(edges, weighted):
    """The arguments of a call, and its leaves."""
    if not weighted:
        return {}, []
    found = {key: torch.rand(part.size(1), dtype=torch.float64,
                             requires_grad=True)
             for key, part in edges.items()}
    return {"edge_weight_dict": found}, list(found.values())


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("name", LAYERS)
def test_two_layers_are_two_nodes(name, aggr, nodes):
    (x, edges), (layer, weighted) = schema(), LAYERS[name]
    options, leaves = weights_of(edges, weighted)
    plain, fast = both(layer, aggr)
    compare(plain, fast, [*x.values(), *leaves],
            lambda model: model(x, edges, **options))
    assert len(nodes) == 2


@pytest.mark.parametrize("name", LAYERS)
def test_a_type_without_nodes(name, nodes):
    layer, weighted = LAYERS[name]
    x, edges = schema((12, 0, 0, 0, 4, 0, 3), {**NODES, "b": 0})
    options, leaves = weights_of(edges, weighted)
    plain, fast = both(layer)
    compare(plain, fast, [*x.values(), *leaves],
            lambda model: model(x, edges, **options))
    assert len(nodes) == 2


@pytest.mark.parametrize("least", [0, 1 << 30])
@pytest.mark.parametrize("kind", NODES)
def test_what_no_loss_reads_has_no_gradient(kind, least, nodes, monkeypatch):
    monkeypatch.setitem(_relation_sums.LEAST_LEFT_OUT, "cpu", least)
    (x, edges), (layer, _) = schema(), LAYERS["SAGE"]
    models = both(layer)
    for model in models:
        found = dict(zip(x, torch.autograd.grad(
            model(x, edges)[kind].square().sum(), list(x.values()),
            allow_unused=True, retain_graph=True)))
        for of_x, leaf in zip(found.values(), x.values()):
            leaf.grad = None if of_x is None else of_x
        model.found = found
        model(x, edges)[kind].square().sum().backward()
    assert len(nodes) == 4
    plain, fast = models
    pairs = [*zip(plain.found.values(), fast.found.values()),
             *((a.grad, b.grad) for a, b in zip(plain.parameters(),
                                                fast.parameters()))]
    assert any(a is not None for a, _ in pairs)
    for a, b in pairs:
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(b, a)


@pytest.mark.parametrize("name", ["SAGE", "SAGE, sums", "Graph with weights"])
def test_gradients_of_gradients(name, nodes):
    (x, edges), (layer, weighted) = schema(), LAYERS[name]
    options, leaves = weights_of(edges, weighted)
    found = []
    for model in both(layer):
        given = [*x.values(), *leaves, *model.parameters()]
        first = torch.autograd.grad(
            sum(t.square().sum() for t in model(x, edges, **options).values()),
            given, create_graph=True, allow_unused=True)
        again = torch.autograd.grad(
            sum(g.square().sum() for g in first if g is not None), given,
            allow_unused=True)
        found.append([torch.zeros_like(t) if g is None else g
                      for t, g in zip(given, again)])
    assert len(nodes) == 2
    for a, b in zip(*found):
        torch.testing.assert_close(b, a)


def test_a_parameter_that_was_written_to_is_an_error(nodes):
    (x, edges), (layer, _) = schema(), LAYERS["SAGE"]
    _, fast = both(layer)
    total = sum(t.sum() for t in fast(x, edges).values())
    with torch.no_grad():
        next(fast.parameters()).zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        total.backward()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_types_of_numbers(kind, nodes):
    (x, edges), (layer, _) = schema(), LAYERS["SAGE"]
    plain, fast = both(layer)
    exact = plain(x, edges)
    fast = fast.to(kind)
    given = {key: t.detach().to(kind).requires_grad_() for key, t in x.items()}
    outs = fast(given, edges)
    sum(t.float().sum() for t in outs.values()).backward()
    for key, out in outs.items():
        assert out.dtype == kind
        torch.testing.assert_close(out.double(), exact[key], rtol=.1, atol=.1)
    assert all(t.grad is not None and t.grad.dtype == kind
               for t in given.values()) and len(nodes) == 2


def test_without_gradients_nothing_is_recorded(nodes):
    (x, edges), (layer, _) = schema(), LAYERS["SAGE"]
    plain, fast = both(layer)
    with torch.no_grad():
        want, have = plain(x, edges), fast(x, edges)
    for kind, out in have.items():
        assert out.grad_fn is None
        torch.testing.assert_close(out, want[kind])
    assert len(nodes) == 2
