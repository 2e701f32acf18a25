"""dfgnn.capture with a capacity: one recording for all batches that fit.

On a GPU these are CUDA graphs; on the CPU the same buffers and graphs are
filled and the step runs as it is.
"""

import gc
import weakref

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn import functional as F

import dfgnn
from dfgnn import _capacity, _remember

from conftest import close
from test_capture import fake  # noqa: F401

NODES, EDGES, IN, CLASSES = 40, 150, 6, 5
# (nodes, edges) of batches: the first, smaller ones, an empty one, the largest
SIZES = [(30, 90), (7, 20), (22, 0), (0, 0), (NODES, EDGES), (31, 149), (1, 1)]


def layer(name, **options):
    return lambda: getattr(pyg, name)(IN, CLASSES, **options)


LAYERS = {
    "GCN": layer("GCNConv"),
    "GAT": layer("GATConv", heads=2, concat=False),
    "GAT no loops": layer("GATConv", add_self_loops=False),
    "GATv2": layer("GATv2Conv", heads=2, concat=False),
    "Transformer": layer("TransformerConv", heads=2, concat=False),
    "SAGE": layer("SAGEConv"),
    "SAGE max": layer("SAGEConv", aggr="max"),
    "Graph": layer("GraphConv"),
    "GIN": lambda: pyg.GINConv(torch.nn.Linear(IN, CLASSES)),
}
EDGED = {
    "Transformer": layer("TransformerConv", edge_dim=3),
    "GATv2": layer("GATv2Conv", edge_dim=3, add_self_loops=False),
    "GINE": lambda: pyg.GINEConv(torch.nn.Linear(IN, CLASSES), edge_dim=3),
    "Graph": layer("GraphConv"),
}


def batch_of(nodes, edges, device):
    edge_index = torch.randint(max(nodes, 1), (2, edges), device=device)
    x = torch.randn(nodes, IN, device=device)
    labels = torch.randint(CLASSES, (nodes,), device=device)
    return x, edge_index, labels


def model_of(make, device):
    model = make().to(device)
    dfgnn.accelerate(model)
    return model


def gradients(model, *given):
    """(loss, gradients of the parameters) of a batch that is not captured."""
    x, edge_index, labels = given[:3]
    model.zero_grad()
    out = model(x, edge_index, *given[3:])
    loss = F.cross_entropy(out, labels, reduction="sum")
    loss.backward()
    return [loss.detach()] + [
        torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for p in model.parameters()]


def same(found, expected):
    """The tensors agree, by the largest of them all: some gradients are 0 but
    for rounding, as that of a bias of keys."""
    scale = max(float(t.detach().abs().max()) for t in expected)
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert float((a - b).detach().abs().max()) < 2e-5 * scale


def step_of(model):
    def step(x, edge_index, labels, *more):
        for parameter in model.parameters():
            parameter.grad = None
        out = model(x, edge_index, *more)
        loss = F.cross_entropy(out, labels, reduction="sum",
                               ignore_index=-100)
        loss.backward()
        return [loss] + [p.grad for p in model.parameters()]
    return step


def rooms(capacity, **more):
    return dict(x=capacity.nodes, edge_index=capacity.edges,
                labels=capacity.nodes.filled(-100), **more)


@pytest.mark.parametrize("name", LAYERS)
def test_every_batch_gives_what_it_gives_alone(name, place):
    model = model_of(LAYERS[name], place)
    captured = dfgnn.capture(step_of(model), capacity=rooms(
        dfgnn.Capacity(NODES, EDGES)))
    for round_ in range(2):
        for size in SIZES:
            given = batch_of(*size, place)
            found = captured(*given)
            if size[0]:
                same(found, gradients(model, *given))
            else:
                assert all(float(t.abs().max()) == 0 for t in found)
    assert captured.recorded == (place.type == "cuda")


@pytest.mark.parametrize("name", EDGED)
def test_edge_features_follow_their_edges(name, place):
    model = model_of(EDGED[name], place)
    width = () if name == "Graph" else (3,)  # edge weights

    def step(x, edge_index, labels, edge_attr):
        return step_of(model)(x, edge_index, labels, edge_attr)
    most = dfgnn.Capacity(NODES, EDGES)
    captured = dfgnn.capture(step, capacity=rooms(most,
                                                  edge_attr=most.by_edge))
    for round_ in range(2):
        for size in SIZES:
            if not size[1]:
                continue  # PyG's layers need an edge for their features
            given = batch_of(*size, place)
            features = torch.rand(size[1], *width, device=place)
            same(captured(*given, features),
                 gradients(model, *given, features))


def test_sampled_blocks_have_sources_and_destinations(place):
    layers = torch.nn.ModuleList([pyg.SAGEConv(IN, 8), pyg.GATConv(
        8, CLASSES, add_self_loops=False)]).to(place)
    dfgnn.accelerate(layers)
    outer, inner = (dfgnn.Capacity((60, 25), 100),
                    dfgnn.Capacity((25, 10), 40))

    def run(x, blocks, ends):
        for conv, edges, end in zip(layers, blocks, ends):
            x = conv((x, x[:end]), edges)
        return x

    def step(x, blocks, labels):
        out = run(x, blocks, (outer.num_destinations,
                              inner.num_destinations))[:10]
        return F.cross_entropy(out, labels, reduction="sum")
    captured = dfgnn.capture(step, capacity=dict(
        x=outer.sources, blocks=[outer.edges, inner.edges],
        labels=dfgnn.Room(10, fill=-100)))
    for nodes in ((60, 25, 10), (20, 9, 4), (11, 11, 2), (60, 25, 10),
                  (5, 3, 1)):
        blocks = [torch.stack([torch.randint(a, (count,)),
                               torch.randint(b, (count,))]).to(place)
                  for a, b, count in zip(nodes, nodes[1:],
                                         (4 * nodes[1], 4 * nodes[2]))]
        x = torch.randn(nodes[0], IN, device=place)
        labels = torch.randint(CLASSES, nodes[2:], device=place)
        expected = F.cross_entropy(run(x, blocks, nodes[1:]), labels,
                                   reduction="sum")
        close(captured(x, blocks, labels), expected, tolerance=2e-5)


def test_layers_of_dfgnn_and_of_pyg_alone_see_the_same_edges(place):
    layers = [pyg.GraphConv(IN, CLASSES), dfgnn.nn.GATv2Conv(IN, CLASSES)]
    for conv in layers:
        conv.to(place)
        captured = dfgnn.capture(
            lambda x, edge_index: conv(x, edge_index), capacity=dict(
                zip(("x", "edge_index"), (
                    (most := dfgnn.Capacity(NODES, EDGES)).nodes,
                    most.edges))))
        for size in SIZES[:2] + SIZES[4:] + SIZES[:2]:
            x, edge_index, _ = batch_of(*size, place)
            with torch.no_grad():
                close(captured(x, edge_index)[:size[0]], conv(x, edge_index),
                      tolerance=2e-5)


def test_one_recording_serves_all(fake):  # noqa: F811
    most, calls = dfgnn.Capacity(NODES, EDGES), []
    conv = pyg.GCNConv(IN, CLASSES)
    dfgnn.accelerate(conv)

    def step(x, edge_index):
        calls.append((tuple(x.shape), tuple(edge_index.shape)))
        return conv(x, edge_index)
    captured = dfgnn.capture(step, warmup=2, capacity=dict(
        x=most.nodes, edge_index=most.edges))
    for size in SIZES * 2:
        captured(*batch_of(*size, "cpu")[:2])
    assert captured.recorded == 1 and len(captured._recordings) == 1
    assert set(calls) == {((most.num_sources, IN), (2, EDGES))}


def test_nothing_is_kept_of_a_step_that_is_gone(place):
    gc.collect()
    before = len(_remember._entries)
    model = model_of(LAYERS["GAT"], place)
    captured = dfgnn.capture(step_of(model), capacity=rooms(
        dfgnn.Capacity(NODES, EDGES)))
    for size in SIZES[:5]:
        captured(*batch_of(*size, place))
    buffer, = [room.tensor for room in next(iter(
        captured._recordings.values())).rooms.values()
        if isinstance(room, _capacity.EdgeBuffer)]
    buffer = weakref.ref(buffer)
    assert buffer() is not None and len(_remember._entries) > before
    del captured
    gc.collect()
    assert buffer() is None and len(_remember._entries) <= before


# ---- what does not fit ------------------------------------------------------

@pytest.fixture
def captured():
    most = dfgnn.Capacity(NODES, EDGES)
    ran = []

    def step(x, edge_index, labels):
        ran.append(1)
        return x.sum()
    found = dfgnn.capture(step, capacity=rooms(most))
    found.ran = ran
    return found


@pytest.mark.parametrize("change, text", [
    (dict(x=torch.zeros(NODES + 1, IN)), "argument 0 .* has 41 rows, and its "
     "room is of 40"),
    (dict(edge_index=torch.zeros(2, EDGES + 1, dtype=torch.long)),
     "argument 1 .* has 151 edges, and its capacity is 150"),
    (dict(edge_index=torch.zeros(EDGES, 3, dtype=torch.long)),
     r"must be an edge_index \[2, E\], got a int64 tensor \[150, 3\]"),
    (dict(edge_index=torch.tensor([[1], [NODES]])),
     "has the node 40 in row 1, and its capacity is 0 to 39"),
    (dict(edge_index=torch.tensor([[-1], [2]])), "has the node -1 in row 0")])
def test_what_does_not_fit_is_an_error_before_anything_runs(captured, change,
                                                            text):
    given = dict(zip(("x", "edge_index", "labels"), batch_of(9, 30, "cpu")))
    with pytest.raises(dfgnn.InvalidError, match=text):
        captured(**dict(given, **change))
    assert not captured.ran
    captured(**given)
    assert captured.ran


def test_edges_that_are_wrong_on_a_gpu_are_left_out_and_told_later():
    most = dfgnn.Capacity(NODES, EDGES)
    buffer = _capacity.EdgeBuffer(most, torch.zeros(2, 0, dtype=torch.long),
                                  torch.device("cpu"))
    buffer.write(torch.tensor([[0, 99, 2, 3], [1, 2, -5, 4]]))
    _capacity.refill([buffer])
    assert buffer.sound[:, [0, 3]].tolist() == [[0, 3], [1, 4]]
    assert bool((buffer.sound[:, [1, 2]] >= NODES).all())
    with pytest.raises(dfgnn.InvalidError, match="2 edges of the steps "
                       "before were left out"):
        buffer.check(1, torch.zeros(2, 0, dtype=torch.long))
    buffer.check(1, torch.zeros(2, 0, dtype=torch.long))


def test_rooms_are_checked():
    most = dfgnn.Capacity((9, 5), 20)
    with pytest.raises(AttributeError, match="sources and destinations"):
        most.nodes
    for capacity, text in (
            (dict(y=most.sources), "names 'y', but the arguments of the step "
             "are x, edges"),
            (dict(edges=most.edges), "edges, which holds several things"),
            (dict(edges=[most.edges]), "must be a room, None, or rooms"),
            (dict(x=4), "must be a room, None, or rooms")):
        step = dfgnn.capture(lambda x, edges: x, capacity=capacity)
        with pytest.raises(TypeError, match=text):
            step(torch.zeros(3, 2), [torch.zeros(2, 1, dtype=torch.long)] * 2)
    with pytest.raises(TypeError, match="room for a tensor with rows"):
        dfgnn.capture(lambda x: x, capacity=dict(x=most.sources))(3)


def test_features_without_room_are_named(place):
    most = dfgnn.Capacity(NODES, EDGES)
    conv = dfgnn.nn.GATConv(IN, CLASSES).to(place)
    step = dfgnn.capture(lambda x, edge_index: conv(x, edge_index),
                         capacity=dict(edge_index=most.edges))
    with pytest.raises(dfgnn.InvalidError, match="the capacity of its "
                       "edge_index has 296 and 296"):
        step(*batch_of(NODES, 30, place)[:2])
