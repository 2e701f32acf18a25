#!/usr/bin/env python3
"""Fails if two or more files of an archive, or of a list of objects, need each
other: circles.py ARCHIVE|OBJECT...

A file needs another if it uses a symbol that the other defines.  Prints each
circle with the symbols that close it.
"""
import collections
import re
import subprocess
import sys

LINE = re.compile(r"(.*?):(?:([^:]*):)?\s*[0-9a-f]*\s+(\w)\s+(\S+)$")


def symbols(files):
    """(symbols that each object defines, symbols that it uses)."""
    defined = collections.defaultdict(set)
    used = collections.defaultdict(set)
    text = subprocess.run(["nm", "-A", *files], capture_output=True, text=True,
                          check=True).stdout
    for match in filter(None, map(LINE.match, text.splitlines())):
        node = match[2] or match[1]
        if match[3] == "U":
            used[node].add(match[4])
        elif match[3] in "TDBRCG":
            defined[node].add(match[4])
    return defined, used


def short(node):
    """A member's name without what libtool puts before it."""
    return re.sub(r"^(lt\d+-)?(lib\w+_la-)?", "", node)


def components(needs):
    """The strongly connected components, by Tarjan's algorithm."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in needs[node]:
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            at = stack.index(node)
            found.append(stack[at:])
            del stack[at:]

    sys.setrecursionlimit(10000)
    for node in needs:
        if node not in number:
            visit(node)
    return found


def main():
    defined, used = symbols(sys.argv[1:])
    home = {s: node for node, names in defined.items() for s in names}
    nodes = sorted(set(defined) | set(used))
    needs = {n: sorted({home[s] for s in used[n] if home.get(s, n) != n})
             for n in nodes}
    if not any(needs.values()):
        sys.exit(f"no file of {' '.join(sys.argv[1:])} needs another: the "
                 "symbols were not read")
    circles = [c for c in components(needs) if len(c) > 1]
    for circle in circles:
        print("these files need each other:")
        for node in sorted(circle):
            for other in sorted(set(needs[node]) & set(circle)):
                shared = sorted(used[node] & defined[other])
                print(f"  {short(node)} needs {short(other)}: {', '.join(shared)}")
    print(f"{len(nodes)} files, {len(circles)} circles")
    return 1 if circles else 0


if __name__ == "__main__":
    sys.exit(main())
