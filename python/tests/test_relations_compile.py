"""HeteroConv under torch.compile: sums over all relations of a type are one
operator."""

import pytest
import torch

pytest.importorskip("torch._dynamo.testing")
G = pytest.importorskip("torch_geometric.nn")

from relation_cases import (  # noqa: E402
    WIDTH, accelerated, compare, hetero_conv, schema)

NODES = {"a": 9, "b": 6, "c": 4}
KINDS = [("a", "x", "b"), ("b", "y", "a"), ("a", "z", "a"), ("c", "w", "a")]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def drawn(counts=(20, 15, 12, 0)):
    return schema(counts, NODES, KINDS)


def sage(**options):
    return lambda key: G.SAGEConv((WIDTH, WIDTH), WIDTH, **options)


def compared(model, compiled, x, edges):
    compare(model, compiled, [t for t in x.values() if t.requires_grad],
            lambda m: m(x, edges))


MODELS = {
    "sums": (sage(aggr="sum"), "sum"),
    "means": (sage(), "mean"),
    "GraphConv": (lambda key: G.GraphConv((WIDTH, WIDTH), 3), "sum"),
    "no own features": (sage(root_weight=False, bias=False), "sum"),
}


@pytest.mark.parametrize("name", MODELS)
def test_all_relations_of_a_type_are_one_operator_of_the_graph(name):
    make, aggr = MODELS[name]
    model, operators = hetero_conv(make, KINDS, aggr), []

    def backend(module, inputs):
        operators.extend(str(node.target) for node in module.graph.nodes
                         if "dfgnn" in str(node.target))
        from torch._dynamo.backends.debugging import aot_eager
        return aot_eager(module, inputs)
    compiled = torch.compile(accelerated(model), backend=backend,
                             fullgraph=True)
    for _ in range(2):
        compared(model, compiled, *drawn())
    assert operators == ["dfgnn.call_of_edges.default"] * 2  # a and b


class Two(torch.nn.Module):
    """Two layers whose first result alone is read at nodes of one type."""

    def __init__(self):
        super().__init__()
        self.convs = torch.nn.ModuleList(
            hetero_conv(sage(aggr="sum"), KINDS) for _ in range(2))

    def forward(self, x, edges):
        x = self.convs[0](x, edges)
        x["c"] = x["a"][:NODES["c"]]
        return {"b": self.convs[1](x, edges)["b"]}


def test_types_that_nobody_reads_are_left_out():
    from torch._dynamo.backends.common import aot_autograd
    model, counts = Two(), []

    def counted(module, inputs):
        counts.append(sum("dfgnn.call" in str(node.target)
                          for node in module.graph.nodes))
        return module
    compiled = torch.compile(accelerated(model), backend=aot_autograd(
        fw_compiler=counted, bw_compiler=counted), fullgraph=True)
    x, edges = drawn()
    for name in ("b", "c"):  # no gradients of features: as data is
        x[name].requires_grad_(False)
    compared(model, compiled, x, edges)
    # b of the second layer reads a and b of the first, and sums lead back to
    # the features of a alone
    assert counts == [3, 3]


def test_new_blocks_do_not_compile_anew():
    model = hetero_conv(sage(aggr="sum"), KINDS)
    times = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(accelerated(model), backend=times, dynamic=True)
    for count in (3, 7, 12, 18):
        compared(model, compiled, *drawn((count, count + 2, 5, count - 1)))
    assert times.frame_count <= 2


def test_other_layers_go_as_before():
    model = hetero_conv(sage(aggr="max"), KINDS)
    compared(model, torch.compile(accelerated(model), backend="aot_eager"),
             *drawn((20, 15, 12, 4)))


def test_nodes_out_of_range_are_named():
    compiled = torch.compile(accelerated(hetero_conv(sage(), KINDS)),
                             backend="aot_eager")
    x, edges = drawn()
    edges[KINDS[0]][1, 3] = 6
    with pytest.raises(ValueError, match="there are 6 destinations"):
        compiled(x, edges)


def test_opcheck_finds_nothing_wrong():
    x, edges = drawn()
    first, *others = edges.values()
    torch.library.opcheck(torch.ops.dfgnn.call_of_edges.default, (
        "relations", "spmm-sum", [0, 0, 1, 1, 0, 0, 0, 2, 0], [],
        [*x.values(), *others], first, 0, 0, 0, 0))
