"""One context of libdfgnn for each device and process."""

import ctypes
import os
import threading

import torch

from . import _abi
from ._library import check, library

_lock = threading.Lock()
_contexts = {}  # of this process, by torch's device
process = os.getpid()
"""The number of this process, without a call of the system."""


def _forget():
    """Threads and CUDA do not survive a fork: the new process gets contexts of
    its own."""
    global process, _lock
    process, _lock = os.getpid(), threading.Lock()
    _contexts.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


class Context:
    """A device with its tuning decisions; lives as long as the process."""

    def __init__(self, name):
        self.on_gpu = name != "cpu"
        options = _abi.Options(device=name.encode())
        if name == "cpu":
            options.threads = torch.get_num_threads()
        self.handle = ctypes.c_void_p()
        check(library().dfgnn_context_create(ctypes.byref(self.handle),
                                             ctypes.byref(options)))
        self.address = self.handle.value

    def device(self):
        info = _abi.DeviceInfo()
        check(library().dfgnn_context_device(ctypes.byref(info), self.handle))
        return info


def context(device):
    """The context of a torch device."""
    found = _contexts.get(device)
    if found is not None:
        return found
    if device.type not in ("cpu", "cuda"):
        raise ValueError(
            f"dfgnn runs on cpu and cuda tensors, got a tensor on {device}")
    if device.type == "cuda" and device.index is None:
        return context(torch.device("cuda", torch.cuda.current_device()))
    name = "cpu" if device.type == "cpu" else f"cuda:{device.index}"
    with _lock:
        device = torch.device(name)
        if device not in _contexts:
            _contexts[device] = Context(name)
    return _contexts[device]


def with_room(device, call, *args):
    """The status of call(*args).  If it finds no memory, torch's allocator
    gives back what it keeps for later, and the call is made once more."""
    status = call(*args)
    if status == _abi.ERROR_MEMORY and device.type == "cuda":
        torch.cuda.empty_cache()
        status = call(*args)
    return status


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
# of torch.cuda.current_stream().cuda_stream
current_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
if current_raw_stream is None:
    def current_raw_stream(index):
        if not torch.cuda.is_available():
            return None
        return torch.cuda.current_stream(index).cuda_stream
