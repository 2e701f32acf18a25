"""Compares what is traced of a layer with the layer's own methods."""

import copy

import torch
from torch import Tensor

from ... import _watch
from ..._autocast import autocasting
from ..._trace import TraceError
from ...errors import Error
from ._called import apply, trace


class _WithoutDropout(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") == "dropout":
            return args[0]
        return function(*args, **(kwargs or {}))


def checked(layer, methods, call, steps):
    """The steps, or a TraceError if its numbers or gradients are not those of
    the layer's own methods."""
    try:
        different = _difference(layer, methods, call, steps)
    except TraceError as error:
        return error
    except Error as error:  # a program of which no kernel can be made
        return TraceError(f"check: {error}")
    if different is None:
        return steps
    return TraceError(different)


def _leaves(call, kind=None):
    """By key, a leaf for each tensor of the caller's: one that both ends have
    is one leaf, as it is to the caller."""
    made = {id(data): data.detach().to(kind or data.dtype, copy=True)
            .requires_grad_() for data, _ in call.tensors.values()
            if data.is_floating_point()}
    return {key: made[id(data)] for key, (data, _) in call.tensors.items()
            if id(data) in made}


def _own(layer, methods, call, leaves):
    """The layer's own result for these tensors."""
    def lift(name):
        return leaves.get(("lifted", name), call.tensors[
            "lifted", name][0]).index_select(
                0, call.edge_index[call.i if name.endswith("_i") else call.j])
    arguments = dict(call.plain)
    for kind, name in call.tensors:
        arguments[name] = lift(name) if kind == "lifted" else leaves.get(
            (kind, name), call.tensors[kind, name][0])
    i, j = call.edge_index[call.i], call.edge_index[call.j]
    arguments.update(
        edge_index=call.edge_index, edge_index_i=i, edge_index_j=j, index=i,
        ptr=None, adj_t=None, size=list(call.sizes), size_i=call.num_dst,
        dim_size=call.num_dst, size_j=call.num_src)
    return apply(layer, methods, arguments)


def _flat(made):
    found = []
    _watch.mapped(made, lambda x: found.append(x) if isinstance(
        x, Tensor) else None)
    return found


def _derived(layer, made, leaves):
    """Outputs, and the gradients of tensors and parameters."""
    sources = [*{id(leaf): leaf for leaf in leaves.values()}.values(),
               *(p for p in layer.parameters() if p.requires_grad)]
    outs = [x for x in _flat(made) if x.is_floating_point()]
    wanted = [x for x in outs if x.requires_grad]
    grads = torch.autograd.grad(
        [(x * _weights(x)).sum() for x in wanted], sources,
        allow_unused=True) if wanted and sources else []
    return outs, [torch.zeros_like(s) if g is None else g
                  for g, s in zip(grads, sources)]


def _in_float(layer, methods, call):
    """What the layer's own methods make with 32 bits or more throughout; None
    if they run with no such tensors."""
    layer = copy.deepcopy(layer).float()
    leaves = _leaves(call, torch.float32)
    try:
        with torch.autocast(call.edge_index.device.type, enabled=False):
            return _derived(layer, _without_dropout(
                lambda: _own(layer, methods, call, leaves)), leaves)
    except (RuntimeError, TypeError):  # such as a type that they name
        return None


def _has_16_bits(layer, call):
    tensors = [*layer.parameters(), *layer.buffers(),
               *(data for data, _ in call.tensors.values())]
    return autocasting() or any(t.is_floating_point() and t.element_size() < 4
                                for t in tensors)


def _difference(layer, methods, call, steps):
    buffers = {name: b.clone() for name, b in layer.named_buffers()}
    kept = dict(vars(layer))
    if steps.random:
        steps = trace(layer, methods, call, with_dropout=False)

    def restore():
        with torch.no_grad():
            for name, buffer in layer.named_buffers():
                buffer.copy_(buffers[name])
    with torch.enable_grad():
        leaves = _leaves(call)
        exact = _in_float(layer, methods, call) if _has_16_bits(
            layer, call) else None
        own = _derived(layer, _without_dropout(
            lambda: _own(layer, methods, call, leaves)), leaves)
        restore()
        vars(layer).update(kept)
        leaves = _leaves(call)
        ours = _derived(layer, steps.run(call.graph(), lambda key: leaves.get(
            key, call.tensors[key][0] if key in call.tensors else None)
            if key[0] != "module" else call.fetch(key))[0], leaves)
    restore()
    for n, (what, have, want) in enumerate(
            zip(("numbers", "gradients"), ours, own)):
        if len(have) != len(want):
            return f"check: {len(have)} {what}, {len(want)} of its own"
        true = exact[n] if exact and len(exact[n]) == len(want) else want
        most = max([float(b.detach().abs().max()) for b in want if b.numel()],
                   default=0.0)
        for a, b, c in zip(have, want, true):
            worst = _distance(a, b, c, 1e-2 * most)
            if a.shape != b.shape or a.dtype != b.dtype or not worst < 1:
                return (f"check: {what} {list(a.shape)} differ from its own "
                        f"{list(b.shape)}, {worst:.3g} times what rounding "
                        "explains")
    return None


def _without_dropout(function):
    with _WithoutDropout():
        return function()


def _weights(x):
    """Numbers that differ, without drawing any."""
    count = torch.arange(x.numel(), dtype=torch.float64, device=x.device)
    return (count * 0.7390851).sin().view(x.shape).to(x.dtype)


def _distance(a, b, true, least):
    """How far apart in terms of the largest number, and at least of `least`:
    gradients that cancel to nothing are rounding errors.  Where the layer's
    own number is far from the true one, such as the variance of 16 bits, ours
    may be as far from it on the other side."""
    if not b.numel() or a.shape != b.shape:
        return 0.0
    limit = {torch.float64: 1e-9, torch.float32: 2e-4}.get(b.dtype, 5e-2)
    if autocasting():
        limit = 5e-2
    a, b, true = (x.detach().double() for x in (a, b, true))
    there = b.isfinite()
    if not torch.equal(there, a.isfinite()):
        return float("inf")
    if not bool(there.any()):
        return 0.0
    scale = max(float(b[there].abs().max()), least, 1e-30)
    error = float((b - true)[there].abs().nan_to_num().max())
    return float((a - b)[there].abs().max()) / (limit * scale + 2 * error)
