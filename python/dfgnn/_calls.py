"""The calls of kernels that a step makes, with their times."""

import contextlib
import time

import torch

watching = None
"""The Calls that takes the calls of plans now, or None."""


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


@contextlib.contextmanager
def watch(calls):
    global watching
    before, watching = watching, calls
    try:
        yield calls
    finally:
        watching = before
