#!/usr/bin/env python3
"""Prints the table of docs/tuning.md about the regret of models, from the
output of `dfgnn-tune model train` or `judge STORE GRAPH... --all --json`:

    regret_table.py bench/results/h200/model_train.json
    regret_table.py --cells bench/results/h200/model_train.json

Rows without a graph are summaries, and left out; --cells prints those by cell of
problems instead, first those in which the choice loses most against the rule."""
import json
import math
import sys

WAYS = ("model", "race", "shape", "shape_race", "nearest", "rule", "paper")
TITLES = ("model", "race", "shape left out", "race", "nearest", "rule", "paper")

by_cell = "--cells" in sys.argv
files = [name for name in sys.argv[1:] if name != "--cells"]
rows = [r for name in files for r in json.load(open(name, encoding="utf-8"))]


def cell(part, way):
    known = [r[way] for r in part if r.get(way)]
    if not known:
        return ""
    mean = math.exp(sum(map(math.log, known)) / len(known))
    return f"{mean:.2f} ({max(known):.2f})"


def line(title, part):
    cells = " | ".join([str(len(part))] + [cell(part, way) for way in WAYS])
    print(f"| {title} | {cells} |")


def cells(part):
    """Geometric means, and the worst, of the choice over the rule's, and over
    the best of the choice, the race and the rule."""
    ways = ("over_rule", "choice", "race", "rule")
    print("| cell | problems | choice over rule | choice over best | race over "
          "best | rule over best |")
    print("|---" * 6 + "|")
    for r in sorted(part, key=lambda r: -(r.get("over_rule") or 0)):
        print(f"| {r['op']} | {r['problems']} | " + " | ".join(
            f"{r[way]:.2f} ({r[way + '_worst']:.2f})" if r.get(way) else ""
            for way in ways) + " |")


def problems(part):
    shapes = {}
    for r in part:
        key = r["op"], r["pass"], r["heads"], r["dim"], r["dtype"]
        shapes.setdefault(key, []).append(r)
    print("| problem | " + " | ".join(("problems",) + TITLES) + " |")
    print("|---" * (len(TITLES) + 2) + "|")
    for (op, direction, heads, dim, dtype), alike in sorted(shapes.items()):
        dtype = f" {dtype}" if dtype != "f32" else ""
        line(f"{op} {direction} {heads}x{dim}{dtype}", alike)
    line("all", part)


if by_cell:
    cells([r for r in rows if r.get("is_cell")])
else:
    problems([r for r in rows if r.get("graph")])
