"""Trains a 2-layer GAT or a graph transformer on Cora.

    python3 docs/examples/cora.py --model gat --seeds 10
    python3 docs/examples/cora.py --capture

prints the accuracy on the test nodes, milliseconds of an epoch and its parts,
and peak memory, with dfgnn's layers and with PyG's. With --capture the
training step is one CUDA graph.
"""

import os
import statistics

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import training

# beside the examples where they are installed, at the top of a checkout
HERE = os.path.dirname(os.path.abspath(__file__))
DATA = next(filter(os.path.isdir, (os.path.join(HERE, "..", "data"),
                                   os.path.join(HERE, "..", "..", "data"))))


def load(device):
    """(x, labels, edge_index, nodes of each split)."""
    arrays = numpy.load(os.path.join(
        DATA, "features", "cora_node_classification.npz"))
    rows = numpy.repeat(numpy.arange(arrays["x_shape"][0]),
                        numpy.diff(arrays["x_indptr"]))
    x = torch.zeros(*arrays["x_shape"].tolist())
    x[torch.from_numpy(rows), torch.from_numpy(arrays["x_indices"]).long()] = 1
    x = x / x.sum(1, keepdim=True).clamp(min=1)
    graph = numpy.load(os.path.join(DATA, "cora.npz"))
    dst = numpy.repeat(numpy.arange(x.size(0)), numpy.diff(graph["indptr"]))
    edges = torch.from_numpy(numpy.stack([graph["indices"], dst])).long()
    split = {name: torch.from_numpy(arrays[name]).to(device)
             for name in ("train", "val", "test")}
    labels = torch.from_numpy(arrays["y"]).to(device)
    return x.to(device), labels, edges.to(device), split


class GAT(nn.Module):
    """8 heads of 8 features, as in the paper."""

    def __init__(self, layers, inputs, classes, dropout):
        super().__init__()
        self.dropout = dropout
        self.first = layers.GATConv(inputs, 8, heads=8, dropout=dropout)
        self.last = layers.GATConv(64, classes, heads=1, concat=False,
                                   dropout=dropout)

    def forward(self, x, edges):
        x = F.dropout(x, self.dropout, self.training)
        x = F.elu(self.first(x, edges))
        return self.last(F.dropout(x, self.dropout, self.training), edges)


class Transformer(nn.Module):
    def __init__(self, layers, inputs, classes, dropout):
        super().__init__()
        self.dropout = dropout
        self.first = layers.TransformerConv(inputs, 16, heads=8,
                                            dropout=dropout)
        self.last = layers.TransformerConv(128, classes, heads=1, beta=True,
                                           dropout=dropout)

    def forward(self, x, edges):
        x = F.dropout(x, self.dropout, self.training)
        x = F.elu(self.first(x, edges))
        return self.last(F.dropout(x, self.dropout, self.training), edges)


MODELS = {"gat": GAT, "transformer": Transformer}


def fit(model, data, options, clock):
    """(accuracy on the test nodes at the epoch that is best on the validation
    nodes, whether steps were replayed)."""
    x, labels, edges, split = data
    cuda = options.device.startswith("cuda")
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3,
                                 weight_decay=5e-4, capturable=cuda)
    best = tested = 0.0

    def learn():
        optimizer.zero_grad()
        loss = clock.lap("forward_ms", lambda: F.cross_entropy(
            model(x, edges)[split["train"]], labels[split["train"]]))
        clock.lap("backward_ms", loss.backward)
        clock.lap("optimizer_ms", optimizer.step)
    captured = None
    if options.capture:
        learn, captured = training.capture(learn, options.library,
                                           options.device)
    for _ in range(options.epochs):
        model.train()
        clock.epoch(learn)
        model.eval()
        with torch.no_grad():
            right = model(x, edges).argmax(1) == labels
        valid = float(right[split["val"]].float().mean())
        clock.mark(valid)
        if valid >= best:
            best = valid
            tested = float(right[split["test"]].float().mean())
    return tested, captured is not None and captured()


def train(options):
    layers = training.layers(options.library)
    data = load(options.device)
    x, labels, edges, split = data
    clock = training.Clock(options.device, parts=not options.capture)
    if options.library == "dfgnn":
        import dfgnn
        edges = clock.once("preprocess_ms",
                           lambda: dfgnn.as_graph(edges, x.size(0)))
        data = x, labels, edges, split
    found = []
    for seed in range(options.seeds):
        torch.manual_seed(seed)
        model = MODELS[options.model](layers, x.size(1),
                                      int(labels.max()) + 1, options.dropout)
        clock.curve, clock.seconds = [], 0.0  # the last seed's are printed
        accuracy, captured = fit(model.to(options.device), data, options,
                                 clock)
        found.append(accuracy)
    parts = clock.medians()
    return {"model": options.model, "seeds": options.seeds,
            "captured": captured, "accuracy": 100 * statistics.mean(found),
            "worst": 100 * min(found), "best": 100 * max(found),
            "preprocess_ms": parts.pop("preprocess_ms", 0.0), **parts,
            "peak_MiB": training.peak_mib(options.device),
            "graph_MiB": training.graph_mib(edges), "curve": clock.curve}


if __name__ == "__main__":
    parser = training.arguments(__doc__, MODELS, model="gat", seeds=1,
                                epochs=200, dropout=0.6, capture=False)
    training.main(parser.parse_args(), train)
