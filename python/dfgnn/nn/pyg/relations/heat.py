"""HEATConv: attention whose scores have types of nodes and edges, and features
of edges, which are values, too."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Embedding
from torch.nn.parameter import is_lazy
from torch_geometric.nn.dense.linear import HeteroLinear, Linear

from ...._modes import compiling
from ...._relations.groups import take, typed
from ...._remember import remember
from ....hetero import HeteroGraph, gatherer
from ....programs import edge_program, softmax
from ..._linear import hooked
from .._attention_convs import attends
from .._edges import graph_of
from .._mixin import unfit


@edge_program
def _messages(i, j, e, slope, dropout):
    weight = F.dropout(softmax(F.leaky_relu(
        i.score + j.score + e.score, slope)), dropout, dropout > 0)
    return weight * j.value, weight * e.value


def _refusal(layer, x, edge_index, node_type, edge_type, edge_attr):
    for module, kind in ((layer.hetero_lin, HeteroLinear),
                         (layer.edge_type_emb, Embedding),
                         (layer.edge_attr_emb, Linear), (layer.att, Linear),
                         (layer.lin, Linear)):
        if type(module) is not kind or hooked(module) or is_lazy(
                module.weight):
            return "its projections are not PyG's, or a hook looks at them"
    if layer.att.bias is not None:
        return "its scores have a bias"
    embedding = layer.edge_type_emb
    if embedding.max_norm is not None or embedding.padding_idx is not None \
            or embedding.scale_grad_by_freq or embedding.sparse:
        return "its embeddings are more than rows of a table"
    if compiling():
        return "torch.compile traces"
    if isinstance(edge_index, HeteroGraph):
        edge_index = edge_index.edge_index
    reason = attends(layer, edge_index, x, edge_attr)
    if reason is None and (edge_attr is None or edge_attr.dim() != 2):
        reason = "edge_attr is no matrix"
    if reason is None and not all(
            type(types) is Tensor and types.dim() == 1
            and types.dtype == torch.int64 and types.numel() == t.size(0)
            for types, t in ((node_type, x), (edge_type, edge_attr))):
        reason = "node_type or edge_type is no list of types"
    return reason


def _gatherer(types, count):
    if types.numel() and not 0 <= int(types.min()) <= int(types.max()) < count:
        raise ValueError(f"edge_type has {int(types.min())} to "
                         f"{int(types.max())}, expected 0 to {count - 1}")
    return gatherer(types, count)


def heat(layer, x, edge_index, node_type, edge_type, edge_attr=None):
    reason = _refusal(layer, x, edge_index, node_type, edge_type, edge_attr)
    relations = edge_index if isinstance(edge_index, HeteroGraph) else None
    if reason is not None and relations is not None:
        raise ValueError("HEATConv does not run on a HeteroGraph: " + reason)
    if reason is not None:
        return unfit(layer, reason)
    try:
        types = typed(node_type, layer.hetero_lin.num_types, x,
                      layer.hetero_lin.out_channels)
        count = layer.edge_type_emb.num_embeddings
        of_edge = remember(edge_type, ("kinds", count), lambda: _gatherer(
            edge_type, count))
    except (ValueError, RuntimeError) as error:  # PyG has errors of its own
        return unfit(layer, str(error))
    width, slope = layer.out_channels, layer.negative_slope
    h = types.product(x, layer.hetero_lin.weight, layer.hetero_lin.bias)
    if relations is None:
        graph, sent = graph_of(layer, edge_index, x.size(0), x.size(0)), h
    else:
        graph = relations.graph(relations.by_node("dst"),
                                relations.by_node("src"))
        sent = relations.extend({"": h})[""]
    kinds = F.leaky_relu(layer.edge_type_emb.weight, slope)
    edge = F.leaky_relu(layer.edge_attr_emb(edge_attr), slope)
    att = layer.att.weight.split([width, width, kinds.size(1), edge.size(1)],
                                 1)
    of_kind = take(F.linear(kinds, att[2]), of_edge)
    w_node, w_edge = layer.lin.weight.split([width, edge.size(1)], 1)
    of_nodes, of_edges = _messages(
        graph, slope=slope, dropout=layer.dropout if layer.training else 0.0,
        i={"score": F.linear(h, att[0]).unsqueeze(-1)},
        j={"score": F.linear(sent, att[1]).unsqueeze(-1),
           "value": F.linear(sent, w_node, layer.lin.bias).unsqueeze(1)},
        e={"score": (of_kind + F.linear(edge, att[3])).unsqueeze(-1),
           "value": edge.unsqueeze(1)})
    return _finish(layer, of_nodes + F.linear(of_edges, w_edge), h)


def _finish(layer, out, h):
    """The heads of out [N, H, O] joined, and the node's own features."""
    if layer.concat:
        if layer.root_weight:
            out = out + h.unsqueeze(1)
        return out.flatten(1)
    out = out.mean(1)
    return out + h if layer.root_weight else out
