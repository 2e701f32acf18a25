"""Edge programs with values of relations, angles, and axes that change places."""

import pytest
import torch

import dfgnn
from dfgnn import programs
from dfgnn.programs import edge_program
from test_edge_program import E, M, N, graph, rows  # noqa: F401 - a fixture


@edge_program(reduce=None)
def related(i, j, e, r):
    turned = torch.atan2(i.q + 3, j.k) * r.a + e.x.transpose(-1, -2)
    score = (turned * i.q).sum(-1) + r.b
    within = programs.mean_rel(turned)
    return (programs.sum_in(dfgnn.softmax(score) * (turned - within)),
            programs.max_rel(turned), turned[:, 0, 1:] + j.k[..., :1, 1:])


@pytest.mark.parametrize("count", (4, 5))
def test_relations_have_parameters_and_sums(graph, count):
    edges = graph.edge_index
    own = dfgnn.Graph.from_edge_index(edges, (M, N))
    relation = torch.randint(0, 4, (E,))
    relation[0] = 3
    own.set_relations(relation, count)
    given = {"i": {"q": rows(N, 2, 3)}, "j": {"k": rows(M, 2, 3)},
             "e": {"x": rows(E, 3, 2)},
             "r": {"a": rows(count, 2, 3), "b": rows(count, 2, 1)}}
    leaves = [t for part in given.values() for t in part.values()]
    found = []
    for composite in (False, True):
        out = related(own, **given, composite=composite)
        weighted = sum((x * x.detach().cos()).sum() for x in out)
        first = torch.autograd.grad(weighted, leaves, create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first),
                                     leaves)
        found.append([*out, *first, *second])
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)
    assert found[0][1].shape == (count, 2, 3)


def test_the_angle_of_the_origin_has_no_gradient(graph):
    y, x = (torch.zeros(N, 2, dtype=torch.double, requires_grad=True)
            for _ in range(2))
    angles = edge_program(lambda i, j, e: torch.atan2(i.y, i.x) + j.z)
    given = {"i": {"y": y, "x": x}, "j": {"z": rows(M, 2)}}
    for composite in (False, True):
        out = angles(graph, **given, composite=composite)
        first = torch.autograd.grad(out.sum(), (y, x))
        assert all(not bool(g.any()) for g in first)
    first = torch.autograd.grad(angles(graph, **given).sum(), (y, x),
                                create_graph=True)
    for g in torch.autograd.grad(sum(g.sum() for g in first), (y, x)):
        assert not bool(g.any())


def test_relations_that_are_wrong_are_named(graph):
    given = {"i": {"q": rows(N, 2, 3)}, "j": {"k": rows(M, 2, 3)},
             "e": {"x": rows(E, 3, 2)}, "r": {"a": rows(4, 2, 3),
                                             "b": rows(4, 2, 1)}}
    with pytest.raises(ValueError, match=r"r.a must be \[relations=0, \.\.\.\]"):
        related(graph, **given)
    with pytest.raises(ValueError, match="relation must have 30 numbers"):
        graph.set_relations(torch.zeros(3, dtype=torch.long))
    with pytest.raises(ValueError, match="relations are 0 to 7"):
        graph.set_relations(torch.arange(E) % 8, 4)


def test_axes_are_permuted_and_sliced(graph):
    @edge_program
    def turned(j):
        return j.x.permute(0, 3, 1, 2)[:, 1:, :, 0]
    x = rows(M, 2, 3, 4)
    out = turned(graph, j={"x": x})
    want = torch.zeros(N, 3, 2, 1, dtype=torch.double).index_add(
        0, graph.dst, x.permute(0, 3, 1, 2)[:, 1:, :, :1][graph.src])
    torch.testing.assert_close(out, want)


def test_a_program_is_tuned_and_its_choice_explained(store):
    @edge_program
    def gated(i, j):
        return torch.sigmoid(i.q + j.k) * torch.tanh(j.k)
    graph = dfgnn.as_graph(torch.randint(0, 40, (2, 300)), 40)
    tensors = {"i": {"q": torch.randn(40, 8, requires_grad=True)},
               "j": {"k": torch.randn(40, 8)}}
    for backward in (False, True):
        before = dfgnn.explain(graph, gated, **tensors, backward=backward)
        assert before["source"] == "rule"
        assert before["variant"].startswith("cpu.program.blocks/")
        report = dfgnn.tune(graph, gated, **tensors, backward=backward,
                            budget=.2)
        assert report["measured"] > 0 and report["wrong"] == 0
        after = dfgnn.explain(graph, gated, **tensors, backward=backward)
        assert after["source"] == "exact"
        assert after["variant"] == report["variant"]
    gated(graph, **tensors).sum().backward()
