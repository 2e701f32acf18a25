"""Reductions by an index or by segments: the numbers of torch_geometric.utils
and, in the module that stands for it, what torch_scatter documents."""

import copy
import importlib.util
import sys

import pytest
import torch
import torch_geometric.nn as G
from torch_geometric import utils

import dfgnn
from conftest import close
from dfgnn import reductions

REDUCTIONS = ["sum", "add", "mean", "min", "max", "mul"]


@pytest.fixture(scope="module")
def ts():
    """What `import torch_scatter` gives."""
    before = sys.modules.pop("torch_scatter", None)
    module = dfgnn.install_as_torch_scatter()
    import torch_scatter
    assert torch_scatter is module
    assert importlib.util.find_spec("torch_scatter") is module.__spec__
    yield module
    del sys.modules["torch_scatter"]
    if before is not None:
        sys.modules["torch_scatter"] = before


@pytest.fixture
def always(ways):
    """Kernels reduce few numbers, too."""
    ways(sums_by_index="kernels")


def numbers(*shape, device="cpu", dtype=torch.float64):
    return torch.randn(*shape, device=device, dtype=torch.float64).to(dtype)


def index_of(rows, groups, device="cpu", dtype=torch.int64):
    """Unordered, with groups that are empty."""
    return torch.randint(0, max(1, groups - 2), (rows,), device=device,
                         dtype=dtype)


def by_hand(x, index, dim, count, reduce):
    """Group after group."""
    empty = torch.ones if reduce == "mul" else torch.zeros
    parts = []
    for group in range(count):
        rows = x.index_select(dim, (index == group).nonzero().view(-1))
        if not rows.size(dim):
            shape = [n for d, n in enumerate(x.shape) if d != dim % x.dim()]
            parts.append(empty(shape, dtype=x.dtype))
            continue
        parts.append({"sum": torch.sum, "add": torch.sum, "mean": torch.mean,
                      "mul": torch.prod, "min": torch.amin,
                      "max": torch.amax}[reduce](rows, dim))
    return torch.stack(parts, dim)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("shape, dim", [
    ((60,), 0), ((60, 5), 0), ((60, 5), -2), ((4, 60), -1),
    ((3, 60, 5), 1), ((60, 2, 3, 4), 0)], ids=str)
@pytest.mark.parametrize("kind", [torch.int64, torch.int32], ids=str)
def test_a_reduction_is_that_of_each_group(reduce, shape, dim, kind, place, always):
    x = numbers(*shape, device=place).requires_grad_()
    index = index_of(60, 9, place, kind)
    out = dfgnn.scatter(x, index, dim, 9, reduce)
    other = x.detach().cpu().requires_grad_()
    true = by_hand(other, index.cpu(), dim, 9, reduce)
    close(out.cpu(), true, 1e-12)
    weight = numbers(*out.shape)
    grad, = torch.autograd.grad((out * weight.to(place)).sum(), x)
    close(grad.cpu(), torch.autograd.grad((true * weight).sum(), other)[0],
          1e-12, "gradients")


@pytest.mark.parametrize("reduce", REDUCTIONS[:5])
def test_numbers_are_those_of_pyg(reduce, place, always):
    x = numbers(50, 7, device=place, dtype=torch.float32)
    index, ptr = index_of(50, 8, place), torch.tensor(
        [0, 4, 4, 20, 50], device=place)
    close(dfgnn.scatter(x, index, reduce=reduce),
          utils.scatter(x, index, reduce=reduce), 1e-6)
    for kind in (torch.int64, torch.int16, torch.bool):
        whole = (x * 10).to(kind)
        assert torch.equal(dfgnn.scatter(whole, index, reduce=reduce),
                           utils.scatter(whole, index, reduce=reduce))
    name = "sum" if reduce == "add" else reduce
    close(dfgnn.segment(x, ptr, name), utils.segment(x, ptr, name), 1e-6)
    assert torch.equal(dfgnn.scatter(x[:1], index[:1].int(), reduce="any"),
                       utils.scatter(x[:1], index[:1], reduce="any"))
    close(dfgnn.softmax(x, index), utils.softmax(x, index), 1e-6)
    close(dfgnn.softmax(x.t(), index, dim=1),
          utils.softmax(x.t(), index, dim=1), 1e-6)
    close(dfgnn.softmax(x, ptr=ptr), utils.softmax(x, ptr=ptr), 1e-6)


@pytest.mark.parametrize("function", [
    lambda x, i, p: dfgnn.scatter(x, i, reduce="max"),
    lambda x, i, p: dfgnn.scatter(x, i, reduce="mean"),
    lambda x, i, p: dfgnn.softmax(x, i),
    lambda x, i, p: dfgnn.segment(x, p, "min"),
    lambda x, i, p: dfgnn.gather_csr(x[:4], p),
    lambda x, i, p: dfgnn.scatter_softmax(x, i, 0),
    lambda x, i, p: dfgnn.scatter_log_softmax(x, i, 0),
    lambda x, i, p: dfgnn.scatter_logsumexp(x, i, 0),
    lambda x, i, p: dfgnn.scatter_std(x, i, 0)])
def test_gradients_of_gradients_are_right(function, place, always):
    x = numbers(12, 2, device=place).requires_grad_()
    index = torch.tensor([0, 3, 0, 1, 1, 3, 3, 0, 1, 5, 5, 5], device=place)
    ptr = torch.tensor([0, 3, 3, 8, 12], device=place)
    torch.autograd.gradcheck(lambda x: function(x, index, ptr), x)
    torch.autograd.gradgradcheck(lambda x: function(x, index, ptr), x)


@pytest.mark.parametrize("rows, width", [(1_000_001, 1), (900_000, 4),
                                         (7, 300_000)])
@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_long_and_wide_sources_lose_no_row(rows, width, reduce, place):
    """884 thousand is where pyg-lib's segment kernels ended."""
    x = torch.ones(rows, width, device=place)
    index = torch.arange(rows, device=place) // 3
    out = dfgnn.scatter(x, index, reduce=reduce)
    assert out.shape == (-(-rows // 3), width)
    assert float(out[:-1].min()) == float(out[:-1].max()) == (
        3 if reduce == "sum" else 1)
    ptr = torch.arange(0, rows + 1, device=place)
    assert torch.equal(dfgnn.segment(x, ptr, reduce), x)


@pytest.mark.parametrize("reduce", ["sum", "max"])
def test_more_than_two_to_the_31_numbers(reduce, device):
    if device.type == "cpu":
        pytest.skip("9 GB of memory; a GPU has them")
    rows = (1 << 31) // 64 + 64
    x = torch.ones(rows, 64, device=device)
    index = torch.arange(rows, device=device) // 2
    out = dfgnn.scatter(x, index, reduce=reduce)
    assert float(out.min()) == float(out.max()) == (
        2 if reduce == "sum" else 1)


def test_results_repeat_bit_for_bit(place, always):
    x, index = torch.randn(5000, 8, device=place), index_of(5000, 40, place)
    for reduce in REDUCTIONS[:5]:
        one, *others = [dfgnn.scatter(x, index, 0, 40, reduce)
                        for _ in range(3)]
        assert all(torch.equal(one, other) for other in others)


def test_the_number_of_groups_is_asked_for_once(monkeypatch):
    index, asked = index_of(30, 5), []
    real = torch.Tensor.max
    monkeypatch.setattr(torch.Tensor, "max", lambda *a, **k: asked.append(
        1) or real(*a, **k))
    x = torch.randn(30, 2)
    for _ in range(4):
        dfgnn.scatter(x, index)
        dfgnn.softmax(x, index)
    assert len(asked) == 1
    index[0] = 7  # a write is seen
    assert dfgnn.scatter(x, index).size(0) == 8 and len(asked) == 2


@pytest.mark.parametrize("reduce", ["min", "max"])
def test_an_extreme_that_is_0_has_the_whole_gradient(reduce, device):
    """torch's scatter_reduce gives half of it to the 0 of an empty group."""
    x = torch.tensor([[0.], [1.], [2.]], device=device)
    x = (x if reduce == "min" else -x).requires_grad_()
    index = torch.tensor([0, 0, 1], device=device)
    out = dfgnn.scatter(x, index, reduce=reduce)
    out.sum().backward()
    assert x.grad.flatten().tolist() == [1, 0, 1]


def test_extremes_of_floats_run_by_kernels(monkeypatch):
    calls = []
    real = reductions.aggregate
    monkeypatch.setattr(reductions, "aggregate", lambda *a: calls.append(
        a[2]) or real(*a))
    for shape, names in (((4096, 8), ["min", "max"]), ((4096, 4), []),
                         ((64, 8), [])):
        x, index = torch.randn(shape), index_of(shape[0], 5)
        for reduce in REDUCTIONS:
            dfgnn.scatter(x, index, reduce=reduce)
            dfgnn.scatter(x.long(), index, reduce=reduce)
        assert calls == names
        calls.clear()


def test_functions_compile():
    x, index = torch.randn(30, 4), index_of(30, 5)

    def function(x):
        return dfgnn.scatter(x, index, 0, 5, "max") + dfgnn.scatter(
            dfgnn.softmax(x, index, None, 5), index, 0, 5)
    made = torch.compile(function, backend="aot_eager", fullgraph=True)
    close(made(x), function(x), 1e-6)


def test_wrong_arguments_are_named():
    x, index = torch.randn(30, 4), index_of(30, 5)
    with pytest.raises(ValueError, match="reduce must be one of sum.*'std'"):
        dfgnn.scatter(x, index, reduce="std")
    with pytest.raises(ValueError, match="dim must be between -2 and 1"):
        dfgnn.scatter(x, index, 2)
    with pytest.raises((dfgnn.InvalidError, RuntimeError, IndexError)):
        dfgnn.scatter(x, index, 0, 2, "max")
    with pytest.raises(ValueError, match="dim_size is 0"):
        dfgnn.scatter(x, index, dim_size=0)


@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("index", [[[0, 2, 1], [1, 1, 0]],
                                   [[0, 0, 1], [-1, 1, 0]]])
def test_a_number_out_of_range_is_no_group_of_another_part(reduce, index):
    with pytest.raises((RuntimeError, IndexError)):
        dfgnn.scatter(torch.randn(2, 3), torch.tensor(index), 1, 2, reduce)


# ---- torch_scatter ----------------------------------------------------------

@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("kind", [torch.float16, torch.float32, torch.int64],
                         ids=str)
def test_an_index_of_any_shape_spreads(ts, reduce, kind):
    """As torch_scatter has it: axes after the index are shared."""
    x = torch.randint(1, 5, (2, 3, 8, 4)).to(kind)
    for shape, dim in (((8,), 2), ((2, 1, 8), 2), ((2, 1, 8, 4), 2),
                       ((2, 3), 1), ((2, 3, 8, 4), -1)):
        index = torch.randint(0, 3, shape)
        out = ts.scatter(x, index, dim, None, 4, reduce)
        wide = index
        for _ in range(dim % 4 if index.dim() == 1 else 0):
            wide = wide.unsqueeze(0)
        for _ in range(wide.dim(), 4):
            wide = wide.unsqueeze(-1)
        wide = wide.expand_as(x)
        kind_of = {"sum": "sum", "add": "sum", "mul": "prod", "mean": "mean",
                   "min": "amin", "max": "amax"}[reduce]
        start = torch.ones if reduce == "mul" else torch.zeros
        want = start(out.shape, dtype=kind).scatter_reduce(
            dim, wide, x, kind_of, include_self=reduce == "mul")
        assert torch.equal(out, want)


def test_extremes_have_places(ts):
    x = torch.tensor([[1., 5, 3, 7, 9, 11], [2, 4, 8, 6, 10, 12]])
    index = torch.tensor([[0, 1, 0, 1, 1, 3], [0, 0, 1, 0, 1, 2]])
    out, place = ts.scatter_max(x, index, 1)
    assert out.tolist() == [[3, 9, 0, 11], [6, 10, 12, 0]]
    assert place.tolist() == [[2, 4, 6, 5], [3, 4, 5, 6]]
    ptr = torch.tensor([0, 2, 5, 5, 6])
    out, place = ts.segment_min_csr(x[0], ptr)
    assert out.tolist() == [1, 3, 0, 11] and place.tolist() == [0, 2, 6, 5]
    assert ts.segment_csr(x[0], ptr, reduce="max").tolist() == [5, 9, 0, 11]
    assert ts.segment_coo(x[0], torch.tensor([0, 0, 1, 1, 1, 3])).tolist() \
        == [6, 19, 0, 11]


def test_out_is_written_to(ts):
    x, index = torch.tensor([1., 3, 2]), torch.tensor([0, 0, 2])
    for name, want in (("sum", [3, -1, 1]), ("mul", [-3, -1, -2]),
                       ("min", [-1, -1, -1]), ("max", [3, -1, 2]),
                       ("mean", [1.5, -1, 1])):
        out = torch.full((3,), -1.)
        getattr(ts, f"scatter_{name}")(x, index, 0, out)
        assert out.tolist() == want, name
    out = torch.full((2,), -1.)
    ts.segment_sum_csr(x, torch.tensor([0, 2, 3]), out)
    assert out.tolist() == [4, 2]
    out = torch.tensor([-10., -10])
    ts.scatter_logsumexp(torch.tensor([-1., -50]), torch.tensor([0, 0]),
                         out=out)
    assert torch.allclose(out, torch.tensor([-.9999, -10]), atol=1e-4)


def test_softmax_logarithms_and_deviations(ts):
    x = torch.tensor([.2, 0, .2, -2.1, 3.2, 7, -1, -float("inf")])
    index = torch.tensor([0, 1, 0, 1, 1, 2, 4, 4])
    groups = [x[index == k] for k in (0, 1, 2, 4)]
    soft = torch.empty_like(x)
    for k in (0, 1, 2, 4):
        soft[index == k] = x[index == k].softmax(0)
    assert torch.allclose(ts.scatter_softmax(x, index), soft)
    assert torch.allclose(ts.scatter_log_softmax(x, index), soft.log())
    found = ts.scatter_logsumexp(x, index)
    assert found[3] == 0
    assert torch.allclose(found[[0, 1, 2, 4]], torch.stack(
        [g.logsumexp(0) for g in groups]))
    x = torch.tensor([[2., 0, 1, 4, 3], [0, 2, 1, 3, 4]])
    index = torch.tensor([[0] * 5, [1] * 5])
    assert torch.allclose(ts.scatter_std(x, index), torch.tensor(
        [[x[0].std(), 0], [0, x[0].std()]]))


def test_rows_are_gathered_by_segments(ts):
    x = torch.tensor([[1., 3, 5, 7], [2, 4, 6, 8]])
    ptr = torch.tensor([[0, 2, 5, 5, 6], [0, 3, 5, 6, 6]])
    assert ts.gather_csr(x, ptr).tolist() == [[1, 1, 3, 3, 3, 7],
                                              [2, 2, 2, 4, 4, 6]]
    assert ts.gather_coo(x, torch.tensor([[0, 0, 3], [1, 1, 2]])).tolist() \
        == [[1, 1, 7], [4, 4, 6]]


# ---- accelerate -------------------------------------------------------------

class Pools(torch.nn.Module):
    def __init__(self, norm, aggr):
        super().__init__()
        self.conv, self.norm = G.GCNConv(6, 6), norm
        self.aggr, self.lin = aggr, torch.nn.Linear(18, 2)

    def forward(self, x, edges, batch):
        x = self.norm(self.conv(x, edges), batch)
        dense, mask = to_dense(x, batch)
        return self.lin(torch.cat([
            self.aggr(x, batch), max_pool(x, batch),
            (dense * mask.unsqueeze(-1)).sum(1)], 1))


max_pool, to_dense = G.global_max_pool, utils.to_dense_batch

AGGREGATIONS = {
    "max": G.MaxAggregation, "softmax": lambda: G.SoftmaxAggregation(
        learn=True), "power": lambda: G.PowerMeanAggregation(learn=True),
    "attentional": lambda: G.AttentionalAggregation(torch.nn.Linear(6, 1)),
    "std": G.StdAggregation, "sum": G.SumAggregation}


@pytest.mark.parametrize("aggr", AGGREGATIONS)
@pytest.mark.parametrize("norm", ["GraphNorm", "InstanceNorm", "LayerNorm"])
def test_a_model_of_graphs_has_the_same_numbers(norm, aggr, place, always):
    plain = Pools(getattr(G, norm)(6), AGGREGATIONS[aggr]()).double().to(place)
    if norm == "GraphNorm":
        # torch halves the gradient of a maximum that is 0
        torch.nn.init.normal_(plain.norm.bias)
    fast = copy.deepcopy(plain)
    report = dfgnn.accelerate(fast)
    kinds = {layer.name: layer.detail for layer in report.calling}
    assert {"", "norm", "aggr"} <= set(kinds)
    assert kinds[""] == "max_pool, to_dense"
    assert "own calls of max_pool" in repr(report)
    batch = torch.tensor([0] * 4 + [2] * 7 + [3], device=place)
    edges = torch.stack([torch.arange(11), torch.arange(1, 12)]).to(place)
    x, found = torch.randn(12, 6, device=place).double(), []
    for model in (plain, fast):
        out = model(x, edges, batch)
        out.square().sum().backward()
        found.append([out, *[p.grad for p in model.parameters()
                             if p.grad is not None]])
    # a bias before a normalisation has a gradient that cancels to nothing
    scale = max(float(b.detach().abs().max()) for b in found[1])
    for a, b in zip(*found):
        assert float((a - b).detach().abs().max()) <= 1e-9 * scale
    other = copy.deepcopy(fast)
    close(other(x, edges, batch), found[0][0], 1e-9)
    dfgnn.accelerate(fast, undo=True)
    assert [type(m) for m in fast.modules()] == [
        type(m) for m in plain.modules()]


def test_nothing_asks_a_known_batch_for_its_graphs(monkeypatch):
    model = Pools(G.GraphNorm(6), G.MaxAggregation())
    dfgnn.accelerate(model)
    batch = torch.tensor([0] * 4 + [1] * 7 + [2])
    edges = torch.stack([torch.arange(11), torch.arange(1, 12)])
    x = torch.randn(12, 6)
    model(x, edges, batch)

    def asked(*_, **__):
        raise AssertionError("something asked for a number")
    for name in ("max", "item", "__int__", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, asked)
    model(x, edges, batch)
    model.norm(x, batch, None)
    model.aggr(x, batch, None, None)
