"""Layers of dfgnn.nn by name, for the tests of torch's modes."""

import torch

from dfgnn import nn

IN, OUT, FIELDS = 8, 4, 3
LAYERS = {
    "transformer": lambda: nn.TransformerConv(IN, OUT, heads=2),
    "transformer with edges": lambda: nn.TransformerConv(
        IN, OUT, heads=2, edge_dim=FIELDS),
    "gat": lambda: nn.GATConv(IN, OUT, heads=2),
    "gat with edges": lambda: nn.GATConv(IN, OUT, heads=2, edge_dim=FIELDS),
    "gat with edges, no loops": lambda: nn.GATConv(
        IN, OUT, heads=2, edge_dim=FIELDS, add_self_loops=False),
    "gatv2": lambda: nn.GATv2Conv(IN, OUT, heads=2),
    "gatv2 with edges": lambda: nn.GATv2Conv(IN, OUT, heads=2,
                                             edge_dim=FIELDS),
    "agnn": nn.AGNNConv,
    "gcn": lambda: nn.GCNConv(IN, OUT, improved=True),
    "gcn with weights": lambda: nn.GCNConv(IN, OUT),
    "sage": lambda: nn.SAGEConv(IN, OUT),
    "sage of largest": lambda: nn.SAGEConv(IN, OUT, aggr="max"),
    "sage of several": lambda: nn.SAGEConv(IN, OUT, aggr=["mean", "max"]),
    "graph": lambda: nn.GraphConv(IN, OUT),
    "gin": lambda: nn.GINConv(torch.nn.Linear(IN, OUT), train_eps=True),
}


def of_edges(name, edges):
    """The features or weights that a layer takes by edge, or nothing."""
    if "edges" in name:
        return (torch.randn(edges.size(1), FIELDS, device=edges.device),)
    if "weights" in name:
        return (torch.rand(edges.size(1), device=edges.device),)
    return ()
