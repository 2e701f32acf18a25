"""What the training examples share: layers by library, timing, a table."""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch


def layers(library):
    if library == "pyg":
        import torch_geometric.nn as nn
    else:
        import dfgnn.nn as nn
    return nn


def arguments(description, **defaults):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--library", choices=["dfgnn", "pyg"],
                        help="only this one; both by default")
    parser.add_argument("--device", default="cuda"
                        if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", action="store_true",
                        help="print JSON instead of a table")
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), default=value,
                            type=type(value), help=f"default: {value}")
    return parser


def settle(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


class Clock:
    """Milliseconds of epochs.  Every other one is split into its parts, each
    waited for; the rest are waited for at their ends alone, as a loop that
    nobody watches would run."""

    def __init__(self, device):
        self.device = device
        self.parts = {}
        self.whole = []
        self.splitting = True

    def _time(self, function):
        settle(self.device)
        start = time.perf_counter()
        result = function()
        settle(self.device)
        return result, 1e3 * (time.perf_counter() - start)

    def once(self, part, function):
        result, ms = self._time(function)
        self.parts[part] = [ms]
        return result

    def lap(self, part, function):
        if not self.splitting:
            return function()
        result, ms = self._time(function)
        self.parts.setdefault(part, []).append(ms)
        return result

    def epoch(self, function):
        """function is called; what laps it has are its parts."""
        self.splitting = not self.splitting
        if self.splitting:
            return function()
        result, ms = self._time(function)
        self.whole.append(ms)
        return result

    def medians(self, laps=1):
        """By part, then epoch_ms; laps: of each part in an epoch."""
        found = {name: statistics.median(times[2 * laps:] or times)
                 * min(laps, len(times))
                 for name, times in self.parts.items()}
        found["epoch_ms"] = statistics.median(self.whole[1:] or self.whole)
        return found


def peak_mib(device):
    """Of GPU memory, or of the process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2 ** 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 10


def graph_mib(edges):
    """Of memory that a dfgnn.Graph holds beside torch's."""
    return 0.0 if isinstance(edges, torch.Tensor) else edges.nbytes / 2 ** 20


def show(rows):
    columns = []
    for row in rows:
        columns += [name for name in row if name not in columns]
    cells = [columns] + [
        [f"{row[c]:.4g}" if isinstance(row.get(c), float) else
         str(row.get(c, "")) for c in columns] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    for line in cells:
        print("  ".join(cell.rjust(w) for cell, w in zip(line, widths)))


def surroundings(device):
    name = "cpu"
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
    return {"device": name, "torch": torch.__version__}


def main(options, train):
    """Runs train(options) with each library in a process of its own, so that
    peaks of memory do not mix."""
    if options.library:
        row = {"library": options.library, **train(options)}
        if options.json:
            row.update(surroundings(options.device))
        print(json.dumps(row)) if options.json else show([row])
        return
    rows = []
    for library in ("dfgnn", "pyg"):
        done = subprocess.run(
            [sys.executable, *sys.argv, "--json", "--library", library],
            stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        if options.json:  # should the other library not come to its end
            print(json.dumps(rows[-1]), file=sys.stderr)
    for row in rows:
        row["speedup"] = rows[-1]["epoch_ms"] / row["epoch_ms"]
    print(json.dumps(rows, indent=1)) if options.json else show(rows)
