"""dfgnn.capture: a step as one CUDA graph, replayed with new inputs."""

import gc
import logging
import warnings
from typing import Callable

import torch
from torch.utils import _pytree as pytree

from ._capacity import (
    EdgeBuffer, EdgeRoom, refill, rooms_of, side_by_side)
from ._checks import describe
from ._counts import Counts, Reading, Varies
from ._modes import autocast_dtype
from ._refilled import GraphsOfStep
from ._refusal import refusal
from ._remember import Recording, is_stamped, recording, stamp
from .graph import Graph

log = logging.getLogger("dfgnn")
_CONSTANTS = (type(None), bool, int, float, complex, str, torch.dtype,
              torch.device)


def capture(step: Callable, *examples, warmup: int = 3, limit: int = 16,
            copy: bool = True, capacity: dict | None = None,
            device=None) -> "Captured":
    """A callable that does what step does, in one launch of the device.

        def step(x, labels):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x, graph), labels)
            loss.backward()
            optimizer.step()
            return loss
        step = dfgnn.capture(step)
        for x, labels in batches:
            loss = step(x, labels)

    step is a function of tensors, graphs, numbers and containers of these, and
    returns tensors in containers, or nothing.  The first calls with arguments
    of new shapes run it as it is (warmup times); the next one records what it
    asks of the device in a CUDA graph; from then on tensors are copied in and
    the graph is replayed.  Each call is one step in any case.

    examples: if there are any, the warm-up and the recording happen at once,
        with these arguments: warmup real steps.
    warmup: at least 2, and more where a step reads other numbers than the one
        before: the first makes graphs and chooses kernels, the last is
        watched for operations that wait for the device.
    limit: how many recordings are kept, one for each combination of shapes,
        types, graphs, numbers, and modes of autograd and autocast.  A call
        beyond them runs step as it is.
    copy: whether results are copies.  If not, the next call overwrites them.
    capacity: rooms for arguments whose rows or edges differ from call to call,
        by the argument's name: one recording serves all that fit.  The step
        sees tensors of the room's rows, the caller's first:

            most = dfgnn.Capacity(nodes=20_000, edges=300_000)
            step = dfgnn.capture(step, capacity=dict(
                x=most.nodes, edge_index=most.edges,
                labels=dfgnn.Room(1024, fill=-100)))

        An edge_index stays a tensor, and layers of dfgnn make their graphs of
        it on the device, in each replay.  What does not fit raises
        :class:`dfgnn.InvalidError` before anything runs.
    device: the GPU of the step, where arguments are on the CPU, as a loader
        gives them; by default that of the arguments.

    A number of graphs that the step reads, int(batch.max()) + 1, is that of its
    first steps, and so is the number of rows that a mask takes: x[mask],
    mask.nonzero().  Each replay checks on the device that it is, and the next
    call raises :class:`dfgnn.InvalidError` if it was not.  Batches of other
    sizes have room: batch=most.nodes.filled(64) puts spare nodes into a graph
    of their own after 64 graphs.

    A dfgnn.Graph is part of the recording, and so is an edge_index that graphs
    are made of: each is recorded on its own.  What step reads from elsewhere
    (parameters, buffers) is read where it lies; Python's decisions, such as
    those on model.training, are taken while recording.  Dropout draws anew in
    each replay.  Results have no history for autograd.

    Optimizers must be made with capturable=True.  Where the tensors are on the
    CPU, step runs as it is.  Raises :class:`dfgnn.CaptureError` if step cannot
    be recorded; the message names the operation and says what to do.
    """
    if not callable(step):
        raise TypeError(f"step must be callable, got {type(step).__name__}")
    if warmup < 2:
        raise ValueError(f"warmup must be at least 2, got {warmup}")
    if not isinstance(capacity, (dict, type(None))):
        raise TypeError("capacity must be a dict of rooms by the names of "
                        "arguments, got " + describe(capacity))
    captured = Captured(step, warmup, limit, copy, capacity or {}, device)
    if examples:
        captured.prepare(*examples)
    return captured


def _hashable(form):
    """The form of the arguments; its text if it cannot be hashed, as in torch
    2.4."""
    try:
        hash(form)
    except TypeError:
        return repr(form)
    return form


class Captured:
    """A step with its recordings; :func:`capture` makes it."""

    def __init__(self, step, warmup, limit, copy, capacity, device):
        self.step, self.warmup, self.limit = step, warmup, limit
        self.copy, self.capacity = copy, capacity
        self.device = None if device is None else _gpu_of(device)
        self._recordings = {}
        self._rooms = {}  # by form of the arguments, rooms by number
        self._structural = set()  # places of arguments that graphs are made of
        self._gpus = {}
        self._full = False

    @property
    def recorded(self):
        """The number of CUDA graphs that are recorded."""
        return sum(r.graph is not None for r in self._recordings.values())

    def __repr__(self):
        name = getattr(self.step, "__qualname__", repr(self.step))
        return f"dfgnn.capture({name}): {self.recorded} recorded"

    def __call__(self, *args, **kwargs):
        leaves, form = pytree.tree_flatten((args, kwargs))
        recording = self._recording(leaves, form)
        if recording is None:
            return _detached(self.step(*args, **kwargs))
        return recording(leaves)

    def rooms(self, form):
        """The rooms of arguments of a form, by their number."""
        if not self.capacity:
            return {}
        key = _hashable(form)
        rooms = self._rooms.get(key)
        if rooms is None:
            rooms = self._rooms[key] = rooms_of(self.step, self.capacity,
                                                form)
        return rooms

    def prepare(self, *args, **kwargs):
        """Runs the step with these arguments as often as its warm-up needs,
        and records it."""
        leaves, form = pytree.tree_flatten((args, kwargs))
        while True:
            recording = self._recording(leaves, form)
            if recording is None or recording.gpu is None:
                return
            if recording.left:
                recording(leaves)
            else:
                recording.write(leaves)
                recording.record()
                return

    def clear(self):
        """Forgets all recordings and gives their memory back."""
        self._recordings.clear()
        self._gpus.clear()
        self._full = False

    def _recording(self, leaves, form):
        """The _Step of these arguments, recorded yet or not; None if they are
        to run without a recording."""
        device, rooms = self.device or _device(leaves), self.rooms(form)
        if device is None and not rooms:
            return None
        modes = torch.is_grad_enabled(), autocast_dtype("cuda")
        key = (_hashable(form), device, *modes, *[
            self._key_of(number, leaf, rooms) for number, leaf
            in enumerate(leaves) if device is not None or number in rooms])
        recording = self._recordings.get(key)
        if recording is not None and recording.outdated():
            del self._recordings[key]
            recording = None
        if recording is None:
            if len(self._recordings) >= self.limit:
                self._say_full()
                return None
            recording = self._recordings[key] = _Step(self, key, leaves, form,
                                                      device)
        return recording

    def _key_of(self, number, leaf, rooms):
        if number in rooms:
            if not isinstance(leaf, torch.Tensor) or not leaf.dim():
                raise TypeError(f"argument {number} of a captured step has "
                                "room for a tensor with rows, got "
                                + describe(leaf))
            return tuple(leaf.shape[1:]) if not isinstance(
                rooms[number], EdgeRoom) else 2, leaf.dtype, \
                leaf.requires_grad
        if isinstance(leaf, Graph):
            return id(leaf)
        if isinstance(leaf, torch.Tensor):
            if number in self._structural or leaf.layout != torch.strided:
                return id(leaf), *stamp(leaf)
            return tuple(leaf.shape), leaf.dtype, leaf.requires_grad
        if isinstance(leaf, _CONSTANTS):
            return type(leaf), leaf
        raise TypeError(
            f"argument {number} of a captured step must be a tensor, a "
            f"dfgnn.Graph, a number, a string or None, got {describe(leaf)}; "
            "pass the tensors that it holds")

    def _say_full(self):
        if not self._full:
            self._full = True
            log.warning(
                "%r: there are %d recordings already, and other arguments run "
                "without one; give limit= a larger number, or fewer shapes "
                "and graphs", self, len(self._recordings))

    def gpu(self, device):
        if device not in self._gpus:
            self._gpus[device] = Gpu(device)
        return self._gpus[device]


class _Step:
    """The step for one combination of arguments."""

    def __init__(self, owner, key, leaves, form, device):
        self.owner, self.key, self.form = owner, key, form
        # without a GPU each call is one more step of the warm-up
        self.gpu = owner.gpu(device) if device is not None else None
        self.left = owner.warmup if device is not None else float("inf")
        self.graph = self.results = None
        self.counts = Counts(device) if device is not None else None
        self.own_graphs = GraphsOfStep()
        self.watched = []  # (tensor that graphs were made of, its version)
        self.rooms = {number: room.buffer(
            leaves[number], device or torch.device("cpu"))
            for number, room in owner.rooms(form).items()}
        self.edges = [buffer for buffer in self.rooms.values()
                      if isinstance(buffer, EdgeBuffer)]
        side_by_side(self.edges)
        self.inputs = {number: _static(leaf, device)
                       for number, leaf in enumerate(leaves)
                       if device is not None
                       and isinstance(leaf, torch.Tensor)
                       and number not in owner._structural
                       and number not in self.rooms
                       and leaf.layout == torch.strided}
        self.lasting = {**self.inputs, **{
            number: room.tensor for number, room in self.rooms.items()}}
        self.leaves = self.with_lasting(leaves)

    def with_lasting(self, leaves):
        return [self.lasting.get(number, leaf)
                for number, leaf in enumerate(leaves)]

    def __call__(self, leaves):
        self.write(leaves)
        if self.gpu is None:
            self.leaves = self.with_lasting(leaves)
        if self.left:
            return self.warm()
        if self.graph is None:
            self.record()
        self.gpu.replay(self.graph)
        return _copies(self.results) if self.owner.copy else self.results

    def write(self, leaves):
        if self.counts is not None:
            self.counts.tell()
        self.own_graphs.tell()
        for number, buffer in self.rooms.items():
            buffer.check(number, leaves[number])
        with torch.no_grad():
            for number, buffer in self.rooms.items():
                buffer.write(leaves[number])
            for number, tensor in self.inputs.items():
                tensor.copy_(leaves[number], non_blocking=True)

    def run(self, graph_of_own=None):
        counts = self.counts
        # keeps alive what the CUDA graph reads
        self.read = Recording(counts, graph_of_own)
        args, kwargs = pytree.tree_unflatten(self.leaves, self.form)
        refill(self.edges)
        with recording(self.read):
            if counts is None:
                return self.owner.step(*args, **kwargs)
            counts.begin(not self.left, {id(t) for t in self.inputs.values()})
            if counts.known and not counts.seen:
                return self.owner.step(*args, **kwargs)
            with Reading(counts):
                results = self.owner.step(*args, **kwargs)
            counts.end()
            return results

    def run_last(self):
        self.own_graphs.begin()
        return self.run(self.own_graphs.make)

    def warm(self):
        """Runs one step on a side stream, as torch wants it before a capture;
        the last such step raises at operations that wait for the device."""
        self.left -= 1
        if self.gpu is None:
            return _detached(self.run())
        try:
            results = self.gpu.aside(
                self.run if self.left else self.run_last, strict=not self.left)
        except Exception as error:
            if self.left and not isinstance(error, Varies):
                raise  # an error of the step itself
            self.owner._recordings.pop(self.key, None)
            raise refusal(error) from error
        if self.counts is not None and self.counts.seen \
                and not self.counts.is_settled:
            self.left = max(self.left, 2)
        self._find_structural()
        return _copies(results)

    def record(self):
        try:
            self.graph, self.results = self.gpu.record(
                lambda: _detached(self.run(self.own_graphs.again())))
        except Exception as error:
            self.owner._recordings.pop(self.key, None)
            raise refusal(error) from error
        ids = {id(t) for t in self.lasting.values()}
        self.watched = [(tensor, known) for tensor, known
                        in self.read.sources.values() if id(tensor) not in ids]

    def _find_structural(self):
        """Notes the arguments that graphs were made of: from now on each such
        tensor has a recording of its own."""
        places = {id(t): number for number, t in self.inputs.items()
                  if not t.is_floating_point()}
        numbers = {places[i] for i in self.read.sources if i in places}
        if numbers:
            self.owner._structural |= numbers
            self.owner._recordings.pop(self.key, None)

    def outdated(self):
        """Whether something that the recording was made of was written to
        since."""
        return any(not is_stamped(tensor, known)
                   for tensor, known in self.watched)


class Gpu:
    """Runs, records and replays on one device."""

    def __init__(self, device):
        self.device = device
        # recordings never run at the same time: they share memory
        self.pool = torch.cuda.graph_pool_handle()
        with torch.cuda.device(device):
            self.side = torch.cuda.Stream()

    def aside(self, run, strict):
        """run() on a side stream, as torch wants it before a recording.
        strict: operations that wait for the device raise."""
        with torch.cuda.device(self.device):
            current = torch.cuda.current_stream()
            before = torch.cuda.get_sync_debug_mode()
            self.side.wait_stream(current)
            try:
                if strict:
                    _watch_waits("error")
                with torch.cuda.stream(self.side):
                    results = run()
            finally:
                _watch_waits(before)
            current.wait_stream(self.side)
            for tensor in pytree.tree_flatten(results)[0]:
                if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                    tensor.record_stream(current)
            return results

    def record(self, run):
        """(CUDA graph, what run() returned)."""
        graph, results, failed = torch.cuda.CUDAGraph(), None, None
        state = torch.cuda.get_rng_state(self.device)
        collects = gc.isenabled()
        gc.disable()  # an older CUDA graph that it frees would end the capture
        try:
            # other threads, which load data, may do what a capture forbids
            with torch.cuda.device(self.device), torch.cuda.graph(
                    graph, pool=self.pool, stream=self.side,
                    capture_error_mode="thread_local"):
                try:
                    results = run()
                except Exception as error:
                    failed = error
                    raise
        except Exception as error:
            self._recover(state)
            raise (failed or error)
        finally:
            if collects:
                gc.enable()
        return graph, results

    def _recover(self, state):
        """Cleans up after a recording that failed, which leaves torch's
        generator, and perhaps its allocator, recording."""
        generator = torch.cuda.default_generators[self.device.index]
        attempts = [
            lambda: torch._C._cuda_endAllocateToPool(self.device.index,
                                                     self.pool),
            lambda: generator.graphsafe_set_state(generator.clone_state()),
            lambda: generator.set_state(state)]
        for attempt in attempts:
            try:
                attempt()
            except (AttributeError, RuntimeError, TypeError):
                pass  # this torch lacks the function, or nothing was left
        self.pool = torch.cuda.graph_pool_handle()

    def replay(self, graph):
        with torch.cuda.device(self.device):
            graph.replay()


def _watch_waits(mode):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that it is a prototype
        torch.cuda.set_sync_debug_mode(mode)


def _device(leaves):
    """The GPU that the arguments are on; the current GPU, if CUDA is in use,
    where they hold neither tensors nor graphs.  None if the step is to run
    without a recording."""
    devices = {leaf.device for leaf in leaves
               if isinstance(leaf, (torch.Tensor, Graph))}
    gpus = {d for d in devices if d.type == "cuda"}
    if len(gpus) > 1:
        raise ValueError("the arguments of a captured step must be on one "
                         f"device, got {sorted(map(str, gpus))}")
    if gpus:
        return gpus.pop()
    if devices or not torch.cuda.is_initialized():
        return None
    return torch.device("cuda", torch.cuda.current_device())


def _gpu_of(device):
    """A device as the arguments name it; None if it is no GPU."""
    device = torch.device(device)
    if device.type != "cuda":
        return None
    return device if device.index is not None else torch.device(
        "cuda", torch.cuda.current_device())


def _static(leaf, device):
    """A tensor at a lasting address, with the value of an argument."""
    return leaf.detach().to(device, copy=True).requires_grad_(
        leaf.requires_grad)


def _detached(results):
    return pytree.tree_map(
        lambda t: t.detach() if isinstance(t, torch.Tensor) else t, results)


def _copies(results):
    return pytree.tree_map(
        lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t,
        results)
