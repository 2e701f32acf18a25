"""Times the package's overhead over the C call, on the host.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so \\
      python3 bench/python_overhead.py

times a graph of two nodes, where the kernels do next to nothing: the same
attention by dfgnn_execute on filled-in arguments, by dfgnn.gt_attention, and
forward with backward.  It prints microseconds, the least of many batches, since
other work only adds to them.  --json prints them as an array of one object.
"""

import argparse
import ctypes
import json
import time

import torch

import dfgnn
from dfgnn import _execute
from dfgnn.functional import _settings


def measure(function, batches=60, calls=100):
    for _ in range(calls):
        function()
    found = []
    for _ in range(batches):
        start = time.perf_counter_ns()
        for _ in range(calls):
            function()
        found.append((time.perf_counter_ns() - start) / calls / 1e3)
    return min(found)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(1)
    edges = torch.tensor([[0, 1], [1, 0]], device=device)
    graph = dfgnn.as_graph(edges, 2)
    query, key, value = (torch.randn(2, 2, 8, device=device)
                         for _ in range(3))
    settings = _settings(query, 8 ** -0.5, 0.2, 0.0, False)
    plan = _execute.recipe(graph, "gt", (query, key, value), None,
                           settings).plan(graph, False)
    out = torch.empty_like(query)
    lse = torch.empty(2, 2, device=device)
    args = plan.arguments()
    for name, tensor in (("query", query), ("key", key), ("value", value),
                         ("out", out), ("lse", lse)):
        setattr(args, name, tensor.data_ptr())
    scratch = torch.empty(max(1, plan.workspace), dtype=torch.uint8,
                          device=device)
    address, workspace = ctypes.addressof(args), scratch.data_ptr()
    stream = None if device.type == "cpu" else \
        torch.cuda.current_stream().cuda_stream
    leaves = [t.clone().requires_grad_() for t in (query, key, value)]
    grad = torch.randn_like(query)

    def both():
        torch.autograd.grad(dfgnn.gt_attention(graph, *leaves), leaves, grad)

    def trivial():
        torch.autograd.grad(Trivial.apply(*leaves), leaves, grad)

    base = measure(lambda: plan.execute(plan.pointer, address, workspace,
                                        stream))
    forward = measure(lambda: dfgnn.gt_attention(graph, query, key, value))
    gradient = measure(both, calls=50)
    autograd = measure(trivial, calls=50)
    if options.json:
        name = "cpu"
        if device.type == "cuda":
            name = torch.cuda.get_device_name(device)
        print(json.dumps([{
            "device": name, "torch": torch.__version__,
            "version": dfgnn.version(), "execute_us": base,
            "forward_us": forward, "forward_over_us": forward - base,
            "both_us": gradient, "both_over_us": gradient - 2 * base,
            "autograd_us": autograd}],
            indent=1))
        return
    print(f"torch {torch.__version__}, {device.type}")
    print(f"dfgnn_execute by ctypes      {base:6.1f} us")
    print(f"dfgnn.gt_attention           {forward:6.1f} us, "
          f"{forward - base:.1f} over the call")
    print(f"forward and backward         {gradient:6.1f} us, "
          f"{gradient - 2 * base:.1f} over two calls")
    print(f"a function that does nothing {autograd:6.1f} us, both ways")


if __name__ == "__main__":
    main()
