"""TransformerConv, as torch_geometric.nn has it."""

from . import _attention_nodes, _attention_steps as steps
from ._attention_steps import pair
from ._conv import Conv, edge_features, pair_of
from ._linear import Linear
from ._node import first


class TransformerConv(Conv):
    """Dot-product attention with a skip connection   Shi et al. 2021

    Arguments, parameters and results are those of
    torch_geometric.nn.TransformerConv.
    """

    def __init__(self, in_channels, out_channels, heads=1, concat=True,
                 beta=False, dropout=0.0, edge_dim=None, bias=True,
                 root_weight=True, **kwargs):
        super().__init__(**kwargs)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.heads = heads
        self.beta = beta and root_weight
        self.root_weight = root_weight
        self.concat = concat
        self.dropout = dropout
        self.edge_dim = edge_dim
        in_channels = pair_of(in_channels)
        width = heads * out_channels
        self.lin_key = Linear(in_channels[0], width, bias)
        self.lin_query = Linear(in_channels[1], width, bias)
        self.lin_value = Linear(in_channels[0], width, bias)
        self.lin_edge = None if edge_dim is None else Linear(edge_dim, width,
                                                             False)
        skip = width if concat else out_channels
        self.lin_skip = Linear(in_channels[1], skip, bias)
        self.lin_beta = Linear(3 * skip, 1, False) if self.beta else None
        self.reset_parameters()

    def reset_parameters(self):
        for child in self.children():
            child.reset_parameters()

    @first(_attention_nodes.transformer)
    def forward(self, x, edge_index, edge_attr=None,
                return_attention_weights=None):
        """x [N, F], or (sources, destinations); edge_index [2, E], a Graph or
        what dfgnn.as_graph takes; edge_attr [E, edge_dim].  If
        return_attention_weights is not None, be it True or False, also
        (edge_index, alpha [E, H] before dropout)."""
        x = pair(x)
        for part in x:
            self.check_features(part)
        *parts, root = steps.projections(self, x)
        values = None
        if self.lin_edge is None:
            edge_attr = None
        elif edge_attr is None:
            edge_attr = values = edge_features(edge_index)
            if edge_attr is None:
                raise ValueError("edge_attr is None, but the layer has "
                                 f"edge_dim={self.edge_dim}")
        graph = self.edges(edge_index, values)
        out, alpha = steps.transformer(
            self, graph, *parts, edge_attr,
            isinstance(return_attention_weights, bool))
        out = steps.with_skip(self, out, root)
        return out if alpha is None else self.result(out, edge_index, graph,
                                                     alpha)
