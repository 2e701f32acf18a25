"""Errors of attention by each variant that is offered, against float64.

    PYTHONPATH=python DFGNN_LIBRARY=.libs/libdfgnn.so PATH=tools:$PATH \\
      python3 tools/bench/python_accuracy.py --device cuda -o OUT.json

Every member of a problem's portfolio runs, forward or backward, on a uniform graph and on one
with a hub.  A row has, for one of them,

    errors      of the result and of each gradient: the root of the mean squared error over that
                of the values by float64, of random tensors rounded to the type
    vanishing   where logits are a hundred times as large and all values equal, gradients of
                what the scores are made of are 0 by the formula: the largest over the largest
                where values differ, which is what forward and backward disagree about

Writes a flat JSON array.
"""

import argparse
import ctypes
import itertools
import json
import os
import subprocess
import tempfile

import torch

os.environ["DFGNN_EXTENSION"] = "0"  # which makes plans by itself

import dfgnn  # noqa: E402
from dfgnn._handle import write as write_graph  # noqa: E402
from dfgnn._library import library  # noqa: E402
from tables import write  # noqa: E402

SHAPES = [(1, 128), (4, 32), (16, 32), (8, 64)]
TYPES = dict(f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16)
FEATURES = 11  # of an edge
NODES, DEGREE, HUB = 3000, 16, 2500


# ---- formulas, by torch operations in the type of their tensors --------------------

def attended(scores, value, edges, nodes):
    src, dst = edges
    index = dst.view(-1, 1).expand_as(scores)
    top = scores.new_full((nodes, scores.size(1)), -torch.inf).scatter_reduce(
        0, index, scores, "amax")
    weights = (scores - top.detach()[dst]).exp()
    total = torch.zeros_like(top).index_add(0, dst, weights)
    weights = weights / total[dst]
    return value.new_zeros(nodes, *value.shape[1:]).index_add(
        0, dst, weights.unsqueeze(-1) * value)


def gt(edges, t, factor):
    src, dst = edges
    key, value = t["key"][src], t["value"][src]
    if "edge_attr" in t:  # in the keys alone, so that equal values stay equal
        key = key + (t["edge_attr"] @ t["edge_projection"].t()).view(key.shape)
    scores = (t["query"][dst] * key).sum(-1) * factor * value.size(-1) ** -.5
    return attended(scores, value, edges, t["query"].size(0))


def gatv2(edges, t, factor):
    src, dst = edges
    inner = t["x_dst"][dst] + t["x_src"][src]
    if "edge_attr" in t:
        inner = inner + (t["edge_attr"] @ t["edge_projection"].t()).view(inner.shape)
    scores = (torch.nn.functional.leaky_relu(inner, .2) * (t["att"] * factor)).sum(-1)
    return attended(scores, t["x_src"][src], edges, t["x_dst"].size(0))


def by_kernels(op, graph, t, factor):
    more = {name: t[name] for name in ("edge_attr", "edge_projection") if name in t}
    if op == "gt":
        return dfgnn.gt_attention(
            graph, t["query"], t["key"], t["value"], scale=factor * t["value"].size(-1) ** -.5,
            **more, **({"edge_use": "keys"} if more else {}))
    return dfgnn.gatv2_attention(graph, t["x_dst"], t["x_src"], t["att"] * factor, **more)


# ---- problems ------------------------------------------------------------------------

def edges_of(name, device):
    """[2, E] edges, by destination."""
    made = torch.Generator().manual_seed(1)
    degrees = torch.full((NODES,), DEGREE)
    if name == "hub":
        degrees[NODES // 2] = HUB
    dst = torch.arange(NODES).repeat_interleave(degrees)
    src = torch.randint(NODES, (len(dst),), generator=made)
    return torch.stack((src, dst)).to(device)


def tensors_of(op, heads, dim, edges, features, dtype, device, equal):
    made = torch.Generator().manual_seed(2)

    def new(*shape):
        return torch.randn(*shape, generator=made).to(device, dtype)
    names = ("query", "key", "value") if op == "gt" else ("x_dst", "x_src")
    t = {name: new(NODES, heads, dim) for name in names}
    if op == "gatv2":
        t["att"] = new(heads, dim) * dim ** -.5
    if equal:
        t[names[-1]] = t[names[-1]][:1].expand(NODES, -1, -1).contiguous()
    if features:
        t["edge_attr"] = new(edges.size(1), features)
        t["edge_projection"] = new(heads * dim, features) * .1
    return {name: one.requires_grad_() for name, one in t.items()}


def results(function, t, grad):
    """The result and the gradients of what is not of edges, by name."""
    wanted = [name for name in t if name != "edge_attr"]
    out = function(t)
    grads = torch.autograd.grad(out, [t[name] for name in wanted], grad.to(out.dtype))
    return dict(zip(["out", *wanted], [out.detach(), *grads]))


class Forced:
    """Plans are of the variant that is asked for, wherever it applies."""

    def __init__(self):
        lib = library()
        self.usual, self.by_name, self.name = lib.dfgnn_plan_create, \
            lib.dfgnn_plan_create_forced, None
        self.by_name.argtypes = [*self.usual.argtypes, ctypes.c_char_p]
        lib.dfgnn_plan_create = self.create

    def create(self, *given):
        if self.name is not None and not self.by_name(*given, self.name.encode()):
            self.served = True
            return 0
        return self.usual(*given)


def offered(op, direction, heads, dim, dtype, features, path, device):
    command = ["dfgnn-tune", "explain", path, "--op", op, "--pass", direction, "--heads",
               str(heads), "--dim", str(dim), "--dtype", dtype, "--device", device, "--json"]
    if features:
        command += ["--edge-dim", str(features)]
        command += ["--edge-use", "keys"] if op == "gt" else []
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [one["variant"] for one in json.loads(done.stdout)[0]["candidates"]]


def errors(ours, theirs):
    """The root of the mean squared error over that of the values, by name."""
    return {name: float((ours[name].double() - x).norm() / x.norm())
            for name, x in theirs.items()}


def largest(found, names):
    return max(float(found[name].abs().max()) for name in names)


def measure(forced, folder, device, graph_name, op, shape, dtype, features):
    (heads, dim), edges = shape, edges_of(graph_name, device)
    path = f"{folder}/{graph_name}.npz"
    if not os.path.exists(path):
        write_graph(dfgnn.as_graph(edges, NODES).handle, edges.device, path)
    formula = globals()[op]
    grad = torch.randn(NODES, heads, dim, generator=torch.Generator().manual_seed(3)).to(device)
    grad = grad.to(TYPES[dtype])
    random, equal = (tensors_of(op, heads, dim, edges, features, TYPES[dtype], device, same)
                     for same in (False, True))
    exact = results(lambda t: formula(edges, t, 1.), {
        name: one.detach().double().requires_grad_() for name, one in random.items()}, grad)
    scored = [name for name in equal
              if name not in ("value", "x_src", "edge_attr")]
    for direction in ("forward", "backward"):
        for name in offered(op, direction, heads, dim, dtype, features, path, device):
            forced.name, forced.served = name, False
            graph = dfgnn.as_graph(edges.clone(), NODES)
            found = errors(results(lambda t: by_kernels(op, graph, t, 1.), random, grad), exact)
            if not forced.served:
                continue
            row = dict(graph=graph_name, op=op, heads=heads, dim=dim, dtype=dtype,
                       edge_dim=features, direction=direction, variant=name)
            row["errors"] = {key: float(f"{error:.3g}") for key, error in found.items()
                             if (key == "out") == (direction == "forward")}
            left, usual = (
                largest(results(lambda t: by_kernels(op, graph, t, 100.), t, grad), scored)
                for t in (equal, random))
            row["vanishing"] = float(f"{left / usual:.3g}")
            yield row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--shapes", help="1x128,8x64, ...")
    parser.add_argument("-o", "--out")
    options = parser.parse_args()
    dfgnn.measure(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    shapes = SHAPES if options.shapes is None else [
        tuple(map(int, one.split("x"))) for one in options.shapes.split(",")]
    forced, rows = Forced(), []
    with tempfile.TemporaryDirectory() as folder:
        for case in itertools.product(("uniform", "hub"), ("gt", "gatv2"), shapes, TYPES,
                                      (0, FEATURES)):
            rows += measure(forced, folder, options.device, *case)
    write(options.out, rows)


if __name__ == "__main__":
    main()
