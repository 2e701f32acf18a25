"""Graphs: made of every form of edges, kept, pickled, moved and tuned."""

import copy
import gc
import multiprocessing
import pickle
import weakref

import numpy
import pytest
import scipy.sparse
import torch

import dfgnn
from dfgnn import _remember

from conftest import PATIENCE, random_edges

SIZES = (14, 17)


def same_edges(graph, edges):
    assert torch.equal(graph.edge_index, edges.long())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_an_edge_index_in_any_order(dtype, device):
    edges = random_edges(*SIZES, 60, device, dtype)
    graph = dfgnn.as_graph(edges, SIZES)
    assert (graph.num_src, graph.num_dst, graph.num_edges) == (*SIZES, 63)
    assert graph.device == device
    same_edges(graph, edges)
    assert bool((graph.dst.diff() >= 0).all())


def test_a_sorted_edge_index_keeps_its_order():
    edges = random_edges(*SIZES, 60)
    edges = edges[:, edges[1].argsort(stable=True)]
    graph = dfgnn.as_graph(edges, SIZES)
    assert graph.edge_order is None
    same_edges(graph, edges)


def test_the_number_of_nodes_is_found_as_in_pyg():
    graph = dfgnn.as_graph(torch.tensor([[0, 6], [3, 1]]))
    assert (graph.num_src, graph.num_dst) == (7, 7)


@pytest.mark.parametrize("offset_type", [torch.int32, torch.int64])
@pytest.mark.parametrize("index_type", [torch.int32, torch.int64])
def test_csr_tensors(offset_type, index_type, device):
    offsets = torch.tensor([0, 2, 2, 3], dtype=offset_type, device=device)
    indices = torch.tensor([1, 0, 4], dtype=index_type, device=device)
    order = torch.tensor([2, 0, 1], device=device)
    graph = dfgnn.Graph(offsets, indices, 5, edge_order=order)
    assert graph.edge_index.tolist() == [[0, 4, 1], [0, 2, 0]]
    same_edges(dfgnn.as_graph((offsets, indices, order), 5), graph.edge_index)


def test_scipy_matrices_by_rows_of_destinations():
    matrix = scipy.sparse.random(17, 14, 0.2, "coo",
                                 random_state=numpy.random.RandomState(0))
    graph = dfgnn.as_graph(matrix)
    assert (graph.num_dst, graph.num_src) == (17, 14)
    csr = matrix.tocsr()
    assert graph.offsets.tolist() == csr.indptr.tolist()
    assert graph.indices.tolist() == csr.indices.tolist()


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_sparse_tensors_by_rows_of_destinations(layout, device):
    dense = (torch.rand(17, 14, device=device) < 0.2).float()
    matrix = getattr(dense, f"to_sparse_{layout}", dense.to_sparse)()
    graph = dfgnn.as_graph(matrix)
    again = torch.zeros_like(dense)
    again[graph.dst, graph.src] = 1
    assert torch.equal(again, dense)


def test_pyg_data_and_batches_bring_their_ptr():
    data = pytest.importorskip("torch_geometric.data")
    graphs = [data.Data(edge_index=random_edges(n, n, 20), num_nodes=n)
              for n in (5, 9, 7)]
    graph = dfgnn.as_graph(graphs[0])
    same_edges(graph, graphs[0].edge_index)
    assert graph.graph_ptr is None
    batch = data.Batch.from_data_list(graphs)
    graph = dfgnn.as_graph(batch, family="test")
    assert graph.graph_ptr.tolist() == [0, 5, 14, 21]
    assert graph.signature()["graphs"] == 3
    same_edges(graph, batch.edge_index)


@pytest.mark.parametrize("sort", [None, "col", "row"])
def test_an_edge_index_of_pyg(sort):
    pyg = pytest.importorskip("torch_geometric")
    edges = random_edges(*SIZES, 60)
    if sort:
        edges = edges[:, edges[0 if sort == "row" else 1].argsort(stable=True)]
    known = pyg.EdgeIndex(edges, sparse_size=SIZES, sort_order=sort)
    graph = dfgnn.as_graph(known, SIZES)
    assert (graph.num_src, graph.num_dst) == SIZES
    same_edges(graph, edges)


def test_a_dgl_graph_by_its_csc_tensors():
    dgl = pytest.importorskip("dgl", reason="no dgl")
    block = dgl.create_block(([4, 0, 1], [0, 1, 0]), 5, 2)
    graph = dfgnn.as_graph(block)
    assert graph.edge_index.tolist() == [[4, 0, 1], [0, 1, 0]]
    assert (graph.num_src, graph.num_dst) == (5, 2)


def test_one_edge_index_makes_one_graph_until_it_is_written_to():
    edges = random_edges(14, 14, 60)
    graph = dfgnn.as_graph(edges, 14)
    assert dfgnn.as_graph(edges, 14) is graph
    assert dfgnn.as_graph(edges, 15) is not graph
    assert dfgnn.as_graph(edges.clone(), 14) is not graph
    edges[0, 0] = 13 - edges[0, 0]
    changed = dfgnn.as_graph(edges, 14)
    assert changed is not graph
    same_edges(changed, edges)
    edges.data = edges.data[:, :40]  # the same memory
    same_edges(dfgnn.as_graph(edges, 14), edges)


def test_an_edge_index_that_is_gone_takes_its_graph_along():
    edges = random_edges(14, 14, 60)
    number, graph = id(edges), weakref.ref(dfgnn.as_graph(edges, 14))
    del edges
    gc.collect()
    assert number not in _remember._entries and graph() is None


def test_self_loops_are_those_of_pyg():
    utils = pytest.importorskip("torch_geometric.utils")
    edges = random_edges(*SIZES, 60)
    wanted, _ = utils.add_self_loops(utils.remove_self_loops(edges)[0],
                                     num_nodes=14)
    graph = dfgnn.as_graph(edges, SIZES)
    same_edges(graph.with_self_loops(), wanted)
    assert graph.with_self_loops() is graph.with_self_loops()


def check_same(a, b):
    assert torch.equal(a.edge_index, b.edge_index)
    assert (a.num_src, a.num_dst, a.family, a.name) == \
        (b.num_src, b.num_dst, b.family, b.name)
    assert (a.graph_ptr is None) == (b.graph_ptr is None)


def test_graphs_pickle():
    edges = random_edges(14, 14, 60)
    for graph in (dfgnn.as_graph(edges, 14, family="f", name="n"),
                  dfgnn.Graph(torch.tensor([0, 1, 1]), torch.tensor([0]),
                              graph_ptr=[0, 1, 2])):
        again = pickle.loads(pickle.dumps(graph))
        check_same(again, graph)
        assert again.signature() == graph.signature()


def test_relations_stay_with_copies():
    graph = dfgnn.as_graph(random_edges(14, 14, 60), 14)
    relation = torch.arange(graph.num_edges) % 4
    graph.set_relations(relation, 5)
    for again in (pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph)):
        assert again.num_relations == 5
        assert torch.equal(again.to_caller_order(again.relation), relation)


def _in_child(graph, pipe):
    torch.set_num_threads(1)
    query = torch.ones(14, 1, 4)
    pipe.send(float(dfgnn.gt_attention(graph, query, query, query).sum()))
    pipe.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_graphs_work_in_processes(method):
    graph = dfgnn.as_graph(random_edges(14, 14, 60), 14)
    ones = torch.ones(14, 1, 4)
    wanted = float(dfgnn.gt_attention(graph, ones, ones, ones).sum())
    context = multiprocessing.get_context(method)
    here, there = context.Pipe()
    child = context.Process(target=_in_child, args=(graph, there))
    child.start()
    there.close()  # so that a child that dies ends what waits for it
    assert here.poll(PATIENCE), "the child hangs"
    assert here.recv() == wanted
    child.join(PATIENCE)
    assert child.exitcode == 0


def test_bytes_count_loops_and_views(device):
    graph = dfgnn.as_graph(random_edges(*SIZES, 60, device), SIZES)
    made = graph.nbytes
    assert made >= 63 * 4  # sources of the edges
    graph.with_self_loops()
    assert graph.nbytes > made


def test_graphs_move_between_devices(device):
    graph = dfgnn.as_graph(random_edges(*SIZES, 60), SIZES, family="f")
    moved = graph.to(device)
    assert moved.device == device and (moved is graph) == (
        device.type == "cpu")
    check_same(moved.cpu(), graph)


def test_a_generated_batch_knows_its_graphs():
    graph = dfgnn.generate("sbm-pattern:batch=4,seed=1", family="pattern")
    assert graph.graph_ptr.numel() == 5
    assert graph.num_dst == graph.graph_ptr[-1] == graph.num_src


def test_explain_names_the_variant_and_every_other():
    graph = dfgnn.as_graph(random_edges(14, 14, 60), 14)
    found = dfgnn.explain(graph, "gat", 16, heads=4)
    assert found["variant"] in found["candidates"]
    assert found["candidates"][found["variant"]] == "chosen"
    assert found["source"] in ("rule", "model", "near")


def test_effort_measure_tunes_on_first_sight(tmp_path):
    run_python("""
import torch, dfgnn
graph = dfgnn.generate("uniform:nodes=200,edges=2000,seed=1")
x = torch.randn(200, 2, 16)
dfgnn.gt_attention(graph, x, x, x)
assert dfgnn.explain(graph, "gt", 16, heads=2)["source"] == "exact"
""", DFGNN_STORE=str(tmp_path / "store.db"), DFGNN_EFFORT="measure",
               DFGNN_TUNE_BUDGET="1")


def run_python(code, **environment):
    import os
    import subprocess
    import sys
    done = subprocess.run([sys.executable, "-c", code], text=True,
                          capture_output=True, timeout=PATIENCE,
                          env=dict(os.environ, **environment))
    assert done.returncode == 0, done.stderr
    return done.stdout
