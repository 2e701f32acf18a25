"""torch.compile: the same numbers as eager, and no break in a graph."""

import pytest
import torch

pytest.importorskip("torch._dynamo.testing")

import dfgnn  # noqa: E402
from dfgnn import nn, ops  # noqa: E402
from dfgnn._execute import (  # noqa: E402
    Settings, sum_settings)

from conftest import close, random_edges  # noqa: E402
from nn_layers import LAYERS, of_edges  # noqa: E402

@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def run(function, x, edges):
    x = x.detach().clone().requires_grad_()
    result = function(x, edges)
    parts = result if isinstance(result, tuple) else (result,)
    sum(part.square().sum() for part in parts).backward()
    return (*parts, x.grad)


def compare(function, x, edges, backend="aot_eager"):
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    for a, b in zip(run(compiled, x, edges), run(function, x, edges)):
        close(a, b, 1e-5)
    return compiled


def graph_of(kind, edges):
    return dfgnn.as_graph(edges, 20) if kind == "graph" else edges


@pytest.mark.parametrize("kind", ["graph", "edge_index"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_compile_whole(name, kind, device):
    layer = LAYERS[name]().to(device)
    edges = random_edges(20, 20, 80, device)
    more = of_edges(name, edges)
    compare(lambda x, e: layer(x, e, *more),
            torch.randn(20, 8, device=device), graph_of(kind, edges))


@pytest.mark.parametrize("name", ["transformer", "gat", "gatv2"])
def test_attention_weights_compile_whole_on_a_graph(name):
    layer = LAYERS[name]()
    graph = dfgnn.as_graph(random_edges(20, 20, 80), 20)
    graph.with_self_loops()

    def function(x, e):
        out, (_, alpha) = layer(x, e, return_attention_weights=True)
        return out, alpha
    compare(function, torch.randn(20, 8), graph)


@pytest.mark.parametrize("kind", ["graph", "edge_index"])
def test_inductor(kind, device):
    layer = LAYERS["transformer"]().to(device)
    edges = random_edges(20, 20, 80, device)
    x = torch.randn(20, 8, device=device)
    try:
        compare(layer, x, graph_of(kind, edges), "inductor")
        layer.dropout = 0.5
        dropping = torch.compile(layer, fullgraph=True)
        first, second = (dropping(x, graph_of(kind, edges)) for _ in range(2))
        assert not torch.equal(first, second)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        if "compiler" in str(error).lower():
            pytest.skip("inductor has no C++ compiler")
        raise


def test_a_new_graph_each_step_compiles_twice_at_most():
    layer = LAYERS["transformer"]()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    for size in (20, 24, 28, 32, 36):
        x = torch.randn(size, 8)
        graph = dfgnn.as_graph(random_edges(size, size, 4 * size), size)
        close(compiled(x, graph), layer(x, graph), 1e-5)
    assert counter.frame_count <= 2


@pytest.mark.parametrize("name", ["GATConv", "TransformerConv", "SAGEConv",
                                  "GCNConv"])
def test_an_accelerated_layer_compiles_once(name):
    pyg = pytest.importorskip("torch_geometric.nn")
    layer = getattr(pyg, name)(8, 8)
    assert dfgnn.accelerate(layer).served
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(layer, backend=counter, fullgraph=True)
    x, edges = torch.randn(20, 8), random_edges(20, 20, 80)
    for _ in range(3):
        close(compiled(x, edges), layer(x, edges), 1e-5)
        compiled(x, edges)
    assert counter.frame_count == 1


def test_dropout_compiles_and_keeps_its_share():
    layer = nn.TransformerConv(8, 4, heads=2, dropout=0.5, root_weight=False)
    graph = dfgnn.as_graph(random_edges(20, 20, 80), 20)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    x = torch.randn(20, 8)
    assert not torch.equal(compiled(x, graph), compiled(x, graph))
    mean = torch.stack([compiled(x, graph) for _ in range(400)]).mean(0)
    close(mean, layer.eval()(x, graph), 0.25)


def test_opcheck_finds_nothing_wrong_with_the_operator():
    edges = random_edges(20, 20, 80)
    graph = dfgnn.as_graph(edges, 20)
    query, key, value = (torch.randn(20, 2, 4, requires_grad=True)
                         for _ in range(3))
    bias = torch.randn(edges.size(1), 2, requires_grad=True)
    edge_attr = torch.randn(edges.size(1), 3, requires_grad=True)
    edge_projection = torch.randn(8, 3, requires_grad=True)
    for weights, more in ((False, ()), (True, ()),
                          (False, (edge_attr, edge_projection))):
        torch.library.opcheck(torch.ops.dfgnn.call.default, (
            ops.run.name, *ops.about(ops.OPERATORS["gt"], (
                "query", "key", "value",
                *("edge_attr", "edge_projection")[:len(more)], "bias"),
                Settings(0.5, 0.2, 0.0, weights, False, False)),
            [query, key, value, *more, bias], None, graph.id, 20, 20,
            edges.size(1)))


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max", "std", "pna"])
def test_reductions_compile_whole(reduce):
    graph = dfgnn.as_graph(random_edges(20, 20, 80), 20)
    compare(lambda x, e: dfgnn.aggregate(e, x, reduce), torch.randn(20, 8),
            graph)


def test_weights_of_spmm_compile_whole():
    edges = random_edges(20, 20, 80)
    weight = torch.randn(edges.size(1), requires_grad=True)

    def function(x, e):
        return dfgnn.spmm(e, x, weight)
    compare(function, torch.randn(20, 8), edges)
    compiled, eager = (torch.autograd.grad(
        f(torch.ones(20, 8), edges).sin().sum(), weight)[0]
        for f in (torch.compile(function, backend="aot_eager"), function))
    close(compiled, eager, 1e-5)


def test_opcheck_finds_nothing_wrong_with_reductions():
    graph = dfgnn.as_graph(random_edges(20, 20, 80), 20)
    x = torch.randn(20, 1, 8, requires_grad=True)
    for op in ("spmm-sum", "reduce-max", "reduce-pna"):
        torch.library.opcheck(torch.ops.dfgnn.call.default, (
            ops.run.name, *ops.about(
                ops.OPERATORS[op], ("value",), sum_settings(), True,
                op == "spmm-sum"), [x], None, graph.id, 20, 20,
            graph.num_edges))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_captured_cuda_graphs_replay_right():
    device = torch.device("cuda", torch.cuda.current_device())
    layer = LAYERS["transformer"]().to(device)
    graph = dfgnn.as_graph(random_edges(20, 20, 80, device), 20)
    x = torch.randn(20, 8, device=device)

    def step(x):
        layer.zero_grad(set_to_none=False)
        out = layer(x, graph)
        out.square().sum().backward()
        return out
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(x)
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = step(x)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        captured.replay()
        grads = [p.grad.clone() for p in layer.parameters()]
        replayed = out.clone()
        close(replayed, step(x), 1e-5)
        for a, b in zip(grads, [p.grad for p in layer.parameters()]):
            close(a, b, 1e-4)


@pytest.mark.parametrize("kind", ["graph", "edge_index"])
@pytest.mark.parametrize("name", ["gat with edges", "gatv2 with edges",
                                  "gcn with weights"])
def test_gradients_of_edges_with_loops_compile(name, kind):
    layer, edges, x = LAYERS[name](), random_edges(20, 20, 80), \
        torch.randn(20, 8)
    assert (edges[0] == edges[1]).any()
    given = graph_of(kind, edges)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    leaf = of_edges(name, edges)[0].requires_grad_()
    found = [(out, *torch.autograd.grad(out.sin().sum(),
                                        [leaf, *layer.parameters()]))
             for out in (f(x, given, leaf) for f in (compiled, layer))]
    for a, b in zip(*found):
        close(a, b, 1e-4)


def test_a_program_in_a_compiled_graph_says_nothing(caplog):
    pyg = pytest.importorskip("torch_geometric.nn")
    layers = torch.nn.ModuleList([pyg.LEConv(4, 4)])
    dfgnn.accelerate(layers)
    with caplog.at_level("WARNING", "torch._dynamo"):
        torch.compile(layers[0])(torch.randn(6, 4),
                                 torch.randint(0, 6, (2, 20)))
    assert "Start event" not in caplog.text


def test_layers_that_are_compiled_one_by_one_have_limits_of_their_own():
    convs = pytest.importorskip("torch_geometric.nn")
    layers = torch.nn.ModuleList(
        [getattr(convs, name)(4, 4) for name in (
            "GCNConv", "SAGEConv", "GATConv", "GATv2Conv", "TransformerConv",
            "GraphConv", "TAGConv", "SGConv")]
        + [convs.LGConv(), convs.AGNNConv(), convs.GatedGraphConv(4, 2)])
    x, edges = torch.randn(9, 4), torch.randint(0, 9, (2, 30))
    wanted = [layer(x, edges) for layer in layers]
    dfgnn.accelerate(layers)
    torch._dynamo.reset()
    for layer, want in zip(layers, wanted):
        compiled = torch.compile(layer, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(x, edges), want)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_a_compiled_gradient_keeps_what_it_reads(reduce):
    """A sum's neither features nor sums, an extreme's no features."""
    from torch._dynamo.backends.common import aot_autograd
    graphs = []

    def keep(module, inputs):
        graphs.append(module)
        return module
    edges = random_edges(20, 24, 80)
    compiled = torch.compile(
        lambda x, e: dfgnn.aggregate(e, x, reduce, num_dst=24) * 2,
        backend=aot_autograd(fw_compiler=keep), fullgraph=True)
    x = torch.randn(20, 8)
    close(run(compiled, x, edges)[1], run(
        lambda x, e: dfgnn.aggregate(e, x, reduce, num_dst=24) * 2,
        x, edges)[1], 1e-5)
    shapes = [tuple(n.meta["val"].shape) for n in graphs[1].graph.nodes
              if n.op == "placeholder"]
    assert sorted(shapes) == sorted([tuple(edges.shape), (24, 8), *[
        (24, 1, 8)] * (reduce == "max")])


def test_calls_are_dispatched_where_something_sees_them():
    from torch._subclasses import FakeTensorMode
    edges, x = random_edges(20, 20, 80), torch.randn(20, 1, 8)

    def call(x, edges):
        return torch.ops.dfgnn.call_forward_of_edges.default(
            ops.run.name, *ops.about(ops.OPERATORS["spmm-sum"], ["value"],
                                     sum_settings()), [x], edges, 0, 20, 20,
            edges.size(1))[0]
    with torch.no_grad():
        first = call(x, edges)
        with torch.profiler.profile() as profile:
            assert torch.equal(call(x, edges), first)
        with FakeTensorMode() as mode:
            faked = [mode.from_tensor(t) for t in (x, edges)]
            assert type(call(*faked)) is type(faked[0])
        assert type(call(*faked)) is type(faked[0])
    assert torch.equal(call(x.requires_grad_(), edges), first)
    assert "dfgnn::call_forward_of_edges" in [
        event.key for event in profile.key_averages()]
