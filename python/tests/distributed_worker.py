"""One rank of the tests of dfgnn.distributed; test_distributed.py starts it.

Each case compares this rank's share with a single process's result, which
every rank computes for itself.
"""

import datetime
import os
import sys

import torch
import torch.distributed as dist

import dfgnn
from dfgnn import nn as layers
from dfgnn.distributed import DistGraph, partition

WIDTH, HEADS = 12, 3
DEVICE = torch.device("cpu")  # BACKEND=nccl: the GPU of LOCAL_RANK


def whole_graph(seed, nodes=90, edges=700):
    """Random edges with loops and duplicates; the last nodes have none."""
    generator = torch.Generator().manual_seed(seed)
    index = torch.randint(0, nodes - 4, (2, edges), generator=generator)
    loops = torch.arange(0, 20)
    return torch.cat([index, loops.expand(2, 20)], 1)


def owners(kind, nodes, world):
    """The rank of each node.  "bad": nodes are dealt in turn, so that most
    edges cross; "empty": the last rank has no node; "apart": blocks, which
    have no halos since Bench leaves out edges between them."""
    ranks = torch.arange(nodes)
    if kind == "bad":
        return ranks % world
    if kind == "empty":
        return ranks % max(1, world - 1)
    return ranks * world // nodes


class Bench:
    def __init__(self, kind="bad", halo="keep", nodes=90, seed=3):
        self.world, self.rank = dist.get_world_size(), dist.get_rank()
        edges = whole_graph(seed, nodes)
        if kind == "apart":  # no edge between blocks
            owner = owners(kind, nodes, self.world)
            edges = edges[:, owner[edges[0]] == owner[edges[1]]]
        # sorted by destination, so that edges have the order of the matrix
        edges = edges[:, edges[1].argsort(stable=True)]
        self.whole = dfgnn.Graph.from_edge_index(edges.to(DEVICE), nodes)
        method = kind if kind in ("metis", "range") else owners(
            kind, nodes, self.world)
        parts = partition(self.whole, self.world, method)
        self.mine = DistGraph(parts.part(self.rank), device=DEVICE,
                              halo=halo)
        self.nodes = nodes

    def local(self, x):
        return self.mine.local_nodes(x)


LENIENCE = float(os.environ.get("LENIENCE", "1"))  # times every tolerance
worst = {}  # the largest difference by tolerance


def close(a, b, tolerance, what, scale=None):
    a, b = a.detach(), b.detach()
    scale = scale or max(1e-30, float(b.abs().max()) if b.numel() else 1.0)
    found = float((a - b).abs().max()) / scale if b.numel() else 0.0
    assert a.shape == b.shape and a.dtype == b.dtype, (what, a.shape, b.shape)
    worst[tolerance] = max(found, worst.get(tolerance, 0.0))
    assert found < tolerance * LENIENCE, f"{what} differs by {found:.3g}"


def total(tensor):
    """The sum over ranks."""
    tensor = tensor.clone()
    dist.all_reduce(tensor)
    return tensor


def compare(bench, layer, width=WIDTH, edge_dim=None, tolerance=1e-5,
            dtype=torch.float32, edge_weight=False, ties=False):
    """Compares the output and the gradients of x, of edge features and of
    parameters."""
    torch.manual_seed(5)
    layer = layer().to(DEVICE, dtype)
    x = torch.randn(bench.nodes, width).to(DEVICE, dtype)
    x = x.round() if ties else x
    more = ()
    if edge_dim:
        more = (torch.randn(bench.whole.num_edges, edge_dim).to(DEVICE,
                                                                dtype),)
    if edge_weight:
        more = (torch.rand(bench.whole.num_edges).to(DEVICE, dtype),)

    def run(graph, x, more):
        x = x.clone().requires_grad_()
        more = tuple(t.clone().requires_grad_() for t in more)
        layer.zero_grad()
        out = layer(x, graph, *more)
        return x, more, out
    x1, more1, out1 = run(bench.whole, x, more)
    grad = torch.randn_like(out1)
    out1.backward(grad)
    wanted = [p.grad.clone() for p in layer.parameters()]
    mine = [bench.mine.local_edges(t) for t in more]
    x2, more2, out2 = run(bench.mine, bench.local(x), mine)
    out2.backward(bench.local(grad))
    close(out2, bench.local(out1), tolerance, "the output")
    close(x2.grad, bench.local(x1.grad), tolerance, "the gradient of x")
    for a, b in zip(more2, more1):
        close(a.grad, bench.mine.local_edges(b.grad), tolerance,
              "the gradient of edge features")
    # one scale for all: the gradient of a key's bias is 0 except for rounding,
    # since softmax is blind to it
    scale = max((float(g.abs().max()) for g in wanted), default=1)
    for p, found in zip(layer.parameters(), wanted):
        close(total(p.grad), found, 10 * tolerance,
              f"the gradient of a parameter {list(p.shape)}", scale)


def mlp():
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.ReLU(),
                               torch.nn.Linear(8, 5))


LAYERS = {
    "gt": lambda: layers.TransformerConv(WIDTH, 4, HEADS, beta=True),
    "gat": lambda: layers.GATConv(WIDTH, 4, HEADS),
    "gatv2": lambda: layers.GATv2Conv(WIDTH, 4, HEADS),
    "agnn": lambda: layers.AGNNConv(),
    "gcn": lambda: layers.GCNConv(WIDTH, 7),
    "mean": lambda: layers.SAGEConv(WIDTH, 7),
    "max": lambda: layers.SAGEConv(WIDTH, 7, aggr="max"),
    "min": lambda: layers.SAGEConv(WIDTH, 7, aggr="min"),
    "median": lambda: layers.SAGEConv(WIDTH, 7, aggr="median"),
    "several": lambda: layers.SAGEConv(WIDTH, 7, aggr=["mean", "max", "std"]),
    "gin": lambda: layers.GINConv(mlp(), train_eps=True),
    "graph": lambda: layers.GraphConv(WIDTH, 7),
}


def case_layers():
    for kind in ("bad", "metis", "range", "empty", "apart"):
        for halo in ("keep", "fetch") if kind == "bad" else ("keep",):
            bench = Bench(kind, halo)
            for name, layer in LAYERS.items():
                try:
                    compare(bench, layer)
                except AssertionError as error:
                    raise AssertionError(f"{name}, {kind}, {halo}: {error}")


def case_edges():
    bench = Bench()
    for kind in (layers.TransformerConv, layers.GATConv, layers.GATv2Conv):
        compare(bench, lambda: kind(WIDTH, 4, HEADS, edge_dim=5), edge_dim=5)
    for halo in ("fetch", "keep"):  # gradients of weights read the halo
        bench = Bench(halo=halo)
        for kind in (layers.GCNConv, layers.GraphConv):
            compare(bench, lambda: kind(WIDTH, 7), edge_weight=True)
    # of equal extremes the first edge gets the gradient, wherever it is
    for name in ("max", "min"):
        compare(bench, LAYERS[name], ties=True)
    # a call that returns weights goes by the table of own nodes and halo
    layer = layers.TransformerConv(WIDTH, 4, HEADS).to(DEVICE)
    x = torch.randn(bench.nodes, WIDTH, generator=torch.Generator()
                    .manual_seed(1)).to(DEVICE)
    for p in layer.parameters():
        dist.broadcast(p.data, 0)
    _, (_, whole) = layer(x, bench.whole, return_attention_weights=True)
    _, (_, mine) = layer(bench.local(x), bench.mine,
                         return_attention_weights=True)
    close(mine, bench.mine.local_edges(whole), 1e-5, "the weights")


def case_types():
    bench = Bench()
    compare(bench, LAYERS["gt"], dtype=torch.float64, tolerance=1e-12)
    compare(bench, LAYERS["gat"], dtype=torch.float64, tolerance=1e-12)
    for dtype, tolerance in ((torch.bfloat16, 3e-2), (torch.float16, 4e-3)):
        compare(bench, LAYERS["mean"], dtype=dtype, tolerance=tolerance)
        compare(bench, lambda: layers.TransformerConv(WIDTH, 8, 2),
                dtype=dtype, tolerance=tolerance)
    # 16-bit features travel as 16 bits: a row of keys and values
    sizes = []
    start = bench.mine.exchange.take
    bench.mine.exchange.take = lambda rows, size: (
        sizes.append(size), start(rows, size))[1]
    q = torch.randn(bench.mine.num_dst, 2, 8, dtype=torch.bfloat16,
                    device=DEVICE)
    dfgnn.gt_attention(bench.mine, q, q, q)
    assert set(sizes) == {2 * 2 * 8 * 2}, sizes


def case_dropout():
    """An edge is dropped in a part if it is dropped in the whole graph."""
    from dfgnn import functional
    from dfgnn.nn import _node
    bench = Bench()
    seed = torch.tensor([12345], device=DEVICE)
    functional.make_seed = _node.make_seed = lambda device: seed
    bench.mine.exchange.seed = lambda device: seed
    for kind, options in ((layers.TransformerConv, {}), (layers.GATConv, {}),
                          (layers.GATv2Conv, {"add_self_loops": False})):
        compare(bench, lambda: kind(WIDTH, 4, HEADS, dropout=.5, **options))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = layers.TransformerConv(WIDTH, 4, HEADS)
        self.second = layers.GATConv(4 * HEADS, 4, HEADS)
        self.last = layers.SAGEConv(4 * HEADS, 5)

    def forward(self, x, graph):
        x = self.first(x, graph).relu()
        return self.last(self.second(x, graph).relu(), graph)


def train(model, graph, x, y, share, world=1, steps=20):
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        # DDP takes the mean over ranks: the sum of shares times their number
        loss = torch.nn.functional.cross_entropy(
            model(x, graph), y, reduction="sum") / share
        (loss * world).backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def case_training():
    bench = Bench("metis")
    torch.manual_seed(0)
    x = torch.randn(bench.nodes, WIDTH).to(DEVICE)
    y = torch.randint(5, (bench.nodes,)).to(DEVICE)
    torch.manual_seed(1)
    whole = train(Model().to(DEVICE), bench.whole, x, y, bench.nodes)
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(
        Model().to(DEVICE))
    mine = total(train(model, bench.mine, bench.local(x), bench.local(y),
                       bench.nodes, bench.world))
    close(mine, whole, 1e-4, "the loss of 20 steps")
    assert mine[-1] < 0.95 * mine[0]


def case_repeat():
    """Two runs give the same bits."""
    for kind in ("bad", "metis"):
        bench = Bench(kind)
        torch.manual_seed(2)
        x = torch.randn(bench.nodes, WIDTH).to(DEVICE)
        model = Model().to(DEVICE)
        for p in model.parameters():
            dist.broadcast(p.data, 0)
        found = []
        for _ in range(2):
            mine = bench.local(x).requires_grad_()
            out = model(mine, bench.mine)
            out.square().sum().backward()
            found.append((out.detach(), mine.grad))
        assert all(torch.equal(a, b) for a, b in zip(*found))


def case_checkpoint():
    """Nodes that are gathered from these ranks can be loaded by one rank."""
    bench = Bench()
    x = torch.randn(bench.nodes, 3, generator=torch.Generator().manual_seed(4))
    whole = bench.mine.gather_nodes(bench.local(x))
    assert torch.equal(whole, x)
    only = bench.mine.gather_nodes(bench.local(x), to=0)
    assert (only is None) == (bench.rank != 0)
    group = dist.new_group([bench.rank], use_local_synchronization=True)
    alone = DistGraph(partition(bench.whole, 1).part(0), group)
    assert torch.equal(alone.local_nodes(whole), x)


def case_buffers():
    """Buffers are used again."""
    bench = Bench()
    made = []
    take = bench.mine.exchange.take
    bench.mine.exchange.take = lambda *size: (lambda t: (
        made.append(t.data_ptr()), t)[1])(take(*size))
    conv = layers.TransformerConv(WIDTH, 4, HEADS)
    for p in conv.parameters():
        dist.broadcast(p.data, 0)
    for _ in range(6):
        out = conv(torch.randn(bench.mine.num_dst, WIDTH), bench.mine)
        out.sum().backward()
        with torch.no_grad():
            conv(torch.randn(bench.mine.num_dst, WIDTH), bench.mine)
    assert len(made) == 36 and len(set(made)) <= 4, (len(made), len(set(made)))


def case_mismatch():
    """A rank with another partition, or with another rank's part, is named."""
    from dfgnn.distributed import DistributedError
    rank, world = dist.get_rank(), dist.get_world_size()
    edges = whole_graph(3)
    parts = partition(edges, world, "range" if rank == 1 else "metis",
                      num_nodes=90)
    for part, words in ((parts.part(rank), ("rank 1", "partition")),
                        (parts.part(0), ("rank 1", "part 0", "expected"))):
        try:
            DistGraph(part)
        except DistributedError as error:
            assert all(w in str(error) for w in words), str(error)
        else:
            raise AssertionError("parts that do not fit were accepted")


def case_stores():
    """Rank 0's store pins what rank 1 would not choose."""
    from dfgnn.distributed import agree, start
    graph = dfgnn.as_graph(whole_graph(1), 90)

    def everywhere(value):
        found = [None, None]
        dist.all_gather_object(found, value)
        return found

    def chosen():
        choice = dfgnn.explain(graph, "gt", 8)
        return everywhere((choice["source"], choice["variant"]))

    first, other = chosen()
    assert first[0] == "pinned" and first[1] != other[1], (first, other)
    torch.manual_seed(5)  # of all ranks
    query = torch.randn(90, 1, 8)
    before = dfgnn.gt_attention(graph, query, query, query)
    dfgnn.measure()
    Bench()  # makes them agree, as load() does
    assert not dfgnn.measure(False), "ranks that wait for each other measure"
    assert chosen() == [first, first]
    assert len(set(everywhere(start.decisions(torch.device("cpu"))))) == 1
    after = dfgnn.gt_attention(graph, query, query, query)
    close(after, before, 1e-5, "attention by another kernel")
    assert len(set(everywhere(after.numpy().tobytes()))) == 1
    agree()
    assert chosen() == [first, first]


def case_death():
    """Rank 1 ends; the others end with an error that says so."""
    from dfgnn.distributed import DistributedError
    bench = Bench()
    conv = LAYERS["gt"]()
    x = torch.randn(bench.mine.num_dst, WIDTH)
    conv(x, bench.mine)
    if bench.rank == 1:
        os._exit(9)
    try:
        for _ in range(100):
            conv(x, bench.mine)
    except DistributedError as error:
        print("ENDED", error)
        sys.stdout.flush()
        os._exit(3)


def main():
    global DEVICE
    torch.set_num_threads(1)
    backend = os.environ.get("BACKEND", "gloo")
    if backend == "nccl":
        DEVICE = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(DEVICE)
    dist.init_process_group(backend, timeout=datetime.timedelta(
        seconds=int(os.environ.get("TIME_LIMIT", "600"))))
    for case in sys.argv[1:]:
        globals()["case_" + case]()
        print("OK", case, {t: f"{d:.1g}" for t, d in worst.items()},
              flush=True)
        worst.clear()
    dist.barrier()
    dist.destroy_process_group()
    # A thread of Gloo that lets go of a tensor while the interpreter ends
    # aborts the process (DistributedDataParallel keeps those threads alive), so
    # that the interpreter does not end.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
