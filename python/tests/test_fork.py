"""Layers run in a worker that a process forks after it ran in parallel, as
DataLoader forks its workers."""
import multiprocessing
import queue

import torch

from dfgnn.nn import GATConv

from conftest import PATIENCE


def test_a_forked_worker_runs_a_layer():
    nodes = 3000
    edges = torch.randint(0, nodes, (2, 30000))
    layer = GATConv(16, 8, heads=4).eval()
    x = torch.randn(nodes, 16)

    def run():
        with torch.no_grad():
            return layer(x, edges)

    here = run()
    fork = multiprocessing.get_context("fork")
    for _ in range(2):
        answers = fork.Queue()
        worker = fork.Process(target=lambda: answers.put(run().tolist()))
        worker.start()
        try:
            there = torch.tensor(answers.get(timeout=PATIENCE))
        except queue.Empty:
            worker.kill()
            raise AssertionError("the forked worker hangs")
        worker.join()
        assert torch.equal(here, there)
    assert torch.equal(here, run())
