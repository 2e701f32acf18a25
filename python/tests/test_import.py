"""What `import dfgnn` brings, and what it leaves."""

import re

from test_graph import run_python


def test_importing_brings_the_layers_when_they_are_looked_at():
    run_python("""
import sys, dfgnn
assert "dfgnn.nn" not in sys.modules
assert dfgnn.nn.GATConv(3, 4) is not None
assert "nn" in dir(dfgnn)
assert "dfgnn.nn.dgl" not in sys.modules
assert dfgnn.nn.dgl.GATConv(3, 4, 1) is not None
try:
    dfgnn.neither
except AttributeError as error:
    assert "neither" in str(error)
else:
    raise SystemExit("no error")
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
    best = min(float(re.search(r"seconds (\S+)", run_python(code))[1])
               for _ in range(3))
    assert best < 0.1, f"import dfgnn takes {best:.3f} s more than torch"
