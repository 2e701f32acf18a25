"""Layers of relations in all types of features, and whose bits repeat, in both
passes."""

import copy

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
import relation_cases
from relation_cases import (
    COUNTS, KINDS, LAYERS, NODES, flat, hetero_conv, many_types, schema, spread,
    typed)

WIDTH, NUMBER = 8, 40
# of a rounding of the type, sums of products of terms that cancel lose some
NEAR = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 3e-2,
        torch.bfloat16: 2e-1}


def over_types(make, width=WIDTH, about=(NODES, KINDS, COUNTS)):
    """make(nodes, kinds) is a layer over dictionaries: (the layer, its
    features, its arguments of features)."""
    def case():
        nodes, kinds, counts = about
        _, edges = schema(counts, nodes, kinds)
        return make(nodes, kinds), [torch.randn(n, width) for n in
                                    nodes.values()], lambda x: (
            dict(zip(nodes, x)), edges)
    return case


def of_one_list(make, *more):
    def case():
        edges, kinds = typed(NUMBER, 7, 300)
        given = {"types": torch.randint(3, (NUMBER,)), "kinds": kinds,
                 "attr": torch.randn(300, 5)}
        return make(), [torch.randn(NUMBER, WIDTH)], lambda x: (
            x[0], edges, *[given[name] for name in more])
    return case


def conv(name, aggr):
    return over_types(lambda nodes, kinds: hetero_conv(
        LAYERS[name], kinds, aggr), relation_cases.WIDTH)


def hgt(nodes, kinds):
    return G.HGTConv(WIDTH, WIDTH, (list(nodes), kinds), 2)


CASES = {
    "HGT": over_types(hgt),
    "HGT of many types": over_types(hgt, about=many_types(12, 25)),
    "HAN": over_types(lambda nodes, kinds: G.HANConv(
        WIDTH, WIDTH, (list(nodes), kinds), 2)),
    "RGCN": of_one_list(lambda: G.RGCNConv(WIDTH, WIDTH, 7), "kinds"),
    "RGCN by bases": of_one_list(lambda: G.RGCNConv(
        WIDTH, WIDTH, 7, num_bases=2, aggr="sum"), "kinds"),
    "RGCN by blocks": of_one_list(lambda: G.FastRGCNConv(
        WIDTH, WIDTH, 7, num_blocks=2), "kinds"),
    "RGAT across": of_one_list(lambda: G.RGATConv(
        WIDTH, WIDTH, 7, attention_mechanism="across-relation",
        edge_dim=None), "kinds"),
    "RGAT within": of_one_list(lambda: G.RGATConv(
        WIDTH, WIDTH, 7, heads=2, attention_mechanism="within-relation",
        attention_mode="multiplicative-self-attention"), "kinds"),
    "HEAT": of_one_list(lambda: G.HEATConv(
        WIDTH, WIDTH, 3, 7, 4, 5, 6, heads=2), "types", "kinds", "attr"),
    **{f"{name}, {aggr}": conv(name, aggr) for name in (
        "GAT", "GATv2", "Transformer", "SAGE", "SAGE of the largest", "Graph",
        "GIN") for aggr in ("sum", "max")},
}


def run(layer, x, given):
    """Results and gradients by features and parameters."""
    x = [t.requires_grad_() for t in x]
    outs = flat(layer(*given(x)))
    torch.manual_seed(3)
    leaves = [*x, *layer.parameters()]
    found = torch.autograd.grad(
        sum((t * torch.randn(t.shape).to(t)).sum() for t in outs), leaves,
        allow_unused=True)
    return outs, [torch.zeros_like(t) if g is None else g
                  for t, g in zip(leaves, found)]


def distances(name, have, want, dtype):
    """How far results are from those wanted, in shares of the largest, and
    gradients where no rounding makes another neighbour or relation the
    largest."""
    pairs = list(zip(have[0], want[0]))
    if dtype == torch.float64 or not (", max" in name or "largest" in name):
        pairs += zip(have[1], want[1])
    return [float((a.detach().double() - b.detach()).abs().max()) /
            max(float(b.detach().abs().max()), 1.0) if b.numel() else 0.0
            for a, b in pairs]


def near(name, have, want, dtype, theirs):
    """Results are as near as the type allows, or as those of PyG's own layer,
    theirs(): where a rounding takes a score over the bend of a leaky ReLU,
    both have the gradient of the other side."""
    found = distances(name, have, want, dtype)
    if max(found) > NEAR[dtype]:
        allowed = distances(name, theirs(), want, dtype)
        assert all(a <= max(NEAR[dtype], 1.5 * b)
                   for a, b in zip(found, allowed)), (found, allowed)


def to_all(value, place, dtype):
    """given() with its other tensors on a device, those of floats in a
    type."""
    def moved(t):
        if isinstance(t, dict):
            return {key: moved(part) for key, part in t.items()}
        return t.to(place, dtype if t.is_floating_point() else t.dtype)
    return lambda x: tuple(moved(t) for t in value(x))


# float64 is compared in test_relations.py and test_relation_layers.py
@pytest.mark.parametrize("dtype", [t for t in NEAR if t != torch.float64])
@pytest.mark.parametrize("name", CASES)
def test_all_types_in_both_passes(name, dtype, said, place):
    layer, x, given = CASES[name]()
    plain = spread(layer.double()).to(place)
    fast = copy.deepcopy(plain).to(dtype)
    dfgnn.accelerate(fast)
    x = [t.to(place, dtype) for t in x]
    # numbers of the type, so that only what is computed of them differs
    with torch.no_grad():
        for exact, rounded in zip(plain.parameters(), fast.parameters()):
            exact.copy_(rounded)
    have = run(fast, x, to_all(given, place, dtype))
    want = run(plain, [t.detach().double() for t in x], lambda x: to_all(
        to_all(given, place, dtype), place, torch.float64)(x))
    near(name, have, want, dtype, lambda: run(
        copy.deepcopy(plain).to(dtype), [t.detach() for t in x],
        to_all(given, place, dtype)))
    assert {t.dtype for t in have[0]} <= {dtype, torch.float32}  # of PyG's RGCN
    assert not said.text


@pytest.mark.parametrize("name, features", [
    *[(name, torch.float32) for name in CASES],
    *[(name, torch.float16) for name in list(CASES)[::3]]])
def test_autocast_regions(name, features, said, place):
    """Features may be of another type than the region's, as those of IGBH."""
    layer, x, given = CASES[name]()
    plain = spread(layer.float()).to(place)
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    x = [t.to(place, features) for t in x]
    exact = run(copy.deepcopy(plain).double(), [t.double() for t in x],
                to_all(given, place, torch.float64))
    with torch.autocast(place.type, torch.bfloat16):
        have = run(fast, x, to_all(given, place, torch.float32))
        near(name, have, exact, torch.bfloat16, lambda: run(
            copy.deepcopy(plain), [t.detach() for t in x],
            to_all(given, place, torch.float32)))
    assert all(g.dtype == t.dtype for g, t in zip(
        have[1], [*x, *fast.parameters()]))
    assert not said.text


@pytest.mark.parametrize("name", CASES)
def test_bits_repeat(name, place):
    layer, x, given = CASES[name]()
    fast = spread(layer.float()).to(place)
    dfgnn.accelerate(fast)
    x = [t.to(place, torch.float32) for t in x]
    given = to_all(given, place, torch.float32)
    first = run(fast, [t.detach().clone() for t in x], given)
    for _ in range(3):
        again = run(fast, [t.detach().clone() for t in x], given)
        assert all(map(torch.equal, first[0] + first[1], again[0] + again[1]))
