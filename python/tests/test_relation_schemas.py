"""Layers of relations on random schemas against PyG's in float64: empty
relations, types without relations, one node, relations of a type with itself.

DFGNN_TEST_SCHEMAS: how many schemas of each kind are drawn, 10 by default.
"""

import copy
import os

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from relation_cases import (
    LAYERS, WIDTH, compare, own_loops, random_schema, schema, spread)

SCHEMAS = range(int(os.environ.get("DFGNN_TEST_SCHEMAS", 10)))
OUT = 8  # features of what every layer gives

# layers of any relation, and those that only take a type's relations to itself
OF_PAIRS = ["GAT", "SAGE", "SAGE of the largest", "SAGE without own", "Graph",
            "GATv2", "Transformer", "SAGE projected", "SAGE normalized",
            "Transformer with beta"]
OF_ONE = {
    "GCN": lambda: G.GCNConv(WIDTH, OUT),
    "GCN improved": lambda: G.GCNConv(WIDTH, OUT, improved=True, bias=False),
    "GCN as it is": lambda: G.GCNConv(WIDTH, OUT, normalize=False)}


class Draw:
    """Choices that depend on a number alone."""

    def __init__(self, number):
        torch.manual_seed(number)

    def of(self, among):
        among = list(among)
        return among[int(torch.randint(len(among), ()))]

    def often(self):
        return bool(torch.rand(()) < .7)


def layer_of(draw, key, names):
    name = draw.of(names)
    return OF_ONE[name]() if name in OF_ONE else LAYERS[name](key)


@pytest.mark.parametrize("number", SCHEMAS)
def test_a_mixture_of_members(number):
    draw = Draw(1000 + number)
    nodes, kinds, counts = random_schema(1000 + number)
    few = [draw.of(OF_PAIRS) for _ in range(1 + number % 3)]
    layers = {key: layer_of(draw, key, few + (
        [draw.of(OF_ONE)] if own_loops(key) else [])) for key in kinds}
    x, edges = schema(counts, nodes, kinds)
    weight = {key: torch.rand(part.size(1), dtype=torch.float64,
                              requires_grad=True)
              for key, part in edges.items() if draw.often()
              and isinstance(layers[key], (G.GCNConv, G.GraphConv))}
    options = {"edge_weight_dict": weight} if weight else {}
    plain = G.HeteroConv(layers, draw.of(("sum", "mean", "max", "min"))
                         ).double()
    with torch.no_grad():
        plain(x, edges, **options)  # lazy layers
    fast = copy.deepcopy(spread(plain))
    dfgnn.accelerate(fast)
    compare(plain, fast, [*x.values(), *weight.values()],
            lambda model: model(x, edges, **options))


@pytest.mark.parametrize("number", SCHEMAS)
def test_gcn_of_relations_of_a_type_with_itself(number):
    draw = Draw(2000 + number)
    nodes = {f"t{i}": draw.of((1, 2, 6)) for i in range(1 + number % 3)}
    kinds = [(kind, f"r{i}", kind) for kind in nodes
             for i in range(draw.of((1, 2, 4)))]
    x, edges = schema([draw.of((0, 1, 9)) for _ in kinds], nodes, kinds)
    name = draw.of(OF_ONE)
    plain = G.HeteroConv({key: OF_ONE[name]() for key in kinds},
                         draw.of(("sum", "mean", "cat"))).double()
    fast = copy.deepcopy(spread(plain))
    dfgnn.accelerate(fast)
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))


def _typed(draw):
    """(x, edge_index, edge_type, how many relations) of one list."""
    nodes, relations = draw.of((1, 2, 7, 20)), draw.of((1, 3, 30))
    count = draw.of((0, 1, 15, 60))
    x = torch.randn(nodes, WIDTH, dtype=torch.float64, requires_grad=True)
    return (x, torch.randint(nodes, (2, count)),
            torch.randint(relations, (count,)), relations)


@pytest.mark.parametrize("number", SCHEMAS)
def test_rgat_of_any_edges(number):
    draw = Draw(3000 + number)
    x, edges, kinds, relations = _typed(draw)
    plain = G.RGATConv(
        WIDTH, 4, relations, heads=draw.of((1, 2)),
        mod=draw.of((None, "additive", "scaled", "f-additive", "f-scaled")),
        concat=draw.often(), dim=1, attention_mechanism=draw.of(
            ("across-relation", "within-relation")),
        num_bases=draw.of((None, 3))).double()
    torch.nn.init.ones_(plain.l2)
    fast = copy.deepcopy(spread(plain))
    dfgnn.accelerate(fast)
    compare(plain, fast, [x], lambda layer: layer(x, edges, kinds))


@pytest.mark.parametrize("number", SCHEMAS)
def test_heat_of_any_edges(number):
    draw = Draw(4000 + number)
    x, edges, kinds, relations = _typed(draw)
    types = torch.randint(draw.of((1, 2, 12)), (x.size(0),))
    attr = torch.randn(edges.size(1), 3, dtype=torch.float64,
                       requires_grad=True)
    plain = G.HEATConv(WIDTH, OUT, 12, relations, 5, 3, 4,
                       heads=draw.of((1, 3)), concat=draw.often(),
                       root_weight=draw.often(), bias=draw.often()).double()
    fast = copy.deepcopy(spread(plain))
    dfgnn.accelerate(fast)
    compare(plain, fast, [x, attr],
            lambda layer: layer(x, edges, types, kinds, attr))


@pytest.mark.parametrize("number", SCHEMAS)
def test_rgcn_of_any_edges(number):
    draw = Draw(5000 + number)
    x, edges, kinds, relations = _typed(draw)
    weights = draw.of(({}, dict(num_bases=3), dict(num_blocks=2)))
    plain = draw.of((G.RGCNConv, G.FastRGCNConv))(
        WIDTH, 4, relations, aggr=draw.of(("mean", "add")),
        root_weight=draw.often(), bias=draw.often(), **weights).double()
    fast = copy.deepcopy(spread(plain))
    dfgnn.accelerate(fast)
    compare(plain, fast, [x], lambda layer: layer(x, edges, kinds))
