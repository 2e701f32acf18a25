"""Layers of PyG as one node of autograd: when they are, and that they give what
the same layers give step by step."""

import contextlib
import copy
import itertools

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn.utils import parametrize, prune

import dfgnn
import dfgnn.nn.pyg as ours
from conftest import close, random_edges
from dfgnn import _chain, _execute
from dfgnn.errors import UnsupportedError
from dfgnn.nn import _node

NODES, EDGES, WIDTH, FIELDS = 11, 40, 6, 3
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5, torch.bfloat16: 3e-2}


def with_fields(layer, fields):
    """The layer, whose calls give features to the edges."""
    layer.edge_dim = fields
    return layer


# by name, functions that make layers
LAYERS = {
    "GAT": lambda: ours.GATConv(WIDTH, 4, 3),
    "GAT mean": lambda: ours.GATConv(WIDTH, 4, 3, concat=False),
    "GAT no loops": lambda: ours.GATConv(WIDTH, 4, 2, add_self_loops=False,
                                         bias=False),
    "GAT dropout": lambda: ours.GATConv(WIDTH, 4, 2, dropout=0.4),
    "GAT residual": lambda: ours.GATConv(WIDTH, 4, 3, residual=True),
    "GAT edges": lambda: ours.GATConv(WIDTH, 4, 2, edge_dim=FIELDS,
                                      add_self_loops=False, residual=True,
                                      concat=False),
    "GAT edges, loops": lambda: ours.GATConv(WIDTH, 4, 2, edge_dim=FIELDS),
    "GAT edges, added loops": lambda: ours.GATConv(
        WIDTH, 4, 2, edge_dim=FIELDS, fill_value="add"),
    "GATv2": lambda: ours.GATv2Conv(WIDTH, 4, 3),
    "GATv2 residual": lambda: ours.GATv2Conv(WIDTH, 4, 3, residual=True,
                                             concat=False),
    "GATv2 shared": lambda: ours.GATv2Conv(WIDTH, 4, 3, share_weights=True,
                                           concat=False),
    "GATv2 edges": lambda: ours.GATv2Conv(WIDTH, 4, 2, edge_dim=FIELDS,
                                          add_self_loops=False),
    "GATv2 edges, loops": lambda: ours.GATv2Conv(WIDTH, 4, 2,
                                                 edge_dim=FIELDS),
    "GATv2 edges, added loops": lambda: ours.GATv2Conv(
        WIDTH, 4, 3, edge_dim=FIELDS, fill_value="add", residual=True),
    "Transformer": lambda: ours.TransformerConv(WIDTH, 4, 3),
    "Transformer mean": lambda: ours.TransformerConv(WIDTH, 4, 3,
                                                     concat=False),
    "Transformer bare": lambda: ours.TransformerConv(
        WIDTH, 4, 2, root_weight=False, bias=False),
    "Transformer edges": lambda: ours.TransformerConv(
        WIDTH, 4, 2, edge_dim=FIELDS, dropout=0.3),
    "Transformer beta": lambda: ours.TransformerConv(WIDTH, 4, 2, beta=True),
    "Transformer beta mean": lambda: ours.TransformerConv(
        WIDTH, 4, 2, beta=True, concat=False, edge_dim=FIELDS),
    "AGNN": lambda: ours.AGNNConv(),
    "GCN": lambda: ours.GCNConv(WIDTH, 5),
    "GCN no loops": lambda: ours.GCNConv(WIDTH, 5, add_self_loops=False,
                                         bias=False),
    "GCN weights": lambda: with_fields(ours.GCNConv(WIDTH, 5), -1),
    "GCN weights, no loops": lambda: with_fields(ours.GCNConv(
        WIDTH, 5, add_self_loops=False, improved=True), -1),
    "SAGE": lambda: ours.SAGEConv(WIDTH, 5),
    "SAGE sum": lambda: ours.SAGEConv(WIDTH, 5, aggr="sum",
                                      root_weight=False),
    "SAGE max": lambda: ours.SAGEConv(WIDTH, 5, aggr="max"),
    "SAGE projected": lambda: ours.SAGEConv(WIDTH, 5, project=True,
                                            normalize=True),
    "Graph": lambda: ours.GraphConv(WIDTH, 5),
    "Graph min": lambda: ours.GraphConv(WIDTH, 5, aggr="min"),
    "Graph weights": lambda: with_fields(ours.GraphConv(WIDTH, 5), -1),
    "GIN": lambda: ours.GINConv(torch.nn.Linear(WIDTH, 5), eps=0.3),
    "GIN max": lambda: ours.GINConv(torch.nn.Linear(WIDTH, 5), aggr="max"),
    "GIN trained": lambda: ours.GINConv(torch.nn.Sequential(
        torch.nn.Linear(WIDTH, 5), torch.nn.ReLU()), train_eps=True),
    "GINE": lambda: with_fields(ours.GINEConv(
        torch.nn.Linear(WIDTH, 5), train_eps=True, edge_dim=FIELDS), FIELDS),
    "GINE given": lambda: with_fields(ours.GINEConv(
        torch.nn.Linear(WIDTH, 5), eps=0.5), WIDTH),
    "GINE mean": lambda: with_fields(ours.GINEConv(
        torch.nn.Linear(WIDTH, 5), edge_dim=FIELDS, aggr="mean"), FIELDS),
}
BIPARTITE = {
    "GAT": lambda: ours.GATConv((WIDTH, 4), 4, 2, add_self_loops=False),
    "GAT loops": lambda: ours.GATConv((WIDTH, 4), 4, 2, concat=False),
    "GAT shared": lambda: ours.GATConv(WIDTH, 4, 2),
    "GAT edges": lambda: ours.GATConv((WIDTH, 4), 4, 2, edge_dim=FIELDS),
    "GATv2 edges": lambda: ours.GATv2Conv((WIDTH, 4), 4, 2, edge_dim=FIELDS),
    "GINE": lambda: with_fields(ours.GINEConv(
        torch.nn.Linear(WIDTH, 5), edge_dim=FIELDS), FIELDS),
    "GATv2": lambda: ours.GATv2Conv((WIDTH, 4), 4, 2, add_self_loops=False),
    "Transformer": lambda: ours.TransformerConv((WIDTH, 4), 4, 2),
    "SAGE": lambda: ours.SAGEConv((WIDTH, 4), 5),
    "Graph": lambda: ours.GraphConv((WIDTH, 4), 5),
    "GIN": lambda: ours.GINConv(torch.nn.Linear(WIDTH, 5)),
}


def is_node(out):
    """Whether a node of a chain is behind a result, before any other layer."""
    met, rest = set(), [out.grad_fn]
    while rest:
        function = rest.pop()
        if function is None or function in met:
            continue
        met.add(function)
        if function.name() == "NodeBackward":
            return True
        rest += [f for f, _ in function.next_functions]
    return False


@contextlib.contextmanager
def step_by_step():
    """Layers take their other path."""
    watched, _node.watched = _node.watched, lambda: True
    try:
        yield
    finally:
        _node.watched = watched


def call_of(layer, dtype=torch.float64, seed=0):
    """(layer, its arguments) in a type."""
    torch.manual_seed(seed)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    layer = layer.to(dtype)
    x = torch.randn(NODES, WIDTH, dtype=dtype, requires_grad=True)
    edges = random_edges(NODES, NODES, EDGES)
    given = [x, edges]
    fields = getattr(layer, "edge_dim", None)
    if fields:
        shape = (fields,) if fields > 0 else ()  # -1: weights of edges
        made = torch.randn(edges.size(1), *shape, dtype=dtype)
        given.append((made if shape else made.abs() + 0.1).requires_grad_())
    return layer, given


def leaves_of(layer, given):
    found = [t for t in itertools.chain(*[
        t if isinstance(t, tuple) else (t,) for t in given])
        if t.requires_grad]
    return found + [p for p in layer.parameters() if p.requires_grad]


def results(layer, given, seed=5):
    """(out, its gradients by leaves that lead to it)."""
    torch.manual_seed(seed)
    out = layer(*given)
    grad = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
    return out, torch.autograd.grad(out, leaves_of(layer, given), grad,
                                    allow_unused=True)


def all_close(found, expected, tolerance):
    """The tensors are close, by the largest of them all: some gradients are 0
    but for rounding, as that of a bias of keys."""
    scale = max(1e-2, *[float(t.abs().max()) for t in expected
                        if t is not None])
    for a, b in zip(found, expected):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            assert float((a - b).abs().max()) < tolerance * scale


def agree(layer, given, tolerance=1e-12, node=True):
    """The layer gives the same in one node as step by step."""
    out, grads = results(layer, given)
    assert is_node(out) == node
    with step_by_step():
        plain, plain_grads = results(layer, given)
    assert not is_node(plain)
    close(out, plain, tolerance)
    all_close(grads, plain_grads, tolerance)


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
                                  "GINE"])
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


def test_a_batch_of_gradients_is_an_error_and_no_wrong_number():
    for name in ("Transformer", "GAT", "GCN"):
        layer, given = call_of(LAYERS[name]())
        out = layer(*given)
        grads = torch.randn(3, *out.shape, dtype=out.dtype)
        with pytest.raises(RuntimeError, match="storage|vmap"):
            torch.autograd.grad(out, given[0], grads, is_grads_batched=True)


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


def test_large_products_stay_apart(monkeypatch):
    monkeypatch.setattr(_node, "_SMALL", 0)
    agree(*call_of(LAYERS["Transformer"]()))
    agree(*call_of(LAYERS["Transformer mean"]()))
    agree(*call_of(LAYERS["Transformer beta"]()))


@pytest.mark.parametrize("name", ["GAT", "GAT mean", "GAT no loops"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_scores_of_many_nodes_are_products(name, dtype, monkeypatch):
    monkeypatch.setattr(_node, "_SMALL", 0)
    agree(*call_of(LAYERS[name](), dtype), TOLERANCE[dtype])


# ---- when a layer is no node ------------------------------------------------

def hooked(layer):
    layer.lin.register_forward_hook(lambda m, i, o: o * 2)


def watched_before(layer):
    layer.lin.register_forward_pre_hook(lambda m, i: (i[0] * 2,))


def watched_backward(layer):
    layer.lin.register_full_backward_hook(lambda m, i, o: (i[0] * 2,))


def replaced(layer):
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)
    new = Doubled(WIDTH, 12, bias=False).double()
    layer.lin = new


def replaced_forward(layer):
    linear = layer.lin
    linear.forward = lambda x: x @ linear.weight.t() * 2


def parametrized(layer):
    class Double(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight
    parametrize.register_parametrization(layer.lin, "weight", Double())


def parametrized_itself(layer):
    class Double(torch.nn.Module):
        def forward(self, weight):
            return 2 * weight
    parametrize.register_parametrization(layer, "att_src", Double())


def pruned(layer):
    prune.random_unstructured(layer.lin, "weight", amount=0.5)


def message_hooked(layer):
    layer.register_propagate_forward_hook(lambda m, i, o: o * 2)


def aggregation_hooked(layer):
    layer.aggr_module.register_forward_hook(lambda m, i, o: o * 2)


def reversed_flow(layer):
    layer.flow = "target_to_source"


CHANGES = [hooked, watched_before, watched_backward, replaced,
           replaced_forward, parametrized, parametrized_itself, pruned,
           message_hooked, aggregation_hooked, reversed_flow]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
def test_what_looks_into_a_layer_sees_its_steps(change):
    torch.manual_seed(0)
    layer, (x, edges) = call_of(LAYERS["GAT"]())
    assert is_node(layer(x, edges))
    change(layer)
    out = layer(x, edges)
    assert not is_node(out)
    if change is not parametrized_itself:  # that is a class of its own
        layer.__class__ = pyg.GATConv
    close(out, layer(x, edges), 1e-12)


def test_hooks_of_all_modules():
    layer, given = call_of(LAYERS["GAT"]())
    met = []
    handle = torch.nn.modules.module.register_module_forward_hook(
        lambda module, i, o: met.append(type(module)))
    try:
        assert not is_node(layer(*given))
    finally:
        handle.remove()
    assert any("Linear" in kind.__name__ for kind in met)
    assert is_node(layer(*given))


def test_hooks_of_the_layer_itself_run():
    layer, given = call_of(LAYERS["GAT"]())
    before = layer(*given)
    layer.register_forward_hook(lambda m, i, o: o * 2)
    out = layer(*given)
    assert is_node(out)
    close(out, 2 * before, 1e-12)


@pytest.mark.parametrize("name", ["GAT", "Transformer", "GCN", "SAGE", "GIN"])
def test_autocast_takes_the_steps(name):
    layer, given = call_of(LAYERS[name](), torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(*given)
        with step_by_step():
            expected = layer(*given)
    assert not is_node(out)
    assert torch.equal(out, expected)


def test_anomaly_mode_takes_the_steps():
    layer, given = call_of(LAYERS["Transformer"]())
    with pytest.warns(UserWarning, match="Anomaly"), \
            torch.autograd.detect_anomaly():
        assert not is_node(layer(*given))


def test_transforms_of_functions():
    layer, (x, edges) = call_of(LAYERS["GAT"]())

    def loss(x):
        return layer(x, edges).square().sum()
    expected, = torch.autograd.grad(loss(x), x)
    close(torch.func.grad(loss)(x.detach()), expected, 1e-12)
    batch = torch.stack([x, 2 * x]).detach()
    found = torch.func.vmap(lambda x: layer(x, edges))(batch)
    for one, features in zip(found, batch):
        close(one, layer(features, edges), 1e-12)
    _, moved = torch.func.jvp(lambda x: layer(x, edges), (x.detach(),),
                              (torch.ones_like(x),))
    assert moved.abs().sum() > 0


def test_parameters_of_a_functional_call():
    layer, (x, edges) = call_of(LAYERS["Transformer"]())
    other = {name: (2 * p).detach().requires_grad_()
             for name, p in layer.named_parameters()}
    out = torch.func.functional_call(layer, other, (x, edges))
    assert is_node(out)
    with step_by_step():
        expected = torch.func.functional_call(layer, other, (x, edges))
    close(out, expected, 1e-12)
    grads = [torch.autograd.grad(o.sum(), list(other.values()),
                                 allow_unused=True)
             for o in (out, expected)]
    all_close(*grads, 1e-12)


def test_explanations_take_the_steps():
    from torch_geometric.explain.algorithm.utils import set_masks
    layer, given = call_of(LAYERS["Transformer"]())
    expected = layer(*given)
    set_masks(layer, torch.nn.Parameter(torch.ones(given[1].size(1)).double()),
              given[1], apply_sigmoid=False)
    out = layer(*given)
    assert not is_node(out)
    close(out, expected, 1e-12)


def test_returned_weights_take_the_steps():
    layer, given = call_of(LAYERS["GAT"]())
    out, (_, alpha) = layer(*given, return_attention_weights=True)
    assert not is_node(out) and alpha.size(1) == 3
    layer, given = call_of(LAYERS["Transformer"]())
    out, (_, alpha) = layer(*given, return_attention_weights=False)
    assert not is_node(out) and alpha.size(1) == 3


def test_torch_compile_traces_the_steps():
    layer, given = call_of(LAYERS["GCN"](), torch.float32)
    met = []

    def backend(module, example):
        met.append([n.target for n in module.graph.nodes])
        return module
    out = torch.compile(layer, backend=backend)(*given)
    assert met and not is_node(out)
    close(out, layer(*given), 1e-5)


def test_a_propagate_of_ones_own_is_called():
    class Doubled(ours.SAGEConv):
        def propagate(self, *args, **kwargs):
            return 2 * super().propagate(*args, **kwargs)
    layer, given = call_of(Doubled(WIDTH, 5))
    plain = pyg.SAGEConv(WIDTH, 5).double()
    plain.load_state_dict(layer.state_dict())
    out = layer(*given)
    assert not is_node(out)
    with torch.no_grad():
        plain.lin_l.weight.mul_(2)
    close(out, plain(*given), 1e-10)
    layer, given = call_of(LAYERS["SAGE"]())
    before, propagate = layer(*given), layer.propagate
    layer.propagate = lambda *args, **kwargs: 0 * propagate(*args, **kwargs)
    assert not is_node(layer(*given))
    assert not torch.equal(layer(*given), before)


@pytest.mark.parametrize("name", ["GCN", "SAGE", "GAT"])
def test_sparse_features_are_pygs(name):
    layer, (x, edges) = call_of(LAYERS[name]())
    x = (x * (x > 0)).detach().to_sparse()
    try:
        expected = pyg_of(layer)(x, edges)
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)):
            layer(x, edges)
    else:
        close(layer(x, edges), expected, 1e-10)


def test_deterministic_algorithms_are_asked_for():
    layer, given = call_of(LAYERS["GAT"]())
    before = layer(*given)
    graph = dfgnn.as_graph(given[1], (NODES, NODES)).with_self_loops()
    torch.use_deterministic_algorithms(True)
    try:
        out, grads = results(layer, given)
        again = results(layer, given)
        assert is_node(out)
    finally:
        torch.use_deterministic_algorithms(False)
    settings = {key[2].deterministic for key in graph.handle.recipes
                if callable(key[0])}
    assert settings <= {False, True}
    close(out, before, 1e-12)
    assert torch.equal(out, again[0])
    for a, b in zip(grads, again[1]):
        assert torch.equal(a, b)


def test_another_type_of_weights_takes_the_steps():
    layer, (x, edges) = call_of(LAYERS["GAT"]())
    layer.att_src.data = layer.att_src.data.float()
    assert not is_node(layer(x, edges))


def test_edges_without_nodes_and_nodes_without_edges():
    layer, (x, _) = call_of(LAYERS["SAGE"]())
    none = torch.empty(2, 0, dtype=torch.long)
    out = layer(x, none)
    assert not is_node(out)
    close(out, pyg_of(layer)(x, none), 1e-12)
    nobody = torch.empty(0, WIDTH, dtype=x.dtype)
    assert layer(nobody, none).shape == (0, 5)


def pyg_of(layer):
    plain = copy.deepcopy(layer)
    plain.__class__ = getattr(pyg, type(layer).__name__)
    return plain


def test_lists_of_edges_that_change():
    layer, (x, edges) = call_of(LAYERS["GAT"]())
    for _ in range(3):
        out = layer(x, edges)
        assert is_node(out)
        close(out, pyg_of(layer)(x, edges), 1e-10)
        edges[0].add_(1).remainder_(NODES)  # a new version of the tensor


def test_wrong_edges_are_an_error_of_pyg():
    layer, (x, edges) = call_of(LAYERS["SAGE"]())
    wrong = edges.clone()
    wrong[0, 0] = NODES
    with pytest.raises(Exception) as found:
        layer(x, wrong)
    with step_by_step(), pytest.raises(type(found.value)):
        layer(x, wrong)


def test_parameters_of_other_shapes():
    layer, (x, edges) = call_of(LAYERS["GAT"]())
    assert is_node(layer(x, edges))
    wide = torch.randn(NODES, 9, dtype=x.dtype)
    layer.lin.weight = torch.nn.Parameter(torch.randn(12, 9).double())
    out = layer(wide, edges)
    assert is_node(out)
    close(out, pyg_of(layer)(wide, edges), 1e-10)
    layer.lin.weight = torch.nn.Parameter(torch.randn(13, 9).double())
    with pytest.raises(RuntimeError):
        layer(wide, edges)


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
    for a, b in zip(first, second):
        assert torch.equal(a, b)
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
    problem = _execute.problem

    def refuses(op, backward, *rest):
        if backward:
            raise UnsupportedError("no variant of the test")
        return problem(op, backward, *rest)
    monkeypatch.setattr(_execute, "problem", refuses)
    given[1] = given[1].clone()  # a graph without plans
    again, found = results(layer, given)
    assert is_node(again)
    all_close(found, grads, 1e-12)


def test_a_layer_without_a_kernel_takes_the_steps(monkeypatch):
    layer, given = call_of(LAYERS["GAT"]())
    out = layer(*given)

    def refuses(*given):
        raise UnsupportedError("no variant of the test")
    monkeypatch.setattr(_execute, "problem", refuses)
    given[1] = given[1].clone()
    again = layer(*given)
    assert not is_node(again)
    close(again, out, 1e-12)


def test_a_captured_step_keeps_its_graphs():
    layer, (x, edges) = call_of(LAYERS["GAT"](), torch.float32)
    step = dfgnn.capture(lambda: layer(x, edges).sum())
    close(step(), layer(x, edges).sum(), 1e-6)


def test_chains_die_with_their_graph():
    import gc
    import weakref
    layer, (x, edges) = call_of(LAYERS["Transformer"]())
    results(layer, [x, edges])
    handle = weakref.ref(dfgnn.as_graph(edges, (NODES, NODES)).handle)
    chains = [c for c in handle().recipes.values()
              if isinstance(c, _chain.Chain)]
    assert len(chains) == 1
    del edges, chains
    gc.collect()
    assert handle() is None
