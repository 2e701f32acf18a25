"""Edge programs as an operator of torch.library, for torch.compile.

The operator is named by the text of its program, so that what torch keeps of
compiled code holds in another process.  Tensors by edge are in the caller's
order.  Its gradient is the operator of the program that is derived.
"""

from . import _programs
from ._programs import COTANGENT, DST, EDGE, INPUT, OUTPUT, PARAM, REL, SRC
from .ops import AVAILABLE, _define, _graph, _named, _op

KINDS = list(_programs.TYPES)  # types are told by their numbers
_CALL = ("str program, Tensor? edge_index, SymInt graph, SymInt num_src, "
         "SymInt num_dst, SymInt num_edges, Tensor? seed, int[] types, "
         "Tensor[] tensors")
_NAME = "edge_program"


def _in_order(change, ports, tensors):
    return [change(t) if port.place == EDGE else t
            for port, t in zip(ports, tensors)]


def _run(name, edge_index, graph, num_src, num_dst, num_edges, seed, types,
         tensors):
    program = _programs.named(name)
    graph = _graph(edge_index, graph, num_src, num_dst, False, next(
        (t for port, t in zip(program.inputs, tensors)
         if port.place == EDGE), None))
    made = _programs.execute(
        program, graph, _in_order(graph.to_graph_order, program.inputs,
                                  tensors),
        [KINDS[k] for k in types], seed)
    return _in_order(graph.to_caller_order, program.outputs, made)


def _fake(name, edge_index, graph, num_src, num_dst, num_edges, seed, types,
          tensors):
    rows = {PARAM: (), DST: (num_dst,), SRC: (num_src,), EDGE: (num_edges,)}
    program = _programs.named(name)
    rows.update({REL: (t.shape[0],) for port, t in zip(program.inputs, tensors)
                 if port.place == REL})
    return [tensors[0].new_empty(rows[port.place] + port.shape,
                                 dtype=KINDS[kind])
            for port, kind in zip(program.outputs, types)]


def _save(ctx, inputs, output):
    name, edge_index, *sizes, seed, _, tensors = inputs
    ctx.save_for_backward(edge_index, seed, *tensors, *output)
    ctx.set_materialize_grads(False)
    ctx.about = name, sizes, len(tensors)


def _derivative(ctx, cotangents):
    name, sizes, count = ctx.about
    edge_index, seed, *saved = ctx.saved_tensors
    wanted = list(ctx.needs_input_grad[-1])
    present = [c is not None for c in cotangents]
    nothing = (None,) * 8
    if not any(present) or not any(wanted):
        return (*nothing, [None] * count)
    gradient, made = _programs.gradient(_programs.named(name), present, wanted)
    found = _programs.nothing(wanted, made, saved)
    if gradient is None:
        return (*nothing, list(found))
    sources = {INPUT: saved[:count], OUTPUT: saved[count:],
               COTANGENT: cotangents}
    tensors = [sources[port.role][port.of] for port in gradient.inputs]
    types = [KINDS.index(saved[port.of].dtype) for port in gradient.outputs]
    grads = iter(_op(_NAME, edge_index)(gradient.name, edge_index, *sizes, seed,
                                        types, tensors))
    return (*nothing, [next(grads) if m else none
                       for m, none in zip(made, found)])


if AVAILABLE:
    _define(_NAME, f"({_CALL}) -> Tensor[]", _run, _fake, _derivative, _save)


def operator(listed):
    """The operator; listed: of an edge_index."""
    return _op(_NAME, listed or None).default


def run(name, types, graph, num_src, num_dst, seed, tensors):
    """The outputs of a program while torch.compile traces; graph: a Graph or
    an edge_index."""
    edge_index, number, num_edges = _named(graph, num_src, num_dst)
    return _op(_NAME, edge_index)(name, edge_index, number, num_src, num_dst,
                                  num_edges, seed, types, tensors)
