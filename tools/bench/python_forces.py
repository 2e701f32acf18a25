#!/usr/bin/env python3
"""Energies and forces of a SchNet-like model, before and after
dfgnn.accelerate: a training step with a loss on both, so that gradients of
gradients are taken.

Prints JSON: time of a step (of PyG's layers and of the accelerated ones, in
turns; of the CPU, or on a GPU of the clock, where the accelerated step is timed
as a CUDA graph, too: dfgnn.capture), the peak of memory beyond what was there
(resident, or the GPU's), and how far all are from the same in float64.

    python tools/bench/python_forces.py [--atoms 2000] [--neighbours 32] [--width 64]
        [--device cuda]
"""

import argparse
import copy
import functools
import json
import math
import os
import subprocess
import sys
import time

import torch
from torch_geometric.nn import MessagePassing

import dfgnn


class Interaction(MessagePassing):
    """SchNet's CFConv: neighbours times a filter of their distance."""

    def __init__(self, width, gaussians, cutoff):
        super().__init__(aggr="add", node_dim=0)
        self.cutoff = cutoff
        self.register_buffer("centres", torch.linspace(0, cutoff, gaussians))
        self.first = torch.nn.Linear(gaussians, width)
        self.send = torch.nn.Linear(width, width, bias=False)
        self.update_nn = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.Softplus(),
            torch.nn.Linear(width, width))

    def forward(self, x, pos, edge_index):
        out = self.propagate(edge_index, x=self.send(x), pos=pos)
        return x + self.update_nn(out)

    def message(self, x_j, pos_i, pos_j):
        distance = (pos_i - pos_j).square().sum(-1, keepdim=True).sqrt()
        spread = self.cutoff / (self.centres.numel() - 1)
        basis = torch.exp(-0.5 * ((distance - self.centres) / spread) ** 2)
        gate = 0.5 * (torch.cos(distance * math.pi / self.cutoff) + 1)
        return x_j * torch.nn.functional.softplus(self.first(basis)) * gate


class Model(torch.nn.Module):
    def __init__(self, width, gaussians, cutoff, layers):
        super().__init__()
        self.embed = torch.nn.Embedding(10, width)
        self.layers = torch.nn.ModuleList(
            Interaction(width, gaussians, cutoff) for _ in range(layers))
        self.out = torch.nn.Linear(width, 1)

    def forward(self, kind, pos, edge_index):
        x = self.embed(kind)
        for layer in self.layers:
            x = layer(x, pos, edge_index)
        return self.out(x).sum()


def step(model, kind, pos, edges, energy, force):
    """The loss and its gradients."""
    pos = pos.detach().requires_grad_()
    have = model(kind, pos, edges)
    forces = -torch.autograd.grad(have, pos, create_graph=True)[0]
    loss = (have - energy).square() + (forces - force).square().sum()
    model.zero_grad()
    loss.backward()
    return loss.detach(), forces.detach(), [
        p.grad.clone() for p in model.parameters()]


def resident(name):
    """The peak of resident memory of a first step beyond what was there before
    it, in MB, of a process of its own, whose allocator gives memory back."""
    environment = dict(os.environ, MALLOC_MMAP_THRESHOLD_="65536")
    made = subprocess.run(
        [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--memory",
         name], env=environment, check=True, capture_output=True, text=True)
    return float(made.stdout)


def print_resident(model, call):
    def read(name):
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) for line in file
                        if line.startswith(name)) / 1024
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before = read("VmRSS")
    step(model, *call)
    print(read("VmHWM") - before)


def allocated(model, call):
    """The peak of the GPU's memory beyond what was there, in MB."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(model, *call)
    return (torch.cuda.max_memory_allocated() - before) / 2 ** 20


def milliseconds(run, call):
    """The CPU's time of a step, or on a GPU that of the clock."""
    if call[0].is_cuda:
        torch.cuda.synchronize()
    clock = time.perf_counter if call[0].is_cuda else time.process_time
    begin = clock()
    run(*call)
    if call[0].is_cuda:
        torch.cuda.synchronize()
    return 1e3 * (clock() - begin)


def distance(a, b):
    """The largest difference of two results of step(), each relative to the
    largest number of its tensor."""
    worst = 0.0
    for x, y in zip([a[0], a[1], *a[2]], [b[0], b[1], *b[2]]):
        scale = float(y.abs().max()) or 1.0
        worst = max(worst, float((x.double() - y.double()).abs().max())
                    / scale)
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--atoms", type=int, default=2000)
    parser.add_argument("--neighbours", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--gaussians", type=int, default=16)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory", choices=["pyg", "dfgnn"],
                        help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.manual_seed(0)
    torch.set_default_device(given.device)
    pos = torch.rand(given.atoms, 3) * given.atoms ** (1 / 3)
    near = torch.cdist(pos, pos).topk(given.neighbours + 1,
                                      largest=False).indices[:, 1:]
    edges = torch.stack([near.flatten(), torch.arange(given.atoms)
                         .repeat_interleave(given.neighbours)])
    kind = torch.randint(0, 10, (given.atoms,))
    plain = Model(given.width, given.gaussians, 3.0, given.layers)
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    call = kind, pos, edges, torch.tensor(1.0), torch.zeros_like(pos)
    models = {"pyg": plain, "dfgnn": fast}
    if given.memory:
        print_resident(models[given.memory], call)
        return
    exact = step(copy.deepcopy(plain).double(), kind, pos.double(), edges,
                 call[3].double(), call[4].double())
    runs = {name: functools.partial(step, model)
            for name, model in models.items()}
    refused = None
    if pos.is_cuda:
        try:
            runs["captured"] = dfgnn.capture(
                functools.partial(step, copy.deepcopy(fast)), *call)
        except dfgnn.CaptureError as reason:
            refused = str(reason)
    found = {name: {"error": distance(run(*call), exact), "ms": math.inf}
             for name, run in runs.items()}
    for _ in range(given.rounds):
        for name, run in runs.items():
            found[name]["ms"] = min(found[name]["ms"],
                                    milliseconds(run, call))
    for name, model in models.items():
        found[name]["mb"] = allocated(model, call) if pos.is_cuda \
            else resident(name)
    print(json.dumps({
        "atoms": given.atoms, "edges": edges.size(1), "width": given.width,
        "layers": given.layers, "device": given.device,
        "threads": torch.get_num_threads(),
        "traced": len(report.traced), **found, "not_captured": refused,
        "times_as_fast": found["pyg"]["ms"] / found["dfgnn"]["ms"],
        "memory": found["dfgnn"]["mb"] / found["pyg"]["mb"]}, indent=1))


if __name__ == "__main__":
    main()
