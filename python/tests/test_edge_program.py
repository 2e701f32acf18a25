"""Edge programs: functions of the user's, against torch's own operations."""

import os
import random

import pytest
import torch
import torch.nn.functional as F

import dfgnn
from dfgnn import programs
from dfgnn.programs import TraceError, edge_program

N, M, E = 7, 9, 30


@pytest.fixture(scope="module")
def graph():
    """Destinations 5 and 6, and some sources, have no edges; the list is not
    sorted, so that the caller's order of edges is not the graph's."""
    torch.manual_seed(3)
    edges = torch.stack([torch.randint(0, M, (E,)),
                         torch.cat([torch.arange(5),
                                    torch.randint(0, 5, (E - 5,))])])
    return dfgnn.Graph.from_edge_index(edges[:, torch.randperm(E)], (M, N))


def rows(count, *axes, kind=torch.double):
    return torch.randn(count, *axes, dtype=kind, requires_grad=True)


@edge_program
def attention(i, j, e):
    score = (i.q * (j.k + e.x)).sum(-1) / 2 ** .5
    return dfgnn.softmax(score) * (j.v + e.x)


@edge_program
def biased(i, j, e, slopes):
    """Distances and a slope of each head, as ALiBi has it."""
    distance = (i.t - j.t).norm(dim=-1)
    score = (i.q * j.k).sum(-1) - slopes * distance
    return dfgnn.softmax(score) * j.k


@edge_program
def per_channel(i, j, e):
    """PointTransformer's softmax of each channel."""
    return dfgnn.softmax(i.q - j.q + e.x) * (j.v + e.x)


@edge_program(reduce="mean")
def coordinates(i, j, e, W, b):
    """EGNN's: differences of positions, weighed by a small network."""
    apart = i.t - j.t
    square = (apart * apart).sum(-1)
    gate = F.silu(F.linear(torch.cat([i.q, j.q, square], -1), W, b))
    return apart * gate[..., :1].tanh()


@edge_program
def filtered(i, j, e, centres):
    """CFConv with Gaussians of the distance."""
    distance = ((i.t - j.t) ** 2).sum(-1).sqrt()
    return j.q * torch.exp(-(distance - centres).square())


@edge_program
def gated(i, j, e):
    return torch.sigmoid(i.q + j.q) * torch.tanh(j.v * e.x)


@edge_program
def cosine(i, j, e):
    norms = (i.q * i.q).sum(-1) * (j.q * j.q).sum(-1) + 0.1
    return dfgnn.softmax((i.q * j.q).sum(-1) * norms.rsqrt()) * j.v


@edge_program
def rotary(i, j, e):
    """Products of pairs that are turned by an angle of the edge."""
    c, s = torch.cos(e.x[..., :1]), torch.sin(e.x[..., :1])
    a, b = j.q[..., :1], j.q[..., 1:]
    turned = torch.cat([a * c - b * s, a * s + b * c], -1)
    return dfgnn.softmax((i.q * turned).sum(-1)) * turned


@edge_program
def gatv3(i, j, e, att):
    hidden = F.leaky_relu(i.q + j.q + e.x, 0.2)
    return dfgnn.softmax((att * hidden).sum(-1)) * F.gelu(hidden)


@edge_program(reduce="max")
def difference(i, j, e):
    return torch.tanh(j.q - i.q)


@edge_program(reduce=None)
def several(i, j, e):
    w = torch.where(e.x > 0.1, F.elu(e.x), F.softplus(j.q))
    up = programs.sum_out(w * i.q)
    return (w.clamp(-0.5, 0.6), up, programs.min_in(w),
            programs.mean_out(w.unsqueeze(-1).squeeze(-1)),
            programs.logsumexp(w * up)[..., 1:])


@edge_program
def normed(i, j, e, gain):
    return F.layer_norm(j.q + e.x, (2,), gain) + F.relu(e.x).reshape(-1, 2)


def arguments(program, kind=torch.double):
    def some(n, *axes):
        return rows(n, *axes, kind=kind)
    heads = {"attention": 1, "biased": 1, "gatv3": 1}.get(program.__name__)
    axes = (3, 2) if heads else (2,)
    i = {"q": some(N, *axes)}
    j = {"q": some(M, *axes)}
    e = {"x": some(E, *axes)}
    others = {}
    if program is attention or program is biased:
        j = {"k": j.pop("q")}
    if program in (attention, per_channel, gated, cosine):
        j["v"] = some(M, *axes)
    if program in (biased, coordinates, filtered):
        e = None
        i["t"], j["t"] = some(N, *axes[:-1], 3), some(M, *axes[:-1], 3)
    if program is biased:
        others["slopes"] = torch.rand(3, 1, dtype=kind, requires_grad=True)
    if program is coordinates:
        others = {"W": some(3, 5), "b": some(3)}
    if program is filtered:
        others = {"centres": some(2)}
        del i["q"]
    if program is gatv3:
        others = {"att": some(3, 2)}
    if program is normed:
        others, i = {"gain": some(2)}, None
    if program is difference:
        e = None
    if program in (gated,):
        e = {"x": some(E, 1)}
    return {"i": i, "j": j, "e": e, **others}


def flatten(given):
    leaves, paths = [], []
    for name, value in given.items():
        items = value.items() if isinstance(value, dict) else [(None, value)]
        for key, tensor in items:
            if tensor is not None:
                leaves.append(tensor)
                paths.append((name, key))
    return leaves, paths


def rebuilt(given, paths, leaves):
    made = {k: dict(v) if isinstance(v, dict) else v
            for k, v in given.items()}
    for (name, key), leaf in zip(paths, leaves):
        if key is None:
            made[name] = leaf
        else:
            made[name][key] = leaf
    return made


PROGRAMS = [attention, biased, per_channel, coordinates, filtered, gated,
            cosine, rotary, gatv3, difference, several, normed]
by_name = pytest.mark.parametrize("program", PROGRAMS,
                                  ids=lambda p: p.__name__)


def outputs(made):
    made = made if isinstance(made, tuple) else (made,)
    # logsumexp of a row without edges is -inf
    return [torch.where(x.isinf(), torch.zeros_like(x), x) for x in made]


@by_name
def test_a_program_is_what_torch_computes(program, graph):
    given = arguments(program)
    have = outputs(program(graph, **given))
    want = outputs(program(graph, **given, composite=True))
    torch.testing.assert_close(have, want, rtol=1e-12, atol=1e-12)


@by_name
def test_gradients_of_two_orders_are_torchs(program, graph):
    given = arguments(program)
    leaves, paths = flatten(given)
    weights = [torch.randn_like(x)
               for x in outputs(program(graph, **given, composite=True))]

    def derive(composite):
        made = outputs(program(graph, **given, composite=composite))
        first = torch.autograd.grad(
            made, leaves, weights, create_graph=True, allow_unused=True)
        there = [g for g in first if g is not None and g.requires_grad]
        second = torch.autograd.grad(
            [(g * g).sum() + g.sum() for g in there], leaves,
            allow_unused=True) if there else [None] * len(leaves)
        return [*first, *second]
    for x, y in zip(derive(False), derive(True), strict=True):
        zero = torch.zeros(())
        torch.testing.assert_close(
            zero.expand_as(y) if x is None and y is not None else
            zero if x is None else x.detach(),
            zero.expand_as(x) if y is None and x is not None else
            zero if y is None else y.detach(), rtol=1e-9, atol=1e-9,
            check_dtype=False)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16,
                                  torch.bfloat16])
def test_types_of_16_and_32_bits(kind, graph):
    for program in (attention, difference, coordinates):
        given = arguments(program, kind)
        leaves, paths = flatten(given)
        wide = [x.detach().double().requires_grad_() for x in leaves]
        out = program(graph, **given)
        assert out.dtype == kind
        want = program(graph, **rebuilt(given, paths, wide))
        tolerance = {torch.float32: 1e-5, torch.float16: 5e-3,
                     torch.bfloat16: 5e-2}[kind]
        torch.testing.assert_close(out.double(), want, rtol=tolerance,
                                   atol=tolerance)
        weights = torch.randn_like(want)
        have = torch.autograd.grad(out, leaves, weights.to(kind))
        want = torch.autograd.grad(want, wide, weights)
        for x, y in zip(have, want):
            assert x.dtype == kind
            torch.testing.assert_close(x.double(), y, rtol=4 * tolerance,
                                       atol=4 * tolerance)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_a_message_that_is_an_operator_is_one_in_both_passes(kind, graph):
    @edge_program
    def additive(i, j, a):
        score = (F.leaky_relu(i.x + j.x, .2) * a).sum(-1)
        return dfgnn.softmax(score) * j.x

    i, j, a = (rows(*shape, kind=kind) for shape in ((N, 2, 8), (M, 2, 8), (2, 8)))

    def step():
        out = additive(graph, i={"x": i}, j={"x": j}, a=a)
        out.backward(torch.ones_like(out))
    found = dfgnn.record(step, steps=1).problems
    assert sorted(repr(timed).split(" 2x8 ")[0] for timed in found) == [
        "gatv2 backward", "gatv2 forward"]


def test_bits_repeat(graph):
    given = arguments(attention, torch.float32)
    assert torch.equal(attention(graph, **given), attention(graph, **given))


def test_dropout_is_the_same_in_both_passes(graph):
    @edge_program
    def dropped(i, j, e):
        return F.dropout(j.v, 0.5)
    torch.manual_seed(8)
    v = torch.ones(M, 4, requires_grad=True)
    out = dropped(graph, i={"q": torch.ones(N, 1)}, j={"v": v})
    (grad,) = torch.autograd.grad(out.sum(), v)
    # each edge keeps 2 or drops: what arrives is what is sent back
    assert out.sum() == grad.sum()
    assert 0 < out.sum() < 2 * E * 4
    torch.manual_seed(8)
    again = dropped(graph, i={"q": torch.ones(N, 1)}, j={"v": v})
    assert torch.equal(out, again)


@pytest.mark.parametrize("before", range(4))
def test_an_extreme_finds_its_edge_whatever_else_is_given(before, graph):
    """The gradient reads some of the inputs, and multiplies in the order in
    which the program does: other bits would find no edge."""
    torch.manual_seed(before)
    unused = {f"a{k}": rows(N, 2) for k in range(before)}

    @edge_program(reduce="max")
    def largest(i, j, e):
        return j.q * F.silu(e.x) * torch.cos(e.y) * i.s
    e = {"x": rows(E, 3), "y": rows(E, 3)}
    out = largest(graph, i={**unused, "s": rows(N, 3).abs() + 0.1},
                  j={"q": rows(M, 3)}, e=e)
    (grad,) = torch.autograd.grad(out.sum(), e["y"])
    there = torch.bincount(graph.dst, minlength=N) > 0
    assert int((grad != 0).sum()) == 3 * int(there.sum())


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_an_extreme_of_what_is_returned_finds_its_edge(kind, graph):
    """What is returned is rounded to 16 bits, what the extreme was made of is
    not: a gradient that read the one would find no edge."""
    @edge_program(reduce=None)
    def both(i, j):
        total = programs.sum_in(dfgnn.softmax(i.q * j.q) * j.q)
        return total, programs.max_in(i.q * j.q - total)
    q, k = rows(N, 3, kind=kind), rows(M, 3, kind=kind)
    wide = [x.detach().double().requires_grad_() for x in (q, k)]
    have = torch.autograd.grad(sum(x.sum() for x in both(
        graph, i={"q": q}, j={"q": k})), [q, k])
    want = torch.autograd.grad(sum(x.sum() for x in both(
        graph, i={"q": wide[0]}, j={"q": wide[1]})), wide)
    for x, y in zip(have, want):
        torch.testing.assert_close(x.double(), y, rtol=.05, atol=.05)


def test_forces_train(graph):
    """An energy of positions, forces by create_graph, a loss on both."""
    x = torch.randn(N, 3, dtype=torch.double, requires_grad=True)
    edges = torch.stack([torch.randint(0, N, (E,)), torch.arange(E) % N])
    square = dfgnn.Graph.from_edge_index(edges, N)
    centres = torch.linspace(0, 2, 4, dtype=torch.double, requires_grad=True)

    @edge_program
    def energy(i, j, e, centres):
        d = (((i.t - j.t) ** 2).sum(-1) + 0.1).sqrt()
        return F.softplus(d - centres)

    def train(composite):
        total = energy(square, i={"t": x}, j={"t": x}, centres=centres,
                       composite=composite).sum()
        (force,) = torch.autograd.grad(total, x, create_graph=True)
        loss = total ** 2 + (force ** 2).sum()
        return torch.autograd.grad(loss, [x, centres])
    torch.testing.assert_close(train(False), train(True), rtol=1e-10, atol=1e-10)


# ---- what is refused

def refused(function, graph, text, **given):
    program = edge_program(function)
    with pytest.raises(TraceError, match=text) as info:
        program(graph, **given)
    assert "test_edge_program.py, line " in str(info.value)


def test_what_programs_do_not_have_is_refused_with_its_line(graph):
    j = {"v": torch.ones(M, 4)}
    i = {"q": torch.ones(N, 4)}
    refused(lambda i, j: j.v.cumsum(-1), graph, r"no \.cumsum", i=i, j=j)
    refused(lambda i, j: torch.fft.fft(j.v), graph, "no fft", i=i, j=j)
    refused(lambda i, j: j.v if (j.v > 0) else i.q, graph,
            "decides what Python does", i=i, j=j)
    refused(lambda i, j: j.v.sum(), graph, "sum of all axes", i=i, j=j)
    refused(lambda i, j: j.v.sum(0), graph, "dimension 0", i=i, j=j)
    refused(lambda i, j: j.v ** i.q, graph, "exponent", i=i, j=j)
    refused(lambda i, j: j.v + torch.ones(3), graph, "expected axes", i=i,
            j=j)
    refused(lambda i, j: float(j.v), graph, "wanted as a number", i=i, j=j)


def test_wrong_arguments_are_named(graph):
    with pytest.raises(ValueError, match=r"j.k must be \[sources=9, \.\.\.\]"):
        attention(graph, i={"q": rows(N, 2)}, j={"k": rows(N, 2)})
    with pytest.raises(AttributeError, match="j.v is not given; j has k"):
        attention(graph, i={"q": rows(N, 2)}, j={"k": rows(M, 2)},
                  e={"x": rows(E, 2)})
    with pytest.raises(TypeError, match="takes none of i, j, e and r"):
        edge_program(lambda x: x)
    with pytest.raises(ValueError, match="reduce must be"):
        edge_program(lambda i: i.q, reduce="median")
    with pytest.raises(TypeError, match="called in the function of an"):
        dfgnn.softmax(torch.ones(3))


def test_tensors_that_the_library_cannot_read_are_refused(graph):
    @edge_program
    def scaled(j, factor):
        return j.v * factor
    v = torch.randn(M, 2)
    with pytest.raises(ValueError,
                       match="p_factor is .* on meta, the graph is on"):
        scaled(graph, j={"v": v}, factor=torch.ones(2, device="meta"))
    with pytest.raises(TypeError,
                       match="j_v must be float16, .* got a complex64"):
        scaled(graph, j={"v": v.to(torch.complex64)}, factor=1)
    whole = scaled(graph, j={"v": v}, factor=torch.tensor([2, 3]))
    torch.testing.assert_close(
        whole, scaled(graph, j={"v": v}, factor=torch.tensor([2., 3.])))


def test_tensors_that_the_function_finds_outside_have_gradients(graph):
    weight = torch.randn(3, 2, requires_grad=True)

    @edge_program
    def outside(j):
        return F.linear(j.v, weight)
    v = torch.randn(M, 2)
    out = outside(graph, j={"v": v})
    want = torch.zeros(N, 3).index_add(0, graph.dst,
                                       F.linear(v, weight)[graph.src])
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(torch.autograd.grad(out.sum(), weight),
                               torch.autograd.grad(want.sum(), weight))


def test_a_graph_without_edges_gives_zeros(graph):
    empty = dfgnn.Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.long),
                                        (4, 3))
    q, k = rows(3, 2, 2), rows(4, 2, 2)
    out = attention(empty, i={"q": q}, j={"k": k, "v": k},
                    e={"x": rows(0, 2, 2)})
    assert torch.equal(out, torch.zeros(3, 2, 2, dtype=torch.double))
    grads = torch.autograd.grad(out.sum(), [q, k])
    assert all(torch.equal(g, torch.zeros_like(g)) for g in grads)


def test_explain_says_what_runs(graph):
    text = attention.explain(**arguments(attention))
    assert "the library's operator gt; 1 walks over rows, 0 over" in text
    assert "logsumexp_in" in text
    text = per_channel.explain(**arguments(per_channel))
    assert "the library's evaluator, fused; 1 walks over rows, 0 over" in text


# ---- random programs

def random_program(seed):
    unary = [torch.tanh, torch.sigmoid, torch.sin, torch.cos, F.softplus,
             F.silu, F.gelu, torch.erf, lambda x: (x * x + 1).sqrt(),
             lambda x: torch.exp(-x * x), lambda x: 1 / (x * x + 1),
             torch.square, torch.expm1, lambda x: torch.log1p(x * x)]
    folds = [lambda x: x.sum(-1), lambda x: x.mean(-1),
             lambda x: x.softmax(-1), lambda x: x.logsumexp(-1),
             lambda x: x[..., 1:],
             lambda x: torch.cat([x, x * 2], -1)[..., 1:4]]

    def function(i, j, e):
        picks = random.Random(seed + 1)
        values = [i.q, j.q, e.x, i.s, j.s, e.w]
        for _ in range(picks.randint(4, 14)):
            a, b = picks.choice(values), picks.choice(values)
            kind = picks.random()
            try:
                if kind < .4:
                    made = picks.choice([lambda: a + b, lambda: a * b,
                                         lambda: a - b])()
                elif kind < .7:
                    made = picks.choice(unary)(a)
                elif kind < .8 and a.shape and a.shape[-1] > 1:
                    made = picks.choice(folds)(a)
                else:
                    # logsumexp of a row without edges is -inf, whose
                    # products with 0 differ with the order
                    made = getattr(programs, picks.choice([
                        over for over in programs._trace.OVER_EDGES
                        if not over.endswith("_rel")
                        if "logsumexp" not in over]))(a)
            except TraceError:
                continue
            values.append(made.clamp(-9, 9) if picks.random() < .2 else made)
        return values[-1], values[-2]
    return edge_program(function, reduce=None)


# DFGNN_FUZZ_PROGRAMS=1000 for a long run
SEEDS = range(int(os.environ.get("DFGNN_FUZZ_PROGRAMS", "40")))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_are_what_torch_computes(seed, graph):
    torch.manual_seed(seed)
    program = random_program(seed)
    given = {"i": {"q": rows(N, 4), "s": rows(N, 1)},
             "j": {"q": rows(M, 4), "s": rows(M, 1)},
             "e": {"x": rows(E, 4), "w": rows(E, 1)}}
    leaves, _ = flatten(given)

    def derive(composite):
        made = outputs(program(graph, **given, composite=composite))
        torch.manual_seed(1)
        weights = [torch.randn_like(x) for x in made]
        loss = sum((x * w).sum() for x, w in zip(made, weights))
        if not loss.requires_grad:
            return made
        first = torch.autograd.grad(loss, leaves, create_graph=True,
                                    materialize_grads=True)
        size = sum((g * torch.randn_like(g)).sum() for g in first)
        second = map(torch.zeros_like, leaves) if not size.requires_grad else \
            torch.autograd.grad(size, leaves, materialize_grads=True)
        return [*made, *first, *second]
    have, want = derive(False), derive(True)
    for x, y in zip(have, want, strict=True):
        torch.testing.assert_close(x.detach(), y.detach(), rtol=1e-7,
                                   atol=1e-7, equal_nan=True)


SCALE = 2.0


@edge_program
def scaled(i, j, e, power=1):
    """Reads a number of its module, and one of its caller."""
    return j.q * SCALE ** power


def test_a_kind_of_calls_is_traced_once(graph, monkeypatch):
    q = rows(M, 2)
    calls = []
    counted = edge_program(lambda i, j, e: (calls.append(1), j.q * 2)[1])
    plain = edge_program(lambda i, j, e: j.q * 2)
    for program in (counted, plain):
        for _ in range(3):
            program(graph, j={"q": q})
    # what it writes to is neither compared nor kept
    assert len(calls) == 3 and len(plain._found) == 1
    once = scaled(graph, j={"q": q})
    assert torch.equal(scaled(graph, j={"q": q}, power=2), 2 * once)
    monkeypatch.setitem(globals(), "SCALE", 6.0)
    torch.testing.assert_close(scaled(graph, j={"q": q}), 3 * once)
    assert scaled(graph, j={"q": q.float()}).dtype == torch.float32
    assert len(scaled._found) == 4
    weight = torch.ones(2, dtype=torch.double, requires_grad=True)
    captured = edge_program(lambda i, j, e: j.q * weight)
    for _ in range(2):
        assert captured(graph, j={"q": q}).requires_grad
    assert not captured._found


def test_a_first_gradient_keeps_nothing_for_a_second(graph, monkeypatch):
    from dfgnn import _program_calls
    ran = []
    execute = _program_calls.execute
    monkeypatch.setattr(_program_calls, "execute", lambda program, *args: (
        ran.append(program), execute(program, *args))[1])
    q = rows(M, 2)
    out = gated(graph, i={"q": rows(N, 2)}, j={"q": q, "v": rows(M, 2)},
                e={"x": rows(E, 1)})
    torch.autograd.grad(out.sum(), q)
    assert len(ran) == 2 and not any(p.kept for p in ran[1].outputs)
