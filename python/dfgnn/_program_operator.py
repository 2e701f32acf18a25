"""Edge programs while torch.compile traces, as a family of
_torch_library.py.

A call says the types of its outputs and the text of its program, so that what
torch keeps of compiled code holds in another process.  Its gradient is the
operator of the program that is derived.
"""

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


def _parse(call):
    """(program, types of its outputs, seed or None, tensors) of a call."""
    seeded, *types = call.counts
    seed, tensors = (call.tensors[0], call.tensors[1:]) if seeded else (
        None, call.tensors)
    return _program_calls.named(call.name), [_KINDS[k] for k in types], seed, tensors


def _in_order(change, ports, tensors):
    return [change(t) if port.place == EDGE else t
            for port, t in zip(ports, tensors)]


class _Programs(Family):
    name = "program"

    def run(self, call):
        program, types, seed, tensors = _parse(call)
        graph = call.graph(next(
            (t for port, t in zip(program.inputs, tensors)
             if port.place == EDGE), None))
        made = _program_calls.execute(
            program, graph, _in_order(graph.to_graph_order, program.inputs,
                                      tensors), types, seed)
        return _in_order(graph.to_caller_order, program.outputs, made)

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
        gradient, made = _program_calls.gradient(
            program, [g is not None for g in grads], wanted)
        found = _program_calls.nothing(wanted, made, tensors)
        if gradient is None:
            return [*first, *found]
        sources = {INPUT: tensors, OUTPUT: outs, COTANGENT: grads}
        given = [sources[port.role][port.of] for port in gradient.inputs]
        types = numbers_of(tensors[p.of].dtype for p in gradient.outputs)
        grads = iter(self(about(gradient.name, types, seed is not None),
                          call[4:], [*call.tensors[:len(first)], *given]))
        return [*first, *[next(grads) if m else none
                          for m, none in zip(made, found)]]


run = _Programs()
"""The outputs of (about(), place, tensors)."""
