"""The layers against PyG's: results, gradients, and parameters that each loads
from the other."""

import itertools
import os

import pytest
import torch

pyg = pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from dfgnn import nn as ours  # noqa: E402

from conftest import close, random_edges, to  # noqa: E402

FORWARD, GRADIENT = 1e-5, 1e-4


def grid(**choices):
    names = list(choices)
    return [dict(zip(names, values))
            for values in itertools.product(*choices.values())]


def thin(cases):
    """Every seventh case in a quick run: options have two or three values."""
    return cases[::7] if os.environ.get("TEST_QUICK") else cases


def label(case):
    return "-".join(f"{k[:5]}={v}" for k, v in case.items())


def run(layer, x, edges, kwargs):
    leaves = [t.detach().clone().requires_grad_() for t in
              (x if isinstance(x, tuple) else (x,))]
    edge_attr = kwargs.get("edge_attr")
    if edge_attr is not None:
        edge_attr = edge_attr.detach().clone().requires_grad_()
        kwargs = dict(kwargs, edge_attr=edge_attr)
    out = layer(tuple(leaves) if isinstance(x, tuple) else leaves[0], edges,
                **kwargs)
    alpha = None
    if isinstance(out, tuple):
        out, (edges, alpha) = out
    torch.manual_seed(3)
    loss = (out * torch.randn_like(out)).sum()
    loss.backward()
    grads = [t.grad for t in leaves] + [p.grad for p in layer.parameters()]
    if edge_attr is not None:
        grads.append(edge_attr.grad)
    return out, grads, edges, alpha


def compare(theirs, mine, x, edges, kwargs, graph=None, place="cpu"):
    theirs, mine = theirs.to(place), mine.to(place)
    x, edges, kwargs = to((x, edges, kwargs), place)
    mine.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(mine.state_dict())
    assert [n for n, _ in mine.named_parameters()] == \
        [n for n, _ in theirs.named_parameters()]
    expected, want, their_edges, their_alpha = run(theirs, x, edges, kwargs)
    out, grads, my_edges, alpha = run(mine, x,
                                      edges if graph is None else graph,
                                      kwargs)
    close(out, expected, FORWARD)
    for number, (grad, wanted) in enumerate(zip(grads, want)):
        assert (grad is None) == (wanted is None), f"gradient {number}"
        if grad is not None:
            # a gradient that is zero except for rounding
            if wanted.abs().max() < 1e-5 and grad.abs().max() < 1e-5:
                continue
            close(grad, wanted, GRADIENT, f"gradients {number}")
    if their_alpha is not None:
        assert torch.equal(my_edges, their_edges)
        close(alpha, their_alpha, FORWARD, "attention weights")


def features(bipartite, sizes=(14, 17), widths=(6, 5)):
    if bipartite:
        return (torch.randn(sizes[0], widths[0]),
                torch.randn(sizes[1], widths[1])), widths, sizes
    return torch.randn(sizes[0], widths[0]), widths[0], (sizes[0],) * 2


YES = [True, False]
_ANY = dict(heads=[1, 3], concat=YES, edge_dim=[None, 4], bipartite=[
    False, True], weights=[None, True])
_LOOPS = dict(add_self_loops=YES, residual=YES)
# by name: (the options of a layer, widths of sources and destinations)
OPTIONS = {
    "TransformerConv": (dict(_ANY, beta=[False, True], bias=YES,
                             root_weight=YES), (6, 5)),
    "GATConv": (dict(_ANY, **_LOOPS, fill_value=["mean", 0.5, "add"],
                     bias=YES), (6, 5)),
    "GATv2Conv": (dict(_ANY, **_LOOPS, fill_value=["mean", 0.5],
                       share_weights=YES), (6, 6)),
}
CASES = [(name, case) for name, (options, _) in OPTIONS.items()
         for case in thin(grid(**options))
         if case["edge_dim"] or case.get("fill_value", "mean") == "mean"]


def label_of(value):
    return value if isinstance(value, str) else label(value)


@pytest.mark.parametrize("name, case", CASES, ids=label_of)
def test_a_layer_that_attends_is_that_of_pyg(name, case, place):
    case = dict(case)
    bipartite, weights = case.pop("bipartite"), case.pop("weights")
    # PyG reduces features of loops over as many nodes as have loops
    x, width, sizes = features(bipartite, (17, 14), OPTIONS[name][1])
    edges = random_edges(*sizes, 60)
    kwargs = dict(return_attention_weights=weights)
    if case["edge_dim"]:
        kwargs["edge_attr"] = torch.randn(edges.size(1), case["edge_dim"])
    compare(getattr(pyg, name)(width, 8, **case),
            getattr(ours, name)(width, 8, **case), x, edges, kwargs,
            place=place)


@pytest.mark.parametrize("case", grid(requires_grad=YES, add_self_loops=YES),
                         ids=label)
def test_agnn_conv_is_that_of_pyg(case, place):
    x, _, sizes = features(False)
    compare(pyg.AGNNConv(**case), ours.AGNNConv(**case), x,
            random_edges(*sizes, 60), {}, place=place)


CLASSES = list(OPTIONS)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_either_flow_and_index_type(name, flow, kind):
    x, width, sizes = features(False)
    edges = random_edges(*sizes, 60)
    theirs = getattr(pyg, name)(width, 8, flow=flow)
    mine = getattr(ours, name)(width, 8, flow=flow)
    compare(theirs, mine, x, edges, {}, edges.to(kind))


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("weights", [None, True])
def test_a_graph_serves_as_the_edge_index(name, weights, place):
    x, width, sizes = features(False)
    edges = random_edges(*sizes, 60)
    compare(getattr(pyg, name)(width, 8, heads=2),
            getattr(ours, name)(width, 8, heads=2), x, edges,
            dict(return_attention_weights=weights),
            dfgnn.as_graph(edges.to(place), sizes), place)


@pytest.mark.parametrize("name", CLASSES)
def test_no_edges_give_what_pyg_gives(name, place):
    x, width, _ = features(False)
    edges = torch.empty(2, 0, dtype=torch.int64)
    compare(getattr(pyg, name)(width, 8), getattr(ours, name)(width, 8), x,
            edges, {}, place=place)


def test_false_asks_for_weights_of_transformer_conv_only():
    x, width, sizes = features(False)
    edges = random_edges(*sizes, 60)
    compare(pyg.TransformerConv(width, 8), ours.TransformerConv(width, 8), x,
            edges, dict(return_attention_weights=False))
    compare(pyg.GATConv(width, 8), ours.GATConv(width, 8), x, edges,
            dict(return_attention_weights=False))


def test_gat_conv_without_destination_features():
    x_src = torch.randn(14, 6)
    edges = random_edges(14, 17, 60)
    layers = [getattr(where, "GATConv")((6, 5), 8, heads=2,
                                        add_self_loops=loops)
              for where in (pyg, ours) for loops in (True, False)]
    for theirs, mine in zip(layers[:2], layers[2:]):
        mine.load_state_dict(theirs.state_dict())
        for size in (None, (14, 17)):
            used = edges.clamp(max=13) if size is None else edges
            expected = theirs((x_src, None), used, size=size)
            close(mine((x_src, None), used, size=size), expected, FORWARD)


def test_lazy_sizes_are_found_as_in_pyg():
    x, width, sizes = features(False)
    edges = random_edges(*sizes, 60)
    mine, theirs = ours.GATConv(-1, 8), pyg.GATConv(width, 8)
    mine(x, edges)
    assert mine.lin.weight.shape == (8, width)
    fresh = ours.GATConv(-1, 8)
    fresh.load_state_dict(theirs.state_dict())
    close(fresh(x, edges), theirs(x, edges), FORWARD)


@pytest.mark.parametrize("name", CLASSES)
def test_parameters_start_within_the_bounds_of_pyg(name):
    theirs = dict(getattr(pyg, name)(40, 30, heads=4).named_parameters())
    for key, mine in getattr(ours, name)(40, 30, heads=4).named_parameters():
        assert mine.shape == theirs[key].shape
        largest = theirs[key].abs().max()
        assert mine.abs().max() <= largest * 1.15
        assert mine.abs().max() >= largest * 0.85


def test_swapping_the_convolution_of_gps_is_enough():
    x = torch.randn(14, 8)
    edges = random_edges(14, 14, 60)
    theirs = pyg.GPSConv(8, pyg.TransformerConv(8, 8), heads=2).eval()
    mine = pyg.GPSConv(8, ours.TransformerConv(8, 8), heads=2).eval()
    mine.load_state_dict(theirs.state_dict())
    close(mine(x, edges), theirs(x, edges), FORWARD)
