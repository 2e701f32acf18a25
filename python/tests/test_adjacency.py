"""Values of adjacencies: edge weights where a layer takes some, refused by
name where it takes none."""

import numpy
import pytest
import scipy.sparse
import torch

pyg = pytest.importorskip("torch_geometric.nn")

import torch_geometric  # noqa: E402
from torch_geometric import transforms as T  # noqa: E402
from torch_geometric.data import Data  # noqa: E402

import dfgnn  # noqa: E402
from dfgnn import nn  # noqa: E402

from conftest import close  # noqa: E402
from test_layers import pair  # noqa: E402

N = 12


class SparseTensor:
    """The part of torch_sparse's SparseTensor that dfgnn looks at."""

    class Storage:
        pass

    def __init__(self, matrix, with_values=True):
        self.matrix = matrix.to_sparse_csr()
        self.with_values = with_values
        self.storage = self.Storage()

    def csr(self):
        return (self.matrix.crow_indices(), self.matrix.col_indices(),
                self.matrix.values() if self.with_values else None)

    def sparse_sizes(self):
        return tuple(self.matrix.shape)

    def size(self, dim):
        return self.matrix.size(dim)


def edge_index_with_values(matrix):
    rows, columns = matrix.to_sparse_coo().coalesce().indices()
    edges = torch_geometric.EdgeIndex(
        torch.stack([columns, rows]), sparse_size=tuple(matrix.shape)[::-1],
        sort_order="col")
    edges._value = matrix[rows, columns]
    return edges


FORMS = {
    "coo": lambda m: m.to_sparse_coo(),
    "csr": lambda m: m.to_sparse_csr(),
    "csc": lambda m: m.to_sparse_csc(),
    "SparseTensor": SparseTensor,
    "scipy": lambda m: scipy.sparse.csr_matrix(m.numpy()),
    "EdgeIndex": edge_index_with_values,
}


def weighted(num_src=N, num_dst=N, loops=True):
    """(matrix whose rows are destinations, edge_index, weights)."""
    matrix = torch.rand(num_dst, num_src) * (torch.rand(num_dst, num_src) < .3)
    if not loops:
        matrix.fill_diagonal_(0)
    rows, columns = matrix.nonzero().t()
    return matrix, torch.stack([columns, rows]), matrix[rows, columns]


@pytest.mark.parametrize("form", FORMS)
def test_values_are_in_the_order_of_the_graphs_edges(form):
    matrix, _, _ = weighted(9, 7)
    given = FORMS[form](matrix)
    graph, values = dfgnn.as_graph(given), dfgnn.adjacency_values(given)
    src, dst = graph.edge_index
    assert torch.equal(values, matrix[dst, src]) and len(values)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name, options", [
    ("GraphConv", {}), ("GraphConv", dict(aggr="mean")),
    ("GraphConv", dict(aggr="max")), ("GCNConv", dict(normalize=False)),
    ("GCNConv", {}), ("GCNConv", dict(improved=True)),
    ("GCNConv", dict(add_self_loops=False))])
def test_layers_weigh_by_the_values(form, name, options):
    # other tests have loops: PyG treats those of each form in another way
    matrix, edges, weight = weighted(loops=False)
    theirs, mine = pair(name, 6, 4, **options)
    x = torch.randn(N, 6)
    close(mine(x, FORMS[form](matrix)), theirs(x, edges, weight), 1e-5)
    close(mine(x, edges, weight), theirs(x, edges, weight), 1e-5)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("options", [{}, dict(improved=True)])
def test_loops_of_a_sparse_tensor_are_added_to_as_pyg_adds(layout, options):
    matrix, _, _ = weighted()
    assert matrix.diagonal().any()
    theirs, mine = pair("GCNConv", 6, 4, **options)
    x, given = torch.randn(N, 6), FORMS[layout](matrix)
    close(mine(x, given), theirs(x, given), 1e-5)


@pytest.mark.parametrize("with_values", [True, False])
def test_loops_of_a_sparse_matrix_of_torch_sparse_give_way(with_values):
    """The loop has fill_value, as torch_sparse.fill_diag sets it."""
    matrix, _, _ = weighted()
    given = SparseTensor(matrix, with_values)
    if not with_values:
        matrix = (matrix != 0).float()
    layer = nn.GCNConv(6, 4, improved=True, bias=False)
    dense = matrix.clone().fill_diagonal_(2)
    scale = dense.sum(1).pow(-0.5)
    x = torch.randn(N, 6)
    wanted = (scale.view(-1, 1) * dense * scale) @ layer.lin(x)
    close(layer(x, given), wanted, 1e-5)


@pytest.mark.parametrize("transform", ["ToSparseTensor", "GCNNorm", "both"])
def test_the_pipelines_of_pygs_transforms(transform):
    matrix, edges, weight = weighted()
    data = Data(x=torch.randn(N, 6), edge_index=edges, edge_weight=weight,
                num_nodes=N)
    options = {}
    if transform != "ToSparseTensor":
        data, options = T.GCNNorm()(data), dict(normalize=False)
    args = data.edge_index, data.edge_weight
    if transform != "GCNNorm":
        data = T.ToSparseTensor(attr="edge_weight")(data)
        assert data.adj_t.is_sparse_csr
        args = (data.adj_t,)
    theirs, mine = pair("GCNConv", 6, 4, **options)
    close(mine(data.x, *args), theirs(data.x, *args), 1e-5)
    theirs, mine = pair("GraphConv", 6, 4)
    close(mine(data.x, *args), theirs(data.x, *args), 1e-5)


def test_gradients_reach_the_values():
    matrix, edges, weight = weighted(loops=False)
    mine, x = nn.GraphConv(6, 4), torch.randn(N, 6)
    rows, columns = edges[1], edges[0]
    grads = []
    for given in (False, True):
        leaf = weight.clone().requires_grad_()
        adjacency = torch.sparse_coo_tensor(torch.stack([rows, columns]),
                                            leaf, (N, N))
        out = mine(x, adjacency) if given else mine(x, edges, leaf)
        grads.append(torch.autograd.grad(out.sin().sum(), leaf)[0])
    close(grads[1], grads[0], 1e-5)


WITHOUT_WEIGHTS = {
    "GATConv": lambda: nn.GATConv(6, 4), "GATv2Conv": lambda: nn.GATv2Conv(
        6, 4), "TransformerConv": lambda: nn.TransformerConv(6, 4),
    "AGNNConv": nn.AGNNConv, "SAGEConv": lambda: nn.SAGEConv(6, 4),
    "GINConv": lambda: nn.GINConv(torch.nn.Linear(6, 4)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WITHOUT_WEIGHTS)
def test_values_that_nothing_takes_are_refused_unless_they_are_1(form, name):
    matrix, edges, _ = weighted()
    layer, x = WITHOUT_WEIGHTS[name](), torch.randn(N, 6)
    with pytest.raises(ValueError,
                       match=f"{name} takes no edge weights.*other than 1"):
        layer(x, FORMS[form](matrix))
    close(layer(x, FORMS[form]((matrix != 0).float())), layer(x, edges), 1e-5)
    close(layer(x, dfgnn.as_graph(FORMS[form](matrix))), layer(x, edges), 1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["GCNConv", "GraphConv"])
def test_weights_beside_values_are_refused(form, name):
    matrix, edges, weight = weighted(loops=False)
    layer, x = getattr(nn, name)(6, 4), torch.randn(N, 6)
    with pytest.raises(ValueError, match=f"{name} with edge_weight takes no"):
        layer(x, FORMS[form](matrix), weight)
    ones = FORMS[form]((matrix != 0).float())
    src, dst = dfgnn.as_graph(ones).edge_index
    close(layer(x, ones, matrix[dst, src]), layer(x, edges, weight), 1e-5)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "TransformerConv"])
def test_features_of_edges_beside_values_are_refused(name):
    matrix, edges, _ = weighted()
    layer, x = getattr(nn, name)(6, 4, edge_dim=3), torch.randn(N, 6)
    features = torch.randn(edges.size(1), 3)
    with pytest.raises(ValueError, match=f"{name} takes no edge weights"):
        layer(x, FORMS["csr"](matrix), features)
    close(layer(x, FORMS["csr"]((matrix != 0).float()), features),
          layer(x, edges, features), 1e-5)


def test_functions_use_or_refuse_values():
    matrix, edges, weight = weighted(9, 7)
    x = torch.randn(9, 6)
    for form in FORMS.values():
        close(dfgnn.spmm(form(matrix), x, num_dst=7), matrix @ x, 1e-5)
        with pytest.raises(ValueError, match="spmm with weight"):
            dfgnn.spmm(form(matrix), x, weight, num_dst=7)
        with pytest.raises(ValueError, match="reducing by 'max'"):
            dfgnn.aggregate(form(matrix), x, "max", num_dst=7)
        with pytest.raises(ValueError, match="attention of gt"):
            dfgnn.gt_attention(form(matrix), torch.randn(7, 1, 4),
                               torch.randn(9, 1, 4), torch.randn(9, 1, 4))


@pytest.mark.parametrize("name", ["TransformerConv", "GATConv", "GATv2Conv"])
def test_values_of_several_features_are_those_of_the_edges(name):
    matrix, edges, _ = weighted(loops=False)
    rows, columns = edges[1], edges[0]
    features = torch.randn(edges.size(1), 3)
    adjacency = torch.sparse_coo_tensor(torch.stack([rows, columns]),
                                        features, (N, N, 3)).coalesce()
    layer, x = getattr(nn, name)(6, 4, edge_dim=3), torch.randn(N, 6)
    close(layer(x, adjacency), layer(x, edges, features), 1e-5)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_adjacencies_on_any_device(layout, place):
    matrix, edges, weight = weighted(loops=False)
    for name in ("GraphConv", "GCNConv"):
        layer, x = getattr(nn, name)(6, 4).to(place), torch.randn(N, 6)
        close(layer(x.to(place), FORMS[layout](matrix).to(place)).cpu(),
              layer.cpu()(x, edges, weight), 1e-4)


def test_an_adjacency_makes_one_graph():
    matrix, _, _ = weighted()
    for form in ("coo", "csr", "SparseTensor"):
        given = FORMS[form](matrix)
        assert dfgnn.as_graph(given) is dfgnn.as_graph(given)


def test_an_adjacency_does_not_go_with_the_other_flow():
    matrix, _, _ = weighted()
    layer = nn.GATConv(6, 4, flow="target_to_source")
    with pytest.raises(ValueError, match="target_to_source.*transposed"):
        layer(torch.randn(N, 6), FORMS["csr"]((matrix != 0).float()))


@pytest.mark.parametrize("form", FORMS)
def test_edges_know_how_many_destinations_there_are(form):
    matrix, edges, _ = weighted(9, 7)
    matrix = (matrix != 0).float()
    matrix[6] = 0  # the last one has no edge
    rows, columns = matrix.nonzero().t()
    edges, x = torch.stack([columns, rows]), torch.randn(9, 6)
    for layer in (nn.GATConv((6, 5), 4, add_self_loops=False),
                  nn.SAGEConv((6, 5), 4), nn.GraphConv((6, 5), 4),
                  nn.GINConv(torch.nn.Linear(6, 4))):
        wanted = layer((x, None), edges, size=(9, 7))
        assert wanted.shape == (7, 4)
        close(layer((x, None), FORMS[form](matrix)), wanted, 1e-5)
        close(layer((x, None), dfgnn.as_graph(edges, (9, 7))), wanted, 1e-5)


def test_numpy_values_of_another_type_become_those_of_the_features():
    matrix, _, _ = weighted(loops=False)
    given = scipy.sparse.csr_matrix(
        (matrix.numpy() > 0).astype(numpy.int64) * 3)
    layer, x = nn.GraphConv(6, 4), torch.randn(N, 6)
    rows, columns = matrix.nonzero().t()
    weight = torch.full((len(rows),), 3.0)
    close(layer(x, given), layer(x, torch.stack([columns, rows]), weight),
          1e-5)
