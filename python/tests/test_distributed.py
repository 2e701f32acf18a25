"""dfgnn.distributed over Gloo: ranks are processes of this machine, which run
the cases of distributed_worker.py."""

import json
import os
import shutil
import socket
import subprocess
import sys

import numpy
import pytest
import torch

import dfgnn
from dfgnn.distributed import DistGraph, Part, load, partition

from conftest import PATIENCE

dist = pytest.importorskip("torch.distributed")
if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("torch has no Gloo", allow_module_level=True)

WORKER = os.path.join(os.path.dirname(__file__), "distributed_worker.py")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch(world, cases, stores=(), worker=WORKER):
    """(exit status, output) of each rank."""
    port = free_port()
    ranks = []
    for rank in range(world):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(world),
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                   OMP_NUM_THREADS="1")
        if rank < len(stores):
            env["DFGNN_STORE"] = stores[rank]
        ranks.append(subprocess.Popen(
            [sys.executable, worker, *cases], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    found = []
    try:
        for process in ranks:
            output, _ = process.communicate(timeout=PATIENCE)
            found.append((process.returncode, output))
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
    return found


def passes(world, *cases, **options):
    for rank, (status, output) in enumerate(launch(world, cases, **options)):
        assert status == 0, f"rank {rank}:\n{output}"
        assert output.count("OK") == len(cases), output


# most of a launch is the start of its processes: cases share it

def test_two_ranks_equal_a_single_process():
    passes(2, "layers", "edges", "types", "dropout", "training", "repeat",
           "buffers", "checkpoint", "mismatch")


def test_four_ranks_equal_a_single_process():
    passes(4, "layers", "edges", "training", "repeat")


def test_the_example_trains_and_goes_on_with_another_number_of_ranks(tmp_path):
    """One rank goes on from where two ended."""
    example = os.path.join(os.path.dirname(WORKER), "..", "..", "docs", "examples",
                           "distributed.py")
    losses = []

    def run(world):
        return subprocess.run(
            [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node",
             str(world), "--master-port", str(free_port()), example, "--json",
             "--nodes", str(2000 // world), "--steps", "8", "--depth", "1",
             "--checkpoint", str(tmp_path / "model.pt")],
            env=dict(os.environ, OMP_NUM_THREADS="1"), text=True,
            capture_output=True, timeout=PATIENCE)
    for world in (2, 1):
        done = run(world)
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout.splitlines()[-1])
        assert len(rows) == world
        assert sum(r["nodes"] for r in rows) == 2000
        assert all(r["scaling"] > 0 for r in rows)
        losses.append(rows[0]["loss"])
    assert losses[1] < losses[0] < 2.2


def test_a_rank_that_dies_ends_the_others_with_a_message():
    results = launch(2, ["death"])
    assert results[1][0] == 9
    status, output = results[0]
    assert status == 3, output
    assert "rank 0 of 2 cannot exchange halos" in output


def test_ranks_with_other_stores_choose_as_rank_0(tmp_path):
    tool = os.path.join(os.path.dirname(os.environ.get(
        "DFGNN_LIBRARY", "")), "..", "tools", "dfgnn-tune")
    if not os.path.exists(tool):
        tool = shutil.which("dfgnn-tune")  # a wheel brings it
    if not tool:
        pytest.skip("the tool that makes a store is not here")
    store = str(tmp_path / "one.db")
    other = "cpu.attention.fwd.pmf/simd=portable,schedule=serial"  # a paper's
    subprocess.run([tool, "pin", other, "--op", "gt", "--store", store],
                   check=True, capture_output=True)
    passes(2, "stores", stores=[store, ""])


# ---- without torch.distributed ----------------------------------------------

def edges_of(nodes=60, count=400, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, nodes, (2, count), generator=generator)


@pytest.mark.parametrize("method", ["metis", "range", "given"])
def test_parts_hold_every_node_and_edge_once(method):
    edges = edges_of()
    graph = dfgnn.as_graph(edges, 60)
    how = torch.arange(60) % 3 if method == "given" else method
    parts = [partition(graph, 3, how).part(r) for r in range(3)]
    assert sorted(sum((p.node.tolist() for p in parts), [])) == list(range(60))
    met = []
    for p in parts:
        width = numpy.concatenate([p.node, p.halo])
        for k, row in enumerate(p.node):
            for place, e in enumerate(range(p.offset[k], p.offset[k + 1])):
                number = p.first_edge[k] + place
                met.append(number)
                assert graph.src[number] == width[p.index[e]]
                assert graph.dst[number] == row
    assert sorted(met) == list(range(400))


def test_what_one_rank_sends_is_the_halo_of_the_other():
    parts = [partition(edges_of(), 3, num_nodes=60).part(r) for r in range(3)]
    for a in parts:
        at = 0
        for b in range(3):
            rows = a.send_row[at:at + a.send[b]]
            at += a.send[b]
            begin = int(parts[b].receive[:a.rank].sum())
            assert (a.node[rows] == parts[b].halo[
                begin:begin + parts[b].receive[a.rank]]).all()


def test_parts_have_the_fingerprint_of_the_graph_and_one_digest():
    graph = dfgnn.as_graph(edges_of(), 60)
    parts = partition(graph, 2)
    mine, other = parts.part(0), parts.part(1)
    wanted = graph.signature()["fingerprint"]
    assert mine.fingerprint & (1 << 64) - 1 == int(wanted) & (1 << 64) - 1
    assert mine.digest == other.digest
    assert partition(graph, 2, "range").part(0).digest != mine.digest


def test_metis_balances_work_and_cuts_less_than_chance():
    nodes, block = 400, 100
    generator = torch.Generator().manual_seed(2)
    inside = torch.randint(0, block, (2, 4000), generator=generator)
    community = torch.randint(0, 4, (4000,), generator=generator)
    edges = inside + community * block
    shuffle = torch.randperm(nodes, generator=generator)
    edges = shuffle[edges]
    graph = dfgnn.as_graph(edges, nodes)
    found = [partition(graph, 4).part(r) for r in range(4)]
    cut = sum(int((p.index >= len(p.node)).sum()) for p in found)
    assert cut < 0.02 * 4000
    assert max(len(p.index) for p in found) < 1.1 * 1000


def test_a_saved_part_is_what_is_loaded(tmp_path):
    parts = partition(edges_of(), 2, num_nodes=60)
    parts.save(tmp_path)
    for a, b in zip(Part.load(tmp_path / "part-1-of-2.npz"), parts.part(1)):
        assert numpy.array_equal(a, b)


def head(place, value):
    """A change of the numbers of a part."""
    return "part", lambda part: numpy.concatenate(
        [part[:place], [value], part[place + 1:]])


@pytest.mark.parametrize("name, change, reason", [
    (*head(1, -2), "parts is -2, expected 1 to 4096"),
    (*head(1, 2 ** 62), "parts is 4611686018427387904"),
    (*head(2, 2), "rank is 2, expected 0 to 1"),
    (*head(3, 2), "total_nodes is 2, expected"),
    (*head(4, -1), "total_edges is -1, expected"),
    ("part", lambda t: t.astype(float), "part is float64"),
    ("part", lambda t: t[None], r"part is int64 \[1, 8\]|part is"),
    ("node", lambda t: t + 1000, "node goes from 10"),
    ("halo", lambda t: t - 1000, "halo goes from -"),
    ("first_edge", lambda t: t + 10 ** 9, "first_edge goes"),
    ("index", lambda t: t.astype(float), "index is float64"),
    ("index", lambda t: t + 10 ** 6, "index names a column"),
    ("offset", lambda t: t.astype("U8"), "offset is <U8"),
    ("offset", lambda t: t[::-1], "offset does not rise"),
    ("send", lambda t: t.astype(bool), "send is bool"),
    ("send_row", lambda t: t - 100, "send_row names a row"),
    ("receive", lambda t: t + 1, "receive does not add up")])
def test_a_damaged_part_is_refused(tmp_path, name, change, reason):
    partition(edges_of(), 2, num_nodes=60).save(tmp_path)
    whole = dict(numpy.load(tmp_path / "part-1-of-2.npz"))
    numpy.savez(tmp_path / "bad.npz", **dict(whole, **{
        name: change(whole[name])}))
    with pytest.raises(ValueError, match="bad.npz is damaged: " + reason):
        Part.load(tmp_path / "bad.npz")


def test_what_is_no_part_is_refused(tmp_path):
    partition(edges_of(), 2, num_nodes=60).save(tmp_path)
    numpy.save(tmp_path / "one.npy", numpy.arange(3))
    for content in (b"", b"PK\3\4", b"no part at all",
                    (tmp_path / "one.npy").read_bytes(),
                    (tmp_path / "part-1-of-2.npz").read_bytes()[:-40]):
        (tmp_path / "bad.npz").write_bytes(content)
        with pytest.raises(ValueError, match="bad.npz is"):
            Part.load(tmp_path / "bad.npz")


def test_a_part_replaces_a_part_and_no_other_file(tmp_path):
    parts = partition(edges_of(), 2, num_nodes=60)
    parts.save(tmp_path)
    parts.save(tmp_path)
    path = tmp_path / "part-0-of-2.npz"
    path.write_bytes(b"")
    parts.part(0).save(path)
    numpy.savez(path, part=numpy.arange(7), features=numpy.zeros((3, 4)))
    there = path.read_bytes()
    with pytest.raises(ValueError, match="not a part of a graph .*part.npy"):
        parts.save(tmp_path)
    assert path.read_bytes() == there
    assert len(os.listdir(tmp_path)) == 2


def test_one_rank_needs_no_process_group(tmp_path):
    edges = edges_of()
    partition(edges, 1, num_nodes=60).save(tmp_path)
    graph = load(tmp_path)
    x = torch.randn(60, 8)
    conv = dfgnn.nn.GATConv(8, 4, 2)
    whole = conv(x, edges)
    assert torch.allclose(conv(graph.local_nodes(x), graph), whole, atol=1e-5)


def test_mistakes_are_named(tmp_path):
    edges = edges_of()
    with pytest.raises(ValueError, match="'metis', 'range' or the rank"):
        partition(edges, 2, "random", num_nodes=60)
    with pytest.raises(ValueError, match="rank of each of 60 nodes"):
        partition(edges, 2, torch.zeros(3, dtype=torch.int64), num_nodes=60)
    with pytest.raises(ValueError, match="ranks 0 to 5, expected 0 to 1"):
        partition(edges, 2, torch.arange(60) % 6, num_nodes=60)
    with pytest.raises(ValueError, match="square"):
        partition(dfgnn.as_graph(edges, (60, 70)), 2)
    with pytest.raises(FileNotFoundError, match="expected a partition in 1"):
        load(tmp_path)
    with pytest.raises(ValueError, match="halo must be one of"):
        DistGraph(partition(edges, 1, num_nodes=60).part(0), halo="lose")
    graph = DistGraph(partition(edges, 1, num_nodes=60).part(0))
    with pytest.raises(ValueError, match="x must have a row for each"):
        dfgnn.spmm(graph, torch.randn(61, 4))
