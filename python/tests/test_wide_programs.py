"""Edge programs whose wide linear maps are MLPs on edges, against torch's
operations: the same function with composite=True."""

import pytest
import torch
import torch.nn.functional as F

import dfgnn
from dfgnn import _mlp_kernels
from dfgnn.programs import TraceError, edge_program

N, M, E, C, H = 40, 50, 300, 64, 96


@pytest.fixture(scope="module")
def edges():
    """In no order; the last nodes have no edges."""
    torch.manual_seed(3)
    return torch.stack([torch.randint(0, M - 3, (E,)),
                        torch.randint(0, N - 3, (E,))])


@pytest.fixture
def calls(monkeypatch):
    """The settings of the MLPs that run."""
    seen, run = [], _mlp_kernels.run

    def noted(graph, settings, *given):
        seen.append(settings)
        return run(graph, settings, *given)
    monkeypatch.setattr(_mlp_kernels, "run", noted)
    return seen


def tensors(dtype=torch.double, inner=3 * C):
    torch.manual_seed(1)

    def made(*shape, scale=1.0):
        return (torch.randn(*shape, dtype=dtype) * scale).requires_grad_()
    given = {"i": {"x": made(N, C)}, "j": {"x": made(M, C)},
             "e": {"x": made(E, C)}}
    return given, {"W": made(H, inner, scale=inner ** -.5), "b": made(H),
                   "V": made(C, H, scale=H ** -.5), "c": made(C),
                   "g": made(C), "h": made(C)}


def joined(i, j, e, W, b):
    return F.linear(torch.cat([i.x, j.x, e.x], -1), W, b)


@edge_program
def mesh(i, j, e, W, b, V, c, g, h):
    """MeshGraphNet's block, summed."""
    z = F.linear(F.silu(joined(i, j, e, W, b)), V, c)
    return F.layer_norm(z, (C,), g, h) + e.x


@edge_program(reduce=None)
def both(i, j, e, W, b, V, c, g, h):
    """Its edges, and the maximum at the sources."""
    z = F.linear(F.gelu(joined(i, j, e, W, b), approximate="tanh"), V, c)
    z = F.rms_norm(z, (C,), g, 1e-6)
    return z, dfgnn.programs.max_out(z)


@edge_program(reduce="mean")
def parted(i, j, e, W, b, V, c, g, h):
    """Maps of each end of their own."""
    z = F.linear(i.x, W, b) - F.linear(j.x, W)
    return torch.tanh(F.linear(F.elu(z + F.linear(e.x, W), 0.5), V, c))


@edge_program(reduce="max")
def differences(i, j, e, W, b, V, c, g, h):
    """EdgeConv's, of joined differences."""
    return F.linear(F.relu(F.linear(torch.cat([i.x, j.x - i.x], -1), W, b)),
                    V, c)


@edge_program
def scaled(i, j, e, W, b, V, c, g, h):
    """An MLP whose result a program goes on with."""
    z = F.linear(F.silu(joined(i, j, e, W, b)), V, c)
    return (z * z).mean(-1) * (j.x - g)


def compare(program, graph, given, params, calls, tolerance=1e-9, mlps=1):
    leaves = [t for part in given.values() for t in part.values()]
    leaves += params.values()
    want = program(graph, **given, **params, composite=True)
    assert not calls
    have = program(graph, **given, **params)
    assert len(calls) == mlps
    have, want = [x if isinstance(x, tuple) else (x,) for x in (have, want)]
    grads = [torch.randn_like(w) for w in want]
    torch.testing.assert_close(have, want, rtol=tolerance, atol=tolerance)
    found, expected = [torch.autograd.grad(
        x, leaves, grads, allow_unused=True) for x in (have, want)]
    assert any(b is not None for b in expected)
    for leaf, a, b in zip(leaves, found, expected):
        a, b = [torch.zeros_like(leaf) if x is None else x for x in (a, b)]
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    return have


@pytest.mark.parametrize("program,inner", [
    (mesh, 3 * C), (both, 3 * C), (parted, C), (differences, 2 * C),
    (scaled, 3 * C)], ids=lambda x: getattr(x, "__name__", ""))
def test_it_is_what_torch_computes(program, inner, edges, calls):
    given, params = tensors(inner=inner)
    used = {"e"} if program is not differences else set()
    given = {k: v for k, v in given.items() if k != "e" or used}
    if not used:
        given["e"] = {}
    compare(program, dfgnn.as_graph(edges, (M, N)), given, params, calls)


def test_norm_residual_and_sum_are_in_the_call(edges, calls):
    given, params = tensors()
    mesh(dfgnn.as_graph(edges, (M, N)), **given, **params)
    settings, = calls
    assert settings.layers == 2 and settings.activation == "silu"
    assert settings.norm == "layer" and settings.residual
    assert settings.reduce_dst == "sum" and not settings.edges


def test_a_call_is_traced_once(edges, monkeypatch):
    from dfgnn import _steps
    given, params = tensors()
    graph, program = dfgnn.as_graph(edges, (M, N)), edge_program(mesh.function)
    first = program(graph, **given, **params)
    monkeypatch.setattr(_steps, "steps_of", None)
    assert torch.equal(program(graph, **given, **params), first)


def test_16_bit_types_keep_no_values_of_edges_either(edges, calls):
    given, params = tensors(torch.bfloat16)
    graph = dfgnn.as_graph(edges, (M, N))
    have = mesh(graph, **given, **params)
    assert len(calls) == 1 and have.dtype == torch.bfloat16
    want = mesh(graph, **{k: {n: t.double() for n, t in v.items()}
                          for k, v in given.items()},
                **{k: t.double() for k, t in params.items()})
    error = (have.double() - want).abs().max() / want.abs().max()
    assert error < 0.02


def test_autocast_leaves_types_as_they_are(edges, calls):
    given, params = tensors(torch.float)
    graph = dfgnn.as_graph(edges, (M, N))
    want = mesh(graph, **given, **params)
    with torch.autocast("cpu", torch.bfloat16):
        for program in (mesh, edge_program(mesh.function)):
            assert torch.equal(program(graph, **given, **params), want)
    assert len(calls) == 3


def test_gradients_of_gradients(edges):
    given, params = tensors()
    graph = dfgnn.as_graph(edges, (M, N))
    found = []
    for composite in (False, True):
        out = mesh(graph, **given, **params, composite=composite)
        force, = torch.autograd.grad(out.square().sum(), given["e"]["x"],
                                     create_graph=True)
        found.append(torch.autograd.grad(force.square().sum(), [
            given["i"]["x"], params["W"], params["g"]]))
    torch.testing.assert_close(*found, rtol=1e-8, atol=1e-8)


def test_it_compiles(edges):
    given, params = tensors(torch.float)
    graph = dfgnn.as_graph(edges, (M, N))
    compiled = torch.compile(lambda x: mesh(
        graph, i={"x": x}, j=given["j"], e=given["e"], **params).relu(),
        backend="eager")
    torch.testing.assert_close(compiled(given["i"]["x"]),
                               mesh(graph, **given, **params).relu())


@edge_program
def products(i, j, e, W, b, V, c, g, h):
    """An MLP of a product of both ends."""
    return F.linear(F.silu(F.linear(i.x * j.x, W, b)), V, c)


@edge_program
def attention(i, j, e, W, b, V, c, g, h):
    """A score of an MLP."""
    z = F.linear(F.silu(joined(i, j, e, W, b)), V, c)
    return dfgnn.softmax((z * g).sum(-1)) * (j.x + h)


def times(given, params, count):
    """The same with a first layer of as many times the width."""
    return {name: t.repeat(count, *[1] * (t.dim() - 1)) if name in "Wb" else
            t.repeat(1, count) if name == "V" else t
            for name, t in params.items()}


@pytest.mark.parametrize("program,inner,count", [
    (products, C, 4), (attention, 3 * C, 1), (scaled, 3 * C, 1)],
    ids=["products", "attention", "scaled"])
def test_an_mlp_between_programs_reads_and_writes_edges(
        program, inner, count, edges, calls):
    """Where programs would hold nothing by edge, they run by themselves."""
    graph = dfgnn.as_graph(edges, (M, N))
    given, params = tensors(inner=inner)
    compare(program, graph, given, times(given, params, count), calls)
    given, params = tensors(inner=inner)
    del calls[:]
    params["W"], params["b"] = params["W"][:48], params["b"][:48]
    params["V"] = params["V"][:, :48]
    compare(program, graph, given, params, calls, mlps=0)


@edge_program
def of_edges(i, j, e, W):
    return F.linear(i.x, W) * F.linear(j.x, W) + F.linear(e.x, W).relu()


def test_what_is_no_mlp_is_refused_by_name(edges):
    graph = dfgnn.as_graph(edges, (M, N))
    given, _ = tensors(torch.float)
    wide = torch.randn(512, C)
    with pytest.raises(dfgnn.UnsupportedError, match="outside of the MLP|no "
                       "MLP on edges") as error:
        of_edges(graph, **given, W=wide)
    assert "products an edge, at most 16384" in str(error.value)
    assert "dfgnn.edge_mlp" in str(error.value)


def test_a_wide_mlp_that_is_traced_wrong_is_named(edges):
    @edge_program
    def wrong(i, j, e, W):
        return F.linear(i.x, W.sin_())
    given, params = tensors()
    with pytest.raises(TraceError, match="sin_"):
        wrong(dfgnn.as_graph(edges, (M, N)), **given, W=params["W"])


def test_relations_are_refused_by_name(edges):
    @edge_program
    def related(i, r, W):
        return F.linear(i.x * r.a, W)
    given, _ = tensors(torch.float)
    graph = dfgnn.Graph.from_edge_index(edges, (M, N))
    graph.set_relations(torch.randint(0, 3, (E,)), 3)
    with pytest.raises(dfgnn.UnsupportedError, match="tensors of relations"):
        related(graph, i=given["i"], r={"a": torch.randn(3, C)},
                W=torch.randn(512, C))
