"""Times layers over batches of small graphs that are new in each step, on CPUs.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 bench/cpu_layers.py -o OUT.json
    python3 bench/cpu_layers.py --table OUT.json

A batch has the sizes of molecules of ZINC, 23 nodes and 50 edges with features,
and edge_index, attributes and batch are new tensors in each step, as a data
loader makes them: what a graph costs is part of each step.  A layer of PyG and
its copy after dfgnn.accelerate() take turns on the same batches.  A row has
minima over all turns:

  pyg_ms, dfgnn_ms    wall time of a step: forward, or with its backward
  cpu_speedup         the ratio of the CPU times of all threads
  speedup             the ratio of the wall times
  pyg_bytes, dfgnn_bytes    most memory of torch in a step beside what was there
  difference          largest difference of outputs, relative to the largest
"""

import argparse
import copy
import json
import os
import sys
import time

import torch
import torch_geometric.nn as G

NODES, EDGES = 23, 50


def perceptron(width):
    return torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.ReLU(),
                               torch.nn.Linear(width, width))


class Bare(torch.nn.Module):
    """A layer that takes no edge features."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index, attr, batch):
        return self.layer(x, edge_index)


class Edged(Bare):
    def forward(self, x, edge_index, attr, batch):
        return self.layer(x, edge_index, attr)


class Global(Bare):
    def forward(self, x, edge_index, attr, batch):
        return self.layer(x, edge_index, batch, edge_attr=attr)


# by name, the layer of a width; edge features are as wide
LAYERS = {
    "GIN": lambda w: Bare(G.GINConv(perceptron(w))),
    "GAT 8x8": lambda w: Bare(G.GATConv(w, w // 8, heads=8)),
    "GCN": lambda w: Bare(G.GCNConv(w, w)),
    "GINE": lambda w: Edged(G.GINEConv(perceptron(w))),
    "GATv2 4x16 edges": lambda w: Edged(
        G.GATv2Conv(w, w // 4, heads=4, edge_dim=w)),
    "Transformer 4x16 edges": lambda w: Edged(
        G.TransformerConv(w, w // 4, heads=4, edge_dim=w)),
    "GPS": lambda w: Global(G.GPSConv(w, G.GINEConv(perceptron(w)), heads=4)),
}


def batches(graphs, width, count, seed):
    """`count` batches of (x, edge_index, attr, batch)."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.arange(graphs).repeat_interleave(NODES)
    start = torch.arange(graphs).repeat_interleave(EDGES) * NODES
    made = []
    for _ in range(count):
        half = torch.randint(0, NODES, (2, graphs, EDGES // 2),
                             generator=generator)
        inside = torch.cat([half, half.flip(0)], 2).reshape(2, -1)
        made.append((torch.randn(graphs * NODES, width, generator=generator),
                     inside + start,
                     torch.randn(graphs * EDGES, width, generator=generator),
                     group))
    return made


def step(layer, given, backward):
    x, edge_index, attr, batch = given
    x = x.detach().requires_grad_(backward)
    # new tensors, since both libraries keep what they know of a tensor
    out = layer(x, edge_index.clone(), attr, batch)
    if backward:
        layer.zero_grad(set_to_none=True)
        out.backward(torch.ones_like(out))
    return out


def timed(layer, made, backward):
    """The least (wall ms, CPU ms) of the steps over some batches."""
    wall, cpu = [], []
    for given in made:
        start, used = time.perf_counter(), time.process_time()
        step(layer, given, backward)
        cpu.append(1e3 * (time.process_time() - used))
        wall.append(1e3 * (time.perf_counter() - start))
    return min(wall), min(cpu)


def peak(layer, given, backward):
    """The most bytes of torch's tensors that a step allocates."""
    with torch.profiler.profile(profile_memory=True) as profile:
        step(layer, given, backward)
    held = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def measure(name, backward, graphs, width, rounds):
    import dfgnn
    torch.manual_seed(1)
    plain = LAYERS[name](width)
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    made = batches(graphs, width, 4, 1)
    with torch.set_grad_enabled(backward):
        a, b = (step(layer.eval(), made[0], backward).detach()
                for layer in (plain, fast))
        for layer in (plain, fast):
            timed(layer.train(), made, backward)
        least = [(float("inf"),) * 2] * 2
        for _ in range(rounds):
            for number, layer in enumerate((plain, fast)):
                least[number] = tuple(map(min, zip(
                    least[number], timed(layer, made, backward))))
        bytes_ = [peak(layer, made[0], backward) for layer in (plain, fast)]
    (pyg, pyg_cpu), (ours, cpu) = least
    return {
        "layer": name, "pass": "both" if backward else "forward",
        "threads": torch.get_num_threads(), "graphs": graphs, "width": width,
        "pyg_ms": round(pyg, 4), "dfgnn_ms": round(ours, 4),
        "speedup": round(pyg / ours, 3),
        "cpu_speedup": round(pyg_cpu / cpu, 3),
        "pyg_bytes": bytes_[0], "dfgnn_bytes": bytes_[1],
        "difference": float((a - b).abs().max() / a.abs().max()),
        "torch": torch.__version__, "load": round(os.getloadavg()[0], 1)}


def table(rows):
    print("| layer | pass | threads | PyG ms | dfgnn ms | speed-up "
          "| of CPU time | memory |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        memory = row["dfgnn_bytes"] / max(row["pyg_bytes"], 1)
        print(f"| {row['layer']} | {row['pass']} | {row['threads']} "
              f"| {row['pyg_ms']:.3f} | {row['dfgnn_ms']:.3f} "
              f"| {row['speedup']:.2f} | {row['cpu_speedup']:.2f} "
              f"| {memory:.2f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", nargs="+", default=list(LAYERS),
                        choices=list(LAYERS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--graphs", type=int, default=128)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--output")
    parser.add_argument("--table", metavar="JSON")
    given = parser.parse_args()
    if given.table:
        with open(given.table) as file:
            table(json.load(file))
        return
    rows = []
    for threads in given.threads:
        torch.set_num_threads(threads)
        for name in given.layers:
            for backward in (False, True):
                rows.append(measure(name, backward, given.graphs, given.width,
                                    given.rounds))
                row = rows[-1]
                print(f"{name}, {row['pass']}, {threads} threads: "
                      f"{row['speedup']:.2f} times as fast as PyG",
                      file=sys.stderr)
                if given.output:
                    with open(given.output, "w") as file:
                        file.write(json.dumps(rows, indent=1) + "\n")
    if not given.output:
        table(rows)


if __name__ == "__main__":
    main()
