"""Times a training step of models of PyG's examples before and after
dfgnn.accelerate(model).

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 bench/python_accelerate.py --device cpu -o OUT.json
    python3 bench/python_accelerate.py --table OUT.json

The models have the layers, widths and dropout of the examples they are named
after; the graphs are drawn, in the size and with the degrees of the data sets
(--scale F for larger or smaller ones), since a node for measuring has no
network.  A step is forward, loss, backward and Adam.  Models over mini-batches
(gin, gps) get new edges in each step, so that their graphs are made anew, as
with a data loader.  Both libraries take turns; a row has medians:

  pyg_ms, dfgnn_ms    milliseconds of a step
  speedup             their ratio
  pyg_bytes, dfgnn_bytes    the most memory of torch in a step (CUDA)
  swapped             layers that accelerate() swapped
  difference          largest difference of the outputs, relative to the
                      largest output
"""

import argparse
import copy
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import torch_geometric.nn as G


def drawn(nodes, edges, generator):
    """An undirected edge_index whose degrees follow a power law."""
    weight = torch.rand(nodes, generator=generator).clamp(min=1e-3) ** -0.6
    ends = torch.multinomial(weight, edges, True, generator=generator)
    others = torch.randint(0, nodes, (edges // 2,), generator=generator)
    half = torch.stack([ends[:edges // 2], others])
    return torch.cat([half, half.flip(0)], 1)


def batch(graphs, nodes, edges, generator):
    """(edge_index, batch) of many small graphs, side by side."""
    starts = torch.arange(graphs).repeat_interleave(edges) * nodes
    inside = torch.randint(0, nodes, (2, graphs * edges), generator=generator)
    return inside + starts, torch.arange(graphs).repeat_interleave(nodes)


class Nodes(torch.nn.Module):
    """A stack of layers, with norms, activation and dropout as in the
    examples."""

    def __init__(self, layers, dropout, act, norms=()):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.norms = torch.nn.ModuleList(
            torch.nn.BatchNorm1d(n) for n in norms)
        self.dropout, self.act = dropout, act

    def forward(self, x, edge_index):
        for number, layer in enumerate(self.layers):
            x = F.dropout(x, self.dropout, self.training)
            x = layer(x, edge_index)
            if number + 1 < len(self.layers):
                if len(self.norms):
                    x = self.norms[number](x)
                x = self.act(x)
        return x


class Pooled(torch.nn.Module):
    """A model of nodes, whose sums over graphs are classified."""

    def __init__(self, inner, width, classes):
        super().__init__()
        self.inner = inner
        self.mlp = G.MLP([width, width, classes], dropout=0.5)

    def forward(self, x, edge_index, batch):
        return self.mlp(G.global_add_pool(self.inner(x, edge_index), batch))


class Gps(torch.nn.Module):
    """examples/graph_gps.py with GINEConv and dense attention."""

    def __init__(self, width, layers, features):
        super().__init__()
        self.start = torch.nn.Linear(features, width)
        self.edges = torch.nn.Embedding(4, width)
        self.convs = torch.nn.ModuleList()
        for _ in range(layers):
            nn = torch.nn.Sequential(torch.nn.Linear(width, width),
                                     torch.nn.ReLU(),
                                     torch.nn.Linear(width, width))
            self.convs.append(G.GPSConv(width, G.GINEConv(nn), heads=4,
                                        attn_kwargs={"dropout": 0.5}))
        self.end = torch.nn.Linear(width, 1)

    def forward(self, x, edge_index, kinds, batch):
        x, attr = self.start(x), self.edges(kinds)
        for conv in self.convs:
            x = conv(x, edge_index, batch, edge_attr=attr)
        return self.end(G.global_add_pool(x, batch))


def citation(make, nodes, edges, features, classes):
    def build(scale, generator):
        n = max(64, int(nodes * scale))
        x = torch.rand(n, features, generator=generator)
        graph = drawn(n, max(64, int(edges * scale)), generator)
        labels = torch.randint(0, classes, (n,), generator=generator)
        return make(features, classes), (x, graph), labels, F.cross_entropy
    return build, False


def gcn(features, classes):
    return Nodes([G.GCNConv(features, 16), G.GCNConv(16, classes)], 0.5,
                 F.relu)


def gat(features, classes):
    return Nodes([G.GATConv(features, 8, heads=8, dropout=0.6),
                  G.GATConv(64, classes, heads=1, concat=False,
                            dropout=0.6)], 0.6, F.elu)


def sage(features, classes):
    return Nodes([G.SAGEConv(features, 256), G.SAGEConv(256, 256),
                  G.SAGEConv(256, classes)], 0.5, F.relu, [256, 256])


def unimp(features, classes):
    return Nodes([G.TransformerConv(features, 64, heads=2, beta=True,
                                    dropout=0.3),
                  G.TransformerConv(128, 64, heads=2, beta=True, dropout=0.3),
                  G.TransformerConv(128, classes, heads=2, concat=False,
                                    beta=True, dropout=0.3)], 0.0, F.relu,
                 [128, 128])


def gin(scale, generator):
    graphs = max(2, int(128 * scale))
    edges, groups = batch(graphs, 18, 40, generator)
    layers = [G.GINConv(G.MLP([7 if i == 0 else 32, 32, 32]), train_eps=False)
              for i in range(5)]
    x = torch.rand(graphs * 18, 7, generator=generator)
    labels = torch.randint(0, 2, (graphs,), generator=generator)
    return (Pooled(Nodes(layers, 0.0, F.relu), 32, 2), (x, edges, groups),
            labels, F.cross_entropy)


def gps(scale, generator):
    graphs = max(2, int(32 * scale))
    edges, groups = batch(graphs, 23, 50, generator)
    kinds = torch.randint(0, 4, (edges.size(1),), generator=generator)
    x = torch.rand(graphs * 23, 28, generator=generator)
    target = torch.rand(graphs, 1, generator=generator)
    return Gps(64, 10, 28), (x, edges, kinds, groups), target, F.l1_loss


MODELS = {
    "gcn": citation(gcn, 2708, 10556, 1433, 7),
    "gat": citation(gat, 2708, 10556, 1433, 7),
    "sage": citation(sage, 169343, 2315598, 128, 40),
    "transformer": citation(unimp, 169343, 2315598, 128, 40),
    "gin": (gin, True),
    "gps": (gps, True),
}
EDGES = 1  # the position of the edge_index among a model's inputs


class Trainer:
    def __init__(self, model, inputs, labels, loss, fresh):
        self.model, self.inputs, self.labels = model, inputs, labels
        self.loss, self.fresh = loss, fresh
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step(self):
        inputs = list(self.inputs)
        if self.fresh:
            inputs[EDGES] = inputs[EDGES].clone()
        self.optimizer.zero_grad()
        self.loss(self.model(*inputs), self.labels).backward()
        self.optimizer.step()


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(trainer, device, steps):
    wait(device)
    start = time.perf_counter()
    for _ in range(steps):
        trainer.step()
    wait(device)
    return (time.perf_counter() - start) / steps * 1e3


def peak(trainer, device):
    if device.type != "cuda":
        return None
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    trainer.step()
    wait(device)
    return torch.cuda.max_memory_allocated(device)


def measure(name, device, scale, rounds):
    import dfgnn
    build, fresh = MODELS[name]
    torch.manual_seed(1)
    model, inputs, labels, loss = build(
        scale, torch.Generator().manual_seed(1))
    plain = model.to(device)
    inputs = [t.to(device) for t in inputs]
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    with torch.no_grad():
        a, b = (m.eval()(*inputs) for m in (plain, fast))
    trainers = [Trainer(m.train(), inputs, labels.to(device), loss, fresh)
                for m in (plain, fast)]
    for trainer in trainers:  # make plans, transposed views, cached graphs
        timed(trainer, device, 2)
    steps = [max(1, min(50, int(200 / max(timed(t, device, 2), 1e-3))))
             for t in trainers]
    times = [[], []]
    for _ in range(rounds):
        for number, trainer in enumerate(trainers):
            times[number].append(timed(trainer, device, steps[number]))
    pyg, ours = (statistics.median(t) for t in times)
    peaks = [peak(t, device) for t in trainers]
    return {
        "model": name, "device": device.type, "nodes": inputs[0].size(0),
        "edges": inputs[EDGES].size(1), "new_edges_each_step": fresh,
        "pyg_ms": round(pyg, 4), "dfgnn_ms": round(ours, 4),
        "speedup": round(pyg / ours, 3), "pyg_bytes": peaks[0],
        "dfgnn_bytes": peaks[1], "swapped": len(report.swapped),
        "difference": float((a - b).abs().max() / a.abs().max()),
        "torch": torch.__version__, "threads": torch.get_num_threads()}


def table(rows):
    print("| model | nodes | edges | PyG ms | dfgnn ms | speed-up |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['model']} | {row['nodes']} | {row['edges']} "
              f"| {row['pyg_ms']:.2f} | {row['dfgnn_ms']:.2f} "
              f"| {row['speedup']:.2f} |")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cpu", "cuda"], default=None)
    parser.add_argument("--models", nargs="+", default=list(MODELS),
                        choices=list(MODELS))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output")
    parser.add_argument("--table", metavar="JSON")
    given = parser.parse_args()
    if given.table:
        with open(given.table) as file:
            table(json.load(file))
        return
    name = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name, 0) if name == "cuda" else torch.device(name)
    rows = []
    for model in given.models:
        row = measure(model, device, given.scale, given.rounds)
        rows.append(row)
        print(f"{model}: {row['pyg_ms']:.2f} ms, accelerated "
              f"{row['dfgnn_ms']:.2f} ms: {row['speedup']:.2f} times as fast",
              file=sys.stderr)
        text = json.dumps(rows, indent=1) + "\n"
        if given.output:
            with open(given.output, "w") as file:
                file.write(text)
    if not given.output:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
