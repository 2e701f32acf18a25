"""The model of cost of docs/distributed.md: fits it to measurements of
bench/distributed.py, and says what it expects of larger jobs.

    python3 bench/distributed_model.py bench/results/h200x2

A step of a layer takes, on the slowest rank,

    t = w e + max(0, x - h)        x = a + b / B

e: its edges, w: milliseconds an edge; b: bytes that it sends, a: latency, B:
bandwidth of an exchange; h: the interior's time, behind which it hides.
"""

import json
import os
import sys

import numpy

GB = 1e9


def fit_links(rows):
    """(latency in ms, bandwidth in bytes a ms) of ms = a + bytes / B, by least
    squares of relative errors."""
    size = numpy.array([r["bytes"] for r in rows], float)
    ms = numpy.array([r["ms"] for r in rows], float)
    design = numpy.stack([1 / ms, size / ms], 1)
    (latency, slope), *_ = numpy.linalg.lstsq(design, numpy.ones(len(ms)),
                                              rcond=None)
    return latency, 1 / slope


def row_bytes(op, heads, dim, size):
    """Bytes of a node of the halo in one direction."""
    return heads * dim * size * 2 if op == "gt" else \
        heads * dim * size + heads * 4


def expected(row, latency, bandwidth):
    """(milliseconds, of which the exchange) of a measured case."""
    size = 2 if "16" in row["dtype"] else 4
    per_edge = row["single_ms"] / row["edges"]
    slowest = 0.0, 0.0
    for edges, halo in zip(row["part_edges"], row["halo"]):
        exchange = 2 * (latency + halo * row_bytes(
            row["op"], row["heads"], row["dim"], size) / bandwidth)
        near = per_edge * edges
        shown = max(0.0, exchange - near)
        slowest = max(slowest, (near + shown, exchange))
    return slowest


def report_fit(folder):
    with open(os.path.join(folder, "links.json")) as file:
        links = json.load(file)
    latency, bandwidth = fit_links(links["rows"])
    print(f"exchange between {links['ranks']} GPUs: {1e3 * latency:.0f} us "
          f"+ bytes / {bandwidth * 1e3 / GB:.0f} GB/s")
    with open(os.path.join(folder, "scaling.json")) as file:
        rows = json.load(file)
    print("| graph | op | single ms | measured | model | exchange |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        ms, exchange = expected(row, latency, bandwidth)
        print(f"| {row['graph']} | {row['op']} {row['heads']}x{row['dim']} "
              f"{row['dtype']} | {row['single_ms']:.3g} | "
              f"{row['ranks_ms']:.3g} | {ms:.3g} | {exchange:.3g} |")
    return latency, bandwidth, rows


# papers100M made symmetric, as its baselines train on it
NODES, EDGES = 111059956, 3231371744
WIDTH, LAYERS, TYPE = 128, 3, 2


def report_papers(latency, bandwidth, per_edge, network=None):
    """A full-batch step of three layers of GT, 8 heads x 16, in bf16.

    halo: a rank's nodes times `halo`, from cut and repeated neighbours.
    network: bytes a ms between hosts of 8 GPUs, for 64.
    """
    print("| GPUs | halo a node | memory a GPU, GB | step, s | exchange, s | "
          "shown, s |")
    print("|---|---|---|---|---|---|")
    for gpus, halo in ((8, 0.5), (64, 1.2)):
        nodes, edges = NODES / gpus, EDGES / gpus
        rate = bandwidth if gpus <= 8 or network is None else network
        exchange = LAYERS * 2 * (latency + nodes * halo * 2 * WIDTH * TYPE
                                 / rate) / 1e3
        near = LAYERS * per_edge * edges / 1e3
        # x, q, k, v, out, skip and their gradients, lse; the halo's keys and
        # values kept for backward; two matrices and their transposes
        features = nodes * (LAYERS * 8 * WIDTH * TYPE + 4 * 8)
        kept = LAYERS * nodes * halo * 2 * WIDTH * TYPE
        matrices = edges * 2 * 2 * 4 + nodes * (2 + halo) * 8
        memory = (features + kept + matrices) / GB
        shown = max(0.0, exchange - near)
        print(f"| {gpus} | {halo} | {memory:.0f} | {near + shown:.2f} | "
              f"{exchange:.2f} | {shown:.2f} |")


def main():
    folder = sys.argv[1]
    latency, bandwidth, rows = report_fit(folder)
    gt = [r for r in rows if r["op"] == "gt" and r["heads"] == 8]
    worst = max(gt, key=lambda r: r["single_ms"] / r["edges"])
    per_edge = worst["single_ms"] / worst["edges"]
    print(f"\npapers100M, at {1e6 * per_edge:.3g} ns an edge "
          f"(GT 8x16 of {worst['graph']}), hosts of 8 GPUs joined by "
          "50 GB/s a GPU:")
    report_papers(latency, bandwidth, per_edge, 50 * GB / 1e3)


if __name__ == "__main__":
    main()
