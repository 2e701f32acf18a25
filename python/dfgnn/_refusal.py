"""The error of a step that cannot be captured: it names the operation and says
what to do."""

import linecache
import os
import re

import torch

from .errors import CaptureError

_OWN = tuple(os.path.dirname(os.path.abspath(p)) + os.sep
             for p in (torch.__file__, __file__))

# (pattern of the error's message or of the step's line, what to do)
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
    place, line = _where(error)
    advice = next((text for pattern, text in _ADVICE
                   if re.search(pattern, message)), None)
    if advice is None and line:
        advice = next((text for pattern, text in _ADVICE
                       if re.search(pattern, line)), None)
    if advice is None:
        advice = ("nothing in a step may wait for the device, or have a shape "
                  "that depends on values: leave it out of the step")
    operation = f"`{line}` ({place})" if line else "an operation"
    return CaptureError(f"the step cannot be captured in a CUDA graph: "
                        f"{operation} raised: {message}. What to do: {advice}")


def _where(error):
    """(file:line, its source) of the innermost line that is neither torch's
    nor dfgnn's; if there is none, of the innermost line."""
    frames, step = [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        frames.append((code.co_filename, step.tb_lineno))
        step = step.tb_next
    outside = [f for f in frames
               if not os.path.abspath(f[0]).startswith(_OWN)]
    for name, number in reversed(outside or frames):
        line = linecache.getline(name, number).strip()
        if line:
            return f"{name}:{number}", line
    return "", ""
