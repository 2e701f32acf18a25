"""Edge features and normalised queries and keys: the functions against the
formulas with an [E, H, D] tensor, the layers against PyG's."""

import pytest
import torch
import torch.nn.functional as F

import dfgnn
from dfgnn import nn
from conftest import close, random_edges

M, N, E, H, D = 9, 7, 40, 3, 5


def inputs(features=4, dtype=torch.float64, grad=True, device="cpu"):
    torch.manual_seed(0)
    edges = random_edges(M, N, E, device)[:, :E]

    def make(*shape):
        return torch.randn(shape, dtype=dtype, device=device,
                           requires_grad=grad)
    return edges, make, dict(
        query=make(N, H, D), key=make(M, H, D), value=make(M, H, D),
        edge_attr=make(E, features), edge_projection=make(H * D, features),
        edge_bias=make(H * D))


def normalized(x, kind, weight, eps):
    if kind == "layer":
        return F.layer_norm(x, x.shape[-1:], weight, None, eps)
    if kind == "rms":
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight
    return x


def softmax(scores, dst):
    exps = (scores - scores.max().detach()).exp()
    sums = exps.new_zeros(N, H).index_add(0, dst, exps)
    return exps / sums[dst]


def by_edges(edges, t, use="both", qk_norm=None, norms=(None, None)):
    """gt_attention with every edge's keys and values."""
    src, dst = edges
    e = F.linear(t["edge_attr"], t["edge_projection"], t["edge_bias"])
    e = e.view(E, H, D)
    query = normalized(t["query"], qk_norm, norms[0], 1e-5)
    key = normalized(t["key"], qk_norm, norms[1], 1e-5)[src]
    value = t["value"][src]
    if use != "values":
        key = key + e
    if use != "keys":
        value = value + e
    alpha = softmax((query[dst] * key).sum(-1) / D ** 0.5, dst)
    out = (alpha.unsqueeze(-1) * value).new_zeros(N, H, D)
    return out.index_add(0, dst, alpha.unsqueeze(-1) * value), alpha


def near(a, b, tolerance, what):
    """Like close(), but values that should be 0 may be rounding errors."""
    assert (a - b).abs().max() <= tolerance * (1 + b.abs().max()), what


def same_gradients(found, expected, tensors, tolerance):
    grad = torch.randn_like(found)
    names = list(tensors)
    a = torch.autograd.grad(found, tensors.values(), grad, allow_unused=True)
    b = torch.autograd.grad(expected, tensors.values(), grad,
                            allow_unused=True)
    for name, x, y in zip(names, a, b):
        y = torch.zeros_like(tensors[name]) if y is None else y
        near(x, y, tolerance, name)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("use", ["both", "keys", "values"])
@pytest.mark.parametrize("qk_norm", [None, "rms", "layer"])
def test_gt_has_the_gradients_of_the_formula(place, use, qk_norm, weights):
    edges, make, t = inputs(device=place)
    norms = {"query_norm": make(D), "key_norm": make(D)} if qk_norm else {}
    out = dfgnn.gt_attention(edges, **t, edge_use=use, qk_norm=qk_norm,
                             return_weights=weights, **norms)
    expected, wanted = by_edges(edges, t, use, qk_norm,
                                tuple(norms.values()) or (None, None))
    if weights:
        out, alpha = out
        close(alpha, wanted, 1e-11)
        out, expected = (torch.cat([a, b.sin()]) for a, b in (
            (out.flatten(), alpha.flatten()),
            (expected.flatten(), wanted.flatten())))
    close(out, expected, 1e-11)
    same_gradients(out, expected, {**t, **norms}, 1e-10)


def test_gt_takes_projected_features():
    edges, _, t = inputs()
    e = F.linear(t["edge_attr"], t["edge_projection"], t["edge_bias"])
    nodes = {k: t[k] for k in ("query", "key", "value")}
    out = dfgnn.gt_attention(edges, **nodes, edge_attr=e.view(E, H, D))
    expected, _ = by_edges(edges, t)
    close(out, expected, 1e-11)
    same_gradients(out, expected, t, 1e-10)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_have_gradients_of_their_own(place, dtype):
    edges, make, t = inputs(device=place, dtype=dtype)
    norms = dict(query_norm=make(D), key_norm=make(D))
    _, alpha = dfgnn.gt_attention(edges, **t, return_weights=True,
                                  qk_norm="rms", **norms)
    exact = {k: x.detach().double().requires_grad_()
             for k, x in {**t, **norms}.items()}
    rows = {k: exact[k] for k in t}
    _, wanted = by_edges(edges, rows, "both", "rms",
                         (exact["query_norm"], exact["key_norm"]))
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-4
    close(alpha.double(), wanted, tolerance)
    alpha.sin().sum().backward()
    wanted.sin().sum().backward()
    for name, x in {**t, **norms}.items():
        if name != "value":
            assert x.grad.dtype == dtype
            near(x.grad.double(), exact[name].grad, tolerance, name)


def gatv2_by_edges(edges, t, att):
    src, dst = edges
    e = F.linear(t["edge_attr"], t["edge_projection"], t["edge_bias"])
    x = t["query"][dst] + t["key"][src] + e.view(E, H, D)
    alpha = softmax((F.leaky_relu(x, 0.2) * att).sum(-1), dst)
    messages = alpha.unsqueeze(-1) * t["key"][src]
    return messages.new_zeros(N, H, D).index_add(0, dst, messages)


@pytest.mark.parametrize("projected", [False, True])
def test_gatv2_has_the_gradients_of_the_formula(projected):
    edges, make, t = inputs()
    att = make(H, D)
    del t["value"]
    given = {k: t[k] for k in ("edge_attr", "edge_projection", "edge_bias")}
    if projected:
        given = dict(edge_attr=F.linear(*given.values()).view(E, H, D))
    out = dfgnn.gatv2_attention(edges, t["query"], t["key"], att, **given)
    expected = gatv2_by_edges(edges, t, att)
    close(out, expected, 1e-11)
    same_gradients(out, expected, {**t, "att": att}, 1e-10)


@pytest.mark.parametrize("self_loops", [False, True])
def test_gat_has_the_gradients_of_the_formula(self_loops):
    edges = random_edges(N, N, E)[:, :E]
    src, dst = edges
    h, a, b = (torch.randn(shape, dtype=torch.float64, requires_grad=True)
               for shape in ((N, H, D), (N, H), (N, H)))
    c = torch.randn(E + N * self_loops, H, dtype=torch.float64,
                    requires_grad=True)
    out = dfgnn.gat_attention(edges, h, a, b, edge_score=c,
                              self_loops=self_loops)
    if self_loops:
        kept = src != dst
        loops = torch.arange(N)
        src, dst = torch.cat([src[kept], loops]), torch.cat([dst[kept], loops])
        scores = torch.cat([c[:E][kept], c[E:]])
    else:
        scores = c
    alpha = softmax(F.leaky_relu(a[dst] + b[src] + scores, 0.2), dst)
    messages = alpha.unsqueeze(-1) * h[src]
    expected = messages.new_zeros(N, H, D).index_add(0, dst, messages)
    close(out, expected, 1e-11)
    same_gradients(out, expected, dict(h=h, a=a, b=b, c=c), 1e-10)


@pytest.mark.parametrize("op", ["gt", "gatv2", "gat"])
def test_torch_compile_keeps_it_whole(op):
    edges, make, t = inputs(dtype=torch.float32)
    graph = dfgnn.as_graph(edges, (M, N))
    att, h, a, b, c = make(H, D), make(M, H, D), make(N, H), make(M, H), \
        make(E, H)

    def call(attr):
        if op == "gt":
            return dfgnn.gt_attention(graph, **{**t, "edge_attr": attr},
                                      qk_norm="layer")
        if op == "gat":
            return dfgnn.gat_attention(graph, h, a, b, edge_score=c + attr[
                :, :H])
        return dfgnn.gatv2_attention(
            graph, t["query"], t["key"], att, edge_attr=attr,
            edge_projection=t["edge_projection"])
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    x = t["edge_attr"]
    found, expected = compiled(x), call(x)
    close(found, expected, 1e-5)
    close(torch.autograd.grad(found.square().sum(), x)[0],
          torch.autograd.grad(expected.square().sum(), x)[0], 1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_computes_in_its_type(dtype):
    edges, _, t = inputs(dtype=torch.float32)
    with torch.autocast("cpu", dtype):
        out = dfgnn.gt_attention(edges, **t)
    assert out.dtype == dtype
    close(out.float(), by_edges(edges, t)[0], 0.1)


def test_the_kernels_do_it_themselves(place, monkeypatch):
    """No call takes the composite path."""
    from dfgnn import _formulas
    edges, make, t = inputs(dtype=torch.float32, device=place)
    norms = dict(query_norm=make(D), key_norm=make(D))

    def refuse(*_):
        raise AssertionError("a call ran by torch operations")
    monkeypatch.setattr(_formulas, "attention", refuse)
    nodes = {k: t[k] for k in ("query", "key", "value")}
    for kind in ("rms", "layer"):
        for call in (t, nodes, dict(nodes, edge_attr=make(E, H, D))):
            out, alpha = dfgnn.gt_attention(edges, **call, qk_norm=kind,
                                            dropout=0.2, return_weights=True,
                                            **norms)
            (out.sum() + alpha.square().sum()).backward()
    att = make(H, D)
    out, alpha = dfgnn.gatv2_attention(edges, t["query"], t["key"], att,
                                       edge_attr=t["edge_attr"],
                                       edge_projection=t["edge_projection"],
                                       return_weights=True)
    out.sum().backward()
    assert alpha.shape == (E, H)
    assert t["edge_projection"].grad is not None and att.grad is not None
    assert all(x.grad is not None for x in norms.values())


# by name, and what tells the cases of a name apart: options of layers
LAYERS = [
    ("TransformerConv", {}), ("TransformerConv", dict(concat=False, beta=True)),
    *[(name, dict(fill_value=fill)) for name in ("GATv2Conv", "GATConv")
      for fill in ("mean", "add", 0.5)],
    ("GATv2Conv", dict(add_self_loops=False, share_weights=True))]


def spoilt(x):
    return x.isnan().nonzero().tolist()


@pytest.mark.parametrize("name, options", LAYERS)
@pytest.mark.parametrize("width", [3, 8])
@pytest.mark.parametrize("spoil", ["edge", "node", "hidden"])
def test_a_nan_spoils_what_it_spoils_in_pyg(place, name, options, width,
                                            spoil):
    """One NaN in the features of an edge, or of a node with edges, or of a
    node that no edge reads."""
    pyg = pytest.importorskip("torch_geometric.nn")
    # the last node sends nothing and gets nothing, unless it has a loop
    edges = random_edges(N - 1, N - 1, E)[:, :E]
    peer, layer = (getattr(where, name)(
        6, D, heads=2, edge_dim=width, **options).double()
        for where in (pyg, nn))
    layer.load_state_dict(peer.state_dict())
    x = torch.randn(N, 6, dtype=torch.float64)
    e = torch.randn(E, width, dtype=torch.float64)
    if spoil == "edge":
        e[(edges[0] != edges[1]).nonzero()[3], 1] = float("nan")
    else:
        x[0 if spoil == "node" else N - 1, 2] = float("nan")
    results = []
    for module in (layer, peer):
        module = module.to(place)
        leaves = [t.to(place).requires_grad_() for t in (x, e)]
        out = module(leaves[0], edges.to(place), leaves[1])
        grads = torch.autograd.grad(out.sum(), [*leaves,
                                                *module.parameters()])
        results.append([spoilt(t.cpu()) for t in (out, *grads)])
    assert results[0] == results[1]


def test_many_features_run_in_kernels(place, monkeypatch):
    """Features of an edge are projected first if there are more than a GPU's
    kernels multiply by W."""
    from dfgnn import _formulas
    edges, make, t = inputs(features=80, device=place)
    att = make(H, D)
    expected, _ = by_edges(edges, t)
    of_gatv2 = gatv2_by_edges(edges, t, att)

    def refuse(*_):
        raise AssertionError("a call ran by torch operations")
    monkeypatch.setattr(_formulas, "attention", refuse)
    out = dfgnn.gt_attention(edges, **t)
    close(out, expected, 1e-11)
    same_gradients(out, expected, t, 1e-10)
    out = dfgnn.gatv2_attention(
        edges, t["query"], t["key"], att,
        **{k: t[k] for k in ("edge_attr", "edge_projection", "edge_bias")})
    close(out, of_gatv2, 1e-11)


def test_a_hub_is_right(place):
    """A row and a column of many edges."""
    many, heads, dim = 3000, 2, 4
    hub = torch.zeros(many, dtype=torch.int64)
    others = torch.arange(many)
    edges = torch.cat([torch.stack([others, hub]), torch.stack([hub, others])],
                      1).to(place)

    def make(*shape):
        return torch.randn(shape, dtype=torch.float64, device=place,
                           requires_grad=True)
    t = dict(query=make(many, heads, dim), key=make(many, heads, dim),
             value=make(many, heads, dim), edge_attr=make(2 * many, 3),
             edge_projection=make(heads * dim, 3))
    out = dfgnn.gt_attention(edges, **t)
    src, dst = edges
    e = F.linear(t["edge_attr"], t["edge_projection"]).view(-1, heads, dim)
    scores = (t["query"][dst] * (t["key"][src] + e)).sum(-1) / dim ** 0.5
    exps = (scores - scores.max().detach()).exp()
    alpha = exps / exps.new_zeros(many, heads).index_add(0, dst, exps)[dst]
    expected = torch.zeros_like(out).index_add(
        0, dst, alpha.unsqueeze(-1) * (t["value"][src] + e))
    close(out, expected, 1e-11)
    same_gradients(out, expected, t, 1e-10)


def test_bad_arguments_are_named():
    edges, make, t = inputs()
    nodes = {k: t[k] for k in ("query", "key", "value")}
    with pytest.raises(ValueError, match="edge_use must be one of"):
        dfgnn.gt_attention(edges, **t, edge_use="all")
    with pytest.raises(ValueError, match="qk_norm must be one of"):
        dfgnn.gt_attention(edges, **t, qk_norm="batch")
    with pytest.raises(ValueError, match="query_norm and key_norm need"):
        dfgnn.gt_attention(edges, **t, query_norm=make(D))
    with pytest.raises(ValueError, match="edge_attr needs edge_projection"):
        dfgnn.gt_attention(edges, **nodes, edge_attr=t["edge_attr"])
    with pytest.raises(ValueError, match="edge_attr must be .*edges=40"):
        dfgnn.gt_attention(edges, **nodes, edge_attr=make(E + 1, 4),
                           edge_projection=t["edge_projection"])
    with pytest.raises(ValueError, match="edge_projection must be"):
        dfgnn.gt_attention(edges, **nodes, edge_attr=t["edge_attr"],
                           edge_projection=make(H * D, 5))
    with pytest.raises(TypeError, match="one dtype"):
        dfgnn.gt_attention(edges, **nodes, edge_attr=t["edge_attr"].float(),
                           edge_projection=t["edge_projection"])


@pytest.mark.parametrize("name,reduce", [
    ("add", torch.sum), ("sum", torch.sum), ("mean", torch.mean),
    ("min", torch.amin), ("max", torch.amax), ("mul", torch.prod)])
def test_features_of_loops_are_those_of_the_edges_reduced(name, reduce):
    from dfgnn._loops import reduce_edges
    features = torch.randn(7, 3)
    rows = torch.tensor([0, 2, 2, 0, 2, 3, 5])  # 5 has no loop, 1 no edge
    found = reduce_edges(features, rows, 4, name)
    for node in (0, 2, 3):
        torch.testing.assert_close(found[node],
                                   reduce(features[rows == node], 0))
    assert found.shape == (4, 3)
