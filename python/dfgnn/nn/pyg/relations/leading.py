"""Gradients of relations that do not lead to the loss of a backward pass.

A pass over all relations gives each a gradient; those of relations whose result
no loss reads are zeros.  Layers one by one give none there, and optimizers tell
the two apart: momentum and weight decay move what has a gradient of zeros.
"""

import functools

import torch


class Leading:
    """Finds out in each backward pass which relations lead to its loss."""

    def __init__(self, relations):
        self.relations = relations  # [(source, name, destination)]
        # numbers of relations in the pass under way; None before any result
        # was asked for its gradient
        self.reached = None

    def enter(self, x, *lists):
        """(Features, lists by relation) of the same tensors, whose gradients
        are none where none of their relations leads to the loss.  Lists may
        have other things than tensors, too."""
        users = {}  # by identity: (tensor, the relations that read it)

        def note(value, relation):
            if isinstance(value, torch.Tensor) and value.requires_grad:
                users.setdefault(id(value), (value, set()))[1].add(relation)
        for number, (source, _, destination) in enumerate(self.relations):
            note(x.src[source], number)
            note(x.dst[destination], number)
            for values in lists:
                note(values[number], number)
        if not users or not torch.is_grad_enabled():
            return (x, *lists)
        views = _Enter.apply(self, [relations for _, relations in
                                    users.values()],
                             *[value for value, _ in users.values()])
        views = dict(zip(users, views))

        def new(value):
            return views.get(id(value), value)
        return (type(x)(*[{kind: new(t) for kind, t in side.items()}
                          for side in x]),
                *[[new(value) for value in values] for values in lists])

    def leave(self, results, summed):
        """Watches which results, by type if summed, else by relation, get a
        gradient; returns them."""
        for key, out in results.items():
            if out.grad_fn is not None:
                numbers = [n for n, relation in enumerate(self.relations)
                           if (relation[2] if summed else relation) == key]
                out.grad_fn.register_prehook(functools.partial(
                    self._reach, numbers, out.output_nr))
        return results

    def _reach(self, numbers, output, grads):
        if self.reached is None:
            self.reached = set()
        if grads[output] is not None:
            self.reached.update(numbers)


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, leading, users, *tensors):
        ctx.leading, ctx.users = leading, users
        ctx.set_materialize_grads(False)
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx, *grads):
        reached, ctx.leading.reached = ctx.leading.reached, None
        return (None, None, *[
            grad if reached is None or reached & relations else None
            for grad, relations in zip(grads, ctx.users)])
