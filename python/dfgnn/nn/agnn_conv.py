"""AGNNConv, as torch_geometric.nn has it."""

import torch
from torch import nn

from . import _attention_nodes, _attention_steps as steps
from ._conv import Conv
from ._node import first


class AGNNConv(Conv):
    """Attention by cosine   Thekumparampil et al. 2018

    Arguments, parameters and results are those of torch_geometric.nn.AGNNConv.
    """

    default_node_dim = -2

    def __init__(self, requires_grad=True, add_self_loops=True, **kwargs):
        super().__init__(**kwargs)
        self.requires_grad = requires_grad
        self.add_self_loops = add_self_loops
        if requires_grad:
            self.beta = nn.Parameter(torch.ones(1))
        else:
            self.register_buffer("beta", torch.ones(1))

    def reset_parameters(self):
        if self.requires_grad:
            nn.init.ones_(self.beta)

    @first(_attention_nodes.agnn)
    def forward(self, x, edge_index):
        """x [N, F]; edge_index [2, E], a Graph or what dfgnn.as_graph
        takes."""
        self.check_features(x)
        return steps.agnn(self, self.edges(edge_index), x)

    def __repr__(self):
        return "AGNNConv()"
