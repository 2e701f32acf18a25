"""Times training steps of models before and after dfgnn.accelerate(model).

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_accelerate.py --device cpu -o OUT.json

On a GPU the models have the layers, widths and dropout of PyG's examples; on a CPU
they are smaller, and there are molecules with features of edges.  Graphs are drawn
(--scale F for other sizes).  A step is forward, loss, backward and Adam.  Models over
mini-batches get new edges in each step, so that their graphs are made anew, as with a
data loader.  Both libraries take turns.  A row has, of a GPU by the medians and of a
CPU by the least of the steps:

  pyg_ms, dfgnn_ms    milliseconds of a step
  pyg_bytes, dfgnn_bytes    the most memory of torch in a step
  swapped             layers that accelerate() swapped
  difference          largest difference of the outputs, relative to the
                      largest output
"""

import argparse
import copy
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import torch_geometric.nn as G

WIDTH, KINDS = 64, 11


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


def citation(make, nodes=2708, edges=10556, features=1433, classes=7):
    """One graph of the size of Cora, or of another."""
    def build(scale, generator):
        n = max(64, int(nodes * scale))
        x = torch.rand(n, features, generator=generator)
        graph = drawn(n, max(64, int(edges * scale)), generator)
        labels = torch.randint(0, classes, (n,), generator=generator)
        return make(features, classes), [(x, graph)], labels, F.cross_entropy
    return build


def molecules(make, count, kind="attr", batches=8):
    """`batches` batches of `count` molecules of 23 atoms and 50 edges."""
    def build(scale, generator):
        inputs = []
        graphs = max(2, int(count * scale))
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
    graphs, inputs = max(2, int(128 * scale)), []
    for _ in range(8):
        edges, groups = batch(graphs, 18, 40, generator)
        inputs.append((torch.rand(graphs * 18, 7, generator=generator), edges, groups))
    layers = [G.GINConv(G.MLP([7 if i == 0 else 32, 32, 32]), train_eps=False)
              for i in range(5)]
    labels = torch.randint(0, 2, (graphs,), generator=generator)
    return Pooled(Nodes(layers, 0.0, F.relu), 32, 2), inputs, labels, F.cross_entropy


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
                               torch.nn.Linear(WIDTH, WIDTH))


def stack(layer, count=4):
    return lambda: Molecules([layer() for _ in range(count)], WIDTH)


MODELS = {
    "gcn": citation(gcn),
    "gat": citation(gat),
    "sage": citation(sage, 169343, 2315598, 128, 40),
    "transformer": citation(unimp, 169343, 2315598, 128, 40),
    "gin": gin,
    "gps": molecules(lambda: Gps(64, 10, 28), 32, "kinds"),
}
CPU_MODELS = {
    "GCN 16, Cora's size": citation(lambda *_: Nodes(
        [G.GCNConv(1433, 16), G.GCNConv(16, 7)], 0.5, F.relu)),
    "SAGE 64, Cora's size": citation(lambda *_: Nodes(
        [G.SAGEConv(1433, 64), G.SAGEConv(64, 7)], 0.5, F.relu)),
    "GAT 8x8, Cora's size": citation(lambda *_: Nodes(
        [G.GATConv(1433, 8, heads=8, dropout=0.6),
         G.GATConv(64, 7, heads=1, dropout=0.6)], 0.6, F.elu)),
    "GATv2 8x8, Cora's size": citation(lambda *_: Nodes(
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
    def __init__(self, model, inputs, labels, loss, device):
        self.model, self.inputs, self.device, self.steps = model, inputs, device, 0
        self.labels, self.loss = labels, loss
        self.optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step(self):
        """Its milliseconds."""
        inputs = list(self.inputs[self.steps % len(self.inputs)])
        if len(self.inputs) > 1:  # a loader gives new tensors
            inputs[1] = inputs[1].clone()
        self.steps += 1
        wait(self.device)
        start = time.perf_counter()
        self.optimizer.zero_grad()
        self.loss(self.model(*inputs), self.labels).backward()
        self.optimizer.step()
        wait(self.device)
        return (time.perf_counter() - start) * 1e3


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak(trainer):
    """Bytes that torch's allocator handed out at most at once in a step."""
    if trainer.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(trainer.device)
        trainer.step()
        return torch.cuda.max_memory_allocated(trainer.device)
    with torch.profiler.profile(profile_memory=True) as profile:
        trainer.step()
    now = most = 0
    for event in sorted(profile.profiler.kineto_results.events(),
                        key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return most


def measure(name, build, device, scale, seconds):
    import dfgnn
    torch.manual_seed(1)
    plain, inputs, labels, loss = build(scale, torch.Generator().manual_seed(1))
    plain = plain.to(device)
    inputs = [[t.to(device) for t in one] for one in inputs]
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    before = load()
    a, b = (m.eval()(*inputs[0]).detach() for m in (plain, fast))
    trainers = [Trainer(m.train(), inputs, labels.to(device), loss, device)
                for m in (plain, fast)]
    for _ in range(3):  # plans, transposed views, cached graphs
        for trainer in trainers:
            trainer.step()
    times, end = [[], []], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for number, trainer in enumerate(trainers):
            times[number].append(trainer.step())
    pyg, ours = map(statistics.median if device.type == "cuda" else min, times)
    peaks = [peak(t) for t in trainers]
    return {"model": name, "device": device.type, "nodes": inputs[0][0].size(0),
            "edges": inputs[0][1].size(1), "pyg_ms": round(pyg, 4),
            "dfgnn_ms": round(ours, 4), "speedup": round(pyg / ours, 3),
            "pyg_bytes": peaks[0], "dfgnn_bytes": peaks[1],
            "swapped": len(report.swapped),
            "difference": float((a - b).abs().max() / a.abs().max()),
            "steps": len(times[0]), "load": [before, load()],
            "torch": torch.__version__, "threads": torch.get_num_threads()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default=None)
    parser.add_argument("--models", nargs="+", metavar="PART", default=[""],
                        help="those whose names have one of these parts")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seconds", type=float, default=5, help="of steps a model")
    parser.add_argument("-o", "--output")
    given = parser.parse_args()
    device = torch.device(given.device or
                          ("cuda" if torch.cuda.is_available() else "cpu"))
    if given.threads:
        torch.set_num_threads(given.threads)
    models = {name: build for name, build in (
        MODELS if device.type == "cuda" else CPU_MODELS).items()
        if any(part.lower() in name.lower() for part in given.models)}
    if not models:
        parser.error(f"no model has one of {given.models} in its name")
    rows = []
    for name, build in models.items():
        rows.append(measure(name, build, device, given.scale, given.seconds))
        row = rows[-1]
        print(f"{name}: {row['pyg_ms']:.2f} ms, accelerated "
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
