"""Each convolution of PyG: by kernels of its own, traced, or kept and why.

`python test_pyg_served.py` prints the list."""

import copy

import pytest
import torch
import torch.nn.functional as F

pyg = pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from dfgnn import _fallbacks, _ways  # noqa: E402
from dfgnn.recordings import Recording  # noqa: E402
from torch_geometric import typing  # noqa: E402
from torch_geometric.nn import MLP, conv  # noqa: E402

from dfgnn.nn.pyg import _traced  # noqa: E402

from conftest import fast_copy, random_edges  # noqa: E402

N, E, W, D = 20, 90, 8, 3


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.ReLU(inplace=True)]
    return torch.nn.Sequential(*layers[:-1])


class Inputs:
    """Arguments of layers, the same for each."""

    def __init__(self):
        self.edges = random_edges(N, N, E - 3)
        self.x = torch.randn(N, W, requires_grad=True)
        self.x0 = torch.randn(N, W)
        self.attr = torch.randn(E, D, requires_grad=True)
        self.weight = torch.rand(E)
        self.kind = torch.randint(0, 4, (E,))
        self.pos, self.normal = torch.randn(N, 3), F.normalize(
            torch.randn(N, 3), dim=-1)
        self.layers = torch.randn(N, 3, W, requires_grad=True)
        self.batch = torch.arange(N) // 10


# by name: (makes the layer, its arguments)
LAYERS = {
    "SimpleConv": (lambda c: c(), "x edges"),
    "GCNConv": (lambda c: c(W, W), "x edges"),
    "ChebConv": (lambda c: c(W, W, 3), "x edges"),
    "SAGEConv": (lambda c: c(W, W), "x edges"),
    "GraphConv": (lambda c: c(W, W), "x edges weight"),
    "GatedGraphConv": (lambda c: c(W, 2), "x edges"),
    "GravNetConv": (lambda c: c(W, W, 3, 4, 4), "x batch"),
    "ResGatedGraphConv": (lambda c: c(W, W, edge_dim=D), "x edges attr"),
    "GATConv": (lambda c: c(W, W, 2, edge_dim=D), "x edges attr"),
    "GATv2Conv": (lambda c: c(W, W, 2, edge_dim=D), "x edges attr"),
    "TransformerConv": (lambda c: c(W, W, 2, edge_dim=D), "x edges attr"),
    "AGNNConv": (lambda c: c(), "x edges"),
    "TAGConv": (lambda c: c(W, W), "x edges"),
    "GINConv": (lambda c: c(mlp(W, W)), "x edges"),
    "GINEConv": (lambda c: c(mlp(W, W), edge_dim=D), "x edges attr"),
    "ARMAConv": (lambda c: c(W, W), "x edges"),
    "SGConv": (lambda c: c(W, W), "x edges"),
    "APPNP": (lambda c: c(2, .1), "x edges"),
    "MFConv": (lambda c: c(W, W), "x edges"),
    "RGCNConv": (lambda c: c(W, W, 4), "x edges kind"),
    "FastRGCNConv": (lambda c: c(W, W, 4), "x edges kind"),
    "RGATConv": (lambda c: c(W, W, 4), "x edges kind"),
    "SignedConv": (lambda c: c(W, W, True), "x edges edges"),
    "DNAConv": (lambda c: c(W, 2), "layers edges"),
    "PointNetConv": (lambda c: c(mlp(W + 3, W)), "x pos edges"),
    "GMMConv": (lambda c: c(W, W, D, 2), "x edges attr"),
    "SplineConv": (lambda c: c(W, W, D, 2), "x edges attr"),
    "NNConv": (lambda c: c(W, W, mlp(D, W * W)), "x edges attr"),
    "CGConv": (lambda c: c(W, D), "x edges attr"),
    "EdgeConv": (lambda c: c(mlp(2 * W, W, W)), "x edges"),
    "DynamicEdgeConv": (lambda c: c(mlp(2 * W, W, W), 3), "x batch"),
    "XConv": (lambda c: c(W, W, 3, 3), "x pos"),
    "PPFConv": (lambda c: c(mlp(W + 4, W)), "x pos normal edges"),
    "FeaStConv": (lambda c: c(W, W, 3), "x edges"),
    "PointTransformerConv": (lambda c: c(W, W), "x pos edges"),
    "HypergraphConv": (lambda c: c(W, W), "x edges"),
    "LEConv": (lambda c: c(W, W), "x edges weight"),
    "PNAConv": (lambda c: c(W, W, ["mean", "max", "std"], ["identity"],
                            torch.tensor([0, 3, 5, 2]), edge_dim=D),
                "x edges attr"),
    "ClusterGCNConv": (lambda c: c(W, W), "x edges"),
    "GENConv": (lambda c: c(W, W, edge_dim=D), "x edges attr"),
    "GCN2Conv": (lambda c: c(W, .1), "x x0 edges"),
    "PANConv": (lambda c: c(W, W, 2), "x edges"),
    "WLConv": (lambda c: c(), "kinds edges"),
    "WLConvContinuous": (lambda c: c(), "x edges weight"),
    "FiLMConv": (lambda c: c(W, W), "x edges"),
    "SuperGATConv": (lambda c: c(W, W, 2), "x edges"),
    "FAConv": (lambda c: c(W), "x x0 edges"),
    "EGConv": (lambda c: c(W, W, num_heads=2), "x edges"),
    "PDNConv": (lambda c: c(W, W, D, 4), "x edges attr"),
    "GeneralConv": (lambda c: c(W, W, D), "x edges attr"),
    "HGTConv": (lambda c: c(W, W, (["n"], [("n", "to", "n")])),
                "dict_x dict_edges"),
    "HEATConv": (lambda c: c(W, W, 4, 4, 3, D, 4), "x edges node kind attr"),
    "HeteroConv": (lambda c: c({("n", "to", "n"): pyg.SAGEConv(W, W)}),
                   "dict_x dict_edges"),
    "HANConv": (lambda c: c(W, W, (["n"], [("n", "to", "n")])),
                "dict_x dict_edges"),
    "LGConv": (lambda c: c(), "x edges"),
    "SSGConv": (lambda c: c(W, W, .1), "x edges"),
    "PointGNNConv": (lambda c: c(mlp(W, 3), mlp(W + 3, W), mlp(W, W)),
                     "x pos edges"),
    "GPSConv": (lambda c: c(W, pyg.GINConv(mlp(W, W)), heads=2), "x edges"),
    "AntiSymmetricConv": (lambda c: c(W), "x edges"),
    "DirGNNConv": (lambda c: c(pyg.SAGEConv(W, W)), "x edges"),
    "MixHopConv": (lambda c: c(W, W), "x edges"),
    "MeshCNNConv": (lambda c: c(W, W), "mesh mesh_edges"),
    "CuGraphSAGEConv": None, "CuGraphGATConv": None, "CuGraphRGCNConv": None,
    "FusedGATConv": None,
}

# what no edge program serves, and why
KEPT = {
    "CuGraphSAGEConv": "cugraph-ops", "CuGraphGATConv": "cugraph-ops",
    "CuGraphRGCNConv": "cugraph-ops", "FusedGATConv": "dgNN",
    "SplineConv": "torch-spline-conv", "XConv": "no messages",
    "WLConv": "no messages", "MeshCNNConv": "no edge program",
    "PANConv": "torch-sparse",
}


def knn(x, y, ptr_x, ptr_y, k, cosine, workers):
    """The k nearest of x for each of y, as pyg-lib's."""
    found = torch.cdist(y, x).topk(k, largest=False).indices
    return torch.stack([torch.arange(len(y)).repeat_interleave(k),
                        found.flatten()])


@pytest.fixture(autouse=True)
def nearest(monkeypatch):
    monkeypatch.setattr(typing, "WITH_KNN", True)
    monkeypatch.setattr(torch.ops.pyg, "knn", knn, raising=False)


def arguments(given, names):
    others = {
        "dict_x": lambda: {"n": given.x}, "node": lambda: given.kind[:N],
        "kinds": lambda: given.kind[:N],
        "dict_edges": lambda: {("n", "to", "n"): given.edges},
        "mesh": lambda: torch.randn(N, W),
        "mesh_edges": lambda: torch.stack([
            torch.arange(N).repeat_interleave(4),
            torch.randint(0, N, (4 * N,))])}
    return [others[n]() if n in others else getattr(given, n)
            for n in names.split()]


def made(name, seed=1):
    """(layer, its arguments), or None if it cannot be made here."""
    if LAYERS[name] is None:
        return None
    make, names = LAYERS[name]
    torch.manual_seed(seed)
    given = Inputs()
    args = arguments(given, names)
    kind = getattr(conv, name)
    if name == "MeshCNNConv":
        from torch.nn import Linear
        return kind(W, W, torch.nn.ModuleList(Linear(W, W) for _ in range(5)
                                              )), args
    try:
        return make(kind), args
    except ImportError:
        return None


def flat(made):
    if isinstance(made, dict):
        made = tuple(made.values())
    if isinstance(made, (tuple, list)):
        return [x for part in made for x in flat(part)]
    if hasattr(made, "coo"):  # a sparse matrix
        return []
    return [made] if isinstance(made, torch.Tensor) else []


def step(layer, args):
    torch.manual_seed(7)
    outs = [x for x in flat(layer(*args)) if x.is_floating_point()]
    leaves = [a for a in flat(list(args)) if a.requires_grad]
    leaves += list(layer.parameters())
    wanted = [x for x in outs if x.requires_grad]
    grads = torch.autograd.grad([(x * x.detach().cos()).sum()
                                 for x in wanted], leaves,
                                allow_unused=True) if wanted else []
    return outs, grads


def served(name):
    """("kernels", "traced" or "kept", reason, layer and its arguments)."""
    found = made(name)
    if found is None:
        return "kept", "it needs a package that is not there", None
    layer, args = found
    report = dfgnn.accelerate(layer, check=True)
    try:
        layer(*args)
    except ImportError as error:
        return "kept", str(error), None
    if report.kept:
        return "kept", report.kept[0].reason, found
    if report.traced:
        return "traced", "", found
    return ("kernels", "", found) if report.swapped else (
        "kept", "it has no messages of its own", found)


def test_all_convolutions_are_here():
    """No layer of the installed version lacks a row; older ones have fewer."""
    assert set(conv.__all__) - {"MessagePassing"} <= set(LAYERS)
    assert len(LAYERS) - len(KEPT) >= 50


@pytest.mark.parametrize("name", [n for n in LAYERS if hasattr(conv, n)])
def test_a_convolution_is_served_with_its_own_numbers_or_says_why_not(name):
    how, reason, found = served(name)
    if name in KEPT:
        assert how == "kept" and reason
        return
    assert how in ("kernels", "traced"), reason
    layer, args = found
    plain, again = made(name)
    same(step(layer, args), step(plain, again))


def same(found, true):
    """Both are those of step()."""
    for have, want in zip(found, true):
        assert len(have) == len(want)
        # gradients that cancel to nothing are rounding errors
        least = 1e-2 * max([float(b.detach().abs().max()) for b in want
                            if b is not None], default=0.0)
        for a, b in zip(have, want):
            if a is None or b is None:
                assert a is b or float((b if a is None else a).abs().max()
                                       ) <= 1e-4 * least
                continue
            assert a.shape == b.shape
            scale = max(least, float(b.detach().abs().max()))
            assert float((a - b).detach().abs().max()) <= 1e-4 * scale


@pytest.mark.parametrize("aggregation", [
    lambda: pyg.SoftmaxAggregation(learn=True), lambda: "softmax",
    lambda: pyg.AttentionalAggregation(mlp(W, 1))],
    ids=["learnt softmax", "softmax", "attentional"])
@pytest.mark.parametrize("name", ["SAGEConv", "GINConv", "GraphConv"])
def test_sums_of_neighbours_by_a_softmax_are_programs(name, aggregation):
    given = Inputs()
    args = given.x, given.edges, *[torch.rand(given.edges.size(1))] * (
        name == "GraphConv")
    torch.manual_seed(3)
    plain = pyg.GINConv(mlp(W, W), aggr=aggregation()) if name == "GINConv" \
        else getattr(pyg, name)(W, W, aggr=aggregation())
    layer = fast_copy(plain)
    same(step(layer, args), step(plain, args))
    assert _traced.state(layer).served


@pytest.mark.parametrize("options", [
    dict(learn=True), dict(learn=True, channels=W), dict(p=3.), dict(p=1.)],
    ids=str)
def test_power_means_of_neighbours_are_means_by_kernels(options):
    given = Inputs()
    plain = pyg.SAGEConv(W, W, aggr=pyg.PowerMeanAggregation(**options))
    plain.double()  # negative features have roots near 0, whose slopes are large
    layer = fast_copy(plain)
    args = given.x.detach().double().requires_grad_(), given.edges
    same(step(layer, args), step(plain, args))
    assert dfgnn.record(lambda: layer(*args), steps=1).problems


@pytest.mark.parametrize("aggr", ["max", "min", "std"])
def test_weighted_neighbours_that_no_operator_reduces_are_programs(aggr):
    given = Inputs()
    args = given.x, given.edges, torch.randn(
        given.edges.size(1), requires_grad=True)
    plain = pyg.GraphConv(W, W, aggr=aggr)
    layer = fast_copy(plain)
    same(step(layer, args), step(plain, args))
    assert _traced.state(layer).served


@pytest.mark.parametrize("name", [n for n in LAYERS if n not in KEPT])
def test_the_problems_of_each_layer_are_tuned(name):
    layer, args = made(name)
    layer = torch.nn.ModuleList([layer])
    dfgnn.accelerate(layer, check=False, guard=False)

    def first(out):
        return next(iter(out.values())) if isinstance(out, dict) else out
    recording = dfgnn.record(lambda: first(layer[0](*args)).sum().backward(),
                             steps=1)
    for problem in recording.problems:
        report, = Recording([problem]).tune(.02).values()
        assert report["measured"] or report["resumed"], problem
        assert not report["wrong"] and not report["failed"], problem



# what torch.compile has no operator of in its graph, and why
UNCOMPILED = {
    "HGTConv": "a number of rows is used as a number",
    "FastRGCNConv": "the call has written to its attribute fuse",
    "EdgeConv": "which torch.compile fuses",
}


def compiled(layer, found):
    """A layer as torch.compile makes it; names of dfgnn's operators in its
    graphs are added to found."""
    def look(module, _):
        for part in module.modules():
            for node in getattr(getattr(part, "graph", None), "nodes", ()):
                name = str(node.target)
                if node.op == "call_function" and name.startswith("dfgnn."):
                    found.append(name)
        return module
    torch._dynamo.reset()
    return torch.compile(layer, backend=look)


@pytest.mark.parametrize("name", [n for n in LAYERS if hasattr(conv, n)
                                  and n not in KEPT])
def test_torch_compile_keeps_the_kernels_of_a_convolution(name, caplog):
    found = made(name)
    if found is None:
        pytest.skip("a package is not there")
    layer, args = found
    plain, again = made(name)
    calls = []
    dfgnn.accelerate(layer)
    _fallbacks._said.clear()
    same(step(compiled(layer, calls), args), step(plain, again))
    if name in UNCOMPILED:
        assert not calls and UNCOMPILED[name] in caplog.text
    else:
        assert calls, caplog.text


@pytest.mark.parametrize("name, most, are_torchs", [
    ("GINConv", 1 << 24, True), ("GINConv", 1, False),
    ("GINEConv", 1 << 24, True), ("SAGEConv", 1 << 24, True),
    ("PNAConv", 1 << 24, False), ("TransformerConv", 1 << 24, False)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_torch_compile_fuses_sums_of_few_numbers(
        name, most, are_torchs, dynamic, monkeypatch):
    """The host binds a GPU there, so that torch's kernels take less time."""
    monkeypatch.setattr(_ways, "FEW_NUMBERS", {"cpu": most})
    (layer, args), (plain, again), calls = made(name), made(name), []
    dfgnn.accelerate(layer)
    same(step(compiled(layer, calls), args), step(plain, again))
    assert (not calls) == are_torchs
    torch._dynamo.reset()
    whole = torch.compile(layer, backend="aot_eager", fullgraph=True,
                          dynamic=dynamic)
    same(step(whole, args), step(plain, again))


@pytest.mark.parametrize("towers, scalers", [
    (1, ["identity"]), (2, ["identity", "amplification", "linear"])])
def test_torch_compile_keeps_the_reductions_of_pna(towers, scalers):
    layer = conv.PNAConv(W, W, ["mean", "max", "std"], scalers,
                         torch.tensor([0, 3, 5, 2]), towers=towers)
    plain, calls = copy.deepcopy(layer), []
    dfgnn.accelerate(layer)
    args = made("EdgeConv")[1]
    same(step(compiled(layer, calls), args), step(plain, args))
    assert calls
    torch._dynamo.reset()
    whole = torch.compile(layer, backend="aot_eager", fullgraph=True)
    same(step(whole, args), step(plain, args))


@pytest.mark.parametrize("aggr", ["max", "mean"])
def test_a_network_of_pygs_own_is_one_of_edges(aggr):
    """PyG's MLP, as its EdgeCNN has it, eager and compiled."""
    layer = conv.EdgeConv(MLP([2 * W, W, W], norm="batch_norm"), aggr=aggr)
    plain, args = copy.deepcopy(layer), made("EdgeConv")[1]
    dfgnn.accelerate(layer, guard=False)
    same(step(layer, args), step(plain, args))
    same(step(compiled(layer, []), args), step(plain, args))
    torch._dynamo.reset()
    whole = torch.compile(layer, backend="aot_eager", fullgraph=True)
    same(step(whole, args), step(plain, args))


if __name__ == "__main__":
    typing.WITH_KNN = True
    torch.ops.pyg.knn = knn
    for one in conv.__all__:
        if one != "MessagePassing" and issubclass(getattr(conv, one),
                                                  torch.nn.Module):
            print(f"{one:22s} {' '.join(served(one)[:2])}")
