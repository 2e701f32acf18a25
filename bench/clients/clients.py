#!/usr/bin/env python3
"""Trains models of real packages a few steps, as they are and after dfgnn.accelerate.

    clients.py CASE... [--device cpu] [--steps 5] [--scale 1] [--json]
    clients.py --table OUT.json...

Each case is a model as its package has it, unchanged, on input that this file makes.  The
two copies have the same parameters and inputs; printed are the layers that are served, the
largest difference of the losses, milliseconds of a step (the least of the steps after the
first, which builds plans) and, on a GPU, peak memory.  clients.sh installs a package into a
folder of its own and runs its cases.  A package that is missing is said and passed over.
"""
import argparse
import copy
import importlib
import importlib.metadata
import json
import sys
import time

import torch

CASES = {}


def case(package, module):
    """Registers a builder: scale -> (model, inputs, step), where step(model, inputs) is the
    loss."""
    def register(build):
        CASES[build.__name__] = (package, module, build)
        return build
    return register


def graph(nodes, degree, seed=0):
    """A graph of `nodes` nodes that each receive from `degree` random ones, without self
    loops, sorted by destination."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(nodes).repeat_interleave(degree)
    offset = torch.randint(1, nodes, (nodes * degree,), generator=generator)
    return torch.stack([(target + offset) % nodes, target])


def of_nodes(model, inputs):
    out = model(inputs["x"], inputs["edge_index"])
    return torch.nn.functional.mse_loss(out, inputs["y"])


def node_model(model, scale, width=64, out=16, degree=8):
    nodes = int(2000 * scale)
    return model, {"x": torch.randn(nodes, width), "y": torch.randn(nodes, out),
                   "edge_index": graph(nodes, degree)}, of_nodes


@case("torch_geometric", "torch_geometric")
def pyg_gat(scale):
    from torch_geometric.nn.models import GAT
    return node_model(GAT(64, 8 * 8, 3, 16, heads=8, v2=True), scale)


@case("torch_geometric", "torch_geometric")
def pyg_sage(scale):
    from torch_geometric.nn.models import GraphSAGE
    return node_model(GraphSAGE(64, 64, 3, 16), scale)


@case("torch_geometric", "torch_geometric")
def pyg_gin(scale):
    from torch_geometric.nn.models import GIN
    return node_model(GIN(64, 64, 3, 16), scale)


@case("torch_geometric", "torch_geometric")
def pyg_pna(scale):
    from torch_geometric.nn.models import PNA
    return node_model(PNA(64, 64, 2, 16, aggregators=["mean", "min", "max", "std"],
                          scalers=["identity", "amplification", "attenuation"],
                          deg=torch.tensor([0] * 8 + [1])), scale)


@case("torch_geometric", "torch_geometric")
def pyg_edge_cnn(scale):
    from torch_geometric.nn.models import EdgeCNN
    return node_model(EdgeCNN(64, 64, 2, 16), scale)


@case("torch_geometric", "torch_geometric")
def pyg_gps(scale):
    """GraphGPS: a GINE message beside attention over all nodes of a graph."""
    from torch_geometric.nn import GINEConv, GPSConv
    linear = torch.nn.Linear

    class GPS(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.edges = linear(16, 64)
            self.convs = torch.nn.ModuleList(
                GPSConv(64, GINEConv(torch.nn.Sequential(
                    linear(64, 64), torch.nn.ReLU(), linear(64, 64))), heads=4)
                for _ in range(3))
            self.out = linear(64, 16)

        def forward(self, x, edge_index, edge_attr, batch):
            for conv in self.convs:
                x = conv(x, edge_index, batch, edge_attr=self.edges(edge_attr))
            return self.out(x)

    graphs, size = int(64 * scale), 24
    index = torch.cat([graph(size, 3, seed) + size * seed for seed in range(graphs)], 1)
    nodes = graphs * size
    inputs = {"x": torch.randn(nodes, 64), "edge_index": index,
              "edge_attr": torch.randn(index.shape[1], 16),
              "batch": torch.arange(graphs).repeat_interleave(size),
              "y": torch.randn(nodes, 16)}
    return GPS(), inputs, lambda model, i: torch.nn.functional.mse_loss(
        model(i["x"], i["edge_index"], i["edge_attr"], i["batch"]), i["y"])


@case("torch_geometric", "torch_geometric")
def pyg_schnet(scale):
    """SchNet: continuous filters over the neighbours of atoms, energies of molecules."""
    from torch_geometric.nn.models import SchNet
    molecules, atoms = int(32 * scale), 20
    inputs = {"z": torch.randint(1, 10, (molecules * atoms,)),
              "pos": 3 * torch.randn(molecules * atoms, 3),
              "batch": torch.arange(molecules).repeat_interleave(atoms),
              "y": torch.randn(molecules, 1)}

    def neighbours(pos, batch):
        near = (torch.cdist(pos, pos) < 6) & (batch[:, None] == batch) & ~torch.eye(
            len(pos), dtype=torch.bool, device=pos.device)
        target, source = near.nonzero().T
        index = torch.stack([source, target])
        return index, (pos[source] - pos[target]).norm(dim=-1)

    model = SchNet(hidden_channels=64, num_filters=64, num_interactions=3, cutoff=6.0,
                   interaction_graph=neighbours)
    return model, inputs, lambda m, i: torch.nn.functional.mse_loss(
        m(i["z"], i["pos"], i["batch"]), i["y"])


@case("anemoi-models", "anemoi.models")
def anemoi_graph_transformer(scale):
    """anemoi's GraphTransformerConv as its processor blocks call it, its PyG path."""
    from anemoi.models.layers.conv import GraphTransformerConv
    heads, width = 16, 32
    nodes = int(1000 * scale)
    index = graph(nodes, 12)

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            channels = heads * width
            self.norm = torch.nn.LayerNorm(channels)
            self.qkv = torch.nn.Linear(channels, 3 * channels)
            self.edge = torch.nn.Linear(11, channels)
            self.conv = GraphTransformerConv(out_channels=width)
            self.out = torch.nn.Linear(channels, channels)

        def forward(self, x, edge_attr, edge_index):
            q, k, v = (t.reshape(-1, heads, width)
                       for t in self.qkv(self.norm(x)).chunk(3, -1))
            e = self.edge(edge_attr).reshape(-1, heads, width)
            out = self.conv(q, k, v, e, edge_index, size=(len(x), len(x)))
            return x + self.out(out.reshape(len(x), -1))

    class Blocks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = torch.nn.ModuleList(Block() for _ in range(2))

        def forward(self, x, edge_attr, edge_index):
            for block in self.blocks:
                x = block(x, edge_attr, edge_index)
            return x

    inputs = {"x": torch.randn(nodes, heads * width), "edge_index": index,
              "edge_attr": torch.randn(index.shape[1], 11),
              "y": torch.randn(nodes, heads * width)}
    return Blocks(), inputs, lambda m, i: torch.nn.functional.mse_loss(
        m(i["x"], i["edge_attr"], i["edge_index"]), i["y"])


@case("relbench", "relbench.modeling.nn")
def relbench_sage(scale):
    """RelBench's HeteroGraphSAGE over a database of eight tables and fourteen relations."""
    from relbench.modeling.nn import HeteroGraphSAGE
    tables = [f"t{i}" for i in range(8)]
    rows = {t: int((300 + 150 * i) * scale) for i, t in enumerate(tables)}
    relations = {}
    for i in range(7):
        a, b = tables[i], tables[i + 1]
        source = torch.randint(0, rows[b], (2 * rows[b],))
        target = torch.randint(0, rows[a], (2 * rows[b],))
        relations[b, "fkey", a] = torch.stack([source, target])
        relations[a, "rev_fkey", b] = torch.stack([target, source])
    model = HeteroGraphSAGE(tables, list(relations), channels=64, num_layers=2)
    inputs = {"x": {t: torch.randn(n, 64) for t, n in rows.items()},
              "edges": relations, "y": torch.randn(rows["t0"], 64)}
    return model, inputs, lambda m, i: torch.nn.functional.mse_loss(
        m(i["x"], i["edges"])["t0"], i["y"])


@case("nvidia-physicsnemo", "physicsnemo.models.meshgraphnet")
def physicsnemo_mesh(scale):
    """MeshGraphNet, whose blocks are no layers of PyG's kind."""
    from physicsnemo.models.meshgraphnet import MeshGraphNet
    from torch_geometric.data import Data
    nodes = int(1000 * scale)
    index = graph(nodes, 6)
    model = MeshGraphNet(input_dim_nodes=4, input_dim_edges=3, output_dim=2,
                         processor_size=4)
    inputs = {"x": torch.randn(nodes, 4), "e": torch.randn(index.shape[1], 3),
              "graph": Data(edge_index=index, num_nodes=nodes),
              "y": torch.randn(nodes, 2)}
    return model, inputs, lambda m, i: torch.nn.functional.mse_loss(
        m(i["x"], i["e"], i["graph"]), i["y"])


def moved(value, device):
    if isinstance(value, dict):
        return {k: moved(v, device) for k, v in value.items()}
    return value.to(device)


def trained(model, inputs, step, steps, device):
    """Losses of each step, the least time of one and the peak memory beside what was there."""
    cuda = device == "cuda"
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses, times = [], []
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if cuda else 0
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = step(model, inputs)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() - before if cuda else None
    return losses, 1000 * min(times[1:]), peak


def tried(name, args):
    import dfgnn
    package, module, build = CASES[name]
    row = {"case": name, "package": package, "device": args.device,
           "torch": torch.__version__, "threads": torch.get_num_threads()}
    torch.manual_seed(0)
    try:
        importlib.import_module(module)
        model, inputs, step = build(args.scale)
    except ImportError as error:
        return {**row, "missing": f"{type(error).__name__}: {error}"}
    row["version"] = importlib.metadata.version(package)
    model, inputs = model.to(args.device), moved(inputs, args.device)
    # Lazy parameters exist after the first call.
    step(model, inputs).backward()
    fast = copy.deepcopy(model)
    report = dfgnn.accelerate(fast)
    own, own_ms, own_bytes = trained(model, inputs, step, args.steps, args.device)
    ours, our_ms, our_bytes = trained(fast, inputs, step, args.steps, args.device)
    worst = max(abs(a - b) / max(abs(a), 1e-30) for a, b in zip(own, ours))
    return {**row, "served": len(report.served),
            "kept": {f"{k.name} ({k.kind})": k.reason for k in report.kept},
            "loss_difference": worst, "ms": own_ms, "accelerated_ms": our_ms,
            "times_as_fast": own_ms / our_ms, "bytes": own_bytes,
            "accelerated_bytes": our_bytes}


def table(files):
    print("| model | served, kept | a step before | after | times as fast | memory | losses |")
    print("|---|---|---|---|---|---|---|")
    for file in files:
        with open(file) as handle:
            rows = json.load(handle)
        for r in rows:
            if "missing" in r:
                print(f"| {r['case']} | {r['missing']} | | | | | |")
                continue
            memory = (f"{r['accelerated_bytes'] / r['bytes']:.2f}" if r["bytes"] else "-")
            print(f"| {r['case']} | {r['served']}, {len(r['kept'])} | {r['ms']:.2f} ms "
                  f"| {r['accelerated_ms']:.2f} ms | {r['times_as_fast']:.2f} | {memory} "
                  f"| {r['loss_difference']:.0e} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--table", nargs="+", metavar="OUT.json")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    for name in args.cases:
        if name not in CASES:
            parser.error(f"found case '{name}', expected one of {', '.join(CASES)}")
    if args.steps < 2:
        parser.error(f"found {args.steps} steps, expected 2 or more")
    rows = [tried(name, args) for name in args.cases or CASES]
    if args.json:
        json.dump(rows, sys.stdout, indent=1)
        print()
    else:
        for row in rows:
            print(json.dumps(row))


if __name__ == "__main__":
    main()
