"""Tuning on a graph, explanations of choices, and graphs of files and
generators."""

import ctypes

import torch

from . import _abi, _execute, _operators
from ._library import check, library
from .convert import as_graph
from .graph import Graph

_DTYPES = {"f32": torch.float32, "f16": torch.float16,
           "bf16": torch.bfloat16, "f64": torch.float64}
_CHOICES = {"op": _abi.OPS, "edge_use": _abi.EDGE_USES,
            "qk_norm": _abi.QK_NORMS, "message": _abi.MESSAGES}


def _number(name, value):
    """The number of an enumerator that a caller names."""
    if value not in _CHOICES[name]:
        raise ValueError(f"{name} must be one of {sorted(_CHOICES[name])}, "
                         f"got {value!r}")
    return _CHOICES[name][value]


def _problem(op="gt", dim=64, *, heads=1, dtype="f32", backward=False,
             dropout=False, bias=False, weights=False, edge_dim=0,
             edge_use="both", qk_norm="none", message="copy"):
    """The _abi.Problem of the arguments that tune() and explain() share."""
    dtype = _DTYPES.get(dtype, dtype)
    if dtype not in _operators.DTYPES:
        raise TypeError(f"dtype must be one of {sorted(_DTYPES)}, got "
                        f"{dtype!r}")
    if edge_dim == "projected":
        edge_dim = _abi.EDGE_PROJECTED
    return _abi.Problem(
        op=_number("op", op), pass_=int(backward),
        dtype=_operators.DTYPES[dtype], heads=heads, dim=dim, deterministic=1,
        weights=int(weights), max_workspace=-1, bias=int(bias),
        dropout=int(dropout), edge_dim=edge_dim,
        edge_use=_number("edge_use", edge_use),
        qk_norm=_number("qk_norm", qk_norm),
        message=_number("message", message))


def tune(graph, op="gt", dim=64, *, budget=10.0, progress=None, **problem):
    """Measures the kernels for a problem on a graph and keeps the result in
    the user's store, from which later plans are chosen.

    op: one of the library's operators: gt, agnn, gat, gatv2, spmm-sum,
        spmm-mean, spmm-weighted, reduce-min, reduce-max, reduce-mean,
        reduce-var, reduce-std, reduce-pna.
    dim: features of a head.
    budget: seconds.
    progress: called with the share done and a message.
    problem: the rest of the problem, by keyword; each combination is measured,
        and answered, apart:
        heads: attention heads (default 1).
        dtype: "f32", "f16", "bf16", "f64", or torch's.
        backward: whether the gradients are measured in place of the output.
        dropout, bias, weights: whether attention has dropout (of any
            probability) and a bias by edge, and returns its weights.
        edge_dim: features of an edge (default 0: none), or "projected" for
            features [E, H, D] and for the scalar of gat.
        edge_use: what gt adds them to: "both", "keys" or "values".
        qk_norm: how gt normalises queries and keys: "none", "rms", "layer".
        message: what sums and reductions take of an edge: "copy", "relu",
            "gate" or "gate-value".
    Returns the fields of the library's dfgnn_tune_report as a dict.
    """
    wanted = _problem(op, dim, **problem)
    graph = as_graph(graph)
    handle = graph.handle
    options = _abi.TuneOptions(budget_s=float(budget))
    if progress is not None:
        options.progress = _abi.PROGRESS(
            lambda _, done, message: progress(done, (message or b"").decode()))
    report = _abi.TuneReport()
    check(library().dfgnn_tune(
        ctypes.byref(report), handle.context.handle, handle.pointer,
        ctypes.byref(wanted), ctypes.byref(options)))
    _execute.forget_plans()
    found = {name: getattr(report, name) for name, _ in report._fields_[1:]}
    found["variant"] = found["variant"].decode()
    found["anchor"] = found["anchor"].decode()
    for flag in ("separated", "kept"):
        found[flag] = bool(found[flag])
    return found


def explain(graph, op="gt", dim=64, **problem):
    """The choice of a kernel and its reasons, as a dict: variant, source,
    because, distance, and candidates, which says by name why each variant was
    or was not chosen.  The problem is named as in tune()."""
    wanted = _problem(op, dim, **problem)
    graph = as_graph(graph)
    handle = graph.handle
    lib = library()
    plan = ctypes.c_void_p()
    check(lib.dfgnn_plan_create(ctypes.byref(plan), handle.context.handle,
                                handle.pointer, ctypes.byref(wanted)))
    explanation = ctypes.POINTER(_abi.Explanation)()
    try:
        check(lib.dfgnn_plan_explain(ctypes.byref(explanation), plan))
        found = explanation.contents
        return {
            "variant": found.variant.decode(),
            "source": _abi.SOURCES[found.source],
            "distance": found.distance,
            "because": (found.because or b"").decode(),
            "candidates": {
                candidate.variant.decode(): (candidate.reason or b"").decode()
                for candidate in found.candidates[:found.count]},
        }
    finally:
        lib.dfgnn_explanation_free(explanation)
        lib.dfgnn_plan_destroy(plan)


def _copy(pointer, count, kind):
    width, dtype = ((4, torch.int32) if kind == _abi.INDEX_I32
                    else (8, torch.int64))
    if not count:
        return torch.empty(0, dtype=dtype)
    raw = bytearray(ctypes.string_at(pointer, count * width))
    return torch.frombuffer(raw, dtype=dtype)


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
