"""The autograd function of every call of the library: of operators, MLPs on
edges, edge programs, layers as one node, and of what torch.compile traces."""

import contextlib

import torch

_functorch = torch._C._functorch
_of_autograd = _functorch.is_legacy_batchedtensor  # by autograd's own vmap
_of_functorch = _functorch.is_batchedtensor


def savable(tensors):
    """The tensors, those of inference mode copied: autograd saves none of
    these, and they count no writes."""
    if any(t is not None and t.is_inference() for t in tensors):
        return tuple(t.clone() if t is not None and t.is_inference() else t
                     for t in tensors)
    return tensors


class Kind:
    """Calls of one kind.  about is what a call is beside its tensors."""

    def record(self, about, tensors, needed):
        """(the results, tensors that the gradient reads, and what else it
        has to know) of a call; needed: which tensors want a gradient."""
        raise NotImplementedError

    def gradients(self, about, rest, kept, grads, needed, again):
        """The gradient of each tensor, None where it is not needed.

        rest, kept: of record().
        grads: those of the results, of which at least one is not None.
        again: whether gradients of the gradients are recorded.
        """
        raise NotImplementedError


class Recorded(torch.autograd.Function):
    """The results of a kind's call."""

    @staticmethod
    def forward(ctx, kind, about, *tensors):
        outs, kept, rest = kind.record(about, savable(tensors),
                                       ctx.needs_input_grad[2:])
        ctx.call = kind, about, rest
        if kept:
            ctx.save_for_backward(*kept)
        ctx.set_materialize_grads(False)
        return outs

    @staticmethod
    def backward(ctx, *grads):
        kind, about, rest = ctx.call
        needed = ctx.needs_input_grad[2:]
        for grad in grads:
            if grad is None:
                continue
            if is_batched(grad):
                return (None, None, *each_sample(
                    lambda grads: kind.gradients(
                        about, rest, ctx.saved_tensors, grads, needed,
                        torch.is_grad_enabled()), grads))
            return (None, None, *kind.gradients(
                about, rest, ctx.saved_tensors, grads, needed,
                torch.is_grad_enabled()))
        return (None, None, *[None] * len(needed))


def wants_gradient(tensors):
    """Whether a call of these tensors is recorded."""
    if torch.is_grad_enabled():
        for tensor in tensors:
            if tensor is not None and tensor.requires_grad:
                return True
    return False


_nothing = {}  # by type and device, a tensor without elements


class ResultAlias:
    """A result that its own gradient reads, without a tie to the tensor that
    the caller gets and may write to (relu_, +=), which PyTorch would refuse;
    alias is what to keep for the gradient."""

    __slots__ = ("alias", "_version", "_count")

    def __init__(self, result):
        self.alias = result.data
        kind = result.dtype, result.device
        if kind not in _nothing:
            _nothing[kind] = result.new_empty(0)
        self._version = result._version
        self._count = result.detach()  # counts the same writes
        self._count.data = _nothing[kind]  # without its memory

    @property
    def written(self):
        return self._count._version != self._version


def by_operations(function, tensors, grads, wanted, again):
    """The gradients of those tensors that are wanted, by operations that
    autograd records; function: of the tensors, whose results have these grads.

    again: whether gradients of the gradients are recorded.  Each input is a
        view then: a tensor may be there twice, or be computed from another.
    """
    with torch.enable_grad():
        if again:
            inputs = [None if t is None else t.view_as(t) for t in tensors]
        else:
            inputs = [None if t is None else t.detach().requires_grad_(w)
                      for t, w in zip(tensors, wanted)]
        pairs = [(y, g) for y, g in zip(function(inputs), grads)
                 if y is not None and g is not None and y.requires_grad]
        sources = [t for t, w in zip(inputs, wanted) if w]
        source_grads = iter(torch.autograd.grad(
            [y for y, _ in pairs], sources, [g for _, g in pairs],
            create_graph=again, allow_unused=True)
            if pairs and sources else [None] * len(sources))
    return [next(source_grads) if w else None for w in wanted]


# ---- gradients of a batch of results ----------------------------------------

# torch.autograd.grad(is_grads_batched=True),
# torch.autograd.functional.jacobian(vectorize=True) and vmap over
# torch.autograd.grad give a backward pass tensors that hide a dimension.

def is_batched(tensor):
    """Whether the gradient has a hidden dimension."""
    return _of_autograd(tensor) or _of_functorch(tensor)


def _level(tensor):
    """The number of the vmap that hides the dimension."""
    if _of_functorch(tensor):
        return _functorch.maybe_get_level(tensor)
    level = torch._C._vmapmode_increment_nesting()
    torch._C._vmapmode_decrement_nesting()
    return max(1, level - 1)


def _outside(functorch):
    """Where tensors that functorch has unwrapped are plain ones."""
    if not functorch:
        return contextlib.nullcontext()
    from torch._functorch.pyfunctorch import (
        temporarily_clear_interpreter_stack)
    return temporarily_clear_interpreter_stack()


def each_sample(gradients, grads):
    """The results of gradients(grads), a list of tensors and None, where grads
    have a hidden dimension: those of one sample after the other, with the
    dimension hidden again."""
    hiding = next(g for g in grads if g is not None and is_batched(g))
    functorch, level = _of_functorch(hiding), _level(hiding)
    home = _functorch if functorch else torch
    shown = [home._remove_batch_dim(g, level, 1, 0)
             if g is not None and is_batched(g) else None for g in grads]
    count = next(s for s in shown if s is not None).size(0)
    with _outside(functorch):
        samples = [gradients(tuple(
            g if s is None else s[n] for g, s in zip(grads, shown)))
            for n in range(count)]
        results = [None if same[0] is None else torch.stack(same)
                   for same in zip(*samples)]
    return [None if f is None else home._add_batch_dim(f, 0, level)
            for f in results]
