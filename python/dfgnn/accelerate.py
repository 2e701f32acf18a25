"""dfgnn.accelerate: the layers of a PyG model made ours, in place."""

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
    """What :func:`accelerate` did: ``swapped`` and ``kept`` are lists of
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
    dfgnn.nn.pyg, in place: parameters, buffers, hooks and state_dict are
    untouched.  undo=True gives them PyG's classes back.

    Returns a :class:`Report` of what was swapped, and of which layers of PyG
    were not and why.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError("model must be a torch.nn.Module, got "
                        f"{type(model).__name__}")
    from torch_geometric.nn import MessagePassing
    from .nn.pyg import CLASSES, Fused
    swaps = ({ours: theirs for theirs, ours in CLASSES.items()} if undo
             else CLASSES)
    report = Report("restored" if undo else "accelerated")
    for name, module in model.named_modules():
        kind = type(module)
        if kind in swaps:
            _swap(module, swaps[kind])
            report.swapped.append(Layer(name, kind.__name__))
        elif not undo and kind not in CLASSES.values() and (
                isinstance(module, MessagePassing)
                or kind.__module__.startswith("dgl.nn")):
            report.kept.append(Layer(name, kind.__name__,
                                     _reason(kind, CLASSES, Fused)))
    return report


def _swap(module, kind):
    state = module.__dict__
    if "propagate" in state and not state.get("_explain") \
            and state.get("_decomposed_layers", 1) == 1:
        # PyG leaves its own propagate there after an explanation
        del state["propagate"]
    state.pop("_dfgnn_weights", None)
    module.__class__ = kind


def _reason(kind, classes, fused):
    if kind.__module__.startswith("dgl.nn"):
        return "it is DGL's: use dfgnn.nn.dgl"
    if issubclass(kind, fused):
        return f"{kind.__name__} is a subclass of dfgnn.nn.pyg already"
    for base in kind.__mro__:
        if base in classes:
            return (f"{kind.__name__} is a subclass of {base.__name__}; "
                    f"derive it from dfgnn.nn.pyg.{base.__name__} instead")
    return "no kernel has its messages"
