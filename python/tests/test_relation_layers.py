"""RGCN, RGAT, HEAT, HGT and HAN against PyG's, in float64 with all
gradients."""

import itertools

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from dfgnn._relations import groups as _grouped
from dfgnn.nn.pyg.relations import over_types, typed as typed_layers
from relation_cases import (
    COUNTS, KINDS, NODES, WIDTH, agree, many_types, schema, typed)


# ---- RGCN -------------------------------------------------------------------

WEIGHTS = {"full": {}, "bases": dict(num_bases=3), "blocks": dict(
    num_blocks=2)}


SIZES = [(9, 3, 40), (9, 20, 60), (4, 5, 0), (1, 2, 3), (30, 90, 300)]


@pytest.mark.parametrize("way", ["by pair", "by node", "by bases"])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("kind", [G.RGCNConv, G.FastRGCNConv])
def test_rgcn(kind, weights, way, doubles, ways, said):
    """Each size, reduction and kind of features with some of the others."""
    if way == "by bases" and weights != "bases":
        pytest.skip("its relations share no bases")
    ways(sums_over_relations=way)
    for number, (aggr, name) in enumerate(itertools.product(
            ("mean", "add", "max"), ("x", "pair", "numbers", None))):
        if aggr == "max" and kind is G.FastRGCNConv or \
                weights == "blocks" and name in ("numbers", None):
            continue
        for nodes, relations, count in (SIZES[(number + 2) % 5], SIZES[4]):
            edges, kinds = typed(nodes, relations, count)
            x = torch.randn(nodes, WIDTH, requires_grad=True)
            own = torch.randn(nodes + 2, WIDTH, requires_grad=True)
            given = {"x": x, "pair": (x, own), None: None,
                     "numbers": torch.randperm(nodes)}[name]
            leaves = {"x": [x], "pair": [x, own]}.get(name, [])
            agree(kind(WIDTH if leaves else nodes, 4, relations, aggr=aggr,
                       root_weight=number % 3 > 0, bias=number % 2 > 0,
                       **WEIGHTS[weights]), leaves,
                  lambda layer: layer(given, edges, kinds))
    assert not said.text


def test_rgcn_of_many_small_relations_by_tiles(doubles, monkeypatch, ways,
                                               said):
    ways(sums_over_relations="by pair")
    tiled = []
    product = _grouped.Groups.product
    monkeypatch.setattr(_grouped.Groups, "product", lambda self, *rest: (
        tiled.append(self.align), product(self, *rest))[1])
    edges, kinds = typed(30, 40, 200)
    x = torch.randn(30, WIDTH, requires_grad=True)
    for weights in ({}, dict(num_blocks=2)):
        agree(G.RGCNConv(WIDTH, 4, 40, **weights), [x],
              lambda layer: layer(x, edges, kinds))
    assert tiled == [32, 32]


def test_rgcn_against_the_flow(doubles, said):
    edges, kinds = typed(9, 3, 40)
    x = torch.randn(9, WIDTH, requires_grad=True)
    agree(G.RGCNConv(WIDTH, 4, 3, flow="target_to_source"), [x],
          lambda layer: layer(x, edges, kinds))
    assert not said.text


def test_fast_rgcn_does_as_its_aggr_says_and_calls_no_module(doubles):
    edges, kinds = typed(9, 3, 40)
    x = torch.randn(9, WIDTH, requires_grad=True)
    layer = G.FastRGCNConv(WIDTH, 4, 3)
    layer.aggr = "add"
    agree(layer, [x], lambda layer: layer(x, edges, kinds))


def test_relations_that_do_not_exist_get_the_error_of_pyg():
    edges, kinds = typed(9, 3, 40)
    for layer in (dfgnn.nn.pyg.RGCNConv(WIDTH, 4, 2),
                  G.RGCNConv(WIDTH, 4, 2)):
        with pytest.raises(RuntimeError, match="index 2 is out of bounds"):
            layer(torch.randn(9, WIDTH), edges, kinds)


# ---- RGAT -------------------------------------------------------------------

@pytest.mark.parametrize("mod", [None, "additive", "scaled", "f-scaled"])
@pytest.mark.parametrize("mode", ["additive", "multiplicative"])
@pytest.mark.parametrize("mechanism", ["across-relation", "within-relation"])
def test_rgat_in_all_its_modes(mechanism, mode, mod, said, monkeypatch):
    ran, run = [], typed_layers._attended
    monkeypatch.setattr(typed_layers, "_attended", lambda *a: (
        ran.append(1), run(*a))[1])
    for nodes, relations, count in ((9, 3, 40), (30, 40, 300), (4, 2, 0),
                                    (1, 2, 3)):
        edges, kinds = typed(nodes, relations, count)
        x = torch.randn(nodes, WIDTH, dtype=torch.float64, requires_grad=True)
        attr = torch.randn(count, 3, dtype=torch.float64, requires_grad=True)
        for concat, edge_dim, weights, made_of in (
                (True, None, None, "full"), (False, 3, True, "bases"),
                (True, 3, False, "blocks")):
            plain = G.RGATConv(
                WIDTH, 4, relations, heads=2, mod=mod, edge_dim=edge_dim,
                attention_mode=f"{mode}-self-attention", concat=concat,
                dim=1 if mode == "additive" else 3,
                attention_mechanism=mechanism, **WEIGHTS[made_of]).double()
            torch.nn.init.ones_(plain.l2)
            given = {} if edge_dim is None else {"edge_attr": attr}

            def call(layer):
                found = layer(x, edges, kinds,
                              return_attention_weights=weights, **given)
                return found if weights is None else (found[0], found[1][1])
            agree(plain, [x, *given.values()], call)
    assert len(ran) == 12 and "own path" not in said.text


def test_rgat_adds_to_weights_that_do_not_round_to_0(doubles):
    edges, kinds = typed(9, 3, 40)
    x = torch.randn(9, WIDTH)
    plain = G.RGATConv(WIDTH, 4, 3, mod="f-additive", concat=False)
    for size in range(1, 60):  # softmax of some gives subnormal numbers
        with torch.no_grad():
            plain.q.fill_(size)
        agree(plain, [], lambda layer: layer(x, edges, kinds))


# ---- HEAT -------------------------------------------------------------------

@pytest.mark.parametrize("nodes, node_types, relations, count", [
    (9, 3, 4, 40), (40, 12, 20, 90), (1, 2, 3, 5), (7, 4, 3, 0)])
@pytest.mark.parametrize("options", [
    {}, dict(heads=3), dict(heads=2, concat=False),
    dict(heads=2, root_weight=False, bias=False, negative_slope=0.5),
    dict(heads=2, flow="target_to_source")])
def test_heat(options, nodes, node_types, relations, count, said):
    edges, kinds = typed(nodes, relations, count)
    types = torch.randint(node_types, (nodes,))
    x = torch.randn(nodes, WIDTH, dtype=torch.float64, requires_grad=True)
    attr = torch.randn(count, 3, dtype=torch.float64, requires_grad=True)
    fast = agree(G.HEATConv(WIDTH, 8, node_types, relations, 5, 3, 4,
                            **options).double(), [x, attr],
                 lambda layer: layer(x, edges, types, kinds, attr))
    assert type(fast) is dfgnn.nn.pyg.HEATConv
    assert not said.text


def test_heat_drops_messages_while_it_trains(said):
    edges, kinds = typed(9, 3, 40)
    x, attr = torch.randn(9, WIDTH), torch.randn(40, 3)
    layer = dfgnn.nn.pyg.HEATConv(WIDTH, 8, 1, 3, 5, 3, 4, heads=2,
                                  dropout=0.3)
    given = x, edges, torch.zeros(9, dtype=torch.int64), kinds, attr
    with torch.no_grad():
        want = layer.eval()(*given)
        draws = torch.stack([layer.train()(*given) for _ in range(400)])
    assert not said.text and float(draws.var(0).max()) > 1e-4
    error = draws.std(0) / 20 + 1e-6
    assert float(((draws.mean(0) - want).abs() / error).max()) < 6


def test_heat_with_types_that_do_not_exist_gets_the_error_of_pyg():
    edges, kinds = typed(9, 3, 40)
    x, attr = torch.randn(9, WIDTH), torch.randn(40, 3)
    types = torch.zeros(9, dtype=torch.int64)
    for make in (G.HEATConv, dfgnn.nn.pyg.HEATConv):
        layer = make(WIDTH, 8, 2, 2, 5, 3, 4)
        with pytest.raises(IndexError):
            layer(x, edges, types, kinds, attr)


# ---- HGT, HAN ---------------------------------------------------------------

@pytest.mark.parametrize("width", [8, 12])
@pytest.mark.parametrize("tiles", [False, True])
def test_hgt(width, tiles, said, monkeypatch, ways):
    if tiles:
        ways(products_of_groups="tiles of 32")
    by_tiles, ran = over_types._by_tiles, []
    monkeypatch.setattr(over_types, "_by_tiles", lambda *a: (
        ran.append(1), by_tiles(*a))[1])
    for nodes, kinds, counts in (
            (NODES, KINDS, COUNTS), many_types(12, 25)):
        x, edges = schema(counts, nodes, kinds)
        for in_width in (WIDTH, width):
            x = {key: torch.randn(t.size(0), in_width, dtype=torch.float64,
                                  requires_grad=True) for key, t in x.items()}
            some = {key: edges[key] for key in list(edges)[::2]}
            agree(G.HGTConv(in_width, width, (list(nodes), kinds),
                            heads=2).double(), list(x.values()),
                  lambda m: (m(x, edges), m(x, some)))
    assert not said.text and len(ran) == (8 if tiles else 4)


def test_hgt_of_types_with_other_widths(said, ways):
    ways(products_of_groups="tiles of 32")
    x, edges = schema()
    widths = {kind: 3 + i for i, kind in enumerate(x)}
    x = {kind: torch.randn(t.size(0), widths[kind], dtype=torch.float64,
                           requires_grad=True) for kind, t in x.items()}
    agree(G.HGTConv(widths, 8, (list(NODES), KINDS), heads=4).double(),
          list(x.values()), lambda model: model(x, edges))
    assert not said.text


def test_han(said):
    x, edges = schema()
    fast = agree(G.HANConv(WIDTH, 8, (list(NODES), KINDS), heads=2).double(),
                 list(x.values()), lambda model: (model(x, edges), model(
                     x, edges, return_semantic_attention_weights=True)))
    del edges[KINDS[6]]
    assert fast(x, edges)["d"] is None and not said.text
    few = {kind: edges[kind] for kind in KINDS if kind[0] == kind[2]}
    alone = next(kind for kind in NODES if (kind, kind) not in [
        key[::2] for key in few])
    fast.zero_grad()
    sum(out.sum() for out in fast(x, few).values() if out is not None) \
        .backward()
    assert fast.proj[alone].weight.grad is None
