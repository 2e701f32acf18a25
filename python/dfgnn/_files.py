"""Graphs of files and generators."""

import ctypes

import torch

from . import _abi
from ._handle import TORCH_TYPES, view
from ._library import check, library
from .graph import Graph


def _copy(pointer, count, kind):
    return view(pointer, count, TORCH_TYPES[kind], torch.device("cpu")).clone()


def _take(pointer, family):
    try:
        csr = pointer.contents
        graph_ptr = None
        if csr.graph_ptr:
            graph_ptr = _copy(csr.graph_ptr, csr.graphs + 1, _abi.INDEX_I64)
        return Graph(
            _copy(csr.offsets, csr.destinations + 1, csr.offset_type),
            _copy(csr.indices, csr.edges, csr.index_type), csr.sources,
            graph_ptr=graph_ptr, family=family,
            name=csr.name.decode() if csr.name else None)
    finally:
        library().dfgnn_csr_free(pointer)


def generate(spec, family=None):
    """The Graph of a specification such as "sbm-pattern:batch=256,seed=1";
    dfgnn-graph(1) lists the kinds."""
    pointer = ctypes.POINTER(_abi.Csr)()
    check(library().dfgnn_csr_generate(ctypes.byref(pointer), spec.encode()))
    return _take(pointer, family)


def read(path, family=None):
    """The Graph of a file in one of the formats dfgnn-graph(1) names."""
    pointer = ctypes.POINTER(_abi.Csr)()
    check(library().dfgnn_csr_read(ctypes.byref(pointer),
                                   str(path).encode()))
    return _take(pointer, family)
