"""Times layers over parts of a graph against one GPU: strong and weak scaling,
how much of the exchange is hidden, memory of each rank.

    torchrun --nproc-per-node 2 tools/bench/distributed.py --graphs ppa,arxiv \\
        --out OUT/scaling.json

Each case is forward and backward of one layer without its projections.  Rank 0
times the whole graph alone, then all ranks time their parts, then their parts
with the exchange switched off.  With --weak rank 0 alone times its own nodes
and the edges between them, the work of one rank.

A graph is NAME.npz of --folder, or a specification of dfgnn-graph generate.
Times are medians of rounds in which all ranks start together; a round is the
slowest rank's.  Memory is that of the step, its tensors and the graph's
matrices.
"""

import argparse
import datetime
import gc
import json
import os
import time

import numpy
import torch
import torch.distributed as dist

import dfgnn
from dfgnn.distributed import DistGraph, partition

PROBLEMS = {
    "gt": lambda graph, t: dfgnn.gt_attention(graph, *t),
    "gat": lambda graph, t: dfgnn.gat_attention(graph, *t),
}


def tensors_of(op, nodes, heads, dim, dtype, device):
    """The inputs of the operator: equal rows for equal node numbers."""
    def new(*tail, dtype=dtype):
        # a function of the node's number: ranks make only their own rows
        count = 1
        for size in tail:
            count *= size
        phase = (nodes.to(torch.float64).view(-1, 1) * 0.7548776662
                 + torch.arange(count, device=device) * 0.5698402910)
        return torch.sin(phase * 37.0).view(-1, *tail).to(dtype)
    if op == "gt":
        made = [new(heads, dim) for _ in range(3)]
    else:
        made = [new(heads, dim), new(heads, dtype=torch.float32),
                new(heads, dtype=torch.float32)]
    return [t.requires_grad_() for t in made]


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


class Timer:
    """Median milliseconds of rounds; all ranks of the group start together."""

    def __init__(self, device, group, rounds):
        self.device, self.group, self.rounds = device, group, rounds

    def __call__(self, run, together=True):
        for _ in range(3):
            run()
        synchronize(self.device)
        times = []
        for _ in range(self.rounds):
            if together:
                dist.barrier(self.group)
            began = self._now()
            run()
            times.append(self._since(began))
        times = torch.tensor(times, device=self.device)
        if together:
            dist.all_reduce(times, dist.ReduceOp.MAX, group=self.group)
        return float(times.median())

    def _now(self):
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        synchronize(self.device)
        event.record()
        return event

    def _since(self, began):
        if self.device.type != "cuda":
            return 1e3 * (time.perf_counter() - began)
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        synchronize(self.device)
        return began.elapsed_time(event)


def step(op, graph, tensors, grad, captured=False):
    def run():
        for t in tensors:
            t.grad = None
        out = PROBLEMS[op](graph, tensors)
        out.backward(grad)
        return out, *[t.grad for t in tensors]
    return dfgnn.capture(run, copy=False, device=grad.device) if captured else run


def forget(run):
    """Frees a recording, for which the end of NCCL would wait."""
    if hasattr(run, "clear"):
        run.clear()
        gc.collect()


def graph_bytes(graph):
    """Bytes of a graph's matrices and of the library's views of them."""
    if graph.exchange is not None:
        return (graph_bytes(graph.split.interior)
                + graph_bytes(graph.split.outer) + graph.exchange.nbytes)
    return graph.nbytes + sum(t.numel() * t.element_size()
                              for t in (graph.offsets, graph.indices))


def memory_of(run, graph, tensors, device):
    """The peak MB of a step: the memory it adds, its tensors with their
    gradients and the graph."""
    if device.type != "cuda":
        return None
    for t in tensors:
        t.grad = None
    synchronize(device)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    synchronize(device)
    added = torch.cuda.max_memory_allocated() - before
    own = sum(t.numel() * t.element_size() for t in tensors)
    return (added + own + graph_bytes(graph)) / 1e6


def load_whole(name, folder, device):
    path = os.path.join(folder or "", name + ".npz")
    if folder and os.path.exists(path):
        with numpy.load(path) as z:
            offsets = torch.from_numpy(z["indptr"]).to(device)
            indices = torch.from_numpy(z["indices"]).to(device)
        return dfgnn.Graph(offsets, indices, name=name)
    return dfgnn.generate(name).to(device)


def split(name, args, rank, world, folder):
    """The part of this rank; rank 0 divides the graph."""
    cell = [None]
    if rank == 0:
        graph = load_whole(name, args.folder, "cpu")
        method = args.method.get(name.split(":")[0].split("=")[-1], "metis")
        began = time.perf_counter()
        parts = partition(graph, world, method)
        parts.save(folder)
        cell[0] = dict(method=method, seconds=time.perf_counter() - began)
        del graph, parts
    dist.broadcast_object_list(cell, 0)
    return dfgnn.distributed.Part.load(os.path.join(
        folder, f"part-{rank}-of-{world}.npz")), cell[0]


def measure_case(op, heads, dim, dtype, alone, mine, args, timer, device, rank):
    """One row of results; rank 0 times `alone` on its GPU: the whole graph, or with
    args.weak its own nodes and the edges between them."""
    found = dict(op=op, heads=heads, dim=dim,
                 dtype=str(dtype).replace("torch.", ""))
    cell, wanted = [None, None], None

    def step_over(graph, nodes):
        tensors = tensors_of(op, nodes, heads, dim, dtype, device)
        grad = torch.cos(tensors[0].detach().float() * 3).to(dtype)
        return tensors, step(op, graph, tensors, grad, args.captured)
    if rank == 0:
        tensors, run = step_over(alone, mine.nodes if args.weak else
                                 torch.arange(alone.num_dst, device=device))
        cell = [timer(run, together=False), memory_of(run, alone, tensors, device)]
        wanted = [t.detach().cpu() for t in run()]
        forget(run)
        del tensors, run
        torch.cuda.empty_cache() if device.type == "cuda" else None
    dist.barrier()
    tensors, run = step_over(mine, mine.nodes)
    error = None if args.weak else errors(wanted, run(), mine, rank)
    together = timer(run)
    mine_peak = memory_of(run, mine, tensors, device)
    forget(run)
    mine.exchange.enabled = False
    without = timer(run)
    mine.exchange.enabled = True
    forget(run)
    bare = timer(lambda: exchange_alone(op, mine, tensors))
    peaks = [None] * dist.get_world_size()
    dist.all_gather_object(peaks, mine_peak)
    dist.broadcast_object_list(cell, 0)
    single, peak = cell
    found.update(single_ms=single, ranks_ms=together,
                 scaling=single / together,
                 without_exchange_ms=without, exchange_alone_ms=bare,
                 hidden=1 - max(0.0, together - without) / bare if bare else 1,
                 single_peak_mb=peak, peak_mb=peaks, error=error)
    return found


def exchange_alone(op, graph, tensors):
    """Runs the exchanges of a step, and nothing else."""
    exchange = graph.exchange
    shipped = tensors[1:] if op == "gt" else [tensors[0], tensors[2]]
    shipped = [t.detach() for t in shipped]
    pending = exchange.start(shipped)
    pending.wait()
    pending.done()
    buffer, _ = exchange.begin_back(pending.layout)
    pending = exchange.start_back(pending.layout, buffer)
    pending.wait()
    pending.done()


def errors(wanted, found, graph, rank):
    """The largest difference of any output or gradient from rank 0's single
    process, relative to the largest value; every 16th row is compared."""
    rows = [None] * dist.get_world_size() if rank == 0 else None
    dist.gather_object([(graph.nodes[::16].cpu(), t.detach()[::16].cpu())
                        for t in found], rows, dst=0)
    if rank:
        return None
    worst = 0.0
    for parts in rows:
        for want, (nodes, values) in zip(wanted, parts):
            want = want[nodes].float()
            scale = float(want.abs().max()) if want.numel() else 1.0
            off = (values.float() - want).abs()
            worst = max(worst, float(off.max()) / max(scale, 1e-30)
                        if off.numel() else 0.0)
    return worst


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--graphs", default="preset=arxiv,scale=0.1",
                        help="specifications separated by ';', or names of "
                        "files separated by ','")
    parser.add_argument("--folder", help="the folder of NAME.npz")
    parser.add_argument("--range", default="", dest="ranged",
                        help="graphs to divide by range, separated by ','")
    parser.add_argument("--problems", default="gt:8x16,gat:8x16,gt:16x32,"
                        "gat:16x32")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=float, default=1e9,
                        help="seconds after which no case is begun")
    parser.add_argument("--weak", action="store_true",
                        help="one GPU times the nodes of one rank only")
    parser.add_argument("--captured", action="store_true",
                        help="steps are recorded once (dfgnn.capture) and replayed")
    parser.add_argument("--work", default="/tmp")
    parser.add_argument("--out")
    args = parser.parse_args()
    args.method = {name: "range" for name in args.ranged.split(",") if name}
    return args


def main():
    args = options()
    began = time.perf_counter()
    gpu = torch.cuda.is_available()
    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo",
                            timeout=datetime.timedelta(minutes=3))
    rank, world = dist.get_rank(), dist.get_world_size()
    timer = Timer(device, None, args.rounds)
    names = args.graphs.split(";" if ":" in args.graphs or "=" in args.graphs
                              else ",")
    rows = []
    for name in names:
        folder = os.path.join(args.work, "parts-" + str(abs(hash_of(name))))
        part, how = split(name, args, rank, world, folder)
        mine = DistGraph(part, device=device)
        whole = None
        if rank == 0:
            whole = mine.split.interior if args.weak else load_whole(
                name, args.folder, device)
        info = dict(graph=name, ranks=world, weak=args.weak, **how,
                    nodes=mine.total_nodes, edges=mine.total_edges,
                    part_nodes=mine.num_dst, part_edges=mine.num_edges,
                    halo=mine.exchange.num_halo,
                    sends=mine.exchange.num_sends)
        parts = [None] * world
        dist.all_gather_object(parts, info)
        for problem in args.problems.split(","):
            late = torch.tensor(float(time.perf_counter() - began),
                                device=device)
            dist.all_reduce(late, dist.ReduceOp.MAX)
            if float(late) > args.limit:
                break
            op, shape = problem.split(":")
            heads, dim = map(int, shape.split("x"))
            row = measure_case(op, heads, dim, getattr(torch, args.dtype), whole,
                               mine, args, timer, device, rank)
            row.update(graph=name, method=how["method"], ranks=world,
                       weak=args.weak, nodes=mine.total_nodes,
                       edges=mine.total_edges,
                       halo=[p["halo"] for p in parts],
                       part_nodes=[p["part_nodes"] for p in parts],
                       part_edges=[p["part_edges"] for p in parts],
                       partition_s=how["seconds"])
            rows.append(row)
            if rank == 0:
                print(json.dumps({k: float(f"{v:.4g}")
                                  if isinstance(v, float) else v
                                  for k, v in row.items() if k in (
                    "graph", "op", "heads", "dim", "single_ms", "ranks_ms",
                    "scaling", "without_exchange_ms", "exchange_alone_ms",
                    "hidden", "single_peak_mb", "peak_mb", "error", "halo")}),
                    flush=True)
                if args.out:
                    with open(args.out, "w") as out:
                        json.dump(rows, out, indent=1)
        del mine, whole
        if gpu:
            torch.cuda.empty_cache()
    dist.destroy_process_group()


def hash_of(name):
    found = 0
    for c in name:
        found = (found * 131 + ord(c)) % (1 << 31)
    return found


if __name__ == "__main__":
    main()
