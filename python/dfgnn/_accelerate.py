"""dfgnn.accelerate: gives the layers of a PyG or DGL model, and blocks of
physicsnemo, orb-models and anemoi-models, the kernels of dfgnn, in place."""

import contextlib
import inspect
import re
import sys
from typing import NamedTuple, Optional

import torch

from . import _step_times
from ._checks import counted

__all__ = ["accelerate", "Report"]


class Layer(NamedTuple):
    """A layer that accelerate met: its name in the model, its class, why it
    was left as it is (None if it was swapped), what would serve it, and, of a
    module that takes the layers inside it together, how."""
    name: str
    kind: str
    reason: Optional[str] = None
    next: Optional[str] = None
    detail: Optional[str] = None


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
     "its time and memory grow with the square of the largest graph, and "
     "kernels have it for small graphs of a GPSConv on a CPU alone; "
     "GPSConv(attn_type='performer') or attn=None is linear"),
    (("PerformerAttention", "PolynormerAttention", "SGFormerAttention",
      "QFormer"), "attention of all nodes, by matrix products of PyTorch"),
    (("LSTM", "GRU", "LSTMAggregation", "GRUAggregation"),
     "a recurrent network runs one neighbour after the other"),
]


# packages whose blocks have kernels, see nn/blocks
_WITH_BLOCKS = "physicsnemo", "modulus", "orb_models", "anemoi"


def _next_step(module):
    """Which function may serve a layer of the caller's own."""
    message = getattr(type(module), "message", None)
    if type(module).__module__.startswith(("torch_geometric.", "dgl.")):
        return None
    try:
        source = inspect.getsource(message)
    except (OSError, TypeError):
        return None
    return next((text for pattern, text in _ADVICE
                 if re.search(pattern, source, re.S)), None)


_NOTHING = """\
  looked for: layers of torch_geometric and dgl, classes that derive from
  MessagePassing or send messages by DGL, and blocks of physicsnemo, orb-models
  and anemoi-models, of the packages that are imported
  next: messages that are summed by torch itself (index_add, scatter of
  x[src]) are dfgnn.aggregate(graph, x, reduce), weighted ones dfgnn.spmm, a
  softmax of them dfgnn.score_attention, any others dfgnn.edge_program"""


def _of_each_reason(layers, what):
    """A line for all layers of one kind that have one reason, and one for what
    would serve them."""
    found = {}
    for layer in layers:
        found.setdefault(layer[1:4], []).append(layer.name or "(model)")
    lines = []
    for (kind, reason, following), names in found.items():
        lines.append(f"  {', '.join(names)}: {kind} {what}: {reason}")
        if following:
            lines.append(f"    next: {following}")
    return lines


class Report:
    """The result of :func:`accelerate`: lists of :class:`Layer`.

    swapped: got kernels now; already: had them before.
    traced: an edge program is made of their messages, by their first call; a
        layer of which none can be made is among the kept ones after it.
    kept: have no kernel, why not, and in ``next`` what would serve them.
    others: modules that are no layers of graphs and may take most of a step.
    joined: layers that to_hetero called for each relation, and now once.
    """

    def __init__(self, verb, model=None):
        self.verb, self.model = verb, model
        self.swapped, self.already = [], []
        self._traced, self._kept = [], []
        self.others = []
        self.joined = []
        self._classes = []  # [(module, its own class, that with kernels)]
        self._whole = ()  # beginnings of the names of layers that no call meets

    @property
    def traced(self):
        return [layer for layer, state in self._traced
                if state.served or not state.reason]

    @property
    def kept(self):
        """A traced layer is kept if no call of it was served."""
        return self._kept + [
            layer._replace(reason=state.reason,
                           next=_next_step(self._module(layer)))
            for layer, state in self._traced
            if state.reason and not state.served]

    def _module(self, layer):
        return self.model.get_submodule(layer.name)

    @property
    def served(self):
        """The layers that run by kernels."""
        swapped = [] if self.verb == "restored" else self.swapped
        return self.already + swapped + self.traced

    def _inside(self):
        """The beginnings of the names of layers that a unit takes together:
        its line says what becomes of them, and a hook that times one of them
        would send it its own way."""
        return tuple(layer.name + "." if layer.name else ""
                     for layer in (*self.swapped, *self.joined)
                     if layer.detail)

    def __repr__(self):
        met = len(self.swapped) + len(self.already) + len(self._traced) + \
            len(self._kept)
        inside = self._inside()
        lines = [f"{self.verb} {len(self.swapped)} of {counted(met, 'layer')}"]
        if not met and self.verb == "accelerated":
            lines.append(_NOTHING)
        if self.already:
            lines[0] += f"; {len(self.already)} were accelerated already"
        for layer in (*self.swapped, *self.joined):
            if not layer.detail and layer.name.startswith(inside):
                continue
            lines.append(f"  {layer.name or '(model)'}: {layer.kind}" + (
                f": {layer.detail}" if layer.detail else ""))
        if self.traced:
            lines[0] += f"; traced {len(self.traced)}"
        for layer, state in self._traced:
            if state.served:
                lines.append(f"  {layer.name or '(model)'}: {layer.kind} runs "
                             "by an edge program made of its messages")
            elif not state.reason:
                lines.append(f"  {layer.name or '(model)'}: {layer.kind} is "
                             "traced by its first call")
        lines += _of_each_reason(self.kept, "stays as it is")
        lines += _of_each_reason(self.others, "is no layer of edges")
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
                  for layer in (*self.served, *self.kept)
                  if layer.detail or
                  not layer.name.startswith(self._inside())]
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


def accelerate(model: torch.nn.Module, *, undo: bool = False,
               check: bool = True) -> Report:
    """Gives each layer of PyG in a model the class of the same name in
    dfgnn.nn.pyg, and each of DGL, and each module of your own that sends
    messages by DGL, a class over its own whose sums run by kernels, in place: parameters, buffers, hooks and state_dict are
    untouched.  undo=True gives them their own classes back.  The blocks of
    physicsnemo (MeshEdgeBlock, MeshNodeBlock, MeshGraphEncoder and
    MeshGraphDecoder) and of orb-models (AttentionInteractionNetwork) run by
    dfgnn.edge_mlp in the same way, those of anemoi-models
    (GraphTransformerProcessorBlock and MapperBlock) by dfgnn.gt_attention.

    Any other layer that derives from PyG's MessagePassing, one of your own,
    too, is traced by its first call: what its message, edge_update and
    aggregate do becomes edge programs.  One that cannot be traced runs as it
    is, and the report says which operation in which line is the reason.
    check=True compares the numbers and gradients of each first call with those
    of the layer's own methods, and keeps these where they differ.

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
            _meet(report, library, name, module, undo, check)
        heavy = next((text for kinds, text in _HEAVY
                      if type(module).__name__ in kinds), None)
        if heavy and not undo:
            report.others.append(Layer(name, type(module).__name__, heavy))
    if not undo:
        report.swapped = [_detailed(libraries, layer, model)
                          for layer in report.swapped]
    for name, module in model.named_modules():
        for library in libraries:
            _rewrite(report, library, name, module, undo)
    return report


def _rewrite(report, library, name, module, undo):
    """Handles a model whose layers are called for each relation."""
    if undo:
        getattr(library, "restore", lambda module: None)(module)
        return
    for layer, detail in getattr(library, "rewrite",
                                 lambda module: ())(module):
        report.joined.append(Layer(f"{name}.{layer}" if name else layer,
                                   "layer of to_hetero", detail=detail))


def _detailed(libraries, layer, model):
    module = model.get_submodule(layer.name)
    for library in libraries:
        detail = getattr(library, "detail", lambda module: None)(module)
        if detail is not None:
            return layer._replace(detail=detail)
    return layer


def _meet(report, library, name, module, undo, check):
    kind = type(module)
    own, fast = library.without_kernels(kind), library.with_kernels(kind)
    traced = None if undo or fast or own else _traced_class(library, kind)
    other = own if undo else fast
    if traced is not None:
        _swap(module, traced)
        state = library.state(module)
        state.checked = check
        if not name.startswith(report._whole):
            report._traced.append((Layer(name, kind.__name__), state))
        report._classes.append((module, kind, traced))
    elif other is not None:
        _swap(module, other)
        report.swapped.append(Layer(name, kind.__name__))
        if not undo:
            report._classes.append((module, kind, fast))
            if getattr(library, "whole", lambda module: False)(module):
                report._whole += (name + "." if name else "",)
    elif own is not None:
        report.already.append(Layer(name, kind.__name__))
        report._classes.append((module, own, kind))
    elif not undo:
        reason = library.why_not(kind)
        if reason is not None:
            report._kept.append(Layer(name, kind.__name__, reason,
                                     _next_step(module)))


def _traced_class(library, kind):
    make = getattr(library, "traced", None)
    return None if make is None else make(kind)


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
    if any(name in sys.modules for name in _WITH_BLOCKS):
        from .nn.blocks import accelerated
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
