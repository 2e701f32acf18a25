"""dense_attention attends from each node to all nodes of its graph."""

import pytest
import torch

import dfgnn
from conftest import close

SIZES = [3, 1, 5, 2]


def inputs(device, heads=2, width=4):
    count = sum(SIZES)
    batch = torch.repeat_interleave(torch.tensor([0, 1, 3, 4]),
                                    torch.tensor(SIZES)).to(device)
    return batch, [torch.randn(count, heads, width, device=device,
                               dtype=torch.float64, requires_grad=True)
                   for _ in range(3)]


def by_graph(q, k, v, bias):
    """Graph after graph, by matrices; bias [graphs, heads, most, most]."""
    outs, first = [], 0
    for number, size in enumerate(SIZES):
        rows = slice(first, first + size)
        score = torch.einsum("ihd,jhd->hij", q[rows], k[rows]) * 4 ** -.5
        if bias is not None:
            score = score + bias[number, :, :size, :size]
        outs.append(torch.einsum("hij,jhd->ihd", score.softmax(-1), v[rows]))
        first += size
    return torch.cat(outs)


@pytest.mark.parametrize("biased", [False, True])
def test_each_graph_attends_to_itself(biased, place):
    batch, given = inputs(place)
    bias = torch.randn(4, 2, 6, 6, dtype=torch.float64, device=place,
                       requires_grad=True) if biased else None
    leaves = given + [bias] * biased
    found = []
    for out in (dfgnn.dense_attention(batch, *given, bias),
                by_graph(*given, bias)):
        found.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for a, b in zip(*found):
        close(a, b, 1e-12)


def test_a_bias_by_pairs_is_in_order_of_receiving_and_sending_nodes(place):
    batch, given = inputs(place)
    dense = torch.randn(4, 2, 5, 5, dtype=torch.float64, device=place)
    pairs = torch.cat([dense[n, :, :size, :size].permute(1, 2, 0).reshape(
        -1, 2) for n, size in enumerate(SIZES)])
    close(dfgnn.dense_attention(batch, *given, pairs),
          dfgnn.dense_attention(batch, *given, dense), 1e-12)


def test_gradients_of_gradients_are_right():
    batch, given = inputs("cpu")
    bias = torch.randn(4, 2, 5, 5, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradgradcheck(
        lambda *tensors: dfgnn.dense_attention(batch, *tensors),
        (*given, bias))


def test_the_pairs_of_a_batch_are_made_once(monkeypatch):
    from dfgnn import functional
    made = []
    real = functional._make_pairs
    monkeypatch.setattr(functional, "_make_pairs", lambda b: made.append(b) or real(b))
    batch, given = inputs("cpu")
    for _ in range(3):
        dfgnn.dense_attention(batch, *given)
    assert len(made) == 1


def test_wrong_arguments_are_named():
    batch, given = inputs("cpu")
    with pytest.raises(dfgnn.InvalidError, match="never fall"):
        dfgnn.dense_attention(batch.flip(0), *given)
    with pytest.raises(ValueError, match="4 graphs of at least 5 nodes"):
        dfgnn.dense_attention(batch, *given, torch.zeros(4, 2, 4, 4))
