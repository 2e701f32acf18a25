"""The layers that tests of nodes call, and how they compare them with the same
layers step by step."""

import contextlib
import itertools

import torch

import dfgnn.nn.pyg as ours
from conftest import close, random_edges
from dfgnn.nn._node import Chain
from dfgnn.nn import _node

WIDE = 40  # features of edges that a product multiplies before kernels
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
    "GINE wide": lambda: with_fields(ours.GINEConv(
        torch.nn.Linear(WIDTH, 5), edge_dim=WIDE,
        aggr="mean"), WIDE),
    "GINE given": lambda: with_fields(ours.GINEConv(
        torch.nn.Linear(WIDTH, 5), eps=0.5), WIDTH),
    "GINE given mean": lambda: with_fields(ours.GINEConv(
        torch.nn.Linear(WIDTH, 5), aggr="mean"), WIDTH),
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
        if isinstance(getattr(function, "call", (None,))[0], Chain):
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
    except for rounding, as that of a bias of keys."""
    scale = max(1e-2, *[float(t.detach().abs().max()) for t in expected
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
