"""Models of packages over torch_geometric, or beside it, at the sizes that
their configurations have."""

import torch
from torch.nn.functional import mse_loss

from case import Client, case, graph, molecules, neighbours


def of_processor(processor, scale, channels):
    """A Client of one of anemoi's processors: 10 000 nodes of a grid on the globe, eight
    neighbours, features of edges as its graphs have them."""
    from anemoi.models.distributed.shapes import GraphShardInfo
    nodes = max(16, int(10_000 * scale))
    index = graph(nodes, 8)
    inputs = {"x": torch.randn(nodes, channels), "edge_index": index,
              "edge_attr": torch.randn(index.size(1), 11),
              "y": torch.randn(nodes, channels)}

    def loss(model, i):
        whole = GraphShardInfo(nodes=[nodes])
        return mse_loss(model(i["x"], 1, whole, edge_attr=i["edge_attr"],
                              edge_index=i["edge_index"]), i["y"])
    return Client(processor, inputs, loss)


@case("anemoi-models", "anemoi.models.layers.processor")
def anemoi_graph_transformer(scale):
    """The processor of graph transformers, its attention by triton where there is a GPU
    and by PyG elsewhere: 1024 channels, 16 heads, 4 of its 16 layers."""
    from anemoi.models.layers.processor import GraphTransformerProcessor
    return of_processor(GraphTransformerProcessor(
        num_layers=4, num_channels=1024, num_chunks=2, num_heads=16,
        mlp_hidden_ratio=4, edge_dim=11, layer_kernels=None), scale, 1024)


@case("anemoi-models", "anemoi.models.layers.processor")
def anemoi_graph_transformer_pyg(scale):
    """The same with the attention that anemoi has for PyG."""
    from anemoi.models.layers.processor import GraphTransformerProcessor
    return of_processor(GraphTransformerProcessor(
        num_layers=4, num_channels=1024, num_chunks=2, num_heads=16,
        mlp_hidden_ratio=4, edge_dim=11, layer_kernels=None, qk_norm=True,
        graph_attention_backend="pyg"), scale, 1024)


@case("anemoi-models", "anemoi.models.layers.processor")
def anemoi_gnn(scale):
    """The processor of MLPs on edges: 512 channels, 4 of its 16 layers."""
    from anemoi.models.layers.processor import GNNProcessor
    return of_processor(GNNProcessor(
        num_layers=4, num_channels=512, num_chunks=2, mlp_extra_layers=0,
        edge_dim=11, layer_kernels=None), scale, 512)


def of_tables(make, scale):
    """A Client over a database of eight tables and fourteen relations."""
    tables = [f"t{i}" for i in range(8)]
    rows = {t: max(8, int((3000 + 1500 * i) * scale)) for i, t in enumerate(tables)}
    relations = {}
    for a, b in zip(tables, tables[1:]):
        source = torch.randint(0, rows[b], (2 * rows[b],))
        target = torch.randint(0, rows[a], (2 * rows[b],))
        relations[b, "fkey", a] = torch.stack([source, target])
        relations[a, "rev_fkey", b] = torch.stack([target, source])
    inputs = {"x": {t: torch.randn(n, 128) for t, n in rows.items()},
              "edges": relations, "y": torch.randn(rows["t0"], 128)}
    return Client(make(tables, list(relations), channels=128), inputs,
                  lambda m, i: mse_loss(m(i["x"], i["edges"])["t0"], i["y"]))


@case("relbench", "relbench.modeling.nn")
def relbench_sage(scale):
    from relbench.modeling.nn import HeteroGraphSAGE
    return of_tables(HeteroGraphSAGE, scale)


@case("relbench", "relbench.modeling.nn")
def relbench_gat(scale):
    from relbench.modeling.nn import HeteroGAT
    return of_tables(HeteroGAT, scale)


@case("nvidia-physicsnemo", "physicsnemo.models.meshgraphnet")
def physicsnemo_mesh(scale):
    """MeshGraphNet at its default widths, 4 of its 15 blocks."""
    from physicsnemo.models.meshgraphnet import MeshGraphNet
    from torch_geometric.data import Data
    nodes = int(10_000 * scale)
    index = graph(nodes, 6)
    model = MeshGraphNet(input_dim_nodes=4, input_dim_edges=3, output_dim=2,
                         processor_size=4)
    inputs = {"x": torch.randn(nodes, 4), "e": torch.randn(index.size(1), 3),
              "edge_index": index, "y": torch.randn(nodes, 2)}

    def loss(model, i):
        mesh = Data(edge_index=i["edge_index"], num_nodes=nodes)
        return mse_loss(model(i["x"], i["e"], mesh), i["y"])
    return Client(model, inputs, loss)


@case("orb-models", "orb_models.forcefield.gns")
def orb_v3(scale):
    """The network of ORB v3: 256 wide, MLPs of 1024, 5 blocks, gates with a cutoff."""
    from orb_models.forcefield.angular import UnitVector
    from orb_models.forcefield.base import AtomGraphs
    from orb_models.forcefield.gns import MoleculeGNS
    from orb_models.forcefield.rbf import BesselBasis
    atoms = molecules(scale)
    model = MoleculeGNS(
        latent_dim=256, num_message_passing_steps=5, num_mlp_layers=2,
        mlp_hidden_dim=1024, rbf_transform=BesselBasis(r_max=6.0, num_bases=8),
        angular_transform=UnitVector(), outer_product_with_cutoff=True,
        use_embedding=True, expects_atom_type_embedding=True,
        interaction_params={"distance_cutoff": True, "attention_gate": "sigmoid"},
        activation="silu", mlp_norm="rms_norm")
    source, target = neighbours(atoms.position, atoms.count)
    inputs = {"embedding": torch.nn.functional.one_hot(atoms.number, 118).float(),
              "vectors": atoms.position[source] - atoms.position[target],
              "source": source, "target": target,
              "y": torch.randn(atoms.number.numel(), 3)}

    def loss(model, i):
        nodes = torch.tensor([i["y"].size(0)])
        batch = AtomGraphs(
            senders=i["source"], receivers=i["target"], n_node=nodes,
            n_edge=torch.tensor([i["source"].numel()]),
            node_features={"atomic_numbers_embedding": i["embedding"]},
            edge_features={"vectors": i["vectors"]}, system_features={},
            node_targets=None, edge_targets=None, system_targets=None, system_id=None,
            fix_atoms=None, tags=None, radius=5.0, max_num_neighbors=20)
        return mse_loss(model(batch)["pred"], i["y"])
    return Client(model, inputs, loss)


@case("schnetpack", "schnetpack")
def schnetpack_schnet(scale):
    """SchNet of layers of its own, none of which is one of PyG's."""
    import schnetpack
    from schnetpack import properties
    atoms = molecules(scale)
    cutoff = schnetpack.nn.CosineCutoff(5.0)
    model = schnetpack.representation.SchNet(
        n_atom_basis=128, n_interactions=3, cutoff_fn=cutoff,
        radial_basis=schnetpack.nn.GaussianRBF(n_rbf=20, cutoff=5.0))
    source, target = neighbours(atoms.position, atoms.count)
    inputs = {properties.Z: atoms.number, properties.idx_i: target,
              properties.idx_j: source,
              properties.Rij: atoms.position[source] - atoms.position[target],
              "y": torch.randn(atoms.number.numel(), 128)}

    def loss(model, i):
        return mse_loss(model(dict(i))["scalar_representation"], i["y"])
    return Client(model, inputs, loss)


@case("torchmd-net", "torchmdnet.models.torchmd_gn")
def torchmd_graph_network(scale):
    """TorchMD's graph network of layers of its own, none of which is one of PyG's."""
    from torchmdnet.models.torchmd_gn import TorchMD_GN
    atoms = molecules(scale)
    model = TorchMD_GN(num_layers=3, cutoff_upper=5.0)
    inputs = {"z": atoms.number, "pos": atoms.position, "batch": atoms.molecule,
              "y": torch.randn(atoms.number.numel(), 128)}
    return Client(model, inputs, lambda m, i: mse_loss(
        m(i["z"], i["pos"], i["batch"])[0], i["y"]))


def of_network(model, scale, nodes, width, out, call):
    """A Client over a network of `nodes` at scale 1, whose edges have weights;
    call: of (model, features, edge_index, weights)."""
    nodes = max(16, int(nodes * scale))
    index = graph(nodes, 8)
    inputs = {"x": torch.randn(nodes, *width), "edge_index": index,
              "weight": torch.rand(index.size(1)) + 0.1,
              "y": torch.randn(nodes, out)}
    return Client(model(nodes, index), inputs, lambda m, i: mse_loss(
        call(m, i["x"], i["edge_index"], i["weight"]), i["y"]))


TEMPORAL = "torch-geometric-temporal", "torch_geometric_temporal.nn.recurrent"


@case(*TEMPORAL)
def temporal_a3tgcn(scale):
    """A3T-GCN over twelve steps of traffic, as its example has it."""
    from torch_geometric_temporal.nn.recurrent import A3TGCN
    return of_network(lambda *_: A3TGCN(2, 32, 12), scale, 20_000, (2, 12), 32,
                      lambda m, x, index, weight: m(x, index, weight))


@case(*TEMPORAL)
def temporal_conv_gru(scale):
    """A cell of GConvGRU, six Chebyshev convolutions of three terms."""
    from torch_geometric_temporal.nn.recurrent import GConvGRU
    return of_network(lambda *_: GConvGRU(16, 32, 3), scale, 20_000, (16,), 32,
                      lambda m, x, index, weight: m(x, index, weight))


@case("pygod", "pygod.nn")
def pygod_dominant(scale):
    """DOMINANT, whose decoder of structure is dense: of 2000 nodes."""
    from pygod.nn import DOMINANTBase
    return of_network(lambda *_: DOMINANTBase(64), scale, 2000, (64,), 64,
                      lambda m, x, index, weight: m(x, index)[0])


@case("pygod", "pygod.nn")
def pygod_done(scale):
    """DONE, whose layers of differences of neighbours are its own."""
    from pygod.nn import DONEBase
    nodes = max(16, int(2000 * scale))
    structure = torch.randn(nodes, nodes)

    def results(model, x, index, weight):
        made, *_, attributes, neighbours = model(x, structure.to(x.device), index)
        return made + attributes.mean() + neighbours.mean()
    return of_network(lambda *_: DONEBase(64, nodes), scale, 2000, (64,), 64,
                      results)


SIGNED = "torch-geometric-signed-directed", "torch_geometric_signed_directed.nn"


@case(*SIGNED)
def signed_sdgnn(scale):
    """SDGNN, two layers of four GATConvs over signed edges."""
    from torch_geometric_signed_directed.nn import SDGNN

    def model(nodes, index):
        sign = 1 - 2 * (torch.arange(index.size(1)) % 2)
        return SDGNN(nodes, torch.cat([index, sign[None]]).t(), 64, 64,
                     init_emb=torch.randn(nodes, 64))
    return of_network(model, scale, 20_000, (1,), 64,
                      lambda m, x, index, weight: m())


@case(*SIGNED)
def directed_dgcn(scale):
    """DGCN, whose layer is its own and whose bias is added in place."""
    from torch_geometric_signed_directed.nn import DGCN_node_classification
    return of_network(
        lambda *_: DGCN_node_classification(64, 64, 16, 0.0), scale, 20_000,
        (64,), 16, lambda m, x, index, weight: m(
            x, index, index, index.flip(0), weight, weight))
