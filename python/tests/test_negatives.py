"""Pairs without an edge: which there are, how likely each is, and that nothing
waits for the device."""

import copy
import math
import random
from unittest import mock

import pytest
import torch

import dfgnn
from dfgnn import _remember, negatives
from dfgnn._counts import Counts

from conftest import random_edges

utils = pytest.importorskip("torch_geometric.utils")
pyg = pytest.importorskip("torch_geometric.nn")

from dfgnn.nn.pyg._functions import FUNCTIONS  # noqa: E402


def pairs_of(edges):
    return list(map(tuple, edges.t().tolist()))


def free_pairs(edges, n, m, kind):
    """The set of pairs of nodes without an edge, by definition."""
    known = set(pairs_of(edges))
    return {(i, j) for i in range(n) for j in range(m)
            if (i, j) not in known and (kind == "bipartite" or i != j)
            and (kind != "undirected" or (
                i < j and (j, i) not in known))}


@pytest.mark.parametrize("kind", ["directed", "undirected", "bipartite"])
@pytest.mark.parametrize("n, m, edges", [
    (1, 4, 2), (2, 1, 1), (5, 7, 9), (6, 6, 20), (40, 30, 60), (41, 41, 600)])
def test_every_pair_has_one_number(kind, n, m, edges):
    m = m if kind == "bipartite" else n
    total = negatives._pairs(n, m, kind)
    row, col = negatives._ends(torch.arange(total), n, m, kind)
    expected = free_pairs(torch.empty(2, 0), n, m, kind)
    assert set(zip(row.tolist(), col.tolist())) == expected
    assert len(expected) == total
    assert negatives._number(row, col, n, m, kind, total).tolist() == list(
        range(total))


@pytest.mark.parametrize("kind", ["directed", "undirected", "bipartite"])
@pytest.mark.parametrize("edges, wanted", [
    (0, 7), (9, None), (9, 1.5), (60, 10), (60, None), (400, 30),
    (3000, None), (60, 100000), (60, 0)])
def test_as_many_as_pyg_and_none_has_an_edge(kind, edges, wanted):
    n, m = (30, 25) if kind == "bipartite" else (30, 30)
    edges = torch.stack([torch.randint(n, (edges,)), torch.randint(m, (edges,))])
    if kind == "undirected":
        edges = torch.cat([edges, edges.flip(0)], 1)
    sizes = (n, m) if kind == "bipartite" else n
    for dtype in (torch.int64, torch.int32):
        found = dfgnn.negative_sampling(edges.to(dtype), sizes, wanted,
                                        force_undirected=kind == "undirected")
        free = free_pairs(edges, n, m, kind)
        pairs = pairs_of(found)
        if kind == "undirected":
            half = len(pairs) // 2
            assert pairs[half:] == [(j, i) for i, j in pairs[:half]]
            pairs = pairs[:half]
        count = edges.size(1) if wanted is None else wanted \
            if isinstance(wanted, int) else int(wanted * edges.size(1))
        count = count // 2 if kind == "undirected" else count
        assert len(pairs) == len(set(pairs)) == min(count, len(free))
        assert set(pairs) <= free
        if wanted == 0:
            continue  # an error of theirs
        # they have none where edges that come twice are as many as the pairs
        theirs = utils.negative_sampling(edges, sizes, wanted, "dense",
                                         kind == "undirected")
        assert theirs.size(1) in (found.size(1), 0)


def as_likely(counts, draws):
    """Whether counts are those of numbers that are as likely: chi squared within
    five standard deviations."""
    expected = draws / len(counts)
    chi = sum((c - expected) ** 2 / expected for c in counts)
    degrees = len(counts) - 1
    return abs(chi - degrees) < 5 * math.sqrt(2 * degrees)


@pytest.mark.parametrize("wanted", [3, 40])
def test_each_free_pair_is_as_likely(wanted):
    """Of few pairs, by draws; of many, by shuffling."""
    edges = torch.tensor([[0, 1, 1, 5, 7, 7, 7], [1, 0, 0, 5, 0, 1, 6]])
    free = free_pairs(edges, 8, 8, "directed")
    found = dict.fromkeys(free, 0)
    for _ in range(4000):
        for pair in pairs_of(dfgnn.negative_sampling(edges, 8, wanted)):
            found[pair] += 1
    share = 1 - wanted / len(free)  # without replacement they vary less
    assert len(free) == 51
    expected = 4000 * wanted / len(free)
    chi = sum((c - expected) ** 2 / expected for c in found.values()) / share
    assert abs(chi - 50) < 5 * math.sqrt(100)


@pytest.mark.parametrize("loops", [True, False])
def test_structured(loops):
    edges = torch.cat([random_edges(9, 9, 30), torch.tensor([[8, 8], [1, 1]])], 1)
    known = set(pairs_of(edges))
    counts = {}
    for _ in range(3000):
        i, j, k = dfgnn.structured_negative_sampling(edges, 9, loops)
        assert torch.equal(torch.stack([i, j]), edges)
        for pair in zip(i.tolist(), k.tolist()):
            counts[pair] = counts.get(pair, 0) + 1
    for i in set(edges[0].tolist()):
        free = {(i, k) for k in range(9) if (i, k) not in known and (
            loops or i != k)}
        assert free == {pair for pair in counts if pair[0] == i}
        draws = 3000 * int((edges[0] == i).sum())
        assert len(free) == 1 or as_likely([counts[p] for p in free], draws)


def test_a_node_with_edges_to_all():
    edges = torch.tensor([[0, 0, 1], [0, 1, 1]])
    with pytest.raises(dfgnn.InvalidError, match="2 edges begin at a node that "
                       "has edges to all 2 nodes"):
        dfgnn.structured_negative_sampling(edges, 2)


BATCH = torch.tensor([0] * 6 + [1] * 2 + [2] * 9 + [3])


def batch_edges(undirected=False):
    begins, parts = [0, 6, 8], []
    for begin, nodes, count in zip(begins, (6, 2, 9), (8, 2, 20)):
        parts.append(begin + random_edges(nodes, nodes, count))
    edges = torch.cat(parts, 1)
    return torch.cat([edges, edges.flip(0)], 1) if undirected else edges


@pytest.mark.parametrize("kind", ["directed", "undirected"])
@pytest.mark.parametrize("wanted", [None, 3, .5, 1000])
def test_batched(kind, wanted):
    edges = batch_edges(kind == "undirected")
    found = pairs_of(dfgnn.batched_negative_sampling(
        edges, BATCH, wanted, force_undirected=kind == "undirected"))
    if kind == "undirected":
        assert set(found) == {(j, i) for i, j in found}
        found = [pair for pair in found if pair[0] < pair[1]]
    free = free_pairs(edges, 18, 18, kind)
    for graph in range(4):
        inside = [(i, j) for i, j in found if BATCH[i] == graph]
        own = {(i, j) for i, j in free if BATCH[i] == BATCH[j] == graph}
        count = int((BATCH[edges[0]] == graph).sum())
        count = count if wanted is None else wanted \
            if isinstance(wanted, int) else int(wanted * count)
        count = count // 2 if kind == "undirected" else count
        assert set(inside) <= own and len(set(inside)) == len(inside)
        assert len(inside) == min(count, len(own))
    assert all(BATCH[i] == BATCH[j] for i, j in found)


def test_batched_of_two_kinds_of_nodes():
    src, dst = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 0, 1, 1])
    edges = torch.tensor([[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]])
    for _ in range(20):
        found = pairs_of(dfgnn.batched_negative_sampling(edges, (src, dst)))
        assert len(set(found)) == 5  # 3 of the 3 in one graph, 2 of 2
        assert set(found) == {(0, 2), (1, 0), (1, 1), (2, 4), (3, 3)}


def test_too_many_pairs_and_wrong_arguments():
    with pytest.raises(dfgnn.UnsupportedError, match="the graphs of the batch have "
                       "399980000 pairs of nodes, and at most"):
        dfgnn.batched_negative_sampling(torch.tensor([[0], [1]]),
                                        torch.zeros(20000, dtype=torch.long))
    with pytest.raises(ValueError, match="'sparse' or 'dense'.*got 'fast'"):
        dfgnn.negative_sampling(torch.tensor([[0], [1]]), method="fast")
    with pytest.raises(dfgnn.InvalidError, match=r"\[2, E\], got \[3\]"):
        dfgnn.negative_sampling(torch.arange(3))
    assert dfgnn.negative_sampling(torch.empty(2, 0, dtype=torch.long)).shape \
        == (2, 0)
    assert dfgnn.negative_sampling(torch.tensor([[0, 3], [1, 2]])).max() <= 3


# ---- models -----------------------------------------------------------------

def captured_step():
    """Where a step of dfgnn.capture() runs."""
    return _remember.recording(_remember.Recording(Counts(None)))


def test_accelerate_gives_them_to_captured_steps():
    model = pyg.GAE(pyg.GCNConv(8, 4))
    plain = copy.deepcopy(model)
    edges, x = random_edges(60, 60, 200), torch.randn(60, 8)
    report = dfgnn.accelerate(model)
    assert "GAE's own calls of negative_sampling" in str(report)
    z = model.encode(x, edges).detach()
    losses = []
    for m in (model, plain):  # a seed gives the pairs that it gave
        random.seed(3)
        losses.append([float(m.recon_loss(z, edges)) for _ in range(300)])
    assert losses[0] == losses[1]
    layer = pyg.SuperGATConv(8, 4)
    dfgnn.accelerate(torch.nn.ModuleList([layer]))
    with mock.patch("random.sample", side_effect=AssertionError), \
            captured_step():
        drawn = [float(model.recon_loss(z, edges)) for _ in range(300)]
        layer(x, edges).sum().backward()
        assert layer.get_attention_loss() > 0
    assert sum(drawn) == pytest.approx(sum(losses[1]), rel=.01)


def test_a_batch_beyond_the_most_pairs_is_drawn_by_pyg(monkeypatch):
    monkeypatch.setattr(negatives, "_MOST_SHUFFLED", 10)
    sample = FUNCTIONS[utils.batched_negative_sampling]
    with captured_step():
        assert sample(batch_edges(), BATCH).size(0) == 2
