"""MLPs on edges by the library's kernels, with gradients.

A call has two ends, features of nodes or None, and the tensors of fields_of().
With a layout its first weight has columns of the ends, too: their products over
nodes are made here and become dst_part and src_part.
"""

import itertools

from . import _execute
from ._autograd import Kind, Recorded, by_operations, wants_gradient
from ._mlp_formula import (  # noqa: F401 - used as this module's
    Settings, composite as _formula, kept_widths, width_of)
from ._mlp_layout import (  # noqa: F401 - used as this module's
    Layout, fields_by_torch, of_ends)
from ._mlp_recipe import PARAMETERS, Recipe


def composite(graph, settings, tensors, *more):
    """The outputs of a call by torch operations; more: the other arguments of
    fields_by_torch()."""
    return _formula(graph, settings, fields_by_torch(tensors, *more))


def recipe(graph, settings, tensors):
    """The Recipe of tensors of one type, without a layout."""
    key = ("mlp", settings, _execute.generation(), graph.loops is None, *[
        None if t is None else (t.shape, t.dtype) for t in tensors])
    return _execute.kept(graph, key, lambda: Recipe(
        graph, settings, tensors, None,
        next(t for t in tensors if t is not None).dtype))


# ---- autograd ---------------------------------------------------------------

class _EdgeMlps(Kind):
    """The outputs of a call; about: (graph, made), the tensors are the
    ends and those of the fields.  Gradients of gradients are made of torch's
    operations."""

    def record(self, about, given, needed):
        graph, made = about
        dst, src, *tensors = given
        cast = made.cast(tensors)
        parts = made.parts(dst, src, cast)
        placed = made.place(graph, cast, parts)
        kept = made.new_kept(graph)
        outs = made.forward(graph, placed, kept)
        return tuple(outs), (*given, *parts, *placed[PARAMETERS:], kept), None

    def gradients(self, about, rest, saved, grads, needed, again):
        graph, made = about
        count = len(made.fields)
        given = iter(saved)
        ends, tensors, parts, parameters = (
            list(itertools.islice(given, size))
            for size in (2, count, 2, count - PARAMETERS))
        kept = next(given)
        wanted = [w and t is not None
                  for w, t in zip(needed, (*ends, *tensors))]
        if again:
            return differentiate(graph, made.settings, tensors, grads, wanted,
                                 True, made.layout, made.dtype, ends)
        found = made.backward(
            graph, made.place(graph, tensors, parts, parameters), grads,
            made.inner(wanted), kept)
        return of_ends(made.layout, ends, tensors, found, wanted,
                       made.dtype)


_EDGE_MLPS = _EdgeMlps()


def differentiate(graph, settings, tensors, grads, wanted, again=True,
                  layout=None, dtype=None, ends=(None, None)):
    """Gradients of the ends and the tensors by torch operations,
    differentiable themselves if `again`."""
    return by_operations(
        lambda given: composite(graph, settings, given[2:], layout, dtype,
                                given[:2]),
        (*ends, *tensors), grads, wanted, again)


def call(graph, made, ends, tensors):
    """The outputs of a Recipe's call.  Rows are in the caller's order of edges
    and of the recipe's type."""
    if made.mlp is None:
        return composite(graph, made.settings, tensors, made.layout,
                         made.dtype, ends)
    if wants_gradient((*ends, *tensors)):
        return Recorded.apply(_EDGE_MLPS, (graph, made), *ends, *tensors)
    tensors = made.cast(tensors)
    parts = made.parts(*ends, tensors)
    return tuple(made.forward(graph, made.place(graph, tensors, parts)))


def run(graph, settings, tensors):
    """The outputs of tensors of one type, in the caller's order of edges."""
    return call(graph, recipe(graph, settings, tensors), (None, None), tensors)
