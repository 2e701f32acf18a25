"""Layers with the names, arguments, parameters and results of PyG's.

dfgnn.nn.pyg and dfgnn.nn.dgl have PyG's and DGL's own classes with the kernels
behind them.  Layers and modules are imported when they are first looked at.
"""

from .._lazy import lazy

__all__, __getattr__, __dir__ = lazy(globals(), {
    "agnn_conv": ["AGNNConv"],
    "gat_conv": ["GATConv"],
    "gatv2_conv": ["GATv2Conv"],
    "mesh": ["EdgeBlock", "MeshBlock"],
    "message_convs": ["GINEConv", "ResGatedGraphConv"],
    "neighbours": ["GCNConv", "GINConv", "GraphConv", "SAGEConv"],
    "transformer_conv": ["TransformerConv"],
    "dgl": [],
    "pyg": [],
})
