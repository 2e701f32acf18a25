"""A layer as one node of autograd: a chain of links, see _links.py.

A chain is made once for calls of one graph with the same shapes, types and
settings, whose caller has checked them.
"""

from ._autograd import (
    ResultAlias, Kind, Recorded, by_operations, wants_gradient)
from ._fallbacks import say_once
from ._modes import in_transform
from .errors import UnsupportedError


class Chain(Kind):
    """Links, and the names of the tensors that a call gives them."""

    def __init__(self, names, links):
        self.names, self.links = names, links
        self.out = links[-1].out
        saved = {name for link in links for name in link.saves}
        made = dict.fromkeys(name for link in links for name in link.makes)
        self.saved = [name for name in dict.fromkeys((*names, *made))
                      if name in saved]
        self._made = [name for name in made if name in saved]
        self.others = [n for n, name in enumerate(names)
                       if name not in saved]
        self._wanted = {}

    def __call__(self, graph, tensors):
        """The result for tensors in the order of names, each dense or None."""
        if wants_gradient(tensors):
            return Recorded.apply(self, graph, *tensors)
        return self.forward(graph, tensors, False)[self.out]

    def forward(self, graph, tensors, keep):
        values = dict(zip(self.names, tensors))
        for link in self.links:
            link.forward(graph, values, keep)
        return values

    def plain(self, graph, tensors):
        """The result by operations that autograd records."""
        values = dict(zip(self.names, tensors))
        for link in self.links:
            link.plain(graph, values)
        return values[self.out]

    def wanted(self, needed):
        """The names of the tensors whose gradients lead to those of the given
        tensors that need one."""
        found = self._wanted.get(needed)
        if found is None:
            found = {name for name, n in zip(self.names, needed) if n}
            for link in self.links:
                if found.intersection(link.reads):
                    found.add(link.out)
            self._wanted[needed] = found
        return found

    def backward(self, graph, values, grad, needed):
        wanted = self.wanted(needed)
        grads = {self.out: grad.contiguous()}
        for link in reversed(self.links):
            if link.out in wanted:
                link.backward(graph, values, grads, wanted)
                del grads[link.out]  # its memory may serve the next link
        return [grads.get(name) if n else None
                for name, n in zip(self.names, needed)]

    # ---- in autograd

    def record(self, graph, tensors, needed):
        """Tensors that only gradients of gradients read are kept beside the
        saved ones, so that a write to them is an error there alone."""
        values = self.forward(graph, tensors, True)
        out, apart = values[self.out], None
        for name in self._made:
            made = values.get(name)
            if made is not None and made.data_ptr() == out.data_ptr():
                apart = apart or ResultAlias(out)
                values[name] = apart.alias
        return out, [values.get(name) for name in self.saved], (apart, [
            (tensors[n], None if tensors[n] is None else tensors[n]._version)
            for n in self.others])

    def gradients(self, graph, rest, kept, grads, needed, again):
        (apart, others), grad = rest, grads[0]
        values = dict(zip(self.saved, kept))
        written = apart is not None and apart.written
        by_kernels = not again and not in_transform()
        if by_kernels and not written:
            try:
                return self.backward(graph, values, grad, needed)
            except UnsupportedError as error:
                say_once(f"{error}; gradients are made by torch operations "
                         "instead")
        for number, (tensor, version) in zip(self.others, others):
            if (again or written) and tensor is not None \
                    and tensor._version != version:
                raise RuntimeError(
                    f"{self.names[number]} of a layer was written to after "
                    "its forward pass; gradients of gradients, and those of a "
                    "result that was written to, need what it was")
            values[self.names[number]] = tensor
        tensors = [values[name] for name in self.names]
        if by_kernels and written:
            values = self.forward(graph, tensors, True)
            return self.backward(graph, values, grad, needed)
        return by_operations(lambda given: [self.plain(graph, given)],
                             tensors, [grad], needed, again)
