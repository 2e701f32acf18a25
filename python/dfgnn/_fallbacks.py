"""Calls of accelerated layers that took their own library's path."""

watching = None
"""Called with (layer, reason), or None."""


def note(layer, reason):
    if watching is not None:
        watching(layer, reason)
