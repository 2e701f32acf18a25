"""Layers in HeteroConv and with JumpingKnowledge, in copies, pickles, data
parallel training, checkpoints and exports."""

import copy
import os
import pickle
import socket

import pytest
import torch

from dfgnn import nn

from conftest import close, random_edges

N = 12
LAYERS = {
    "transformer": lambda: nn.TransformerConv(6, 4, heads=2, concat=False),
    "gat": lambda: nn.GATConv(6, 4), "gatv2": lambda: nn.GATv2Conv(6, 4),
    "gcn": lambda: nn.GCNConv(6, 4), "sage": lambda: nn.SAGEConv(6, 4),
    "sage of several": lambda: nn.SAGEConv(6, 4, aggr=["mean", "median"]),
    "graph": lambda: nn.GraphConv(6, 4),
    "gin": lambda: nn.GINConv(torch.nn.Linear(6, 4)),
}


def test_hetero_conv_of_lazy_bipartite_layers():
    pyg = pytest.importorskip("torch_geometric.nn")
    x = {"author": torch.randn(9, 5), "paper": torch.randn(N, 6)}
    edges = {("author", "writes", "paper"): random_edges(9, N, 30),
             ("paper", "by", "author"): random_edges(N, 9, 30),
             ("paper", "cites", "paper"): random_edges(N, N, 30)}

    def build(where):
        return pyg.HeteroConv({
            ("author", "writes", "paper"): where.SAGEConv((-1, -1), 4),
            ("paper", "by", "author"): where.GATConv(
                (-1, -1), 4, add_self_loops=False),
            ("paper", "cites", "paper"): where.GCNConv(-1, 4)}, aggr="sum")
    theirs, mine = build(pyg), build(nn)
    mine.load_state_dict(theirs.state_dict())  # parameters are lazy still
    theirs(x, edges)
    mine(x, edges)
    mine.load_state_dict(theirs.state_dict())
    wanted, found = theirs(x, edges), mine(x, edges)
    for kind in ("author", "paper"):
        close(found[kind], wanted[kind], 1e-5)


def test_jumping_knowledge_over_a_stack():
    pyg = pytest.importorskip("torch_geometric.nn")

    def build(where):
        torch.manual_seed(3)
        return [where.GCNConv(6, 6) for _ in range(3)], \
            pyg.JumpingKnowledge("lstm", 6, 3)
    x, edges = torch.randn(N, 6), random_edges(N, N, 40)
    outs = []
    for layers, jump in (build(pyg), build(nn)):
        states, h = [], x
        for layer in layers:
            h = layer(h, edges).relu()
            states.append(h)
        outs.append(jump(states))
    close(outs[1], outs[0], 1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_copies_and_pickles_give_the_same_numbers(name):
    layer, edges, x = LAYERS[name](), random_edges(N, N, 40), \
        torch.randn(N, 6)
    out = layer(x, edges)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        close(other(x, edges), out, 1e-6)
        with torch.no_grad():
            next(iter(other.parameters())).add_(1)
        close(layer(x, edges), out, 1e-6)


def test_a_cached_layer_pickles_with_its_graph():
    layer, edges, x = nn.GCNConv(6, 4, cached=True), random_edges(N, N, 40), \
        torch.randn(N, 6)
    out = layer(x, edges)
    again = pickle.loads(pickle.dumps(copy.deepcopy(layer)))
    close(again(x, random_edges(N, N, 3)), out, 1e-6)


@pytest.mark.parametrize("name", ["transformer", "gat", "gcn"])
def test_checkpoints_and_exports(name):
    from torch.utils.checkpoint import checkpoint
    layer, edges = LAYERS[name](), random_edges(N, N, 40)
    x = torch.randn(N, 6, requires_grad=True)
    wanted, = torch.autograd.grad(layer(x, edges).sin().sum(), x)
    found, = torch.autograd.grad(
        checkpoint(layer, x, edges, use_reentrant=False).sin().sum(), x)
    close(found, wanted, 1e-6)
    program = torch.export.export(layer, (x.detach(), edges))
    close(program.module()(x, edges), layer(x, edges), 1e-5)


def _train(rank, port, path):
    import torch.distributed as dist
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    torch.manual_seed(5)
    model = torch.nn.parallel.DistributedDataParallel(nn.GATConv(6, 4))
    x, edges = _part(rank)
    model(x, edges).sin().sum().backward()
    if not rank:
        torch.save([p.grad for p in model.parameters()], path)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # distributed_worker.py says why


def _part(rank):
    generator = torch.Generator().manual_seed(rank)
    return (torch.randn(N, 6, generator=generator),
            torch.randint(0, N, (2, 40), generator=generator))


def test_two_processes_share_gradients(tmp_path):
    pytest.importorskip("torch.distributed")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "grads.pt"
    torch.multiprocessing.spawn(_train, (port, path), nprocs=2)
    torch.manual_seed(5)
    model = nn.GATConv(6, 4)
    for rank in range(2):
        x, edges = _part(rank)
        (model(x, edges).sin().sum() / 2).backward()
    for found, parameter in zip(torch.load(path), model.parameters()):
        close(found, parameter.grad, 1e-4)
