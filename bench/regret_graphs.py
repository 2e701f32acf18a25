#!/usr/bin/env python3
"""Draws regret by the number of graphs that a model learned from, as SVG, from
the output of `dfgnn-tune model judge STORE GRAPH... --all --json`:

    regret_graphs.py FILE.json... >docs/figures/regret_graphs.svg

Each file is the output for one store, which has one kind of problems.  An
eighth of the graphs is left out to be judged, so that a model learns from 7/8
at most."""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, MOST = 640, 360, 60, 50, 1.5
COLOURS = ("#1b6ca8", "#d95f02", "#2a9d4a")


def label(rows):
    ops = {r["op"] for r in rows if r.get("graph")}
    if "gt" in ops:
        return "attention " + next(r["pass"] for r in rows if r.get("graph"))
    return "SpMM and maximum"


curves = []
for name in sys.argv[1:]:
    rows = json.load(open(name, encoding="utf-8"))
    graphs = len({r["graph"] for r in rows if r.get("graph")})
    points = [(r.get("share", 1) * graphs * 7 / 8, r["model"], r["race"])
              for r in rows if r["op"] == "all"]
    curves.append((label(rows), sorted(points)))
last = max(p[0] for _, points in curves for p in points)


def place(count, regret):
    x = LEFT + (WIDTH - LEFT - 20) * count / last
    y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 20) * (
        math.log(min(regret, MOST)) / math.log(MOST))
    return round(x, 1), round(y, 1)


out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
       'font-family="sans-serif" font-size="12">',
       f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
for regret in (1, 1.01, 1.03, 1.1, 1.2, 1.3, 1.5):
    x, y = place(0, regret)
    out.append(f'<path d="M{x} {y}H{WIDTH - 20}" stroke="#ddd"/>'
               f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{regret:g}</text>')
for count in range(0, int(last) + 1, 10):
    x, y = place(count, 1)
    out.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{count}</text>')
out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">graphs that the '
           'model learned from</text>')
out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 '
           f'{HEIGHT / 2})">time over the best, geometric mean</text>')
for number, ((title, points), colour) in enumerate(zip(curves, COLOURS)):
    for way, dash in ((1, ""), (2, ' stroke-dasharray="5 4"')):
        line = [place(p[0], p[way]) for p in points]
        out.append(f'<polyline points="{" ".join(f"{x},{y}" for x, y in line)}" '
                   f'fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>')
    out.append(f'<text x="{WIDTH - 24}" y="{32 + 16 * number}" text-anchor="end" '
               f'fill="{colour}">{title}</text>')
out.append(f'<text x="{WIDTH - 24}" y="{32 + 16 * len(curves)}" text-anchor="end" '
           'fill="#555">dashed: the best of its first four</text>')
print("\n".join(out + ["</svg>"]))
