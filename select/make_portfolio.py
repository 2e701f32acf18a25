#!/usr/bin/env python3
"""Makes the portfolios of a device from surveys, and judges them on graphs left out.

    dfgnn-graph info --json GRAPH... > signatures.json
    dfgnn-tune survey ... -o survey.csv          (cell,graph,variant,ms,...)
    make_portfolio.py make   --device sm_90 --signatures signatures.json survey.csv...
    make_portfolio.py judge  (the same)  the regret by cell, of graphs that took no part
    make_portfolio.py unused (the same)  families and values of parameters without a member

A file DEVICE.txt among the surveys is what `make` wrote before, of graphs that graphs.txt
beside it knows: surveys of further graphs add to its cells, and a variant that it has no
times of counts as slow on its graphs.  Cells without further graphs stay as they are.

`make` writes data/portfolios/DEVICE.txt and adds graphs to data/portfolios/graphs.txt;
data/portfolios/README.md describes the text.  `judge` fits to the graphs that
data/portfolios/split.tsv names for fitting, and judges on those that it names for judging.  A ratio is the time of a variant over that
of the best one on the same graph; a regret is the geometric mean of ratios.
"""
import argparse
import collections
import copy
import json
import pathlib
import re

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent.parent
FOLDER = HERE / "data" / "portfolios"
DEVICES = {  # of a file: backend, architecture, units and bytes of the last-level cache
    "sm_90": ("cuda", "sm_90", 132, 62914560),
    "avx512_1": ("cpu", "x86_64-avx512", 1, 110100480),
    "avx512_2": ("cpu", "x86_64-avx512", 2, 110100480),
}
GRAPHS = 20           # of a cell, at least; one with fewer is not surveyed yet
# A cell of no more variants than MORE_MEMBERS has no portfolio: problems that are like it
# may have others (sums of 100 in 16 bits have 3 variants, those of 96 hundreds).
MEMBERS, MORE_MEMBERS = 12, 16
WORTH = 0.0005        # the least that a member lowers the mean log ratio by
SLOW = np.log(8.0)    # the log ratio of a variant that does not run
PAPERS = 0.01         # the mean log ratio without papers' kernels that makes them members
TREES = 150           # of a ranking
SLOWEST = 208         # 100 times the log ratio beyond which times are alike
LEAVES, FEWEST = 4, 4 # of the conditions of a default; graphs of a leaf
COLUMNS = """destinations sources edges max_degree mean_degree p50_degree p90_degree p99_degree
 degree_cv isolated reuse locality graphs largest_graph density max_source_degree
 p50_source_degree p99_source_degree source_cv isolated_sources""".split()
QUANTITIES = """destinations/units sources/units edges/units mean_degree max_degree
 max_degree*units/edges p50_degree p90_degree p99_degree p99_degree/mean_degree
 max_degree/mean_degree degree_cv isolated reuse locality graphs largest_graph
 destinations/graphs density max_source_degree max_source_degree*units/edges
 p50_source_degree p99_source_degree source_cv isolated_sources edges/sources
 sources/destinations sources*row_bytes/cache edges*row_bytes/units""".split()
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8}
SUMS = ("spmm", "reduce")


# ---- problems and graphs -----------------------------------------------------

def read_cells(path):
    """{name: problem} of a table of cells: a name, then options of dfgnn-tune."""
    cells = {}
    for line in open(path):
        words = line.split("#")[0].split()
        if not words:
            continue
        options = dict(zip(words[1::2], words[2::2]))
        cells[words[0]] = {
            "op": options.get("--op", "gt"), "pass": options.get("--pass", "forward"),
            "heads": int(options.get("--heads", 1)), "dim": int(options.get("--dim", 64)),
            "dtype": options.get("--dtype", "f32"),
            "message": options.get("--message", "copy"),
            "edge-dim": {"projected": -1}.get(options.get("--edge-dim"),
                                              int(options.get("--edge-dim", 0)
                                                  if options.get("--edge-dim") != "projected"
                                                  else 0)),
        }
    return cells


def numbers(signature, problem, device):
    """The numbers that quantities are products of."""
    _, _, units, cache = DEVICES[device]
    head = problem["dim"] * BYTES[problem["dtype"]]
    return signature | {"units": units, "cache": cache, "head_bytes": head,
                        "row_bytes": head * problem["heads"]}


def quantity(text, number):
    """The value of a product such as max_degree*units/edges; nothing over nothing is 0."""
    value = 1.0
    for sign, name in re.findall(r"([*/]?)([a-z0-9_]+)", text):
        x = number[name]
        value = value * x if sign != "/" else value / x if x > 0 else 0.0
    return value


def rough_log(x):
    """The logarithm of select/portfolio_rank.c, linear between powers of two."""
    mantissa, exponent = np.frexp(np.maximum(x, 1e-6))
    return exponent + 2 * mantissa


def quantities(device):
    """What graphs are compared by.  A GPU has many units, and its share of the graph for
    each says how busy they are; CPUs have few, and whether threads pay is a matter of the
    whole graph's size."""
    is_cpu = DEVICES[device][0] == "cpu"
    return [re.sub("[*/]units", "", q) if is_cpu else q for q in QUANTITIES]


def features(graphs, signatures, problem, device):
    """[graphs][quantities]"""
    rows = [[quantity(q, numbers(signatures[g], problem, device)) for q in quantities(device)]
            for g in graphs]
    return np.array(rows, dtype=float)


def lanes_that_load(problem):
    """The lanes that load a row, and a head of it, at once (select/portfolio.c)."""
    heads = 1 if problem["op"].split("-")[0] in SUMS else problem["heads"]
    width = 16 // BYTES[problem["dtype"]]
    dim = problem["heads"] * problem["dim"] // heads
    while dim % width:
        width //= 2
    head = 1 << max(0, (dim // width - 1).bit_length())
    row = 1 << max(0, (heads * head - 1).bit_length())
    return min(32, row), min(32, head)


# ---- portfolios --------------------------------------------------------------

class Cell:
    """The log ratios of a cell's variants to the best of all, papers' too: ratio
    [graphs][variants], SLOW where one does not run, as runs says; member: the variants as
    members."""

    def __init__(self, name, problem, rows, papers, backend):
        table = rows.pivot_table(index="graph", columns="variant", values="ms", aggfunc="min")
        self.name, self.problem = name, problem
        self.graphs, self.variants = list(table.index), list(table.columns)
        self.member = [relative(v, problem, backend) for v in self.variants]
        times = np.log(table.values)
        self.runs = ~np.isnan(times)
        ratio = times - np.nanmin(times, axis=1, keepdims=True)
        self.ratio = np.where(self.runs, np.minimum(ratio, SLOW), SLOW)
        own = [v for v, name in enumerate(self.variants) if name not in papers]
        if own and self.ratio[:, own].min(axis=1).mean() < PAPERS:
            self.leave(own)

    def leave(self, columns):
        self.variants = [self.variants[v] for v in columns]
        self.member = [self.member[v] for v in columns]
        self.runs, self.ratio = self.runs[:, columns], self.ratio[:, columns]

    def add(self, old):
        """Adds the graphs of a portfolio that was made before."""
        rows = [i for i, g in enumerate(old.graphs) if g not in self.graphs]
        lost = [m for m in old.member if m not in self.member]
        self.graphs += [old.graphs[i] for i in rows]
        backend = self.variants[0].split(".")[0]
        self.variants += [f"{backend}.{m.replace(' ', '/', 1).replace(' ', ',')}" for m in lost]
        self.member += lost
        size = len(self.graphs), len(self.variants)
        ratio, runs = np.full(size, SLOW), np.ones(size, bool)
        known, width = self.ratio.shape
        ratio[:known, :width], runs[:known, :width] = self.ratio, self.runs
        runs[:known, width:] = False
        for v, member in enumerate(self.member):
            if member in old.member:
                m = old.member.index(member)
                ratio[known:, v], runs[known:, v] = old.ratio[rows, m], old.runs[rows, m]
        self.ratio, self.runs = ratio, runs

    def of(self, rows):
        """The same of some of the graphs, and of the variants that run on any of them."""
        cell = copy.copy(self)
        cell.graphs = [self.graphs[i] for i in rows]
        cell.runs, cell.ratio = self.runs[rows], self.ratio[rows]
        cell.leave(np.flatnonzero(cell.runs.any(axis=0)))
        return cell


class OldCell:
    """A cell of a portfolio that was made before: its text, and what Cell has."""

    def __init__(self, lines):
        self.lines, self.name = lines, lines[0].split()[1]
        statements = [l.split("#")[0].split() for l in lines]
        self.graphs = next(w[1:] for w in statements if w[0] == "graphs")
        times = [w[2:] for w in statements if w[0] == "times"]
        self.member = [" ".join(w[1:]) for w in statements if w[0] == "member"]
        self.runs = np.array([[t != "-" for t in row] for row in times]).T
        self.ratio = np.array([[SLOW if t == "-" else float(t) / 100 for t in row]
                               for row in times]).T


def read_portfolio(path):
    """The cells {name: OldCell} of a DEVICE.txt, and the signatures of their graphs."""
    cells, signatures = {}, {}
    for text in path.read_text().split("\n\n"):
        if text.startswith("cell "):
            cell = OldCell(text.rstrip("\n").split("\n"))
            cells[cell.name] = cell
    for line in open(path.parent / "graphs.txt"):
        if line.startswith("graph "):
            _, name, *values = line.split()
            signatures[name] = dict(zip(COLUMNS, map(float, values)))
    return cells, signatures


def cost(ratio):
    """What a log ratio costs: large ones more than in proportion."""
    return ratio + ratio * ratio


def choose_members(ratio, most=MEMBERS):
    """Members, greedily: the next is the one that lowers the mean cost most."""
    now, members = np.full(len(ratio), SLOW), []
    costs = cost(ratio)
    now = cost(now)
    while len(members) < most:
        total = np.minimum(now[:, None], costs).sum(axis=0)
        best = int(total.argmin())
        if members and now.sum() - total[best] < WORTH * len(ratio):
            break
        members.append(best)
        now = np.minimum(now, costs[:, best])
    return members


def members_of(ratio):
    """At most MEMBERS, or MORE_MEMBERS where they lower the mean by half a percent."""
    members = choose_members(ratio, MORE_MEMBERS)
    few = ratio[:, members[:MEMBERS]].min(axis=1).mean()
    more = few - ratio[:, members].min(axis=1).mean() > .005
    return members if more else members[:MEMBERS]


class Default:
    """A tree of conditions, each "quantity > limit", whose leaves name a member."""

    def __init__(self, values, ratio, leaves=LEAVES):
        self.leaves = [([], np.arange(len(ratio)))]
        while len(self.leaves) < leaves:
            splits = [(self.split(values, ratio, rows), k)
                      for k, (_, rows) in enumerate(self.leaves)]
            (gain, q, limit), k = max(splits, key=lambda s: s[0][0])
            if gain < .01 * len(ratio):
                break
            conditions, rows = self.leaves.pop(k)
            above = values[rows, q] > limit
            self.leaves += [(conditions + [(q, limit, True)], rows[above]),
                            (conditions + [(q, limit, False)], rows[~above])]
        self.member = [int(ratio[rows].mean(axis=0).argmin()) for _, rows in self.leaves]

    @staticmethod
    def split(values, ratio, rows):
        """(gain, quantity, limit) of the best split of a leaf's rows."""
        best, whole = (0.0, 0, 0.0), ratio[rows].sum(axis=0).min()
        for q in range(values.shape[1]):
            order = rows[np.argsort(values[rows, q], kind="stable")]
            x, sums = values[order, q], np.cumsum(ratio[order], axis=0)
            for i in range(FEWEST - 1, len(rows) - FEWEST):
                if x[i] < x[i + 1]:
                    gain = whole - sums[i].min() - (sums[-1] - sums[i]).min()
                    if gain > best[0] + 1e-9:
                        best = (gain, q, float(f"{np.sqrt(x[i] * x[i + 1]):.3g}")
                                if x[i] > 0 else float(f"{(x[i] + x[i + 1]) / 2:.3g}"))
                        if not x[i] <= best[2] < x[i + 1]:
                            best = (gain, q, float(x[i]))
        return best

    def choose(self, value):
        for (conditions, _), member in zip(self.leaves, self.member):
            if all((value[q] > limit) == above for q, limit, above in conditions):
                return member

    def lines(self, compared):
        """The statements, the leaf of most graphs last: it needs no condition."""
        order = sorted(range(len(self.leaves)), key=lambda k: len(self.leaves[k][1]))
        for k in order:
            conditions = "" if k == order[-1] else " if " + " and ".join(
                f"{compared[q]} {'>' if above else '<='} {limit:g}"
                for q, limit, above in self.leaves[k][0])
            yield f"  default {self.member[k] + 1}{conditions}"


def relative(variant, problem, backend):
    """A variant's name as a member: "family parameter=value ...", lanes by the row's."""
    family, _, values = variant.partition("/")
    family = family.removeprefix(backend + ".")
    row, head = lanes_that_load(problem)
    settings = dict(v.split("=") for v in values.split(",")) if values else {}
    by_head = settings.get("heads") == "grid" and problem["heads"] > 1
    unit, lanes = ("head", head) if by_head else ("row", row)
    if "lanes" in settings and settings["lanes"].isdigit():
        x = int(settings["lanes"])
        word = unit if x == lanes else f"{unit}/{lanes // x}" if lanes > x else \
            f"{x // lanes}{unit}"
        settings["lanes"] = word
    if problem["heads"] == 1 and "heads" in settings:
        del settings["heads"]  # they differ with several heads alone, where warps are best
        settings["heads"] = "warp"
    return " ".join([family] + [f"{k}={v}" for k, v in settings.items()])


# ---- ranking: what select/portfolio_rank.c does, number by number ------------

def random_numbers(seed, count):
    """The first numbers below 1 of splitmix64."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(
            0x9e3779b97f4a7c15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0 ** -53


class Tree:
    """A tree of graphs; alike [asked][graphs] gets the graphs of the leaf that each graph
    asked for comes to."""

    def __init__(self, seed, values, times, asked, alike):
        self.values, self.times, self.asked, self.alike = values, times, asked, alike
        quantities = values.shape[1]
        self.draws = iter(random_numbers(seed, 2 * len(values) * quantities)
                          .reshape(-1, quantities))
        self.grow(np.arange(len(values)), np.arange(len(asked)))

    def grow(self, rows, asked):
        split = self.split(rows)
        if split is None:
            self.alike[np.ix_(asked, rows)] += 1 / len(rows)
            return
        quantity, threshold = split
        for sign in (False, True):
            self.grow(rows[(self.values[rows, quantity] > threshold) == sign],
                      asked[(self.asked[asked, quantity] > threshold) == sign])

    def split(self, rows):
        """The quantity and threshold that part the rows best, or None."""
        times, x = self.times[rows], self.values[rows]
        if len(rows) < 2 or (times == times[0]).all():
            return None
        least = x.min(axis=0)
        threshold = least + (x.max(axis=0) - least) * next(self.draws)
        is_left = x <= threshold
        count, left = is_left.sum(axis=0), is_left.T.astype(float) @ times
        right = times.sum(axis=0) - left
        parts = (count > 0) & (count < len(rows))
        worth = np.where(parts, (left * left).sum(axis=1) / np.maximum(count, 1)
                         + (right * right).sum(axis=1) / np.maximum(len(rows) - count, 1), -1)
        best = int(worth.argmax())
        return (best, threshold[best]) if parts[best] else None


def predict(values, times, runs, asked):
    """[asked][members] log ratios of members: from the quantities of graphs that were
    measured, 100 times their log ratios, and whether they run, for those of other graphs."""
    known = np.where(runs, np.minimum(times, SLOWEST), 0)
    mean = known.sum(axis=0) // np.maximum(runs.sum(axis=0), 1)
    values, asked = rough_log(values), rough_log(asked)
    alike = np.zeros((len(asked), len(values)))
    for seed in range(TREES):
        Tree(seed, values, np.where(runs, known, mean), asked, alike)
    weight = alike ** 2 @ runs
    return np.where(weight > 0, alike ** 2 @ known / np.maximum(weight, 1e-300), SLOWEST) / 100


# ---- commands ----------------------------------------------------------------

def read(options):
    """The cells of the surveys, and the signatures of their graphs; cells of which there
    is nothing but an older portfolio stay OldCells."""
    import pandas as pd
    backend, old, signatures = DEVICES[options.device][0], {}, {}
    for path in (pathlib.Path(f) for f in options.survey if f.endswith(".txt")):
        old, signatures = read_portfolio(path)
    rows = pd.concat(pd.read_csv(f) for f in options.survey if not f.endswith(".txt"))
    # what was measured again stands below what it was
    rows = rows.drop_duplicates(["cell", "graph", "variant"], keep="last")
    papers = set()
    if options.variants:
        with open(options.variants) as file:
            variants = {v["variant"]: v for v in json.load(file)}
        papers = {name for name, v in variants.items() if v["paper"]}
        revision = rows["variant"].map({name: v["revision"] for name, v in variants.items()})
        rows = rows[rows.get("revision", revision).fillna(revision) == revision]
    with open(options.signatures) as file:
        signatures |= {s["graph"]: {c: s[c] for c in COLUMNS} for s in json.load(file)}
    problems = read_cells(options.cells)
    unknown = set(rows["graph"]) - set(signatures)
    if unknown:
        raise SystemExit(f"no signature of {', '.join(sorted(unknown))}")
    groups = dict(list(rows.groupby("cell", sort=False)))
    cells = []
    for name in list(old) + [n for n in groups if n not in old]:
        if name not in groups:
            cells.append(old[name])
            continue
        cell = Cell(name, problems[name], groups[name], papers, backend)
        if name in old:
            cell.add(old[name])
        if len(cell.graphs) >= GRAPHS and len(cell.variants) > MORE_MEMBERS:
            cells.append(cell)
    return cells, signatures


def unranked(cell, signatures, options):
    """Whether the trees are no better than the defaults on graphs left out."""
    rows = np.arange(len(cell.graphs))
    fold = np.random.RandomState(0).permutation(len(rows)) % 4
    found = [judged(cell, rows[fold != k], rows[fold == k], signatures, options)
             for k in range(4)]
    return sum(sum(f["ranked"]) - sum(f["default"]) for f in found) >= 0


def fitted(cell, options):
    """The rows of a cell's graphs that choices are fitted to."""
    use = dict(l.split("\t")[:2] for l in open(options.split) if not l.startswith("#"))
    return np.array([i for i, g in enumerate(cell.graphs)
                     if use.get(g) not in ("judge", "paper")])


def make(options):
    cells, signatures = read(options)
    if options.use == "fit":
        cells = [c if isinstance(c, OldCell) else c.of(fitted(c, options)) for c in cells]
    backend, arch, units, cache = DEVICES[options.device]
    options.output.mkdir(exist_ok=True)
    known = options.output / "graphs.txt"
    old = {l.split()[1]: l.rstrip("\n") for l in open(known) if l.startswith("graph ")} \
        if known.exists() else {}
    used = {g for c in cells for g in c.graphs}
    graphs = old | {g: "graph " + " ".join([g] + [f"{signatures[g][c]:.6g}" for c in COLUMNS])
                    for g in used}
    names = sorted(graphs)
    known.write_text("# Graphs of the surveys; made by select/make_portfolio.py.\n"
                     f"signature {' '.join(COLUMNS)}\n"
                     + "".join(graphs[g] + "\n" for g in names))
    lines = [f"# Portfolios of {arch}, {units} units; made by select/make_portfolio.py.",
             f"device {backend} {arch} units={units} cache={cache}"]
    compared = quantities(options.device)
    lines += ["compare " + " ".join(compared[i:i + 4]) for i in range(0, len(compared), 4)]
    for cell in cells:
        if isinstance(cell, OldCell):
            lines += ["", *cell.lines]
            continue
        members = members_of(cell.ratio)
        ratio = cell.ratio[:, members]
        values = features(cell.graphs, signatures, cell.problem, options.device)
        p = cell.problem
        lines += ["", f"cell {cell.name} {p['op']} {p['pass']} heads={p['heads']} dim={p['dim']}"
                  f" dtype={p['dtype']}"
                  + (f" edge-dim={p['edge-dim']}" if p["edge-dim"] else "")
                  + (f" message={p['message']}" if p["message"] != "copy" else "")
                  + f" # {len(cell.variants)} variants"]
        lines += ["  member " + cell.member[m] for m in members]
        lines += Default(values, ratio).lines(compared)
        order = sorted(range(len(cell.graphs)), key=lambda i: names.index(cell.graphs[i]))
        lines.append("  graphs " + " ".join(cell.graphs[i] for i in order))
        lines += [f"  times {k + 1} " + " ".join(
            f"{round(100 * cell.ratio[i, m])}" if cell.runs[i, m] else "-" for i in order)
            for k, m in enumerate(members)]
        if unranked(cell, signatures, options):
            lines.append("  unranked")
    before = {line.split()[1] for f in options.survey if f.endswith(".txt")
              for line in open(f) if line.startswith("unused ")}
    lines += [""] + [f"unused {f}" for f in unused_families(cells, backend, before)]
    (options.output / f"{options.device}.txt").write_text("\n".join(lines) + "\n")


def regret(x):
    return f"{np.exp(np.mean(x)):.3f} ({np.exp(np.max(x)):.2f})"


def judged(cell, train, test, signatures, options):
    """{who: log ratio} of the choices on graphs that took no part in anything."""
    values = features(cell.graphs, signatures, cell.problem, options.device)
    members = members_of(cell.ratio[train])
    ratio, runs = cell.ratio[:, members], cell.runs[:, members]
    default = Default(values[train], ratio[train])
    predicted = predict(values[train], np.rint(100 * ratio[train]), runs[train], values[test])
    found = {"default": [], "ranked": [], "best member": []}
    for i, forecast in zip(test, predicted):
        if not runs[i].any():
            raise SystemExit(f"{cell.name}: no member runs on {cell.graphs[i]}")
        m = default.choose(values[i])
        m = m if runs[i, m] else int(np.flatnonzero(runs[i])[0])
        found["default"].append(ratio[i, m])
        found["ranked"].append(ratio[i, np.where(runs[i], forecast, np.inf).argmin()])
        found["best member"].append(ratio[i].min())
    return found


def judge(options):
    cells, signatures = read(options)
    print(f"{'cell':14}{'variants':>9}{'fit':>5}{'judged':>7}{'members':>8}  "
          f"{'default':14}{'ranked':14}{'best member':14}")
    everything = collections.defaultdict(list)
    for cell in cells:
        if isinstance(cell, OldCell):
            continue
        rows, fit = np.arange(len(cell.graphs)), fitted(cell, options)
        fold = np.random.RandomState(0).permutation(len(rows)) % max(options.folds, 1)
        parts = [(rows[fold != k], rows[fold == k]) for k in range(options.folds)] or \
            [(fit, np.setdiff1d(rows, fit))]
        found = collections.defaultdict(list)
        for train, test in parts:
            for who, x in judged(cell, train, test, signatures, options).items():
                found[who] += x
        print(f"{cell.name:14}{len(cell.variants):9}{len(parts[0][0]):5}"
              f"{len(found['ranked']):7}{len(members_of(cell.ratio[parts[0][0]])):8}  "
              + "".join(f"{regret(x):14}" for x in found.values()), flush=True)
        for who, x in found.items():
            everything[who] += x
    print(f"{'all':14}{'':29}  " + "".join(f"{regret(x):14}" for x in everything.values()))


def taken(cells):
    """{family: {parameter: {value: cells}}} of members, and the same of all variants."""
    def count(names):
        out = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
        for cell, variant in names:
            family, _, values = variant.partition("/")
            out[family][""][""] += 1
            for v in values.split(",") if values else []:
                out[family][v.split("=")[0]][v.split("=")[1]] += 1
        return out
    return (count((c, c.variants[m]) for c in cells for m in members_of(c.ratio)),
            count((c, v) for c in cells for v in c.variants))


def unused_families(cells, backend, before):
    """Families that surveys measured, before too, and that are in no portfolio."""
    surveyed = [c for c in cells if isinstance(c, Cell)]
    known = {f.removeprefix(backend + ".") for f in taken(surveyed)[1]}
    return sorted((known | before)
                  - {c.member[m].split()[0] for c in surveyed for m in members_of(c.ratio)}
                  - {m.split()[0] for c in cells if isinstance(c, OldCell) for m in c.member})


def unused(options):
    members, variants = taken([c for c in read(options)[0] if isinstance(c, Cell)])
    for family in sorted(variants):
        if family not in members:
            print(f"{family}: no member")
            continue
        for parameter, values in variants[family].items():
            none = [v for v in values if v not in members[family][parameter]]
            if none:
                print(f"{family}: {parameter}={' '.join(none)} has no member; members: "
                      + " ".join(f"{v}:{n}" for v, n in members[family][parameter].items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "judge", "unused"))
    parser.add_argument("survey", nargs="+", help="CSV files of one device, .gz too")
    parser.add_argument("--device", default="sm_90", choices=DEVICES)
    parser.add_argument("--signatures", required=True)
    parser.add_argument("--variants", help="what `dfgnn-tune variants --json` prints: rows of"
                        " variants that have left the library or changed since leave the survey,"
                        " and papers' are members only where they win")
    parser.add_argument("--cells", default=HERE / "data" / "portfolios" / "cells.txt")
    parser.add_argument("--split", default=HERE / "data" / "portfolios" / "split.tsv")
    parser.add_argument("--use", default="all", choices=("all", "fit"),
                        help="make: of which graphs of the split")
    parser.add_argument("--output", type=pathlib.Path, default=FOLDER)
    parser.add_argument("--folds", type=int, default=0,
                        help="judge on all graphs, leaving out each part of so many in turn")
    options = parser.parse_args()
    {"make": make, "judge": judge, "unused": unused}[options.command](options)


if __name__ == "__main__":
    main()
