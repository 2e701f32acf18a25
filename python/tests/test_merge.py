"""Attention over parts of the edges, and their merge."""

import pytest
import torch

import dfgnn
from conftest import close, random_edges

N, M, E, H, D = 40, 50, 300, 3, 8
OPS = ["gt", "agnn", "gat", "gatv2", "score"]


def inputs_of(op, device="cpu", dtype=torch.float32):
    def new(*shape):
        return torch.randn(*shape, device=device, dtype=dtype)
    return {"gt": lambda: (new(N, H, D), new(M, H, D), new(M, H, D)),
            "agnn": lambda: (new(M, H, D), new(1)),
            "gat": lambda: (new(M, H, D), new(N, H), new(M, H)),
            "gatv2": lambda: (new(N, H, D), new(M, H, D), new(H, D)),
            "score": lambda: (new(M, H, D),)}[op]()


def call(op, graph, inputs, score=None, **options):
    if op == "agnn":
        options["h_dst"] = inputs[0][:N]
    if op == "score":
        return dfgnn.score_attention(graph, score, *inputs, num_dst=N,
                                     **options)
    return getattr(dfgnn, op + "_attention")(graph, *inputs, **options)


def split(edges, parts):
    """Edges dealt out, so that many rows are empty in some part."""
    return [edges[:, (edges[1] * 7 + edges[0]) % parts == p]
            for p in range(parts)]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_parts_merge_to_the_whole_with_its_gradients(op, parts, place):
    edges = random_edges(M, N, E, place)
    pieces = split(edges, parts)
    edges = torch.cat(pieces, 1)
    inputs = inputs_of(op, place)
    score = torch.randn(edges.size(1), H, device=place)
    sizes = [p.size(1) for p in pieces]

    def leaves():
        return [t.clone().requires_grad_() for t in (*inputs, score)]
    whole, ours = leaves(), leaves()
    out, lse = call(op, dfgnn.as_graph(edges, (M, N)), whole[:-1], whole[-1],
                    return_lse=True)
    merged, log_sum = dfgnn.merge_attention([
        call(op, dfgnn.as_graph(p, (M, N)), ours[:-1], s, return_lse=True)
        for p, s in zip(pieces, ours[-1].split(sizes))])
    close(merged, out, 1e-5, "out")
    rows = lse > float("-inf")
    assert torch.equal(rows, log_sum > float("-inf"))
    assert not rows.all() and rows.any()
    close(log_sum[rows], lse[rows], 1e-5, "lse")
    grad, by_lse = torch.randn_like(out), torch.randn_like(lse)
    for result, log in ((out, lse), (merged, log_sum)):
        log = torch.where(rows, log, torch.zeros_like(log))
        ((result * grad).sum() + (log * by_lse).sum()).backward()
    for a, b in zip(ours, whole):
        if b.grad is not None:
            close(a.grad, b.grad, 2e-5, "a gradient")


@pytest.mark.parametrize("op", OPS[:4])
def test_lse_and_its_gradients_are_those_of_torch(op):
    edges = random_edges(M, N, E)
    graph = dfgnn.as_graph(edges, (M, N))
    inputs = [t.requires_grad_() for t in inputs_of(op, dtype=torch.float64)]
    given = [*inputs]
    if op == "agnn":
        given = [inputs[0][:N], inputs[0], inputs[1]]
    scores = dfgnn.edge_scores(op, graph, *(
        given[1:] if op == "gat" else given[:2] if op == "gt" else given))
    wanted = torch.stack([torch.logsumexp(scores[edges[1] == i], 0)
                          for i in range(N)])
    _, lse = call(op, graph, inputs, return_lse=True)
    rows = wanted.isfinite()
    assert torch.equal(rows, lse.isfinite())
    close(lse[rows], wanted[rows], 1e-12, "lse")
    weight = torch.randn_like(lse)[rows]
    mine = torch.autograd.grad((lse[rows] * weight).sum(), inputs,
                               allow_unused=True)
    theirs = torch.autograd.grad((wanted[rows] * weight).sum(), inputs,
                                 allow_unused=True)
    for a, b in zip(mine, theirs):
        if b is not None and a is not None:
            close(a, b, 1e-10, "a gradient of lse")
        else:
            assert (a is None or not a.any()) and (b is None or not b.any())


def test_gradients_are_derivatives():
    edges = random_edges(9, 8, 30)
    pieces = [dfgnn.as_graph(p, (9, 8)) for p in split(edges, 2)]
    inputs = [torch.randn(n, 2, 3, dtype=torch.float64, requires_grad=True)
              for n in (8, 9, 9)]

    def merged(*tensors):
        out, lse = dfgnn.merge_attention([
            dfgnn.gt_attention(g, *tensors, return_lse=True) for g in pieces])
        return out, lse.masked_fill(lse == float("-inf"), 0)
    assert torch.autograd.gradcheck(merged, inputs)
    assert torch.autograd.gradgradcheck(merged, inputs)


def test_lse_comes_with_weights_and_dropout():
    edges = random_edges(M, N, E)
    q, k, v = inputs_of("gt")
    out, weights, lse = dfgnn.gt_attention(edges, q, k, v, return_weights=True,
                                           return_lse=True)
    close(out, dfgnn.gt_attention(edges, q, k, v), 1e-6)
    scores = dfgnn.edge_scores("gt", edges, q, k)
    close(weights, (scores - lse[edges[1]]).exp(), 1e-5, "weights")
    torch.manual_seed(1)
    dropped = dfgnn.gt_attention(edges, q, k, v, dropout=0.5)
    torch.manual_seed(1)
    again, log_sum = dfgnn.gt_attention(edges, q, k, v, dropout=0.5,
                                        return_lse=True)
    close(again, dropped, 1e-6)
    torch.testing.assert_close(log_sum, lse)
    nothing, log_sum = dfgnn.gt_attention(edges, q, k, v, dropout=1.0,
                                          return_lse=True)
    assert not nothing.any()
    torch.testing.assert_close(log_sum, lse)


def test_dropout_draws_by_the_number_of_an_edge(place):
    edges = random_edges(M, N, E, place)
    edges = edges[:, edges[1].argsort(stable=True)]
    q, k, v = inputs_of("gt", place)
    number = torch.arange(edges.size(1), device=place)
    pieces = []
    for half in (number % 2 == 0, number % 2 == 1):
        graph = dfgnn.Graph.from_edge_index(edges[:, half], (M, N))
        graph.edge_number = number[half].contiguous()
        pieces.append(graph)
    torch.manual_seed(2)
    whole = dfgnn.gt_attention(dfgnn.as_graph(edges, (M, N)), q, k, v,
                               dropout=0.4)
    found = []
    for graph in pieces:
        torch.manual_seed(2)
        found.append(dfgnn.gt_attention(graph, q, k, v, dropout=0.4,
                                        return_lse=True))
    close(dfgnn.merge_attention(found)[0], whole, 1e-5)


def test_edge_features_merge():
    edges = random_edges(M, N, E)
    pieces = split(edges, 2)
    edges = torch.cat(pieces, 1)
    q, k, v = inputs_of("gt")
    attr = torch.randn(edges.size(1), 5)
    weight = torch.randn(H * D, 5)
    whole = dfgnn.gt_attention(dfgnn.as_graph(edges, (M, N)), q, k, v,
                               edge_attr=attr, edge_projection=weight)
    parts = [dfgnn.gt_attention(dfgnn.as_graph(p, (M, N)), q, k, v,
                                edge_attr=a, edge_projection=weight,
                                return_lse=True)
             for p, a in zip(pieces, attr.split([p.size(1) for p in pieces]))]
    close(dfgnn.merge_attention(parts)[0], whole, 1e-5)


def test_mistakes_are_named():
    out, lse = torch.zeros(4, 2, 3), torch.zeros(4, 2)
    with pytest.raises(ValueError, match="parts is empty"):
        dfgnn.merge_attention([])
    with pytest.raises(ValueError, match=r"parts\[0\] has 3 elements"):
        dfgnn.merge_attention([(out, lse, lse)])
    with pytest.raises(ValueError, match=r"out of parts\[1\].*expected"):
        dfgnn.merge_attention([(out, lse), (out[:3], lse[:3])])
    with pytest.raises(ValueError, match=r"lse of parts\[0\].*\[4, 2\]"):
        dfgnn.merge_attention([(out, lse[:2])])
