"""The devices of torch as calls of the library need them: streams, memory and
seeds; and the process."""

import os

import torch

from . import _abi

process = os.getpid()
"""The number of this process, without a call of the system."""


def _forked():
    global process
    process = os.getpid()


os.register_at_fork(after_in_child=_forked)


def with_room(device, call, *args):
    """The status of call(*args).  If it finds no memory, torch's allocator
    gives back what it keeps for later, and the call is made once more."""
    status = call(*args)
    if status == _abi.ERROR_MEMORY and device.type == "cuda":
        torch.cuda.empty_cache()
        status = call(*args)
    return status


def free_bytes(device):
    """The memory that torch can still take; None where nobody tells."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(
            device) - torch.cuda.memory_allocated(device)
    try:
        with open("/proc/meminfo") as file:
            return next(1024 * int(line.split()[1]) for line in file
                        if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None


def make_seed(device):
    """[1] a number of torch's generator, on the device: the host does not wait
    for it, and a captured CUDA graph draws a new one at each replay."""
    return torch.randint((1 << 63) - 1, (1,), dtype=torch.int64,
                         device=device)


def raw_stream(device):
    """The current stream as an integer; None on the CPU."""
    if device.type == "cpu":
        return None
    return current_raw_stream(device.index)


# torch.compile's own launchers use this function: it takes a tenth of the time
# of torch.cuda.current_stream().cuda_stream.  A torch for CPUs alone has none.
current_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
