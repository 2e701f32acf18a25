"""Times the package's overhead over the C call, on the host.

    OMP_NUM_THREADS=1 PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 tools/bench/python_overhead.py

Two tables, of graphs so small that the kernels do next to nothing:

- an attention over two nodes, by dfgnn_execute on filled-in arguments, by
  dfgnn.gt_attention, and forward with backward;
- layers of 64 features (attention of 4 heads) over 10 nodes and 30 edges,
  forward and backward: PyG's, and the same layer after dfgnn.accelerate, step
  by step and as one node of autograd.

It prints microseconds, the least of many batches that run in turns, since
other work only adds to them.  --json prints an array of one object,
whose `layers` has a row for each layer.
"""

import argparse
import copy
import json
import os
import time

import torch

import dfgnn
from dfgnn import _operators
from dfgnn._execute import settings_of

NODES, EDGES, WIDTH, HEADS = 10, 30, 64, 4


def least(functions, batches, calls):
    """The microseconds of a call of each function, the least of its batches;
    the functions take turns."""
    for function in functions:
        for _ in range(min(calls, 20)):
            function()
    found = [float("inf")] * len(functions)
    for _ in range(batches):
        for number, function in enumerate(functions):
            start = time.perf_counter_ns()
            for _ in range(calls):
                function()
            spent = (time.perf_counter_ns() - start) / calls / 1e3
            found[number] = min(found[number], spent)
    return found


# ---- two nodes --------------------------------------------------------------

class Trivial(torch.autograd.Function):
    """A function of three inputs that does nothing: torch's own time."""

    @staticmethod
    def forward(ctx, query, key, value):
        ctx.save_for_backward(query, key, value)
        return torch.empty_like(query)

    @staticmethod
    def backward(ctx, grad):
        query, key, value = ctx.saved_tensors
        return (torch.empty_like(query), torch.empty_like(key),
                torch.empty_like(value))


def two_nodes(device, batches, calls):
    """Microseconds of an attention over two nodes, by way of calling it."""
    edges = torch.tensor([[0, 1], [1, 0]], device=device)
    graph = dfgnn.as_graph(edges, 2)
    query, key, value = (torch.randn(2, 2, 8, device=device)
                         for _ in range(3))
    settings = settings_of(query, 8 ** -0.5, 0.2, 0.0, False)
    plan = _operators.recipe(graph, "gt", (query, key, value),
                          settings).call(graph, False).plan
    out = torch.empty_like(query)
    lse = torch.empty(2, 2, device=device)
    args = plan.arguments()
    for name, tensor in (("query", query), ("key", key), ("value", value),
                         ("out", out), ("lse", lse)):
        setattr(args, name, tensor.data_ptr())
    scratch = torch.empty(max(1, plan.workspace), dtype=torch.uint8,
                          device=device)
    workspace = scratch.data_ptr()
    stream = None if device.type == "cpu" else \
        torch.cuda.current_stream().cuda_stream
    leaves = [t.clone().requires_grad_() for t in (query, key, value)]
    grad = torch.randn_like(query)

    ways = {
        "execute_us": lambda: plan.execute(plan.address, args, workspace,
                                           stream),
        "forward_us": lambda: dfgnn.gt_attention(graph, query, key, value),
        "both_us": lambda: torch.autograd.grad(
            dfgnn.gt_attention(graph, *leaves), leaves, grad),
        "autograd_us": lambda: torch.autograd.grad(
            Trivial.apply(*leaves), leaves, grad)}
    row = dict(zip(ways, least(list(ways.values()), batches, calls)))
    row["forward_over_us"] = row["forward_us"] - row["execute_us"]
    row["both_over_us"] = row["both_us"] - 2 * row["execute_us"]
    return row


# ---- layers -----------------------------------------------------------------

def make_layers():
    """By name, PyG's layers."""
    import torch_geometric.nn as pyg
    return {
        "GATConv": pyg.GATConv(WIDTH, WIDTH // HEADS, HEADS),
        "TransformerConv": pyg.TransformerConv(WIDTH, WIDTH // HEADS, HEADS),
        "SAGEConv": pyg.SAGEConv(WIDTH, WIDTH),
        "GCNConv": pyg.GCNConv(WIDTH, WIDTH),
        "GINConv": pyg.GINConv(torch.nn.Linear(WIDTH, WIDTH)),
        "PNAConv": pyg.PNAConv(
            WIDTH, WIDTH, ["mean", "min", "max", "std"],
            ["identity", "amplification", "attenuation"],
            deg=torch.tensor([0, 2, 3, 3, 2]))}


def step_of(layer, x, edge_index, grad):
    """A function that runs a layer forward and backward, with gradients of x
    and of the parameters."""
    leaves = [x, *layer.parameters()]

    def step():
        torch.autograd.grad(layer(x, edge_index), leaves, grad)
    return step


def in_steps(step):
    """A function that runs a step without the layers' nodes."""
    from dfgnn.nn import _node
    usual = _node.watched

    def run():
        _node.watched = lambda: True
        try:
            step()
        finally:
            _node.watched = usual
    return run


def layer_rows(device, batches, calls):
    """A row of microseconds for each layer."""
    torch.manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES), device=device)
    x = torch.randn(NODES, WIDTH, device=device, requires_grad=True)
    grad = torch.randn(NODES, WIDTH, device=device)
    rows = []
    for name, plain in make_layers().items():
        plain = plain.to(device)
        fast = copy.deepcopy(plain)
        assert dfgnn.accelerate(fast).served, name
        theirs, ours = (step_of(layer, x, edge_index, grad)
                        for layer in (plain, fast))
        found = least([theirs, in_steps(ours), ours], batches, calls)
        rows.append({"layer": name, **dict(zip(
            ("pyg_us", "steps_us", "dfgnn_us"), found))})
    return rows


def show(found):
    print(f"torch {found['torch']}, {found['device']}, load "
          f"{found['load']:.1f}")
    print(f"dfgnn_execute by ctypes      {found['execute_us']:6.1f} us")
    print(f"dfgnn.gt_attention           {found['forward_us']:6.1f} us, "
          f"{found['forward_over_us']:.1f} over the call")
    print(f"forward and backward         {found['both_us']:6.1f} us, "
          f"{found['both_over_us']:.1f} over two calls")
    print(f"a function that does nothing {found['autograd_us']:6.1f} us, "
          "both ways")
    print("\n| layer, forward and backward | PyG, us | step by step, us | "
          "accelerated, us | PyG over ours |\n|---|---|---|---|---|")
    for row in found["layers"]:
        print(f"| {row['layer']} | {row['pyg_us']:.0f} "
              f"| {row['steps_us']:.0f} | {row['dfgnn_us']:.0f} "
              f"| {row['pyg_us'] / row['dfgnn_us']:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--calls", type=int, default=8,
                        help="calls of a batch")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1)
    name = "cpu"
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    found = {"device": name, "torch": torch.__version__,
             "version": dfgnn.version(), "load": os.getloadavg()[0],
             **two_nodes(device, options.batches, options.calls),
             "layers": layer_rows(device, options.batches, options.calls)}
    if options.json:
        print(json.dumps([found], indent=1))
    else:
        show(found)


if __name__ == "__main__":
    main()
