"""accelerate() keeps the faster of the kernels and a layer's own path: what is
timed, what decides, and that nothing else is seen of it."""

import copy
import pickle
import random
import threading

import pytest
import torch
import torch_geometric.nn as G
from torch import nn
from torch.utils.checkpoint import checkpoint

import dfgnn
from conftest import random_edges
from dfgnn import _guard, _measure, _remember, graph
from dfgnn._guard import KERNELS, OWN, Guard, Guards, guarded

STEPS = _guard.MOST_STEPS


class Clock:
    now = 0.0


@pytest.fixture
def clock(monkeypatch):
    """A clock that the layers below move."""
    found = Clock()
    monkeypatch.setattr(_guard._Clock, "mark", lambda: found.now)
    return found


class Takes(torch.autograd.Function):
    """x itself, whose gradient takes some time."""

    @staticmethod
    def forward(ctx, x, clock, seconds):
        ctx.clock, ctx.seconds = clock, seconds
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.clock.now += ctx.seconds
        return grad, None, None


class Own(nn.Module):
    """A layer whose passes take (forward, backward) seconds by its own path and
    by kernels."""

    def __init__(self, clock, own, kernels, builds=False):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.clock, self.times = clock, {OWN: own, KERNELS: kernels}
        self.builds, self.paths = builds, []

    def take(self, x, path):
        self.paths.append(path)
        forward, backward = self.times[path]
        self.clock.now += forward
        return Takes.apply(x * self.weight, self.clock, backward)

    def forward(self, x, *edges):
        return self.take(x, OWN)


class Fast(Own):
    _dfgnn_base = Own

    @guarded
    def forward(self, x, *edges):
        graph.made += self.builds
        return self.take(x, KERNELS)


def layer(clock, own, kernels, group=None, **options):
    found = Fast(clock, own, kernels, **options)
    found._dfgnn_guard = Guard(group)
    return found


def train(model, steps=STEPS):
    for _ in range(steps):
        model(torch.ones(2, 3)).sum().backward()


@pytest.mark.parametrize("own, kernels, stays", [
    ((1, 1), (2, 1), OWN), ((2, 1), (1, 1), KERNELS), ((1, 1), (.5, 3), OWN),
    ((1, 3), (2, 1), KERNELS), ((1, 1), (1.01, 1.01), KERNELS),
    ((1, 1), (1.05, 1.05), OWN)], ids=str)
def test_the_faster_of_forward_and_backward_stays(clock, own, kernels, stays):
    one = layer(clock, own, kernels)
    guard = one._dfgnn_guard
    train(one)
    assert type(one) is (Own if stays == OWN else Fast)
    assert (guard.kept is None) == (stays == KERNELS)
    assert f"{2e3 * sum(own) / 2:.3g} ms by its library's own path" in \
        guard.reason
    before = len(one.paths)
    train(one, 5)
    assert one.paths[before:] == [stays] * 5


def test_a_clear_case_takes_few_steps(clock):
    one = layer(clock, (1, 1), (5, 5))
    train(one, 1 + _guard.WARM + 2 * _guard.RUN)
    assert type(one) is Own


def test_an_own_path_of_twice_the_time_runs_three_steps(clock):
    one = layer(clock, (5, 5), (1, 1))
    train(one)
    assert one.paths == [KERNELS] * (_guard.WARM + _guard.RUN) + [OWN] * 3 + [
        KERNELS] * (STEPS - _guard.WARM - _guard.RUN - 3)


def test_a_layer_that_a_step_calls_twice_is_decided_as_soon(clock):
    one = layer(clock, (1, 1), (5, 5))
    train(nn.Sequential(one, one), 1 + _guard.WARM + 2 * _guard.RUN)
    assert type(one) is Own


def test_a_step_may_leave_outputs_of_a_layer_alone(clock):
    class Twice(Fast):
        @guarded
        def forward(self, x):
            return x * 0, self.take(x, KERNELS)

        def own(self, x):
            return x * 0, self.take(x, OWN)
    one = Twice(clock, (1, 1), (5, 5))
    Twice._dfgnn_base = type("Own", (Own,), {"forward": Twice.own})
    one._dfgnn_guard = Guard()
    for _ in range(1 + _guard.WARM + 2 * _guard.RUN):
        one(torch.ones(2, 3, requires_grad=True))[1].sum().backward()
    assert type(one) is Twice._dfgnn_base


def test_parameters_without_a_shape_end_no_step():
    layer = G.SAGEConv((-1, -1), 4)  # of whose ends one is None
    dfgnn.accelerate(layer)
    x, edges = torch.randn(5, 3), random_edges(5, 4, 9)
    for _ in range(STEPS):
        layer((x, None), edges, size=(5, 4)).sum().backward()
    assert layer.lin_l.weight.grad is not None


def test_kernels_that_lose_race_again_once_better_ones_are_compiled(
        clock, monkeypatch):
    busy = [True]
    monkeypatch.setattr(_guard._measure, "compiling", lambda: busy[0])
    one = layer(clock, (1, 1), (5, 5))
    train(one)
    assert type(one) is Fast and set(one.paths[-10:]) == {OWN}
    assert one._dfgnn_guard.undecided
    # one time of the own path is enough to wait
    assert one.paths.count(KERNELS) == _guard.WARM + _guard.RUN
    busy[0], one.times[KERNELS] = False, (.5, .5)
    train(one)
    assert type(one) is Fast and set(one.paths[-10:]) == {KERNELS}


def test_the_race_waits_no_longer_than_it_may(clock, monkeypatch):
    monkeypatch.setattr(_guard._measure, "compiling", lambda: True)
    one = layer(clock, (2, 2), (1, 1))
    train(one)
    assert not one._dfgnn_guard.undecided and type(one) is Fast
    monkeypatch.setattr(_guard, "MOST_WAIT_S", 0)
    one = layer(clock, (1, 1), (5, 5))
    train(one)
    assert type(one) is Own


@pytest.mark.parametrize("gain, stays", [(1.2, Fast), (.8, Own)])
def test_a_machine_with_other_work_decides_little(clock, gain, stays):
    """Steps take three times as long in phases, and one of eight is of luck
    for a path or the other."""
    random.seed(3)
    right = 0
    for _ in range(40):
        one = layer(clock, (gain, gain), (1, 1))
        for n in range(STEPS):
            factor = random.choice([1] * 14 + [.3, 2]) * (1 + 2 * (n // 24 % 2))
            one.times = {OWN: (factor * gain, factor * gain),
                         KERNELS: (factor, factor)}
            train(one, 1)
        right += type(one) is stays
    assert right >= 34


def test_each_step_has_one_path(clock):
    one = layer(clock, (1, 1), (1.01, 1.01))
    for _ in range(STEPS // 2):
        before = len(one.paths)
        (one(torch.ones(2, 3)) + one(torch.ones(2, 3))).sum().backward()
        assert len(set(one.paths[before:])) <= 1 or len(one.paths) <= 10


def test_without_gradients_a_layer_has_a_choice_of_its_own(clock):
    one = layer(clock, (1, 5), (2, 1))
    train(one)
    with torch.no_grad():
        for _ in range(STEPS):
            one.eval()(torch.ones(2, 3))
    assert type(one) is Fast and one.paths[-1] == OWN
    train(one.train(), 1)
    assert one.paths[-1] == KERNELS


def test_a_call_that_raises_takes_no_time(clock):
    """It would halve the other calls' time, or divide by none."""
    one = layer(clock, (1, 1), (1.5, 1.5))
    for _ in range(STEPS):
        for _ in range(_guard.MOST_CALLS + 1):
            with pytest.raises(TypeError):
                one(torch.ones(2, 3), nothing=1)
            with pytest.raises(RuntimeError):
                one(torch.ones(2, 4))
        train(one, 1)
    assert type(one) is Own


@pytest.mark.parametrize("step", range(4))
def test_an_own_path_that_finds_no_memory_is_passed_over(clock, step):
    one, steps = layer(clock, (1, 1), (2, 2)), iter(range(9))

    def take(self, x, path):
        if path == OWN and next(steps) == step:
            raise torch.OutOfMemoryError
        return Own.take(self, x, path)
    one.take = take.__get__(one)
    train(one)
    assert type(one) is Fast and one.paths[-3:] == [KERNELS] * 3
    assert len(one.paths) == STEPS
    assert one._dfgnn_guard.reason.endswith("does not fit in memory")
    one.times[KERNELS] = (1, 1)
    one.take = lambda x, path: (_ for _ in ()).throw(torch.OutOfMemoryError)
    with pytest.raises(torch.OutOfMemoryError):  # that of kernels is told
        train(one, 1)


@pytest.mark.parametrize("free, paths", [
    (1 << 40, {KERNELS, OWN}), (None, {KERNELS, OWN}), (1 << 20, {KERNELS})])
def test_an_own_path_that_may_not_fit_is_not_tried(clock, monkeypatch, free,
                                                   paths):
    monkeypatch.setattr(_guard._device, "free_bytes", lambda device: free)
    monkeypatch.setattr(Guard, "rows", 1 << 24)  # of 9 edges of 12 bytes
    one, edges = layer(clock, (1, 1), (2, 2)), torch.zeros(2, 9).long()
    for _ in range(_guard.WARM + _guard.RUN + 1):
        one(torch.ones(2, 3), edges).sum().backward()
    assert set(one.paths) == paths


def test_an_own_path_is_not_seen_by_other_threads(clock):
    """The class of the layer stays while it runs, whose kernels are others'."""
    one = layer(clock, (1, 1), (2, 2))
    seen, own = [], []
    one.take = lambda x, path: (
        seen.append(type(one)), own.append(path), Own.take(one, x, path))[2]
    train(one, _guard.WARM + 2 * _guard.RUN)
    assert set(own) == {OWN, KERNELS} and set(seen) == {Fast}


@pytest.mark.parametrize("kernels", [.5, 2])
def test_a_forward_that_somebody_wraps_is_called_once(clock, kernels):
    """On the layer, as tools that move or time modules do, in a race and after
    the layer has its own class again."""
    one = layer(clock, (1, 1), (kernels, kernels))
    kept = one.forward
    one.forward = lambda x: 2 * kept(x)
    for _ in range(STEPS):
        out = one(torch.ones(2, 3))
        assert out.tolist() == [[2.0] * 3] * 2
        out.sum().backward()
    assert type(one) is (Own if kernels > 1 else Fast)


def test_what_threads_call_at_once_runs_by_kernels(clock):
    """It is in no race, and no class changes below it."""
    one = layer(clock, (1, 1), (2, 2))
    race = lambda: one._dfgnn_guard.races[True]  # noqa: E731
    inside, steps = [], []

    def beside():
        one.take = lambda x, path: (
            race().winner or inside.append(path), x)[1]
        one(torch.ones(2, 3))

    def take(x, path):
        before = race().steps
        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()
        steps.append(race().steps - before)
        one.take = take
        return Own.take(one, x, path)
    one.take = take
    train(one)
    assert set(inside) == {KERNELS} and not any(steps)
    assert race().winner == OWN and type(one) is Fast
    assert one.paths[-5:] == [OWN] * 5


def test_a_class_over_that_with_kernels_stays(clock):
    """Such as that of a parametrization or of FSDP."""
    one = layer(clock, (1, 1), (2, 2))
    one.__class__ = over = type("Over", (Fast,), {})
    train(one)
    assert type(one) is over and set(one.paths) == {KERNELS}


class Finds(G.MessagePassing):
    """Looks for itself, which is none of its attributes; calls are made again
    in the backward pass."""

    def __init__(self, layers, again):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.layers, self.again = [layers], again

    def inner(self, x, edge_index):
        at = list(self.layers[0]).index(self)
        return (at + 1) * self.propagate(edge_index, x=x)

    def forward(self, x, edge_index):
        if not self.again:
            return self.inner(x, edge_index)
        return checkpoint(self.inner, x, edge_index, use_reentrant=False)

    def message(self, x_i, x_j):
        return self.lin(x_i - x_j).tanh()


@pytest.mark.parametrize("again", [False, True])
def test_an_own_path_is_that_of_the_layer_itself(again):
    layers = nn.ModuleList()
    layers.extend(Finds(layers, again).double() for _ in range(2))
    theirs, edges = copy.deepcopy(layers), random_edges(5, 5, 12)
    dfgnn.accelerate(layers)
    for _ in range(STEPS):
        x = torch.randn(5, 4, dtype=torch.double)
        outs = []
        for model in layers, theirs:
            model.zero_grad()
            out = model[1](model[0](x, edges), edges)
            out.square().sum().backward()
            outs.append([out, *(p.grad for p in model.parameters())])
        torch.testing.assert_close(*outs)


def test_layers_that_share_a_new_graph_are_decided_together(clock):
    for gain, stays in ((3, Fast), (.5, Own)):
        group = Guards()
        # the first one makes the graph, which takes 2 s
        layers = [layer(clock, (1, 1), (3, 1), group, builds=True),
                  layer(clock, (1 + gain, 1), (1, 1), group)]
        train(nn.Sequential(*layers))
        train(nn.Sequential(*layers), 2)
        assert [type(one) for one in layers] == [stays] * 2
        # none makes the graph for itself alone, but where it is decided
        assert sum(a != b for a, b in zip(*(one.paths for one in layers))) < 2


def test_layers_that_share_a_new_graph_take_few_steps_where_it_is_clear(clock):
    group = Guards()
    layers = [layer(clock, (1, 1), (9, 9), group, builds=True),
              layer(clock, (1.1, 1.1), (1, 1), group)]
    train(nn.Sequential(*layers), 2 + _guard.WARM + 2 * _guard.RUN)
    assert [type(one) for one in layers] == [Own] * 2


def test_kernels_race_again_where_graphs_become_new(clock):
    one = layer(clock, (1, 1), (.9, .9))
    train(one)
    assert type(one) is Fast and not one._dfgnn_guard.undecided
    one.builds, one.times[KERNELS] = True, (2, 1)
    train(one, _guard.FRESH + STEPS)
    assert type(one) is Own
    two = layer(clock, (1, 1), (.4, .4), builds=True)
    train(two)
    before = len(two.paths)
    train(two, 2 * _guard.FRESH)  # it won with them
    assert set(two.paths[before:]) == {KERNELS}


@pytest.mark.parametrize("around", ["deterministic", "captured", "recorded",
                                    "traced"])
def test_where_steps_must_agree_kernels_run(clock, around, monkeypatch):
    one = layer(clock, (1, 1), (5, 5))
    if around == "deterministic":
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled",
                            lambda: True)
    elif around == "recorded":
        monkeypatch.setattr(_measure, "watching", _measure.Calls())
    elif around == "captured":
        monkeypatch.setattr(_remember, "current", _remember.Recording())
    else:
        torch.jit.trace(one, torch.ones(2, 3), check_trace=False)
        assert set(one.paths) == {KERNELS}
        return
    train(one)
    assert set(one.paths) == {KERNELS}


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_runs_what_it_ran_before(clock, reentrant):
    one = layer(clock, (1, 1), (5, 5))
    with torch.no_grad():
        for _ in range(STEPS):
            one.eval()(torch.ones(2, 3))
    one.train().paths.clear()
    for _ in range(STEPS):
        x = torch.ones(2, 3, requires_grad=True)
        checkpoint(lambda x: one(one(x)), x,
                   use_reentrant=reentrant).sum().backward()
    assert set(one.paths) == {KERNELS}


def test_a_dfgnn_graph_goes_to_kernels(clock):
    edges = random_edges(9, 9, 30)
    conv = G.SAGEConv(4, 4)
    report = dfgnn.accelerate(conv)
    for _ in range(STEPS):
        conv(torch.randn(9, 4), dfgnn.as_graph(edges, 9)).sum().backward()
    assert not report.times and not report.kept


def test_copies_and_pickles_begin_anew(clock):
    model = nn.ModuleList([G.SAGEConv(4, 4)])
    dfgnn.accelerate(model)
    edges = random_edges(9, 9, 30)
    for _ in range(6):
        model[0](torch.randn(9, 4), edges).sum().backward()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other[0]) is type(model[0])
        assert other[0]._dfgnn_guard.races == {}
        other[0](torch.randn(9, 4), edges).sum().backward()


class Net(nn.Module):
    """Layers with buffers and random numbers outside of their messages."""

    def __init__(self):
        super().__init__()
        self.first = G.GINConv(nn.Sequential(
            nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(.5),
            nn.Linear(8, 8)))
        self.second = G.SAGEConv(8, 8, aggr="max")
        self.third = G.ResGatedGraphConv(8, 8)

    def forward(self, x, edges):
        x = self.first(x, edges).relu()
        return self.third(self.second(x, edges).relu(), edges)


def test_buffers_random_numbers_hooks_and_gradients_are_those_of_one_step():
    torch.manual_seed(3)
    plain = Net().double()
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    called = {"plain": 0, "fast": 0}
    edges, x = random_edges(30, 30, 90), torch.randn(30, 8).double()
    for name, net in (("plain", plain), ("fast", fast)):
        def count(*_, name=name):
            called[name] += 1
        net.first.register_forward_hook(count)
        net.second.lin_l.weight.register_hook(lambda g, c=count: c())
    for number in range(STEPS):
        states = []
        for net in (plain, fast):
            torch.manual_seed(number)
            net.zero_grad()
            out = net(x, edges)
            out.square().sum().backward()
            states.append([out, *[p.grad for p in net.parameters()],
                           *net.buffers(), torch.get_rng_state()])
        torch.testing.assert_close(*states)
    assert called["plain"] == called["fast"] == 2 * STEPS
    assert set(report.times) == {"first", "second", "third"}
    assert all("by kernels" in text for text in report.times.values())
    # nothing is left on a parameter
    assert all(p._backward_hooks is None or len(p._backward_hooks) <= 1
               for p in fast.parameters())


def test_the_report_says_which_layers_keep_their_own_path(monkeypatch):
    monkeypatch.setattr(_guard.Race, "_totals", lambda self, path: len(
        self.samples[path]) * [
            {OWN: 1.0, KERNELS: 2.0}[path] / max(1, self.rows)])
    model = Net()
    report = dfgnn.accelerate(model)
    edges, x = random_edges(30, 30, 90), torch.randn(30, 8)
    times = report.after(lambda: model(x, edges).sum().backward(), rounds=1)
    assert not report.served and not times.fallbacks
    assert [layer.name for layer in report.kept] == ["first", "second",
                                                     "third"]
    assert "second: SAGEConv stays as it is: a call takes 1 ms by its " \
        "library's own path, 2 ms by kernels" in repr(report)
    assert type(model.second) is G.SAGEConv


def test_without_a_guard_nothing_is_timed():
    model = Net()
    report = dfgnn.accelerate(model, guard=False)
    edges, x = random_edges(30, 30, 90), torch.randn(30, 8)
    for _ in range(STEPS):
        model(x, edges).sum().backward()
    assert not report.times and type(model.second).__module__ == \
        "dfgnn.nn.pyg"


def test_undo_ends_the_race():
    model = Net()
    dfgnn.accelerate(model)
    dfgnn.accelerate(model, undo=True)
    assert type(model.second) is G.SAGEConv
    assert "_dfgnn_guard" not in vars(model.second)


def test_another_devices_clock_is_that_of_its_stream(device):
    if device.type == "cpu":
        pytest.skip("a CPU's calls end before they return")
    model = Net().to(device)
    report = dfgnn.accelerate(model)
    edges, x = random_edges(300, 300, 900, device), torch.randn(
        300, 8, device=device)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(3):
            model(x, edges).sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for _ in range(STEPS):
        model(x, edges).sum().backward()
    assert set(report.times) == {"first", "second", "third"}


# ---- compile=True -----------------------------------------------------------

def test_a_model_is_compiled_where_that_is_faster(clock, monkeypatch):
    for eager, compiled in ((1, 3), (3, 1)):
        torch.manual_seed(0)
        model, times = Net(), {"eager": eager, "compiled": compiled}
        real = model._call_impl

        def timed(name, real=real, times=times):
            def call(*args, **kwargs):
                clock.now += times[name]
                return real(*args, **kwargs)
            return call
        monkeypatch.setattr(torch, "compile", lambda _: timed("compiled"))
        report = dfgnn.accelerate(model, guard=False, compile=True)
        report.compilation.eager = timed("eager")
        edges, x = random_edges(30, 30, 90), torch.randn(30, 8)
        for _ in range(STEPS + 3):
            model(x, edges).sum().backward()
        before = clock.now
        model(x, edges)
        # the model alone, without a clock, where nothing is left to decide
        assert clock.now - before == (1 if compiled == 1 else 0)
        assert "as torch.compile makes it" in repr(report)
        dfgnn.accelerate(model, undo=True)
        assert model._compiled_call_impl is None


def test_a_step_that_is_recorded_has_no_marks(monkeypatch):
    """Parameters keep the hooks of the last step before a capture."""
    layer, x = torch.nn.Linear(4, 4), torch.ones(2, 4)
    sample = _guard._Sample(_guard.KERNELS, [x], True)
    out = sample.run(lambda: layer(x), layer, [x])
    monkeypatch.setattr(_guard._Clock, "recorded", staticmethod(lambda: True))
    out.sum().backward()
    assert sample.began is None and sample.ended is None
    sample.close()
