"""What accelerated layers of PyG do with inputs that are seldom looked at:
projections with a bias or a hook, rows that are not one for each edge, tensors
of inference mode, int32 edges where PyG's own path runs, edge lists that were
written to behind torch's back."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch.nn import Linear, ReLU, Sequential

G = pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from dfgnn import _ways  # noqa: E402
from conftest import PATIENCE, close, fast_copy, random_edges  # noqa: E402

N, E, W, F = 9, 30, 4, 3


def network():
    return Sequential(Linear(W, 5), ReLU(), Linear(5, W))


# by name: what makes the layer, and which tensor by edge a call takes
LAYERS = {
    "GAT": (lambda: G.GATConv(W, 4, 2, edge_dim=F), "attr"),
    "GAT filled": (lambda: G.GATConv(W, 4, 2, edge_dim=F, fill_value=0.5),
                   "attr"),
    "GAT bare": (lambda: G.GATConv(W, 4, 2, edge_dim=F, residual=True,
                                   add_self_loops=False), "attr"),
    "GATv2": (lambda: G.GATv2Conv(W, 4, 2, edge_dim=F, fill_value="add"),
              "attr"),
    "GATv2 bare": (lambda: G.GATv2Conv(W, 4, 2, edge_dim=F,
                                       add_self_loops=False), "attr"),
    "Transformer": (lambda: G.TransformerConv(W, 4, 2, edge_dim=F, beta=True),
                    "attr"),
    "GINE": (lambda: G.GINEConv(network(), edge_dim=F), "attr"),
    "ResGated": (lambda: G.ResGatedGraphConv(W, 4, edge_dim=F), "attr"),
    "PNA": (lambda: G.PNAConv(W, 4, ["mean", "max"], ["identity"],
                              torch.tensor([1, 3, 4]), edge_dim=F), "attr"),
    "PNA bare": (lambda: G.PNAConv(W, 4, ["mean", "max"], ["identity"],
                                   torch.tensor([1, 3, 4])), ""),
    "GEN": (lambda: G.GENConv(W, 4, edge_dim=F), "attr"),
    "General": (lambda: G.GeneralConv(W, 4, in_edge_channels=F), "attr"),
    "PDN": (lambda: G.PDNConv(W, 4, F, 5), "attr"),
    "GCN": (lambda: G.GCNConv(W, 4), "weight"),
    "GCN bare": (lambda: G.GCNConv(W, 4, add_self_loops=False), "weight"),
    "GCN2": (lambda: G.GCN2Conv(W, 0.5), "weight"),
    "SG": (lambda: G.SGConv(W, 4, K=2), "weight"),
    "SSG": (lambda: G.SSGConv(W, 4, 0.1), "weight"),
    "TAG": (lambda: G.TAGConv(W, 4), "weight"),
    "APPNP": (lambda: G.APPNP(2, 0.1), "weight"),
    "MixHop": (lambda: G.MixHopConv(W, 4), "weight"),
    "ARMA": (lambda: G.ARMAConv(W, 4), "weight"),
    "LG": (lambda: G.LGConv(), "weight"),
    "Cheb": (lambda: G.ChebConv(W, 4, 3), "weight"),
    "Simple": (lambda: G.SimpleConv(combine_root="self_loop"), "weight"),
    "Graph": (lambda: G.GraphConv(W, 4), "weight"),
    "GatedGraph": (lambda: G.GatedGraphConv(W, 2), "weight"),
    "LE": (lambda: G.LEConv(W, 4), "weight"),
    "FA": (lambda: G.FAConv(W), ""),
    "SAGE": (lambda: G.SAGEConv(W, 4, project=True), ""),
    "GIN": (lambda: G.GINConv(network()), ""),
    "AGNN": (lambda: G.AGNNConv(), ""),
    "Edge": (lambda: G.EdgeConv(Linear(2 * W, 4)), ""),
    "ClusterGCN": (lambda: G.ClusterGCNConv(W, 4), ""),
    "SuperGAT": (lambda: G.SuperGATConv(W, 4, 2), ""),
}


def made(name):
    """(PyG's layer, the same accelerated, in double precision)."""
    layer = LAYERS[name][0]().double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return layer, copy.deepcopy(layer)


def by_edge(name, rows):
    kind = LAYERS[name][1]
    if not kind:
        return ()
    return (torch.rand(rows, F) if kind == "attr" else torch.rand(rows),)


def call(layer, x, edges, more):
    first = (x, x) if type(layer).__name__ in ("GCN2Conv", "FAConv") else (x,)
    return layer(*first, edges, *more)


def step(layer, x, edges, more):
    """The output and the gradients of a call, or the kind of its error."""
    leaves = [t if t.is_inference() else t.clone().requires_grad_()
              for t in (x, *more)]
    wanted = [t for t in (*leaves, *layer.parameters()) if t.requires_grad]
    try:
        out = call(layer, leaves[0], edges, leaves[1:])
    except Exception:
        return None
    found = torch.autograd.grad(out.sin().sum(), wanted, allow_unused=True) \
        if out.requires_grad else ()
    return [out.detach(), *found]


def compare(plain, fast, x, edges, more, name):
    right, got = step(plain, x, edges, more), step(fast, x, edges, more)
    if right is None or got is None:
        assert (right is None) == (got is None), \
            f"{name}: PyG {'raises' if right is None else 'runs'}"
        return False
    agree(got, right, name)
    return True


def agree(got, right, name):
    torch.testing.assert_close(got, right, rtol=1e-9, atol=1e-11,
                               msg=lambda text: f"{name}: {text}")


def inputs(name):
    return torch.randn(N, W, dtype=torch.double), random_edges(N, N, E), \
        tuple(t.double() for t in by_edge(name, E + 3))


def linears_of(layer):
    return [(parent, name, child) for parent in layer.modules()
            for name, child in parent.named_children()
            if type(child).__name__ == "Linear"]


@pytest.mark.parametrize("name", LAYERS)
def test_projections_may_get_a_bias(name, doubles):
    layer, _ = made(name)
    x, edges, more = inputs(name)
    for parent, child, linear in linears_of(layer):
        if linear.bias is None:
            out, width = linear.weight.shape
            with_bias = Linear(width, out)
            torch.nn.init.normal_(with_bias.bias)
            if child.isdigit():
                parent[int(child)] = with_bias
            else:
                setattr(parent, child, with_bias)
    fast = fast_copy(layer)
    assert compare(layer, fast, x, edges, more, name)


@pytest.mark.parametrize("name", LAYERS)
def test_a_hook_changes_what_a_projection_gives(name, doubles):
    layer, fast = made(name)
    x, edges, more = inputs(name)
    dfgnn.accelerate(fast)
    for each in (layer, fast):
        for _, _, linear in linears_of(each):
            linear.register_forward_hook(lambda m, i, out: 2 * out + 1)
    assert compare(layer, fast, x, edges, more, name)


@pytest.mark.parametrize("name", [n for n in LAYERS if LAYERS[n][1]])
def test_rows_that_are_not_one_for_each_edge(name, doubles):
    """PyG raises where there are more or fewer, and takes one for all edges
    where it broadcasts."""
    layer, fast = made(name)
    x, edges, _ = inputs(name)
    dfgnn.accelerate(fast)
    ran = [compare(layer, fast, x, edges, by_edge(name, rows), name)
           for rows in (edges.size(1) + 1, edges.size(1) + N,
                        edges.size(1) - 1, 1, edges.size(1))]
    assert ran[-1] and not ran[0]


@pytest.mark.parametrize("name", LAYERS)
def test_features_of_inference_mode_train(name, doubles):
    layer, fast = made(name)
    edges = random_edges(N, N, E)
    dfgnn.accelerate(fast)
    with torch.inference_mode():
        x = torch.randn(N, W)
        more = by_edge(name, edges.size(1))
    for given in (more, tuple(torch.rand(t.shape) for t in more)):
        right = step(layer, x, edges, given)
        if right is not None:  # where PyG raises, ours may train
            agree(step(fast, x, edges, given), right, name)


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_over_int32_edges_are_those_over_int64(name, doubles):
    """A hook on messages sends the call to PyG's own path."""
    layer, fast = made(name)
    x, edges, more = inputs(name)
    dfgnn.accelerate(fast)
    right = step(layer, x, edges, more)
    for plain in (False, True):
        if plain:
            fast.register_propagate_forward_pre_hook(lambda *_: None)
        agree(step(fast, x, edges.int(), more), right, name)


@pytest.mark.parametrize("make", [
    lambda: G.SAGEConv(W, 4, aggr=G.SoftmaxAggregation(learn=True)),
    lambda: G.GraphConv(W, 4, aggr="max"),
    lambda: G.GATConv(W, 4, 2, aggr="max")])
def test_int32_edges_where_no_kernel_reduces(make, doubles):
    layer, x = make(), torch.randn(N, W)
    edges, fast = random_edges(N, N, E), copy.deepcopy(layer)
    dfgnn.accelerate(fast)
    weight = (torch.rand(edges.size(1)),) if isinstance(layer, G.GraphConv) \
        else ()
    agree(step(fast, x, edges.int(), weight), step(layer, x, edges, weight),
          type(layer).__name__)


@pytest.mark.parametrize("kind", [G.SAGEConv, G.GraphConv, G.FiLMConv])
def test_int32_edges_where_torch_compile_fuses_sums(
        kind, doubles, monkeypatch):
    monkeypatch.setattr(_ways, "FEW_NUMBERS", {"cpu": 1 << 24})
    layer, x, edges = kind(W, 4), torch.randn(N, W), random_edges(N, N, E)
    fast = copy.deepcopy(layer)
    dfgnn.accelerate(fast)
    torch._dynamo.reset()
    compiled = torch.compile(fast, backend="eager", fullgraph=True)
    agree(step(compiled, x, edges.int(), ()), step(layer, x, edges, ()),
          kind.__name__)


# ---- edge lists that change behind torch's back -----------------------------

def test_an_edge_list_may_get_other_data():
    layer, x = G.SimpleConv(), torch.tensor([[1.0], [10.0], [100.0]])
    dfgnn.accelerate(layer)
    edges = torch.tensor([[0, 1], [1, 0]])
    assert layer(x, edges).flatten().tolist() == [10, 1, 0]
    edges.data = torch.tensor([[2, 2], [0, 1]])
    assert layer(x, edges).flatten().tolist() == [100, 100, 0]
    weighted, weight = G.GCNConv(1, 1), torch.tensor([1.0, 2.0])
    plain = copy.deepcopy(weighted)
    dfgnn.accelerate(weighted)
    weighted(x, edges, weight)
    weight.data = torch.tensor([3.0, 0.5])
    close(weighted(x, edges, weight), plain(x, edges, weight), 1e-6)


CHECKED = """
import torch, dfgnn
graph, x = torch.tensor([[0, 1], [1, 0]]), torch.rand(3, 1)
dfgnn.spmm(graph, x)
dfgnn.spmm(graph, x)
torch.from_dlpack(graph).copy_(torch.tensor([[0, 0], [1, 2]]))
try:
    dfgnn.spmm(graph, x)
except RuntimeError as error:
    print(error)
"""


def test_a_switch_finds_writes_that_torch_does_not_count():
    env = dict(os.environ, DFGNN_CHECK="edges")
    said = subprocess.run([sys.executable, "-c", CHECKED], env=env, check=True,
                          timeout=PATIENCE, capture_output=True, text=True)
    assert "DFGNN_CHECK=edges" in said.stdout


def test_a_layer_exports_whose_edges_depend_on_values():
    """remove_self_loops() leaves a number of edges that no size tells."""
    layer = G.FeaStConv(4, 4, heads=2)
    x, edges = torch.randn(5, 4), torch.tensor([[0, 1, 2, 3], [1, 2, 2, 0]])
    expected = layer(x, edges)
    dfgnn.accelerate(layer)
    program = torch.export.export(layer, (x, edges))
    close(program.module()(x, edges), expected, 1e-5)


EXPORTED = {
    "GCN": lambda: G.GCNConv(4, 4), "GAT": lambda: G.GATConv(4, 4, 2),
    "GAT edges": lambda: G.GATConv(4, 4, 2, edge_dim=3),
    "GATv2": lambda: G.GATv2Conv(4, 4, 2), "SAGE": lambda: G.SAGEConv(4, 4),
    "GIN": lambda: G.GINConv(torch.nn.Linear(4, 4)),
    "Transformer": lambda: G.TransformerConv(4, 4, 2)}


@pytest.mark.parametrize("name", EXPORTED)
def test_export_in_its_default_mode_keeps_the_kernels(name):
    layer, edges = EXPORTED[name](), torch.randint(0, 6, (2, 20))
    given = torch.randn(6, 4), edges, *(
        [torch.randn(20, 3)] if name == "GAT edges" else [])
    expected = layer(*given)
    dfgnn.accelerate(layer)
    program = torch.export.export(layer, given)
    assert any("dfgnn" in str(node.target) for node in program.graph.nodes)
    close(program.module()(*given), expected, 1e-5)


# by name: a layer and its inputs, of which PyG makes an error
REFUSED = {
    "half features for EdgeConv": lambda x, e, a: (G.EdgeConv(Sequential(
        Linear(2 * W, 5), ReLU(), Linear(5, W))), (x.half(), e)),
    "edges of another type for GINE": lambda x, e, a: (
        G.GINEConv(network(), edge_dim=F).double(), (x.double(), e, a)),
    "no edge features for ResGated": lambda x, e, a: (
        G.ResGatedGraphConv(W, 4, edge_dim=F), (x, e)),
    "nothing for GCN2": lambda x, e, a: (
        G.GCN2Conv(W, 0.5, normalize=False), (None, x, e)),
    "nothing for SAGE": lambda x, e, a: (G.SAGEConv(W, 4), (None, e)),
    "nothing for AGNN": lambda x, e, a: (G.AGNNConv(), (None, e)),
    "edges of another type for GATv2": lambda x, e, a: (
        G.GATv2Conv(W, 4, edge_dim=F).double(), (x.double(), e, a)),
    "a list for RGCN": lambda x, e, a: (
        G.RGCNConv(W, 4, 2), (x.tolist(), e, torch.arange(E) % 2)),
    "whole numbers for RGCN": lambda x, e, a: (
        G.RGCNConv(W, 4, 2), (x.int(), e, torch.arange(E) % 2)),
    "maxima for FastRGCN": lambda x, e, a: (
        G.FastRGCNConv(W, 4, 2, aggr="max"), (x, e, torch.arange(E) % 2)),
    "whole numbers for LG": lambda x, e, a: (G.LGConv(), (x.int(), e)),
    "booleans for GEN": lambda x, e, a: (G.GENConv(W, W), (x > 0, e)),
    "nodes for a sorting message": lambda x, e, a: (Sorting(), (x, e + 3)),
    "edges from no nodes for FeaSt": lambda x, e, a: (
        G.FeaStConv(W, 4), ((x[:0], x), e)),
    "loops of a size unknown for GAT": lambda x, e, a: (
        G.GATConv((W, W), 4), ((x, x), e, None, (N, None))),
    "nodes on another axis": lambda x, e, a: (
        Sorting(node_dim=1), (x.t(), e + 3))}


class Sorting(G.MessagePassing):
    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message(self, x_j):
        return x_j.sort(-1)[0]


@pytest.mark.parametrize("name", REFUSED)
def test_inputs_that_pyg_refuses_are_its_errors(name):
    layer, given = REFUSED[name](torch.randn(N, W), random_edges(N, N, E),
                                 torch.randn(E, F))
    with pytest.raises(Exception) as theirs:
        layer(*given)
    dfgnn.accelerate(layer)
    for _ in range(2):
        with pytest.raises(theirs.type) as ours:
            layer(*given)
        assert "'edge_index'" in str(ours) or "'edge_index'" not in str(theirs)


def test_pna_takes_no_nodes():
    layer = G.PNAConv(W, 4, ["mean"], ["identity"], torch.ones(3).long())
    dfgnn.accelerate(layer)
    assert layer(torch.ones(0, W), torch.ones(2, 0).long()).shape == (0, 4)


def test_a_norm_refuses_no_graphs_as_pyg():
    norm = G.GraphNorm(W)
    dfgnn.accelerate(norm)
    with pytest.raises(RuntimeError, match="max"):
        norm(torch.ones(0, W), torch.ones(0).long())


@pytest.mark.parametrize("norm", [G.PairNorm, G.MeanSubtractionNorm])
def test_a_norm_of_no_nodes_is_empty_as_pygs(norm):
    layer = norm()
    dfgnn.accelerate(layer)
    assert layer(torch.ones(0, W), torch.ones(0).long()).shape == (0, W)


def test_a_bias_that_no_deviation_sees_has_a_gradient_of_zeros():
    layer = G.EdgeConv(Linear(2 * W, 4), aggr="std")
    dfgnn.accelerate(layer)
    layer(torch.randn(N, W), random_edges(N, N, E)).sum().backward()
    assert not layer.nn.bias.grad.any()


def test_agnn_has_the_type_that_its_beta_makes():
    layer, given = G.AGNNConv().double(), (torch.randn(N, W),
                                           random_edges(N, N, E))
    expected = layer(*given)
    dfgnn.accelerate(layer)
    out = layer(*given)
    assert out.dtype == expected.dtype == torch.float64
    close(out, expected, 1e-6)


def test_edges_widened_in_inference_mode_serve_training():
    """int32 edges of PyG's own path are widened once."""
    layer, edges = G.SAGEConv(W, 4), random_edges(N, N, E).int()
    dfgnn.accelerate(layer)
    layer.register_message_forward_hook(lambda module, inputs, out: None)
    x = torch.randn(N, W)
    with torch.inference_mode():
        expected = layer(x, edges)
    out = layer(x.requires_grad_(), edges)
    out.sum().backward()
    close(out, expected, 1e-6)


class Counted(torch.nn.Module):
    """A parametrization whose numbers depend on how often it was read."""

    def __init__(self):
        super().__init__()
        self.reads = 0

    def forward(self, weight):
        self.reads += 1
        return weight * self.reads


@pytest.mark.parametrize("make, name", [
    (lambda: G.RGCNConv(8, 8, 2), "weight"),
    (lambda: G.FastRGCNConv(8, 8, 2), "root"),
    (lambda: G.GATv2Conv(8, 8), "att"), (G.AGNNConv, "beta")])
def test_parameters_are_read_as_often_as_by_pyg(make, name, doubles):
    plain, x = make(), torch.randn(5, 8)
    given = [x, torch.randint(5, (2, 9))]
    if hasattr(plain, "num_relations"):
        given.append(torch.randint(2, (9,)))
    fast = fast_copy(plain)
    for layer in (plain, fast):
        torch.nn.utils.parametrize.register_parametrization(
            layer, name, Counted())
    for _ in range(2):
        torch.testing.assert_close(fast(*given), plain(*given))


@pytest.mark.parametrize("make, inputs", [
    (lambda: G.PointNetConv(), lambda x: (x, x[:, :3])),
    (lambda: G.MFConv(W, 4), lambda x: (x,)),
    (lambda: G.DNAConv(W), lambda x: (x.view(N, 1, W),)),
    (lambda: G.RGCNConv(W, 4, 2), lambda x: (x,))])
def test_layers_whose_forward_reads_their_edges_take_a_graph(make, inputs):
    layer, x, edges = make(), inputs(torch.randn(N, W)), random_edges(N, N, E)
    types = ()
    if isinstance(layer, G.RGCNConv):
        types = (torch.arange(edges.size(1)) % 2,)
    expected = layer(*x, edges, *types)
    dfgnn.accelerate(layer, guard=False)
    close(layer(*x, dfgnn.as_graph(edges, N), *types), expected, 1e-5)
    graph = dfgnn.HeteroGraph({("a", "to", "a"): edges}, {"a": N})
    with pytest.raises(TypeError, match="does not run on a HeteroGraph"):
        layer(*x, graph, *types)


def test_hgt_takes_a_graph_for_each_relation():
    edges = {("a", "to", "b"): random_edges(N, N, E),
             ("b", "to", "a"): random_edges(N, N, E)}
    x = {"a": torch.randn(N, W), "b": torch.randn(N, W)}
    layer = G.HGTConv(W, 4, (list(x), list(edges)), 2)
    expected = layer(x, edges)
    dfgnn.accelerate(layer)
    results = layer(x, {key: dfgnn.as_graph(part, N)
                        for key, part in edges.items()})
    for kind, out in results.items():
        close(out, expected[kind], 1e-5)
