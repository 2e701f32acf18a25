"""A forward for TorchMD-NET's CFConv, which dfgnn.accelerate does not know, since it is no
MessagePassing of PyG: the product of filters and neighbours and its sum are one edge
program, with gradients of any order, so that forces can be trained on.

SchNetInteraction of schnetpack is the same with idx_i and idx_j as edges.
"""

import dfgnn
from dfgnn.programs import sum_out


@dfgnn.edge_program(reduce=None)
def filtered(i, j, e):
    return sum_out(i.x * e.filter)


def forward(self, x, edge_index, edge_weight, edge_attr, n_atoms=None):
    filters = self.net(edge_attr) * self.cutoff(edge_weight).view(-1, 1)
    # the receiver stands first in edge_index, where dfgnn has the sender: of a turned
    # copy each layer would make a graph
    graph = dfgnn.as_graph(edge_index, x.size(0))
    return self.lin2(filtered(graph, i={"x": self.lin1(x)}, e={"filter": filters}))


def install():
    from torchmdnet.models.torchmd_gn import CFConv
    CFConv.forward = forward
