"""Times layers with edge features on one CPU thread against PyG's.

    OMP_NUM_THREADS=1 PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 bench/python_edges.py --commit COMMIT -o OUT.json BATCH.npz
    python3 bench/python_edges.py --table OUT.json

Forward and backward of one layer of 64 features, with the gradients of nodes,
edges and parameters, on the first graphs of a batch.  Times are those of the
thread's processor clock, the least of five, so that other work of the machine
counts little.  Writes a flat JSON array, a row per layer: our ms, PyG's ms, and
PyG's over ours.
"""

import argparse
import json
import time

import torch

from python_layers import git_commit, load

WIDTH = 64


def least(layer, x, edges, features, repeats=5):
    """(forward ms, backward ms) of the fastest call after the first."""
    leaves = [x, features, *layer.parameters()]
    times = []
    for _ in range(repeats + 1):
        start = time.thread_time()
        out = layer(x, edges, features)
        middle = time.thread_time()
        torch.autograd.grad(out.sum(), leaves)
        end = time.thread_time()
        times.append((1e3 * (middle - start), 1e3 * (end - middle)))
    return min(times[1:], key=sum)


def measure(name, heads, edge_dim, graph):
    import dfgnn.nn
    import torch_geometric.nn
    nodes, edges, _ = graph
    x = torch.randn(nodes, WIDTH, requires_grad=True)
    features = torch.randn(edges.size(1), edge_dim, requires_grad=True)
    row = {"layer": name, "heads": heads, "dim": WIDTH // heads,
           "edge_dim": edge_dim, "nodes": nodes, "edges": edges.size(1)}
    for library, nn in (("dfgnn", dfgnn.nn), ("pyg", torch_geometric.nn)):
        layer = getattr(nn, name)(WIDTH, WIDTH // heads, heads=heads,
                                  edge_dim=edge_dim)
        forward, backward = least(layer, x, edges, features)
        row[library + "_forward_ms"] = forward
        row[library + "_backward_ms"] = backward
    row["speedup"] = (row["pyg_forward_ms"] + row["pyg_backward_ms"]) / (
        row["dfgnn_forward_ms"] + row["dfgnn_backward_ms"])
    return row


def table(rows):
    print("| layer | heads x features | F | ours, ms | PyG, ms | PyG over "
          "ours |\n|---|---|---|---|---|---|")
    for r in rows:
        print(f"| {r['layer']} | {r['heads']} x {r['dim']} | {r['edge_dim']} "
              f"| {r['dfgnn_forward_ms']:.0f} + {r['dfgnn_backward_ms']:.0f} "
              f"| {r['pyg_forward_ms']:.0f} + {r['pyg_backward_ms']:.0f} "
              f"| {r['speedup']:.2f} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("graph", nargs="?", metavar="BATCH.npz")
    parser.add_argument("--table", metavar="OUT.json")
    parser.add_argument("--first", type=int, default=1290,
                        help="number of the batch's graphs that are kept")
    parser.add_argument("--commit",
                        help="the commit that the library was built from")
    parser.add_argument("-o", "--output", metavar="OUT.json")
    options = parser.parse_args()
    if options.table:
        with open(options.table) as file:
            table(json.load(file))
        return
    torch.set_num_threads(1)
    graph = load(options.graph, torch.device("cpu"), options.first)
    commit = options.commit or git_commit()
    rows = [dict(measure(name, heads, edge_dim, graph), commit=commit,
                 torch=torch.__version__)
            for name in ("TransformerConv", "GATv2Conv")
            for heads in (8, 4) for edge_dim in (8, 64)]
    text = json.dumps(rows, indent=1) + "\n"
    if not options.output:
        print(text, end="")
        return
    with open(options.output, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
