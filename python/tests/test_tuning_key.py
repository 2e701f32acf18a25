"""dfgnn.tune measures the problem that it is asked for, bias and dropout
included, and what it measured is exact for that problem alone."""

import os
import subprocess
import sys

from conftest import PATIENCE

CODE = """
import dfgnn
graph = dfgnn.generate("uniform:nodes=200,edges=2000,seed=1")
def source(**extras):
    found = dfgnn.explain(graph, "gat", 8, heads=2, **extras)
    return found["source"], found["because"]
def tune(**extras):
    report = dfgnn.tune(graph, "gat", 8, heads=2, budget=20, **extras)
    assert report["kept"] and report["measured"] > 0, report

tune()
assert source()[0] == "exact"
near, because = source(dropout=True)
assert near == "near" and "without dropout" in because, because
tune(dropout=True)
assert source(dropout=True)[0] == "exact"
both, because = source(dropout=True, bias=True)
assert both == "near" and "without bias" in because, because
assert "without dropout" not in because, because
tune(dropout=True, bias=True, backward=True)
assert source(dropout=True, bias=True, backward=True)[0] == "exact"
assert source(dropout=True, bias=True)[0] == "near"

# calls keep their plan until something is measured
import torch
x = torch.randn(200, 2, 8)
def plans():
    dfgnn.gt_attention(graph, x, x, x)
    return len(graph.handle.owned_plans)
first = plans()
assert plans() == first
tune(bias=True)
assert plans() == first + 1
"""


EVERY = """
import dfgnn
graph = dfgnn.generate("uniform:nodes=60,edges=400,seed=1")
for op in ("gt", "agnn", "gat", "gatv2", "spmm-sum", "spmm-mean",
           "spmm-weighted", "reduce-min", "reduce-max", "reduce-mean",
           "reduce-var", "reduce-std", "reduce-pna"):
    report = dfgnn.tune(graph, op, 8, budget=20)
    assert report["kept"] and report["measured"] > 0, (op, report)
    found = dfgnn.explain(graph, op, 8)
    assert found["source"] == "exact", (op, found)
for op, problem in (
        ("gt", dict(edge_dim=5, edge_use="keys", heads=2)),
        ("gt", dict(edge_dim="projected", backward=True)),
        ("gatv2", dict(edge_dim=3, weights=True)),
        ("spmm-sum", dict(edge_dim="projected", message="relu")),
        ("reduce-max", dict(edge_dim=4, message="gate", backward=True))):
    assert dfgnn.explain(graph, op, 8, **problem)["source"] != "exact"
    report = dfgnn.tune(graph, op, 8, budget=20, **problem)
    assert report["measured"] > 0, (op, problem, report)
    found = dfgnn.explain(graph, op, 8, **problem)
    assert found["source"] == "exact", (op, problem, found)
"""


def run(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True,
        timeout=PATIENCE,
        env=dict(os.environ, DFGNN_STORE=str(tmp_path / "store.db")))
    assert done.returncode == 0, done.stderr


def test_every_operator_and_kind_of_problem_is_tuned(tmp_path):
    run(EVERY, tmp_path)


def test_bias_and_dropout_are_tuned_apart(tmp_path):
    run(CODE, tmp_path)
