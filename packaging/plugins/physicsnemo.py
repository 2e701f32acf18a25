"""A forward for physicsnemo's MeshEdgeBlock that holds no inner value of an edge.

dfgnn.accelerate does this, and takes the sum of the MeshNodeBlock after it from the same
call.  Offered to physicsnemo it would be `forward` below as a way that the block has, for
its default MLPs (do_concat_trick=False): linear layers with one activation between them
and a LayerNorm.
"""

import torch

import dfgnn


def forward(self, efeat, nfeat, graph):
    *modules, norm = self.edge_mlp.model
    linear = [m for m in modules if isinstance(m, torch.nn.Linear)]
    efeat = dfgnn.edge_mlp(
        graph.edge_index, [m.weight for m in linear], [m.bias for m in linear],
        edge=efeat, src=nfeat, dst=nfeat, columns=("edge", "src", "dst"),
        activation=type(modules[1]).__name__.lower(), norm="layer",
        norm_weight=norm.weight, norm_bias=norm.bias, eps=norm.eps,
        residual=True, edges=True, reduce=None)
    return efeat, nfeat


def install():
    from physicsnemo.nn.module.gnn_layers.mesh_edge_block import MeshEdgeBlock
    MeshEdgeBlock.forward = forward
