"""Trains GAT, SAGE and a graph transformer by sampled neighbours.

    python3 docs/examples/minibatch.py --nodes 200000

The graph is generated: each node has a hidden class, most of its neighbours
are of the same one, and its features tell the class faintly, so that a model
that reads neighbours does much better than one that reads the node alone (the
column alone). A step takes some training nodes, samples neighbours of
neighbours, and trains on them: PyG's NeighborLoader samples where pyg-lib or
torch-sparse is installed, a few lines of torch otherwise. The edges of each
step are new ones.
"""

import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

import training


def planted_graph(nodes, degree, classes, width, generator):
    """(features, labels, edge_index sorted by destination)."""
    labels = torch.randint(0, classes, (nodes,), generator=generator)
    by_class = labels.argsort()
    counts = torch.bincount(labels, minlength=classes)
    first = counts.cumsum(0) - counts
    # degrees differ: most are small, a few are large
    degrees = (degree * torch.empty(nodes).exponential_(
        generator=generator)).long().clamp(1, 20 * degree)
    dst = torch.arange(nodes).repeat_interleave(degrees)
    own = labels[dst]
    place = torch.rand(dst.numel(), generator=generator)
    friends = by_class[first[own] + (place * counts[own]).long()]
    strangers = torch.randint(0, nodes, dst.shape, generator=generator)
    alike = torch.rand(dst.numel(), generator=generator) < 0.6
    src = torch.where(alike, friends, strangers)
    means = torch.randn(classes, width, generator=generator)
    x = 0.2 * means[labels] + torch.randn(nodes, width, generator=generator)
    return x, labels, torch.stack([src, dst])


class Sampler:
    """Gives batches (nodes, edge_index among them, how many of the first nodes
    are trained on); samples with replacement on the device of the graph."""

    def __init__(self, edges, num_nodes, seeds, counts, batch):
        self.sources = edges[0]
        degrees = torch.bincount(edges[1], minlength=num_nodes)
        self.first, self.degrees = degrees.cumsum(0) - degrees, degrees
        self.seeds, self.counts, self.batch = seeds, counts, batch
        self.number = torch.empty(num_nodes, dtype=torch.int64,
                                  device=edges.device)

    def __iter__(self):
        order = torch.randperm(self.seeds.numel(), device=self.seeds.device)
        for chosen in self.seeds[order].split(self.batch):
            yield self.sample(chosen)

    def sample(self, seeds):
        nodes, frontier, edges = seeds, seeds, []
        for count in self.counts:
            place = torch.rand(frontier.numel(), count,
                               device=frontier.device)
            degree = self.degrees[frontier].view(-1, 1)
            place = self.first[frontier].view(-1, 1) + (place * degree).long()
            src = self.sources[place.clamp(max=self.sources.numel() - 1)]
            there = (degree > 0).expand_as(src)
            dst = frontier.view(-1, 1).expand_as(src)[there]
            src = src[there]
            edges.append(torch.stack([src, dst]))
            frontier = src.unique()
            self.number[frontier] = -1
            self.number[nodes] = torch.arange(nodes.numel(),
                                              device=nodes.device)
            frontier = frontier[self.number[frontier] < 0]
            nodes = torch.cat([nodes, frontier])
        self.number[nodes] = torch.arange(nodes.numel(), device=nodes.device)
        return nodes, self.number[torch.cat(edges, 1)], seeds.numel()


def loader(edges, num_nodes, seeds, options):
    counts = [int(c) for c in options.neighbours.split(",")]
    if options.loader != "torch":
        try:
            from torch_geometric import typing
            known = typing.WITH_PYG_LIB or typing.WITH_TORCH_SPARSE
        except ImportError:
            known = False
        if known:
            return _pygs_loader(edges, num_nodes, seeds, counts, options)
    return Sampler(edges, num_nodes, seeds, counts, options.batch)


def _pygs_loader(edges, num_nodes, seeds, counts, options):
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader
    data = Data(edge_index=edges.cpu(), num_nodes=num_nodes)
    for batch in NeighborLoader(data, counts, seeds.cpu(), shuffle=True,
                                batch_size=options.batch):
        yield (batch.n_id.to(options.device),
               batch.edge_index.to(options.device), batch.batch_size)


class Model(nn.Module):
    def __init__(self, kind, layers, width, hidden, classes):
        super().__init__()
        self.convs = nn.ModuleList()
        for size in (width, hidden):
            if kind == "sage":
                conv = layers.SAGEConv(size, hidden)
            elif kind == "gat":
                conv = layers.GATConv(size, hidden // 4, heads=4)
            else:
                conv = layers.TransformerConv(size, hidden // 4, heads=4)
            self.convs.append(conv)
        self.out = nn.Linear(hidden, classes)

    def forward(self, x, edges):
        for conv in self.convs:
            x = F.elu(conv(x, edges))
        return self.out(x)


def alone(x, labels, seeds, tests, classes):
    """The accuracy of a linear model that reads each node's features alone."""
    model = nn.Linear(x.size(1), classes).to(x.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(100):
        optimizer.zero_grad()
        F.cross_entropy(model(x[seeds]), labels[seeds]).backward()
        optimizer.step()
    return float((model(x[tests]).argmax(1) == labels[tests]).float().mean())


def train_one(kind, data, options):
    x, labels, edges, seeds, tests = data
    torch.manual_seed(options.seed)
    model = Model(kind, training.layers(options.library), x.size(1),
                  options.width, options.classes).to(options.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
    sampling, stepping = [], []

    def step(nodes, found, count):
        optimizer.zero_grad()
        out = model(x[nodes], found)
        F.cross_entropy(out[:count], labels[nodes[:count]]).backward()
        optimizer.step()
    for _ in range(options.epochs):
        batches = iter(loader(edges, x.size(0), seeds, options))
        while True:
            started = time.perf_counter()
            batch = next(batches, None)
            if batch is None:
                break
            training.settle(options.device)
            sampled = time.perf_counter()
            step(*batch)
            training.settle(options.device)
            sampling.append(1e3 * (sampled - started))
            stepping.append(1e3 * (time.perf_counter() - sampled))
    right = total = 0
    model.eval()
    with torch.no_grad():
        for nodes, found, count in loader(edges, x.size(0), tests, options):
            out = model(x[nodes], found)[:count]
            right += int((out.argmax(1) == labels[nodes[:count]]).sum())
            total += count
    first = len(stepping) // 4  # the steps before choose kernels
    return {"model": kind, "steps": len(stepping),
            "accuracy": 100 * right / total,
            "sample_ms": statistics.median(sampling[first:]),
            "step_ms": statistics.median(stepping[first:])}


def train(options):
    generator = torch.Generator().manual_seed(options.seed)
    x, labels, edges = (t.to(options.device) for t in planted_graph(
        options.nodes, options.degree, options.classes, options.features,
        generator))
    order = torch.randperm(options.nodes, generator=generator).to(x.device)
    count = min(options.nodes // 5, options.tests)
    tests, seeds = order[:count], order[count:][:options.seeds]
    data = x, labels, edges, seeds, tests
    torch.manual_seed(options.seed)
    linear = alone(x, labels, seeds, tests, options.classes)
    return [{**train_one(kind, data, options), "alone": 100 * linear,
             "peak_MiB": training.peak_mib(options.device)}
            for kind in options.models.split(",")]


if __name__ == "__main__":
    parser = training.arguments(
        __doc__, ("gat", "sage", "gt"), models="gat,sage,gt", nodes=100000,
        degree=12, classes=8,
        features=32, width=64, neighbours="15,10", batch=1024, seeds=40000,
        tests=5000, epochs=2, rate=5e-3, seed=1, loader="any")
    training.main(parser.parse_args(), train)
