"""Models of torch_geometric: those of its examples, SchNet, and what GraphGym makes of a
configuration."""

import functools
import os

import torch
import torch_geometric.nn as G
from torch.nn import functional as F
from torch.nn.functional import mse_loss

from case import Client, batch, case, graph, load, molecules, neighbours, power_law


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


for _name in "gcn", "gat", "sage", "gin", "general", "general_edge":
    case("graphgym", "yacs", f"graphgym_{_name}")(functools.partial(
        graphgym, _name.replace("_", "") + "conv", edges=_name.endswith("_edge")))


# ---- models as examples have them -------------------------------------------------


class Nodes(torch.nn.Module):
    """A stack of layers, with norms, activation and dropout as in the examples."""

    def __init__(self, layers, dropout, act, norms=()):
        super().__init__()
        self.layers = torch.nn.ModuleList(layers)
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm1d(n) for n in norms)
        self.dropout, self.act = dropout, act

    def forward(self, x, edge_index, *attr):
        for number, layer in enumerate(self.layers):
            x = layer(F.dropout(x, self.dropout, self.training), edge_index, *attr)
            if number + 1 < len(self.layers):
                x = self.act(self.norms[number](x) if len(self.norms) else x)
        return x


class Pooled(torch.nn.Module):
    """A model of nodes, whose sums over graphs are mapped."""

    def __init__(self, inner, width, out=2):
        super().__init__()
        self.inner, self.out = inner, G.MLP([width, width, out], dropout=0.5)

    def forward(self, x, edge_index, batch, *attr):
        return self.out(G.global_add_pool(self.inner(x, edge_index, *attr), batch))


class Gps(torch.nn.Module):
    """examples/graph_gps.py with GINEConv and dense attention."""

    def __init__(self, layers, width=64, features=28, edge_features=4):
        super().__init__()
        self.start = torch.nn.Linear(features, width)
        self.convs = torch.nn.ModuleList(
            G.GPSConv(width, G.GINEConv(G.MLP([width] * 3, norm=None)), heads=4,
                      attn_kwargs={"dropout": 0.5}) for _ in range(layers))
        self.edges = torch.nn.Linear(edge_features, width)
        self.end = torch.nn.Linear(width, 1)

    def forward(self, x, edge_index, batch, attr):
        x, attr = self.start(x), self.edges(attr)
        for conv in self.convs:
            x = conv(x, edge_index, batch, edge_attr=attr)
        return self.end(G.global_add_pool(x, batch))


class Forces(torch.nn.Module):
    """An energy of distances by continuous filters, as SchNet's, and the forces
    that are its gradient by the positions."""

    def __init__(self, width=64, layers=3):
        super().__init__()
        self.start, self.end = torch.nn.Linear(3, width), torch.nn.Linear(width, 1)
        self.filters = torch.nn.ModuleList(
            G.MLP([16, width, width], act="silu", norm=None) for _ in range(layers))
        self.convs = torch.nn.ModuleList(
            G.GINEConv(torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.SiLU()))
            for _ in range(layers))
        self.register_buffer("centers", torch.linspace(0, 5, 16))

    @torch.enable_grad()
    def forward(self, x, edge_index, batch):
        place = x.detach().requires_grad_()
        source, target = edge_index
        distance = (place[source] - place[target]).pow(2).sum(1).add(1e-3).sqrt()
        radial = torch.exp(-(distance[:, None] - self.centers) ** 2)
        x = self.start(place)
        for conv, filters in zip(self.convs, self.filters):
            x = x + conv(x, edge_index, edge_attr=filters(radial))
        return torch.autograd.grad(self.end(x).sum(), place, create_graph=True)[0]


def classified(model, i):
    return F.cross_entropy(model(*(v for k, v in i.items() if k != "y")), i["y"])


def citation(name, model, nodes=2708, edges=10556, features=1433, classes=7):
    """A case over one graph of the size of Cora, or of another."""
    @case(name=name)
    def build(scale):
        n = max(64, int(nodes * scale))
        return Client(model(features, classes), {
            "x": torch.rand(n, features), "edge_index": power_law(n, max(64, int(
                edges * scale))), "y": torch.randint(0, classes, (n,))}, classified)


def small_graphs(name, model, count, features, edge_features=0, nodes=23, edges=50, some=8):
    """A case over `some` batches of `count` graphs, molecules unless others are said."""
    @case(name=name)
    def build(scale):
        graphs, batches = max(2, int(count * scale)), []
        for _ in range(some):
            index, of_node = batch(graphs, nodes, edges)
            inputs = {"x": torch.rand(graphs * nodes, features), "edge_index": index,
                      "batch": of_node}
            if edge_features:
                inputs["attr"] = torch.rand(index.size(1), edge_features)
            batches.append(inputs)
        made = model()
        return Client(made, batches, lambda m, i: m(*i.values()).abs().mean(),
                      fresh=("edge_index",) if some > 1 else ())


def on_graph(name, spec, layers, dropout, features):
    """A case over a graph of data/ or a preset; layers: (kind, heads, width, concat)."""
    @case(name=name)
    def build(scale):
        if spec.startswith("preset="):
            import dfgnn
            made = dfgnn.generate(f"{spec},scale={scale}" if scale < 1 else spec)
            nodes, edges = made.num_dst, made.edge_index.contiguous()
        else:
            nodes, edges, _ = load(os.path.join(os.path.dirname(os.path.abspath(
                __file__)), "../../../data", f"{spec}.npz"))
        convs, width = [], features
        for kind, heads, out, concat in layers:
            convs.append(getattr(G, kind)(width, out, heads=heads, concat=concat,
                                          dropout=dropout))
            width = heads * out if concat else out
        return Client(Nodes(convs, dropout, F.elu), {
            "x": torch.randn(nodes, features), "edge_index": edges,
            "y": torch.randint(0, 7, (nodes,))}, classified)


def stack(layer, count=4):
    return lambda: Pooled(Nodes([layer() for _ in range(count)], 0.0, F.relu), 64)


def mlp():
    return G.MLP([64, 64, 64], norm=None)


citation("gcn", lambda f, c: Nodes([G.GCNConv(f, 16), G.GCNConv(16, c)], 0.5, F.relu))
citation("sage_64", lambda f, c: Nodes([G.SAGEConv(f, 64), G.SAGEConv(64, c)], 0.5, F.relu))
citation("gat", lambda f, c: Nodes([
    G.GATConv(f, 8, heads=8, dropout=0.6), G.GATConv(64, c, concat=False, dropout=0.6)],
    0.6, F.elu))
citation("gatv2", lambda f, c: Nodes([G.GATv2Conv(f, 8, heads=8), G.GATv2Conv(64, c)],
                                     0.6, F.elu))
citation("sage", lambda f, c: Nodes([
    G.SAGEConv(f, 256), G.SAGEConv(256, 256), G.SAGEConv(256, c)], 0.5, F.relu, [256, 256]),
    169343, 2315598, 128, 40)
citation("transformer", lambda f, c: Nodes([
    G.TransformerConv(f, 64, heads=2, beta=True, dropout=0.3),
    G.TransformerConv(128, 64, heads=2, beta=True, dropout=0.3),
    G.TransformerConv(128, c, heads=2, concat=False, beta=True, dropout=0.3)], 0.0, F.relu,
    [128, 128]), 169343, 2315598, 128, 40)
small_graphs("gin", lambda: Pooled(Nodes([
    G.GINConv(G.MLP([7 if i == 0 else 32, 32, 32])) for i in range(5)], 0.0, F.relu), 32),
    128, 7, nodes=18, edges=40)
small_graphs("gps", lambda: Gps(10), 32, 28, 4)
small_graphs("gps_4", lambda: Gps(4), 32, 28, 4)
small_graphs("forces", Forces, 32, 3)
small_graphs("gin_64", stack(lambda: G.GINConv(mlp())), 128, 64)
small_graphs("gine_64", stack(lambda: G.GINEConv(mlp())), 128, 64, 64)
small_graphs("transformer_edges", stack(
    lambda: G.TransformerConv(64, 8, heads=8, edge_dim=11)), 128, 64, 11)
small_graphs("gatv2_edges", stack(
    lambda: G.GATv2Conv(64, 8, heads=8, edge_dim=11)), 128, 64, 11)
on_graph("cora_gat", "cora", [("GATConv", 8, 8, True), ("GATConv", 1, 7, False)], 0.6, 1433)
on_graph("cora_transformer", "cora", [("TransformerConv", 8, 8, True)] * 2, 0.0, 64)
on_graph("mnist_transformer", "preset=mnist", [("TransformerConv", 8, 8, True)] * 4, 0.0, 64)
on_graph("pattern_transformer", "preset=pattern", [("TransformerConv", 8, 8, True)] * 4, 0.0,
         64)
on_graph("arxiv_gat", "preset=arxiv", [("GATConv", 8, 32, True), ("GATConv", 1, 40, False)],
         0.3, 128)
on_graph("arxiv_transformer", "preset=arxiv", [("TransformerConv", 8, 16, True)] * 3, 0.0, 128)
