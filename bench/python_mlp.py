"""Times MLPs on edges: the library's kernels against what torch makes of them.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 bench/python_mlp.py --device cuda -o OUT.json
    python3 bench/python_mlp.py --table OUT.json

A block computes e' = LayerNorm(MLP([x_dst, x_src, e])) + e for each edge and
adds e' to its destination, forward and with the gradients of all tensors.  Edges
join a node to one of 2000 neighbours of its number, as a mesh in a good order
does.  The ways are

    dfgnn      dfgnn.edge_mlp
    cat        torch, with the tensors of an edge side by side
    sum        torch, with the first layer split by node
    compiled   torch.compile of `sum`

Each is timed by itself, for --seconds a pass, and the median counts.  Beside
milliseconds a row has the bytes that a step takes from torch beyond its inputs
and gradients, and those that the library keeps (on a GPU), and how far its
gradients are from those of `sum`.  Writes a flat JSON array.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

import dfgnn
from python_layers import git_commit

# name: edges, edges of a node, width of e, widths of layers, types
BLOCKS = {
    "MeshGraphNet 128": (327660, 8, 128, (128, 128, 128),
                         ("bfloat16", "float32")),
    "MeshGraphNet 128, large": (1200000, 8, 128, (128, 128, 128),
                                ("bfloat16", "float32")),
    "ORB 256": (400000, 20, 256, (512, 256), ("bfloat16",)),
    "GraphCast 512": (327660, 8, 512, (512, 512), ("bfloat16",)),
}
WAYS = ("dfgnn", "cat", "sum", "compiled")


class Block:
    """The tensors of a block, and the ways to compute it."""

    def __init__(self, name, dtype, device, scale):
        edges, degree, width, widths, _ = BLOCKS[name]
        edges = max(int(edges * scale), 16)
        self.nodes = max(edges // degree, 4)
        generator = torch.Generator().manual_seed(1)
        self.dst = torch.arange(edges) * self.nodes // edges
        near = torch.randint(-1000, 1001, (edges,), generator=generator)
        self.src = (self.dst + near) % self.nodes
        self.dst, self.src = self.dst.to(device), self.src.to(device)
        self.graph = dfgnn.Graph.from_edge_index(
            torch.stack([self.src, self.dst]), (self.nodes, self.nodes))

        def numbers(*shape, factor=1.0):
            values = torch.randn(*shape, generator=generator) * factor
            return values.to(device, dtype).requires_grad_()
        ins = (3 * width, *widths[:-1])
        self.weights = [numbers(out, size, factor=size ** -.5)
                        for out, size in zip(widths, ins)]
        self.biases = [numbers(out, factor=.1) for out in widths]
        self.scale, self.shift = numbers(widths[-1]), numbers(widths[-1])
        self.x, self.e = numbers(self.nodes, width), numbers(edges, width)
        self.width = width
        self.grads = [numbers(edges, width).detach(),
                      numbers(self.nodes, width).detach()]
        self.tensors = [self.x, self.e, self.scale, self.shift,
                        *self.weights, *self.biases]

    def dfgnn(self):
        return dfgnn.edge_mlp(
            self.graph, self.weights, self.biases, dst=self.x, src=self.x,
            edge=self.e, activation="silu", norm="layer",
            norm_weight=self.scale, norm_bias=self.shift, residual=True,
            edges=True)

    def finish(self, z):
        for weight, bias in zip(self.weights[1:], self.biases[1:]):
            z = F.linear(F.silu(z), weight, bias)
        e = F.layer_norm(z, (self.width,), self.scale, self.shift) + self.e
        sums = torch.zeros(self.nodes, self.width, dtype=e.dtype,
                           device=e.device)
        return e, sums.index_add(0, self.dst, e)

    def cat(self):
        rows = torch.cat([self.x[self.dst], self.x[self.src], self.e], 1)
        return self.finish(F.linear(rows, self.weights[0], self.biases[0]))

    def sum(self):
        to, at, own = self.weights[0].split(self.width, 1)
        z = F.linear(self.x, to)[self.dst] + F.linear(self.x, at)[self.src]
        return self.finish(z + F.linear(self.e, own, self.biases[0]))

    def clear(self):
        for tensor in self.tensors:
            tensor.grad = None

    def step(self, way):
        self.clear()
        torch.autograd.backward(way(), self.grads)


def on_gpu(device):
    return torch.device(device).type == "cuda"


def milliseconds(function, device, seconds):
    """The median of the times of calls, in turn."""
    times, began = [], time.time()
    while len(times) < 3 or time.time() - began < seconds:
        if on_gpu(device):
            begin, end = (torch.cuda.Event(enable_timing=True)
                          for _ in range(2))
            begin.record()
            function()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        else:
            begin = time.perf_counter()
            function()
            times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def megabytes(block, way, device):
    """The memory that a step takes from torch beyond inputs and gradients."""
    if not on_gpu(device):
        return None
    block.clear()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    block.step(way)
    torch.cuda.synchronize()
    grads = sum(t.grad.numel() * t.grad.element_size() for t in block.tensors)
    return (torch.cuda.max_memory_allocated() - before - grads) / 1e6


def free_bytes(device):
    if not on_gpu(device):
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def difference(block, way):
    block.step(block.sum)
    wanted = [t.grad.double() for t in block.tensors]
    block.step(way)
    return max(((t.grad.double() - w).norm() / w.norm()).item()
               for t, w in zip(block.tensors, wanted))


def measure(name, dtype, way, options):
    device = options.device
    block = Block(name, getattr(torch, dtype), device, options.scale)
    call = (torch.compile(block.sum, dynamic=False) if way == "compiled"
            else getattr(block, way))

    def forward():
        with torch.no_grad():
            call()
    free = free_bytes(device)
    block.step(call)
    forward()
    taken = megabytes(block, call, device)
    block.clear()
    kept = (free - free_bytes(device)) / 1e6 if on_gpu(device) else None
    return {"block": name, "dtype": dtype, "way": way,
            "edges": block.e.size(0), "nodes": block.nodes,
            "forward_ms": milliseconds(forward, device, options.seconds),
            "both_ms": milliseconds(lambda: block.step(call), device,
                                    options.seconds),
            "step_mb": taken, "library_mb": kept,
            "difference": difference(block, call)}


def table(rows):
    lines = ["| block | type | way | forward ms | both ms | MB | library MB | "
             "difference |", "|---|---|---|---|---|---|---|---|"]
    for r in rows:
        memory = ["" if r[k] is None else f"{r[k]:.0f}"
                  for k in ("step_mb", "library_mb")]
        lines.append("| " + " | ".join([
            r["block"], r["dtype"], r["way"], f"{r['forward_ms']:.3f}",
            f"{r['both_ms']:.3f}", *memory, f"{r['difference']:.1e}"]) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", nargs="*", default=list(BLOCKS))
    parser.add_argument("--types", nargs="*")
    parser.add_argument("--ways", nargs="*", default=list(WAYS))
    parser.add_argument("--scale", type=float, default=1.0,
                        help="of the number of edges")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--commit", default=None)
    parser.add_argument("-o", "--output")
    parser.add_argument("--table", metavar="JSON")
    options = parser.parse_args()
    if options.table:
        with open(options.table) as file:
            print(table(json.load(file)))
        return
    torch.set_float32_matmul_precision("high")
    commit = options.commit or git_commit()
    rows = []
    for name in options.blocks:
        for dtype in options.types or BLOCKS[name][4]:
            for way in options.ways:
                row = measure(name, dtype, way, options)
                rows.append({**row, "commit": commit})
    print(table(rows))
    if options.output:
        with open(options.output, "w") as file:
            json.dump(rows, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
