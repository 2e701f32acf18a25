"""Products of rows in groups, each way, against a product for each group in
float64."""

import pytest
import torch
import torch_geometric.nn as G

from dfgnn._relations import groups as _grouped
from dfgnn._relations.groups import Groups
from relation_cases import agree, many_types, schema

SIZES = (5, 0, 33, 1, 0, 150, 8, 2, 17, 40)
# relative to the largest number of a result: sums of so many terms, rounded
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5,
             torch.float16: 4e-3, torch.bfloat16: 3e-2}
WAYS = {"one by one": 1, "one kernel": _grouped.ONE_KERNEL,
        "small tiles": 32, "large tiles": 128}
ONE_KERNEL = [dtype for dtype in TOLERANCE if dtype != torch.float64]


def close(have, want, dtype):
    assert have.dtype == dtype and have.shape == want.shape
    most = float(want.abs().max()) if want.numel() else 0.0
    assert not want.numel() or float(
        (have.detach().double() - want).abs().max()) <= \
        TOLERANCE[dtype] * most


def drawn(groups, dtype, device, *shapes):
    """Rows of groups with nothing between them, and further tensors."""
    torch.manual_seed(1)
    rows = torch.zeros(groups.starts[-1], 16, dtype=dtype, device=device)
    for start, size in zip(groups.starts, groups.used):
        rows[start:start + size] = torch.randn(size, 16, device=device)
    return [rows.requires_grad_(), *[
        torch.randn(shape, device=device).to(dtype).requires_grad_()
        for shape in shapes]]


def one_by_one(groups, rows, weight, bias, transposed):
    """What groups have, in float64, without the room between them."""
    rows, weight = rows.double(), weight.double()
    outs = []
    for g, (start, size) in enumerate(zip(groups.starts, groups.used)):
        out = rows[start:start + size] @ (
            weight[g].t() if transposed else weight[g])
        outs.append(out if bias is None else out + bias[g].double())
    return torch.cat(outs)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_each_way_is_a_product_for_each_group(dtype, way, transposed,
                                              with_bias, device):
    if way == "one kernel" and dtype not in ONE_KERNEL:
        pytest.skip("torch has no grouped product of float64")
    groups = Groups.of_sizes(SIZES, device, WAYS[way])
    shape = (24, 16) if transposed else (16, 24)
    given = drawn(groups, dtype, device, (len(SIZES), *shape),
                  *[(len(SIZES), 24)] * with_bias)
    rows, weight, bias = (*given, None)[:3]
    run = groups.linear if transposed else groups.product
    have = torch.cat(groups.packed(run(rows, weight, bias)))
    want = one_by_one(groups, rows, weight, bias, transposed)
    close(have, want.detach(), dtype)
    factor = torch.randn_like(have)
    for a, b in zip(
            torch.autograd.grad((have * factor).sum(), given),
            torch.autograd.grad((want * factor.double()).sum(), given)):
        close(a, b.double(), dtype)


def test_gradients_that_are_no_memory_of_their_own(device):
    groups = Groups.of_sizes(SIZES, device, _grouped.ONE_KERNEL)
    rows, weight = drawn(groups, torch.float32, device, (len(SIZES), 16, 24))
    groups.product(rows, weight).sum().backward()  # the gradient is expanded
    close(rows.grad, torch.cat([
        torch.ones(b - a, 24, device=device).double() @ w.double().t()
        for a, b, w in zip(groups.starts, groups.starts[1:],
                           weight.detach())]), torch.float32)


def test_second_derivatives(device):
    found = []
    for align in (_grouped.ONE_KERNEL, 1):
        groups = Groups.of_sizes(SIZES, device, align)
        rows, weight = drawn(groups, torch.float32, device,
                             (len(SIZES), 16, 24))
        torch.manual_seed(2)
        out = torch.cat(groups.packed(groups.product(rows, weight))).sin()
        first = torch.autograd.grad(out.sum(), (rows, weight),
                                    create_graph=True)
        second = torch.autograd.grad(sum(g.square().sum() for g in first),
                                     (rows, weight))
        found.append((torch.cat(groups.packed(second[0])), second[1]))
    for a, b in zip(*found):
        close(a, b.double(), torch.float32)


@pytest.mark.parametrize("dtype, widths, capability, found", [
    (torch.bfloat16, (64, 64), (9, 0), True),
    (torch.bfloat16, (64, 12), (9, 0), False),  # rows are not of 16 bytes
    (torch.bfloat16, (64, 64), (8, 0), False),  # torch would ask the device
    (torch.float16, (64, 64), (9, 0), False),
    (torch.float32, (64, 64), (9, 0), False)])
def test_one_kernel_has_types_widths_and_devices(
        dtype, widths, capability, found, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability",
                        lambda device: capability)
    assert _grouped._in_one_kernel(torch.device("cuda"), dtype,
                                   widths) == found


@pytest.fixture
def in_one_kernel(monkeypatch, ways):
    """All groups go by torch's grouped product; the number of these."""
    ran, inner = [], Groups._in_one_kernel
    monkeypatch.setattr(_grouped, "_in_one_kernel", lambda device, dtype,
                        widths: not any(width % 8 for width in widths))
    monkeypatch.setattr(Groups, "_in_one_kernel", lambda *given: (
        ran.append(1), inner(*given))[1])
    ways(products_of_groups="one kernel", sums_over_types="tiles",
         sums_over_relations="by pair")
    return ran


def over_types(width):
    """(nodes, kinds, features of many small types, edges)."""
    nodes, kinds, counts = many_types(12, 25)
    _, edges = schema(counts, nodes, kinds)
    return nodes, kinds, {kind: torch.randn(n, width, requires_grad=True)
                          for kind, n in nodes.items()}, edges


def typed(relations):
    x = torch.randn(30, 8, requires_grad=True)
    return x, torch.randint(30, (2, 200)), torch.randint(relations, (200,))


def test_hgt_in_one_kernel(in_one_kernel):
    nodes, kinds, x, edges = over_types(16)
    agree(G.HGTConv(16, 8, (list(nodes), kinds), heads=2), list(x.values()),
          lambda m: m(x, edges), 2e-4)
    assert len(in_one_kernel) == 4  # queries, keys, values, results


def test_sums_of_many_types_in_one_kernel(in_one_kernel):
    _, kinds, x, edges = over_types(8)
    agree(G.HeteroConv({key: G.SAGEConv((8, 8), 16) for key in kinds}),
          list(x.values()), lambda m: m(x, edges), 2e-4)
    assert len(in_one_kernel) == 2  # of sums, of the nodes themselves


@pytest.mark.parametrize("weights, ran", [({}, 1), (dict(num_blocks=2), 0)])
def test_rgcn_in_one_kernel(weights, ran, in_one_kernel):
    x, edges, kinds = typed(40)
    agree(G.RGCNConv(8, 16, 40, **weights), [x],
          lambda layer: layer(x, edges, kinds), 2e-4)
    assert len(in_one_kernel) == ran


def test_heat_in_one_kernel(in_one_kernel):
    x, edges, kinds = typed(3)
    node_type, attr = torch.randint(10, (30,)), torch.randn(200, 5)
    agree(G.HEATConv(8, 8, 10, 3, 4, 5, 6, heads=2), [x],
          lambda m: m(x, edges, node_type, kinds, attr), 2e-4)
    assert len(in_one_kernel) == 1
