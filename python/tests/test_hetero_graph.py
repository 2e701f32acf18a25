"""HeteroGraph: relations laid out in rows and columns, and its errors."""

import gc
import weakref

import pytest
import torch

import dfgnn
from dfgnn import _remember
from dfgnn._relations import pairs as of_pairs
from dfgnn.hetero import hetero_graph, typed_graph

NODES = {"a": 5, "b": 3, "c": 0, "d": (2, 4)}
KINDS = [("a", "x", "a"), ("b", "x", "a"), ("a", "y", "b"), ("a", "z", "b"),
         ("d", "x", "d"), ("c", "x", "a"), ("b", "x", "d")]


def size(kind, side):
    n = NODES[kind]
    return n[side] if isinstance(n, tuple) else n


def edges_of(counts=(7, 4, 6, 0, 5, 0, 3)):
    return {(s, r, d): torch.stack([
        torch.randint(max(1, size(s, 0)), (n,)),
        torch.randint(max(1, size(d, 1)), (n,))])
        for (s, r, d), n in zip(KINDS, counts)}


def test_rows_by_node_are_those_of_the_types_one_after_the_other():
    edges = edges_of()
    graph = dfgnn.HeteroGraph(edges, NODES)
    assert graph.type_begins("dst") == {
        "a": 0, "b": 5, "c": 8, "d": 8, None: 12}
    assert graph.type_begins("src", 4) == {
        "a": 0, "b": 8, "c": 12, "d": 12, None: 16}
    made = graph.graph(graph.by_node("dst"), graph.by_node("src"))
    assert (made.num_dst, made.num_src) == (12, 10)
    want = torch.cat([part + torch.tensor([
        [graph.type_begins("src")[s]], [graph.type_begins("dst")[d]]])
        for (s, _, d), part in edges.items()], 1)
    assert torch.equal(made.edge_index, want)


def test_rows_by_relation_are_those_of_a_node_one_after_the_other():
    edges = edges_of()
    graph = dfgnn.HeteroGraph(edges, NODES)
    rows = graph.by_relation("dst")
    assert rows.size == 3 * 5 + 2 * 3 + 2 * 4
    blocks = graph.blocks("dst")
    assert blocks["a"].relations == (0, 1, 5)
    found = torch.zeros(rows.size)
    for r, (key, part) in enumerate(edges.items()):
        for i in part[1].tolist():
            found[rows.begin[r] + i * rows.step[r]] += 1
    for kind, block in blocks.items():
        part = graph.split_blocks("dst", found)[kind]
        for slot, r in enumerate(block.relations):
            ends = edges[KINDS[r]][1]
            want = torch.bincount(ends, minlength=size(kind, 1)).float()
            assert torch.equal(part[:, slot], want)


@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
@pytest.mark.parametrize("most", [0, 4])
@pytest.mark.parametrize("align", [1, 4])
def test_sums_over_pairs_and_then_over_relations_are_those_of_all(
        align, most, kind, monkeypatch):
    monkeypatch.setattr(of_pairs, "_MOST_MARKS", most)
    edges = {key: part.to(kind) for key, part in edges_of().items()}
    graph = dfgnn.HeteroGraph(edges, NODES)
    pairs = graph.pairs(graph.by_node("src"), align)
    assert all(start % align == 0 for start in pairs.starts)
    x = torch.randn(graph.by_node("src").size, 3, dtype=torch.float64)
    within = dfgnn.spmm(pairs.within, x)
    found = dfgnn.spmm(pairs.across, within)
    want = dfgnn.spmm(graph.graph(graph.by_node("dst"),
                                  graph.by_node("src")), x)
    torch.testing.assert_close(found, want)
    count = graph.number_of_pairs()
    assert pairs.relation.tolist() == [
        r for r, part in enumerate(edges.values())
        for _ in part[1].unique()]
    assert count == sum(part[1].unique().numel() for part in edges.values())
    assert pairs.relation.numel() == pairs.node.numel() == count


def test_degrees_are_those_within_a_relation():
    edges = edges_of()
    graph = dfgnn.HeteroGraph(edges, NODES)
    want = torch.cat([torch.bincount(p[1], minlength=9)[p[1]]
                      for p in edges.values()])
    assert torch.equal(graph.degrees(), want)


def test_a_list_with_types_is_the_same_graph():
    src, dst = torch.randint(6, (2, 40))
    kind = torch.randint(3, (40,))
    graph = dfgnn.HeteroGraph.from_edge_types(torch.stack([src, dst]), kind,
                                              6, 4)
    made = graph.graph(graph.by_relation("dst"), graph.by_node("src"))
    assert torch.equal(made.edge_index, torch.stack([src, dst * 4 + kind]))
    made = graph.graph(graph.by_node("dst"), graph.in_turn("src"))
    assert torch.equal(made.edge_index, torch.stack([src + 6 * kind, dst]))
    with pytest.raises(ValueError, match="one list"):
        graph.split(kind)


def test_features_of_edges_are_in_the_order_of_the_relations():
    edges = edges_of()
    graph = dfgnn.HeteroGraph(edges, NODES)
    given = {key: torch.rand(part.size(1), 2) for key, part in edges.items()}
    joined = graph.concatenate(given)
    assert all(torch.equal(part, given[key])
               for key, part in graph.split(joined).items())
    assert torch.equal(joined, torch.cat(list(given.values())))


def test_from_data():
    from torch_geometric.data import HeteroData
    data = HeteroData()
    data["a"].x, data["b"].x = torch.rand(4, 2), torch.rand(3, 2)
    data["a", "to", "b"].edge_index = torch.tensor([[0, 3], [2, 1]])
    graph = dfgnn.HeteroGraph.from_data(data)
    assert graph.num_src == {"a": 4, "b": 3} and graph.num_edges == 2
    with pytest.raises(TypeError, match="HeteroData"):
        dfgnn.HeteroGraph.from_data([1])


@pytest.mark.parametrize("make, message", [
    (lambda e: dfgnn.HeteroGraph({}, NODES), "at least one relation"),
    (lambda e: dfgnn.HeteroGraph([], NODES), "dict of edge_index"),
    (lambda e: dfgnn.HeteroGraph({"a": e}, NODES), "source type, name"),
    (lambda e: dfgnn.HeteroGraph({KINDS[0]: e}, {"b": 3}), "no type 'a'"),
    (lambda e: dfgnn.HeteroGraph({KINDS[0]: e}, {"a": (1, 2, 3)}),
     "sources, destinations"),
    (lambda e: dfgnn.HeteroGraph({KINDS[0]: e}, {"a": -1}), "num_nodes of"),
    (lambda e: dfgnn.HeteroGraph({KINDS[0]: e.float()}, NODES), "int64"),
    (lambda e: dfgnn.HeteroGraph({KINDS[0]: e, KINDS[1]: e.int()}, NODES),
     "all must be of one type"),
    (lambda e: dfgnn.HeteroGraph({KINDS[0]: e, KINDS[1]: e + 2}, NODES),
     r"edge_index\[0, 1\] of \('b', 'x', 'a'\) is 3.*expected 0 to 2"),
    (lambda e: dfgnn.HeteroGraph({KINDS[1]: e, KINDS[0]: e - 1}, NODES),
     r"\[0, 0\] of \('a', 'x', 'a'\) is -1"),
    (lambda e: dfgnn.HeteroGraph({KINDS[0]: e + torch.tensor([[0], [4]])},
                                 NODES), r"\[1, 1\].*5 destinations"),
    (lambda e: dfgnn.HeteroGraph.from_edge_types(e, e[0, :1], 5, 2),
     "edge_type must be"),
    (lambda e: dfgnn.HeteroGraph.from_edge_types(e, e[0], 5, 1),
     "edge_type must be 0 to 0, got 1"),
])
def test_what_is_wrong_is_named(make, message):
    edges = torch.tensor([[0, 1], [0, 1]])
    with pytest.raises((ValueError, TypeError), match=message):
        make(edges)


def test_trusted_edges_are_not_looked_at():
    graph = dfgnn.HeteroGraph({KINDS[1]: torch.tensor([[0], [4]])}, NODES,
                              trusted=True)
    assert graph.num_edges == 1


@pytest.mark.parametrize("make", [
    lambda e: hetero_graph({KINDS[0]: e}, {"a": 5}),
    lambda e: hetero_graph({KINDS[0]: e, KINDS[1]: e.clone()},
                           {"a": 5, "b": 5}),
    lambda e: typed_graph(e, torch.zeros(3, dtype=torch.int64), 5, 2)])
def test_a_graph_is_kept_as_long_as_its_edges_live_unchanged(make):
    edges = torch.zeros(2, 3, dtype=torch.int64)
    graph = make(edges)
    kept = len(_remember._entries)
    assert edges.untyped_storage().data_ptr()
    edges[0, 0] = 1
    assert make(edges) is not graph
    gone = weakref.ref(edges)
    del edges, graph
    gc.collect()
    assert gone() is None and len(_remember._entries) == kept - 1


def test_the_same_edges_are_the_same_graph():
    edges = edges_of()
    graph = hetero_graph(edges, NODES)
    assert hetero_graph(dict(edges), NODES) is graph
    rows, columns = graph.by_node("dst"), graph.in_turn("src")
    assert graph.graph(rows, columns) is graph.graph(rows, columns)


def test_moving_to_the_same_device_is_the_graph_itself():
    graph = dfgnn.HeteroGraph(edges_of(), NODES)
    assert graph.to("cpu") is graph
    assert "7 relations" in repr(graph)


def test_a_graph_of_relations_is_no_graph_of_one_list():
    graph = dfgnn.HeteroGraph(edges_of(), NODES)
    for call in (dfgnn.as_graph, lambda graph: dfgnn.spmm(
            graph, torch.randn(30, 4)), lambda graph: dfgnn.nn.SAGEConv(4, 4)(
            torch.randn(30, 4), graph)):
        with pytest.raises(TypeError, match="got HeteroGraph"):
            call(graph)
