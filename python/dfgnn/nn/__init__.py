"""Layers with the names, arguments, parameters and results of PyG's.

dfgnn.nn.dgl has those of DGL, dfgnn.nn.pyg PyG's own classes with the kernels
behind them; both are imported when they are first looked at.
"""

import importlib

from .agnn_conv import AGNNConv
from .gat_conv import GATConv
from .gatv2_conv import GATv2Conv
from .neighbours import GCNConv, GINConv, GraphConv, SAGEConv
from .transformer_conv import TransformerConv

__all__ = ["AGNNConv", "GATConv", "GATv2Conv", "GCNConv", "GINConv",
           "GraphConv", "SAGEConv", "TransformerConv"]


def __getattr__(name):
    if name in ("dgl", "pyg"):
        return importlib.import_module("dfgnn.nn." + name)
    raise AttributeError(f"module 'dfgnn.nn' has no attribute {name!r}")
