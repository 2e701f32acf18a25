"""Times whole training steps of PyG's models on CPUs, before and after
dfgnn.accelerate(model).  bench/cpu_models.sh runs it for one and two threads
and merges what it finds.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 bench/cpu_models.py --threads 2 -o OUT.json
    python3 bench/cpu_models.py --table OUT.json

A step is forward, loss and backward, and for models of nodes on one graph what
the graph costs once is left out; models of molecules get a new batch in each
step, whose graphs are made anew, as with a data loader.  Both libraries take
turns, step by step, and a row has the least time of each, since whatever else
the machine does makes steps longer:

  pyg_ms, dfgnn_ms    milliseconds of a step, the least
  speedup             their ratio
  pyg_rounds, dfgnn_rounds    all times of each
  load                load average at the beginning and the end of the row
  pyg_mb, dfgnn_mb    the most memory of torch's allocator in a step
  difference          largest difference of the outputs, relative to the
                      largest output

Forces are the gradient of an energy by positions, whose loss is then
differentiated again.
"""

import argparse
import copy
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
import torch_geometric.nn as G

from python_accelerate import Gps, Nodes, Pooled, batch, drawn

CORA = 2708, 10556  # nodes and edges
WIDTH, KINDS = 64, 11
SCALE = 1.0  # of the number of molecules


class Molecules(torch.nn.Module):
    """A stack of layers that read features of edges, summed over molecules."""

    def __init__(self, layers, width):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.end = torch.nn.Linear(width, 1)

    def forward(self, x, edge_index, attr, groups):
        for layer in self.layers:
            x = F.relu(layer(x, edge_index, edge_attr=attr))
        return self.end(G.global_add_pool(x, groups))


class Forces(torch.nn.Module):
    """An energy of distances by continuous filters, as SchNet's, and the forces
    that are its gradient by the positions."""

    def __init__(self, width, layers):
        super().__init__()
        self.start = torch.nn.Embedding(9, width)
        self.filters = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.SiLU(),
                                torch.nn.Linear(width, width))
            for _ in range(layers))
        self.convs = torch.nn.ModuleList(
            G.GINEConv(torch.nn.Sequential(torch.nn.Linear(width, width),
                                           torch.nn.SiLU()))
            for _ in range(layers))
        self.end = torch.nn.Linear(width, 1)
        self.register_buffer("centers", torch.linspace(0, 5, 16))

    def forward(self, place, edge_index, kinds, groups):
        place = place.detach().requires_grad_()
        source, target = edge_index
        distance = (place[source] - place[target]).pow(2).sum(1).add(
            1e-3).sqrt()
        radial = torch.exp(-(distance[:, None] - self.centers) ** 2)
        x = self.start(kinds)
        for conv, filters in zip(self.convs, self.filters):
            x = x + conv(x, edge_index, edge_attr=filters(radial))
        energy = self.end(x).sum()
        force, = torch.autograd.grad(energy, place, create_graph=True)
        return force


def nodes(make):
    def build(generator):
        count, edges = CORA
        x = torch.rand(count, 1433, generator=generator)
        graph = drawn(count, edges, generator)
        labels = torch.randint(0, 7, (count,), generator=generator)
        return make(), [(x, graph)], labels, F.cross_entropy
    return build


def molecules(make, count, kind="attr", batches=8):
    """`batches` batches of `count` molecules of 23 atoms and 50 edges."""
    def build(generator):
        inputs = []
        graphs = max(2, int(count * SCALE))
        for _ in range(batches):
            edges, groups = batch(graphs, 23, 50, generator)
            total = edges.size(1)
            if kind == "plain":
                inputs.append((torch.rand(graphs * 23, WIDTH,
                                          generator=generator), edges, groups))
            elif kind == "kinds":
                inputs.append((torch.rand(graphs * 23, 28,
                                          generator=generator), edges,
                               torch.randint(0, 4, (total,),
                                             generator=generator), groups))
            elif kind == "places":
                inputs.append((torch.rand(graphs * 23, 3,
                                          generator=generator) * 3, edges,
                               torch.randint(0, 9, (graphs * 23,),
                                             generator=generator), groups))
            else:
                width = WIDTH if kind == "wide" else KINDS
                inputs.append((torch.rand(graphs * 23, WIDTH,
                                          generator=generator), edges,
                               torch.rand(total, width,
                                          generator=generator), groups))
        rows = graphs * 23 if kind == "places" else graphs
        columns = 3 if kind == "places" else 2 if kind == "plain" else 1
        target = torch.rand(rows, columns, generator=generator)
        return make(), inputs, target, F.l1_loss
    return build


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
                               torch.nn.Linear(WIDTH, WIDTH))


def stack(layer, count=4):
    return lambda: Molecules([layer() for _ in range(count)], WIDTH)


MODELS = {
    "GCN 16, Cora's size": nodes(lambda: Nodes(
        [G.GCNConv(1433, 16), G.GCNConv(16, 7)], 0.5, F.relu)),
    "SAGE 64, Cora's size": nodes(lambda: Nodes(
        [G.SAGEConv(1433, 64), G.SAGEConv(64, 7)], 0.5, F.relu)),
    "GAT 8x8, Cora's size": nodes(lambda: Nodes(
        [G.GATConv(1433, 8, heads=8, dropout=0.6),
         G.GATConv(64, 7, heads=1, dropout=0.6)], 0.6, F.elu)),
    "GATv2 8x8, Cora's size": nodes(lambda: Nodes(
        [G.GATv2Conv(1433, 8, heads=8), G.GATv2Conv(64, 7)], 0.6, F.elu)),
    "TransformerConv 8x8 with edge features, 128 molecules": molecules(
        stack(lambda: G.TransformerConv(WIDTH, 8, heads=8, edge_dim=KINDS)),
        128),
    "GATv2 8x8 with edge features, 128 molecules": molecules(
        stack(lambda: G.GATv2Conv(WIDTH, 8, heads=8, edge_dim=KINDS)), 128),
    "GINE 64, 128 molecules": molecules(
        stack(lambda: G.GINEConv(mlp())), 128, "wide"),
    "GIN 64, 128 molecules": molecules(lambda: Pooled(Nodes(
        [G.GINConv(mlp()) for _ in range(4)], 0.0, F.relu), WIDTH, 2), 128,
        "plain"),
    "GPS 64, 32 molecules": molecules(lambda: Gps(64, 4, 28), 32, "kinds"),
    "forces by GINE 64, 32 molecules": molecules(
        lambda: Forces(WIDTH, 3), 32, "places"),
}


def load():
    return round(os.getloadavg()[0], 2)


class Trainer:
    def __init__(self, model, inputs, target, loss, fresh):
        self.model, self.inputs, self.fresh = model, inputs, fresh
        self.target, self.loss, self.steps = target, loss, 0

    def step(self):
        inputs = list(self.inputs[self.steps % len(self.inputs)])
        if self.fresh:  # a loader gives new tensors
            inputs[1] = inputs[1].clone()
        self.steps += 1
        start = time.perf_counter()
        self.model.zero_grad()
        self.loss(self.model(*inputs), self.target).backward()
        return (time.perf_counter() - start) * 1e3


def peak(trainer):
    """Megabytes that torch's allocator handed out at most at once in a step."""
    with torch.profiler.profile(profile_memory=True) as profile:
        trainer.step()
    now = most = 0
    for event in sorted(profile.profiler.kineto_results.events(),
                        key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return round(most / 2 ** 20, 2)


def measure(name, seconds):
    import dfgnn
    torch.manual_seed(1)
    plain, inputs, target, loss = MODELS[name](torch.Generator().manual_seed(1))
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    before = load()
    a, b = (m.eval()(*inputs[0]) for m in (plain, fast))
    difference = float(((a - b).abs().max() / a.abs().max()).detach())
    trainers = [Trainer(m.train(), inputs, target, loss, len(inputs) > 1)
                for m in (plain, fast)]
    for _ in range(3):  # caches, plans
        for trainer in trainers:
            trainer.step()
    times, end = [[], []], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for number, trainer in enumerate(trainers):
            times[number].append(trainer.step())
    pyg, ours = (min(t) for t in times)
    megabytes = [peak(t) for t in trainers]
    return {"model": name, "threads": torch.get_num_threads(),
            "pyg_ms": round(pyg, 3), "dfgnn_ms": round(ours, 3),
            "speedup": round(pyg / ours, 3),
            "steps": len(times[0]), "load": [before, load()],
            "pyg_rounds": [round(t, 2) for t in times[0][:50]],
            "dfgnn_rounds": [round(t, 2) for t in times[1][:50]],
            "pyg_mb": megabytes[0], "dfgnn_mb": megabytes[1],
            "swapped": len(report.swapped), "difference": difference,
            "torch": torch.__version__}


def milliseconds(x):
    return f"{x:.0f} ms" if x >= 100 else f"{x:.3g} ms"


def table(rows):
    """A line a model, with the columns of each number of threads."""
    counts = sorted({row["threads"] for row in rows})
    print("| model | " + " | ".join(
        f"PyG, {n} thread{'s' * (n > 1)} | dfgnn | faster by"
        for n in counts) + " | memory of PyG | of dfgnn |")
    print("| --- |" + " --- |" * (3 * len(counts) + 2))
    found = {(row["model"], row["threads"]): row for row in rows}
    for model in dict.fromkeys(row["model"] for row in rows):
        cells, last = [], None
        for n in counts:
            row = found.get((model, n))
            last = row or last
            cells += [milliseconds(row["pyg_ms"]),
                      milliseconds(row["dfgnn_ms"]),
                      f"{row['speedup']:.2f}"] if row else ["", "", ""]
        print(f"| {model} | " + " | ".join(cells) +
              f" | {last['pyg_mb']:.3g} MB | {last['dfgnn_mb']:.3g} MB |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", nargs="+", metavar="PART", default=[""],
                        help="those whose names have one of these parts")
    parser.add_argument("--seconds", type=float, default=10,
                        help="of steps a model")
    parser.add_argument("--limit", type=float, metavar="SECONDS",
                        help="of steps of all models, at most")
    parser.add_argument("-o", "--output")
    parser.add_argument("--table", metavar="JSON")
    given = parser.parse_args()
    if given.table:
        with open(given.table) as file:
            table(json.load(file))
        return
    names = [name for name in MODELS
             if any(part.lower() in name.lower() for part in given.models)]
    if not names:
        parser.error(f"no model has one of {given.models} in its name, "
                     f"expected a part of: {'; '.join(MODELS)}")
    torch.set_num_threads(given.threads)
    seconds = given.seconds if given.limit is None else \
        min(given.seconds, given.limit / len(names))
    rows = []
    for name in names:
        rows.append(measure(name, seconds))
        row = rows[-1]
        print(f"{name}, {given.threads} threads: {row['pyg_ms']:.2f} ms, "
              f"accelerated {row['dfgnn_ms']:.2f} ms: {row['speedup']:.2f} "
              f"times as fast, load {row['load'][0]} to {row['load'][1]}",
              file=sys.stderr)
        text = json.dumps(rows, indent=1) + "\n"
        if given.output:
            with open(given.output, "w") as file:
                file.write(text)
    if not given.output:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
