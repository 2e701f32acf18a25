"""Times training steps over sampled blocks against PyG's own layers.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_minibatch.py [--device cuda] [-o OUT.json]

A graph like ogbn-arxiv is made (169 343 nodes, in-degrees by a power law,
1.17 M edges), and batches are sampled from it before anything is timed: 1024
seeds, 10 and 15 neighbours, that is two blocks, of about 4 k and 18 k edges.
A step is two layers, forward, loss, backward and Adam.  Every step has
edge_index tensors that no library has seen, as a data loader makes them.
Writes a flat JSON array, a row per layer and form of the blocks:

  given       how dfgnn gets a block: "edge_index" as PyG does, "trusted" as
              a Graph of a sorted list that is not checked, "known" as Graphs
              made beforehand (the time of a step if graphs cost nothing),
              "captured" as PyG, in one CUDA graph with room for all batches
  pyg_ms, dfgnn_ms    median of a step
  speedup     PyG over dfgnn

--parts splits one block of the larger size: its graph, the first forward and
backward of a new graph, and those of a known one.
"""

import argparse
import statistics
import sys
import time

import numpy
import torch

from tables import write

LAYERS = ("GATConv", "SAGEConv", "TransformerConv")
GIVEN = ("edge_index", "trusted", "known", "captured")
CLASSES = 40


# ---- batches ----------------------------------------------------------------

def arxiv_like(nodes, edges, seed):
    """(offsets, sources) of the in-edges of each node."""
    random = numpy.random.default_rng(seed)
    rank = numpy.arange(1, nodes + 1, dtype=numpy.float64)
    weight, liked = random.permutation(rank ** -0.8), rank ** -0.6
    degrees = random.poisson(weight / weight.sum() * edges)
    offsets = numpy.concatenate([[0], numpy.cumsum(degrees)])
    random.shuffle(liked)
    below = numpy.cumsum(liked / liked.sum())
    sources = numpy.searchsorted(below, random.random(offsets[-1]))
    return offsets, numpy.minimum(sources, nodes - 1)


def sample_block(graph, targets, most, random):
    """(nodes, edge_index): edges from nodes to the first of them, the targets,
    at most `most` per target, sorted by target."""
    offsets, sources = graph
    begin, degrees = offsets[targets], offsets[targets + 1] - offsets[targets]
    taken = numpy.minimum(degrees, most)
    rows = numpy.repeat(numpy.arange(len(targets)), taken)
    places = numpy.arange(len(rows)) - numpy.repeat(
        numpy.cumsum(taken) - taken, taken)
    # a stride through each row picks distinct edges
    start = random.integers(0, 1 << 30, len(targets))
    stride = numpy.maximum(1, degrees // numpy.maximum(taken, 1))
    picked = (start[rows] + places * stride[rows]) % degrees[rows]
    found = sources[begin[rows] + picked]
    nodes = targets
    new = numpy.setdiff1d(found, targets)
    random.shuffle(new)
    nodes = numpy.concatenate([targets, new])
    order = numpy.argsort(nodes, kind="stable")
    local = order[numpy.searchsorted(nodes[order], found)]
    return nodes, numpy.stack([local, rows])


class Batch:
    """Two blocks, the outer one first, with features and labels."""

    def __init__(self, graph, seeds, random, features, device):
        self.blocks = []
        nodes = seeds
        for most in (10, 15):
            inner = len(nodes)
            nodes, edges = sample_block(graph, nodes, most, random)
            self.blocks.insert(0, (
                torch.from_numpy(edges).to(device), len(nodes), inner))
        self.x = torch.randn(len(nodes), features, device=device)
        self.y = torch.randint(CLASSES, (len(seeds),), device=device)
        self.graphs = None

    def fresh(self):
        """Blocks whose edge_index nobody has seen."""
        return [(edges.clone(), sources, inner)
                for edges, sources, inner in self.blocks]


def batches(count, options, device):
    random = numpy.random.default_rng(options.seed)
    graph = arxiv_like(169343, 1166243, options.seed)
    return [Batch(graph, random.choice(169343, options.seeds, replace=False),
                  random, options.features, device) for _ in range(count)]


# ---- steps ------------------------------------------------------------------

class Model(torch.nn.Module):
    def __init__(self, nn, name, features, hidden, heads):
        super().__init__()
        kind = getattr(nn, name)
        if name == "SAGEConv":
            self.layers = torch.nn.ModuleList(
                [kind(features, hidden), kind(hidden, CLASSES)])
        else:
            self.layers = torch.nn.ModuleList(
                [kind(features, hidden // heads, heads=heads),
                 kind(hidden, CLASSES, heads=1)])

    def forward(self, x, blocks):
        for i, (layer, (edges, _, inner)) in enumerate(
                zip(self.layers, blocks)):
            x = layer((x, x[:inner]), edges)
            if i == 0:
                x = x.relu()
        return x


def trusted_graphs(blocks):
    """A Graph per block, of edges that a sampler knows to be sorted."""
    import dfgnn
    return [(dfgnn.as_graph(edges, (sources, inner), sorted=True,
                            trusted=True), sources, inner)
            for edges, sources, inner in blocks]


def known_graphs(batch):
    import dfgnn
    if batch.graphs is None:
        batch.graphs = [
            (dfgnn.Graph.from_edge_index(edges, (sources, inner)), sources,
             inner) for edges, sources, inner in batch.blocks]
    return batch.graphs


class Clock:
    def __init__(self, device):
        self.cuda = device.type == "cuda"

    def settle(self):
        if self.cuda:
            torch.cuda.synchronize()

    def ms(self, function):
        """(result, milliseconds) of a call; the device is waited for."""
        self.settle()
        start = time.perf_counter()
        result = function()
        self.settle()
        return result, 1e3 * (time.perf_counter() - start)


def captured_step(model, adam, found):
    """A step as one CUDA graph that has room for each of the batches."""
    import dfgnn
    most = []
    for which in range(len(found[0].blocks)):
        edges, sources, inner = zip(*[
            (edges.size(1), sources, inner) for edges, sources, inner
            in (batch.blocks[which] for batch in found)])
        most.append(dfgnn.Capacity((max(sources), max(inner)), max(edges)))

    def run(x, edges, y):
        adam.zero_grad()
        out = model(x, [(e, None, room.num_destinations)
                        for e, room in zip(edges, most)])[:len(y)]
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        adam.step()
        return loss
    run = dfgnn.capture(run, capacity=dict(
        x=most[0].sources, edges=[room.edges for room in most]))
    return lambda batch, blocks: run(batch.x, [edges for edges, *_ in blocks],
                                     batch.y)


def step_of(library, name, given, options, device, found=()):
    if library == "dfgnn":
        import dfgnn.nn as nn
    else:
        import torch_geometric.nn as nn
    torch.manual_seed(1)
    model = Model(nn, name, options.features, options.hidden,
                  options.heads).to(device)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3,
                            capturable=given == "captured"
                            and device.type == "cuda")
    if given == "captured":
        return captured_step(model, adam, found)

    def step(batch, blocks):
        if library == "dfgnn" and given == "trusted":
            blocks = trusted_graphs(blocks)
        elif library == "dfgnn" and given == "known":
            blocks = known_graphs(batch)
        adam.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(batch.x, blocks),
                                                 batch.y)
        loss.backward()
        adam.step()
        return loss
    return step


def times(step, found, options, clock):
    """Mean milliseconds of a step in each round, after some steps to warm up.
    Blocks are made before the clock starts, and the device is waited for at
    the end of a round only."""
    for number in range(options.warmup):
        batch = found[number % len(found)]
        step(batch, batch.fresh())
    rounds = []
    for _ in range(options.rounds):
        fresh = [batch.fresh() for batch in found]

        def once():
            for batch, blocks in zip(found, fresh):
                step(batch, blocks)
        rounds.append(clock.ms(once)[1] / len(found))
    return rounds


def compare(name, found, options, device):
    """Rows of a layer: rounds of both libraries take turns."""
    clock = Clock(device)
    forms = [("pyg", None)] + [("dfgnn", given) for given in options.given]
    steps = [step_of(library, name, given, options, device, found)
             for library, given in forms]
    spent = [[] for _ in forms]
    for turn in range(options.turns):
        for at, step in enumerate(steps):
            spent[at] += times(step, found, options, clock)
    medians = [statistics.median(ms) for ms in spent]
    for (_, given), ms in list(zip(forms, medians))[1:]:
        yield {"layer": name, "given": given, "pyg_ms": medians[0],
               "dfgnn_ms": ms, "speedup": medians[0] / ms}


# ---- the cost of a new graph ------------------------------------------------

def parts(found, options, device):
    """Median microseconds of the parts, over the larger blocks of all
    batches."""
    import dfgnn
    clock = Clock(device)
    rows = []
    heads, dim = options.heads, options.hidden // options.heads

    def both(graph, leaves, grad):
        out = dfgnn.gt_attention(graph, *leaves)
        torch.autograd.grad(out, leaves, grad)

    def leaves_of(sources, inner):
        return [torch.randn(n, heads, dim, device=device).requires_grad_()
                for n in (inner, sources, sources)]
    for form, options_of in (
            ("checked", {}),
            ("sorted", dict(sorted=True)),
            ("trusted", dict(sorted=True, trusted=True))):
        spent = {"graph_us": [], "new_us": [], "known_us": []}
        for repeat in range(2):  # the first round warms up
            for values in spent.values():
                values.clear()
            for batch in found:
                edges, sources, inner = batch.fresh()[0]
                leaves = leaves_of(sources, inner)
                grad = torch.randn(inner, heads, dim, device=device)
                graph, ms = clock.ms(lambda: dfgnn.Graph.from_edge_index(
                    edges, (sources, inner), **options_of))
                spent["graph_us"].append(1e3 * ms)
                spent["new_us"].append(
                    1e3 * clock.ms(lambda: both(graph, leaves, grad))[1])
                spent["known_us"].append(
                    1e3 * clock.ms(lambda: both(graph, leaves, grad))[1])
        rows.append(dict({key: statistics.median(values)
                          for key, values in spent.items()}, graph=form))
    return rows


# ---- reports ----------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output")
    parser.add_argument("--layers", default=",".join(LAYERS))
    parser.add_argument("--given", default=",".join(GIVEN))
    parser.add_argument("--seeds", type=int, default=1024)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2,
                        help="threads of the CPU")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--parts", action="store_true",
                        help="time the parts of a new graph instead")
    options = parser.parse_args()
    options.given = options.given.split(",")
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(options.threads)
    import dfgnn
    found = batches(options.batches, options, device)
    shapes = [f"{inner} x {sources}, {edges.size(1)} edges"
              for edges, sources, inner in found[0].blocks]
    name = device.type if device.type == "cpu" else \
        torch.cuda.get_device_name(device)
    about = {"device": name, "torch": torch.__version__,
             "version": dfgnn.version(), "hidden": options.hidden,
             "heads": options.heads, "blocks": "; ".join(shapes)}
    rows = []
    if options.parts:
        for row in parts(found, options, device):
            rows.append(dict(row, **about))
            print(f"{row['graph']:8} graph {row['graph_us']:7.0f} us, first "
                  f"forward and backward {row['new_us']:7.0f}, then "
                  f"{row['known_us']:7.0f}", file=sys.stderr)
    else:
        for layer in options.layers.split(","):
            for row in compare(layer, found, options, device):
                rows.append(dict(row, **about))
                print(f"{layer:16} {row['given']:10} PyG "
                      f"{row['pyg_ms']:8.3f} ms, dfgnn "
                      f"{row['dfgnn_ms']:8.3f} ms, {row['speedup']:.2f}x",
                      file=sys.stderr)
    write(options.output, rows)


if __name__ == "__main__":
    main()
