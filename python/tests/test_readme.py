"""The first example of README.md runs as it is written, and makes a model of
PyG's layers run by dfgnn's kernels with the same numbers."""

import os
import re
import subprocess
import sys

import pytest

from conftest import PATIENCE

pytest.importorskip("torch_geometric")
TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def first_example():
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as file:
        text = file.read()
    found = re.search(r"<!-- first example -->\n```python\n(.*?)```", text,
                      re.S)
    assert found, "README.md has no block marked as the first example"
    return found[1]


def run(code, folder):
    """Runs the code as a file of a user's in an empty folder."""
    path = folder / "first.py"
    path.write_text(code)
    done = subprocess.run([sys.executable, str(path)], cwd=folder, text=True,
                          env={**os.environ, "DFGNN_STORE": "",
                               "XDG_DATA_HOME": str(folder)},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_example_runs_as_written_and_keeps_the_numbers(tmp_path):
    printed = run(first_example() + """
model, data.x = model.double(), data.x.double()

def numbers():
    model.zero_grad()
    out = model.eval()(data.x, data.edge_index)
    out.square().sum().backward()
    return [out, *(p.grad.clone() for p in model.parameters())]

assert type(model.convs[0]).__module__.startswith("dfgnn")
now = numbers()
dfgnn.accelerate(model, undo=True)
assert type(model.convs[0]).__module__.startswith("torch_geometric")
for a, b in zip(now, numbers(), strict=True):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
print(len(now), "tensors")
""", tmp_path)
    assert "accelerated 2 of 2 layers" in printed
    assert re.search(r"a step took [\d.]+ ms and takes [\d.]+ ms", printed)
    assert int(re.search(r"(\d+) tensors", printed)[1]) > 5
