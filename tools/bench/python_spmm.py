#!/usr/bin/env python3
"""Times sums over neighbours, plain and weighted, beside cuSPARSE's SpMM.

    tools/bench/python_spmm.py [--device cuda] [--tune SECONDS] [-o FILE] GRAPH.npz|FOLDER...

On a GPU cuSPARSE is the best of its algorithms for CSR, with descriptors and
buffers kept and preprocessing done before; both sides are CUDA graphs of the
same number of calls, timed in turns.  On a CPU it is torch.sparse's product.
Weights are given to each side in the type that it reads, so that neither converts
them in each call: floats to dfgnn, the features' type to cuSPARSE, which has no
other, and no TF32 for CSR either.  Results are compared first.  Writes a flat JSON array: a row for each graph,
width, type and operator with the median us of both and dfgnn's variant.  With --tune dfgnn measures
its kernels before, for so many seconds a problem; without it its stores, its
model or its rule choose.
"""

import argparse
import ctypes
import glob
import math
import os
import statistics
import sys
import time

import numpy
import torch

import dfgnn

from tables import write

# Values of NVIDIA's cusparse.h and library_types.h.
PLAIN, ORDER_ROW, I32 = 0, 2, 2  # of operations, orders and indices
TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}
F32 = 0
ALGORITHMS = {"default": 0, "csr1": 4, "csr2": 6, "csr3": 12}
NAMES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Cusparse:
    """Products of one CSR matrix by dense ones, by NVIDIA's library."""

    def __init__(self):
        folder = os.path.dirname(os.path.dirname(torch.__file__))
        found = glob.glob(f"{folder}/nvidia/**/libcusparse.so*", recursive=True)
        self.library = ctypes.CDLL((found or ["libcusparse.so.12"])[0])
        self.handle = self.made("cusparseCreate")

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} returned {status}")

    def made(self, name, *arguments):
        to = ctypes.c_void_p()
        self.call(name, ctypes.byref(to), *arguments)
        return to

    def dense(self, x):
        return self.made("cusparseCreateDnMat", *map(
            ctypes.c_int64, (*x.shape, x.size(1))),
            ctypes.c_void_p(x.data_ptr()), TYPES[x.dtype], ORDER_ROW)

    def product(self, offsets, indices, values, x, algorithm):
        """A function that computes the product, and the tensor that it fills."""
        out = x.new_empty(offsets.numel() - 1, x.size(1))
        matrix = self.made(
            "cusparseCreateCsr",
            *map(ctypes.c_int64, (out.size(0), x.size(0), indices.numel())),
            *(ctypes.c_void_p(t.data_ptr()) for t in (offsets, indices, values)),
            I32, I32, 0, TYPES[values.dtype])
        one, zero, size = (ctypes.c_float(1), ctypes.c_float(0),
                           ctypes.c_size_t())
        given = (self.handle, PLAIN, PLAIN, ctypes.byref(one), matrix,
                 self.dense(x), ctypes.byref(zero), self.dense(out), F32,
                 algorithm)
        self.stream()
        self.call("cusparseSpMM_bufferSize", *given, ctypes.byref(size))
        buffer = x.new_empty(size.value + 1, dtype=torch.uint8)
        at = ctypes.c_void_p(buffer.data_ptr())
        if algorithm != ALGORITHMS["default"]:
            self.call("cusparseSpMM_preprocess", *given, at)
        kept = offsets, indices, values, x, one, zero, buffer

        def run(kept=kept):
            self.call("cusparseSpMM", *given, at)
        return run, out

    def stream(self):
        self.call("cusparseSetStream", self.handle,
                  ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))


def load(path):
    """(rows, columns, offsets, indices) of a matrix of scipy.sparse."""
    with numpy.load(path) as file:
        return (*map(int, file["shape"]),
                torch.from_numpy(file["indptr"].astype(numpy.int32)),
                torch.from_numpy(file["indices"].astype(numpy.int32)))


def recorded(call, calls, library=None):
    """A CUDA graph of so many calls, as a function."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.stream(stream):
        if library:
            library.stream()
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            if library:
                library.stream()
            for _ in range(calls):
                call()
    return graph.replay


def once(replay):
    """Seconds of a call on the device."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e-3


def on_cpu(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def in_turns(sides, rounds, device):
    """Median us of a call of each side; the sides take turns."""
    if device == "cuda":
        first = recorded(sides[0][0], 1, sides[0][1])
        first()
        calls = max(1, min(50, math.ceil(2e-3 / max(once(first), 1e-6))))
        runs = [recorded(call, calls, library) for call, library in sides]
        clock = once
    else:
        calls, runs, clock = 1, [call for call, _ in sides], on_cpu
    for run in runs:
        clock(run)
    samples = [[clock(run) for run in runs] for _ in range(rounds)]
    return [statistics.median(s) / calls * 1e6 for s in zip(*samples)]


def compared(ours, theirs, name):
    """The largest difference over the largest result; both are rounded once."""
    difference = float((ours.float() - theirs.float()).abs().max() /
                       theirs.float().abs().max().clamp(min=1e-30))
    if difference > (1e-4 if ours.dtype == torch.float32 else 6e-2):
        raise SystemExit(f"python_spmm: {name}: results differ by "
                         f"{difference:.2g} of the largest")
    return difference


def measure(name, matrix, graph, width, dtype, weighted, options, library):
    rows, columns, offsets, indices = matrix
    device = options.device
    op = "spmm-weighted" if weighted else "spmm-sum"
    x = torch.randn(columns, width, device=device).to(NAMES[dtype])
    weight = (torch.rand(indices.numel(), device=device) if weighted else
              torch.ones(indices.numel(), device=device)).to(x.dtype)
    own_weight = weight.float() if weighted else None
    if options.tune:
        dfgnn.tune(graph, op, width, dtype=dtype, budget=options.tune)

    @torch.no_grad()
    def ours():
        return dfgnn.spmm(graph, x, own_weight)
    row = {"graph": name, "op": op, "dim": width, "dtype": dtype,
           "device": (torch.cuda.get_device_name() if device == "cuda"
                      else "cpu"),
           "rows": rows, "edges": indices.numel(), "torch": torch.__version__,
           "commit": os.environ.get("COMMIT", "unknown"),
           "variant": dfgnn.explain(graph, op, width, dtype=dtype)["variant"]}
    best = None
    if device == "cuda":
        peers = []
        for algorithm, number in ALGORITHMS.items():
            try:
                run, out = library.product(offsets, indices, weight, x, number)
                run()
                torch.cuda.synchronize()
                peers.append((algorithm, run, out))
            except RuntimeError as error:
                row[f"not_{algorithm}"] = str(error)
        result = ours()
        row["difference"] = max(compared(result, out, f"{name}, {algorithm}")
                                for algorithm, _, out in peers)
        sides = [(ours, None), *((run, library) for _, run, _ in peers)]
        us, *others = in_turns(sides, options.rounds, device)
        best = min(others)
        row["algorithm"] = peers[others.index(best)][0]
    else:
        sparse = torch.sparse_csr_tensor(offsets, indices, weight,
                                         (rows, columns))
        row["difference"] = compared(ours(), sparse @ x, name)
        us, best = in_turns([(ours, None), (lambda: sparse @ x, None)],
                            options.rounds, device)
    row.update(us=round(us, 3), peer_us=round(best, 3),
               times=round(best / us, 4))
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("graphs", nargs="*", metavar="GRAPH.npz")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--dims", default="32,64,128,256")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--tune", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--time-limit", type=float, default=math.inf,
                        metavar="SECONDS", help="begin no graph after these")
    parser.add_argument("-o", "--output", metavar="FILE")
    options = parser.parse_args()
    begin, rows = time.monotonic(), []
    library = Cusparse() if options.device == "cuda" else None
    for path in [file for given in options.graphs for file in (
            sorted(glob.glob(f"{given}/*.npz")) if os.path.isdir(given) else
            [given])]:
        if time.monotonic() - begin > options.time_limit:
            print(f"python_spmm: {path}: no time is left", file=sys.stderr)
            continue
        name = os.path.basename(path).removesuffix(".npz")
        matrix = [m.to(options.device) if isinstance(m, torch.Tensor) else m for m in load(path)]
        graph = dfgnn.Graph(*matrix[2:], num_src=matrix[1], name=name)
        for dtype in options.dtypes.split(","):
            for width in map(int, options.dims.split(",")):
                for weighted in (False, True):
                    rows.append(measure(name, matrix, graph, width, dtype,
                                        weighted, options, library))
        if options.output:
            write(options.output, rows)
    if not options.output:
        write(None, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
