#!/usr/bin/env python3
"""Draws the folders and their includes as SVG, from the sources:

    docs/architecture.py >docs/figures/architecture.svg
    docs/architecture.py --check        the picture is up to date, and no folder
                                        includes one that stands above it

An arrow is left out where others lead to the same folder, and all to lib/base/."""
import os
import re
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PICTURE = os.path.join(TOP, "docs", "figures", "architecture.svg")

# The floors from top to bottom: (folder, column, text).  A folder includes only
# folders of lower floors.  A room that stands in another is a folder of its own.
FLOORS = [
    [("tools", 1, "dfgnn-tune, dfgnn-bench, dfgnn-graph"), ("bench", 2, "pictures of figures")],
    [("tuner", 1, "measures variants")],
    [("lib", 1, "and select/: plans, choices, calls"), ("graph/partition", 3, "nodes divided among ranks")],
    [("kernels", 0, "every variant, and the references"), ("db", 1, "the tuning store"),
     ("graph/reorder", 3, "orders of nodes")],
    [("kernels/engine", 0, "CUDA's driver and compiler"), ("graph/io", 3, "graph files and generators")],
    [("lib/base", 1.5, "errors, files, forks: for all of them")],
]
# What chooses and what it chooses for know each other: one box.
WITHIN = {"select": "lib"}
FLOOR = {name: i for i, floor in enumerate(FLOORS) for name, _, _ in floor}
BOX, HIGH, GAP, STEP, MARGIN = 210, 54, 16, 92, 16


def sources(room):
    for folder, folders, names in os.walk(os.path.join(TOP, room)):
        folders[:] = sorted(f for f in folders if f != "results" and
                            os.path.relpath(os.path.join(folder, f), TOP) not in FLOOR)
        for name in sorted(names):
            if name.endswith((".c", ".h", ".cuh")):
                yield os.path.join(folder, name)


def parents(path):
    while "/" in path:
        path = os.path.dirname(path)
        yield path


def look():
    """(lines of each folder, {(from, to): a file that includes so})."""
    lines, includes = {}, {}
    for room in FLOOR:
        lines[room] = 0
        rooms = [room, *(inner for inner, outer in WITHIN.items() if outer == room)]
        for path in (path for each in rooms for path in sources(each)):
            with open(path, encoding="utf-8") as file:
                text = file.read()
            lines[room] += text.count("\n")
            for path_of in re.findall(r'^#include "([a-z/]+)/', text, re.M):
                path_of = WITHIN.get(path_of, path_of)
                other = next((p for p in (path_of, *parents(path_of)) if p in FLOOR), path_of)
                if other != room:
                    includes.setdefault((room, other), os.path.relpath(path, TOP))
    return lines, includes


def reaches(includes, start, goal, without):
    """Is there a path from start to goal beside the arrow `without`?"""
    todo, seen = [start], set()
    while todo:
        here = todo.pop()
        for a, b in includes:
            if a == here and (a, b) != without and b not in seen:
                if b == goal:
                    return True
                seen.add(b)
                todo.append(b)
    return False


def draw(lines, includes):
    width = 4 * BOX + 3 * GAP + 2 * MARGIN
    height = len(FLOORS) * STEP + MARGIN
    place = {}
    for i, floor in enumerate(FLOORS):
        for name, column, _ in floor:
            place[name] = (MARGIN + column * (BOX + GAP), MARGIN + i * STEP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
           f'width="{width}" height="{height}" font-family="sans-serif">',
           '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="4" '
           'orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker>',
           f'<rect width="{width}" height="{height}" fill="white"/>']
    for a, b in sorted(includes):
        if b == "lib/base" or reaches(includes, a, b, (a, b)):
            continue
        (xa, ya), (xb, yb) = place[a], place[b]
        out.append(f'<path d="M{xa + BOX / 2:g} {ya + HIGH:g}L{xb + BOX / 2:g} {yb - 2:g}" '
                   'stroke="#667" stroke-width="1.5" marker-end="url(#tip)"/>')
    for floor in FLOORS:
        for name, _, says in floor:
            x, y = place[name]
            # Thousands of lines, in steps that a small change does not move.
            size = "1" if lines[name] < 1500 else f"{lines[name] / 1000:.0f}"
            out += [f'<rect x="{x:g}" y="{y}" width="{BOX}" height="{HIGH}" rx="6" '
                    'fill="#eef3fa" stroke="#1b6ca8"/>',
                    f'<text x="{x + 10:g}" y="{y + 22}" font-size="15" '
                    f'font-weight="bold">{name}/</text>',
                    f'<text x="{x + BOX - 10:g}" y="{y + 22}" font-size="11" fill="#556" '
                    f'text-anchor="end">{size} 000 lines</text>',
                    f'<text x="{x + 10:g}" y="{y + 42}" font-size="11">{says}</text>']
    return "\n".join(out + ["</svg>", ""])


def main():
    lines, includes = look()
    upward = 0
    for (a, b), path in sorted(includes.items()):
        if b in FLOOR and FLOOR[b] <= FLOOR[a] or b not in FLOOR:
            print(f"{path}: {a}/ includes {b}/, which stands "
                  f"{'no lower' if b in FLOOR else 'on no floor of this script'}",
                  file=sys.stderr)
            upward += 1
    if upward:
        return 1
    picture = draw(lines, includes)
    if sys.argv[1:] != ["--check"]:
        sys.stdout.write(picture)
        return 0
    with open(PICTURE, encoding="utf-8") as file:
        drawn = re.sub(r"\d+ 000 lines", "", file.read())
    if drawn != re.sub(r"\d+ 000 lines", "", picture):
        print("docs/figures/architecture.svg is not what docs/architecture.py draws: "
              "run docs/architecture.py >docs/figures/architecture.svg", file=sys.stderr)
        return 1
    print(f"{len(includes)} arrows between {len(FLOOR)} folders, all downward")
    return 0


if __name__ == "__main__":
    sys.exit(main())
