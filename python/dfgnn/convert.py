"""Graphs from whatever describes one: edge lists, matrices, PyG and DGL, files
and generators."""

import ctypes
from typing import Any

import torch

from . import _abi, _library, _remember
from ._checks import check_count, check_index, describe
from ._handle import TORCH_TYPES, view
from ._library import check, library
from ._modes import jit_tracing, torchs_cuda_graphs, untraced, unwrapped
from ._remember import keep, kept, note
from .graph import Graph, _host_ptr, _sizes

GRAPHS = "graphs"
"""The key of the graphs of edges, by key_of(), among what is kept with them."""
_NONE: dict[tuple, Any] = {}
_SPARSE = {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc}


def as_graph(edges, num_nodes=None, *, graph_ptr=None,
             family: str | None = None, name: str | None = None,
             sorted: bool = False, trusted: bool = False,
             columns=None) -> Graph:
    """The :class:`Graph` of

    - a Graph: itself;
    - an ``edge_index`` [2, E], or PyG's EdgeIndex: row 0 sources, row 1
      destinations.  The graph is kept for as long as the tensor lives and is
      not written to, so that a training loop builds it once;
    - PyG's Data or Batch: its edge_index, num_nodes and ptr;
    - a DGL graph or block: its in-edges (CSC), kept with it;
    - CSR tensors (offsets, indices) or (offsets, indices, edge_order) by
      destination;
    - a sparse matrix of SciPy, torch or torch_sparse whose rows are
      destinations (PyG's ``adj_t``).  Its values are no part of the graph:
      layers and spmm() use them as edge weights where they are given the
      matrix itself, and refuse them where they have no use for them.

    num_nodes: an int, or (sources, destinations); of an edge_index, by default
        the largest node plus one.
    graph_ptr, family, name: see :class:`Graph`.
    sorted: the destinations of an edge_index never fall, as a sampler gives
        them.  On a GPU nothing waits then: a fault of the list is raised by
        the first call that needs to know.
    trusted: nothing is checked.  A node out of range, or a list that is not
        sorted as was said, is then undefined behaviour, that is, a crash or
        wrong numbers.
    columns: of CSR tensors, the same edges by source, see :class:`Graph`.
    """
    if isinstance(edges, Graph):
        return edges
    return _made(edges, num_nodes, sorted, columns, dict(
        graph_ptr=graph_ptr, family=family, name=name, trusted=trusted))


@untraced
def _made(edges, num_nodes, sorted, columns, options):
    if isinstance(edges, (tuple, list)) and 2 <= len(edges) <= 3:
        order = edges[2] if len(edges) == 3 else None
        graph = Graph(
            edges[0], edges[1], num_nodes[0] if isinstance(
                num_nodes, (tuple, list)) else num_nodes,
            edge_order=order, columns=columns, **options)
        _check_destinations(num_nodes, graph)
        return graph
    if columns is not None:
        raise TypeError("columns go with CSR tensors, not with "
                        + describe(edges))
    if isinstance(edges, torch.Tensor):
        return _from_tensor(edges, num_nodes, options, sorted)
    # the nodes of a HeteroGraph's edge_index are numbered by type
    if hasattr(edges, "edge_index") and not hasattr(
            edges, "edges_by_relation"):
        return _from_data(edges, num_nodes, options, sorted)
    for attribute, make in (("adj_tensors", _from_dgl),
                            ("adjacency_matrix_tensors", _from_dgl_index),
                            ("sparse_sizes", _from_torch_sparse),
                            ("tocsr", _from_scipy)):
        if hasattr(edges, attribute):
            return make(edges, num_nodes, options)
    raise TypeError(
        "a graph must be a dfgnn.Graph, an edge_index tensor, CSR tensors, a "
        "sparse matrix, or a graph of PyG or DGL, got " + describe(edges))


def of_sizes(edges, sizes):
    """as_graph() of a call, where an edge_index has as many nodes as sizes(),
    (sources, destinations), says by the rows of the call's tensors."""
    if isinstance(edges, torch.Tensor) and edges.layout == torch.strided:
        return as_graph(edges, sizes())
    return as_graph(edges)


def known_graph(edges, num_nodes, loops=False):
    """The graph of an edge_index that as_graph(edges, num_nodes), or
    looped_graph(), made before; None if neither did.  A training loop asks for
    it in each call."""
    things = kept(edges)
    if things is None:
        return None
    if _remember.current is not None:
        note(edges)
    return things.get(GRAPHS, _NONE).get((num_nodes, None, None, loops))


def looped_graph(edges, num_nodes=None, loops=True):
    """as_graph(edges, num_nodes).with_self_loops(); the graph without loops is
    not made of an edge_index.  loops: False is as_graph(edges, num_nodes).
    Checks of an edge_index are deferred, as layers have it."""
    if type(edges) is torch.Tensor and edges.layout is torch.strided and \
            not jit_tracing():
        edges = unwrapped(edges)
        options = dict(graph_ptr=None, family=None, name=None, loops=loops)
        return _kept(edges, num_nodes, options, lambda: Graph.from_edge_index(
            edges, num_nodes, self_loops=loops, deferred=True))
    graph = as_graph(edges, num_nodes)
    return graph.with_self_loops() if loops else graph


def is_edge_index(edges):
    """Whether a plain tensor is an edge_index."""
    return edges.dtype in (torch.int64, torch.int32) and edges.dim() == 2 \
        and edges.size(0) == 2 and edges.layout is torch.strided \
        and edges.device.type in ("cpu", "cuda")


def batch_graph(edges, sizes, loops):
    """looped_graph() in few steps, for what is_edge_index(), and known_graph()
    does not know: the caller has found that no mode of torch is at work that
    hides its memory."""
    if GRAPHS in (kept(edges) or ()) or _library.extension is None or \
            _remember.current is not None or \
            torch.is_inference_mode_enabled() or edges.is_inference() or \
            torchs_cuda_graphs():
        return looped_graph(edges, sizes, loops)
    graph = Graph.of_batch(edges, sizes, loops)
    keep(edges)[GRAPHS] = {key_of(sizes, loops=loops): graph}
    return graph


def _check_destinations(num_nodes, graph):
    if not isinstance(num_nodes, (tuple, list)) or num_nodes[1] is None:
        return
    if check_count("num_nodes", num_nodes[1]) != graph.num_dst:
        raise ValueError(f"num_nodes says {num_nodes[1]} destinations, but "
                         f"offsets are of {graph.num_dst}")


def _from_tensor(edges, num_nodes, options, sorted):
    edges = unwrapped(edges)
    if edges.layout in _SPARSE:
        return _kept(edges, None, options,
                     lambda: _from_torch(edges, options))
    if jit_tracing():
        return JitGraph(edges, *_sizes(edges, num_nodes))
    return _kept(edges, num_nodes, options,
                 lambda: _make(edges, num_nodes, options, sorted))


def _kept(owner, num_nodes, options, make):
    """The graph that is kept of owner, unless owner is a tensor that was
    written to since; otherwise the graph of make(), kept if it can be."""
    graphs = None
    if options["graph_ptr"] is None and owner is not None:
        graphs = _graphs_of(owner)
    if graphs is None:
        return make()
    key = key_of(num_nodes, options["family"], options["name"],
                 options.get("loops", False))
    graph = graphs.get(key)
    if graph is not None:
        return graph.numbered()
    if hasattr(graphs, "make"):  # of a buffer that dfgnn.capture refills
        return graphs.make(key, num_nodes, options.get("loops", False))
    new, recorded = None, _remember.current
    if recorded is not None and recorded.graph_of_own is not None and \
            type(owner) is torch.Tensor and owner.layout is torch.strided and \
            key == key_of(num_nodes):
        new = recorded.graph_of_own(owner, _sizes(owner, num_nodes))
    graphs[key] = make() if new is None else new
    return graphs[key]


def key_of(num_nodes, family=None, name=None, loops=False):
    """The key of a graph among those of its edges."""
    return (tuple(num_nodes) if isinstance(num_nodes, list) else num_nodes,
            family, name, loops)


def forget(edges):
    """Lets graphs of a tensor be made anew."""
    (kept(edges) or {}).pop(GRAPHS, None)


def rooms_of(edges):
    """The graphs of an edge_index that has room in a captured step, with its
    buffer; None of others."""
    graphs = (kept(edges) or {}).get(GRAPHS)
    return graphs if hasattr(graphs, "relations") else None


def graphs_of(edges):
    """The graphs that were made of an edge_index as it is now."""
    return [g for g in (kept(edges) or {}).get(GRAPHS, _NONE).values()
            if isinstance(g, Graph)]


def _graphs_of(owner):
    """The graphs made of this very object with this very content; None if they
    cannot be kept: writes to the object are not counted, or it takes no weak
    reference."""
    if isinstance(owner, torch.Tensor):
        if owner.is_inference():
            return None
        note(owner)
    try:
        return keep(owner).setdefault(GRAPHS, {})
    except TypeError:
        return None


def _make(edges, num_nodes, options, sorted):
    if hasattr(edges, "sparse_size"):  # PyG's EdgeIndex
        num_nodes = edges.sparse_size() if num_nodes is None else num_nodes
        edges = edges.as_tensor()
    return Graph.from_edge_index(edges, num_nodes, sorted=sorted, **options)


def _from_torch(matrix, options):
    if matrix.layout == torch.sparse_csr:
        return Graph(matrix.crow_indices(), matrix.col_indices(),
                     matrix.size(1), **options)
    if matrix.layout == torch.sparse_coo:
        rows, columns = matrix.coalesce().indices()
    else:
        columns = torch.arange(matrix.size(1), device=matrix.device)
        columns = columns.repeat_interleave(matrix.ccol_indices().diff())
        rows = matrix.row_indices()
    return Graph.from_edge_index(
        torch.stack([columns.to(rows.dtype), rows]),
        (matrix.size(1), matrix.size(0)), **options)


def _from_data(data, num_nodes, options, sorted):
    edges = data.edge_index
    if edges is None:
        edges = getattr(data, "adj_t", None)
    if num_nodes is None:
        num_nodes = data.num_nodes
    if options["graph_ptr"] is None:
        options["graph_ptr"] = _host_ptr(getattr(data, "ptr", None))
    return as_graph(edges, num_nodes, sorted=sorted, **options)


def _from_dgl(graph, num_nodes, options):
    # DGL replaces _graph whenever edges or nodes change, and shares it between
    # graphs that have the same ones
    def make():
        ptr = options["graph_ptr"]
        if ptr is None and graph.batch_size > 1:
            counts = graph.batch_num_nodes().cpu()
            ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return _of_dgl_index(graph._graph, dict(options, graph_ptr=ptr))
    return _kept(graph._graph, graph.batch_size, options, make)


def _from_dgl_index(index, num_nodes, options):
    """The graph of DGL's own structure of one relation; the kept one of a
    batch serves, too."""
    kept = _graphs_of(index)
    if kept:
        return next(iter(kept.values()))
    return _kept(index, 1, options, lambda: _of_dgl_index(index, options))


def _of_dgl_index(index, options):
    _, num_src, offsets, indices, order = index.adjacency_matrix_tensors(
        0, True, "csr")
    if order.numel() == 0 and indices.numel():
        order = None  # the edges are in this order
    return Graph(offsets, indices, num_src, edge_order=order,
                 **dict(options, trusted=True))


def _from_torch_sparse(matrix, num_nodes, options):
    def make():
        offsets, indices, _ = matrix.csr()
        return Graph(offsets, indices, matrix.size(1), **options)
    return _kept(getattr(matrix, "storage", None), None, options,
                 make)


def _from_scipy(matrix, num_nodes, options):
    matrix = matrix.tocsr()
    return Graph(torch.from_numpy(matrix.indptr),
                 torch.from_numpy(matrix.indices), matrix.shape[1], **options)


def _copied(pointer, count, kind):
    return view(pointer, count, TORCH_TYPES[kind], torch.device("cpu")).clone()


def _graph_of(make, text, family):
    """The Graph of what a function of the library makes of a text."""
    pointer = ctypes.POINTER(_abi.Csr)()
    check(make(ctypes.byref(pointer), text.encode()))
    try:
        csr = pointer.contents
        graph_ptr = None
        if csr.graph_ptr:
            graph_ptr = _copied(csr.graph_ptr, csr.graphs + 1, _abi.INDEX_I64)
        return Graph(
            _copied(csr.offsets, csr.destinations + 1, csr.offset_type),
            _copied(csr.indices, csr.edges, csr.index_type), csr.sources,
            graph_ptr=graph_ptr, family=family,
            name=csr.name.decode() if csr.name else None)
    finally:
        library().dfgnn_csr_free(pointer)


def generate(spec, family=None):
    """The Graph of a specification such as "sbm-pattern:batch=256,seed=1";
    dfgnn-graph(1) lists the kinds."""
    return _graph_of(library().dfgnn_csr_generate, spec, family)


def read(path, family=None):
    """The Graph of a file in one of the formats dfgnn-graph(1) names."""
    return _graph_of(library().dfgnn_csr_read, str(path), family)


# ---- what torch.jit.trace records --------------------------------------------

class JitGraph(Graph):
    """The interface of Graph over an edge_index that torch.jit.trace takes as
    an input, by torch operations: nothing of it is in the library or kept."""

    def __init__(self, edge_index, num_src, num_dst):
        check_index("edge_index", edge_index, 2)
        self.edge_index = edge_index
        self.num_src, self.num_dst = num_src, num_dst
        self._edges = edge_index.size(1)
        self.device = edge_index.device

    def _derive(self, key, make):
        return make()

    @property
    def handle(self):
        raise RuntimeError("torch.jit.trace records torch operations; this "
                           "call needs a graph of libdfgnn")

    edge_order = edge_index = kept = None

    @property
    def src(self):
        return self.edge_index[0].long()

    @property
    def dst(self):
        return self.edge_index[1].long()

    @property
    def degrees(self):
        dst = self.dst
        return dst.new_zeros(self.num_dst).index_add(
            0, dst, torch.ones_like(dst))

    def with_self_loops(self):
        if self.looped is None:
            edges, count = self.edge_index, min(self.num_src, self.num_dst)
            kept = (edges[0] != edges[1]).nonzero().view(-1)
            loops = torch.arange(count, dtype=edges.dtype, device=edges.device)
            self.looped = JitGraph(torch.cat([
                edges.index_select(1, kept), loops.expand(2, count)], 1),
                self.num_src, self.num_dst)
            self.looped.kept, self.looped.loops = kept, count
            self.looped.unlooped_edges = self.num_edges
        return self.looped
