"""Measuring calls: the times of those that a step makes, and of the kernels of
those whose graph comes again, once a problem and machine, from which later
plans are chosen."""

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import time
import weakref

import torch

from . import _abi, _device
from ._device import with_room
from ._handle import edges
from ._library import library

CALLS = 3  # the call of a graph that measures
MOST_S = .5
"""The seconds to measure one problem; longer kernels race in their calls."""
YOUNG_S = 1.
"""Batches of a loader are gone by then.  The first of them is measured, and its
measurements are near enough for the others."""
RACE_CALLS = 24
"""After these the times of a race are stored: it takes 18."""

_SETTLED = ("forced", "pinned", "exact", "paper")

enabled = os.environ.get("DFGNN_MEASURE", "") != "0"
_lock = threading.Lock()
_measured = set()  # (device, problem) of this process
# By device, problem and power of 2 of the edges: a batch may end before its
# kernels are compiled, for a later one.
_prepared = {}


def measure(on: bool = True) -> bool:
    """Says whether kernels are measured where a graph comes again; returns
    whether they were before.

    The third call of an operator on a graph that no measurement answers times
    the few kernels of its portfolio with its own tensors, which takes about as
    long as 40 to 60 calls, and stores the times, so that neither this
    process nor a later one measures that problem again.  Results may differ in
    their last bits before and after that call, and not from then on.  Where it
    would take more than half a second, the next 18 calls run six kernels in
    turn.  Nothing is measured under torch.use_deterministic_algorithms,
    DFGNN_DETERMINISTIC=1 or a DFGNN_EFFORT, in workers of a DataLoader, and
    while a CUDA graph is captured.  DFGNN_MEASURE=0 is measure(False) from the
    beginning.
    """
    global enabled
    if on not in (True, False):
        raise TypeError(f"on must be True or False, got {on!r}")
    before, enabled = enabled, bool(on)
    return before


def _forget():
    global _lock
    _lock = threading.Lock()
    _prepared.clear()  # no thread of a fork compiles them


os.register_at_fork(after_in_child=_forget)


def _forbidden():
    """Whether this process asks for choices that nothing changes."""
    return (not enabled or os.environ.get("DFGNN_EFFORT")
            or os.environ.get("DFGNN_DETERMINISTIC", "0") != "0"
            or torch.are_deterministic_algorithms_enabled()
            or torch.utils.data.get_worker_info() is not None)


def _busy(device):
    """Whether a call must not do anything else."""
    return watching is not None or torch.compiler.is_compiling() or (
        device.type == "cuda" and torch.cuda.is_current_stream_capturing())


def _source(plan):
    return _abi.SOURCES[library().dfgnn_plan_source(plan.address)]


class Kernels:
    """The kernels of a portfolio, while they are compiled in the background."""

    alive = weakref.WeakSet()

    def __init__(self, handle, wanted):
        Kernels.alive.add(self)
        self.pointer, self.process = ctypes.c_void_p(), _device.process
        if library().dfgnn_tune_prepare(
                ctypes.byref(self.pointer), handle.context.handle,
                handle.pointer, ctypes.byref(wanted)):
            self.pointer = None  # the tuner will say why

    def ready(self):
        return library().dfgnn_tune_prepared(self.pointer)

    def release(self):
        """Ends what is compiled; a fork has no thread that could end."""
        pointer, self.pointer = self.pointer, None
        if pointer and self.process == _device.process:
            library().dfgnn_tune_release(pointer)

    def __del__(self, ending=sys.is_finalizing):
        if not ending():  # the names of modules are gone then
            self.release()


@atexit.register
def _release():
    """A compiler whose memory ends with the process crashes in its threads."""
    for kernels in list(Kernels.alive):
        kernels.release()


def compiling():
    """Whether kernels are compiled in the background: what runs meanwhile is
    not yet what will run, and has fewer cores."""
    return any([not kernels.ready() for kernels in list(Kernels.alive)])


class Again:
    """Counts the calls of a plan until its kernels are measured."""

    __slots__ = ("calls", "since", "races")

    def __init__(self):
        self.calls, self.races = 0, False

    def before(self, call, device, tensors):
        """Counts a call before it runs; returns the object that counts the
        next one, None once there is nothing more to do."""
        self.calls += 1
        if self.calls == 1:
            self.since = time.monotonic()
        if self.calls < CALLS - 1:
            return self
        if _forbidden():
            return None
        if _busy(device) or not _lock.acquire(blocking=False):
            self.calls -= 1
            return self
        try:
            return self._at_work(call, device, tensors)
        finally:
            _lock.release()

    def _at_work(self, call, device, tensors):
        plan, handle = call.plan, call.plan.handle()
        if handle is None:
            return None
        if self.races:
            if self.calls < RACE_CALLS:
                return self
            call.plan = plan.again(device, _abi.EFFORTS["race"])  # stores its times
            return None
        if _source(plan) in _SETTLED:
            return None
        if (device, bytes(plan.wanted)) in _measured \
                and time.monotonic() - self.since < YOUNG_S:
            return self
        key = device, bytes(plan.wanted), edges(handle).bit_length()
        if key not in _prepared:
            _prepared[key] = Kernels(handle, plan.wanted)
        if self.calls < CALLS or not _prepared[key].ready():
            return self
        _prepared.pop(key).release()
        return self._measure(call, device, tensors)

    def _measure(self, call, device, tensors):
        plan = call.plan.again(device)  # another call may have measured it
        if _source(plan) not in _SETTLED:
            status = _tune(plan, device, call.form, tensors)
            if status == _abi.ERROR_NOT_TUNED:
                call.plan = plan.again(device, _abi.EFFORTS["race"])
                self.races = True
                return self
            if status:  # this problem keeps its plan
                return None
            _measured.add((device, bytes(plan.wanted)))
            plan = plan.again(device)
        call.plan = plan
        return None


def _tune(plan, device, form, tensors):
    """The status of measuring a plan's problem with the tensors of a call."""
    memory = [t if isinstance(t, int) else t.data_ptr() for t in tensors
              if t is not None]
    memory = [address for address in memory if address]
    if len(memory) > len(set(memory)):  # perhaps an output over an input
        return _abi.ERROR_UNSUPPORTED
    args, alive = form.arguments(tensors)  # noqa: F841
    handle = plan.handle()
    return with_room(device, library().dfgnn_tune_call, None,
                     handle.context.handle, handle.pointer,
                     ctypes.byref(plan.wanted), ctypes.byref(args), MOST_S)


watching = None
"""The Calls that takes the calls of plans now; AS_IS, of a step that is timed as
it is; or None."""
AS_IS = "as it is"


class Calls:
    """By (graph's handle, bytes of the _abi.Problem) the milliseconds of each
    call of a step; ``problems`` has the handle, the problem and the plan's
    pointer of each key."""

    def __init__(self):
        self.problems = {}
        self._times = {}

    def timed(self, run, handle, wanted, device):
        """Runs a plan and keeps its time."""
        key = id(handle), bytes(wanted)
        self.problems.setdefault(key, (handle, wanted, device))
        times = self._times.setdefault(key, [])
        if device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True)
                          for _ in range(2))
            begin.record()
            run()
            end.record()
            times.append((begin, end))
        else:
            began = time.perf_counter()
            run()
            times.append(1e3 * (time.perf_counter() - began))

    def milliseconds(self):
        """By key the times of its calls."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return {key: [t if isinstance(t, float) else t[0].elapsed_time(t[1])
                      for t in times] for key, times in self._times.items()}


def takes_calls():
    """Whether something wants each call of a kernel."""
    return type(watching) is Calls


@contextlib.contextmanager
def watch(calls):
    global watching
    before, watching = watching, calls
    try:
        yield calls
    finally:
        watching = before
