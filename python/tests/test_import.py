"""The modules that `import dfgnn` loads, and those that it leaves for later."""

import ast
import os
import pathlib
import re

import pytest

from test_graph import run_python


def test_layers_come_when_they_are_looked_at_and_no_module_hides_a_function():
    run_python("""
import sys, dfgnn
assert "dfgnn.nn" not in sys.modules
assert dfgnn.nn.GATConv(3, 4) is not None
assert "nn" in dir(dfgnn)
assert "dfgnn.nn.dgl" not in sys.modules
assert dfgnn.nn.dgl is sys.modules["dfgnn.nn.dgl"]
assert "dgl" not in sys.modules
try:
    dfgnn.neither
except AttributeError as error:
    assert "neither" in str(error)
else:
    raise SystemExit("no error")
import importlib, pkgutil, types, dfgnn.nn
for package in dfgnn, dfgnn.nn:
    found = {name: getattr(package, name) for name in package.__all__}
    assert len(found) > 7
    assert set(package.__all__) <= set(dir(package))
    modules = {m.name for m in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(found) - {"report"}  # which gives way to it
    for name in modules - {"distributed", "dgl", "jax", "pyg"}:
        importlib.import_module(f"{package.__name__}.{name}")
    for name, value in found.items():
        assert getattr(package, name) is value
        assert not isinstance(value, types.ModuleType), name
exec("from dfgnn import *")
assert gt_attention is dfgnn.gt_attention
""")


def test_importing_costs_little_and_no_torch_geometric():
    code = """
import time, torch, sys
start = time.process_time()
import dfgnn
import dfgnn.nn
print("seconds", time.process_time() - start)
assert "torch_geometric" not in sys.modules
"""
    for _ in range(3):  # the first may read files that no cache has
        took = float(re.search(r"seconds (\S+)", run_python(code))[1])
        if took < 0.1:
            return
    pytest.fail(f"import dfgnn takes {took:.3f} s more than torch")


def test_the_modules_that_dfgnn_jax_imports_need_no_torch():
    run_python("""
import ast, importlib, pathlib, sys, dfgnn
names = {node.module or alias.name
         for file in (pathlib.Path(dfgnn.__file__).parent / "jax").glob("*.py")
         for node in ast.walk(ast.parse(file.read_text()))
         if isinstance(node, ast.ImportFrom) and node.level == 2
         for alias in node.names}
assert len(names) > 5, names
for name in sorted(names):
    importlib.import_module("dfgnn." + name)
    assert "torch" not in sys.modules, name
""")


def test_an_exported_program_needs_the_operators_alone(tmp_path):
    torch = pytest.importorskip("torch", "2.4")
    run_python(f"""
import torch, dfgnn
layer = dfgnn.nn.GCNConv(3, 2).eval()
x, edges = torch.ones(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
torch.export.save(torch.export.export(layer, (x, edges)), {str(tmp_path)!r}
                  + "/layer.pt2")
torch.save(layer(x, edges).detach(), {str(tmp_path)!r} + "/out.pt")
""")
    assert torch.load(tmp_path / "out.pt").shape == (4, 2)
    run_python(f"""
import torch, dfgnn
program = torch.export.load({str(tmp_path)!r} + "/layer.pt2")
x, edges = torch.ones(4, 3), torch.tensor([[0, 1, 2], [1, 2, 3]])
wanted = torch.load({str(tmp_path)!r} + "/out.pt")
torch.testing.assert_close(program.module()(x, edges), wanted)
""")


def test_annotations_of_public_names_agree():
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    top = pathlib.Path(__file__).parents[1]
    names = set(re.findall(r'^    "(\w+)": \["', (
        top / "dfgnn" / "__init__.py").read_text(), re.M))
    files = [str(top / "dfgnn" / f"{name}.py") for name in names]
    assert len(files) > 10
    found, errors, _ = api.run([
        "--config-file", str(top.parent / "pyproject.toml"),
        "--cache-dir", os.devnull, *files])
    assert found.startswith("Success"), found + errors


def imported(path, module, modules):
    """The modules of the package that a file imports, inside functions,
    too."""
    package = module if path.name == "__init__.py" else \
        module.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                parts = parts[:len(parts) - node.level + 1]
                base = ".".join(parts + ([node.module] if node.module else []))
            names = [f"{base}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else base for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return (found & modules.keys()) - {module}


def test_no_modules_import_each_other():
    top = pathlib.Path(__file__).parents[1]
    modules = {".".join(path.relative_to(top).with_suffix("").parts)
               .removesuffix(".__init__"): path
               for path in (top / "dfgnn").rglob("*.py")}
    needs = {module: imported(path, module, modules)
             for module, path in modules.items()}
    assert len(needs) > 50 and sum(map(len, needs.values())) > 150
    while needs:  # modules that need none of the rest go, one layer at a time
        free = {m for m in needs if not needs[m] & needs.keys()}
        assert free, {m: needs[m] & needs.keys() for m in needs}
        needs = {m: n for m, n in needs.items() if m not in free}
