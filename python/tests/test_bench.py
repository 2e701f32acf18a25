"""Every benchmark in Python is imported and runs one small step."""

import importlib
import json
import os
import shutil
import socket
import subprocess
import sys

import numpy
import pytest
import torch

from conftest import PATIENCE

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                     "tools", "bench")


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs a benchmark of tools/bench/ with arguments, as a script;
    it returns what the benchmark prints."""
    monkeypatch.syspath_prepend(BENCH)
    # python_programs.py sets it; this puts back what there was
    monkeypatch.setenv("DFGNN_PROGRAMS", "")
    threads = torch.get_num_threads()

    def run(name, *arguments, **constants):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        sys.modules.pop(name, None)  # some do their work as they are imported
        module = importlib.import_module(name)
        for constant, value in constants.items():
            monkeypatch.setattr(module, constant, value)
        if hasattr(module, "main"):
            assert not module.main()
        return capsys.readouterr().out
    yield run
    torch.set_num_threads(threads)


@pytest.fixture
def graph(tmp_path):
    """A file of a graph of six nodes, two graphs of a batch."""
    path = str(tmp_path / "tiny.npz")
    numpy.savez(path, shape=[6, 6], indptr=numpy.array([0, 2, 3, 4, 5, 6, 8]),
                indices=numpy.array([1, 2, 0, 1, 4, 3, 4, 5]),
                graph_ptr=numpy.array([0, 3, 6]))
    return path


def test_overhead(run):
    row, = json.loads(run("python_overhead", "--json", "--batches", 1,
                          "--calls", 1))
    assert min(row[k] for k in row if k.endswith("_us")
               and "over" not in k) > 0
    assert [r["layer"] for r in row["layers"]] == [
        "GATConv", "TransformerConv", "SAGEConv", "GCNConv", "GINConv",
        "PNAConv"]
    assert all(r["pyg_us"] > 0 and r["dfgnn_us"] > 0 for r in row["layers"])


def test_sums_beside_sparse_products(run, graph, tmp_path):
    out = tmp_path / "out.json"
    run("python_spmm", "--device", "cpu", "--dims", 8, "--rounds", 1,
        "--dtypes", "f32", "-o", out, graph)
    rows = json.loads(out.read_text())
    assert [r["op"] for r in rows] == ["spmm-sum", "spmm-weighted"]
    assert all(r["us"] > 0 and r["difference"] < 1e-5 for r in rows)


def test_overhead_as_text(run):
    text = run("python_overhead", "--batches", 1, "--calls", 1)
    assert "dfgnn.gt_attention" in text and "| GINConv |" in text


def test_models(run, tmp_path, capsys):
    out = tmp_path / "out.json"
    cases = ("gcn,gat,gine_64,gps_4,forces,mnist_transformer,meshgraphnet,block_128,"
             "edge_conv_128,relbench,hgt,aifb,mag,zoo_sage,torchmd_graph_network")
    run("python_models", "--cases", cases, "--scale", .002, "--rounds", 1, "-o", out)
    rows = json.loads(out.read_text())
    assert [r["case"] for r in rows] == cases.split(",")
    for row in rows:
        if row["case"] == "torchmd_graph_network" and "missing" in row:
            continue
        assert row["difference"] < 1e-4 and not row.get("kept"), row
        assert row["pyg_ms"] > 0 and row["dfgnn_ms"] > 0 and row["dfgnn_mb"] > 0
        assert "pyg_error" not in row and "dfgnn_error" not in row
    table = run("python_models", "--table", out)
    assert "| zoo_sage | torch_geometric " in table and "| 3 of 3 |" in table
    with pytest.raises(SystemExit):
        run("python_models", "--cases", "no_such_case")
    assert "found case 'no_such_case'" in capsys.readouterr().err


def test_captured_and_forward(run, tmp_path):
    out = tmp_path / "out.json"
    run("python_models", "--cases", "relbench", "--ways", "dfgnn,dfgnn_captured",
        "--scale", .002, "--rounds", 1, "--forward", "-o", out)
    row, = json.loads(out.read_text())
    assert row["dfgnn_captured_ms"] > 0 and row["dfgnn_forward_ms"] > 0


def test_a_broken_process_leaves_its_case_to_another(run, tmp_path):
    out = tmp_path / "out.json"
    run("python_models", "--cases", "gcn", "--scale", .002, "--rounds", 1, "-o", out,
        broken=lambda device: True)
    row, = json.loads(out.read_text())
    assert row["pyg_ms"] > 0 and row["dfgnn_ms"] > 0


def test_layers(run, graph, tmp_path):
    out = tmp_path / "out.json"
    run("python_models", "--layers", "GCNConv,PNA", "--width", 8, "--rounds", 1,
        "-o", out, graph)
    rows = json.loads(out.read_text())
    assert [r["case"] for r in rows] == ["GCNConv on tiny", "PNA on tiny"]
    assert all(r["difference"] < 1e-4 and r["pyg_ms"] > 0 for r in rows), rows


def test_programs(run, tmp_path):
    out = tmp_path / "out.json"
    run("python_programs", "--layers", "GATv2", "maximum of k - q",
        "--seconds", 0, "-o", out, "uniform:nodes=20,edges=90")
    rows = json.loads(out.read_text())
    assert len(rows) == 10 and all(r["repeats"] for r in rows), rows
    assert {r["way"] for r in rows} == {"program", "operator", "eager"}


def test_ranks(tmp_path):
    """In a process of its own, which ends with its process group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = dict(os.environ, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0",
                       MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    done = subprocess.run(
        [sys.executable, os.path.join(BENCH, "distributed.py"), "--graphs",
         "preset=arxiv,scale=0.002", "--problems", "gt:2x8", "--rounds", "1",
         "--work", str(tmp_path)], env=environment, text=True,
        capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["ranks_ms"] > 0


def test_campaign(monkeypatch, capsys, tmp_path):
    """What is missing or stale is measured, and nothing else."""
    if not shutil.which("dfgnn-bench"):
        pytest.skip("no dfgnn-bench in PATH")
    monkeypatch.syspath_prepend(BENCH)
    campaign = importlib.import_module("campaign")
    code, words, out = tmp_path / "code.py", tmp_path / "list.tsv", tmp_path / "out"
    code.write_text("1")
    words.write_text("\n".join((
        "SHAPES = knn:nodes=30,k=3,seed=1",
        f"one\t9\t{code}\tSHAPES\tbench --op gt --dim 8 -- --variants rule",
        f"two\t200\t{code}\t-\tpython_models.py --cases gcn --rounds 1 --scale 0.02"
        " --lock @LOCK -o @FILE", "")))

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["campaign.py", *map(str, arguments), "--device",
                                          "cpu", "--list", str(words), "--graphs",
                                          str(tmp_path), "--budget", "0.01"])
        campaign.main()
        return [line.split(None, 1) for line in capsys.readouterr().out.splitlines()]
    assert call("status", out) == [["one", "1 missing"], ["two", "1 missing"]]
    call("run", out)
    assert call("status", out) == [["one", "1 current"], ["two", "1 current"]], (
        out / "log").read_text()
    monkeypatch.setattr(campaign, "TOP", tmp_path)
    monkeypatch.setattr(campaign.tables, "TOP", tmp_path)
    (tmp_path / "data" / "results").mkdir(parents=True)
    call("put", out, "here")
    kept = campaign.tables.load("here")
    assert kept["one"][0]["median_ms"] > 0 and kept["two"][0]["pyg_ms"] > 0
    code.write_text("1  # because")
    assert call("status", out, "here") == call("status", out) == [
        ["one", "1 current"], ["two", "1 current"]]
    assert call("status", out, "--only", "two") == [["two", "1 current"]]
    for wrong in (("status", out, "nowhere"), ("put", out), ("status", out, "--only", "onee")):
        with pytest.raises(SystemExit):
            call(*wrong)
    code.write_text("2")
    assert call("status", out, "here") == call("status", out) == [
        ["one", "1 stale"], ["two", "1 stale"]]


@pytest.mark.parametrize("before, after, same", [
    ('f("a/*.c"); int x; /* y */', 'f("a/*.c"); int z; /* y */', False),
    ('f("//a"); int x;', 'f("//b"); int x;', False),
    ("c = '\"'; int x; // a", "c = '\"'; int x; // b", True),
    ("int x; /* don't */ int y;", "int x;   int y;", True)])
def test_campaign_reads_comments_of_c(monkeypatch, tmp_path, before, after, same):
    monkeypatch.syspath_prepend(BENCH)
    plain = importlib.import_module("campaign").plain
    texts = []
    for text in (before, after):
        (tmp_path / "code.c").write_text(text)
        texts.append(plain(str(tmp_path / "code.c")))
    assert (texts[0] == texts[1]) is same


def test_tables(monkeypatch):
    """The documents have the tables that the figures make."""
    monkeypatch.syspath_prepend(BENCH)
    tables = importlib.import_module("tables")
    assert len(tables.TABLES) > 5 and all(text().count("|") > 10
                                           for text in tables.TABLES.values())
    assert tables.main(["--check"]) == 0
