"""The sums of DGL's messages by kernels: one adapter at the function that
update_all() and dgl.ops end in, gspmm.

It serves the calls that layers with kernels make.  What has no kernel is DGL's
own: scores of edges (gsddmm), edge_softmax, messages that are sums, and products
feature by feature.  The guard of a layer finds out which is faster.
"""

import contextlib
import importlib
import threading

import torch

from ... import _fallbacks
from ..._checks import DTYPES
from ..._modes import autocast_dtype, compiling
from ...aggregation import aggregate, reduce_edges, spmm
from ...convert import as_graph
from ..._remember import note_graph
from ...errors import InvalidError, UnsupportedError
from .._node import PLAIN_TENSORS, Other, surroundings

_calls = threading.local()
_installed = False


@contextlib.contextmanager
def kernels(layer):
    """Within it the messages of this thread are those of a layer."""
    before, _calls.layer = getattr(_calls, "layer", None), layer
    try:
        yield
    finally:
        _calls.layer = before


def install():
    """Puts the adapter before DGL's gspmm, once for a process."""
    global _installed
    if _installed:
        return
    _installed = True
    spmm_of_dgl = importlib.import_module("dgl.ops.spmm")
    index = importlib.import_module("dgl.heterograph_index").HeteroGraphIndex
    spmm_of_dgl.gspmm_internal = _adapter(spmm_of_dgl.gspmm_internal)
    index.get_relation_graph = _relations(index.get_relation_graph)


def _adapter(original):
    def gspmm(gidx, op, reduce_op, lhs, rhs):
        layer = getattr(_calls, "layer", None)
        if layer is not None and _has_kernels(op, reduce_op, rhs) and \
                not compiling():
            try:
                return _summed(gidx, op, reduce_op, lhs, rhs)
            except (Other, InvalidError, UnsupportedError) as reason:
                _fallbacks.note(layer, str(reason) or "its tensors are no "
                                "plain ones with a row for each node or edge")
        return original(gidx, op, reduce_op, lhs, rhs)
    return gspmm


def _relations(original):
    """get_relation_graph() of a graph, which DGL makes anew in each call: the
    kernels' graph is kept with it."""
    def get_relation_graph(self, etype):
        if getattr(_calls, "layer", None) is None:
            return original(self, etype)
        graphs = self._cache.setdefault("dfgnn relations", {})
        if etype not in graphs:
            graphs[etype] = original(self, etype)
        return graphs[etype]
    return get_relation_graph


def _has_kernels(op, reduce, rhs):
    """Whether kernels have such messages: sources as they are, times a weight
    of the edge or of a head, or messages that are there for each edge."""
    if op == "mul":
        return reduce == "sum" and (rhs.size(-1) == 1 or rhs.dim() == 1)
    return op in ("copy_lhs", "copy_rhs")


def _summed(gidx, op, reduce, lhs, rhs):
    """The result of DGL's gspmm: out_i = the sum, max or min over in-edges of
    lhs_j, lhs_j times rhs_e, or rhs_e."""
    reason = surroundings()
    if reason is not None:
        raise Other(reason)
    first = rhs if lhs is None else lhs
    kind = autocast_dtype(first.device.type)
    if kind is None:
        return _served(gidx, op, reduce, lhs, rhs)
    if first.is_cuda:  # as DGL has it
        lhs, rhs = (None if t is None else t.to(kind) for t in (lhs, rhs))
    with torch.autocast(first.device.type, enabled=False):
        return _served(gidx, op, reduce, lhs, rhs)


def _served(gidx, op, reduce, lhs, rhs):
    first = rhs if lhs is None else lhs
    for t in (lhs, rhs):
        if t is not None and (
                type(t) not in PLAIN_TENSORS or t.dtype != first.dtype
                or t.device != first.device or not t.numel()):
            raise Other
    if first.dtype not in DTYPES:
        raise Other
    if op == "copy_lhs":
        return _of_sources(gidx, reduce, lhs)
    if op == "mul":
        return _weighted(gidx, lhs, rhs)
    return _of_edges(gidx, reduce, rhs)


def graph_of(gidx, x, rows):
    """The Graph of a graph index of one relation; x has its rows."""
    graph = gidx._cache.get("dfgnn graph")
    if graph is None:
        try:
            graph = gidx._cache["dfgnn graph"] = as_graph(gidx)
        except Exception as error:  # such as a graph restricted to one format
            raise Other(str(error)) from error
    note_graph(graph)
    if graph.empty or graph.device != x.device or \
            getattr(graph, rows) != x.size(0):
        raise Other
    return graph


def _of_sources(gidx, reduce, x):
    graph = graph_of(gidx, x, "num_src")
    rows = x if x.dim() == 2 else x.reshape(x.size(0), -1)
    out = spmm(graph, rows) if reduce == "sum" else _with_infinities(
        graph, aggregate(graph, rows, reduce), reduce)
    return out if x.dim() == 2 else out.view(-1, *x.shape[1:])


def without_edges(graph):
    """[N] which destinations have no edges; found once for each graph."""
    return graph._derive("isolated", lambda: graph.degrees == 0)


def _with_infinities(graph, out, reduce):
    """Extremes as DGL's kernels have them: those of no edges are infinite, which
    update_all() makes zero and dgl.ops does not."""
    return out.masked_fill(without_edges(graph).view(-1, 1),
                           float("inf" if reduce == "min" else "-inf"))


def _weighted(gidx, x, weight):
    """Weights [E, ..., 1, ..., 1] of features [N, ..., features]."""
    split = x.dim()
    while split > 1 and weight.size(split - 1) == 1:
        split -= 1
    if x.dim() != weight.dim() or split == x.dim() > 1 or \
            x.shape[1:split] != weight.shape[1:split]:
        raise Other
    graph = graph_of(gidx, x, "num_src")
    if weight.size(0) != graph.num_edges:
        raise Other
    if x.dim() == 2:
        return spmm(graph, x, weight)
    weight = weight.reshape(weight.size(0), -1)
    out = spmm(graph, x.reshape(x.size(0), weight.size(1), -1), weight)
    return out.view(-1, *x.shape[1:])


def _of_edges(gidx, reduce, x):
    graph = graph_of(gidx, x, "num_edges")
    out = reduce_edges(graph, x.reshape(x.size(0), -1), reduce)
    if reduce != "sum":
        out = _with_infinities(graph, out, reduce)
    return out.view(-1, *x.shape[1:])
