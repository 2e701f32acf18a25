"""Models of many relations by PyG's layers.

  igbh      MLPerf's R-GAT: 3 layers of HeteroConv of GATConv, 512 = 4 heads x
            128, over blocks of 1024 papers, 15, 10 and 5 neighbours a relation
  relbench  RelBench's HeteroGraphSAGE: 2 layers of HeteroConv of SAGEConv, 128,
            sums, LayerNorm, over 20 relations of 10 tables
  hgt       2 layers of HGTConv, 64 = 4 heads x 16, over 140 relations of 70
            types: a batch of 24 graphs of 40 nodes (issue 10011 of PyG)
  aifb, am  PyG's examples/rgcn.py: 2 layers of RGCNConv, 16, with 30 bases, of
            embeddings, over 90 relations of AIFB's size and 266 of AM's
  mag       2 layers of HeteroConv of GATConv, 256 = 4 heads x 64, over the
            whole of a graph of ogbn-mag's size with its relations' reverses
  maghgt    2 layers of HGTConv, 256 = 4 heads x 64, over the same

Nothing is downloaded: graphs are drawn.  IGBH has the types and relations of
its paper (arXiv 2302.13522) and the nodes that MLPerf names (547 306 935);
mean degrees are edges of a relation over nodes (3 996 442 004 citations, the
rest of MLPerf's 5 812 005 639 edges divided by us), degrees are a power law
cut by the fan-out, and whom an edge comes from a power law, too.  Sizes of mag
are those of ogbn-mag, of aifb and am those of PyG's Entities, with numbers of
edges of a relation falling as 1 / rank, each between random ranges of nodes.
Sampled blocks have edge_index tensors that no library has seen, as a data loader
makes them.
"""

import numpy
import torch
import torch.nn.functional as F
import torch_geometric.nn as G
from case import Client, case

# type: nodes; relation: mean number of sources that a destination has
IGBH_NODES = {"paper": 269346174, "author": 277220883, "institute": 26918,
              "fos": 712960}
IGBH_EDGES = {("paper", "cites", "paper"): 3996442004,
              ("paper", "written_by", "author"): 644000000,
              ("author", "affiliated_to", "institute"): 41000000,
              ("paper", "topic", "fos"): 1130563635}
MAG_NODES = {"paper": 736389, "author": 1134649, "institution": 8740,
             "field": 59965}
MAG_EDGES = {("paper", "cites", "paper"): 5416271,
             ("author", "writes", "paper"): 7145660,
             ("author", "affiliated", "institution"): 1043998,
             ("paper", "has_topic", "field"): 7505078}
random = numpy.random.default_rng(1)


def with_reverses(relations):
    return {**relations, **{(b, "rev_" + name, a): count
                            for (a, name, b), count in relations.items() if a != b}}


def popular(nodes, count):
    """Nodes by a power law: few are drawn often."""
    return (nodes * random.random(count) ** 2.5).astype(numpy.int64)


def sampled(seeds, fan_outs):
    """Blocks around papers: the nodes by type and the edges by relation that there are
    after each hop, and edge_index by relation."""
    relations = with_reverses(IGBH_EDGES)
    known = {kind: {} for kind in IGBH_NODES}  # number among all: in the block
    edges = {relation: [] for relation in relations}

    def local(kind, numbers):
        """The numbers in the block, and those that are new."""
        table, new = known[kind], []
        for number in numpy.unique(numbers).tolist():
            if number not in table:
                table[number] = len(table)
                new.append(table[number])
        return numpy.array([table[n] for n in numbers.tolist()], numpy.int64), new
    frontier = {kind: numpy.empty(0, numpy.int64) for kind in IGBH_NODES}
    frontier["paper"] = numpy.unique(local("paper", random.integers(
        0, IGBH_NODES["paper"], seeds))[0])
    hops = [({k: len(t) for k, t in known.items()}, None)]
    for most in fan_outs:
        following = {kind: [] for kind in IGBH_NODES}
        for relation, count in relations.items():
            source, _, destination = relation
            targets = frontier[destination]
            degrees = numpy.minimum(most, random.poisson(
                count / IGBH_NODES[destination] * random.exponential(1.0, len(targets))))
            rows = numpy.repeat(targets, degrees)
            columns, new = local(source, popular(IGBH_NODES[source], len(rows)))
            following[source] += new
            edges[relation].append(numpy.stack([columns, rows]))
        frontier = {kind: numpy.array(new, numpy.int64) for kind, new in following.items()}
        hops.append(({k: len(t) for k, t in known.items()},
                     {r: sum(p.shape[1] for p in parts) for r, parts in edges.items()}))
    return hops, {r: torch.from_numpy(numpy.concatenate(parts, 1))
                  for r, parts in edges.items()}


def drawn(nodes, relations):
    """edge_index by relation of whole graphs."""
    return {key: torch.from_numpy(numpy.stack([
        popular(nodes[key[0]], count), random.integers(0, nodes[key[2]], count)]))
        for key, count in relations.items()}


def squares(model, inputs):
    return model(**inputs).float().square().mean()


class Layers(torch.nn.Module):
    """Layers over relations with what stands between them; layer n reads the nodes and
    edges of sizes[n] alone."""

    def __init__(self, convs, kind, out, norms=None, sizes=None):
        super().__init__()
        self.convs, self.norms = torch.nn.ModuleList(convs), norms
        self.kind, self.out = kind, torch.nn.Linear(*out)
        self.sizes = sizes or [None] * len(convs)

    def forward(self, x, edges):
        for n, (conv, size) in enumerate(zip(self.convs, self.sizes)):
            if size:
                x = {k: t[:size[0][k]] for k, t in x.items()}
            x = conv(x, {k: e[:, :size[1][k]] for k, e in edges.items()} if size else edges)
            if self.norms is not None:
                x = {k: self.norms[n][k](t) for k, t in x.items()}
            x = {k: F.leaky_relu(t) for k, t in x.items()}
        return self.out(x[self.kind])


def gats(edges, layers, width, hidden):
    return [G.HeteroConv({key: G.GATConv(width if n == 0 else hidden, hidden // 4, heads=4,
                                         add_self_loops=False) for key in edges})
            for n in range(layers)]


@case()
def igbh(scale):
    seeds = max(4, int(1024 * scale))
    hops, edges = sampled(seeds, (15, 10, 5))
    x = {kind: torch.randn(count, 1024) for kind, count in hops[-1][0].items()}
    # layer n reads the nodes of 3 - n hops and the edges into those of one hop less
    model = Layers(gats(edges, 3, 1024, 512), "paper", (512, 2983),
                   sizes=[hops[3 - n] for n in range(3)])
    return Client(model, {"x": x, "edges": edges}, lambda m, i: m(**i)[:seeds].square().mean(),
                  fresh=("edges",))


@case()
def relbench(scale):
    sizes = [max(3, int(n * scale)) for n in
             (512, 12000, 9000, 6000, 20000, 15000, 400, 70, 3000, 8000)]
    nodes = {f"table{i}": n for i, n in enumerate(sizes)}
    names, edges = list(nodes), {}
    for i, child in enumerate(names):  # a row of a child points to one of a parent
        parent = names[(3 * i + 1) % 10]
        pair = torch.from_numpy(numpy.stack([numpy.arange(nodes[child]), popular(
            nodes[parent], nodes[child])]))
        edges[child, "f2p", parent] = pair
        edges[parent, "rev_f2p", child] = pair.flip(0)
    convs = [G.HeteroConv({key: G.SAGEConv((128, 128), 128, aggr="sum") for key in edges},
                          aggr="sum") for _ in range(2)]
    norms = torch.nn.ModuleList(torch.nn.ModuleDict(
        {kind: G.LayerNorm(128, mode="node") for kind in nodes}) for _ in range(2))
    x = {kind: torch.randn(n, 128) for kind, n in nodes.items()}
    return Client(Layers(convs, "table0", (128, 1), norms), {"x": x, "edges": edges}, squares,
                  fresh=("edges",))


@case()
def hgt(scale):
    types, count = 70, 140
    share = random.dirichlet(numpy.full(types, 0.4))
    nodes = {f"t{i}": max(1, int(960 * scale * s)) for i, s in enumerate(share)}
    names = list(nodes)
    ends = random.permutation(types)  # each type gets messages
    keys = [(names[i % types], f"r{i}", names[ends[(i + i // types) % types]])
            for i in range(count)]
    edges = drawn(nodes, {key: max(1, min(nodes[key[0]], nodes[key[2]])) for key in keys})
    convs = [G.HGTConv(64, 64, (names, list(edges)), heads=4) for _ in range(2)]
    x = {kind: torch.randn(n, 64) for kind, n in nodes.items()}
    return Client(Layers(convs, names[ends[0]], (64, 64)), {"x": x, "edges": edges}, squares,
                  fresh=("edges",))


class Rgcn(torch.nn.Module):
    def __init__(self, nodes, relations, classes):
        super().__init__()
        self.first = G.RGCNConv(nodes, 16, relations, num_bases=30)
        self.second = G.RGCNConv(16, classes, relations, num_bases=30)

    def forward(self, edges, kinds):
        return self.second(self.first(None, edges, kinds).relu(), edges, kinds)


def entities(name, nodes, triples, relations, classes):
    @case(name=name)
    def build(scale):
        count, half = max(20, int(nodes * scale)), relations // 2
        ranks = 1 / numpy.arange(1, half + 1)
        kind = random.choice(half, max(40, int(triples * scale)), p=ranks / ranks.sum())
        first = random.integers(0, count, (2, half))
        width = max(1, count // 12)
        src = (first[0, kind] + random.integers(0, width, kind.size)) % count
        dst = (first[1, kind] + popular(width, kind.size)) % count
        edges = torch.from_numpy(numpy.stack([numpy.concatenate([src, dst]),
                                              numpy.concatenate([dst, src])]))
        kinds = torch.from_numpy(numpy.concatenate([2 * kind, 2 * kind + 1]))
        return Client(Rgcn(count, 2 * half, classes), {"edges": edges, "kinds": kinds}, squares)


def mag_graph(scale):
    """(features by type, edge_index by relation)."""
    nodes = {kind: max(10, int(n * scale)) for kind, n in MAG_NODES.items()}
    edges = drawn(nodes, {key: max(10, int(n * scale))
                          for key, n in with_reverses(MAG_EDGES).items()})
    return {kind: torch.randn(n, 128) for kind, n in nodes.items()}, edges


@case()
def mag(scale):
    x, edges = mag_graph(scale)
    return Client(Layers(gats(edges, 2, 128, 256), "paper", (256, 349)),
                  {"x": x, "edges": edges}, squares)


@case()
def maghgt(scale):
    x, edges = mag_graph(scale)
    convs = [G.HGTConv(128 if n == 0 else 256, 256, (list(x), list(edges)), heads=4)
             for n in range(2)]
    return Client(Layers(convs, "paper", (256, 349)), {"x": x, "edges": edges}, squares)


entities("aifb", 8285, 29043, 90, 4)
entities("am", 881680, 5668682, 266, 11)
