"""Times MLPs on edges: the library's kernels against what torch makes of them.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_mlp.py --device cuda -o OUT.json
    python3 tools/bench/python_mlp.py --table OUT.json

A block computes e' = LayerNorm(MLP([x_dst, x_src, e])) + e for each edge and
adds e' to its destination, forward and with the gradients of all tensors.  Edges
join a node to one of 2000 neighbours of its number, as a mesh in a good order
does.  The ways are

    dfgnn      dfgnn.edge_mlp
    cat        torch, with the tensors of an edge side by side
    sum        torch, with the first layer split by node
    compiled   torch.compile of `sum`

A block called EdgeConv has no features of edges, two layers with a ReLU, and the
maximum at each destination; there `dfgnn` is PyG's layer after
dfgnn.accelerate, and `cat` PyG's own.  The ways take turns, for --seconds a way
and pass.  On a GPU the median of a way's times counts; on a CPU the least, since
other work only adds to them.  Beside milliseconds a row has the bytes that a step takes from torch beyond its inputs
and gradients (on a GPU), and how far its
gradients are from those of `sum`.  Writes a flat JSON array.

    python3 tools/bench/python_mlp.py --device cuda --models -o OUT.json

This times training steps (forward, loss, backward, Adam) of whole models instead: a
MeshGraphNet of 15 blocks of 128 and a processor as GraphCast's, of 16 of 512, in
f32 and in bf16 autocast, with the peak of memory and the losses of the first
steps from the same parameters.  There the ways are `dfgnn`, dfgnn.nn.MeshBlock;
`dfgnn compiled`, torch.compile of it; and `compiled`, torch.compile of the same
block by torch's operations, whose first layer is split by node.  `torch` is that
without torch.compile.  Where `captured` stands behind a way, dfgnn.capture makes
one CUDA graph of its steps.
"""

import argparse
import copy
import json
import statistics
import time

import torch
import torch.nn.functional as F

import dfgnn
import dfgnn.nn
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
# name: edges, edges of a node, widths of a node and of a layer, types
EDGE_CONVS = {
    "EdgeConv 64": (40960, 20, 64, 64, ("float32", "bfloat16")),
    "EdgeConv 128": (40960, 20, 128, 128, ("float32", "bfloat16")),
}
WAYS = ("dfgnn", "cat", "sum", "compiled")
# name: blocks, width, hidden layers, edges, edges of a node
MODELS = {
    "MeshGraphNet 15 x 128": (15, 128, 2, 327660, 8),
    "GraphCast 16 x 512": (16, 512, 1, 327660, 8),
}
MODEL_WAYS = ("dfgnn", "dfgnn compiled", "dfgnn captured", "compiled",
              "compiled captured")


def mesh(edges, degree, device, generator):
    """(sources, destinations, the graph) of nodes that are joined to others of
    near numbers."""
    nodes = max(edges // degree, 4)
    dst = torch.arange(edges) * nodes // edges
    near = torch.randint(-1000, 1001, (edges,), generator=generator)
    src = ((dst + near) % nodes).to(device)
    dst = dst.to(device)
    return src, dst, dfgnn.Graph.from_edge_index(
        torch.stack([src, dst]), (nodes, nodes))


class Block:
    """The tensors of a block, and the ways to compute it."""

    def __init__(self, name, dtype, device, scale):
        edges, degree, width, widths, _ = BLOCKS[name]
        edges = max(int(edges * scale), 16)
        generator = torch.Generator().manual_seed(1)
        self.src, self.dst, self.graph = mesh(edges, degree, device, generator)
        self.nodes = self.graph.num_dst

        generator = torch.Generator(device).manual_seed(1)

        def numbers(*shape, factor=1.0):
            values = torch.randn(*shape, generator=generator, device=device)
            return (values * factor).to(dtype).requires_grad_()
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


class EdgeConv:
    """The same of PyG's EdgeConv."""

    def __init__(self, name, dtype, device, scale):
        from torch_geometric import nn
        edges, degree, width, out, _ = EDGE_CONVS[name]
        edges = max(int(edges * scale), 16)
        generator = torch.Generator().manual_seed(1)
        self.src, self.dst, self.graph = mesh(edges, degree, device, generator)
        self.nodes = self.graph.num_dst
        self.edge_index = torch.stack([self.src, self.dst])
        torch.manual_seed(1)
        self.layer = nn.EdgeConv(torch.nn.Sequential(
            torch.nn.Linear(2 * width, out), torch.nn.ReLU(),
            torch.nn.Linear(out, out))).to(device, dtype)
        self.fused = copy.deepcopy(self.layer)
        self.fused.nn = self.layer.nn
        dfgnn.accelerate(self.fused)
        self.x = torch.randn(self.nodes, width, generator=generator).to(
            device, dtype).requires_grad_()
        self.grads = [torch.randn(self.nodes, out, generator=generator).to(
            device, dtype)]
        self.tensors = [self.x, *self.layer.parameters()]

    def dfgnn(self):
        return (self.fused(self.x, self.edge_index),)

    def cat(self):
        return (self.layer(self.x, self.edge_index),)

    def sum(self):
        first, *rest = self.layer.nn
        to, at = first.weight.split(self.x.size(1), 1)
        z = F.linear(self.x, to - at, first.bias)[self.dst] + \
            F.linear(self.x, at)[self.src]
        for module in rest:
            z = module(z)
        out = z.new_zeros(self.nodes, z.size(1))
        return (out.scatter_reduce(0, self.dst.view(-1, 1).expand_as(z), z,
                                   "amax", include_self=False),)

    clear, step = Block.clear, Block.step


def on_gpu(device):
    return torch.device(device).type == "cuda"


def millisecond(function, device):
    if on_gpu(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)
    begin = time.perf_counter()
    function()
    return (time.perf_counter() - begin) * 1e3


def milliseconds(functions, device, seconds):
    """The time of a call of each, which take turns."""
    times, began = [], time.time()
    while len(times) < 3 or time.time() - began < seconds * len(functions):
        times.append([millisecond(f, device) for f in functions])
    return [(statistics.median if on_gpu(device) else min)(one)
            for one in zip(*times)]


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


def measure(name, dtype, ways, options):
    """The rows of a block."""
    device = options.device
    block = (Block if name in BLOCKS else EdgeConv)(
        name, getattr(torch, dtype), device, options.scale)
    # Each block is compiled anew: after eight of them torch runs it eagerly.
    torch._dynamo.reset()
    calls = [torch.compile(block.sum, dynamic=False) if way == "compiled"
             else getattr(block, way) for way in ways]

    def forward(call):
        def run():
            with torch.no_grad():
                call()
        return run

    def step(call):
        return lambda: block.step(call)
    rows = []
    for way, call in zip(ways, calls):
        free = free_bytes(device)
        block.step(call)
        forward(call)()
        taken = megabytes(block, call, device)
        block.clear()
        rows.append({
            "block": name, "dtype": dtype, "way": way,
            "edges": block.graph.num_edges, "nodes": block.nodes,
            "threads": None if on_gpu(device) else torch.get_num_threads(),
            "step_mb": taken,
            "library_mb": (free - free_bytes(device)) / 1e6
            if on_gpu(device) else None,
            "difference": difference(block, call)})
    for key, kind in (("forward_ms", forward), ("both_ms", step)):
        times = milliseconds([kind(call) for call in calls], device,
                             options.seconds)
        for row, taken in zip(rows, times):
            row[key] = taken
    return rows


# ---- models -----------------------------------------------------------------

def by_torch(block, x, src, dst, e):
    """What a dfgnn.nn.MeshBlock does, by torch's operations."""
    first, *rest = block.edge.mlp
    own, at, to = first.weight.split(x.size(1), 1)
    z = F.linear(x, at)[src] + F.linear(x, to)[dst]
    z = z + F.linear(e, own, first.bias)
    for module in rest:
        z = module(z)
    e = e + z
    total = torch.zeros(x.size(0), x.size(1), dtype=e.dtype, device=e.device)
    total = total.index_add(0, dst, e)
    return x + block.node(torch.cat([total, x], 1)), e


class Model(torch.nn.Module):
    """An encoder of nodes and of edges, blocks, and a decoder."""

    def __init__(self, name, way, device, scale):
        super().__init__()
        depth, width, hidden, edges, degree = MODELS[name]
        generator = torch.Generator().manual_seed(1)
        self.src, self.dst, self.graph = mesh(
            max(int(edges * scale), 16), degree, device, generator)
        torch.manual_seed(1)
        self.nodes, self.edges = torch.nn.Linear(4, width), torch.nn.Linear(
            4, width)
        self.blocks = torch.nn.ModuleList(
            dfgnn.nn.MeshBlock(width, hidden_layers=hidden)
            for _ in range(depth))
        self.out = torch.nn.Linear(width, 3)
        self.to(device)
        self.x, self.e, self.y = (
            torch.randn(rows, size, generator=generator).to(device)
            for rows, size in ((self.graph.num_dst, 4),
                               (self.graph.num_edges, 4),
                               (self.graph.num_dst, 3)))
        self.block = self.fused if way.startswith("dfgnn") else self.by_torch
        if "compiled" in way:
            self.block = torch.compile(self.block, dynamic=False)

    def fused(self, block, x, e):
        return block(x, self.graph, e)

    def by_torch(self, block, x, e):
        return by_torch(block, x, self.src, self.dst, e)

    def forward(self):
        x, e = self.nodes(self.x), self.edges(self.e)
        for block in self.blocks:
            x, e = self.block(block, x, e)
        return self.out(x)


def measure_model(name, dtype, way, options):
    device = torch.device(options.device)
    torch._dynamo.reset()
    model = Model(name, way, device, options.scale)
    threads = None if on_gpu(device) else torch.get_num_threads()
    adam = torch.optim.Adam(model.parameters(), 1e-3, fused=on_gpu(device),
                            capturable=on_gpu(device))

    def step():
        adam.zero_grad()
        with torch.autocast(device.type, torch.bfloat16,
                            enabled=dtype == "bfloat16"):
            out = model()
        loss = F.mse_loss(out.float(), model.y)
        loss.backward()
        adam.step()
        return loss.detach()
    if way.endswith("captured"):
        step = dfgnn.capture(step, device=device)
    losses = [float(step()) for _ in range(10)]
    if on_gpu(device):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    (taken,) = milliseconds([step], device, options.seconds)
    return {"model": name, "dtype": dtype, "way": way,
            "edges": model.graph.num_edges, "nodes": model.graph.num_dst,
            "threads": threads, "step_ms": taken, "losses": losses,
            "peak_mb": torch.cuda.max_memory_allocated() / 1e6
            if on_gpu(device) else None}


def models(options, write):
    rows = []
    for name in options.blocks or MODELS:
        for dtype in options.types or ("bfloat16", "float32"):
            for way in options.ways or MODEL_WAYS:
                if on_gpu(options.device):
                    torch.cuda.empty_cache()
                try:
                    row = measure_model(name, dtype, way, options)
                except torch.OutOfMemoryError:
                    row = {"model": name, "dtype": dtype, "way": way,
                           "step_ms": None}
                rows.append(row)
                write(rows)
    return rows


def model_table(rows):
    lines = ["| model | type | way | step ms | peak MB | loss, 1st and 10th |",
             "|---|---|---|---|---|---|"]
    for r in rows:
        if r["step_ms"] is None:
            cells = ["no memory", "", ""]
        else:
            cells = [f"{r['step_ms']:.2f}",
                     "" if r["peak_mb"] is None else f"{r['peak_mb']:.0f}",
                     f"{r['losses'][0]:.5f}, {r['losses'][-1]:.5f}"]
        lines.append("| " + " | ".join([r["model"], r["dtype"], r["way"],
                                        *cells]) + " |")
    return "\n".join(lines)


# ---- main -------------------------------------------------------------------

def blocks(options, write):
    rows = []
    for name in options.blocks or BLOCKS:
        for dtype in options.types or {**BLOCKS, **EDGE_CONVS}[name][4]:
            rows += measure(name, dtype, options.ways or WAYS, options)
            write(rows)
    return rows


def table(rows):
    if rows and "model" in rows[0]:
        return model_table(rows)
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
    parser.add_argument("--blocks", nargs="*",
                        help="names of blocks, or of models")
    parser.add_argument("--types", nargs="*")
    parser.add_argument("--ways", nargs="*")
    parser.add_argument("--models", action="store_true")
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

    def write(rows):  # each row is kept at once
        if options.output:
            with open(options.output, "w") as file:
                json.dump([{**row, "commit": commit} for row in rows], file,
                          indent=1)
                file.write("\n")
    print(table((models if options.models else blocks)(options, write)))


if __name__ == "__main__":
    main()
