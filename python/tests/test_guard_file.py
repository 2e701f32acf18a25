"""The file of times beside the store: what races leave to later processes, and
whatever else may stand in its place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import dfgnn
from dfgnn import _guard, _measure, _ways
from dfgnn._guard import KERNELS
from test_guard import STEPS, Fast, Own, clock, layer, train  # noqa: F401


@pytest.fixture
def file(monkeypatch, tmp_path):
    """The file of decisions."""
    monkeypatch.setenv("DFGNN_STORE", f"{tmp_path}/t.db")
    monkeypatch.setattr(_measure, "enabled", True)
    monkeypatch.setattr(_ways, "_files", {})
    return tmp_path / "t.db.paths"


@pytest.mark.parametrize("own, kernels, stays", [
    ((1, 1), (5, 5), Own), ((5, 5), (1, 1), Fast)], ids=["own", "kernels"])
def test_a_clear_decision_is_known_to_later_processes(clock, file, own, kernels,
                                                      stays):
    first = layer(clock, own, kernels)
    train(first)
    assert first.paths.count(KERNELS) > _guard.WARM
    _ways._files.clear()
    # even if it would be wrong now
    second = layer(clock, kernels, own)
    guard = second._dfgnn_guard
    train(second)
    assert type(first) is type(second) is stays
    assert second.paths[_guard.WARM:] == [second.paths[-1]] * (
        STEPS - _guard.WARM)
    assert guard.reason == first_reason(own, kernels)


def first_reason(own, kernels):
    own, kernels = (f"{1e3 * sum(t):.3g} ms" for t in (own, kernels))
    return f"a call takes {own} by its library's own path, {kernels} by " \
        "kernels, in an earlier process"


def test_close_decisions_are_taken_anew(clock, file):
    one = layer(clock, (1, 1), (1.1, 1.1))
    train(one)
    assert type(one) is Own and not file.exists()


def test_nothing_is_kept_where_nothing_is_measured(clock, file, monkeypatch):
    train(layer(clock, (1, 1), (5, 5)))
    assert len(file.read_text().split()) > 1
    monkeypatch.setattr(_measure, "enabled", False)
    assert races(layer(clock, (1, 1), (5, 5)))
    file.unlink()
    train(layer(clock, (1, 1), (5, 5)))
    assert not file.exists()


def races(one, x=torch.ones(2, 3), steps=STEPS):
    """Whether a layer takes both paths after its warm-up."""
    _ways._files.clear()
    for _ in range(steps):
        one(x).sum().backward()
    return len(set(one.paths[_guard.WARM:])) == 2


def test_a_decision_is_of_one_layer_input_machine_and_version(
        clock, file, monkeypatch):
    train(layer(clock, (1, 1), (5, 5)))
    assert not races(layer(clock, (1, 1), (5, 5)))
    other = layer(clock, (1, 1), (5, 5))
    other.dropout = .5
    assert races(other)
    assert races(layer(clock, (1, 1), (5, 5)).eval())
    assert races(layer(clock, (1, 1), (5, 5)), torch.ones(5, 3))
    wide = layer(clock, (1, 1), (5, 5))
    wide.weight = nn.Parameter(torch.ones(4))
    assert races(wide, torch.ones(2, 4))
    with torch.autocast("cpu", torch.bfloat16):
        assert races(layer(clock, (1, 1), (5, 5)))
    for name, value in ((dfgnn, "__version__"), (torch, "__version__")):
        with monkeypatch.context() as patch:
            patch.setattr(name, value, "9.9")
            assert races(layer(clock, (1, 1), (5, 5)))
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        assert races(layer(clock, (1, 1), (5, 5)))
    finally:
        torch.set_num_threads(before)
    # batches of about as many rows share one
    assert races(layer(clock, (1, 1), (5, 5)), torch.ones(1000, 3))
    assert not races(layer(clock, (1, 1), (5, 5)), torch.ones(1040, 3))
    assert races(layer(clock, (1, 1), (5, 5)), torch.ones(2000, 3))


@pytest.mark.parametrize("content", [
    b"", b"\0\xff" * 99, b"[" * 200_000, b"{}\n[]\n3\nnull\n\"key\"",
    *[json.dumps({"key": "KEY", "ms": {"own path": own, "kernels": 1.0}}).encode()
      for own in (-1.0, 0.0, float("nan"), float("inf"), "1", None, True, [],
                  1 << 99)]], ids=str)
def test_a_file_that_holds_something_else_is_passed_over(clock, file, content):
    train(layer(clock, (1, 1), (5, 5)))
    key = json.loads(file.read_text())["key"]
    file.write_bytes(content.replace(b"KEY", key.encode()))
    one = layer(clock, (1, 1), (5, 5))
    assert races(one) and type(one) is Own
    assert not races(layer(clock, (1, 1), (5, 5)))  # its line was added


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_its_place_stops_nothing(clock, file, make):
    make(file)
    one = layer(clock, (1, 1), (5, 5))
    assert races(one) and type(one) is Own


@pytest.mark.parametrize("store", ["", "/proc/none/t.db", "/dev/null/t.db"])
def test_where_nothing_can_be_written_each_process_races(clock, file, store,
                                                         monkeypatch):
    monkeypatch.setenv("DFGNN_STORE", store)
    for _ in range(2):
        one = layer(clock, (1, 1), (5, 5))
        assert races(one) and type(one) is Own


def test_a_layer_that_cannot_be_described_races(clock, file, monkeypatch):
    monkeypatch.setattr(Own, "extra_repr", lambda self: 1 / 0)
    one = layer(clock, (1, 1), (5, 5))
    assert races(one) and type(one) is Own and not file.exists()


def test_a_full_file_begins_anew(clock, file, monkeypatch):
    monkeypatch.setattr(_ways, "MOST_BYTES", 100)
    for width in range(3, 6):
        one = layer(clock, (1, 1), (5, 5))
        one.weight = nn.Parameter(torch.ones(width))
        races(one, torch.ones(2, width))
    assert file.stat().st_size < 250


PROCESS = """
import sys, torch
import test_guard as t
t._guard._Clock.mark = lambda: t.Clock.now
one = t.layer(t.Clock, (1, 1), (5, 5))
t.train(one)
print(one.paths.count(t.KERNELS), type(one).__name__)
"""


def test_two_processes_race_once(file):
    def kernels():
        return subprocess.run(
            [sys.executable, "-c", PROCESS], cwd=Path(__file__).parent,
            env={**os.environ, "DFGNN_MEASURE": "1"}, text=True, check=True,
            stdout=subprocess.PIPE).stdout.split()
    assert kernels() == [str(_guard.WARM + _guard.RUN), "Own"]
    assert kernels() == [str(_guard.WARM), "Own"]


def test_the_file_lies_beside_the_store_that_is_written(monkeypatch):
    for name, value, expected in (
            ("DFGNN_STORE", "a/b.db:c.db", "a/b.db.paths"),
            ("DFGNN_STORE", None, "/data/dfgnn/tuning.db.paths"),
            ("XDG_DATA_HOME", "", os.path.expanduser(
                "~/.local/share/dfgnn/tuning.db.paths"))):
        monkeypatch.setenv("XDG_DATA_HOME", "/data")
        if value is None:
            monkeypatch.delenv(name)
        else:
            monkeypatch.setenv(name, value)
        assert _ways.place() == expected
