"""Bad input raises an exception that names the argument, what it got and what
it takes; the process goes on."""

import numpy as np
import pytest
import torch

import dfgnn
from dfgnn.nn import GATConv, GATv2Conv, TransformerConv

N, M, H, D = 6, 5, 2, 4
EDGES = torch.tensor([[0, 1, 4], [5, 0, 0]])


def gt(query=None, key=None, value=None, edges=EDGES, **options):
    pick = [torch.randn(n, H, D) if t is None else t
            for n, t in ((N, query), (M, key), (M, value))]
    return dfgnn.gt_attention(edges, *pick, **options)


_CSR = torch.tensor([0, 1, 3]), torch.tensor([0, 1, 0])


def _ordered(order):
    return dfgnn.Graph(*_CSR, edge_order=torch.tensor(order))


def _edge_index(edges, size, **options):
    pyg = pytest.importorskip("torch_geometric")
    return dfgnn.as_graph(pyg.EdgeIndex(torch.tensor(edges), sparse_size=size,
                                        **options))


CASES = {
    "dtype of features": (
        lambda: gt(query=torch.ones(N, H, D, dtype=torch.int64)),
        TypeError, "query .*float32.*int64"),
    "two dtypes": (
        lambda: gt(key=torch.randn(M, H, D).double()),
        TypeError, "query and key .*float32.*float64"),
    "not a tensor": (
        lambda: dfgnn.gat_attention(EDGES, torch.randn(M, H, D), [[1.0]],
                                    torch.randn(M, H)),
        TypeError, "score_dst .*list"),
    "dimensions": (
        lambda: gt(query=torch.randn(N, H * D), key=torch.randn(M, H * D),
                   value=torch.randn(M, H * D)),
        ValueError, r"query must be \[destinations=6, heads, features\], got "
                    r"a float32 tensor \[6, 8\]"),
    "heads": (
        lambda: gt(key=torch.randn(M, H + 1, D)),
        ValueError, r"key must be .*heads=2.*\[5, 3, 4\]"),
    "values of another number of sources": (
        lambda: gt(value=torch.randn(M + 1, H, D)),
        ValueError, r"value must be \[sources=5"),
    "no heads": (
        lambda: gt(*(torch.randn(n, 0, D) for n in (N, M, M))),
        ValueError, "at least one head"),
    "bias": (
        lambda: gt(bias=torch.randn(2, H)),
        ValueError, r"bias must be \[edges=3, heads=2\]"),
    "dropout": (lambda: gt(dropout=1.5), ValueError, "dropout .*1.5"),
    "edge_attr without weight": (
        lambda: gt(edge_attr=torch.randn(3, 2)), ValueError, "edge_projection"),
    "edge_attr of other edges": (
        lambda: gt(edge_attr=torch.randn(2, 2),
                   edge_projection=torch.randn(H * D, 2)),
        ValueError, r"edge_attr must be \[edges=3"),
    "edge_index of floats": (
        lambda: gt(edges=EDGES.float()), TypeError,
        "edge_index must be int32 or int64, got a float32"),
    "edge_index of three rows": (
        lambda: gt(edges=torch.zeros(3, 4, dtype=torch.int64)),
        ValueError, r"edge_index must be \[2, edges\]"),
    "edge_index of one dimension": (
        lambda: gt(edges=torch.zeros(3, dtype=torch.int64)),
        ValueError, "edge_index must have 2 dimensions"),
    "source out of range": (
        lambda: gt(edges=torch.tensor([[0, 5], [0, 0]])),
        ValueError, r"edge_index\[0, 1\] = 5 .*0\.\.4"),
    "destination out of range": (
        lambda: gt(edges=torch.tensor([[0, 0], [0, 6]])),
        ValueError, r"edge_index\[1, 1\] = 6 .*0\.\.5"),
    "negative index": (
        lambda: gt(edges=torch.tensor([[0, -1], [0, 0]])),
        ValueError, r"edge_index\[0, 1\] = -1 "),
    "index beyond int32": (
        lambda: gt(edges=torch.tensor([[0, 2 ** 33], [0, 0]])),
        ValueError, r"edge_index\[0, 1\] = 8589934592"),
    "sources beyond int32": (
        lambda: dfgnn.as_graph(torch.tensor([[0], [0]]), (2 ** 31, 3)),
        ValueError, "2147483648"),
    "offsets that fall": (
        lambda: dfgnn.Graph(torch.tensor([0, 2, 1]), torch.tensor([0])),
        ValueError, "row|offset"),
    "indices out of range": (
        lambda: dfgnn.Graph(torch.tensor([0, 1]), torch.tensor([3])),
        ValueError, "row 0"),
    "offsets of floats": (
        lambda: dfgnn.Graph(torch.tensor([0.0, 1.0]), torch.tensor([0])),
        TypeError, "offsets must be int32 or int64"),
    "no offsets": (
        lambda: dfgnn.Graph(torch.tensor([], dtype=torch.int64),
                            torch.tensor([], dtype=torch.int64)),
        ValueError, "offsets"),
    "edge_order of other edges": (
        lambda: dfgnn.Graph(torch.tensor([0, 1]), torch.tensor([0]),
                            edge_order=torch.tensor([0, 1])),
        ValueError, "edge_order must have 1"),
    "edge_order with a foreign entry": (
        lambda: _ordered([0, 7, 1]), ValueError, "0 to 2 once, got 7 at 1"),
    "edge_order with a negative entry": (
        lambda: _ordered([0, 1, -3]), ValueError, "0 to 2 once, got -3 at 2"),
    "edge_order with an entry twice": (
        lambda: _ordered([0, 1, 1]), ValueError, "got 1 2 times"),
    "num_nodes beyond 64 bits": (
        lambda: dfgnn.as_graph(EDGES.clone(), 2 ** 64 + 6),
        ValueError, "num_nodes must be 0 to 2147483647, got 18446744073709551"
                    "622"),
    "num_nodes with a fraction": (
        lambda: dfgnn.as_graph(EDGES.clone(), 6.5), TypeError,
        "num_nodes must be a whole number, got float 6.5"),
    "num_nodes of text": (
        lambda: dfgnn.as_graph(EDGES.clone(), "6"), TypeError,
        "num_nodes must be a whole number, got str '6'"),
    "negative destinations": (
        lambda: dfgnn.as_graph(EDGES.clone(), (6, -1)), ValueError,
        "num_nodes must be 0 to 2147483647, got -1"),
    "negative destinations of CSR tensors": (
        lambda: dfgnn.as_graph(_CSR, (6, -2)), ValueError,
        "num_nodes must be 0 to 2147483647, got -2"),
    "other destinations than offsets have": (
        lambda: dfgnn.as_graph(_CSR, (6, 5)), ValueError,
        "5 destinations, but offsets are of 2"),
    "num_src with a fraction": (
        lambda: dfgnn.Graph(*_CSR, 2.5), TypeError,
        "num_src must be a whole number"),
    "num_src beyond 64 bits": (
        lambda: dfgnn.Graph(*_CSR, 2 ** 64 + 4), ValueError, "num_src must"),
    "an EdgeIndex with a destination beyond its size": (
        lambda: _edge_index([[0, 1], [1, 700000]], (3, 3)), ValueError,
        r"edge_index\[1, 1\].*700000"),
    "a sorted EdgeIndex with a source beyond its size": (
        lambda: _edge_index([[0, 900], [1, 2]], (3, 3), sort_order="col"),
        ValueError, r"edge_index\[0, 1\].*900"),
    "an edge between graphs of a batch": (
        lambda: dfgnn.as_graph(torch.tensor([[0], [3]]), 4,
                               graph_ptr=[0, 2, 4]),
        ValueError, "graph"),
    "no query": (
        lambda: dfgnn.gt_attention(EDGES, None, *[torch.randn(M, H, D)] * 2),
        TypeError, "query must be a tensor, got NoneType"),
    "an array of NumPy": (
        lambda: dfgnn.gt_attention(EDGES, *[np.zeros((M, H, D))] * 3),
        TypeError, "query must be a tensor, got ndarray"),
    "no value": (
        lambda: dfgnn.gt_attention(EDGES, *[torch.randn(M, H, D)] * 2, None),
        TypeError, "value must be a tensor, got NoneType"),
    "no scores": (
        lambda: dfgnn.score_attention(EDGES, None, torch.randn(M, H, D)),
        TypeError, "scores must be a tensor"),
    "a value without heads": (
        lambda: dfgnn.score_attention(EDGES, torch.randn(3, H),
                                      torch.randn(M, D)),
        ValueError, r"value must be \[sources, heads, features\]"),
    "no features of a message": (
        lambda: dfgnn.relu_messages(EDGES, None, torch.randn(3, D)),
        TypeError, "got NoneType"),
    "a scale of text": (
        lambda: gt(scale="a"), TypeError, "scale must be a number, got str"),
    "dropout of text": (
        lambda: gt(dropout="a"), TypeError, "dropout must be a number"),
    "a budget of text": (
        lambda: dfgnn.tune(EDGES, "gt", 8, budget="1s"), TypeError,
        "budget must be a number, got str '1s'"),
    "a budget of text for a model": (
        lambda: dfgnn.tune(torch.nn.Linear(2, 2), torch.ones(1, 2), budget="1s"),
        TypeError, "budget must be a number, got str '1s'"),
    "a family that is a number": (
        lambda: dfgnn.as_graph(EDGES.clone(), 6, family=3), TypeError,
        "family must be a str, got int 3"),
    "capacity that is a number": (
        lambda: dfgnn.capture(lambda x: x, capacity=3), TypeError,
        "capacity must be a dict.*got int 3"),
    "measure of text": (
        lambda: dfgnn.measure("no"), TypeError, "True or False, got 'no'"),
    "an index of floats": (
        lambda: dfgnn.scatter(torch.randn(3), torch.zeros(3)), TypeError,
        "index must be int32 or int64, got a float32"),
    "no tensor to scatter": (
        lambda: dfgnn.scatter(None, torch.zeros(3).long()), TypeError,
        "src must be a tensor"),
    "a bias of pairs": (
        lambda: dfgnn.dense_attention(
            torch.tensor([0, 0, 1]), *[torch.randn(3, H, D)] * 3,
            bias=torch.randn(1, H)), ValueError,
        r"bias must be \[pairs=5, heads\] or \[graphs, heads, nodes, nodes\]"),
    "not a graph": (lambda: dfgnn.as_graph("cora"), TypeError, "'cora'"),
    "no such op": (
        lambda: dfgnn.tune(EDGES, "gcn2"), ValueError, "op must be .*gcn2"),
    "no such message": (
        lambda: dfgnn.tune(EDGES, "spmm-sum", message="shout"), ValueError,
        "message must be .*'shout'"),
    "no such problem": (
        lambda: dfgnn.explain(EDGES, "gt", 16, depth=2), TypeError, "depth"),
    "no such dtype": (
        lambda: dfgnn.explain(dfgnn.as_graph(EDGES), dtype="int8"),
        TypeError, "dtype must be .*int8"),
    "features of another graph": (
        lambda: gt(edges=dfgnn.as_graph(EDGES, (M, N + 1))),
        ValueError, r"query must be \[destinations=7"),
    "a device that is neither": (
        lambda: dfgnn.Graph(torch.zeros(2, dtype=torch.int64, device="meta"),
                            torch.zeros(0, dtype=torch.int64, device="meta")),
        ValueError, "cpu and cuda.*meta"),
    "an aggregation": (
        lambda: TransformerConv(3, 4, aggr="max"), ValueError, "aggr"),
    "a flow": (lambda: GATConv(3, 4, flow="up"), ValueError, "flow"),
    "an unknown argument": (
        lambda: GATv2Conv(3, 4, colour=1), TypeError, "colour"),
    "edge features that are missing": (
        lambda: TransformerConv(3, 4, edge_dim=2)(torch.randn(6, 3), EDGES),
        ValueError, "edge_attr is None"),
    "edge features of a layer that has none": (
        lambda: TransformerConv(3, 4)(torch.randn(6, 3), EDGES,
                                      torch.randn(3, 1, 4)),
        ValueError, "edge_attr is given"),
    "x of three dimensions": (
        lambda: GATConv(3, 4)(torch.randn(1, 6, 3), EDGES), ValueError, "x"),
    "no features of destinations": (
        lambda: TransformerConv(3, 4)((torch.randn(6, 3), None), EDGES),
        ValueError, "TransformerConv needs features of destinations"),
    "static graphs of destinations": (
        lambda: GATConv((3, 3), 4)((torch.randn(6, 3), torch.randn(2, 6, 3)),
                                   EDGES), ValueError, "static"),
    "fill_value": (
        lambda: GATConv(3, 4, edge_dim=2, fill_value="median")(
            torch.randn(6, 3), EDGES, torch.randn(3, 2)),
        ValueError, "median"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named(name):
    call, kind, message = CASES[name]
    with pytest.raises(kind, match=message):
        call()
    assert torch.isfinite(gt()).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_graph_and_features_on_two_devices():
    with pytest.raises(ValueError, match="query .*cuda.*the graph is on cpu"):
        gt(query=torch.randn(N, H, D, device="cuda"),
           edges=dfgnn.as_graph(EDGES, (M, N)))
    assert torch.isfinite(gt()).all()


def test_a_library_that_is_missing_is_named(tmp_path):
    from test_graph import run_python
    code = """
import dfgnn
try:
    dfgnn.version()
except ImportError as error:
    assert "nowhere" in str(error), error
else:
    raise SystemExit("loaded")
"""
    run_python(code, DFGNN_LIBRARY="/nowhere/libdfgnn.so")
