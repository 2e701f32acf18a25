"""Layers of many relations against PyG's, in float64 with all gradients."""

import copy
import logging

import pytest
import torch
import torch_geometric.nn as G

import dfgnn

WIDTH = 6
NODES = {"a": 7, "b": 5, "c": 1, "d": 3}
KINDS = [("a", "x", "a"), ("b", "x", "a"), ("a", "y", "b"), ("a", "z", "b"),
         ("c", "x", "a"), ("b", "w", "c"), ("a", "x", "d")]


# ---- comparing --------------------------------------------------------------

def schema(counts=(12, 9, 8, 0, 4, 6, 3), nodes=NODES, kinds=KINDS):
    x = {kind: torch.randn(n, WIDTH, dtype=torch.float64, requires_grad=True)
         for kind, n in nodes.items()}
    edges = {(s, r, d): torch.stack([torch.randint(nodes[s], (n,)),
                                     torch.randint(nodes[d], (n,))])
             for (s, r, d), n in zip(kinds, counts)}
    return x, edges


def spread(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def flat(out):
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, dict):
        return [t for key in sorted(out) for t in flat(out[key])]
    return [] if out is None else [t for part in out for t in flat(part)]


def gradients(outs, leaves, weights):
    total = sum((out * w).sum() for out, w in zip(outs, weights))
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g
            for t, g in zip(leaves, found)]


def compare(plain, fast, leaves, call, tolerance=1e-10):
    """Results and gradients by the leaves and by the parameters agree."""
    want, have = flat(call(plain)), flat(call(fast))
    assert [t.shape for t in have] == [t.shape for t in want] and want
    weights = [torch.randn_like(t) for t in want]
    of_plain = gradients(want, [*leaves, *plain.parameters()], weights)
    of_fast = gradients(have, [*leaves, *fast.parameters()], weights)
    for a, b in zip(have + of_fast, want + of_plain):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture
def said(caplog):
    """What the log says of calls that take PyG's own path."""
    from dfgnn.nn.pyg import _mixin
    before = set(_mixin._said)
    _mixin._said.clear()
    caplog.set_level(logging.INFO, "dfgnn")
    yield caplog
    _mixin._said.clear()
    _mixin._said.update(before)


# ---- HeteroConv -------------------------------------------------------------

def own_loops(key):
    return key[0] == key[2]


LAYERS = {
    "GAT": lambda key: G.GATConv(WIDTH, 4, heads=2,
                                 add_self_loops=own_loops(key)),
    "GAT of two widths, averaged": lambda key: G.GATConv(
        (WIDTH, WIDTH), 4, heads=2, add_self_loops=False, concat=False,
        residual=True),
    "Transformer": lambda key: G.TransformerConv((WIDTH, WIDTH), 4, heads=2),
    "Transformer without own": lambda key: G.TransformerConv(
        (WIDTH, WIDTH), 4, heads=2, bias=False, root_weight=False,
        concat=False),
    "SAGE": lambda key: G.SAGEConv(WIDTH, 8),
    "SAGE of the largest": lambda key: G.SAGEConv((-1, -1), 8, aggr="max"),
    "SAGE without own": lambda key: G.SAGEConv(
        (WIDTH, WIDTH), 8, aggr="sum", root_weight=False, bias=False),
    "Graph": lambda key: G.GraphConv((WIDTH, WIDTH), 8),
    "GIN": lambda key: G.GINConv(torch.nn.Linear(WIDTH, 4), train_eps=True),
}


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min", "cat", None])
@pytest.mark.parametrize("name", LAYERS)
def test_hetero_conv_in_one_pass(name, aggr, said):
    x, edges = schema()
    plain = G.HeteroConv({key: LAYERS[name](key) for key in KINDS},
                         aggr).double()
    plain(x, edges)
    fast = copy.deepcopy(spread(plain))
    report = dfgnn.accelerate(fast)
    assert f"{len(KINDS)} {type(LAYERS[name](KINDS[0])).__name__} in one " \
        "pass" in str(report)
    assert len(str(report).splitlines()) == 2
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert list(fast(x, edges)) == list(plain(x, edges))
    assert not said.text


def mixed(key):
    if key[0] == "a":
        return G.SAGEConv((WIDTH, WIDTH), 8)
    if key[0] == "b":
        return G.GATConv((WIDTH, WIDTH), 4, heads=2, add_self_loops=False)
    return G.GATv2Conv((WIDTH, WIDTH), 4, heads=2, add_self_loops=False)


@pytest.mark.parametrize("aggr", ["sum", "mean", "cat"])
def test_a_mixture_goes_in_as_many_passes_as_it_has_kinds(aggr, said):
    x, edges = schema()
    plain = spread(G.HeteroConv({key: mixed(key) for key in KINDS},
                                aggr).double())
    fast = copy.deepcopy(plain)
    text = str(dfgnn.accelerate(fast))
    assert "4 SAGEConv in one pass; 2 GATConv in one pass; c x a one by one " \
        "(GATv2Conv scores with a vector of each relation's own)" in text
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert not said.text


def test_hetero_conv_with_features_of_edges(said):
    x, edges = schema()
    plain = spread(G.HeteroConv({key: G.GATConv(
        (WIDTH, WIDTH), 4, heads=2, add_self_loops=False,
        edge_dim=3 if i % 2 else None) for i, key in enumerate(KINDS)}
        ).double())
    attr = {key: torch.randn(part.size(1), 3, dtype=torch.float64,
                             requires_grad=True)
            for i, (key, part) in enumerate(edges.items()) if i % 2}
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    compare(plain, fast, [*x.values(), *attr.values()],
            lambda model: model(x, edges, edge_attr_dict=attr))
    assert not said.text


def test_relations_that_are_not_there_are_left_out(said):
    x, edges = schema()
    plain = spread(G.HeteroConv({key: G.SAGEConv(WIDTH, 8) for key in KINDS},
                                "mean").double())
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    del edges[KINDS[0]], edges[KINDS[6]]
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert "d" not in fast(x, edges) and not said.text


def test_hooks_see_each_layer(said):
    x, edges = schema()
    model = G.HeteroConv({key: G.SAGEConv(WIDTH, 8) for key in KINDS}).double()
    dfgnn.accelerate(model)
    seen = []
    for layer in model.convs.values():
        layer.register_forward_hook(lambda *_: seen.append(1))
    model(x, edges)
    assert len(seen) == len(KINDS)


def test_wrong_edges_get_the_error_of_pyg():
    x, edges = schema()
    edges[KINDS[1]] = edges[KINDS[1]] + 100
    model = G.HeteroConv({key: G.SAGEConv(WIDTH, 8) for key in KINDS}).double()
    dfgnn.accelerate(model)
    with pytest.raises(Exception) as error:
        model(x, edges)
    assert error.type in (IndexError, RuntimeError, ValueError)


def test_undo_pickles_and_state(tmp_path):
    x, edges = schema()
    model = G.HeteroConv({key: G.SAGEConv(WIDTH, 8) for key in KINDS}).double()
    names = list(model.state_dict())
    want = model(x, edges)["a"]
    dfgnn.accelerate(model)
    assert list(model.state_dict()) == names
    torch.save(model, tmp_path / "model.pt")
    again = torch.load(tmp_path / "model.pt", weights_only=False)
    assert type(again) is dfgnn.nn.pyg.HeteroConv
    torch.testing.assert_close(again(x, edges)["a"], want)
    dfgnn.accelerate(model, undo=True)
    assert type(model) is G.HeteroConv


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("name", ["GAT", "SAGE", "Transformer"])
def test_types_of_results(name, kind):
    dtype = getattr(torch, kind)
    x, edges = schema()
    x = {key: value.detach().to(dtype) for key, value in x.items()}
    plain = spread(G.HeteroConv({key: LAYERS[name](key) for key in KINDS}
                                ).to(dtype))
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    near = 1e-5 if kind == "float32" else 4e-2
    for key, want in plain(x, edges).items():
        torch.testing.assert_close(fast(x, edges)[key], want, rtol=near,
                                   atol=near)


# ---- any schema -------------------------------------------------------------

def random_schema(number):
    """(nodes, kinds, counts): empty relations, types without relations, one
    node, relations of a type with itself, several of the same types."""
    draw = torch.Generator().manual_seed(number)

    def pick(most):
        return int(torch.randint(most, (1,), generator=draw))
    nodes = {f"t{i}": (1, 1, 2, 5, 9)[pick(5)] for i in range(1 + pick(4))}
    names = list(nodes)
    kinds = [(names[pick(len(names))], f"r{i}", names[pick(len(names))])
             for i in range(2 + pick(6))]
    return nodes, kinds, [(0, 1, 4, 20)[pick(4)] for _ in kinds]


@pytest.mark.parametrize("number", range(12))
def test_hetero_conv_of_any_schema(number):
    nodes, kinds, counts = random_schema(number)
    x, edges = schema(counts, nodes, kinds)
    for turn, name in enumerate(LAYERS):
        if (turn + number) % 3:
            continue
        aggr = ("sum", "mean", "max", "cat")[(turn + number) % 4]
        plain = G.HeteroConv({key: LAYERS[name](key) for key in kinds},
                             aggr).double()
        with torch.no_grad():
            plain(x, edges)
        fast = copy.deepcopy(spread(plain))
        dfgnn.accelerate(fast)
        compare(plain, fast, list(x.values()), lambda model: model(x, edges))
