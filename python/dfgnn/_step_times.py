"""The time of a step by layer, before and after its layers got kernels."""

import contextlib
import itertools
import statistics
import time
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from . import _fallbacks
from ._checks import counted


class Spread(NamedTuple):
    """A median of milliseconds between its quartiles."""
    ms: float
    low: float
    high: float

    @property
    def noise(self):
        """Half the distance of the quartiles over the median."""
        return (self.high - self.low) / 2 / self.ms if self.ms else 0.0

    def __str__(self):
        return f"{self.ms:.3g} ms \u00b1{100 * self.noise:.0f} %"


def spread(values):
    if len(values) < 2:
        return Spread(*values * 3)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


class Timed(NamedTuple):
    """A module's forward and backward in a step, before and after."""
    name: str
    kind: str
    before: Spread
    after: Spread

    @property
    def gain(self):
        return self.before.ms / self.after.ms if self.after.ms else 1.0

    @property
    def slower(self):
        """Whether it is slower by more than 5 % and beyond the quartiles."""
        return self.after.ms > 1.05 * self.before.ms and \
            self.after.low > self.before.high

    def __str__(self):
        return (f"{self.name or '(model)'}: {self.kind}, {self.before} -> "
                f"{self.after}, {self.gain:.2f} times as fast")


class Times:
    """The result of report.after(step).

    before, after: the whole step, as :class:`Spread`.
    layers: the layers that have kernels, and those that were kept, as
        :class:`Timed`, if the step ran them; slower: those that got slower.
    others: other modules that take a tenth of the step or more.
    fallbacks: (layer's name, reason, calls a step) of the calls that took
        their library's own path.

    A layer's time is that of its forward and its backward, which ends with the
    gradients of its parameters.
    """

    def __init__(self, before, after, layers, others, fallbacks):
        self.before, self.after = before, after
        self.layers, self.others = layers, others
        self.fallbacks = fallbacks

    @property
    def gain(self):
        return self.before.ms / self.after.ms if self.after.ms else 1.0

    @property
    def slower(self):
        return [layer for layer in self.layers if layer.slower]

    def __repr__(self):
        lines = [f"a step takes {self.after}, before {self.before}: "
                 f"{self.gain:.2f} times as fast"]
        for layer in self.layers:
            lines.append(f"  {layer}" + (
                "; SLOWER: dfgnn.tune(model, *inputs) measures its kernels, "
                "dfgnn.accelerate(layer, undo=True) takes them back"
                if layer.slower else ""))
        lines += [f"  {name or '(model)'}: {counted(calls, 'call')} a step by "
                  f"the own library's path: {reason}"
                  for name, reason, calls in self.fallbacks]
        lines += [f"  {one.name or '(model)'}: {one.kind} has no kernel here "
                  f"and takes {100 * one.after.ms / self.after.ms:.0f} % of "
                  "the step" for one in self.others]
        return "\n".join(lines)


class _Clock:
    """Adds up the milliseconds of modules' forwards and backwards."""

    def __init__(self, modules):
        self.modules = modules  # [(name, module)]
        self.device = next((p.device for _, m in modules
                            for p in m.parameters()
                            if p.device.type == "cuda"), None)

    def now(self):
        if self.device is not None:
            torch.cuda.synchronize(self.device)
        return 1e3 * time.perf_counter()

    def whole(self, step):
        began = self.now()
        step()
        return self.now() - began

    def by_module(self, step):
        """By name the milliseconds of a step."""
        total, handles, backwards = {}, [], []

        def watch(name, module):
            began = []

            def before(*_):
                began.append(self.now())

            def after(_, inputs, output):
                total[name] = total.get(name, 0.0) + self.now() - began.pop()
                backwards.append(_Backward(self, name, module, inputs, output))
            handles.append(module.register_forward_pre_hook(before))
            handles.append(module.register_forward_hook(after))
        for name, module in self.modules:
            watch(name, module)
        try:
            step()
        finally:
            for handle in itertools.chain(handles, *[
                    backward.handles for backward in backwards]):
                handle.remove()
        for backward in backwards:
            total[backward.name] += backward.ms
        return total


class _Backward:
    """The time from the first gradient of a module's output to the last one of
    its parameters, or of its inputs if it has none."""

    def __init__(self, clock, name, module, inputs, output):
        self.name, self.began, self.ms, self.handles = name, None, 0.0, []
        begins = [t for t in tensors_in(output) if t.requires_grad]
        ends = [p for p in module.parameters() if p.requires_grad] or \
            [t for t in tensors_in(inputs) if t.requires_grad]

        def begin(_):
            if self.began is None:
                self.began = clock.now()

        def end(_):
            if self.began is not None:
                self.ms = clock.now() - self.began
        if begins:
            self.handles = [t.register_hook(hook) for hook, tensors in (
                (begin, begins), (end, ends)) for t in tensors]


def tensors_in(value):
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


@contextlib.contextmanager
def _fallen(counts, names):
    """Counts fallbacks by (name, reason)."""
    def note(layer, reason):
        key = names.get(id(layer), type(layer).__name__), reason
        counts[key] = counts.get(key, 0) + 1
    before, _fallbacks.watching = _fallbacks.watching, note
    try:
        yield
    finally:
        _fallbacks.watching = before


def measure(model, step, layers, plainly, rounds):
    """The Times of a step.

    layers: [(name, module)] with kernels, or that were kept.
    plainly: a context in which all layers have their library's own classes.
    """
    names = {id(module): name for name, module in model.named_modules()}
    known = {id(module) for _, module in layers}
    inside = {id(part) for _, module in layers for part in module.modules()}
    # the outermost of the other modules that hold no layer
    others, passed = [], set()
    for name, module in model.named_modules():
        parts = {id(part) for part in module.modules()}
        if id(module) in inside | passed or parts & known:
            continue
        passed |= parts
        if not isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            others.append((name, module))
    clock = _Clock(layers + others)
    with plainly():
        step()
    step()
    wholes, parts = ([], []), ([], [])
    fallen = {}
    for _ in range(rounds):
        with plainly():
            wholes[0].append(clock.whole(step))
            parts[0].append(clock.by_module(step))
        with _fallen(fallen, names):  # of steps without the clock's own hooks
            wholes[1].append(clock.whole(step))
        parts[1].append(clock.by_module(step))
    before, after = (spread(times) for times in wholes)

    def timed(name, module):
        return Timed(name, type(module).__name__, *[
            spread([times.get(name, 0.0) for times in side])
            for side in parts])
    other_times = [one for one in (timed(*other) for other in others)
                   if one.after.ms >= 0.1 * after.ms]
    ran = [one for one in (timed(*layer) for layer in layers)
           if one.before.ms or one.after.ms]
    return Times(before, after, ran,
                 sorted(other_times, key=lambda one: -one.after.ms),
                 [(name, reason, round(count / rounds))
                  for (name, reason), count in fallen.items()])
