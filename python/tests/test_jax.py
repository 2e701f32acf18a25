"""dfgnn.jax against the formulas in jax.numpy, forward and gradients."""

import os
import subprocess
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import dfgnn.jax as dj  # noqa: E402
from dfgnn.jax._graph import ffi  # noqa: E402

N, M, E, H, D = 12, 9, 40, 2, 5


def edges(padding=0, seed=0, n=N, m=M, e=E):
    """src and dst in any order, with a row without edges, an edge twice and
    padding among them."""
    rng = np.random.default_rng(seed)
    src = rng.integers(0, m, e).astype(np.int32)
    dst = rng.integers(1, n, e).astype(np.int32)
    src[1], dst[1] = src[0], dst[0]
    places = np.sort(rng.integers(0, e, padding))
    return (np.insert(src, places, 0).astype(np.int32),
            np.insert(dst, places, n).astype(np.int32))


def draw(seed, *shape, dtype=jnp.float32):
    return jax.random.normal(jax.random.PRNGKey(seed), shape).astype(dtype)


def attend(score, value, src, dst, n):
    """softmax over in-edges of score [E, H], applied to value [M, H, D]."""
    top = jax.ops.segment_max(score, dst, n)
    weight = jnp.exp(score - jnp.where(jnp.isfinite(top), top, 0)[dst])
    total = jax.ops.segment_sum(weight, dst, n)
    alpha = weight / total[dst]
    return jax.ops.segment_sum(alpha[..., None] * value[src], dst, n)


def unit(x):
    return x / jnp.sqrt((x * x).sum(-1, keepdims=True))


def leaky(x):
    return jnp.where(x > 0, x, 0.2 * x)


OPERATORS = {
    "gt": (dj.gt_attention, [(N, H, D), (M, H, D), (M, H, D)],
           lambda s, d, q, k, v: attend(
               (q[d] * k[s]).sum(-1) / D ** 0.5, v, s, d, N)),
    "agnn": (dj.agnn_attention, [(N, H, D), (M, H, D), (1,)],
             lambda s, d, q, v, beta: attend(
                 beta * (unit(q)[d] * unit(v)[s]).sum(-1), v, s, d, N)),
    "gat": (dj.gat_attention, [(N, H), (M, H), (M, H, D)],
            lambda s, d, a, b, v: attend(leaky(a[d] + b[s]), v, s, d, N)),
    "gatv2": (dj.gatv2_attention, [(N, H, D), (M, H, D), (H, D)],
              lambda s, d, x, y, att: attend(
                  (att * leaky(x[d] + y[s])).sum(-1), y, s, d, N)),
    "sum": (dj.spmm, [(M, H, D)],
            lambda s, d, v: jax.ops.segment_sum(v[s], d, N)),
    "mean": (lambda graph, v: dj.spmm(graph, v, reduce="mean"), [(M, H, D)],
             lambda s, d, v: jax.ops.segment_sum(v[s], d, N) / jnp.maximum(
                 jnp.bincount(d, length=N), 1)[:, None, None]),
    "weighted": (dj.spmm, [(M, H, D), (E, H)],
                 lambda s, d, v, w: jax.ops.segment_sum(
                     v[s] * w[..., None], d, N)),
}


def close(found, wanted, tolerance=2e-5):
    np.testing.assert_allclose(np.asarray(found, np.float64),
                               np.asarray(wanted, np.float64),
                               rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_and_its_gradients_are_the_formula(name, jit):
    ours, shapes, formula = OPERATORS[name]
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    inputs = [draw(i, *shape) for i, shape in enumerate(shapes)]
    cotangent = draw(9, N, H, D)

    def loss(function):
        return lambda *x: (function(*x) * cotangent).sum()

    def mine(*x):
        return ours(graph, *x)
    mine_grad = jax.grad(loss(mine), tuple(range(len(inputs))))
    if jit:
        mine, mine_grad = jax.jit(mine), jax.jit(mine_grad)

    def known(*x):
        return formula(src, dst, *x)
    close(mine(*inputs), known(*inputs))
    grads = jax.grad(loss(known), tuple(range(len(inputs))))(*inputs)
    for found, wanted in zip(mine_grad(*inputs), grads):
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        close(found, wanted, 5e-5)


@pytest.mark.parametrize("src, dst, num_dst, what", [
    ([0., 1.7], [1, 2], 3, "src must be a vector of int32 or int64"),
    ([0, 1], [1., 2.5], 3, "dst must be a vector of int32 or int64"),
    ([False, True], [1, 2], 3, "src must be a vector of int32 or int64"),
    ([0, 2**32 + 1], [1, 2], 3, "out of range, expected 0..2"),
    ([0, 1], [1, 2], 3.5, "num_dst must be a whole number"),
    ([0, 1], [1, 2], -1, "num_dst must be a whole number")])
def test_edges_that_are_no_indices_are_an_error(src, dst, num_dst, what):
    with pytest.raises((ValueError, RuntimeError), match=what):
        dj.spmm(dj.from_edges(np.array(src), np.array(dst), num_dst, 3),
                draw(0, 3, 2)).block_until_ready()


def test_indices_that_32_bits_cannot_hold_are_out_of_range():
    offsets, indices = np.array([0, 1]), np.array([2**32])
    with pytest.raises((ValueError, RuntimeError), match="out of range"):
        dj.spmm(dj.csr(offsets, indices), draw(0, 1, 2)).block_until_ready()


@pytest.mark.parametrize("name", OPERATORS)
def test_padding_changes_nothing_and_batches_share_a_compilation(name):
    ours, shapes, formula = OPERATORS[name]
    compiled = []

    @jax.jit
    def gradients(src, dst, inputs):
        compiled.append(name)
        graph = dj.from_edges(src, dst, N, M, family="batches")
        return jax.value_and_grad(
            lambda x: (ours(graph, *x) ** 2).sum())(inputs)

    for seed, padding in enumerate((24, 15, 7)):
        src, dst = edges(padding, seed, e=64 - padding)
        real = dst < N
        inputs = [draw(seed + i, *(64 if n == E else n for n in shape))
                  for i, shape in enumerate(shapes)]
        value, grads = gradients(src, dst, inputs)

        def known(x):
            x = [t[real] if t.shape[0] == 64 else t for t in x]
            return (formula(src[real], dst[real], *x) ** 2).sum()
        wanted, wanted_grads = jax.value_and_grad(known)(inputs)
        close(value / wanted, 1, 1e-4)
        for found, expected in zip(grads, wanted_grads):
            close(found, expected, 2e-4)
    assert len(compiled) == 1


def test_a_batch_of_graphs_in_csr_arrays_with_room_left():
    offsets = jnp.array([0, 2, 3, 3, 5], jnp.int32)  # two graphs of two nodes
    indices = jnp.array([0, 1, 1, 2, 3, 77, -5], jnp.int32)
    x = draw(1, 4, 1, 3)
    out = dj.spmm(dj.csr(offsets, indices), x)
    close(out, jnp.stack([x[0] + x[1], x[1], 0 * x[0], x[2] + x[3]]))


@pytest.mark.parametrize("dtype, tolerance", [
    (jnp.float16, 5e-3), (jnp.bfloat16, 4e-2)])
@pytest.mark.parametrize("name", OPERATORS)
def test_sixteen_bit_features(name, dtype, tolerance):
    ours, shapes, formula = OPERATORS[name]
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    inputs = [draw(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]
    out = ours(graph, *inputs)
    assert out.dtype == dtype
    close(out, formula(src, dst, *(x.astype(jnp.float32) for x in inputs)),
          tolerance)
    grads = jax.grad(lambda x: ours(graph, *x).astype(jnp.float32).sum())(
        inputs)
    for grad, x in zip(grads, inputs):
        assert grad.dtype == x.dtype
        assert np.isfinite(np.asarray(grad, np.float32)).all()


def test_vmap_runs_one_after_the_other():
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    x = draw(3, 4, M, H, D)
    close(jax.vmap(lambda v: dj.spmm(graph, v))(x),
          jnp.stack([dj.spmm(graph, v) for v in x]))


def test_double_precision_and_training():
    program = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, numpy as np, dfgnn.jax as dj, sys
assert "torch" not in sys.modules
src = np.array([0, 1, 2, 3, 0]); dst = np.array([1, 2, 3, 0, 2])
graph = dj.from_edges(src, dst, 4)
x = jax.random.normal(jax.random.PRNGKey(0), (4, 1, 3), jnp.float64)
f = lambda x: (dj.gt_attention(graph, x, x, x) ** 2).sum()
grad, step = jax.grad(f)(x), 1e-6
assert grad.dtype == jnp.float64
moved = x.at[2, 0, 1].add(step)
assert abs((f(moved) - f(x)) / step - grad[2, 0, 1]) < 1e-5
first = f(x)
for _ in range(20):
    x = x - 0.1 * jax.jit(jax.grad(f))(x)
assert f(x) < first / 2, (f(x), first)
"""
    subprocess.run([sys.executable, "-c", program], check=True,
                   env={**os.environ, "PYTHONPATH":
                        os.pathsep.join(path for path in sys.path if path)})


def test_what_is_wrong_is_named():
    src, dst = edges()
    graph = dj.from_edges(src, dst, N, M)
    with pytest.raises(ValueError, match=r"key must be .*sources, H, D\] = "
                       r"\[9, 2, 5\], got float32\[12, 2, 5\]"):
        dj.gt_attention(graph, draw(0, N, H, D), draw(1, N, H, D),
                        draw(2, M, H, D))
    with pytest.raises(TypeError, match="value must be one of"):
        dj.spmm(graph, jnp.ones((M, H, D), jnp.int32))
    with pytest.raises(ValueError, match="int32 or int64"):
        dj.csr(jnp.zeros(3), jnp.zeros(3, jnp.int32))
    with pytest.raises(ValueError, match="one length"):
        dj.from_edges(src, dst[1:], N, M)
    with pytest.raises(Exception, match="expected 0 .. 2"):
        jax.block_until_ready(dj.spmm(dj.csr(
            jnp.array([0, 9], jnp.int32), jnp.zeros(2, jnp.int32)),
            jnp.ones((1, 1, 1))))
    with pytest.raises(Exception, match="7"):
        jax.block_until_ready(dj.spmm(dj.csr(
            jnp.array([0, 1], jnp.int32), jnp.array([7], jnp.int32)),
            jnp.ones((1, 1, 1))))


def test_the_declarations_are_those_of_the_header(tmp_path):
    """The structs of lib/xla_ffi.h lie as those of xla/ffi/api/c_api.h of this
    JAX do."""
    import shutil
    top = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    include = getattr(ffi, "include_dir", lambda: "")()
    if not shutil.which("cc") or not os.path.exists(
            os.path.join(include, "xla", "ffi", "api", "c_api.h")):
        pytest.skip("no C compiler, or no header of XLA")
    if not os.path.exists(os.path.join(top, "lib", "xla_ffi.h")):
        pytest.skip("no sources of dfgnn")
    pairs = """
xla_buffer.struct_size XLA_FFI_Buffer.struct_size
xla_buffer.type XLA_FFI_Buffer.dtype
xla_buffer.data XLA_FFI_Buffer.data
xla_buffer.rank XLA_FFI_Buffer.rank
xla_buffer.dims XLA_FFI_Buffer.dims
xla_buffers.count XLA_FFI_Args.size
xla_buffers.buffers XLA_FFI_Args.args
xla_buffers.count XLA_FFI_Rets.size
xla_buffers.buffers XLA_FFI_Rets.rets
xla_attributes.count XLA_FFI_Attrs.size
xla_attributes.kinds XLA_FFI_Attrs.types
xla_attributes.names XLA_FFI_Attrs.names
xla_attributes.values XLA_FFI_Attrs.attrs
xla_scalar.type XLA_FFI_Scalar.dtype
xla_scalar.value XLA_FFI_Scalar.value
xla_text.start XLA_FFI_ByteSpan.ptr
xla_text.length XLA_FFI_ByteSpan.len
xla_frame.extensions XLA_FFI_CallFrame.extension_start
xla_frame.api XLA_FFI_CallFrame.api
xla_frame.execution XLA_FFI_CallFrame.ctx
xla_frame.stage XLA_FFI_CallFrame.stage
xla_frame.arguments XLA_FFI_CallFrame.args
xla_frame.results XLA_FFI_CallFrame.rets
xla_frame.attributes XLA_FFI_CallFrame.attrs
xla_api.version XLA_FFI_Api.api_version
xla_api.error_create XLA_FFI_Api.XLA_FFI_Error_Create
xla_api.error_destroy XLA_FFI_Api.XLA_FFI_Error_Destroy
xla_api.stream_get XLA_FFI_Api.XLA_FFI_Stream_Get
xla_api.memory_allocate XLA_FFI_Api.XLA_FFI_DeviceMemory_Allocate
xla_api.memory_free XLA_FFI_Api.XLA_FFI_DeviceMemory_Free
xla_api.ordinal_get XLA_FFI_Api.XLA_FFI_DeviceOrdinal_Get
xla_version.minor XLA_FFI_Api_Version.minor_version
xla_metadata.version XLA_FFI_Metadata.api_version
xla_metadata.traits XLA_FFI_Metadata.traits
xla_metadata_extension.metadata XLA_FFI_Metadata_Extension.metadata
xla_error_arguments.code XLA_FFI_Error_Create_Args.errc
xla_stream_arguments.stream XLA_FFI_Stream_Get_Args.stream
xla_allocate_arguments.data XLA_FFI_DeviceMemory_Allocate_Args.data
xla_free_arguments.data XLA_FFI_DeviceMemory_Free_Args.data
xla_ordinal_arguments.ordinal XLA_FFI_DeviceOrdinal_Get_Args.device_ordinal
""".split()
    lines = ["#include <xla/ffi/api/c_api.h>",
             f'#include "{top}/lib/xla_ffi.h"',
             "typedef struct XLA_FFI_Api_Version XLA_FFI_Api_Version;"]
    for ours, theirs in zip(pairs[::2], pairs[1::2]):
        place = [f"offsetof({{}}{s}, {m})" for s, m in
                 (ours.split("."), theirs.split("."))]
        lines.append(f"_Static_assert({place[0].format('')} == "
                     f"{place[1].format('')}, \"{ours}\");")
    for ours, theirs in (("XLA_S32", "DataType_S32"),
                         ("XLA_S64", "DataType_S64"),
                         ("XLA_U32", "DataType_U32"),
                         ("XLA_F16", "DataType_F16"),
                         ("XLA_F32", "DataType_F32"),
                         ("XLA_F64", "DataType_F64"),
                         ("XLA_BF16", "DataType_BF16"),
                         ("XLA_STAGE_EXECUTE", "ExecutionStage_EXECUTE"),
                         ("XLA_ATTRIBUTE_SCALAR", "AttrType_SCALAR"),
                         ("XLA_ATTRIBUTE_STRING", "AttrType_STRING"),
                         ("XLA_EXTENSION_METADATA", "Extension_Metadata"),
                         ("XLA_UNIMPLEMENTED", "Error_Code_UNIMPLEMENTED"),
                         ("XLA_MAJOR_VERSION", "API_MAJOR")):
        lines.append(f'_Static_assert((int){ours} == (int)XLA_FFI_{theirs}, '
                     f'"{ours}");')
    assert len(lines) > 50
    source = tmp_path / "layout.c"
    source.write_text("\n".join(lines) + "\n")
    subprocess.run(["cc", "-std=c11", "-fsyntax-only", f"-I{include}",
                    str(source)], check=True)
