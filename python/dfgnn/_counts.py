"""The largest numbers of indices that a captured step reads, such as how many
graphs a batch has: what its first steps saw is a constant of its recording, and
each replay checks on the device that it still is."""

import torch
from torch.overrides import TorchFunctionMode

from .errors import InvalidError

_MAXIMA = (torch.max, torch.Tensor.max, torch.amax, torch.Tensor.amax)
_READS = (torch.Tensor.__int__, torch.Tensor.__index__, torch.Tensor.item)


class Faults:
    """How many faults replays found, which the device counts and the host does
    not wait for."""

    def __init__(self, device):
        self.found = torch.zeros((), dtype=torch.int64, device=device)
        self._sent = torch.zeros((), dtype=torch.int64)
        if self.found.is_cuda:
            self._sent = self._sent.pin_memory()

    def send(self):
        """Tells the host, once the device has come so far."""
        self._sent.copy_(self.found, non_blocking=True)

    def take(self):
        """How many the host was told of; it begins with 0 again."""
        count = int(self._sent)
        if count:
            self._sent.zero_()
            self.found.zero_()
        return count


class Counts:
    """The tensors of one step, in the order in which it reads them."""

    def __init__(self, device):
        self.seen = []
        self.place, self.known, self.inputs = 0, False, ()
        self.faults = Faults(device)

    def begin(self, known, inputs=()):
        """A step begins; known: it reads nothing, but has what was seen.
        inputs: ids of tensors that are written anew before each step."""
        self.place, self.known, self.inputs = 0, known, inputs

    def largest(self, index):
        """The largest number of an index of integers."""
        place, self.place = self.place, self.place + 1
        if not self.known:
            value = int(index.max())
            self.seen[place:place + 1] = [value]
            return value
        if place >= len(self.seen):
            return int(index.max())  # an error, which says where it waits
        value = self.seen[place]
        self.faults.found += index.max() != value
        if id(index) in self.inputs:  # nothing is written beyond memory
            index.clamp_(max=value)
        return value

    def end(self):
        if self.known and self.place:
            self.faults.send()

    def tell(self):
        """Raises an error if a replay that is over was of other numbers."""
        if not self.faults.take():
            return
        raise InvalidError(
            "a captured step before was given an index whose largest number "
            "is another than in its first steps, "
            f"{' or '.join(map(str, dict.fromkeys(self.seen)))}: its results "
            "are not those of the step. Give a batch vector room whose fill "
            "is the number of graphs, such as capacity=dict(batch="
            "dfgnn.Capacity(nodes, edges).nodes.filled(graphs))")


class Reading(TorchFunctionMode):
    """Where int(index.max()) is that of Counts."""

    def __init__(self, counts):
        super().__init__()
        self.counts, self.found = counts, []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in _READS and len(args) == 1:
            index = next((index for largest, index in self.found
                          if largest is args[0]), None)
            if index is not None:
                return self.counts.largest(index)
        out = function(*args, **kwargs)
        if function in _MAXIMA and len(args) == 1 and not kwargs and type(
                out) is torch.Tensor and not out.is_floating_point() and \
                out.dtype is not torch.bool:
            self.found.append((out, args[0]))
        return out
