"""Edge programs over a HeteroGraph."""

import pytest
import torch

import dfgnn
from dfgnn.programs import edge_program, softmax, sum_rel

NODES = {"a": 6, "b": (4, 3), "c": 5, "d": 0}
EDGES = {("a", "x", "b"): 9, ("b", "y", "a"): 7, ("a", "z", "b"): 0,
         ("c", "x", "a"): 5, ("c", "own", "c"): 6}


def sizes(side):
    return {kind: n if isinstance(n, int) else n[side]
            for kind, n in NODES.items()}


@pytest.fixture
def graph():
    torch.manual_seed(3)
    src, dst = sizes(0), sizes(1)
    return dfgnn.HeteroGraph({key: torch.stack(
        [torch.randint(src[key[0]], (n,)), torch.randint(dst[key[2]], (n,))])
        for key, n in EDGES.items()}, NODES)


def rows(counts, *shape):
    return {key: torch.randn(n, *shape, dtype=torch.float64,
                             requires_grad=True)
            for key, n in counts.items()}


def by_relation(*shape):
    return {key: torch.randn(*shape, dtype=torch.float64, requires_grad=True)
            for key in EDGES}


@edge_program
def related(i, j, e, r):
    score = (i.q * r.a * j.k).sum(-1) + e.b
    return softmax(score) * (j.v * r.scale)


def _by_loops(graph, q, k, v, b, a, scale):
    """The same, destination by destination."""
    outs = {kind: [] for kind in q}
    for kind, made in outs.items():
        for node in range(q[kind].size(0)):
            scores, values = [], []
            for key, (src, dst) in graph.edges_by_relation().items():
                if key[2] != kind:
                    continue
                for edge in (dst == node).nonzero().flatten().tolist():
                    source = src[edge]
                    scores.append((q[kind][node] * a[key] * k[key[0]][source]
                                   ).sum(-1, keepdim=True) + b[key][edge])
                    values.append(v[key[0]][source] * scale[key])
            made.append(q[kind][node] * 0 if not scores else (
                torch.stack(scores).softmax(0) * torch.stack(values)).sum(0))
    return {kind: torch.stack(made) if made else q[kind]
            for kind, made in outs.items()}


@pytest.mark.parametrize("composite", [False, True])
def test_a_softmax_over_all_relations(graph, composite):
    q, k, v = rows(sizes(1), 2, 4), rows(sizes(0), 2, 4), rows(sizes(0), 2, 4)
    b, a = rows(EDGES, 2, 1), by_relation(2, 4)
    scale = by_relation(2, 4)
    have = related(graph, i={"q": q}, j={"k": k, "v": v}, e={"b": b},
                   r={"a": a, "scale": scale}, composite=composite)
    want = _by_loops(graph, q, k, v, b, a, scale)
    assert list(have) == list(NODES)
    weights = {kind: torch.randn_like(t) for kind, t in want.items()}
    leaves = [t for given in (q, k, v, b, a, scale) for t in given.values()]
    grads = []
    for outs in (have, want):
        total = sum((outs[kind] * w).sum() for kind, w in weights.items())
        grads.append(torch.autograd.grad(total, leaves, allow_unused=True))
    for kind, out in want.items():
        torch.testing.assert_close(have[kind], out)
    for one, other in zip(*grads):
        zero = torch.zeros(1, dtype=torch.float64)
        assert (one is None) == (other is None) or float(
            (zero if one is None else one).abs().sum()) == 0
        if one is not None and other is not None:
            torch.testing.assert_close(one, other)


def test_results_of_edges_and_of_relations(graph):
    @edge_program(reduce=None)
    def product(i, j):
        both = i.q * j.k
        return both, sum_rel(both)
    q, k = rows(sizes(1), 3), rows(sizes(0), 3)
    by_edge, sums = product(graph, i={"q": q}, j={"k": k})
    for key, (src, dst) in graph.edges_by_relation().items():
        want = q[key[2]][dst] * k[key[0]][src]
        torch.testing.assert_close(by_edge[key], want)
        torch.testing.assert_close(sums[key], want.sum(0))


def test_tensors_of_all_rows_are_taken_as_they_are(graph):
    @edge_program
    def scaled(j, r):
        return j.v * r.scale
    v, scale = rows(sizes(0), 3), by_relation(3)
    have = scaled(graph, j={"v": torch.cat(list(v.values()))},
                  r={"scale": torch.stack(list(scale.values()))})
    want = scaled(graph, j={"v": v}, r={"scale": scale})
    for kind, out in want.items():
        assert torch.equal(have[kind], out)


def test_edges_of_one_list(graph):
    @edge_program
    def scaled(j, r):
        return j.v * r.scale
    edges, kinds = torch.tensor([[0, 1, 2], [1, 1, 0]]), torch.tensor([1, 0, 1])
    one = dfgnn.HeteroGraph.from_edge_types(edges, kinds, 3, 2)
    v, scale = torch.randn(3, 2), torch.randn(2, 2)
    have = scaled(one, j={"v": v}, r={"scale": scale})[""]
    want = torch.zeros(3, 2).index_add(0, edges[1],
                                       v[edges[0]] * scale[kinds])
    torch.testing.assert_close(have, want)


@pytest.mark.parametrize("given, message", [
    (lambda v: {"a": v["a"]}, "j.v has no 'b', which has 4 rows"),
    (lambda v: dict(v, z=v["a"]), "j.v has 'z', the graph has 'a', 'b'"),
    (lambda v: dict(v, a=v["a"][1:]), r"j.v\['a'\] must have 6 rows"),
    (lambda v: dict(v, b=torch.ones(4, 9)), "all must be of one width")])
def test_what_is_wrong_is_named(graph, given, message):
    @edge_program
    def total(j):
        return j.v
    with pytest.raises(ValueError, match=message):
        total(graph, j={"v": given(rows(sizes(0), 3))})


def test_the_text_and_the_problem_of_a_call(graph):
    given = dict(i={"q": rows(sizes(1), 2, 4)}, j={
        "k": rows(sizes(0), 2, 4), "v": rows(sizes(0), 2, 4)},
        e={"b": rows(EDGES, 2, 1)},
        r={"a": by_relation(2, 4), "scale": by_relation(2, 4)})
    assert "rel r_a[2,4]" in related.text(**given)
    assert "evaluator" in related.explain(**given)
    assert related.problem(graph, **given).program
