"""What was derived from tensors, kept as long as they live unchanged; and what
a step of dfgnn.capture() reads of it."""

import contextlib
import os
import weakref

import torch

from ._modes import lasting

# ---- whether a tensor still is what something was derived from ---------------

# "edges" among the words of DFGNN_CHECK: the content of edge lists is compared
# in each call, too.
_BY_CONTENT = "edges" in os.environ.get("DFGNN_CHECK", "").split(",")
PLAIN = (torch.Tensor, torch.nn.Parameter)


def stamp(tensor):
    """The version of a tensor, where its memory is, and its shape, which
    ``tensor.data = part`` changes alone.

    Writes through ``.data``, DLPack or NumPy count in no version.  With
    DFGNN_CHECK=edges the stamp of integers holds their bytes, too.
    """
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
        return tensor._version, 0
    if _BY_CONTENT and not tensor.is_floating_point():
        return tensor._version, tensor.data_ptr(), tensor.shape, \
            tensor.detach().cpu().numpy().tobytes()
    return tensor._version, tensor.data_ptr(), tensor.shape


def is_stamped(tensor, known):
    """Whether the stamp of a tensor is the known one."""
    now = stamp(tensor)
    if now == known:
        return True
    if len(now) == len(known) == 4 and now[:3] == known[:3]:
        raise RuntimeError(
            f"DFGNN_CHECK=edges: a tensor {list(tensor.shape)} that a graph "
            "was made of was written to in a way that torch does not count "
            "(.data, DLPack, NumPy); the graph made before would be used. "
            "Write to the tensor itself, or make a new one")
    return False


current = None
"""The Recording at work, or None."""


class Recording:
    """graphs: by id, those that kernels ran on.  sources: by id, (tensor, its
    stamp) of the tensors that kept objects were made of.  counts: a Counts of
    the step, or None.  graph_of_own: the graph of an edge_index that the step
    itself makes, of num_nodes (sources, destinations); None: as of others."""

    def __init__(self, counts=None, graph_of_own=None):
        self.counts, self.graph_of_own = counts, graph_of_own
        self.graphs = {}
        self.sources = {}


@contextlib.contextmanager
def recording(into):
    global current
    before, current = current, into
    try:
        yield
    finally:
        current = before


def note_graph(graph):
    """Notes that a kernel runs on a graph."""
    if current is not None:
        current.graphs[id(graph)] = graph


def note(*tensors):
    """Notes that what was made of tensors is used."""
    if current is not None:
        for tensor in tensors:
            current.sources[id(tensor)] = (tensor, stamp(tensor))


_entries = {}  # by id of an object: (a weak reference, its stamp, what is kept)


def kept(owner):
    """The dict of what is kept with an object as it is now; None if there is
    none."""
    entry = _entries.get(id(owner))
    if entry is None or entry[0]() is not owner or \
            entry[1] is not None and not is_stamped(owner, entry[1]):
        return None
    return entry[2]


def keep(owner):
    """kept(), or a new dict where there is none; TypeError of an object that
    takes no weak reference.  Writes end what is kept of tensors alone."""
    things = kept(owner)
    if things is None:
        number = id(owner)
        reference = weakref.ref(owner, lambda _, entries=_entries: entries.pop(
            number, None))  # at exit the names of modules are gone
        things = {}
        _entries[number] = reference, stamp(owner) if isinstance(
            owner, torch.Tensor) else None, things
    return things


def remember(tensor, key, make, others=()):
    """make(), called once for as long as the tensor lives and neither it nor
    the others are written to.  Only the latest result of a key is kept, so
    that calls with new others each time hold no more than one."""
    if tensor.is_inference() or any(t.is_inference() for t in others):
        return make()
    note(tensor, *others)
    things, stamps = keep(tensor), [stamp(t) for t in others]
    entry = things.get(key)
    if entry is None or entry[1] != stamps or not all(
            a is b for a, b in zip(entry[0], others)):
        entry = things[key] = (tuple(others), stamps, lasting(make))
    return entry[2]


def recall(tensor, key):
    """The value that remember() keeps of a tensor under a key, or None."""
    entry = (kept(tensor) or {}).get(key)
    return None if entry is None else entry[2]
