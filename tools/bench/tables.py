#!/usr/bin/env python3
"""Writes the tables of the documents from the figures of data/results.

    tools/bench/tables.py            writes them
    tools/bench/tables.py --check    fails where a document differs
    tools/bench/tables.py NAME...    prints some

A table stands in a document between <!-- table NAME --> and <!-- end -->.
"""

import contextlib
import difflib
import fcntl
import functools
import json
import lzma
import math
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["docs/performance.md", "docs/performance-cpu.md", "docs/selection.md", "docs/clients.md",
         "docs/programs.md", "docs/relations.md"]
GRAPHS = ("cora citeseer pubmed pattern cluster mnist cifar10 voc coco arxiv ppa proteins "
          "reddit_comm reddit_rand").split()
CLASSES = {"batches": GRAPHS[3:9], "small full graphs": GRAPHS[:3], "super nodes": GRAPHS[9:]}
WORST = 4  # cells of a table of many
TABLES = {}


@functools.cache
def load(name):
    """The rows of data/results/NAME.jsonl.xz, by file."""
    rows = {}
    with lzma.open(TOP / "data" / "results" / f"{name}.jsonl.xz", "rt") as file:
        for line in file:
            row = json.loads(line)
            rows.setdefault(row["file"], []).append(row)
    return rows


def rows(name, **members):
    """The rows of DEVICE/FILE that have these members."""
    device, file = name.split("/")
    return [r for r in load(device).get(file, [])
            if all(r.get(k) == v for k, v in members.items())]


def table(*head):
    """Registers a function that yields the cells of rows under this head."""
    def register(function):
        def text():
            lines = [head, ["---"] * len(head), *function()]
            return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
        TABLES[function.__name__] = text
        return function
    return register


@contextlib.contextmanager
def alone(path):
    """Holds the lock of a file, if there is one, so that no other process times anything."""
    if path is None:
        yield
    else:
        with open(path, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def write(path, rows):
    """Writes rows of a benchmark as JSON to a file, whole or not at all, or prints them."""
    text = json.dumps(rows, indent=1) + "\n"
    if path is None:
        sys.stdout.write(text)
    else:
        pathlib.Path(f"{path}.new").write_text(text)
        pathlib.Path(f"{path}.new").replace(path)


# ---- cells --------------------------------------------------------------------

def digits(x, n=3):
    return f"{float(f'{x:.{n}g}'):g}"


def time(ms):
    if ms is None:
        return "-"
    return f"{digits(ms)} ms" if ms >= 1 else f"{digits(ms * 1000)} µs"


def times(x):
    return "-" if x is None else f"{x:.2f}"


def over(a, b):
    return times(a / b if a and b else None)


def size(mb):
    return "-" if mb is None else f"{digits(mb)} MB" if mb < 1000 else f"{digits(mb / 1000)} GB"


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def mean_and(pick, values):
    values = [v for v in values if v]
    return f"{mean(values):.2f} ({pick(values):.2f})" if values else "-"


def least(*values):
    return min((v for v in values if v is not None), default=None)


def problem(row):
    return tuple(row.get(k) for k in ("graph", "op", "pass", "heads", "dim", "dtype", "math",
                                      "edge_dim", "message"))


def by_role(measured):
    """Milliseconds of each problem by role."""
    found = {}
    for r in measured:
        for role in r.get("role", "").split(","):
            if r.get("median_ms"):
                found.setdefault(problem(r), {}).setdefault(role, r["median_ms"])
    return found


def ratios(measured, role):
    return [ms[role] / ms["tuned"] for ms in by_role(measured).values()
            if role in ms and "tuned" in ms]


def peer(tuned, dtype="f32", name=None):
    """The least time of other implementations of a row's problem."""
    return least(*(r["ms"] for r in rows(
        "peers/peers", graph=tuned[0], op=tuned[1], heads=tuned[3], dim=tuned[4], dtype=dtype,
        **{"pass": tuned[2]}) if name is None or r["peer"] == name))


# ---- steps of whole models ------------------------------------------------------

STEPS = {"cora_gat": "cora, GAT 8x8 + 1x7, dropout .6",
         "cora_transformer": "cora, 2 x TransformerConv 8x8",
         "mnist_transformer": "mnist x 1024, 4 x TransformerConv 8x8",
         "pattern_transformer": "pattern x 1024, 4 x TransformerConv 8x8",
         "arxiv_gat": "arxiv, GAT 8x32 + 1x40, dropout .3",
         "arxiv_transformer": "arxiv, 3 x TransformerConv 8x16"}


ZOO = {"zoo_gcn": "GCN, 3 x 128", "zoo_sage": "GraphSAGE, 3 x 128", "zoo_gin": "GIN, 3 x 128",
       "zoo_gat": "GAT, 3 x 128, 8 heads", "zoo_gatv2": "GATv2, 3 x 128, 8 heads",
       "zoo_pna": "PNA, 2 x 64", "zoo_edge_cnn": "EdgeCNN, 2 x 64", "zoo_deeper": "DeeperGCN, 6 x 64",
       "zoo_polynormer": "Polynormer, 64", "zoo_sgformer": "SGFormer, 64",
       "zoo_lightgcn": "LightGCN, 3 x 64", "zoo_gin_molecules": "molecules, GIN, 5 x 64",
       "zoo_gat_molecules": "molecules, GAT with edges, 4 x 64",
       "zoo_gps_molecules": "molecules, GPS, 4 x 64",
       "zoo_attentivefp_molecules": "molecules, AttentiveFP, 3 x 64",
       "pyg_schnet": "molecules, SchNet, 3 x 64", "zoo_graphunet_molecules": "molecules, GraphUNet"}


@table("model", "PyG", "compiled", "dfgnn", "compiled", "captured",
       "the best of dfgnn over the best of PyG", "memory of PyG", "of dfgnn")
def zoo():
    found = {r["case"]: r for r in rows("h200/python_zoo")}
    for case, name in ZOO.items():
        if case in found:
            r = found[case]
            ways = [[r.get(f"{lib}{way}_ms") for way in ("", "_compiled", "_captured")]
                    for lib in ("pyg", "dfgnn")]
            yield [name, *map(time, ways[0][:2] + ways[1]), over(least(*ways[0]), least(*ways[1])),
                   size(r.get("pyg_mb")), size(r.get("dfgnn_mb"))]


@table("model", "PyG", "compiled", "captured", "dfgnn", "compiled", "captured",
       "captured over the best of PyG", "memory of PyG compiled", "of dfgnn")
def steps():
    for r in rows("h200/python_steps"):
        way = {f"{lib}{w}": r.get(f"{lib}{w}_ms") for lib in ("pyg", "dfgnn")
               for w in ("", "_compiled", "_captured")}
        best = least(r.get("pyg_overhead_ms"), *(v for k, v in way.items() if "pyg" in k))
        yield [STEPS[r["case"]], *map(time, way.values()), over(best, way["dfgnn_captured"]),
               size(r.get("pyg_compiled_mb")), size(r.get("dfgnn_mb"))]


@table("example", "PyG", "dfgnn", "faster by", "accuracy or skill of PyG", "of dfgnn",
       "memory of PyG", "of dfgnn")
def examples():
    for what, name in (("cora, GAT, captured", "h200/cora_captured"),
                       ("pattern, an epoch of 1024 graphs", "h200/pattern"),
                       ("the same captured", "h200/pattern_captured"),
                       ("sampled neighbours", "h200/minibatch"),
                       ("flow on a sphere", "h200/weather")):
        for own in rows(name, library="dfgnn"):
            pyg, = rows(name, library="pyg", model=own.get("model"))
            yield [what + (f", {own['model']}" if "neighbours" in what else ""),
                   *(time(r.get("step_ms", r.get("epoch_ms"))) for r in (pyg, own)),
                   times(own["speedup"]),
                   *(times(r.get("accuracy", r.get("skill"))) for r in (pyg, own)),
                   size(pyg["peak_MiB"]), size(own["peak_MiB"])]


# ---- relations -----------------------------------------------------------------

RELATIONS = {
    "igbh": "R-GAT on blocks of IGBH's types, 1.39 M edges, 3 layers of 4 x 128",
    "relbench": "RelBench's GraphSAGE, 20 relations, 148 k edges",
    "hgt": "HGT, 140 relations of 70 types, 705 edges",
    "aifb": "RGCN of AIFB's size, 90 relations, 30 bases",
    "mag": "R-GAT on a graph of ogbn-mag's size, 36.8 M edges",
    "maghgt": "HGT on the same graph"}


@table("case", "PyG", "dfgnn", "times as fast", "launches of PyG", "of dfgnn", "memory of PyG",
       "of dfgnn")
def relations():
    measured = {r["case"]: r for r in rows("h200/python_relations")}
    for case, name in RELATIONS.items():
        if case in measured:
            r = measured[case]
            yield [name, time(r.get("pyg_ms")), time(r["dfgnn_ms"]),
                   over(r.get("pyg_ms"), r["dfgnn_ms"]), r.get("pyg_launches", "-"),
                   r["dfgnn_launches"], size(r.get("pyg_mb")), size(r["dfgnn_mb"])]


# ---- layers and messages ---------------------------------------------------------

@table("layer", *CLASSES, "memory", "PyG out of memory on")
def layers():
    measured = {}
    for r in rows("h200/python_layers"):
        layer, _, graph = r["case"].partition(" on ")
        measured.setdefault(layer, {})[graph] = r
    for layer, own in measured.items():
        fits = {g: r for g, r in own.items() if r.get("pyg_ms")}
        yield [layer, *(times(mean([r["pyg_ms"] / r["dfgnn_ms"] for g, r in fits.items()
                                    if g in graphs])) for graphs in CLASSES.values()),
               times(mean([r["pyg_mb"] / r["dfgnn_mb"] for r in fits.values()])),
               sum("dfgnn_ms" in r for r in own.values()) - len(fits)]


BLOCKS = {"block_128": "328 k", "block_128_large": "1.2 M"}


@table("edges", "type", "forward", "compiled over it", "both passes",
       "compiled over it", "memory", "compiled")
def mlp():
    for r in rows("h200/python_mlp"):
        yield [BLOCKS[r["case"]], r["autocast"], *(cell for kind in ("forward_ms", "ms") for cell in (
            time(r[f"dfgnn_{kind}"]), over(r[f"pyg_compiled_{kind}"], r[f"dfgnn_{kind}"]))),
            size(r["dfgnn_mb"]), size(r["pyg_compiled_mb"])]


# ---- operators --------------------------------------------------------------------

OPERATORS = {"f32_1x128": "four attentions, 1 x 128, f32",
             "f32_8x16": "GT and GAT, 8 x 16, f32",
             "bf16_1x128": "GT and GAT, 1 x 128, bf16",
             "heads_f32": "GT and GATv2, 4 x 32 and 8 x 32, f32, both passes",
             "heads_f16": "GT and GATv2, 16 x 32, f16, both passes",
             "edges_f32": "the same with 11 edge features, 4 x 32, f32",
             "edges_f16": "the same with 11 edge features, 16 x 32, f16",
             "backward_1x128": "four attentions, 1 x 128, f32, backward",
             "gather_128": "sums and reductions of 128, f32",
             "messages_1x64": "sums and reductions of messages of 64, f32, both passes"}


CPU_OPERATORS = {"f32_1x128": "GT, GAT and GATv2, 1 x 128, f32",
                 "backward_8x16": "the same, 8 x 16, backward",
                 "gather_128": "sums and reductions of 128, f32"}
COMPARED = table("figures", "graphs", "problems", "rule", "paper’s rule",
                 "better of smmf and pmf", "unfused")


@COMPARED
def operators():
    return over_tuned("h200", OPERATORS)


@COMPARED
def cpu_operators():
    return over_tuned("cpu", CPU_OPERATORS)


def over_tuned(device, files):
    for file, name in files.items():
        measured = rows(f"{device}/{file}")
        yield [name, len({r["graph"] for r in measured}), len(by_role(measured)),
               mean_and(min, ratios(measured, "rule")),
               *(mean_and(min, ratios(measured, role) if ratios(measured, "paper") else [])
                 for role in ("paper", "smmf-pmf", "unfused"))]


@table("operator", "class", "over unfused", "over smmf, pmf", "over the paper’s rule",
       "over our rule", "over the best f32 peer", "over PyG")
def classes():
    for op in ("gt", "gat", "gatv2"):
        for name, graphs in CLASSES.items():
            measured = [r for r in rows("h200/f32_1x128", op=op) if r["graph"] in graphs]
            tuned = {k: ms["tuned"] for k, ms in by_role(measured).items() if "tuned" in ms}
            beside = [[peer(k, name=n) / ms for k, ms in tuned.items() if peer(k, name=n)]
                      for n in (None, "PyG")]
            yield [op, name, *(times(mean(ratios(measured, role)))
                               for role in ("unfused", "smmf-pmf", "paper", "rule")),
                   *map(times, map(mean, beside))]


@table("operator", "type", *(f"width {d}" for d in (32, 64, 128, 256)))
def spmm():
    for op in ("spmm-sum", "spmm-weighted"):
        for dtype in ("f32", "bf16"):
            yield [op, dtype, *(mean_and(min, [r["times"] for r in rows(
                "h200/python_spmm", op=op, dtype=dtype, dim=d)]) for d in (32, 64, 128, 256))]


@table("device", "cell", "graphs", "variants", "choice", "rule", "after 50 ms", "after 300 ms",
       "raced")
def regret():
    for name, file in (("H200", "h200/regret"), ("CPU, 1 thread", "cpu/regret_1"),
                       ("CPU, 2 threads", "cpu/regret_2")):
        judged = [r for r in rows(file) if "choice_regret" in r]
        ratios_of = lambda found, way: [r[f"{way}_regret"] for r in found if r[f"{way}_regret"]]
        cells = {}
        for row in judged:
            cells.setdefault(row["cell"], []).append(row)
        worst = sorted(cells, key=lambda cell: -mean(ratios_of(cells[cell], "choice")))[:WORST]
        for cell, found in ((c, cells.get(c, judged)) for c in (*worst, "all") if judged):
            yield [name, cell, len(found), max(r["variants"] for r in found), *(
                f"{mean(ratios):.3f} ({max(ratios):.2f})" if ratios else "-" for ratios in (
                    ratios_of(found, way) for way in (
                        "choice", "rule", "tuned_50ms", "tuned_300ms", "raced")))]


@table("operator", "type", *(f"{device}{name}" for device in ("CPU: ", "H200: ")
                             for name in ("variants", "result", "gradients", "vanishing")))
def accuracy():
    for op in ("gt", "gatv2"):
        for dtype in ("f32", "bf16", "f16"):
            yield [op, dtype, *(cell for device in ("cpu", "h200") for cell in worst_errors(
                rows(f"{device}/python_accuracy", op=op, dtype=dtype)))]


def worst_errors(found):
    if not found:
        return ["-"] * 4
    errors = [max(x for r in found if r["direction"] == direction for x in r["errors"].values())
              for direction in ("forward", "backward")]
    return [len({r["variant"] for r in found}), *(
        f"{x:.1e}" for x in (*errors, max(r["vanishing"] for r in found)))]


@table("program", "forward", "before", "backward", "before")
def programs():
    found = rows("h200/programs_walks")
    for op, heads, dim, dtype in dict.fromkeys(
            (r["op"], r["heads"], r["dim"], r["dtype"]) for r in found):
        yield [f"{op} {heads}x{dim}, {dtype}", *(
            mean_and(max, [r[f"{way}_ms"] / r["operator_ms"] for r in rows(
                "h200/programs_walks", op=op, heads=heads, dim=dim, dtype=dtype,
                **{"pass": direction}) if f"{way}_ms" in r])
            for direction in ("forward", "backward") for way in ("program", "before"))]


@table("layer", *(f"{graph}, {what}" for graph in ("mnist", "arxiv")
                  for what in ("forward", "both passes")))
def message_functions():
    found = [r for r in rows("h200/python_programs") if r["way"] == "program"]
    for layer in dict.fromkeys(r["layer"] for r in found):
        yield [layer, *(f"{time(r['ms'])} ({digits(r['over_eager'])})"
                        for graph in ("mnist", "arxiv") for direction in ("forward", "both")
                        for r in found if (r["layer"], r["graph"], r["pass"]) ==
                        (layer, graph, direction))]


# ---- CPUs and packages --------------------------------------------------------------

CPU = {"gcn": "GCN 16, Cora's size", "sage_64": "SAGE 64, Cora's size",
       "gat": "GAT 8x8, Cora's size", "gatv2": "GATv2 8x8, Cora's size",
       "transformer_edges": "TransformerConv 8x8 with edge features, 128 molecules",
       "gatv2_edges": "GATv2 8x8 with edge features, 128 molecules",
       "gine_64": "GINE 64, 128 molecules", "gin_64": "GIN 64, 128 molecules",
       "gps_4": "GPS 64, 32 molecules", "forces": "forces by GINE 64, 32 molecules"}


@table("model", "PyG, 1 thread", "dfgnn", "faster by", "PyG, 2 threads", "dfgnn", "faster by",
       "memory of PyG", "of dfgnn")
def cpu_models():
    for one in rows("cpu/models", threads=1):
        two, = rows("cpu/models", threads=2, case=one["case"])
        yield [CPU[one["case"]], *(cell for r in (one, two) for cell in (
            time(r["pyg_ms"]), time(r["dfgnn_ms"]), over(r["pyg_ms"], r["dfgnn_ms"]))),
            size(one["pyg_mb"]), size(one["dfgnn_mb"])]


@table("model", "layers", "CPU: before", "times as fast", "memory", "H200: before",
       "times as fast", "memory")
def clients():
    sides = [{(r["case"], r.get("autocast") or ""): r for r in found}
             for found in (rows("cpu/clients"), rows("h200/python_zoo") + rows("h200/clients"))]
    for case, cast in sides[1]:
        found = [side.get((case, cast)) for side in sides]
        if case.startswith("graphgym"):
            continue
        yield [ZOO.get(case, case) + f", {cast}" * bool(cast), found[1]["served"],
               *(cell for r in found for cell in ((
                   time(r["pyg_ms"]), over(r["pyg_ms"], r["dfgnn_ms"]),
                   over(r["pyg_mb"], r["dfgnn_mb"])) if r else ["-"] * 3))]


# ---- documents ------------------------------------------------------------------------

def filled(text):
    """The text of a document with its tables anew."""
    return re.sub(r"(<!-- table (\w+) -->\n).*?<!-- end -->",
                  lambda m: f"{m[1]}\n{TABLES[m[2]]()}\n<!-- end -->", text, flags=re.S)


def main(arguments):
    if arguments and arguments != ["--check"]:
        for name in arguments:
            print(TABLES[name]())
        return 0
    differ = 0
    for page in PAGES:
        text = (TOP / page).read_text()
        new = filled(text)
        if text != new and arguments:
            sys.stdout.writelines(difflib.unified_diff(
                text.splitlines(True), new.splitlines(True), page, "the figures"))
            differ = 1
        elif text != new:
            (TOP / page).write_text(new)
    return differ


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
