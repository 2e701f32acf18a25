"""dfgnn.tune(model, *inputs) and dfgnn.record: what a step meets is recorded,
tuned and saved, and the model stays as it was."""

import json
import os
import subprocess
import sys

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from conftest import random_edges

EDGES = random_edges(40, 40, 160)


HERE = os.path.dirname(os.path.abspath(__file__))


def apart(code, store):
    """Runs code in a process of its own, whose store is that file; returns
    what it prints."""
    begin = f"import sys; sys.path.insert(0, {HERE!r})\n" \
        "import dfgnn, torch\nfrom test_recordings import EDGES, model\n"
    done = subprocess.run(
        [sys.executable, "-c", begin + code], text=True, capture_output=True,
        env=dict(os.environ, DFGNN_STORE=str(store)))
    assert done.returncode == 0, done.stderr
    return done.stdout


def model():
    made = torch.nn.ModuleList([G.GATConv(8, 4, heads=2, dropout=0.5),
                                G.BatchNorm(8), G.SAGEConv(8, 8)])
    dfgnn.accelerate(made, check=False)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = made

        def forward(self, x, edges):
            gat, norm, sage = self.parts
            return sage(norm(gat(x, edges)), edges)
    return Model()


def texts(recording):
    return sorted(met.text for met in recording.problems)


def test_a_step_is_recorded_forward_and_backward():
    x = torch.randn(40, 8, requires_grad=True)
    recording = dfgnn.record(model(), x, EDGES)
    assert texts(recording) == [
        "gat backward 2x4 f32 dropout", "gat forward 2x4 f32 dropout",
        "spmm-mean backward 1x8 f32", "spmm-mean forward 1x8 f32"]
    # GAT adds loops, SAGE does not
    assert len({id(met.handle) for met in recording.problems}) == 2
    costs = [met.ms for met in recording.problems]
    assert costs == sorted(costs, reverse=True) and costs[-1] > 0
    assert all(met.calls == 1 for met in recording.problems)


def test_a_budget_of_nothing_measures_the_costliest_problem():
    x = torch.randn(40, 8, requires_grad=True)
    assert list(dfgnn.record(model(), x, EDGES).tune(0.0)) == [0]


def test_edge_programs_are_recorded(tmp_path):
    @dfgnn.edge_program
    def gated(i, j):
        return (i.q * j.q).sigmoid() * j.q

    @dfgnn.edge_program
    def summed(i, j):
        return j.q
    x = torch.randn(40, 8, requires_grad=True)
    rows = {"q": x}
    recording = dfgnn.record(lambda: (
        gated(EDGES, i=rows, j=rows) + summed(EDGES, j=rows)).sum().backward())
    own = [text for text in texts(recording) if text.startswith("program ")]
    assert [text.split()[1] for text in own] == ["backward", "forward"]
    assert "spmm-sum forward 1x8 f32" in texts(recording)
    recording.save(tmp_path / "step")
    again = dfgnn.Recording.load(tmp_path / "step")
    assert texts(again) == texts(recording)
    assert again.tune(budget=1)[0]["variant"]


def test_without_gradients_there_is_no_backward():
    with torch.no_grad():
        recording = dfgnn.record(model(), torch.randn(40, 8), EDGES)
    assert texts(recording) == ["gat forward 2x4 f32 dropout",
                                "spmm-mean forward 1x8 f32"]


def test_the_model_stays_as_it_was():
    m = model()
    x = torch.randn(40, 8, requires_grad=True)
    x.grad = torch.ones_like(x)
    first = next(m.parameters())
    first.grad = torch.full_like(first, 3.0)
    state = {k: v.clone() for k, v in m.state_dict().items()}
    random = torch.get_rng_state()
    dfgnn.record(m, x, EDGES)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(v, state[k]) for k, v in m.state_dict().items())
    assert torch.equal(x.grad, torch.ones_like(x))
    assert torch.equal(first.grad, torch.full_like(first, 3.0))
    assert [p.grad for p in m.parameters()][1:] == \
        [None] * (len(list(m.parameters())) - 1)


TUNE = """
m = model()
x = torch.randn(40, 8)
before = m.eval()(x, EDGES)
said = []
tuned = dfgnn.tune(m, x, EDGES, budget=8, name="ring",
                   progress=lambda done, text: said.append(done))
assert len(tuned.reports) == 4 and tuned.gain > 0, tuned
assert said and all(0 <= done <= 1 for done in said)
assert torch.allclose(m(x, EDGES), before, atol=1e-5)
found = dfgnn.explain(dfgnn.as_graph(EDGES, 40), "spmm-mean", 8)
assert found["source"] == "exact", found
print(tuned)
"""


def test_tuning_a_model_says_what_it_gained(tmp_path):
    text = apart(TUNE, tmp_path / "store.db")
    assert text.startswith("tuned 4 of 4 problems in ")
    assert "times as fast)" in text and ", by cpu." in text
    # eval() has no dropout
    assert "gat backward 2x4 f32 on 40 nodes, " in text
    rows = json.loads(subprocess.run(
        ["dfgnn-tune", "show", "--json", "--store", tmp_path / "store.db"],
        check=True, stdout=subprocess.PIPE).stdout)
    assert {row["graph"] for row in rows} == {"ring", "ring 2"}


def test_a_recording_is_saved_and_tuned_elsewhere(tmp_path):
    recording = dfgnn.record(model(), torch.randn(40, 8, requires_grad=True),
                             EDGES, name="ring")
    recording.save(tmp_path / "step")
    found = json.loads((tmp_path / "step" / "recording.json").read_text())
    assert [g["name"] for g in found["graphs"]] == ["ring", "ring 2"]
    again = dfgnn.Recording.load(tmp_path / "step")
    assert texts(again) == texts(recording)
    assert [m.ms for m in again.problems] == pytest.approx(
        [m.ms for m in recording.problems])
    text = apart(f"again = dfgnn.Recording.load({str(tmp_path / 'step')!r})\n"
                 "print(*[r['variant'] for r in again.tune(8).values()])",
                 tmp_path / "store.db")
    assert len(text.split()) == 4
    assert all(variant.startswith("cpu.") for variant in text.split())


def test_a_recording_replaces_a_recording_and_no_other_file(tmp_path):
    recording = dfgnn.record(model(), torch.randn(40, 8, requires_grad=True),
                             EDGES)
    for _ in range(2):
        recording.save(tmp_path / "step")
    assert len(dfgnn.Recording.load(tmp_path / "step").problems) == \
        len(recording.problems)
    (tmp_path / "graph-0.npz").write_text("my thesis")
    with pytest.raises(FileNotFoundError, match="graph-0.npz"):
        recording.save(tmp_path)
    (tmp_path / "recording.json").write_text("my thesis, too")
    with pytest.raises(dfgnn.InvalidError, match="found no recording"):
        recording.save(tmp_path)
    assert (tmp_path / "graph-0.npz").read_text() == "my thesis"
    assert (tmp_path / "recording.json").read_text() == "my thesis, too"


def test_a_folder_without_a_recording_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="recording.json"):
        dfgnn.Recording.load(tmp_path)
    (tmp_path / "recording.json").write_text("[1]")
    with pytest.raises(dfgnn.InvalidError, match="found no recording"):
        dfgnn.Recording.load(tmp_path)


def test_a_step_without_kernels_says_what_to_do():
    with pytest.raises(dfgnn.InvalidError, match="dfgnn.accelerate"):
        dfgnn.record(torch.nn.Linear(4, 4), torch.randn(2, 4))


def test_a_function_does_its_own_step():
    m = model()
    x = torch.randn(40, 8)

    def step():
        m(x, EDGES).square().mean().backward()
    recording = dfgnn.record(step)
    assert "gat backward 2x4 f32 dropout" in texts(recording)
    assert next(m.parameters()).grad is not None


@pytest.mark.parametrize("call,message", [
    (lambda g: dfgnn.tune(g, "gat"), "dim, the features of a head"),
    (lambda g: dfgnn.tune(g, "gat", 8, num_heads=2), "expected 'heads'"),
    (lambda g: dfgnn.tune(g, "gat", 8, dropuot=1), "expected 'dropout'"),
    (lambda g: dfgnn.tune(g, "gat", 8, zzz=1), "expected one of .*heads"),
    (lambda g: dfgnn.explain(g, "gat", 8, head=2), "expected 'heads'"),
    (lambda g: dfgnn.explain(g, "gat"), "dim, the features of a head"),
    (lambda g: dfgnn.tune(model(), g, bugdet=1), "expected 'budget'"),
])
def test_a_wrong_keyword_names_the_right_one(call, message):
    graph = dfgnn.as_graph(EDGES, 40)
    with pytest.raises(TypeError, match=message):
        call(graph)
