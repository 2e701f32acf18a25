#!/usr/bin/env python3
"""Draws regret by the share of the graphs that a model learned from, as SVG,
from the output of `dfgnn-tune model judge STORE GRAPH... --json`:

    regret_graphs.py FILE.json >docs/figures/regret_graphs.svg

An eighth of the graphs is left out to be judged, so that a model learns from
7/8 at most."""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, MOST = 640, 360, 60, 50, 1.5
WAYS = (("choice", "the choice", "#1b6ca8"),
        ("race", "best of those that race", "#2a9d4a"))

rows = [r for r in json.load(open(sys.argv[1], encoding="utf-8"))
        if r["op"] == "all"]
rows.sort(key=lambda r: r.get("share", 1))


def place(percent, regret):
    x = LEFT + (WIDTH - LEFT - 20) * percent / 100
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
for percent in range(0, 101, 20):
    x, y = place(percent, 1)
    out.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{percent} %</text>')
out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">share of the '
           'graphs that the model learned from</text>')
out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 16 '
           f'{HEIGHT / 2})">time over the best, geometric mean</text>')
for number, (way, label, colour) in enumerate(WAYS):
    line = [place(100 * r.get("share", 1) * 7 / 8, r[way]) for r in rows]
    out.append(f'<polyline points="{" ".join(f"{x},{y}" for x, y in line)}" '
               f'fill="none" stroke="{colour}" stroke-width="2.5"/>')
    out.append(f'<text x="{WIDTH - 24}" y="{32 + 16 * number}" text-anchor="end" '
               f'fill="{colour}">{label}</text>')
print("\n".join(out + ["</svg>"]))
