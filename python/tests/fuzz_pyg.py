"""Random layers of PyG against the same layers after dfgnn.accelerate().

    python3 python/tests/fuzz_pyg.py --cases 5000
    python3 python/tests/fuzz_pyg.py --seed 1234        # one case again

A case is made of its seed alone.  Outputs, returned attention and all
gradients are compared: those in float64 with PyG's, those of lower precision
with PyG's in float64, from which ours may differ by a few times as much as
PyG's of that precision.
"""

import argparse
import collections
import contextlib
import copy
import random
import sys

import torch
import torch_geometric.nn as G

import dfgnn
import fuzz_layers
from dfgnn import _execute
from dfgnn.nn.pyg import _traced

TOLERANCE = {torch.float64: 1e-9, torch.float32: 3e-5, torch.bfloat16: 2e-2,
             torch.float16: 4e-3}


class Case:
    """A layer, its inputs, and how it is called, made from a seed.  where: the
    module of the layer; those that dfgnn.nn has are drawn if nn."""

    def __init__(self, seed, nn=False, where=G):
        self.seed, self.nn, self.where = seed, nn, where
        self.rng = random.Random(seed)
        torch.manual_seed(seed)
        rng = self.rng
        self.dtype = rng.choice([torch.float64] * 6 + [torch.float32] * 3
                                + [torch.bfloat16] * (not nn))
        self.autocast = self.dtype == torch.float32 and rng.random() < 0.4
        self.spec = rng.choice([spec for spec in fuzz_layers.SPECS
                                if spec.nn or not nn])
        self.training = rng.random() < 0.5
        self.weights_wanted = rng.choice([None, None, True, False])
        self._graph()
        self.layer, self.options = self._layer()
        self.layer = self.layer.to(self.dtype)
        self.layer.train(self.training)
        self.inputs = self._inputs()

    def kind_of(self, kind):
        """The class of a name of PyG's."""
        return getattr(self.where, kind.__name__)

    def _graph(self):
        rng = self.rng
        self.bipartite = self.spec.pair and rng.random() < 0.3
        self.num_src = rng.choice([1, 2, 7, 20, 33])
        self.num_dst = rng.choice([1, 3, 12, 33]) if self.bipartite \
            else self.num_src
        kind = rng.choice(["random"] * 5 + ["empty", "loops", "star", "twice",
                                            "one"])
        count = {"empty": 0, "one": 1}.get(kind, rng.choice([5, 40, 150]))
        src = torch.randint(0, self.num_src, (count,))
        dst = torch.randint(0, self.num_dst, (count,))
        if kind == "star":
            dst.zero_()
        if kind == "loops":
            src = torch.randint(0, min(self.num_src, self.num_dst), (count,))
            dst = torch.where(torch.rand(count) < 0.5, src, dst)
        self.kind = kind
        self.edge_index = torch.stack([src, dst])
        if kind == "twice":
            self.edge_index = self.edge_index.repeat(1, 2)

    def _layer(self):
        options = {}
        for name, values in self.spec.options.items():
            if self.rng.random() < 0.6:
                options[name] = self.rng.choice(values)
        # layers of dfgnn.nn take pairs of sources and destinations alone
        if self.rng.random() < 0.12 and self.spec.flow and not (
                self.nn and self.bipartite):
            options["flow"] = "target_to_source"
        if self.training:
            options = {n: v for n, v in options.items() if n != "dropout"
                       or self.spec.same_dropout}
        make = random.Random(self.seed + 1)
        layer = self.spec.make(self, make, options)
        fuzz_layers.spread(layer)
        return layer, options

    @property
    def reversed(self):
        return self.options.get("flow") == "target_to_source"

    def _features(self, rows, width):
        shape = (rows, width)
        if getattr(self, "static", False):
            shape = (3,) + shape
        return torch.randn(shape, dtype=torch.float64)

    def _hetero_inputs(self):
        """Two kinds of nodes and three of edges."""
        count = {"a": self.num_src, "b": self.rng.choice([1, 9])}
        self.static = False
        x = {kind: self._features(n, fuzz_layers.WIDTH)
             for kind, n in count.items()}
        edges = {}
        for kind in fuzz_layers.KINDS[1]:
            many = self.rng.choice([0, 1, 30])
            edges[kind] = torch.stack([
                torch.randint(0, count[kind[i]], (many,)) for i in (0, 2)])
        return {"x_dict": x, "edge_index_dict": edges}

    def _inputs(self):
        rng, spec = self.rng, self.spec
        if spec.hetero:
            return self._hetero_inputs()
        edges = self.edge_index
        self.static = spec.static and not self.bipartite \
            and rng.random() < 0.12
        if self.nn:  # PyG takes the weight of any of several loops
            edges = edges.unique(dim=1)
        if self.reversed:
            edges = edges.flip(0)
        width = fuzz_layers.WIDTH
        rows = (self.num_src, self.num_dst)
        if self.reversed:
            rows = rows[::-1]
        x = self._features(rows[0], width)
        found = {}
        if self.bipartite:
            other = self._features(rows[1], width)
            if spec.half and not self.reversed and rng.random() < 0.3:
                found["x"] = (x, None)
                if spec.size:
                    found["size"] = rows
            else:
                found["x"] = (x, other)
                if spec.size and rng.random() < 0.3:
                    found["size"] = rows
        else:
            found["x"] = x
        count = edges.size(1)
        if spec.root:
            found["x_0"] = self._features(rows[0], width)
        found["edge_index"] = edges
        if spec.weight and rng.random() < spec.weight:
            found["edge_weight"] = torch.rand(count, dtype=torch.float64)
        if "edge_dim" in self.options or spec.edge_attr:
            found["edge_attr"] = torch.randn(
                count, self.options.get("edge_dim", fuzz_layers.EDGE_WIDTH),
                dtype=torch.float64)
        if spec.types:
            found["edge_type"] = torch.randint(0, fuzz_layers.RELATIONS,
                                               (count,))
        if spec.attention and self.weights_wanted is not None:
            found["return_attention_weights"] = self.weights_wanted
        if spec.sparse and not self.nn and not self.reversed and \
                not self.static and \
                rng.random() < 0.12 and "edge_attr" not in found:
            self._as_matrix(found)
        return found

    def _as_matrix(self, found):
        """The edges as PyG's adj_t in torch's own formats."""
        self.kind += " as a sparse matrix"
        weight = found.pop("edge_weight", None)
        if weight is None:
            weight = torch.ones(self.edge_index.size(1), dtype=torch.float64)
        adjacency = torch.sparse_coo_tensor(
            self.edge_index.flip(0), weight.to(self.dtype),
            (self.num_dst, self.num_src)).coalesce()
        if self.rng.random() < 0.5:
            adjacency = adjacency.to_sparse_csr()
        found["edge_index"] = adjacency

    def __str__(self):
        given = {n: "(x, None)" if isinstance(v, tuple) and v[1] is None
                 else [list(t.shape) if isinstance(t, torch.Tensor) else t
                       for t in v] if isinstance(v, tuple)
                 else list(v.shape) if isinstance(v, torch.Tensor)
                 else {k: list(t.shape) for k, t in v.items()}
                 if isinstance(v, dict) else v
                 for n, v in self.inputs.items()}
        return (f"seed {self.seed}: {self.spec.name} {self.options} "
                f"{str(self.dtype)[6:]}"
                f"{' autocast' if self.autocast else ''} "
                f"{'training' if self.training else 'eval'}, {self.kind} "
                f"graph, {given}")


# ---- running ----------------------------------------------------------------

def _cast(value, dtype):
    """value with its tensors in dtype, as leaves that want gradients."""
    if isinstance(value, tuple):
        return tuple(_cast(v, dtype) for v in value)
    if isinstance(value, dict):
        return {key: _cast(v, dtype) for key, v in value.items()}
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    if value.layout != torch.strided:
        return value.to(dtype)
    return value.detach().to(dtype).clone().requires_grad_()


def _flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in _flat(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in _flat(v)]
    return []


def run(layer, case, dtype, autocast):
    """The results and gradients of a step, by name."""
    layer = copy.deepcopy(layer).to(dtype)
    given = {name: _cast(v, dtype) for name, v in case.inputs.items()}
    torch.manual_seed(case.seed)
    random.seed(case.seed)
    region = torch.autocast("cpu", torch.bfloat16) if autocast \
        else contextlib.nullcontext()
    with region:
        result = layer(**given)
    outs = _flat(result)
    found = {f"result {i}": out for i, out in enumerate(outs)}
    torch.manual_seed(case.seed)
    losses = [(out.double() * torch.randn(out.shape,
                                          dtype=torch.float64)).sum()
              for out in outs if out.is_floating_point()
              and out.layout == torch.strided and out.requires_grad]
    if losses:
        sum(losses).backward()
    for name, value in given.items():
        for i, tensor in enumerate(_flat(value)):
            if tensor.is_floating_point() and tensor.layout == torch.strided:
                found[f"gradient of {name} {i}"] = tensor.grad
    for name, parameter in layer.named_parameters():
        found[f"gradient of {name}"] = parameter.grad
    return found


def _distance(a, b):
    if not b.numel():
        return 0.0
    scale = max(1.0, float(b.abs().max()))
    return float((a.double() - b.double()).abs().max()) / scale


def near(a, b, tolerance=1e-9, what="results"):
    """Asserts that two tensors are as good as equal, relative to the larger of
    1 and the largest value: a gradient that should be zero has no size of its
    own."""
    assert a.shape == b.shape and a.dtype == b.dtype, what
    found = _distance(a.detach(), b.detach())
    assert found < tolerance, f"{what} differ by {found:.3g}"


def _dense(tensor):
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


def compare(case, theirs, ours, truth):
    """The first difference in words, or None."""
    if theirs.keys() != ours.keys():
        return f"PyG has {sorted(theirs)}, ours {sorted(ours)}"
    for name, a in theirs.items():
        b = ours[name]
        if a is None or b is None:
            # PyG has no gradient where nothing depends on the tensor; zeros
            # say the same
            given = b if a is None else a
            if given is not None and given.any():
                return f"{name}: one has no gradient"
            continue
        a, b = _dense(a.detach()), _dense(b.detach())
        if a.dtype != b.dtype:
            return f"{name}: PyG's is {a.dtype}, ours {b.dtype}"
        if a.shape != b.shape:
            return f"{name}: PyG's is {list(a.shape)}, ours {list(b.shape)}"
        if not a.is_floating_point():
            if not torch.equal(a, b):
                return f"{name} differs"
            continue
        kind = torch.bfloat16 if case.autocast else case.dtype
        allowed = TOLERANCE[kind]
        if name.startswith("gradient") and kind == torch.bfloat16:
            # PyG multiplies in float32 in autocast regions; the kernels keep
            # 16 bits, and gradients of scores cancel
            allowed *= 6
        exact = a if truth is None else _dense(truth[name].detach())
        if exact.shape != b.shape:
            exact = a
        if torch.isnan(exact).any() and torch.isnan(b).any():
            continue
        allowed += 3 * _distance(a, exact)
        found = _distance(b, exact)
        if not found <= allowed:
            return f"{name} differs by {found:.3g}, more than {allowed:.3g}"
    return None


class Watch:
    """Counts the plans that ran, and the calls that traced programs served."""

    def __enter__(self):
        self.count = 0
        # each call of a plan asks for its workspace once
        self.room, self.traced = _execute.Plan.room, _traced._run

        def counted(plan, *args):
            self.count += 1
            return self.room(plan, *args)

        def served(*args):
            found = self.traced(*args)
            self.count += found is not NotImplemented
            return found
        _execute.Plan.room, _traced._run = counted, served
        return self

    def __exit__(self, *_):
        _execute.Plan.room, _traced._run = self.room, self.traced


def _compared(case, fast):
    """(the difference in words or None, whether PyG raised)."""
    def attempt(layer, dtype, autocast):
        try:
            return run(layer, case, dtype, autocast), None
        except Exception as error:  # PyG's own errors are compared, too
            return None, error
    theirs, raised = attempt(case.layer, case.dtype, case.autocast)
    ours, failed = attempt(fast, case.dtype, case.autocast)
    if raised is not None:
        # layers of dfgnn.nn take more kinds of edges
        return (None if failed is not None or case.nn else
                f"PyG raises {raised!r}, ours does not"), True
    if failed is not None:
        return f"raises {failed!r}", False
    truth = None
    if case.dtype != torch.float64:
        truth = run(case.layer, case, torch.float64, False)
    return compare(case, theirs, ours, truth), False


def ours(case):
    """The layer of dfgnn.nn, or PyG's accelerated."""
    if case.nn:
        fast = Case(case.seed, True, dfgnn.nn).layer
        fast.load_state_dict(case.layer.state_dict())
        case.layer.load_state_dict(fast.state_dict())
        return fast
    fast = copy.deepcopy(case.layer)
    assert dfgnn.accelerate(fast).swapped, f"{type(fast).__name__} stays"
    return fast


def check(seed, nn=False):
    """(case, the difference in words or None, whether a kernel ran, whether
    PyG raised)."""
    case = Case(seed, nn)
    fast = ours(case)
    with Watch() as watch:
        difference, raised = _compared(case, fast)
    ran = bool(watch.count)
    if difference is None and not raised:  # the first call kept its graphs
        difference, _ = _compared(case, fast)
        difference = difference and "the second time: " + difference
    edges = case.inputs.get("edge_index")
    if difference is None and not raised and edges is not None \
            and edges.layout == torch.strided and case.rng.random() < 0.3:
        edges.copy_(edges[:, torch.randperm(edges.size(1))])
        difference, _ = _compared(case, fast)
        difference = difference and "with edges written to: " + difference
    return case, difference, ran, raised


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--nn", action="store_true",
                        help="layers of dfgnn.nn in place of accelerate()")
    given = parser.parse_args()
    seeds = [given.seed] if given.seed is not None else range(
        given.first, given.first + given.cases)
    wrong = []
    fused, total = collections.Counter(), collections.Counter()
    raised = 0
    for seed in seeds:
        case, difference, ran, error = check(seed, given.nn)
        name = case.spec.name
        total[name] += 1
        fused[name] += ran
        raised += error
        if given.seed is not None:
            print(case)
        if difference is not None:
            wrong.append(seed)
            print(f"DIFFERENT {case}\n    {difference}", flush=True)
    print(f"{len(seeds)} cases, {len(wrong)} different, {sum(fused.values())} "
          f"by kernels, {raised} that PyG refuses")
    for name in sorted(total):
        print(f"  {name}: {fused[name]} of {total[name]} by kernels")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
