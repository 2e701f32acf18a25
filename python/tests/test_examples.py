"""The examples train, and as well as in their papers."""

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "examples")


def train(name, *options):
    done = subprocess.run(
        [sys.executable, os.path.join(EXAMPLES, name), "--json", "--library",
         "dfgnn", "--device", "cpu", *map(str, options)], text=True,
        capture_output=True, timeout=900,
        env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_gat_learns_cora():
    seeds = 1 if os.environ.get("TEST_QUICK") else 10
    row = train("cora.py", "--seeds", seeds, "--epochs",
                100 if seeds == 1 else 200)
    low, high = (78, 86) if seeds == 1 else (81, 84)
    assert low <= row["accuracy"] <= high, row


def test_a_graph_transformer_learns_cora():
    row = train("cora.py", "--model", "transformer", "--epochs", 60)
    assert row["accuracy"] > 74, row


def test_a_graph_transformer_trains_on_patterns():
    row = train("pattern.py", "--epochs", 2, "--batch", 4, "--batches", 2)
    assert 30 < row["accuracy"] <= 100 and row["epoch_ms"] > 0, row
    assert row["preprocess_ms"] > 0


@pytest.mark.parametrize("name", ["cora.py", "pattern.py"])
def test_help_says_what_is_trained(name):
    done = subprocess.run([sys.executable, os.path.join(EXAMPLES, name),
                           "--help"], text=True, capture_output=True)
    assert done.returncode == 0 and "--library" in done.stdout
