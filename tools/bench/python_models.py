#!/usr/bin/env python3
"""Times training steps of models and layers, as they are and after dfgnn.accelerate.

    python_models.py --device cuda --cases gcn,gat -o OUT.json
    python_models.py --layers GCNConv,PNA -o OUT.json GRAPH.npz...
    python_models.py --table OUT.json...

A case (cases/) is a model on input that is made here.  A step is forward, loss, backward
and Adam's, of a layer forward and backward.  The ways of --ways are

    pyg, dfgnn    the model as its package has it; the same after dfgnn.accelerate
    NAME_compiled, NAME_overhead    by torch.compile, mode "default" or "reduce-overhead"
    NAME_captured    its step by dfgnn.capture

They have the same parameters and inputs and take turns; steps that are short on a GPU
come several in a row, as in training, which waits for none.  A row of the file has, by way,

    WAY_ms        milliseconds of a step: the median of a GPU's, the least of a CPU's
    WAY_forward_ms    of the loss without gradients
    WAY_first_s   seconds of the first step, which compiles
    WAY_mb        the most memory of torch in a step beyond what was there
    WAY_launches  kernels of a step (on a GPU, with --launches)
    WAY_error     why there is no such step

and `served`, the layers that kernels serve, `kept`, why others are not, and `difference`
of losses and gradients without dropout, relative to the largest.
"""

import argparse
import contextlib
import copy
import importlib
import importlib.metadata
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

from tables import alone, over, size, write
from tables import time as milliseconds

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases"))

import edge_mlps  # noqa: F401, E402  (each fills CASES)
import layers  # noqa: E402
import packages  # noqa: F401, E402
import pyg  # noqa: F401, E402
import relations  # noqa: F401, E402
import zoo  # noqa: F401, E402
from case import CASES  # noqa: E402

ROW_S, MOST_IN_A_ROW = .02, 20  # of steps between two times of a GPU
MOST_STEPS = 200  # before a layer that has not chosen its path is timed all the same
ROUNDS_S, FEW = 2, 3  # of slow steps, after which no further round begins, and their rounds
ERRORS = RuntimeError, AssertionError, TypeError, ValueError  # of ways that cannot be


def moved(value, device):
    if isinstance(value, dict):
        return {k: moved(v, device) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(moved(v, device) for v in value)
    return value.detach().to(device).requires_grad_(value.requires_grad) \
        if isinstance(value, torch.Tensor) else value


def renewed(value):
    """The same tensors at other addresses."""
    if isinstance(value, dict):
        return {k: renewed(v) for k, v in value.items()}
    return value.clone()


def settle(device):
    if device == "cuda":
        torch.cuda.synchronize()


def reason(error):
    text = f"{type(error).__name__}: {error}".split("\n")[0][:200]
    return "out of memory" if "out of memory" in text else text


class Way:
    """A way to make steps of a model."""

    def __init__(self, name, client, model, options):
        self.client, self.device, self.times = client, options.device, []
        self.count = 1  # steps that are timed together
        base, _, mode = name.partition("_")
        self.model = torch.compile(model, mode="reduce-overhead" if mode == "overhead"
                                   else "default") if mode in ("compiled", "overhead") else model
        self.autocast = contextlib.nullcontext if options.autocast is None else (
            lambda: torch.autocast(options.device, getattr(torch, options.autocast)))
        batches = client.inputs if isinstance(client.inputs, list) else [client.inputs]
        self.batches = itertools.cycle(moved(batches, self.device))
        self.adam = torch.optim.Adam(model.parameters(), 1e-3, capturable=self.device == "cuda"
                                     ) if client.trains else None
        self.step = self._step
        if mode == "captured":
            import dfgnn
            self.step = dfgnn.capture(self._step)

    def inputs(self):
        given = next(self.batches)
        return {**given, **{name: renewed(given[name]) for name in self.client.fresh}}

    def loss(self, inputs):
        with self.autocast():
            return self.client.loss(self.model, inputs).float()

    def _step(self, inputs):
        self.model.zero_grad(set_to_none=self.adam is None)
        loss = self.loss(inputs)
        loss.backward()
        if self.adam:
            self.adam.step()
        return loss.detach()

    def seconds(self, call, count=1):
        """Seconds of a call, of so many one after the other."""
        batches = [self.inputs() for _ in range(count)]
        settle(self.device)
        start = time.perf_counter()
        for inputs in batches:
            call(inputs)
        settle(self.device)
        return (time.perf_counter() - start) / count

    def races(self):
        """Whether accelerated layers still try kernels and their own path in turns."""
        guards = [m.__dict__.get("_dfgnn_guard") for m in self.model.modules()]
        return any(guard.undecided for guard in guards if guard is not None)

    def forward(self, inputs):
        with torch.no_grad():
            return self.loss(inputs)

    def megabytes(self):
        """The most that torch has allocated at once beyond what was there."""
        inputs = self.inputs()
        if self.device == "cuda":
            settle(self.device)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            self.step(inputs)
            return (torch.cuda.max_memory_allocated() - before) / 1e6
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                    profile_memory=True) as profile:
            self.step(inputs)
        held = most = 0
        for event in sorted(profile.profiler.kineto_results.events(),
                            key=lambda e: e.start_ns()):
            if event.name() == "[memory]":
                held += event.nbytes()
                most = max(most, held)
        return most / 1e6

    def launches(self):
        with torch.profiler.profile(
                activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            self.step(self.inputs())
        return sum(event.count for event in profile.key_averages()
                   if event.device_type.name == "CUDA")


def exact(way):
    """The loss and gradients without dropout."""
    way.model.eval().zero_grad()
    loss = way.loss(way.inputs())
    loss.backward()
    gradients = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten()
                           for p in way.model.parameters()] or [loss.new_zeros(1)])
    way.model.train().zero_grad()
    return loss.detach().double(), gradients.double()


def difference(one, other):
    return max(float((a - b).norm() / a.norm().clamp(min=1e-30))
               for a, b in zip(one, other))


class Run:
    """The ways of a case, which take turns; those that fail leave the reason."""

    def __init__(self, client, options):
        import dfgnn
        self.row, self.ways, self.options = {}, {}, options
        self.pick = statistics.median if options.device == "cuda" else min
        model = client.model.to(options.device).train()
        fast = client.fast and client.fast.to(options.device).train()
        with torch.no_grad():
            first = client.inputs[0] if isinstance(client.inputs, list) else client.inputs
            self.tried("pyg", lambda: client.loss(model, moved(first, options.device)))
        if fast is None:  # lazy parameters exist after the first call
            fast = copy.deepcopy(model)
            report = dfgnn.accelerate(fast)
            self.row.update(served=len(report.served), kept={
                f"{k.name or '(model)'} ({k.kind})": k.reason for k in report.kept})
        self.row.pop("pyg_error", None)
        self.made = lambda way: Way(way, client, copy.deepcopy(
            model if way.startswith("pyg") else fast), options)

    def tried(self, way, call):
        try:
            return call()
        except ERRORS as error:
            self.row[f"{way}_error"] = reason(error)
            self.ways.pop(way, None)
            if self.options.device == "cuda" and not broken("cuda"):
                torch.cuda.empty_cache()

    def begin(self, names):
        outs = {}
        for name in names:
            if broken(self.options.device):
                break
            torch.manual_seed(1)
            torch._dynamo.reset()  # after eight models torch runs the next eagerly
            way = self.tried(name, lambda: self.made(name))
            if way is None:
                continue
            self.ways[name] = way
            if name in ("pyg", "dfgnn"):
                outs[name] = self.tried(name, lambda: exact(way))
            if name in self.ways:
                self.row[f"{name}_first_s"] = self.tried(
                    name, lambda: way.seconds(way.step))
        if len(outs) == 2 and None not in outs.values() and not broken(self.options.device):
            self.row["difference"] = difference(*outs.values())

    def turns(self, kind, call):
        """Milliseconds by way: of rounds in turns, after three that make plans, or as many
        as layers take to choose their path."""
        for name, way in list(self.ways.items()):
            for turn in range(MOST_STEPS):
                if name not in self.ways or turn >= 3 and not way.races():
                    break
                last = self.tried(name, lambda: way.seconds(call(way)))
            if name in self.ways and way.device == "cuda":
                way.count = max(1, min(MOST_IN_A_ROW, int(ROW_S / last)))
        begin = time.perf_counter()
        for turn in range(self.options.rounds):
            if turn >= FEW and time.perf_counter() - begin > ROUNDS_S * len(self.ways):
                break
            for name, way in list(self.ways.items()):
                taken = self.tried(name, lambda: way.seconds(call(way), way.count))
                if taken is not None:
                    way.times.append(taken)
        for name, way in self.ways.items():
            self.row[f"{name}_{kind}ms"] = 1e3 * self.pick(way.times)
            way.times = []

    def measured(self):
        self.turns("", lambda way: way.step)
        if self.options.forward:
            self.turns("forward_", lambda way: way.forward)
        for name, way in list(self.ways.items()):
            self.row[f"{name}_mb"] = self.tried(name, way.megabytes)
            if self.options.launches and way.device == "cuda":
                self.row[f"{name}_launches"] = self.tried(name, way.launches)
        return self.row


def broken(device):
    """An illegal access of a compiled kernel leaves none of this process usable."""
    try:
        settle(device)
        return False
    except RuntimeError:
        return True


def anew(name, ways, options):
    """The row of a case that a process of its own measures."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "row.json")
        given = [f"--{key}={value}" for key, value in vars(options).items()
                 if key in ("device", "scale", "rounds", "autocast") and value is not None]
        subprocess.run([sys.executable, __file__, "--cases", name, "--ways", ",".join(ways),
                        *given, "-o", path], check=False, stdout=subprocess.DEVNULL)
        if not os.path.exists(path):
            return {}
        with open(path) as file:
            return json.load(file)[0]


def measure(name, one, options):
    row = {"case": name, "package": one.package, "scale": options.scale,
           "autocast": options.autocast, "torch": torch.__version__,
           "threads": torch.get_num_threads(), "load": os.getloadavg()[0],
           "device": "cpu" if options.device == "cpu" else torch.cuda.get_device_name()}
    torch.manual_seed(0)
    try:
        importlib.import_module(one.module)
        client = one.build(options.scale)
    except ImportError as error:
        return {**row, "missing": reason(error)}
    row["version"] = importlib.metadata.version(
        "torch_geometric" if one.package == "graphgym" else one.package)
    ways = options.ways.split(",")
    if options.ahead:
        Run(client, options).begin([way for way in ways if "compiled" in way])
        return row
    with alone(options.lock):
        run = Run(client, options)
        run.begin(ways)
        found = run.row if broken(options.device) else run.measured()
        if broken(options.device):
            guilty = [way for way in ways if f"{way}_error" in found]
            found = {**found, **anew(name, [w for w in ways if w not in guilty], options)}
    return {**row, **found}


def table(files):
    print("| case | package | layers served | PyG | dfgnn | faster by | memory | difference |")
    print("| --- " * 8 + "|")
    for r in (row for file in files for row in json.load(open(file))):
        if "missing" in r:
            print(f"| {r['case']} | not installed here: {r['missing']} | | | | | | |")
            continue
        print(f"| {r['case']} | {r['package']} {r['version']} "
              f"| {r.get('served', '-')} of {r.get('served', 0) + len(r.get('kept', ()))} "
              f"| {milliseconds(r.get('pyg_ms'))} | {milliseconds(r.get('dfgnn_ms'))} "
              f"| {over(r.get('pyg_ms'), r.get('dfgnn_ms'))} | {size(r.get('pyg_mb'))}, "
              f"{size(r.get('dfgnn_mb'))} | {r.get('difference', 0):.0e} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.
                                     RawTextHelpFormatter)
    parser.add_argument("graphs", nargs="*", metavar="GRAPH.npz", help="of --layers")
    parser.add_argument("--cases", default="", help=", ".join(CASES))
    parser.add_argument("--layers", default="", help=", ".join(layers.LAYERS))
    parser.add_argument("--width", type=int, default=128, help="of --layers")
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--edge-dim", type=int, default=0)
    parser.add_argument("--ways", default="pyg,dfgnn")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--forward", action="store_true", help="time the loss alone, too")
    parser.add_argument("--autocast", choices=["bfloat16", "float16"])
    parser.add_argument("--ahead", action="store_true", help="compile, and time nothing")
    parser.add_argument("--launches", action="store_true", help="count kernels of a step")
    parser.add_argument("--lock", metavar="FILE", help="of a GPU, held while it is timed")
    parser.add_argument("-o", "--output", metavar="OUT.json", help="written after each row")
    parser.add_argument("--table", nargs="+", metavar="OUT.json")
    options = parser.parse_args()
    if options.table:
        return table(options.table)
    if options.threads:
        torch.set_num_threads(options.threads)
    cases = {f"{layer} on {os.path.basename(path).removesuffix('.npz')}":
             layers.on(path, layer, options) for path in options.graphs
             for layer in filter(None, options.layers.split(","))}
    for name in filter(None, options.cases.split(",")):
        if name not in CASES:
            parser.error(f"found case '{name}', expected one of {', '.join(CASES)}")
        cases[name] = CASES[name]
    rows = []
    for name, one in cases.items():
        rows.append(measure(name, one, options))
        print(name, *(f"{way} {milliseconds(rows[-1].get(way + '_ms'))}"
                      for way in options.ways.split(",")), file=sys.stderr)
        if options.output:
            write(options.output, rows)
    if not options.output:
        write(None, rows)


if __name__ == "__main__":
    sys.exit(main())
