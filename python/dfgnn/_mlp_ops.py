"""MLPs on edges as operators of torch.library, for torch.compile.

A call is named by a text of its settings, with a 1 for each of its tensors that
is there.  Tensors by edge are in the caller's order.
"""

import functools
import json

import torch

from . import _mlp
from .ops import AVAILABLE, _define, _graph, _named, _op

_PLACE = ("Tensor? edge_index, SymInt graph, SymInt num_src, SymInt num_dst, "
          "SymInt num_edges")
_CALL = f"str call, {_PLACE}, Tensor[] tensors"
_NAME = "edge_mlp"


def text(*about):
    """What names a call: its settings, then which tensors are there."""
    return json.dumps(about)


@functools.lru_cache(maxsize=1024)
def _told(call):
    """(settings, whether inner values are kept, which tensors are there) of a
    name."""
    *settings, keep, there = json.loads(call)
    return _mlp.Settings(*settings), keep, there


class _Read:
    """A call as the operators get it."""

    def __init__(self, call, edge_index, graph, num_src, num_dst, num_edges,
                 tensors):
        self.settings, self.keep, there = _told(call)
        self.place = edge_index, graph, num_src, num_dst, num_edges
        given = iter(tensors)
        self.tensors = [next(given) if here else None for here in there]
        self.rows = {"edge_out": num_edges, "out_dst": num_dst,
                     "out_src": num_src}

    def empty_kept(self, like):
        """Memory for inner values, as a list of one tensor or none."""
        return [like.new_empty(
            self.rows["edge_out"] * _mlp.kept_width(self.settings,
                                                    self.tensors))
        ] if self.keep else []

    def graph(self):
        edge_index, number, num_src, num_dst, _ = self.place
        edge, _, _, *factors = self.tensors[:5]
        return _graph(edge_index, number, num_src, num_dst, False, next(
            (t for t in (edge, *factors) if t is not None), None))

    def recipe(self, graph):
        """The library's recipe; None if torch's operations run it."""
        made = _mlp.recipe(graph, self.settings, self.tensors)
        wanted = tuple(t is not None for t in self.tensors)
        return None if made.refused(graph, self.tensors, wanted) else made

    def placed(self, graph, made):
        return made.place(graph, self.tensors, self.tensors[1:3])


def _flags(wanted):
    return [flag == "1" for flag in wanted]


def _run(*arguments):
    read = _Read(*arguments)
    graph = read.graph()
    made = read.recipe(graph)
    kept = read.empty_kept(arguments[-1][0])
    if made is not None:
        outs, picked = made.forward(graph, read.placed(graph, made), *kept)
        return [*outs, *kept, *picked]
    outs = _mlp.composite(graph, read.settings, read.tensors)
    width = outs[0].size(1)
    return [*outs, *kept, *(outs[0].new_empty(read.rows["out_" + side], width,
                                       dtype=torch.int32)
                     for side in read.settings.picked)]


def _fake(*arguments):
    read = _Read(*arguments)
    like = arguments[-1][0]
    width = _mlp.width_of(read.settings, read.tensors)
    return [like.new_empty(read.rows[name], width)
            for name in read.settings.outputs] + read.empty_kept(like) + [
        like.new_empty(read.rows["out_" + side], width, dtype=torch.int32)
        for side in read.settings.picked]


def _gradient(wanted, present, saved, grads, *arguments):
    read, wanted = _Read(*arguments), _flags(wanted)
    kept, picked = saved[:read.keep], saved[read.keep:]
    graph, given = read.graph(), iter(grads)
    grads = [next(given) if here else None for here in _flags(present)]
    flags = iter(wanted)
    wanted = tuple(t is not None and next(flags) for t in read.tensors)
    made = read.recipe(graph)
    if made is None:
        found = _mlp.differentiate(graph, read.settings, [
            t if t is None else t.detach().requires_grad_(w)
            for t, w in zip(read.tensors, wanted)], grads,
            (False, False, *wanted), False)[2:]
    else:
        found = made.backward(graph, read.placed(graph, made), picked, grads,
                              wanted, *kept)
    return [torch.zeros_like(t) if g is None else g
            for g, t, w in zip(found, read.tensors, wanted) if w]


def _gradient_fake(wanted, present, saved, grads, *arguments):
    return [torch.empty_like(t, memory_format=torch.contiguous_format)
            for t, w in zip(arguments[-1], _flags(wanted)) if w]


def _save(ctx, inputs, output):
    call, edge_index, *sizes, tensors = inputs
    ctx.save_for_backward(edge_index, *tensors, *output)
    ctx.set_materialize_grads(False)
    ctx.about = call, sizes, len(tensors)


def _derivative(ctx, cotangents):
    call, sizes, count = ctx.about
    edge_index, *saved = ctx.saved_tensors
    tensors, outs = saved[:count], saved[count:]
    outs = outs[:len(_told(call)[0].outputs)]
    wanted = ctx.needs_input_grad[-1]
    grads = cotangents[:len(outs)]
    nothing = (None,) * 6
    if all(g is None for g in grads) or not any(wanted):
        return (*nothing, [None] * count)
    made = iter(_op(_NAME + "_backward", edge_index)(
        "".join("01"[w] for w in wanted),
        "".join("01"[g is not None] for g in grads),
        saved[count + len(outs):], [g for g in grads if g is not None], call,
        edge_index, *sizes, tensors))
    return (*nothing, [next(made) if w else None for w in wanted])


if AVAILABLE:
    _define(_NAME, f"({_CALL}) -> Tensor[]", _run, _fake, _derivative, _save)
    _define(_NAME + "_backward",
            f"(str wanted, str present, Tensor[] saved, Tensor[] grads, "
            f"{_CALL}) -> Tensor[]", _gradient, _gradient_fake)


def operator(listed):
    """The operator; listed: of an edge_index."""
    return _op(_NAME, listed or None).default


def run(call, outputs, graph, num_src, num_dst, tensors):
    """The outputs while torch.compile traces; graph: a Graph or an
    edge_index."""
    edge_index, number, num_edges = _named(graph, num_src, num_dst)
    return _op(_NAME, edge_index)(call, edge_index, number, num_src, num_dst,
                                  num_edges, tensors)[:outputs]
