"""MLPs on edges: blocks and whole models by torch's operations, whose first layer is split
by node, and by dfgnn's kernels."""

import torch
from case import Client, case, mesh, with_parameters_of
from torch.nn import functional as F

# name: edges, edges of a node, width, hidden layers, blocks (1: a block alone)
MODELS = {
    "block_128": (327660, 8, 128, 2, 1),
    "block_128_large": (1200000, 8, 128, 2, 1),
    "block_512": (327660, 8, 512, 1, 1),
    "meshgraphnet": (327660, 8, 128, 2, 15),
    "graphcast": (327660, 8, 512, 1, 16),
}


def by_torch(block, x, src, dst, e):
    """What a dfgnn.nn.MeshBlock does."""
    first, *rest = block.edge.mlp
    own, at, to = first.weight.split(x.size(1), 1)
    z = F.linear(x, at)[src] + F.linear(x, to)[dst] + F.linear(e, own, first.bias)
    for module in rest:
        z = module(z)
    e = e + z
    total = torch.zeros(x.size(0), x.size(1), dtype=e.dtype, device=e.device)
    return x + block.node(torch.cat([total.index_add(0, dst, e), x], 1)), e


class Mesh(torch.nn.Module):
    """An encoder of nodes and of edges, blocks, and a decoder."""

    def __init__(self, width, hidden, blocks, fused):
        import dfgnn.nn
        super().__init__()
        self.nodes, self.edges = torch.nn.Linear(4, width), torch.nn.Linear(4, width)
        self.blocks = torch.nn.ModuleList(dfgnn.nn.MeshBlock(width, hidden_layers=hidden)
                                          for _ in range(blocks))
        self.out, self.fused = torch.nn.Linear(width, 3), fused

    def forward(self, x, e, edge_index):
        import dfgnn
        x, e = self.nodes(x), self.edges(e)
        graph = self.fused and dfgnn.as_graph(edge_index, x.size(0))
        for block in self.blocks:
            x, e = block(x, graph, e) if self.fused else by_torch(block, x, *edge_index, e)
        return self.out(x)


def mesh_case(name, edges, degree, width, hidden, blocks):
    @case("torch", name=name)
    def build(scale):
        index, nodes = mesh(max(16, int(edges * scale)), degree)
        model = Mesh(width, hidden, blocks, False)
        inputs = {"x": torch.randn(nodes, 4), "e": torch.randn(index.size(1), 4),
                  "edge_index": index, "y": torch.randn(nodes, 3)}
        return Client(model, inputs, lambda m, i: F.mse_loss(
            m(i["x"], i["e"], i["edge_index"]), i["y"]),
            with_parameters_of(model, Mesh(width, hidden, blocks, True)), trains=blocks > 1)


for name, shape in MODELS.items():
    mesh_case(name, *shape)


@case()
def edge_conv_128(scale):
    """PyG's EdgeConv of two layers: no features of edges, the maximum at each node."""
    from torch_geometric.nn import EdgeConv
    index, nodes = mesh(max(16, int(40960 * scale)), 20)
    layer = EdgeConv(torch.nn.Sequential(torch.nn.Linear(256, 128), torch.nn.ReLU(),
                                         torch.nn.Linear(128, 128)))
    inputs = {"x": torch.randn(nodes, 128, requires_grad=True), "edge_index": index}
    return Client(layer, inputs, lambda m, i: m(**i).square().mean(), trains=False)
