"""Blocks of physicsnemo and orb-models that dfgnn.accelerate gives
dfgnn.edge_mlp, and of anemoi-models, which get dfgnn.gt_attention: the same
numbers, gradients and state_dict as their own forward.  Tests of a
package that is not installed are skipped."""

import copy
import io
import pickle

import pytest
import torch

pytest.importorskip("torch_geometric")

import dfgnn  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402

from blocks import block as block_of  # noqa: E402
from conftest import random_edges  # noqa: E402

N, C = 14, 12


def counted(monkeypatch):
    """The settings of the calls of the library from here on."""
    from dfgnn import _mlp_kernels
    seen, own = [], _mlp_kernels.call

    def call(graph, made, tensors):
        seen.append(made.settings)
        return own(graph, made, tensors)
    monkeypatch.setattr(_mlp_kernels, "call", call)
    return seen


def tensor(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def agree(block, fast, inputs, tolerance=1e-9):
    """Both give the same values and gradients."""
    leaves = [t for t in inputs if isinstance(t, torch.Tensor)
              and t.requires_grad]
    results = []
    for module in (block, fast):
        out = module(*inputs)
        out = out if isinstance(out, tuple) else (out,)
        grads = torch.autograd.grad(
            sum((o * torch.sin(torch.arange(
                o.numel(), dtype=o.dtype).view(o.shape))).sum() for o in out),
            [*leaves, *module.parameters()], allow_unused=True)
        results.append([*out, *grads])
    torch.testing.assert_close(*reversed(results), rtol=tolerance,
                               atol=tolerance)


def accelerated(block):
    fast = copy.deepcopy(block)
    return fast, dfgnn.accelerate(fast)


def data(num_edges=60):
    return Data(edge_index=random_edges(N, N, num_edges), num_nodes=N)


def bipartite():
    edges = random_edges(9, N, 40)
    graph = HeteroData()
    graph["grid", "to", "mesh"].edge_index = edges
    graph["grid"].num_nodes, graph["mesh"].num_nodes = 9, N
    return graph, edges.size(1)


@pytest.mark.parametrize("trick", [False, True])
@pytest.mark.parametrize("layers,activation", [
    (1, torch.nn.SiLU), (2, torch.nn.ReLU), (3, torch.nn.GELU)])
def test_edge_blocks(trick, layers, activation, monkeypatch):
    graph = data()
    block = block_of("MeshEdgeBlock")(
        C, 5, 5, 16, layers, activation(), do_concat_trick=trick).double()
    fast, report = accelerated(block)
    assert "MeshEdgeBlock: its MLP, residual and sum are one call" in \
        repr(report)
    made = counted(monkeypatch)
    agree(block, fast, (tensor(graph.num_edges, 5), tensor(N, C), graph))
    (settings,) = made
    assert settings.layers == layers + 1 and settings.norm == "layer"
    assert settings.residual and settings.edges


class Processor(torch.nn.Module):
    """Edge blocks and node blocks in turns, as MeshGraphNet has them."""

    def __init__(self, aggregation):
        super().__init__()
        self.blocks = torch.nn.ModuleList()
        for _ in range(2):
            self.blocks += [
                block_of("MeshEdgeBlock")(C, C, C, 16, 2),
                block_of("MeshNodeBlock")(aggregation, C, C, C, 16, 2)]

    def forward(self, efeat, nfeat, graph):
        for block in self.blocks:
            efeat, nfeat = block(efeat, nfeat, graph)
        return efeat, nfeat


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
def test_a_processor_sums_in_the_calls_of_its_edges(aggregation, monkeypatch):
    graph, model = data(), Processor(aggregation).double()
    fast, report = accelerated(model)
    names = {layer.kind for layer in report.swapped}
    assert {"MeshEdgeBlock", "MeshNodeBlock"} <= names and not report.kept
    made, noted = counted(monkeypatch), []
    monkeypatch.setattr("dfgnn._fallbacks.watching",
                        lambda block, reason: noted.append(reason))
    inputs = tensor(graph.num_edges, C), tensor(N, C), graph
    agree(model, fast, inputs)
    assert [s.reduce_dst for s in made] == ["sum", "sum"] and not noted
    assert fast.state_dict().keys() == model.state_dict().keys()
    dfgnn.accelerate(fast, undo=True)
    assert [type(m) for m in fast.modules()] == [type(m) for m
                                                 in model.modules()]


def test_a_node_block_trusts_no_other_edges(monkeypatch):
    graph, model = data(), Processor("sum").double()
    fast, _ = accelerated(model)
    edge, node = fast.blocks[:2]
    nodes = tensor(N, C)
    made, _ = edge(tensor(graph.num_edges, C), nodes, graph)
    other = data()
    want = model.blocks[1](made, nodes, other)[1]
    noted = []
    monkeypatch.setattr("dfgnn._fallbacks.watching",
                        lambda block, reason: noted.append(reason))
    torch.testing.assert_close(node(made, nodes, other)[1], want)
    made, _ = edge(tensor(graph.num_edges, C), nodes, graph)
    with torch.no_grad():
        made.mul_(2)
    want = model.blocks[1](made, nodes, graph)[1]
    torch.testing.assert_close(node(made, nodes, graph)[1], want)
    assert noted == ["its edges were not made by the call of a "
                     "MeshEdgeBlock"] * 2


def test_a_segment_that_is_computed_again():
    from torch.utils.checkpoint import checkpoint
    graph, model = data(), Processor("sum").double()

    class Again(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *inputs):
            return checkpoint(self.model, *inputs, use_reentrant=False)
    again = Again()
    fast, _ = accelerated(again)
    agree(again, fast, (tensor(graph.num_edges, C), tensor(N, C), graph))


@pytest.mark.parametrize("segments", [0, 2])
@pytest.mark.parametrize("trick", [False, True])
def test_mesh_graph_net_as_a_whole(segments, trick, monkeypatch):
    """physicsnemo's model, with and without its checkpoints: each of its edge
    blocks is a call in each pass that runs it."""
    try:
        from physicsnemo.models.meshgraphnet import MeshGraphNet
    except ImportError:
        pytest.skip("physicsnemo is not installed")
    graph = data()
    model = MeshGraphNet(
        5, 4, 3, processor_size=4, hidden_dim_processor=C,
        hidden_dim_node_encoder=C, hidden_dim_edge_encoder=C,
        hidden_dim_node_decoder=C, do_concat_trick=trick,
        num_processor_checkpoint_segments=segments).double().train()
    fast, report = accelerated(model)
    kinds = [layer.kind for layer in report.swapped]
    assert kinds.count("MeshEdgeBlock") == kinds.count("MeshNodeBlock") == 4
    made, noted = counted(monkeypatch), []
    monkeypatch.setattr("dfgnn._fallbacks.watching",
                        lambda block, reason: noted.append(reason))
    agree(model, fast, (tensor(N, 5), tensor(graph.num_edges, 4), graph))
    assert len(made) == (8 if segments else 4) and not noted
    assert {s.reduce_dst for s in made} == {"sum"}
    assert fast.state_dict().keys() == model.state_dict().keys()
    before = fast(tensor(N, 5).detach(), tensor(graph.num_edges, 4).detach(),
                  graph)
    assert before.shape == (N, 3)


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
def test_encoder_and_decoder(aggregation, monkeypatch):
    graph, count = bipartite()
    encoder = block_of("MeshGraphEncoder")(aggregation, 5, C, 4, 5, C, 6,
                                        16).double()
    fast, report = accelerated(encoder)
    made = counted(monkeypatch)
    agree(encoder, fast, (tensor(count, 4), tensor(9, 5), tensor(N, C),
                          graph))
    decoder = block_of("MeshGraphDecoder")(aggregation, 5, C, 4, C, 6,
                                        16).double()
    quick, _ = accelerated(decoder)
    agree(decoder, quick, (tensor(count, 4), tensor(N, C), tensor(9, 5),
                           graph))
    assert [(s.reduce_dst, s.edges) for s in made] == [
        (aggregation, False)] * 2
    assert len([layer for layer in report.swapped
                if layer.kind == "MeshGraphEncoder"]) == 1


def test_autocast_keeps_the_residual_in_float():
    graph = data()
    block = block_of("MeshEdgeBlock")(C, C, C, 16, 2)
    fast, _ = accelerated(block)
    edge, nodes = torch.randn(graph.num_edges, C), torch.randn(N, C)
    with torch.autocast("cpu", torch.bfloat16):
        have, want = (m(edge, nodes, graph)[0] for m in (fast, block))
    assert have.dtype == want.dtype == torch.float32
    torch.testing.assert_close(have, want, rtol=.03, atol=.03)


def test_what_is_looked_at_takes_the_own_path(monkeypatch):
    graph = data()
    noted = []
    monkeypatch.setattr("dfgnn._fallbacks.watching",
                        lambda block, reason: noted.append(reason))
    inputs = tensor(graph.num_edges, C), tensor(N, C), graph
    for look, reason in (
            (lambda m: m.edge_mlp, "a hook looks at its network"),
            (lambda m: m.edge_mlp.model[0], "a hook looks at its network")):
        block = block_of("MeshEdgeBlock")(C, C, C, 16).double()
        fast, _ = accelerated(block)
        seen = []
        look(fast).register_forward_hook(lambda *_: seen.append(1))
        agree(block, fast, inputs)
        assert seen and noted and set(noted) == {reason}
        noted.clear()
    block = block_of("MeshEdgeBlock")(
        C, C, C, 16, activation_fn=torch.nn.Mish()).double()
    fast, _ = accelerated(block)
    agree(block, fast, inputs)
    assert noted and all("its network is Mish, Linear, " in n for n in noted)


def test_blocks_with_two_kinds_of_edges_stay_and_the_report_says_why():
    kind = block_of("HybridMeshEdgeBlock")
    block = object.__new__(kind)
    torch.nn.Module.__init__(block)
    report = dfgnn.accelerate(torch.nn.ModuleList([block]))
    assert "HybridMeshEdgeBlock stays as it is: its edges are of two kinds, " \
        "each with a network of its own" in repr(report)
    assert type(block) is kind


def test_blocks_are_pickled_and_read():
    graph = data()
    block = block_of("MeshEdgeBlock")(C, C, C, 16).double()
    # physicsnemo's LayerNorm is a class of a function, which pickle refuses
    block.edge_mlp.model[-1].__class__ = torch.nn.LayerNorm
    fast, _ = accelerated(block)
    again = pickle.loads(pickle.dumps(fast))
    assert type(again) is type(fast)
    file = io.BytesIO()
    torch.save(fast.state_dict(), file)
    file.seek(0)
    again.load_state_dict(torch.load(file))
    inputs = tensor(graph.num_edges, C), tensor(N, C), graph
    assert torch.equal(again(*inputs)[0], fast(*inputs)[0])


# ---- orb-models ---------------------------------------------------------------

def molecule():
    edges = random_edges(N, N, 60)
    return tensor(N, C), tensor(edges.size(1), C), edges[0].contiguous(), \
        edges[1].contiguous(), tensor(edges.size(1), 1).detach().sigmoid()


@pytest.mark.parametrize("gate", ["sigmoid", "softmax"])
@pytest.mark.parametrize("options", [
    dict(), dict(distance_cutoff=True), dict(activation="silu"),
    dict(mlp_norm="rms_norm", distance_cutoff=True),
    dict(conditioning="additive"),
    dict(conditioning=("additive", "concatenative"))],
    ids=lambda options: "-".join(map(str, options.values())) or "plain")
def test_interactions_of_orb(gate, options, monkeypatch):
    kind = block_of("AttentionInteractionNetwork")
    if "conditioning" in options:
        options = dict(options)
    block = kind(C, 2, 16, attention_gate=gate, **options).double()
    fast, report = accelerated(block)
    assert "its MLP and its gated sums at both ends are one call" in \
        repr(report)
    inputs = molecule()
    inputs[-1].requires_grad_(bool(options.get("distance_cutoff")))
    if "conditioning" in options:
        inputs += tensor(N, C), tensor(inputs[1].size(0), C)
    made = counted(monkeypatch)
    agree(block, fast, inputs)
    (settings,) = made
    assert (settings.reduce_dst, settings.reduce_src) == ("sum", "sum")
    assert settings.edges and settings.layers == 3
    assert settings.activation == ("silu" if options.get(
        "activation") else "softplus")
    assert settings.norm == ("rms" if "mlp_norm" in options else "layer")


def test_forces_of_orb_by_second_derivatives():
    block = block_of("AttentionInteractionNetwork")(
        C, 2, 16, "softmax", distance_cutoff=True).double()
    fast, _ = accelerated(block)
    nodes, edges, senders, receivers, cutoff = molecule()
    found = []
    for module in (block, fast):
        x = edges.detach().requires_grad_()
        out = module(nodes, x, senders, receivers, cutoff)[0]
        (force,) = torch.autograd.grad(torch.sin(out).sum(), x,
                                       create_graph=True)
        found.append(torch.autograd.grad(
            (force ** 2).sum(), [x, *module.parameters()],
            allow_unused=True))
    torch.testing.assert_close(*reversed(found), rtol=1e-7, atol=1e-7)


def test_dropout_of_orb_is_nothing_in_eval(monkeypatch):
    block = block_of("AttentionInteractionNetwork")(
        C, 2, 16, activation="silu", dropout=0.5).double().eval()
    fast, _ = accelerated(block)
    made = counted(monkeypatch)
    agree(block, fast, molecule())
    assert len(made) == 1
    fast.train()
    fast(*molecule())
    assert len(made) == 1


# ---- anemoi-models ------------------------------------------------------------

def attentions(monkeypatch):
    """The numbers of axes of the features of edges in each call of attention
    from here on."""
    from dfgnn.nn.blocks import _anemoi
    seen, own = [], _anemoi.gt_attention

    def attention(*args, **kwargs):
        seen.append(kwargs["edge_attr"].dim())
        return own(*args, **kwargs)
    monkeypatch.setattr(_anemoi, "gt_attention", attention)
    return seen


@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_processor_of_anemoi_as_a_whole(checkpoints, monkeypatch):
    try:
        from anemoi.models.distributed.shapes import GraphShardInfo
        from anemoi.models.layers.processor import GraphTransformerProcessor
    except ImportError:
        pytest.skip("anemoi-models is not installed")
    edges = random_edges(N, N, 60)
    edges = edges[:, edges[1].argsort(stable=True)]
    model = GraphTransformerProcessor(
        num_layers=2, num_channels=C, num_chunks=2, num_heads=3,
        mlp_hidden_ratio=2, edge_dim=5, qk_norm=True, layer_kernels=None,
        gradient_checkpointing=checkpoints).double()
    fast, report = accelerated(model)
    assert [layer.kind for layer in report.served] == [
        "GraphTransformerProcessorBlock"] * 2 and not report.kept
    made = attentions(monkeypatch)
    x, edge = tensor(N, C), tensor(edges.size(1), 5)
    results = []
    for module in (model, fast):
        out = module(x, 1, GraphShardInfo(), edge_attr=edge, edge_index=edges)
        # autocast's norms of queries and keys are of float
        results.append([out, *torch.autograd.grad(
            out.square().sum(), [x, edge, *module.parameters()])])
    torch.testing.assert_close(*reversed(results), rtol=1e-5, atol=1e-5)
    assert made == [2] * (4 if checkpoints else 2)


# ---- layers of PyG that make their edges ------------------------------------------

def test_dynamic_edge_conv(monkeypatch):
    import torch_geometric.nn as pyg

    def knn(x, y, x_ptr, y_ptr, k, *_):  # pyg_lib's, of one graph
        near = torch.cdist(y, x).topk(k, largest=False)[1]
        rows = torch.arange(y.size(0)).repeat_interleave(k)
        return torch.stack([rows, near.reshape(-1)])
    monkeypatch.setattr(torch.ops.pyg, "knn", knn, raising=False)
    monkeypatch.setattr("torch_geometric.typing.WITH_KNN", True,
                        raising=False)
    layer = pyg.DynamicEdgeConv(torch.nn.Sequential(
        torch.nn.Linear(2 * C, 16), torch.nn.ReLU(),
        torch.nn.Linear(16, C)), k=4).double()
    fast, _ = accelerated(layer)
    made = counted(monkeypatch)
    agree(layer, fast, (tensor(N, C),))
    settings, checked = made  # the first call is checked by another
    assert settings == checked
    assert settings.reduce_dst == "max" and settings.layers == 2
