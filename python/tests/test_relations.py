"""HeteroConv and models of to_hetero() against PyG's, in float64 with all
gradients."""

import copy

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from dfgnn.nn.pyg.relations import layers as kinds_of_layers, tiles
from relation_cases import (
    COUNTS, KINDS, LAYERS, NODES, WIDTH, accelerated, agree, compare,
    gradients_alike, hetero_conv, many_types, own_loops, schema, spread)

FEW = 3, 1, 2, 0, 1, 1, 1  # fewer edges than nodes


# ---- HeteroConv -------------------------------------------------------------

@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min", "cat", None])
@pytest.mark.parametrize("name", LAYERS)
def test_hetero_conv_in_one_pass(name, aggr, said):
    x, edges = schema()
    plain = hetero_conv(LAYERS[name], aggr=aggr)
    fast = agree(plain, list(x.values()), lambda model: model(x, edges))
    text = str(dfgnn.accelerate(copy.deepcopy(plain)))
    assert f"{len(KINDS)} {type(LAYERS[name](KINDS[0])).__name__} in one " \
        "pass" in text and len(text.splitlines()) == 2
    assert list(fast(x, edges)) == list(plain(x, edges))
    assert not said.text


@pytest.mark.parametrize("name", ["SAGE", "SAGE of the largest",
                                  "SAGE without own", "Graph", "some biases"])
def test_many_small_relations_are_batched_products(name, said, monkeypatch,
                                                   ways):
    ways(products_of_groups="tiles of 32", sums_over_types="tiles")
    run, ran = tiles.sums, []
    monkeypatch.setattr(tiles, "sums", lambda *a: (ran.append(1), run(*a))[1])
    make = LAYERS.get(name, lambda key: G.SAGEConv(
        WIDTH, 8, bias=key[0] == "a", root_weight=key[2] != "b"))
    for aggr in ("sum", "mean"):
        for nodes, kinds, counts in (
                (NODES, KINDS, COUNTS), many_types(12, 25)):
            x, edges = schema(counts, nodes, kinds)
            agree(hetero_conv(make, kinds, aggr), list(x.values()),
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
    plain = hetero_conv(mixed, aggr=aggr)
    agree(plain, list(x.values()), lambda model: model(x, edges))
    assert "4 SAGEConv in one pass; 2 GATConv in one pass; c x a one by one " \
        "(ResGatedGraphConv is none of the layers that go together (" in \
        str(dfgnn.accelerate(plain))
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


def of_edges(edges, *shape, some=lambda number: True):
    """Random tensors by relation, [E, *shape] each."""
    return {key: torch.rand(part.size(1), *shape, dtype=torch.float64,
                            requires_grad=True)
            for number, (key, part) in enumerate(edges.items())
            if some(number)}


@pytest.mark.parametrize("positional", [False, True])
@pytest.mark.parametrize("counts", [COUNTS, FEW])
@pytest.mark.parametrize("name", OF_EDGES)
def test_hetero_conv_with_features_of_edges(name, counts, positional, said):
    x, edges = schema(counts)
    attr = of_edges(edges, 3, some=lambda number: number % 2 or positional)
    plain = hetero_conv(lambda key: OF_EDGES[name](
        key, 3 if key in attr else None))
    agree(plain, [*x.values(), *attr.values()],
          lambda model: model(x, edges, attr) if positional
          else model(x, edges, edge_attr_dict=attr))
    assert not said.text


OWN = [("a", n, "a") for n in "xyz"]
WEIGHTED = {
    "Graph": (lambda key: G.GraphConv((WIDTH, WIDTH), 8), KINDS),
    "Graph of means": (lambda key: G.GraphConv((WIDTH, WIDTH), 8, aggr="mean"),
                       KINDS),
    "GCN": (lambda key: G.GCNConv(WIDTH, 8), OWN),
    "GCN improved, without loops of its own": (lambda key: G.GCNConv(
        WIDTH, 8, improved=True, add_self_loops=False), OWN),
    "GCN as it is": (lambda key: G.GCNConv(WIDTH, 8, normalize=False), OWN),
}


@pytest.mark.parametrize("some", ["all", "some", "none"])
@pytest.mark.parametrize("name", WEIGHTED)
def test_hetero_conv_with_weights_of_edges(name, some, said):
    make, kinds = WEIGHTED[name]
    x, edges = schema(COUNTS[:len(kinds)], NODES, kinds)
    weight = of_edges(edges, some=lambda number: some == "all" or
                      some == "some" and number % 2)
    for aggr in ("sum", "mean", "max"):
        agree(hetero_conv(make, kinds, aggr),
              [*x.values(), *weight.values()],
              lambda model: model(x, edges, edge_weight_dict=weight))
    assert not said.text


def test_maxima_with_weights_go_one_by_one():
    x, edges = schema()
    weight = of_edges(edges)
    agree(hetero_conv(lambda key: G.GraphConv((WIDTH, WIDTH), 8, aggr="max")),
          list(x.values()),
          lambda model: model(x, edges, edge_weight_dict=weight))


@pytest.mark.parametrize("name", ["GAT", "GATv2", "Transformer"])
def test_dropout_of_attention_in_one_pass(name):
    """Weights that are kept are 1 / (1 - p) of what they were: the mean of
    many draws is the result without dropout."""
    x, edges = schema()
    model = spread(hetero_conv(LAYERS[name]))
    for layer in model.convs.values():
        layer.dropout = 0.3
    dfgnn.accelerate(model)
    with torch.no_grad():
        want = model.eval()(x, edges)["a"]
        model.train()
        draws = torch.stack([model(x, edges)["a"] for _ in range(400)])
    assert float(draws.var(0).max()) > 1e-3
    error = draws.std(0) / 20 + 1e-9
    assert float(((draws.mean(0) - want).abs() / error).max()) < 6


def test_relations_that_are_not_there_are_left_out(said):
    x, edges = schema()
    del edges[KINDS[0]], edges[KINDS[6]]
    fast = agree(hetero_conv(LAYERS["SAGE"], aggr="mean"), list(x.values()),
                 lambda model: model(x, edges))
    assert "d" not in fast(x, edges) and not said.text


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_have_memory_of_their_own(name):
    """Whoever writes to one, as clip_grad_norm_ does, writes to one."""
    x, edges = schema()
    model = accelerated(hetero_conv(LAYERS[name]))
    sum(t.sum() for t in model(x, edges).values()).backward()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    for number, grad in enumerate(found):
        grad.fill_(number)
    assert len(found) > 6
    for number, grad in enumerate(found):
        assert torch.equal(grad, torch.full_like(grad, number))


def test_hooks_see_each_layer(said):
    x, edges = schema()
    model, seen = accelerated(hetero_conv(LAYERS["SAGE"])), []
    model(x, edges)
    for layer in model.convs.values():
        layer.register_forward_hook(lambda *_: seen.append(1))
    model(x, edges)
    assert len(seen) == len(KINDS)


def test_options_that_change_between_calls_are_seen():
    x, edges = schema()
    plain = spread(hetero_conv(LAYERS["SAGE"]))
    fast = accelerated(plain)
    for change in (lambda layer: setattr(layer, "normalize", True),
                   lambda layer: setattr(layer, "lin_r", torch.nn.Linear(
                       WIDTH, 8, dtype=torch.float64)),
                   lambda layer: setattr(layer, "aggr_module",
                                         G.MaxAggregation())):
        fast(x, edges)
        change(fast.convs[KINDS[2]])
        plain = copy.deepcopy(fast)
        dfgnn.accelerate(plain, undo=True)
        compare(plain, fast, list(x.values()), lambda model: model(x, edges))


def test_gates_of_features_that_are_left_out_are_left_out():
    plain = spread(G.HeteroConv({kind: G.TransformerConv(
        WIDTH, 4, 2, beta=True) for kind in KINDS}).double())
    fast = accelerated(plain)
    for model in (plain, fast):
        for layer in model.convs.values():
            layer.root_weight = False
    x, edges = schema()
    compare(plain, fast, list(x.values()), lambda m: m(x, edges))


def test_wrong_edges_get_the_error_of_pyg():
    x, edges = schema()
    edges[KINDS[1]] = edges[KINDS[1]] + 100
    with pytest.raises((IndexError, RuntimeError, ValueError)):
        accelerated(hetero_conv(LAYERS["SAGE"]))(x, edges)


def test_undo_pickles_and_state(tmp_path):
    x, edges = schema()
    model = hetero_conv(LAYERS["SAGE"])
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


@pytest.mark.parametrize("channels,together", [(4, True), (512, False)])
def test_gatv2_in_one_pass_on_a_cpu_where_that_is_faster(channels, together,
                                                         said, monkeypatch):
    passes, own = [], kinds_of_layers._dynamic
    monkeypatch.setattr(kinds_of_layers, "_dynamic", lambda *args, **kwargs: (
        passes.append(1), own(*args, **kwargs))[1])
    x, edges = schema()
    agree(hetero_conv(lambda key: G.GATv2Conv(
        (WIDTH, WIDTH), channels, heads=2, add_self_loops=False)),
        list(x.values()), lambda model: model(x, edges))
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
    assert [layer.name for layer in report.joined] == (
        ["conv2"] if layers[0]().__class__ is G.ResGatedGraphConv
        else ["conv1", "conv2"])
    assert "conv2: layer of to_hetero: 5 GATConv in one pass" in str(report)
    assert list(fast.state_dict()) == names
    for model in (fast, copy.deepcopy(fast)):
        compare(plain, model, list(x.values()), lambda m: m(x, edges))
    assert not said.text and not dfgnn.accelerate(fast).joined
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
    weight, attr = of_edges(edges), of_edges(edges, 3)
    plain = G.to_hetero(OfEdges(by_name), (list(nodes), kinds)).double()
    plain(x, edges, weight, attr)
    fast = agree(plain, [*x.values(), *weight.values(), *attr.values()],
                 lambda model: model(x, edges, weight, attr))
    assert "together" in fast.code and not said.text


# ---- what does not lead to the loss -----------------------------------------

class TwoLayers(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.convs = torch.nn.ModuleList(hetero_conv(layer) for _ in range(2))

    def forward(self, x, edges):
        for conv in self.convs:
            x = {kind: torch.cat([t, t], 1)[:, :WIDTH].tanh()
                 for kind, t in conv(x, edges).items()}
        return x


OVER_TYPES = {"HGT": G.HGTConv, "HAN": G.HANConv}


@pytest.mark.parametrize("kind", ["a", "b", "d"])
@pytest.mark.parametrize("name", [*LAYERS, *OVER_TYPES])
def test_what_does_not_lead_to_the_loss_has_no_gradient(name, kind):
    x, edges = schema()
    plain = spread((OVER_TYPES[name](WIDTH, 8, (list(NODES), KINDS), heads=2)
                    if name in OVER_TYPES else TwoLayers(LAYERS[name])
                    ).double())
    gradients_alike(plain, accelerated(plain), list(x.values()), lambda model:
                    model(x, edges)[kind].square().sum())


@pytest.mark.parametrize("kind", ["a", "b"])
def test_a_loss_may_read_the_weights_of_a_type_alone(kind):
    x, edges = schema()
    plain = spread(G.HANConv(WIDTH, 8, (list(NODES), KINDS), heads=2).double())
    gradients_alike(plain, accelerated(plain), list(x.values()), lambda model:
                    model(x, edges, True)[1][kind].square().sum())


def test_a_type_without_nodes_gives_gradients_of_zeros():
    x, edges = schema((12, 9, 8, 0, 0, 0, 3), {**NODES, "c": 0})
    plain = spread(G.HANConv(WIDTH, 8, (list(NODES), KINDS), heads=2).double())
    gradients_alike(plain, accelerated(plain), list(x.values()), lambda model:
                    model(x, edges)["c"].sum())


def test_a_type_of_many_that_no_loss_reads_has_no_gradient():
    nodes, kinds, counts = many_types(12, 25)
    x, edges = schema(counts, nodes, kinds)
    plain = spread(G.HGTConv(WIDTH, 8, (list(nodes), kinds), heads=2).double())
    for kind in list(nodes)[:3]:
        gradients_alike(plain, accelerated(plain), list(x.values()), lambda model:
                        model(x, edges)[kind].square().sum())
