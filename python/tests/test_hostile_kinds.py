"""What a message may read, draw, write and ask: each kind of thing that a trace
gets wrong which takes the first call's for ever."""

import collections
import copy
import dataclasses
import enum
import fractions
import random
import sys
import time
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from hostile import Reverse, different  # noqa: E402
from torch_geometric.nn import MessagePassing  # noqa: E402
from torch_geometric.utils import degree  # noqa: E402

GAIN = 1.0
TABLE = {"gain": 1.0}
HERE = sys.modules[__name__]


class Mode(enum.Enum):
    LOW = 1.0
    HIGH = 5.0


@dataclasses.dataclass
class Options:
    gain: float = 1.0


class Static:
    gain = 1.0


Named = collections.namedtuple("Named", "gain")


class Layer(MessagePassing):
    keep = 1.0

    def __init__(self, flow="source_to_target"):
        super().__init__(node_dim=0, flow=flow)
        self.number, self.options = np.float64(1.0), Options()
        self.mode, self.space = Mode.LOW, types.SimpleNamespace(gain=1.0)
        self.named, self.part = Named(1.0), fractions.Fraction(1)
        self.size, self.tau, self.text = torch.Size([1]), 1.0, "one"
        self.ordered = collections.OrderedDict(gain=1.0)
        self.items, self.table, self.log = [1.0], {"gain": 1.0}, {}
        self.function = lambda x: x
        self.kept, self.calls = None, 0
        self.register_buffer("mean", torch.zeros(1, dtype=torch.double))
        self.linear = torch.nn.Linear(2, 2).double()

    def forward(self, x, edge_index, **more):
        return self.propagate(edge_index, x=x, **more)


def _both(message, flow="source_to_target", keep=1.0):
    """A layer of a new class with this message, and a copy accelerated."""
    torch.manual_seed(1)
    message = types.FunctionType(
        message.__code__, message.__globals__, "message",
        message.__defaults__, message.__closure__)
    own = type("Kind", (Layer,), {"message": message, "keep": keep})(flow)
    ours = copy.deepcopy(own)
    return own, ours, dfgnn.accelerate(ours)


EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 2, 0, 2, 1]])
X = torch.tensor([[1.0, -2], [2, 1], [3, .5], [.5, 4], [0, 0]],
                 dtype=torch.double)


def _run(layer, x=X, edges=EDGES, **more):
    x = x.clone().requires_grad_()
    out = layer(x, edges, **more)
    grads = torch.autograd.grad(out.square().sum(), [x, *layer.parameters()],
                                allow_unused=True) if out.requires_grad \
        else ()
    return [out, *grads]


def _same(own, ours, **more):
    told = different(_run(ours, **more), _run(own, **more), torch.float64)
    assert told is None, told


# ---- what changes between calls ---------------------------------------------

def _set(name, value):
    return lambda layer: setattr(layer, name, value)


READ = {
    "np.float64": (lambda self, x_j: x_j * float(self.number),
                   _set("number", np.float64(3))),
    "np.float64 as it is": (lambda self, x_j: x_j * self.number,
                            _set("number", np.float64(3))),
    "enum": (lambda self, x_j: x_j * self.mode.value,
             _set("mode", Mode.HIGH)),
    "enum compared": (lambda self, x_j: x_j * (
        2 if self.mode is Mode.LOW else 3), _set("mode", Mode.HIGH)),
    "dataclass": (lambda self, x_j: x_j * self.options.gain,
                  lambda layer: setattr(layer.options, "gain", 7.0)),
    "namespace": (lambda self, x_j: x_j * self.space.gain,
                  lambda layer: setattr(layer.space, "gain", 7.0)),
    "namedtuple": (lambda self, x_j: x_j * self.named.gain,
                   _set("named", Named(4.0))),
    "fraction": (lambda self, x_j: x_j * float(self.part),
                 _set("part", fractions.Fraction(1, 3))),
    "torch.Size": (lambda self, x_j: x_j * self.size[0],
                   _set("size", torch.Size([5]))),
    "ordered dict": (lambda self, x_j: x_j * self.ordered["gain"],
                     lambda layer: layer.ordered.update(gain=2.0)),
    "list": (lambda self, x_j: x_j * self.items[0],
             lambda layer: layer.items.__setitem__(0, 2.0)),
    "length of a list": (lambda self, x_j: x_j * len(self.items),
                         lambda layer: layer.items.append(2.0)),
    "dict": (lambda self, x_j: x_j * self.table["gain"],
             lambda layer: layer.table.update(gain=2.0)),
    "key of a dict": (lambda self, x_j: x_j * (2 if "x" in self.table else 1),
                      lambda layer: layer.table.update(x=2.0)),
    "text": (lambda self, x_j: x_j if self.text == "one" else -x_j,
             _set("text", "two")),
    "float": (lambda self, x_j: x_j / self.tau, _set("tau", 0.25)),
    "float as an exponent": (lambda self, x_j: x_j.abs() ** self.tau,
                             _set("tau", 2.5)),
    "float of leaky_relu": (lambda self, x_j: F.leaky_relu(x_j, self.tau),
                            _set("tau", 0.25)),
    "int for a float": (lambda self, x_j: x_j * self.tau, _set("tau", 3)),
    "function": (lambda self, x_j: self.function(x_j),
                 _set("function", lambda x: 3 * x)),
    "class attribute": (lambda self, x_j: x_j * self.keep,
                        lambda layer: _keep(layer, 3.0)),
    "class attribute of type": (lambda self, x_j: x_j * type(self).keep,
                                lambda layer: _keep(layer, 3.0)),
    "another class": (lambda self, x_j: x_j * Static.gain,
                      lambda layer: setattr(Static, "gain", Static.gain + 2)),
    "global": (lambda self, x_j: x_j * GAIN,
               lambda layer: setattr(HERE, "GAIN", HERE.GAIN + 2)),
    "global table": (lambda self, x_j: x_j * TABLE["gain"],
                     lambda layer: TABLE.update(gain=TABLE["gain"] + 1)),
    "buffer": (lambda self, x_j: x_j - self.mean,
               lambda layer: layer.mean.fill_(2)),
    "another buffer": (lambda self, x_j: x_j - self.mean, lambda layer:
                       setattr(layer, "mean", layer.mean + 1)),
    "training": (lambda self, x_j: x_j if self.training else 2 * x_j,
                 lambda layer: layer.eval()),
    "parameter": (lambda self, x_j: self.linear(x_j), lambda layer: setattr(
        layer.linear, "weight", torch.nn.Parameter(
            torch.eye(2, dtype=torch.double)))),
    "hook": (lambda self, x_j: self.linear(x_j), lambda layer:
             layer.linear.register_forward_hook(lambda m, i, out: 2 * out)),
    "message of the class": (lambda self, x_j: x_j, lambda layer: setattr(
        _kind(layer), "message", lambda self, x_j: 5 * x_j)),
    "forward of a module": (lambda self, x_j: self.linear(x_j), lambda layer:
                            setattr(layer.linear, "forward",
                                    lambda x: 2 * x)),
}


def _kind(layer):
    return next(c for c in type(layer).__mro__ if c.__name__ == "Kind"
                and "keep" in vars(c))


def _keep(layer, value):
    _kind(layer).keep = value


@pytest.mark.parametrize("name", READ)
def test_what_changes_is_seen(name):
    message, change = READ[name]
    own, ours, _ = _both(message)
    for _ in range(3):
        _same(own, ours)
    change(own)
    if name not in ("another class", "global", "global table",
                    "class attribute", "class attribute of type",
                    "message of the class"):
        change(ours)
    for _ in range(2):
        _same(own, ours)


def test_a_closure_that_changes_is_seen():
    gain = 1.0

    def message(self, x_j):
        return x_j * gain
    own, ours, _ = _both(message)
    for gain in (1.0, 2.0, 3.0, 4.0):
        _same(own, ours)


ARGUMENTS = {
    "np.float64": [np.float64(x) for x in (1, .75, .5, .25)],
    "np.float32": [np.float32(x) for x in (1, .75, .5, .25)],
    "float": [1.0, .75, .5, .25], "int": [1, 2, 3, 4],
    "bool": [True, False, True], "fraction": [
        fractions.Fraction(1, n) for n in (1, 2, 3)],
    "tensor": [torch.tensor(float(n), dtype=torch.double)
               for n in (1, 2, 3)],
    "enum": [Mode.LOW.value, Mode.HIGH.value],
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_that_changes_is_seen(name):
    own, ours, _ = _both(lambda self, x_j, tau: x_j / (0.5 + float(tau))
                         if name != "tensor" else x_j / (0.5 + tau))
    for tau in ARGUMENTS[name]:
        _same(own, ours, tau=tau)


def test_a_temperature_becomes_a_parameter():
    own, ours, report = _both(lambda self, x_j: x_j / self.tau)
    from dfgnn.nn.pyg import _traced
    for step in range(20):
        own.tau = ours.tau = 0.9 ** step
        _same(own, ours)
    function = _traced._function(_kind(ours), "propagate")
    assert len(report.traced) == 1 and len(function.known) <= 3


# ---- numbers of rows ----------------------------------------------------------

SIZES = {
    "len": lambda self, x_j: x_j / len(x_j),
    "int": lambda self, x_j: x_j / int(x_j.size(0)),
    "compared": lambda self, x_j: x_j * (2 if len(x_j) > 1000 else 1),
    "equal": lambda self, x_j: x_j if x_j.shape[0] == 5 else x_j * 0,
    "table": lambda self, x_j: x_j * {5: 2.0}.get(x_j.size(0), 3.0),
    "root": lambda self, x_j: x_j / x_j.size(0) ** 0.5,
    "half": lambda self, x_j: x_j * (x_j.size(0) // 2),
    "odd": lambda self, x_j: x_j if x_j.size(0) % 2 else -x_j,
    "full": lambda self, x_j: x_j * torch.full_like(x_j, len(x_j)),
    "nodes": lambda self, x_j, size_i: x_j / size_i,
    "numel": lambda self, x_j: x_j / x_j.numel(),
    "arange": lambda self, x_j: x_j * torch.arange(
        len(x_j), dtype=x_j.dtype).view(-1, 1),
    "mean of edges": lambda self, x_j: x_j - x_j.mean(0),
    "hash": lambda self, x_j: x_j * (hash(x_j.size(0)) % 7),
}


@pytest.mark.parametrize("name", SIZES)
def test_numbers_of_rows_are_themselves(name):
    own, ours, _ = _both(SIZES[name])
    for edges in (EDGES, EDGES[:, :4], EDGES.repeat(1, 3), EDGES[:, :1],
                  EDGES[:, :0]):
        _same(own, ours, edges=edges)


# ---- gradients of its own, hooks, randomness ------------------------------------

def _hooked(self, x_j):
    if x_j.requires_grad:
        x_j.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    return x_j * 3


def _without(self, x_j):
    with torch.no_grad():
        scale = x_j.sigmoid()
    return x_j * scale


def _checkpointed(self, x_j):
    return torch.utils.checkpoint.checkpoint(torch.tanh, x_j,
                                             use_reentrant=False)


GRADIENTS = {
    "reversed": lambda self, x_j: Reverse.apply(x_j),
    "reversed inside": lambda self, x_j: Reverse.apply(x_j * 2).tanh(),
    "hook": _hooked, "no_grad": _without, "checkpoint": _checkpointed,
    "detach": lambda self, x_j: x_j.detach() * x_j,
    "asks": lambda self, x_j: x_j * (2 if x_j.requires_grad else 3),
    "asks of a mode": lambda self, x_j: x_j * (
        2 if torch.is_grad_enabled() else 3),
    "straight through": lambda self, x_j: x_j + (x_j.round() - x_j).detach(),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_the_layers_own(name):
    own, ours, _ = _both(GRADIENTS[name])
    _same(own, ours)
    with torch.no_grad():
        assert torch.equal(own(X, EDGES), ours(X, EDGES))


RNG = random.Random(0)
DRAWS = {
    "random": lambda self, x_j: x_j * random.random(),
    "uniform": lambda self, x_j: x_j * random.uniform(1, 2),
    "an object's": lambda self, x_j: x_j * RNG.random(),
    "numpy": lambda self, x_j: x_j * float(np.random.rand()),
    "numpy's generator": lambda self, x_j: x_j * float(
        np.random.normal(0, 1)),
    "torch": lambda self, x_j: x_j * torch.rand(1, dtype=x_j.dtype),
    "torch like": lambda self, x_j: x_j + torch.randn_like(x_j),
    "bernoulli": lambda self, x_j: x_j * torch.bernoulli(
        torch.full_like(x_j, 0.5)),
    "item": lambda self, x_j: x_j * torch.rand(1).item(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_is_drawn_each_time(name):
    own, ours, _ = _both(DRAWS[name])
    found = []
    for layer in (own, ours):
        layer(X, EDGES)  # what the first call's check draws is its own
        random.seed(3), np.random.seed(3), torch.manual_seed(3), RNG.seed(3)
        found.append([layer(X, EDGES) for _ in range(3)])
    torch.testing.assert_close(*found)
    assert not torch.equal(found[0][0], found[0][1])


def test_the_time_is_that_of_the_call():
    own, ours, _ = _both(lambda self, x_j: x_j * (time.time() % 1000))
    first = ours(X, EDGES)
    time.sleep(0.01)
    assert not torch.equal(first, ours(X, EDGES))


@pytest.mark.parametrize("message", [
    lambda self, x_j: F.dropout(x_j, 0.5, self.training),
    lambda self, x_j, x_i: F.dropout(x_i, 0.5, self.training) + 0 * x_j,
    lambda self, x_j: F.dropout(x_j.tanh(), 0.5) * 2,
    lambda self, x_j: self.linear(F.dropout(x_j, 0.5))],
    ids=["x_j", "x_i", "function", "before a map"])
def test_dropout_is_drawn_by_edge(message):
    """Edges of one node drop apart: the sums of two graphs, in which a node
    sends to many or receives from many, have many values."""
    _, ours, report = _both(message)
    x = torch.ones(41, 2, dtype=torch.double)
    many = torch.arange(1, 41)
    out = ours(x, torch.stack([torch.zeros_like(many), many]))[1:]
    assert len(out.unique(dim=0)) > 1
    into = ours(x, torch.stack([many, torch.zeros_like(many)]))[0]
    if "linear" not in str(report):
        assert 0 < abs(float(into.detach().sum()))
    if "training" in message.__code__.co_names:
        ours.eval()
        assert torch.equal(ours(x, EDGES), ours(x, EDGES))


# ---- what it writes ---------------------------------------------------------

def _stores(self, x_j):
    self.log["w"] = x_j.sigmoid()
    return x_j * self.log["w"]


def _sets(self, x_j):
    self.kept = x_j.tanh()
    return self.kept


def _counts(self, x_j):
    self.calls += 1
    return x_j * self.calls


def _appends(self, x_j):
    self.items.append(x_j.sigmoid())
    return x_j * len(self.items)


def _running(self, x_j):
    self.mean = 0.9 * self.mean + 0.1 * x_j.detach().mean()
    return x_j - self.mean


def _in_place(self, x_j):
    self.mean.mul_(0.5).add_(1)
    return x_j - self.mean


def _read_and_written(self, x_j):
    before = x_j - self.mean
    self.mean.add_(1)
    after = x_j + self.mean
    self.kept = self.mean.mul_(2)
    return before - after.tanh() + self.mean


def _of_argument(self, x_j):
    return x_j.mul_(2)


def _deletes(self, x_j):
    self.kept = x_j.tanh()
    out = self.kept * 2
    del self.kept
    return out


def _asks_and_deletes(self, x_j):
    if hasattr(self, "kept"):
        del self.kept
    self.kept = x_j.tanh()
    return self.kept


def _pops(self, x_j):
    self.log["w"] = x_j.tanh()
    self.items.append(x_j)
    return self.log.pop("w") * self.items.pop()


WRITES = {"dict": _stores, "attribute": _sets, "counter": _counts,
          "list": _appends, "buffer": _running, "buffer in place": _in_place,
          "buffer read and written": _read_and_written,
          "argument": _of_argument, "deletes": _deletes,
          "asks and deletes": _asks_and_deletes, "pops": _pops}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_stays(name):
    own, ours, report = _both(WRITES[name])
    for _ in range(4):
        _same(own, ours)
        assert own.calls == ours.calls
        assert vars(own).keys() == vars(ours).keys()
        torch.testing.assert_close(*[
            [getattr(one, "kept", None), *one.log.values(), *one.items[1:],
             *one.state_dict().values()] for one in (own, ours)])
    if name.startswith(("buffer ", "deletes")):
        assert report.traced and not report.kept, report
    for layer in own, ours:  # torch copies no results of calls
        layer.kept = None
        layer.log.clear()
        del layer.items[1:]
    again = copy.deepcopy(ours)
    dfgnn.accelerate(ours, undo=True)
    _same(own, ours)
    assert list(again.state_dict()) == list(own.state_dict())


@pytest.mark.parametrize("name", [n for n in WRITES if "buffer" in n])
def test_torch_compile_reads_a_buffer_before_it_is_written(name):
    own, ours, _ = _both(WRITES[name])
    torch._dynamo.reset()
    fast = torch.compile(ours, backend="aot_eager")
    for _ in range(3):
        torch.testing.assert_close(fast(X, EDGES), own(X, EDGES))
        torch.testing.assert_close(ours.mean, own.mean)


# ---- numbers that are no real ones -------------------------------------------

TIME = 1_700_000_001
WHOLE = {
    "difference": lambda self, x_i, x_j, t_i, t_j: x_j * (t_i - t_j),
    "equal": lambda self, x_i, x_j, t_i, t_j: x_j * (t_i == t_j),
    "bits": lambda self, x_j, t_j: x_j * (t_j & 3),
    "inverted": lambda self, x_j, t_j: x_j * ~(t_j - TIME),
    "bytes": lambda self, x_j, t_j: x_j * (t_j % 7).byte().sub(5),
    "sum of truths": lambda self, x_j: x_j * (
        (x_j > 0) + (x_j > 1)).to(x_j.dtype),
    "truncated": lambda self, x_j: x_j * (x_j * 1.5).long(),
    "divided": lambda self, x_j, t_j: x_j * (t_j // 2 - TIME // 2),
    "as a real number": lambda self, x_j, t_j: x_j * t_j - x_j * TIME,
}


@pytest.mark.parametrize("name", WHOLE)
def test_integers_are_whole(name):
    own, ours, _ = _both(WHOLE[name])
    for k in range(3):  # what the first call has tells little
        t = torch.zeros(5, 1, dtype=torch.long) if k == 0 else \
            torch.arange(5).view(-1, 1) + TIME
        _same(own, ours, **({} if name in (
            "sum of truths", "truncated") else {"t": t}), x=X * (k + 1) / 2)


CORNERS = {
    "relu6": lambda self, x_j: F.relu6(x_j),
    "hardtanh": lambda self, x_j: F.hardtanh(x_j),
    "clamp": lambda self, x_j: x_j.clamp(-1, 1),
    "threshold": lambda self, x_j: F.softplus(x_j, 1, 1),
    "max": lambda self, x_j, x_i: x_j.max(-1, keepdim=True)[0] * x_i,
    "min": lambda self, x_j: x_j.min(-1, keepdim=True).values * x_j,
    "amax": lambda self, x_j, x_i: x_j.amax(-1, keepdim=True) * x_i,
    "maximum": lambda self, x_j, x_i: torch.maximum(x_j, x_i),
    "abs": lambda self, x_j: x_j.abs(),
}


@pytest.mark.parametrize("name", CORNERS)
def test_gradients_at_corners_are_the_layers_own(name):
    own, ours, _ = _both(CORNERS[name])
    _same(own, ours)
    corners = torch.tensor([[0., 0], [1, 1], [-1, -1], [6, 6], [0, 1]],
                           dtype=torch.double)
    _same(own, ours, x=corners)


# ---- nodes without an edge --------------------------------------------------

ENDS = {
    "degree": lambda self, x_j, index, size_i: x_j / degree(
        index, size_i)[index].view(-1, 1),
    "degree of senders": lambda self, x_j, edge_index_j, size_j: x_j / degree(
        edge_index_j, size_j)[edge_index_j].view(-1, 1),
    "norm": lambda self, x_j: x_j / x_j.norm(dim=-1, keepdim=True),
    "map of a norm": lambda self, x_j: self.linear(
        x_j / x_j.norm(dim=-1, keepdim=True)),
    "map": lambda self, x_j: self.linear(x_j),
    "map of the receiver": lambda self, x_i, x_j: self.linear(x_i) * x_j,
    "log": lambda self, x_j: x_j.abs().log(),
    "map of a log": lambda self, x_j: self.linear(x_j.abs().log()),
    "reciprocal": lambda self, x_i, x_j: x_j / x_i,
    "product with a parameter": lambda self, x_j: x_j * self.linear.bias,
    "root": lambda self, x_j: x_j.abs().sqrt(),
    "two maps": lambda self, x_i, x_j: self.linear(x_i) + self.linear(x_j),
}


@pytest.mark.parametrize("number, name", enumerate(ENDS))
def test_nodes_without_an_edge_reach_nothing(number, name):
    own, ours, _ = _both(ENDS[name], (
        "source_to_target", "target_to_source")[number % 2])
    for value in 0.0, float("nan"), float("inf"):
        x = X.clone()
        x[-1] = value
        _same(own, ours, x=x)
        _same(own, ours, x=x, edges=EDGES[:, :2])


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_pairs_go_where_pyg_sends_them(flow):
    own, ours, _ = _both(lambda self, x_i, x_j: x_i * 2 + x_j, flow)
    x = X, X + 1
    assert torch.equal(own(x, EDGES), ours(x, EDGES))
