"""Runs the commands and code of README.md and docs/*.md.

    check_docs.py SOURCE BUILD [PAGE...]

Each page gets a fresh folder with small graphs, the tools of BUILD first in PATH and no
store of the user's; its shell blocks run there one after the other, its Python blocks in
one process, each C block as a program.  A block is indented by four spaces or fenced.  A
comment before it, which no reader sees, says what cannot be told from the block:

    <!-- check-docs: skip: needs a GPU -->    not run, and counted
    <!-- check-docs: text -->                 no code: a formula, an excerpt
    <!-- check-docs: c -->, python, shell     what an indented block is
    <!-- check-docs: python: fresh -->        with models nobody has touched
    <!-- check-docs: output -->               what the block before it prints
    <!-- check-docs: kernel: STEM -->         C: a file of kernels, as DFGNN_FAMILIES(STEM)
    <!-- check-docs: compiler -->             commands that need NVRTC

Lines after one that begins with "$ " are compared with its output word by word: numbers,
units and variants may be any, and columns and rows may be left out.  Lines that begin with
"make " are read by make -n and not run.  Where Python has no torch, or no jax, the blocks
that need it are counted as skipped.
"""

import glob
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

# Pages name folders and budgets that do not suit a test: (text, its replacement).
REWRITTEN = [("/shared/dfgnn/", "shared/"), ("/local/", "local/"),
             ("--budget 10s", "--budget 3s"), ("budget=5", "budget=0.1"),
             ("sm_80,sm_90", "sm_90")]
SHELL = re.compile(r"(\$ )?(dfgnn-\w+|make|cc|export|[A-Z_]+=\S* ?\w*|tools/|data/stores/|"
                   r"mpirun|pip|python3|torchrun|build/)\b")

# Names that the C blocks use without declaring them.
C_FRAME = """
#include <dfgnn.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
  enum { nodes = 3, edges = 4 };
  static const int32_t offsets[] = {0, 2, 3, 4}, indices[] = {0, 1, 2, 0};
  static float x[nodes * 128], out[nodes * 128], grad_out[nodes * 128],
      grad_x[nodes * 128], a[nodes * 8], b[nodes * 8];
  static int32_t arg[nodes * 128];
  int64_t rows[nodes];
  static _Alignas(64) char workspace[1 << 20];
  void *stream = NULL;
  dfgnn_context *ctx;
  dfgnn_graph *graph;
  dfgnn_csr csr = DFGNN_CSR_INIT;
  csr.destinations = csr.sources = nodes;
  csr.edges = edges;
  csr.offsets = offsets;
  csr.indices = indices;
  dfgnn_args args = DFGNN_ARGS_INIT;
  args.query = args.key = args.value = x;
  args.out = out;
  if (dfgnn_context_create(&ctx, NULL) || dfgnn_graph_create_csr(&graph, ctx, &csr, NULL))
    return EXIT_FAILURE;
  (void)x, (void)out, (void)grad_out, (void)grad_x, (void)a, (void)b, (void)arg;
  (void)rows, (void)workspace, (void)stream, (void)args;
  {
%s
  }
  fputs(dfgnn_last_error(), stderr);
  return *dfgnn_last_error() != 0;
}
"""

# Code linked into a test that registers the families of a page's kernel.
KERNEL_FRAME = """
#include "lib/registry.h"
__attribute__((constructor)) static void add(void) {
  dfgnn__registry_add(dfgnn__families_%s);
}
"""

# Names that the Python blocks use without making them.
PYTHON_FRAME = """
import numpy, torch, torch.nn.functional as F, dfgnn
import torch_geometric.nn as pyg
from torch_geometric.data import Batch, Data
torch.manual_seed(0)
num_nodes = n = 60
edge_index = torch.randint(0, n, (2, 400))
edge_index = edge_index[:, edge_index[1].argsort(stable=True)]
features, labels = torch.randn(n, 16), torch.randint(0, 4, (n,))

class Points(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList([pyg.GATConv(16, 8, heads=2),
                                          pyg.GATConv(16, 8, heads=2)])
        self.gps = torch.nn.Module()
        self.gps.conv = pyg.GINEConv(torch.nn.Linear(16, 16))
        self.points = pyg.PointNetConv()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = dfgnn.nn.GATConv(16, 4)
    def forward(self, x, graph):
        return self.conv(x, graph)

conv, step = dfgnn.nn.GATConv(16, 4), lambda x: x + 1
model, Model = Points(), Net
graph = dfgnn.as_graph(edge_index, n)
batch = Batch.from_data_list([Data(x=features, edge_index=edge_index)])
q = k = v = torch.randn(n, 2, 4)
x, relations = features, [graph, graph]
sources, destinations = n, n
offsets, indices = (t.contiguous() for t in (
    torch.searchsorted(edge_index[1].contiguous(), torch.arange(n + 1)), edge_index[0]))
order = edge_index[0].argsort(stable=True)
column_offsets = torch.searchsorted(edge_index[0][order].contiguous(), torch.arange(n + 1))
column_rows, column_edges = edge_index[1][order].contiguous(), order
"""


class Block:
    def __init__(self, page, line, kind, lines, mark):
        self.page, self.line, self.mark = page, line, mark
        self.text = textwrap.dedent("\n".join(lines)) + "\n"
        for written, here in REWRITTEN:
            self.text = self.text.replace(written, here)
        self.kind = kind if kind else self.guess()

    def guess(self):
        word = self.mark.partition(":")[0]
        if word in ("skip", "text", "c", "python", "shell", "output", "kernel",
                    "compiler"):
            return word
        if SHELL.match(self.text):
            return "shell"
        raise SystemExit(f"{self.page}:{self.line}: nothing says what this block is; "
                         "docs/check_docs.py says how to mark it:\n" + self.text)


def blocks(page):
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    i, mark = 0, ""
    while i < len(lines):
        start, kind = i, None
        comment = re.match(r"<!-- check-docs: (.*) -->$", lines[i])
        fence = re.match(r"```(\w*)", lines[i])
        if comment:
            mark = comment[1]
        elif fence:
            kind = fence[1] if fence[1] in ("c", "python") and not mark else ""
            i += 1
            while not lines[i].startswith("```"):
                i += 1
            yield Block(page, start + 1, kind, lines[start + 1:i], mark)
            mark = ""
        elif re.match(r" {4,}\S", lines[i]) and not lines[i - 1].strip():
            while i < len(lines) and (not lines[i].strip() or lines[i].startswith("    ")):
                i += 1
            yield Block(page, start + 1, None, lines[start:i], mark)
            mark = ""
            i -= 1
        elif lines[i].strip() and mark:
            raise SystemExit(f"{page}:{i + 1}: a check-docs comment without a block")
        i += 1


# ---- comparison of output ----------------------------------------------------

def words(line):
    """The words of a line, without numbers, units, variants and rulers.  Roles
    of one variant ("rule,paper") may differ: each counts as a word."""
    line = re.sub(r"\b(cpu|cuda)\.[a-z0-9_.]+(/\S+)?", "", line)
    return [word.strip(",.;:") for word in re.split(r"[\s,]+", line)
            if re.search(r"[A-Za-z]{3}", word) and not re.match(r"[\d.]", word)]


def compare(shown, printed):
    """None, or the first shown text that was not printed."""
    known = set(words(printed))
    for line in shown.splitlines():
        missing = [word for word in words(line) if word not in known
                   and not ROW_LEFT_OPEN.search(line)]
        if missing:
            return f"{line!r} is shown; {missing} was not printed"
    return None


# Rows whose text is that of a measurement: reasons and names of processors.
ROW_LEFT_OPEN = re.compile(r"(chosen|ties with|slower: )|AMD|Intel|measured on this")


# ---- running -----------------------------------------------------------------

def run(command, folder, environment, seconds=300):
    done = subprocess.run(command, cwd=folder, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=seconds)
    return done.returncode, done.stdout


class Checker:
    def __init__(self, source, build):
        self.source, self.build = os.path.abspath(source), os.path.abspath(build)
        self.count = {"run": 0, "text": 0, "skipped": 0}
        self.reasons = {}
        self.failed = []
        self.has = {name: not subprocess.run(
            [sys.executable, "-c", f"import {name}"], stderr=subprocess.DEVNULL).returncode
            for name in ("torch_geometric", "jax")}

    def prepare(self, folder):
        self.environment = {
            **{name: value for name, value in os.environ.items()
               if not name.startswith("DFGNN_")},
            "PATH": os.path.join(self.build, "tools") + os.pathsep + os.environ["PATH"],
            "XDG_DATA_HOME": os.path.join(folder, "home"),
            "XDG_CACHE_HOME": os.path.join(folder, "home"),
            "DFGNN_TUNE_BUDGET": "0.05", "OMP_NUM_THREADS": "1", "USER": "user",
            "PYTHONPATH": os.path.join(self.source, "python"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "DFGNN_PACKAGE_STORE": os.path.join(self.build, "data", "stores",
                                                "tuning.db"),
            "DFGNN_LIBRARY": os.path.join(self.build, ".libs", "libdfgnn.so"),
            "PKG_CONFIG_PATH": folder}
        for name in ("data", "examples", "tools", "bench", "kernels",
                     "engine", "include"):
            os.symlink(os.path.join(self.source, name), os.path.join(folder, name))
        os.symlink(self.build, os.path.join(folder, "build"))
        for name in ("shared", "local", "graphs"):
            os.mkdir(os.path.join(folder, name))
        place = dict(cwd=folder, env=self.environment, check=True,
                     stdout=subprocess.DEVNULL)
        cora = os.path.join(self.source, "data", "cora.npz")
        subprocess.run(["dfgnn-graph", "convert", cora, "mygraph.mtx"], **place)
        for name in ("cora.npz", "mygraph.npz", "graph.npz", "in.npz", "graphs/a.npz"):
            shutil.copyfile(cora, os.path.join(folder, name))
        with open(os.path.join(folder, "mygraph.mtx"), "rb") as file, \
                gzip.open(os.path.join(folder, "mygraph.mtx.gz"), "wb") as packed:
            packed.write(file.read())
        for number, name in enumerate(("tuning.db", "all.db", "node1.db", "node2.db",
                                       "node3.db", "local/all.db")):
            subprocess.run(["dfgnn-tune", "run", cora, "--store", name, "--op", "gat",
                            "--dim", str(8 << number % 2), "--budget", "0.05", "-q"],
                           **place)
        for name in ("gt.c", "app.c"):
            shutil.copyfile(os.path.join(self.source, "examples", "gt.c"),
                            os.path.join(folder, name))
        with open(os.path.join(folder, "dfgnn.pc"), "w") as file:
            libs = os.path.join(self.build, ".libs")
            file.write(f"Name: dfgnn\nDescription: of a build\nVersion: 0\n"
                       f"Cflags: -I{self.source}/include\n"
                       f"Libs: -L{libs} -Wl,-rpath,{libs} -ldfgnn -lm\n")

    def skip(self, reason):
        self.count["skipped"] += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def fail(self, block, text):
        self.failed.append(f"{block.page}:{block.line}: {text}")

    def shell(self, block, folder):
        """Runs each command and compares its output with the lines after it."""
        commands = []
        session = re.search(r"^\$ ", block.text, re.M)
        for line in block.text.splitlines():
            if not session or line.startswith("$ "):
                commands.append([line[2:] if session else line, ""])
            elif commands:
                commands[-1][1] += line + "\n"
        for command, shown in commands:
            if not command.strip():
                continue
            dry = re.match(r"(\w+=\S+ )*make ", command)
            script = command.replace("make ", "make -n ", 1) if dry else command
            script = script.replace("-C build ", "")
            if self.kernel and "check_variants" in command:
                script = f"LD_PRELOAD={self.kernel} {script}"
            kept = os.path.join(folder, "exported")
            script = (f". {kept} 2>/dev/null\n{script}\nstatus=$?\n"
                      f"export -p >{kept}\nexit $status")
            status, printed = run(["bash", "-c", script],
                                  self.build if dry else folder, self.environment)
            if status == 77 and block.kind == "compiler":
                self.skip("there is no NVRTC")
                return
            if status:
                self.fail(block, f"`{command}` ends with {status}:\n{printed[-2000:]}")
                return
            wrong = compare(shown, printed) if not dry else None
            if wrong:
                self.fail(block, f"`{command}`: {wrong}\n{printed[-2000:]}")
        self.count["run"] += 1

    def c(self, block, folder):
        source = os.path.join(folder, "block.c")
        with open(source, "w", encoding="utf-8") as file:
            file.write(C_FRAME % block.text)
        status, printed = run(
            ["sh", "-c", "cc -std=c11 -Wall -Wno-shadow -Werror block.c -o block "
             "$(pkg-config --cflags --libs dfgnn) && ./block"], folder,
            {**self.environment, "DFGNN_STORE": ""})
        self.count["run"] += 1
        if status:
            self.fail(block, f"ends with {status}:\n{printed[-2000:]}")

    compiler = shell

    def kernel_file(self, block, folder):
        """Compiles a page's kernel, which the page's own commands test then."""
        stem = block.mark.partition(":")[2].strip()
        with open(os.path.join(folder, "kernel.c"), "w", encoding="utf-8") as file:
            file.write(block.text + KERNEL_FRAME % stem)
        self.kernel = os.path.join(folder, "kernel.so")
        libs = os.path.join(self.build, "tests", ".libs")
        status, printed = run(
            ["cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-fopenmp", "-fPIC",
             "-shared", f"-I{self.source}/include", f"-I{self.source}", f"-I{self.build}",
             "kernel.c", "-o", "kernel.so", f"-L{libs}", f"-Wl,-rpath,{libs}",
             "-ldfgnn_test"], folder, self.environment)
        self.count["run"] += 1
        if status:
            self.fail(block, f"does not compile:\n{printed[-2000:]}")

    def python(self, page, found, folder):
        """Runs the Python blocks of a page in one process, and compares their
        output."""
        need = "jax" if os.path.basename(page) == "jax.md" else "torch_geometric"
        if not self.has[need]:
            for _ in found:
                self.skip(f"there is no {need}")
            return
        program = "" if need == "jax" else PYTHON_FRAME
        for i, (block, _) in enumerate(found):
            if block.mark == "python: fresh":
                program += PYTHON_FRAME
            program += f"print('== {i}', flush=True)\n{block.text}"
        path = os.path.join(folder, "blocks.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(program)
        status, printed = run([sys.executable, path], folder, self.environment)
        parts = re.split(r"^== \d+\n", printed, flags=re.M)[1:]
        self.count["run"] += len(parts)
        if status:
            self.fail(found[max(len(parts) - 1, 0)][0],
                      f"ends with {status}:\n{printed[-2000:]}")
            return
        for (block, shown), part in zip(found, parts):
            if shown and shown.strip() not in part:
                self.fail(block, f"shows\n{shown}but prints\n{part}")

    def page(self, page, blocks):
        python, self.kernel = [], None
        with tempfile.TemporaryDirectory() as folder:
            self.prepare(folder)
            for block in blocks:
                if block.kind == "skip":
                    self.skip(block.mark.partition(":")[2].strip())
                elif block.kind == "text":
                    self.count["text"] += 1
                elif block.kind == "python":
                    python.append([block, ""])
                elif block.kind == "kernel":
                    self.kernel_file(block, folder)
                elif block.kind == "output":
                    python[-1][1] = block.text
                    self.count["run"] += 1
                else:
                    getattr(self, block.kind)(block, folder)
            if python:
                self.python(page, python, folder)


def main():
    checker = Checker(*sys.argv[1:3])
    pages = sys.argv[3:] or [
        os.path.join(checker.source, "README.md"),
        *sorted(glob.glob(os.path.join(checker.source, "docs", "*.md")))]
    for page, found in [(page, list(blocks(page))) for page in pages]:
        checker.page(page, found)
    for text in checker.failed:
        print(text)
    for reason, count in sorted(checker.reasons.items()):
        print(f"skipped {count}: {reason}")
    print(f"{checker.count['run']} blocks run, {len(checker.failed)} failed, "
          f"{checker.count['skipped']} skipped, {checker.count['text']} are no code")
    if checker.failed or not checker.count["run"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
