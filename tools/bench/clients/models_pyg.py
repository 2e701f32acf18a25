"""Models of torch_geometric for clients.py: those of its model zoo, GraphGPS, and what
GraphGym makes of a configuration."""

import torch
from torch.nn.functional import mse_loss

from case import Client, case, graph, molecules, neighbours, of_nodes


@case("torch_geometric")
def pyg_gcn(scale):
    from torch_geometric.nn.models import GCN
    return of_nodes(GCN(64, 64, 3, 16), scale)


@case("torch_geometric")
def pyg_gat(scale):
    from torch_geometric.nn.models import GAT
    return of_nodes(GAT(64, 8 * 8, 3, 16, heads=8, v2=True), scale)


@case("torch_geometric")
def pyg_sage(scale):
    from torch_geometric.nn.models import GraphSAGE
    return of_nodes(GraphSAGE(64, 64, 3, 16), scale)


@case("torch_geometric")
def pyg_gin(scale):
    from torch_geometric.nn.models import GIN
    return of_nodes(GIN(64, 64, 3, 16), scale)


@case("torch_geometric")
def pyg_pna(scale):
    from torch_geometric.nn.models import PNA
    return of_nodes(PNA(64, 64, 2, 16, aggregators=["mean", "min", "max", "std"],
                        scalers=["identity", "amplification", "attenuation"],
                        deg=torch.tensor([0] * 8 + [1])), scale)


@case("torch_geometric")
def pyg_edge_cnn(scale):
    from torch_geometric.nn.models import EdgeCNN
    return of_nodes(EdgeCNN(64, 64, 2, 16), scale)


@case("torch_geometric")
def pyg_gps(scale):
    """GraphGPS on molecules of ZINC's size: a GINE message beside attention over all
    nodes of a graph."""
    from torch_geometric.nn import GINEConv, GPSConv
    linear = torch.nn.Linear

    class GPS(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.edges = linear(16, 64)
            self.convs = torch.nn.ModuleList(
                GPSConv(64, GINEConv(torch.nn.Sequential(
                    linear(64, 64), torch.nn.ReLU(), linear(64, 64))), heads=4)
                for _ in range(3))
            self.out = linear(64, 16)

        def forward(self, x, edge_index, edge_attr, batch):
            for conv in self.convs:
                x = conv(x, edge_index, batch, edge_attr=self.edges(edge_attr))
            return self.out(x)

    graphs, size = max(1, int(640 * scale)), 24
    index = torch.cat([graph(size, 3, seed) + size * seed for seed in range(graphs)], 1)
    nodes = graphs * size
    inputs = {"x": torch.randn(nodes, 64), "edge_index": index,
              "edge_attr": torch.randn(index.shape[1], 16),
              "batch": torch.arange(graphs).repeat_interleave(size),
              "y": torch.randn(nodes, 16)}
    return Client(GPS(), inputs, lambda m, i: mse_loss(
        m(i["x"], i["edge_index"], i["edge_attr"], i["batch"]), i["y"]))


@case("torch_geometric")
def pyg_schnet(scale):
    """SchNet: continuous filters over the neighbours of atoms, energies of molecules."""
    from torch_geometric.nn.models import SchNet
    atoms = molecules(scale)

    def near(position, batch):
        source, target = index = neighbours(position, atoms.count)
        return index, (position[source] - position[target]).norm(dim=-1)

    model = SchNet(hidden_channels=64, num_filters=64, num_interactions=3, cutoff=5.0,
                   readout="mean", interaction_graph=near)
    inputs = {"z": atoms.number, "pos": atoms.position, "batch": atoms.molecule,
              "y": torch.randn(atoms.count, 1)}
    return Client(model, inputs, lambda m, i: mse_loss(
        m(i["z"], i["pos"], i["batch"]), i["y"]))


def graphgym(layer, scale, edges=False):
    """The network of GraphGym's default configuration with a layer of this name: two
    linear layers before and one after two layers of the graph, with skip connections."""
    from torch_geometric.data import Data
    from torch_geometric.graphgym.config import cfg, set_cfg
    from torch_geometric.graphgym.models.gnn import GNN
    set_cfg(cfg)
    cfg.merge_from_list([
        "gnn.layer_type", layer, "gnn.dim_inner", 64, "gnn.layers_pre_mp", 2,
        "gnn.layers_mp", 2, "gnn.stage_type", "skipsum", "gnn.l2norm", False,
        "dataset.edge_dim", 16, "dataset.task", "node", "gnn.head", "node"])
    nodes = int(20_000 * scale)
    index = graph(nodes, 8)
    inputs = {"x": torch.randn(nodes, 64), "edge_index": index,
              "y": torch.randn(nodes, 16)}
    if edges:
        inputs["edge_attr"] = torch.randn(index.size(1), 16)

    def loss(model, i):
        # the network changes the batch in place
        out = model(Data(**i))
        return mse_loss((out[0] if isinstance(out, tuple) else out), i["y"])
    return Client(GNN(64, 16), inputs, loss)


@case("graphgym", "yacs")
def graphgym_gcn(scale):
    return graphgym("gcnconv", scale)


@case("graphgym", "yacs")
def graphgym_gat(scale):
    return graphgym("gatconv", scale)


@case("graphgym", "yacs")
def graphgym_sage(scale):
    return graphgym("sageconv", scale)


@case("graphgym", "yacs")
def graphgym_gin(scale):
    return graphgym("ginconv", scale)


@case("graphgym", "yacs")
def graphgym_general(scale):
    return graphgym("generalconv", scale)


@case("graphgym", "yacs")
def graphgym_general_edge(scale):
    return graphgym("generaledgeconv", scale, edges=True)
