"""dfgnn.accelerate on models of DGL's layers: against DGL where it is
installed, and against a stand-in of it everywhere."""

import copy
import importlib.util
import logging
import pickle
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dfgnn
from dfgnn.nn import dgl as ours
from dfgnn.nn.dgl import accelerated

import dgl_standin
from conftest import close, random_edges
from fuzz_pyg import Watch
from test_dgl import everyone

N, IN, OUT, H, E = 14, 6, 4, 3, 5
INSTALLED = importlib.util.find_spec("dgl") is not None


class StandIn:
    graph = staticmethod(dgl_standin.Graph)

    def __init__(self, monkeypatch):
        self.nn = dgl_standin.install(monkeypatch)


class Real:
    def __init__(self, _):
        self.nn = importlib.import_module("dgl.nn")

    @staticmethod
    def graph(src, dst, num_src, num_dst, is_block=False):
        import dgl
        if is_block:
            return dgl.create_block((src, dst), num_src, num_dst)
        if num_src != num_dst:
            return dgl.heterograph({("a", "b", "c"): (src, dst)},
                                   {"a": num_src, "c": num_dst})
        return dgl.graph((src, dst), num_nodes=num_src)


@pytest.fixture(params=["stand-in", pytest.param("dgl", marks=pytest.mark.
                        skipif(not INSTALLED, reason="no dgl"))])
def theirs(request, monkeypatch):
    return (StandIn if request.param == "stand-in" else Real)(monkeypatch)


def weighted(edges):
    return {"edge_weight": torch.rand(edges.size(1))}


def typed(edges):
    return {"etypes": torch.randint(5, (edges.size(1),)),
            "norm": torch.rand(edges.size(1), 1)}


def types_of_both(edges):
    return {"ntype": torch.randint(3, (N,)),
            "etype": torch.randint(5, (edges.size(1),))}


CASES = {
    "graph": (lambda n, i: n.GraphConv(IN, OUT, activation=F.elu), {}),
    "graph shrinks": (lambda n, i: n.GraphConv(IN, 2, norm="right"), weighted),
    "graph left": (lambda n, i: n.GraphConv(IN, OUT, norm="left"), {}),
    "sage mean": (lambda n, i: n.SAGEConv(i, OUT, "mean"), weighted),
    "sage gcn": (lambda n, i: n.SAGEConv(IN, OUT, "gcn", norm=F.normalize),
                 {}),
    "sage pool": (lambda n, i: n.SAGEConv(i, OUT, "pool"), {}),
    "gin": (lambda n, i: n.GINConv(nn.Linear(IN, OUT), "sum", 0.5, True), {}),
    "gin mean": (lambda n, i: n.GINConv(None, "mean", activation=F.elu), {}),
    "gat": (lambda n, i: n.GATConv(i, OUT, H, residual=True), {}),
    "gat weighted": (lambda n, i: n.GATConv(i, OUT, H, bias=False), weighted),
    "gat as wide": (lambda n, i: n.GATConv(IN, 2, 3, residual=True), {}),
    "edge gat": (lambda n, i: n.EdgeGATConv(i, E, OUT, H),
                 lambda edges: {"edge_feat": torch.randn(edges.size(1), E)}),
    "edge gat as wide": (lambda n, i: n.EdgeGATConv(IN, E, 2, 3), lambda edges:
                         {"edge_feat": torch.randn(edges.size(1), E)}),
    "gatv2": (lambda n, i: n.GATv2Conv(i, OUT, H, residual=True), {}),
    "gatv2 shared": (lambda n, i: n.GATv2Conv(IN, OUT, H, bias=False,
                                              share_weights=True), {}),
    "dot": (lambda n, i: n.DotGatConv(i, OUT, H), {}),
    "agnn": (lambda n, i: n.AGNNConv(2.0), {}),
    "rel": (lambda n, i: n.RelGraphConv(IN, OUT, 5, activation=F.elu), typed),
    "rel basis": (lambda n, i: n.RelGraphConv(
        IN, OUT, 90, "basis", 3, self_loop=False, layer_norm=True), typed),
    "rel blocks": (lambda n, i: n.RelGraphConv(IN, OUT, 5, "bdd", 2), typed),
    "hgt": (lambda n, i: n.HGTConv(IN, OUT, H, 3, 5, dropout=0.0),
            types_of_both),
    "hgt as wide": (lambda n, i: n.HGTConv(IN, 2, 3, 4, 90, dropout=0.0,
                                           use_norm=True), types_of_both),
}
SINGLE = ("rel", "rel basis", "rel blocks", "hgt", "hgt as wide",
          "gat as wide", "edge gat as wide", "gatv2 shared")
"""The cases whose layer DGL makes for one kind of nodes alone."""


def run(layer, graph, x, more):
    leaves = [t.clone().requires_grad_() for t in x]
    feat = tuple(leaves) if len(leaves) > 1 else leaves[0]
    out = layer(graph, feat, **more)
    wanted = [*leaves, *layer.parameters()]
    grads = torch.autograd.grad(out.sin().sum(), wanted, allow_unused=True)
    return [out] + [g if g is not None else torch.zeros_like(w)
                    for g, w in zip(grads, wanted)]


@pytest.mark.parametrize("name, kind", [
    (name, kind) for name in CASES for kind in ("whole", "block", "two sizes")
    if kind != "two sizes" or name not in SINGLE])
def test_results_and_gradients_are_those_of_dgl(name, kind, theirs):
    make, more = CASES[name]
    num_src, num_dst = (N, N) if kind == "whole" else (N, 9)
    edges = everyone(num_src, num_dst)
    graph = theirs.graph(*edges, num_src, num_dst, kind == "block")
    x = [torch.randn(num_src, IN)]
    if kind == "two sizes":
        x.append(torch.randn(num_dst, IN))
    layer = make(theirs.nn, (IN, IN) if kind == "two sizes" else IN)
    more = more(edges) if callable(more) else more
    expected = run(layer, graph, x, more)
    report = dfgnn.accelerate(layer)
    assert [r.kind for r in report.swapped] == [type(layer).__name__]
    with Watch() as watch:
        found = run(layer, graph, x, more)
    assert watch.count, "no kernel was called"
    for a, b in zip(found, expected):
        close(a, b, 1e-4)


@pytest.mark.parametrize("name", ["gat", "edge gat", "gatv2", "dot"])
def test_attention_is_returned_as_dgl_does(name, theirs):
    make, more = CASES[name]
    edges = everyone()[:, 3:]
    edges = torch.cat([edges, torch.arange(N).expand(2, -1)], 1)
    layer, x = make(theirs.nn, IN), torch.randn(N, IN)
    graph, more = theirs.graph(*edges, N, N), \
        more(edges) if callable(more) else more
    expected = layer(graph, x, get_attention=True, **more)
    dfgnn.accelerate(layer)
    for a, b in zip(layer(graph, x, get_attention=True, **more), expected):
        close(a, b, 1e-4)


class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.layers = nn.ModuleList([
            n.GATConv(IN, OUT, H, feat_drop=0.3), n.GraphConv(H * OUT, 8),
            n.SAGEConv(8, OUT, "mean")])

    def forward(self, graph, x):
        x = self.layers[0](graph, x).flatten(1)
        return self.layers[2](graph, self.layers[1](graph, x).relu())


def whole(theirs):
    edges = everyone(N, N)
    return theirs.graph(*edges, N, N), torch.randn(N, IN)


def test_state_flags_hooks_and_classes_stay_and_undo_takes_it_back(theirs):
    model, (graph, x) = Model(theirs.nn).eval(), whole(theirs)
    model.layers[1].train()
    expected = model(graph, x)
    kinds = [type(layer) for layer in model.layers]
    state = {k: v.clone() for k, v in model.state_dict().items()}
    parameters, seen = list(model.parameters()), []
    model.layers[0].register_forward_hook(lambda *_: seen.append(1))
    report = dfgnn.accelerate(model)
    assert [s.name for s in report.swapped] == ["layers.0", "layers.1",
                                                "layers.2"]
    close(model(graph, x), expected, 1e-5)
    assert seen == [1]
    assert all(a is b for a, b in zip(parameters, model.parameters()))
    assert list(model.state_dict()) == list(state)
    model.load_state_dict(state)
    assert [m.training for m in model.layers] == [False, True, False]
    for layer, kind in zip(model.layers, kinds):
        assert isinstance(layer, kind) and type(layer) is not kind
        assert isinstance(layer, getattr(ours, kind.__name__))
    again = dfgnn.accelerate(model)
    assert not again.swapped and not again.kept
    back = dfgnn.accelerate(model, undo=True)
    assert len(back.swapped) == 3
    assert [type(layer) for layer in model.layers] == kinds
    with Watch() as watch:
        close(model(graph, x), expected, 1e-6)
    assert not watch.count


@pytest.mark.parametrize("how", [copy.deepcopy, lambda m: pickle.loads(
    pickle.dumps(m))])
def test_copies_and_pickles(how, theirs):
    model, (graph, x) = Model(theirs.nn).eval(), whole(theirs)
    dfgnn.accelerate(model)
    other = how(model)
    with Watch() as watch:
        close(other(graph, x), model(graph, x), 1e-6)
    assert watch.count
    assert [type(m) for m in other.layers] == [type(m) for m in model.layers]


def test_what_stays_is_said_with_why(theirs):
    class Own(theirs.nn.GraphConv):
        pass
    model = nn.ModuleDict({"sg": theirs.nn.SGConv(IN, OUT),
                           "own": Own(IN, OUT), "linear": nn.Linear(2, 2)})
    report = dfgnn.accelerate(model)
    assert not report.swapped
    assert [(k.name, k.reason) for k in report.kept] == [
        ("sg", "dfgnn.nn.dgl has no SGConv"),
        ("own", "Own is a subclass of GraphConv; derive it from "
         "dfgnn.nn.dgl.GraphConv instead")]


def test_destinations_without_edges_raise_dgls_error(theirs):
    graph = theirs.graph(torch.tensor([0]), torch.tensor([1]), 3, 3)
    layer = theirs.nn.GATConv(IN, OUT, H)
    dfgnn.accelerate(layer)
    with pytest.raises(sys.modules["dgl"].DGLError):
        layer(graph, torch.randn(3, IN))
    layer.set_allow_zero_in_degree(True)
    assert layer(graph, torch.randn(3, IN)).shape == (3, H, OUT)


def test_what_kernels_cannot_have_goes_to_dgl(theirs, caplog, monkeypatch):
    layer, (graph, x) = theirs.nn.GraphConv(IN, OUT), whole(theirs)
    expected = layer(graph, x)
    dfgnn.accelerate(layer)
    accelerated._say.cache_clear()  # the log says it once

    def refused(form):
        raise RuntimeError("only coo is allowed here")
    edges = everyone(N, N)
    other = theirs.graph(*edges, N, N)
    monkeypatch.setattr(other, "adj_tensors", refused)
    with caplog.at_level(logging.INFO, "dfgnn"), Watch() as watch:
        out = layer(other, x)
        close(layer(other, x), out, 1e-6)
    assert not watch.count
    assert [r.message for r in caplog.records] == [
        "GraphConv takes DGL's own path: only coo is allowed here"]
    close(layer(graph, x), expected, 1e-5)


def test_models_of_dgl_need_no_pyg(theirs, monkeypatch):
    for name in [m for m in sys.modules if m.startswith("torch_geometric")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch_geometric.nn", None)
    assert len(dfgnn.accelerate(Model(theirs.nn)).swapped) == 3


def test_training_goes_the_same_way(theirs):
    plain, (graph, x) = Model(theirs.nn), whole(theirs)
    plain.layers[0].feat_drop.p = 0.0
    fast, losses = copy.deepcopy(plain), []
    dfgnn.accelerate(fast)
    labels = torch.randint(0, OUT, (N,))
    for model in (plain, fast):
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(20):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(graph, x), labels)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def names(layer):
    """The names of a layer's parameters, buffers, modules and plain
    attributes."""
    state = vars(layer)
    return set(state).union(*(state[kind] for kind in (
        "_parameters", "_buffers", "_modules")))


@pytest.mark.skipif(not INSTALLED, reason="no dgl")
@pytest.mark.parametrize("name", CASES)
def test_the_stand_in_is_faithful(name, monkeypatch):
    """It has the attributes, parameters and results of DGL's own layer."""
    make, more = CASES[name]
    real, edges = Real(None), everyone(N, N)
    graph, theirs = real.graph(*edges, N, N), make(real.nn, IN)
    x, more = torch.randn(N, IN), more(edges) if callable(more) else more
    expected = theirs(graph, x, **more)
    standin = make(StandIn(monkeypatch).nn, IN)
    assert names(theirs) == names(standin)
    standin.load_state_dict(theirs.state_dict())
    close(standin(StandIn.graph(*edges, N, N), x, **more), expected, 1e-5)


@pytest.mark.skipif(not INSTALLED, reason="no dgl")
def test_layers_of_several_relations():
    import dgl
    relations = {("a", "reads", "b"): random_edges(9, 7, 30),
                 ("b", "cites", "b"): random_edges(7, 7, 20)}
    graph = dgl.heterograph({k: (v[0], v[1]) for k, v in relations.items()},
                            {"a": 9, "b": 7})
    model = dgl.nn.HeteroGraphConv({
        "reads": dgl.nn.SAGEConv((IN, IN), OUT, "mean"),
        "cites": dgl.nn.GATConv((IN, IN), OUT, 1, allow_zero_in_degree=True)},
        aggregate=lambda outs, _: sum(out.view(7, -1) for out in outs))
    x = {"a": torch.randn(9, IN), "b": torch.randn(7, IN)}
    expected = model(graph, x)["b"]
    assert len(dfgnn.accelerate(model).swapped) == 3
    with Watch() as watch:
        close(model(graph, x)["b"], expected, 1e-5)
    assert watch.count == 2
