"""Layers with the names, arguments, parameters and results of PyG's."""

from .agnn_conv import AGNNConv
from .gat_conv import GATConv
from .gatv2_conv import GATv2Conv
from .neighbours import GCNConv, GINConv, GraphConv, SAGEConv
from .transformer_conv import TransformerConv

__all__ = ["AGNNConv", "GATConv", "GATv2Conv", "GCNConv", "GINConv",
           "GraphConv", "SAGEConv", "TransformerConv"]
