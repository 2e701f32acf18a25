"""Attention over features as they came, against PyG in float64."""

import pytest
import torch
import torch_geometric.nn as G

from dfgnn.nn.pyg.relations import features
from relation_cases import (
    accelerated, agree, hetero_conv, second_derivatives, spread)

NODES = {"a": 60, "b": 70, "c": 40, "d": 1}
KINDS = [("a", "x", "b"), ("b", "x", "a"), ("a", "z", "a"), ("c", "x", "a"),
         ("d", "x", "b"), ("c", "w", "a")]
COUNTS = (40, 25, 30, 0, 3, 12)
WIDTH = 7


@pytest.fixture
def ran(monkeypatch, ways):
    found, gat = [], features.gat
    ways(attention_of_relations="projected last")
    monkeypatch.setattr(features, "gat", lambda *a: (
        found.append(1), gat(*a))[1])
    return found


def given(wanted=False):
    """Features, and edges of few destinations each."""
    x = {kind: torch.randn(n, WIDTH, dtype=torch.float64,
                           requires_grad=wanted) for kind, n in NODES.items()}
    return x, {key: torch.stack([
        torch.randint(NODES[key[0]], (n,)),
        torch.randint(min(3, NODES[key[2]]), (n,))])
        for key, n in zip(KINDS, COUNTS)}


def conv(aggr="sum", **options):
    return hetero_conv(lambda key: G.GATConv(
        (WIDTH, WIDTH) if key[0] != key[2] else WIDTH, 4, heads=2,
        add_self_loops=False, **options), KINDS, aggr)


@pytest.mark.parametrize("aggr", ["sum", "mean"])
@pytest.mark.parametrize("options", [
    {}, dict(concat=False), dict(residual=True), dict(bias=False)])
def test_features_without_gradients_are_summed_first(aggr, options, ran):
    x, edges = given()
    plain = conv(aggr, **options)
    fast = agree(plain, [], lambda model: model(x, edges))
    with torch.no_grad():
        for kind, out in fast(x, edges).items():
            torch.testing.assert_close(out, plain(x, edges)[kind])
    assert len(ran) == 2


def test_features_of_edges(ran):
    x, edges = given()
    attr = {key: torch.randn(part.size(1), 3, dtype=torch.float64,
                             requires_grad=True)
            for key, part in edges.items()}
    agree(conv(edge_dim=3), list(attr.values()),
          lambda model: model(x, edges, edge_attr_dict=attr))
    assert len(ran) == 1


def test_features_with_gradients_are_projected_first(ran):
    x, edges = given(wanted=True)
    agree(conv(), list(x.values()), lambda model: model(x, edges))
    assert not ran


def test_gradients_of_gradients(ran):
    x, edges = given()
    plain = spread(conv())
    torch.testing.assert_close(*[
        second_derivatives(model, [], lambda m: m(x, edges))
        for model in (accelerated(plain), plain)])
    assert len(ran) == 1


def test_dropout_and_autocast_project_first(ran):
    x, edges = given()
    accelerated(conv(dropout=.5)).train()(x, edges)
    with torch.autocast("cpu", torch.bfloat16):
        accelerated(conv()).float()({kind: t.float() for kind, t in
                                     x.items()}, edges)
    assert not ran
