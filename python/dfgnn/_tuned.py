"""Measurements and explanations of the library, as dicts."""

import ctypes

from . import _abi
from ._library import check, library


def measure(context, graph, problem, budget, progress=None):
    """The library's dfgnn_tune() as a dict of its report's fields."""
    options = _abi.TuneOptions(budget_s=float(budget))
    if progress is not None:
        options.progress = _abi.PROGRESS(
            lambda _, done, message: progress(done, (message or b"").decode()))
    report = _abi.TuneReport()
    check(library().dfgnn_tune(
        ctypes.byref(report), context, graph, ctypes.byref(problem),
        ctypes.byref(options)))
    fields = {name: getattr(report, name) for name, _ in report._fields_[1:]}
    fields["variant"] = fields["variant"].decode()
    fields["anchor"] = fields["anchor"].decode()
    for flag in ("separated", "kept"):
        fields[flag] = bool(fields[flag])
    return fields


def explain(context, graph, problem):
    """The choice of a kernel and its reasons, as a dict."""
    lib = library()
    plan = ctypes.c_void_p()
    check(lib.dfgnn_plan_create(ctypes.byref(plan), context, graph,
                                ctypes.byref(problem)))
    explanation = ctypes.POINTER(_abi.Explanation)()
    try:
        check(lib.dfgnn_plan_explain(ctypes.byref(explanation), plan))
        choice = explanation.contents
        return {
            "variant": choice.variant.decode(),
            "source": _abi.SOURCES[choice.source],
            "distance": choice.distance,
            "because": (choice.because or b"").decode(),
            "candidates": {
                candidate.variant.decode(): (candidate.reason or b"").decode()
                for candidate in choice.candidates[:choice.count]},
        }
    finally:
        lib.dfgnn_explanation_free(explanation)
        lib.dfgnn_plan_destroy(plan)
