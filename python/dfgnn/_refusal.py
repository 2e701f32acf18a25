"""The error of a step that cannot be captured: it names the operation and says
what to do."""

import linecache
import os
import re

import torch

from .errors import CaptureError

_OWN = tuple(os.path.dirname(os.path.abspath(p)) + os.sep
             for p in (torch.__file__, __file__))

_PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))

# (pattern of the functions that the step calls, what to do)
_CALLS = [
    (r"\w*negative_sampl\w*",
     "draw them by dfgnn.negative_sampling (or structured_ or "
     "batched_negative_sampling), which takes the same arguments and draws on "
     "the device; dfgnn.accelerate(model) does so for what a model draws"),
    (r"augment_adj|filter_adj|pool",
     "a pooling that keeps some of the nodes leaves another number of edges in "
     "each step, so that no recording fits the next one: capture what comes "
     "before it or after it, or run the step as it is"),
    (r"dropout_(edge|node|path|adj)|\w*subgraph",
     "drop edges or nodes before the step and give it those that are left, "
     "with capacity=dict(edge_index=dfgnn.Capacity(nodes, edges).edges)"),
]
# (pattern of the error's message or of the innermost line, what to do)
_ADVICE = [
    (r"capturable",
     "make the optimizer with capturable=True, such as "
     "torch.optim.Adam(model.parameters(), capturable=True)"),
    (r"GradScaler|scaler\.(step|update|unscale_)",
     "GradScaler looks at its result on the host; use bfloat16, which needs "
     "no scaling"),
    (r"as_graph\(|Graph\(|from_edge_index\(|add_self_loops\(|"
     r"remove_self_loops\(|to_dense_batch\(|neighbor|sampler",
     "make the graph before the step, by dfgnn.as_graph(), and give it as an "
     "argument"),
    (r"\.item\(|\.tolist\(|\bfloat\(|\bint\(|\bbool\(|\bprint\(|\bif\b|"
     r"\bwhile\b|\bassert\b",
     "a number is read back from the device: return the tensor, and look at "
     "it after the step"),
    (r"\.cpu\(|\.numpy\(|\.cuda\(|\.to\(|torch\.tensor\(|as_tensor\(|"
     r"from_numpy\(",
     "a tensor goes between host and device: give it to the step as an "
     "argument, or make it before"),
    (r"nonzero|unique|masked_select|argwhere|bincount|repeat_interleave|"
     r"\[[^\]]*(mask|[<>=]=?)[^\]]*\]|\[\w+\]",
     "the shape of the result depends on values: give positions made before "
     "the step (mask.nonzero()) in place of a mask, or use torch.where()"),
]


def refusal(error):
    """The CaptureError that says what an error in a step means."""
    if isinstance(error, CaptureError):
        return error
    message = str(error).strip().split("\n")[0]
    lines, names = _where(error)
    texts = [message, *(line for line, _ in lines[:1])]
    advice = next((advice for pattern, advice in _CALLS for name in names
                   if re.fullmatch(pattern, name)), None) or \
        getattr(error, "advice", None) or next(
            (advice for text in texts for pattern, advice in _ADVICE
             if re.search(pattern, text)),
            "nothing in a step may wait for the device, or have a shape that "
            "depends on values: leave it out of the step")
    operation = ", called by ".join(
        f"`{line}` ({place})" for line, place in lines) or "an operation"
    return CaptureError(f"the step cannot be captured in a CUDA graph: "
                        f"{operation} raised: {message}. What to do: {advice}")


def _where(error):
    """The innermost line that is neither torch's nor dfgnn's, and that of no
    package which called it, as (its source, file:line); of torch and dfgnn
    alone, the innermost line.  And the names of all functions around it."""
    frames, names, step = [], [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        line = linecache.getline(code.co_filename, step.tb_lineno).strip()
        if line:
            frames.insert(0, (os.path.abspath(code.co_filename), (
                line, f"{code.co_filename}:{step.tb_lineno}")))
        names.insert(0, code.co_name)
        step = step.tb_next
    outside = [f for f in frames if not f[0].startswith(_OWN)]
    user = [f for f in outside if not f[0].startswith(_PACKAGES + os.sep)]
    lines = dict.fromkeys((outside or frames)[:1] + user[:1])
    return [place for _, place in lines], names
