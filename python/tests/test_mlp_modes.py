"""MLPs on edges in the modes of torch, and the blocks that are made of them."""

import pytest
import torch

import dfgnn
import dfgnn.nn
from dfgnn import _mlp_formula, _mlp_kernels
from mlp_cases import agree, graph_of, layers_of, reduced, tensor


def test_a_call_inside_a_checkpoint():
    from torch.utils.checkpoint import checkpoint
    edges = graph_of()
    weights, biases = layers_of([5, 9, 7])
    e, y = tensor(150, 5), tensor(23, 9)

    def run(e, y):
        return dfgnn.edge_mlp(edges, weights, biases, edge=e, src_part=y,
                              dst_part=y[:19])
    again = checkpoint(run, e, y, use_reentrant=False)
    agree([again], [run(e, y)], [e, y, *weights, *biases])


@pytest.mark.parametrize("weight", [None, torch.rand(150).double()])
def test_gates_in_a_transform(weight):
    edges, gate = graph_of(), (tensor(1, 5), None)
    weights, biases = layers_of([5, 9, 7])
    e, y = tensor(2, 150, 5), tensor(23, 9)

    def run(e):
        return dfgnn.edge_mlp(
            edges, weights, biases, edge=e, src_part=y, dst_part=y[:19],
            dst_gate=gate, src_gate=gate, reduce_src="sum", gate_by="softmax",
            gate_weight=weight)
    for have, *want in zip(torch.func.vmap(run)(e), run(e[0]), run(e[1])):
        torch.testing.assert_close(have, torch.stack(want))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16,
                                   torch.float32])
def test_types(dtype):
    edges = graph_of()
    weights, biases = layers_of([16, 32, 8])
    x, e = tensor(19, 8), tensor(150, 8)
    leaves = [x, e, *weights, *biases]
    small = [t.detach().to(dtype).requires_grad_() for t in leaves]

    def run(x, e, w, v, b, c):
        return dfgnn.edge_mlp(edges, [w, v], [b, c], dst=x, edge=e,
                              src_part=x.new_zeros(23, 32),
                              activation="gelu", norm="rms", residual=True)
    want = run(*[t.detach().double().requires_grad_() for t in small])
    have = run(*small)
    assert have.dtype == dtype
    tolerance = {torch.float32: 1e-5}.get(dtype, 5e-2)
    torch.testing.assert_close(have.double(), want, rtol=tolerance,
                               atol=tolerance)
    have.sum().backward()
    assert all(t.grad is not None and t.grad.dtype == dtype for t in small)


def test_autocast_takes_its_type():
    edges = graph_of(20, 20)
    weights, biases = layers_of([4, 6], torch.float32)
    x = tensor(20, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = dfgnn.edge_mlp(edges, weights, biases, src=x)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert x.grad.dtype == torch.float32 and weights[0].grad is not None


@pytest.mark.parametrize("width", [8, 6])
def test_parameters_that_are_cast_together_have_their_own_gradients(width):
    edges = dfgnn.as_graph(graph_of(20, 20), 20)
    weights, biases = layers_of([3 * width, width, width], torch.float32)
    x, e = (tensor(n, width, dtype=torch.float32) for n in (20, 150))

    def run(weights, biases):
        return dfgnn.edge_mlp(edges, weights, biases, dst=x, src=x, edge=e,
                              activation="silu", norm="layer")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        have = run(weights, biases)
    small = [[t.to(torch.bfloat16) for t in some]
             for some in (weights, biases)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        want = run(*small)
    torch.testing.assert_close(have, want, rtol=0, atol=0)
    parameters = [*weights, *biases]
    for a, b in zip(torch.autograd.grad(have.float().square().sum(),
                                        parameters),
                    torch.autograd.grad(want.float().square().sum(),
                                        parameters)):
        assert a.dtype == torch.float32
        torch.testing.assert_close(a, b, rtol=.02, atol=.02)


def test_a_transform_of_torch_func_runs_torch_operations():
    edges = dfgnn.as_graph(graph_of(20, 20), 20)
    weights, biases = layers_of([4, 6])
    x = tensor(20, 4).detach()

    def loss(x):
        return dfgnn.edge_mlp(edges, weights, biases, src=x, last="silu",
                              dst_part=x.new_zeros(20, 6)).square().sum()
    want = torch.autograd.grad(loss(leaf := x.clone().requires_grad_()),
                               leaf)[0]
    torch.testing.assert_close(torch.func.grad(loss)(x), want)


COMPILED = [dict(residual=True, edges=True), dict(reduce="max", norm="layer"),
            dict(reduce="mean", reduce_src="min", edges=True)]


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("options", COMPILED)
def test_torch_compile_does_not_break_its_graph(options, listed):
    edge_index = torch.randint(0, 20, (2, 80))
    graph = edge_index if listed else dfgnn.as_graph(edge_index, 20)
    weights, biases = layers_of([24, 8, 8])
    x, edge = tensor(20, 8), tensor(80, 8)

    def block(x, edge):
        made = dfgnn.edge_mlp(graph, weights, biases, dst=x, src=x, edge=edge,
                              activation="silu", **options)
        return made if isinstance(made, tuple) else (made,)
    torch._dynamo.reset()
    compiled = torch.compile(block, backend="aot_eager", fullgraph=True)
    agree(compiled(x, edge), block(x, edge), [x, edge, *weights, *biases])


@pytest.mark.parametrize("full,widths,options", [
    (True, [8, 1], dict(reduce="mean", reduce_src="max")),
    (True, [8, 5, 4], dict(activation="elu", slope=0.3)),
    (False, [8, 4], dict(dst_gate=(torch.ones(1, 8).double(), None)))])
def test_torch_compile_of_one_column_of_a_slope_and_of_a_gate(full, widths,
                                                              options):
    graph = dfgnn.as_graph(graph_of(20, 20), 20)
    weights, biases = layers_of(widths)
    edge = tensor(150, 8)

    def block(edge):
        made = dfgnn.edge_mlp(graph, weights, biases, edge=edge, **options)
        return made if isinstance(made, tuple) else (made,)
    torch._dynamo.reset()
    compiled = torch.compile(block, backend="aot_eager", dynamic=True,
                             fullgraph=full)
    agree(compiled(edge), block(edge), [edge, *weights, *biases])


@pytest.mark.parametrize("terms", [(1, 1, 1), (0, 1, 1), (1, 0, 1), (0, 0, 1),
                                   (1, 0, 0)], ids=str)
@pytest.mark.parametrize("activation", [None, "silu", "leaky_relu"])
def test_first_layers_by_programs(device, terms, activation):
    graph = dfgnn.as_graph(graph_of().to(device), (23, 19))
    rows = [torch.randn(n, 6, dtype=torch.float64, device=device,
                        requires_grad=True) if there else None
            for n, there in zip((150, 19, 23), terms)]
    leaves = [t for t in rows if t is not None]
    agree(*[[kind(graph).added(*rows, activation, .3)] for kind in (
        _mlp_kernels._ByPrograms, _mlp_formula.ByTorch)], leaves)


def test_results_lie_where_torch_compile_expects():
    """Dense, though autograd has the gradients of weights transposed."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    begins = []

    class Spy(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            made = super().call_function(target, args, kwargs)
            if "dfgnn" in str(target):
                begins.extend([t.storage_offset() or not t.is_contiguous()
                               for t in made])
            return made

    def compiler(module, _):
        return make_boxed_func(Spy(module).run)
    graph = dfgnn.as_graph(torch.randint(0, 20, (2, 80)), 20)
    weights, biases = layers_of([24, 7, 5], torch.float32)
    x, edge = (tensor(rows, 8, dtype=torch.float32) for rows in (20, 80))

    def block(x, edge):
        return dfgnn.edge_mlp(graph, weights, biases, dst=x, src=x, edge=edge)
    torch._dynamo.reset()
    out = torch.compile(block, fullgraph=True, backend=aot_autograd(
        fw_compiler=compiler, bw_compiler=compiler))(x, edge)
    torch.autograd.grad(out.sum(), [*weights, *biases])
    assert len(begins) > 4 and not any(begins)


def test_the_operator_is_what_torch_expects():
    graph = dfgnn.as_graph(torch.randint(0, 20, (2, 80)), 20)
    settings = _mlp_formula.Settings(1, "relu", None, 0.01, reduce_dst="max",
                             edges=True)
    tensors = [tensor(80, 8), tensor(20, 5), tensor(5, 8)]
    fields = [tensors[0], None, tensors[1], *[None] * 4, tensors[2], None]
    torch.library.opcheck(
        torch.ops.dfgnn.call.default,
        ("mlp", *_mlp_kernels.about(settings, fields, False), tensors, None,
         graph.id, 20, 20, 80))


@pytest.mark.parametrize("activation,layers,norm,edge_dim", [
    ("silu", 2, True, 8), ("elu", 1, False, 5), ("gelu", 3, True, 0)])
def test_an_edge_block_is_its_modules(activation, layers, norm, edge_dim):
    edges = graph_of()
    block = dfgnn.nn.EdgeBlock((4, 3), edge_dim, 8, hidden_dim=7, norm=norm,
                               hidden_layers=layers,
                               activation=activation).double()
    src, dst = tensor(23, 4), tensor(19, 3)
    e = tensor(150, edge_dim) if edge_dim else None
    have = block((src, dst), edges, e)
    rows = [] if e is None else [e]
    want = block.mlp(torch.cat([*rows, src[edges[0]], dst[edges[1]]], 1))
    want = want + e if edge_dim == 8 else want
    agree(have, [want, reduced("sum", want, edges[1], 19)],
          [src, dst, *rows, *block.parameters()])


def test_a_mesh_block_is_meshgraphnet_s():
    edges = graph_of(20, 20)
    block = dfgnn.nn.MeshBlock(6).double()
    x, e = tensor(20, 6), tensor(150, 6)
    have = block(x, dfgnn.as_graph(edges, 20), e)
    made = e + block.edge.mlp(torch.cat([e, x[edges[0]], x[edges[1]]], 1))
    total = reduced("sum", made, edges[1], 20)
    agree(have, [x + block.node(torch.cat([total, x], 1)), made],
          [x, e, *block.parameters()])


@pytest.mark.parametrize("options,text", [
    (dict(hidden_layers=4), "hidden_layers must be 1 to 3, got 4"),
    (dict(activation="swish"), "activation must be one of 'relu'"),
    (dict(residual=True), "residual wants out_dim = edge_dim")])
def test_a_block_names_what_it_cannot_be(options, text):
    with pytest.raises(ValueError, match=text):
        dfgnn.nn.EdgeBlock(4, 3, 8, **options)
