"""dfgnn.capture: what is recorded and replayed, and what is refused, on a
FakeGpu; tests on a GPU see that replays are right."""

import copy
import gc
import importlib
import logging

import pytest
import torch
from torch.nn import functional as F

import dfgnn
from dfgnn import _handle, nn

from conftest import close, random_edges
from nn_layers import IN, LAYERS, of_edges

module = importlib.import_module("dfgnn._capture")
N, CLASSES = 20, 4
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class FakeGpu:
    """Records a step by running it and undoing what it wrote to the tensors in
    `state`; replays it by running it again."""

    state = ()

    def __init__(self, device):
        self.device = device
        self.strict = False

    def aside(self, run, strict):
        FakeGpu.waits = strict
        try:
            return run()
        finally:
            FakeGpu.waits = False

    def record(self, run):
        before = [t.clone() for t in FakeGpu.state]
        FakeGpu.waits = True
        try:
            results = run()
        finally:
            FakeGpu.waits = False
        for tensor, value in zip(FakeGpu.state, before):
            tensor.copy_(value)
        return run, results

    def replay(self, graph):
        FakeGpu.results = graph()


@pytest.fixture
def fake(monkeypatch):
    """Steps are recorded on a FakeGpu; a recorded step returns what its last
    run returned."""
    FakeGpu.state, FakeGpu.waits = (), False
    monkeypatch.setattr(module, "Gpu", FakeGpu)
    monkeypatch.setattr(module, "_device", lambda leaves: torch.device("cpu"))
    original = module._Step.__call__

    def call(self, leaves):
        recorded = self.graph is not None or not self.left
        found = original(self, leaves)
        return FakeGpu.results if recorded else found
    monkeypatch.setattr(module._Step, "__call__", call)


exec(compile("""
def wait(given=None):
    if FakeGpu.waits:
        raise RuntimeError("called a synchronizing CUDA operation")
    return given
def waiting(function):
    return lambda *args: wait(function(*args))
""", torch.__file__, "exec"))  # operations that wait, in a file of torch's


# ---- which recording a call takes -------------------------------------------

def test_each_call_is_one_step(fake):
    count = torch.zeros(())
    FakeGpu.state = (count,)

    def step(x):
        count.add_(1)
        return x * count
    captured = dfgnn.capture(step, warmup=3)
    for number in range(1, 8):
        assert captured(torch.ones(2)).tolist() == [number] * 2
        assert captured.recorded == (number > 3)
    assert "step): 1 recorded" in repr(captured)


def test_examples_are_recorded_at_once(fake):
    count = torch.zeros(())
    FakeGpu.state = (count,)

    def step(x, scale, *, shift):
        count.add_(1)
        return {"out": x * scale + shift, "none": None}
    captured = dfgnn.capture(lambda x, scale: step(x, scale, shift=1.0),
                             torch.ones(3), 2.0, warmup=4)
    assert count == 4 and captured.recorded == 1
    found = captured(torch.full((3,), 5.0), 2.0)
    assert found["out"].tolist() == [11.0] * 3 and found["none"] is None
    assert count == 5


def test_shapes_types_numbers_graphs_and_modes_have_recordings(fake):
    graphs = [dfgnn.as_graph(random_edges(N, N, 60), N) for _ in range(2)]
    layer = nn.GATConv(IN, 4)

    def step(graph, x, scale=1.0):
        return layer(x, graph) * scale
    captured = dfgnn.capture(step, warmup=2)
    calls = [(graphs[0], 4, 1.0), (graphs[1], 4, 1.0), (graphs[0], 4, 2.0)]
    for round_ in range(3):
        for graph, _, scale in calls:
            x = torch.randn(N, IN)
            close(captured(graph, x, scale=scale),
                  layer(x, graph).detach() * scale, 1e-5)
    assert captured.recorded == 3
    with torch.no_grad():
        for _ in range(3):
            captured(graphs[0], torch.randn(N, IN), scale=1.0)
    assert captured.recorded == 4
    captured.clear()
    assert captured.recorded == 0


def test_features_are_copied_in_and_results_are_copies(fake):
    x, captured = torch.ones(3), dfgnn.capture(lambda x: x + 1, warmup=2)
    results = [captured(x * number) for number in range(6)]
    assert [r[0].item() for r in results] == [1, 2, 3, 4, 5, 6]
    leaf = torch.ones(3, requires_grad=True)
    assert not dfgnn.capture(lambda x: x * 2)(leaf).requires_grad


@pytest.mark.parametrize("layers", ["dfgnn.nn", "dfgnn.nn.pyg"])
@pytest.mark.parametrize("name", ["GCNConv", "GATConv", "SAGEConv"])
def test_an_edge_index_that_graphs_are_made_of_is_no_input(fake, layers,
                                                           name):
    """A recording has the graph of its edge_index: another edge_index must not
    get it."""
    layer = getattr(importlib.import_module(layers), name)(IN, CLASSES)
    captured = dfgnn.capture(layer, warmup=2)
    edge_indices = [random_edges(N, N, 57) for _ in range(3)]
    for _ in range(5):
        for edges in edge_indices:
            x = torch.randn(N, IN)
            close(captured(x, edges), layer(x, edges).detach(), 1e-5)
    assert captured.recorded == 3


@pytest.mark.parametrize("name", ["GCNConv", "GATConv", "SAGEConv"])
def test_edges_of_the_surroundings_that_change_are_recorded_anew(fake, name):
    layer, edges = getattr(nn, name)(IN, CLASSES), random_edges(N, N, 60)
    captured = dfgnn.capture(lambda x: layer(x, edges), warmup=2)
    for round_ in range(3):
        for _ in range(4):
            x = torch.randn(N, IN)
            close(captured(x), layer(x, edges).detach(), 1e-5)
        assert captured.recorded == 1
        edges.copy_(random_edges(N, N, 60))


def test_beyond_the_limit_steps_run_plainly_and_the_log_says_so(fake, caplog):
    captured = dfgnn.capture(lambda x: x.sum(), warmup=2, limit=2)
    with caplog.at_level(logging.WARNING, "dfgnn"):
        for size in (1, 2, 3, 4) * 4:
            assert captured(torch.ones(size)) == size
    assert captured.recorded == 2
    assert len(caplog.records) == 1
    assert "2 recordings already" in caplog.records[0].message


def test_graphs_live_as_long_as_the_recording(fake):
    import weakref
    layer = nn.SAGEConv(IN, CLASSES)
    graph = dfgnn.as_graph(random_edges(N, N, 60), N)
    known, x = weakref.ref(graph), torch.randn(N, IN)
    captured = dfgnn.capture(lambda x: layer(x, known()), x, warmup=2)
    del graph
    assert known() is not None and captured(x).shape == (N, CLASSES)
    captured.clear()
    import gc
    gc.collect()
    assert known() is None


def of_own_edges(device="cpu"):
    """(a step whose edges are made of its arguments, what it computes)."""
    layers = [layer.to(device) for layer in (
        nn.GATConv(IN, CLASSES, add_self_loops=False), nn.SAGEConv(CLASSES, CLASSES))]
    first, second = (random_edges(N, N, 60, device) for _ in range(2))

    def step(x, shift):
        out = layers[0](x, (first + shift) % N)
        return layers[1](out, torch.stack([second[1], (second[0] * shift) % N]))
    return step


def check_own_edges(device):
    step = of_own_edges(device)
    captured = dfgnn.capture(step)
    for shift in range(8):
        given = torch.randn(N, IN, device=device), torch.tensor(shift, device=device)
        close(captured(*given), step(*given), 1e-5)
    assert captured.recorded == 1


def test_edges_that_a_step_makes_are_those_of_each_step(fake):
    check_own_edges("cpu")


def test_edges_of_a_step_that_is_over_keep_their_graph(fake):
    layer, edges, kept = nn.SAGEConv(IN, CLASSES), random_edges(N, N, 60), []

    def step(x, shift):
        kept.append((edges + shift) % N)
        return layer(x, kept[-1])
    captured, x = dfgnn.capture(step), torch.randn(N, IN)
    for shift in range(6):
        captured(x, torch.tensor(shift))
    for edges in kept:
        close(layer(x, edges), layer(x, edges.clone()), 1e-6)


@pytest.mark.parametrize("order", [1, -1])
def test_edges_written_before_the_last_warm_up_are_not_those_of_the_step(fake, order):
    layers = nn.SAGEConv(IN, CLASSES), nn.SAGEConv(IN, CLASSES)
    edges, lasting = random_edges(N, N, 60), random_edges(N, N, 60)

    def step(x, shift):
        calls = [lambda: layers[0](x, lasting),
                 lambda: layers[1](x, (edges + shift) % N)]
        return sum(call() for call in calls[::order])
    captured = dfgnn.capture(step, warmup=3)
    for shift in range(8):
        if shift == 2:
            lasting.copy_(lasting.flip(1).roll(1, 0))
        given = torch.randn(N, IN), torch.tensor(shift)
        out = captured(*given)
        close(out, sum(layer(given[0], e.clone()) for layer, e in zip(
            layers, (lasting, (edges + given[1]) % N))), 1e-5)
    assert captured.recorded == 1


@GPU
def test_edges_that_a_step_makes_on_the_gpu():
    check_own_edges("cuda")


def test_edges_of_no_nodes_that_a_step_makes_are_an_error(fake):
    layer, edges = nn.SAGEConv(IN, CLASSES), random_edges(N, N, 60)
    captured, x = dfgnn.capture(lambda x, more: layer(x, edges + more)), torch.randn(N, IN)
    for _ in range(5):
        captured(x, torch.tensor(0))
    captured(x, torch.tensor(N))
    with pytest.raises(dfgnn.InvalidError, match=f"{edges.size(1)} edges .* of their 20 "):
        captured(x, torch.tensor(0))
    captured(x, torch.tensor(0))


def test_graphs_that_end_in_a_recording_are_destroyed_after_it(monkeypatch):
    destroyed = []
    monkeypatch.setattr(_handle, "_destroy",
                        lambda pointer, plans: destroyed.append(pointer))
    monkeypatch.setattr(_handle.context(torch.device("cpu")), "on_gpu", True)
    pointers = []
    for recorded in (True, True, False):
        monkeypatch.setattr(_handle, "_is_recorded", lambda: recorded)
        assert not destroyed
        graph = dfgnn.as_graph(random_edges(N, N, 60), N)
        pointers.append(graph._handle.pointer)
        del graph
    assert sorted(destroyed) == sorted(pointers)


def test_a_training_step_goes_the_way_of_a_plain_one(fake):
    plain = nn.GATConv(IN, CLASSES)
    graph = dfgnn.as_graph(random_edges(N, N, 60), N)
    x, labels = torch.randn(N, IN), torch.randint(0, CLASSES, (N,))
    losses = []
    for captures in (False, True):
        model = copy.deepcopy(plain)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        FakeGpu.state = list(p.data for p in model.parameters())

        def step(x, labels):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x, graph), labels)
            loss.backward()
            optimizer.step()
            return loss
        if captures:
            step = dfgnn.capture(step, warmup=3)
        losses.append([float(step(x, labels).detach()) for _ in range(8)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert losses[0][-1] < losses[0][0]


# ---- what is refused --------------------------------------------------------

def test_arguments_are_checked():
    with pytest.raises(TypeError, match="step must be callable, got int"):
        dfgnn.capture(3)
    with pytest.raises(ValueError, match="warmup must be at least 2, got 1"):
        dfgnn.capture(print, warmup=1)


def test_objects_are_refused_by_name(fake):
    class Batch:
        pass
    with pytest.raises(TypeError, match="argument 1 of a captured step must "
                       "be a tensor.*pass the tensors that it holds"):
        dfgnn.capture(lambda x, batch: x)(torch.ones(2), Batch())


def reads_a_number(x):
    total = x.sum()
    wait(total).item()
    return total


def masks(x):
    return wait(x)[x > 0.5]


def moves(x):
    return wait(x).cpu()


def not_capturable(x):
    if FakeGpu.waits:
        raise RuntimeError(
            "Attempting CUDA graph capture of step() for an instance of Adam "
            "but param_groups' capturable is False.")
    return x


def makes_a_graph(x):
    return dfgnn.as_graph(wait(x).long()).degrees


@pytest.mark.parametrize("step, line, advice", [
    (reads_a_number, "(total).item()", "a number is read back"),
    (masks, "[x > 0.5]", "the shape of the result depends on values"),
    (moves, "(x).cpu()", "between host and device"),
    (not_capturable, "capturable is False", r"capturable=True"),
    (makes_a_graph, "as_graph", "make the graph before the step")])
def test_refusals_name_the_operation_and_what_to_do(fake, step, line, advice):
    captured = dfgnn.capture(step, warmup=2)
    x = torch.ones(2, 3)
    captured(x)
    with pytest.raises(dfgnn.CaptureError) as found:
        captured(x)
        captured(x)
    message = str(found.value)
    assert line in message and advice in message
    assert "test_capture.py:" in message
    assert captured.recorded == 0


def test_errors_of_the_step_itself_stay_what_they_are(fake):
    def step(x):
        raise KeyError("missing")
    with pytest.raises(KeyError, match="missing"):
        dfgnn.capture(step)(torch.ones(2))


# ---- plain execution --------------------------------------------------------

def test_on_the_cpu_the_step_runs_as_it_is():
    seen = []

    def step(x, graph):
        seen.append(x)
        return x * 2
    graph = dfgnn.as_graph(random_edges(N, N, 60), N)
    captured = dfgnn.capture(step, torch.ones(3), graph)
    assert not seen  # examples are for the GPU alone
    x = torch.ones(3)
    assert captured(x, graph).tolist() == [2, 2, 2] and seen[0] is x
    assert captured.recorded == 0


# ---- a GPU ------------------------------------------------------------------

@GPU
@pytest.mark.parametrize("edges_as", ["graph", "edge_index"])
@pytest.mark.parametrize("name", LAYERS)
def test_training_steps_of_every_layer(name, edges_as):
    plain, edges = LAYERS[name]().cuda(), random_edges(N, N, 60, "cuda")
    graph = dfgnn.as_graph(edges, N) if edges_as == "graph" else edges
    more = of_edges(name, edges)
    inputs = [torch.randn(N, IN, device="cuda") for _ in range(8)]
    found = []
    for captures in (False, True):
        model = copy.deepcopy(plain)
        optimizer = torch.optim.Adam(model.parameters(), 0.01,
                                     capturable=True) \
            if list(model.parameters()) else None

        def step(x, *more):
            if optimizer is not None:
                optimizer.zero_grad()
            loss = model(x, graph, *more).square().mean()
            if optimizer is not None:
                loss.backward()
                optimizer.step()
            return loss
        if captures:
            step = dfgnn.capture(step)
        found.append([float(step(x, *more).detach()) for x in inputs])
        if captures:
            assert step.recorded == 1
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@GPU
def test_dropout_draws_anew_in_each_replay():
    for layer in (nn.TransformerConv(IN, 4, dropout=0.5),
                  nn.GATConv(IN, 4, dropout=0.5)):
        layer = layer.cuda()
        graph = dfgnn.as_graph(random_edges(N, N, 200, "cuda"), N)
        x = torch.randn(N, IN, device="cuda")
        step = dfgnn.capture(lambda x: layer(x, graph), x)
        outs = [step(x) for _ in range(400)]
        assert not any(torch.equal(outs[0], out) for out in outs[1:50])
        close(torch.stack(outs).mean(0), layer.eval()(x, graph).detach(), 0.25)


@GPU
def test_inference_sees_parameters_that_change():
    layer = nn.GATConv(IN, CLASSES).cuda().eval()
    graph = dfgnn.as_graph(random_edges(N, N, 60, "cuda"), N)
    x = torch.randn(N, IN, device="cuda")
    with torch.no_grad():
        step = dfgnn.capture(lambda x: layer(x, graph), x)
        close(step(x), layer(x, graph), 1e-5)
        for p in layer.parameters():
            p.mul_(2.0)
        close(step(x), layer(x, graph), 1e-5)


@GPU
@pytest.mark.parametrize("step, advice", [
    (lambda x: x.sum().item(), "a number is read back"),
    (lambda x: x.unique(), "the shape of the result depends on values"),
    (lambda x: x.cpu() + 1, "between host and device")])
def test_what_cannot_be_captured_is_refused_on_the_gpu(step, advice):
    x = torch.rand(4, 4, device="cuda")
    with pytest.raises(dfgnn.CaptureError, match=advice):
        dfgnn.capture(step, x)
    # and the device goes on
    close(dfgnn.capture(lambda x: F.dropout(x, 0.5) * 0 + x, x)(x), x, 1e-6)
    assert F.dropout(x, 0.5).shape == x.shape


@GPU
def test_a_graph_that_a_step_makes_has_the_edges_of_each_replay():
    def step(x):
        return dfgnn.as_graph(x * 1).degrees * 1
    first, second = (torch.randint(0, 4, (2, 8), device="cuda") for _ in range(2))
    first[:, 0] = second[:, 0] = 3  # as many nodes
    captured = dfgnn.capture(step, first)
    for x in (second, first):
        assert captured(x).tolist() == x[1].bincount(minlength=4).tolist()


@GPU
def test_an_optimizer_that_is_not_capturable_is_refused():
    layer = torch.nn.Linear(4, 4).cuda()
    optimizer = torch.optim.Adam(layer.parameters())

    def step(x):
        optimizer.zero_grad()
        layer(F.dropout(x)).sum().backward()
        optimizer.step()
    with pytest.raises(dfgnn.CaptureError, match="capturable=True"):
        dfgnn.capture(step, torch.ones(2, 4, device="cuda"))
    x = torch.ones(64, device="cuda")
    assert not torch.equal(F.dropout(x), F.dropout(x))
    assert dfgnn.capture(lambda x: x + 1, x)(x)[0] == 2


@GPU
def test_padded_batches_have_a_recording_for_each_shape():
    layer = torch.nn.Linear(IN, 2).cuda()
    step = dfgnn.capture(lambda x: layer(x), warmup=2)
    for size in (16, 32, 64) * 4:
        x = torch.randn(size, IN, device="cuda")
        close(step(x), layer(x).detach(), 1e-5)
    assert step.recorded == 3


@GPU
def test_older_recordings_are_not_freed_while_one_is_made():
    """Freeing a CUDA graph while another is captured ends the capture."""
    def recorded():
        step = dfgnn.capture(lambda x: [x * k for k in range(50)][-1])
        for _ in range(4):
            step(torch.ones(4, device="cuda"))
        assert step.recorded == 1
        return step

    circle = [recorded()]
    circle.append(circle)
    del circle
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        recorded()
    finally:
        gc.set_threshold(*before)


# ---- torch.compile(mode="reduce-overhead") ----------------------------------

@pytest.mark.parametrize("edges_as", ["graph", "edge_index"])
@pytest.mark.parametrize("name", LAYERS)
def test_reduce_overhead(name, edges_as, place):
    """torch's own CUDA graphs hold the operators; on a CPU there are none, and
    the results must be the same."""
    pytest.importorskip("torch._inductor")
    if place.type == "cpu" and (edges_as == "graph" or name != "gat"):
        pytest.skip("one is enough where there are no CUDA graphs")
    torch._dynamo.reset()
    layer, edges = LAYERS[name]().to(place), random_edges(N, N, 60, place)
    edge_indices = [edges]
    if place.type == "cuda":
        edge_indices.append(random_edges(N, N, edges.size(1) - 3, place))
    compiled = torch.compile(layer, mode="reduce-overhead")
    if place.type == "cuda" and edges_as == "edge_index" and (
            "with" in name):
        with pytest.raises(RuntimeError, match=r"edge_index with features, "
                           r"weights.*give the layer dfgnn\.as_graph"):
            compiled(torch.randn(N, IN, device=place), edges,
                     *of_edges(name, edges))
        return
    for round_ in range(4):
        for edges in edge_indices:
            more = of_edges(name, edges)
            graph = dfgnn.as_graph(edges, N) if edges_as == "graph" else edges
            leaf = torch.randn(N, IN, device=place, requires_grad=True)
            outs = [f(leaf, graph, *more) for f in (compiled, layer)]
            close(outs[0], outs[1], 1e-4)
            weight = torch.randn_like(outs[1])
            grads = [torch.autograd.grad((out * weight).sum(), leaf)[0]
                     for out in outs]
            close(grads[0], grads[1], 1e-4, "gradients")
