"""The library's operators as JAX functions, with gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi
from .._table import OPERATORS
from ._graph import DTYPES, TARGET, described, ffi, register


def _scalar(dtype):
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def _call(op, pass_, settings, graph, dtype, heads, dim, arguments, results):
    """The results of a custom call, by name.

    arguments: {name: array}; results: {name: (shape, dtype)}.
    """
    register()
    scale, slope, deterministic, tf32 = settings
    call = ffi.ffi_call(
        TARGET, [jax.ShapeDtypeStruct(*kind) for kind in results.values()],
        vmap_method="sequential")
    found = call(
        graph.offsets, graph.indices, *arguments.values(),
        arguments=",".join(("offsets", "indices", *arguments)),
        results=",".join(results), op=op, dtype=DTYPES[dtype.name],
        heads=np.int64(heads), dim=np.int64(dim),
        sources=np.int64(graph.num_src), family=graph.family,
        scale=np.float64(scale), slope=np.float64(slope),
        deterministic=np.int64(deterministic), tf32=np.int64(tf32),
        trusted=np.int64(graph.trusted), **{"pass": pass_})
    return dict(zip(results, found))


def _typed(tensor, dtype):
    """The type of a tensor of the table beside features of dtype."""
    return _scalar(dtype) if tensor.scalar else dtype


def _inputs(spec, inputs, dtype):
    return {t.field: x.astype(_typed(t, dtype))
            for t, x in zip(spec.inputs, inputs)}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _apply(op, settings, graph, inputs):
    return _forward(op, settings, graph, inputs)[0]


def _forward(op, settings, graph, inputs):
    """inputs: the first of the operator's table."""
    spec = OPERATORS[op]
    value = inputs[spec.value]
    _, heads, dim = value.shape
    sizes = {"N": graph.num_dst, "H": heads, "D": dim}
    results = {t.field: (tuple(sizes[d] for d in t.dims),
                         _typed(t, value.dtype))
               for t in spec.outs if t.flag == "none"}
    found = _call(op, "forward", settings, graph, value.dtype, heads, dim,
                  _inputs(spec, inputs, value.dtype), results)
    return found["out"], (graph, inputs, found)


def _backward(op, settings, kept, grad_out):
    graph, inputs, found = kept
    spec = OPERATORS[op]
    dtype, (_, heads, dim) = found["out"].dtype, found["out"].shape
    given = {**_inputs(spec, inputs, dtype), **found,
             "grad_out": grad_out.astype(dtype)}
    arguments = {t.field: given[t.field] for t in spec.backward
                 if t.flag == "none" and t.field in given}
    shapes = {"grad_" + t.field: x.shape for t, x in zip(spec.inputs, inputs)}
    grads = _call(op, "backward", settings, graph, dtype, heads, dim,
                  arguments, {
                      t.field: (shapes[t.field], _typed(t, dtype))
                      for t in spec.backward if t.field in shapes})
    if "grad_edge_weight" in grads:  # nothing is written to the padding
        grad = grads["grad_edge_weight"]
        edges = jnp.arange(grad.shape[0])[:, None] < graph.offsets[-1]
        grads["grad_edge_weight"] = jnp.where(edges, grad, 0)
    return None, tuple(grads[name].astype(x.dtype)
                       for name, x in zip(shapes, inputs))


_apply.defvjp(_forward, _backward)


# ---- operators --------------------------------------------------------------

def _run(op, settings, graph, **given):
    """The result of an operator, whose inputs are given by field, after their
    checks: N, M and E are the graph's sizes, another letter of a shape is any
    number, the same in all shapes."""
    spec = OPERATORS[op]
    sizes = {"N": graph.num_dst, "M": graph.num_src,
             "E": graph.indices.shape[0], "1": 1}
    for t in sorted(spec.inputs, key=lambda t: t.field != "value"):
        array = given.get(t.field)
        if array is None:
            continue
        if array.ndim == len(t.dims):
            for size, letter in zip(array.shape, t.dims):
                sizes.setdefault(letter, size)
        expected = [sizes.get(letter, letter) for letter in t.dims]
        name = "weight" if t.field == "edge_weight" else t.field
        if list(array.shape) != expected:
            raise ValueError(
                f"{name} must be [{', '.join(t.dims)}] = {expected}, got "
                f"{described(array)}")
        if array.dtype.name not in DTYPES:
            raise TypeError(f"{name} must be one of {sorted(DTYPES)}, got "
                            f"{described(array)}")
    return _apply(op, settings, graph, tuple(spec.given(given)))


def _settings(scale=_abi.SCALE_DEFAULT, slope=0.2, deterministic=True, tf32=False):
    return float(scale), float(slope), bool(deterministic), bool(tf32)


def gt_attention(graph, query, key, value, *, scale=None, tf32=False):
    """Attention with scores ``scale <q_i, k_j>``: query [N, H, D], key and
    value [M, H, D] to [N, H, D].

    scale: 1 / sqrt(D) if not given.
    """
    settings = (_settings(tf32=tf32) if scale is None
                else _settings(scale=scale, tf32=tf32))
    return _run("gt", settings, graph, query=query, key=key, value=value)


def agnn_attention(graph, query, value, beta=1.0):
    """Attention with scores ``beta cos(h_i, h_j)``: query [N, H, D], value
    [M, H, D] to [N, H, D]."""
    beta = jnp.asarray(beta, _scalar(value.dtype)).reshape(1)
    return _run("agnn", _settings(), graph, query=query, value=value,
                beta=beta)


def gat_attention(graph, score_dst, score_src, value, *, slope=0.2):
    """Attention with scores ``leaky_relu(a_i + b_j)``: a [N, H], b [M, H],
    value [M, H, D] to [N, H, D]."""
    return _run("gat", _settings(slope=slope), graph, score_dst=score_dst,
                score_src=score_src, value=value)


def gatv2_attention(graph, query, value, att, *, slope=0.2):
    """Attention with scores ``<att, leaky_relu(x_i + y_j)>``: query x
    [N, H, D], value y [M, H, D], att [H, D] to [N, H, D]."""
    return _run("gatv2", _settings(slope=slope), graph, query=query,
                value=value, att=att)


def spmm(graph, value, weight=None, *, reduce="sum"):
    """The sum (or mean) over in-neighbours of value [M, D] or [M, H, D],
    weighted by weight [E] or [E, H], which is in the order of the edges that
    the graph was made of."""
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be 'sum' or 'mean', got {reduce!r}")
    flat = value.ndim == 2
    if flat:
        value = value[:, None]
    if weight is None:
        out = _run("spmm-" + reduce, _settings(), graph, value=value)
    else:
        if reduce != "sum":
            raise ValueError("a mean takes no weights")
        if weight.ndim == 1:
            weight = jnp.broadcast_to(weight[:, None],
                                      (weight.shape[0], value.shape[1]))
        if graph.edge_order is not None:
            weight = weight[graph.edge_order]
        out = _run("spmm-weighted", _settings(), graph, value=value,
                   edge_weight=weight)
    return out[:, 0] if flat else out
