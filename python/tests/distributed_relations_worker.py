"""One rank of the tests of graphs of relations over several ranks;
test_distributed_relations.py starts it.  Each case compares this rank's share
with a single process's result, which every rank computes for itself."""

import copy
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch_geometric.nn as G

import dfgnn
from dfgnn.distributed import (
    DistHeteroGraph, load_relations, partition_relations)

WIDTH = 6
NODES = {"a": 31, "b": 17, "c": 1, "d": 8, "e": 4}
KINDS = [("a", "x", "a"), ("b", "x", "a"), ("a", "y", "b"), ("a", "z", "b"),
         ("c", "x", "a"), ("b", "w", "c"), ("a", "x", "d"), ("d", "x", "e"),
         ("a", "v", "a")]
COUNTS = (90, 60, 50, 0, 9, 12, 20, 3, 25)


def loops(key):
    return key[0] == key[2]


HETERO = {
    "GAT": lambda key: G.GATConv((WIDTH, WIDTH), 3, heads=2,
                                 add_self_loops=loops(key)),
    "GATv2": lambda key: G.GATv2Conv((WIDTH, WIDTH), 3, heads=2,
                                     add_self_loops=loops(key)),
    "Transformer": lambda key: G.TransformerConv((WIDTH, WIDTH), 3, heads=2),
    "SAGE": lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH),
    "Graph of maxima": lambda key: G.GraphConv((WIDTH, WIDTH), WIDTH,
                                               aggr="max"),
    "GIN": lambda key: G.GINConv(torch.nn.Linear(WIDTH, WIDTH)),
    "GCN": lambda key: G.GCNConv(WIDTH, WIDTH, improved=key[1] == "v")
    if loops(key) else G.SAGEConv((WIDTH, WIDTH), WIDTH),
    "one GCN": lambda key: G.GCNConv(WIDTH, WIDTH, add_self_loops=False)
    if key[:2] == ("a", "v") else G.SAGEConv((WIDTH, WIDTH), WIDTH),
    "a mixture": lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH)
    if key[1] == "x" else G.ResGatedGraphConv((WIDTH, WIDTH), WIDTH),
}


class Twice(torch.nn.Module):
    """Two layers; types that a layer does not change keep their features."""

    def __init__(self, make):
        super().__init__()
        self.convs = torch.nn.ModuleList([make(), make()])

    def forward(self, x, edges):
        for conv in self.convs:
            out = conv(x, edges)
            x = {kind: out[kind].tanh() if out.get(kind) is not None
                 else t for kind, t in x.items()}
        return x


def models():
    about = (list(NODES), KINDS)
    for name, make in HETERO.items():
        aggrs = {"GAT": ("sum", "max"), "GCN": ("sum",), "one GCN": ("mean",)}
        for aggr in aggrs.get(name, ("sum", "mean")):
            yield f"{name}, {aggr}", Twice(lambda: G.HeteroConv(
                {key: make(key) for key in KINDS}, aggr))
    yield "HGT", Twice(lambda: G.HGTConv(WIDTH, WIDTH, about, heads=2))
    yield "HAN", Twice(lambda: G.HANConv(WIDTH, WIDTH, about, heads=2))


def owners(kind, world):
    """By type the rank of each node; "empty": the last rank has none."""
    many = {"bad": world, "empty": max(1, world - 1)}[kind]
    return {name: torch.arange(n) % many for name, n in NODES.items()}


def agrees(graph, what, model, run, x):
    """run(model, x by type, the graph or None) gives results by type: those of
    own nodes, and gradients of features and parameters, are those of one
    process."""
    torch.manual_seed(11)
    model = model.double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    mine = copy.deepcopy(model)
    dfgnn.accelerate(mine)
    whole = {k: t.clone().requires_grad_() for k, t in x.items()}
    want = run(model, whole, None)
    weight = {k: torch.randn_like(t) for k, t in want.items()}
    sum((want[k] * w).sum() for k, w in weight.items()).backward()
    own = {k: t.requires_grad_() for k, t in graph.local_nodes(x).items()}
    have = run(mine, own, graph)
    share = graph.local_nodes(weight)
    sum((have[k] * w).sum() for k, w in share.items()).backward()

    def near(a, b, name=""):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9,
                                   msg=lambda m: f"{what}: {name} {m}")
    for kind, part in graph.local_nodes(
            {k: t.detach() for k, t in want.items()}).items():
        near(have[kind].detach(), part)
    for kind, part in graph.local_nodes(
            {k: t.grad for k, t in whole.items()
             if t.grad is not None}).items():
        near(own[kind].grad, part)
    for (name, a), b in zip(model.named_parameters(), mine.parameters()):
        total = torch.zeros_like(a) if b.grad is None else b.grad
        dist.all_reduce(total)
        near(total, torch.zeros_like(a) if a.grad is None else a.grad, name)


class Bench:
    def __init__(self, kind):
        torch.manual_seed(5)
        world, self.rank = dist.get_world_size(), dist.get_rank()
        self.edges = {(s, r, d): torch.stack([
            torch.randint(NODES[s], (n,)), torch.randint(NODES[d], (n,))])
            for (s, r, d), n in zip(KINDS, COUNTS)}
        whole = dfgnn.HeteroGraph(self.edges, NODES)
        self.parts = partition_relations(
            whole, world, kind if kind in ("metis", "range")
            else owners(kind, world))
        self.mine = DistHeteroGraph(self.parts.part(self.rank))
        self.x = {name: torch.randn(n, WIDTH, dtype=torch.float64)
                  for name, n in NODES.items()}

    def check(self, what, model, x=None, **by_relation):
        """Tensors by relation are further arguments."""
        def run(model, x, graph):
            return model(x, graph or self.edges, **{
                name: t if graph is None else graph.local_edges(t)
                for name, t in by_relation.items()})
        agrees(self.mine, what, model, run, x or self.x)


def case_layers():
    for kind in ("bad", "empty", "metis", "range"):
        bench = Bench(kind)
        for name, model in models():
            bench.check(f"{kind} {name}", model)


def case_widths():
    """Types of other widths; features of edges by relation."""
    bench = Bench("bad")
    widths = {kind: 2 + n for n, kind in enumerate(NODES)}
    x = {kind: torch.randn(n, widths[kind], dtype=torch.float64)
         for kind, n in NODES.items()}
    attr = {key: torch.randn(part.size(1), 3, dtype=torch.float64)
            for key, part in bench.edges.items()}
    bench.check("widths", G.HeteroConv({key: G.GATConv(
        (widths[key[0]], widths[key[2]]), 4, heads=2, add_self_loops=False,
        edge_dim=3) for key in KINDS}), x, edge_attr_dict=attr)


def case_weights():
    """Weights of edges of GCNConvs."""
    bench = Bench("bad")
    weights = {key: torch.rand(part.size(1), dtype=torch.float64) + 0.1
               for key, part in bench.edges.items() if loops(key)}
    bench.check("weights", G.HeteroConv({
        key: G.GCNConv(WIDTH, WIDTH) if key in weights else
        G.SAGEConv((WIDTH, WIDTH), WIDTH) for key in KINDS}),
        edge_weight_dict=weights)


def case_typed():
    """Layers over edges of one list; RGCN takes pairs of what extend()
    gives."""
    torch.manual_seed(7)
    nodes, count = 40, 200
    edges, kinds = torch.randint(nodes, (2, count)), torch.randint(5, (count,))
    whole = dfgnn.HeteroGraph.from_edge_types(edges, kinds, nodes, 6)
    graph = DistHeteroGraph(partition_relations(
        whole, dist.get_world_size()).part(dist.get_rank()))
    assert torch.equal(graph.local_edges(kinds), graph.edge_type)
    attr = torch.randn(count, 3, dtype=torch.float64)
    of_node = torch.arange(nodes) % 3

    def rgcn(conv, x, on):
        return conv(x[""], edges, kinds) if on is None else conv(
            (on.extend(x)[""], x[""]), on.edge_index, on.edge_type)

    def rgat(conv, x, on):
        return conv(x[""], edges, kinds, attr) if on is None else conv(
            x[""], on, edge_attr=on.local_edges(attr))

    def heat(conv, x, on):
        return conv(x[""], edges, of_node, kinds, attr) if on is None else \
            conv(x[""], on, on.local_nodes({"": of_node})[""], on.edge_type,
                 on.local_edges(attr))
    torch.set_default_dtype(torch.float64)
    for layer, run in (
            (G.RGCNConv(WIDTH, 4, 6), rgcn),
            *[(G.RGATConv(WIDTH, 4, 6, heads=2, edge_dim=3, **mode), rgat)
              for mode in ({}, {"attention_mechanism": "within-relation"},
                           {"attention_mode":
                            "multiplicative-self-attention"})],
            (G.HEATConv(WIDTH, 4, 3, 6, 2, 3, 2, heads=2), heat)):
        agrees(graph, type(layer).__name__, layer,
               lambda conv, x, on: {"": run(conv, x, on)},
               {"": torch.randn(nodes, WIDTH)})
    torch.set_default_dtype(torch.float32)


def case_files():
    bench = Bench("metis")
    folder = [tempfile.mkdtemp() if bench.rank == 0 else None]
    dist.broadcast_object_list(folder)
    if bench.rank == 0:
        bench.parts.save(folder[0])
    dist.barrier()
    graph = load_relations(folder[0])
    assert graph.relations == bench.mine.relations
    assert graph.num_src == bench.mine.num_src
    for mine, theirs in ((graph.edges, bench.mine.edges),
                         (graph.nodes, bench.mine.nodes),
                         (graph.halo, bench.mine.halo)):
        assert all(torch.equal(mine[key], theirs[key]) for key in theirs)
    assert torch.equal(graph.edge_index, bench.mine.edge_index)


def case_errors():
    bench = Bench("bad")
    try:
        bench.mine.extend(bench.x)
    except ValueError as error:
        assert "must have a row for each of the rank's" in str(error)
    else:
        raise AssertionError("features of all nodes were taken")


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for case in sys.argv[1:]:
        globals()["case_" + case]()
        print("OK", case, flush=True)
    dist.barrier()
    dist.destroy_process_group()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
