"""Messages that a hostile user writes, generated from a seed, and how a layer of
them is compared with itself after accelerate()."""

import copy
import random
import types

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import degree, softmax

import dfgnn

N, M, E, W = 9, 7, 24, 4  # receiving and sending nodes, edges, features
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2,
             torch.bfloat16: 6e-2}


class Reverse(torch.autograd.Function):
    """Its gradient is not that of what it does."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Settings:
    """Read by messages as an attribute of a class."""
    gain = 1.5


class Hostile(MessagePassing):
    """Has what messages read; its message is made by message_class()."""
    keep = 0.75

    def __init__(self, seed, **options):
        super().__init__(node_dim=0, **options)
        torch.manual_seed(seed)
        self.lin = torch.nn.Linear(W, W)
        self.wide = torch.nn.Linear(2 * W, W)
        self.weight = torch.nn.Parameter(torch.randn(W))
        self.register_buffer("scale", torch.rand(W) + 0.5)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.tau, self.count = 1.25, 3
        self.np = np.float64(0.5)
        self.options = {"g": 0.75}
        self.space = types.SimpleNamespace(g=2.0)
        self.log, self.kept, self.calls = {}, None, 0

    def forward(self, edge_index, **given):
        return self.propagate(edge_index, **given)


# values of edges [E, W]; {0} and {1} are such values
_LEAVES = ["x_i", "x_j", "x_j", "e", "(x_i - x_j)", "e * self.weight"]
_ONE = ["torch.relu({0})", "torch.tanh({0})", "{0}.sigmoid()", "-{0}",
        "({0}.abs() + 0.1).log()", "{0}.abs().sqrt()", "{0} ** 2",
        "torch.exp(-{0}.abs())", "self.lin({0})", "F.leaky_relu({0}, 0.2)",
        "{0} / {0}.norm(dim=-1, keepdim=True)", "F.silu({0})",
        "{0} / degree(index, size_i, dtype={0}.dtype)[index].view(-1, 1)",
        "{0}.mean(-1, keepdim=True) * {0}", "F.normalize({0}, dim=-1)",
        "softmax({0}, index, ptr, size_i)", "F.dropout({0}, 0.0)",
        "{0}.clamp(-1, 1)", "Reverse.apply({0})", "{0}.detach() * {0}",
        "F.layer_norm({0}, (W,))", "torch.where({0} > 0, {0}, 0.1 * {0})",
        "{0} * ((t_i - t_j) % 3)", "{0} * (t_i == t_j)", "F.relu6({0})",
        "{0} * (t_j & 1)", "{0}.max(-1, keepdim=True)[0] * {0}",
        "{0}.clone().mul_(self.tau)", "{0} * (({0} > 0) + ({0} > 1))",
        "F.softplus({0}, 1, 2)", "{0} - self.scale.mul_(0.5)",
        "{0} * ({0} * 3).long()", "{0} * self.seen.add_(1)"]
_TWO = ["({0} + {1})", "{0} * {1}", "({0} - {1})", "torch.maximum({0}, {1})",
        "{0} / ({1}.abs() + 0.5)", "{0} / {1}",
        "self.wide(torch.cat([{0}, {1}], -1))",
        "({0} * {1}).sum(-1, keepdim=True) * {0}",
        "torch.where({0} < {1}, {0}, {1})"]
# numbers of Python's, which change between calls
_NUMBERS = ["self.tau", "self.count", "float(self.np)", "self.options['g']",
            "self.space.g", "type(self).keep", "self.keep", "GAIN",
            "Settings.gain", "gain", "self.scale", "len(x_j)",
            "(2.0 if len(x_j) > 20 else 1.0)", "x_j.size(0)"]
_EFFECTS = ["self.kept = out", "self.log['w'] = out.sigmoid()",
            "self.calls += 1", "self.scale = self.scale * 0.5",
            "self.log[len(self.log)] = 1"]


def source(seed):
    """The text of a message."""
    rng = random.Random(seed)

    def value(depth):
        if depth <= 0:
            return rng.choice(_LEAVES)
        if rng.random() < 0.25:
            return f"{value(depth - 1)} * {rng.choice(_NUMBERS)}"
        if rng.random() < 0.55:
            return "(" + rng.choice(_ONE).format(value(depth - 1)) + ")"
        return rng.choice(_TWO).format(value(depth - 1),
                                       value(rng.randrange(depth)))
    lines = ["def message(self, x_i, x_j, e, t_i, t_j, index, ptr, size_i, "
             "gain):",
             f"    out = {value(rng.choice((1, 2, 2, 3)))}"]
    if rng.random() < 0.3:
        lines.append(f"    {rng.choice(_EFFECTS)}")
    return "\n".join([*lines, "    return out"]) + "\n"


def layer_of(seed):
    """(a layer whose class is new, the names that its message finds)."""
    rng = random.Random(seed * 31 + 7)
    names = dict(torch=torch, F=F, degree=degree, softmax=softmax, W=W,
                 Reverse=Reverse, GAIN=0.5, Settings=type(
                     "Settings", (), {"gain": 1.5}))
    exec(source(seed), names)
    kind = type(f"Hostile{seed}", (Hostile,), {
        "message": names["message"], "keep": 0.75})
    options = dict(aggr=rng.choice(["add", "mean", "max", "add"]),
                   flow=rng.choice(["source_to_target", "target_to_source"]))
    return kind(seed, **options), names


def change(layer, names, k):
    """Changes what a message reads, the k-th time."""
    layer.tau += 0.25 * k
    layer.np = np.float64(float(layer.np) + 0.5)
    layer.options["g"] -= 0.5
    layer.space.g *= 2
    type(layer).__mro__  # the class of the user's is changed by the caller
    names["GAIN"] = 0.5 + k
    names["Settings"].gain = 1.5 + k


def arguments(seed, dtype, k, pair):
    """(an edge_index, tensors, moments of nodes)."""
    generator = torch.Generator().manual_seed(seed * 7 + k)
    senders = M if pair else N

    def some(*shape):
        return torch.randn(*shape, generator=generator,
                           dtype=torch.float64).to(dtype)
    count = E + 3 * k
    edges = torch.stack([
        torch.randint(0, senders - 2, (count,), generator=generator),
        torch.randint(0, N - 2, (count,), generator=generator)])
    x = (some(M, W), some(N, W)) if pair else some(N, W)
    for rows in x if pair else (x,):
        # values of nodes without an edge reach nothing
        rows[-1] = (0.0, float("nan"), float("inf"))[k % 3]
        rows[-2] = 0.0
    t = tuple(1_700_000_000 + torch.arange(len(rows)).view(-1, 1) % 5
              for rows in (x if pair else (x,)))
    return edges, x, some(count, W), t if pair else t[0]


def run(layer, edges, x, e, t, gain):
    """(outputs, gradients) of a call."""
    x = tuple(t.clone().requires_grad_() for t in x) if isinstance(
        x, tuple) else x.clone().requires_grad_()
    e = e.clone().requires_grad_()
    if layer.flow == "target_to_source":
        edges = edges.flip(0)
        x = x[::-1] if isinstance(x, tuple) else x
        t = t[::-1] if isinstance(t, tuple) else t
    out = layer(edges, x=x, e=e, t=t, gain=gain)
    leaves = [*(x if isinstance(x, tuple) else (x,)), e, *layer.parameters()]
    if not out.requires_grad:
        return [out], [None] * len(leaves)
    weight = torch.arange(out.numel(), dtype=torch.float64).sin().view(
        out.shape).to(out.dtype)
    return [out], torch.autograd.grad((out * weight).sum(), leaves,
                                      allow_unused=True)


def kept(layer):
    """What calls have left on a layer."""
    found = [layer.kept, layer.calls, *layer.log.items(),
             *layer.state_dict().items()]
    return [x for one in found for x in (
        one if isinstance(one, tuple) else (one,))]


def different(have, want, dtype, true=None):
    """In words how two lists differ, or None.  true: want in a wider type, from
    which it is away by its own roundings."""
    if len(have) != len(want):
        return f"{len(have)} and {len(want)} values"
    most = max([float(b.detach().abs().nan_to_num(0, 0, 0).max())
                for b in want if isinstance(b, torch.Tensor) and b.numel()],
               default=0.0)
    for k, (a, b) in enumerate(zip(have, want)):
        if not isinstance(b, torch.Tensor) or a is None:
            if a is not b and a != b:
                return f"{a} and {b}"
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.shape} {a.dtype} and {b.shape} {b.dtype}"
        own = 0.0
        if true is not None and isinstance(true[k], torch.Tensor):
            # what overflows in 16 bits need not do so in ours
            there = b.isfinite() & true[k].isfinite()
            a, b, c = (torch.where(there, x.detach().double(), 0)
                       for x in (a, b, true[k]))
            own = float((b - c).abs().max()) if b.numel() else 0.0
        if not torch.equal(a.isfinite(), b.isfinite()):
            return f"{a} and {b}: not finite where the other is"
        there = b.isfinite()
        if bool(there.any()):
            far = float((a - b).detach()[there].abs().max())
            if far > TOLERANCE[dtype] * max(most, 1e-3) + 2 * own:
                return f"{far} apart, of {most}"
    return None


def compare(seed):
    """(in words how a layer differs from itself accelerated, or None; whether
    programs served it; how many calls were compared)."""
    rng = random.Random(seed)
    dtype = rng.choice([torch.float32, torch.float64, torch.float64,
                        torch.bfloat16, torch.float16])
    pair = rng.random() < 0.25
    own, names = layer_of(seed)
    own = own.to(dtype)
    ours = copy.deepcopy(own)
    true = copy.deepcopy(own).float() if dtype.itemsize < 4 else None
    report = dfgnn.accelerate(ours)
    for k in range(4):
        edges, x, e, t = arguments(seed, dtype, k, pair)
        gain = 1.0 + k if rng.random() < 0.5 else np.float64(0.5 * k + 1)
        found = []
        for layer in (own, ours, *([true] if true else [])):
            if layer is true:
                x = tuple(t.float() for t in x) if pair else x.float()
                e = e.float()
            try:
                outs, grads = run(layer, edges, x, e, t, gain)
                found.append(([*outs, *grads], kept(layer)))
            except Exception as error:  # the layer's own error is compared
                found.append(([type(error).__name__], []))
        for want, have, *exact in zip(*found):
            told = different(have, want, dtype, *exact)
            if told:
                return f"call {k}: {told}", bool(report.traced), k
        for layer in (own, ours, *([true] if true else [])):
            change(layer, names, k)
            names["GAIN"] = names["Settings"].gain = 0.5 + k
        kind = next(c for c in type(ours).__mro__ if "message" in vars(c))
        kind.keep = 0.75 + k
    return None, bool(report.traced), k + 1
