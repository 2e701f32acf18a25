"""Single layers of a width over graphs of files: PyG's, and what aggregates neighbours."""

import torch
from case import Case, Client, load, with_parameters_of

# layers that take heads and may take edge features
HEADED = ("TransformerConv", "GATConv", "GATv2Conv")
LAYERS = HEADED + ("AGNNConv", "GCNConv", "SAGEConv", "SAGEConv-max", "GINConv", "PNA")


class Given(torch.autograd.Function):
    """A loss whose gradient is given, so that a step has the layer's two passes alone."""

    @staticmethod
    def forward(ctx, out, gradients):
        if out.shape not in gradients:
            gradients[out.shape] = torch.randn_like(out)
        ctx.gradient = gradients[out.shape]
        return out.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        return ctx.gradient, None


class Pna(torch.nn.Module):
    """mean, min, max and std of the neighbours, side by side."""

    def __init__(self, nodes=None):
        super().__init__()
        from torch_geometric.nn.aggr import MultiAggregation
        self.all, self.nodes = MultiAggregation(["mean", "min", "max", "std"]), nodes

    def forward(self, x, edges):
        if self.nodes:
            import dfgnn
            return torch.cat(dfgnn.aggregate(dfgnn.as_graph(edges, self.nodes), x, "pna"), -1)
        return self.all(x.index_select(0, edges[0]), edges[1], dim_size=x.size(0))


def layer_of(name, width, heads, edge_dim):
    from torch_geometric import nn
    if name in HEADED:
        return getattr(nn, name)(width, width // heads, heads=heads,
                                 edge_dim=edge_dim or None)
    return {"PNA": Pna, "AGNNConv": nn.AGNNConv,
            "GINConv": lambda: nn.GINConv(torch.nn.Linear(width, width)),
            "GCNConv": lambda: nn.GCNConv(width, width),
            "SAGEConv": lambda: nn.SAGEConv(width, width),
            "SAGEConv-max": lambda: nn.SAGEConv(width, width, aggr="max")}[name]()


def on(path, name, options):
    """The Case of a layer on the graph of a file; the input has gradients as well."""
    def build(scale):
        nodes, edges, _ = load(path)
        layer = layer_of(name, options.width, options.heads, options.edge_dim)
        inputs = {"x": torch.randn(nodes, options.width, requires_grad=True), "edges": edges}
        if options.edge_dim:
            inputs["attr"] = torch.randn(edges.size(1), options.edge_dim, requires_grad=True)
        fast = with_parameters_of(layer, Pna(nodes)) if name == "PNA" else None
        gradients = {}
        return Client(layer, inputs, lambda m, i: Given.apply(m(*i.values()), gradients), fast,
                      trains=False)
    return Case("torch_geometric", "torch_geometric", build)
