"""Gradients of gradients by edge programs against torch's operations on every
edge."""

import pytest
import torch

import dfgnn
from dfgnn import _formulas, aggregation, functional, ops

from conftest import random_edges

N, M, E, H, D, F = 7, 9, 40, 2, 3, 5


def some(*shape):
    return torch.randn(*shape, dtype=torch.double)


def attention(op, **options):
    function = getattr(dfgnn, op + "_attention")

    def run(graph, given):
        torch.manual_seed(3)  # of dropout
        return function(graph, **given, **options)
    return run


def edges_of(kind):
    if kind == "projected":
        return {"edge_attr": some(E, H, D)}
    return {"edge_attr": some(E, F), "edge_projection": some(H * D, F),
            "edge_bias": some(H * D)}


def cases():
    gt = dict(query=some(N, H, D), key=some(M, H, D), value=some(M, H, D))
    for kind in ("projected", "weighted"):
        for use in ("both", "keys", "values"):
            yield f"gt {kind} {use}", attention(
                "gt", edge_use=use), {**gt, **edges_of(kind)}
        yield f"gatv2 {kind}", attention("gatv2"), dict(
            x_dst=some(N, H, D), x_src=some(M, H, D), att=some(H, D),
            **edges_of(kind))
    ops = {"gt": gt, "agnn": dict(
        h=some(M, H, D), h_dst=some(N, H, D), beta=some(1)), "gat": dict(
        h=some(M, H, D), score_src=some(M, H), score_dst=some(N, H)),
        "gatv2": dict(x_dst=some(N, H, D), x_src=some(M, H, D),
                      att=some(H, D))}
    for op, given in ops.items():
        biased = {**given, "bias": some(E, H)}
        yield op, attention(op), given
        yield f"{op} bias", attention(op), biased
        yield f"{op} mask", attention(op), biased
        yield f"{op} dropout", attention(op, dropout=0.5), given
        yield f"{op} bias and dropout", attention(op, dropout=0.5), biased
        yield f"{op} weights", attention(op, return_weights=True), given
        yield f"{op} weights and mask", attention(
            op, return_weights=True), biased
    yield "sum", lambda graph, given: dfgnn.spmm(graph, **given), dict(
        x=some(M, H, D))
    yield "normalized", lambda graph, given: dfgnn.aggregation.gcn(
        dfgnn.as_graph(graph.edge_index.clamp(max=N - 1), N), **given,
        self_loops=True), dict(x=some(N, D))
    yield "weighted", lambda graph, given: dfgnn.spmm(graph, **given), dict(
        x=some(M, H, D), weight=some(E, H))
    for reduce in ("mean", "min", "max", "var", "std", "pna"):
        yield f"values {reduce}", lambda graph, given, r=reduce: \
            dfgnn.aggregate(graph, **given, reduce=r), dict(x=some(M, H, D))
    for reduce in ("sum", "mean", "min", "max", "pna"):
        yield f"relu {reduce}", lambda graph, given, r=reduce: \
            dfgnn.relu_messages(graph, **given, reduce=r), dict(
                x=some(M, H * D), edge_attr=some(E, H * D))
        yield f"gates {reduce}", lambda graph, given, r=reduce: \
            dfgnn.gated_messages(graph, **given, reduce=r), dict(
                x=some(M, H * D), gate_dst=some(N, H * D),
                gate_src=some(M, H * D), edge_attr=some(E, H * D))
    fields = dict(edge_attr=some(E, F), edge_projection=some(D, F),
                  edge_bias=some(D))
    for reduce in ("sum", "max", "pna"):
        yield f"relu fields {reduce}", lambda graph, given, r=reduce: \
            dfgnn.relu_messages(graph, **given, reduce=r), dict(
                x=some(M, D), **fields)
        yield f"gates fields {reduce}", lambda graph, given, r=reduce: \
            dfgnn.gated_messages(graph, **given, reduce=r), dict(
                x=some(M, D), gate_dst=some(N, D), gate_src=some(M, D),
                **fields, value_weight=some(D, F), value_bias=some(D))


def derivatives(function, graph, given):
    leaves = [t for t in given.values() if t.requires_grad]
    outs = function(graph, given)
    outs = outs if isinstance(outs, tuple) else (outs,)
    outs = [x for x in outs if x is not None and x.requires_grad]
    first = torch.autograd.grad(
        sum((x * x * x.detach().cos()).sum() for x in outs), leaves,
        create_graph=True, materialize_grads=True)
    size = sum((g * g).sum() for g in first if g.requires_grad)
    second = torch.autograd.grad(size, leaves, materialize_grads=True)
    return [*outs, *first, *second]


NAMES = [name for name, *_ in cases()]


@pytest.mark.parametrize("name", NAMES)
def test_second_derivatives_are_those_of_torchs_operations(name, place,
                                                           monkeypatch):
    _, function, given = next(c for c in cases() if c[0] == name)
    edges = random_edges(M, N, E - 3)
    if name.endswith("mask"):  # of some edges, and of all of a row
        out = (torch.arange(E) % 3 == 0) | (edges[1] == edges[1, 0])
        given["bias"][out] = -float("inf")
    given = {k: t.to(place).requires_grad_() for k, t in given.items()}
    graph = dfgnn.as_graph(edges.to(place), (M, N))
    unfused = []
    monkeypatch.setattr(ops, "say_unfused", lambda: unfused.append(1))
    have = derivatives(function, graph, given)
    assert not unfused
    for module in (functional, aggregation):
        monkeypatch.setattr(module, "needs_composite", lambda: True)
    want = derivatives(function, graph, given)
    torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["gt", "gt weighted keys", "agnn", "gat",
                                  "gatv2 projected", "gatv2 weighted"])
def test_gradients_through_weights_hold_no_features_of_edges(name, place,
                                                             monkeypatch):
    op = name.split()[0]
    given = next(given for other, _, given in cases() if other == name)
    given = {k: t.to(place).requires_grad_() for k, t in given.items()}
    graph = dfgnn.as_graph(random_edges(M, N, E - 3).to(place), (M, N))
    use = {"edge_use": "keys"} if "keys" in name else {}
    function = attention(op, return_weights=True, **use)

    def gradients():
        out, weights = function(graph, given)
        return torch.autograd.grad((out * out).sum() + (weights ** 3).sum(),
                                   list(given.values()))
    with monkeypatch.context() as patch:
        patch.setattr(_formulas, "ByTorch", None)
        have = gradients()
    monkeypatch.setattr(functional, "needs_composite", lambda: True)
    torch.testing.assert_close(have, gradients(), rtol=1e-9, atol=1e-9)
