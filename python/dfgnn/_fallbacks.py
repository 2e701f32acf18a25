"""Calls that take another path than the kernels': of accelerated layers that of
their own library, of functions that of torch's operations."""

import logging

from ._modes import untraced

log = logging.getLogger("dfgnn")
_said = set()
watching = None
"""Called with (layer, reason), or None."""


def note(layer, reason):
    if watching is not None:
        watching(layer, reason)


def say_once(message, level=logging.WARNING):
    if message not in _said:
        _said.add(message)
        log.log(level, message)


@untraced
def own_path(layer, reason, whose="PyG's"):
    """Says once why a layer takes its library's path."""
    say_once(f"{type(layer).__name__} takes {whose} own path: {reason}",
             logging.INFO)
    note(layer, reason)


def say_unfused():
    say_once("gradients of gradients are made by torch operations, which hold "
             "every edge's features")
