"""Graphs of relations over Gloo: ranks are processes of this machine, which run
the cases of distributed_relations_worker.py."""

import os

import numpy
import pytest
import torch

pytest.importorskip("torch_geometric")

import dfgnn  # noqa: E402
from dfgnn.distributed import HeteroPart, partition_relations  # noqa: E402

from test_distributed import passes  # noqa: E402

WORKER = os.path.join(os.path.dirname(__file__),
                      "distributed_relations_worker.py")


def test_two_ranks_equal_a_single_process():
    passes(2, "layers", "widths", "weights", "typed", "files", "errors",
           worker=WORKER)


def test_three_ranks_equal_a_single_process():
    passes(3, "layers", "typed", worker=WORKER)


def graph():
    return dfgnn.HeteroGraph(
        {("a", "x", "b"): torch.randint(4, (2, 9)),
         ("b", "y", "a"): torch.randint(4, (2, 7))}, {"a": 5, "b": 4})


def test_each_edge_is_of_one_part():
    whole = graph()
    parts = partition_relations(whole, 3)
    for number, (key, count) in enumerate(zip(whole.relations, whole.counts)):
        found = numpy.concatenate([
            part.edge_number[part.edge_type == number]
            for part in map(parts.part, range(3))])
        assert sorted(found.tolist()) == list(range(count)), key
    assert {k: len(v) for k, v in parts.owner.items()} == {"a": 5, "b": 4}


def test_a_damaged_file_is_refused(tmp_path):
    partition_relations(graph(), 2).save(tmp_path)
    path = tmp_path / "relations-0-of-2.npz"
    with numpy.load(path) as file:
        arrays = dict(file)
    arrays["edge_type"] = arrays["edge_type"] + 2
    numpy.savez(path, **arrays)
    with pytest.raises(ValueError, match="a relation that is not there"):
        HeteroPart.load(tmp_path, 0, 2)
    os.remove(path)
    with pytest.raises(FileNotFoundError, match="partition of relations"):
        HeteroPart.load(tmp_path, 0, 2)


def test_blocks_and_other_things_are_refused():
    block = dfgnn.HeteroGraph({("a", "x", "b"): torch.zeros(
        2, 1, dtype=torch.int64)}, {"a": (5, 2), "b": 3})
    with pytest.raises(ValueError, match="'a' has 5 sources and 2 dest"):
        partition_relations(block, 2)
    with pytest.raises(TypeError, match="must be a dfgnn.HeteroGraph"):
        partition_relations(torch.zeros(2, 3), 2)
    with pytest.raises(ValueError, match="no ranks for 'b'"):
        partition_relations(graph(), 2, {"a": torch.zeros(5)})
