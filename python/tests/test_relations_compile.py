"""HeteroConv under torch.compile: sums over all relations of a type are one
operator."""

import copy

import pytest
import torch

pytest.importorskip("torch._dynamo.testing")
G = pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402

NODES = {"a": 9, "b": 6, "c": 4}
KINDS = [("a", "x", "b"), ("b", "y", "a"), ("a", "z", "a"), ("c", "w", "a")]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def edges_of(counts=(20, 15, 12, 0)):
    return {(s, r, d): torch.stack([torch.randint(NODES[s], (n,)),
                                    torch.randint(NODES[d], (n,))])
            for (s, r, d), n in zip(KINDS, counts)}


def features():
    return {kind: torch.randn(n, 5, dtype=torch.float64, requires_grad=True)
            for kind, n in NODES.items()}


def sage(**options):
    return lambda: G.SAGEConv((5, 5), 3, **options)


MODELS = {
    "sums": (sage(aggr="sum"), "sum"),
    "means": (sage(), "mean"),
    "GraphConv": (lambda: G.GraphConv((5, 5), 3), "sum"),
    "no own features": (sage(root_weight=False, bias=False), "sum"),
}


def run(model, x, edges):
    out = model(x, edges)
    sum(part.square().sum() for part in out.values()).backward()
    grads = [t.grad for t in (*x.values(), *model.parameters())]
    for t in (*x.values(), *model.parameters()):
        t.grad = None
    return [*out.values(), *grads]


def same(found, wanted):
    for a, b in zip(found, wanted):
        # what no edge of a batch leads to has no gradient, or one of zeros
        a, b = (torch.zeros(()) if t is None else t for t in (a, b))
        torch.testing.assert_close(a, b.expand_as(a) if a.dim() else b,
                                   rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_all_relations_of_a_type_are_one_operator_of_the_graph(name, monkeypatch):
    make, aggr = MODELS[name]
    model = G.HeteroConv({key: make() for key in KINDS}, aggr).double()
    mine = copy.deepcopy(model)
    dfgnn.accelerate(mine)
    operators = []

    def backend(module, inputs):
        operators.extend(str(node.target) for node in module.graph.nodes
                         if "dfgnn" in str(node.target))
        from torch._dynamo.backends.debugging import aot_eager
        return aot_eager(module, inputs)
    compiled = torch.compile(mine, backend=backend, fullgraph=True)
    for _ in range(2):
        x, edges = features(), edges_of()
        same(run(compiled, x, edges), run(model, x, edges))
    assert operators == ["dfgnn.call_of_edges.default"] * 2  # a and b


class Two(torch.nn.Module):
    """Two layers whose first result alone is read at nodes of one type."""

    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList(G.HeteroConv({
            key: G.SAGEConv((5, 5), 5, aggr="sum") for key in KINDS})
            for _ in range(2))

    def forward(self, x, edges):
        x = self.convs[0](x, edges)
        x["c"] = x["a"][:NODES["c"]]
        return {"b": self.convs[1](x, edges)["b"]}


def test_types_that_nobody_reads_are_left_out():
    from torch._dynamo.backends.common import aot_autograd
    model, counts = Two().double(), []
    mine = copy.deepcopy(model)
    dfgnn.accelerate(mine)

    def counted(module, inputs):
        counts.append(sum("dfgnn.call" in str(node.target)
                          for node in module.graph.nodes))
        return module
    compiled = torch.compile(mine, backend=aot_autograd(
        fw_compiler=counted, bw_compiler=counted), fullgraph=True)
    x, edges = features(), edges_of()
    for name in ("b", "c"):  # no gradients of features: as data is
        x[name].requires_grad_(False)
    same([t for t in run(compiled, x, edges) if t is not None],
         [t for t in run(model, x, edges) if t is not None])
    # b of the second layer reads a and b of the first, and sums lead back to
    # the features of a alone
    assert counts == [3, 3]


def test_new_blocks_do_not_compile_anew():
    model = G.HeteroConv({key: sage(aggr="sum")() for key in KINDS}).double()
    mine = copy.deepcopy(model)
    dfgnn.accelerate(mine)
    times = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(mine, backend=times, dynamic=True)
    for count in (3, 7, 12, 18):
        x, edges = features(), edges_of((count, count + 2, 5, count - 1))
        same(run(compiled, x, edges), run(model, x, edges))
    assert times.frame_count <= 2


def test_other_layers_go_as_before():
    model = G.HeteroConv({key: sage(aggr="max")() for key in KINDS}).double()
    mine = copy.deepcopy(model)
    dfgnn.accelerate(mine)
    compiled = torch.compile(mine, backend="aot_eager")
    x, edges = features(), edges_of((20, 15, 12, 4))
    same(list(compiled(x, edges).values()), list(model(x, edges).values()))


def test_nodes_out_of_range_are_named():
    mine = G.HeteroConv({key: sage()() for key in KINDS}).double()
    dfgnn.accelerate(mine)
    compiled = torch.compile(mine, backend="aot_eager")
    edges = edges_of()
    edges[KINDS[0]][1, 3] = 6
    with pytest.raises(ValueError, match="there are 6 destinations"):
        compiled(features(), edges)


def test_opcheck_finds_nothing_wrong():
    edges = edges_of()
    x = [t for t in features().values()]
    first, *others = edges.values()
    torch.library.opcheck(torch.ops.dfgnn.call_of_edges.default, (
        "relations sums|spmm-sum|0,1,1,0,0,0,2,0", [], [*x, *others], first,
        0, 0, 0, 0))
