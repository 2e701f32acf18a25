"""Calls that take another path than the kernels': of accelerated layers that of
their own library, of functions that of torch's operations."""

import logging

log = logging.getLogger("dfgnn")
_said = set()
watching = None
"""Called with (layer, reason), or None."""


def note(layer, reason):
    if watching is not None:
        watching(layer, reason)


def say_once(message):
    if message not in _said:
        _said.add(message)
        log.warning(message)


def say_unfused():
    say_once("gradients of gradients are made by torch operations, which hold "
             "every edge's features")
