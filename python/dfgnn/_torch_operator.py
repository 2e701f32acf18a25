"""Calls of the library as operators of torch.library.

torch.compile does not break its graph at an operator that has a fake kernel
and a derivative.  A family of calls is one operator, and one of its gradient:
pure functions of their tensors, whose text says everything else.  A Graph is
named by its number, or given as an edge_index tensor; tensors by edge are in
the caller's order.  Versions of torch without register_fake() have none.
"""

from typing import NamedTuple, Optional

import torch

from ._autograd import Kind, Recorded
from ._modes import compiling, refuse_in_cuda_graphs, untraced
from .convert import as_graph, known_graph, looped_graph
from .graph import Graph, by_id

AVAILABLE = hasattr(torch, "library") and hasattr(
    torch.library, "register_fake")

# torch.compile cannot trace them: they depend on the values of the edges
untraced_graph = untraced(as_graph)
untraced_looped_graph = untraced(looped_graph)

_CALL = ("str text, float[] numbers, Tensor[] tensors, Tensor? edge_index, "
         "SymInt graph, SymInt num_src, SymInt num_dst, SymInt num_edges")
_GRADIENT = f"str wanted, str present, Tensor[] saved, Tensor[] grads, {_CALL}"

# An operator that is given an edge_index may have to make its graph, which
# waits for the device: torch's own CUDA graphs are to leave it out.
_OF_EDGES = "_of_edges"
_UNSAFE = [tag for tag in (getattr(getattr(torch, "Tag", None),
                                   "cudagraph_unsafe", None),)
           if tag is not None]


class Call(NamedTuple):
    """The arguments of an operator; number: of a Graph, if there is no
    edge_index."""
    text: str
    numbers: list
    tensors: list
    edge_index: Optional[torch.Tensor]
    number: int
    num_src: int
    num_dst: int
    num_edges: int

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
        return looped_graph(self.edge_index, sizes, loops)


def place(graph, num_src, num_dst):
    """(edge_index or None, number of the graph, sources, destinations, edges)
    of a Graph or of what as_graph() takes."""
    if not isinstance(graph, Graph) and not (
            isinstance(graph, torch.Tensor) and graph.layout == torch.strided):
        graph = untraced_graph(graph, (num_src, num_dst))
    if isinstance(graph, Graph):
        return None, graph.id, num_src, num_dst, graph.num_edges
    return graph, 0, num_src, num_dst, graph.size(-1)


def define(name, schema, function, fake, derivative=None, save=None):
    """Registers an operator, and with the end _of_edges the same of an
    edge_index."""
    for end, tags in (("", ()), (_OF_EDGES, _UNSAFE)):
        full = f"dfgnn::{name}{end}"
        torch.library.define(full, schema, tags=tags)
        torch.library.impl(full, ("cpu", "cuda"))(function)
        torch.library.register_fake(full)(fake)
        if derivative is not None:
            torch.library.register_autograd(full, derivative,
                                            setup_context=save)


def bits(flags):
    return "".join(["1" if flag else "0" for flag in flags])


class Family(Kind):
    """Calls of one kind: subclasses have a name and these methods."""

    name = None

    def run(self, call):
        """The outputs of a Call."""
        raise NotImplementedError

    def fake(self, call):
        """Tensors of the shapes and types of the outputs."""
        raise NotImplementedError

    def saved(self, call, outs):
        """Those outputs that gradient() reads."""
        return outs

    def gradient(self, call, saved, grads, wanted):
        """The gradients of the tensors, None where it is 0 or not wanted;
        grads: of the outputs, or None."""
        raise NotImplementedError

    def derive(self, call, outs, grads, wanted):
        """gradient() by an operator; a family that has another way has no
        gradient()."""
        made = iter(self.operator(call.edge_index is not None, "_backward")(
            bits(wanted), bits([g is not None for g in grads]),
            self.saved(call, outs), [g for g in grads if g is not None],
            *call))
        return [next(made) if want else None for want in wanted]

    # ---- torch's side

    def operator(self, listed, suffix=""):
        """The operator; listed: of an edge_index."""
        return getattr(torch.ops.dfgnn, self.name + suffix + (
            _OF_EDGES if listed else "")).default

    def __call__(self, text, place, tensors, numbers=()):
        """The outputs, while torch.compile traces."""
        return self.operator(place[0] is not None)(
            text, list(numbers), list(tensors), *place)

    def define(self):
        """Registers the operators; returns the family."""
        if AVAILABLE:
            for end in ("", _OF_EDGES):
                full = f"dfgnn::{self.name}{end}"
                torch.library.define(full, f"({_CALL}) -> Tensor[]")
                torch.library.impl(full, "CompositeImplicitAutograd")(
                    self._recorded)
            define(self.name + "_forward", f"({_CALL}) -> Tensor[]",
                   lambda *call: self.run(Call(*call)),
                   lambda *call: self.fake(Call(*call)))
            if type(self).derive is Family.derive:
                define(self.name + "_backward",
                       f"({_GRADIENT}) -> Tensor[]", self._gradient,
                       _fake_gradient)
        return self

    def _recorded(self, *arguments):
        """The operator: that of the forward pass, with its gradient.  What
        torch.compile makes has the two passes alone, which no kernel of
        autograd stands before: that would parse every call once more."""
        call = Call(*arguments)
        if torch.is_grad_enabled() and any(
                [t.requires_grad for t in call.tensors]):
            return list(Recorded.apply(self, (call[:2], call[4:]),
                                       call.edge_index, *call.tensors))
        return self.forward(call)

    def record(self, about, given, needed):
        """about: (text and numbers, place but for the edge_index), which is
        the first that is given."""
        edge_index, *tensors = given
        told, sizes = about
        outs = self.forward(Call(*told, tensors, edge_index, *sizes))
        return tuple(outs), (*given, *outs), None

    def gradients(self, about, rest, kept, grads, needed, again):
        count = len(needed)
        edge_index, *tensors = kept[:count]
        told, sizes = about
        wanted = list(needed[1:])
        if not any(wanted):
            return [None] * count
        return [None, *self.derive(
            Call(*told, tensors, edge_index, *sizes), kept[count:],
            list(grads), wanted)]

    def forward(self, call):
        """The outputs of a Call, by an operator without a gradient."""
        return self.operator(call.edge_index is not None, "_forward")(*call)

    def _gradient(self, wanted, present, saved, grads, *call):
        call, given = Call(*call), iter(grads)
        found = self.gradient(
            call, saved, [next(given) if p == "1" else None for p in present],
            tuple([want == "1" for want in wanted]))
        return [torch.zeros_like(t) if g is None else
                g if g.dtype is t.dtype else g.to(t.dtype)
                for g, t, want in zip(found, call.tensors, wanted)
                if want == "1"]


def _fake_gradient(wanted, present, saved, grads, *call):
    return [torch.empty_like(t, memory_format=torch.contiguous_format)
            for t, want in zip(Call(*call).tensors, wanted) if want == "1"]
