"""Graphs of JAX arrays, and the custom call that takes them."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np

from .._library import library

try:
    from jax import ffi
except ImportError:  # before 0.4.38
    from jax.extend import ffi

TARGET = "dfgnn_call"
DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16",
           "float64": "f64"}
_MOST = 2 ** 31 - 1


@functools.lru_cache(None)
def register():
    """Makes the handlers known to XLA, once a process."""
    for platform, handler in (("cpu", library().dfgnn_xla_cpu),
                              ("CUDA", library().dfgnn_xla_cuda)):
        ffi.register_ffi_target(TARGET, ffi.pycapsule(handler),
                                 platform=platform)


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
    def tree_unflatten(cls, settings, arrays):
        return cls(*arrays, *settings)

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
    offsets, indices = _vector("offsets", offsets), _vector("indices", indices)
    if not jax.config.jax_enable_x64:
        offsets, indices = _narrow(offsets), _narrow(indices)
    if not offsets.shape[0]:
        raise ValueError("offsets must have one number more than there are "
                         "destinations, got none")
    num_src = offsets.shape[0] - 1 if num_src is None else _count(
        "num_src", num_src)
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
    src, dst = _vector("src", src), _vector("dst", dst)
    if src.shape != dst.shape:
        raise ValueError("src and dst must be vectors of one length, got "
                         f"{described(src)} and {described(dst)}")
    num_dst = _count("num_dst", num_dst)
    num_src = num_dst if num_src is None else _count("num_src", num_src)
    row = np_.where((dst >= 0) & (dst < num_dst), dst, num_dst)
    order = (np.argsort(row, kind="stable") if np_ is np
             else jnp.argsort(row, stable=True)).astype(np_.int32)
    offsets = np_.searchsorted(row[order],
                               np_.arange(num_dst + 1)).astype(np_.int32)
    graph = csr(offsets, _narrow(src)[order], num_src, family=family,
                trusted=trusted)
    graph.edge_order = jnp.asarray(order)
    return graph


def _vector(name, array):
    """The array, if it is a vector of indices."""
    if getattr(array, "ndim", None) != 1 or array.dtype not in (jnp.int32,
                                                                jnp.int64):
        raise ValueError(f"{name} must be a vector of int32 or int64, got "
                         f"{described(array)}")
    return array


def _narrow(array):
    """Indices as int32; those that it cannot hold stay out of range."""
    return array.clip(-1, _MOST).astype(jnp.int32)


def _count(name, number):
    try:
        count = operator.index(number)
    except TypeError:
        count = -1
    if not 0 <= count < _MOST:
        raise ValueError(f"{name} must be a whole number from 0 to "
                         f"{_MOST - 1}, got {number!r}")
    return count


def described(array):
    if not hasattr(array, "dtype"):
        return f"{type(array).__name__} {array!r}"[:200]
    return f"{array.dtype}{list(array.shape)}"
