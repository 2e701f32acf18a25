"""physicsnemo's, orb-models' and anemoi-models' blocks for tests where these
packages are not installed: modules of the same names, parameters and formulas,
written after nvidia-physicsnemo 2.2 (nn/module/gnn_layers), orb-models 0.5.5
(forcefield/gns.py) and anemoi-models 0.19 (layers/block.py)."""

import sys
import types
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.utils import scatter, softmax


def _belongs(module, *kinds):
    """Gives classes the module that the package has them in."""
    for kind in kinds:
        kind.__module__ = module
        parts = module.split(".")
        for k in range(1, len(parts) + 1):
            name = ".".join(parts[:k])
            sys.modules.setdefault(name, types.ModuleType(name))
        setattr(sys.modules[module], kind.__name__, kind)


# ---- physicsnemo

def _layers(sizes, activation):
    modules = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        modules += [nn.Linear(inputs, outputs), activation]
    return modules[:-1] + [nn.LayerNorm(sizes[-1])]


def _ends(graph):
    if hasattr(graph, "node_types"):
        graph = graph[graph.edge_types[0]]
    return graph.edge_index.long()


def _pair(nodes):
    return nodes if isinstance(nodes, tuple) else (nodes, nodes)


class MeshGraphMLP(nn.Module):
    def __init__(self, input_dim, output_dim, hidden_dim, hidden_layers,
                 activation_fn):
        super().__init__()
        self.model = nn.Sequential(*_layers(
            [input_dim, *[hidden_dim] * hidden_layers, output_dim],
            activation_fn))

    def forward(self, x):
        return self.model(x)


class MeshGraphEdgeMLPConcat(MeshGraphMLP):
    def __init__(self, efeat_dim, src_dim, dst_dim, output_dim, hidden_dim,
                 hidden_layers, activation_fn):
        super().__init__(efeat_dim + src_dim + dst_dim, output_dim,
                         hidden_dim, hidden_layers, activation_fn)

    def forward(self, efeat, nfeat, graph):
        (src, dst), (x, y) = _ends(graph), _pair(nfeat)
        return self.model(torch.cat((efeat, x[src], y[dst]), 1))


class MeshGraphEdgeMLPSum(nn.Module):
    def __init__(self, efeat_dim, src_dim, dst_dim, output_dim, hidden_dim,
                 hidden_layers, activation_fn):
        super().__init__()
        first, *rest = _layers(
            [efeat_dim + src_dim + dst_dim, *[hidden_dim] * hidden_layers,
             output_dim], activation_fn)
        parts = first.weight.split([efeat_dim, src_dim, dst_dim], 1)
        self.lin_efeat, self.lin_src, self.lin_dst = map(nn.Parameter, parts)
        self.bias = first.bias
        self.model = nn.Sequential(*rest)

    def forward(self, efeat, nfeat, graph):
        (src, dst), (x, y) = _ends(graph), _pair(nfeat)
        return self.model(
            F.linear(efeat, self.lin_efeat) + F.linear(x, self.lin_src)[src]
            + F.linear(y, self.lin_dst, self.bias)[dst])


class MeshEdgeBlock(nn.Module):
    def __init__(self, input_dim_nodes, input_dim_edges, output_dim,
                 hidden_dim, hidden_layers=1, activation_fn=nn.SiLU(),
                 norm_type="LayerNorm", do_concat_trick=False):
        super().__init__()
        mlp = MeshGraphEdgeMLPSum if do_concat_trick else \
            MeshGraphEdgeMLPConcat
        self.edge_mlp = mlp(input_dim_edges, input_dim_nodes, input_dim_nodes,
                            output_dim, hidden_dim, hidden_layers,
                            activation_fn)

    def forward(self, efeat, nfeat, graph):
        return self.edge_mlp(efeat, nfeat, graph) + efeat, nfeat


class MeshNodeBlock(nn.Module):
    def __init__(self, aggregation, input_dim_nodes, input_dim_edges,
                 output_dim, hidden_dim, hidden_layers=1,
                 activation_fn=nn.SiLU()):
        super().__init__()
        self.aggregation = aggregation
        self.node_mlp = MeshGraphMLP(input_dim_nodes + input_dim_edges,
                                     output_dim, hidden_dim, hidden_layers,
                                     activation_fn)

    def forward(self, efeat, nfeat, graph):
        total = scatter(efeat, _ends(graph)[1], 0, nfeat.size(0),
                        self.aggregation)
        return efeat, self.node_mlp(torch.cat((total, nfeat), -1)) + nfeat


class MeshGraphEncoder(nn.Module):
    def __init__(self, aggregation, input_dim_src_nodes, input_dim_dst_nodes,
                 input_dim_edges, output_dim_src_nodes, output_dim_dst_nodes,
                 output_dim_edges, hidden_dim, hidden_layers=1,
                 activation_fn=nn.SiLU()):
        super().__init__()
        self.aggregation = aggregation
        self.edge_mlp = MeshGraphEdgeMLPConcat(
            input_dim_edges, input_dim_src_nodes, input_dim_dst_nodes,
            output_dim_edges, hidden_dim, hidden_layers, activation_fn)
        self.src_node_mlp = MeshGraphMLP(
            input_dim_src_nodes, output_dim_src_nodes, hidden_dim,
            hidden_layers, activation_fn)
        self.dst_node_mlp = MeshGraphMLP(
            input_dim_dst_nodes + output_dim_edges, output_dim_dst_nodes,
            hidden_dim, hidden_layers, activation_fn)

    def forward(self, g2m_efeat, grid_nfeat, mesh_nfeat, graph):
        efeat = self.edge_mlp(g2m_efeat, (grid_nfeat, mesh_nfeat), graph)
        total = scatter(efeat, _ends(graph)[1], 0, mesh_nfeat.size(0),
                        self.aggregation)
        mesh_nfeat = mesh_nfeat + self.dst_node_mlp(
            torch.cat((total, mesh_nfeat), -1))
        return grid_nfeat + self.src_node_mlp(grid_nfeat), mesh_nfeat


class MeshGraphDecoder(nn.Module):
    def __init__(self, aggregation, input_dim_src_nodes, input_dim_dst_nodes,
                 input_dim_edges, output_dim_dst_nodes, output_dim_edges,
                 hidden_dim, hidden_layers=1, activation_fn=nn.SiLU()):
        super().__init__()
        self.aggregation = aggregation
        self.edge_mlp = MeshGraphEdgeMLPConcat(
            input_dim_edges, input_dim_src_nodes, input_dim_dst_nodes,
            output_dim_edges, hidden_dim, hidden_layers, activation_fn)
        self.node_mlp = MeshGraphMLP(
            input_dim_dst_nodes + output_dim_edges, output_dim_dst_nodes,
            hidden_dim, hidden_layers, activation_fn)

    def forward(self, m2g_efeat, grid_nfeat, mesh_nfeat, graph):
        efeat = self.edge_mlp(m2g_efeat, (mesh_nfeat, grid_nfeat), graph)
        total = scatter(efeat, _ends(graph)[1], 0, grid_nfeat.size(0),
                        self.aggregation)
        return self.node_mlp(torch.cat((total, grid_nfeat), -1)) + grid_nfeat


class HybridMeshEdgeBlock(nn.Module):
    def forward(self, mesh_efeat, world_efeat, nfeat, graph):
        raise NotImplementedError


# ---- orb-models

class SSP(nn.Softplus):
    def forward(self, input):
        zero = F.softplus(torch.zeros(1, device=input.device), self.beta,
                          self.threshold)
        return F.softplus(input, self.beta, self.threshold) - zero


def _mlp_and_norm(in_dim, out_dim, hidden_dim, n_layers, activation, norm,
                  dropout):
    sizes = [in_dim, *[hidden_dim] * n_layers, out_dim]
    mlp = nn.Sequential()
    for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
        if dropout is not None:
            mlp.add_module(f"Dropout{i}", nn.Dropout(dropout))
        mlp.add_module(f"NN-{i}", nn.Linear(inputs, outputs))
        last = i == len(sizes) - 2
        mlp.add_module(f"Act-{i}", nn.Identity() if last else
                       {"ssp": SSP, "silu": nn.SiLU}[activation]())
    norm = {"rms_norm": nn.RMSNorm, "layer_norm": nn.LayerNorm}[norm]
    return nn.Sequential(OrderedDict(mlp=mlp, layer_norm=norm(out_dim)))


def _segment_softmax(data, index, count, weights=None):
    top = data.new_full((count, 1), -torch.inf).scatter_reduce(
        0, index.view(-1, 1), data, "amax")
    part = torch.exp(data - top[index])
    if weights is not None:
        part = part * weights
    total = scatter(part, index, 0, count)[index]
    return torch.where(total == 0, 0, part / total)


class AttentionInteractionNetwork(nn.Module):
    def __init__(self, latent_dim, num_mlp_layers, mlp_hidden_dim,
                 attention_gate="sigmoid", conditioning="none",
                 distance_cutoff=False, checkpoint=None, activation="ssp",
                 mlp_norm="layer_norm", dropout=None):
        super().__init__()
        self._node_cond, self._edge_cond = conditioning if isinstance(
            conditioning, tuple) else (conditioning, conditioning)
        more = {"concatenative": latent_dim}
        by_node = more.get(self._node_cond, 0)
        by_edge = more.get(self._edge_cond, 0)
        about = (latent_dim, mlp_hidden_dim, num_mlp_layers, activation,
                 mlp_norm, dropout)
        self._node_mlp = _mlp_and_norm(3 * latent_dim + by_node, *about)
        self._edge_mlp = _mlp_and_norm(
            3 * latent_dim + by_edge + 2 * by_node, *about)
        self._receive_attn = nn.Linear(latent_dim + by_edge, 1)
        self._send_attn = nn.Linear(latent_dim + by_edge, 1)
        if self._node_cond != "none":
            self._cond_node_proj = nn.Linear(latent_dim, latent_dim)
        if self._edge_cond != "none":
            self._cond_edge_proj = nn.Linear(latent_dim, latent_dim)
        self._distance_cutoff = distance_cutoff
        self._attention_gate = attention_gate
        self.latent_dim = latent_dim

    def forward(self, nodes, edges, senders, receivers, cutoff,
                cond_nodes=None, cond_edges=None):
        nodes = self._with(nodes, self._node_cond, "_cond_node_proj",
                           cond_nodes)
        edges = self._with(edges, self._edge_cond, "_cond_edge_proj",
                           cond_edges)
        count = nodes.size(0)
        scores = self._receive_attn(edges), self._send_attn(edges)
        if self._attention_gate == "softmax":
            weights = cutoff if self._distance_cutoff else None
            receive, send = (
                _segment_softmax(score, index, count, weights)
                for score, index in zip(scores, (receivers, senders)))
        else:
            receive, send = map(torch.sigmoid, scores)
        if self._distance_cutoff:
            receive, send = receive * cutoff, send * cutoff
        updated = self._edge_mlp(torch.cat(
            [edges, nodes[senders], nodes[receivers]], 1))
        sent = scatter(updated * send, senders, 0, count)
        received = scatter(updated * receive, receivers, 0, count)
        new = self._node_mlp(torch.cat([nodes, received, sent], 1))
        width = self.latent_dim
        return nodes[:, :width] + new, edges[:, :width] + updated

    def _with(self, rows, kind, name, given):
        if kind == "none" or given is None:
            return rows
        made = getattr(self, name)(given)
        return rows + made if kind == "additive" else \
            torch.cat([rows, made], -1)


# ---- anemoi-models

def _attention_by_rows(query, key, value, edges, edge_index, size):
    """What anemoi's backends compute."""
    source, target = edge_index
    score = (query[target] * (key[source] + edges)).sum(-1, keepdim=True)
    weight = softmax(score / query.size(-1) ** .5, target,
                     num_nodes=query.size(0))
    return scatter(weight * (value[source] + edges), target,
                   dim_size=query.size(0))


class GraphTransformerProcessorBlock(nn.Module):
    """Its attention alone: forward is that of the edges' strategy, or, of
    heads, what apply_gt gets."""

    def __init__(self, in_channels, hidden_dim, out_channels, num_heads,
                 edge_dim, qk_norm=False, shard_strategy="edges"):
        super().__init__()
        self.num_heads = num_heads
        self.out_channels_conv = out_channels // num_heads
        self.shard_strategy, self.qk_norm = shard_strategy, qk_norm
        for name in "query", "key", "value":
            setattr(self, "lin_" + name, nn.Linear(in_channels, out_channels))
        self.lin_edge = nn.Linear(edge_dim, out_channels)
        self.edge_pre_mlp = nn.Identity()
        self.q_norm = nn.LayerNorm(self.out_channels_conv, bias=False)
        self.k_norm = nn.LayerNorm(self.out_channels_conv, bias=False)
        self.conv = _attention_by_rows

    def get_qkve(self, x, edge_attr):
        src, dst = x if isinstance(x, tuple) else (x, x)
        return (self.lin_query(dst), self.lin_key(src), self.lin_value(src),
                self.lin_edge(self.edge_pre_mlp(edge_attr)))

    def _apply_qk_norm(self, query, key):
        if self.qk_norm:
            return self.q_norm(query), self.k_norm(key)
        return query, key

    def _heads(self, *tensors):
        return [t.view(-1, self.num_heads, self.out_channels_conv)
                for t in tensors]

    def _forward_edges_sharded_attention(
            self, query, key, value, edges, edge_index, size, num_chunks,
            edges_are_dst_sorted):
        query, key, value, edges = self._heads(query, key, value, edges)
        query, key = self._apply_qk_norm(query, key)
        return self.apply_gt(query=query, key=key, value=value, edges=edges,
                             edge_index=edge_index, size=size).flatten(1)

    def apply_gt(self, query, key, value, edges, edge_index, size,
                 edges_are_dst_sorted=True):
        return self.conv(query, key, value, edges, edge_index, size)

    def forward(self, x, edge_attr, edge_index, size):
        rows = self.get_qkve(x, edge_attr)
        if self.shard_strategy == "edges":
            return self._forward_edges_sharded_attention(
                *rows, edge_index, size, 1, edges_are_dst_sorted=True)
        query, key, value, edges = self._heads(*rows)
        query, key = self._apply_qk_norm(query, key)
        return self.apply_gt(query, key, value, edges, edge_index, size)


class GraphTransformerMapperBlock(GraphTransformerProcessorBlock):
    """The same between two kinds of nodes."""


def install():
    """Puts the classes in modules of the packages' names."""
    layers = "physicsnemo.nn.module.gnn_layers."
    _belongs(layers + "mesh_graph_mlp", MeshGraphMLP, MeshGraphEdgeMLPConcat,
             MeshGraphEdgeMLPSum)
    _belongs(layers + "mesh_edge_block", MeshEdgeBlock, HybridMeshEdgeBlock)
    _belongs(layers + "mesh_node_block", MeshNodeBlock)
    _belongs(layers + "mesh_graph_encoder", MeshGraphEncoder)
    _belongs(layers + "mesh_graph_decoder", MeshGraphDecoder)
    _belongs("orb_models.forcefield.nn_util", SSP)
    _belongs("orb_models.forcefield.gns", AttentionInteractionNetwork)
    _belongs("anemoi.models.layers.block", GraphTransformerProcessorBlock,
             GraphTransformerMapperBlock)


def _scatter_of_pyg():
    """physicsnemo asks for torch_scatter: PyG's scatter stands for it where
    there is none."""
    import importlib.metadata as metadata
    try:
        import torch_scatter  # noqa: F401
    except ImportError:
        module = types.ModuleType("torch_scatter")
        module.scatter, own = scatter, metadata.version
        sys.modules["torch_scatter"] = module
        metadata.version = lambda name: "2.1.2" if name.replace(
            "-", "_") == "torch_scatter" else own(name)


def classes():
    """By name the classes of the installed packages, or those above."""
    here = {name: kind for name, kind in globals().items()
            if isinstance(kind, type) and issubclass(kind, nn.Module)}
    install()
    fakes = {name: sys.modules.pop(name) for name in list(sys.modules)
             if name.split(".")[0] in ("physicsnemo", "orb_models", "anemoi")}
    found = dict(here)
    for package, names in (
            ("physicsnemo", [n for n in here if "Mesh" in n]),
            ("orb_models", ["AttentionInteractionNetwork"]),
            ("anemoi", [])):  # theirs are tested in their processor alone
        try:
            if package == "anemoi":
                import anemoi.models.layers.block  # noqa: F401
            if package == "physicsnemo":
                _scatter_of_pyg()
            found.update({n: getattr(__import__(here[n].__module__, fromlist=[
                n]), n) for n in names})
        except ImportError:
            sys.modules.update({name: fake for name, fake in fakes.items()
                                if name.split(".")[0] == package})
    return found
