"""The ways of layers: what is estimated, what dfgnn.tune() of a model measures,
and what later calls and processes take of it."""

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from dfgnn import _measure, _ways, recordings
from conftest import random_edges

CPU, GPU = torch.device("cpu"), torch.device("cuda")
EDGES, FIELDS = random_edges(40, 40, 160), 5
FEW_NUMBERS = dict(_ways.FEW_NUMBERS)  # conftest.py takes it away


@pytest.fixture
def file(monkeypatch, tmp_path):
    """The file of times."""
    monkeypatch.setenv("DFGNN_STORE", f"{tmp_path}/t.db")
    monkeypatch.setattr(_measure, "enabled", True)
    monkeypatch.setattr(_ways, "_files", {})
    _ways._changed()
    yield tmp_path / "t.db.paths"
    monkeypatch.undo()
    _ways._changed()


@pytest.fixture
def times(monkeypatch):
    """By way the ms that a step takes; 1 of those that it has not."""
    by_way = {}
    monkeypatch.setattr(recordings, "_step_ms", lambda *step: max(
        by_way.get(way, 1.) for way in (*_ways._forced.values(), None)))
    return by_way


def later_process():
    _ways._files.clear()
    _ways._changed()


@pytest.mark.parametrize("name, device, arguments, best", [
    ("product_of_edge_features", CPU, (32, 64), "in kernels"),
    ("product_of_edge_features", CPU, (33, 64), "before"),
    ("product_of_edge_features", GPU, (17, 64), "before"),
    ("sums_over_types", CPU, (16, 50, 99), "one node"),
    ("sums_over_types", CPU, (17, 50, 99), "tiles"),
    ("sums_over_types", CPU, (17, 50, 9999), "one node"),
    ("sums_over_types", GPU, (17, 50, 9999), "tiles"),
    ("rows_of_relations", CPU, (30, 20), "nodes"),
    ("rows_of_relations", CPU, (31, 20), "pairs"),
    ("gatv2_of_relations", CPU, (1 << 10, 32), "one pass"),
    ("gatv2_of_relations", CPU, (1 << 10, 33), "each relation"),
    ("gatv2_of_relations", GPU, (1 << 30, 33), "one pass"),
    ("attention_of_relations", GPU, (1 << 15, 1 << 15, False),
     "projected last"),
    ("attention_of_relations", GPU, (1 << 15, 1 << 15, True),
     "projected first"),
    ("attention_of_relations", CPU, (-9, 1 << 30, False), "projected first"),
    ("sums_over_relations", CPU, (100, 50, 9, 0, True), "by pair"),
    ("sums_over_relations", CPU, (100, 50, 9, 0, False), "by node"),
    ("sums_over_relations", CPU, (100, 5000, 9, 0, True), "by node"),
    ("sums_over_relations", CPU, (1000, 5000, 90, 2, True), "by bases"),
    ("sums_over_relations", GPU, (1000, 5000, 90, 2, True), "by bases"),
    ("sums_over_relations", GPU, (1000, 50000, 2, 30, True), "by node"),
    ("products_of_groups", CPU, (900, 8, False), "one by one"),
    ("products_of_groups", CPU, (576, 9, False), "tiles of 32"),
    ("products_of_groups", CPU, (577, 9, False), "tiles of 128"),
    ("products_of_groups", CPU, (1 << 20, 9, False), "one by one"),
    ("products_of_groups", GPU, (900, 9, True), "one kernel"),
    ("sums_by_index", CPU, ("max", 1 << 15, 8), "kernels"),
    ("sums_by_index", CPU, ("max", 1 << 15, 7), "torch"),
    ("sums_by_index", CPU, ("sum", 1 << 20, 64), "torch"),
    ("sums_by_index", GPU, ("sum", 9, 1), "torch"),
    ("sums_by_index", GPU, ("max", 9, 1), "kernels"),
    ("sums_by_index", GPU, ("sum", 1 << 25, 1), "kernels"),
    ("sums_of_neighbours", GPU, (1 << 24,), "torch"),
    ("sums_of_neighbours", GPU, (1 << 25,), "kernels"),
    ("sums_of_neighbours", CPU, (1 << 15,), "torch"),
    ("sums_of_neighbours", CPU, (1 << 16,), "kernels")])
def test_estimates(name, device, arguments, best, monkeypatch):
    monkeypatch.setattr(_ways, "FEW_NUMBERS", FEW_NUMBERS)
    ways = getattr(_ways, name).__wrapped__(device, *arguments)
    assert ways[0] == best and len(set(ways)) == len(ways)


def gine(aggr="add"):
    torch.manual_seed(3)
    layer = G.GINEConv(torch.nn.Linear(8, 4), edge_dim=FIELDS, aggr=aggr)
    dfgnn.accelerate(layer, check=False, guard=False)
    return layer, torch.randn(40, 8), EDGES, torch.randn(EDGES.size(1), FIELDS)


def way():
    return _ways.product_of_edge_features(CPU, FIELDS, 8)


@pytest.mark.parametrize("fast, slow", [("before", "in kernels"),
                                        ("in kernels", "before")])
def test_the_fastest_way_is_taken_from_then_on(file, times, fast, slow):
    layer, *inputs = gine()
    expected = layer(*inputs)
    times.update({fast: 2., slow: 3.})
    tuned = dfgnn.tune(layer, *inputs, budget=.2)
    assert tuned.ways == [("product of edge features", "in kernels",
                           {fast: 2., slow: 3.})]
    assert f"2 ms by {fast}" in repr(tuned)
    assert way() == fast
    later_process()
    assert way() == fast
    torch.testing.assert_close(layer(*inputs), expected)
    # of about as many features, and of no others
    assert _ways.product_of_edge_features(CPU, FIELDS + 1, 8) == "in kernels"
    file.unlink()
    later_process()
    assert way() == "in kernels"


def test_nothing_is_read_where_nothing_is_measured(file, times, monkeypatch):
    layer, *inputs = gine()
    times.update({"before": 2., "in kernels": 3.})
    dfgnn.tune(layer, *inputs, budget=.2)
    monkeypatch.setattr(_measure, "enabled", False)
    later_process()
    assert way() == "in kernels"


def test_times_of_other_ways_are_passed_over(file, times):
    layer, *inputs = gine()
    dfgnn.tune(layer, *inputs, budget=.2)
    file.write_text(file.read_text().replace("before", "behind").replace(
        "in kernels", "inside"))
    later_process()
    assert way() == "in kernels"


def test_real_times_of_all_ways_that_a_step_meets(file):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = gine("mean")[0]
            self.second = G.RGCNConv(4, 4, 30)
            dfgnn.accelerate(self.second, check=False, guard=False)

        def forward(self, x, edges, attr, types):
            return self.second(self.first(x, edges, attr), edges, types)
    _, *inputs = gine()
    inputs.append(torch.randint(30, (EDGES.size(1),)))
    model = Model()
    before = model(*inputs)
    tuned = dfgnn.tune(model, *inputs, budget=20.)
    assert [name for name, _, _ in tuned.ways] == [
        "product of edge features", "sums over relations",
        "products of groups"]
    assert all(len(ms) > 1 and min(ms.values()) > 0
               for _, _, ms in tuned.ways)
    assert len(file.read_text().split("\n")) == 4  # each begins a line
    torch.testing.assert_close(model(*inputs), before)
    assert not _ways._forced and _ways._met is None
