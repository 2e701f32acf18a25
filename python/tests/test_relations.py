"""HeteroConv and models of to_hetero() against PyG's, in float64 with all
gradients."""

import copy

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from relation_cases import (
    KINDS, LAYERS, NODES, WIDTH, compare, many_types,
    own_loops, random_schema, schema, spread)


# ---- HeteroConv -------------------------------------------------------------

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


@pytest.mark.parametrize("channels,together", [(4, True), (512, False)])
def test_gatv2_in_one_pass_on_a_cpu_where_that_is_faster(channels, together,
                                                         said, monkeypatch):
    from dfgnn.nn import _relations
    passes, own = [], _relations.gatv2

    def gatv2(*args, **more):
        passes.append(len(args))
        return own(*args, **more)
    monkeypatch.setattr(_relations, "gatv2", gatv2)
    x, edges = schema()
    plain = spread(G.HeteroConv({key: G.GATv2Conv(
        (WIDTH, WIDTH), channels, heads=2, add_self_loops=False)
        for key in KINDS}).double())
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    compare(plain, fast, list(x.values()), lambda model: model(x, edges))
    assert bool(passes) == together
    assert together or "each relation are faster" in said.text


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
