"""Times edge programs: the library's kernels against what torch makes of them.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_programs.py --device cuda -o OUT.json GRAPH...

A layer is one message function of 4 heads of 32 features, f32, with edge rows
[E, 4, 32]; forward, and forward with the gradients of all tensors.  A GRAPH is a
.npz file as dfgnn-graph writes it, or uniform:nodes=N,edges=E.  The ways are

    program    the kernels that are generated for the program, or on a CPU its
               evaluator (DFGNN_PROGRAMS=own)
    operator   the library's own operator, where the program is one
    eager      gathers, index_add and scatter_reduce

They take turns, and the least time of each counts.  Beside milliseconds a row
has the bytes that a step takes beyond its inputs and gradients (on a GPU), and
whether two runs have the same bits.  Writes a flat JSON array.
"""

import argparse
import functools
import os
import time

import torch

import dfgnn
from cases.case import load
from tables import write

HEADS, WIDTH = 4, 32


# ---- the layers -------------------------------------------------------------

def attention(i, j, e):
    score = (i.q * (j.k + e.x)).sum(-1) / WIDTH ** .5
    return dfgnn.softmax(score) * (j.v + e.x)


def per_channel(i, j, e):
    return dfgnn.softmax(i.q - j.k + e.x) * (j.v + e.x)


def filtered(j, e):
    return j.k * e.x


def gated(i, j):
    return torch.sigmoid(i.q + j.k) * j.v


def cosine(i, j):
    norms = (i.q * i.q).sum(-1) * (j.k * j.k).sum(-1)
    return dfgnn.softmax((i.q * j.k).sum(-1) * (norms + 1e-6).rsqrt()) * j.v


def difference(i, j):
    return j.k - i.q


def gt(i, j):
    return dfgnn.softmax((i.q * j.k).sum(-1) / WIDTH ** .5) * j.v


def gatv2(i, j, att):
    hidden = torch.nn.functional.leaky_relu(i.q + j.k, 0.2)
    return dfgnn.softmax((att * hidden).sum(-1)) * j.k


def summed(j):
    return j.k


LAYERS = {
    "attention with edge rows": (attention, "sum"),
    "softmax per channel": (per_channel, "sum"),
    "filter (CFConv)": (filtered, "sum"),
    "gated sum": (gated, "sum"),
    "cosine attention": (cosine, "sum"),
    "maximum of k - q": (difference, "max"),
    "GT": (gt, "sum"),
    "GATv2": (gatv2, "sum"),
    "sum": (summed, "sum"),
}


def inputs_of(function, graph, device, seed=1):
    """The tensors that a layer takes, by letter and name."""
    generator = torch.Generator(device).manual_seed(seed)

    def rows(*shape):
        return torch.randn(*shape, HEADS, WIDTH, device=device,
                           generator=generator, requires_grad=True)
    named = {"i": {"q": graph.num_dst}, "j": {"k": graph.num_src,
                                             "v": graph.num_src},
             "e": {"x": graph.num_edges}}
    names = function.__code__.co_varnames[:function.__code__.co_argcount]
    used = set(function.__code__.co_names)
    made = {letter: {n: rows(count) for n, count in named[letter].items()
                     if n in used} for letter in names if letter in named}
    if "att" in names:
        made["att"] = rows()
    return made


def leaves_of(inputs):
    for value in inputs.values():
        yield from value.values() if isinstance(value, dict) else (value,)


# ---- the ways ---------------------------------------------------------------

def own(way, call):
    """call() where operators run as programs, or do not."""
    def run():
        os.environ["DFGNN_PROGRAMS"] = "own" if way == "program" else ""
        return call()
    return run


def ways_of(function, reduce, graph, inputs):
    program = dfgnn.edge_program(function, reduce=reduce)
    call = functools.partial(program, graph, **inputs)
    composite = functools.partial(program, graph, composite=True, **inputs)
    ways = {"program": own("program", call)}
    if "operator" in program.explain(**inputs):
        ways["operator"] = own("operator", call)
    ways["eager"] = composite
    return ways


# ---- measuring --------------------------------------------------------------

def finish(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def step(call, leaves, backward):
    out = call()
    return (out, *torch.autograd.grad(out.square().sum(), leaves)) \
        if backward else (out,)


def least(ways, leaves, backward, device, seconds):
    """The milliseconds of each way, the least of calls in turns."""
    for call in ways.values():  # which compiles kernels
        step(call, leaves, backward)
    found = {name: float("inf") for name in ways}
    end = time.perf_counter() + seconds * len(ways)
    while True:
        for name, call in ways.items():
            finish(device)
            start = time.perf_counter()
            step(call, leaves, backward)
            finish(device)
            found[name] = min(found[name],
                              1e3 * (time.perf_counter() - start))
        if time.perf_counter() >= end:
            return found


def bytes_of(call, leaves, backward, device):
    """What a step takes beyond its results."""
    if device.type != "cuda":
        return None
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    made = step(call, leaves, backward)
    results = sum(t.numel() * t.element_size() for t in made)
    return torch.cuda.max_memory_allocated(device) - before - results


def repeats(call, leaves, backward):
    one, two = step(call, leaves, backward), step(call, leaves, backward)
    return all(torch.equal(a, b) for a, b in zip(one, two))


def measure(layer, graph_name, graph, device, options):
    function, reduce = LAYERS[layer]
    inputs = inputs_of(function, graph, device)
    leaves = list(leaves_of(inputs))
    ways = ways_of(function, reduce, graph, inputs)
    for backward in (False, True):
        found = least(ways, leaves, backward, device, options.seconds)
        for way, ms in found.items():
            yield {"layer": layer, "graph": graph_name, "way": way,
                   "pass": "both" if backward else "forward", "ms": ms,
                   "over_eager": found["eager"] / ms,
                   "bytes": bytes_of(ways[way], leaves, backward, device),
                   "repeats": repeats(ways[way], leaves, backward)}


def graph_of(spec, device):
    if spec.startswith("uniform:"):
        numbers = dict(part.split("=") for part in spec[8:].split(","))
        nodes, edges = int(numbers["nodes"]), int(numbers["edges"])
        generator = torch.Generator().manual_seed(1)
        ends = torch.randint(nodes, (2, edges), generator=generator)
    else:
        nodes, ends, _ = load(spec)
    return dfgnn.as_graph(ends.to(device), nodes)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="*", metavar="GRAPH")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--layers", nargs="*", choices=list(LAYERS),
                        default=list(LAYERS))
    parser.add_argument("--seconds", type=float, default=1,
                        help="time for each way of a layer and pass")
    parser.add_argument("-o", "--output", metavar="OUT.json")
    options = parser.parse_args()
    device = torch.device(options.device)
    about = {"torch": torch.__version__, "device": options.device}
    rows = []
    for spec in options.graphs:
        graph = graph_of(spec, device)
        name = os.path.splitext(os.path.basename(spec))[0]
        for layer in options.layers:
            rows += [dict(row, **about) for row in
                     measure(layer, name, graph, device, options)]
    write(options.output, rows)


if __name__ == "__main__":
    main()
