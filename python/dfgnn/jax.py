"""dfgnn for JAX: attention and sparse products of graphs, with gradients.

    import dfgnn.jax as dfgnn
    graph = dfgnn.from_edges(src, dst, num_dst)
    out = dfgnn.gt_attention(graph, query, key, value)

Each operator is one custom call of XLA (jax.ffi) into libdfgnn, under jit, grad
and vmap, on the CPU and on NVIDIA GPUs.  Nothing here needs torch.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from . import _abi
from ._library import library

try:
    from jax import ffi as _ffi
except ImportError:  # before 0.4.38
    from jax.extend import ffi as _ffi

__all__ = ["Graph", "agnn_attention", "csr", "from_edges", "gat_attention",
           "gatv2_attention", "gt_attention", "spmm"]

_TARGET = "dfgnn_call"
_DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16",
           "float64": "f64"}


@functools.lru_cache(None)
def _register():
    """Makes the handlers known to XLA, once a process."""
    for platform, handler in (("cpu", library().dfgnn_xla_cpu),
                              ("CUDA", library().dfgnn_xla_cuda)):
        _ffi.register_ffi_target(_TARGET, _ffi.pycapsule(handler),
                                 platform=platform)


# ---- graphs -----------------------------------------------------------------

@jax.tree_util.register_pytree_node_class
class Graph:
    """Edges by destination: ``i`` has the edges ``offsets[i]`` to
    ``offsets[i + 1] - 1``, whose sources are ``indices``.

    It is a pytree of its arrays, so jit takes it as an argument: batches that
    are padded to one shape share one compilation.  :func:`csr` and
    :func:`from_edges` make it.
    """

    def __init__(self, offsets, indices, edge_order, num_src, family,
                 trusted):
        self.offsets, self.indices = offsets, indices
        self.edge_order = edge_order  # caller's number of each edge, or None
        self.num_src, self.family, self.trusted = num_src, family, trusted

    @property
    def num_dst(self):
        return self.offsets.shape[0] - 1

    def tree_flatten(self):
        return ((self.offsets, self.indices, self.edge_order),
                (self.num_src, self.family, self.trusted))

    @classmethod
    def tree_unflatten(cls, kept, arrays):
        return cls(*arrays, *kept)

    def __repr__(self):
        return (f"Graph({self.num_dst} destinations, {self.num_src} sources, "
                f"room for {self.indices.shape[0]} edges)")


def csr(offsets, indices, num_src=None, *, family="", trusted=False):
    """The graph of CSR arrays, int32 or int64.

    Indices beyond ``offsets[-1]`` are padding.
    num_src: how many sources there are; as many as destinations if not given.
    family: a name shared by graphs of one kind, such as the batches of a
        loader, so that they share the choice of a kernel.
    trusted: the arrays are not checked; what is wrong with them is undefined
        behaviour then.
    """
    for name, array in (("offsets", offsets), ("indices", indices)):
        if array.ndim != 1 or array.dtype not in (jnp.int32, jnp.int64):
            raise ValueError(f"{name} must be a vector of int32 or int64, got "
                             f"{_described(array)}")
    num_src = offsets.shape[0] - 1 if num_src is None else int(num_src)
    return Graph(jnp.asarray(offsets), jnp.asarray(indices), None, num_src,
                 family, bool(trusted))


def from_edges(src, dst, num_dst, num_src=None, *, family="", trusted=False):
    """The graph of a list of edges in any order: ``dst[e]`` attends to
    ``src[e]``.

    Edges whose destination is out of range (``num_dst``, say) are padding.
    The other arguments are those of :func:`csr`.  Edges are sorted here: by
    numpy if that is what the arrays are, else as a part of the program.
    """
    np_ = np if isinstance(src, np.ndarray) and isinstance(
        dst, np.ndarray) else jnp
    if src.shape != dst.shape or src.ndim != 1:
        raise ValueError("src and dst must be vectors of one length, got "
                         f"{_described(src)} and {_described(dst)}")
    num_src = num_dst if num_src is None else int(num_src)
    row = np_.where((dst >= 0) & (dst < num_dst), dst, num_dst)
    order = (np.argsort(row, kind="stable") if np_ is np
             else jnp.argsort(row, stable=True)).astype(np_.int32)
    offsets = np_.searchsorted(row[order],
                               np_.arange(num_dst + 1)).astype(np_.int32)
    graph = csr(offsets, src[order].astype(np_.int32), num_src,
                family=family, trusted=trusted)
    graph.edge_order = jnp.asarray(order)
    return graph


def _described(array):
    return f"{array.dtype}{list(array.shape)}"


# ---- the call ---------------------------------------------------------------

def _scalar(dtype):
    return jnp.float64 if dtype == jnp.float64 else jnp.float32


def _call(op, pass_, settings, graph, dtype, heads, dim, arguments, results):
    """The results of a custom call, by name.

    arguments: {name: array}; results: {name: (shape, dtype)}.
    """
    _register()
    scale, slope, deterministic, tf32 = settings
    call = _ffi.ffi_call(
        _TARGET, [jax.ShapeDtypeStruct(*kind) for kind in results.values()],
        vmap_method="sequential")
    found = call(
        graph.offsets, graph.indices, *arguments.values(),
        arguments=",".join(("offsets", "indices", *arguments)),
        results=",".join(results), op=op, dtype=_DTYPES[dtype.name],
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
                f"{expected}, got {_described(array)}")
        if array.dtype.name not in _DTYPES:
            raise TypeError(f"{name} must be one of {sorted(_DTYPES)}, got "
                            f"{_described(array)}")


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
