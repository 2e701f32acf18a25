"""Tuning of models and graphs, explanations of choices, and graphs of files and
generators."""

import difflib
import inspect
from typing import Callable

import torch

from . import _abi, _execute, _handle, _operators, _tuned, recordings
from ._checks import check_number
from .convert import (  # noqa: F401 - part of this module
    as_graph, generate, read)
from .programs import EdgeProgram

_DTYPES = {"f32": torch.float32, "f16": torch.float16,
           "bf16": torch.bfloat16, "f64": torch.float64}
_CHOICES = {"op": _abi.OPS, "edge_use": _abi.EDGE_USES,
            "message": _abi.MESSAGES}


def _number(name, value):
    """The number of an enumerator that a caller names."""
    if value not in _CHOICES[name]:
        raise ValueError(f"{name} must be one of {sorted(_CHOICES[name])}, "
                         f"got {value!r}")
    return _CHOICES[name][value]


def _problem(op="gt", dim=None, *, heads=1, dtype="f32", backward=False,
             dropout=False, bias=False, weights=False, edge_dim=0,
             edge_use="both", message="copy"):
    """The _abi.Problem of the arguments that tune() and explain() share."""
    dtype = _DTYPES.get(dtype, dtype)
    if dtype not in _operators.DTYPES:
        raise TypeError(f"dtype must be one of {sorted(_DTYPES)}, got "
                        f"{dtype!r}")
    if edge_dim == "projected":
        edge_dim = _abi.EDGE_PROJECTED
    wanted = _abi.Problem(
        op=_number("op", op), pass_=int(backward),
        dtype=_operators.DTYPES[dtype], heads=heads, deterministic=1,
        weights=int(weights), max_workspace=-1, bias=int(bias),
        dropout=int(dropout), edge_dim=edge_dim,
        edge_use=_number("edge_use", edge_use),
        message=_number("message", message))
    if dim is None:
        raise TypeError("dim, the features of a head, is missing: "
                        f"dfgnn.tune(graph, {op!r}, 64) measures 64")
    wanted.dim = dim
    return wanted


# what people call the keywords of other libraries
_MEANT = {"features": "dim", "channels": "dim", "out_channels": "dim",
          "head_dim": "dim", "head": "heads", "num_heads": "heads",
          "operator": "op", "pass": "backward", "direction": "backward",
          "type": "dtype", "time_limit": "budget", "seconds": "budget",
          "timeout": "budget", "label": "name", "p": "dropout",
          "edge_features": "edge_dim", "edge_attr": "edge_dim"}


def _check_keywords(function, keywords, *shared):
    """Raises a TypeError that names the keyword that was meant."""
    known = [name for f in (function, *shared)
             for name, one in inspect.signature(f).parameters.items()
             if one.kind in (one.KEYWORD_ONLY, one.POSITIONAL_OR_KEYWORD)]
    for name in keywords:
        if name in known:
            continue
        close = difflib.get_close_matches(name, known, 1)
        meant = _MEANT.get(name) if _MEANT.get(name) in known else None
        meant = meant or (close[0] if close else None)
        raise TypeError(
            f"found the keyword {name!r}, " + (
                f"expected {meant!r}" if meant else
                "expected one of " + ", ".join(sorted(set(known)))))


def tune(subject, *arguments, **options):
    """Measures kernels and keeps the result in the user's store, from which
    later plans are chosen: of ``tune(model, *inputs)`` as tune_model() does, of
    ``tune(graph, op, dim)`` as tune_problem(), and of
    ``tune(graph, program, i=..., j=..., e=...)`` as tune_call()."""
    if callable(subject):  # graphs of no library are
        return tune_model(subject, *arguments, **options)
    if arguments and isinstance(arguments[0], EdgeProgram):
        return tune_call(subject, *arguments, **options)
    _check_keywords(tune_problem, options, _problem)
    return tune_problem(subject, *arguments, **options)


def tune_model(model: Callable, *inputs, **options) -> recordings.Tuned:
    """Tunes what a step of a model needs: runs the step, records every problem
    that it meets on every graph, forward and backward, and measures those that
    cost most within a budget.

    model: a torch.nn.Module, or a function that does a whole step.
    budget: seconds of all problems together (default 60).
    progress: called with the share done and a message.
    name, loss, kwargs, steps: as in :func:`dfgnn.record`.

    Returns a :class:`dfgnn.recordings.Tuned`, whose text says what it gained.
    The model keeps its parameters, buffers and gradients.
    """
    _check_keywords(recordings.tune_step, options, recordings.record)
    if "budget" in options:
        options["budget"] = check_number("budget", options["budget"])
    return recordings.tune_step(model, *inputs, **options)


Progress = Callable[[float, str], None] | None


def tune_problem(graph, op: str = "gt", dim: int | None = None, *,
                 budget: float = 10.0, progress: Progress = None,
                 name: str | None = None, **problem) -> dict:
    """Measures one problem on a graph.

    op: one of the library's operators: gt (attention by dot products, of graph
        transformers), agnn, gat, gatv2, spmm-sum, spmm-mean, spmm-weighted,
        reduce-min, reduce-max, reduce-mean, reduce-var, reduce-std,
        reduce-pna.
    dim: features of a head.
    budget: seconds.
    progress: called with the share done and a message.
    name: a name for the graph, which measurements and reports show.

    The rest of the problem, by keyword; each combination is measured, and
    answered, apart:
    heads: attention heads (default 1).
    dtype: "f32", "f16", "bf16", "f64", or torch's.
    backward: whether the gradients are measured in place of the output.
    dropout, bias, weights: whether attention has dropout (of any probability)
        and a bias by edge, and returns its weights.
    edge_dim: features of an edge (default 0: none), or "projected" for features
        [E, H, D] and for the scalar of gat.
    edge_use: what gt adds them to: "both", "keys" or "values".
    message: what sums and reductions take of an edge: "copy", "relu", "gate" or
        "gate-value".

    Returns the fields of the library's dfgnn_tune_report as a dict.
    """
    return _measure(graph, _problem(op, dim, **problem), budget, progress,
                    name)


def tune_call(graph, program: EdgeProgram, *arguments, budget: float = 10.0,
              progress: Progress = None, name: str | None = None,
              **options) -> dict:
    """Measures what a call of a :func:`dfgnn.edge_program` with these tensors
    runs on a graph, or its gradient if ``backward``; as tune_problem()."""
    wanted = program.problem(as_graph(graph), *arguments, **options)
    return _measure(graph, wanted, budget, progress, name)


def _measure(graph, wanted, budget, progress, name):
    handle = as_graph(graph).handle
    if name is not None:
        handle = _handle.named(handle, name)
    report = _tuned.measure(handle.context.handle, handle.pointer, wanted,
                            check_number("budget", budget), progress)
    _execute.forget_plans()
    return report


def explain(graph, op="gt", *arguments, **problem) -> dict:
    """The choice of a kernel and its reasons, as a dict: variant, source,
    because, distance, and candidates, which says by name why each variant was
    or was not chosen.  The problem is named as in tune()."""
    if isinstance(op, EdgeProgram):
        wanted = op.problem(as_graph(graph), *arguments, **problem)
    else:
        _check_keywords(_problem, problem)
        wanted = _problem(op, *arguments, **problem)
    handle = as_graph(graph).handle
    return _tuned.explain(handle.context.handle, handle.pointer, wanted)
