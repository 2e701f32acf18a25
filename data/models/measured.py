#!/usr/bin/env python3
"""Rows of a store from a table of times: measured.py TUNE GRAPH CSV.gz GRAPHS >ROWS.jsonl

TUNE and GRAPH are dfgnn-tune and dfgnn-graph; CSV has graph, op, pass, heads,
dim, variant, status, median_ms, ci_low_ms, ci_high_ms of one GPU.  Rows say that
they are of the revisions that dfgnn-tune has.  Ratios are to the fastest variant
of each problem."""
import csv
import gzip
import hashlib
import itertools
import json
import subprocess
import sys

tune, graph_tool, table, folder = sys.argv[1:]
ask = lambda *command: json.loads(subprocess.run(  # noqa: E731
    command, capture_output=True, text=True, check=False).stdout)
revisions = {v["variant"]: v["revision"] for v in ask(tune, "variants", "--json")}
with gzip.open(table, "rt") as lines:
    rows = [r for r in csv.DictReader(lines) if r["variant"] in revisions]
names = sorted({r["graph"] for r in rows})
info = {g["graph"]: g for g in ask(
    graph_tool, "info", "--json", *(f"{folder}/{name}.npz" for name in names))}
device = {"backend": "cuda", "arch": "sm_90", "model": "NVIDIA H200", "units": 132,
          "cache_bytes": 62914560, "memory_bytes": 150109880320,
          "shared_bytes": 232448, "driver": "", "runtime": "", "library": ""}
signature = ["destinations", "sources", "edges", "max_degree", "mean_degree",
             "p50_degree", "p90_degree", "p99_degree", "degree_cv", "isolated",
             "reuse", "locality", "graphs", "largest_graph", "density", "fingerprint"]
key = lambda r: (r["graph"], r["op"], r["pass"], r["heads"], r["dim"])  # noqa: E731
for problem, group in itertools.groupby(sorted(rows, key=key), key):
    timed = [r for r in group if r["status"] == "ok"]
    if not timed or problem[0] not in info:
        continue
    best = min(timed, key=lambda r: float(r["median_ms"]))
    least = float(best["median_ms"])
    g = info[problem[0]]
    for r in timed:
        low, high = float(r["ci_low_ms"]), float(r["ci_high_ms"])
        same = r is best
        print(json.dumps({
            **device, "op": r["op"], "pass": r["pass"], "dtype": "f32",
            "math": "f32", "layout": "nhd", "index": "i32",
            "heads": int(r["heads"]), "dim": int(r["dim"]), "deterministic": 1,
            "weights": 0, "graph": problem[0], "family": "",
            **{name: g[name] for name in signature},
            "histogram": (g["histogram"] + [0.0] * 24)[:24],
            "variant": r["variant"], "revision": revisions[r["variant"]],
            "tool": "measured.py", "host": "h200", "job": "", "protocol": "warm",
            "run": hashlib.sha256(repr(problem).encode()).hexdigest()[:32],
            "seed": "0000000000000001", "time": 1795200000, "status": "ok",
            "reason": "", "anchor": best["variant"],
            "anchor_revision": revisions[best["variant"]],
            "median_ms": float(r["median_ms"]), "ci_low_ms": low,
            "ci_high_ms": high, "ratio": 1 if same else float(r["median_ms"]) / least,
            "ratio_low": 1 if same else low / float(best["ci_high_ms"]),
            "ratio_high": 1 if same else high / float(best["ci_low_ms"]),
            "samples": 3, "rel_error": 0, "workspace_bytes": 0}))
