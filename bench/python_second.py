#!/usr/bin/env python3
"""Gradients of gradients of operators: by edge programs, and by torch's operations
on every edge.

Prints JSON: for each operator the CPU's time (on a GPU the clock's) of a step
with two orders of derivatives, in turns, and the peak of memory that torch
allocates beyond what was there.

    python bench/python_second.py [--nodes 3000] [--degree 16] [--device cuda]
"""

import argparse
import json
import math
import time

import torch

import dfgnn
from dfgnn import _derived

SERVED = ("attention", "sum_out", "messages")


def calls(nodes, edges, heads, width, device):
    def some(*shape):
        return torch.randn(*shape, device=device, requires_grad=True)

    def rows(count):
        return some(count, heads, width)
    q, k, v, e = rows(nodes), rows(nodes), rows(nodes), rows(edges)
    a, b = some(nodes, heads), some(nodes, heads)
    weight = some(edges, heads)
    att = some(heads, width)
    yield "gt", lambda g: dfgnn.gt_attention(g, q, k, v), (q, k, v)
    yield "gt with edges", lambda g: dfgnn.gt_attention(
        g, q, k, v, edge_attr=e), (q, k, v, e)
    yield "gat", lambda g: dfgnn.gat_attention(g, v, a, b), (v, a, b)
    yield "gatv2", lambda g: dfgnn.gatv2_attention(g, q, v, att), (q, v, att)
    yield "weighted sum", lambda g: dfgnn.spmm(g, v, weight), (v, weight)
    yield "relu messages", lambda g: dfgnn.relu_messages(g, v, e), (v, e)
    yield "gated messages", lambda g: dfgnn.gated_messages(
        g, v, q, k), (v, q, k)


def step(function, graph, leaves):
    out = function(graph)
    first = torch.autograd.grad((out * out).sum(), leaves, create_graph=True)
    return torch.autograd.grad(sum((g * g).sum() for g in first), leaves)


def milliseconds(call, device):
    if device == "cpu":
        begin = time.process_time()
        call()
        return 1e3 * (time.process_time() - begin)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - begin)


def megabytes(call, device):
    """The most that torch has allocated at once beyond what was there."""
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / 2 ** 20
    with torch.profiler.profile(activities=[
            torch.profiler.ProfilerActivity.CPU],
            profile_memory=True) as profile:
        call()
    held = most = 0
    for event in sorted(profile.profiler.kineto_results.events(),
                        key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most / 2 ** 20


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--degree", type=int, default=16)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    edges = torch.randint(given.nodes, (2, given.nodes * given.degree))
    graph = dfgnn.as_graph(edges.to(given.device), given.nodes)
    own = {name: getattr(_derived, name) for name in SERVED}
    ways = {"programs": own, "operations": dict.fromkeys(
        SERVED, lambda *args: None)}
    rows = []
    for name, function, leaves in calls(
            given.nodes, edges.size(1), given.heads, given.width,
            given.device):
        row = {"operator": name}
        for turn in range(given.rounds + 1):
            for way, functions in ways.items():
                vars(_derived).update(functions)
                found = row.setdefault(way, {"ms": math.inf})

                def call():
                    step(function, graph, leaves)
                if turn:  # the first makes plans
                    found["ms"] = min(found["ms"],
                                      milliseconds(call, given.device))
                else:
                    call()
                    found["mb"] = megabytes(call, given.device)
        row["times_as_fast"] = row["operations"]["ms"] / row["programs"]["ms"]
        row["memory"] = row["programs"]["mb"] / row["operations"]["mb"]
        rows.append(row)
    vars(_derived).update(own)
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
