"""Code that the training examples share: layers by library, timing, a table."""

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


def list_of(words):
    def read(text):
        for word in text.split(","):
            if word not in words:
                raise argparse.ArgumentTypeError(
                    f"found {word!r}, expected some of {', '.join(words)}")
        return text
    return read


def arguments(description, words=None, **defaults):
    """words: those that --model may be, or the list of --models have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--library", choices=["dfgnn", "pyg"],
                        help="only this one; both by default")
    parser.add_argument("--device", default="cuda"
                        if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", action="store_true",
                        help="print JSON instead of a table")
    for name, value in defaults.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, default=value, type=list_of(words)
                                if name in ("model", "models")
                                else type(value),
                                help=f"default: {value}")
    return parser


def settle(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize()


class Clock:
    """Milliseconds of epochs.  Every other one of the first twenty is split
    into parts, each of which is waited for; the others are waited for at their
    ends alone, as a loop without a clock would run."""

    def __init__(self, device, parts=True):
        self.device = device
        self.parts = {}
        self.whole = []
        self.splitting = True
        self.left = 20 if parts else 0
        self.seconds = 0.0  # of all epochs
        self.curve = []  # (seconds, accuracy in per cent)

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
        """Calls function and times it; its laps are the parts."""
        self.splitting = not self.splitting and self.left > 0
        self.left -= 1
        result, ms = self._time(function)
        self.seconds += ms / 1e3
        if not self.splitting:
            self.whole.append(ms)
        return result

    def mark(self, accuracy):
        """A point of the curve of accuracy against seconds of training."""
        self.curve.append((round(self.seconds, 4), round(100 * accuracy, 2)))

    def reached(self, goal):
        """After how many seconds the accuracy was goal or more, or None."""
        return next((s for s, accuracy in self.curve if accuracy >= goal),
                    None)

    def medians(self, laps=1):
        """The median of each part, then that of epochs, epoch_ms; laps: how
        often an epoch runs each part."""
        found = {name: statistics.median(times[2 * laps:] or times)
                 * min(laps, len(times))
                 for name, times in self.parts.items()}
        found["epoch_ms"] = statistics.median(self.whole[1:] or self.whole)
        return found


def capture(step, library, device, limit=16):
    """(step as a CUDA graph where it can be one, a function that says whether
    it is); the layers may be those of any library."""
    import dfgnn
    if not device.startswith("cuda"):
        return step, lambda: False
    recorded = dfgnn.capture(step, limit=limit)

    def attempt(*args):
        nonlocal recorded
        if recorded is not None:
            try:
                return recorded(*args)
            except dfgnn.CaptureError as error:
                print(f"{library}: {error}", file=sys.stderr)
                recorded = None
        return step(*args)
    return attempt, lambda: recorded is not None


def peak_mib(device):
    """The peak of GPU memory, or of the process on a CPU."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2 ** 20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** 10


def graph_mib(edges):
    """The memory that a dfgnn.Graph holds beside torch's."""
    return 0.0 if isinstance(edges, torch.Tensor) else edges.nbytes / 2 ** 20


def show(rows):
    columns = []
    for row in rows:
        columns += [name for name in row
                    if name not in columns and name != "curve"]
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
    peaks of memory do not mix.  train returns a row, or a list of rows."""
    if options.library:
        rows = train(options)
        rows = [{"library": options.library, **row}
                for row in (rows if isinstance(rows, list) else [rows])]
        if options.json:
            rows[0].update(surroundings(options.device))
            for row in rows:
                print(json.dumps(row))
        else:
            show(rows)
        return
    rows = []
    for library in ("dfgnn", "pyg"):
        done = subprocess.run(
            [sys.executable, *sys.argv, "--json", "--library", library],
            stdout=subprocess.PIPE, text=True)
        if done.returncode:  # it said why
            sys.exit(done.returncode)
        rows += [json.loads(line) for line in done.stdout.splitlines()
                 if line.startswith("{")]
        if options.json:  # in case the other library does not end
            print(json.dumps(rows[-1]), file=sys.stderr)
    for row in rows:
        theirs = next(r for r in rows if r["library"] == "pyg"
                      and r.get("model") == row.get("model"))
        time_ = "epoch_ms" if "epoch_ms" in row else "step_ms"
        row["speedup"] = theirs[time_] / row[time_]
    if options.json:
        print(json.dumps(rows))
        return
    show(rows)
    for row in rows:
        if row.get("curve"):
            print(f"\n{row['library']}: seconds of training, accuracy (%)")
            print("  ".join(f"{seconds:.3g} {accuracy:.1f}" for
                            seconds, accuracy in thinned(row["curve"])))


def thinned(curve, count=12):
    """About count points of a curve, the last among them."""
    step = max(1, -(-len(curve) // count))
    return curve[:-1:step] + curve[-1:]
