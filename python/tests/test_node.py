"""Layers of PyG as one node of autograd: they give what the same layers give
step by step."""

import contextlib
import copy

import pytest
import torch

import dfgnn
import dfgnn.nn.pyg as ours
from conftest import close, random_edges
from dfgnn import _execute, _links
from dfgnn.errors import UnsupportedError
from dfgnn.nn import _node
from node_layers import (
    BIPARTITE, EDGES, FIELDS, LAYERS, NODES, TOLERANCE, WIDTH, agree,
    all_close, call_of, is_node, leaves_of, results, step_by_step)


# ---- numbers ----------------------------------------------------------------

@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_it_gives_step_by_step(name, dtype):
    # kernels read weights of 32 bits
    node = "weights" not in name or dtype is not torch.bfloat16
    agree(*call_of(LAYERS[name](), dtype), TOLERANCE[dtype], node)


@pytest.mark.parametrize("name", BIPARTITE)
def test_sources_and_destinations_apart(name):
    layer, (x, *_) = call_of(BIPARTITE[name]())
    width = WIDTH if name in ("GIN", "GINE", "GAT shared") else 4
    own = torch.randn(7, width, dtype=x.dtype, requires_grad=True)
    edges = random_edges(NODES, 7, EDGES)
    more = []
    if getattr(layer, "edge_dim", None):
        more = [torch.randn(edges.size(1), FIELDS, dtype=x.dtype,
                            requires_grad=True)]
    agree(layer, [(x, own), edges, *more])


@pytest.mark.parametrize("name", LAYERS)
def test_any_leaves_may_need_gradients(name):
    layer, given = call_of(LAYERS[name]())
    leaves = leaves_of(layer, given)
    grads = results(layer, given)[1]
    for leaf, grad in zip(leaves, grads):
        if grad is None:
            continue
        for other in leaves:
            other.requires_grad_(other is leaf)
        of_network = name.startswith("GIN") and any(
            leaf is p for p in layer.nn.parameters())
        agree(layer, given, node=not of_network)


@pytest.mark.parametrize("name", ["GAT", "Transformer edges", "SAGE", "GCN",
                                  "GINE", "GINE wide"])
def test_gradients_are_those_of_finite_differences(name):
    layer, (x, edges, *rest) = call_of(LAYERS[name]())
    seed = torch.get_rng_state()

    def run(x, *rest):
        torch.set_rng_state(seed)
        return layer(x, edges, *rest)
    assert is_node(run(x, *rest))
    torch.autograd.gradcheck(run, (x, *rest))
    torch.autograd.gradgradcheck(run, (x, *rest))


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_gradients_are_those_step_by_step(name):
    layer, given = call_of(LAYERS[name]())
    leaves = leaves_of(layer, given)

    def second():
        torch.manual_seed(3)
        out = layer(*given)
        first = torch.autograd.grad(out.square().sum(), leaves,
                                    create_graph=True, allow_unused=True)
        total = sum(g.square().sum() for g in first if g is not None)
        return is_node(out), torch.autograd.grad(total, leaves,
                                                 allow_unused=True)
    was_node, found = second()
    assert was_node
    with step_by_step():
        was_node, expected = second()
    assert not was_node
    shapes = [leaf.shape for leaf in leaves]
    all_close(*[[torch.zeros(s).double() if t is None else t
                 for s, t in zip(shapes, ts)] for ts in (found, expected)],
              1e-9)


@pytest.mark.parametrize("name", ["GINE given", "GINE given mean"])
def test_third_derivatives_are_those_step_by_step(name):
    layer, (x, edges, attr) = call_of(LAYERS[name]())

    def third():
        out = layer(x.square(), edges, attr.pow(3))
        found = out.square().sum()
        for _ in range(2):
            parts = torch.autograd.grad(found, (x, attr), create_graph=True)
            found = sum(part.pow(3).sum() for part in parts)
        return is_node(out), torch.autograd.grad(found, (x, attr))
    was_node, found = third()
    assert was_node
    with step_by_step():
        was_node, expected = third()
    assert not was_node
    all_close(found, expected, 1e-9)


def test_gradients_of_gradients_refuse_a_bias_that_was_written_to():
    layer, given = call_of(LAYERS["GAT"]())
    out = layer(*given)
    with torch.no_grad():
        layer.bias.add_(1)
    torch.autograd.grad(out.sum(), given[0], retain_graph=True)
    with pytest.raises(RuntimeError, match="bias of a layer was written to"):
        torch.autograd.grad(out.sum(), given[0], create_graph=True)


def test_gradients_refuse_a_weight_that_was_written_to():
    layer, given = call_of(LAYERS["GAT"]())
    out = layer(*given)
    with torch.no_grad():
        layer.lin.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        torch.autograd.grad(out.sum(), given[0])


def batch_by_autograd(out, leaf, grads):
    return torch.autograd.grad(out, leaf, grads, is_grads_batched=True,
                               retain_graph=True)[0]


def batch_by_vmap(out, leaf, grads):
    return torch.func.vmap(lambda grad: torch.autograd.grad(
        out, leaf, grad, retain_graph=True)[0])(grads)


@pytest.mark.parametrize("batch", [batch_by_autograd, batch_by_vmap])
@pytest.mark.parametrize("name", LAYERS)
def test_a_batch_of_gradients_is_that_of_each(name, batch):
    layer, given = call_of(LAYERS[name]())
    out = layer(*given)
    grads = torch.randn(3, *out.shape, dtype=out.dtype)
    found = batch(out, given[0], grads)
    close(found, torch.stack([torch.autograd.grad(
        out, given[0], grad, retain_graph=True)[0] for grad in grads]), 1e-12)


@pytest.mark.parametrize("write", [torch.relu_, lambda out: out.mul_(2),
                                   lambda out: out[:3].zero_()])
@pytest.mark.parametrize("name", ["GAT no loops", "Transformer bare", "AGNN",
                                  "GATv2 bare", "Transformer dropout"])
def test_a_result_may_be_written_to(name, write):
    layer, given = call_of({**LAYERS, **{
        "GATv2 bare": lambda: ours.GATv2Conv(WIDTH, 4, 3, bias=False),
        "Transformer dropout": lambda: ours.TransformerConv(
            WIDTH, 4, 2, root_weight=False, bias=False, dropout=0.4)}}[name]())
    leaves = leaves_of(layer, given)
    found = []
    for copied in (False, True):
        torch.manual_seed(4)
        out = layer(*given)
        assert is_node(out)
        if copied:
            out = out.clone()
        write(out)
        found.append(torch.autograd.grad(
            out.sin().sum(), leaves, create_graph=True, allow_unused=True))
        found.append(torch.autograd.grad(
            sum(g.pow(2).sum() for g in found[-1] if g is not None), leaves,
            allow_unused=True, retain_graph=True))
        found.append(torch.autograd.grad(out.sin().sum(), leaves,
                                         allow_unused=True))
    assert len(found) == 6
    for mine, expected in zip(found[:3], found[3:]):
        all_close(mine, expected, 1e-12)


def test_features_and_gradients_with_strides():
    layer, given = call_of(LAYERS["GAT"]())
    wide = torch.randn(WIDTH, 2 * NODES, dtype=torch.float64)
    x = wide.t()[::2].requires_grad_()
    assert not x.is_contiguous()
    agree(layer, [x, given[1]])
    out = layer(x, given[1])
    dense = layer(x.contiguous(), given[1])
    close(*(torch.autograd.grad(o.sum(), x)[0] for o in (out, dense)), 1e-12)


def test_weights_of_gcn_are_normalized_once_and_anew_when_they_change():
    layer, (x, edges, weight) = call_of(LAYERS["GCN weights"]())
    weight = weight.detach()
    first = layer(x, edges, weight)
    assert is_node(first)
    close(layer(x, edges, weight), first, 1e-12)
    with torch.no_grad():
        weight[::2] += 1
    changed = layer(x, edges, weight)
    with step_by_step():
        close(changed, layer(x, edges, weight), 1e-12)
    assert float((changed - first).abs().max()) > 1e-3
    other = weight.flip(0)
    with step_by_step():
        expected = layer(x, edges, other)
    close(layer(x, edges, other), expected, 1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", [ours.GCNConv, dfgnn.nn.GCNConv])
def test_edges_that_gcn_keeps(kind, weighted):
    layer, given = call_of(kind(WIDTH, 5, cached=True))
    if weighted:
        given.append(torch.rand(given[1].size(1), dtype=torch.float64))
    first = layer(*given)
    assert not is_node(first)  # it makes what later calls read
    agree(layer, given)
    given[1] = given[1].flip(0)
    close(layer(*given), first, 1e-12)
    if kind is ours.GCNConv:  # as PyG's does
        layer.cached = False
        close(layer(*given), first, 1e-12)
        layer.cached = True
    given[0] = torch.randn(NODES + 1, WIDTH, dtype=torch.float64)
    layer.reset_parameters()
    assert not is_node(layer(*given))


def test_large_products_stay_apart(monkeypatch):
    monkeypatch.setitem(_links.SMALL, "cpu", 0)
    agree(*call_of(LAYERS["Transformer"]()))
    agree(*call_of(LAYERS["Transformer mean"]()))
    agree(*call_of(LAYERS["Transformer beta"]()))


@pytest.mark.parametrize("name", ["GAT", "GAT mean", "GAT no loops"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_scores_of_many_nodes_are_products(name, dtype, monkeypatch):
    monkeypatch.setitem(_links.SMALL, "cpu", 0)
    agree(*call_of(LAYERS[name](), dtype), TOLERANCE[dtype])


# ---- layers that share features of edges ------------------------------------

class Counted:
    """Counts the tensors that a graph brings into its own order."""

    def __init__(self, monkeypatch, graph):
        self.made, usual = 0, graph.to_graph_order

        def counted(edges):
            self.made += 1
            return usual(edges)
        monkeypatch.setattr(graph, "to_graph_order", counted)


def _layers_of_edges():
    """(a graph in another order than its edges, a function that calls a layer
    twice on it with features of edges, x, features)."""
    listed = dfgnn.as_graph(random_edges(NODES, NODES, EDGES).flip(1), NODES)
    graph = dfgnn.Graph(listed.offsets, listed.indices,
                        edge_order=listed.edge_order)
    assert graph.edge_order is not None and not graph.handle.listed
    layer, _ = call_of(LAYERS["GINE given"]())
    x = torch.randn(NODES, WIDTH, dtype=torch.float64, requires_grad=True)
    leaf = torch.randn(graph.num_edges, WIDTH, dtype=torch.float64,
                       requires_grad=True)

    def run(features):
        return torch.cat([layer(x, graph, features),
                          layer(x.square(), graph, features)], 1)
    return graph, run, x, leaf


def test_layers_share_features_in_the_graphs_order(monkeypatch):
    graph, run, x, leaf = _layers_of_edges()
    counted, features = Counted(monkeypatch, graph), leaf.sin()
    out = run(features)
    assert is_node(out) and counted.made == 1
    grads = torch.autograd.grad(out.square().sum(), [x, leaf],
                                retain_graph=True)
    with step_by_step():
        plain = run(features)
    all_close([out, *grads], [plain, *torch.autograd.grad(
        plain.square().sum(), [x, leaf], retain_graph=True)], 1e-12)
    del out, plain
    counted.made = 0
    run(features)  # nothing of the passes before is there any more
    assert counted.made == 1


def test_features_that_were_written_to_are_ordered_anew(monkeypatch):
    graph, run, x, leaf = _layers_of_edges()
    counted, features = Counted(monkeypatch, graph), leaf * 1
    first = run(features)
    features.mul_(2)
    second = run(features)
    assert counted.made == 2
    assert float((first - second).abs().max()) > 1e-3
    close(second, run(leaf * 2), 1e-12)
    assert counted.made == 3
    # of a leaf, which .data writes to unseen, nothing is shared
    third = run(leaf)
    leaf.data.mul_(2)
    close(run(leaf), second, 1e-12)
    assert counted.made == 7
    del third
    with torch.no_grad():
        close(run(features), second, 1e-12)
    assert counted.made == 9


# ---- around a node ----------------------------------------------------------

def test_a_graph_in_place_of_edges():
    for name in ("GAT", "Transformer", "GCN", "SAGE"):
        layer, (x, edges) = call_of(LAYERS[name]())
        graph = dfgnn.as_graph(edges, NODES)
        out = layer(x, graph)
        assert is_node(out), name
        close(out, layer(x, edges), 1e-12)


def test_without_gradients_nothing_is_kept():
    layer, given = call_of(LAYERS["Transformer"]())
    expected = layer(*given)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            out = layer(*given)
        assert not out.requires_grad
        assert torch.equal(out, expected)


def test_checkpoints_and_saved_tensors():
    from torch.utils.checkpoint import checkpoint
    layer, (x, edges) = call_of(LAYERS["GAT dropout"]())
    out, grads = results(layer, [x, edges])
    sizes = []

    def run(x, edges):
        return checkpoint(layer, x, edges, use_reentrant=False)
    run.parameters = layer.parameters
    again, found = results(Called(layer, run), [x, edges])
    close(again, out, 1e-12)
    all_close(found, grads, 1e-12)
    with torch.autograd.graph.saved_tensors_hooks(
            lambda t: sizes.append(t.numel()) or t, lambda t: t):
        results(layer, [x, edges])
    assert x.numel() in sizes and layer.lin.weight.numel() in sizes


def test_a_checkpoint_may_hold_the_call_that_fills_a_cache():
    from torch.utils.checkpoint import checkpoint
    x = torch.randn(4, 3, requires_grad=True)
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    for kind in (ours.GCNConv, dfgnn.nn.GCNConv):
        layer = kind(3, 2, cached=True)
        out = checkpoint(layer, x, edges, use_reentrant=False)
        grad, = torch.autograd.grad(out.sum(), x)
        want, = torch.autograd.grad(layer(x, edges).sum(), x)
        close(grad, want, 1e-6)


class Called:
    def __init__(self, layer, call):
        self.layer, self.call = layer, call

    def __call__(self, *given):
        return self.call(*given)

    def parameters(self):
        return self.layer.parameters()


def test_gradients_may_be_taken_twice():
    layer, given = call_of(LAYERS["Transformer"]())
    out = layer(*given)
    leaves = leaves_of(layer, given)
    first = torch.autograd.grad(out.sum(), leaves, retain_graph=True)
    second = torch.autograd.grad(out.sum(), leaves)
    assert all(map(torch.equal, first, second))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out.sum(), leaves)


def test_gradients_add_up_and_optimizers_take_them():
    layer, given = call_of(LAYERS["Transformer"]())
    twin = copy.deepcopy(layer)
    for model, path in ((layer, contextlib.nullcontext), (twin,
                                                          step_by_step)):
        with path():
            optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
            for _ in range(4):
                optimizer.zero_grad(set_to_none=False)
                for _ in range(2):
                    model(*given).square().mean().backward()
                optimizer.step()
    for a, b in zip(layer.parameters(), twin.parameters()):
        close(a, b, 1e-9)


def test_a_pass_without_a_kernel_runs_by_torch_operations(monkeypatch):
    layer, given = call_of(LAYERS["GAT"]())
    out, grads = results(layer, given)
    plan = _execute.Plan

    def refuses(handle, device, wanted, settings):
        if wanted.pass_:
            raise UnsupportedError("no variant of the test")
        return plan(handle, device, wanted, settings)
    monkeypatch.setattr(_execute, "Plan", refuses)
    given[1] = given[1].clone()  # a graph without plans
    again, found = results(layer, given)
    assert is_node(again)
    all_close(found, grads, 1e-12)


def test_a_layer_without_a_kernel_takes_the_steps(monkeypatch):
    layer, given = call_of(LAYERS["GAT"]())
    out = layer(*given)

    def refuses(*given):
        raise UnsupportedError("no variant of the test")
    monkeypatch.setattr(_execute, "Plan", refuses)
    given[1] = given[1].clone()
    again = layer(*given)
    assert not is_node(again)
    close(again, out, 1e-12)


def test_calls_die_with_their_graph():
    import gc
    import weakref
    layer, (x, edges) = call_of(LAYERS["Transformer"]())
    results(layer, [x, edges])
    handle = weakref.ref(dfgnn.as_graph(edges, (NODES, NODES)).handle)
    calls = [c for c in handle().recipes.values()
             if isinstance(c, _execute.Call)]
    assert len(calls) == 2  # forward and backward
    del edges, calls
    gc.collect()
    assert handle() is None


@pytest.mark.parametrize("name", ["GAT", "SAGE", "Transformer"])
def test_graphs_of_different_sizes_share_the_links(name):
    layer, (x, edges) = call_of(LAYERS[name]())
    results(layer, [x, edges])
    before = dict(_node._chains)
    for nodes, count in (NODES - 3, 17), (NODES - 5, 40):
        smaller = random_edges(nodes, nodes, count)
        given = [x[:nodes].detach().requires_grad_(), smaller]
        out, grads = results(layer, given)
        assert is_node(out)
        plain = copy.deepcopy(layer)
        plain.__class__ = type(layer)._dfgnn_base
        expected, of_plain = results(plain, given)
        close(out, expected, 1e-10)
        all_close(grads, of_plain, 1e-9)
    assert _node._chains == before
