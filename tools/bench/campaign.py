#!/usr/bin/env python3
"""Runs a list of commands on this machine's device and keeps what they print.

    campaign.py run OUT [--minutes M]    what is missing or stale, in the list's order
    campaign.py status OUT [NAME]        a line for each file of the list, of data/results/NAME
    campaign.py put OUT NAME             OUT's rows into data/results/NAME.jsonl.xz

A line of a list (campaign.tsv; people.tsv fills a store) has, between tabs:

    FILE      of the rows, or - for measurements that only the store keeps
    SECONDS   that its parts take together on an H200, about
    CODE      files and folders whose change, comments aside, makes the rows stale
    PARTS     that are measured apart: names of graphs, texts of dfgnn-graph generate, or
              words for @PART; REAL for the graphs of --graphs; or - for the whole
    COMMAND   bench PROBLEM [| PROBLEM] -- OPTIONS   dfgnn-tune run, then dfgnn-bench
              tune GRAPHS OPTIONS                    dfgnn-tune run alone
              SCRIPT.py OPTIONS                      of tools/bench/ or docs/examples/

@GRAPH, @PART, @FILE, @DEVICE, @DATA and @LOCK stand for the part's graph, the part, a file
for the rows, the device, the folder data/ and a file of the GPU.  A line NAME = WORDS
defines a list, which PARTS and CODE may have and @NAME stands for.  What torch.compile
makes of parts is made first, of several side by side, and kept by torch.  A GPU then has
two workers, each on its share of the processors: one starts and reads its graph while the
other is on the GPU, which who holds the lock of @LOCK has alone.  A command without it is
run under the lock, but for one that times nothing.  A run that was stopped goes on where it
was.  --minutes that are too few make budgets smaller.  The tools are taken from --build or
from PATH.
"""

import argparse
import ast
import concurrent.futures
import glob
import hashlib
import io
import json
import lzma
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import tokenize

import tables

TOP = tables.TOP
AHEAD, BESIDE = 6, 2  # workers of a GPU that compile, that measure
UNTIMED = "python_accuracy.py",
# strings and characters, which may hold what looks like a comment; comments
WORDS_OF_C = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|/\*.*?\*/|//[^\n]*""", re.DOTALL)
DOCUMENTED = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef


def plain(file):
    """The code of a file without its comments."""
    text = pathlib.Path(file).read_text()
    if not file.endswith(".py"):
        return re.sub(r"\s+", " ", WORDS_OF_C.sub(lambda word: word[1] or "", text))
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][:token.start[1]]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            said = node.body[0]
            lines[said.lineno - 1:said.end_lineno] = [""] * (said.end_lineno - said.lineno + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


def digest(code):
    """Names the code of files and folders."""
    sums = hashlib.sha256()
    for pattern in code.split():
        if not glob.glob(str(TOP / pattern)):
            sys.exit(f"campaign.py: no file {pattern}, whose change would make rows stale")
    for one in sorted(f for pattern in code.split() for f in glob.glob(str(TOP / pattern))):
        files = [one] if os.path.isfile(one) else sorted(
            f for f in glob.glob(one + "/**", recursive=True)
            if re.search(r"\.(c|h|cuh|py|model)$", f))
        for file in files:
            sums.update(plain(file).encode())
    return sums.hexdigest()[:12]


def commit():
    bundled = TOP / "COMMIT"  # a copy may bring an older repository
    if bundled.exists():
        return bundled.read_text().strip()
    done = subprocess.run(["git", "-C", TOP, "describe", "--always", "--dirty", "--abbrev=12",
                           "--exclude", "*"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def problems(options):
    """How many problems the options name."""
    count = 1
    for one in re.findall(r"--\S+ ([^-]\S*)", options):
        count *= one.count(",") + 1
    return count


class Part:
    """A command for one graph or word."""

    def __init__(self, campaign, file, seconds, code, name, command):
        self.file, self.seconds, self.name, self.command = file, seconds, name, command
        self.digest = campaign.digest(code)
        key = hashlib.sha256(f"{name} {command}".encode()).hexdigest()[:12]
        self.kept = campaign.out / "parts" / f"{file}.{key}.json"

    @property
    def state(self):
        if not self.kept.exists():
            return "missing"
        return "current" if json.loads(self.kept.read_text())["digest"] == self.digest else "stale"

    def state_of(self, results):
        """The state of its rows among those of data/results."""
        of = [r for r in results.get(self.file, []) if r.get("part", r.get("graph")) == self.name]
        if not of:
            return "missing"
        return "current" if all(r.get("digest") == self.digest for r in of) else "stale"


class Campaign:
    def __init__(self, options):
        self.options, self.out = options, pathlib.Path(options.out).resolve()
        self.digests, self.lock, self.making = {}, threading.Lock(), threading.Lock()
        self.end = time.time() + 60 * getattr(options, "minutes", 0)

    def digest(self, code):
        if code not in self.digests:
            self.digests[code] = digest(code)
        return self.digests[code]

    def parts(self):
        lists = {"REAL": sorted(f[:-4] for f in os.listdir(self.options.graphs)
                                if f.endswith(".npz"))}
        groups = []
        for line in open(self.options.list):
            if defined := re.match(r"(\w+) = (.*)", line):
                lists[defined[1]] = defined[2].split()
            if line.startswith("#") or "\t" not in line:
                continue
            file, seconds, code, names, command = line.rstrip("\n").split("\t")
            if self.options.only and file not in self.options.only.split(","):
                continue
            names = [one for name in names.split() for one in lists.get(name, [name])]
            code = " ".join(one for name in code.split() for one in lists.get(name, [name]))
            for name, words in lists.items():
                command = command.replace(f"@{name}", " ".join(words))
            each = float(seconds) / len(names)
            groups.append([Part(self, file, each, code, name, command) for name in names])
        if not any(p.file == "-" for group in groups for p in group):
            return [p for group in groups for p in group]
        # a list for a store that ends early has some of everything
        return [group[i] for i in range(max(map(len, groups))) for group in groups
                if i < len(group)]

    def status(self):
        files, name = {}, self.options.name
        for part in self.parts():
            files.setdefault(part.file, []).append(
                part.state if name is None else part.state_of(tables.load(name)))
        for file, states in files.items():
            print(f"{file:28}", ", ".join(f"{states.count(s)} {s}" for s in dict.fromkeys(states)))
        return any(s != "current" for states in files.values() for s in states)

    # ---- measuring ----------------------------------------------------------------

    def say(self, text):
        print(time.strftime("%H:%M:%S"), text, file=sys.stderr)

    def graph(self, name):
        """The file of a graph."""
        for folder in (self.options.graphs, self.out / "graphs", TOP / "data"):
            if os.path.exists(f"{folder}/{name}.npz"):
                return f"{folder}/{name}.npz"
        made = name if "=" in name else f"preset={name}"
        path = self.out / "graphs" / (re.sub(r"[^\w.-]", "_", name)[:80] + ".npz")
        with self.making:
            if not path.exists():
                subprocess.run(["dfgnn-graph", "generate", made, "-q", "-o", path], check=True)
        return str(path)

    def lock_of(self, device):
        return f"{self.out}/gpu{device}.lock"

    def call(self, command, device, seconds, log, turns=False):
        """What a command prints; None if it fails or takes too long.  It takes turns itself,
        or waits for its turn to begin."""
        if not turns:
            command = ["flock", "-F", self.lock_of(device), *command]
        environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": device} if device else {})}
        left = max(5, min(seconds * BESIDE, self.end - time.time()))
        try:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=log,
                                  stdin=subprocess.DEVNULL, timeout=left)
        except subprocess.TimeoutExpired:
            return None
        return done.stdout if done.returncode in (0, 3) else None  # 3: out of time

    def rows(self, part, device, log, *more):
        kind, _, text = part.command.partition(" ")
        for mark, value in {"@GRAPH": "@GRAPH" in text and self.graph(part.name),
                            "@PART": part.name, "@DEVICE": self.options.device,
                            "@DATA": TOP / "data"}.items():
            text = text.replace(mark, str(value))
        common = ["--device", self.options.device, "--store", str(self.options.store), "-q"]
        if kind.endswith(".py"):
            raw = part.kept.with_suffix(".raw")
            script = next(f for f in (TOP / "tools/bench" / kind, TOP / "docs/examples" / kind)
                          if f.exists())
            turns = "@LOCK" in text or kind in UNTIMED
            text = text.replace("@FILE", str(raw)).replace("@LOCK", self.lock_of(device))
            printed = self.call([sys.executable, script, *shlex.split(text), *more], device,
                                2 * part.seconds + 60, log, turns)
            if printed is not None and raw.exists():
                printed = raw.read_bytes()
            return None if printed is None else json.loads(printed)
        named, _, options = text.partition(" -- ")
        found, graph = [], [] if kind == "tune" else [self.graph(part.name)]
        each = part.seconds * self.share / len(named.split("|"))
        for problem in (shlex.split(p) for p in named.split("|")):
            budget = min(self.options.budget, max(.06, .7 * each / problems(" ".join(problem))))
            tune = ["dfgnn-tune", "run", *graph, *problem, *common, "--budget", f"{budget:.3f}s",
                    "--time-limit", f"{2 * each + 5:.0f}s"]
            if self.call(tune, device, 3 * each + 30, log) is None:
                self.say(f"dfgnn-tune fails on {part.name}: {self.out}/log")
            if kind == "tune":
                continue
            printed = self.call(["dfgnn-bench", *graph, *problem, *shlex.split(options), *common,
                                 "--json"], device, 3 * each + 120, log)
            if printed is None:
                return None
            found += [r for r in json.loads(printed) if r.get("status") != "refused"]
        return found

    def try_rows(self, part, device, *more):
        """The rows; None, and a line of the log, if they cannot be had."""
        with open(self.out / "log", "ab") as log:
            try:
                return self.rows(part, device, log, *more)
            except (OSError, ValueError, subprocess.CalledProcessError) as error:
                log.write(f"{error}\n".encode())
                return None

    def measure(self, part, device):
        if self.end - time.time() < 10 or (part.command.split()[0].endswith(".py") and
                                           self.end - time.time() < part.seconds):
            return
        self.say(f"{part.file} {part.name}")
        rows = self.try_rows(part, device)
        if rows is None:
            self.say(f"{part.file} {part.name} failed: {self.out}/log")
            return
        rows = [{"part": part.name, **r, "commit": self.commit, "digest": part.digest}
                for r in (rows if isinstance(rows, list) else [rows])]
        tables.write(part.kept, {"digest": part.digest, "rows": rows})

    def compile(self, part, device):
        """Has torch keep what it compiles for a part, of which nothing is timed."""
        self.try_rows(part, device, "--ahead")

    def side_by_side(self, parts, devices, action):
        """Does the action with each part, on a thread for each of the devices, which may
        stand there several times, and its share of the processors."""
        processors, parts = sorted(os.sched_getaffinity(0)), iter(parts)
        each = max(1, len(processors) // len(devices))

        def worker(number):
            # a thread's, which the programs that it begins have, too
            os.sched_setaffinity(0, processors[number * each % len(processors):][:each])
            while True:
                with self.lock:
                    part = next(parts, None)
                if part is None:
                    return
                action(part, devices[number])
        with concurrent.futures.ThreadPoolExecutor(len(devices)) as pool:
            for done in [pool.submit(worker, n) for n in range(len(devices))]:
                done.result()

    def run(self):
        for folder in ("graphs", "parts"):
            (self.out / folder).mkdir(parents=True, exist_ok=True)
        build = self.options.build and pathlib.Path(self.options.build).resolve()
        if build:
            os.environ["PATH"] = f"{build}/tools:{os.environ['PATH']}"
            os.environ.setdefault("DFGNN_LIBRARY", f"{build}/.libs/libdfgnn.so")
        os.environ["PYTHONPATH"] = f"{TOP}/python:{os.environ.get('PYTHONPATH', '')}"
        package = os.environ.get("DFGNN_PACKAGE_STORE") or str(self.out / "package.db")
        if not os.path.exists(package):
            subprocess.run(["sh", TOP / "data/stores/make.sh", shutil.which("dfgnn-tune"), package,
                            *sorted((TOP / "data/stores").glob("*.jsonl.gz"))], check=True)
        os.environ["DFGNN_PACKAGE_STORE"] = package
        if not os.path.exists(self.options.store):
            shutil.copyfile(package, self.options.store)
        self.commit = commit()
        due = [p for p in self.parts() if p.state != "current"]
        due.sort(key=lambda p: p.state == "stale")
        devices = (self.options.devices or os.environ.get("CUDA_VISIBLE_DEVICES") or "").split(",")
        wanted = sum(p.seconds for p in due)
        self.share = min(1, max(.1, len(devices) * (self.end - time.time()) / max(wanted, 1)))
        self.say(f"{len(due)} parts on {len(devices)} lists, {self.share:.2f} of their time")

        if self.options.device == "cpu":
            self.side_by_side(due, devices, self.measure)
            return 0
        self.side_by_side([p for p in due if "_compiled" in p.command], devices * AHEAD,
                          self.compile)
        self.side_by_side(due, devices * BESIDE, self.measure)
        return 0

    def put(self):
        """A part that was measured takes the place of its rows; those of the list's other
        parts stay."""
        path = TOP / "data" / "results" / f"{self.options.name}.jsonl.xz"
        kept = tables.load(self.options.name) if path.exists() else {}
        new, named = {}, {}
        for part in self.parts():
            named.setdefault(part.file, set()).add(part.name)
            if part.file != "-" and part.kept.exists():
                new.setdefault(part.file, {})[part.name] = json.loads(
                    part.kept.read_text())["rows"]
        for file, parts in new.items():
            others = named[file] - set(parts)
            old = [r for r in kept.get(file, []) if r.get("part", r.get("graph")) in others]
            kept[file] = old + [{"file": file, **r} for rows in parts.values() for r in rows]
        with lzma.open(path, "wt", preset=9) as out:
            for row in (r for rows in kept.values() for r in rows):
                out.write(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n")
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.
                                     RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "status", "put"))
    parser.add_argument("out")
    parser.add_argument("name", nargs="?", help="of the results, for put and status")
    parser.add_argument("--list", default=TOP / "tools" / "bench" / "campaign.tsv")
    parser.add_argument("--only", help="these files, between commas")
    parser.add_argument("--minutes", type=float, default=1e5)
    parser.add_argument("--budget", type=float, default=3, help="seconds of a problem, at most")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--devices", help="numbers of GPUs, between commas")
    parser.add_argument("--graphs", default=TOP / "data", help="folder of real graphs")
    parser.add_argument("--store", help="of measurements (default OUT/tuning.db)")
    parser.add_argument("--build", help="the build folder")
    options = parser.parse_args()
    files = {line.split("\t")[0] for line in open(options.list) if "\t" in line}
    if unknown := set((options.only or "").split(",")) - files - {""}:
        parser.error(f"--only: found {', '.join(sorted(unknown))}, which the list has not")
    if options.what == "put" and not options.name:
        parser.error("put: expected the NAME of the results")
    results = TOP / "data" / "results" / f"{options.name}.jsonl.xz"
    if options.what == "status" and options.name and not results.exists():
        parser.error(f"no results {results}")
    options.store = options.store or f"{options.out}/tuning.db"
    return getattr(Campaign(options), options.what)()


if __name__ == "__main__":
    sys.exit(main())
