"""Layers in what PyG builds around them: heterogeneous models, explainers,
compilation and embeddings."""

import copy

import pytest
import torch
import torch_geometric.nn as G
from torch.nn.utils import parametrize
from torch_geometric.explain import (
    CaptumExplainer, Explainer, GNNExplainer, PGExplainer)
from torch_geometric.utils import get_embeddings

import dfgnn
import dfgnn.nn.pyg as ours
from conftest import fast_copy, random_edges
from fuzz_pyg import Watch, near
from relation_cases import compare

N, WIDTH, OUT = 24, 6, 4
KINDS = (["paper", "author"], [
    ("paper", "cites", "paper"), ("author", "writes", "paper"),
    ("paper", "rev_writes", "author")])


@pytest.fixture
def edges():
    return random_edges(N, N, 80)


@pytest.fixture
def x():
    return torch.randn(N, WIDTH, dtype=torch.float64)


def hetero():
    count = {"paper": N, "author": 11}
    x = {kind: torch.randn(count[kind], WIDTH, dtype=torch.float64,
                           requires_grad=True)
         for kind in KINDS[0]}
    edges = {kind: random_edges(count[kind[0]], count[kind[2]], 50)
             for kind in KINDS[1]}
    return x, edges


class Net(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first = kind((-1, -1), 8)
        self.second = kind((-1, -1), OUT)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


@pytest.mark.parametrize("kind", [
    G.SAGEConv, G.GraphConv, lambda a, b: G.GATConv(a, b,
                                                    add_self_loops=False),
    lambda a, b: G.TransformerConv(a, b, heads=2, concat=False)],
    ids=["SAGE", "Graph", "GAT", "Transformer"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_to_hetero(kind, when):
    model = Net(kind).double()
    if when == "before":
        dfgnn.accelerate(model)
    model = G.to_hetero(model, KINDS)
    if when == "after":
        report = dfgnn.accelerate(model)
        assert len(report.swapped) == 6 and not report.kept
    x, edges = hetero()
    with torch.no_grad(), Watch() as watch:  # lazy layers see their widths
        model(x, edges)
    assert watch.count
    plain = copy.deepcopy(model)
    dfgnn.accelerate(plain, undo=True)
    compare(plain, model, list(x.values()), lambda m: m(x, edges), 1e-9)
    x["author"] = None
    with pytest.raises((AttributeError, TypeError)) as theirs:
        plain(x, edges)
    with pytest.raises(theirs.type):
        model(x, edges)


def test_hgt_is_right_when_a_hook_looks_on():
    plain = G.HGTConv(WIDTH, 8, KINDS, heads=2).double()
    fast = fast_copy(plain)
    seen = []
    fast.register_message_forward_hook(lambda m, i, out: seen.append(out))
    x, edges = hetero()
    compare(plain, fast, list(x.values()), lambda m: m(x, edges), 1e-9)
    assert len(seen) == 1


# ---- explanations -----------------------------------------------------------

def explained(model, algorithm, x, edges):
    torch.manual_seed(3)
    explainer = Explainer(
        model, algorithm=algorithm, explanation_type="model",
        node_mask_type="attributes" if not isinstance(
            algorithm, PGExplainer) else None, edge_mask_type="object",
        model_config=dict(mode="multiclass_classification",
                          task_level="node", return_type="raw"))
    found = explainer(x, edges, index=3)
    return found.edge_mask


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GAT"])
def test_gnn_explainer(name, x, edges):
    plain = getattr(G, name)(WIDTH, 8, 2, OUT)
    fast = fast_copy(plain)
    x = x.float()
    with Watch() as watch:
        fast(x, edges)
        assert watch.count
        found = explained(fast, GNNExplainer(epochs=20), x, edges)
    assert found.abs().max() > 0
    near(found, explained(plain, GNNExplainer(epochs=20), x, edges), 1e-4)
    with Watch() as watch:  # and afterwards it is fast again
        near(fast(x, edges), plain(x, edges), 1e-4)
    assert watch.count


def test_get_embeddings(x, edges):
    plain = G.GraphSAGE(WIDTH, 8, 3, OUT).double().eval()
    fast = fast_copy(plain)
    found = get_embeddings(fast, x, edges)
    assert len(found) == 3
    for one, other in zip(found, get_embeddings(plain, x, edges)):
        near(one, other, 1e-10)


def test_summary_names_the_layers(x, edges):
    pytest.importorskip("tabulate")
    model = G.GCN(WIDTH, 8, 2, OUT).double()
    expected = G.summary(model, x, edges)
    dfgnn.accelerate(model)
    assert G.summary(model, x, edges) == expected


# ---- dropout and precision --------------------------------------------------

def test_dropout_keeps_what_it_returns(x, edges):
    layer = ours.GATConv(WIDTH, OUT, heads=2, dropout=0.5, bias=False).double()
    out, (loops, alpha) = layer(x, edges, return_attention_weights=True)
    h = layer.lin(x).view(-1, 2, OUT)
    expected = torch.zeros(N, 2, OUT, dtype=torch.float64).index_add(
        0, loops[1], alpha.unsqueeze(-1) * h[loops[0]])
    near(out, expected.flatten(1), 1e-12)
    dropped = float((alpha == 0).double().mean())
    assert 0.3 < dropped < 0.7
    layer.eval()
    total = layer(x, edges, return_attention_weights=True)[1][1]
    assert (total > 0).all()


def test_a_loss_of_attention_alone_leads_to_no_value(x, edges):
    layer = ours.TransformerConv(WIDTH, OUT, heads=2).double()
    alpha = layer(x, edges, return_attention_weights=True)[1][1]
    alpha.square().sum().backward()
    assert {name for name, weight in layer.named_parameters()
            if weight.grad is None} == {"lin_value.weight", "lin_value.bias",
                                        "lin_skip.weight", "lin_skip.bias"}


def test_certain_dropout_leaves_nothing(x, edges):
    layer = ours.GATConv(WIDTH, OUT, dropout=1.0, bias=False).double()
    assert not layer(x, edges).any()


# ---- compilation -------------------------------------------------------------

def compiled(model, whole=True):
    torch._dynamo.reset()
    return torch.compile(model, backend="aot_eager", fullgraph=whole)


def compiles_whole(model, *args):
    """Whether torch.compile takes a layer of PyG's whole: torch 2.4 breaks
    those that mask edges."""
    try:
        compiled(model)(*args)
    except torch._dynamo.exc.Unsupported:
        return False
    return True


@pytest.mark.parametrize("name, fields", [
    ("GATConv", (3,)), ("GATv2Conv", (3,)), ("GCNConv", ())])
def test_compiled_with_loops_and_tensors_by_edge(name, fields, x, edges):
    options = dict(edge_dim=3) if fields else {}
    layer, own = (getattr(where, name)(WIDTH, OUT, **options).double()
                  for where in (ours, G))
    given = x, edges, torch.rand(edges.size(1), *fields, dtype=x.dtype)
    expected = layer(*given)
    whole = compiled(layer, compiles_whole(own, *given))
    near(whole(*given), expected, 1e-10)


def test_a_compiled_model_may_be_accelerated(x, edges):
    model = G.GCN(WIDTH, 8, 2, OUT).double()
    expected = model(x, edges)
    torch._dynamo.reset()
    whole = torch.compile(model, backend="aot_eager")
    near(whole(x, edges), expected, 1e-10)
    assert len(dfgnn.accelerate(whole).swapped) == 2
    with Watch() as watch:
        near(whole(x, edges), expected, 1e-10)
    assert watch.count


@pytest.mark.parametrize("kind", [CaptumExplainer])
def test_captum(kind, x, edges):
    pytest.importorskip("captum")
    plain = G.GCN(WIDTH, 8, 2, OUT)
    fast = fast_copy(plain)
    x = x.float()
    near(explained(fast, kind("IntegratedGradients"), x, edges),
          explained(plain, kind("IntegratedGradients"), x, edges), 1e-4)


class Twice(torch.nn.Module):
    def forward(self, x):
        return 2 * x


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_class_that_torch_makes_stays(when, x, edges):
    """Where a layer's own parameters are parametrized, which put its class
    back by place; in FSDP, too."""
    def parametrized(layer):
        parametrize.register_parametrization(layer, "att_src", Twice())
        parametrize.register_parametrization(layer, "bias", Twice())
        return layer
    own = G.GATConv(WIDTH, OUT).double()
    fast = copy.deepcopy(own)
    if when == "before":
        parametrized(fast)
    report = dfgnn.accelerate(fast)
    if when == "after":
        parametrized(fast)
    parametrized(own)
    near(fast(x, edges), own(x, edges))
    fast(x, edges).sum().backward()
    assert fast.parametrizations.bias.original.grad is not None
    assert report.after(lambda: fast(x, edges), rounds=1)
    for layer in own, fast:
        for name in "att_src", "bias":
            parametrize.remove_parametrizations(layer, name)
    near(fast(x, edges), own(x, edges))
    assert type(fast) is (G if when == "before" else ours).GATConv
