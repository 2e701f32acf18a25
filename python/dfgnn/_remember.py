"""Keeps what was derived from tensors as long as they live unchanged."""

import weakref

from . import _capture_reads
from ._modes import lasting
from ._stamp import is_stamped, stamp

_kept = {}


def remember(tensor, key, make, others=()):
    """make(), called once for as long as the tensor lives and neither it nor
    the others are written to.  Only the latest result of a key is kept, so
    that calls with new others each time hold no more than one."""
    if tensor.is_inference() or any(t.is_inference() for t in others):
        return make()
    if _capture_reads.current is not None:
        for source in (tensor, *others):
            _capture_reads.current.source(source)
    number = id(tensor)
    entry = _kept.get(number)
    if entry is None or entry[0]() is not tensor or \
            not is_stamped(tensor, entry[1]):
        reference = weakref.ref(tensor, lambda _: _kept.pop(number, None))
        entry = _kept[number] = (reference, stamp(tensor), {})
    stamps = [stamp(t) for t in others]
    found = entry[2].get(key)
    if found is None or found[1] != stamps or not all(
            a is b for a, b in zip(found[0], others)):
        found = entry[2][key] = (tuple(others), stamps, lasting(make))
    return found[2]


def recall(tensor, key):
    """The value that remember() made of the tensor under a key; None if nothing is
    kept."""
    entry = _kept.get(id(tensor))
    if entry is None or entry[0]() is not tensor:
        return None
    found = entry[2].get(key)
    return None if found is None else found[2]
