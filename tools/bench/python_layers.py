"""Times layers of the PyTorch package against PyG's own, eager.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_layers.py -o OUT.json GRAPH.npz...

Forward and backward of one layer with the gradients of its input and of its
parameters.  Writes a flat JSON array, a row per layer and library, after each
graph:

  preprocess_ms  edge_index to dfgnn.Graph, with self loops where the layer
                 has them
  first_ms       the first forward and backward: plans, transposed views
  forward_ms, backward_ms, total_ms    medians of the calls after the first
  peak_bytes     most memory beside inputs, parameters and graph: of the device
                 (CUDA), or resident in the process (CPU)
  graph_bytes    memory of the graph, in the library and in torch (CUDA)
  speedup, memory_ratio    PyG over this row

With --edge-dims layers that can take edge features get so many of them, and
their gradients are made as well: such rows are named TransformerConv+e11.

A library that runs out of memory says so as its status.
"""

import argparse
import ctypes
import gc
import os
import statistics
import subprocess
import sys
import time

import numpy
import torch

from tables import write

# layers that take edge features
EDGED = ("TransformerConv", "GATConv", "GATv2Conv")

# layers that add self loops
LOOPED = ("GATConv", "GATv2Conv", "AGNNConv", "GCNConv")


class Pna(torch.nn.Module):
    """mean, min, max and std of the neighbours, side by side."""

    def __init__(self, library):
        super().__init__()
        self.theirs = None
        if library == "pyg":
            from torch_geometric.nn.aggr import MultiAggregation
            self.theirs = MultiAggregation(["mean", "min", "max", "std"])

    def forward(self, x, edges):
        if self.theirs is None:
            import dfgnn
            return torch.cat(dfgnn.aggregate(edges, x, "pna"), -1)
        return self.theirs(x.index_select(0, edges[0]), edges[1],
                           dim_size=x.size(0))


def module(nn, library, name, dim, heads, edge_dim=0):
    if edge_dim:
        return getattr(nn, name)(dim, dim // heads, heads=heads,
                                 edge_dim=edge_dim)
    if name == "PNA":
        return Pna(library)
    if name == "AGNNConv":
        return nn.AGNNConv()
    if name == "GINConv":
        return nn.GINConv(torch.nn.Linear(dim, dim))
    if name == "SAGEConv-max":
        return nn.SAGEConv(dim, dim, aggr="max")
    if name in ("GCNConv", "SAGEConv"):
        return getattr(nn, name)(dim, dim)
    return getattr(nn, name)(dim, dim // heads, heads=heads)


LAYERS = ("TransformerConv", "GATConv", "GATv2Conv", "AGNNConv", "GCNConv",
          "SAGEConv", "SAGEConv-max", "GINConv", "PNA")


def load(path, device, first=None):
    """(nodes, edge_index, graph_ptr or None); of a batch, its first graphs.
    """
    file = numpy.load(path)
    rows, columns = (int(n) for n in file["shape"])
    if rows != columns:
        raise SystemExit(f"{path}: {rows} x {columns}; layers over x [N, F] "
                         "want a square matrix")
    offsets = torch.from_numpy(file["indptr"].astype(numpy.int64)).to(device)
    sources = torch.from_numpy(file["indices"]).to(device).long()
    destinations = torch.repeat_interleave(
        torch.arange(rows, device=device), offsets.diff())
    ptr = None
    if "graph_ptr" in file:
        ptr = torch.from_numpy(file["graph_ptr"].astype(numpy.int64))
    if first is not None and ptr is not None:
        ptr = ptr[:first + 1]
        rows = int(ptr[-1])
        kept = int(offsets[rows])
        sources, destinations = sources[:kept], destinations[:kept]
    return rows, torch.stack([sources, destinations]), ptr


class Meter:
    """Time and memory of a device."""

    def __init__(self, device, seconds):
        self.device, self.seconds = device, seconds
        self.cuda = device.type == "cuda"

    def settle(self):
        if self.cuda:
            torch.cuda.synchronize()

    def clear(self):
        gc.collect()
        if self.cuda:
            torch.cuda.empty_cache()

    def once(self, function):
        """(result, ms) of one call; the device is waited for."""
        self.settle()
        start = time.perf_counter()
        result = function()
        self.settle()
        return result, 1e3 * (time.perf_counter() - start)

    def held(self):
        return torch.cuda.memory_allocated() if self.cuda else 0

    def peak(self, function):
        """The most bytes beside those that were held before."""
        if not self.cuda:
            return self._resident_peak(function)
        before = self.held()
        torch.cuda.reset_peak_memory_stats()
        function()
        self.settle()
        return torch.cuda.max_memory_allocated() - before

    @staticmethod
    def _status(key):
        with open("/proc/self/status") as file:
            return next(1024 * int(line.split()[1]) for line in file
                        if line.startswith(key))

    def _resident_peak(self, function):
        """Linux keeps the most pages that were resident; writing 5 to
        clear_refs resets that.  Memory that malloc kept of earlier calls is
        given back first."""
        try:
            ctypes.CDLL(None).malloc_trim(0)
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
            before = self._status("VmRSS")
            function()
            return max(0, self._status("VmHWM") - before)
        except OSError:
            return None

    def _mark(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, a, b):
        return a.elapsed_time(b) if self.cuda else 1e3 * (b - a)

    def samples(self, forward, backward):
        """[(forward ms, backward ms)]: the device is waited for at the end
        only, as in a training loop."""
        _, ms = self.once(lambda: backward(forward()))
        count = min(100, max(3, int(1e3 * self.seconds / max(ms, 1e-3))))
        marks = []
        for _ in range(count):
            start = self._mark()
            out = forward()
            middle = self._mark()
            backward(out)
            marks.append((start, middle, self._mark()))
            del out
        self.settle()
        return [(self._between(a, b), self._between(b, c))
                for a, b, c in marks]


def graph_of(edges, nodes, ptr, name):
    import dfgnn
    graph = dfgnn.Graph.from_edge_index(edges, nodes, graph_ptr=ptr)
    if name in LOOPED:
        graph.with_self_loops()
    return graph


def measure(library, label, graph, options, meter):
    name, _, width = label.partition("+e")
    nodes, edges, ptr = graph
    row = {"preprocess_ms": 0.0}
    if library == "dfgnn":
        import dfgnn.nn as nn
    else:
        import torch_geometric.nn as nn
    torch.manual_seed(1)
    layer = module(nn, library, name, options.dim, options.heads,
                   int(width or 0))
    layer = layer.to(meter.device)
    x = torch.randn(nodes, options.dim, device=meter.device,
                    requires_grad=True)
    grad = torch.randn(nodes, options.dim * (4 if name == "PNA" else 1),
                       device=meter.device)
    leaves = [x, *layer.parameters()]
    extra = ()
    if width:
        extra = (torch.randn(edges.size(1), int(width), device=meter.device,
                             requires_grad=True),)
        leaves += extra
    before = meter.held()
    where = edges
    if library == "dfgnn":
        runs = []
        for _ in range(3):
            where = None
            where, ms = meter.once(
                lambda: graph_of(edges, nodes, ptr, name))
            runs.append(ms)
        row["preprocess_ms"] = statistics.median(runs)

    def forward():
        return layer(x, where, *extra)

    def backward(out):
        torch.autograd.grad(out, leaves, grad)

    def both():
        backward(forward())
    _, row["first_ms"] = meter.once(both)
    row["peak_bytes"] = meter.peak(both)
    row["graph_bytes"] = None
    if meter.cuda:
        row["graph_bytes"] = meter.held() - before + (
            where.nbytes if library == "dfgnn" else 0)
    found = meter.samples(forward, backward)
    row.update(
        forward_ms=statistics.median(f for f, _ in found),
        backward_ms=statistics.median(b for _, b in found),
        total_ms=statistics.median(f + b for f, b in found),
        best_ms=min(f + b for f, b in found), samples=len(found))
    return row


def out_of_memory(error):
    kinds = (MemoryError, getattr(torch.cuda, "OutOfMemoryError", MemoryError))
    return isinstance(error, kinds) or "out of memory" in str(error)


def attempt(*arguments):
    try:
        return dict(measure(*arguments), status="ok", reason="")
    except Exception as error:  # the rows of the others count
        status = "out of memory" if out_of_memory(error) else "failed"
        return {"status": status, "reason": str(error).split("\n")[0][:200]}


def compare(rows):
    """PyG over each row of one layer on one graph."""
    theirs = next((r for r in rows if r["library"] == "pyg"), {})
    for row in rows:
        for ratio, key in (("speedup", "total_ms"),
                           ("memory_ratio", "peak_bytes")):
            a, b = theirs.get(key), row.get(key)
            row[ratio] = a / b if a and b else None


def git_commit():
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(
        ["git", "-C", here, "describe", "--always", "--dirty", "--abbrev=12",
         "--exclude=*"], text=True, capture_output=True)
    return done.stdout.strip()


def surroundings(options, device):
    import dfgnn
    found = {"dim": options.dim, "heads": options.heads, "dtype": "f32",
             "device": device.type, "driver": "", "torch": torch.__version__,
             "version": dfgnn.version(),
             "commit": options.commit or git_commit()}
    try:
        import torch_geometric
        found["pyg"] = torch_geometric.__version__
    except ImportError:
        found["pyg"] = ""
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name()
        try:
            asked = subprocess.run(
                ["nvidia-smi", "--query-gpu=driver_version",
                 "--format=csv,noheader"], text=True, capture_output=True)
            found["driver"] = asked.stdout.split("\n")[0].strip()
        except OSError:
            pass
    return found


def say(row):
    def number(key, form):
        return format(row[key], form) if row.get(key) is not None else "-"
    peak = row.get("peak_bytes")
    print(f"{row['graph']:14} {row['layer']:20} {row['library']:6}"
          f"{number('forward_ms', '9.3f')} +{number('backward_ms', '9.3f')} ms"
          + (f" {peak / 2 ** 20:9.1f} MiB" if peak is not None else "")
          + f" {number('speedup', '6.2f')}x {row['status']}"
          + (f": {row['reason']}" if row.get("reason") else ""),
          file=sys.stderr)


# ---- the run ----------------------------------------------------------------

def warm(options, meter):
    """Makes the first calls of the process on a small graph, untimed."""
    edges = torch.randint(0, 64, (2, 512), device=meter.device)
    for library in options.libraries:
        for name in options.layers:
            attempt(library, name, (64, edges, None), options,
                    Meter(meter.device, 0))


def run(options):
    device = torch.device(options.device)
    meter = Meter(device, options.seconds)
    about = surroundings(options, device)
    warm(options, meter)
    start, rows = time.monotonic(), []
    for path in options.graphs:
        graph_name = os.path.basename(path)[:-len(".npz")]
        graph = load(path, device, options.first)
        for name in options.layers:
            pair = []
            for library in options.libraries:
                meter.clear()
                row = {"graph": graph_name, "layer": name, "library": library,
                       "destinations": graph[0],
                       "edges": graph[1].size(1), **about}
                if time.monotonic() - start > options.time_limit:
                    row.update(status="not run", reason="time limit")
                else:
                    row.update(attempt(library, name, graph, options, meter))
                pair.append(row)
            compare(pair)
            for row in pair:
                say(row)
            rows += pair
        del graph
        if options.output:
            write(options.output, rows)
    if not options.output:
        write(None, rows)
    return any(row["status"] == "failed" for row in rows)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="*", metavar="GRAPH.npz")
    parser.add_argument("-o", "--output", metavar="OUT.json")
    parser.add_argument("--device", default="cuda"
                        if torch.cuda.is_available() else "cpu")
    parser.add_argument("--layers", default=",".join(LAYERS),
                        type=lambda s: s.split(","))
    parser.add_argument("--edge-dims", default=[0], metavar="LIST",
                        type=lambda s: [int(n) for n in s.split(",")],
                        help="features per edge (0: none)")
    parser.add_argument("--first", type=int, metavar="N",
                        help="number of a batch's graphs that are kept")
    parser.add_argument("--libraries", default="dfgnn,pyg",
                        type=lambda s: s.split(","))
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.3,
                        help="seconds of samples for each row")
    parser.add_argument("--time-limit", type=float, default=1e9,
                        help="seconds after which rows are not run")
    parser.add_argument("--commit",
                        help="the commit that the library was built from")
    options = parser.parse_args()
    for name, known in (("layers", LAYERS), ("libraries", ("dfgnn", "pyg"))):
        wrong = set(getattr(options, name)) - set(known)
        if wrong:
            parser.error(f"no such {name}: {', '.join(sorted(wrong))}; there "
                         f"are {', '.join(known)}")
    options.layers = [
        f"{name}+e{n}" if n else name for n in options.edge_dims
        for name in options.layers if not n or name in EDGED]
    if not options.graphs:
        parser.error("no graph is given")
    return int(run(options))


if __name__ == "__main__":
    sys.exit(main())
