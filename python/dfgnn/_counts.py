"""The counts that a captured step reads, such as how many graphs a batch has,
how many nodes a mask takes or whether all numbers of one are True: what its
first steps saw is a constant of its recording, and each replay checks on the
device that it still is."""

import torch
from torch.overrides import TorchFunctionMode

from .errors import InvalidError

_MAXIMA = (torch.max, torch.Tensor.max, torch.amax, torch.Tensor.amax)
_TOTALS = (torch.sum, torch.Tensor.sum, torch.count_nonzero,
           torch.Tensor.count_nonzero)
_READS = (torch.Tensor.__int__, torch.Tensor.__index__, torch.Tensor.item,
          torch.Tensor.__bool__)
_CONDITIONS = (torch.all, torch.Tensor.all, torch.any, torch.Tensor.any)
_NONZERO = (torch.nonzero, torch.Tensor.nonzero, torch.argwhere,
            torch.Tensor.argwhere)
_SELECTS = (torch.masked_select, torch.Tensor.masked_select)

LARGEST, TRUE = "an index whose largest number", "a mask whose number of True"
HOLDS = "a condition (all, any, equal) whose outcome"
_ADVICE = {
    LARGEST: "Give a batch vector room whose fill is the number of graphs, "
    "such as capacity=dict(batch=dfgnn.Capacity(nodes, edges).nodes.filled("
    "graphs))",
    TRUE: "Give positions made before the step (mask.nonzero()) in place of a "
    "mask that changes, or multiply by it, or use torch.where()",
    HOLDS: "A recording has one outcome of it: decide it before the step, or "
    "use torch.where()"}
_VARIES = {
    TRUE: "the mask takes {} rows, and {} in the step before",
    HOLDS: "a condition is {}, and {} in the step before"}


class Varies(RuntimeError):
    """Says that a mask of a step takes another number of rows in each call, or
    that a condition holds in some; advice: what to do."""

    def __init__(self, kind, *counts):
        super().__init__(_VARIES[kind].format(*counts))
        self.advice = _ADVICE[kind]


class Faults:
    """The number of faults in replays, which the device counts without a wait
    of the host."""

    def __init__(self, device):
        self.number = torch.zeros((), dtype=torch.int64, device=device)
        self._sent = torch.zeros((), dtype=torch.int64)
        if self.number.is_cuda:
            self._sent = self._sent.pin_memory()

    def send(self):
        """Copies the number to the host, which does not wait for it."""
        self._sent.copy_(self.number, non_blocking=True)

    def take(self):
        """The number that has reached the host; it begins again with 0."""
        count = int(self._sent)
        if count:
            self._sent.zero_()
            self.number.zero_()
        return count


def _is_view(key):
    """Whether x[key] shares x's memory."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(part is None or part is Ellipsis or isinstance(part, slice) or
               type(part) is int for part in parts)


class Counts:
    """The counts of one step, in the order in which it reads them."""

    def __init__(self, device):
        self.seen = []  # (what is counted, count)
        self.steps = 0  # that have read numbers
        self.place, self.known, self.inputs = 0, False, ()
        self.is_settled = True  # the last step read what the one before did
        self.faults = {kind: Faults(device) for kind in _ADVICE}

    def begin(self, known, inputs=()):
        """A step begins; known: it reads nothing, but has what was seen.
        inputs: ids of tensors that are written anew before each step."""
        self.place, self.known, self.inputs = 0, known, inputs
        self.steps += 1
        self.is_settled = known or self.steps > 1

    def count(self, kind, number):
        """The number of a tensor, which the first steps read; None if they
        read nothing of this kind here."""
        place, self.place = self.place, self.place + 1
        before = self.seen[place:place + 1]
        if not self.known:
            entry = kind, int(number)
            if before != [entry]:
                # the first step may read what is kept after it
                self.is_settled = False
                if self.steps > 2 and kind is not LARGEST and before:
                    raise Varies(kind, entry[1], before[0][1])
            self.seen[place:place + 1] = [entry]
            return entry[1]
        if not before or before[0][0] is not kind:
            return None
        self.faults[kind].number += number != before[0][1]
        return before[0][1]

    def largest(self, index):
        """The largest number of an index of integers."""
        with torch._C.DisableTorchFunction():  # Reading would count it again
            value = self.count(LARGEST, index.max())
            if value is None:
                return int(index.max())  # an error, which says where it waits
            if self.known and id(index) in self.inputs:
                index.clamp_(max=value)  # nothing is written beyond memory
            return value

    def end(self):
        if not self.known:
            self.is_settled &= self.place == len(self.seen)
            del self.seen[self.place:]
        elif self.place:
            for kind in {kind for kind, _ in self.seen}:
                self.faults[kind].send()

    def tell(self):
        """Raises an error if a replay that is over was of other numbers."""
        for kind, faults in self.faults.items():
            if faults.take():
                seen = dict.fromkeys(n for k, n in self.seen if k is kind)
                raise InvalidError(
                    f"a captured step before was given {kind} is another than "
                    f"in its first steps, {' or '.join(map(str, seen))}: its "
                    f"results are not those of the step. {_ADVICE[kind]}")


class Reading(TorchFunctionMode):
    """Where counts are those of Counts: int(index.max()), int(mask.sum()),
    bool(mask.all()), torch.equal(), and rows of x[mask] and mask.nonzero()."""

    def __init__(self, counts):
        super().__init__()
        self.counts, self.origins = counts, []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = None
        if function in _READS and len(args) == 1:
            out = self._number(args[0])
            if out is not None and function is torch.Tensor.__int__:
                out = int(out)
        elif function is torch.Tensor.__getitem__:
            key = self._key(args[1])
            out = None if key is None else args[0][key]
        elif function is torch.Tensor.__setitem__ and isinstance(
                args[2], torch.Tensor) and args[2].numel() > 1:
            key = self._key(args[1])
            if key is not None:
                return function(args[0], key, args[2])
        elif function is torch.Tensor.__setitem__ and isinstance(
                args[2], (bool, int, float)) and _is_view(args[1]):
            args[0][args[1]].fill_(args[2])  # torch waits to copy a number
            return None
        elif function in _SELECTS and not kwargs:
            x, mask = torch.broadcast_tensors(*args)
            places = self._places(mask)
            out = None if places is None else x[places]
        elif function in _NONZERO:
            places = self._places(args[0])
            if places is not None:
                out = places if kwargs.get("as_tuple") else torch.stack(
                    places, 1)
        elif function is torch.where and len(args) == 1:
            out = self._places(args[0])
        elif function is torch.equal and len(args) == 2 and \
                args[0].shape == args[1].shape and \
                args[0].dtype == args[1].dtype:
            out = self._holds((args[0] == args[1]).all())
        return self._called(function, args, kwargs) if out is None else out

    def _called(self, function, args, kwargs):
        out = function(*args, **kwargs)
        if len(args) == 1 and not kwargs and type(out) is torch.Tensor and \
                not out.is_floating_point():
            if function in _CONDITIONS:
                self.origins.append((out, HOLDS, args[0]))
            elif function in _MAXIMA and out.dtype is not torch.bool:
                self.origins.append((out, LARGEST, args[0]))
            elif function in _TOTALS and args[0].dtype is torch.bool:
                self.origins.append((out, TRUE, args[0]))
        return out

    def _number(self, tensor):
        kind, source = next(((kind, source) for out, kind, source
                             in self.origins if out is tensor), (None, None))
        if kind is HOLDS:
            return self._holds(tensor)
        return None if kind is None else self.counts.largest(source) \
            if kind is LARGEST else self.counts.count(kind, tensor)

    def _holds(self, tensor):
        outcome = self.counts.count(HOLDS, tensor)
        return None if outcome is None else bool(outcome)

    def _key(self, key):
        """A key of a tensor with positions in the place of masks; None if it
        has no mask, or one that is known to wait."""
        parts = key if isinstance(key, tuple) else (key,)
        if not any(_is_mask(part) for part in parts):
            return None
        positions = []
        for part in parts:
            places = self._places(part) if _is_mask(part) else (part,)
            if places is None:
                return None
            positions.extend(places)
        return tuple(positions)

    def _places(self, mask):
        """The positions by axis of a mask's nonzero elements, as many as the
        first steps had; None if those saw no such mask here."""
        if not mask.dim():
            return None
        there = (mask != 0).reshape(-1)
        count = self.counts.count(TRUE, there.sum())
        if count is None:
            return None
        if not self.counts.known:
            return mask.nonzero(as_tuple=True)
        # those beyond the count share a last place, which is cut off
        rank = torch.where(there, there.cumsum(0) - 1, count).clamp_(max=count)
        place = torch.zeros(count + 1, dtype=torch.int64, device=mask.device)
        place.scatter_(0, rank, torch.arange(there.numel(), device=mask.device))
        place, positions = place[:count], []
        for size in reversed(mask.shape):
            positions.insert(0, place % size)
            place = place // size
        return tuple(positions)


def _is_mask(part):
    return isinstance(part, torch.Tensor) and part.dim() and part.dtype in (
        torch.bool, torch.uint8)
