"""Fits the cost model of docs/distributed.md to measurements of
bench/distributed.py, and prints the times that it predicts for larger jobs.

    python3 bench/distributed_model.py bench/results/h200x2

A step of a layer takes, on the slowest rank,

    t = max(c, w e + m b + max(0, x - h))        x = a + b / B

c   time of the host to launch a step
e   edges of the rank;  w  milliseconds per edge
b   bytes that it sends;  m  time per byte to pack, merge and add them on the
    GPU
a   latency of an exchange;  B  its bandwidth
h   time of the edges, behind which the exchange hides
"""

import json
import os
import sys

import numpy

GB = 1e9


def fit_links(rows):
    """(latency in ms, bandwidth in bytes per ms) of ms = a + bytes / B, by
    least squares of relative errors."""
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


def bytes_of(row):
    """The bytes that the slowest rank sends in a step, in both directions."""
    size = 2 if "16" in row["dtype"] else 4
    return 2 * max(row["halo"]) * row_bytes(row["op"], row["heads"],
                                            row["dim"], size)


def fit_steps(rows):
    """(c in ms, m in ms per byte): c by the shortest step without an exchange,
    m by least squares of the times of steps less those of their edges."""
    host = min(r["without_exchange_ms"] for r in rows)
    long = [r for r in rows if r["ranks_ms"] > 3 * host]
    sent = numpy.array([bytes_of(r) for r in long], float)
    left = numpy.array([r["ranks_ms"] - r["single_ms"] / r["edges"]
                        * max(r["part_edges"]) for r in long])
    # errors are relative, so that short steps count as much as long ones
    weight = 1 / numpy.array([r["ranks_ms"] for r in long])
    m = float((sent * left * weight ** 2).sum()
              / (sent * sent * weight ** 2).sum())
    return host, max(0.0, m)


def expected(row, latency, bandwidth, host, per_byte):
    """(predicted milliseconds, those of the exchange) of a measured case."""
    size = 2 if "16" in row["dtype"] else 4
    per_edge = row["single_ms"] / row["edges"]
    slowest = 0.0, 0.0
    for edges, halo in zip(row["part_edges"], row["halo"]):
        exchange = 2 * (latency + halo * row_bytes(
            row["op"], row["heads"], row["dim"], size) / bandwidth)
        near = per_edge * edges
        shown = max(0.0, exchange - near)
        slowest = max(slowest, (near + shown, exchange))
    ms, exchange = slowest
    return max(host, ms + per_byte * bytes_of(row)), exchange


def report_fit(folder):
    with open(os.path.join(folder, "links.json")) as file:
        links = json.load(file)
    latency, bandwidth = fit_links(links["rows"])
    print(f"exchange between {links['ranks']} GPUs: {1e3 * latency:.0f} us "
          f"+ bytes / {bandwidth * 1e3 / GB:.0f} GB/s")
    with open(os.path.join(folder, "scaling.json")) as file:
        rows = json.load(file)
    host, per_byte = fit_steps(rows)
    print(f"the host takes {host:.2g} ms per step; packing and adding take "
          f"{per_byte * 1e9:.3g} ms per GB sent\n")
    print("| graph | op | single ms | measured | model | exchange |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        ms, exchange = expected(row, latency, bandwidth, host, per_byte)
        print(f"| {row['graph']} | {row['op']} {row['heads']}x{row['dim']} "
              f"{row['dtype']} | {row['single_ms']:.3g} | "
              f"{row['ranks_ms']:.3g} | {ms:.3g} | {exchange:.3g} |")
    return latency, bandwidth, per_byte, rows


# ogbn-papers100M made symmetric, as its baselines train on it
NODES, EDGES = 111059956, 3231371744
WIDTH, LAYERS, TYPE = 128, 3, 2


def report_papers(latency, bandwidth, per_edge, per_byte, network=None):
    """Prints a full-batch step of three layers of GT, 8 heads x 16, in bf16.

    halo: nodes of the halo per node of a rank, assumed: nobody measured it.
    network: bytes per ms between hosts of 8 GPUs, for 64 GPUs.
    """
    print("| GPUs | halo a node | memory a GPU, GB | step, s | exchange, s | "
          "shown, s |")
    print("|---|---|---|---|---|---|")
    for gpus, halo in ((8, 0.5), (64, 1.2)):
        nodes, edges = NODES / gpus, EDGES / gpus
        rate = bandwidth if gpus <= 8 or network is None else network
        sent = nodes * halo * 2 * WIDTH * TYPE
        exchange = LAYERS * 2 * (latency + sent / rate) / 1e3
        near = LAYERS * (per_edge * edges + 2 * sent * per_byte) / 1e3
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
    latency, bandwidth, per_byte, rows = report_fit(folder)
    gt = [r for r in rows if r["op"] == "gt" and r["heads"] == 8]
    worst = max(gt, key=lambda r: r["single_ms"] / r["edges"])
    per_edge = worst["single_ms"] / worst["edges"]
    print(f"\npapers100M, at {1e6 * per_edge:.3g} ns an edge "
          f"(GT 8x16 of {worst['graph']}), hosts of 8 GPUs joined by "
          "50 GB/s a GPU:")
    report_papers(latency, bandwidth, per_edge, per_byte, 50 * GB / 1e3)


if __name__ == "__main__":
    main()
