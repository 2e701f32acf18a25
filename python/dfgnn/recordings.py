"""The problems that a step of a model meets, recorded to be tuned now, later or
elsewhere."""

import contextlib
import json
import os
import statistics
import time

import torch

from . import _abi, _execute, _handle, _measure, _tuned, _ways
from ._checks import counted
from ._program_handle import named
from ._step_times import spread, tensors_in
from .convert import read
from .errors import InvalidError

_FORMAT = 1
WAY_TURNS = 3  # of each way of a choice, in which two steps are timed
_PROGRAM = "program"  # the operator whose shape is a text
_OPS = {**_abi.OPS, _PROGRAM: _abi.OP_PROGRAM}
# the fields of a problem in a file, and the names of those that have names
_NAMED = {"op": _OPS, "pass": _abi.PASSES, "dtype": _abi.DTYPES,
          "math": {"f32": _abi.MATH_F32, "tf32": _abi.MATH_TF32},
          "layout": {"nhd": 0, "ndh": 1}}
_COUNTS = ("heads", "dim", "deterministic", "weights", "bias", "dropout",
           "edge_dim", "edge_use", "message")


def _name_of(names, number):
    return next(name for name, value in names.items() if value == number)


def _as_json(problem):
    fields = {field: _name_of(
        names, getattr(problem, "pass_" if field == "pass" else field))
        for field, names in _NAMED.items()}
    if fields["op"] == _PROGRAM:
        fields["program"] = f"{problem.owner.hash:016x}"
        fields["program_text"] = problem.owner.text
    return dict(fields, index="i32",
                **{field: getattr(problem, field) for field in _COUNTS})


def _as_problem(fields, program):
    """The problem that _as_json() wrote; program: an edge program's name."""
    fields = dict(fields)
    fields.pop("index", None)
    wanted = {"pass_" if field == "pass" else field: _NAMED[field][value]
              if field in _NAMED else value for field, value in fields.items()}
    if fields["op"] != _PROGRAM:
        return _abi.Problem(max_workspace=-1, **wanted)
    for field in ("program", "program_text"):
        del wanted[field]
    owner = named(program)
    problem = _abi.Problem(max_workspace=-1, program=owner.pointer, **wanted)
    problem.owner = owner
    return problem


class TimedProblem:
    """A problem on a graph as a step had it.

    text: the problem in words; name: the graph's, or its size.
    calls: a step's; ms: the milliseconds of all of them, the median of the
        steps that were recorded; noise: half the distance of the quartiles of
        these over it.
    """

    def __init__(self, handle, problem, device, steps):
        self.handle, self.problem, self.device = handle, problem, device
        self.calls = len(steps[0])
        self.spread = spread([sum(step) for step in steps])
        self.ms, self.noise = self.spread.ms, self.spread.noise

    @property
    def text(self):
        entry = _as_json(self.problem)
        text = entry.get("program", entry.get("program_text"))
        if text:
            return " ".join((entry["op"], entry["pass"], text, entry["dtype"]))
        words = [entry["op"], entry["pass"],
                 f"{entry['heads']}x{entry['dim']}", entry["dtype"]]
        words += [name for name in ("bias", "dropout", "weights")
                  if entry[name]]
        if entry["edge_dim"]:
            words.append("edges projected" if entry["edge_dim"] ==
                         _abi.EDGE_PROJECTED else f"edges {entry['edge_dim']}")
        if entry["message"]:
            words.append(_name_of(_abi.MESSAGES, entry["message"]))
        return " ".join(words)

    @property
    def name(self):
        csr = _handle.csr_of(self.handle)
        return csr.name.decode() if csr.name else \
            f"{csr.destinations} nodes, {csr.edges} edges"

    def __repr__(self):
        return (f"{self.text} on {self.name}: "
                f"{counted(self.calls, 'call')}, {self.spread}")


def _header(folder):
    """The contents of a folder's recording.json; raises if it is none."""
    path = os.path.join(folder, "recording.json")
    if not os.path.exists(path):
        raise FileNotFoundError(
            f"{path} does not exist; {folder} has "
            f"{', '.join(sorted(os.listdir(folder))[:4]) or 'no file'}")
    with open(path, encoding="utf-8") as file:
        try:
            header = json.load(file)
        except ValueError:
            header = None
    if not isinstance(header, dict) or \
            header.get("dfgnn_recording") != _FORMAT:
        raise InvalidError(f"{path}: found no recording of format "
                           f"{_FORMAT}, which Recording.save() writes")
    return header


class Recording:
    """The problems of a step, those that cost most first: ``problems``,
    a list of :class:`TimedProblem`."""

    def __init__(self, problems, name=None):
        self.problems = sorted(problems, key=lambda timed: -timed.ms)
        self.name = name

    @property
    def ms(self):
        """The milliseconds of a step that kernels took."""
        return sum(timed.ms for timed in self.problems)

    def __repr__(self):
        graphs = len({id(timed.handle) for timed in self.problems})
        lines = [f"{counted(len(self.problems), 'problem')} on "
                 f"{counted(graphs, 'graph')}, "
                 f"{self.ms:.3g} ms of kernels a step"]
        return "\n".join(lines + [f"  {timed!r}" for timed in self.problems])

    def _graphs(self):
        """[(handle, device, name)] of the graphs, in the order of their
        problems."""
        handles = {}
        for timed in self.problems:
            handles.setdefault(id(timed.handle), (timed.handle, timed.device))
        number = [""] + [f" {k}" for k in range(2, len(handles) + 1)]
        return [(handle, device, self.name + number[k] if self.name else
                 (_handle.csr_of(handle).name or b"").decode())
                for k, (handle, device) in enumerate(handles.values())]

    def save(self, folder):
        """Writes the problems and their graphs into a folder, which
        Recording.load() and ``dfgnn-tune run --recorded`` take. It may be
        new, empty or hold a recording, which is replaced."""
        folder = os.fspath(folder)
        os.makedirs(folder, exist_ok=True)
        if os.listdir(folder):
            _header(folder)
        graphs, place = [], {}
        for k, (handle, device, name) in enumerate(self._graphs()):
            place[id(handle)] = k
            graphs.append({"file": f"graph-{k}.npz", "name": name,
                           "family": (_handle.csr_of(handle).family
                                      or b"").decode()})
            _handle.write(handle, device,
                          os.path.join(folder, graphs[-1]["file"]))
        problems = [{"graph": place[id(timed.handle)], "calls": timed.calls,
                     "ms": timed.ms, "problem": _as_json(timed.problem),
                     "program": getattr(timed.problem, "owner", None)
                     and timed.problem.owner.name} for timed in self.problems]
        path = os.path.join(folder, "recording.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"dfgnn_recording": _FORMAT, "graphs": graphs,
                       "problems": problems}, file, indent=1)
        os.replace(path + ".new", path)

    @classmethod
    def load(cls, folder, device="cpu"):
        """The Recording of a folder, with its graphs on a device."""
        folder, device = os.fspath(folder), torch.device(device)
        header = _header(folder)
        graphs = []
        for one in header["graphs"]:
            graph = read(os.path.join(folder, one["file"]),
                         one["family"] or None)
            graphs.append(_handle.from_csr(
                graph.offsets.to(device), graph.indices.to(device),
                graph.num_src, graph.graph_ptr, one["family"] or None,
                one["name"] or None))
        problems = []
        for one in header["problems"]:
            timed = TimedProblem(graphs[one["graph"]], _as_problem(
                one["problem"], one.get("program")), device, [[one["ms"]]])
            timed.calls = one["calls"]
            problems.append(timed)
        return cls(problems)

    def tune(self, budget=60.0, progress=None):
        """Measures the kernels of the problems, those that cost most first and
        each for a share of budget (seconds) by its cost; returns by the place
        of a problem the library's dfgnn_tune_report as a dict."""
        names = {id(handle): (handle, name)
                 for handle, _, name in self._graphs()}
        began, reports = time.monotonic(), {}
        for k, timed in enumerate(self.problems):
            left = max(0.0, budget - (time.monotonic() - began))
            if k and left < 0.2:
                break
            costs = sum(m.ms for m in self.problems[k:]) or 1.0
            share = left * timed.ms / costs
            handle, name = names[id(timed.handle)]
            if self.name:
                handle = _handle.named(handle, name)
            reports[k] = _tuned.measure(
                handle.context.handle, handle.pointer, timed.problem,
                min(left, max(share, 0.5)), _step_progress(
                    progress, timed, k, len(self.problems)))
        _execute.forget_plans()
        return reports


def _step_progress(progress, timed, k, count):
    if progress is None:
        return None
    return lambda done, message: progress(
        (k + done) / count, f"{timed.text} on {timed.name}: {message}")


@contextlib.contextmanager
def _as_it_was(model, inputs):
    """Gives the gradients, the buffers and the random state back."""
    leaves = [t for t in tensors_in(inputs) if t.is_leaf and t.requires_grad]
    if isinstance(model, torch.nn.Module):
        leaves += list(model.parameters())
        buffers = [(b, b.clone()) for b in model.buffers()]
    else:
        buffers = []
    grads = [t.grad for t in leaves]
    devices = sorted({t.device.index for t in (*leaves, *tensors_in(inputs))
                      if t.device.type == "cuda"})
    for t in leaves:
        t.grad = None
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        for t, grad in zip(leaves, grads):
            t.grad = grad
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def one_step(model, inputs, kwargs, loss):
    """A forward, and a backward where there are gradients; a function that is
    no module does its own."""
    out = model(*inputs, **kwargs)
    if not isinstance(model, torch.nn.Module) and loss is None:
        return
    if loss is not None:
        total = loss(out)
    else:
        floats = [t for t in tensors_in(out) if t.requires_grad]
        if not floats:
            return
        total = sum(t.sum() for t in floats)
    if total.requires_grad:
        total.backward()


def record(model, *inputs, kwargs=None, loss=None, steps=5, name=None):
    """The :class:`Recording` of a step: every problem that it gives a kernel,
    on every graph, forward and backward, with its calls and their time.

    model: a module, which is run forward and backward as it is (train() or
        eval()) and keeps its parameters, buffers and gradients; or a function
        that does a step of its own.
    inputs, kwargs: what it is called with.
    loss: makes the number of the output that is differentiated; without it the
        sum of the output is.
    steps: how many steps are timed, after one that is not.
    name: a name for the graph, which measurements and reports show.
    """
    if not callable(model):
        raise TypeError("model must be a torch.nn.Module or a function, got "
                        f"{type(model).__name__}")
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    kwargs = kwargs or {}
    watched = []
    with _as_it_was(model, inputs):
        one_step(model, inputs, kwargs, loss)
        for _ in range(steps):
            with _measure.watch(_measure.Calls()) as calls:
                one_step(model, inputs, kwargs, loss)
            watched.append((calls, calls.milliseconds()))
    problems = {}
    for calls, _ in watched:
        problems.update(calls.problems)
    timed = [TimedProblem(*problems[key], [
        times[key] for _, times in watched if key in times])
        for key in problems]
    if not timed:
        raise InvalidError(
            "the step gave dfgnn no problem: dfgnn.accelerate(model) gives "
            "the layers of PyG and DGL its kernels, and its report says which "
            "layers keep their own and why")
    return Recording(timed, name)


class Tuned:
    """The gain of tuning a step: ``recording`` before and ``after``, the
    library's ``reports`` by place of the problem, ``ways``, a list of (name of
    a choice, the way before, ms of a step by each way), and the ``seconds`` it
    took."""

    def __init__(self, recording, reports, ways, after, seconds):
        self.recording, self.reports, self.ways = recording, reports, ways
        self.after, self.seconds = after, seconds

    @property
    def gain(self):
        """How many times as fast the kernels of a step are."""
        return self.recording.ms / self.after.ms if self.after.ms else 1.0

    def __repr__(self):
        before = self.recording
        lines = [f"tuned {len(self.reports)} of {len(before.problems)} "
                 f"problems in {self.seconds:.0f} s: the kernels of a step "
                 f"take {self.after.ms:.3g} ms, before {before.ms:.3g} ms "
                 f"({self.gain:.2f} times as fast)"]
        for k, timed in enumerate(before.problems):
            now = next((m for m in self.after.problems
                        if m.handle is timed.handle
                        and bytes(m.problem) == bytes(timed.problem)), None)
            text = f"  {timed!r}"
            if now is not None:
                text += f", now {now.spread}"
            if k in self.reports:
                text += f", by {self.reports[k]['variant']}"
            else:
                text += ", not tuned: the budget was spent"
            lines.append(text)
        for name, way, times in self.ways:
            lines.append(f"  {name}: {way}; a step takes " + ", ".join(
                f"{ms:.3g} ms by {one}" for one, ms in times.items()))
        return "\n".join(lines)


def _step_ms(model, inputs, kwargs, loss):
    """The ms of a step, whose layers are not timed meanwhile."""
    with _measure.watch(_measure.AS_IS):
        began = time.perf_counter()
        one_step(model, inputs, kwargs, loss)
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return 1e3 * (time.perf_counter() - began)


def _tune_ways(choices, budget, model, inputs, kwargs=None, loss=None, **_):
    """Times a step by each way of the choices that it meets, with that way's
    kernels tuned, and keeps the times; returns Tuned.ways."""
    timed, end = [], time.monotonic() + budget
    step = model, inputs, kwargs or {}, loss
    for number, (key, (name, ways, current)) in enumerate(choices.items()):
        left = max(0.0, end - time.monotonic()) / (len(choices) - number)
        if timed and left < 0.2:
            break
        times = {way: [] for way in ways}
        for turn in range(WAY_TURNS):
            for way in ways:
                with _ways.forced(**{key: way}), _as_it_was(model, inputs):
                    if not turn:
                        record(model, *inputs, kwargs=kwargs, loss=loss,
                               steps=1).tune(left / 2 / len(ways))
                    _step_ms(*step)  # makes its plans anew
                    times[way] += [_step_ms(*step) for _ in range(2)]
        ms = {way: statistics.median(each) for way, each in times.items()}
        _ways.keep(key, ms)
        timed.append((name, current, ms))
    return timed


def tune_step(model, *inputs, budget=60.0, progress=None, **options):
    """Records a step, tunes what costs most and the ways that it meets, and
    records it again; options are those of record()."""
    began = time.monotonic()
    with _ways.watch() as choices:
        before = record(model, *inputs, **options)
    reports = before.tune(budget / 2 if choices else budget, progress)
    ways = _tune_ways(choices, budget - (time.monotonic() - began), model,
                      inputs, **options)
    seconds = time.monotonic() - began
    return Tuned(before, reports, ways, record(model, *inputs, **options),
                 seconds)
