"""The library's operators as JAX functions, with gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from .. import _abi
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


# For each operator its inputs, and which type they have: the features' own, or
# float32 beside features of 16 bits ("scalar").
_INPUTS = {
    "gt": {"query": "storage", "key": "storage", "value": "storage"},
    "agnn": {"query": "storage", "value": "storage", "beta": "scalar"},
    "gat": {"score_dst": "scalar", "score_src": "scalar", "value": "storage"},
    "gatv2": {"query": "storage", "value": "storage", "att": "storage"},
    "spmm-sum": {"value": "storage"},
    "spmm-mean": {"value": "storage"},
    "spmm-weighted": {"value": "storage", "edge_weight": "scalar"},
}
_SCALAR_GRADIENTS = {"beta", "score_dst", "score_src", "att", "edge_weight"}


def _inputs(op, inputs, dtype):
    return {name: x.astype(dtype if kind == "storage" else _scalar(dtype))
            for (name, kind), x in zip(_INPUTS[op].items(), inputs)}


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _apply(op, settings, graph, inputs):
    return _forward(op, settings, graph, inputs)[0]


def _forward(op, settings, graph, inputs):
    value = inputs[list(_INPUTS[op]).index("value")]
    _, heads, dim = value.shape
    results = {"out": ((graph.num_dst, heads, dim), value.dtype)}
    if not op.startswith("spmm"):
        results["lse"] = ((graph.num_dst, heads), _scalar(value.dtype))
    found = _call(op, "forward", settings, graph, value.dtype, heads, dim,
                  _inputs(op, inputs, value.dtype), results)
    return found["out"], (graph, inputs, found)


def _backward(op, settings, kept, grad_out):
    graph, inputs, found = kept
    dtype, (_, heads, dim) = found["out"].dtype, found["out"].shape
    arguments = _inputs(op, inputs, dtype)
    if not op.startswith("spmm"):
        arguments.update(found)
    elif "edge_weight" not in arguments:
        arguments = {}
    arguments["grad_out"] = grad_out.astype(dtype)
    results = {"grad_" + name:
               (x.shape, _scalar(dtype) if name in _SCALAR_GRADIENTS
                else dtype) for name, x in zip(_INPUTS[op], inputs)}
    grads = _call(op, "backward", settings, graph, dtype, heads, dim,
                  arguments, results)
    if "grad_edge_weight" in grads:  # nothing is written to the padding
        grad = grads["grad_edge_weight"]
        edges = jnp.arange(grad.shape[0])[:, None] < graph.offsets[-1]
        grads["grad_edge_weight"] = jnp.where(edges, grad, 0)
    return None, tuple(grad.astype(x.dtype)
                       for grad, x in zip(grads.values(), inputs))


_apply.defvjp(_forward, _backward)


# ---- operators --------------------------------------------------------------

def _check(graph, **shapes):
    """Raises for an array that has not the expected shape.  N, M and E are the
    graph's sizes; another letter is any number, the same in all shapes."""
    sizes = {"N": graph.num_dst, "M": graph.num_src,
             "E": graph.indices.shape[0]}
    for name, (array, shape) in shapes.items():
        if array.ndim == len(shape):
            for size, letter in zip(array.shape, shape):
                sizes.setdefault(letter, size)
        expected = [sizes.get(letter, letter) for letter in shape]
        if list(array.shape) != expected:
            raise ValueError(
                f"{name} must be [{', '.join(map(str, shape))}] = "
                f"{expected}, got {described(array)}")
        if array.dtype.name not in DTYPES:
            raise TypeError(f"{name} must be one of {sorted(DTYPES)}, got "
                            f"{described(array)}")


def _settings(scale=_abi.SCALE_DEFAULT, slope=0.2, deterministic=True, tf32=False):
    return float(scale), float(slope), bool(deterministic), bool(tf32)


def gt_attention(graph, query, key, value, *, scale=None, tf32=False):
    """Attention with scores ``scale <q_i, k_j>``: query [N, H, D], key and
    value [M, H, D] to [N, H, D].

    scale: 1 / sqrt(D) if not given.
    """
    _check(graph, value=(value, "MHD"), query=(query, "NHD"),
           key=(key, "MHD"))
    settings = (_settings(tf32=tf32) if scale is None
                else _settings(scale=scale, tf32=tf32))
    return _apply("gt", settings, graph, (query, key, value))


def agnn_attention(graph, query, value, beta=1.0):
    """Attention with scores ``beta cos(h_i, h_j)``: query [N, H, D], value
    [M, H, D] to [N, H, D]."""
    _check(graph, value=(value, "MHD"), query=(query, "NHD"))
    beta = jnp.asarray(beta, _scalar(value.dtype)).reshape(1)
    return _apply("agnn", _settings(), graph, (query, value, beta))


def gat_attention(graph, score_dst, score_src, value, *, slope=0.2):
    """Attention with scores ``leaky_relu(a_i + b_j)``: a [N, H], b [M, H],
    value [M, H, D] to [N, H, D]."""
    _check(graph, value=(value, "MHD"), score_dst=(score_dst, "NH"),
           score_src=(score_src, "MH"))
    return _apply("gat", _settings(slope=slope), graph,
                  (score_dst, score_src, value))


def gatv2_attention(graph, query, value, att, *, slope=0.2):
    """Attention with scores ``<att, leaky_relu(x_i + y_j)>``: query x
    [N, H, D], value y [M, H, D], att [H, D] to [N, H, D]."""
    _check(graph, value=(value, "MHD"), query=(query, "NHD"), att=(att, "HD"))
    return _apply("gatv2", _settings(slope=slope), graph, (query, value, att))


def spmm(graph, value, weight=None, *, reduce="sum"):
    """The sum (or mean) over in-neighbours of value [M, D] or [M, H, D],
    weighted by weight [E] or [E, H], which is in the order of the edges that
    the graph was made of."""
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be 'sum' or 'mean', got {reduce!r}")
    flat = value.ndim == 2
    if flat:
        value = value[:, None]
    _check(graph, value=(value, "MHD"))
    if weight is None:
        out = _apply("spmm-" + reduce, _settings(), graph, (value,))
    else:
        if reduce != "sum":
            raise ValueError("a mean takes no weights")
        if weight.ndim == 1:
            weight = jnp.broadcast_to(weight[:, None],
                                      (weight.shape[0], value.shape[1]))
        _check(graph, value=(value, "MHD"), weight=(weight, "EH"))
        if graph.edge_order is not None:
            weight = weight[graph.edge_order]
        out = _apply("spmm-weighted", _settings(), graph, (value, weight))
    return out[:, 0] if flat else out
