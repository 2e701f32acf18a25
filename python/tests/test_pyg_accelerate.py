"""dfgnn.accelerate: what it swaps, what it leaves, and that nothing else
changes."""

import copy
import functools
import io
import os
import pickle
import socket

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
import dfgnn.nn.pyg as ours
from conftest import PATIENCE, fast_copy, random_edges
from fuzz_pyg import Watch, near

N, WIDTH, CLASSES = 30, 8, 4


@pytest.fixture
def edges():
    return random_edges(N, N, 90)


@pytest.fixture
def x():
    return torch.randn(N, WIDTH, dtype=torch.float64)


def basic(name, edges):
    options = {}
    if name == "PNA":
        degree = torch.bincount(edges[1], minlength=N)
        options = dict(aggregators=["mean", "min", "max", "std"],
                       scalers=["identity", "amplification"],
                       deg=torch.bincount(degree))
    if name == "GAT":
        options = dict(heads=2, v2=True)
    return getattr(G, name)(WIDTH, 16, 3, CLASSES, **options).double()


def step(model, x, edges, *rest):
    """[output, gradient of x, gradients of parameters]."""
    x = x.detach().clone().requires_grad_()
    model.zero_grad()
    out = model(x, edges, *rest)
    out.square().sum().backward()
    return [out, x.grad] + [p.grad for p in model.parameters()]


def same(a, b, tolerance=1e-9):
    assert len(a) == len(b)
    for number, (one, other) in enumerate(zip(a, b)):
        assert (one is None) == (other is None), number
        if one is not None:
            near(one, other, tolerance, f"number {number}")


class Jumping(torch.nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.convs = torch.nn.ModuleList(
            [G.SAGEConv(WIDTH, WIDTH) for _ in range(3)])
        self.jump = G.JumpingKnowledge(mode, WIDTH, 3)

    def forward(self, x, edge_index):
        found = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            found.append(x)
        return self.jump(found)


# by name: a model, and the layers that are swapped
MODELS = {
    **{name: (functools.partial(basic, name), 3) for name in (
        "GCN", "GraphSAGE", "GAT", "GIN", "PNA", "EdgeCNN")},
    **{f"jumping {mode}": (lambda edges, mode=mode: Jumping(mode), 3)
       for mode in ("cat", "max", "lstm")},
    "deep": (lambda edges: G.DeepGCNLayer(
        G.GENConv(WIDTH, WIDTH, aggr="softmax", learn_t=True, num_layers=2,
                  norm="layer"), torch.nn.LayerNorm(WIDTH),
        torch.nn.ReLU(inplace=True), block="res+", dropout=0.0,
        ckpt_grad=True), 1),
    "sequential": (lambda edges: G.Sequential("x, edge_index", [
        (G.GCNConv(WIDTH, 16), "x, edge_index -> x"), torch.nn.ReLU(),
        (G.GATConv(16, CLASSES), "x, edge_index -> x")]), 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_train_alike_and_by_kernels(name, x, edges):
    make, layers = MODELS[name]
    plain = make(edges).double()
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    assert len(report.swapped) == layers and not report.kept
    with Watch() as watch:
        found = step(fast, x, edges)
    assert watch.count >= layers
    same(found, step(plain, x, edges))


def test_the_report_says_what_and_why(edges):
    class Own(G.GCNConv):
        pass
    model = torch.nn.ModuleDict({
        "fast": G.GATConv(4, 4), "slow": G.WLConv(), "own": Own(4, 4),
        "sent": Sent(),
        "linear": torch.nn.Linear(4, 4), "derived": type(
            "Mine", (ours.GINConv,), {})(torch.nn.Linear(4, 4))})
    report = dfgnn.accelerate(model)
    assert [(s.name, s.kind) for s in report.swapped] == [("fast", "GATConv")]
    assert [t.name for t in report.traced] == ["own"]
    assert [k.name for k in report.kept] == ["sent", "derived"]
    text = str(report)
    assert text.startswith("accelerated 1 of 4 layers; traced 1")
    assert "own: Own is traced by its first call" in text
    assert "sent: Sent stays as it is: its propagate is its own" in text
    assert isinstance(model["own"], Own) and type(model["own"]) is not Own


def test_a_second_time_changes_nothing(edges):
    model = basic("GCN", edges)
    dfgnn.accelerate(model)
    report = dfgnn.accelerate(model)
    assert not report.swapped and not report.kept
    assert [layer.name for layer in report.already] == \
        [layer.name for layer in report.served] == \
        ["convs.0", "convs.1", "convs.2"]
    assert str(report) == ("accelerated 0 of 3 layers; 3 were accelerated "
                           "already")


class Sent(G.MessagePassing):
    def forward(self, x, edges):
        return self.propagate(edges, x=x)

    def propagate(self, edge_index, size=None, **kwargs):
        return kwargs["x"]


class Mean(G.MessagePassing):
    def __init__(self):
        super().__init__(aggr="mean")

    def forward(self, x, edges):
        return self.propagate(edges, x=x)

    def message(self, x_j):
        return x_j


class Scored(Mean):
    def message(self, x_j, x_i, index):
        from torch_geometric.utils import softmax
        if x_j.sum() > 1e9:
            return x_j
        return softmax((x_i * x_j).sum(-1), index).unsqueeze(-1) * x_j


class Whole(torch.nn.Module):
    """A layer of each kind that a report tells apart."""

    def __init__(self):
        super().__init__()
        self.gcn = G.GCNConv(WIDTH, WIDTH)
        self.mean, self.scored = Mean(), Scored()
        self.gps = G.GPSConv(WIDTH, None, heads=2)
        self.act = torch.nn.ReLU(inplace=True)
        self.out = torch.nn.Linear(WIDTH, 512)

    def forward(self, x, edges):
        x = self.act(self.gcn(x, edges))
        return self.out(self.gps(self.scored(self.mean(x, edges), edges),
                                 edges))


def test_what_is_kept_has_a_next_step(edges):
    model = Whole()
    report = dfgnn.accelerate(model)
    assert [t.name for t in report.traced] == ["mean", "scored"]
    model(torch.randn(N, WIDTH), edges)
    assert [t.name for t in report.traced] == ["mean"]
    assert [k.name for k in report.kept] == ["scored"]
    assert "dfgnn.score_attention" in report.kept[0].next
    assert [(o.name, o.kind) for o in report.others] == [
        ("gps.attn", "MultiheadAttention")]
    text = str(report)
    assert "square of the largest graph" in text
    assert "mean: Mean runs by an edge program made of its messages" in text
    line = next(n for n, line in enumerate(open(__file__), 1)
                if "x_j.sum() > " + "1e9" in line)
    assert f"scored: Scored stays as it is: {__file__}, line {line}: bool() " \
        "asks what a tensor holds" in text


def test_after_times_a_step_by_layer(edges):
    model = Whole()
    x = torch.randn(N, WIDTH)
    report = dfgnn.accelerate(model)
    kinds = [type(m) for m in model.modules()]
    found = []

    def step():
        found.append(type(model.gcn) in ours.CLASSES.values())
        assert (type(model.mean) is not Mean) == found[-1]
        model(x, edges).sum().backward()
    times = report.after(step, rounds=2)
    assert [type(m) for m in model.modules()] == kinds
    assert found == [False, True] + [False, False, True, True] * 2
    assert [(t.name, t.kind) for t in times.layers] == [
        ("gcn", "GCNConv"), ("gps", "GPSConv"), ("mean", "Mean"),
        ("scored", "Scored")]
    assert all(t.before.ms > 0 and t.after.ms > 0 for t in times.layers)
    assert times.before.ms > 0 and times.gain > 0
    # the parts of a module are not told beside it
    assert not any(one.name.startswith("gps.") and other.name == "gps"
                   for one in times.others for other in times.others)
    assert str(times).startswith("a step takes ")
    assert not any(m._forward_hooks for m in model.modules())


def test_after_names_what_got_slower_and_what_fell_back(edges):
    import time

    model = torch.nn.ModuleDict({"sage": G.SAGEConv(WIDTH, WIDTH),
                                 "gcn": G.GCNConv(WIDTH, WIDTH)})
    report = dfgnn.accelerate(model)
    x = torch.randn(N, WIDTH)
    model["sage"].register_message_forward_hook(lambda *_: None)

    def slow(module, *_):
        if type(module) in ours.CLASSES.values():
            time.sleep(0.05)
    handle = model["gcn"].register_forward_pre_hook(slow)
    times = report.after(lambda: model["gcn"](
        model["sage"](x, edges), edges).sum().backward(), rounds=3)
    handle.remove()
    assert [(name, calls) for name, _, calls in times.fallbacks] == [
        ("sage", 1)]
    assert "a hook looks at its messages" in str(times)
    # the hook that sleeps runs before the clock's: it slows the step alone
    assert times.after.ms > times.before.ms + 25
    assert times.gain < 1


def test_after_blames_no_call_on_its_own_hooks():
    kinds = [("a", "to", "b"), ("b", "back", "a")]
    conv = G.HeteroConv({kind: G.SAGEConv(WIDTH, WIDTH) for kind in kinds})
    report = dfgnn.accelerate(conv)
    x = {kind: torch.randn(N, WIDTH) for kind in "ab"}
    edges = {kind: torch.randint(N, (2, 4 * N)) for kind in kinds}
    times = report.after(
        lambda: sum(y.sum() for y in conv(x, edges).values()).backward(),
        rounds=2)
    assert times.fallbacks == []


def test_a_slower_layer_is_named():
    from dfgnn._step_times import Spread, Times, Timed
    slow = Timed("gcn", "GCNConv", Spread(1.0, 0.98, 1.1),
                 Spread(1.2, 1.15, 1.3))
    same = Timed("gat", "GATConv", Spread(1.0, 0.8, 1.2),
                 Spread(1.2, 1.1, 1.3))
    times = Times(Spread(2.0, 2, 2), Spread(2.4, 2, 3), [slow, same], [], [])
    assert times.slower == [slow]
    assert "gcn: GCNConv" in str(times) and str(times).count("SLOWER") == 1


@pytest.mark.parametrize("step,error", [(None, TypeError), (3, TypeError)])
def test_a_step_that_is_none_is_refused(step, error):
    report = dfgnn.accelerate(G.GCNConv(2, 2))
    with pytest.raises(error, match="without arguments"):
        report.after(step)


@pytest.mark.parametrize("name", ["GCN", "GAT", "PNA"])
def test_undo_takes_it_back(name, x, edges):
    model = basic(name, edges)
    before = [type(m) for m in model.modules()]
    expected = step(model, x, edges)
    dfgnn.accelerate(model)
    step(model, x, edges)
    report = dfgnn.accelerate(model, undo=True)
    assert len(report.swapped) == 3
    assert [type(m) for m in model.modules()] == before
    with Watch() as watch:
        same(step(model, x, edges), expected)
    assert not watch.count


def test_parameters_hooks_and_state_stay(x, edges):
    model = basic("GAT", edges)
    parameters = list(model.parameters())
    keys = list(model.state_dict())
    seen = []
    model.convs[1].register_forward_hook(lambda *_: seen.append(1))
    dfgnn.accelerate(model)
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    assert list(model.state_dict()) == keys
    model(x, edges)
    assert seen == [1]
    assert repr(model) == repr(basic("GAT", edges))


def test_what_is_no_module_is_refused():
    with pytest.raises(TypeError, match="model must be a torch.nn.Module, got "
                       "function"):
        dfgnn.accelerate(lambda x: x)


def test_a_layer_that_was_explained_before_takes_kernels(x, edges):
    layer = G.SAGEConv(WIDTH, 4).double()
    layer.explain = True
    layer.explain = False
    dfgnn.accelerate(layer)
    with Watch() as watch:
        layer(x, edges)
    assert watch.count


@pytest.mark.parametrize("how", ["pickle", "torch.save", "deepcopy"])
@pytest.mark.parametrize("name", ["GCN", "GAT", "PNA"])
def test_copies_are_as_fast_and_equal(how, name, x, edges):
    model = basic(name, edges)
    dfgnn.accelerate(model)
    expected = step(model, x, edges)
    if how == "pickle":
        other = pickle.loads(pickle.dumps(model))
    elif how == "deepcopy":
        other = copy.deepcopy(model)
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        other = torch.load(file, weights_only=False)
    assert [type(m) for m in other.modules()] == [type(m) for m in
                                                  model.modules()]
    with Watch() as watch:
        same(step(other, x, edges), expected)
    assert watch.count


# ---- several processes ------------------------------------------------------

def _rank(rank, port, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=2)
    try:
        torch.manual_seed(1)
        graphs = [(torch.randn(N, WIDTH, dtype=torch.float64),
                   random_edges(N, N, 90)) for _ in range(2)]
        plain = basic("GCN", graphs[0][1])
        fast = fast_copy(plain)
        fast = torch.nn.parallel.DistributedDataParallel(fast)
        fast(*graphs[rank]).square().mean().backward()
        for x, edges in graphs:
            (plain(x, edges).square().mean() / 2).backward()
        worst = max(float((p.grad - q.grad).abs().max()) for p, q in
                    zip(fast.module.parameters(), plain.parameters()))
        results.put((rank, worst))
    finally:
        torch.distributed.destroy_process_group()


def test_ddp_over_two_processes():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = torch.multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    processes = [context.Process(target=_rank, args=(rank, port, results))
                 for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0
    found = dict(results.get() for _ in processes)
    assert set(found) == {0, 1} and max(found.values()) < 1e-12


def test_a_model_without_layers_of_edges_gets_a_next_step():
    text = str(dfgnn.accelerate(torch.nn.Linear(2, 2)))
    assert text.startswith("accelerated 0 of 0 layers\n")
    assert "looked for" in text and "dfgnn.aggregate" in text


def test_one_reason_is_said_once():
    class Sent(G.MessagePassing):
        def propagate(self, edge_index, x):
            return x

    model = torch.nn.ModuleList([Sent(), Sent(), G.GCNConv(2, 2)])
    lines = str(dfgnn.accelerate(model)).split("\n")
    assert lines[0] == "accelerated 1 of 3 layers"
    assert len([line for line in lines if "stays as it is" in line]) == 1
    assert any(line.startswith("  0, 1: Sent") for line in lines)
