"""Layers of relations on random schemas against PyG's in float64: empty
relations, types without relations, one node, relations of a type with itself.

DFGNN_TEST_SCHEMAS: how many schemas of each kind are drawn, 10 by default.
"""

import os

import pytest
import torch
import torch_geometric.nn as G

from relation_cases import (
    LAYERS, WIDTH, agree, hetero_conv, own_loops, random_schema, schema)

SCHEMAS = range(int(os.environ.get("DFGNN_TEST_SCHEMAS", 10)))
OUT = 8  # features of what every layer gives

# layers that only take a type's relations to itself; not all others are as wide
OF_ONE = {
    "GCN": lambda key: G.GCNConv(WIDTH, OUT),
    "GCN improved": lambda key: G.GCNConv(WIDTH, OUT, improved=True, bias=False),
    "GCN as it is": lambda key: G.GCNConv(WIDTH, OUT, normalize=False)}


class Draw:
    """Choices that depend on a number alone."""

    def __init__(self, number):
        torch.manual_seed(number)

    def of(self, among):
        among = list(among)
        return among[int(torch.randint(len(among), ()))]

    def often(self):
        return bool(torch.rand(()) < .7)


@pytest.mark.parametrize("number", SCHEMAS)
def test_layers_of_one_kind(number):
    nodes, kinds, counts = random_schema(number)
    for turn, name in enumerate(LAYERS):
        if (turn + number) % 3:
            continue
        x, edges = schema(counts, nodes, kinds)
        agree(hetero_conv(LAYERS[name], kinds, ("sum", "mean", "max", "cat")[
            (turn + number) % 4]), list(x.values()), lambda m: m(x, edges))


@pytest.mark.parametrize("number", SCHEMAS)
def test_a_mixture_of_members(number):
    draw = Draw(1000 + number)
    nodes, kinds, counts = random_schema(1000 + number)
    wide = [name for name in LAYERS if "averaged" not in name and
            name not in ("GIN", "Transformer without own")]
    few = [LAYERS[draw.of(wide)] for _ in range(1 + number % 3)]
    layers = {key: draw.of(few + ([draw.of(OF_ONE.values())] if own_loops(key)
                                  else []))(key) for key in kinds}
    x, edges = schema(counts, nodes, kinds)
    weight = {key: torch.rand(part.size(1), dtype=torch.float64,
                              requires_grad=True)
              for key, part in edges.items() if draw.often()
              and isinstance(layers[key], (G.GCNConv, G.GraphConv))}
    options = {"edge_weight_dict": weight} if weight else {}
    agree(hetero_conv(layers.get, kinds, draw.of(("sum", "mean", "max", "min"))
                      ), [*x.values(), *weight.values()],
          lambda model: model(x, edges, **options))


@pytest.mark.parametrize("number", SCHEMAS)
def test_gcn_of_relations_of_a_type_with_itself(number):
    draw = Draw(2000 + number)
    nodes = {f"t{i}": draw.of((1, 2, 6)) for i in range(1 + number % 3)}
    kinds = [(kind, f"r{i}", kind) for kind in nodes
             for i in range(draw.of((1, 2, 4)))]
    x, edges = schema([draw.of((0, 1, 9)) for _ in kinds], nodes, kinds)
    agree(hetero_conv(draw.of(OF_ONE.values()), kinds, draw.of(
        ("sum", "mean", "cat"))), list(x.values()), lambda m: m(x, edges))


@pytest.mark.parametrize("make", [G.HGTConv, G.HANConv])
@pytest.mark.parametrize("number", SCHEMAS)
def test_layers_over_types(number, make, said):
    nodes, kinds, counts = random_schema(100 + number)
    x, edges = schema(counts, nodes, kinds)
    agree(make(WIDTH, OUT, (list(nodes), kinds), heads=2).double(),
          list(x.values()), lambda model: model(x, edges))
    assert not said.text
