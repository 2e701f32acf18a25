"""dfgnn.capture with room for graphs of several relations: one recording for
all batches that fit.  On the CPU the same buffers and graphs are filled and the
step runs as it is."""

import gc
import weakref

import pytest
import torch
import torch_geometric.nn as G

import dfgnn
from dfgnn import _refilled, _remember


WIDTH = 6
NODES = {"a": 30, "b": 20, "c": 5}
EDGES = {("a", "x", "b"): 60, ("b", "y", "a"): 50, ("a", "z", "a"): 40,
         ("c", "w", "a"): 20}
# shares of the room that batches use: the first, smaller ones, none, all
SHARES = (0.6, 0.3, 1.0, 0.0, 1.0, 0.5)


def convs(make, aggr="sum"):
    return lambda: G.HeteroConv({key: make() for key in EDGES}, aggr)


LAYERS = {
    "SAGE": convs(lambda: G.SAGEConv((WIDTH, WIDTH), WIDTH)),
    "SAGE, sums": convs(lambda: G.SAGEConv((WIDTH, WIDTH), WIDTH,
                                           aggr="sum"), "mean"),
    "SAGE, maxima": convs(lambda: G.SAGEConv((WIDTH, WIDTH), WIDTH,
                                             aggr="max"), "max"),
    "Graph": convs(lambda: G.GraphConv((WIDTH, WIDTH), WIDTH)),
    "GIN": convs(lambda: G.GINConv(torch.nn.Linear(WIDTH, WIDTH))),
    "GAT": convs(lambda: G.GATConv((WIDTH, WIDTH), 3, heads=2,
                                   add_self_loops=False)),
    "GATv2": convs(lambda: G.GATv2Conv((WIDTH, WIDTH), 3, heads=2,
                                       add_self_loops=False)),
    "Transformer": convs(lambda: G.TransformerConv((WIDTH, WIDTH), 3,
                                                   heads=2)),
    "HGT": lambda: G.HGTConv(WIDTH, WIDTH, (list(NODES), list(EDGES)), 2),
}


class Two(torch.nn.Module):
    """Two layers over all nodes; types without in-edges keep their features."""

    def __init__(self, make):
        super().__init__()
        self.convs = torch.nn.ModuleList(make() for _ in range(2))

    def forward(self, x, edges):
        for conv in self.convs:
            x = {**x, **{kind: t.tanh() for kind, t in conv(
                x, edges).items() if t is not None}}
        return x


def batch_of(share, device):
    nodes = {kind: max(1, int(share * n)) for kind, n in NODES.items()}
    x = {kind: torch.randn(n, WIDTH, device=device)
         for kind, n in nodes.items()}
    edges = {key: torch.stack([torch.randint(nodes[end], (int(share * n),))
                               for end in (key[0], key[2])]).to(device)
             for key, n in EDGES.items()}
    return x, edges, {kind: torch.ones(n, 1, device=device)
                      for kind, n in nodes.items()}


def step_of(model):
    def step(x, edges, mask):
        for parameter in model.parameters():
            parameter.grad = None
        out = model(x, edges)
        loss = sum(((t * mask[kind]).sin() + t * mask[kind]).sum()
                   for kind, t in out.items())
        loss.backward()
        return [loss] + [torch.zeros_like(p) if p.grad is None else p.grad
                         for p in model.parameters()]
    return step


def rooms(most):
    return dict(x=most.nodes, edges=most.edges, mask=most.nodes)


@pytest.fixture
def refilled(monkeypatch):
    """The graphs of relations that were made."""
    found, inner = [], _refilled.RefilledRelations.__init__
    monkeypatch.setattr(_refilled.RefilledRelations, "__init__",
                        lambda self, *given: (found.append(
                            weakref.ref(self)), inner(self, *given))[1])
    return found


@pytest.mark.parametrize("name", LAYERS)
def test_every_batch_gives_what_it_gives_alone(name, place, refilled):
    model = Two(LAYERS[name]).to(place)
    dfgnn.accelerate(model)
    step = step_of(model)
    captured = dfgnn.capture(step, capacity=rooms(
        dfgnn.HeteroCapacity(NODES, EDGES)))
    for _ in range(2):
        for share in SHARES:
            given = batch_of(share, place)
            found = captured(*given)
            # nothing that was computed on another stream may outlive it
            expected = [t.detach().clone() for t in step(*given)]
            scale = max(float(t.detach().abs().max()) for t in expected)
            for a, b in zip(found, expected, strict=True):
                assert float((a - b).detach().abs().max()) < 2e-5 * scale
    assert len(refilled) == 1  # of both layers, in all batches
    assert captured.recorded == (place.type == "cuda")


def test_nothing_is_kept_of_a_step_that_is_gone(place, refilled):
    gc.collect()
    before = len(_remember._entries)
    model = Two(LAYERS["SAGE"]).to(place)
    dfgnn.accelerate(model)
    captured = dfgnn.capture(step_of(model), capacity=rooms(
        dfgnn.HeteroCapacity(NODES, EDGES)))
    for share in SHARES:
        captured(*batch_of(share, place))
    graph, = refilled
    assert graph() is not None
    del captured
    gc.collect()
    assert graph() is None and len(_remember._entries) <= before


def test_edges_without_room_go_layer_by_layer(place):
    """PyG's own path, or a layer's, is right where relations lack room."""
    model = Two(LAYERS["SAGE"]).to(place)
    dfgnn.accelerate(model)
    most = dfgnn.HeteroCapacity(NODES, EDGES)
    x, edges, mask = batch_of(1.0, place)
    key = ("c", "w", "a")
    some = {k: room for k, room in most.edges.items() if k != key}

    def step(x, edges, mask):
        return model(x, {**edges, key: last})["a"]
    last = edges.pop(key)
    captured = dfgnn.capture(step, capacity=dict(x=most.nodes, edges=some,
                                                 mask=most.nodes))
    with torch.no_grad():
        found = captured(x, edges, mask)[:NODES["a"]]
        torch.testing.assert_close(found, step(x, edges, mask), rtol=1e-4,
                                   atol=1e-4)


def test_rooms_are_checked():
    with pytest.raises(TypeError, match="nodes must be a dict, got int 4"):
        dfgnn.HeteroCapacity(4, EDGES)
    with pytest.raises(ValueError, match=r"nodes has no type of \('c', 'w', "
                       r"'a'\); it has 'a', 'b'"):
        dfgnn.HeteroCapacity({"a": 1, "b": 2}, EDGES)
    most = dfgnn.HeteroCapacity(NODES, EDGES)
    assert most.num_nodes["a"] == most.nodes["a"].rows == 30 + 256


def test_sizes_that_do_not_fit_are_named(said):
    most = dfgnn.HeteroCapacity(NODES, EDGES)
    x, edges, _ = batch_of(0.5, "cpu")
    conv = LAYERS["SAGE"]()
    dfgnn.accelerate(conv)
    step = dfgnn.capture(lambda x, edges: conv(x, edges),
                         capacity=dict(edges=most.edges))
    with pytest.raises(IndexError):  # of PyG, whose own path is taken
        step(x, edges)
    assert "a has 15 nodes, and the capacity of the edges of " \
        "('a', 'x', 'b') has 286, spare ones included" in said.text


def test_edges_that_are_wrong_on_a_gpu_are_left_out_and_told_later():
    """All relations are looked at in one pass."""
    from dfgnn import _capacity
    most = dfgnn.HeteroCapacity(NODES, EDGES)
    cpu = torch.device("cpu")
    buffers = [room.buffer(torch.zeros(2, 0, dtype=torch.long), cpu)
               for room in most.edges.values()]
    _capacity.side_by_side(buffers)
    buffers[0].write(torch.tensor([[0, 99], [1, 2]]))
    buffers[3].write(torch.tensor([[4, 4, 7], [2, -1, 3]]))
    _capacity.refill(buffers)
    assert buffers[0].sound[:, 0].tolist() == [0, 1]
    assert buffers[3].sound[:, 0].tolist() == [4, 2]
    assert bool((buffers[3].sound[0, 1:] >= NODES["c"]).all())
    with pytest.raises(dfgnn.InvalidError, match="3 edges of the steps before "
                       r"were left out.*\(30, 20\) or \(20, 30\)"):
        buffers[1].check(1, torch.zeros(2, 0, dtype=torch.long))
    buffers[0].check(1, torch.zeros(2, 0, dtype=torch.long))
