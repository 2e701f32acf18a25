"""Edge programs under torch.compile, torch.func, autocast and CUDA graphs,
against the same program outside of them."""

import pytest
import torch
import torch.nn.functional as F

import dfgnn
from dfgnn.programs import TraceError, edge_program

from conftest import random_edges, to
from test_edge_program import E, M, N, attention


@edge_program(reduce=None)
def mapped(i, j, e, weight, scale=2.0):
    gate = dfgnn.softmax(i.q - j.k + e.x) * F.linear(j.v, weight) * scale
    return gate, dfgnn.programs.max_in(gate), gate.detach()


@edge_program
def dropped(j):
    return F.dropout(j.v, 0.5)


@pytest.fixture
def call(place):
    edges = random_edges(M, N, E - 3)
    made = {"i": {"q": torch.randn(N, 3, 4)},
            "j": {"k": torch.randn(M, 3, 4), "v": torch.randn(M, 3, 4)},
            "e": {"x": torch.randn(E, 3, 4)}}
    made = {letter: {name: t.to(place).double().requires_grad_()
                     for name, t in named.items()}
            for letter, named in made.items()}
    return edges.to(place), made


def leaves_of(given):
    return [t for value in given.values()
            for t in (value.values() if isinstance(value, dict) else [value])
            if isinstance(t, torch.Tensor)]


def derived(function, graph, given):
    made = function(graph, **given)
    made = made if isinstance(made, tuple) else (made,)
    loss = sum((x * x.detach().cos()).sum() for x in made if x.requires_grad)
    return [*made, *torch.autograd.grad(loss, leaves_of(given))]


def same(have, want):
    assert len(have) == len(want)
    torch.testing.assert_close(have, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["graph", "edge_index"])
def test_torch_compile_does_not_break_its_graph(call, kind):
    edges, given = call
    graph = edges if kind == "edge_index" else dfgnn.as_graph(edges, (M, N))
    weight = torch.randn(4, 4, dtype=torch.double, device=edges.device,
                         requires_grad=True)
    more = {"weight": weight, "scale": 3.0}
    for program, given in ((attention, given), (mapped, {**given, **more})):
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda graph, **given: program(graph, **given),
            backend="aot_eager", fullgraph=True)
        same(derived(compiled, graph, given), derived(program, graph, given))
        with torch.no_grad():
            have, want = compiled(graph, **given), program(graph, **given)
            same(have if isinstance(have, tuple) else [have],
                 want if isinstance(want, tuple) else [want])


def test_compiled_code_serves_other_sizes(place):
    @edge_program(reduce="max")
    def difference(i, j):
        return torch.tanh(j.x - i.x)
    compiled = torch.compile(
        lambda edges, x: difference(edges, i={"x": x}, j={"x": x}),
        backend="aot_eager", fullgraph=True, dynamic=True)
    for nodes in (5, 8, 11):
        edges = random_edges(nodes, nodes, 20, place)
        x = torch.randn(nodes, 3, device=place)
        same([compiled(edges, x)],
             [difference(edges, i={"x": x}, j={"x": x})])


def test_compiled_dropout_is_the_same_in_both_passes():
    graph = dfgnn.as_graph(random_edges(M, N, E), (M, N))
    compiled = torch.compile(lambda v: dropped(graph, j={"v": v}),
                             backend="aot_eager", fullgraph=True)
    v = torch.ones(M, 4, requires_grad=True)
    out = compiled(v)
    assert out.sum() == torch.autograd.grad(out.sum(), v)[0].sum()
    assert not torch.equal(compiled(v), out)


def test_what_cannot_be_compiled_runs_outside():
    """A tensor that the function finds has its gradient all the same, and an
    error is the one that is raised without torch.compile."""
    graph = dfgnn.as_graph(random_edges(M, N, E), (M, N))
    weight, v = torch.randn(4, requires_grad=True), torch.randn(M, 4)
    found = edge_program(lambda j: j.v * weight)
    compiled = torch.compile(lambda v: found(graph, j={"v": v}),
                             backend="aot_eager")
    have, want = compiled(v), found(graph, j={"v": v})
    same([have, *torch.autograd.grad(have.sum(), weight)],
         [want, *torch.autograd.grad(want.sum(), weight)])
    wrong = edge_program(lambda j: j.v.cumsum(-1))
    with pytest.raises(TraceError, match=r"no \.cumsum"):
        torch.compile(lambda v: wrong(graph, j={"v": v}),
                      backend="aot_eager")(v)


def test_the_operator_keeps_torchs_rules():
    """Fake shapes, gradients and aliases are what torch.library asks for."""
    graph = dfgnn.as_graph(random_edges(M, N, E), (M, N))
    program = dfgnn._program_calls.parse(
        "dst q[4]; src k[4]\nout = sum_in(tanh(q * k))\n")
    q, k = (torch.randn(n, 4, dtype=torch.double, requires_grad=True)
            for n in (N, M))
    torch.library.opcheck(
        torch.ops.dfgnn.call.default,
        ("program", program.name,
         [0, *dfgnn._program_operator.numbers_of([torch.double])], [], [q, k],
         None, graph.id, M, N, graph.num_edges))


def test_a_derivation_is_found_by_its_name():
    program = dfgnn._program_calls.parse(
        "dst q[4]; src k[4]\nout = sum_in(tanh(q * k))\n")
    gradient = program.keep([True], [True, True]).gradient(
        [True] + [False] * (len(program.keep([True], [True, True]).outputs)
                            - 1), [True, False])
    again = dfgnn._program_calls.named(gradient.name)
    assert again.hash == gradient.hash != program.hash
    assert [p.role for p in again.inputs] == [p.role for p in gradient.inputs]


def test_transforms_of_torch_func(call):
    edges, given = call
    graph = dfgnn.as_graph(edges, (M, N))
    q, j, e = given["i"]["q"].detach(), given["j"], given["e"]

    def energy(q):
        return attention(graph, i={"q": q}, j=j, e=e).square().sum()
    q = q.requires_grad_()
    first, = torch.autograd.grad(energy(q), q, create_graph=True)
    second, = torch.autograd.grad((first * q.detach()).sum(), q)
    have, towards = torch.func.jvp(torch.func.grad(energy), (q.detach(),),
                                   (q.detach(),))
    same([have, towards], [first, second])
    both = torch.func.vmap(lambda q: attention(
        graph, i={"q": q}, j=j, e=e))(torch.stack([q, 2 * q]))
    same(list(both), [attention(graph, i={"q": n * q}, j=j, e=e)
                      for n in (1, 2)])


def test_autocast_leaves_tensors_their_types(call):
    """What a linear layer has cast comes in 16 bits; sums are of float."""
    edges, given = call
    given = {k: {n: t.detach().float() for n, t in v.items()}
             for k, v in given.items()}
    low = {k: {n: t.bfloat16() for n, t in v.items()}
           for k, v in given.items()}
    for composite in (False, True):
        with torch.autocast(edges.device.type, dtype=torch.bfloat16):
            for kind in (given, low):
                out = mapped(edges, **kind, composite=composite,
                             weight=torch.eye(4, device=edges.device,
                                              dtype=kind["i"]["q"].dtype))[0]
                assert out.dtype == kind["i"]["q"].dtype
    want = attention(edges, **given)
    with torch.autocast(edges.device.type, dtype=torch.bfloat16):
        assert torch.equal(attention(edges, **given), want)


def test_an_edge_list_has_the_nodes_that_tensors_have():
    edges = torch.tensor([[0, 1], [1, 0]])
    x = torch.ones(4, 2)
    out = edge_program(lambda i, j: i.x + j.x)(edges, i={"x": x}, j={"x": x})
    assert out.tolist() == [[2, 2], [2, 2], [0, 0], [0, 0]]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("program", [attention, mapped],
                         ids=["operator", "generated"])
def test_a_cuda_graph_replays_programs(program):
    """Other numbers in the same memory, after a larger call has moved the
    context's workspace."""
    device = torch.device("cuda", torch.cuda.current_device())
    graph = dfgnn.as_graph(random_edges(M, N, E - 3, device), (M, N))
    given = to({"i": {"q": torch.randn(N, 3, 4)},
                "j": {"k": torch.randn(M, 3, 4), "v": torch.randn(M, 3, 4)},
                "e": {"x": torch.randn(E, 3, 4)}}, device)
    if program is mapped:
        given["weight"] = torch.randn(4, 4, device=device)
    for leaf in leaves_of(given):
        leaf.requires_grad_()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            derived(program, graph, given)
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        made = derived(program, graph, given)
    nodes = 4000
    big = random_edges(nodes, nodes, 100 * nodes, device)
    x = torch.randn(nodes, 3, 4, device=device, requires_grad=True)
    program(big, i={"q": x}, j={"k": x, "v": x}, e={
        "x": torch.randn(big.size(1), 3, 4, device=device)}, **{
            k: v for k, v in given.items() if k == "weight"})
    with torch.no_grad():
        for leaf in leaves_of(given):
            leaf.copy_(torch.randn_like(leaf))
    recorded.replay()
    torch.cuda.synchronize()
    assert all(map(torch.equal, made, derived(program, graph, given)))


@edge_program
def dropped_attention(i, j):
    weight = dfgnn.softmax((i.q * j.v).sum(-1))
    return F.dropout(weight, 0.5) * j.v


@edge_program
def dropped_rows(i, j):
    return F.dropout(i.q * j.v, 0.5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("program", [dropped_attention, dropped_rows],
                         ids=["operator", "generated"])
def test_each_replay_of_a_cuda_graph_drops_anew(program):
    """Both passes of a replay drop the same: the sum is linear in v where
    weights do not depend on it."""
    device = torch.device("cuda", torch.cuda.current_device())
    graph = dfgnn.as_graph(random_edges(M, N, E, device), (M, N))
    q = torch.zeros(N, 3, 4, device=device)
    v = torch.rand(M, 3, 4, device=device, requires_grad=True)
    if program is dropped_rows:
        q += 1

    def step():
        out = program(graph, i={"q": q}, j={"v": v}).sum()
        return out, torch.autograd.grad(out, v)[0]
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        out, grad = step()
    found = set()
    for _ in range(4):
        recorded.replay()
        torch.testing.assert_close((grad * v).sum(), out)
        found.add(out.item())
    assert len(found) > 1


def normed(i, j, e):
    return F.layer_norm(j.v * torch.sigmoid(e.x) + i.q, (4,))


def scored(i, j, e):
    return (i.q * (j.v + e.x)).sum(-1) * j.k * torch.tanh(e.x)


def mixed(i, j, e):
    return i.q * j.k + j.v * e.x + F.softplus(i.q * e.x) * j.k


@pytest.mark.parametrize("function", [normed, scored, mixed],
                         ids=lambda f: f.__name__)
def test_the_gradient_of_an_extreme_finds_its_edges(function, place):
    """It makes the values again that the extreme was made of, in another walk
    and for other outputs: they have to have the same bits."""
    nodes, count = 200, 3000
    graph = dfgnn.as_graph(random_edges(nodes, nodes, count - 3, place), nodes)
    given = {"i": {"q": torch.randn(nodes, 3, 4)},
             "j": {"k": torch.randn(nodes, 3, 4),
                   "v": torch.randn(nodes, 3, 4)},
             "e": {"x": torch.randn(count, 3, 4)}}
    program = edge_program(function, reduce="max")
    found = []
    for kind in (torch.float32, torch.float64):
        same_numbers = {k: {n: t.to(place, kind).requires_grad_()
                            for n, t in v.items()} for k, v in given.items()}
        out = program(graph, **same_numbers)
        found.append(torch.autograd.grad(out.sum(), leaves_of(same_numbers)))
    for low, exact in zip(*found):
        off = ((low.double() - exact).abs() > 1e-3 * exact.abs().max()).sum()
        assert int(off) <= 4  # where float chose another edge
