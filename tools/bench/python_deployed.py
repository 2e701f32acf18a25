"""Whether the variant that is fastest by itself is the fastest one inside a training step.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so PATH=tools:$PATH \\
      python3 tools/bench/python_deployed.py GRAPH.npz... -o OUT.json

The tuner times a kernel again and again, so that its inputs may lie in the L2.  In a step of four
layers other kernels come between.  Each member of the forward pass is timed both ways: alone,
as the tuner does, and in a captured training step of a graph transformer, whose other
kernels are the same.  A row has, for a graph and problem, the milliseconds of each member alone and of
the step with it; `chosen` is the fastest alone, `loss` how much longer the step takes with it than
with the best member, and `kernel_loss` the same in units of the time of the kernel alone.
"""

import argparse
import json
import os
import subprocess

import numpy
import torch
from torch import nn

os.environ["DFGNN_EXTENSION"] = "0"  # which makes plans by itself

import dfgnn  # noqa: E402
from python_accuracy import Forced, TYPES, offered  # noqa: E402
from tables import write  # noqa: E402

LAYERS, CALLS = 4, 5


class Layer(nn.Module):
    def __init__(self, heads, dim):
        super().__init__()
        width = heads * dim
        self.shape = (-1, heads, dim)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, graph, x):
        q, k, v = (t.reshape(self.shape).contiguous() for t in self.qkv(x).chunk(3, -1))
        return self.norm(x + self.out(dfgnn.gt_attention(graph, q, k, v).reshape(x.shape)).relu())


def milliseconds(call, calls):
    """The median of calls, each by itself."""
    times = []
    for _ in range(calls):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[len(times) // 2]


def step_of(graph, nodes, heads, dim, dtype):
    """A captured training step."""
    torch.manual_seed(1)
    layers = nn.ModuleList(Layer(heads, dim) for _ in range(LAYERS)).to("cuda", dtype)
    optimizer = torch.optim.Adam(layers.parameters(), lr=1e-4, capturable=True)
    x = torch.randn(nodes, heads * dim, device="cuda", dtype=dtype)

    def step():
        optimizer.zero_grad()
        y = x
        for layer in layers:
            y = layer(graph, y)
        y.square().mean().backward()
        optimizer.step()
    return dfgnn.capture(step)


def alone(graph, nodes, heads, dim, dtype):
    q, k, v = (torch.randn(nodes, heads, dim, device="cuda", dtype=dtype) for _ in range(3))
    with torch.no_grad():
        dfgnn.gt_attention(graph, q, k, v)  # makes the plan and the workspace
        torch.cuda.synchronize()
        many = torch.cuda.CUDAGraph()
        with torch.cuda.graph(many):
            for _ in range(CALLS):
                dfgnn.gt_attention(graph, q, k, v)
    many.replay()
    return milliseconds(many.replay, 5) / CALLS


def measure(forced, path, heads, dim, dtype):
    with numpy.load(path) as file:
        offsets, source = (torch.from_numpy(file[name].astype(numpy.int64)).to("cuda")
                           for name in ("indptr", "indices"))
    nodes, times = offsets.numel() - 1, {}
    edges = torch.stack([source, torch.arange(nodes, device="cuda").repeat_interleave(
        offsets.diff())])
    for name in offered("gt", "forward", heads, dim, dtype, 0, path, "cuda"):
        forced.name, forced.served = name, False
        graph = dfgnn.as_graph(edges.clone(), nodes)
        one = alone(graph, nodes, heads, dim, TYPES[dtype])
        if not forced.served:
            continue
        step = step_of(graph, nodes, heads, dim, TYPES[dtype])
        for _ in range(6):
            step()
        times[name] = (one, milliseconds(step, 9))
        del step, graph
        torch.cuda.empty_cache()
    chosen, best = (min(times, key=lambda n: times[n][k]) for k in (0, 1))
    more = times[chosen][1] - times[best][1]
    return dict(graph=os.path.basename(path).removesuffix(".npz"), op="gt", heads=heads, dim=dim,
                dtype=dtype, chosen=chosen, best=best, loss=round(more / times[best][1], 4),
                kernel_loss=round(more / LAYERS / times[best][0], 4),
                members={n: [round(t, 4) for t in pair] for n, pair in times.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graphs", nargs="+", metavar="GRAPH")
    parser.add_argument("--problems", default="1x128:f32,8x16:f32,1x128:bf16")
    parser.add_argument("-o", "--out")
    options = parser.parse_args()
    dfgnn.measure(False)
    forced, rows = Forced(), []
    for path in options.graphs:
        for problem in options.problems.split(","):
            shape, dtype = problem.split(":")
            rows.append(measure(forced, path, *map(int, shape.split("x")), dtype))
            print(json.dumps(rows[-1]), flush=True)
            write(options.out, rows)


if __name__ == "__main__":
    main()
