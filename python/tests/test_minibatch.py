"""Graphs of edge lists that a data loader makes: they are the same with and
without sorted, trusted, self_loops and columns."""

import gc
import types
import weakref

import pytest
import torch

import dfgnn
from dfgnn import _remember
from dfgnn.errors import Error

SHAPES = ((1, 1, 1), (3, 5, 0), (7, 4, 40), (30, 30, 200), (50, 200, 900),
          (300, 100, 9000))


def edges_of(sources, destinations, count, device, dtype=torch.int64):
    torch.manual_seed(sources + destinations + count)
    return torch.stack([torch.randint(sources, (count,)),
                        torch.randint(destinations, (count,))]).to(
                            device=device, dtype=dtype)


def by_destination(edges):
    return edges[:, edges[1].long().sort(stable=True)[1]].contiguous()


def same(graph, other):
    assert graph.num_edges == other.num_edges
    assert torch.equal(graph.offsets.long(), other.offsets.long())
    assert torch.equal(graph.indices.long(), other.indices.long())
    assert torch.equal(graph.edge_index, other.edge_index)


def attend(graph, seed=1):
    """Output and gradients of an attention over the graph."""
    torch.manual_seed(seed)
    leaves = [torch.randn(n, 2, 8).to(graph.device).requires_grad_()
              for n in (graph.num_dst, graph.num_src, graph.num_src)]
    out = dfgnn.gt_attention(graph, *leaves)
    return [out, *torch.autograd.grad(out.square().sum(), leaves)]


@pytest.mark.parametrize("dtype", (torch.int32, torch.int64))
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_said_of_a_list_changes_nothing(device, shape, dtype):
    edges = edges_of(*shape, device, dtype)
    rising = by_destination(edges)

    def graph(edges, sizes, **said):  # a copy, of which nothing is kept
        return dfgnn.as_graph(edges.clone(), sizes, **said)
    same(graph(edges, shape[:2], trusted=True), graph(edges, shape[:2]))
    plain = graph(rising, shape[:2])
    expected = attend(plain)
    for said in (dict(sorted=True), dict(sorted=True, trusted=True)):
        made = graph(rising, shape[:2], **said)
        torch.testing.assert_close(attend(made), expected)
        same(made, plain)
        assert made.edge_order is None


@pytest.mark.parametrize("trusted", (False, True))
@pytest.mark.parametrize("shape", SHAPES)
def test_loops_of_the_library_are_those_of_pyg(device, shape, trusted):
    """The caller's order is that of the kept edges, then a loop for each
    node."""
    edges = edges_of(*shape, device)
    kept = (edges[0] != edges[1]).nonzero().view(-1)
    loops = torch.arange(min(shape[:2]), device=device)
    expected = torch.cat([edges[:, kept], loops.expand(2, -1)], 1)
    graph = dfgnn.Graph.from_edge_index(edges, shape[:2], trusted=trusted,
                                        self_loops=True)
    assert torch.equal(graph.edge_index, expected)
    assert torch.equal(graph.kept, kept)
    same(graph, dfgnn.Graph.from_edge_index(expected, shape[:2]))
    same(graph, dfgnn.Graph.from_edge_index(edges, shape[:2])
         .with_self_loops())
    values = torch.arange(shape[2] + min(shape[:2]), device=device)
    rows = torch.cat([kept, loops + shape[2]])
    assert torch.equal(graph.to_looped_edges(values), values[rows])


def test_a_layer_makes_the_graph_with_loops_alone(device):
    edges = edges_of(30, 30, 100, device)
    x = torch.randn(30, 6, device=device)
    layer = dfgnn.nn.GATConv(6, 3, heads=2).to(device)
    first = layer(x, edges)
    (graph,) = _remember.kept(edges)["graphs"].values()
    assert graph.loops == 30 and graph.looped is None
    assert torch.equal(layer(x, edges), first)
    (again,) = _remember.kept(edges)["graphs"].values()
    assert again is graph
    edges[0, 0] = (edges[0, 0] + 1) % 30  # written to: made anew
    layer(x, edges)
    (anew,) = _remember.kept(edges)["graphs"].values()
    assert anew is not graph
    alive = weakref.ref(anew)
    del anew, edges
    gc.collect()
    assert alive() is None


def test_a_list_that_is_not_sorted_as_was_said(device):
    edges = torch.tensor([[0, 1, 2], [2, 1, 0]], device=device)
    with pytest.raises(Error, match="was said to be sorted"):
        attend(dfgnn.as_graph(edges, 3, sorted=True))


def test_an_edge_out_of_range_of_a_sorted_list(device):
    edges = torch.tensor([[0, 7, 2], [0, 1, 2]], device=device)
    with pytest.raises(Error, match="out of range"):
        attend(dfgnn.as_graph(edges, 3, sorted=True))


def test_data_is_sorted_as_was_said():
    edges = torch.tensor([[0, 1, 2], [0, 1, 2]])
    data = types.SimpleNamespace(edge_index=edges, num_nodes=3)
    assert dfgnn.as_graph(data, sorted=True).edge_order is None
    edges[1] = torch.tensor([2, 1, 0])
    with pytest.raises(Error, match="was said to be sorted"):
        attend(dfgnn.as_graph(data, sorted=True))


def test_columns_go_with_csr_tensors():
    edges = torch.tensor([[0, 1, 2], [0, 1, 2]])
    with pytest.raises(TypeError, match="columns go with CSR tensors"):
        dfgnn.as_graph(edges, 3, columns=tuple(edges))


# ---- both directions --------------------------------------------------------

def both_ways(shape, device):
    edges = by_destination(edges_of(*shape, device))
    offsets = torch.zeros(shape[1] + 1, dtype=torch.int64, device=device)
    offsets[1:] = torch.bincount(edges[1], minlength=shape[1]).cumsum(0)
    order = edges[0].sort(stable=True)[1]
    columns = torch.zeros(shape[0] + 1, dtype=torch.int64, device=device)
    columns[1:] = torch.bincount(edges[0], minlength=shape[0]).cumsum(0)
    return edges, offsets, (columns, edges[1][order], order)


@pytest.mark.parametrize("trusted", (False, True))
@pytest.mark.parametrize("shape", SHAPES[2:])
def test_columns_that_are_given_serve_the_backward_pass(device, shape,
                                                        trusted):
    edges, offsets, columns = both_ways(shape, device)
    graph = dfgnn.Graph(offsets, edges[0], shape[0], trusted=trusted,
                        columns=columns)
    plain = dfgnn.Graph(offsets, edges[0], shape[0])
    torch.testing.assert_close(attend(graph), attend(plain))
    if trusted or torch.device(device).type == "cpu":
        assert graph.nbytes < plain.nbytes


def test_columns_of_another_graph():
    edges, offsets, columns = both_ways(SHAPES[3], "cpu")
    wrong = columns[0], columns[1].roll(1), columns[2]
    with pytest.raises(Error, match="column_edges"):
        dfgnn.Graph(offsets, edges[0], 30, columns=wrong)
    with pytest.raises(ValueError, match="edges of columns must have 200"):
        dfgnn.Graph(offsets, edges[0], 30,
                    columns=(*columns[:2], columns[2][1:]))


# ---- layers whose products run together -------------------------------------

def test_a_hook_of_a_linear_layer_is_called():
    layer = dfgnn.nn.TransformerConv(6, 3, heads=2)
    x, edges = torch.randn(9, 6), edges_of(9, 9, 30, "cpu")
    expected = layer(x, edges)
    seen = []
    handle = layer.lin_key.register_forward_hook(
        lambda module, inputs, output: seen.append(output))
    torch.testing.assert_close(layer(x, edges), expected)
    assert len(seen) == 1 and seen[0].shape == (9, 6)
    handle.remove()
    layer(x, edges)
    assert len(seen) == 1
