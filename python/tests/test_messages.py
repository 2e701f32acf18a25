"""Messages with features of the edge: GINEConv, GENConv, ResGatedGraphConv
and the functions behind them."""

import pytest
import torch

import dfgnn
from dfgnn import _messages

pyg = pytest.importorskip("torch_geometric.nn")
ours = pytest.importorskip("dfgnn.nn.pyg")

NODES, EDGES, DIM = 40, 150, 12


def edges(device="cpu", num_dst=NODES):
    torch.manual_seed(1)
    src = torch.randint(NODES, (EDGES,))
    dst = torch.randint(num_dst - 3, (EDGES,))  # some receive nothing
    return torch.stack([src, dst]).to(device)


class Kernels:
    """Counts the fused forwards, so that no test passes without them."""

    def __init__(self, monkeypatch):
        self.calls = 0
        fused = _messages.forward

        def forward(*args):
            self.calls += 1
            return fused(*args)
        monkeypatch.setattr(_messages, "forward", forward)


@pytest.fixture
def kernels(monkeypatch):
    return Kernels(monkeypatch)


def network():
    return torch.nn.Sequential(torch.nn.Linear(DIM, 7), torch.nn.ReLU())


LAYERS = {
    "gine": lambda m: m.GINEConv(network()),
    "gine lin": lambda m: m.GINEConv(network(), edge_dim=5, train_eps=True),
    "gine one field": lambda m: m.GINEConv(network(), edge_dim=1),
    "gine many fields": lambda m: m.GINEConv(network(), edge_dim=70),
    "gine mean": lambda m: m.GINEConv(network(), edge_dim=5, aggr="mean"),
    "gen sum": lambda m: m.GENConv(DIM, DIM, aggr="add", edge_dim=5,
                                   norm="layer", eps=.1),
    "gen mean": lambda m: m.GENConv(DIM, DIM, aggr="mean", norm="layer",
                                    eps=.1, bias=True),
    "gated": lambda m: m.ResGatedGraphConv(DIM, 9),
    "gated mean": lambda m: m.ResGatedGraphConv(DIM, 9, aggr="mean"),
}
FIELDS = {"gine": DIM, "gine one field": 1, "gine many fields": 70,
          "gen mean": DIM, "gated": None, "gated mean": None}


def both(name, flow="source_to_target", where=ours):
    torch.manual_seed(2)
    theirs = LAYERS[name](pyg).double()
    mine = LAYERS[name](where).double()
    mine.load_state_dict(theirs.state_dict())
    mine.flow = theirs.flow = flow
    return theirs, mine


def results(layer, x, edge_index, edge_attr):
    """out and every gradient."""
    tensors = [x] + ([] if edge_attr is None else [edge_attr])
    tensors = [t.detach().clone().requires_grad_() for t in tensors]
    out = layer(tensors[0], edge_index, *tensors[1:])
    torch.manual_seed(3)
    wanted = tensors + [p for p in layer.parameters() if p.requires_grad]
    return [out, *torch.autograd.grad(out, wanted, torch.randn_like(out))]


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_those_of_pyg(name, flow, kernels):
    theirs, mine = both(name, flow)
    fields = FIELDS.get(name, 5)
    x = torch.randn(NODES, DIM, dtype=torch.float64)
    attr = None if fields is None else torch.randn(EDGES, fields,
                                                   dtype=torch.float64)
    for a, b in zip(results(mine, x, edges(), attr),
                    results(theirs, x, edges(), attr)):
        torch.testing.assert_close(a, b)
    assert kernels.calls == 1


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("name", [n for n in LAYERS if "gen" not in n])
def test_layers_without_pyg_are_those_of_pyg(name, flow, kernels):
    theirs, mine = both(name, flow, dfgnn.nn)
    assert str(mine) == str(theirs)
    fields = FIELDS.get(name, 5)
    attr = None if fields is None else torch.randn(EDGES, fields,
                                                   dtype=torch.float64)
    x = torch.randn(NODES, DIM, dtype=torch.float64)
    for a, b in zip(results(mine, x, edges(), attr),
                    results(theirs, x, edges(), attr)):
        torch.testing.assert_close(a, b)
    assert kernels.calls == 1
    # A pair, and a graph that was made before.
    ends = edges(num_dst=NODES - 4)
    pair = x, torch.randn(NODES - 4, DIM, dtype=torch.float64)
    given = () if attr is None else (attr,)
    if flow == "source_to_target":
        expected = theirs(pair, ends, *given)
        for graph in ends, dfgnn.as_graph(ends, (NODES, NODES - 4)):
            torch.testing.assert_close(mine(pair, graph, *given), expected)


def test_layers_without_pyg_draw_its_parameters():
    for name in "gine lin", "gated":
        torch.manual_seed(6)
        theirs = LAYERS[name](pyg)
        torch.manual_seed(6)
        mine = LAYERS[name](dfgnn.nn)
        for a, b in zip(mine.parameters(), theirs.parameters()):
            torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_layers_without_pyg_refuse_what_they_cannot_do():
    layer = dfgnn.nn.GINEConv(network())
    x = torch.randn(NODES, DIM)
    with pytest.raises(ValueError, match="edge_attr is None"):
        layer(x, edges())
    with pytest.raises(ValueError, match="Node and edge feature dimension"):
        layer(x, edges(), torch.randn(EDGES, 5))
    with pytest.raises(ValueError, match="dfgnn.nn.pyg takes every"):
        dfgnn.nn.GINEConv(network(), aggr="std")
    with pytest.raises(ValueError, match="edge_dim is 5, and edge_attr is"):
        dfgnn.nn.ResGatedGraphConv(DIM, 9, edge_dim=5)(x, edges())
    with pytest.raises(ValueError, match="edge_dim is None, and edge_attr"):
        dfgnn.nn.ResGatedGraphConv(DIM, 9)(x, edges(), torch.randn(EDGES, 5))


@pytest.mark.parametrize("where", ["pyg", "nn"])
@pytest.mark.parametrize("name", ["max", "edges", "act"])
def test_what_has_no_kernel_gives_what_pyg_gives(name, where):
    ours = dfgnn.nn.pyg if where == "pyg" else dfgnn.nn

    def make(m):
        if name == "max":
            return m.GINEConv(network(), edge_dim=5, aggr="max").double()
        if name == "act":
            return m.ResGatedGraphConv(DIM, 9, torch.nn.Tanh(), 5,
                                       aggr="mean").double()
        return m.ResGatedGraphConv(DIM, 9, edge_dim=5).double()
    torch.manual_seed(2)
    theirs, mine = make(pyg), make(ours)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(NODES, DIM, dtype=torch.float64)
    attr = torch.randn(EDGES, 5, dtype=torch.float64)
    for a, b in zip(results(mine, x, edges(), attr),
                    results(theirs, x, edges(), attr)):
        torch.testing.assert_close(a, b)


# ---- the functions ----------------------------------------------------------

def tensors(heads, fields, gated):
    torch.manual_seed(4)

    def new(*shape):
        return torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    given = dict(value=new(NODES, heads, DIM))
    if gated:
        given.update(gate_dst=new(NODES - 1, heads, DIM),
                     gate_src=new(NODES, heads, DIM))
    if fields is not None and fields < 0:
        given.update(edge_attr=new(EDGES, heads, DIM))
    elif fields is not None:
        given.update(edge_attr=new(EDGES, fields),
                     edge_weight=new(heads, DIM, fields),
                     edge_bias=new(heads, DIM))
    return _messages.Tensors(**given)


CASES = [(1, -1, False), (3, 4, False), (2, None, True), (2, -1, True),
         (1, 6, True)]


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("heads, fields, gated", CASES)
def test_functions_are_the_formula(heads, fields, gated, reduce, kernels):
    graph = dfgnn.as_graph(edges(), (NODES, NODES - 1))
    given = tensors(heads, fields, gated)
    x, a, b, attr, weight, bias = given
    if gated:
        out = dfgnn.gated_messages(graph, x, a, b, attr, weight, bias, reduce)
    else:
        out = dfgnn.relu_messages(graph, x, attr, weight, bias, reduce)
    ordered = given._replace(edge_attr=None if attr is None
                             else graph.to_graph_order(attr))
    want = _messages.composite(graph, reduce, ordered)
    torch.testing.assert_close(out, want)
    wanted = [t for t in given if t is not None]
    grad = torch.randn_like(out)
    for found, right in zip(torch.autograd.grad(out, wanted, grad),
                            torch.autograd.grad(want, wanted, grad)):
        torch.testing.assert_close(found, right)
    assert kernels.calls == 1


def test_gradients_of_gradients():
    graph = dfgnn.as_graph(edges(), NODES)
    given = tensors(2, 4, False)
    x, attr = given.value, given.edge_attr
    assert torch.autograd.gradgradcheck(
        lambda x, attr: dfgnn.relu_messages(
            graph, x, attr, given.edge_weight.detach()), (x, attr))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16,
                                   torch.bfloat16])
def test_types(dtype):
    graph = dfgnn.as_graph(edges(), (NODES, NODES - 1))
    x, a, b, attr, weight, bias = (
        t.detach().to(dtype) for t in tensors(1, 6, True))
    out = dfgnn.gated_messages(graph, x, a, b, attr, weight, bias)
    want = dfgnn.gated_messages(graph, *(t.double() for t in
                                         (x, a, b, attr, weight, bias)))
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), want, rtol=1e-2, atol=1e-2)


def test_a_graph_without_edges():
    graph = dfgnn.as_graph(torch.zeros(2, 0, dtype=torch.long), NODES)
    x = torch.randn(NODES, DIM, requires_grad=True)
    weight = torch.randn(DIM, 3, requires_grad=True)
    out = dfgnn.relu_messages(graph, x, torch.zeros(0, 3), weight)
    out.sum().backward()
    assert not out.any() and not x.grad.any() and not weight.grad.any()


def test_compiled_layers_keep_their_graph():
    layer = LAYERS["gine lin"](ours)
    x, attr = torch.randn(NODES, DIM), torch.randn(EDGES, 5)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, edges(), attr),
                               layer(x, edges(), attr))


@pytest.mark.parametrize("change, text", [
    (dict(edge_attr=None), "edge_attr is None"),
    (dict(edge_attr=torch.zeros(EDGES, 3)), "edge_attr must be"),
    (dict(reduce="median"), "reduce must be"),
])
def test_errors_name_the_argument(change, text):
    call = dict(x=torch.zeros(NODES, DIM), edge_attr=torch.zeros(EDGES, DIM))
    call.update(change)
    with pytest.raises(ValueError, match=text):
        dfgnn.relu_messages(dfgnn.as_graph(edges(), NODES), **call)
