"""Models of torch_geometric.nn.models as people train them: over one graph of the size of
ogbn-arxiv whose degrees follow a power law, and over one batch of 2000 molecules."""

import torch
import torch_geometric.nn as G
from torch_geometric.nn import models as M

from case import Client, case, power_law
from pyg import Gps, Pooled, citation, small_graphs


class Called(torch.nn.Module):
    """A model that is called in a way of its own: call(model, *inputs)."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


class Deeper(torch.nn.Module):
    """examples/ogbn_proteins_deepgcn.py without features of edges."""

    def __init__(self, features, classes, layers=6):
        super().__init__()
        self.start = torch.nn.Linear(features, features)
        self.layers = torch.nn.ModuleList(G.DeepGCNLayer(
            G.GENConv(features, features, aggr="softmax", learn_t=True, num_layers=2),
            torch.nn.LayerNorm(features), torch.nn.ReLU(), "res+", dropout=0.1)
            for _ in range(layers))
        self.end = torch.nn.Linear(features, classes)

    def forward(self, x, edge_index):
        x = self.layers[0].conv(self.start(x), edge_index)
        for layer in self.layers[1:]:
            x = layer(x, edge_index)
        return self.end(x)


def one_graph(model):
    """A model that asks for the graph of each node."""
    return Called(model, lambda m, x, edge_index: m(
        x, edge_index, x.new_zeros(len(x), dtype=torch.long)))


ON_NODES = {
    "gcn": lambda f, c: M.GCN(f, 128, 3, c, dropout=0.5),
    "sage": lambda f, c: M.GraphSAGE(f, 128, 3, c),
    "gin": lambda f, c: M.GIN(f, 128, 3, c),
    "gat": lambda f, c: M.GAT(f, 128, 3, c, heads=8),
    "gatv2": lambda f, c: M.GAT(f, 128, 3, c, heads=8, v2=True),
    "pna": lambda f, c: M.PNA(
        f, 64, 2, c, aggregators=["mean", "min", "max", "std"],
        scalers=["identity", "amplification", "attenuation"], deg=torch.arange(99, 0, -1)),
    "edge_cnn": lambda f, c: M.EdgeCNN(f, 64, 2, c),
    "deeper": Deeper,
    "polynormer": lambda f, c: one_graph(M.Polynormer(f, 64, c)),
    "sgformer": lambda f, c: one_graph(M.SGFormer(f, 64, c)),
}
for _name, _model in ON_NODES.items():
    citation(f"zoo_{_name}", _model, 169343, 1166243, 64, 40)


@case(name="zoo_lightgcn")
def lightgcn(scale):
    nodes = max(64, int(169343 * scale))
    edges = power_law(nodes, max(64, int(1166243 * scale)))

    def loss(model, i):
        ranks = model(i["edge_index"], i["pairs"]).view(2, -1)
        return model.recommendation_loss(*ranks, node_id=i["pairs"][0, :5000])
    return Client(M.LightGCN(nodes, 64, 3), {"edge_index": edges,
                                             "pairs": edges[:, :20000]}, loss)


ON_MOLECULES = {
    "gin": lambda: Pooled(M.GIN(64, 64, 5, 64, norm="batch_norm"), 64),
    "gat": lambda: Pooled(Called(M.GAT(64, 64, 4, 64, heads=4, edge_dim=16), lambda m, x, e, a: m(
        x, e, edge_attr=a)), 64),
    "gps": lambda: Gps(4, 64, 64, 16),
    "attentivefp": lambda: Called(M.AttentiveFP(64, 64, 1, 16, 3, 2),
                                  lambda m, x, e, b, a: m(x, e, a, b)),
    "graphunet": lambda: Called(M.GraphUNet(64, 64, 8, 2), lambda m, x, e, b, a: m(x, e, b)),
}
for _name, _model in ON_MOLECULES.items():
    small_graphs(f"zoo_{_name}_molecules", _model, 200 if _name == "graphunet" else 2000, 64,
                 0 if _name == "gin" else 16, 24, 72, some=1)
