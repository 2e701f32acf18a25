"""Models and graphs of many relations for tests, and what compares them with
PyG's in float64."""

import copy

import torch
import torch_geometric.nn as G

import dfgnn

WIDTH = 6
NODES = {"a": 7, "b": 5, "c": 1, "d": 3}
KINDS = [("a", "x", "a"), ("b", "x", "a"), ("a", "y", "b"), ("a", "z", "b"),
         ("c", "x", "a"), ("b", "w", "c"), ("a", "x", "d")]
COUNTS = (12, 9, 8, 0, 4, 6, 3)


# ---- comparing --------------------------------------------------------------

def schema(counts=COUNTS, nodes=NODES, kinds=KINDS):
    x = {kind: torch.randn(n, WIDTH, dtype=torch.float64, requires_grad=True)
         for kind, n in nodes.items()}
    edges = {(s, r, d): torch.stack([torch.randint(max(nodes[end], 1), (n,))
                                     for end in (s, d)])
             for (s, r, d), n in zip(kinds, counts)}
    return x, edges


def spread(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def flat(out):
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, dict):
        return [t for key in sorted(out) for t in flat(out[key])]
    return [] if out is None else [t for part in out for t in flat(part)]


def gradients(outs, leaves, weights):
    total = sum((out * w).sum() for out, w in zip(outs, weights))
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [torch.zeros_like(t) if g is None else g
            for t, g in zip(leaves, found)]


def compare(plain, fast, leaves, call, tolerance=1e-10):
    """Results and gradients by the leaves and by the parameters agree."""
    want, have = flat(call(plain)), flat(call(fast))
    assert [t.shape for t in have] == [t.shape for t in want] and want
    weights = [torch.randn_like(t) for t in want]
    of_plain = gradients(want, [*leaves, *plain.parameters()], weights)
    of_fast = gradients(have, [*leaves, *fast.parameters()], weights)
    torch.testing.assert_close(have + of_fast, want + of_plain, rtol=tolerance,
                               atol=tolerance)


def accelerated(plain):
    fast = copy.deepcopy(plain)
    dfgnn.accelerate(fast)
    return fast


def agree(plain, leaves, call, tolerance=1e-10):
    """compare() of a model, whose parameters are spread, with an accelerated
    copy; returns the copy."""
    fast = accelerated(spread(plain))
    compare(plain, fast, leaves, call, tolerance)
    return fast


def gradients_alike(plain, fast, leaves, call):
    """Gradients of a scalar are none in the same places, and else agree."""
    found = []
    for model in (plain, fast):
        out = call(model)
        for _ in range(2):  # a pass leaves nothing behind for the next
            grads = torch.autograd.grad(out, [*leaves, *model.parameters()],
                                        retain_graph=True, allow_unused=True)
        found.append(grads)
    assert any(g is None for g in found[0])
    torch.testing.assert_close(*reversed(found))


def second_derivatives(model, leaves, call):
    """Gradients of the squares of the gradients of call(model)."""
    leaves = [*leaves, *model.parameters()]
    first = torch.autograd.grad(
        sum(t.tanh().square().sum() for t in flat(call(model))), leaves,
        create_graph=True, allow_unused=True)
    again = torch.autograd.grad(
        sum(g.square().sum() for g in first if g is not None), leaves,
        allow_unused=True)
    return [torch.zeros_like(t) if g is None else g
            for t, g in zip(leaves, again)]


# ---- layers of a HeteroConv -------------------------------------------------

def own_loops(key):
    return key[0] == key[2]


LAYERS = {
    "GAT": lambda key: G.GATConv(WIDTH, 4, heads=2,
                                 add_self_loops=own_loops(key)),
    "GAT of two widths, averaged": lambda key: G.GATConv(
        (WIDTH, WIDTH), 4, heads=2, add_self_loops=False, concat=False,
        residual=True),
    "Transformer": lambda key: G.TransformerConv((WIDTH, WIDTH), 4, heads=2),
    "Transformer without own": lambda key: G.TransformerConv(
        (WIDTH, WIDTH), 4, heads=2, bias=False, root_weight=False,
        concat=False),
    "SAGE": lambda key: G.SAGEConv(WIDTH, 8),
    "SAGE of the largest": lambda key: G.SAGEConv((WIDTH, WIDTH), 8,
                                                  aggr="max"),
    "SAGE without own": lambda key: G.SAGEConv(
        (WIDTH, WIDTH), 8, aggr="sum", root_weight=False, bias=False),
    "Graph": lambda key: G.GraphConv((WIDTH, WIDTH), 8),
    "GIN": lambda key: G.GINConv(torch.nn.Linear(WIDTH, 4), train_eps=True),
    "GATv2": lambda key: G.GATv2Conv((WIDTH, WIDTH), 4, heads=2,
                                     add_self_loops=own_loops(key)),
    "GATv2 shared, averaged": lambda key: G.GATv2Conv(
        (WIDTH, WIDTH), 4, heads=2, add_self_loops=False, concat=False,
        share_weights=True, residual=True, bias=False),
    "Transformer with beta": lambda key: G.TransformerConv(
        (WIDTH, WIDTH), 4, heads=2, beta=True),
    "SAGE projected": lambda key: G.SAGEConv((WIDTH, WIDTH), 8, project=True),
    "SAGE normalized": lambda key: G.SAGEConv((WIDTH, WIDTH), 8,
                                              normalize=True),
}


def hetero_conv(make, kinds=KINDS, aggr="sum"):
    """A HeteroConv of make(relation), in float64."""
    return G.HeteroConv({key: make(key) for key in kinds}, aggr).double()


# ---- schemas ----------------------------------------------------------------

def random_schema(number):
    """(nodes, kinds, counts): empty relations, types without relations, one
    node, relations of a type with itself, several of the same types."""
    draw = torch.Generator().manual_seed(number)

    def pick(most):
        return int(torch.randint(most, (1,), generator=draw))
    nodes = {f"t{i}": (1, 1, 2, 5, 9)[pick(5)] for i in range(1 + pick(4))}
    names = list(nodes)
    kinds = [(names[pick(len(names))], f"r{i}", names[pick(len(names))])
             for i in range(2 + pick(6))]
    return nodes, kinds, [(0, 1, 4, 20)[pick(4)] for _ in kinds]


def many_types(count, relations):
    nodes = {f"t{i}": 1 + i % 3 for i in range(count)}
    kinds = [(f"t{i % count}", f"r{i}", f"t{(7 * i + i // count) % count}")
             for i in range(relations)]
    return nodes, kinds, [i % 4 for i in range(relations)]


def typed(nodes, relations, count):
    """(edge_index, edge_type) with relations that have no edge."""
    kinds = torch.randint(relations, (count,))
    if relations > 5:
        kinds = kinds // 3 * 3
    return torch.randint(nodes, (2, count)), kinds
