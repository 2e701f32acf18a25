"""HeteroGraphConv of DGL in one pass: against DGL where it is installed, and
against a stand-in of it everywhere, in float64 with all gradients."""

import copy
import functools
import importlib
import logging
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dfgnn
from dfgnn.nn import dgl as ours

import dgl_standin
from fuzz_pyg import Watch
from test_dgl_accelerate import INSTALLED
from relation_cases import compare, random_schema, schema, spread

W, OUT, H = 6, 4, 2
NODES = {"a": 7, "b": 5, "c": 1, "d": 3}
KINDS = [("a", "x", "a"), ("b", "y", "a"), ("a", "z", "b"), ("a", "v", "b"),
         ("c", "u", "a"), ("b", "w", "c"), ("a", "t", "d")]


class StandIn:
    def __init__(self, monkeypatch):
        self.nn = dgl_standin.install(monkeypatch)

    @staticmethod
    def graph(edges, sizes, is_block=False):
        return dgl_standin.HeteroGraph(edges, sizes, is_block)


class Real:
    def __init__(self, _):
        self.nn = importlib.import_module("dgl.nn")

    @staticmethod
    def graph(edges, sizes, is_block=False):
        import dgl
        pairs = {key: tuple(part) for key, part in edges.items()}
        src, dst = ({k: n[i] for k, n in sizes.items()} for i in (0, 1))
        if is_block:
            return dgl.create_block(pairs, src, dst)
        return dgl.heterograph(pairs, dst)


@pytest.fixture(params=["stand-in", pytest.param("dgl", marks=pytest.mark.
                        skipif(not INSTALLED, reason="no dgl"))])
def theirs(request, monkeypatch):
    return (StandIn if request.param == "stand-in" else Real)(monkeypatch)


@pytest.fixture
def said(caplog):
    caplog.set_level(logging.INFO, "dfgnn")
    return caplog


LAYERS = {
    "gat": lambda n: n.GATConv(W, OUT, H),
    "gat of two sizes": lambda n: n.GATConv(
        (W, W), OUT, H, residual=True, activation=F.elu),
    "gat as wide": lambda n: n.GATConv((W, W), 3, H, residual=True),
    "gatv2": lambda n: n.GATv2Conv((W, W), OUT, H, residual=True),
    "gatv2 shared": lambda n: n.GATv2Conv(W, OUT, H, share_weights=True,
                                          activation=F.elu),
    "dot": lambda n: n.DotGatConv((W, W), OUT, H, True),
    "graph": lambda n: n.GraphConv(W, OUT),
    "graph right": lambda n: n.GraphConv(W, OUT, norm="right",
                                         activation=F.elu),
    "graph left": lambda n: n.GraphConv(W, OUT, norm="left", bias=False),
    "graph none": lambda n: n.GraphConv(W, OUT, norm="none"),
    "sage mean": lambda n: n.SAGEConv((W, W), OUT, "mean"),
    "sage pool": lambda n: n.SAGEConv((W, W), OUT, "pool", activation=F.elu,
                                      norm=F.normalize),
    "gin": lambda n: n.GINConv(nn.Linear(W, OUT), "sum", 0.5, True),
    "gin max": lambda n: n.GINConv(nn.Linear(W, OUT), "max", activation=F.elu),
}


def sizes_of(nodes, is_block):
    """(sources, destinations) by type; of a block fewer are destinations."""
    return {kind: (n, max(1, n - 2) if is_block else n)
            for kind, n in nodes.items()}


def drawn(theirs, nodes=NODES, kinds=KINDS, counts=(12, 9, 8, 0, 4, 6, 3),
          is_block=False, full=False):
    """(graph, features); full: each destination has an edge of each relation,
    without which DGL gives gradients of maxima to the first source."""
    sizes = sizes_of(nodes, is_block)
    x, _ = schema(counts, nodes, kinds)
    edges = {}
    for key, n in zip(kinds, counts):
        dst = torch.randint(sizes[key[2]][1], (n,))
        if full:
            dst = torch.cat([dst, torch.arange(sizes[key[2]][1])])
        edges[key] = torch.stack([torch.randint(
            sizes[key[0]][0], (dst.numel(),)), dst])
    return theirs.graph(edges, sizes, is_block), x


def kinds_for(name, kinds):
    """DGL's DotGatConv takes its own projection of a type's nodes for those
    of their neighbours of the same type."""
    return [k for k in kinds if name != "dot" or k[0] != k[2]]


def of_maxima(name):
    return "pool" in name or "max" in name


def check(theirs, make, aggregate, call, leaves, kinds=KINDS):
    plain = spread(theirs.nn.HeteroGraphConv(
        {key[1]: make(theirs.nn) for key in kinds}, aggregate).double())
    fast = copy.deepcopy(plain)
    # deepcopy leaves the dict of layers that is no ModuleDict as it was
    fast.mod_dict = {key[1]: fast.mods[key[1]] for key in kinds}
    report = dfgnn.accelerate(fast)
    compare(plain, fast, leaves, call)
    return fast, str(report)


@pytest.mark.parametrize("is_block", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_relations_in_one_pass(name, is_block, theirs, said):
    kinds = kinds_for(name, KINDS)
    graph, x = drawn(theirs, kinds=kinds, is_block=is_block,
                     full=of_maxima(name))
    for aggregate in ("sum", "mean", "max", "stack",
                      lambda outs, kind: outs[0] - sum(outs)):
        fast, text = check(theirs, LAYERS[name], aggregate,
                           lambda model: model(graph, x), list(x.values()),
                           kinds)
        assert f"{len(kinds)} {type(fast.mods[kinds[0][1]]).__name__} in one pass" in text
    assert not said.text


def test_two_passes_serve_twelve_relations(theirs, said):
    """Kernels do not grow in number with relations."""
    kinds = [("a", f"r{n}", "b") for n in range(12)]
    graph, x = drawn(theirs, kinds=kinds, counts=[5] * 12)
    model = theirs.nn.HeteroGraphConv({key[1]: theirs.nn.GATConv(
        (W, W), OUT, H) for key in kinds}).double()
    dfgnn.accelerate(model)
    with Watch() as watch:
        model(graph, x)
    assert watch.count < 12 and not said.text


@pytest.mark.parametrize("number", range(8))
def test_any_schema(number, theirs, said):
    nodes, kinds, counts = random_schema(200 + number)
    graphs = {full: drawn(theirs, nodes, kinds, counts, bool(number % 2), full)
              for full in (False, True)}
    for turn, name in enumerate(LAYERS):
        graph, x = graphs[of_maxima(name)]
        if (turn + number) % 3 == 0 and name != "dot":
            check(theirs, LAYERS[name], "sum", lambda m: m(graph, x),
                  list(x.values()), kinds)


def test_weights_of_edges(theirs, said):
    graph, x = drawn(theirs, full=True)
    weight = {key[1]: torch.rand(
        graph.edges(etype=key, order="eid")[0].numel(), dtype=torch.float64,
        requires_grad=True) for key in KINDS}
    given = {name: {"edge_weight": w} for name, w in weight.items()
             if name != "y"}
    for make in (lambda n: n.SAGEConv((W, W), OUT, "mean"),
                 lambda n: n.SAGEConv((W, W), OUT, "pool"),
                 lambda n: n.GINConv(nn.Linear(W, OUT), "mean")):
        check(theirs, make, "sum", lambda m: m(graph, x, mod_kwargs=given),
              [*x.values(), *weight.values()])


def mixed(number):
    """A model whose relations are of three kinds, one of which goes alone."""
    def make(n):
        number[0] += 1
        return (n.GraphConv(W, OUT), n.SAGEConv(W, OUT, "mean"),
                n.SAGEConv((W, W), OUT, "gcn"))[number[0] % 3]
    return make


def test_a_mixture_and_its_report(theirs, said):
    graph, x = drawn(theirs)
    fast, text = check(theirs, mixed([0]), "mean", lambda m: m(graph, x),
                       list(x.values()))
    assert "3 SAGEConv in one pass; 2 GraphConv in one pass" in text
    assert "one by one (SAGEConv: no pass has its aggregator, gcn)" in text
    assert type(fast)._dfgnn_base is theirs.nn.HeteroGraphConv
    again = pickle.loads(pickle.dumps(fast))
    want, have = fast(graph, x), again(graph, x)
    assert list(want) == list(have) and all(
        torch.equal(want[k], have[k]) for k in want)
    dfgnn.accelerate(fast, undo=True)
    assert type(fast) is theirs.nn.HeteroGraphConv


def test_what_cannot_go_together_says_so(theirs, said):
    graph, x = drawn(theirs)
    make = functools.partial(theirs.nn.GATConv, (W, W), OUT, H)
    model = theirs.nn.HeteroGraphConv({key[1]: make(feat_drop=0.5)
                                       for key in KINDS}).double()
    dfgnn.accelerate(model)
    model(graph, x)
    assert "relation by relation: no two of its layers go together" in \
        said.text


def test_features_of_both_ends(theirs, said):
    graph, x = drawn(theirs)
    other = {kind: torch.randn_like(t) for kind, t in x.items()
             if kind != "d"}
    check(theirs, LAYERS["sage mean"], "sum", lambda m: m(graph, (x, other)),
          list(x.values()))


def test_the_class_of_dfgnn_itself(theirs):
    graph, x = drawn(theirs)
    plain = theirs.nn.HeteroGraphConv({key[1]: theirs.nn.GATConv(
        (W, W), OUT, H) for key in KINDS}, "max").double()
    mine = ours.HeteroGraphConv({key[1]: ours.GATConv(
        (W, W), OUT, H) for key in KINDS}, "max").double()
    mine.load_state_dict(plain.state_dict())
    for kind, want in plain(graph, x).items():
        torch.testing.assert_close(mine(graph, x)[kind], want)
    with pytest.raises(ours.DGLError, match="got 'middle'"):
        ours.HeteroGraphConv({}, "middle")
