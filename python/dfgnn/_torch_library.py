"""Calls of the library as an operator of torch.library.

torch.compile does not break its graph at an operator that has a fake kernel and
a derivative.  All calls are one operator, with one of its gradient: pure
functions of their tensors, and of the name, counts and numbers by which a
family of calls says the rest.  A Graph is named by its number, or given as an
edge_index tensor; tensors by edge are in the caller's order.
"""

import functools
import importlib
from typing import NamedTuple

import torch

from ._autograd import Kind, Recorded, is_batched, wants_gradient
from ._modes import in_transform, refuse_in_cuda_graphs, untraced
from ._remember import PLAIN
from .convert import (
    as_graph, batch_graph, is_edge_index, known_graph, looped_graph)
from .graph import Graph, by_id

_dispatching = torch._C._len_torch_dispatch_stack

# torch.compile cannot trace them: they depend on the values of the edges
untraced_graph = untraced(as_graph)
untraced_looped_graph = untraced(looped_graph)

_CALL = ("str family, str name, int[] counts, float[] numbers, "
         "Tensor[] tensors, Tensor? edge_index, SymInt graph, SymInt num_src, "
         "SymInt num_dst, SymInt num_edges")
_GRADIENT = ("bool[] wanted, bool[] present, Tensor[] saved, Tensor[] grads, "
             + _CALL)

# An operator that is given an edge_index may have to make its graph, which
# waits for the device: torch's own CUDA graphs are to leave it out.  Inductor
# would ask for the strides of a trace, which may name sizes that it has found
# equal to others since.
_OF_EDGES = "_of_edges"
_UNSAFE, _LAYOUT = (
    [getattr(torch.Tag, name)] if hasattr(torch.Tag, name) else []
    for name in ("cudagraph_unsafe", "flexible_layout"))


class Call(NamedTuple):
    """The arguments of an operator after its family; number: of a Graph, if
    there is no edge_index."""
    name: str
    counts: list
    numbers: list
    tensors: list
    edge_index: torch.Tensor | None
    number: int
    num_src: int
    num_dst: int
    num_edges: int

    @property
    def about(self):
        """What the call says beside its tensors, as a key."""
        return self.name, tuple(self.counts), tuple(self.numbers)

    def graph(self, by_edge=None, loops=False):
        """The Graph; by_edge: a tensor by edge of the call, or None."""
        if self.edge_index is None:
            graph = by_id(self.number)
            return graph.with_self_loops() if loops else graph
        if by_edge is not None:
            refuse_in_cuda_graphs("an edge_index with features, weights or "
                                  "biases of its edges")
        sizes = self.num_src, self.num_dst
        known = known_graph(self.edge_index, sizes, loops)
        if known is not None:
            return known
        make = batch_graph if is_edge_index(self.edge_index) else looped_graph
        return make(self.edge_index, sizes, loops)


def place(graph, num_src, num_dst):
    """(edge_index or None, number of the graph, sources, destinations, edges)
    of a Graph or of what as_graph() takes."""
    if not isinstance(graph, Graph) and not (
            isinstance(graph, torch.Tensor) and graph.layout == torch.strided):
        graph = untraced_graph(graph, (num_src, num_dst))
    if isinstance(graph, Graph):
        return None, graph.id, num_src, num_dst, graph.num_edges
    return graph, 0, num_src, num_dst, graph.size(-1)


class Family(Kind):
    """Calls of one kind: subclasses have a name and these methods, and
    _FAMILIES says where there is one of each."""

    name = None

    def run(self, call):
        """The outputs of a Call."""
        raise NotImplementedError

    def fake(self, call):
        """Tensors of the shapes and types of the outputs."""
        raise NotImplementedError

    def saved(self, call, outs):
        """The outputs that gradient() reads."""
        return outs

    def read(self, call):
        """The tensors that gradient() reads."""
        return call.tensors

    def restored(self, call, grads):
        """A Call of read() tensors, with others of the same shapes and types in
        the places of those that are missing; grads: of some of the outputs."""
        return call

    def dense(self, name, tensors):
        """The tensors as kernels read them: what torch.compile makes is so from
        the beginning."""
        return [t.contiguous() for t in tensors]

    def gradient(self, call, saved, grads, wanted):
        """The gradients of the tensors, None where it is 0 or not wanted;
        grads: of the outputs, or None."""
        raise NotImplementedError

    def derive(self, call, saved, grads, wanted):
        """gradient() by an operator; a family that has another way has no
        gradient()."""
        results = iter(operator(call.edge_index is not None, "_backward")(
            list(wanted), [g is not None for g in grads], list(saved),
            self.dense(call.name, [g for g in grads if g is not None]),
            self.name, *call))
        return [next(results) if want else None for want in wanted]

    def __call__(self, about, place, tensors):
        """The outputs, while torch.compile traces; about: the name, counts and
        numbers of the call."""
        name, counts, numbers = about
        return operator(place[0] is not None)(
            self.name, name, list(counts), list(numbers),
            self.dense(name, tensors), *place)

    def forward(self, call):
        """The outputs of a Call, by an operator without a gradient."""
        return operator(call.edge_index is not None, "_forward")(
            self.name, *call)

    def record(self, about, inputs, needed):
        """about: (name, counts and numbers, place without the edge_index),
        which is the first of the inputs."""
        edge_index, *tensors = inputs
        head, sizes = about
        call = Call(*head, tensors, edge_index, *sizes)
        outs = self.forward(call)
        saved = self.saved(call, outs)
        return tuple(outs), (edge_index, *self.read(call), *saved), len(saved)

    def gradients(self, about, rest, kept, grads, needed, again):
        count = len(kept) - rest
        edge_index, *tensors = kept[:count]
        head, sizes = about
        wanted = list(needed[1:])
        if not any(wanted):
            return [None] * len(needed)
        return [None, *self.derive(
            Call(*head, tensors, edge_index, *sizes), kept[count:],
            list(grads), wanted)]


# where each family is, which a program that torch exported may be the first to
# ask for.  torch keeps in files what it made of a call, by the names in it: a
# family of which something else is made, or whose counts say something else,
# has another name
_FAMILIES = {"operator-2": "ops.run", "program": "_program_operator.run",
             "mlp": "_mlp_kernels.traced",
             "relations": "_relations.operator.run"}


def operator(listed, suffix=""):
    """The operator; listed: of an edge_index."""
    return getattr(torch.ops.dfgnn, "call" + suffix + (
        _OF_EDGES if listed else "")).default


@functools.lru_cache(maxsize=None)
def _family(name):
    if name not in _FAMILIES:
        raise ValueError(f"{name} calls are of another version of dfgnn")
    module, _, family = _FAMILIES[name].rpartition(".")
    return getattr(importlib.import_module("." + module, __package__), family)


def _recorded(name, *arguments):
    """The operator: that of the forward pass, with its gradient.  What
    torch.compile makes has the two passes alone, which no kernel of autograd
    stands before: that would parse every call once more."""
    family, call = _family(name), Call(*arguments)
    if wants_gradient(call.tensors):
        return list(Recorded.apply(family, (call[:3], call[5:]),
                                   call.edge_index, *call.tensors))
    return family.forward(call)


def _forward(name, *arguments):
    return [t.contiguous() for t in _family(name).run(Call(*arguments))]


def _backward(wanted, present, saved, grads, name, *arguments):
    family, rest = _family(name), iter(grads)
    call = family.restored(Call(*arguments), grads)
    results = family.gradient(
        call, saved, [next(rest) if p else None for p in present],
        tuple(wanted))
    addresses = {grad.data_ptr() for grad in grads}
    return [_gradient(g, t, addresses) for g, t, want in zip(
        results, call.tensors, wanted) if want]


def _gradient(grad, tensor, addresses):
    """The gradient of a tensor as a result of its own: torch.compile takes it
    to be dense and to begin where memory does, and a part of a larger tensor
    need not even lie at an address that vectors are read from.  addresses:
    those of the operator's inputs."""
    if grad is None:
        return torch.zeros_like(tensor, memory_format=torch.contiguous_format)
    if grad.dtype is not tensor.dtype or grad.storage_offset() or \
            not grad.is_contiguous() or grad.data_ptr() in addresses:
        return torch.empty_like(
            tensor, memory_format=torch.contiguous_format).copy_(grad)
    return grad


def _fake_backward(wanted, present, saved, grads, name, *arguments):
    call = _family(name).restored(Call(*arguments), grads)
    return [torch.empty_like(t, memory_format=torch.contiguous_format)
            for t, want in zip(call.tensors, wanted) if want]


def _sooner(operator, function, place):
    """Has calls of the operator run the function itself where nothing is to see
    the call: torch's dispatcher takes longer than many a kernel to make its own
    kinds of the arguments.  place: that of a list of tensors among them."""
    dispatched = operator._op

    def call(*args, **kwargs):
        if kwargs or torch.is_grad_enabled() or _dispatching() or \
                in_transform() or torch.autograd._profiler_enabled() or any([
                    type(t) not in PLAIN or t.is_meta or is_batched(t)
                    for t in args[place]]):
            return dispatched(*args, **kwargs)
        return function(*args)
    operator._op = call


def _define():
    for end, tags in (("", _LAYOUT), (_OF_EDGES, _LAYOUT + _UNSAFE)):
        full = f"dfgnn::call{end}"
        torch.library.define(full, f"({_CALL}) -> Tensor[]")
        torch.library.impl(full, "CompositeImplicitAutograd")(_recorded)
        for suffix, schema, function, fake, place in (
                ("_forward", _CALL, _forward, lambda name, *arguments:
                 _family(name).fake(Call(*arguments)), 4),
                ("_backward", _GRADIENT, _backward, _fake_backward, 3)):
            full = f"dfgnn::call{suffix}{end}"
            torch.library.define(full, f"({schema}) -> Tensor[]", tags=tags)
            torch.library.impl(full, ("cpu", "cuda"))(function)
            torch.library.register_fake(full)(fake)
            _sooner(operator(bool(end), suffix), function, place)


_define()
