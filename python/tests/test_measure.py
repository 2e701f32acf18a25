"""Kernels are measured where a graph comes again (dfgnn._measure)."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import pytest
import torch

import dfgnn
from conftest import PATIENCE, close, random_edges
from dfgnn import _abi, _execute, _handle, _measure, _operators
from dfgnn._library import library

N, D = 300, 8


@pytest.fixture(autouse=True)
def measuring(store, monkeypatch):
    """Contexts of the test's own, with a store of its own."""
    monkeypatch.setattr(_measure, "_measured", set())
    monkeypatch.setattr(_measure, "_prepared", {})
    monkeypatch.setattr(_measure, "enabled", True)
    monkeypatch.setattr(_measure, "MOST_S", 60.)  # the machine may be busy


def graph_of(seed=1, edges=3000):
    torch.manual_seed(seed)
    return dfgnn.as_graph(random_edges(N, N, edges), N)


def inputs():
    return [torch.randn(N, D, requires_grad=True) for _ in range(3)]


def sources(graph):
    """The source of each plan that calls on the graph run by."""
    return [_abi.SOURCES[library().dfgnn_plan_source(call.plan.address)]
            for recipe in graph.handle.recipes.values()
            for call in getattr(recipe, "calls", {}).values()]


def preparations(monkeypatch):
    """A list of the Kernels that are made from now on."""
    prepared, made = [], _measure.Kernels.__init__

    def prepare(self, *given):
        prepared.append(self)
        made(self, *given)
    monkeypatch.setattr(_measure.Kernels, "__init__", prepare)
    return prepared


def attend(graph, tensors):
    return dfgnn.gt_attention(graph, *[t.unsqueeze(1) for t in tensors])[:, 0]


def step(graph, tensors):
    out = attend(graph, tensors)
    return out, torch.autograd.grad(out.square().sum(), tensors)


def expected(graph, tensors):
    q, k, v = (t.double() for t in tensors)
    src, dst = graph.indices.long(), graph.dst.long()
    score = (q[dst] * k[src]).sum(1) / D ** .5
    weight = (score - score.max()).exp()
    total = torch.zeros(N, dtype=torch.float64).index_add(0, dst, weight)
    weight = (weight / total[dst]).unsqueeze(1)
    return torch.zeros(N, D, dtype=torch.float64).index_add(
        0, dst, weight * v[src])


def test_the_third_call_measures_and_results_stay():
    graph, tensors = graph_of(), inputs()
    first = [step(graph, tensors) for _ in range(2)]
    assert not {"exact"} & set(sources(graph))
    kept = [t.detach().clone() for t in tensors]
    after = [step(graph, tensors) for _ in range(4)]
    assert sources(graph) == ["exact", "exact"]
    for out, grads in after:
        assert torch.equal(out, after[0][0])
        assert all(map(torch.equal, grads, after[0][1]))
    assert all(map(torch.equal, tensors, kept))
    wanted = expected(graph, tensors)
    for out, grads in first + after:
        close(out, wanted.float(), 1e-5)
        for grad, other in zip(grads, torch.autograd.grad(
                expected(graph, tensors).square().sum(), tensors)):
            close(grad, other, 1e-4)


def test_a_graph_that_is_made_again_is_not_measured_again():
    tensors = inputs()
    for _ in range(3):
        step(graph_of(2), tensors)
    graph = graph_of(2)
    for _ in range(3):
        step(graph, tensors)
    assert set(sources(graph)) == {"exact"}
    again = graph_of(2)
    step(again, tensors)
    assert set(sources(again)) == {"exact"}


def test_graphs_that_do_not_return_are_not_measured():
    tensors = inputs()
    for seed in range(3, 9):
        graph = graph_of(seed, 2000)
        for _ in range(2):
            step(graph, tensors)
        assert "exact" not in sources(graph)
    assert not _measure._measured


def test_the_batches_of_a_loader_are_measured_once():
    """Each has many layers, so that its calls come again within a step."""
    tensors, measured = inputs(), 0
    for seed in range(10, 15):
        graph = graph_of(seed, 2500)
        for _ in range(8):
            attend(graph, tensors)
        measured += "exact" in sources(graph)
    assert measured == 1


def test_kernels_are_compiled_for_later_batches(monkeypatch):
    """Compiling takes longer than the first of them live."""
    tensors, prepared = inputs(), preparations(monkeypatch)
    call = 0
    monkeypatch.setattr(_measure.Kernels, "ready", lambda self: call > 10)
    for seed in range(20, 26):
        graph = graph_of(seed, 2500)
        for _ in range(3):
            call += 1
            attend(graph, tensors)
        assert ("exact" in sources(graph)) == (seed == 23)
    assert len(prepared) == 1


def test_kernels_that_are_compiled_at_exit_are_released_before():
    """Threads of a compiler crash where its memory ends before them."""
    done = subprocess.run([sys.executable, "-c", """
import ctypes, torch, dfgnn
from dfgnn import _abi, _measure
from dfgnn._library import library
release = library().dfgnn_tune_release
class Library:
    def __getattr__(self, name):
        return getattr(library(), name)
    def dfgnn_tune_release(self, pointer):
        print("released", pointer.value is not None)
        release(pointer)
_measure.library = lambda: Library()
graph = dfgnn.as_graph(torch.tensor([[0, 1], [1, 0]]), 2)
x = torch.rand(2, 1, 4)
dfgnn.gt_attention(graph, x, x, x)
call, = next(iter(graph.handle.recipes.values())).calls.values()
kernels = _measure.Kernels(graph.handle, call.plan.wanted)
kernels.kept = kernels  # as by what lives as long as the process
"""], stdout=subprocess.PIPE, text=True, timeout=PATIENCE, check=True)
    assert done.stdout == "released True\n"


def test_graphs_of_two_calls_prepare_kernels_once(monkeypatch):
    """Blocks of a sampler end before they measure, in a model of two layers."""
    tensors, prepared = inputs(), preparations(monkeypatch)
    for seed in range(4):
        graph = graph_of(seed)
        for _ in range(2):
            step(graph, tensors)
    assert len(prepared) == 2  # of both passes
    for _ in range(3):  # a graph that comes again is measured all the same
        while not all(one.ready() for one in prepared):
            time.sleep(.01)
        step(graph, tensors)
    assert set(sources(graph)) == {"exact"}


def test_kernels_of_later_batches_are_not_looked_for(monkeypatch):
    """A step that makes its edges anew would pay for that each time."""
    tensors, prepared = inputs(), preparations(monkeypatch)
    for seed in range(40, 44):
        graph = graph_of(seed, 2500)
        for _ in range(8):
            attend(graph, tensors)
    assert len(prepared) == 1


@pytest.mark.parametrize("way", ["function", "deterministic", "effort",
                                 "DFGNN_DETERMINISTIC", "compile"])
def test_switches(way, monkeypatch):
    graph, tensors = graph_of(20), inputs()
    if way == "function":
        dfgnn.measure(False)
    elif way == "deterministic":
        torch.use_deterministic_algorithms(True)
    elif way == "effort":
        monkeypatch.setenv("DFGNN_EFFORT", "estimate")
    elif way == "compile":
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    else:
        monkeypatch.setenv("DFGNN_DETERMINISTIC", "1")
    try:
        for _ in range(5):
            step(graph, tensors)
    finally:
        torch.use_deterministic_algorithms(False)
    assert "exact" not in sources(graph)


def test_long_kernels_race(monkeypatch):
    monkeypatch.setattr(_measure, "MOST_S", 1e-9)
    graph, tensors = graph_of(21), inputs()
    wanted = expected(graph, tensors).float()
    for _ in range(_measure.RACE_CALLS + 1):
        close(attend(graph, tensors), wanted, 1e-5)
    recipe, = graph.handle.recipes.values()
    assert [call.again for call in recipe.calls.values()] == [None]
    monkeypatch.setattr(_handle, "_contexts", {})  # as of the next process
    assert dfgnn.explain(graph_of(21), "gt", D)["source"] == "near"


def test_threads_measure_once_and_get_right_results():
    graph, tensors = graph_of(22), [t.detach() for t in inputs()]
    wanted, found = expected(graph, tensors).float(), []

    def run():
        found.extend(attend(graph, tensors) for _ in range(10))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 40
    for out in found:
        close(out, wanted, 1e-5)
    assert sources(graph) == ["exact"]


def test_threads_that_plan_at_once_share_a_recipe_and_its_calls(monkeypatch):
    """Else the last one, which is young, keeps a choice that nobody measured."""
    graph, tensors = graph_of(22), [t.detach().unsqueeze(1) for t in inputs()]
    settings = _execute.sum_settings()
    together, found = threading.Barrier(4), []

    def waiting(make):
        def wait(*args):
            together.wait(PATIENCE)
            return make(*args)
        return wait
    monkeypatch.setattr(_operators, "Recipe", waiting(_operators.Recipe))
    monkeypatch.setattr(_execute, "Call", waiting(_execute.Call))

    def run():
        made = _operators.recipe(graph, "gt", tensors, settings)
        found.append((made, made.call(graph, False)))
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(set(found)) == 1


def test_programs_are_measured():
    @dfgnn.edge_program
    def weigh(i, j):
        return dfgnn.softmax(torch.tanh(i.q + j.k)) * j.v
    graph = graph_of(23)
    q, k, v = (t.detach() for t in inputs())

    def call():
        return weigh(graph, i={"q": q}, j={"k": k, "v": v})
    first, end = call(), time.monotonic() + PATIENCE
    while sources(graph) != ["exact"] and time.monotonic() < end:
        last = call()  # until its body is compiled
    assert sources(graph) == ["exact"]
    assert torch.equal(call(), last)
    close(last, first, 1e-5)


def test_sums_are_measured():
    graph, x = graph_of(23), torch.randn(N, D)
    for _ in range(4):
        out = dfgnn.spmm(graph, x)
    wanted = torch.zeros(N, D).index_add(0, graph.dst.long(),
                                         x[graph.indices.long()])
    close(out, wanted, 1e-5)
    assert sources(graph) == ["exact"]


def test_outputs_over_inputs_are_left_alone():
    graph, x = graph_of(24), torch.randn(N, D)
    for _ in range(2):
        dfgnn.spmm(graph, x)
    recipe, = graph.handle.recipes.values()
    call, = recipe.calls.values()
    tensors = [x, x.view(N, D)]
    assert _measure._tune(call.plan, x.device, call.form, tensors) == \
        _abi.ERROR_UNSUPPORTED


TEN_STEPS = """
import os, signal, torch, dfgnn, test_measure
graph, tensors = test_measure.graph_of(30), test_measure.inputs()
print(dfgnn.explain(graph, "gt", test_measure.D)["source"], flush=True)
for _ in range(10):
    test_measure.step(graph, tensors)
os.kill(os.getpid(), signal.SIGKILL)
"""


def rows_of(store):
    with contextlib.closing(sqlite3.connect(store)) as opened:
        return sorted(map(repr, opened.execute("SELECT * FROM measurement")))


def test_a_killed_process_has_measured_for_the_next(store):
    """Two at once, which share the store, and then this one."""
    env = {**os.environ, "DFGNN_MEASURE": "", "PYTHONPATH": os.pathsep.join(
        [os.path.dirname(__file__), *sys.path])}
    both = [subprocess.Popen([sys.executable, "-c", TEN_STEPS], env=env,
                             text=True, stdout=subprocess.PIPE)
            for _ in range(2)]
    first = []
    for process in both:
        output, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == -signal.SIGKILL
        first.append(output.split()[0])
    assert set(first) != {"exact"}  # the later one may find the other's rows
    known = rows_of(store)
    graph, tensors = graph_of(30), inputs()
    for _ in range(5):
        step(graph, tensors)
    assert set(sources(graph)) == {"exact"}
    assert known and rows_of(store) == known
