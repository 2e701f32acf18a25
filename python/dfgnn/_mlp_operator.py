"""MLPs on edges while torch.compile traces, as a family of
_torch_library.py.

A call says its settings, whether inner values are kept for a gradient, and
which of its tensors are there.
"""

import functools

import torch

from . import _mlp_kernels as kernels
from ._mlp_formula import (
    ACTIVATIONS, NORMS, REDUCTIONS, Settings, composite, kept_widths, width_of)
from ._torch_library import Family


def has_kernels(settings, tensors, dtype, device):
    """Whether kernels may run a call; inner values are then kept, which they
    read on the way back."""
    return device.type == "cuda" and tensors[0] is not None and \
        dtype in (torch.float16, torch.bfloat16) and settings.layers > 1


# The choices of a setting; the counts of a call have the number of one.
_CHOICES = {"activation": ACTIVATIONS, "last": ACTIVATIONS,
            "gate": (False, True), "norm": NORMS, "residual": (False, True),
            "reduce_dst": REDUCTIONS, "reduce_src": REDUCTIONS,
            "edges": (False, True)}
_NUMBERS = "slope", "epsilon"


def about(settings, tensors, keep):
    """The name, counts and numbers of a call; tensors: those of its fields, or
    None."""
    choices = [known.index(getattr(settings, name))
               for name, known in _CHOICES.items()]
    return "", [settings.layers, int(keep), *choices,
                *[int(t is not None) for t in tensors]], [
        float(getattr(settings, name)) for name in _NUMBERS]


@functools.lru_cache(maxsize=1024)
def _parse(_, counts, numbers):
    """(settings, which tensors are there, whether inner values are kept)."""
    layers, keep, *counts = counts
    choices = {name: known[count] for (name, known), count
               in zip(_CHOICES.items(), counts)}
    return Settings(layers, **choices, **dict(zip(_NUMBERS, numbers))), \
        counts[len(_CHOICES):], bool(keep)


class _Read:
    """What a call says."""

    def __init__(self, call):
        self.settings, self.there, self.keep = _parse(*call.about)
        given = iter(call.tensors)
        self.tensors = [next(given) if here else None for here in self.there]
        self.like = call.tensors[0]
        self.rows = {"edge_out": call.num_edges, "out_dst": call.num_dst,
                     "out_src": call.num_src}
        edge, _, _, *factors = self.tensors[:5]
        self.by_edge = next((t for t in (edge, *factors) if t is not None),
                            None)

    def empty_kept(self):
        """Memory for inner values, as a list of one tensor or none."""
        return [self.like.new_empty(self.rows["edge_out"] * sum(
            kept_widths(self.settings, self.tensors)))
        ] if self.keep else []

    def recipe(self, graph):
        """The library's recipe; None if torch's operations run it."""
        made = kernels.recipe(graph, self.settings, self.tensors,
                              self.like.dtype)
        return None if made.mlp is None else made

    def placed(self, graph, made):
        return made.place(graph, self.tensors)


class _Mlps(Family):
    """The outputs are those that are asked for, then inner values that their
    gradient reads."""

    name = "mlp"

    def run(self, call):
        read = _Read(call)
        graph = call.graph(read.by_edge)
        made, kept = read.recipe(graph), read.empty_kept()
        if made is not None:
            return [*made.forward(graph, read.placed(graph, made), *kept),
                    *kept]
        return [*composite(graph, read.settings, read.tensors), *kept]

    def fake(self, call):
        read = _Read(call)
        width = width_of(read.settings, read.tensors)
        return [*[read.like.new_empty(read.rows[name], width)
                  for name in read.settings.outputs],
                *read.empty_kept()]

    def saved(self, call, outs):
        return outs[len(_parse(*call.about)[0].outputs):]

    def gradient(self, call, saved, grads, wanted):
        read, flags = _Read(call), iter(wanted)
        grads = grads[:len(read.settings.outputs)]
        wanted = tuple(here and next(flags) for here in read.there)
        graph = call.graph(read.by_edge)
        made = read.recipe(graph)
        if made is None:
            found = kernels.differentiate(graph, read.settings, read.tensors,
                                          grads, wanted, False)
        else:
            placed, kept = read.placed(graph, made), [*saved]
            if not kept:
                kept = [made.new_kept(graph)]
                made.forward(graph, placed, *kept)
            found = made.backward(graph, placed, grads, wanted, *kept)
        return [g for g, here in zip(found, read.there) if here]


run = _Mlps()
"""The outputs of (about(), place, tensors)."""
