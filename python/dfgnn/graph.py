"""Graph: the edges of a layer, in the form the kernels read."""

import itertools
import threading
import weakref

import torch

from . import _device, _handle
from ._checks import (
    check_columns, check_count, check_index, check_order, describe)
from ._graph_edges import Edges
from ._library import library
from ._modes import compiling, constant, lasting, unwrapped
from ._remember import stamp
from ._values import adjacency_values  # noqa: F401 - part of this module

made = 0  # how many graphs there have been
_ids = itertools.count(1)
_registry: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_handle_lock = threading.RLock()


def _detached(tensor):
    tensor = tensor.detach().contiguous()
    return tensor.clone() if tensor.is_inference() else tensor


def _host_ptr(graph_ptr):
    if graph_ptr is None:
        return None
    return torch.as_tensor(graph_ptr).to("cpu", torch.int64).contiguous()


class Graph(Edges):
    """Edges from sources to destinations, by destination (CSR).

    :func:`as_graph` makes one of whatever describes it.  ``Graph(offsets,
    indices)`` is its way for CSR tensors: destination ``i`` has the edges
    ``offsets[i]`` to ``offsets[i + 1] - 1``, whose sources are ``indices``.
    A graph lives on the device of its tensors, which must not change while it
    lives.

    num_src: how many sources there are; as many as destinations if not given.
    edge_order: the caller's number of each edge, if the caller has the edges
        in another order: edge features and attention weights are in that
        order.
    graph_ptr: the first node of each graph of a batch, [graphs + 1].
    family: a name shared by graphs of one kind, such as the mini-batches of a
        data loader, so that they share their measurements.
    name: a label kept with measurements.
    trusted: the arrays are taken as they are.  Nothing is checked: offsets
        that fall or a source out of range are then undefined behaviour, that
        is, a crash or wrong numbers.
    columns: (offsets, destinations, edges), the same edges by source, if they
        are known: source ``j`` has the edges ``edges[k]`` of the graph, into
        ``destinations[k]``, for ``k`` from ``offsets[j]`` to
        ``offsets[j + 1] - 1``, by rising edge.  Backward passes read them;
        what is not given is made when the first one runs.  On a GPU they are
        taken with trusted only.
    """

    exchange = None  # a DistGraph's Exchange with other ranks
    # [E] int64, in the graph's own order: the number that dropout draws by, so
    # that a part drops the edges that the whole graph drops; None: an edge's
    # position
    edge_number = None

    def __init__(self, offsets, indices, num_src=None, *, edge_order=None,
                 graph_ptr=None, family=None, name=None, trusted=False,
                 columns=None, _order_is_sound=False):
        offsets, indices, edge_order = map(unwrapped, (
            offsets, indices, edge_order))
        lasting(lambda: self._set_up(offsets, indices, num_src, edge_order,
                                     graph_ptr, family, name, trusted,
                                     columns, _order_is_sound or trusted))

    def _set_up(self, offsets, indices, num_src, edge_order, graph_ptr,
                family, name, trusted, columns, order_is_sound):
        check_index("offsets", offsets)
        check_index("indices", indices)
        if offsets.numel() < 1:
            raise ValueError("offsets must have one element more than there "
                             "are destinations, got " + describe(offsets))
        if indices.device != offsets.device:
            raise ValueError(
                f"offsets are on {offsets.device}, indices on "
                f"{indices.device}; both must be on one device")
        num_dst = offsets.numel() - 1
        num_src = num_dst if num_src is None else check_count(
            "num_src", num_src)
        if edge_order is not None:
            check_index("edge_order", edge_order)
            if (edge_order.numel() != indices.numel()
                    or edge_order.device != indices.device):
                raise ValueError(
                    f"edge_order must have {indices.numel()} elements on "
                    f"{indices.device}, got " + describe(edge_order))
            if not order_is_sound:
                check_order(edge_order)
            edge_order = _detached(edge_order)
        if columns is not None:
            columns = tuple(map(_detached, check_columns(
                columns, indices, num_src)))
        self._arrays = _detached(offsets), _detached(indices), edge_order
        self.trusted, self._columns = bool(trusted), columns
        self._fill((num_dst, num_src, indices.numel()), indices.device,
                   _host_ptr(graph_ptr), family, name)
        self._handle = self._make_handle()

    _arrays = None  # (offsets, indices, edge order), once they are asked for
    _columns = None
    _edge_list = None  # (weak reference to an edge_index, its version)
    trusted = False
    _edges = None  # how many edges there are, once that is known
    graph_ptr = family = name = _handle = None
    id = None  # the number that it has since numbered()

    def _fill(self, sizes, device, graph_ptr=None, family=None, name=None,
              numbered=True):
        global made
        made += 1
        self.num_dst, self.num_src, self._edges = sizes
        self.device = device
        if graph_ptr is not None:
            self.graph_ptr = graph_ptr
        if family is not None:
            self.family = family
        if name is not None:
            self.name = name
        self._derived = {}
        if numbered:
            self.numbered()

    @property
    def num_edges(self):
        """How many edges there are.  Where the library has replaced self loops
        it is asked, once, which may wait for the device."""
        if self.loops is not None and compiling():
            _make(self.label, "_count")
        else:
            self._count()
        return self._edges

    def _count(self):
        if self._edges is None:
            self._edges = _handle.edges(self.handle)

    @property
    def empty(self):
        """Whether there are no edges."""
        return not (self.loops or self.num_edges)

    def numbered(self):
        """The graph itself, which operators of torch.library find by its
        number from then on."""
        if self.id is None:
            self.id = next(_ids)
            _registry[self.id] = self
        return self

    @property
    def label(self):
        return str(self.id)

    @classmethod
    def from_edge_index(cls, edge_index, num_nodes=None, *, graph_ptr=None,
                        family=None, name=None, sorted=False, trusted=False,
                        self_loops=False, deferred=False):
        """dfgnn.as_graph() of an edge_index, made anew in each call.

        self_loops: the graph that :meth:`with_self_loops` would make of it.
        deferred: on a GPU nothing waits for the checks of at most 2^18 edges.
            The next call after an edge was found to be out of range raises an
            error.
        """
        edge_index = unwrapped(edge_index)
        check_index("edge_index", edge_index, 2)
        if edge_index.size(0) != 2:
            raise ValueError("edge_index must be [2, edges], got "
                             + describe(edge_index))

        def make():
            sizes = _sizes(edge_index, num_nodes)
            ptr = _host_ptr(graph_ptr)
            handle = _handle.from_coo(edge_index, *sizes, ptr, family, name,
                                      sorted, trusted, self_loops, deferred)
            return cls._of_list(handle, edge_index, sizes, self_loops, ptr,
                                family, name)
        graph = lasting(make)
        graph.trusted = bool(trusted)
        return graph

    @classmethod
    def of_batch(cls, edge_index, sizes, self_loops):
        """from_edge_index() with deferred checks, for a layer's edge_index that
        nothing but this needs: see convert.batch_graph()."""
        handle = _handle.from_coo(edge_index, *sizes, None, None, None, False,
                                  False, self_loops, True)
        return cls._of_list(handle, edge_index, sizes, self_loops,
                            numbered=False)

    @classmethod
    def _of_list(cls, handle, edge_index, sizes, self_loops, *about,
                 numbered=True):
        """The graph of a Handle that was made of an edge_index; about: what
        _fill() takes beside sizes and device."""
        graph = cls.__new__(cls)
        (src, dst), edges = sizes, edge_index.size(1)
        graph._fill((dst, src, None if self_loops else edges),
                    edge_index.device, *about, numbered=numbered)
        if self_loops:
            graph.loops, graph.unlooped_edges = min(sizes), edges
        graph._handle = handle
        if not edge_index.is_inference():
            graph._edge_list = weakref.ref(edge_index), stamp(edge_index)
        return graph

    def _make_handle(self):
        return _handle.from_csr(self.offsets, self.indices, self.num_src,
                                self.graph_ptr, self.family, self.name,
                                self.trusted, self._columns)

    # ---- the matrix, which the library owns if it made it

    def _fetch(self):
        if self._arrays is None:
            self._arrays = lasting(lambda: _handle.matrix(self._handle,
                                                          self.device))

    def _array(self, which):
        if compiling():
            _make(self.label, "_fetch")
        else:
            self._fetch()
        return self._arrays[which]

    @property
    def offsets(self):
        """[N + 1] where the edges of each destination begin."""
        return self._array(0)

    @property
    def indices(self):
        """[E] source of each edge, in the graph's own order."""
        return self._array(1)

    @property
    def edge_order(self):
        """[E] the caller's number of each edge; None if the caller has the
        edges in the graph's order."""
        if self.loops is None:
            return self._array(2)
        return self._derive("edge order", self._number_looped)

    @property
    def handle(self):
        """The library's graph, made anew in a process that was forked."""
        handle = self._handle
        if handle is None or handle.process != _device.process:
            with _handle_lock:
                handle = self._handle
                if handle is None or handle.process != _device.process:
                    handle = self._handle = self._make_handle()
        return handle

    def extend(self, x):
        """x by sources, from x by the nodes of this process: x itself, except
        for a DistGraph, whose sources are also nodes of other ranks."""
        return x

    def _make_looped(self):
        given = self._given()
        return Graph.from_edge_index(
            self.edge_index if given is None else given,
            (self.num_src, self.num_dst),
            graph_ptr=self.graph_ptr, family=self.family, name=self.name,
            trusted=self.trusted, self_loops=True)

    @property
    def nbytes(self):
        """Memory that the library holds for the graph, with that of
        with_self_loops(): matrices and the views that kernels asked for.  On a
        GPU torch's counters do not include it."""
        size = library().dfgnn_graph_bytes(self.handle.pointer)
        return size + (self.looped.nbytes if self.looped is not None else 0)

    def signature(self):
        """The statistics that selection looks at: degrees, density,
        locality."""
        return _handle.signature(self.handle)

    def to(self, device, non_blocking=False):
        """The graph on another device; itself if it is there already."""
        device = torch.device(device)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        if device == self.device:
            return self

        def move(tensor):
            return None if tensor is None else tensor.to(
                device, non_blocking=non_blocking)
        columns = self._columns
        graph = Graph(move(self.offsets), move(self.indices), self.num_src,
                      edge_order=move(self.edge_order),
                      graph_ptr=self.graph_ptr, family=self.family,
                      name=self.name, trusted=self.trusted,
                      columns=columns and tuple(move(t) for t in columns),
                      _order_is_sound=True)
        return _related(graph, move(self.relation), self.num_relations)

    def cpu(self):
        return self.to("cpu")

    def cuda(self, device=None):
        return self.to("cuda" if device is None else device)

    def __reduce__(self):
        # copies, since torch cannot share the library's memory with another
        # process; kept, since sharing needs them until that process starts
        copies = self._derive("copies", lambda: tuple(
            None if t is None else t.clone()
            for t in (self.offsets, self.indices, self.edge_order)))
        return _restore, copies + (
            self.num_src, self.graph_ptr, self.family, self.name, self.relation,
            self.num_relations)

    def __repr__(self):
        return (f"Graph(num_src={self.num_src}, num_dst={self.num_dst}, "
                f"num_edges={self.num_edges}, device='{self.device}'"
                + (f", family={self.family!r}" if self.family else "") + ")")


def _related(graph, relation, count):
    """The graph with these relations, in its own order, if there are any."""
    if relation is not None:
        graph.set_relations(graph.to_caller_order(relation), count)
    return graph


def _restore(offsets, indices, order, num_src, graph_ptr, family, name,
             relation=None, num_relations=0):
    graph = Graph.__new__(Graph)
    graph._arrays = offsets, indices, order
    graph._fill((offsets.numel() - 1, num_src, indices.numel()),
                indices.device, graph_ptr, family, name)
    return _related(graph, relation, num_relations)


@constant
def _make(label, method):
    """Has a graph make what torch.compile must not see missing first and then
    there."""
    getattr(by_id(int(label)), method)()
    return True


def by_id(number):
    """The living graph of a number, for the operators of torch.library."""
    graph = _registry.get(number)
    if graph is None:
        raise RuntimeError(f"graph {number} is gone; keep the dfgnn.Graph "
                           "alive as long as what was computed on it")
    return graph


def _sizes(edge_index, num_nodes):
    if isinstance(num_nodes, (tuple, list)):
        if len(num_nodes) != 2:
            raise ValueError("num_nodes must be an int or (sources, "
                             f"destinations), got {num_nodes!r}")
        sizes = [None if n is None else check_count("num_nodes", n)
                 for n in num_nodes]
    else:
        sizes = [None if num_nodes is None
                 else check_count("num_nodes", num_nodes)] * 2
    if None in sizes:
        largest = int(edge_index.max()) + 1 if edge_index.numel() else 0
        sizes = [largest if n is None else n for n in sizes]
    return sizes
