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


def test_models(run, tmp_path):
    out = tmp_path / "out.json"
    run("python_accelerate", "--device", "cpu", "--models", "GCN", "GAT 8x8", "GINE 64, 128",
        "GPS", "forces", "--seconds", 0, "--scale", 0.03, "-o", out)
    rows = json.loads(out.read_text())
    assert len(rows) == 5
    for row in rows:
        assert row["swapped"] > 0 and row["difference"] < 1e-3, row
        assert row["steps"] >= 3 and row["pyg_bytes"] > 0


def test_layers(run, graph, tmp_path):
    out = tmp_path / "out.json"
    run("python_layers", "--device", "cpu", "--layers", "GCNConv,PNA",
        "--dim", 8, "--seconds", 0, "--commit", "none", "-o", out, graph)
    rows = json.loads(out.read_text())
    assert [r["status"] for r in rows] == ["ok"] * 4, rows


def test_programs(run, tmp_path):
    out = tmp_path / "out.json"
    run("python_programs", "--layers", "GATv2", "maximum of k - q",
        "--no-compile", "--seconds", 0, "--commit", "none", "-o", out,
        "uniform:nodes=20,edges=90")
    rows = json.loads(out.read_text())
    assert len(rows) == 10 and all(r["repeats"] for r in rows), rows
    assert {r["way"] for r in rows} == {"program", "operator", "eager"}


def test_mlps_on_edges(run, tmp_path):
    out = tmp_path / "out.json"
    text = run("python_mlp", "--blocks", "MeshGraphNet 128", "--types",
               "float32", "--ways", "dfgnn", "cat", "sum", "--scale", 2e-4,
               "--seconds", 0, "--commit", "none", "-o", out)
    rows = json.loads(out.read_text())
    assert [r["way"] for r in rows] == ["dfgnn", "cat", "sum"]
    assert all(r["both_ms"] > 0 and r["difference"] < 1e-4 for r in rows), rows
    assert text.strip() == run("python_mlp", "--table", out).strip()


def test_edge_conv_by_mlps(run, tmp_path):
    out = tmp_path / "out.json"
    run("python_mlp", "--blocks", "EdgeConv 64", "--types", "float32",
        "--ways", "dfgnn", "cat", "sum", "--scale", 1e-2, "--seconds", 0,
        "--commit", "none", "-o", out)
    rows = json.loads(out.read_text())
    assert len(rows) == 3
    assert all(r["both_ms"] > 0 and r["difference"] < 1e-4 for r in rows), rows


def test_models_of_mlps_have_the_same_losses(run, tmp_path):
    out = tmp_path / "models.json"
    text = run("python_mlp", "--models", "--blocks", "MeshGraphNet 15 x 128",
               "--types", "float32", "--ways", "dfgnn", "torch", "--scale",
               1e-4, "--seconds", 0, "--commit", "none", "-o", out)
    fused, own = json.loads(out.read_text())
    assert fused["losses"] == pytest.approx(own["losses"], rel=1e-3)
    assert fused["losses"][-1] < fused["losses"][0]
    assert text.strip() == run("python_mlp", "--table", out).strip()


def test_relations(run, tmp_path):
    out = tmp_path / "out.json"
    run("python_relations", "--scale", 0.005, "--narrow", "--warmup", 0,
        "--rounds", 1, "--cases", "igbh,relbench,hgt,aifb,mag", "-o", out)
    rows = json.loads(out.read_text())
    assert len(rows) == 5 and all(r["difference"] < 1e-4 for r in rows), rows


def test_relations_in_a_captured_step(run, tmp_path):
    out = tmp_path / "out.json"
    run("python_relations", "--scale", 0.005, "--narrow", "--warmup", 0,
        "--rounds", 1, "--cases", "relbench", "--ways", "captured", "-o", out)
    assert json.loads(out.read_text())[0]["captured_ms"] > 0


def test_training_steps(run):
    row, = json.loads(run("python_steps", "--device", "cpu", "--models",
                          "mnist_transformer", "--ways", "eager,captured",
                          "--scale", 0.01, "--seconds", 0))
    assert row["model"] == "mnist_transformer" and row["difference"] < 1e-4
    assert row["pyg_eager_ms"] > 0 and row["dfgnn_eager_ms"] > 0


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


def test_clients(run, monkeypatch, capsys, tmp_path):
    monkeypatch.syspath_prepend(os.path.join(BENCH, "clients"))
    file = tmp_path / "rows.json"
    run("clients", "pyg_sage", "pyg_gps", "torchmd_graph_network", "--scale",
        .005, "--steps", 3, "-o", file)
    sage, gps, torchmd = json.loads(file.read_text())
    # a GPSConv is served beside the layer within it
    assert (sage["served"], gps["served"]) == (3, 6)
    for row in sage, gps:
        assert not row["kept"]
        assert row["loss_difference"] < 1e-4
        assert row["mb"] > 0 and row["accelerated_mb"] > 0
    if "missing" in torchmd:
        assert "torchmdnet" in torchmd["missing"]
    table = run("clients", "--table", file)
    assert "| pyg_sage | torch_geometric " in table and "| 3 of 3 |" in table
    with pytest.raises(SystemExit):
        run("clients", "no_such_case")
    assert "found case 'no_such_case'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("clients", "--steps", 2)
    assert "found 2 steps, expected 3 or more" in capsys.readouterr().err


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
        f"two\t200\t{code}\t-\tpython_accelerate.py --device cpu --models GCN --seconds 0"
        " --scale 0.02 -o @FILE", "")))

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
    code.write_text("2")
    assert call("status", out) == [["one", "1 stale"], ["two", "1 stale"]]


def test_tables(monkeypatch):
    """The documents have the tables that the figures make."""
    monkeypatch.syspath_prepend(BENCH)
    tables = importlib.import_module("tables")
    assert len(tables.TABLES) > 5 and all(text().count("|") > 10
                                           for text in tables.TABLES.values())
    assert tables.main(["--check"]) == 0
