"""The library ranks members as select/make_portfolio.py, which judges rankings, does."""

import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
TOP = Path(__file__).resolve().parents[2]
DEVICES = {"sm_90": ["--for", "sm_90,H200"],
           "avx512_2": ["--device", "cpu", "--threads", "2"]}


@pytest.fixture(scope="module")
def fit():
    path = TOP / "select" / "make_portfolio.py"
    if not path.exists():
        pytest.skip("there is no checkout")
    spec = importlib.util.spec_from_file_location("make_portfolio", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tool(name, *arguments):
    program = shutil.which(name)
    if program is None:
        pytest.skip(f"{name} is not on the path")
    found = subprocess.run([program, *arguments, "--json"], stdout=subprocess.PIPE, check=True,
                           env=dict(os.environ, DFGNN_STORE="", DFGNN_LOG="error"))
    return json.loads(found.stdout)


def some_graphs(count):
    """Generated graphs of many kinds and sizes."""
    pick = random.Random(int(os.environ.get("TEST_SEED", "1")))
    graphs = []
    for seed in range(count):
        nodes = int(10 ** pick.uniform(1, 4.3))
        edges = int(nodes * 10 ** pick.uniform(0, 1.5))
        graphs.append(pick.choice((
            f"uniform:nodes={nodes},edges={edges}",
            f"powerlaw:nodes={nodes},edges={edges},max-degree={max(2, nodes // 3)}",
            f"uniform:nodes={nodes},sources={3 * nodes},edges={edges}",
            f"knn:nodes={10 + nodes % 70},k={1 + seed % 9},batch={1 + seed}")) + f",seed={seed}")
    return graphs


def portfolios(device):
    """The graphs, and the cells of a device that are ranked, as data/portfolios has them."""
    folder, graphs, cells = TOP / "data" / "portfolios", {}, []
    for line in (folder / "graphs.txt").read_text().splitlines():
        words = line.split()
        if words[0] == "signature":
            columns = words[1:]
        elif words[0] == "graph":
            graphs[words[1]] = dict(zip(columns, map(float, words[2:])))
    for line in (folder / f"{device}.txt").read_text().splitlines():
        words = line.split("#")[0].split() or [""]
        if words[0] == "cell":
            cells.append({"problem": words[2:], "members": [], "times": [], "ranked": True})
        elif words[0] == "member":
            cells[-1]["members"].append(" ".join(words[1:]))
        elif words[0] == "graphs":
            cells[-1]["graphs"] = words[1:]
        elif words[0] == "times":
            cells[-1]["times"].append([math.nan if w == "-" else float(w) for w in words[2:]])
        elif words[0] == "unranked":
            cells[-1]["ranked"] = False
    return graphs, [c for c in cells if c["ranked"] and len(c["times"]) == len(c["members"])]


@pytest.mark.parametrize("device", DEVICES)
def test_the_library_predicts_what_the_fit_predicts(fit, device, monkeypatch):
    known, cells = portfolios(device)
    cache = fit.DEVICES[device][3]
    if device != "sm_90":  # a CPU asks with the cache that it has
        facts = {row["name"]: row for row in tool("dfgnn-tune", "info", "--device", "cpu")}
        if facts["architecture"]["value"] != "x86_64-avx512":
            pytest.skip("this processor has not all instructions of the members")
        cache = facts["last-level cache"]["number"]
    names = some_graphs(12)
    asked = tool("dfgnn-graph", "info", *names)
    compared = 0
    for cell in random.Random(device).sample(cells, 4):
        operator, way, *rest = cell["problem"]
        p = {"op": operator, "pass": way, "edge-dim": "0", "message": "copy",
             **dict(word.split("=") for word in rest)}
        options = [f"--{key}={value}" for key, value in p.items()]
        p = {**p, "heads": int(p["heads"]), "dim": int(p["dim"])}
        times = np.array(cell["times"]).T
        measured = fit.features(cell["graphs"], known, p, device)
        with monkeypatch.context() as patch:
            patch.setitem(fit.DEVICES, device, (*fit.DEVICES[device][:3], cache))
            here = fit.features(range(len(asked)), asked, p, device)
        predicted = fit.predict(measured, np.nan_to_num(times), ~np.isnan(times), here)
        for graph, want in zip(tool("dfgnn-tune", "explain", *names, *options, *DEVICES[device]),
                               predicted, strict=True):
            of = dict(zip(cell["members"], want))
            found = [(c["predicted"], of.get(fit.relative(c["variant"], p, graph["backend"])))
                     for c in graph["candidates"] if "predicted" in c]
            least = found[0][1]
            for ratio, log_ratio in found:
                if log_ratio is not None and least is not None:
                    assert ratio == pytest.approx(math.exp(log_ratio - least), rel=1e-6), (
                        cell["problem"], graph["graph"])
                    compared += 1
    assert compared > 200
