"""Calls of an MLP on edges by the library's kernels: what those of the same
settings, shapes and types share."""

import ctypes

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from . import _abi, _mlp_layout
from ._context import current_raw_stream, with_room
from ._library import check, library
from ._mlp_formula import BY_EDGE, fields_of, kept_widths
from ._mlp_layout import FIRST, parts_of
from ._programs import TYPES
from .errors import Error

_FORWARD, _BACKWARD = _abi.PASSES["forward"], _abi.PASSES["backward"]
PARAMETERS = 5  # the place of the first
_ROWS = {"edge": "E", "dst_part": "N", "src_part": "M", "edge_out": "E",
         "out_dst": "N"}


def _slot(field):
    """(the member of dfgnn_edge_mlp_args, the layer or None) of a field."""
    name, _, layer = field.partition("[")
    return name, int(layer[:-1]) if layer else None


def _mlp_of(settings, dtype, tensors, listed):
    """The _abi.EdgeMlp of a call; None if the library has no such formula."""
    weights = tensors[FIRST:FIRST + settings.layers]
    if None in (tensors[0], weights[0]) or settings.last or settings.gate or \
            settings.reduce_src or tensors[3] is not None or \
            settings.layers < 2 or dtype not in (torch.float16,
                                                 torch.bfloat16) or \
            settings.activation not in _abi.ACTIVATIONS or \
            settings.reduce_dst not in _abi.REDUCTIONS:
        return None
    return _abi.EdgeMlp(
        dtype=TYPES[dtype], layers=settings.layers,
        edge_dim=tensors[0].size(1),
        width=(ctypes.c_int64 * 4)(*[w.size(0) for w in weights]),
        activation=_abi.ACTIVATIONS[settings.activation],
        norm=_abi.NORMS[settings.norm], epsilon=settings.epsilon,
        residual=int(settings.residual),
        reduce_dst=_abi.REDUCTIONS[settings.reduce_dst],
        edge_list=int(listed))


class Recipe:
    """What calls of an MLP share.  The methods take the graph.

    fields: of the tensors of a call, in their order.
    outs: (field, shape) of what a call returns.
    mlp: the _abi.EdgeMlp; None if torch's operations run the calls.
    """

    __slots__ = ("settings", "layout", "dtype", "listed", "kinds", "by_edge",
                 "fields", "outs", "mlp", "kept", "rooms")

    def __init__(self, graph, settings, tensors, layout, dtype):
        self.settings, self.layout, self.dtype = settings, layout, dtype
        # the library knows the order of a list that it read itself
        self.listed = graph.handle.listed and graph.loops is None
        self.fields = fields_of(settings)
        self.by_edge = [field in BY_EDGE and not self.listed
                        for field in self.fields]
        self.kinds = [None if t is None else t.dtype for t in tensors]
        self.rooms = {}
        self.mlp = None
        if graph.device.type == "cuda" and graph.num_edges:
            self.mlp = _mlp_of(settings, dtype, self._narrowed(tensors),
                               self.listed)
        if self.mlp is not None:
            try:
                check(library().dfgnn_edge_mlp_serves(
                    ctypes.byref(self.mlp), graph.handle.pointer))
            except Error:
                self.mlp = None
        if self.mlp is not None:
            sizes = {"E": graph.num_edges, "N": graph.num_dst}
            width = self.mlp.width[settings.layers - 1]
            self.outs = [(field, [sizes[_ROWS[field]], width])
                         for field in settings.outputs]
            self.kept = kept_widths(settings, tensors)

    def _narrowed(self, tensors):
        """The tensors, whose first weight has the columns of edges alone."""
        if self.layout is None:
            return tensors
        edge, tensors = self.layout.edge, list(tensors)
        tensors[FIRST] = None if edge is None else \
            tensors[FIRST].narrow(1, *edge)
        return tensors

    # ---- tensors as the library reads them

    def _placed(self, graph, tensor, turns):
        if tensor.dtype is not self.dtype:
            tensor = tensor.to(self.dtype)
        if turns:
            tensor = graph.to_graph_order(tensor)
        if not tensor.is_contiguous():
            tensor = tensor.contiguous()
        return tensor.clone() if tensor.data_ptr() % 16 else tensor

    def cast(self, tensors):
        """The tensors, whose parameters have the call's type: two launches
        cast all that have another."""
        others = [n for n in range(PARAMETERS, len(tensors))
                  if tensors[n] is not None and
                  tensors[n].dtype is not self.dtype]
        given = [tensors[n] for n in others]
        if len(given) < 2 or any(t.numel() % 8 for t in given) or \
                len({t.dtype for t in given}) > 1:
            return tensors  # each alone, by place(): they would not be aligned
        tensors = list(tensors)
        flat = _flatten_dense_tensors(given).to(self.dtype)
        for n, made in zip(others, _unflatten_dense_tensors(flat, given)):
            tensors[n] = made
        return tensors

    def parts(self, dst, src, tensors):
        """dst_part and src_part with the products of the ends."""
        return parts_of(self.layout, dst, src, tensors, self.dtype)

    def place(self, graph, tensors, parts, parameters=None):
        """The tensors of the fields; parts: dst_part and src_part; parameters:
        those that were placed before."""
        tensors = [tensors[0], *parts, *tensors[3:]]
        if parameters is not None:
            tensors[PARAMETERS:] = parameters
        else:
            tensors = self._narrowed(tensors)
        return [None if t is None else self._placed(graph, t, turns)
                for t, turns in zip(tensors, self.by_edge)]

    def new_kept(self, graph):
        """Memory for inner values between the passes."""
        return torch.empty(graph.num_edges * sum(self.kept), dtype=self.dtype,
                           device=graph.device)

    # ---- passes

    def forward(self, graph, placed, kept=None):
        """Outputs in the caller's order; kept: of new_kept()."""
        outs = [torch.empty(shape, dtype=self.dtype, device=graph.device)
                for _, shape in self.outs]
        self._run(graph, _FORWARD, placed, kept, {
            field: out for out, (field, _) in zip(outs, self.outs)})
        return [graph.to_caller_order(out)
                if field == "edge_out" and not self.listed else out
                for out, (field, _) in zip(outs, self.outs)]

    def backward(self, graph, placed, grads, wanted, kept):
        """The gradients that are wanted of the fields; wanted: a tuple."""
        members = {"grad_" + field: self._placed(
            graph, grad, field == "edge_out" and not self.listed)
            for grad, (field, _) in zip(grads, self.outs) if grad is not None}
        sizes = [-(-t.numel() // 64) * 64 if want and n >= PARAMETERS else 0
                 for n, (t, want) in enumerate(zip(placed, wanted))]
        flat = torch.empty(sum(sizes), dtype=torch.float32,
                           device=graph.device)
        found, begin = [], 0
        for field, tensor, want, size in zip(self.fields, placed, wanted,
                                             sizes):
            grad = None
            if size:
                grad = flat.as_strided(tensor.shape, tensor.stride(), begin)
                begin += size
            elif want:
                grad = torch.empty_like(tensor)
            if want:
                members["grad_" + field] = grad
            found.append(grad)
        self._run(graph, _BACKWARD, placed, kept, members)
        casts = {torch.float32: flat}
        for n, grad in enumerate(found):
            if grad is None:
                continue
            if n >= PARAMETERS:
                kind = self.kinds[n]
                if kind not in casts:
                    casts[kind] = flat.to(kind)
                found[n] = casts[kind].as_strided(
                    grad.shape, grad.stride(), grad.storage_offset())
            elif self.by_edge[n]:
                found[n] = graph.to_caller_order(grad)
        return found

    def _run(self, graph, number, placed, kept, members):
        """members: tensors by their fields, besides those of self.fields."""
        args = _abi.EdgeMlpArgs()
        for field, tensor in (*zip(self.fields, placed), *members.items()):
            if tensor is None:
                continue
            name, layer = _slot(field)
            if layer is None:
                setattr(args, name, tensor.data_ptr())
            else:
                getattr(args, name)[layer] = tensor.data_ptr()
        if kept is not None:
            address = kept.data_ptr()
            for layer, width in enumerate(self.kept):
                args.kept[layer] = address
                address += graph.num_edges * width * kept.element_size()
        given = ctypes.byref(self.mlp), graph.handle.pointer, \
            ctypes.byref(args), number
        key = number, *members
        if key not in self.rooms:
            size = ctypes.c_size_t()
            check(library().dfgnn_edge_mlp_workspace(ctypes.byref(size),
                                                     *given))
            self.rooms[key] = size.value
        room = torch.empty(self.rooms[key], dtype=torch.uint8,
                           device=graph.device)
        check(with_room(graph.device, library().dfgnn_edge_mlp_execute, *given,
                        room.data_ptr(),
                        current_raw_stream(graph.device.index)))

    def inner(self, wanted):
        return _mlp_layout.inner(self.layout, wanted)
