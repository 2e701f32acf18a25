"""Times products of rows in groups, each group with a matrix of its own, by the
ways that dfgnn._grouped chooses from.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_grouped.py [--device cuda] [-o OUT.json]

Writes a flat JSON array: milliseconds of a product with its gradients (the
median of rounds), by way: "loop", a product for each group; "tiles32" and
"tiles128", a batched product of tiles of so many rows; "kernel",
torch._grouped_mm; "chosen" names the one that is taken.
"""

import argparse
import statistics
import sys
import time

import numpy
import torch

from dfgnn import _grouped
from dfgnn._grouped import Groups

from tables import write

# groups, rows of all of them, features of a row and of its product
CASES = {"HGT, 140 small relations": (140, 1920, 64, 64),
         "70 types": (70, 7000, 64, 64),
         "RGCN of AIFB's size": (90, 9000, 16, 16),
         "266 relations": (266, 266000, 64, 64),
         "40 relations, 256 wide": (40, 80000, 256, 256),
         "20 relations": (20, 120000, 128, 128),
         "20 relations, 512 wide": (20, 20000, 512, 512)}
WAYS = {"loop": 1, "tiles32": 32, "tiles128": 128,
        "kernel": _grouped.ONE_KERNEL}


def seconds(run, device):
    if device.type != "cuda":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def measure(name, dtype, options, device):
    count, rows, width, out = CASES[name]
    random = numpy.random.default_rng(options.seed)
    sizes = random.multinomial(
        max(count, int(rows * options.scale)),
        random.dirichlet(numpy.full(count, 0.5))).tolist()
    row = {"case": name, "dtype": str(dtype).split(".")[1], "rows": rows,
           "groups": count, "width": width, "out": out}
    chosen = _grouped.alignment(sum(sizes), count, device, dtype, (width, out))
    runs = {}
    for way, align in WAYS.items():
        if align == chosen:
            row["chosen"] = way
        groups = Groups.of_sizes(sizes, device, align)
        x = torch.randn(groups.starts[-1], width, dtype=dtype, device=device,
                        requires_grad=True)
        weight = torch.randn(count, out, width, dtype=dtype, device=device,
                             requires_grad=True)
        bias = torch.randn(count, out, dtype=dtype, device=device,
                           requires_grad=True)
        grad = torch.randn(x.size(0), out, dtype=dtype, device=device)

        def run(groups=groups, given=(x, weight, bias), grad=grad):
            torch.autograd.grad(groups.linear(*given), given, grad)
        runs[way] = run
    times = {way: [] for way in runs}
    for turn in range(options.warmup + options.rounds):
        for way, run in runs.items():
            took = seconds(run, device)
            if turn >= options.warmup:
                times[way].append(1e3 * took)
    row.update((way, statistics.median(found))
               for way, found in times.items())
    return row



def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("-o", "--output")
    parser.add_argument("--types", default="bfloat16,float16,float32")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="of the numbers of rows")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    device = torch.device(options.device)
    about = {"torch": torch.__version__, "device": "cpu" if device.type ==
             "cpu" else torch.cuda.get_device_name(device)}
    rows = [dict(measure(name, getattr(torch, kind), options, device), **about)
            for name in CASES for kind in options.types.split(",")]
    write(options.output, rows)


if __name__ == "__main__":
    sys.exit(main())
