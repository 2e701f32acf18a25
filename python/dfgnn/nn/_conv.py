"""The base of the layers: arguments, edges and results that they share."""

import torch
from torch import nn

from .._modes import untraced
from .._values import adjacency_values, is_adjacency, refuse_values
from ..convert import as_graph, looped_graph
from ..graph import Graph
from ._attention_steps import pair
from ._linear import glorot_, reset
from ._node import runs_in_steps

class Shape:
    """Turns features with nodes on any axis into those of kernels, [N, F] or
    [N, H, D], and back: the batch of PyG's static graphs [B, N, F] becomes
    heads."""

    def __init__(self, layer, x):
        self.dims = x.dim()
        axis = layer.node_dim
        self.axis = axis + self.dims if axis < 0 else axis
        # whether PyG's weight.view(-1, 1) * x_j has a weight for each edge
        self.weights = self.axis == self.dims - 2
        self.served = (self.dims >= 2 and 0 <= self.axis < self.dims - 1
                       and (self.axis == 0 or self.weights))

    def enter(self, x):
        if self.dims == 2:
            return x
        self.lead = x.shape[:self.axis]
        x = x.movedim(self.axis, 0)
        return x if self.dims == 3 else x.flatten(1, -2)

    def leave(self, out):
        if self.dims == 2:
            return out
        if self.dims > 3:
            out = out.unflatten(1, self.lead if self.lead else (-1,))
        # callers view the result, which is dense in PyG
        return out.movedim(0, self.axis).contiguous()


FLOWS = ("source_to_target", "target_to_source")
# methods of PyG's MessagePassing, which the layers here do not have
_MESSAGES = ("message", "aggregate", "update", "edge_update", "propagate",
             "message_and_aggregate", "edge_updater")


class Conv(nn.Module):
    """A layer with the arguments, parameters and results of the class of its
    name in torch_geometric.nn; it takes those arguments of MessagePassing that
    apply to it."""

    node_dims = (0, -2)
    default_node_dim = 0
    sends_pairs = True  # whether PyG's propagate() takes x as a pair
    runs_in_steps = runs_in_steps

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        override = next((n for n in _MESSAGES if hasattr(cls, n)), None)
        if override is not None:
            kind = next(c.__name__ for c in cls.__mro__
                        if c.__module__.startswith(__package__))
            raise TypeError(
                f"nothing calls {override}() of a dfgnn.nn.{kind}; derive "
                f"{cls.__name__} from dfgnn.nn.pyg.{kind}, which calls it")

    def __init__(self, aggr="add", flow="source_to_target", node_dim=None,
                 **kwargs):
        super().__init__()
        if flow not in FLOWS:
            raise ValueError(f"flow must be one of {FLOWS}, got {flow!r}")
        if node_dim is None:
            node_dim = self.default_node_dim
        if node_dim not in self.node_dims:
            raise ValueError(f"node_dim must be one of {self.node_dims}, got "
                             f"{node_dim!r}")
        self.aggr = self.take_aggr(aggr, kwargs)
        self.flow, self.node_dim = flow, node_dim
        if kwargs:
            raise TypeError(f"{type(self).__name__} takes no "
                            + ", ".join(sorted(kwargs)))

    def forward(self, x, edge_index, *args, **kwargs):
        """The layer's result.

        x: [N, F], or (of sources, of destinations), None where a layer needs
            none; layers of sums take [..., N, F] of graphs that share edges.
        edge_index: [2, E], a Graph or what dfgnn.as_graph takes.
        edge_attr: [E, edge_dim]; edge_weight: [E], by default the values of an
            adjacency.
        size: (sources, destinations).
        return_attention_weights: if true, or in a TransformerConv not None, the
            result is (out, (edge_index with loops, alpha [E, H])); alpha is
            after dropout, that of a TransformerConv before it.
        """
        raise NotImplementedError

    def keep(self, arguments):
        """Keeps the arguments of __init__() as attributes, except those that
        become parameters and modules."""
        for name in arguments.keys() - {"self", "__class__", "kwargs", "aggr",
                                        "bias", "act", "beta"}:
            setattr(self, name, arguments[name])

    def take_aggr(self, aggr, kwargs):
        """The layer's aggr, checked; its options are taken out of kwargs."""
        if aggr not in ("add", "sum"):
            raise ValueError(f"{type(self).__name__} has aggr='add', got "
                             f"{aggr!r}")
        return aggr

    def edges(self, edges, values=None):
        """The edges, from sources to destinations whatever the flow is.  An
        adjacency whose values are not all 1 is refused if the layer does not
        use them, that is, if values is None."""
        return self._flowed(edges, type(self).__name__, values is None)

    def weighted_edges(self, edges, edge_weight):
        """The edges, from sources to destinations whatever the flow is.  The
        layer uses the values of an adjacency as weights; if edge_weight is
        given, too, values that are not all 1 are refused."""
        if edge_weight is not None:
            return self._flowed(edges, f"{type(self).__name__} with "
                                "edge_weight", True)
        return self._flowed(edges)

    def _flowed(self, edges, taker=None, refusing=False):
        """The edges from sources to destinations; taker: who drops values."""
        if isinstance(edges, Graph):
            return edges
        if type(edges) is not torch.Tensor or \
                edges.layout is not torch.strided:  # it may have values
            if self.flow == FLOWS[1] and is_adjacency(edges):
                raise ValueError(
                    'flow="target_to_source" does not go with an adjacency, '
                    "whose rows are destinations; pass the transposed one, "
                    "adj.t()")
            if taker is not None:
                edges = _structure(edges, taker, refusing)
        if isinstance(edges, Graph):
            return edges
        return edges.flip(0) if self.flow == FLOWS[1] else edges

    def ends(self, x, edges, size):
        """(features of sources, those of destinations or None, the number of
        destinations), if they are matrices."""
        src, dst = pair(x)
        for part in (src,) if dst is None else (src, dst):
            if part.dim() != 2:
                raise ValueError(
                    f"x must be [nodes, features] for {type(self).__name__}, "
                    "which takes no static graphs [batch, nodes, features]; "
                    f"got {list(part.shape)}")
        return src, dst, self.destinations(
            edges, size, src.size(0), None if dst is None else dst.size(0))

    def destinations(self, edges, size, num_src, num_dst):
        """The number of destinations: that of their features if it is no
        None, that of the edges, that of size, or the number of sources."""
        if self.sends_pairs and self.flow == FLOWS[1] and \
                num_dst not in (None, num_src) and \
                not isinstance(edges, Graph):
            raise ValueError(
                f'{type(self).__name__} with flow="target_to_source" takes as '
                f"many sources as destinations, got x of {num_src} and "
                f"{num_dst} nodes: PyG's has the rows of x[0]; pass "
                "edge_index.flip(0) to one with source_to_target")
        if num_dst is not None and size is None and not is_adjacency(edges):
            return num_dst
        if isinstance(edges, Graph):
            return edges.num_dst
        if is_adjacency(edges):
            return edges.sparse_sizes()[0] if hasattr(edges, "sparse_sizes") \
                else edges.shape[0]
        if size is None and hasattr(edges, "sparse_size"):  # an EdgeIndex
            size = edges.sparse_size()
        known = None if size is None else size[int(self.flow == FLOWS[0])]
        counts = known, num_dst, num_src
        return next(n for n in counts if n is not None)

    def result(self, out, edges, graph, alpha, size=None, loops=False):
        """PyG's (out, (edge_index, alpha)); loops: whether self loops were
        added."""
        if loops:
            looped = graph.looped if isinstance(graph, Graph) else None
            edges = _looped_edges(graph, size) if looped is None else \
                looped.edge_index
            if self.flow == FLOWS[1] and not isinstance(graph, Graph):
                edges = edges.flip(0)
        elif isinstance(graph, Graph):
            edges = graph.edge_index
        return out, (edges, alpha)

    def reset_parameters(self):
        # a module of two names is drawn twice, as PyG draws it
        for name, part in self._modules.items():
            if name != "act":
                reset(part)
        for name, values in self._parameters.items():
            if values is not None:
                nn.init.zeros_(values) if name == "bias" else glorot_(values)

    def __repr__(self):
        return f"{type(self).__name__}({self.in_channels}, " \
            f"{self.out_channels})"


@untraced
def _structure(edges, taker, refusing):
    """edges without their values; if refusing, values that are not all 1 are
    refused."""
    if refusing:
        refuse_values(edges, taker)
    return edges if isinstance(edges, torch.Tensor) and \
        edges.layout == torch.strided else as_graph(edges)


@untraced
def edge_features(edges):
    """The values of an adjacency that are features of its edges, or None: PyG
    takes those of a SparseTensor whatever they are, and those of a sparse
    tensor of torch if each edge has several."""
    values = adjacency_values(edges)
    if values is None or (values.dim() == 1
                          and isinstance(edges, torch.Tensor)):
        return None
    return values


@untraced
def _looped_edges(graph, size):
    return looped_graph(graph, size).edge_index


def pair_of(channels):
    return (channels, channels) if isinstance(channels, int) else channels
