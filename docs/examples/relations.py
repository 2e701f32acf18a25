"""Trains models of many relations on a task that needs them.

    python3 docs/examples/relations.py --models sage,gat,hgt,rgcn --epochs 60

Readers like some items, dislike others and only look at most. A reader's class
is the topic that is liked most and disliked least; items tell their topic with
noise, readers tell nothing. "accuracy" is that on readers that were not
trained on, "alone" that of the same model when all edges between readers and
items are of one relation, so that it cannot know who likes what. Prints
milliseconds of an epoch and peak memory too, with dfgnn.accelerate() and with
PyG alone.
"""

import torch
import torch_geometric.nn as nn
from torch.nn import functional as F

import training

WIDTH = 32
LOOKS = {"likes": 6, "dislikes": 6, "sees": 12}  # items of a reader


# ---- readers and items ------------------------------------------------------

class Data:
    """x by type, edge_index by relation (both directions), classes of
    readers."""

    def __init__(self, options):
        torch.manual_seed(options.seed)
        readers, items, topics = options.readers, options.items, options.topics
        topic = torch.randint(topics, (items,))
        self.y = torch.randint(topics, (readers,))
        by_topic = [(topic == t).nonzero().view(-1) for t in range(topics)]
        self.edges = {}
        for name, count in LOOKS.items():
            reader = torch.arange(readers).repeat_interleave(count)
            item = torch.randint(items, reader.shape)
            if name != "sees":
                # who likes a topic most likes others, too, and dislikes most
                # of what is of the next one
                of = (self.y[reader] + (name == "dislikes")) % topics
                kept = torch.rand(reader.shape) < 0.5
                draw = torch.rand(reader.shape)
                for t in range(topics):
                    mine = kept & (of == t)
                    own = by_topic[t]
                    item[mine] = own[(draw[mine] * own.numel()).long()]
            self.edges["item", name, "reader"] = torch.stack([item, reader])
            self.edges["reader", "rev_" + name, "item"] = torch.stack(
                [reader, item])
        told = F.one_hot(topic, topics).float() + 0.7 * torch.randn(
            items, topics)
        self.x = {"item": F.pad(told, (0, WIDTH - topics)),
                  "reader": torch.zeros(readers, WIDTH)}
        self.nodes = {kind: x.size(0) for kind, x in self.x.items()}
        self.train = torch.rand(readers) < 0.5

    def to(self, device):
        self.x = {kind: x.to(device) for kind, x in self.x.items()}
        self.edges = {key: part.to(device)
                      for key, part in self.edges.items()}
        self.y, self.train = self.y.to(device), self.train.to(device)
        return self

    def without_relations(self):
        """The same edges, all of one relation in each direction."""
        joined = {}
        for source, destination in (("item", "reader"), ("reader", "item")):
            joined[source, "meets", destination] = torch.cat(
                [part for key, part in self.edges.items()
                 if key[0] == source], 1)
        return joined


# ---- models -----------------------------------------------------------------

class Layers(torch.nn.Module):
    """Two layers over dictionaries."""

    def __init__(self, make, edges, nodes, topics):
        super().__init__()
        self.convs = torch.nn.ModuleList(make(edges) for _ in range(2))
        self.out = torch.nn.Linear(WIDTH, topics)

    def forward(self, x, edges):
        for conv in self.convs:
            x = {kind: t.relu() for kind, t in conv(x, edges).items()}
        return self.out(x["reader"])


class Rgcn(torch.nn.Module):
    """Readers and items are nodes of one list, whose edges have a number."""

    def __init__(self, edges, nodes, topics):
        super().__init__()
        self.first = {"item": 0, "reader": nodes["item"]}
        self.convs = torch.nn.ModuleList(
            nn.RGCNConv(WIDTH, WIDTH, len(edges)) for _ in range(2))
        self.out = torch.nn.Linear(WIDTH, topics)
        self.listed = None  # made once: whatever is new gets a graph anew

    def _list(self, edges):
        shift = [torch.tensor([[self.first[key[0]]], [self.first[key[2]]]])
                 for key in edges]
        device = next(iter(edges.values())).device
        counts = torch.tensor([part.size(1) for part in edges.values()])
        return (torch.cat([part + by.to(device) for part, by in
                           zip(edges.values(), shift)], 1),
                torch.arange(len(counts)).repeat_interleave(counts).to(device))

    def forward(self, x, edges):
        if self.listed is None:
            self.listed = self._list(edges)
        x = torch.cat([x["item"], x["reader"]])
        for conv in self.convs:
            x = conv(x, *self.listed).relu()
        return self.out(x[self.first["reader"]:])


def hetero(make):
    return lambda edges: nn.HeteroConv({key: make() for key in edges})


MODELS = {
    "sage": lambda *rest: Layers(hetero(
        lambda: nn.SAGEConv((WIDTH, WIDTH), WIDTH)), *rest),
    "gat": lambda *rest: Layers(hetero(lambda: nn.GATConv(
        (WIDTH, WIDTH), WIDTH // 4, heads=4, add_self_loops=False,
        residual=True)), *rest),
    "hgt": lambda edges, *rest: Layers(lambda _: nn.HGTConv(
        WIDTH, WIDTH, (["item", "reader"], list(edges)), heads=4), edges,
        *rest),
    "rgcn": Rgcn,
}


# ---- training ---------------------------------------------------------------

def fit(name, data, edges, options, clock):
    """The accuracy on readers that were not trained on."""
    torch.manual_seed(options.seed)
    model = MODELS[name](edges, data.nodes, options.topics).to(options.device)
    if options.library == "dfgnn":
        import dfgnn
        dfgnn.accelerate(model)
    adam = torch.optim.Adam(model.parameters(), lr=options.rate)

    def learn():
        adam.zero_grad()
        loss = clock.lap("forward_ms", lambda: F.cross_entropy(
            model(data.x, edges)[data.train], data.y[data.train]))
        clock.lap("backward_ms", loss.backward)
        clock.lap("optimizer_ms", adam.step)
    for _ in range(options.epochs):
        clock.epoch(learn)
    with torch.no_grad():
        right = model(data.x, edges).argmax(1) == data.y
    return 100 * float(right[~data.train].float().mean())


def train(options):
    data, rows = Data(options).to(options.device), []
    for name in options.models.split(","):
        clock = training.Clock(options.device)
        accuracy = fit(name, data, data.edges, options, clock)
        rows.append({"model": name, "accuracy": accuracy, "alone": fit(
            name, data, data.without_relations(), options,
            training.Clock(options.device)), **clock.medians(),
            "peak_MiB": training.peak_mib(options.device)})
    return rows


if __name__ == "__main__":
    parser = training.arguments(
        __doc__, MODELS, models=",".join(MODELS), readers=8000, items=2000,
        topics=8,
        epochs=60, rate=1e-2, seed=1)
    training.main(parser.parse_args(), train)
