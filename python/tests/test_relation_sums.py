"""Sums of relations as one node of autograd, against PyG in float64."""

import pytest
import torch
import torch_geometric.nn as G

from dfgnn.nn.pyg.relations import sums
from relation_cases import (
    NODES, WIDTH, accelerated, agree, hetero_conv, schema, second_derivatives,
    spread)

LAYERS = {
    "SAGE": lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH),
    "SAGE, sums": lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH, aggr="sum"),
    "SAGE, maxima": lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH, aggr="max"),
    "SAGE without own": lambda key: G.SAGEConv(
        (WIDTH, WIDTH), WIDTH, root_weight=key[2] == "a", bias=key[0] == "a"),
    "Graph": lambda key: G.GraphConv((WIDTH, WIDTH), WIDTH),
    "Graph with weights": lambda key: G.GraphConv((WIDTH, WIDTH), WIDTH),
}


@pytest.fixture
def nodes(monkeypatch):
    """The calls that were one node."""
    found, forward = [], sums._Call.forward

    def noted(call, given):
        outs = forward(call, given)
        found.append(call)
        return outs
    monkeypatch.setattr(sums._Call, "forward", noted)
    return found


class Two(torch.nn.Module):
    def __init__(self, name, aggr="sum"):
        super().__init__()
        self.convs = torch.nn.ModuleList(
            hetero_conv(LAYERS[name], aggr=aggr) for _ in range(2))

    def forward(self, x, edges, **options):
        for conv in self.convs:
            x = {kind: t.tanh() for kind, t in conv(x, edges,
                                                    **options).items()}
        return x


def given(name, *counts):
    """(call, leaves) of a model."""
    x, edges = schema(*counts)
    weights = {key: torch.rand(part.size(1), dtype=torch.float64,
                               requires_grad=True)
               for key, part in edges.items()}
    if name != "Graph with weights":
        return lambda model: model(x, edges), list(x.values())
    return lambda model: model(x, edges, edge_weight_dict=weights), [
        *x.values(), *weights.values()]


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("name", LAYERS)
def test_two_layers_are_two_nodes(name, aggr, nodes):
    call, leaves = given(name)
    fast = agree(Two(name, aggr), leaves, call)
    assert len(nodes) == 2
    with torch.no_grad():
        assert all(t.grad_fn is None for t in call(fast).values())
    assert len(nodes) == 4


@pytest.mark.parametrize("name", LAYERS)
def test_a_type_without_nodes(name, nodes):
    call, leaves = given(name, (12, 0, 0, 0, 4, 0, 3), {**NODES, "b": 0})
    agree(Two(name), leaves, call)
    assert len(nodes) == 2


@pytest.mark.parametrize("name", ["SAGE", "SAGE, sums", "Graph with weights"])
def test_gradients_of_gradients(name, nodes):
    call, leaves = given(name)
    plain = spread(Two(name))
    torch.testing.assert_close(*[second_derivatives(model, leaves, call)
                                 for model in (accelerated(plain), plain)])
    assert len(nodes) == 2


def test_a_parameter_that_was_written_to_is_an_error(nodes):
    call, _ = given("SAGE")
    fast = accelerated(Two("SAGE"))
    total = sum(t.sum() for t in call(fast).values())
    with torch.no_grad():
        next(fast.parameters()).zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        total.backward()
