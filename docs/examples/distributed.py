"""Trains a graph transformer on a graph that no rank holds whole.

    torchrun --nproc-per-node 2 docs/examples/distributed.py
    torchrun --nproc-per-node 8 docs/examples/distributed.py --nodes 2000000

The graph grows with the number of ranks: --nodes is for each.  Rank 0 makes
and divides it; then each rank loads its own part.  Parameters are DDP's.  At
the end it prints the memory of each rank and the scaling: the time of a step
over a graph of one rank's size on one device, divided by the time of a step
over the whole graph on all of them.
"""

import argparse
import datetime
import json
import os
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import dfgnn
from dfgnn.nn import TransformerConv


class Transformer(nn.Module):
    def __init__(self, features, width, heads, depth, classes):
        super().__init__()
        self.embed = nn.Linear(features, width)
        self.convs = nn.ModuleList(
            TransformerConv(width, width // heads, heads=heads)
            for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(depth))
        self.out = nn.Linear(width, classes)

    def forward(self, x, graph):
        h = self.embed(x)
        for conv, norm in zip(self.convs, self.norms):
            h = h + F.relu(conv(norm(h), graph))
        return self.out(h)


def generate(nodes, degree):
    """A graph with power-law degrees whose edges mostly lead to near nodes, as
    in communities."""
    return dfgnn.generate(
        f"powerlaw:nodes={nodes},edges={nodes * degree},"
        f"max-degree={min(nodes // 4, 4000)},columns=local")


def features_of(nodes, width, classes):
    """(features, classes) of nodes from their numbers, the same on each rank:
    nodes with near numbers are alike."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(1024, width, generator=generator)
    community = nodes // 256
    noise = torch.randn(nodes.numel(), width, generator=generator)
    return table[community % 1024] + noise, (community * 7) % classes


def step_ms(model, optimizer, graph, x, y, total, world, steps):
    """(median milliseconds of a step, the last loss, summed over ranks)."""
    times = []
    for _ in range(steps):
        if x.is_cuda:
            torch.cuda.synchronize()
        if world > 1:
            dist.barrier()
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, graph), y, reduction="sum") / total
        (loss * world).backward()  # DDP takes the mean over ranks
        optimizer.step()
        loss = loss.detach()
        if world > 1:
            dist.all_reduce(loss)
        loss = float(loss)
        times.append(time.perf_counter() - began)
    return 1e3 * sorted(times)[len(times) // 2], loss


def share_folder(make):
    """The path of a folder that rank 0 makes and fills."""
    box = [None]
    if dist.get_rank() == 0:
        box[0] = tempfile.mkdtemp(prefix="dfgnn-parts-")
        make(box[0])
    dist.broadcast_object_list(box, 0)
    return box[0]


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=20000,
                        help="nodes of each rank")
    parser.add_argument("--degree", type=int, default=16)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--halo", choices=["keep", "fetch"], default="keep")
    parser.add_argument("--method", choices=["metis", "range"],
                        default="metis")
    parser.add_argument("--checkpoint", help="file that training starts from, "
                        "if it exists, and that is written at the end; any "
                        "number of ranks can load it")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def prepared(args, device):
    torch.manual_seed(1)
    model = Transformer(16, args.width, args.heads, args.depth, 8).to(device)
    return model, torch.optim.Adam(model.parameters(), 0.005)


def alone(args, device):
    """Median milliseconds of a step over a graph of one rank's size, without
    other ranks."""
    graph = generate(args.nodes, args.degree).to(device)
    x, y = features_of(torch.arange(args.nodes), 16, 8)
    model, optimizer = prepared(args, device)
    return step_ms(model, optimizer, graph, x.to(device), y.to(device),
                   args.nodes, 1, max(3, args.steps // 4))[0]


def main():
    args = options()
    gpu = torch.cuda.is_available()
    device = torch.device("cpu")
    if gpu:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if gpu else "gloo",
                            timeout=datetime.timedelta(minutes=5))
    rank, world = dist.get_rank(), dist.get_world_size()
    single = alone(args, device)

    total = args.nodes * world
    folder = share_folder(lambda to: dfgnn.distributed.partition(
        generate(total, args.degree), world, args.method).save(to))
    graph = dfgnn.distributed.load(folder, device=device, halo=args.halo)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)

    x, y = features_of(torch.arange(total), 16, 8)
    x, y = graph.local_nodes(x), graph.local_nodes(y)
    model, optimizer = prepared(args, device)
    if args.checkpoint and os.path.exists(args.checkpoint):
        model.load_state_dict(torch.load(args.checkpoint, weights_only=True))
    parallel = nn.parallel.DistributedDataParallel(model)
    if gpu:
        torch.cuda.reset_peak_memory_stats()
    ms, loss = step_ms(parallel, optimizer, graph, x, y, total, world,
                       args.steps)
    if args.checkpoint and rank == 0:
        torch.save(model.state_dict(), args.checkpoint)
    row = dict(rank=rank, ranks=world, nodes=graph.num_dst,
               total_nodes=total, edges=graph.num_edges,
               halo=graph.num_src - graph.num_dst, step_ms=ms, alone_ms=single,
               scaling=single / ms, loss=loss, memory_mb=(
                   torch.cuda.max_memory_allocated() / 1e6 if gpu else None))
    rows = [None] * world
    dist.all_gather_object(rows, row)
    if rank == 0 and args.json:
        print(json.dumps(rows))
    elif rank == 0:
        for r in rows:
            memory = "" if r["memory_mb"] is None else \
                f", {r['memory_mb']:.0f} MB"
            print(f"rank {r['rank']}: {r['nodes']} of {total} nodes, "
                  f"{r['edges']} edges, halo {r['halo']}{memory}")
        print(f"a step takes {ms:.1f} ms, one over {args.nodes} nodes alone "
              f"{single:.1f} ms: scaling {single / ms:.2f}; loss {loss:.3f}")
    dist.barrier()  # nobody leaves while another still reads
    dist.destroy_process_group()
    # DistributedDataParallel keeps Gloo's threads alive. One that lets go of a
    # tensor while the interpreter ends aborts the process: it gets a second.
    time.sleep(1)


if __name__ == "__main__":
    main()
