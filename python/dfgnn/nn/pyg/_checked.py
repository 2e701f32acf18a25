"""Compares what is made of a layer's graph with the graph itself, on the edges
of a call and nodes without any."""

import contextlib
import warnings

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import pad

from ..._modes import autocasting
from ..._step_times import tensors_in
from ..._trace import DST, EDGE, SRC, TraceError
from ...errors import Error

# edges of a call that are looked at
MOST_EDGES = 1 << 16


class _WithoutDropout(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") == "dropout":
            return args[0]
        return function(*args, **(kwargs or {}))


@contextlib.contextmanager
def _may_wait():
    """Lets the check wait for the device, once, also in a step before a
    capture, which refuses to wait."""
    if not torch.cuda.is_initialized():
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _itself(tensor):
    return tensor


def difference(programs, args, name):
    """Why programs are not to run in the place of a graph: their numbers or
    gradients are others; None if they are not."""
    with torch.inference_mode(False), torch.enable_grad(), torch.no_grad():
        args = _with_lonely(programs, args)
    try:
        with torch.inference_mode(False), torch.enable_grad(), _may_wait(), \
                saved_tensors_hooks(_itself, _itself):  # of no checkpoint
            reason = _difference(programs, args)
    except torch.OutOfMemoryError:
        return None
    except (TraceError, Error) as error:  # of which no kernel can be made
        return f"check: {error}"
    if reason is not None and all(bool(x.isfinite().all()) for x in args if
                                  isinstance(x, Tensor)
                                  and x.is_floating_point()):
        warnings.warn(f"{name} takes PyG's own path: {reason}. This is a fault "
                      "of dfgnn: please report it", stacklevel=2)
    return reason


def _with_lonely(programs, args):
    """Copies of the arguments: at most MOST_EDGES edges, and one node more on
    either side, which has none."""
    edges, sizes = args[programs.edges], programs.sizes
    count = min(edges.size(1), MOST_EDGES)
    can = all(where[0] is not None for where in (sizes.sources,
                                                 sizes.destinations))
    copies = []
    for k, x in enumerate(args):
        if not isinstance(x, Tensor):
            if k in sizes.edges:
                x = count
            elif can and k in sizes.nodes:
                x = x + 1
            copies.append(x)
            continue
        place = programs.places.get(k)
        x = x.detach()
        if place == EDGE:
            x = x[:, :count] if k == programs.edges else x[:count]
        elif place in (DST, SRC) and can:
            # autocast refuses cat() of the 16-bit type that is not its own
            x = pad(x, (0, 0) * (x.dim() - 1) + (0, 1))
        copies.append(x.clone())
    return copies


def _leaves(programs, args, kind=None):
    """The arguments, real ones as leaves, all of them copies; numbers of
    Python's stay."""
    return [x if k not in programs.places else x.detach().to(
        kind if kind is not None and x.is_floating_point() else x.dtype,
        copy=True).requires_grad_(k in programs.derived
                                  and x.is_floating_point())
        for k, x in enumerate(args)]


def _derived(result, leaves, written):
    """Outputs, the gradients of all leaves, and what was written."""
    sources = [x for x in leaves if isinstance(x, Tensor) and x.requires_grad]
    outs = [x for x in tensors_in(result) if not x.is_complex()]
    tracked = [x for x in outs if x.requires_grad]
    grads = torch.autograd.grad(
        [(x * _weights(x)).sum() for x in tracked], sources,
        allow_unused=True) if tracked and sources else []
    return outs, [torch.zeros_like(s) if g is None else g
                  for g, s in zip(grads, sources)], written


def _own(programs, args, kind=None):
    leaves = _leaves(programs, args, kind)
    inputs, written = _inputs(programs, leaves)
    with _WithoutDropout():
        return _derived(programs.module.forward(*inputs), leaves, written)


def _ours(programs, args):
    leaves = _leaves(programs, args)
    inputs, written = _inputs(programs, leaves)
    steps = programs.without_dropout()
    return _derived(programs.run(inputs, steps), leaves, written)


def _inputs(programs, leaves):
    """(the leaves, copies of those that are written to; these copies)."""
    inputs = [x.clone() if k in programs.written else x
              for k, x in enumerate(leaves)]
    return inputs, [inputs[k] for k in programs.written]


def _in_float(programs, args):
    """The graph with 32 bits or more throughout; None if it does not
    run with such tensors."""
    device = args[programs.edges].device.type
    try:
        with torch.autocast(device, enabled=False):
            return _own(programs, args, torch.float32)
    except (RuntimeError, TypeError):  # such as a type that it names
        return None


def _difference(programs, args):
    exact = None
    if autocasting() or any(isinstance(x, Tensor) and x.is_floating_point()
                            and x.element_size() < 4 for x in args):
        exact = _in_float(programs, args)
    own, ours = _own(programs, args), _ours(programs, args)
    for a, b in zip(ours[0], own[0]):
        if a.requires_grad != b.requires_grad:
            raise TraceError("detached: a result of its own has "
                             f"{'a' if b.requires_grad else 'no'} gradient")
    reason = _compared(ours, own, exact)
    if reason is None or exact:
        return reason
    # where numbers cancel, their last digits alone are left
    return _compared(ours, own, exact, _own(programs, _moved(args)),
                     _largest([x for x in args if isinstance(x, Tensor)
                               and x.is_floating_point()]))


def _moved(args):
    """The arguments, each real number some roundings off."""
    return [x * (1 + 16 * torch.finfo(x.dtype).eps * _weights(x))
            if isinstance(x, Tensor) and x.is_floating_point() else x
            for x in args]


def _compared(ours, own, exact, moved=None, largest=0.0):
    for n, (what, have, want) in enumerate(
            zip(("numbers", "gradients", "writes"), ours, own)):
        if len(have) != len(want):
            return f"check: {len(have)} {what}, {len(want)} of its own"
        true = exact[n] if exact and len(exact[n]) == len(want) else want
        # gradients that cancel to nothing are rounding errors
        least = max(1e-2 * _largest(want), 1e-2 * _largest(own[0]))
        for k, (a, b, c) in enumerate(zip(have, want, true)):
            most = float("inf")
            if moved is not None and b.is_floating_point():
                # rounding may take half of the digits; more is no rounding
                c, most = moved[n][k], torch.finfo(b.dtype).eps ** 0.5 * max(
                    largest, _largest(want), 1)
            worst = _distance(a, b, c, least, most)
            if a.shape != b.shape or a.dtype != b.dtype or not worst < 1:
                return (f"check: {what} {list(a.shape)} differ from its own "
                        f"{list(b.shape)}, {worst:.3g} times what rounding "
                        "explains")
    return None


def _largest(tensors):
    return max([float(x.detach().abs().nan_to_num(0, 0, 0).max())
                for x in tensors if x.numel()], default=0.0)


def _weights(x):
    """Numbers that differ, without drawing any."""
    count = torch.arange(x.numel(), dtype=torch.float64, device=x.device)
    return (count * 0.7390851).sin().view(x.shape).to(x.dtype)


def _distance(a, b, true, least, most):
    """How far apart in terms of the largest number, and at least of `least`:
    gradients that cancel to nothing are rounding errors.  Where the layer's
    own number is far from the true one, such as the variance of 16 bits, ours
    may be as far from it on the other side."""
    if not b.numel() or a.shape != b.shape:
        return 0.0
    limit = {torch.float64: 1e-9, torch.float32: 2e-4}.get(b.dtype, 5e-2)
    if autocasting():
        limit = 5e-2
    if not b.is_floating_point():
        limit = 0
    a, b, true = (x.detach().double() for x in (a, b, true))
    there = b.isfinite()
    if not torch.equal(there, a.isfinite()):
        return float("inf")
    if not bool(there.any()):
        return 0.0
    scale = max(float(b[there].abs().max()), least, 1e-30)
    error = min(float((b - true)[there].abs().nan_to_num().max()), most)
    return float((a - b)[there].abs().max()) / max(
        limit * scale + 2 * error, 1e-300)
