"""The functions and their gradients, against written-out formulas, in every
mode that torch may put them in."""

import logging

import pytest
import torch

import dfgnn
from dfgnn import _evaluators, _fallbacks, _formulas, nn

from conftest import close, random_edges

OPS = ["gt", "agnn", "gat", "gatv2"]
SIZES = (14, 17)


def make(op, dtype=torch.float32, device="cpu", heads=2, dim=8, grad=False,
         sizes=SIZES):
    num_src, num_dst = sizes

    def random(*shape):
        return torch.randn(*shape, dtype=dtype, device=device).requires_grad_(
            grad)
    node = (heads, dim)
    return {"gt": lambda: (random(num_dst, *node), random(num_src, *node),
                           random(num_src, *node)),
            "agnn": lambda: (random(num_dst, *node), random(num_src, *node),
                             random(1)),
            "gat": lambda: (random(num_src, *node), random(num_dst, heads),
                            random(num_src, heads)),
            "gatv2": lambda: (random(num_dst, *node), random(num_src, *node),
                              random(*node))}[op]()


def call(op, graph, inputs, **options):
    if op == "agnn":
        h_dst, h_src, beta = inputs
        return dfgnn.agnn_attention(graph, h_src, beta, h_dst=h_dst, **options)
    return {"gt": dfgnn.gt_attention, "gat": dfgnn.gat_attention,
            "gatv2": dfgnn.gatv2_attention}[op](graph, *inputs, **options)


def formula(op, edges, inputs, bias=None, kept=None):
    """(out, weights) in float64 on the CPU, written out row by row; kept: the
    factors of dropout."""
    src, dst = edges.cpu().long()
    x = [t.detach().cpu().double() for t in inputs]
    if op == "gt":
        s = torch.einsum("ehd,ehd->eh", x[0][dst], x[1][src])
        s, value = s / x[0].size(-1) ** 0.5, x[2]
    elif op == "agnn":
        a, b = (t / t.norm(dim=-1, keepdim=True).clamp(min=1e-12)
                for t in x[:2])
        s, value = x[2] * (a[dst] * b[src]).sum(-1), x[1]
    elif op == "gat":
        s = torch.nn.functional.leaky_relu(x[1][dst] + x[2][src], 0.2)
        value = x[0]
    else:
        s = torch.nn.functional.leaky_relu(x[0][dst] + x[1][src], 0.2)
        s, value = (s * x[2]).sum(-1), x[1]
    if bias is not None:
        s = s + bias.detach().cpu().double()
    by_destination = x[1 if op == "gat" else 0]
    alpha = torch.zeros_like(s)
    out = torch.zeros(by_destination.size(0), *value.shape[1:],
                      dtype=torch.float64)
    for i in range(out.size(0)):
        rows = dst == i
        alpha[rows] = torch.softmax(s[rows], 0)
        used = alpha[rows] if kept is None else alpha[rows] * kept[rows]
        out[i] = torch.einsum("eh,ehd->hd", used, value[src[rows]])
    return out, alpha


def test_a_scale_of_0_gives_means(device):
    edges = random_edges(*SIZES, 60, device)
    query, key, value = make("gt", torch.float64, device, grad=True)
    out = dfgnn.gt_attention(edges, query, key, value, scale=0)
    src, dst = edges.long()
    sums = torch.zeros_like(out).index_add(0, dst, value[src])
    degree = torch.bincount(dst, minlength=SIZES[1]).clamp(min=1)
    close(out, sums / degree[:, None, None], 1e-12)
    grads = torch.autograd.grad(out.square().sum(), (query, key, value),
                                create_graph=True)
    assert not grads[0].any() and not grads[1].any() and grads[2].any()
    for second in torch.autograd.grad(grads[2].square().sum(), (query, key),
                                      allow_unused=True):
        assert second is None or not second.any()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("biased", [False, True])
def test_results_are_the_formula(op, biased, device):
    edges = random_edges(*SIZES, 60, device)
    graph = dfgnn.as_graph(edges, SIZES)
    inputs = make(op, device=device)
    bias = torch.randn(edges.size(1), 2, device=device) if biased else None
    out, weights = call(op, graph, inputs, bias=bias, return_weights=True)
    expected, alpha = formula(op, edges, inputs, bias)
    close(out, expected.to(out), 1e-5)
    close(weights, alpha.to(weights), 1e-5, "weights")
    close(call(op, graph, inputs, bias=bias), out, 1e-6)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype, tolerance", [
    (torch.float16, 4e-3), (torch.bfloat16, 3e-2), (torch.float64, 1e-12)])
def test_every_storage_type(op, dtype, tolerance, device):
    edges = random_edges(*SIZES, 60, device)
    inputs = make(op, dtype, device)
    out = call(op, edges, inputs)
    assert out.dtype == dtype
    close(out.double(), formula(op, edges, inputs)[0].to(out.device),
          tolerance)


@pytest.mark.parametrize("op", OPS)
def test_gradients_are_those_of_torch(op, device):
    edges = random_edges(*SIZES, 60, device)
    graph = dfgnn.as_graph(edges, SIZES)
    inputs = make(op, device=device, grad=True)
    grad = torch.randn(SIZES[1], 2, 8, device=device)
    mine = torch.autograd.grad(call(op, graph, inputs), inputs, grad)
    settings = dfgnn.functional.settings_of(
        inputs[0], 8 ** -0.5, 0.2, 0.0, False)
    out, *_ = _formulas.attention(_formulas.ByTorch(graph, torch.float32), op,
                                 inputs, None, settings)
    for a, b in zip(mine, torch.autograd.grad(out, inputs, grad)):
        close(a, b, 1e-4, "gradients")


@pytest.mark.parametrize("op", OPS)
def test_dropout_drops_the_weights_it_says(op, device):
    edges = random_edges(*SIZES, 60, device)
    graph = dfgnn.as_graph(edges, SIZES)
    inputs = make(op, device=device)
    torch.manual_seed(7)
    out, before = call(op, graph, inputs, dropout=0.5, return_weights=True)
    torch.manual_seed(7)
    again, after = call(op, graph, inputs, dropout=0.5, return_weights="after")
    assert torch.equal(out, again)
    kept = torch.where(before == 0, torch.zeros_like(before), after / before)
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    expected, _ = formula(op, edges, inputs, kept=kept.cpu().double())
    close(out, expected.to(out), 1e-5)
    torch.manual_seed(8)
    assert not torch.equal(out, call(op, graph, inputs, dropout=0.5))
    close(call(op, graph, inputs, dropout=0.5, training=False),
          formula(op, edges, inputs)[0].to(out), 1e-5)


def test_dropout_drops_as_often_as_it_says():
    factors = _evaluators.keep_factors(torch.tensor([42]), 20000, 8, 0.6)
    assert abs(float((factors == 0).float().mean()) - 0.6) < 0.005
    assert factors.max() == pytest.approx(2.5)


@pytest.mark.parametrize("op", OPS)
def test_inputs_that_are_not_contiguous(op, device):
    edges = random_edges(*SIZES, 60, device)
    inputs = make(op, device=device)
    expected = call(op, edges, inputs)

    def strided(t):
        if t.dim() < 2:
            return t
        wide = t.new_zeros(*t.shape[:-1], 2 * t.size(-1))
        wide[..., ::2] = t
        return wide[..., ::2]

    def sliced(t):
        wide = t.new_zeros(t.size(0), *(n + 3 for n in t.shape[1:]))
        view = wide[tuple(slice(0, n) for n in t.shape)]
        return view.copy_(t)

    def transposed(t):
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    for form in (strided, sliced, transposed):
        close(call(op, edges, tuple(form(t) for t in inputs)), expected, 1e-6)


@pytest.mark.parametrize("op", OPS)
def test_gradients_that_are_not_contiguous(op, device):
    edges = random_edges(*SIZES, 60, device)
    inputs = make(op, device=device, grad=True)
    dense = torch.ones(SIZES[1], 2, 8, device=device)
    for grad in (dense[:1, :1, :1].expand_as(dense),
                 dense.transpose(0, 2).contiguous().transpose(0, 2)):
        out = call(op, edges, inputs)
        wanted = torch.autograd.grad(out, inputs, dense, retain_graph=True)
        for a, b in zip(torch.autograd.grad(out, inputs, grad), wanted):
            close(a, b, 1e-6)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_its_type(op, dtype, device):
    edges = random_edges(*SIZES, 60, device)
    inputs = make(op, device=device, grad=True)
    with torch.autocast(device.type, dtype):
        out = call(op, edges, inputs)
    # no matrix product is in a cosine
    assert out.dtype == (torch.float32 if op == "agnn" else dtype)
    close(out.double(), formula(op, edges, inputs)[0].to(device), 3e-2)
    for tensor, grad in zip(inputs, torch.autograd.grad(out.sum(), inputs)):
        assert grad.dtype == tensor.dtype


@pytest.mark.parametrize("op", OPS)
def test_inference_mode(op, device):
    edges = random_edges(*SIZES, 60, device)
    inputs = make(op, device=device, grad=True)
    expected = call(op, edges, inputs)
    with torch.inference_mode():
        close(call(op, edges.clone(), inputs), expected, 1e-6)
        out = call(op, edges, inputs)
    assert not out.requires_grad
    close(out, expected, 1e-6)


@pytest.mark.parametrize("make", [
    lambda: nn.GATConv(8, 4, edge_dim=3), lambda: nn.GCNConv(8, 4),
    lambda: nn.TransformerConv(8, 4, edge_dim=3)])
def test_graphs_of_inference_mode_train_later(make, device):
    layer = make().to(device)
    x = torch.randn(14, 8, device=device, requires_grad=True)
    edges = random_edges(14, 14, 60, device)
    features = torch.randn(edges.size(1), 3, device=device)
    features = () if isinstance(layer, nn.GCNConv) else (features,)
    with torch.inference_mode():
        layer(x, edges, *features)
        graph = dfgnn.as_graph(edges.clone(), 14)
        order = torch.arange(edges.size(1), device=device)
        pieces = dfgnn.Graph(graph.offsets.clone(), graph.indices.clone(), 14,
                             edge_order=order)
        layer(x, graph, *features)
    for known in (edges, graph, pieces):
        layer(x, known, *features).sum().backward()
    assert torch.isfinite(x.grad).all()


@pytest.mark.skipif(not hasattr(torch._C, "_get_fp32_precision_getter"),
                    reason="this torch has one way to set precision")
def test_either_way_to_set_precision_is_understood(device):
    inputs = make("gt", device=device)
    edges = random_edges(*SIZES, 60, device)
    before = torch.backends.cuda.matmul.fp32_precision
    wanted = call("gt", edges, inputs)
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        close(call("gt", edges, inputs), wanted, 5e-3)
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_only_what_is_needed_has_a_gradient():
    edges = random_edges(*SIZES, 60)
    for wanted in range(3):
        inputs = make("gt")
        inputs[wanted].requires_grad_()
        call("gt", edges, inputs).sum().backward()
        assert [t.grad is not None for t in inputs] == \
            [i == wanted for i in range(3)]


def test_one_tensor_in_two_places_adds_its_gradients():
    edges = random_edges(14, 14, 60)
    h = torch.randn(14, 2, 8, requires_grad=True)
    dfgnn.agnn_attention(edges, h).square().sum().backward()
    both = [h.detach().clone().requires_grad_() for _ in range(2)]
    dfgnn.agnn_attention(edges, both[0], h_dst=both[1]).square().sum() \
        .backward()
    close(h.grad, both[0].grad + both[1].grad, 1e-5)


def test_gradients_of_gradients_say_once_what_no_program_serves(caplog,
                                                                monkeypatch):
    _fallbacks._said.clear()
    edges = random_edges(*SIZES, 60)

    def said():
        for bias in (None, torch.zeros(edges.size(1), 2)):
            inputs = make("gt", grad=True)
            grad, = torch.autograd.grad(
                call("gt", edges, inputs, bias=bias).square().sum(),
                inputs[:1], create_graph=True)
            grad.sum().backward()
        return len([r for r in caplog.records
                    if "gradients of gradients" in r.message])
    with caplog.at_level(logging.WARNING, logger="dfgnn"):
        assert said() == 0
        monkeypatch.setattr(_formulas, "by_program", lambda *args: None)
        assert said() == 1


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("sizes, edges", [
    ((5, 5), 0), ((0, 0), 0), ((3, 0), 0), ((0, 3), 0), ((1, 1), 1)])
def test_graphs_with_little_in_them(op, sizes, edges, device):
    edge_index = torch.zeros(2, edges, dtype=torch.int64, device=device)
    inputs = make(op, device=device, grad=True, sizes=sizes)
    out = call(op, edge_index, inputs)
    assert out.shape == (sizes[1], 2, 8)
    if not edges:
        assert not out.abs().sum()
    for grad, tensor in zip(torch.autograd.grad(out.sum(), inputs), inputs):
        assert grad.shape == tensor.shape
        assert not torch.isnan(grad).any()


def test_scores_of_extra_edges_are_the_logits(device):
    edges = random_edges(*SIZES, 60, device)
    for op in OPS:
        inputs = make(op, device=device)
        given = {"gt": inputs[:2], "gat": inputs[1:]}.get(op, inputs)
        scores = dfgnn.edge_scores(op, edges, *given)
        _, alpha = call(op, edges, inputs, return_weights=True)
        again = dfgnn.score_attention(
            edges, scores, torch.randn(SIZES[0], 2, 8, device=device),
            SIZES[1], return_weights=True)[1]
        close(again, alpha, 1e-5, op)


def test_results_outlive_the_graph():
    query, key, value = make("gt", grad=True)
    graph = dfgnn.as_graph(random_edges(*SIZES, 60), SIZES)
    out = dfgnn.gt_attention(graph, query, key, value)
    del graph
    out.sum().backward()
    assert torch.isfinite(query.grad).all()


def test_deterministic_algorithms_repeat_bit_by_bit(device):
    edges = random_edges(200, 200, 4000, device)
    inputs = make("gt", device=device, grad=True, sizes=(200, 200))
    torch.use_deterministic_algorithms(True)
    try:
        runs = [torch.autograd.grad(call("gt", edges, inputs).square().sum(),
                                    inputs) for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
    for run in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], run))


def test_calls_of_several_types_share_a_graph():
    graph = dfgnn.generate("uniform:nodes=60,edges=400,seed=1")
    x = torch.randn(60, 2, 8, dtype=torch.float64)
    expected = dfgnn.gt_attention(graph, x, x, x)
    for dtype in (torch.float32, torch.float16, torch.float64):
        y = x.to(dtype)
        found = dfgnn.gt_attention(graph, y, y, y)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, atol=0.02,
                                   rtol=0.02)
