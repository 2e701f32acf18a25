#!/usr/bin/env python3
"""Trains models of real packages a few steps, as they are and after dfgnn.accelerate.

    clients.py [CASE...] [--device cpu] [--steps 5] [--scale 1] [--autocast bfloat16]
               [-o OUT.json]
    clients.py --table OUT.json...

Each case is a model as its package has it, unchanged, on input that is made here: at scale
1 of 10 000 to 20 000 nodes.  The two copies have the same parameters and inputs, and take
their steps (loss, gradients, SGD) in turns.  Printed are the layers that are served, the
largest relative difference of the losses, milliseconds of a step (the least of the steps
after the first two, which build plans; of processor time on a CPU) and the peak of torch's
memory in a step beyond what was there.  clients.sh installs a package into a folder of its
own and runs its cases.  A package that is missing is said and passed over.
"""
import argparse
import contextlib
import copy
import importlib
import importlib.metadata
import json
import math
import os
import sys
import time

import torch

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import models_packages  # noqa: F401, E402  (fills CASES)
import models_pyg  # noqa: F401, E402
from case import CASES  # noqa: E402


def moved(value, device):
    if isinstance(value, dict):
        return {k: moved(v, device) for k, v in value.items()}
    return value.to(device)


class Trainer:
    """A model with its optimizer; step() is one of training and keeps its loss."""

    def __init__(self, model, inputs, loss, args):
        self.model, self.inputs, self.loss = model, inputs, loss
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        self.autocast = contextlib.nullcontext if args.autocast is None else (
            lambda: torch.autocast(args.device, getattr(torch, args.autocast)))
        # processor time does not count what other processes take
        self.now = time.process_time if args.device == "cpu" else time.perf_counter
        self.losses, self.times = [], []

    def step(self):
        start = self.now()
        self.optimizer.zero_grad()
        with self.autocast():
            loss = self.loss(self.model, self.inputs)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())  # waits for the device
        self.times.append(self.now() - start)


def kept_reasons(report):
    return {f"{k.name or '(model)'} ({k.kind})": k.reason for k in report.kept}


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


def tried(name, args):
    import dfgnn
    package, module, build = CASES[name]
    row = {"case": name, "package": package, "device": args.device,
           "scale": args.scale, "autocast": args.autocast,
           "torch": torch.__version__, "threads": torch.get_num_threads()}
    torch.manual_seed(0)
    try:
        importlib.import_module(module)
        client = build(args.scale)
    except ImportError as error:
        return {**row, "missing": f"{type(error).__name__}: {error}"}
    if args.device == "cuda":
        row["gpu"] = torch.cuda.get_device_name()
    row["version"] = importlib.metadata.version(
        "torch_geometric" if package == "graphgym" else package)
    model = client.model.to(args.device).train()
    inputs = moved(client.inputs, args.device)
    with torch.no_grad():
        client.loss(model, inputs)  # lazy parameters exist after the first call
    fast = copy.deepcopy(model)
    report = dfgnn.accelerate(fast)
    own, ours = (Trainer(m, inputs, client.loss, args) for m in (model, fast))
    torch.manual_seed(1)
    for _ in range(args.steps):
        own.step()
        ours.step()
    if not all(map(math.isfinite, own.losses)):
        raise ValueError(f"{name}: found losses {own.losses}, expected numbers")
    worst = max(abs(a - b) / max(abs(a), 1e-30)
                for a, b in zip(own.losses, ours.losses))
    own_ms, our_ms = (1e3 * min(t.times[2:]) for t in (own, ours))
    own_mb, our_mb = (megabytes(t.step, args.device) for t in (own, ours))
    return {**row, "served": len(report.served), "kept": kept_reasons(report),
            "loss": own.losses[-1], "loss_difference": worst,
            "ms": own_ms, "accelerated_ms": our_ms,
            "times_as_fast": own_ms / our_ms,
            "mb": own_mb, "accelerated_mb": our_mb}


def milliseconds(x):
    return f"{x:.0f} ms" if x >= 100 else f"{x:.3g} ms"


def table(files):
    print("| model | package | layers served | step before | after | times as fast "
          "| memory before | after | losses differ by |")
    print("| --- " * 9 + "|")
    for file in files:
        with open(file) as handle:
            rows = json.load(handle)
        for r in rows:
            if "missing" in r:
                print(f"| {r['case']} | {r['package']} | not installed here: "
                      f"{r['missing']} | | | | | | |")
                continue
            name = r["case"] + (f", {r['autocast']}" if r["autocast"] else "")
            print(f"| {name} | {r['package']} {r['version']} "
                  f"| {r['served']} of {r['served'] + len(r['kept'])} "
                  f"| {milliseconds(r['ms'])} | {milliseconds(r['accelerated_ms'])} "
                  f"| {r['times_as_fast']:.2f} | {r['mb']:.0f} MB "
                  f"| {r['accelerated_mb']:.0f} MB | {r['loss_difference']:.0e} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--autocast", choices=["bfloat16", "float16"])
    parser.add_argument("-o", "--output", metavar="OUT.json")
    parser.add_argument("--table", nargs="+", metavar="OUT.json")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    for name in args.cases:
        if name not in CASES:
            parser.error(f"found case '{name}', expected one of {', '.join(CASES)}")
    if args.steps < 3:
        parser.error(f"found {args.steps} steps, expected 3 or more")
    rows = [tried(name, args) for name in args.cases or CASES]
    with (open(args.output, "w") if args.output
          else contextlib.nullcontext(sys.stdout)) as out:
        json.dump(rows, out, indent=1)
        out.write("\n")


if __name__ == "__main__":
    main()
