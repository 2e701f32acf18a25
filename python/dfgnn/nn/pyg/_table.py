"""The layers of PyG that have kernels behind them: one row for each class."""

import torch_geometric.nn as pyg
from torch_geometric.nn import aggr

from ..._modes import compiling
from .. import _attention_nodes as attention_nodes
from .. import _sum_nodes as sum_nodes
from . import _attention_convs as attention
from . import _compiled  # noqa: F401 - serves while torch.compile traces
from . import _functions as functions
from . import _sums as sums
from . import _traced as traced
from ._edges import APPEND_LOOPS, NORM, NORM_TENSORS, REPLACE_LOOPS
from ._gps import GPSConv
from ._mixin import Row, fuse, tried
from ._reduce import neighbours, reductions
from .relations import layers, over_types, typed
from .relations.hetero_conv import HeteroConv


def _written(fused):
    """fused for a forward that writes to its result, which an operator keeps
    for its gradient where torch.compile traces."""
    def propagate(*args, **kwargs):
        out = fused(*args, **kwargs)
        return out.clone() if compiling() and out is not NotImplemented \
            else out
    return propagate


# a softmax of messages and their sum
_BY_PROGRAMS = aggr.SoftmaxAggregation, aggr.AttentionalAggregation


def _neighbours(layer, edge_index, size, **arguments):
    weighted = arguments.get("edge_weight") is not None
    by_program = type(layer.aggr_module) in _BY_PROGRAMS or weighted \
        and reductions(layer.aggr_module) not in (("sum",), ("mean",))
    run = traced.propagate if by_program else neighbours
    return run(layer, edge_index, size, **arguments)


_marked = dict(gcn_norm=NORM)
_tensors = dict(gcn_norm=NORM_TENSORS)
normalized = sums.renamed(_marked)
normalized_or_kept = sums.renamed(_marked, _tensors, sums.keeps_edges)

TABLE = [
    # sums of neighbours
    Row("SAGEConv", _neighbours, node=sum_nodes.sage, relation=layers.SAGE),
    Row("GINConv", _neighbours, node=sum_nodes.gin, relation=layers.GIN),
    Row("GraphConv", _neighbours, node=sum_nodes.graph_conv,
        relation=layers.GRAPH),
    Row("GatedGraphConv", _neighbours),
    Row("SimpleConv", sums.own_edges, sums.renamed(APPEND_LOOPS)),
    Row("LEConv", traced.propagate),
    Row("RGCNConv", forward=tried(typed.rgcn)),
    Row("FastRGCNConv", forward=tried(typed.rgcn)),
    # sums scaled by degrees
    Row("GCNConv", sums.own_edges, normalized_or_kept, node=sum_nodes.gcn,
        relation=layers.GCN),
    Row("APPNP", sums.own_edges, normalized_or_kept),
    Row("GCN2Conv", _written(sums.own_edges), normalized_or_kept),
    Row("SGConv", sums.own_edges, normalized),
    Row("SSGConv", sums.own_edges, normalized),
    Row("TAGConv", sums.own_edges, normalized),
    Row("LGConv", sums.own_edges, normalized),
    Row("ARMAConv", sums.own_edges, normalized),
    Row("MixHopConv", sums.own_edges, normalized),
    Row("PDNConv", sums.own_edges, normalized),
    Row("ClusterGCNConv", sums.own_edges, sums.renamed(REPLACE_LOOPS)),
    Row("ChebConv", sums.chebyshev, sums.renamed({}),
        methods={"__norm__": sums.laplacian}),
    Row("EGConv", traced.propagate, sums.renamed(_tensors)),
    Row("FAConv", sums.frequency_adaptive, sums.renamed(_tensors)),
    # attention
    Row("GATConv", forward=tried(attention.gat), node=attention_nodes.gat,
        relation=layers.GAT),
    Row("GATv2Conv", forward=tried(attention.gatv2),
        node=attention_nodes.gatv2, relation=layers.GATV2),
    Row("TransformerConv", traced.propagate, tried(attention.transformer),
        node=attention_nodes.transformer, relation=layers.TRANSFORMER),
    Row("AGNNConv", forward=tried(attention.agnn), node=attention_nodes.agnn),
    Row("SuperGATConv", traced.propagate, sums.renamed(REPLACE_LOOPS),
        methods={"negative_sampling": functions.replaced}),
    Row("HANConv", forward=over_types.han),
    Row("HGTConv", forward=over_types.hgt),
    Row("RGATConv", forward=tried(typed.relational)),
    Row("HEATConv", forward=tried(typed.heat)),
    Row("GeneralConv", traced.propagate),
    # messages of a network, if it is linear or reads one node alone
    Row("PNAConv", sums.principal, tried(sums.principal_layer)),
    Row("GENConv", traced.propagate),
    Row("EdgeConv", sums.edge_network),
    Row("FiLMConv", traced.propagate, sums.renamed({})),
    # messages with features of the edge
    Row("GINEConv", sums.isomorphism_with_edges, node=sum_nodes.gine),
    Row("ResGatedGraphConv", sums.residual_gates),
]

CLASSES = {getattr(pyg, row.name): fuse(getattr(pyg, row.name), row,
                                        __module__=__package__)
           for row in TABLE}
"""The class with kernels for each class of PyG."""

UNITS = {pyg.HeteroConv: HeteroConv, pyg.GPSConv: GPSConv}
"""The class with kernels for each class of PyG that holds layers."""
