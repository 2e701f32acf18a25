"""dfgnn.accelerate: gives the layers of a PyG or DGL model, and blocks of
physicsnemo, orb-models and anemoi-models, the kernels of dfgnn, in place."""

import contextlib
import inspect
import re
import sys
from typing import NamedTuple

import torch

from . import _step_times
from ._checks import counted
from ._guard import MOST_STEPS, Compilation, Guard, Guards, swap


class Layer(NamedTuple):
    """A layer that accelerate saw: its name in the model, its class, why it
    was left as it is (None if it was swapped), what would serve it, and, of a
    module that takes the layers inside it together, how."""
    name: str
    kind: str
    reason: str | None = None
    next: str | None = None
    detail: str | None = None


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
     "its time grows with the square of the largest graph; kernels have it "
     "in a GPSConv, and as dfgnn.dense_attention(batch, q, k, v, bias)"),
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
  MessagePassing or send messages by DGL, modules that call scatter, softmax or
  a pooling of torch_geometric, and blocks of physicsnemo, orb-models and
  anemoi-models, of the packages that are imported
  next: messages that are summed by torch itself (index_add, scatter of
  x[src]) are dfgnn.aggregate(graph, x, reduce), weighted ones dfgnn.spmm, a
  softmax of them dfgnn.score_attention, any others dfgnn.edge_program; code of
  torch_scatter runs after dfgnn.install_as_torch_scatter()"""


def _of_each_reason(layers, what):
    """A line for all layers of one kind that have one reason, and one for what
    would serve them."""
    groups = {}
    for layer in layers:
        groups.setdefault(layer[1:4], []).append(layer.name or "(model)")
    lines = []
    for (kind, reason, following), names in groups.items():
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
    calling: modules whose calls of scatter, softmax and poolings of PyG's
        know the groups of an index, and reduce by kernels where they win.
    """

    def __init__(self, verb, model=None):
        self.verb, self.model = verb, model
        self.swapped, self.already = [], []
        self._traced, self._kept = [], []
        self.others = []
        self.joined = []
        self.calling = []
        self._classes = []  # [(module, its own class, that with kernels)]
        self._guards = {}  # by name of a layer
        self.compilation = None
        self._whole = ()  # beginnings of the names of layers that no call meets

    @property
    def traced(self):
        return [layer for layer, state in self._traced
                if state.served or not state.reason]

    @property
    def kept(self):
        """A traced layer is kept if no call of it was served, and any whose
        own path was faster."""
        slow = [layer._replace(reason=self._slow(layer)) for layer in (
            *self.swapped, *self.already, *self.traced) if self._slow(layer)]
        return self._kept + slow + [
            layer._replace(reason=state.reason,
                           next=_next_step(self._module(layer)))
            for layer, state in self._traced
            if state.reason and not state.served]

    def _slow(self, layer):
        """Why a layer with kernels keeps its own path, or None."""
        guard = self._guards.get(layer.name)
        return None if guard is None else guard.kept

    @property
    def times(self):
        """By name of a layer what its first steps took by either path."""
        return {name: guard.reason for name, guard in self._guards.items()
                if guard.reason}

    def _module(self, layer):
        return self.model.get_submodule(layer.name)

    @property
    def served(self):
        """The layers that run by kernels."""
        swapped = [] if self.verb == "restored" else self.swapped
        return [layer for layer in (*self.already, *swapped, *self.traced)
                if not self._slow(layer)]

    def _inside(self):
        """The beginnings of the names of layers that a unit takes together:
        its line says what becomes of them, and a hook that times one of them
        would send it its own way."""
        return tuple(layer.name + "." if layer.name else ""
                     for layer in (*self.swapped, *self.joined)
                     if layer.detail)

    def __repr__(self):
        count = len(self.swapped) + len(self.already) + len(self._traced) + \
            len(self._kept)
        inside = self._inside()
        lines = [f"{self.verb} {len(self.swapped)} of "
                 f"{counted(count, 'layer')}"]
        if not count and not self.calling and self.verb == "accelerated":
            lines.append(_NOTHING)
        if self.already:
            lines[0] += f"; {len(self.already)} were accelerated already"
        for layer in (*self.swapped, *self.joined):
            if self._slow(layer) or \
                    not layer.detail and layer.name.startswith(inside):
                continue
            lines.append(f"  {layer.name or '(model)'}: {layer.kind}" + (
                f": {layer.detail}" if layer.detail else ""))
        if self.traced:
            lines[0] += f"; traced {len(self.traced)}"
        for layer, state in self._traced:
            if self._slow(layer):
                continue
            if state.served:
                lines.append(f"  {layer.name or '(model)'}: {layer.kind} runs "
                             "by an edge program made of its messages")
            elif not state.reason:
                lines.append(f"  {layer.name or '(model)'}: {layer.kind} is "
                             "traced by its first call")
        lines += [f"  {layer.name or '(model)'}: {layer.kind}'s own calls of "
                  f"{layer.detail}" for layer in self.calling]
        if self.compilation is not None and self.compilation.reason:
            lines.append(f"  (model): {self.compilation.reason}")
        lines += _of_each_reason(self.kept, "stays as it is")
        lines += _of_each_reason(self.others, "is no layer of edges")
        return "\n".join(lines)

    def after(self, step, rounds=5):
        """Times a step before and after, in turns: ``report.after(lambda:
        train_one_batch())``.

        step: a function without arguments that runs the model, forward and
            backward; it is run until each layer's path is chosen, and
            then 4 * rounds + 2 times, half of them with the layers' own
            classes.
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
        for _ in range(MOST_STEPS if self._guards else 0):
            step()
            if not any(guard.undecided for guard in self._guards.values()):
                break
        modules = dict(self.model.named_modules())
        layers = [(layer.name, modules[layer.name])
                  for layer in (*self.served, *self.kept)
                  if layer.detail or
                  not layer.name.startswith(self._inside())]
        return _step_times.measure(self.model, step, layers, self._plainly,
                                   rounds)

    @contextlib.contextmanager
    def _plainly(self):
        """Gives the layers their own classes for as long as it lasts."""
        ours = [entry for entry in self._classes if type(entry[0]) is entry[2]]
        for module, own, _ in ours:
            swap(module, own)
        try:
            yield
        finally:
            for module, _, kind in ours:
                swap(module, kind)


def accelerate(model: torch.nn.Module, *, undo: bool = False,
               check: bool = True, guard: bool = True,
               compile: bool = False) -> Report:
    """Gives each layer of PyG in a model the class of the same name in
    dfgnn.nn.pyg, and each of DGL, and each module of yours that sends messages
    by DGL, a class over its own whose sums run by kernels.  Parameters,
    buffers, hooks and state_dict stay; undo=True undoes it.  The blocks of
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

    guard=True times the kernels and the library's own path of each layer in
    turns in its first steps, 10 to 21 with gradients and as many of eval()
    without, and gives a layer its own class back if that is faster by more than
    2 %.  Each step is a real one by one path; paths differ by rounding, and in
    the random numbers of attention's dropout.  Kernels run in deterministic
    algorithms, checkpoints, dfgnn.capture and torch.compile, and where another
    thread calls the model meanwhile.

    compile=True then times the model as torch.compile makes it, too, and keeps
    that where it is faster; report.compilation says what was found.

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
            _reach(report, library, name, module, undo)
        module.__dict__.pop("_dfgnn_guard", None)
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
    if guard and not undo:
        _watch(report)
    if isinstance(model._compiled_call_impl, Compilation):
        model._compiled_call_impl = None
    if compile and not undo:
        report.compilation = model._compiled_call_impl = Compilation(
            model, list(report._guards.values()))
    return report


def _watch(report):
    group = Guards()
    for layer in (*report.swapped, *report.already, *report.traced):
        guard = report._guards[layer.name] = Guard(group)
        report._module(layer).__dict__["_dfgnn_guard"] = guard


def _adapted(library, name, subject):
    """The result of an adapter's function of this name for a subject; None if
    the adapter has no such function."""
    function = getattr(library, name, None)
    return None if function is None else function(subject)


def _rewrite(report, library, name, module, undo):
    """Handles a model whose layers are called for each relation."""
    layers = _adapted(library, "restore" if undo else "rewrite", module)
    for layer, detail in () if undo else layers or ():
        report.joined.append(Layer(f"{name}.{layer}" if name else layer,
                                   "layer of to_hetero", detail=detail))


def _detailed(libraries, layer, model):
    module = model.get_submodule(layer.name)
    for library in libraries:
        detail = _adapted(library, "detail", module)
        if detail is not None:
            return layer._replace(detail=detail)
    return layer


def _meet(report, library, name, module, undo, check):
    kind = type(module)
    own, fast = library.without_kernels(kind), library.with_kernels(kind)
    traced = None if undo or fast or own else _adapted(library, "traced", kind)
    other = own if undo else fast
    if traced is not None:
        swap(module, traced)
        state = library.state(module)
        state.checked = check
        if not name.startswith(report._whole):
            report._traced.append((Layer(name, kind.__name__), state))
        report._classes.append((module, kind, traced))
    elif other is not None:
        swap(module, other)
        report.swapped.append(Layer(name, kind.__name__))
        if not undo:
            report._classes.append((module, kind, fast))
            if _adapted(library, "whole", module):
                report._whole += (name + "." if name else "",)
    elif own is not None:
        report.already.append(Layer(name, kind.__name__))
        report._classes.append((module, own, kind))
    elif not undo:
        reason = library.why_not(kind)
        if reason is not None:
            report._kept.append(Layer(name, kind.__name__, reason,
                                     _next_step(module)))


def _reach(report, library, name, module, undo):
    """Gives a module that is no layer a class whose methods call functions of
    dfgnn."""
    kind = type(module)
    if undo:
        own = _adapted(library, "without_functions", kind)
        if own is not None:
            swap(module, own)
        return
    if any(name.startswith(f"{layer.name}." if layer.name else "")
           for layer in (*report.swapped, *report.already,
                         *[layer for layer, _ in report._traced])):
        return  # a layer looks at the modules inside it
    derived = _adapted(library, "with_functions", kind)
    if derived is not None:
        swap(module, derived)
        report._classes.append((module, kind, derived))
        report.calling.append(Layer(name, kind.__name__,
                                    detail=", ".join(derived._dfgnn_called)))


def _libraries():
    """The adapters of imported libraries: a model has layers of no others."""
    adapters = []
    if "torch_geometric" in sys.modules:
        from .nn.pyg import accelerated
        adapters.append(accelerated)
    if "dgl" in sys.modules:
        from .nn.dgl import accelerated
        adapters.append(accelerated)
    if any(name in sys.modules for name in _WITH_BLOCKS):
        from .nn.blocks import accelerated
        adapters.append(accelerated)
    return adapters
