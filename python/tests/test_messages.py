"""Messages with features of the edge: GINEConv, GENConv, ResGatedGraphConv
and the functions behind them."""

import pytest
import torch

import dfgnn
from dfgnn import _formulas, _kernel_links, _operators, _steps
from dfgnn.messages import OPS, Tensors

pyg = pytest.importorskip("torch_geometric.nn")
ours = pytest.importorskip("dfgnn.nn.pyg")

NODES, EDGES, DIM = 40, 150, 12


def edges(device="cpu", num_dst=NODES):
    torch.manual_seed(1)
    src = torch.randint(NODES, (EDGES,))
    dst = torch.randint(num_dst - 3, (EDGES,))  # some receive nothing
    return torch.stack([src, dst]).to(device)


def composite(graph, reduce, given):
    outs = _formulas.sums(
        _formulas.ByTorch, graph, OPS.get(reduce, "message-" + reduce),
        given._asdict())
    return outs if len(outs) > 1 else outs[0]


class Kernels:
    """Counts the fused forwards, so that no test passes without them."""

    def __init__(self, monkeypatch):
        self.calls = 0
        self._count(monkeypatch, _operators.Recipe, "forward")
        self._count(monkeypatch, _steps.Steps, "run")
        self._count(monkeypatch, _kernel_links.Reduced, "forward")

    def _count(self, monkeypatch, kind, name):
        run = getattr(kind, name)

        def counted(*args):
            self.calls += 1
            return run(*args)
        monkeypatch.setattr(kind, name, counted)


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
    "gated edges": lambda m: m.ResGatedGraphConv(DIM, 9, edge_dim=5),
    "gated edges max": lambda m: m.ResGatedGraphConv(DIM, 9, edge_dim=5,
                                                     aggr="max"),
    "gated edges several": lambda m: m.ResGatedGraphConv(
        DIM, 9, edge_dim=5, root_weight=False, bias=False,
        aggr=["mean", "min", "max", "std"]),
    "gated min": lambda m: m.ResGatedGraphConv(DIM, 9, aggr="min"),
    "gine max": lambda m: m.GINEConv(network(), edge_dim=5, aggr="max"),
    "gine min": lambda m: m.GINEConv(network(), aggr="min"),
    "gine std": lambda m: m.GINEConv(network(), edge_dim=5, aggr="std"),
    "gen max": lambda m: m.GENConv(DIM, DIM, aggr="max", edge_dim=5,
                                   norm="layer", eps=.1),
    "gen several": lambda m: m.GENConv(
        DIM, DIM, aggr=["mean", "min", "max", "std"], edge_dim=5,
        norm="layer", eps=.1),
}
FIELDS = {"gine": DIM, "gine one field": 1, "gine many fields": 70,
          "gen mean": DIM, "gated": None, "gated mean": None,
          "gated min": None, "gine min": DIM}


def both(name, flow="source_to_target", where=ours):
    torch.manual_seed(2)
    theirs = LAYERS[name](pyg).double()
    mine = LAYERS[name](where).double()
    mine.load_state_dict(theirs.state_dict())
    mine.flow = theirs.flow = flow
    return theirs, mine


def results(layer, x, edge_index, edge_attr):
    """[the output, the gradients of x, of edge_attr and of parameters]."""
    tensors = [x] + ([] if edge_attr is None else [edge_attr])
    tensors = [t.detach().clone().requires_grad_() for t in tensors]
    out = layer(tensors[0], edge_index, *tensors[1:])
    torch.manual_seed(3)
    wanted = tensors + [p for p in layer.parameters() if p.requires_grad]
    return [out, *torch.autograd.grad(out, wanted, torch.randn_like(out))]


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("where, name", [
    (where, name) for where in (ours, dfgnn.nn) for name in LAYERS
    if where is ours or "gen" not in name])
def test_layers_are_those_of_pyg(where, name, flow, kernels):
    theirs, mine = both(name, flow, where)
    assert str(mine) == str(theirs)
    fields = FIELDS.get(name, 5)
    x = torch.randn(NODES, DIM, dtype=torch.float64)
    attr = None if fields is None else torch.randn(EDGES, fields,
                                                   dtype=torch.float64)
    torch.testing.assert_close(results(mine, x, edges(), attr),
                               results(theirs, x, edges(), attr))
    # the first call of a layer that is traced is checked by another
    assert kernels.calls == (2 if name.startswith("gen") else 1)
    # A pair, and a graph that was made before.
    ends = edges(num_dst=NODES - 4)
    pair = x, torch.randn(NODES - 4, DIM, dtype=torch.float64)
    given = () if attr is None else (attr,)
    if flow == "source_to_target":
        expected = theirs(pair, ends, *given)
        for graph in ends, dfgnn.as_graph(ends, (NODES, NODES - 4)):
            torch.testing.assert_close(mine(pair, graph, *given), expected)


def test_layers_without_pyg_refuse_what_they_cannot_do():
    layer = dfgnn.nn.GINEConv(network())
    x = torch.randn(NODES, DIM)
    with pytest.raises(ValueError, match="edge_attr is None"):
        layer(x, edges())
    with pytest.raises(ValueError, match="Node and edge feature dimension"):
        layer(x, edges(), torch.randn(EDGES, 5))
    with pytest.raises(ValueError, match="dfgnn.nn.pyg takes every"):
        dfgnn.nn.GINEConv(network(), aggr="median")
    with pytest.raises(ValueError, match="edge_dim is 5, and edge_attr is"):
        dfgnn.nn.ResGatedGraphConv(DIM, 9, edge_dim=5)(x, edges())
    with pytest.raises(ValueError, match="edge_dim is None, and edge_attr"):
        dfgnn.nn.ResGatedGraphConv(DIM, 9)(x, edges(), torch.randn(EDGES, 5))


@pytest.mark.parametrize("where", ["pyg", "nn"])
@pytest.mark.parametrize("name", ["var", "act"])
def test_what_has_no_kernel_gives_what_pyg_gives(name, where):
    ours = dfgnn.nn.pyg if where == "pyg" else dfgnn.nn

    def make(m):
        if name == "var":
            return m.GINEConv(network(), edge_dim=5, aggr="var").double()
        return m.ResGatedGraphConv(DIM, 9, torch.nn.Tanh(), 5,
                                   aggr="mean").double()
    torch.manual_seed(2)
    theirs, mine = make(pyg), make(ours)
    mine.load_state_dict(theirs.state_dict())
    x = torch.randn(NODES, DIM, dtype=torch.float64)
    attr = torch.randn(EDGES, 5, dtype=torch.float64)
    torch.testing.assert_close(results(mine, x, edges(), attr), results(theirs, x, edges(), attr))


# ---- the functions ----------------------------------------------------------

def tensors(heads, fields, gated, parts=()):
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
                     edge_projection=new(*parts, heads, DIM, fields),
                     edge_bias=new(*parts, heads, DIM))
    return Tensors(**given)


CASES = [(1, -1, False), (3, 4, False), (2, None, True), (2, -1, True),
         (1, 6, True)]


@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max", "pna"])
@pytest.mark.parametrize("heads, fields, gated", CASES)
def test_functions_are_the_formula(heads, fields, gated, reduce, kernels):
    graph = dfgnn.as_graph(edges(), (NODES, NODES - 1))
    given = tensors(heads, fields, gated)
    x, attr, weight, bias, a, b = given
    if gated:
        outs = dfgnn.gated_messages(graph, x, a, b, attr, weight, bias, reduce)
    else:
        outs = dfgnn.relu_messages(graph, x, attr, weight, bias, reduce)
    ordered = given._replace(edge_attr=None if attr is None
                             else graph.to_graph_order(attr))
    outs, wants = (t if isinstance(t, tuple) else (t,) for t in (
        outs, composite(graph, reduce, ordered)))
    assert len(outs) == (4 if reduce == "pna" else 1) and kernels.calls == 1
    torch.testing.assert_close(outs, wants)
    same_gradients(outs, wants, given)


def same_gradients(outs, wants, given):
    wanted = [t for t in given if t is not None]
    grads = [torch.randn_like(out) for out in outs]
    torch.testing.assert_close(torch.autograd.grad(outs, wanted, grads),
                               torch.autograd.grad(wants, wanted, grads))


@pytest.mark.parametrize("reduce", ["sum", "max", "pna"])
def test_values_take_features_of_the_edge(reduce, kernels):
    graph = dfgnn.as_graph(edges(), (NODES, NODES - 1))
    given = tensors(2, 5, True, (2,))
    x, attr, weight, bias, a, b = given
    outs = dfgnn.gated_messages(
        graph, x, a, b, attr, weight[0], bias[0], reduce,
        value_weight=weight[1], value_bias=bias[1])
    assert kernels.calls == 1
    part, more = ((attr @ w.flatten(0, 1).t()).view(EDGES, 2, DIM) + c
                  for w, c in zip(weight, bias))
    src, dst = edges()
    message = torch.sigmoid(a[dst] + b[src] + part) * (x[src] + more)
    wants = dfgnn.aggregate(
        dfgnn.as_graph(torch.stack([torch.arange(EDGES), dst]),
                       (EDGES, NODES - 1)), message, reduce)
    outs, wants = (t if isinstance(t, tuple) else (t,) for t in (outs, wants))
    torch.testing.assert_close(outs, wants)
    same_gradients(outs, wants, given)


def test_several_reductions_share_a_pass(kernels):
    graph = dfgnn.as_graph(edges(), NODES)
    x, attr, weight, bias, _, _ = tensors(1, 4, False)
    names = ["std", "sum", "max", "var"]
    outs = dfgnn.relu_messages(graph, x, attr, weight, bias, names)
    assert kernels.calls == 2
    ordered = Tensors(x, graph.to_graph_order(attr), weight, bias)
    for name, out in zip(names, outs):
        torch.testing.assert_close(
            out, composite(graph, name, ordered))


@pytest.mark.parametrize("where", ["value", "edge_attr", "gate_dst",
                                   "gate_src"])
@pytest.mark.parametrize("special", [float("nan"), float("inf"),
                                     -float("inf")])
@pytest.mark.parametrize("reduce", ["sum", "mean", "min", "max"])
def test_what_is_no_number_is_what_pyg_makes_of_it(reduce, special, where):
    graph = dfgnn.as_graph(edges(), (NODES, NODES - 1))
    given = tensors(1, -1, where.startswith("gate"))
    with torch.no_grad():
        getattr(given, where)[3, 0, 2] = special
        getattr(given, where)[5, 0, 7] = special
    x, attr, _, _, a, b = given
    if a is None:
        out = dfgnn.relu_messages(graph, x, attr, reduce=reduce)
    else:
        out = dfgnn.gated_messages(graph, x, a, b, attr, reduce=reduce)
    src, dst = edges()
    part = x[src] + attr if a is None else None
    message = part.relu() if a is None else \
        torch.sigmoid(a[dst] + b[src] + attr) * x[src]
    want = pyg.aggr.MultiAggregation([reduce])(
        message.flatten(1), dst, dim_size=NODES - 1).view(out.shape)
    torch.testing.assert_close(out, want, equal_nan=True)
    wanted = [t for t in given if t is not None]
    grad = torch.randn_like(out)
    for found, right in zip(torch.autograd.grad(out, wanted, grad),
                            torch.autograd.grad(want, wanted, grad)):
        # An extreme that is NaN passes its gradient on to the message that
        # gave it; torch's scatter makes the gradients of the whole row NaN.
        numbers = torch.ones_like(right, dtype=torch.bool) \
            if reduce in ("sum", "mean") else ~right.isnan()
        torch.testing.assert_close(found[numbers], right[numbers],
                                   equal_nan=True)
        assert numbers.sum() > right.numel() // 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16,
                                   torch.bfloat16])
def test_types(dtype):
    graph = dfgnn.as_graph(edges(), (NODES, NODES - 1))
    x, attr, weight, bias, a, b = (
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


@pytest.mark.parametrize("name", ["gine lin", "gine max", "gated edges",
                                  "gated edges several"])
def test_compiled_layers_keep_their_graph(name):
    layer = LAYERS[name](ours)
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


def test_a_call_inside_a_checkpoint():
    from torch.utils.checkpoint import checkpoint
    x, e = torch.randn(NODES, DIM, requires_grad=True), \
        torch.randn(EDGES, DIM, requires_grad=True)

    def run(x, e):
        return dfgnn.relu_messages(edges(), x, e)
    made = [torch.autograd.grad(out.sin().sum(), (x, e)) for out in (
        run(x, e), checkpoint(run, x, e, use_reentrant=False))]
    assert all(map(torch.equal, *made))
