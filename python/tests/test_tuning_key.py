"""dfgnn.tune measures the problem that it is asked for, bias and dropout
included, and what it measured is exact for that problem alone."""

import pytest
import torch

import dfgnn


@pytest.fixture
def graph(store):
    return dfgnn.generate("uniform:nodes=60,edges=400,seed=1")


def found(*problem, **extras):
    explained = dfgnn.explain(*problem, **extras)
    return explained["source"], explained["because"]


def tuned(*problem, **extras):
    report = dfgnn.tune(*problem, **extras, budget=20)
    assert report["kept"] and report["measured"] > 0, report
    explained = dfgnn.explain(*problem, **extras)
    assert (explained["source"], explained["variant"]) == (
        "exact", report["variant"])


@pytest.mark.parametrize("op", [
    "gt", "agnn", "gat", "gatv2", "spmm-sum", "spmm-mean", "spmm-weighted",
    "reduce-min", "reduce-max", "reduce-mean", "reduce-var", "reduce-std",
    "reduce-pna"])
def test_every_operator_is_tuned(graph, op):
    tuned(graph, op, 8)


@pytest.mark.parametrize("op, problem", [
    ("gt", dict(edge_dim=5, edge_use="keys", heads=2)),
    ("gt", dict(edge_dim="projected", backward=True)),
    ("gatv2", dict(edge_dim=3, weights=True)),
    ("spmm-sum", dict(edge_dim="projected", message="relu")),
    ("reduce-max", dict(edge_dim=4, message="gate", backward=True))])
def test_every_kind_of_problem_is_tuned(graph, op, problem):
    assert found(graph, op, 8, **problem)[0] != "exact"
    tuned(graph, op, 8, **problem)


def test_bias_and_dropout_are_tuned_apart(graph):
    problem = graph, "gat", 8
    tuned(*problem)
    source, because = found(*problem, dropout=True)
    assert source == "near" and "without dropout" in because
    tuned(*problem, dropout=True)
    source, because = found(*problem, dropout=True, bias=True)
    assert source == "near" and "without bias" in because
    assert "without dropout" not in because
    tuned(*problem, dropout=True, bias=True, backward=True)
    assert found(*problem, dropout=True, bias=True)[0] == "near"


def test_calls_keep_their_plan_until_something_is_measured(graph):
    x = torch.randn(60, 2, 8)

    def plans():
        dfgnn.gt_attention(graph, x, x, x)
        return len(graph.handle.owned_plans)
    first = plans()
    assert plans() == first
    tuned(graph, "gat", 8, bias=True)
    assert plans() == first + 1
