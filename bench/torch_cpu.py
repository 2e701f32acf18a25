#!/usr/bin/env python3
"""Times layers composed of torch operators on the CPU, as PyG composes them.

    python3 -m venv venv && venv/bin/pip install torch numpy
    venv/bin/python bench/torch_cpu.py --dim 128 --threads 2 GRAPH.npz...

Rows are gathered by index_select, the softmax over a destination's edges is
scatter_reduce (amax) and index_add, the weighted rows are summed by index_add:
so does PyG's message passing without its optional extensions.  SpMM is
torch.sparse.mm on a CSR tensor; a reduction is the faster of torch.sparse.mm
with reduce= and of index_select with scatter_reduce, where both exist.  Prints
a flat JSON array with the keys of dfgnn-bench.
"""
import argparse
import json
import math
import os
import sys
import time

import numpy
import torch

SCORES = ("gt", "agnn", "gat", "gatv2")


def load(path):
    file = numpy.load(path)
    offsets = torch.from_numpy(file["indptr"].astype(numpy.int64))
    sources = torch.from_numpy(file["indices"].astype(numpy.int64))
    rows, columns = (int(x) for x in file["shape"])
    destinations = torch.repeat_interleave(torch.arange(rows), offsets.diff())
    return rows, columns, destinations, sources


def softmax(score, index, rows):
    """As torch_geometric.utils.softmax."""
    wide = index.unsqueeze(-1).expand_as(score)
    top = score.new_full((rows, score.size(1)), -math.inf)
    top = top.scatter_reduce(0, wide, score, "amax")
    weight = (score - top.index_select(0, index)).exp()
    total = score.new_zeros(rows, score.size(1)).index_add_(0, index, weight)
    return weight / (total.index_select(0, index) + 1e-16)


def scatter(x, index, rows, reduce):
    """As torch_geometric.utils.scatter, of rows by destination."""
    wide = index.unsqueeze(-1).expand_as(x)
    out = x.new_zeros(rows, x.size(1))
    return out.scatter_reduce_(0, wide, x, reduce, include_self=False)


def aggregations(op, graph, features, dtype):
    """The ways to compute the aggregation, as functions that run it once."""
    rows, columns, to, source = graph
    x = torch.randn(columns, features, dtype=dtype)
    degree = torch.bincount(to, minlength=rows)
    offsets = torch.cat([degree.new_zeros(1), degree.cumsum(0)])
    weight = torch.ones(source.numel(), dtype=dtype)
    if op == "spmm-weighted":
        weight = torch.randn(source.numel(), dtype=dtype)
    matrix = torch.sparse_csr_tensor(offsets, source, weight, (rows, columns))
    inverse = (1 / degree.clamp(min=1)).to(dtype).unsqueeze(-1)

    def gathered():
        return x.index_select(0, source)

    def std(v, mean):
        var = scatter(v * v, to, rows, "mean") - mean * mean
        out = var.clamp(min=1e-5).sqrt()
        return out.masked_fill(out <= math.sqrt(1e-5), 0)

    def pna():
        v = gathered()
        mean = scatter(v, to, rows, "mean")
        return (mean, scatter(v, to, rows, "amin"),
                scatter(v, to, rows, "amax"), std(v, mean))

    def deviation():
        v = gathered()
        return std(v, scatter(v, to, rows, "mean"))

    spmm = {"spmm-sum": [lambda: matrix @ x],
            "spmm-weighted": [lambda: matrix @ x],
            "spmm-mean": [lambda: (matrix @ x) * inverse]}
    spmm["reduce-mean"] = spmm["spmm-mean"]
    if op in spmm:
        return spmm[op]
    if op in ("reduce-min", "reduce-max"):
        name = "a" + op[-3:]
        return [lambda: torch.sparse.mm(matrix, x, name),
                lambda: scatter(gathered(), to, rows, name)]
    return [{"reduce-std": deviation, "reduce-pna": pna}[op]]


def layer(op, graph, heads, dim, dtype):
    """A function of no arguments that runs the layer once."""
    rows, columns, to, source = graph
    query = torch.randn(rows, heads, dim, dtype=dtype)
    key = torch.randn(columns, heads, dim, dtype=dtype)
    value = torch.randn(columns, heads, dim, dtype=dtype)
    a = torch.randn(rows, heads, dtype=dtype)
    b = torch.randn(columns, heads, dtype=dtype)
    att = torch.randn(1, heads, dim, dtype=dtype)

    def gt():
        q, k = query.index_select(0, to), key.index_select(0, source)
        return (q * k).sum(-1) / math.sqrt(dim), value.index_select(0, source)

    def agnn():
        q = torch.nn.functional.normalize(query, dim=-1).index_select(0, to)
        k = torch.nn.functional.normalize(value, dim=-1).index_select(0, source)
        return (q * k).sum(-1), value.index_select(0, source)

    def gat():
        score = a.index_select(0, to) + b.index_select(0, source)
        score = torch.nn.functional.leaky_relu(score, 0.2)
        return score, value.index_select(0, source)

    def gatv2():
        v = value.index_select(0, source)
        x = torch.nn.functional.leaky_relu(query.index_select(0, to) + v, 0.2)
        return (x * att).sum(-1), v

    score_of = {"gt": gt, "agnn": agnn, "gat": gat, "gatv2": gatv2}[op]

    def run():
        score, rows_of_edges = score_of()
        weight = softmax(score, to, rows)
        message = rows_of_edges * weight.unsqueeze(-1)
        out = message.new_zeros(rows, heads, dim)
        return out.index_add_(0, to, message)

    return run


def measure(run, seconds):
    run()
    samples = []
    begin = time.perf_counter()
    while len(samples) < 3 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        run()
        samples.append(1e3 * (time.perf_counter() - start))
    samples.sort()
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graphs", nargs="+", metavar="GRAPH.npz")
    parser.add_argument("--op", default="gt", help="comma-separated")
    parser.add_argument("--dim", default="128", help="comma-separated")
    parser.add_argument("--heads", default="1", help="comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=2, help="a problem")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    results = []
    for path in arguments.graphs:
        graph = load(path)
        for op in arguments.op.split(","):
            for dim in (int(x) for x in arguments.dim.split(",")):
                for heads in (int(x) for x in arguments.heads.split(",")):
                    with torch.inference_mode():
                        if op in SCORES:
                            runs = [layer(op, graph, heads, dim,
                                          torch.float32)]
                        else:
                            runs = aggregations(op, graph, heads * dim,
                                                torch.float32)
                        samples = min((measure(run, arguments.seconds)
                                       for run in runs),
                                      key=lambda s: s[len(s) // 2])
                    results.append({
                        "graph": os.path.basename(path).removesuffix(".npz"),
                        "op": op, "pass": "forward", "dim": dim,
                        "heads": heads, "dtype": "f32", "device": "cpu",
                        "backend": "torch-" + torch.__version__,
                        "variant": "torch.composed",
                        "threads": arguments.threads,
                        "median_ms": samples[len(samples) // 2],
                        "best_ms": samples[0], "samples": len(samples),
                        "status": "ok"})
                    print(results[-1]["graph"], op, dim, heads,
                          f"{results[-1]['median_ms']:.3f} ms",
                          file=sys.stderr)
    json.dump(results, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
