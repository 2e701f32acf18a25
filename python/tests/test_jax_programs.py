"""dfgnn.jax.edge_program against segment sums of jax.numpy, two orders of
gradients."""

import os
import subprocess
import sys
import types

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import dfgnn.jax as dj  # noqa: E402

N, M, E, H, D = 11, 8, 36, 2, 4


def draw(seed, *shape):
    return jax.random.normal(jax.random.PRNGKey(seed), shape)


def edges(seed=0, padding=0):
    rng = np.random.default_rng(seed)
    src = rng.integers(0, M, E).astype(np.int32)
    dst = rng.integers(1, N, E).astype(np.int32)
    src[1], dst[1] = src[0], dst[0]
    dst[rng.permutation(E)[:padding]] = N
    return src, dst


GIVEN = {"i": {"h": draw(1, N, H, D), "at": draw(2, N, 3)},
         "j": {"h": draw(3, M, H, D), "at": draw(4, M, 3), "s": draw(5, M)},
         "e": {"x": draw(6, E, H, D), "w": draw(7, E)}}
CENTRES = jnp.linspace(0, 3, 5)


def distance(i, j):
    return jnp.sqrt(((i.at - j.at) ** 2).sum() + 0.1)


def radial(i, j, e, p):
    basis = jnp.exp(-(distance(i, j) - CENTRES) ** 2)
    return j.h * (basis @ p["filter"]).reshape(H, D)


def moved(i, j, e, p):
    near = jnp.concatenate([i.h[0], j.h[1], distance(i, j)[None]])
    return (i.at - j.at) * jnp.tanh(p["mlp"] @ jax.nn.silu(near) + p["bias"])


def rotary(i, j, e):
    a, b = j.h[..., :2], j.h[..., 2:]
    turned = jnp.concatenate([a * jnp.cos(e.w) - b, a + b * jnp.sin(e.w)], -1)
    return jnp.einsum("hd,hd->h", i.h, turned)[:, None]


PARAMETERS = {"filter": draw(8, 5, H * D), "mlp": draw(9, 1, 2 * D + 1),
              "bias": draw(10, 1), "att": draw(11, H, D), "beta": draw(12)}

# the score of an edge, if there is a softmax, its value, and the reduction
LAYERS = {
    "gt with edges": (
        lambda i, j, e, p: ((i.h * (j.h + e.x)).sum(-1) / 2)[:, None],
        lambda i, j, e, p: j.h + e.x, "sum"),
    "gatv2": (
        lambda i, j, e, p: (p["att"] * jax.nn.leaky_relu(
            i.h + j.h, 0.2)).sum(-1, keepdims=True),
        lambda i, j, e, p: j.h, "sum"),
    "per channel": (lambda i, j, e, p: i.h - j.h + e.x,
                    lambda i, j, e, p: j.h + e.x, "sum"),
    "cosine": (
        lambda i, j, e, p: p["beta"] * (
            (i.h * j.h).sum(-1, keepdims=True) / (
                jnp.linalg.norm(i.h, axis=-1, keepdims=True)
                * jnp.linalg.norm(j.h, axis=-1, keepdims=True))),
        lambda i, j, e, p: j.h, "sum"),
    "rotary": (lambda i, j, e, p: rotary(i, j, e),
               lambda i, j, e, p: j.h, "sum"),
    "distances": (
        lambda i, j, e, p: (i.h * j.h).sum(-1)[:, None] - distance(i, j),
        lambda i, j, e, p: j.h, "sum"),
    "cfconv": (None, radial, "sum"),
    "egnn": (None, moved, "mean"),
    "gated": (None, lambda i, j, e, p: jax.nn.sigmoid(i.h + j.h + e.x)
              * j.s, "sum"),
    "maximum": (None, lambda i, j, e, p: j.h - i.h, "max"),
    "exchanged": (
        None, lambda i, j, e, p: jnp.swapaxes(jnp.tanh(jnp.swapaxes(
            j.h, 0, 1)) * i.at[0], 0, 1) + jnp.einsum(
                "dh,hd->hd", e.x.T, i.h)
        + jnp.stack([i.h, e.x * j.h], 1)[:, 1], "sum"),
    "activations": (
        None, lambda i, j, e, p: jax.nn.relu(i.h) + jax.nn.gelu(j.h)
        + jax.nn.softplus(e.x) + jax.nn.elu(j.h) + jnp.where(
            j.h > 0, i.h, e.w) + jnp.clip(e.x, -0.5, 0.5)
        + jax.nn.softmax(j.h, -1) + j.h ** 3 + jax.nn.gelu(
            e.x, approximate=False) + jnp.stack([i.h[0], j.h[1]])
        + jnp.split(e.x, 2, -1)[1].sum() + jnp.arange(4.), "sum"),
}


def program(name):
    score, value, reduce = LAYERS[name]

    @dj.edge_program(reduce=reduce)
    def layer(i, j, e, p):
        made = value(i, j, e, p)
        return made if score is None else dj.softmax(
            score(i, j, e, p)) * made
    return layer


def reference(name, src, dst, given, p):
    score, value, reduce = LAYERS[name]
    real = dst < N
    rows = {"i": jnp.minimum(dst, N - 1), "j": src, "e": jnp.arange(E)}
    given = {letter: {k: t[rows[letter]] for k, t in named.items()}
             for letter, named in given.items()}

    def by_edge(f):
        return jax.vmap(lambda g: f(*(types.SimpleNamespace(**g[c])
                                      for c in "ije"), p))(given)
    made = by_edge(value)
    mask = real.reshape((E,) + (1,) * (made.ndim - 1))
    if score is not None:
        s = by_edge(score)
        top = jax.ops.segment_max(s, dst, N + 1)
        w = jnp.exp(s - jnp.where(jnp.isfinite(top), top, 0)[dst])
        made = made * w / jax.ops.segment_sum(w, dst, N + 1)[dst]
    if reduce == "max":
        found = jax.ops.segment_max(made, dst, N + 1)[:N]
        return jnp.where(jnp.isfinite(found), found, 0)
    total = jax.ops.segment_sum(jnp.where(mask, made, 0), dst, N + 1)[:N]
    if reduce == "mean":
        count = jnp.bincount(dst, length=N + 1)[:N]
        total = total / jnp.maximum(count, 1).reshape(
            (N,) + (1,) * (total.ndim - 1))
    return total


def close(found, wanted, tolerance):
    scale = max(float(jnp.abs(wanted).max()), 1.0)
    np.testing.assert_allclose(np.asarray(found, np.float64) / scale,
                               np.asarray(wanted, np.float64) / scale,
                               atol=tolerance)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_and_two_orders_of_gradients_are_the_formula(name):
    src, dst = edges(padding=9)
    graph = dj.from_edges(src, dst, N, M)
    layer = program(name)

    def ours(given, p):
        return layer(graph, **given, p=p)

    def known(given, p):
        return reference(name, src, dst, given, p)

    def loss(f):
        return lambda *x: (jnp.sin(f(*x))).sum()

    def second(f):
        def total(*x):
            grads = jax.grad(loss(f), (0, 1))(*x)
            return sum((t ** 2).sum() for t in jax.tree.leaves(grads))
        return jax.grad(total, (0, 1))

    def everything(f):
        return jax.jit(lambda *x: (f(*x), jax.grad(loss(f), (0, 1))(*x),
                                   second(f)(*x)))(GIVEN, PARAMETERS)
    for found, wanted, tolerance in zip(
            everything(ours), everything(known), (2e-6, 1e-5, 1e-4)):
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
            close(a, b, tolerance)


def test_a_program_that_is_an_operator_runs_as_that():
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    call = {"i": {"h": GIVEN["i"]["h"]}, "j": {"h": GIVEN["j"]["h"]},
            "e": {"x": GIVEN["e"]["x"]}, "p": PARAMETERS}
    for name, variant in (("gt with edges", "cpu.attention.fwd.edges"),
                          ("gatv2", "cpu.attention.fwd."),
                          ("per channel", "cpu.program.blocks")):
        assert dj.explain(graph, program(name), **call)[
            "variant"].startswith(variant), name
    found = dj.tune(graph, program("per channel"), **call, budget=0.05)
    assert found["variant"].startswith("cpu.program.blocks/")
    assert dj.explain(graph, program("per channel"), backward=True, **call)[
        "variant"].startswith("cpu.program.blocks/")


def test_values_of_edges_are_in_the_callers_order():
    src, dst = edges(padding=5)
    graph = dj.from_edges(src, dst, N, M)

    @dj.edge_program(reduce=None)
    def parts(i, j, e):
        return j.s * e.w, dj.sum_in(e.w), dj.mean_out(e.w * j.s)
    given = {"j": {"s": GIVEN["j"]["s"]}, "e": {"w": GIVEN["e"]["w"]},
             "i": {"at": GIVEN["i"]["at"]}}
    by_edge, by_dst, by_src = parts(graph, **given)
    real, s, w = dst < N, GIVEN["j"]["s"], GIVEN["e"]["w"]
    close(by_edge, jnp.where(real, s[src] * w, 0), 1e-6)
    close(by_dst, jax.ops.segment_sum(w, dst, N + 1)[:N], 1e-6)
    total = jax.ops.segment_sum(jnp.where(real, s[src] * w, 0), src, M)
    close(by_src, total / jnp.maximum(jnp.bincount(
        src, 1. * real, length=M), 1), 1e-6)
    grad = jax.grad(lambda w: (parts(graph, **{**given, "e": {"w": w}})[0]
                               ** 2).sum())(w)
    close(grad, jnp.where(real, 2 * s[src] ** 2 * w, 0), 1e-5)


def test_what_a_function_finds_outside_is_a_parameter():
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)

    @jax.jit
    def total(slope):
        @dj.edge_program
        def layer(j):
            return j.h * slope
        return layer(graph, j={"h": GIVEN["j"]["h"]}).sum()
    found = jax.grad(total)(jnp.ones((H, 1)))
    close(found[:, 0], GIVEN["j"]["h"][src].sum((0, 2)), 1e-5)


def test_dropout_takes_a_key():
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)

    @dj.edge_program
    def layer(j, e, rate):
        return dj.dropout(j.h * e.one, rate)
    one = {"one": jnp.ones((E, 1, 1))}
    given = {"j": {"h": jnp.ones((M, H, D))}, "e": one, "rate": 0.5}
    with pytest.raises(TypeError, match="key"):
        layer(graph, **given)

    @jax.jit
    def run(key):
        return layer(graph, **given, key=key)
    first = run(jax.random.key(0))
    assert (first == run(jax.random.key(0))).all()
    assert (first != run(jax.random.key(1))).any()
    kept = float(first.sum()) / (2 * E * H * D)
    assert 0.35 < kept < 0.65
    assert set(np.unique(np.asarray(first) % 2)) == {0}

    def of(h):
        return layer(graph, j={"h": h}, e=one, rate=0.5, key=0).sum()
    h = GIVEN["j"]["h"]  # a linear function: its gradient times h is itself
    close((jax.grad(of)(h) * h).sum(), of(h), 1e-5)


def test_a_text_is_called_by_names():
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    gated = dj.edge_program("""
        dst a[H,D]; src b[H,D]; edge w; param scale
        return out = sum_in(sigmoid(a + b) * w) * scale, count = degree(dst)
        """)
    a, b, w = GIVEN["i"]["h"], GIVEN["j"]["h"], GIVEN["e"]["w"]
    out, count = gated(graph, a=a, b=b, w=w, scale=2.)
    value = jax.nn.sigmoid(a[dst] + b[src]) * w[:, None, None] * 2
    close(out, jax.ops.segment_sum(value, dst, N), 2e-6)
    assert (count == np.bincount(dst, minlength=N)).all()
    grad = jax.grad(lambda w: gated(graph, a=a, b=b, w=w, scale=2.)[0].sum())
    close(grad(w), value.sum((1, 2)) / w, 1e-5)
    with pytest.raises(TypeError, match="takes a, b, scale, w; got a"):
        gated(graph, a=a)
    assert "dst a[2,4]" in gated.text(a=a, b=b, w=w, scale=2.)
    assert dj.explain(graph, gated, a=a, b=b, w=w, scale=2.)["variant"]


def test_types():
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    layer = program("gt with edges")
    given = jax.tree.map(lambda t: t.astype(jnp.bfloat16), GIVEN)
    out = layer(graph, **given, p=PARAMETERS)
    assert out.dtype == jnp.bfloat16
    close(out, reference("gt with edges", src, dst, GIVEN, PARAMETERS), 5e-2)
    grad = jax.grad(lambda g: layer(graph, **g, p=PARAMETERS).astype(
        jnp.float32).sum())(given)
    assert {t.dtype.name for t in jax.tree.leaves(grad)} == {"bfloat16"}


def test_vmap_and_double_precision():
    code = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, numpy as np, dfgnn.jax as dj, sys
assert "torch" not in sys.modules
src, dst = np.array([0, 1, 2, 3, 0]), np.array([1, 2, 3, 0, 2])
graph = dj.from_edges(src, dst, 4)
@dj.edge_program
def layer(i, j):
    return dj.softmax(i.x - j.x) * j.x
f = lambda x: (layer(graph, i={"x": x}, j={"x": x}) ** 2).sum()
x = jax.random.normal(jax.random.PRNGKey(0), (4, 3))
assert x.dtype == jnp.float64 and jax.grad(f)(x).dtype == jnp.float64
h = 1e-6 * jax.random.normal(jax.random.PRNGKey(1), (4, 3))
close = lambda a, b: abs(a - b).max() < 1e-5 * abs(b).max()
assert close((f(x + h) - f(x - h)) / 2e-6, (jax.grad(f)(x) * h).sum() / 1e-6)
xs = jnp.stack([x, 2 * x])
assert close(jax.vmap(jax.grad(f))(xs), jnp.stack([jax.grad(f)(x)
                                                   for x in xs]))
"""
    subprocess.run([sys.executable, "-c", code], check=True,
                   env={**os.environ, "PYTHONPATH":
                        os.pathsep.join(path for path in sys.path if path)})


@jax.custom_jvp
def reversed_gradient(x):
    return x * 1.0


reversed_gradient.defjvp(lambda x, t: (x[0] * 1.0, -t[0]))


@pytest.mark.parametrize("function", [
    jax.nn.relu, jax.nn.relu6, jnp.abs, jax.nn.softplus,
    jax.nn.hard_swish, lambda x: jnp.clip(x, -1, 1), lambda x: jnp.logaddexp(
        x, x), lambda x: jnp.max(x, -1, keepdims=True) * x])
def test_derivatives_at_corners_are_those_of_jax(function):
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    layer = dj.edge_program(lambda j: function(j.h))
    h = jnp.resize(jnp.array([0., 1, -1, 6, 3, -3, .5, 0]), (M, H, D))
    close(jax.grad(lambda h: layer(graph, j={"h": h}).sum())(h), jax.grad(
        lambda h: function(h[src]).sum())(h), 1e-6)


def test_large_integers_are_refused():
    src, dst = edges()
    layer = dj.edge_program(lambda j: j.t * 1.0)
    with pytest.raises(ValueError, match="j.t has integers above"):
        layer(dj.from_edges(src, dst, N, M), j={
            "t": jnp.full((M,), 1_700_000_000)})


@pytest.mark.parametrize("function, what", [
    (lambda i, j: jnp.cumsum(j.h, -1), "cumsum"),
    (lambda i, j: j.h[:, ::2], "step|gather"),
    (lambda i, j: jnp.argmax(j.h, -1), "argmax"),
    (lambda i, j: j.h ** i.h, "exponent"),
    (lambda i, j: reversed_gradient(j.h), "derivative of its own"),
    (lambda i, j: jax.lax.reduce_precision(j.h, 5, 2), "fewer bits"),
    (lambda i, j: jnp.roll(j.h[:1], 1, 0), "without elements"),
])
def test_what_programs_do_not_have_is_refused_with_its_line(function, what):
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    layer = dj.edge_program(function)
    with pytest.raises(dj.TraceError, match=what) as found:
        layer(graph, i={"h": GIVEN["i"]["h"]}, j={"h": GIVEN["j"]["h"]})
    assert "test_jax_programs.py" in str(found.value)


def test_what_is_wrong_is_named():
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    layer = program("maximum")
    h = GIVEN["j"]["h"]
    with pytest.raises(ValueError, match="i.h must have 11 rows, got"):
        layer(graph, i={"h": h}, j={"h": h}, e={}, p={})
    with pytest.raises(AttributeError, match="i.h is not given; i has q"):
        layer(graph, i={"q": h}, j={"h": h}, e={}, p={})
    with pytest.raises(TypeError, match="none of i, j and e"):
        dj.edge_program(lambda x: x)
    with pytest.raises(TypeError, match="outside of the function"):
        dj.softmax(h)
    with pytest.raises(Exception, match="line 1, column"):
        dj.edge_program("dst q[;")
