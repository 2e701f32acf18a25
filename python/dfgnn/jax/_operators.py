"""The library's operators as JAX functions: edge programs, in whose texts the
library finds its operators, with their gradients."""

import jax.numpy as jnp

from ._graph import DTYPES, described
from ._programs import TextProgram

_ATTENTION = "{}\ns = {}\nreturn out = sum_in(softmax_in(s) * value)"
_GT = _ATTENTION.format("dst query[H,D]; src key[H,D], value[H,D]",
                        "{scale!r} * sum(query * key)")
_AGNN = _ATTENTION.format(
    "dst query[H,D]; src value[H,D]; param beta",
    "beta * sum(query * value) * rsqrt(max(sum(query * query), 1e-24))"
    " * rsqrt(max(sum(value * value), 1e-24))")
_GAT = _ATTENTION.format(
    "dst score_dst[H,1]; src score_src[H,1], value[H,D]",
    "leaky_relu(score_dst + score_src, {slope!r})")
_GATV2 = _ATTENTION.format(
    "dst query[H,D]; src value[H,D]; param att[H,D]",
    "sum(att * leaky_relu(query + value, {slope!r}))")
# numbers of a head, which are wider than features of 16 bits
_SCALARS = "beta", "score_dst", "score_src", "weight"


def _run(text, graph, tf32=False, **tensors):
    for name, array in tensors.items():
        if array.dtype.name not in DTYPES:
            raise TypeError(f"{name} must be one of {sorted(DTYPES)}, got "
                            f"{described(array)}")
    kind = tensors["value"].dtype
    exact = jnp.float64 if kind == jnp.float64 else jnp.float32
    return TextProgram(text).run(graph, {
        name: array.astype(exact if name in _SCALARS else kind)
        for name, array in tensors.items()}, kind.name, tf32=tf32)[0]


def gt_attention(graph, query, key, value, *, scale=None, tf32=False):
    """Attention with scores ``scale <q_i, k_j>``: query [N, H, D], key and
    value [M, H, D] to [N, H, D].

    scale: 1 / sqrt(D) if not given.
    """
    scale = value.shape[-1] ** -0.5 if scale is None else float(scale)
    return _run(_GT.format(scale=scale), graph, tf32, query=query, key=key,
                value=value)


def agnn_attention(graph, query, value, beta=1.0):
    """Attention with scores ``beta cos(h_i, h_j)``: query [N, H, D], value
    [M, H, D] to [N, H, D]."""
    beta = jnp.asarray(beta, jnp.result_type(float)).reshape(())
    return _run(_AGNN, graph, query=query, value=value, beta=beta)


def gat_attention(graph, score_dst, score_src, value, *, slope=0.2):
    """Attention with scores ``leaky_relu(a_i + b_j)``: a [N, H], b [M, H],
    value [M, H, D] to [N, H, D]."""
    return _run(_GAT.format(slope=float(slope)), graph, value=value,
                score_dst=score_dst[..., None], score_src=score_src[..., None])


def gatv2_attention(graph, query, value, att, *, slope=0.2):
    """Attention with scores ``<att, leaky_relu(x_i + y_j)>``: query x
    [N, H, D], value y [M, H, D], att [H, D] to [N, H, D]."""
    return _run(_GATV2.format(slope=float(slope)), graph, query=query,
                value=value, att=att)


def spmm(graph, value, weight=None, *, reduce="sum"):
    """The sum (or mean) over in-neighbours of value [M, D] or [M, H, D],
    weighted by weight [E] or [E, H], which is in the order of the edges that
    the graph was made of."""
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce must be 'sum' or 'mean', got {reduce!r}")
    if weight is not None and reduce != "sum":
        raise ValueError("a mean takes no weights")
    flat = value.ndim == 2
    value = value[:, None] if flat else value
    if weight is None:
        out = _run(f"src value[H,D]\nreturn out = {reduce}_in(value)", graph,
                   value=value)
    else:
        weight = weight[:, None] if weight.ndim == 1 else weight
        weight = jnp.broadcast_to(weight, (len(weight), value.shape[1]))
        out = _run("src value[H,D]; edge weight[H,1]\n"
                   "return out = sum_in(weight * value)", graph, value=value,
                   weight=weight[..., None])
    return out[:, 0] if flat else out
