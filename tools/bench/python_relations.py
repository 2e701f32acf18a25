"""Times training steps of models of many relations against PyG's own layers.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_relations.py [--device cuda] [-o OUT.json]

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

A step is forward, loss, backward.  Sampled blocks (igbh, relbench, hgt) have
edge_index tensors that no library has seen, as a data loader makes them; both
ways get the same.  Writes a flat JSON array, a row per case:

  pyg_ms, dfgnn_ms, speedup         median of a step
  pyg_backward_ms, dfgnn_backward_ms   of its backward pass
  pyg_launches, dfgnn_launches      kernels of a step (on a GPU)
  pyg_mb, dfgnn_mb                  peak of torch's memory over the inputs
  compiled_ms, both_ms              PyG, and dfgnn, by torch.compile
  captured_ms                       dfgnn's relbench, by dfgnn.capture with room
  difference                        of the results, relative to the largest
"""

import argparse
import copy
import json
import statistics
import sys
import time

import numpy
import torch
import torch.nn.functional as F
import torch_geometric.nn as G

from tables import write


# ---- graphs -----------------------------------------------------------------

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


def with_reverses(relations):
    found = dict(relations)
    for (source, name, destination), count in relations.items():
        if source != destination:
            found[destination, "rev_" + name, source] = count
    return found


def popular(random, nodes, count):
    """Nodes by a power law: few are drawn often."""
    return (nodes * random.random(count) ** 2.5).astype(numpy.int64)


def sampled(random, seeds, fan_outs):
    """(number of nodes by type, edge_index by relation, [(nodes, edges)] of
    each hop) of blocks around papers."""
    relations = with_reverses(IGBH_EDGES)
    known = {kind: {} for kind in IGBH_NODES}  # number among all: in the block
    fresh = {kind: numpy.empty(0, numpy.int64) for kind in IGBH_NODES}
    edges = {relation: [] for relation in relations}

    def local(kind, numbers):
        table, new = known[kind], []
        for number in numpy.unique(numbers).tolist():
            if number not in table:
                table[number] = len(table)
                new.append(table[number])
        return numpy.array([table[n] for n in numbers.tolist()],
                           numpy.int64), new
    frontier = dict(fresh, paper=local("paper", random.integers(
        0, IGBH_NODES["paper"], seeds))[0])
    frontier["paper"] = numpy.unique(frontier["paper"])
    hops = [({k: len(t) for k, t in known.items()}, None)]
    for most in fan_outs:
        following = {kind: [] for kind in IGBH_NODES}
        for relation, count in relations.items():
            source, _, destination = relation
            targets = frontier[destination]
            mean = count / IGBH_NODES[destination]
            degrees = numpy.minimum(most, random.poisson(
                mean * random.exponential(1.0, len(targets))))
            rows = numpy.repeat(targets, degrees)
            found, new = local(source, popular(
                random, IGBH_NODES[source], len(rows)))
            following[source] += new
            edges[relation].append(numpy.stack([found, rows]))
        frontier = {kind: numpy.array(new, numpy.int64)
                    for kind, new in following.items()}
        hops.append(({k: len(t) for k, t in known.items()},
                     {r: sum(p.shape[1] for p in parts)
                      for r, parts in edges.items()}))
    return hops, {r: torch.from_numpy(numpy.concatenate(parts, 1))
                  for r, parts in edges.items()}


def drawn(random, nodes, relations):
    """edge_index by relation of whole graphs."""
    return {key: torch.from_numpy(numpy.stack([
        popular(random, nodes[key[0]], count),
        random.integers(0, nodes[key[2]], count)]))
        for key, count in relations.items()}


# ---- cases: (model, inputs of a step, function (model, inputs) -> out) ------

class Layers(torch.nn.Module):
    """HeteroConvs with what stands between them; each layer sees the nodes and
    edges that the rest of the layers need."""

    def __init__(self, convs, norms=None, out=None):
        super().__init__()
        self.convs, self.norms = torch.nn.ModuleList(convs), norms
        self.out = out

    def forward(self, x, blocks, kind):
        for n, (conv, (nodes, edges)) in enumerate(zip(self.convs, blocks)):
            x = {k: t[:nodes[k]] for k, t in x.items()}
            x = conv(x, edges)
            if self.norms is not None:
                x = {k: self.norms[n][k](t) for k, t in x.items()}
            x = {k: F.leaky_relu(t) for k, t in x.items()}
        return self.out(x[kind])


def fresh(edges):
    return {key: part.clone() for key, part in edges.items()}


def igbh(options, random, device):
    seeds = max(4, int(1024 * options.scale))
    hops, edges = sampled(random, seeds, (15, 10, 5))
    edges = {key: part.to(device) for key, part in edges.items()}
    width = 1024 if not options.narrow else 64
    hidden = 512 if not options.narrow else 32
    x = {kind: torch.randn(count, width, device=device)
         for kind, count in hops[-1][0].items()}
    convs = [G.HeteroConv({key: G.GATConv(
        width if n == 0 else hidden, hidden // 4, heads=4,
        add_self_loops=False) for key in edges}) for n in range(3)]
    model = Layers(convs, out=torch.nn.Linear(hidden, 2983))

    def inputs():
        # layer n reads the nodes of 3 - n hops and the edges into those of
        # one hop less
        return x, [(hops[3 - n][0], {
            key: part[:, :hops[3 - n][1][key]].clone()
            for key, part in edges.items()}) for n in range(3)], "paper"
    return model, inputs, lambda model, given: model(*given)[:seeds], \
        list(x.values())


def relbench(options, random, device):
    sizes = [max(3, int(n * options.scale)) for n in
             (512, 12000, 9000, 6000, 20000, 15000, 400, 70, 3000, 8000)]
    nodes = {f"table{i}": n for i, n in enumerate(sizes)}
    names = list(nodes)
    keys = [(names[i], names[(3 * i + 1) % 10]) for i in range(10)]
    relations = {}
    for child, parent in keys:  # a row of a child points to one of a parent
        relations[child, "f2p", parent] = nodes[child]
        relations[parent, "rev_f2p", child] = nodes[child]
    edges = {}
    for (a, name, b), count in relations.items():
        if name == "f2p":
            parents = popular(random, nodes[b], count)
            pair = torch.from_numpy(numpy.stack([numpy.arange(count),
                                                 parents]))
            edges[a, name, b] = pair.to(device)
            edges[b, "rev_" + name, a] = pair.flip(0).to(device)
    width = 128 if not options.narrow else 32
    x = {kind: torch.randn(n, width, device=device)
         for kind, n in nodes.items()}
    convs = [G.HeteroConv({key: G.SAGEConv((width, width), width, aggr="sum")
                           for key in edges}, aggr="sum") for _ in range(2)]
    norms = torch.nn.ModuleList(torch.nn.ModuleDict(
        {kind: G.LayerNorm(width, mode="node") for kind in nodes})
        for _ in range(2))
    model = Layers(convs, norms, torch.nn.Linear(width, 1))

    def inputs():
        new = fresh(edges)
        return x, [(nodes, new)] * 2, "table0"
    return model, inputs, lambda model, given: model(*given), list(x.values())


class Hgt(torch.nn.Module):
    def __init__(self, width, metadata):
        super().__init__()
        self.convs = torch.nn.ModuleList(
            G.HGTConv(width, width, metadata, heads=4) for _ in range(2))

    def forward(self, x, edges):
        for conv in self.convs:
            x = conv(x, edges)
        return torch.cat(list(x.values()))


def hgt(options, random, device):
    types, count = (70, 140) if not options.narrow else (12, 24)
    share = random.dirichlet(numpy.full(types, 0.4))
    nodes = {f"t{i}": max(1, int(960 * options.scale * s))
             for i, s in enumerate(share)}
    names = list(nodes)
    relations = {}
    ends = random.permutation(types)  # each type gets messages
    for i in range(count):
        key = (names[i % types], f"r{i}", names[ends[(i + i // types)
                                                     % types]])
        relations[key] = max(1, min(nodes[key[0]], nodes[key[2]]))
    edges = {key: part.to(device) for key, part in
             drawn(random, nodes, relations).items()}
    x = {kind: torch.randn(n, 64, device=device) for kind, n in nodes.items()}
    model = Hgt(64, (names, list(edges)))
    return model, lambda: (x, fresh(edges)), \
        lambda model, given: model(*given), list(x.values())


class Rgcn(torch.nn.Module):
    def __init__(self, nodes, relations, classes):
        super().__init__()
        self.first = G.RGCNConv(nodes, 16, relations, num_bases=30)
        self.second = G.RGCNConv(16, classes, relations, num_bases=30)

    def forward(self, edges, kinds):
        return self.second(self.first(None, edges, kinds).relu(), edges, kinds)


def entities(nodes, triples, relations, classes):
    def case(options, random, device):
        count, half = max(20, int(nodes * options.scale)), relations // 2
        ranks = 1 / numpy.arange(1, half + 1)
        of_edge = random.choice(half, max(40, int(triples * options.scale)),
                                p=ranks / ranks.sum())
        first = random.integers(0, count, (2, half))
        width = max(1, count // 12)
        src = (first[0, of_edge] + random.integers(0, width, of_edge.size)) \
            % count
        dst = (first[1, of_edge] + popular(random, width, of_edge.size)) \
            % count
        edges = torch.from_numpy(numpy.stack(
            [numpy.concatenate([src, dst]), numpy.concatenate([dst, src])]))
        kinds = torch.from_numpy(numpy.concatenate(
            [2 * of_edge, 2 * of_edge + 1]))
        edges, kinds = edges.to(device), kinds.to(device)
        return Rgcn(count, 2 * half, classes), lambda: (edges, kinds), \
            lambda model, given: model(*given), []
    return case


def mag_graph(options, random, device, width):
    """(features by type, edge_index by relation, numbers of nodes)."""
    nodes = {kind: max(10, int(n * options.scale))
             for kind, n in MAG_NODES.items()}
    relations = {key: max(10, int(n * options.scale))
                 for key, n in with_reverses(MAG_EDGES).items()}
    edges = {key: part.to(device) for key, part in
             drawn(random, nodes, relations).items()}
    return {kind: torch.randn(n, width, device=device)
            for kind, n in nodes.items()}, edges, nodes


def mag(options, random, device):
    width, hidden = 128, 256 if not options.narrow else 32
    x, edges, nodes = mag_graph(options, random, device, width)
    convs = [G.HeteroConv({key: G.GATConv(
        width if n == 0 else hidden, hidden // 4, heads=4,
        add_self_loops=False) for key in edges}) for n in range(2)]
    model = Layers(convs, out=torch.nn.Linear(hidden, 349))
    return model, lambda: (x, [(nodes, edges)] * 2, "paper"), \
        lambda model, given: model(*given), list(x.values())


class WholeHgt(torch.nn.Module):
    def __init__(self, width, hidden, metadata):
        super().__init__()
        self.convs = torch.nn.ModuleList(G.HGTConv(
            width if n == 0 else hidden, hidden, metadata, heads=4)
            for n in range(2))
        self.out = torch.nn.Linear(hidden, 349)

    def forward(self, x, edges):
        for conv in self.convs:
            x = conv(x, edges)
        return self.out(x["paper"])


def maghgt(options, random, device):
    width, hidden = 128, 256 if not options.narrow else 32
    x, edges, nodes = mag_graph(options, random, device, width)
    return WholeHgt(width, hidden, (list(nodes), list(edges))), \
        lambda: (x, edges), lambda model, given: model(*given), \
        list(x.values())


CASES = {"igbh": igbh, "relbench": relbench, "hgt": hgt,
         "aifb": entities(8285, 29043, 90, 4),
         "am": entities(881680, 5668682, 266, 11), "mag": mag, "maghgt": maghgt}


# ---- steps ------------------------------------------------------------------

def settle(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


class Way:
    """A model and what is measured of its steps."""

    def __init__(self, model, run, options, device):
        self.model, self.run, self.device = model, run, device
        self.dtype = getattr(torch, options.autocast) if options.autocast \
            else None
        self.clock = time.process_time if options.cpu_time \
            else time.perf_counter
        self.steps, self.backwards = [], []

    def forward(self, given):
        with torch.autocast(self.device.type, self.dtype,
                            enabled=self.dtype is not None):
            return self.run(self.model, given)

    def step(self, given, keep=True):
        """Seconds of a step and of its backward pass are kept."""
        self.model.zero_grad(set_to_none=True)
        settle(self.device)
        start = self.clock()
        loss = self.forward(given).float().square().mean()
        settle(self.device)
        middle = self.clock()
        loss.backward()
        settle(self.device)
        end = self.clock()
        if keep:
            self.steps.append(1e3 * (end - start))
            self.backwards.append(1e3 * (end - middle))

    def launches(self, given):
        if self.device.type != "cuda":
            return None
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CUDA]) as found:
            self.step(given, keep=False)
        return sum(event.count for event in found.key_averages()
                   if event.device_type.name == "CUDA")

    def profile(self, given):
        """Lines about a step: kernels by time on the device, functions by time
        on the host."""
        from torch.profiler import ProfilerActivity, profile
        kinds = [ProfilerActivity.CPU]
        if self.device.type == "cuda":
            kinds.append(ProfilerActivity.CUDA)
        with profile(activities=kinds) as found:
            self.step(given, keep=False)
        rows = found.key_averages()
        yield from _longest("device", [
            (e.self_device_time_total, e) for e in rows
            if e.device_type.name == "CUDA"])
        yield from _longest("host", [(e.self_cpu_time_total, e) for e in rows
                                     if e.device_type.name == "CPU"])

    def memory(self, given):
        if self.device.type != "cuda":
            return None
        self.model.zero_grad(set_to_none=True)
        settle(self.device)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.step(given, keep=False)
        return (torch.cuda.max_memory_allocated() - before) / 1e6


class Captured(Way):
    """A step as one CUDA graph that has room for blocks of these sizes."""

    def __init__(self, model, run, options, device, inputs):
        super().__init__(model, run, options, device)
        import dfgnn
        x, blocks, kind = inputs()
        nodes, edges = blocks[0]
        most = dfgnn.HeteroCapacity(nodes, {
            key: part.size(1) for key, part in edges.items()})

        def step(x, edges):
            self.model.zero_grad(set_to_none=True)
            out = self.forward((x, [(most.num_nodes, edges)] * len(blocks),
                                kind))[:nodes[kind]]
            loss = out.float().square().mean()
            loss.backward()
            return loss
        self.captured = dfgnn.capture(step, copy=False, capacity=dict(
            x=most.nodes, edges=most.edges))

    def step(self, given, keep=True):
        x, blocks, _ = given
        settle(self.device)
        start = self.clock()
        self.captured(x, blocks[0][1])
        settle(self.device)
        if keep:
            self.steps.append(1e3 * (self.clock() - start))


def _longest(where, timed, most=25):
    """Lines about the events [(microseconds, event)] that took longest."""
    yield (f"  {where}: {sum(us for us, _ in timed) / 1e3:.2f} ms in "
           f"{sum(event.count for _, event in timed)} events")
    for us, event in sorted(timed, key=lambda pair: -pair[0])[:most]:
        yield f"  {us / 1e3:9.3f} ms {event.count:5} {event.key[:100]}"


def measure(name, options, device):
    import dfgnn
    random = numpy.random.default_rng(options.seed)
    torch.manual_seed(options.seed)
    model, inputs, run, _ = CASES[name](options, random, device)
    model = model.to(device)
    try:
        with torch.no_grad():
            run(model, inputs())  # lazy layers
    except torch.OutOfMemoryError:  # no case with lazy layers is as large
        torch.cuda.empty_cache()
    ways = {}
    for way in options.ways.split(","):
        mine = copy.deepcopy(model)
        if way in ("dfgnn", "both", "captured"):
            report = dfgnn.accelerate(mine)
            print(report, file=sys.stderr)
        if way in ("compiled", "both"):
            mine = torch.compile(mine, dynamic=True)
        ways[way] = Captured(mine, run, options, device, inputs) \
            if way == "captured" else Way(mine, run, options, device)
    row = {"case": name, "edges": _edges_of(inputs())}
    given = inputs()
    with torch.no_grad():
        outs = {}
        for way, found in list(ways.items()):
            try:
                outs[way] = found.forward(given).float()
            except Exception as error:  # out of memory, or no compiler
                row[way + "_error"] = f"{type(error).__name__}: {error}"[:200]
                del ways[way]
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if {"pyg", "dfgnn"} <= set(outs):
        most = float(outs["pyg"].abs().max())
        row["difference"] = float(
            (outs["pyg"] - outs["dfgnn"]).abs().max()) / max(most, 1e-30)
    outs = given = None
    for turn in range(options.warmup + options.rounds):
        for way, found in list(ways.items()):
            try:
                found.step(inputs(), keep=turn >= options.warmup)
            except Exception as error:
                if way not in ("compiled", "both") and not isinstance(
                        error, torch.OutOfMemoryError):
                    raise
                row[way + "_error"] = f"{type(error).__name__}: {error}"[:200]
                del ways[way]
                torch.cuda.empty_cache()
    for way, found in ways.items():
        row[way + "_ms"] = statistics.median(found.steps)
        if found.backwards:
            row[way + "_backward_ms"] = statistics.median(found.backwards)
        row[way + "_launches"] = found.launches(inputs())
        row[way + "_mb"] = found.memory(inputs())
        if options.profile:
            print(f"{name} {way}", *found.profile(inputs()), sep="\n",
                  file=sys.stderr)
    for what in ("", "backward_"):
        if {"pyg", "dfgnn"} <= set(ways):
            row[what + "speedup"] = row[f"pyg_{what}ms"] / \
                row[f"dfgnn_{what}ms"]
    return row


def _edges_of(given):
    """How many edges the inputs of a step have."""
    if isinstance(given, torch.Tensor):
        return given.size(1) if given.dim() == 2 and \
            not given.is_floating_point() else 0
    if isinstance(given, dict):
        return sum(_edges_of(value) for value in given.values())
    if isinstance(given, (tuple, list)):
        return max((_edges_of(value) for value in given), default=0)
    return 0


# ---- reports ----------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--ways", default="pyg,dfgnn",
                        help="pyg, dfgnn, compiled and both (each of them by "
                        "torch.compile), captured (dfgnn's, of relbench)")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="of the numbers of nodes")
    parser.add_argument("--narrow", action="store_true",
                        help="fewer features and types, for a test")
    parser.add_argument("--autocast", choices=("bfloat16", "float16"))
    parser.add_argument("--profile", action="store_true",
                        help="print what takes longest in a step")
    parser.add_argument("--cpu-time", action="store_true",
                        help="of all threads, which other work on the machine "
                        "changes less")
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2,
                        help="threads of the CPU")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
    import dfgnn
    name = device.type if device.type == "cpu" else \
        torch.cuda.get_device_name(device)
    about = {"device": name, "torch": torch.__version__,
             "version": dfgnn.version(), "scale": options.scale,
             "autocast": options.autocast, "cpu_time": options.cpu_time}
    rows = []
    for case in options.cases.split(","):
        rows.append(dict(measure(case, options, device), **about))
        print(json.dumps(rows[-1]), file=sys.stderr)
        if options.output:
            write(options.output, rows)
        if device.type == "cuda":
            torch.cuda.empty_cache()
    if not options.output:
        write(None, rows)


if __name__ == "__main__":
    main()
