"""When layers of PyG are no node of autograd: what looks into a layer, or
changes it, gets its steps."""

import copy

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn.utils import parametrize, prune

import dfgnn.nn.pyg as ours
from conftest import close, random_edges
from dfgnn import _execute
from dfgnn.convert import looped_graph
from node_layers import (
    LAYERS, NODES, WIDTH, all_close, call_of, is_node, leaves_of, results,
    step_by_step)


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
    layer, (x, edges) = call_of(LAYERS["GAT"]())
    assert is_node(layer(x, edges))
    change(layer)
    out = layer(x, edges)
    assert not is_node(out)
    if change is not parametrized_itself:  # that is a class of its own
        layer.__class__ = pyg.GATConv
    close(out, layer(x, edges), 1e-12)


def principal(reductions="mean max", scalers="identity linear", **more):
    """A PNAConv whose averages are those of some degrees."""
    return ours.PNAConv(WIDTH, 4, reductions.split(), scalers.split(),
                        torch.tensor([1, 3, 4, 2, 1]), **more)


PNA = "mean min max std", "identity amplification attenuation"


@pytest.mark.parametrize("part", [
    "pre_nns.0", "pre_nns.0.0", "post_nns.0", "post_nns.0.0", "aggr_module",
    "aggr_module.aggr", "lin"])
def test_what_looks_into_a_part_of_pna_sees_its_steps(part):
    layer, given = call_of(principal(*PNA))
    before, seen = results(layer, given), []
    hook = layer.get_submodule(part).register_forward_hook(
        lambda module, inputs, out: seen.append(1))
    after = results(layer, given)
    hook.remove()
    assert seen
    close(after[0], before[0], 1e-12)
    all_close(after[1], before[1], 1e-12)


@pytest.mark.parametrize("reduced, more", [
    (PNA, {}), (("std max", "linear identity"), {"towers": 2}),
    (("min mean", "inverse_linear"), {"towers": 4}), (("sum var",), {}),
    ((), {"divide_input": True, "towers": 2}), ((), {"pre_layers": 2}),
    ((), {"post_layers": 2}), ((), {"train_norm": True})], ids=str)
def test_networks_of_pna_give_what_pygs_give(reduced, more):
    layer, given = call_of(principal(*reduced, **more))
    found = []
    for module in (layer, pyg_of(layer)):
        out = module(*given)
        leaves = leaves_of(module, given)
        first = torch.autograd.grad(out.square().sum(), leaves,
                                    create_graph=True, allow_unused=True)
        second = torch.autograd.grad(
            sum(g.square().sum() for g in first if g is not None), leaves,
            allow_unused=True)
        found.append([out, *first, *[
            torch.zeros(()).double() if t is None or not t.any() else t
            for t in second]])
    all_close(*found, 1e-9)


def test_pna_holds_no_features_once_for_each_scaler():
    layer, _ = call_of(principal(*PNA))
    saved, x = [], torch.randn(60, WIDTH, dtype=torch.float64)
    with torch.autograd.graph.saved_tensors_hooks(
            lambda t: saved.append(t.numel()) or t, lambda t: t):
        layer(x, random_edges(60, 60, 200))
    assert max(saved) == 60 * 4 * WIDTH


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


def test_returned_weights_take_the_steps():
    layer, given = call_of(LAYERS["GAT"]())
    out, (_, alpha) = layer(*given, return_attention_weights=True)
    assert not is_node(out) and alpha.size(1) == 3
    layer, given = call_of(LAYERS["Transformer"]())
    out, (_, alpha) = layer(*given, return_attention_weights=False)
    assert not is_node(out) and alpha.size(1) == 3


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
    graph = looped_graph(given[1], (NODES, NODES))  # as the layer asks for it
    torch.use_deterministic_algorithms(True)
    try:
        out, grads = results(layer, given)
        again = results(layer, given)
        assert is_node(out)
    finally:
        torch.use_deterministic_algorithms(False)
    settings = {key[0].settings.deterministic for key, call
                in graph.handle.recipes.items()
                if isinstance(call, _execute.Call)}
    assert settings == {False, True}
    close(out, before, 1e-12)
    assert torch.equal(out, again[0])
    assert all(map(torch.equal, grads, again[1]))


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
