#!/usr/bin/env python3
"""Times GINEConv and ResGatedGraphConv of dfgnn.nn.pyg beside those of PyG:
median ms (on a CPU of processor time) and peak MB beside the inputs; writes
JSON.

    tools/bench/python_messages.py [--device cuda] [-o FILE]
"""

import argparse
import json
import statistics
import time

import torch
import torch_geometric.nn as pyg

import dfgnn.nn.pyg as ours

# Graphs are (nodes, edges, nodes of a graph of the batch or 0 for one graph),
# with random edges: a batch in the size of ZINC, ogbn-arxiv and a mesh.  Cases
# are (name, graph, features, features per edge or None).
ZINC, ARXIV, MESH = (2944, 6400, 23), (169343, 1166243, 0), (40320, 645120, 0)
CASES = [("gine", ZINC, 64, 8), ("gine", ZINC, 64, 64), ("gine", ZINC, 128, 8),
         ("gine", ZINC, 128, 64), ("gine given", ZINC, 64, 64),
         ("gated", ZINC, 64, None), ("gated edges", ZINC, 64, 8),
         ("gine max", ZINC, 64, 8), ("gated max", ZINC, 64, None),
         ("gated moments", ZINC, 64, 8)]
CUDA_CASES = [("gine", ARXIV, 128, 11), ("gine", ARXIV, 128, 64),
              ("gine given", ARXIV, 128, 128), ("gated", ARXIV, 128, None),
              ("gine", MESH, 512, 11), ("gated edges", ARXIV, 128, 11),
              ("gine max", ARXIV, 128, 11), ("gated max", ARXIV, 128, None),
              ("gated moments", ARXIV, 128, 11)]


class Same(torch.nn.Module):
    """The identity in place of GINE's network, so that only messages count."""

    def __init__(self, features):
        super().__init__()
        self.in_features = features

    def forward(self, x):
        return x


def layer_of(module, name, dim, fields):
    aggr = "max" if name.endswith("max") else "add"
    if name == "gated moments":
        return module.ResGatedGraphConv(
            dim, dim, edge_dim=fields, root_weight=False, bias=False,
            aggr=["mean", "min", "max", "std"])
    if name.startswith("gated"):
        return module.ResGatedGraphConv(dim, dim, edge_dim=fields, aggr=aggr)
    edge_dim = None if name == "gine given" else fields
    return module.GINEConv(Same(dim), edge_dim=edge_dim, train_eps=True,
                           aggr=aggr)


def edges_of(nodes, edges, graph):
    first = torch.zeros(edges, dtype=torch.long)
    if graph:
        first = torch.arange(edges) * nodes // edges // graph * graph
    return torch.stack([
        (first + torch.randint(graph or nodes, (edges,))).clamp(max=nodes - 1)
        for _ in range(2)])


def measure(call, device, seconds=0.4):
    """(median ms, peak MB or None)."""
    clock, peak = time.process_time, None
    if device == "cuda":
        clock = time.perf_counter
    samples, end = [], time.time() + seconds
    for _ in range(3):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    while time.time() < end or len(samples) < 5:
        start = clock()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        samples.append(clock() - start)
    if device == "cuda":
        peak = round((torch.cuda.max_memory_allocated() - before) / 1e6, 1)
    return round(statistics.median(samples) * 1e3, 4), peak


def row_of(case, dtype, device):
    name, (nodes, edges, graph), dim, fields = case
    edge_index = edges_of(nodes, edges, graph).to(device)
    x = torch.randn(nodes, dim, device=device).to(dtype).requires_grad_()
    given = [x, edge_index]
    if fields is not None:
        given.append(torch.randn(edges, fields, device=device).to(
            dtype).requires_grad_())
    row = dict(name=name, nodes=nodes, edges=edges, dim=dim, fields=fields,
               dtype=str(dtype))
    for label, module in (("pyg", pyg), ("dfgnn", ours)):
        layer = layer_of(module, name, dim, fields).to(device, dtype)
        grad = torch.ones_like(layer(*given))

        def forward():
            with torch.no_grad():
                layer(*given)

        def both():
            for tensor in (*given, *layer.parameters()):
                tensor.grad = None
            layer(*given).backward(grad)
        for what, call in (("fwd", forward), ("both", both)):
            ms, peak = measure(call, device)
            row[f"{what}_{label}"] = ms
            if peak is not None:
                row[f"{what}_{label}_mb"] = peak
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    torch.manual_seed(0)
    cuda = args.device == "cuda"
    rows = []
    for dtype in (torch.float32, torch.bfloat16) if cuda else (torch.float32,):
        for case in CASES + (CUDA_CASES if cuda else []):
            rows.append(row_of(case, dtype, args.device))
            print(rows[-1], flush=True)
    if args.output:
        with open(args.output, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
