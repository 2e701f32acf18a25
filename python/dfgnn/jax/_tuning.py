"""Tuning and explanations of edge programs on graphs of JAX arrays."""

import contextlib
import ctypes

import jax

from .. import _abi, _tuned
from .._library import check, library
from ._graph import Graph

_INDEX_TYPES = {"int32": _abi.INDEX_I32, "int64": _abi.INDEX_I64}


@contextlib.contextmanager
def _opened(graph, name=None):
    """The library's context and graph, of the context that calls use."""
    if not isinstance(graph, Graph):
        raise TypeError("graph must be a dfgnn.jax.Graph, got "
                        f"{type(graph).__name__}")
    lib = library()
    device, = graph.offsets.devices()
    context, pointer = ctypes.c_void_p(), ctypes.c_void_p()
    on_gpu = device.platform != "cpu"
    check(lib.dfgnn_xla_context(
        ctypes.byref(context), int(on_gpu),
        device.local_hardware_id or 0 if on_gpu else 0))
    offsets, indices = (jax.block_until_ready(x)
                        for x in (graph.offsets, graph.indices))
    csr = _abi.Csr(
        destinations=graph.num_dst, sources=graph.num_src,
        edges=int(offsets[-1]), offsets=offsets.unsafe_buffer_pointer(),
        indices=indices.unsafe_buffer_pointer(),
        offset_type=_INDEX_TYPES[offsets.dtype.name],
        index_type=_INDEX_TYPES[indices.dtype.name], on_device=1,
        trusted=int(graph.trusted),
        family=graph.family.encode() if graph.family else None,
        name=name.encode() if name else None)
    check(lib.dfgnn_graph_create_csr(ctypes.byref(pointer), context,
                                     ctypes.byref(csr), None))
    try:
        yield context, pointer
    finally:
        lib.dfgnn_graph_destroy(pointer)


def tune(graph, program, *, budget=10.0, progress=None, name=None, **call):
    """Measures what a call of an edge program with these arrays runs, or its
    gradient if ``backward``, and keeps the result in the user's store, from
    which later calls choose.

    call: the arguments of the program's call, by name, and ``backward``.
    budget: seconds.
    progress: called with the share done and a message.
    name: a name for the graph, which measurements and reports show.

    Returns the fields of the library's dfgnn_tune_report as a dict.
    """
    problem = program.problem(**call)
    with _opened(graph, name) as (context, pointer):
        return _tuned.measure(context, pointer, problem, budget, progress)


def explain(graph, program, **call):
    """How a call of an edge program with these arrays, or its gradient if
    ``backward``, is run and why, as a dict: variant, source, because, distance,
    and candidates, which says by name why each was or was not chosen."""
    problem = program.problem(**call)
    with _opened(graph) as (context, pointer):
        return _tuned.explain(context, pointer, problem)
