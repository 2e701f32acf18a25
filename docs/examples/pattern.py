"""Trains a graph transformer on generated PATTERN graphs.

    python3 docs/examples/pattern.py --capture

Each graph is a stochastic block model in which one and the same pattern is
planted, and the task is to tell the pattern's nodes (Dwivedi et al. 2023).
Accuracies are balanced and of batches that are not trained on.

Whether attention can learn it depends on the nodes' features. The pattern's
nodes have more neighbours than others of their graph, and an attention layer
averages its neighbours: it does not see how many they are. Signals alone leave
it at 50 %, so each node also has its degree as a feature, in standard
deviations from its graph's mean (the centrality of Ying et al. 2021).

Without --capture a graph is made of each batch in each step, as with a data
loader whose batches are new; with it, each batch's step is one CUDA graph.
"""

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

import training


class Batch(NamedTuple):
    """Many graphs as one; ptr: the first node of each graph."""
    edges: torch.Tensor
    signals: torch.Tensor
    centrality: torch.Tensor
    labels: torch.Tensor
    ptr: torch.Tensor


def pattern_graph(generator, planted):
    """(edges, signals, centrality, labels) of a graph with the pattern:
    planted is (its links, its signals)."""
    links, marks = planted

    def number(low, high):
        return int(torch.randint(low, high + 1, (1,), generator=generator))
    sizes = [number(5, 35) for _ in range(5)]
    community = torch.repeat_interleave(torch.arange(6),
                                        torch.tensor(sizes + [len(marks)]))
    inside = community == 5
    chance = torch.where(community.view(-1, 1) == community, 0.5, 0.35)
    chance[inside.view(-1, 1) | inside] = 0.5
    linked = torch.rand(chance.shape, generator=generator) < chance
    first = int(inside.nonzero()[0])
    linked[first:, first:] = links
    linked = linked.triu(1)
    linked = linked | linked.T
    signals = torch.randint(0, 3, (community.numel(),), generator=generator)
    signals[inside] = marks
    degrees = linked.sum(1).float()
    centrality = (degrees - degrees.mean()) / degrees.std()
    return linked.nonzero().T, signals, centrality, inside.long()


def make_batches(count, graphs, seed):
    generator = torch.Generator().manual_seed(seed)
    planted = (torch.rand(20, 20, generator=generator) < 0.5,
               torch.randint(0, 3, (20,), generator=generator))

    def make():
        made = [pattern_graph(generator, planted) for _ in range(graphs)]
        edges, signals, centrality, labels = zip(*made)
        sizes = torch.tensor([s.numel() for s in signals])
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        return Batch(torch.cat([e + p for e, p in zip(edges, ptr)], 1),
                     torch.cat(signals), torch.cat(centrality),
                     torch.cat(labels), ptr)
    return [make() for _ in range(count)]


class Transformer(nn.Module):
    def __init__(self, layers, width, heads, depth):
        super().__init__()
        self.signal = nn.Embedding(3, width)
        self.centrality = nn.Linear(1, width)
        self.convs = nn.ModuleList(
            layers.TransformerConv(width, width // heads, heads=heads)
            for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width),
                                 nn.ReLU(), nn.Linear(width, 2))

    def forward(self, signals, centrality, edges):
        h = self.signal(signals) + self.centrality(centrality.unsqueeze(1))
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(conv(norm(h), edges))
        return self.out(h)


def balanced(out, labels):
    """Mean accuracy of the two classes."""
    right = out.argmax(1) == labels
    return sum(float(right[labels == c].float().mean()) for c in (0, 1)) / 2


class Trainer:
    def __init__(self, options):
        self.options, self.device = options, options.device
        torch.manual_seed(options.seed)
        self.model = Transformer(
            training.layers(options.library), options.width, options.heads,
            options.depth).to(self.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=options.rate,
            capturable=self.device.startswith("cuda"))
        self.weight = torch.tensor([0.17, 0.83], device=self.device)
        self.clock = training.Clock(self.device, parts=not options.capture)
        self.graph_mib = 0.0
        self.step, self.captured = self.plain_step, lambda: False
        if options.capture:
            self.step, self.captured = training.capture(
                self.plain_step, options.library, self.device, options.batches)

    def graph_of(self, batch):
        edges = batch.edges.to(self.device)
        if self.options.library == "pyg":
            return edges
        import dfgnn
        return dfgnn.as_graph(edges, batch.signals.numel(),
                              graph_ptr=batch.ptr, family="pattern")

    def moved(self, batch):
        """(signals, centrality, labels, edges) on the device of the model."""
        return (*(t.to(self.device) for t in batch[1:4]),
                self.graph_of(batch))

    def plain_step(self, signals, centrality, labels, graph):
        lap = self.clock.lap
        self.optimizer.zero_grad()
        out = lap("forward_ms",
                  lambda: self.model(signals, centrality, graph))
        loss = F.cross_entropy(out, labels, self.weight)
        lap("backward_ms", loss.backward)
        lap("optimizer_ms", self.optimizer.step)
        return loss

    def epoch(self, batches):
        for batch in batches:
            inputs = batch
            if not self.options.capture:
                inputs = self.clock.lap("preprocess_ms",
                                        lambda: self.moved(batch))
                self.graph_mib = max(self.graph_mib,
                                     training.graph_mib(inputs[-1]))
            self.step(*inputs)

    @torch.no_grad()
    def accuracy(self, batches):
        self.model.eval()
        scores = [balanced(self.model(signals, centrality, graph), labels)
                  for signals, centrality, labels, graph in batches]
        self.model.train()
        return sum(scores) / len(scores)


def train(options):
    batches = make_batches(options.batches + options.tests, options.batch,
                           options.seed)
    trainer = Trainer(options)
    clock = trainer.clock
    tests = [trainer.moved(b) for b in batches[:options.tests]]
    batches = batches[options.tests:]
    if options.capture:
        batches = [trainer.moved(b) for b in batches]
    clock.mark(trainer.accuracy(tests))
    for _ in range(options.epochs):
        clock.epoch(lambda: trainer.epoch(batches))
        clock.mark(trainer.accuracy(tests))
    return {"graphs": options.batch * options.batches,
            "width": options.width, "captured": trainer.captured(),
            "accuracy": clock.curve[-1][1],
            f"seconds_to_{options.goal:g}": clock.reached(options.goal),
            **clock.medians(options.batches),
            "peak_MiB": training.peak_mib(options.device),
            "graph_MiB": trainer.graph_mib, "curve": clock.curve}


if __name__ == "__main__":
    parser = training.arguments(
        __doc__, epochs=20, batch=32, batches=8, tests=4, width=64, heads=8,
        depth=4, rate=2e-3, goal=80.0, seed=1, capture=False)
    training.main(parser.parse_args(), train)
