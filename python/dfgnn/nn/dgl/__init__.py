"""Layers with the arguments, parameters and results of dgl.nn.

Outputs of attention are [nodes, heads, features].  The graph is a DGL graph or
block, a dfgnn.Graph, or CSR tensors by destination: DGL itself is not needed.
Features are [nodes, features], or [nodes, ..., features] where DGL takes that.
"""

from ._attention_convs import (
    AGNNConv, DotGatConv, EdgeGATConv, GATConv, GATv2Conv)
from ._base import DGLError
from ._hetero_conv import HeteroGraphConv
from ._relations import HGTConv, RelGraphConv
from ._sums import GINConv, GraphConv, SAGEConv

__all__ = ["AGNNConv", "DGLError", "DotGatConv", "EdgeGATConv", "GATConv",
           "GATv2Conv", "GINConv", "GraphConv", "HGTConv", "HeteroGraphConv",
           "RelGraphConv", "SAGEConv"]
