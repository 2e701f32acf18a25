"""The objects of libdfgnn behind those here: a context for each device and
process, and the graph of a Graph, with its plans."""

import ctypes
import os
import re
import sys
import threading

import torch

from . import _abi, _device, _library
from ._checks import describe
from ._device import current_raw_stream, raw_stream, with_room
from ._library import check, failure, library

INDEX_TYPES = {torch.int32: _abi.INDEX_I32, torch.int64: _abi.INDEX_I64}
_STREAM_USED = ctypes.c_void_p(-1).value  # DFGNN_STREAM_USED; torch keeps streams
TORCH_TYPES = {number: dtype for dtype, number in INDEX_TYPES.items()}


_lock = threading.Lock()
_contexts = {}  # of this process, by torch's device


def _forget():
    """Threads and CUDA do not survive a fork: the new process gets contexts of
    its own."""
    global _lock
    _lock = threading.Lock()
    _contexts.clear()


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
    ctx = _contexts.get(device)
    if ctx is not None:
        return ctx
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


class Handle:
    """Owns a dfgnn_graph and the plans made for it.  graph_ptr: where the
    graphs of a batch begin, on the host, or None.  listed: the library knows
    the order of the list that the graph was made of, and CPU kernels read edge
    features in it."""

    def __init__(self, ctx, pointer, keep, graph_ptr=None, listed=False):
        self.listed = listed
        self.process = _device.process
        self.graph_ptr = graph_ptr
        self.context = ctx
        self.pointer = pointer
        self.recipes = {}
        self.owned_plans = []
        self._keep = keep

    def __del__(self, ending=sys.is_finalizing):
        # at exit the process gives everything back by itself, and the device
        # may be gone; after a fork the memory belongs to the parent
        if ending() or self.process != _device.process:
            return
        _left.ended.append((self.pointer, self.owned_plans))
        # memory that a stream returns while it is recorded ends the recording
        if not (self.context.on_gpu and _is_recorded()):
            while _left.ended:
                _destroy(*_left.ended.pop())


class _Left(threading.local):
    """The library's graphs, with plans, that a thread has yet to destroy."""

    def __init__(self):
        self.ended = []


_left, _is_recorded = _Left(), torch.cuda.is_current_stream_capturing


def _destroy(pointer, plans):
    if _library.extension is not None:
        _library.extension.destroy(_library.functions, pointer, plans, _STREAM_USED)
        return
    lib = library()
    for plan in plans:
        lib.dfgnn_plan_destroy(plan)
    lib.dfgnn_graph_destroy_on(pointer, _STREAM_USED)


def signature(handle):
    """The statistics of the graph that selection looks at, as a dict."""
    stats = _abi.Signature()
    check(library().dfgnn_graph_signature(ctypes.byref(stats),
                                          handle.pointer))
    values = {name: getattr(stats, name) for name, _ in stats._fields_[1:]}
    values["histogram"] = list(values["histogram"])
    return values


def _describe(struct, graph_ptr, family, name, keep):
    struct.on_device = 1
    if graph_ptr is not None:
        keep.append(graph_ptr)
        struct.graphs = graph_ptr.numel() - 1
        struct.graph_ptr = graph_ptr.data_ptr()
    for label, value in (("family", family), ("name", name)):
        if not isinstance(value, (str, type(None))):
            raise TypeError(f"{label} must be a str, got {describe(value)}")
        setattr(struct, label, value.encode() if value else None)


def _narrow(tensor):
    return tensor if tensor.dtype == torch.int32 else tensor.to(torch.int32)


def _narrowed(offsets, indices, columns, trusted):
    """The arrays in 32 bits, the width that kernels and measurements are made
    for.  Sources that are not trusted keep theirs: the library checks them as
    it narrows them."""
    if indices.numel() > 0x7fffffff:
        return offsets, indices, columns
    if trusted:
        indices = _narrow(indices)
    if columns is not None:
        rows = columns[1] if indices.dtype == columns[1].dtype else \
            columns[1].to(indices.dtype)
        columns = _narrow(columns[0]), rows, _narrow(columns[2])
    return _narrow(offsets), indices, columns


def from_csr(offsets, indices, num_src, graph_ptr, family, name,
             trusted=False, columns=None, refilled=False):
    ctx = context(offsets.device)
    offsets, indices, columns = _narrowed(offsets, indices, columns, trusted)
    keep = [offsets, indices, columns]
    csr = _abi.Csr(destinations=offsets.numel() - 1, sources=num_src,
                   edges=indices.numel(), offsets=offsets.data_ptr(),
                   indices=indices.data_ptr(),
                   offset_type=INDEX_TYPES[offsets.dtype],
                   index_type=INDEX_TYPES[indices.dtype],
                   trusted=int(trusted), refilled=int(refilled))
    if columns is not None:
        csr.column_offsets, csr.column_rows, csr.column_edges = (
            t.data_ptr() for t in columns)
    _describe(csr, graph_ptr, family, name, keep)
    pointer = ctypes.c_void_p()
    check(with_room(offsets.device, library().dfgnn_graph_create_csr,
                    ctypes.byref(pointer), ctx.handle, ctypes.byref(csr),
                    raw_stream(offsets.device)))
    return Handle(ctx, pointer.value, keep, graph_ptr)


def from_coo(edge_index, num_src, num_dst, graph_ptr=None, family=None,
             name=None, sorted=False, trusted=False, self_loops=False,
             deferred=False):
    device = edge_index.device
    ctx, on_host = context(device), device.type == "cpu"
    if not edge_index.is_contiguous():
        edge_index = edge_index.contiguous()
    edges, source = edge_index.size(1), edge_index.data_ptr()
    listed = on_host and not self_loops
    if deferred and _library.extension is not None and not (
            sorted or trusted) and graph_ptr is family is name is None:
        result = _library.extension.graph(
            _library.functions, ctx.address, source, edges,
            edge_index.dtype is torch.int64, num_src, num_dst, self_loops,
            None if on_host else current_raw_stream(device.index))
        if type(result) is tuple:
            return Handle(ctx, result[0], (), None, listed)
        if result != _abi.ERROR_MEMORY:
            raise _in_words_of_edge_index(failure(result))
    coo = _abi.Coo(destinations=num_dst, sources=num_src, edges=edges,
                   destination=source + edges * edge_index.element_size(),
                   source=source,
                   index_type=INDEX_TYPES[edge_index.dtype],
                   sorted=int(sorted), trusted=int(trusted),
                   self_loops=int(self_loops))
    keep = []
    _describe(coo, graph_ptr, family, name, keep)
    pointer = ctypes.c_void_p()
    create = library().dfgnn_graph_create_deferred if deferred else \
        library().dfgnn_graph_create_coo
    status = with_room(device, create, ctypes.byref(pointer), ctx.handle,
                       ctypes.byref(coo), raw_stream(device))
    if status:
        raise _in_words_of_edge_index(failure(status))
    return Handle(ctx, pointer.value, keep, graph_ptr, listed)


def csr_of(handle):
    """The _abi.Csr of the library's graph, whose arrays live as long as it."""
    csr = _abi.Csr()
    check(library().dfgnn_graph_csr(ctypes.byref(csr), handle.pointer))
    if handle.graph_ptr is not None:
        csr.graphs = handle.graph_ptr.numel() - 1
        csr.graph_ptr = handle.graph_ptr.data_ptr()
    return csr


def named(handle, name):
    """A graph of the library over the same arrays, of that name."""
    csr = csr_of(handle)
    csr.name = name.encode()
    csr.trusted = 1
    pointer = ctypes.c_void_p()
    check(library().dfgnn_graph_create_csr(
        ctypes.byref(pointer), handle.context.handle, ctypes.byref(csr), None))
    return Handle(handle.context, pointer.value, [handle], handle.graph_ptr)


def write(handle, device, path):
    """Writes the matrix to a file of a graph."""
    offsets, indices, _ = matrix(handle, device)
    offsets, indices = offsets.cpu(), indices.cpu()
    csr = csr_of(handle)
    csr.on_device = 0
    csr.offsets, csr.indices = offsets.data_ptr(), indices.data_ptr()
    check(library().dfgnn_csr_write(ctypes.byref(csr), os.fsencode(path)))


def edges(handle):
    """The number of edges of the library's graph, which may wait for the
    device."""
    return csr_of(handle).edges


def _in_words_of_edge_index(error):
    """source[7] of the library is edge_index[0, 7] of the caller."""
    message = re.sub(r"\b(source|destination)\[(\d+)\]",
                     lambda m: f"edge_index[{int(m[1] == 'destination')}, {m[2]}]",
                     str(error))
    return type(error)(message)


class _CudaArray:
    """Memory of another owner in the form that torch.as_tensor() takes."""

    def __init__(self, pointer, count, dtype, owner):
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (count,), "data": (pointer, False), "version": 2,
            "typestr": "<i4" if dtype == torch.int32 else "<i8"}


def view(pointer, count, dtype, device, owner=None):
    """A tensor over memory of owner, which it keeps alive."""
    if not count:
        return torch.empty(0, dtype=dtype, device=device)
    if device.type == "cuda":
        return torch.as_tensor(_CudaArray(pointer, count, dtype, owner),
                               device=device)
    size = 4 if dtype == torch.int32 else 8
    buffer = (ctypes.c_byte * (count * size)).from_address(pointer)
    buffer.owner = owner
    return torch.frombuffer(buffer, dtype=dtype, count=count)


def matrix(handle, device):
    """(offsets, indices, edge order or None) of a graph made from an edge
    list."""
    csr = csr_of(handle)
    offsets = view(csr.offsets, csr.destinations + 1,
                    TORCH_TYPES[csr.offset_type], device, handle)
    indices = view(csr.indices, csr.edges, TORCH_TYPES[csr.index_type],
                    device, handle)
    kind = ctypes.c_int()
    order = library().dfgnn_graph_edge_order(handle.pointer,
                                             ctypes.byref(kind))
    if order:
        order = view(order, csr.edges, TORCH_TYPES[kind.value], device,
                      handle)
    return offsets, indices, order
