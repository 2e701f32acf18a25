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
    edges = {(s, r, d): torch.stack([torch.randint(max(nodes[end], 1), (n,))
                                     for end in (s, d)])
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
    "GATv2": lambda key: G.GATv2Conv((WIDTH, WIDTH), 4, heads=2,
                                     add_self_loops=own_loops(key)),
    "GATv2 shared, averaged": lambda key: G.GATv2Conv(
        (WIDTH, WIDTH), 4, heads=2, add_self_loops=False, concat=False,
        share_weights=True, residual=True, bias=False),
    "Transformer with beta": lambda key: G.TransformerConv(
        (WIDTH, WIDTH), 4, heads=2, beta=True),
    "SAGE projected": lambda key: G.SAGEConv((WIDTH, WIDTH), 8, project=True),
    "SAGE normalized": lambda key: G.SAGEConv((WIDTH, WIDTH), 8,
                                              normalize=True),
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


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("counts", [(3, 1, 2, 0, 1, 1, 1),
                                    (30, 1, 2, 0, 40, 1, 1)])
def test_relations_with_fewer_edges_than_nodes(name, counts, said):
    x, edges = schema(counts)
    for aggr in ("sum", "mean", "cat"):
        plain = G.HeteroConv({key: LAYERS[name](key) for key in KINDS},
                             aggr).double()
        plain(x, edges)
        fast = copy.deepcopy(spread(plain))
        dfgnn.accelerate(fast)
        compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert not said.text


@pytest.mark.parametrize("name", ["SAGE", "SAGE of the largest",
                                  "SAGE without own", "Graph", "some biases"])
def test_many_small_relations_are_batched_products(name, said, monkeypatch):
    from dfgnn import _grouped
    from dfgnn.nn import _relation_tiles, _relations
    monkeypatch.setattr(_grouped, "FEW", 0)
    monkeypatch.setattr(_relations, "MOST_TYPES", 0)
    sums, ran = _relation_tiles.sums, []
    monkeypatch.setattr(_relation_tiles, "sums", lambda *a: (
        ran.append(1), sums(*a))[1])
    make = LAYERS.get(name, lambda key: G.SAGEConv(
        WIDTH, 8, bias=key[0] == "a", root_weight=key[2] != "b"))
    for aggr in ("sum", "mean"):
        for nodes, kinds, counts in (
                (NODES, KINDS, (12, 9, 8, 0, 4, 6, 3)), many_types(12, 25)):
            x, edges = schema(counts, nodes, kinds)
            plain = G.HeteroConv({key: make(key) for key in kinds},
                                 aggr).double()
            plain(x, edges)
            fast = copy.deepcopy(spread(plain))
            dfgnn.accelerate(fast)
            compare(plain, fast, list(x.values()),
                    lambda model: model(x, edges))
    assert not said.text and len(ran) == (2 if name == "some biases" else 4)


def mixed(key):
    if key[0] == "a":
        return G.SAGEConv((WIDTH, WIDTH), 8)
    if key[0] == "b":
        return G.GATConv((WIDTH, WIDTH), 4, heads=2, add_self_loops=False)
    return G.ResGatedGraphConv((WIDTH, WIDTH), 8)


@pytest.mark.parametrize("aggr", ["sum", "mean", "cat"])
def test_a_mixture_goes_in_as_many_passes_as_it_has_kinds(aggr, said):
    x, edges = schema()
    plain = spread(G.HeteroConv({key: mixed(key) for key in KINDS},
                                aggr).double())
    fast = copy.deepcopy(plain)
    text = str(dfgnn.accelerate(fast))
    assert "4 SAGEConv in one pass; 2 GATConv in one pass; c x a one by one " \
        "(ResGatedGraphConv is none of the layers that go together (" in text
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert not said.text


OF_EDGES = {
    "GAT": lambda key, dim: G.GATConv(
        (WIDTH, WIDTH), 4, heads=2, add_self_loops=False, edge_dim=dim),
    "GAT with loops": lambda key, dim: G.GATConv(
        WIDTH, 4, heads=2, add_self_loops=own_loops(key), edge_dim=dim),
    "GATv2": lambda key, dim: G.GATv2Conv(
        (WIDTH, WIDTH), 4, heads=2, add_self_loops=False, edge_dim=dim),
    "GATv2 with loops": lambda key, dim: G.GATv2Conv(
        WIDTH, 4, heads=2, add_self_loops=own_loops(key), edge_dim=dim,
        fill_value="max"),
    "Transformer": lambda key, dim: G.TransformerConv(
        (WIDTH, WIDTH), 4, heads=2, edge_dim=dim),
}


@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("counts", [(12, 9, 8, 0, 4, 6, 3),
                                    (3, 1, 2, 0, 1, 1, 1)])
@pytest.mark.parametrize("name", OF_EDGES)
def test_hetero_conv_with_features_of_edges(name, counts, positional, said):
    x, edges = schema(counts)
    plain = spread(G.HeteroConv({key: OF_EDGES[name](
        key, 3 if i % 2 or positional else None)
        for i, key in enumerate(KINDS)}).double())
    attr = {key: torch.randn(part.size(1), 3, dtype=torch.float64,
                             requires_grad=True)
            for i, (key, part) in enumerate(edges.items())
            if i % 2 or positional}
    fast = copy.deepcopy(plain)
    assert "7 " in str(dfgnn.accelerate(fast))
    compare(plain, fast, [*x.values(), *attr.values()],
            lambda model: model(x, edges, attr) if positional
            else model(x, edges, edge_attr_dict=attr))
    assert not said.text


WEIGHTED = {
    "Graph": (lambda: G.GraphConv((WIDTH, WIDTH), 8), KINDS),
    "Graph of means": (lambda: G.GraphConv((WIDTH, WIDTH), 8, aggr="mean"),
                       KINDS),
    "GCN": (lambda: G.GCNConv(WIDTH, 8), [("a", n, "a") for n in "xyz"]),
    "GCN improved, without loops of its own": (
        lambda: G.GCNConv(WIDTH, 8, improved=True, add_self_loops=False),
        [("a", n, "a") for n in "xyz"]),
    "GCN as it is": (lambda: G.GCNConv(WIDTH, 8, normalize=False),
                     [("a", n, "a") for n in "xyz"]),
}


@pytest.mark.parametrize("some", ["all", "some", "none"])
@pytest.mark.parametrize("name", WEIGHTED)
def test_hetero_conv_with_weights_of_edges(name, some, said):
    make, kinds = WEIGHTED[name]
    x, edges = schema((12, 9, 8, 0, 4, 6, 3)[:len(kinds)], NODES, kinds)
    weight = {key: torch.rand(part.size(1), dtype=torch.float64,
                              requires_grad=True)
              for i, (key, part) in enumerate(edges.items())
              if some == "all" or some == "some" and i % 2}
    for aggr in ("sum", "mean", "max"):
        plain = spread(G.HeteroConv({key: make() for key in kinds},
                                    aggr).double())
        fast = copy.deepcopy(plain)
        assert f"{len(kinds)} " in str(dfgnn.accelerate(fast))
        compare(plain, fast, [*x.values(), *weight.values()],
                lambda model: model(x, edges, edge_weight_dict=weight))
    assert not said.text


def test_maxima_with_weights_go_one_by_one():
    x, edges = schema()
    plain = spread(G.HeteroConv({key: G.GraphConv(
        (WIDTH, WIDTH), 8, aggr="max") for key in KINDS}).double())
    weight = {key: torch.rand(part.size(1), dtype=torch.float64)
              for key, part in edges.items()}
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    compare(plain, fast, list(x.values()),
            lambda model: model(x, edges, edge_weight_dict=weight))


@pytest.mark.parametrize("name", ["GAT", "GATv2", "Transformer"])
def test_dropout_of_attention_in_one_pass(name):
    """Weights that are kept are 1 / (1 - p) of what they were: the mean of
    many draws is the result without dropout."""
    x, edges = schema()
    model = spread(G.HeteroConv({key: LAYERS[name](key) for key in KINDS}
                                ).double())
    for layer in model.convs.values():
        layer.dropout = 0.3
    dfgnn.accelerate(model)
    want = model.eval()(x, edges)["a"]
    model.train()
    draws = torch.stack([model(x, edges)["a"] for _ in range(400)])
    assert float(draws.detach().var(0).max()) > 1e-3
    error = draws.std(0) / 20 + 1e-9
    assert float(((draws.mean(0) - want).abs() / error).max()) < 6


def test_relations_that_are_not_there_are_left_out(said):
    x, edges = schema()
    plain = spread(G.HeteroConv({key: G.SAGEConv(WIDTH, 8) for key in KINDS},
                                "mean").double())
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    del edges[KINDS[0]], edges[KINDS[6]]
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert "d" not in fast(x, edges) and not said.text


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_have_memory_of_their_own(name):
    """Whoever writes to one, as clip_grad_norm_ does, writes to one."""
    x, edges = schema()
    model = G.HeteroConv({key: LAYERS[name](key) for key in KINDS}).double()
    model(x, edges)
    dfgnn.accelerate(model)
    sum(t.sum() for t in model(x, edges).values()).backward()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    marks = [torch.zeros_like(t) for t in found]
    for number, grad in enumerate(found):
        grad.fill_(number)
        marks[number] += number
    assert len(found) > 6
    for grad, mark in zip(found, marks):
        assert torch.equal(grad, mark)


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
@pytest.mark.parametrize("name", ["GAT", "GATv2", "SAGE", "Transformer"])
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


# ---- to_hetero --------------------------------------------------------------

class Plain(torch.nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.conv1, self.conv2 = first(), second()
        self.lin = torch.nn.Linear(8, 3)

    def forward(self, x, edge_index):
        x = self.conv1(x, edge_index).relu()
        return self.lin(self.conv2(x, edge_index))


def plain_gat():
    return G.GATConv((-1, -1), 4, heads=2, add_self_loops=False)


@pytest.mark.parametrize("aggr", ["sum", "mean", "max"])
@pytest.mark.parametrize("layers", [
    (lambda: G.SAGEConv((-1, -1), 8), plain_gat),
    (lambda: G.GATv2Conv((-1, -1), 8, add_self_loops=False), plain_gat),
    (lambda: G.ResGatedGraphConv((-1, -1), 8), plain_gat)])
def test_models_of_to_hetero(layers, aggr, said):
    nodes, kinds = {"a": 7, "b": 5, "c": 3}, [
        ("a", "x", "a"), ("b", "x", "a"), ("a", "y", "b"), ("c", "z", "a"),
        ("a", "z", "c")]
    x, edges = schema((9, 8, 7, 0, 5), nodes, kinds)
    plain = G.to_hetero(Plain(*layers), (list(nodes), kinds), aggr).double()
    plain(x, edges)
    fast = copy.deepcopy(spread(plain))
    names, code = list(fast.state_dict()), fast.code
    report = dfgnn.accelerate(fast)
    joined = [layer.name for layer in report.joined]
    assert joined == (
        ["conv2"] if layers[0]().__class__ is G.ResGatedGraphConv
        else ["conv1", "conv2"])
    assert "conv2: layer of to_hetero: 5 GATConv in one pass" in str(report)
    assert list(fast.state_dict()) == names
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert not said.text
    again = copy.deepcopy(fast)
    compare(plain, again, list(x.values()), lambda model: model(x, edges))
    assert not dfgnn.accelerate(fast).joined
    dfgnn.accelerate(fast, undo=True)
    assert fast.code == code
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))


class OfEdges(torch.nn.Module):
    def __init__(self, by_name):
        super().__init__()
        self.by_name = by_name
        self.conv1 = G.GraphConv((-1, -1), 8)
        self.conv2 = G.TransformerConv((-1, -1), 4, heads=2, edge_dim=3)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        if self.by_name:
            x = self.conv1(x, edge_index, edge_weight=edge_weight).relu()
            return self.conv2(x, edge_index, edge_attr=edge_attr)
        x = self.conv1(x, edge_index, edge_weight).relu()
        return self.conv2(x, edge_index, edge_attr)


@pytest.mark.parametrize("by_name", [False, True])
def test_models_of_to_hetero_with_features_of_edges(by_name, said):
    nodes, kinds = {"a": 7, "b": 5}, [("a", "x", "a"), ("b", "x", "a"),
                                      ("a", "y", "b")]
    x, edges = schema((9, 8, 7), nodes, kinds)
    weight, attr = [{key: torch.rand(
        part.size(1), *shape, dtype=torch.float64, requires_grad=True)
        for key, part in edges.items()} for shape in ((), (3,))]
    plain = G.to_hetero(OfEdges(by_name), (list(nodes), kinds)).double()
    plain(x, edges, weight, attr)
    fast = copy.deepcopy(spread(plain))
    assert [layer.name for layer in dfgnn.accelerate(fast).joined] == [
        "conv1", "conv2"]
    compare(plain, fast, [*x.values(), *weight.values(), *attr.values()],
            lambda model: model(x, edges, weight, attr))
    assert not said.text


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


# ---- RGCN -------------------------------------------------------------------

def typed(nodes, relations, count):
    """(edge_index, edge_type) with relations that have no edge."""
    kinds = torch.randint(relations, (count,))
    if relations > 5:
        kinds = kinds // 3 * 3
    return torch.randint(nodes, (2, count)), kinds


@pytest.fixture
def doubles():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


WEIGHTS = {"full": {}, "bases": dict(num_bases=3), "blocks": dict(
    num_blocks=2)}


@pytest.mark.parametrize("nodes, relations, count", [
    (9, 3, 40), (9, 20, 60), (4, 5, 0), (1, 2, 3), (30, 90, 300)])
@pytest.mark.parametrize("most_rows", [0, 1000])
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("kind", [G.RGCNConv, G.FastRGCNConv])
def test_rgcn(kind, weights, most_rows, nodes, relations, count, doubles,
              monkeypatch, said):
    from dfgnn import _relational
    from dfgnn.nn.pyg import _rgcn
    monkeypatch.setattr(_relational, "MOST_ROWS", most_rows)
    monkeypatch.setattr(_rgcn, "_by_bases", lambda layer, graph:
                        most_rows == 0 and layer.num_bases and
                        _rgcn._adds(layer))
    edges, kinds = typed(nodes, relations, count)
    for aggr in ("mean", "add", "max"):
        if aggr == "max" and kind is G.FastRGCNConv:
            continue
        for given in ("x", "pair", "numbers", None):
            if weights == "blocks" and given in ("numbers", None):
                continue
            width = WIDTH if given in ("x", "pair") else nodes
            plain = spread(kind(width, 4, relations, aggr=aggr,
                                **WEIGHTS[weights]))
            fast = copy.deepcopy(plain)
            dfgnn.accelerate(fast)
            x = torch.randn(nodes, WIDTH, requires_grad=True)
            own = torch.randn(nodes + 2, WIDTH, requires_grad=True)
            given = {"x": x, "pair": (x, own), None: None,
                     "numbers": torch.randperm(nodes)}[given]
            leaves = [t for t in (given if isinstance(given, tuple)
                                  else (given,))
                      if t is not None and t.requires_grad]
            compare(plain, fast, leaves,
                    lambda layer: layer(given, edges, kinds))
    assert not said.text


def test_rgcn_of_many_small_relations_by_tiles(doubles, monkeypatch, said):
    from dfgnn import _relational
    monkeypatch.setattr(_relational, "MOST_ROWS", 0)
    tiled = []
    product = _relational.Groups.product
    monkeypatch.setattr(_relational.Groups, "product", lambda self, *rest: (
        tiled.append(self.align), product(self, *rest))[1])
    edges, kinds = typed(30, 40, 200)
    x = torch.randn(30, WIDTH, requires_grad=True)
    for weights in ({}, dict(num_blocks=2)):
        plain = spread(G.RGCNConv(WIDTH, 4, 40, **weights))
        fast = copy.deepcopy(plain)
        dfgnn.accelerate(fast)
        compare(plain, fast, [x], lambda layer: layer(x, edges, kinds))
    assert tiled == [32, 32]


def test_rgcn_against_the_flow(doubles, said):
    edges, kinds = typed(9, 3, 40)
    x = torch.randn(9, WIDTH, requires_grad=True)
    plain = spread(G.RGCNConv(WIDTH, 4, 3, flow="target_to_source"))
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    compare(plain, fast, [x], lambda layer: layer(x, edges, kinds))
    assert not said.text


def test_relations_that_do_not_exist_get_the_error_of_pyg():
    edges, kinds = typed(9, 3, 40)
    for layer in (dfgnn.nn.pyg.RGCNConv(WIDTH, 4, 2),
                  G.RGCNConv(WIDTH, 4, 2)):
        with pytest.raises(RuntimeError, match="index 2 is out of bounds"):
            layer(torch.randn(9, WIDTH), edges, kinds)


# ---- RGAT -------------------------------------------------------------------

@pytest.mark.parametrize("nodes, relations, count", [
    (9, 3, 40), (9, 20, 60), (1, 2, 3), (30, 40, 300)])
@pytest.mark.parametrize("mechanism", ["across-relation", "within-relation"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_rgat(weights, mechanism, nodes, relations, count, said):
    edges, kinds = typed(nodes, relations, count)
    x = torch.randn(nodes, WIDTH, dtype=torch.float64, requires_grad=True)
    attr = torch.randn(count, 3, dtype=torch.float64, requires_grad=True)
    for edge_dim in (None, 3):
        plain = G.RGATConv(WIDTH, 4, relations, heads=2, edge_dim=edge_dim,
                           attention_mechanism=mechanism,
                           **WEIGHTS[weights]).double()
        torch.nn.init.ones_(plain.l2)
        fast = copy.deepcopy(spread(plain))
        dfgnn.accelerate(fast)
        call = (x, edges, kinds) if edge_dim is None else (
            x, edges, kinds, attr)
        compare(plain, fast, [x] if edge_dim is None else [x, attr],
                lambda layer: layer(*call))
    assert not said.text


@pytest.mark.parametrize("mod", [None, "additive", "scaled", "f-additive",
                                 "f-scaled"])
@pytest.mark.parametrize("mode", ["additive", "multiplicative"])
@pytest.mark.parametrize("mechanism", ["across-relation", "within-relation"])
def test_rgat_in_all_its_modes(mechanism, mode, mod, said, monkeypatch):
    from dfgnn.nn.pyg import _relations
    ran, run = [], _relations._attended
    monkeypatch.setattr(_relations, "_attended", lambda *a: (
        ran.append(1), run(*a))[1])
    for nodes, relations, count in ((9, 3, 40), (30, 40, 300)):
        edges, kinds = typed(nodes, relations, count)
        x = torch.randn(nodes, WIDTH, dtype=torch.float64, requires_grad=True)
        attr = torch.randn(count, 3, dtype=torch.float64, requires_grad=True)
        for concat, edge_dim, weights in ((True, None, None), (False, 3, True),
                                          (True, 3, False)):
            plain = G.RGATConv(
                WIDTH, 4, relations, heads=2, mod=mod, edge_dim=edge_dim,
                attention_mode=f"{mode}-self-attention", concat=concat,
                dim=1 if mode == "additive" else 3,
                attention_mechanism=mechanism).double()
            torch.nn.init.ones_(plain.l2)
            fast = copy.deepcopy(spread(plain))
            dfgnn.accelerate(fast)
            given = {} if edge_dim is None else {"edge_attr": attr}

            def call(layer):
                found = layer(x, edges, kinds,
                              return_attention_weights=weights, **given)
                return found if weights is None else (found[0], found[1][1])
            compare(plain, fast, [x, *given.values()], call)
    assert len(ran) == 6 and "own path" not in said.text


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
    plain = spread(G.HEATConv(WIDTH, 8, node_types, relations, 5, 3, 4,
                              **options).double())
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    assert [layer.kind for layer in report.swapped] == ["HEATConv"]
    compare(plain, fast, [x, attr],
            lambda layer: layer(x, edges, types, kinds, attr))
    assert not said.text


def test_heat_with_types_that_do_not_exist_gets_the_error_of_pyg():
    edges, kinds = typed(9, 3, 40)
    x, attr = torch.randn(9, WIDTH), torch.randn(40, 3)
    types = torch.zeros(9, dtype=torch.int64)
    for make in (G.HEATConv, dfgnn.nn.pyg.HEATConv):
        layer = make(WIDTH, 8, 2, 2, 5, 3, 4)
        with pytest.raises(IndexError):
            layer(x, edges, types, kinds, attr)


# ---- HGT, HAN ---------------------------------------------------------------

def many_types(count, relations):
    nodes = {f"t{i}": 1 + i % 3 for i in range(count)}
    kinds = [(f"t{i % count}", f"r{i}", f"t{(7 * i + i // count) % count}")
             for i in range(relations)]
    return nodes, kinds, [i % 4 for i in range(relations)]


@pytest.mark.parametrize("width", [8, 12])
@pytest.mark.parametrize("tiles", [False, True])
def test_hgt(width, tiles, said, monkeypatch):
    from dfgnn import _grouped
    from dfgnn.nn.pyg import _heterogeneous
    if tiles:
        monkeypatch.setattr(_grouped, "FEW", 0)
    by_tiles, ran = _heterogeneous._by_tiles, []
    monkeypatch.setattr(_heterogeneous, "_by_tiles", lambda *a: (
        ran.append(1), by_tiles(*a))[1])
    for nodes, kinds, counts in (
            (NODES, KINDS, (12, 9, 8, 0, 4, 6, 3)), many_types(12, 25)):
        x, edges = schema(counts, nodes, kinds)
        for in_width in (WIDTH, width):
            x = {key: torch.randn(t.size(0), in_width, dtype=torch.float64,
                                  requires_grad=True) for key, t in x.items()}
            plain = spread(G.HGTConv(in_width, width, (list(nodes), kinds),
                                     heads=2).double())
            fast = copy.deepcopy(plain)
            dfgnn.accelerate(fast)
            compare(plain, fast, list(x.values()), lambda m: m(x, edges))
            some = {key: edges[key] for key in list(edges)[::2]}
            compare(plain, fast, list(x.values()), lambda m: m(x, some))
    assert not said.text and len(ran) == (8 if tiles else 4)


def test_hgt_of_types_with_other_widths(said, monkeypatch):
    from dfgnn import _grouped
    monkeypatch.setattr(_grouped, "FEW", 0)
    x, edges = schema()
    widths = {kind: 3 + i for i, kind in enumerate(x)}
    x = {kind: torch.randn(t.size(0), widths[kind], dtype=torch.float64,
                           requires_grad=True) for kind, t in x.items()}
    plain = spread(G.HGTConv(widths, 8, (list(NODES), KINDS), heads=4
                             ).double())
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert not said.text


def test_han(said):
    x, edges = schema()
    plain = spread(G.HANConv(WIDTH, 8, (list(NODES), KINDS), heads=2
                             ).double())
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    compare(plain, fast, list(x.values()), lambda model: model(
        x, edges, return_semantic_attention_weights=True))
    del edges[KINDS[6]]
    assert fast(x, edges)["d"] is None and not said.text


@pytest.mark.parametrize("number", range(10))
def test_hgt_and_han_of_any_schema(number, said):
    nodes, kinds, counts = random_schema(100 + number)
    x, edges = schema(counts, nodes, kinds)
    for make in (lambda: G.HGTConv(WIDTH, 8, (list(nodes), kinds), heads=2),
                 lambda: G.HANConv(WIDTH, 8, (list(nodes), kinds), heads=2)):
        plain = spread(make().double())
        fast = copy.deepcopy(plain)
        dfgnn.accelerate(fast)
        compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert not said.text


# ---- what does not lead to the loss -----------------------------------------

class TwoLayers(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.convs = torch.nn.ModuleList(G.HeteroConv(
            {key: layer(key) for key in KINDS}) for _ in range(2))
        self.project = torch.nn.ModuleList(
            torch.nn.ModuleDict({kind: torch.nn.LazyLinear(WIDTH)
                                 for kind in NODES}) for _ in range(2))

    def forward(self, x, edges):
        for conv, lins in zip(self.convs, self.project):
            x = {kind: lins[kind](t).tanh()
                 for kind, t in conv(x, edges).items()}
        return x


@pytest.mark.parametrize("kind", ["a", "d"])
@pytest.mark.parametrize("name", LAYERS)
def test_what_does_not_lead_to_the_loss_has_no_gradient(name, kind):
    x, edges = schema()
    plain = TwoLayers(LAYERS[name]).double()
    plain(x, edges)
    fast = copy.deepcopy(spread(plain))
    dfgnn.accelerate(fast)
    found = []
    for model in (plain, fast):
        out = model(x, edges)[kind]
        leaves = [*x.values(), *model.parameters()]
        for _ in range(2):  # a pass leaves nothing behind for the next
            grads = torch.autograd.grad(out.square().sum(), leaves,
                                        retain_graph=True, allow_unused=True)
        found.append(grads)
    assert any(g is None for g in found[0])
    for want, have in zip(*found):
        assert (want is None) == (have is None)
        if want is not None:
            torch.testing.assert_close(have, want)


@pytest.mark.parametrize("kind", ["a", "d"])
@pytest.mark.parametrize("name", ["HGT", "HAN"])
def test_layers_over_types_have_no_gradient_of_what_no_loss_reads(name, kind):
    x, edges = schema()
    about = list(NODES), list(edges)
    plain = spread((G.HGTConv(WIDTH, 8, about, heads=2) if name == "HGT" else
                    G.HANConv(WIDTH, 8, about, heads=2)).double())
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    found = []
    for model in (plain, fast):
        leaves = [*x.values(), *model.parameters()]
        found.append(torch.autograd.grad(
            model(x, edges)[kind].square().sum(), leaves, allow_unused=True))
    for (key, _), want, have in zip(
            [*x.items(), *plain.named_parameters()], *found):
        assert (want is None) == (have is None), key
        if want is not None:
            torch.testing.assert_close(have, want)
