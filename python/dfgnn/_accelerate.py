"""dfgnn.accelerate: gives the layers of a PyG or DGL model the kernels of
dfgnn, in place."""

import sys
from typing import NamedTuple

import torch

__all__ = ["accelerate", "Report"]


class Layer(NamedTuple):
    """A layer that accelerate met: its name in the model, its class, and why
    it was left as it is (None if it was swapped)."""
    name: str
    kind: str
    reason: str = None


class Report:
    """The result of :func:`accelerate`: ``swapped`` and ``kept`` are lists of
    (name, kind, reason)."""

    def __init__(self, verb):
        self.verb = verb
        self.swapped = []
        self.kept = []

    def __repr__(self):
        lines = [f"{self.verb} {len(self.swapped)} of "
                 f"{len(self.swapped) + len(self.kept)} layers"]
        for layer in self.swapped:
            lines.append(f"  {layer.name or '(model)'}: {layer.kind}")
        for layer in self.kept:
            lines.append(f"  {layer.name or '(model)'}: {layer.kind} stays as "
                         f"it is: {layer.reason}")
        return "\n".join(lines)


def accelerate(model, *, undo=False):
    """Gives each layer of PyG in a model the class of the same name in
    dfgnn.nn.pyg, and each of DGL a class over DGL's own with the kernels of
    dfgnn.nn.dgl, in place: parameters, buffers, hooks and state_dict are
    untouched.  undo=True gives them their own classes back.

    Returns a :class:`Report` of what was swapped, and of which layers were
    not and why.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError("model must be a torch.nn.Module, got "
                        f"{type(model).__name__}")
    libraries = _libraries()
    report = Report("restored" if undo else "accelerated")
    for name, module in model.named_modules():
        kind = type(module)
        for library in libraries:
            other = library.without_kernels(kind) if undo \
                else library.with_kernels(kind)
            reason = None if undo or other else library.why_not(kind)
            if other is not None:
                _swap(module, other)
                report.swapped.append(Layer(name, kind.__name__))
            elif reason is not None:
                report.kept.append(Layer(name, kind.__name__, reason))
    return report


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
