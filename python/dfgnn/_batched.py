"""Gradients of a batch of results: torch.autograd.grad(is_grads_batched=True),
torch.autograd.functional.jacobian(vectorize=True) and vmap over
torch.autograd.grad give a backward pass tensors that hide a dimension."""

import contextlib

import torch

_functorch = torch._C._functorch
_of_autograd = _functorch.is_legacy_batchedtensor  # by autograd's own vmap
_of_functorch = _functorch.is_batchedtensor


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
        found = [None if same[0] is None else torch.stack(same)
                 for same in zip(*samples)]
    return [None if f is None else home._add_batch_dim(f, 0, level)
            for f in found]
