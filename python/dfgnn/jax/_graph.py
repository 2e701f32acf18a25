"""Graphs of JAX arrays, and the custom call that takes them."""

import functools

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
                             f"{described(array)}")
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
                         f"{described(src)} and {described(dst)}")
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


def described(array):
    return f"{array.dtype}{list(array.shape)}"
