"""The first example of README.md runs as it is written, and makes a model of
PyG's layers run by dfgnn's kernels with the same numbers."""

import os
import re
import shutil
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


def test_the_first_example_runs_as_written(tmp_path):
    printed = run(first_example(), tmp_path)
    assert "accelerated 2 of 2 layers" in printed
    assert re.search(r"a step took [\d.]+ ms and takes [\d.]+ ms", printed)


def test_the_first_example_keeps_the_numbers(tmp_path):
    setup = first_example().partition("before = milliseconds()")[0]
    printed = run(setup + """
model, data.x = model.double(), data.x.double()

def numbers():
    model.zero_grad()
    out = model.eval()(data.x, data.edge_index)
    out.square().sum().backward()
    return [out, *(p.grad.clone() for p in model.parameters())]

was = numbers()
dfgnn.accelerate(model)
assert type(model.convs[0]).__module__.startswith("dfgnn")
for now, before in zip(numbers(), was):
    torch.testing.assert_close(now, before, rtol=1e-9, atol=1e-9)
print(len(was), "tensors")
""", tmp_path)
    assert int(printed.split()[0]) > 5


def first_commands():
    """The lines of the first block of commands, without their remarks."""
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as file:
        block = re.search(r"\n((?:    .*\n)+)", file.read())[1]
    return [line.partition("#")[0].split() for line in block.splitlines()]


def test_the_first_commands_install_what_runs_the_first_example(tmp_path):
    """setup.sh says nothing where its packages are there; pip takes a build
    that is at hand, since compiling takes minutes, and fetches nothing."""
    setup, install = first_commands()
    assert setup == ["tools/setup.sh"]
    assert install[:3] == ["pip", "install", "."]
    build = os.path.abspath(os.path.join(
        os.path.dirname(os.environ.get("DFGNN_LIBRARY", "/-/-")), ".."))
    if not os.path.exists(os.path.join(build, "libdfgnn_wheel.la")):
        pytest.skip("make check-python names a build")
    with open(os.path.join(TOP, "tools", "packages.txt")) as file:
        wanted = re.sub(r"#.*", "", file.read()).split()
    query = shutil.which("dpkg-query")
    if query and not subprocess.run([query, "-W", *wanted],
                                    stdout=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL).returncode:
        done = subprocess.run(setup, cwd=TOP, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert (done.returncode, done.stdout) == (0, "")
    clean = {name: value for name, value in os.environ.items()
             if name not in ("DFGNN_LIBRARY", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-m", *install[:3], "--no-deps", "--no-index",
         "--disable-pip-version-check", "--target", str(tmp_path / "site"),
         "--config-settings", f"build={build}"],
        cwd=TOP, env=clean, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    there = {**clean, "PYTHONPATH": str(tmp_path / "site"),
             "DFGNN_STORE": "", "XDG_DATA_HOME": str(tmp_path)}
    (tmp_path / "first.py").write_text(
        first_example() + "\nprint(dfgnn.__file__)\n")
    done = subprocess.run([sys.executable, "first.py"], cwd=tmp_path,
                          env=there, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    assert "accelerated 2 of 2 layers" in done.stdout
    assert str(tmp_path / "site") in done.stdout
    for name in ("dfgnn-tune", "dfgnn-bench", "dfgnn-graph"):
        done = subprocess.run(
            [str(tmp_path / "site" / "bin" / name), "--version"], env=there,
            text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert done.stdout.startswith(name + " "), done.stderr


def test_the_first_screen_compares_with_more_than_eager_pyg():
    with open(os.path.join(TOP, "README.md"), encoding="utf-8") as file:
        first = file.read().partition("\n## ")[0]
    head = re.search(r"^\| model \|.*$", first, re.M)[0]
    assert "PyG compiled" in head and "memory" in head
    assert len(re.findall(r"^\| \w.*$", first, re.M)) >= 6
