"""Trains a graph transformer on generated PATTERN batches.

    python3 examples/pattern.py --epochs 5

Each graph is a stochastic block model with a pattern planted in it, and the
task is to tell the pattern's nodes (Dwivedi et al. 2023).  A data loader would
make new batches each step, and so do we: the mini-batches share the family
"pattern", hence their measurements.
"""

import torch
from torch import nn
from torch.nn import functional as F

import training


def pattern_graph(generator):
    """(edges, signals, labels) of a graph with a pattern of 20 nodes."""
    def number(low, high):
        return int(torch.randint(low, high + 1, (1,), generator=generator))
    sizes = [number(5, 35) for _ in range(5)]
    community = torch.repeat_interleave(torch.arange(6),
                                        torch.tensor(sizes + [20]))
    planted = community == 5
    same = community.view(-1, 1) == community
    chance = torch.where(same, 0.5, 0.35)
    either = planted.view(-1, 1) | planted
    chance = torch.where(either, torch.full_like(chance, 0.5), chance)
    coins = torch.rand(chance.shape, generator=generator).triu(1)
    linked = (coins > 0) & (coins < chance)
    edges = (linked | linked.T).nonzero().T
    signals = torch.randint(0, 3, (community.numel(),), generator=generator)
    return edges, signals, planted.long()


def make_batch(count, generator):
    """(edge_index, signals, labels, graph_ptr) of many graphs in one."""
    graphs = [pattern_graph(generator) for _ in range(count)]
    sizes = torch.tensor([g[1].numel() for g in graphs])
    ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    edges = torch.cat([g[0] + start for g, start in zip(graphs, ptr)], 1)
    return (edges, torch.cat([g[1] for g in graphs]),
            torch.cat([g[2] for g in graphs]), ptr)


class Transformer(nn.Module):
    def __init__(self, layers, width, heads, depth):
        super().__init__()
        self.embed = nn.Embedding(3, width)
        self.convs = nn.ModuleList(
            layers.TransformerConv(width, width // heads, heads=heads)
            for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, 2)

    def forward(self, signals, edges):
        h = self.embed(signals)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(conv(norm(h), edges))
        return self.out(h)


def balanced(out, labels):
    """Mean accuracy of the two classes."""
    right = out.argmax(1) == labels
    return sum(float(right[labels == c].float().mean()) for c in (0, 1)) / 2


def train(options):
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    batches = [make_batch(options.batch, generator)
               for _ in range(options.batches)]
    layers = training.layers(options.library)
    device = options.device
    model = Transformer(layers, options.width, options.heads,
                        options.depth).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    weight = torch.tensor([0.2, 0.8], device=device)
    clock = training.Clock(device)

    def graph_of(edges, nodes, ptr):
        if options.library == "pyg":
            return edges.to(device)
        import dfgnn
        return dfgnn.as_graph(edges.to(device), nodes, graph_ptr=ptr,
                              family="pattern")

    def learn():
        nonlocal graph_mib
        outs = []
        for edges, signals, labels, ptr in batches:
            signals, labels = signals.to(device), labels.to(device)
            graph = clock.lap("preprocess_ms", lambda: graph_of(
                edges, signals.numel(), ptr))
            optimizer.zero_grad()
            out = clock.lap("forward_ms", lambda: model(signals, graph))
            loss = F.cross_entropy(out, labels, weight)
            clock.lap("backward_ms", loss.backward)
            clock.lap("optimizer_ms", optimizer.step)
            outs.append((out.detach(), labels))
            graph_mib = max(graph_mib, training.graph_mib(graph))
        return outs
    graph_mib = 0.0
    for _ in range(options.epochs):
        outs = clock.epoch(learn)
    scores = [balanced(*pair) for pair in outs]
    return {"graphs": options.batch * options.batches,
            "width": options.width,
            "accuracy": 100 * sum(scores) / len(scores),
            **clock.medians(options.batches),
            "peak_MiB": training.peak_mib(device),
            "graph_MiB": graph_mib}


if __name__ == "__main__":
    parser = training.arguments(__doc__.splitlines()[0], epochs=5, batch=32,
                                batches=4, width=64, heads=8, depth=2, seed=1)
    training.main(parser.parse_args(), train)
