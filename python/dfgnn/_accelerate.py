"""dfgnn.accelerate: gives the layers of a PyG or DGL model the kernels of
dfgnn, in place."""

import contextlib
import inspect
import re
import sys
from typing import NamedTuple

import torch

from . import _step_times

__all__ = ["accelerate", "Report"]


class Layer(NamedTuple):
    """A layer that accelerate met: its name in the model, its class, why it
    was left as it is (None if it was swapped), and what would serve it."""
    name: str
    kind: str
    reason: str = None
    next: str = None


# what a message function of one's own looks like, and which function of dfgnn
# computes such messages
_ADVICE = [
    (r"softmax", "dfgnn.score_attention(graph, scores, value), attention "
     "by scores of your own"),
    (r"sigmoid", "dfgnn.gated_messages(graph, x, gate_dst, gate_src) has "
     "gates"),
    (r"relu", "dfgnn.relu_messages(graph, x, edge_attr) has "
     "relu(x_j + edge_attr)"),
    (r"edge_weight|\bnorm\b|\balpha\b", "dfgnn.spmm(graph, x, edge_weight) has "
     "weighted sums"),
    (r"x_i\b.*x_j|x_j\b.*x_i", "a linear layer of x_i and x_j is that of each "
     "node, taken before the edges; dfgnn.aggregate(graph, x, reduce) then "
     "adds or compares"),
    (r"return x_j\s*$", "dfgnn.aggregate(graph, x, reduce) has sums, means and "
     "extremes"),
]

# modules of other libraries that may take most of a step
_HEAVY = [
    (("MultiheadAttention",), "every node attends to every node of its graph: "
     "its time and memory grow with the square of the largest graph, and no "
     "kernel here has it; GPSConv(attn_type='performer') or attn=None is "
     "linear"),
    (("PerformerAttention", "PolynormerAttention", "SGFormerAttention",
      "QFormer"), "attention of all nodes, by matrix products of PyTorch"),
    (("LSTM", "GRU", "LSTMAggregation", "GRUAggregation"),
     "a recurrent network runs one neighbour after the other"),
]


def _next_step(module):
    """Which function may serve a layer of the caller's own."""
    message = getattr(type(module), "message", None)
    if type(module).__module__.startswith(("torch_geometric.", "dgl.")):
        return None
    try:
        source = inspect.getsource(message)
    except (OSError, TypeError):
        return None
    return next(("see " + text for pattern, text in _ADVICE
                 if re.search(pattern, source, re.S)), None)


class Report:
    """The result of :func:`accelerate`: lists of :class:`Layer`.

    swapped: got kernels now; already: had them before.
    traced: keep their own class, and a kernel made of their message function.
    kept: have no kernel, why not, and in ``next`` what would serve them.
    others: modules that are no layers of graphs and may take most of a step.
    """

    def __init__(self, verb, model=None):
        self.verb, self.model = verb, model
        self.swapped, self.already = [], []
        self.traced, self.kept = [], []
        self.others = []
        self._classes = []  # [(module, its own class, that with kernels)]

    @property
    def served(self):
        """The layers that run by kernels."""
        return self.already + self.traced + (
            [] if self.verb == "restored" else self.swapped)

    def __repr__(self):
        met = len(self.swapped) + len(self.already) + len(self.traced) + \
            len(self.kept)
        lines = [f"{self.verb} {len(self.swapped)} of {met} layers"]
        if self.already:
            lines[0] += f"; {len(self.already)} were accelerated already"
        for layer in self.swapped:
            lines.append(f"  {layer.name or '(model)'}: {layer.kind}")
        for layer in self.traced:
            lines.append(f"  {layer.name or '(model)'}: {layer.kind} runs by "
                         "a kernel made of its message function")
        for layer in self.kept:
            lines.append(f"  {layer.name or '(model)'}: {layer.kind} stays as "
                         f"it is: {layer.reason}" + (
                             f"; {layer.next}" if layer.next else ""))
        for layer in self.others:
            lines.append(f"  {layer.name or '(model)'}: {layer.kind} is no "
                         f"layer of edges: {layer.reason}")
        return "\n".join(lines)

    def after(self, step, rounds=5):
        """Times a step before and after, in turns: ``report.after(lambda:
        train_one_batch())``.

        step: a function without arguments that runs the model, forward and
            backward; it is run 4 * rounds + 2 times, half of them with the
            layers' own classes.
        Returns a :class:`dfgnn._step_times.Times`: the step and each layer
        before and after with their noise, the layers that got slower, the
        calls that took their library's own path and why, and other modules
        that take much of the step.
        """
        if not callable(step):
            raise TypeError("step must be a function without arguments that "
                            "runs the model, such as lambda: model(x, "
                            "edge_index).sum().backward(), got "
                            f"{type(step).__name__}")
        if rounds < 1:
            raise ValueError(f"rounds must be at least 1, got {rounds}")
        modules = dict(self.model.named_modules())
        layers = [(layer.name, modules[layer.name])
                  for layer in (*self.served, *self.kept)]
        return _step_times.measure(self.model, step, layers, self._plainly,
                                   rounds)

    @contextlib.contextmanager
    def _plainly(self):
        """The layers have their own classes."""
        with_kernels = [type(module) for module, _, _ in self._classes]
        for module, own, _ in self._classes:
            _swap(module, own)
        try:
            yield
        finally:
            for (module, _, _), kind in zip(self._classes, with_kernels):
                _swap(module, kind)


def accelerate(model, *, undo=False):
    """Gives each layer of PyG in a model the class of the same name in
    dfgnn.nn.pyg, and each of DGL a class over DGL's own with the kernels of
    dfgnn.nn.dgl, in place: parameters, buffers, hooks and state_dict are
    untouched.  undo=True gives them their own classes back.

    Returns a :class:`Report` of what was swapped, of which layers were not and
    why, and of other modules that may take the time; its after(step) times a
    step before and after.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError("model must be a torch.nn.Module, got "
                        f"{type(model).__name__}")
    libraries = _libraries()
    report = Report("restored" if undo else "accelerated", model)
    for name, module in model.named_modules():
        for library in libraries:
            _meet(report, library, name, module, undo)
        heavy = next((text for kinds, text in _HEAVY
                      if type(module).__name__ in kinds), None)
        if heavy and not undo:
            report.others.append(Layer(name, type(module).__name__, heavy))
    return report


def _meet(report, library, name, module, undo):
    kind = type(module)
    own, fast = library.without_kernels(kind), library.with_kernels(kind)
    other = own if undo else fast
    if other is not None:
        _swap(module, other)
        report.swapped.append(Layer(name, kind.__name__))
        if not undo:
            report._classes.append((module, kind, fast))
    elif own is not None:
        report.already.append(Layer(name, kind.__name__))
        report._classes.append((module, own, kind))
    elif not undo:
        reason = library.why_not(kind)
        if reason is not None:
            report.kept.append(Layer(name, kind.__name__, reason,
                                     _next_step(module)
                                     if "derive it" not in reason else None))


def _libraries():
    """The adapters of the libraries that are imported: a model has layers of
    no others."""
    found = []
    if "torch_geometric" in sys.modules:
        from .nn.pyg import accelerated
        found.append(accelerated)
    if "dgl" in sys.modules:
        from .nn.dgl import accelerated
        found.append(accelerated)
    return found


def _swap(module, kind):
    state = module.__dict__
    if "propagate" in state and not state.get("_explain") \
            and state.get("_decomposed_layers", 1) == 1:
        # PyG leaves its own propagate in the module after an explanation
        del state["propagate"]
    state.pop("_dfgnn_weights", None)
    module.__class__ = kind
