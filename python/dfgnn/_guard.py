"""Which is faster for an accelerated layer: the kernels, or its library's path.

The first steps of a layer take both in turns, kernels first, a few steps each,
since neither finds memory as the other left it.  Each is a real step, and is
timed from the layer's input to its output and from the gradient of its output
to those of its inputs and parameters.  Kernels that lose while better ones are
compiled in the background, in one step clearly or in all, race again after it;
the own path runs meanwhile.  Kernels that won on a known graph race again where
graphs become new ones.  Nothing is run twice, so that buffers, random
numbers, hooks and gradients are those of one step.  A layer whose own path is
faster gets its own class back.

Where the own path might not fit in memory, or does not, kernels stay.

On a GPU the clock is that of its stream, which waits where the host is the
slower one, and no call waits for the device.
"""

import functools
import statistics
import threading
import time

import torch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from . import _device, _measure, _remember, _ways, graph
from ._modes import compiling, torchs_cuda_graphs
from ._step_times import tensors_in
from .convert import graphs_of
from .hetero import HeteroGraph

WARM = 3  # steps by kernels that make graphs, compile and choose variants
LEAST, MOST = 3, 6  # timed steps of each path
FEW, FAR = 2, 2.  # so few tell kernels that are so many times as fast
RUN = 4  # steps of a path in a row; the first of them finds memory, untimed
MOST_STEPS = WARM + 2 * RUN * (MOST // (RUN - 1) + 1)  # until one is chosen
MOST_CALLS = 64  # of a layer in a step
MOST_WAIT_S = 30.  # for kernels that are compiled in the background
CLEAR = 1.25  # a ratio that decides if all of LEAST steps are beyond it
MARGIN = 1.02  # the kernels stay unless they take longer by more than this
ROWS = 8  # an own path may hold so many of an edge at once, in both passes
FRESH = 8  # new graphs in a row, after kernels won on one that was known
NEW_GRAPHS = .95  # where they make graphs in each step, whose end no clock sees
KERNELS, OWN = "kernels", "own path"

# .path: that of a timed layer around this call; .own: a layer in its own path
_thread = threading.local()


def guarded(forward):
    """Decorates the forward of a class with kernels."""
    @functools.wraps(forward)
    def called(self, *args, **kwargs):
        kind = type(self)
        if not hasattr(kind, "_dfgnn_base"):  # bound before it was given back
            return kind.forward(self, *args, **kwargs)
        if not compiling():
            guard = self.__dict__.get("_dfgnn_guard")
            # torch's parametrizations and FSDP put a class over ours
            if guard is not None and "_dfgnn_base" in vars(kind):
                return guard.call(forward, self, args, kwargs)
        return forward(self, *args, **kwargs)
    # torch.compile counts compilations by code
    called.__code__ = called.__code__.replace(co_name=forward.__qualname__)
    return called


def own_propagate(module):
    """Whether somebody put a propagate() on the module itself.  PyG leaves one
    of its class there after an explanation."""
    method, kind = module.__dict__.get("propagate"), type(module)
    return method is not None and getattr(method, "__func__", method) not in (
        getattr(kind, "_jinja_propagate", None),
        getattr(kind, "_orig_propagate", None))


def swap(module, kind):
    """Gives a module a class of the same parameters."""
    state = module.__dict__
    if "propagate" in state and not own_propagate(module) \
            and not state.get("_explain") \
            and state.get("_decomposed_layers", 1) == 1:
        del state["propagate"]
    object.__setattr__(module, "__class__", kind)  # classes may forbid writes


def takes_own_path(layer):
    """Whether the methods of a layer with kernels are to be its library's, since
    its forward is in this thread: not in a checkpoint inside of it, which calls
    them again in the backward pass."""
    return getattr(_thread, "own", None) is layer and not saved_elsewhere()


def _untimed(parts, tensors):
    """Whether a call is left alone: two runs of a program must agree, something
    records or transforms it, a checkpoint calls it again in the backward pass
    and needs what it did before, or its library knows no such graph."""
    if not tensors or any(isinstance(part, (graph.Graph, HeteroGraph))
                          for part in parts) or \
            torch.are_deterministic_algorithms_enabled() or \
            _remember.current is not None or _measure.watching is not None or \
            torchs_cuda_graphs() or \
            any(type(t) not in (torch.Tensor, torch.nn.Parameter)
                for t in tensors) or \
            torch._C._get_tracing_state() is not None or \
            torch._C._functorch.peek_interpreter_stack() is not None or \
            torch._C._len_torch_dispatch_stack() or \
            torch._C._current_graph_task_id() != -1:
        return True
    return saved_elsewhere() or tensors[0].is_cuda and \
        torch.cuda.is_current_stream_capturing()


def saved_elsewhere():
    """Whether hooks take the tensors that autograd saves, as those of a
    checkpoint do; unknown in an old torch, where they might."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is None or top(True) is not None


class _Clock:
    """Marks of the host."""

    @staticmethod
    def mark():
        return time.perf_counter()

    @staticmethod
    def recorded():
        return False

    @staticmethod
    def between(begin, end):
        return 1e3 * (end - begin)


class _Stream:
    """Marks of a GPU's stream, on which the backward pass runs, too."""

    def __init__(self, device):
        self.stream = torch.cuda.current_stream(device)

    def mark(self):
        event = torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    @staticmethod
    def recorded():
        """Whether a CUDA graph is captured, which has no place for an event of
        this stream."""
        return torch.cuda.is_current_stream_capturing()

    @staticmethod
    def between(begin, end):
        """Milliseconds, or None if the device has not come so far."""
        return begin.elapsed_time(end) if end.query() else None


class _Sample:
    """One step's calls of a layer by one path."""

    def __init__(self, path, tensors, timed):
        self.path, self.timed = path, timed
        if timed:
            device = tensors[0].device
            self.clock = _Stream(device) if tensors[0].is_cuda else _Clock
        # a mini-batch of more rows takes longer
        self.rows = sum(max(t.shape, default=1) for t in tensors)
        self.calls, self.forward, self.handles = 0, [], []
        self.began = self.ended = None  # of the backward pass
        self.over = False  # no backward pass is to come
        self.graphs = 0  # that its calls made
        self.row_bytes = 0  # the widest row that is read or given has so many

    def run(self, run, layer, tensors):
        before, begin = graph.made, self.clock.mark() if self.timed else None
        out = run()
        if self.timed:
            self.forward.append((begin, self.clock.mark()))
            self.graphs += graph.made - before
        else:
            self.row_bytes = max([t.numel() // len(t) * t.element_size()
                                  for t in (*tensors, *tensors_in(out))
                                  if t.is_floating_point() and t.dim() > 1
                                  and len(t)], default=0)
        self.calls += 1  # one that raises is none
        self.over = not torch.is_grad_enabled()
        if not self.over and (self.timed or not self.handles):
            self._follow(layer, tensors, out)
        return out

    def _follow(self, layer, tensors, out):
        # nodes that were made before a layer run after all of its own
        ends = [t.grad_fn for t in tensors if t.grad_fn is not None] or [
            _accumulator(t) for t in (*layer.parameters(), *tensors)
            if t.requires_grad and t.is_leaf and not is_lazy(t)]
        begins = [t.grad_fn for t in tensors_in(out)
                  if t.grad_fn is not None and t.grad_fn not in ends]
        self.over = not begins or not ends
        if self.over:
            return
        if self.timed:
            self.handles += [node.register_prehook(self._begin)
                             for node in begins]
        else:  # the first gradient ends a step that has no times
            ends = begins
        self.handles += [node.register_prehook(self._end) for node in ends]

    def _begin(self, _):
        if self.began is None and not self.clock.recorded():
            self.began = self.clock.mark()

    def _end(self, _):
        # parameters still have it where a step is captured after this one
        if not self.timed:
            self.over = True
        elif self.began is not None and not self.clock.recorded():
            self.ended = self.clock.mark()

    def close(self):
        for handle in self.handles:
            handle.remove()

    def times(self):
        """(forward, backward or None) of a row in ms; None if the device is
        not through."""
        times = [self.clock.between(*pair) for pair in self.forward]
        back = None
        # the backward of a layer that is called again has others inside
        if self.ended is not None and self.calls == 1:
            back = self.clock.between(self.began, self.ended)
            times.append(back)
        if None in times:
            return None
        forward = (sum(times) - (back or 0.0)) / self.calls
        return forward / self.rows, None if back is None else back / self.rows


def _enough(ratios, few=MOST):
    """Whether ratios of times, side by side, tell which path is faster."""
    return len(ratios) >= MOST or len(ratios) >= LEAST and (
        min(ratios) > CLEAR or max(ratios) < 1 / CLEAR) or \
        len(ratios) >= few and max(ratios) < 1 / FAR


def _accumulator(leaf):
    """The node that adds to a leaf's gradient."""
    with torch.enable_grad():
        return leaf.view_as(leaf).grad_fn.next_functions[0][0]


class Race:
    """The steps of one layer, with gradients or without."""

    def __init__(self, words, few):
        self.words = words  # of a time by the own path, and by kernels
        self.few = few  # timed steps decide that kernels are FAR faster
        self.steps = 0
        self.since = None  # when it was first begun
        self.held = False  # lost by kernels while better ones are compiled
        self.open = None  # the sample of the step that runs
        self.waiting = []  # samples whose times are not known yet
        self.samples = {KERNELS: [], OWN: []}
        self.rows = 0
        self.builds = 0  # samples of the kernels that made graphs
        self.fresh = 0  # calls in a row that have, since the kernels won
        self.row_bytes = 0  # steps that were not timed tell it
        self.winner = self.reason = None
        self.ready = False  # decided, but for the layers that share its graph
        self.key = None  # of what later processes may know

    def sample(self, tensors):
        """The step of a call, which begins a new one where one has ended."""
        last = self.open
        if last is not None and not last.over and last.ended is None and \
                last.calls < MOST_CALLS:
            return last  # no gradient has come since
        if last is not None:
            self._close(last)
        if self.held:
            if self._compiles():
                self.open = _Sample(OWN, tensors, False)
                return self.open
            self.held, self.steps, self.builds, self.waiting = False, 0, 0, []
            self.samples = {KERNELS: [], OWN: []}
        turn, place = divmod(self.steps - WARM, RUN)
        path = OWN if turn >= 0 and turn % 2 else KERNELS
        timed = turn >= 0 and place > 0
        self.steps += 1
        self.open = _Sample(path, tensors, timed)
        return self.open

    def _compiles(self):
        """Whether kernels are compiled that may be faster than those that
        ran."""
        if self.since is None:
            self.since = time.monotonic()
        return time.monotonic() - self.since < MOST_WAIT_S and \
            _measure.compiling()

    def _close(self, sample):
        self.open = None
        sample.close()
        self.row_bytes = max(self.row_bytes, sample.row_bytes)
        if sample.timed:
            self.waiting.append(sample)
        left = []
        for one in self.waiting:
            times = one.times()
            if times is None:
                left.append(one)
                continue
            self.samples[one.path].append(times)
            self.rows = one.rows
            self.builds += one.path == KERNELS and one.graphs > 0
        self.waiting = left

    def _totals(self, path):
        """The times of a row in the steps of a path."""
        with_backward = all(any(b is not None for _, b in times)
                            for times in self.samples.values())
        return [f + (b or 0.0) if with_backward else f
                for f, b in self.samples[path] if b is not None or
                not with_backward]

    def milliseconds(self, path):
        """The median time of a step of the latest size."""
        return self.rows * statistics.median(self._totals(path))

    @property
    def pairs(self):
        """(ms by kernels, ms by the own path) of steps side by side: what slows
        the machine slows both."""
        return list(zip(*([self.rows * ms for ms in self._totals(path)]
                          for path in (KERNELS, OWN))))

    @property
    def makes_graphs(self):
        """Whether it makes the graph that others read, too, in each step."""
        return 2 * self.builds > len(self.samples[KERNELS])

    def decide(self, together):
        """Ends the race if what is known is enough; together: where layers
        read graphs of each other, those that kernels serve better wait for the
        others."""
        ratios = [kernels / own for kernels, own in self.pairs]
        if self.ready or not ratios:
            return
        if min(ratios) > CLEAR and self._compiles():
            self.held = True
        if self.held or not _enough(ratios, self.few):
            return
        clear = len(ratios) < MOST
        if statistics.median(ratios) <= MARGIN:
            self.ready = together
            if not together:
                self.end(KERNELS, clear)
        elif self._compiles():
            self.held = True
        elif self.makes_graphs:
            self.ready = True
        else:
            self.end(OWN, clear)

    def known(self, key):
        """Ends the race if an earlier process has."""
        self.key = key
        times = _ways.look_up(key)
        if times is None or times.keys() != self.samples.keys():
            return
        self.samples = {path: [(ms, None)] for path, ms in times.items()}
        self.rows, self.open = self.open.rows, None
        self.end(OWN if times[KERNELS] > MARGIN * times[OWN] else KERNELS,
                 why=", in an earlier process")

    def may_be_too_large(self, tensors, rows):
        """Whether the own path may take more memory than there is, if it holds
        so many rows of each edge."""
        edges = sum(t.size(1) for t in tensors if t.dim() == 2
                    and t.size(0) == 2 and not t.is_floating_point())
        need = rows * edges * self.row_bytes
        free = _device.free_bytes(tensors[0].device) if need > 1 << 30 else None
        return free is not None and need > free

    def keep_kernels(self, reason):
        """Ends the race without times."""
        self.open.close()
        self.open, self.waiting = None, []
        self.winner, self.reason, self.ready = KERNELS, reason, False

    def end(self, winner, clear=False, why=""):
        """Sets the winner; clear: later processes need not time again."""
        own, kernels = map(self.milliseconds, (OWN, KERNELS))
        self.winner, self.ready = winner, False
        if clear:
            _ways.store(self.key, {OWN: own / self.rows,
                                   KERNELS: kernels / self.rows})
        self.reason = f"a call takes {own:.3g} ms {self.words[0]}, " \
            f"{kernels:.3g} ms {self.words[1]}{why}"


class Guards:
    """The guards of one model."""

    def __init__(self):
        self.guards = []
        self.lock = threading.Lock()  # of the thread that is timed

    def decide(self, race, recorded):
        """Ends a race that is decided, or those of all layers together where
        some make graphs in each step, whose time others save."""
        races = [g.races[recorded] for g in self.guards
                 if recorded in g.races and g.races[recorded].winner != OWN]
        together = any(one.makes_graphs for one in races)
        race.decide(together)
        open_ = [one for one in races if one.winner is None]
        if not together or not open_ or any(
                one.held or len(one.pairs) < LEAST for one in open_):
            return
        both = [one for one in races if one.winner != OWN and one.pairs]
        own, kernels = (sum(one.milliseconds(path) for one in both)
                        for path in (OWN, KERNELS))
        steps = [[sum(times) for times in zip(*step)]
                 for step in zip(*(one.pairs for one in open_))]
        if not (all(one.ready for one in open_) or
                _enough([kernels / own for kernels, own in steps])):
            return
        winner = KERNELS if kernels <= NEW_GRAPHS * own else OWN
        for one in both if winner == OWN else open_:
            one.end(winner, why=f", and {own:.3g} and {kernels:.3g} ms those "
                    "that read its graph" if len(both) > 1 else "")


class Guard:
    """Watches the first steps of one layer."""

    words = "by its library's own path", "by kernels"
    rows, few = ROWS, FEW

    def __init__(self, group=None):
        self.group = Guards() if group is None else group
        self.group.guards.append(self)
        self.races = {}  # by whether autograd records
        self.threads = set()  # that have called the layer

    def __reduce__(self):
        return Guard, ()  # a copy begins anew

    def call(self, forward, layer, args, kwargs):
        self.threads.add(threading.get_ident())
        recorded = torch.is_grad_enabled()
        again = not recorded and layer.training and \
            not torch.is_inference_mode_enabled()  # perhaps, in a checkpoint
        race = self.races.get(recorded or again)
        if race is not None and race.winner is not None:
            return self._decided(race, forward, layer, args, kwargs)
        if again:
            return forward(layer, *args, **kwargs)
        around = getattr(_thread, "path", None)
        if around is not None:  # the layer around this one is timed
            return self.other(layer, args, kwargs) if around == OWN \
                else forward(layer, *args, **kwargs)
        parts = [*args, *kwargs.values()]
        if any([isinstance(part, (tuple, list, dict)) for part in parts]):
            parts = tree_leaves(parts)
        tensors = [part for part in parts if isinstance(part, torch.Tensor)]
        if _untimed(parts, tensors) or not self.group.lock.acquire(False):
            return forward(layer, *args, **kwargs)
        try:
            return self._timed(recorded, parts, tensors, forward, layer,
                               args, kwargs)
        finally:
            self.group.lock.release()

    def _timed(self, recorded, parts, tensors, forward, layer, args, kwargs):
        race = self.races.get(recorded)
        if race is None:
            race = self.races[recorded] = Race(self.words, self.few)
        sample = race.sample(tensors)
        if race.steps == WARM + 1:
            if race.may_be_too_large(tensors, self.rows):
                race.keep_kernels(
                    "its library's own path may not fit in memory")
            elif race.key is None and _measure.enabled:
                race.known(_ways.key_of(layer, parts, recorded, graphs_of)
                           or "")
        if race.steps > WARM and not (race.held or sample.calls) and (
                (race.steps - WARM) % RUN != 3 or _measure.compiling()):
            self.group.decide(race, recorded)
            if race.held:  # from this call on
                race.open = None
                sample = race.sample(tensors)
        if race.winner is not None:
            return self._decided(race, forward, layer, args, kwargs)
        _thread.path = sample.path
        try:
            return sample.run(
                lambda: self.other(layer, args, kwargs) if sample.path == OWN
                else forward(layer, *args, **kwargs), layer, tensors)
        except torch.OutOfMemoryError:
            if sample.path == KERNELS:
                raise
        finally:
            _thread.path = None
        race.keep_kernels("its library's own path does not fit in memory")
        return forward(layer, *args, **kwargs)

    def _decided(self, race, forward, layer, args, kwargs):
        """Calls the layer by the winner.  One that trains by its own path has
        its own class from then on, and no guard, unless another thread may be
        in its kernels."""
        if race.winner == KERNELS:
            before = graph.made
            out = forward(layer, *args, **kwargs)
            race.fresh = race.fresh + 1 if graph.made > before else 0
            if race.fresh == FRESH and race.pairs and not race.makes_graphs:
                self._race_again(race)
            return out
        if race is not self.races.get(True) or len(self.threads) > 1:
            return self.other(layer, args, kwargs)
        layer.__dict__.pop("_dfgnn_guard", None)
        swap(layer, type(layer)._dfgnn_base)
        return type(layer).forward(layer, *args, **kwargs)

    def _race_again(self, race):
        for recorded, known in [*self.races.items()]:
            if known is race:
                self.races[recorded] = Race(self.words, self.few)
                self.races[recorded].key = ""  # times are known of known graphs

    def other(self, layer, args, kwargs):
        # the layer keeps its class: other threads may be in its kernels
        before = getattr(_thread, "own", None)
        _thread.own = layer
        try:  # not what stands on the layer
            return getattr(type(layer), "_dfgnn_base", type(layer)).forward(
                layer, *args, **kwargs)
        finally:
            _thread.own = before

    @property
    def kept(self):
        """Why the layer keeps its own path, of training if it trains; None if
        it does not."""
        race = self.races.get(True) or self.races.get(False)
        return race.reason if race is not None and race.winner == OWN else None

    @property
    def reason(self):
        """The times, of training if it trains; None before they are
        known."""
        race = self.races.get(True) or self.races.get(False)
        return None if race is None else race.reason

    @property
    def undecided(self):
        return any(race.winner is None for race in self.races.values())


class Compilation(Guard):
    """The way that a model's call runs: the model as it is, or as torch.compile
    makes it, once its layers have their paths."""

    words = "as torch.compile makes it", "as it is"
    rows, few = 0, LEAST  # kernels run in both; new sizes compile again

    def __init__(self, model, layers):
        super().__init__()
        self.model, self.layers, self.calls = model, layers, 0
        self.eager = model._call_impl
        self.compiled = torch.compile(self.eager)

    def __call__(self, *args, **kwargs):
        self.calls += 1
        if compiling() or self.calls < 3 or any(
                guard.undecided for guard in self.layers):
            return self.eager(*args, **kwargs)
        return self.call(lambda _, *a, **k: self.eager(*a, **k), self.model,
                         args, kwargs)

    def other(self, layer, args, kwargs):
        return self.compiled(*args, **kwargs)

    def _decided(self, race, forward, layer, args, kwargs):
        if race is self.races.get(True) and race.winner == KERNELS:
            layer._compiled_call_impl = None
        return self.compiled(*args, **kwargs) if race.winner == OWN \
            else self.eager(*args, **kwargs)
