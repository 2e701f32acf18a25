"""Edge programs while torch.compile traces, as a family of
_torch_library.py.

A call says the types of its outputs and the text of its program, so that what
torch keeps of compiled code holds in another process.  Its gradient is the
operator of the program that is derived.
"""

import functools

from . import _program_calls
from ._program_calls import COTANGENT, DST, EDGE, INPUT, OUTPUT, PARAM, REL, SRC
from ._torch_library import Family

_KINDS = list(_program_calls.TYPES)  # types are told by their numbers


def numbers_of(types):
    return [_KINDS.index(kind) for kind in types]


def about(name, types, seeded=False):
    """The name, counts and numbers of a call of the program of this name.

    types: the numbers of its outputs' types.
    seeded: whether the first tensor is the seed of its dropout.
    """
    return name, (int(seeded), *types), ()


def _edges(ports):
    return [n for n, port in enumerate(ports) if port.place == EDGE]


@functools.lru_cache(maxsize=1024)
def _named(name, counts, _):
    """(program, types of its outputs, whether it has a seed, the numbers of its
    inputs, and outputs, by edge)."""
    program, (seeded, *types) = _program_calls.named(name), counts
    return program, [_KINDS[k] for k in types], seeded, _edges(
        program.inputs), _edges(program.outputs)


def _parse(call):
    """(program, types of its outputs, seed or None, tensors) of a call."""
    program, types, seeded, *_ = _named(*call.about)
    return program, types, call.tensors[0] if seeded else None, \
        call.tensors[seeded:]


class _Programs(Family):
    name = "program"

    def run(self, call):
        program, types, seeded, inputs, outputs = _named(*call.about)
        tensors = call.tensors[seeded:]
        graph = call.graph(tensors[inputs[0]] if inputs else None)
        for n in inputs:
            tensors[n] = graph.in_order(tensors[n])
        results = _program_calls.execute(program, graph, tensors, types,
                                         call.tensors[0] if seeded else None)
        for n in outputs:
            results[n] = graph.to_caller_order(results[n])
        return results

    def fake(self, call):
        program, types, _, tensors = _parse(call)
        rows = {PARAM: (), DST: (call.num_dst,), SRC: (call.num_src,),
                EDGE: (call.num_edges,)}
        rows.update({REL: (t.shape[0],) for port, t in zip(
            program.inputs, tensors) if port.place == REL})
        return [tensors[0].new_empty(rows[port.place] + port.shape,
                                     dtype=kind)
                for port, kind in zip(program.outputs, types)]

    def derive(self, call, outs, grads, wanted):
        program, _, seed, tensors = _parse(call)
        first = [] if seed is None else [None]
        wanted = wanted[len(first):]
        gradient, has_grad = _program_calls.gradient(
            program, [g is not None for g in grads], wanted)
        zeros = _program_calls.nothing(wanted, has_grad, tensors)
        if gradient is None:
            return [*first, *zeros]
        sources = {INPUT: tensors, OUTPUT: outs, COTANGENT: grads}
        inputs = [sources[port.role][port.of] for port in gradient.inputs]
        types = numbers_of(tensors[p.of].dtype for p in gradient.outputs)
        grads = iter(self(about(gradient.name, types, seed is not None),
                          call[4:], [*call.tensors[:len(first)], *inputs]))
        return [*first, *[next(grads) if m else none
                          for m, none in zip(has_grad, zeros)]]


run = _Programs()
"""The outputs of (about(), place, tensors)."""
