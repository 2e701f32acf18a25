"""Times whole training steps: forward, loss, backward and Adam of the models in
the table of docs/performance.md, eager, compiled and captured.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_steps.py --device cuda -o OUT.json

Ways of a step, by library (PyG's layers, dfgnn.nn's, and PyG's after
dfgnn.accelerate):

  eager      the loop as it is written
  compiled   the model compiled by torch.compile, mode "default"
  overhead   mode "reduce-overhead": torch's own CUDA graphs
  captured   the step captured by dfgnn.capture, which takes PyG's layers, too

The file is an array of rows, one per model and its graph; {library}_{way}_ms is
the median of a step, which is waited for, {library}_{way}_first_s the seconds of
the first step, which compiles, and {library}_{way}_bytes the most memory that
torch added in timed steps; or {library}_{way}_why says why there is no such step.
Both libraries have the same parameters; `difference` is the largest difference
of their outputs, relative to the largest output.
"""

import argparse
import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn
import torch.nn.functional as F

from tables import write

LIBRARIES = ("pyg", "dfgnn", "accelerated")
WAYS = ("eager", "compiled", "overhead", "captured")
FEATURES = 64


class Model(nn.Module):
    """A stack of layers, each given as (kind, heads, width, concat)."""

    def __init__(self, library, layers, inputs, dropout):
        super().__init__()
        self.dropout, self.convs = dropout, nn.ModuleList()
        for kind, heads, width, concat in layers:
            self.convs.append(getattr(library, kind)(
                inputs, width, heads=heads, concat=concat, dropout=dropout))
            inputs = heads * width if concat else width

    def forward(self, x, edges):
        for number, conv in enumerate(self.convs):
            x = conv(F.dropout(x, self.dropout, self.training), edges)
            if number + 1 < len(self.convs):
                x = F.elu(x)
        return x


def stack(kind, count, heads, width):
    return [(kind, heads, width, True)] * count


# name: (graph, layers, dropout, width of the features)
MODELS = {
    "cora_gat": ("cora", [("GATConv", 8, 8, True), ("GATConv", 1, 7, False)],
                 0.6, 1433),
    "cora_transformer": ("cora", stack("TransformerConv", 2, 8, 8), 0.0,
                         FEATURES),
    "mnist_transformer": ("preset=mnist", stack("TransformerConv", 4, 8, 8),
                          0.0, FEATURES),
    "pattern_transformer": ("preset=pattern",
                            stack("TransformerConv", 4, 8, 8), 0.0, FEATURES),
    "arxiv_gat": ("preset=arxiv", [("GATConv", 8, 32, True),
                                   ("GATConv", 1, 40, False)], 0.3, 128),
    "arxiv_transformer": ("preset=arxiv", stack("TransformerConv", 3, 8, 16),
                          0.0, 128),
}


def graph_of(spec, scale, data):
    import dfgnn
    if spec.startswith("preset="):
        if scale < 1:
            spec += f",scale={scale}"
        return dfgnn.generate(spec)
    return dfgnn.read(f"{data}/{spec}.npz")


def settle(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def median_ms(step, device, seconds):
    for _ in range(3):
        step()
    settle(device)
    found, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(found) < 5:
        start = time.perf_counter()
        step()
        settle(device)
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found)


def step_of(model, x, edges, labels, device):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True,
                                 capturable=device.startswith("cuda"))

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edges), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return step


class Way:
    """A way to make steps of a model: made with its first step, then timed."""

    def __init__(self, way, model, x, edges, labels, device):
        model = copy.deepcopy(model)
        if way in ("compiled", "overhead"):
            model = torch.compile(model, mode="reduce-overhead"
                                  if way == "overhead" else "default")
        self.device = device
        self.step = step_of(model, x, edges, labels, device)
        if way == "captured":
            import dfgnn
            self.step = dfgnn.capture(self.step)
        settle(device)
        start = time.perf_counter()
        self.step()
        settle(device)
        self.first_s = time.perf_counter() - start

    def measured(self, seconds):
        """What is known of the way, by the end of its name in a row."""
        found, cuda = {"first_s": self.first_s}, self.device.startswith("cuda")
        if cuda:
            gc.collect()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        found["ms"] = median_ms(self.step, self.device, seconds)
        if cuda:
            found["bytes"] = torch.cuda.max_memory_allocated() - before
        return found


class Case:
    """A model of the table on its graph, by library."""

    def __init__(self, name, options):
        import dfgnn
        import dfgnn.nn as ours
        import torch_geometric.nn as theirs
        self.name, self.device = name, options.device
        spec, layers, dropout, width = MODELS[name]
        graph = graph_of(spec, options.scale, options.data).to(self.device)
        torch.manual_seed(1)
        self.x = torch.randn(graph.num_dst, width, device=self.device)
        self.labels = torch.randint(0, 7, (graph.num_dst,),
                                    device=self.device)
        edges = graph.edge_index.contiguous()
        plain = Model(theirs, layers, width, dropout).to(self.device)
        fast = Model(ours, layers, width, dropout).to(self.device)
        fast.load_state_dict(plain.state_dict())
        swapped = copy.deepcopy(plain)
        dfgnn.accelerate(swapped)
        self.models = {"pyg": (plain, edges), "dfgnn": (fast, graph),
                       "accelerated": (swapped, edges)}
        self.row = {"model": name, "nodes": graph.num_dst,
                    "edges": graph.num_edges, "difference": self.difference()}

    def difference(self):
        with torch.no_grad():
            outs = [self.models[library][0].eval()(self.x,
                                                   self.models[library][1])
                    for library in LIBRARIES]
        return max(float((outs[0] - out).abs().max() / outs[0].abs().max())
                   for out in outs[1:])

    def attempt(self, key, function):
        """function(), whose error becomes the row's reason."""
        import dfgnn
        try:
            return function()
        except (RuntimeError, dfgnn.CaptureError) as error:
            self.row[key + "_why"] = str(error).split("\n")[0][:300]
            return None

    def way(self, library, way):
        model, edges = self.models[library]
        return self.attempt(f"{library}_{way}", lambda: Way(
            way, model.train(), self.x, edges, self.labels, self.device))

    def measure(self, library, way, made, seconds):
        key = f"{library}_{way}"
        found = made and self.attempt(key, lambda: made.measured(seconds))
        for name, value in (found or {}).items():
            self.row[f"{key}_{name}"] = value
        print(self.name, library, way, found or self.row.get(key + "_why"),
              file=sys.stderr, flush=True)


def usable(device):
    """Does the device still work?  An illegal access of a compiled kernel leaves
    none of this process usable."""
    try:
        settle(device)
        return True
    except RuntimeError:
        return False


def apart(name, pairs, options):
    """measure() in a process of its own."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [sys.executable, os.path.abspath(__file__), "--models", name,
             "--pairs", ",".join(pairs), "--device", options.device, "--data",
             options.data, "--scale", str(options.scale), "--seconds",
             str(options.seconds), "-o", file.name],
            check=False, stdout=subprocess.DEVNULL)
        text = file.read()
    return json.loads(text)[0] if text else {"model": name}


def measure(name, pairs, options):
    """The row of a model; pairs: LIBRARY:WAY."""
    if not usable(options.device):
        return apart(name, pairs, options)
    case = Case(name, options)
    for i, pair in enumerate(pairs):
        library, way = pair.split(":")
        torch._dynamo.reset()
        case.measure(library, way, case.way(library, way), options.seconds)
        if not usable(options.device) and pairs[i + 1:]:
            return {**case.row, **apart(name, pairs[i + 1:], options)}
    return case.row



def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda"
                        if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--libraries", default="pyg,dfgnn")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--pairs", help="LIBRARY:WAY,... in place of all of both")
    parser.add_argument("--data", default="data",
                        help="the folder of cora.npz")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="scale of the generated graphs, 0 to 1")
    parser.add_argument("--seconds", type=float, default=0.5,
                        help="seconds of samples of a way")
    parser.add_argument("--time-limit", type=float, default=1e9,
                        help="seconds after which no other model is begun")
    parser.add_argument("-o", "--output", help="JSON, written after each row")
    options = parser.parse_args()
    rows, made = [], {"device": "cpu", "torch": torch.__version__}
    if options.device.startswith("cuda"):
        made["device"] = torch.cuda.get_device_name(options.device)
    start = time.perf_counter()
    pairs = options.pairs.split(",") if options.pairs else [
        f"{library}:{way}" for library in options.libraries.split(",")
        for way in options.ways.split(",")]
    for name in options.models.split(","):
        if time.perf_counter() - start > options.time_limit:
            break
        rows.append({**measure(name, pairs, options), **made})
        if options.output:
            write(options.output, rows)
    if not options.output:
        write(None, rows)


if __name__ == "__main__":
    main()
