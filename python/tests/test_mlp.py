"""MLPs on edges against the same written with torch's operations."""

import inspect
import itertools
import os

import pytest
import torch
import torch.nn.functional as F

import dfgnn
import dfgnn.nn
from dfgnn import _abi, _mlp, _mlp_ops

ACTIVATIONS = {
    None: lambda x: x, "relu": F.relu, "silu": F.silu, "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu": lambda x: F.elu(x, 0.3), "tanh": torch.tanh,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.3), "sigmoid": torch.sigmoid,
    "softplus": F.softplus}


def graph_of(num_src=23, num_dst=19, edges=150, seed=0):
    """A bipartite list in no order; the last nodes have no edges."""
    torch.manual_seed(seed)
    return torch.stack([torch.randint(0, num_src - 2, (edges,)),
                        torch.randint(0, num_dst - 2, (edges,))])


DEFAULTS = {name: one.default for name, one in inspect.signature(
    dfgnn.edge_mlp).parameters.items() if one.kind is one.KEYWORD_ONLY}


def layers_of(widths, dtype=torch.float64):
    """Weights and biases of layers from one width to the next."""
    pairs = list(zip(widths, widths[1:]))
    return ([(torch.randn(o, i, dtype=dtype) / i ** 0.5).requires_grad_()
             for i, o in pairs],
            [torch.randn(o, dtype=dtype, requires_grad=True)
             for _, o in pairs])


def tensor(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def reduced(name, x, index, count, factor=None):
    out = x.new_zeros(count, x.size(1))
    if name in ("max", "min"):
        return out.scatter_reduce(0, index.view(-1, 1).expand_as(x), x,
                                  "a" + name, include_self=False)
    out = out.index_add(0, index, x if factor is None else
                        x * factor.view(-1, 1))
    if name == "mean":
        out = out / torch.bincount(index, minlength=count).clamp(
            min=1).view(-1, 1)
    return out


def agree(have, want, leaves, tolerance=1e-9):
    """Values and gradients by these tensors are the same."""
    for a, b in zip(have, want):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    grads = [torch.randn_like(b) for b in want]
    found = torch.autograd.grad(have, leaves, grads)
    expected = torch.autograd.grad(want, leaves, grads)
    for a, b in zip(found, expected):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_between_and_after_the_layers(activation):
    edges = graph_of()
    f = ACTIVATIONS[activation]
    weights, biases = layers_of([12, 9, 7])
    x, y, e = tensor(19, 3), tensor(23, 4), tensor(150, 5)
    have = dfgnn.edge_mlp(edges, weights, biases, dst=x, src=y, edge=e,
                          activation=activation, last=activation, slope=0.3)
    z = torch.cat([x[edges[1]], y[edges[0]], e], 1)
    for weight, bias in zip(weights, biases):
        z = f(F.linear(z, weight, bias))
    agree([have], [reduced("sum", z, edges[1], 19)],
          [x, y, e, *weights, *biases])


@pytest.mark.parametrize("norm,gate,residual", list(itertools.product(
    (None, "layer", "rms"), (False, True), (False, True))))
def test_norms_gates_and_residuals(norm, gate, residual):
    edges = graph_of()
    weights, biases = layers_of([12, 9, 10 if gate else 5])
    x, y, e = tensor(19, 3), tensor(23, 4), tensor(150, 5)
    scale, shift = tensor(5), tensor(5)
    have = dfgnn.edge_mlp(
        edges, weights, biases, dst=x, src=y, edge=e, activation="silu",
        last="tanh", gate=gate, norm=norm, eps=1e-3,
        norm_weight=scale if norm else None,
        norm_bias=shift if norm == "layer" else None, residual=residual,
        edges=True)
    z = torch.cat([x[edges[1]], y[edges[0]], e], 1)
    z = F.linear(F.silu(F.linear(z, weights[0], biases[0])), weights[1],
                 biases[1])
    z = torch.sigmoid(z[:, :5]) * torch.tanh(z[:, 5:]) if gate else \
        torch.tanh(z)
    if norm == "layer":
        z = F.layer_norm(z, (5,), scale, shift, 1e-3)
    elif norm == "rms":
        z = F.rms_norm(z, (5,), scale, 1e-3)
    z = z + e if residual else z
    leaves = [x, y, e, *weights, *biases]
    leaves += [scale] if norm else []
    leaves += [shift] if norm == "layer" else []
    agree(have, [z, reduced("sum", z, edges[1], 19)], leaves)


@pytest.mark.parametrize("at_dst,at_src", list(itertools.product(
    _abi.REDUCTIONS, _abi.REDUCTIONS)))
def test_reductions_at_both_ends(at_dst, at_src):
    edges = graph_of()
    weights, biases = layers_of([7, 6])
    x, e = tensor(19, 3), tensor(150, 4)
    factor = tensor(150)
    sums = [name for name in (at_dst, at_src) if name in ("sum", "mean")]
    have = dfgnn.edge_mlp(
        edges, weights, biases, dst=x, edge=e, src_part=tensor(23, 6) * 0,
        reduce=at_dst, reduce_src=at_src, edges=True,
        dst_factor=factor if at_dst in ("sum", "mean") else None,
        src_factor=factor if at_src in ("sum", "mean") else None)
    have = have if isinstance(have, tuple) else (have,)
    z = F.linear(torch.cat([x[edges[1]], e], 1), weights[0], biases[0])
    want = [z]
    for name, index, count in ((at_dst, edges[1], 19), (at_src, edges[0], 23)):
        if name:
            want.append(reduced(name, z, index, count, factor if name in
                                ("sum", "mean") else None))
    agree(have, want, [x, e, *weights, *biases, *([factor] if sums else [])])


def gate_of(by, score, index, count, weight):
    """orb-models' gate of [E] scores, whose gradient has no NaN."""
    if by == "sigmoid":
        return torch.sigmoid(score)
    top = score.new_full((count,), -torch.inf).scatter_reduce(
        0, index, score, "amax")
    part = torch.exp(score - top[index])
    part = part if weight is None else part * weight
    total = part.new_zeros(count).index_add(0, index, part)[index]
    return part / torch.where(total == 0, 1.0, total)


@pytest.mark.parametrize("by,weighted,ends", [
    ("sigmoid", False, "dst src"), ("sigmoid", False, "src"),
    ("softmax", False, "dst src"), ("softmax", True, "dst src"),
    ("softmax", True, "dst")])
def test_gates_are_a_second_output_of_the_edge(by, weighted, ends):
    edges = graph_of()
    weights, biases = layers_of([12, 9, 7])
    x, y, e = tensor(19, 3), tensor(23, 4), tensor(150, 5)
    cutoff = torch.rand(150, dtype=torch.float64)
    cutoff[edges[1] == 3] = 0  # all edges of a node
    cutoff.requires_grad_(weighted)
    gates, leaves = {}, [x, y, e, *weights, *biases]
    for end in ends.split():
        gates[end] = tensor(1, 5), tensor(1)
        leaves += gates[end] if by == "sigmoid" else gates[end][:1]
    have = dfgnn.edge_mlp(
        edges, weights, biases, dst=x, src=y, edge=e, activation="silu",
        reduce="sum", reduce_src="mean", edges=True, gate_by=by,
        dst_factor=cutoff, gate_weight=cutoff if weighted else None,
        **{end + "_gate": layer for end, layer in gates.items()})
    z = torch.cat([x[edges[1]], y[edges[0]], e], 1)
    z = F.linear(F.silu(F.linear(z, weights[0], biases[0])), weights[1],
                 biases[1])
    factor = {"dst": cutoff, "src": torch.ones_like(cutoff)}
    for end, index, count in (("dst", edges[1], 19), ("src", edges[0], 23)):
        if end in gates:
            factor[end] = factor[end] * gate_of(
                by, F.linear(e, *gates[end]).squeeze(1), index, count,
                cutoff if weighted else None)
    want = [z, reduced("sum", z, edges[1], 19, factor["dst"]),
            reduced("mean", z, edges[0], 23, factor["src"])]
    agree(have, want, leaves + [cutoff] * weighted)


def test_gates_that_cannot_be():
    edges = graph_of()
    weights, biases = layers_of([5, 6])
    e, gate = tensor(150, 5), (tensor(1, 5), None)

    def run(**given):
        dfgnn.edge_mlp(edges, weights, biases, **{
            "edge": e, "src_part": torch.zeros(23, 6, dtype=e.dtype),
            "dst_part": torch.zeros(19, 6, dtype=e.dtype), **given})
    run(dst_gate=gate)
    for message, given in (
            ("dst_gate is a factor in a sum or mean, which is not asked for: "
             "found 'max'", dict(dst_gate=gate, reduce="max")),
            ("src_gate is a factor in a sum or mean, which is not asked for: "
             "found None", dict(src_gate=gate)),
            (r"dst_gate must be \[1, 5\], a column for each feature of edge, "
             r"got a float64 tensor \[1, 4\]",
             dict(dst_gate=(tensor(1, 4), None))),
            (r"the bias of dst_gate must be \[1\]",
             dict(dst_gate=(tensor(1, 5), tensor(2)))),
            ("gate_by must be 'sigmoid' or 'softmax', got 'tanh'",
             dict(dst_gate=gate, gate_by="tanh")),
            ("gate_weight has the weights of edges in a softmax",
             dict(dst_gate=gate, gate_weight=tensor(150))),
            (r"gate_weight must be \[150\]", dict(
                dst_gate=gate, gate_weight=tensor(149), gate_by="softmax"))):
        with pytest.raises(ValueError, match=message):
            run(**given)
    with pytest.raises(TypeError, match=r"dst_gate must be \(weight, bias\)"):
        run(dst_gate=tensor(1, 5))


@pytest.mark.parametrize("kind", ["list", "csr", "csr with an order", "loops"])
def test_edges_are_in_the_caller_s_order(kind):
    edges = graph_of(20, 20)
    if kind == "list":
        graph = dfgnn.as_graph(edges, 20)
    elif kind == "loops":
        graph = dfgnn.as_graph(edges, 20).with_self_loops()
        edges = graph.edge_index
    else:
        order = edges[1].sort(stable=True)[1]
        offsets = F.pad(torch.bincount(edges[1], minlength=20).cumsum(0),
                        (1, 0))
        graph = dfgnn.Graph(offsets, edges[0][order], 20,
                            edge_order=order if "order" in kind else None)
        edges = edges if "order" in kind else edges[:, order]
    weights, biases = layers_of([5, 6])
    x, e, factor = tensor(20, 2), tensor(edges.size(1), 3), tensor(
        edges.size(1))
    have = dfgnn.edge_mlp(graph, weights, biases, src=x, edge=e, edges=True,
                          dst_factor=factor)
    z = F.linear(torch.cat([x[edges[0]], e], 1), weights[0], biases[0])
    agree(have, [z, reduced("sum", z, edges[1], 20, factor)],
          [x, e, factor, *weights, *biases])


@pytest.mark.parametrize("columns", list(itertools.permutations(
    ("dst", "src", "edge"))))
@pytest.mark.parametrize("parts", (False, True))
def test_columns_stand_in_any_order(columns, parts):
    edges = torch.randint(0, 20, (2, 150))
    weights, biases = layers_of([13, 9, 5])
    x, e = tensor(20, 4), tensor(150, 5)
    given = dict(dst_part=tensor(20, 9), src_part=tensor(20, 9)) if parts \
        else {}
    have = dfgnn.edge_mlp(edges, weights, biases, dst=x, src=x, edge=e,
                          columns=columns, **given)
    rows = {"dst": x[edges[1]], "src": x[edges[0]], "edge": e}
    z = F.linear(torch.cat([rows[name] for name in columns], 1), weights[0],
                 biases[0])
    if parts:
        z = z + given["dst_part"][edges[1]] + given["src_part"][edges[0]]
    z = F.linear(F.relu(z), weights[1], biases[1])
    agree([have], [reduced("sum", z, edges[1], 20)],
          [x, e, *given.values(), *weights, *biases])
    with pytest.raises(ValueError, match="columns must have"):
        dfgnn.edge_mlp(edges, weights, biases, dst=x, src=x, edge=e,
                       columns=("dst", "src"))


def test_what_was_kept_of_a_call_is_of_its_shapes_and_types():
    graph = dfgnn.as_graph(graph_of(20, 20), 20)
    for width, dtype in ((3, torch.float64), (5, torch.float64),
                         (3, torch.float32), (3, torch.float64)):
        weights, biases = layers_of([2 * width, 6], dtype)
        x = tensor(20, width, dtype=dtype)
        made = dfgnn.edge_mlp(graph, weights, biases, dst=x, src=x)
        assert made.dtype == dtype
        z = F.linear(torch.cat([x[graph.dst], x[graph.src]], 1), weights[0],
                     biases[0])
        agree([made], [reduced("sum", z, graph.dst, 20)], [x, *weights],
              1e-9 if dtype == torch.float64 else 1e-4)
    with pytest.raises(ValueError, match="dst must be"):
        dfgnn.edge_mlp(graph, weights, biases, dst=x[:4], src=x)


def test_edgeconv_is_an_mlp_of_nodes_alone():
    edges = graph_of(20, 20)
    weights, biases = layers_of([8, 16, 6])
    x = tensor(20, 4)
    by_own, by_other = weights[0].split(4, 1)
    have = dfgnn.edge_mlp(edges, [None, weights[1]], biases, reduce="max",
                          dst_part=F.linear(x, by_own - by_other),
                          src_part=F.linear(x, by_other))
    z = torch.cat([x[edges[1]], x[edges[0]] - x[edges[1]]], 1)
    z = F.linear(F.relu(F.linear(z, weights[0], biases[0])), weights[1],
                 biases[1])
    agree([have], [reduced("max", z, edges[1], 20)], [x, *weights, *biases])


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_second_derivatives(reduce):
    edges = graph_of(6, 6, 14)
    weights, biases = layers_of([8, 5, 4])
    x, e = tensor(6, 2), tensor(14, 4)

    def run(x, e, *layers):
        return dfgnn.edge_mlp(edges, layers[:2], layers[2:], dst=x, src=x,
                              edge=e, activation="tanh", norm="layer",
                              residual=True, reduce=reduce, edges=True)
    inputs = (x, e, *weights, *biases)
    torch.autograd.gradcheck(run, inputs)
    torch.autograd.gradgradcheck(run, inputs)


def test_second_derivatives_of_tensors_made_of_each_other():
    """A gate is made of edge, and here a part of src."""
    edges = graph_of(6, 6, 14)
    weights, biases = layers_of([4, 5, 4])
    y, e, gate = tensor(6, 5), tensor(14, 4), tensor(1, 4)

    def run(y, e, gate):
        return dfgnn.edge_mlp(edges, weights, biases, dst_part=y.tanh(),
                              src_part=y, edge=e, activation="silu",
                              dst_gate=(gate, None), gate_by="softmax")
    torch.autograd.gradcheck(run, (y, e, gate))
    torch.autograd.gradgradcheck(run, (y, e, gate))


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


@pytest.mark.parametrize("options", [
    dict(), dict(last="tanh"), dict(norm="rms"), dict(gate=True)])
def test_what_is_kept_where_it_is(options):
    """The widths that are traced are the library's."""
    graph = dfgnn.as_graph(torch.randint(0, 20, (2, 80)), 20)
    weights, biases = layers_of([24, 40, 8], torch.float16)
    given = dict(edge=tensor(80, 24, dtype=torch.float16), **options)
    made, ends, tensors = dfgnn.mlps._ready(
        graph, weights, biases, {**DEFAULTS, **given},
        dfgnn.mlps._Gates(None, None, "sigmoid", None))[1:]
    widths = [width for _, width in made.kept]
    assert widths == [64, 32 if options else 0, 0, 0]
    assert _mlp.kept_width(made.settings, tensors) == sum(widths)
    with pytest.raises(ValueError, match="keep must be"):
        dfgnn.edge_mlp(graph, weights, biases, keep="always", **given)


def test_a_problem_says_whether_inner_values_are_kept():
    graph = dfgnn.as_graph(torch.randint(0, 20, (2, 80)), 20)
    weights, biases = layers_of([24, 8, 8], torch.float32)
    texts = [_mlp.text_of(dfgnn.mlps.problem(
        graph, weights, biases, edge=tensor(80, 24, dtype=torch.float32),
        backward=backward, keep=keep)) for backward in (False, True)
        for keep in (None, True)]
    assert ["kept=1" in text for text in texts] == [False, True] * 2


COMPILED = [dict(residual=True, edges=True), dict(reduce="max", norm="layer"),
            dict(reduce="mean", reduce_src="min", edges=True)]


@pytest.mark.skipif(not _mlp_ops.AVAILABLE,
                    reason="this torch has no operators")
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


@pytest.mark.skipif(not _mlp_ops.AVAILABLE,
                    reason="this torch has no operators")
def test_results_begin_where_torch_compile_expects():
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    begins = []

    class Spy(torch.fx.Interpreter):
        def call_function(self, target, args, kwargs):
            made = super().call_function(target, args, kwargs)
            if "dfgnn" in str(target):
                begins.extend([t.storage_offset() for t in made])
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


@pytest.mark.skipif(not _mlp_ops.AVAILABLE,
                    reason="this torch has no operators")
def test_the_operator_is_what_torch_expects():
    graph = dfgnn.as_graph(torch.randint(0, 20, (2, 80)), 20)
    settings = _mlp.Settings(1, "relu", None, 0.01, reduce_dst="max",
                             edges=True)
    there = [True, False, True] + [False] * 4 + [True, False]
    tensors = [tensor(80, 8), tensor(20, 5), tensor(5, 8)]
    torch.library.opcheck(
        torch.ops.dfgnn.call.default,
        (_mlp_ops.run.named(_mlp_ops.text_of(settings, there)), [], tensors, None, graph.id, 20,
         20, 80))


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


def test_nothing_of_every_edge_and_inner_value_is_kept():
    edges = torch.randint(0, 50, (2, 2000))
    weights, biases = layers_of([12, 96, 96, 4], torch.float32)
    x = tensor(50, 6, dtype=torch.float32)
    sizes = []

    def pack(t):
        sizes.append(t.numel())
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        dfgnn.edge_mlp(edges, weights, biases, dst=x, src=x)
    assert sizes and max(sizes) < 2000 * 12


@pytest.mark.parametrize("dtype,hidden", [
    (torch.float32, 512), (torch.bfloat16, 1024)])
def test_torch_runs_wide_layers_on_a_cpu(dtype, hidden, monkeypatch):
    """From some width on its products are faster than the kernels', which
    keep=False asks for all the same."""
    edges, passes, own = graph_of(), [], _mlp.Recipe.forward

    def forward(self, *args):
        passes.append(self.products)
        return own(self, *args)
    monkeypatch.setattr(_mlp.Recipe, "forward", forward)

    def run(width, **options):
        weights, biases = layers_of([3 * 256, width, 256], dtype)
        x, y, e = (tensor(n, 256, dtype=dtype) for n in (19, 23, 150))
        out = dfgnn.edge_mlp(edges, weights, biases, dst=x, src=y, edge=e,
                             activation="silu", reduce="sum", **options)
        return out, [x, y, e, *weights, *biases]
    run(hidden)
    assert not passes
    with torch.no_grad():  # nothing is computed twice there
        run(hidden)
    assert passes == [2 * 256 * hidden]
    run(128)
    torch.manual_seed(3)
    left, leaves = run(hidden)
    torch.manual_seed(3)
    kept, others = run(hidden, keep=False)
    assert passes == [2 * 256 * hidden, 2 * 256 * 128, 2 * 256 * hidden]
    if dtype == torch.float32:
        torch.testing.assert_close(left, kept, rtol=1e-4, atol=1e-4)
        for a, b in zip(torch.autograd.grad(left.square().sum(), leaves),
                        torch.autograd.grad(kept.square().sum(), others)):
            torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-2)


def test_the_check_finds_what_is_wrong():
    graph = dfgnn.as_graph(graph_of(20, 20), 20)
    weights, biases = layers_of([4, 6], torch.float32)
    settings = _mlp.Settings(1, reduce_dst="sum")
    part = tensor(20, 6, dtype=torch.float32)
    tensors = [None, part, part, *[None] * 5, biases[0]]
    made = _mlp.recipe(graph, settings, tensors)
    tensors = made.place(graph, tensors, tensors[1:3])
    outs, _ = made.forward(graph, tensors)
    assert made.worst(graph, tensors, outs) <= 1
    outs[0][3, 2] += 0.01
    assert made.worst(graph, tensors, outs) > 1


@pytest.mark.parametrize("change,error,text", [
    (dict(weights=[]), ValueError, "1 to 4 layers, got 0"),
    (dict(weights=[torch.ones(3, 9)]), ValueError,
     r"weights\[0\] must have 8 columns"),
    (dict(weights=[torch.ones(3, 8), torch.ones(5, 4)],
          biases=[None, None]), ValueError, r"weights\[1\] must be \[out, in=3\]"),
    (dict(biases=[torch.ones(4)]), ValueError, r"biases\[0\] must be \[out=3\]"),
    (dict(activation="swish"), ValueError, "activation must be one of None"),
    (dict(reduce="prod"), ValueError, "reduce must be one of"),
    (dict(reduce=None), ValueError, "asked for nothing"),
    (dict(dst=torch.ones(3, 4)), ValueError,
     r"dst must be \[destinations=20, width\]"),
    (dict(edge=torch.ones(150)), ValueError,
     r"edge must be \[edges=150, edge features\]"),
    (dict(dst=torch.ones(20, 4, dtype=torch.int64),
          src=torch.ones(20, 4, dtype=torch.int64),
          weights=[torch.ones(3, 8, dtype=torch.int64)]), TypeError,
     "float16, bfloat16"),
    (dict(residual=True), dfgnn.InvalidError, "mlp.residual adds e"),
    (dict(reduce="max", dst_factor=torch.ones(150)), dfgnn.InvalidError,
     "a maximum or minimum has no factors"),
])
def test_what_does_not_fit_is_named(change, error, text):
    call = dict(weights=[torch.ones(3, 8)], dst=torch.ones(20, 4),
                src=torch.ones(20, 4), **{}) | change
    weights = call.pop("weights")
    graph = dfgnn.as_graph(graph_of(20, 20), 20)
    with pytest.raises(error, match=text):
        dfgnn.edge_mlp(graph, weights, call.pop("biases", None), **call)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_devices_agree(dtype, keep, device):
    edges = graph_of(200, 180, 1500)
    weights, biases = layers_of([48, 32, 32, 16])
    x, y, e = tensor(180, 16), tensor(200, 16), tensor(1500, 16)
    scale, shift = tensor(16), tensor(16)

    def run(x, y, e, scale, shift, *layers):
        made = dfgnn.edge_mlp(
            edges.to(x.device), layers[:3], layers[3:], dst=x, src=y, edge=e,
            activation="silu", norm="layer", norm_weight=scale,
            norm_bias=shift, residual=True, reduce_src="mean", edges=True,
            keep=keep)
        grads = torch.autograd.grad(
            sum((o * w.to(o)).sum() for o, w in zip(made, factors)),
            [x, y, e, scale, shift, *layers])
        return [*made, *grads]
    torch.manual_seed(5)
    factors = [torch.randn(n, 16) for n in (1500, 180, 200)]
    leaves = [t.detach().to(dtype) for t in (x, y, e, scale, shift, *weights,
                                             *biases)]
    want = run(*[t.double().requires_grad_() for t in leaves])
    have = run(*[t.to(device).requires_grad_() for t in leaves])
    for a, b in zip(have, want):
        worst = (a.detach().cpu().double() - b.detach()).abs().max()
        assert worst <= (1e-5 if dtype == torch.float32 else 5e-2) * \
            b.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hub_at_each_end(dtype, device):
    """10^5 edges into node 3, and as many out of node 5, in no order."""
    torch.manual_seed(2)
    hub, nodes = 100_000, 50
    ends = torch.randint(0, nodes - 5, (2, 2 * hub))
    ends[1, :hub], ends[0, hub:] = 3, 5
    ends = ends[:, torch.randperm(2 * hub)].to(device)
    weights, biases = layers_of([8, 16, 16], torch.float32)
    given = [*weights, *biases, tensor(2 * hub, 8, dtype=torch.float32),
             tensor(nodes, 16, dtype=torch.float32)]
    given = [(x.detach() * 0.5).to(device, dtype).requires_grad_()
             for x in given]

    def outputs(exact, call):
        w, v, b, c, e, part = [x.double() if exact else x for x in given]
        made = call(w, v, b, c, e, part)
        made = [x / hub for x in made]
        return [*made, *torch.autograd.grad(sum(x.sum() for x in made), given)]

    def fused(w, v, b, c, e, part):
        return dfgnn.edge_mlp(
            ends, [w, v], [b, c], edge=e, dst_part=part, src_part=part,
            activation="silu", reduce="sum", reduce_src="sum")

    def plain(w, v, b, c, e, part):
        z = F.linear(e, w, b) + part[ends[1]] + part[ends[0]]
        z = F.linear(F.silu(z), v, c)
        return [reduced("sum", z, index, nodes) for index in (
            ends[1], ends[0])]
    for have, want in zip(outputs(False, fused), outputs(True, plain)):
        error = (have.double() - want).norm() / want.norm()
        assert error < (1e-4 if dtype == torch.float32 else 2e-2), error


def enough_memory(device, size):
    return device.type == "cuda" and torch.cuda.mem_get_info()[0] > size or \
        bool(os.environ.get("TEST_LONG"))


@pytest.mark.parametrize("keep", [False, True])
def test_more_than_2_31_elements(keep, device):
    if not enough_memory(device, 40e9):
        pytest.skip("takes a GPU with 40 GB, or TEST_LONG")
    width, degree, last = 64, 8, 800
    edges = 2 ** 31 // width + last
    nodes = edges // degree
    dst = torch.arange(edges, device=device, dtype=torch.int32) // degree
    src = (dst + 1) % nodes
    graph = dfgnn.as_graph(torch.stack([src, dst]), nodes)
    torch.manual_seed(5)
    weights, biases = layers_of([width, width, width], torch.bfloat16)
    weights, biases = ([x.detach().to(device).requires_grad_() for x in xs]
                       for xs in (weights, biases))
    e = torch.zeros(edges, width, dtype=torch.bfloat16, device=device)
    e[-last:].normal_()
    e.requires_grad_()
    assert e.numel() > 2 ** 31
    made, total = dfgnn.edge_mlp(graph, weights, biases, edge=e,
                                 activation="silu", residual=True, edges=True,
                                 keep=keep)
    (total[-last // degree:].float().sum() +
     made[-last:].float().square().sum()).backward()
    own = e.detach()[-last:].double().requires_grad_()
    w, v, b, c = (x.detach().double() for x in (*weights, *biases))
    want = F.linear(F.silu(F.linear(own, w, b)), v, c) + own
    sums = want.view(-1, degree, width).sum(1)
    (sums.sum() + want.square().sum()).backward()
    for have, right in ((made[-last:], want), (total[-last // degree:], sums),
                        (e.grad[-last:], own.grad)):
        error = (have.double() - right).norm() / right.norm()
        assert error < 2e-2, error
    assert torch.equal(made[0], made[edges // 2])
