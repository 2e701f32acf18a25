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
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), default=value,
                            type=type(value), help=f"default: {value}")
    return parser


def settle(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


class Clock:
    """Milliseconds of each epoch, split into its parts."""

    def __init__(self, device):
        self.device = device
        self.parts = {}

    def lap(self, part, function):
        settle(self.device)
        start = time.perf_counter()
        result = function()
        settle(self.device)
        self.parts.setdefault(part, []).append(
            1e3 * (time.perf_counter() - start))
        return result

    def medians(self):
        return {name: statistics.median(laps[2:] or laps)
                for name, laps in self.parts.items()}


def peak_mib(device):
    """Of GPU memory, or of the process."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2 ** 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 10


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


def main(options, train):
    """Runs train(options) with each library in a process of its own, so that
    peaks of memory do not mix."""
    if options.library:
        row = {"library": options.library, **train(options)}
        print(json.dumps(row)) if options.json else show([row])
        return
    rows = []
    for library in ("dfgnn", "pyg"):
        done = subprocess.run(
            [sys.executable, *sys.argv, "--json", "--library", library],
            stdout=subprocess.PIPE, text=True, check=True)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    show(rows)
