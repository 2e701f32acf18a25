"""Layers with the names, arguments, parameters and results of PyG's.

dfgnn.nn.pyg and dfgnn.nn.dgl have PyG's and DGL's own classes with the kernels
behind them.  Layers and modules are imported when they are first looked at.
"""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(globals(), {
    "attention_convs": ["AGNNConv", "GATConv", "GATv2Conv",
                        "TransformerConv"],
    "mesh": ["EdgeBlock", "MeshBlock"],
    "sum_convs": ["GCNConv", "GINConv", "GINEConv", "GraphConv",
                  "ResGatedGraphConv", "SAGEConv"],
    "dgl": [],
    "pyg": [],
})
