"""Layers whose sums of few numbers are torch's operations."""

import copy
import gc
import weakref

import pytest
import torch
import torch.utils.checkpoint

G = pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from dfgnn import _measure, _remember, _ways, convert  # noqa: E402

N, W = 7, 5
EDGES = torch.tensor([[0, 1, 1, 2, 5, 5, 3], [1, 0, 0, 2, 3, 1, 3]])


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(W, 4), torch.nn.ReLU())


LAYERS = {
    "GINConv": lambda: G.GINConv(mlp(), train_eps=True),
    "GIN mean": lambda: G.GINConv(mlp(), aggr="mean"),
    "SAGEConv": lambda: G.SAGEConv(W, 4, normalize=True),
    "SAGE sum": lambda: G.SAGEConv(W, 4, aggr="sum", project=True),
    "GraphConv": lambda: G.GraphConv(W, 4),
}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(_measure, "enabled", True)
    monkeypatch.setattr(_ways, "FEW_NUMBERS", {"cpu": 1 << 15})
    monkeypatch.setattr(_ways, "_known", {})


@pytest.fixture
def graphs(monkeypatch):
    """The edges of which graphs were made."""
    made, make = [], convert.Graph.of_batch

    def of_batch(edges, *args):
        made.append(edges)
        return make(edges, *args)
    monkeypatch.setattr(convert.Graph, "of_batch", of_batch)
    return made


def step(layer, x, edges):
    """The result, the gradients, and gradients of gradients by x."""
    xs = [t.clone().requires_grad_() for t in (x if type(x) is tuple else (x,))]
    out = layer(tuple(xs) if type(x) is tuple else xs[0], edges)
    leaves = [*xs, *layer.parameters()]
    grads = torch.autograd.grad((out ** 2).sum(), leaves, create_graph=True,
                                allow_unused=True)
    again = torch.autograd.grad(sum((g ** 2).sum() for g in grads if g is not None),
                                xs, allow_unused=True)
    return [out, *grads, *again]


@pytest.mark.parametrize("edges", [
    EDGES, EDGES.int(), EDGES.repeat(1, 2)[:, ::2], EDGES.t().contiguous().t()],
    ids=["int64", "int32", "strided", "transposed"])
@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_numbers_and_gradients_are_pygs(name, pair, edges, graphs):
    plain = LAYERS[name]().double()
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    x = torch.randn(N, W, dtype=torch.float64)
    if pair:
        x = x, torch.randn(N - 2, W, dtype=torch.float64)
    for _ in range(2):
        torch.testing.assert_close(step(fast, x, edges),
                                   step(plain, x, edges.long()))
    assert not graphs


@pytest.mark.parametrize("change", [
    "many", "half", "deterministic", "capture", "unmeasured", "extremes"])
def test_kernels_run_otherwise(change, graphs, monkeypatch):
    layer, x = LAYERS["GraphConv"](), torch.randn(N, W)
    dfgnn.accelerate(layer)
    if change == "many":
        monkeypatch.setattr(_ways, "FEW_NUMBERS", {"cpu": EDGES.size(1) * W - 1})
    elif change == "half":
        layer, x = layer.bfloat16(), x.bfloat16()
    elif change == "deterministic":
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled",
                            lambda: True)
    elif change == "capture":
        monkeypatch.setattr(_remember, "current", _remember.Recording())
    elif change == "unmeasured":
        monkeypatch.setattr(_measure, "enabled", False)
    elif change == "extremes":
        layer = G.GraphConv(W, 4, aggr="max")
        dfgnn.accelerate(layer)
    edges = EDGES.clone()
    made = []
    monkeypatch.setattr(dfgnn._kernel_links.FewEdges, "sums",
                        lambda *args: made.append(args))
    layer(x, edges)
    assert not made and convert.graphs_of(edges)


def test_the_way_may_be_chosen(ways, graphs):
    layer = LAYERS["GINConv"]()
    dfgnn.accelerate(layer)
    ways(sums_of_neighbours="kernels")
    layer(torch.randn(N, W), EDGES.clone())
    assert graphs


@pytest.mark.parametrize("name", LAYERS)
def test_kernels_run_where_a_layer_has_the_edges_again(name, graphs, monkeypatch):
    monkeypatch.setattr(_ways, "GRAPHS_PAY", ("cpu",))
    plain = LAYERS[name]().double(), LAYERS[name]().double()
    fast = copy.deepcopy(plain)
    for layer in fast:
        dfgnn.accelerate(layer, guard=False)
    edges, x = EDGES.clone(), torch.randn(N, W, dtype=torch.float64)
    for call in range(3):
        for one, other in zip(fast, plain):
            torch.testing.assert_close(step(one, x, edges),
                                       step(other, x, edges))
        assert len(graphs) == (call > 0)  # both layers' is made once
    torch.testing.assert_close(step(fast[0], x, EDGES.clone()),
                               step(plain[0], x, EDGES))
    assert len(graphs) == 1  # edges that are new have none


def test_both_runs_of_a_checkpoint_take_one_way(graphs, monkeypatch):
    monkeypatch.setattr(_ways, "GRAPHS_PAY", ("cpu",))
    layer, edges = LAYERS["SAGEConv"](), EDGES.clone()
    dfgnn.accelerate(layer, guard=False)
    x = torch.randn(N, W, requires_grad=True)
    out = torch.utils.checkpoint.checkpoint(layer, x, edges, use_reentrant=False)
    for _ in range(2):
        layer(x, edges)
    assert graphs
    out.sum().backward()
    torch.testing.assert_close(
        x.grad, torch.autograd.grad(layer(x, edges).sum(), x)[0])


@pytest.mark.parametrize("warm", [1, 2, 3])
def test_no_graph_is_made_while_one_of_cuda_is_captured(warm, graphs, monkeypatch):
    from dfgnn.nn import _node
    monkeypatch.setattr(_ways, "GRAPHS_PAY", ("cpu",))
    layers, edges = [LAYERS["SAGEConv"]() for _ in range(2)], EDGES.clone()
    for layer in layers:
        dfgnn.accelerate(layer, guard=False)
    x = torch.randn(N, W)
    for layer in layers * warm:
        layer(x, edges)
    monkeypatch.setattr(_node, "_capturing", lambda tensor: True)
    by_torch = []
    monkeypatch.setattr(dfgnn._kernel_links.FewEdges, "sums",
                        lambda *args: by_torch.append(args) or x)
    for layer in layers:
        layer(x, edges)
    assert len(by_torch) == 2 * (warm == 1) and len(graphs) == (warm > 1)


def test_no_way_is_overruled_that_was_asked_for(ways, graphs, monkeypatch):
    monkeypatch.setattr(_ways, "GRAPHS_PAY", ("cpu",))
    layer, edges = LAYERS["GINConv"](), EDGES.clone()
    dfgnn.accelerate(layer, guard=False)
    ways(sums_of_neighbours="torch")
    for _ in range(3):
        layer(torch.randn(N, W), edges)
    assert not graphs


def test_tuning_measures_kernels_and_both_ways(monkeypatch, tmp_path):
    monkeypatch.setenv("DFGNN_STORE", str(tmp_path / "store.db"))
    model = G.GIN(W, W, 2, 3)
    dfgnn.accelerate(model)
    x = torch.randn(N, W)
    tuned = dfgnn.tune(model, x, EDGES, budget=2.0)
    assert tuned.recording.problems
    (name, way, times), = [t for t in tuned.ways
                           if t[0] == "sums of neighbours"]
    assert way == "torch" and set(times) == {"torch", "kernels"}


def test_edges_that_were_written_to_are_read_anew():
    plain, x, edges = LAYERS["SAGEConv"](), torch.randn(N, W), EDGES.clone()
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    for _ in range(2):
        torch.testing.assert_close(fast(x, edges), plain(x, edges))
        edges[1].fill_(4)
        torch.testing.assert_close(fast(x, edges), plain(x, edges))
        edges.data = torch.tensor([[1, 3], [2, 2]])


def test_edges_are_freed():
    layer, edges = LAYERS["SAGEConv"](), EDGES.clone()
    dfgnn.accelerate(layer)
    layer(torch.randn(N, W), edges).sum().backward()
    gone = weakref.ref(edges)
    del edges
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["GINConv", "SAGEConv"])
@pytest.mark.parametrize("node", [-1, N])
def test_a_node_out_of_range_is_pygs_error(name, node):
    plain, edges = LAYERS[name](), EDGES.clone()
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    for row in 0, 1:
        edges[:] = EDGES
        edges[row, 3] = node
        errors = []
        for layer in plain, fast:
            with pytest.raises(Exception) as raised:
                layer(torch.randn(N, W), edges)
            errors.append((type(raised.value), str(raised.value)))
        assert errors[0] == errors[1]
