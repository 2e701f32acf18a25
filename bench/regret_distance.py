#!/usr/bin/env python3
"""Draws regret by the distance to the nearest measured graph, as SVG:

    dfgnn-tune model train STORE.db GRAPH... --all --json >rows.json
    regret_distance.py rows.json... >docs/figures/regret_distance.svg

Each dot is a problem whose graph was left out; lines are geometric means of
equal shares of the problems, by distance."""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, BOTTOM, SHARES = 640, 360, 60, 50, 8
WAYS = (("nearest", "near graphs", "#d95f02"), ("model", "the model", "#1b6ca8"),
        ("race", "best of those that race", "#2a9d4a"))

rows = [r for name in sys.argv[1:] for r in json.load(open(name, encoding="utf-8"))
        if r.get("graph") and r.get("distance") is not None and r["distance"] >= 0]
rows.sort(key=lambda r: r["distance"])
far = min(max(r["distance"] for r in rows), 4)


def place(distance, regret):
    x = LEFT + (WIDTH - LEFT - 20) * min(distance, far) / far
    y = HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 20) * math.log2(min(regret, 4)) / 2
    return round(x, 1), round(y, 1)


out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
       'font-family="sans-serif" font-size="12">',
       f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
for regret in (1, 1.1, 1.25, 1.5, 2, 3, 4):
    x, y = place(0, regret)
    out.append(f'<path d="M{x} {y}H{WIDTH - 20}" stroke="#ddd"/>'
               f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{regret:g}</text>')
step = 0.5
for k in range(int(far / step) + 1):
    x, y = place(k * step, 1)
    out.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{k * step:g}</text>')
out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 10}" text-anchor="middle">distance to '
           'the nearest measured graph</text>')
out.append(f'<text x="16" y="{HEIGHT / 2}" text-anchor="middle" '
           f'transform="rotate(-90 16 {HEIGHT / 2})">time over the best</text>')
for number, (way, label, colour) in enumerate(WAYS):
    known = [r for r in rows if r.get(way)]
    out.append(f'<g fill="{colour}" fill-opacity="0.35">')
    for r in known:
        x, y = place(r["distance"], r[way])
        out.append(f'<circle cx="{x:g}" cy="{y:g}" r="1.6"/>')
    out.append("</g>")
    line = []
    for k in range(SHARES):
        part = known[k * len(known) // SHARES:(k + 1) * len(known) // SHARES]
        if part:
            mean = math.exp(sum(math.log(r[way]) for r in part) / len(part))
            line.append(place(sum(r["distance"] for r in part) / len(part), mean))
    out.append(f'<polyline points="{" ".join(f"{x},{y}" for x, y in line)}" '
               f'fill="none" stroke="{colour}" stroke-width="2.5"/>')
    out.append(f'<text x="{WIDTH - 24}" y="{32 + 16 * number}" text-anchor="end" '
               f'fill="{colour}">{label}</text>')
print("\n".join(out + ["</svg>"]))
