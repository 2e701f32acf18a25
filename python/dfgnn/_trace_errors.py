"""Errors of functions that are traced: they name the line of the user's."""

import contextlib
import importlib.util
import os
import sys
import threading

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_torch = importlib.util.find_spec("torch")  # which JAX's users may lack
_TORCH = os.path.dirname(_torch.origin or "") + os.sep if _torch else _HERE
# what PyG's layers call to reduce and to scatter
_BELOW = os.sep + os.path.join("torch_geometric", "")
_BELOW = tuple(_BELOW + name for name in ("utils", "inspector", "nn" + os.sep
                                          + "aggr", "nn" + os.sep + "conv"
                                          + os.sep + "message_passing",
                                          "experimental"))


class TraceError(TypeError):
    """A function does what edge programs do not have."""


_thread = threading.local()  # .line: of the call that is translated


def is_users(path):
    """Whether a file is none of torch's, ours, or those of PyG in which no
    layer is."""
    return not path.startswith((_HERE, _TORCH, "<")) and not any(
        part in path for part in _BELOW)


def place_of_line():
    """The line of the user's function that is running."""
    line = getattr(_thread, "line", None)
    if line is not None:
        return line
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if is_users(path):
            return f"{path}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""


@contextlib.contextmanager
def at_line(line):
    """Errors name this line, and not the one that runs."""
    before = getattr(_thread, "line", None)
    _thread.line = line
    try:
        yield
    finally:
        _thread.line = before


def where():
    place = place_of_line()
    return place + ": " if place else ""


def refuse(text):
    raise TraceError(where() + text)
