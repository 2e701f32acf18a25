"""MLPs on edges by the library's kernels, with gradients; while torch.compile
traces, as a family of _torch_library.py, whose calls have their settings, if
inner values are kept for a gradient, and which of their tensors are there."""

import ctypes
import functools
from operator import index

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from . import _abi, _execute, _program_operator
from ._autograd import Kind, Recorded, by_operations, wants_gradient
from ._device import current_raw_stream, with_room
from ._evaluators import EdgeList
from ._library import check, library
from ._mlp_formula import (
    ACTIVATIONS, BY_EDGE, FIRST, NORMS, REDUCTIONS, ByTorch, Settings, activate,
    composite, fields_of, kept_widths, width_of)
from ._modes import constant
from ._program_calls import TYPES, parse, run as run_program
from ._torch_library import Family
from .aggregation import reduce_edges
from .convert import as_graph
from .errors import Error

_FORWARD, _BACKWARD = _abi.PASSES["forward"], _abi.PASSES["backward"]
PARAMETERS = 5  # the place of the first
_ROWS = {"edge": "E", "dst_part": "N", "src_part": "M", "edge_out": "E",
         "out_dst": "N"}


def widths_of(settings, tensors):
    """The width of edge, and of each layer, None where there is none: numbers
    where sizes are traced, too."""
    edge, weights = tensors[0], tensors[FIRST:FIRST + settings.layers]
    return None if edge is None else index(edge.size(1)), *[
        None if w is None else index(w.size(0)) for w in weights]


def _mlp_of(settings, dtype, widths, listed, factor=None):
    """The _abi.EdgeMlp of a call; None if the library has no such formula."""
    if None in widths or settings.last or settings.gate or \
            settings.reduce_src or factor is not None or \
            settings.layers < 2 or dtype not in (torch.float16,
                                                 torch.bfloat16) or \
            settings.activation not in _abi.ACTIVATIONS or \
            settings.reduce_dst not in _abi.REDUCTIONS:
        return None
    return _abi.EdgeMlp(
        dtype=TYPES[dtype], layers=settings.layers, edge_dim=widths[0],
        width=(ctypes.c_int64 * 4)(*widths[1:]),
        activation=_abi.ACTIVATIONS[settings.activation],
        norm=_abi.NORMS[settings.norm], epsilon=settings.epsilon,
        residual=int(settings.residual),
        reduce_dst=_abi.REDUCTIONS[settings.reduce_dst],
        edge_list=int(listed))


class Recipe:
    """The state that calls of an MLP of the same settings, shapes and types
    share.  The methods take the graph.

    fields: of the tensors of a call, in their order.
    outs: (field, shape) of what a call returns.
    mlp: the _abi.EdgeMlp; None if torch's operations run the calls.
    """

    __slots__ = ("settings", "dtype", "listed", "kinds", "by_edge", "fields",
                 "outs", "mlp", "kept", "rooms")

    def __init__(self, graph, settings, tensors, dtype):
        self.settings, self.dtype = settings, dtype
        # the library knows the order of a list that it read itself
        self.listed = graph.handle.listed and graph.loops is None
        self.fields = fields_of(settings)
        self.by_edge = [field in BY_EDGE and not self.listed
                        for field in self.fields]
        self.kinds = [None if t is None else t.dtype for t in tensors]
        self.rooms = {}
        self.mlp = None
        if graph.device.type == "cuda" and graph.num_edges:
            self.mlp = _mlp_of(settings, dtype, widths_of(settings, tensors),
                               self.listed, tensors[3])
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
        parameters = [tensors[n] for n in others]
        if len(parameters) < 2 or any(t.numel() % 8 for t in parameters) or \
                len({t.dtype for t in parameters}) > 1:
            return tensors  # each alone, by place(): they would not be aligned
        tensors = list(tensors)
        flat = _flatten_dense_tensors(parameters).to(self.dtype)
        for n, part in zip(others, _unflatten_dense_tensors(flat, parameters)):
            tensors[n] = part
        return tensors

    def place(self, graph, tensors):
        """The tensors as kernels read them."""
        return [None if t is None else self._placed(graph, t, turns)
                for t, turns in zip(tensors, self.by_edge)]

    def new_kept(self, graph):
        """Memory for inner values between the passes."""
        return torch.empty(graph.num_edges * sum(self.kept), dtype=self.dtype,
                           device=graph.device)

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
        results, begin = [], 0
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
            results.append(grad)
        self._run(graph, _BACKWARD, placed, kept, members)
        casts = {torch.float32: flat}
        for n, grad in enumerate(results):
            if grad is None:
                continue
            if n >= PARAMETERS:
                kind = self.kinds[n]
                if kind not in casts:
                    casts[kind] = flat.to(kind)
                results[n] = casts[kind].as_strided(
                    grad.shape, grad.stride(), grad.storage_offset())
            elif self.by_edge[n]:
                results[n] = graph.to_caller_order(grad)
        return results

    def _run(self, graph, number, placed, kept, members):
        """members: tensors by their fields, besides those of self.fields."""
        args = _abi.EdgeMlpArgs()
        for field, tensor in (*zip(self.fields, placed), *members.items()):
            if tensor is None:
                continue
            name, _, layer = field.partition("[")  # "weight[0]"
            if layer:
                getattr(args, name)[int(layer[:-1])] = tensor.data_ptr()
            else:
                setattr(args, name, tensor.data_ptr())
        if kept is not None:
            address = kept.data_ptr()
            for layer, width in enumerate(self.kept):
                args.kept[layer] = address
                address += graph.num_edges * width * kept.element_size()
        common = ctypes.byref(self.mlp), graph.handle.pointer, \
            ctypes.byref(args), number
        key = number, *members
        if key not in self.rooms:
            size = ctypes.c_size_t()
            check(library().dfgnn_edge_mlp_workspace(ctypes.byref(size),
                                                     *common))
            self.rooms[key] = size.value
        room = torch.empty(self.rooms[key], dtype=torch.uint8,
                           device=graph.device)
        check(with_room(graph.device, library().dfgnn_edge_mlp_execute, *common,
                        room.data_ptr(),
                        current_raw_stream(graph.device.index)))


def recipe(graph, settings, tensors, dtype):
    """The Recipe of a call; dtype: the type that it is computed in."""
    key = ("mlp", settings, _execute.generation(), graph.loops is None, dtype,
           *[None if t is None else (t.shape, t.dtype) for t in tensors])
    return _execute.kept(graph, key, lambda: Recipe(
        graph, settings, tensors, dtype))


class _EdgeMlps(Kind):
    """The outputs of a call; about: (graph, recipe).  Torch's operations
    compute gradients of gradients."""

    def record(self, about, tensors, needed):
        graph, recipe = about
        placed, kept = recipe.place(graph, recipe.cast(tensors)), \
            recipe.new_kept(graph)
        outs = recipe.forward(graph, placed, kept)
        return tuple(outs), (*tensors, *placed[PARAMETERS:], kept), None

    def gradients(self, about, rest, saved, grads, needed, again):
        graph, recipe = about
        count = len(recipe.fields)
        tensors, parameters, kept = list(saved[:count]), saved[count:-1], \
            saved[-1]
        wanted = tuple(n and t is not None for n, t in zip(needed, tensors))
        if again:
            return differentiate(graph, recipe.settings, tensors, grads, wanted,
                                 True, recipe.dtype)
        return recipe.backward(
            graph, recipe.place(graph, [*tensors[:PARAMETERS], *parameters]),
            grads, wanted, kept)


_EDGE_MLPS = _EdgeMlps()


def differentiate(graph, settings, tensors, grads, wanted, again, dtype=None):
    """Gradients of the tensors by torch operations, differentiable themselves
    if `again`."""
    return by_operations(
        lambda inputs: composite(graph, settings, inputs, dtype), tensors,
        grads, wanted, again)


def run(graph, settings, tensors, dtype=None):
    """The outputs of tensors in the caller's order of edges; dtype: the type
    that they are computed in, which rows have."""
    if dtype is None:
        dtype = next(t for t in tensors if t is not None).dtype
    return call(graph, recipe(graph, settings, tensors, dtype), tensors)


_program = functools.lru_cache(maxsize=256)(parse)
_OF_A_SUM = "relu", "silu", "gelu", "tanh", "sigmoid"  # that programs have, too


class _ByPrograms(ByTorch):
    """Likewise by kernels."""

    def run(self, text, *tensors):
        """The output of a program, of the type of its tensors."""
        return run_program(_program(text), self.graph, [tensors[0].dtype],
                           None, *tensors)[0]

    def added(self, edge, dst_part, src_part, activation, slope):
        terms = {place: t for place, t in (
            ("edge", edge), ("dst", dst_part), ("src", src_part))
            if t is not None}
        if [*terms] != ["edge"]:
            inside = activation if activation in _OF_A_SUM else ""
            width = next(iter(terms.values())).size(1)
            inputs = "".join([f"{place} {place}_part[{width}]; "
                              for place in terms])
            total = " + ".join([f"{place}_part" for place in terms])
            edge = self.run(f"{inputs}return out = {inside}({total}) "
                            f"as edge[{width}]", *terms.values())
            activation = None if inside else activation
        return activate(activation, edge, slope)

    def at_destinations(self, what, x):
        return reduce_edges(self.graph, x, what, listed=False)


class _AroundProducts(_ByPrograms):
    """On CPUs torch gathers the rows of nodes: a program takes twice its time
    there."""

    def added(self, edge, dst_part, src_part, activation, slope):
        on_gpu = any(t is not None and t.is_cuda
                     for t in (edge, dst_part, src_part))
        return (_ByPrograms if on_gpu else ByTorch).added(
            self, edge, dst_part, src_part, activation, slope)


def call(graph, recipe, tensors):
    """The outputs of a Recipe's call."""
    if recipe.mlp is None:
        return composite(graph, recipe.settings, tensors, recipe.dtype,
                         _AroundProducts)
    if wants_gradient(tensors):
        return Recorded.apply(_EDGE_MLPS, (graph, recipe), *tensors)
    return tuple(recipe.forward(
        graph, recipe.place(graph, recipe.cast(tensors))))


# ---- while torch.compile traces ----------------------------------------------

class _ByOperators(_ByPrograms):
    """Likewise by operators of torch.library; graph: of place()."""

    def __init__(self, graph):
        self.graph = graph

    def to(self, rows):
        return rows

    back = to

    def run(self, text, *tensors):
        return _program_operator.run(_program_operator.about(
            _name_of(text), _program_operator.numbers_of([tensors[0].dtype])),
            self.graph, [*tensors])[0]

    def at_destinations(self, what, x):
        width = x.size(1)
        return self.run(f"edge x[{width}]; return out = {what}_in(x) "
                        f"as dst[{width}]", x)

    def at_sources(self, what, x):
        width = x.size(1)
        return self.run(f"edge x[{width}]; return out = {what}_out(x) "
                        f"as src[{width}]", x)


@constant
def _name_of(text):
    return _program(text).name


def around_products(settings, tensors, dtype, graph):
    """The outputs by torch's products, which torch.compile fuses with what is
    around them; graph: of place()."""
    edge_index, _, num_src, num_dst, _ = graph
    if edge_index is not None:
        src, dst = edge_index
        return composite(EdgeList(src, dst, num_src, num_dst), settings,
                         tensors, dtype)
    return composite(graph, settings, tensors, dtype, _ByOperators)


@constant
def may_serve(settings, widths, dtype, device):
    """Whether kernels run a call on some graph; inner values are then kept,
    which they read on the way back.  widths: of widths_of()."""
    mlp = _mlp_of(settings, dtype, widths, False) \
        if device.type == "cuda" else None
    return mlp is not None and not library().dfgnn_edge_mlp_serves(
        ctypes.byref(mlp), one_edge(device).handle.pointer)


@functools.lru_cache(maxsize=None)
def one_edge(device):
    return as_graph(torch.zeros(2, 1, dtype=torch.int64, device=device), 1)


# The choices of a setting; the counts of a call have the number of one.
_CHOICES = {"activation": ACTIVATIONS, "last": ACTIVATIONS,
            "gate": (False, True), "norm": NORMS, "residual": (False, True),
            "reduce_dst": REDUCTIONS, "reduce_src": REDUCTIONS,
            "edges": (False, True)}
_NUMBERS = "slope", "epsilon"


def about(settings, tensors, keep):
    """The name, counts and numbers of a call; tensors: those of its fields, or
    None."""
    choices = [known.index(getattr(settings, name))
               for name, known in _CHOICES.items()]
    return "", [settings.layers, int(keep), *choices,
                *[int(t is not None) for t in tensors]], [
        float(getattr(settings, name)) for name in _NUMBERS]


@functools.lru_cache(maxsize=1024)
def _parse(_, counts, numbers):
    """(settings, which tensors are there, whether inner values are kept)."""
    layers, keep, *counts = counts
    choices = {name: known[count] for (name, known), count
               in zip(_CHOICES.items(), counts)}
    return Settings(layers, **choices, **dict(zip(_NUMBERS, numbers))), \
        counts[len(_CHOICES):], bool(keep)


class _Read:
    """The settings, tensors and numbers of rows of a traced call."""

    def __init__(self, call):
        self.settings, self.there, self.keep = _parse(*call.about)
        tensors = iter(call.tensors)
        self.tensors = [next(tensors) if here else None for here in self.there]
        self.like = call.tensors[0]
        self.rows = {"edge_out": call.num_edges, "out_dst": call.num_dst,
                     "out_src": call.num_src}
        edge, _, _, *factors = self.tensors[:5]
        self.by_edge = next((t for t in (edge, *factors) if t is not None),
                            None)

    def empty_kept(self):
        """Memory for inner values, as a list of one tensor or none."""
        return [self.like.new_empty(self.rows["edge_out"] * sum(
            kept_widths(self.settings, self.tensors)))
        ] if self.keep else []

    def recipe(self, graph):
        """The library's recipe; None if torch's operations run it."""
        candidate = recipe(graph, self.settings, self.tensors,
                              self.like.dtype)
        return None if candidate.mlp is None else candidate

    def placed(self, graph, recipe):
        return recipe.place(graph, self.tensors)


class _Traced(Family):
    """The outputs are those that are asked for, then inner values that their
    gradient reads."""

    name = "mlp"

    def run(self, call):
        read = _Read(call)
        graph = call.graph(read.by_edge)
        recipe, kept = read.recipe(graph), read.empty_kept()
        if recipe is not None:
            return [*recipe.forward(graph, read.placed(graph, recipe), *kept),
                    *kept]
        return [*composite(graph, read.settings, read.tensors), *kept]

    def fake(self, call):
        read = _Read(call)
        width = width_of(read.settings, read.tensors)
        return [*[read.like.new_empty(read.rows[name], width)
                  for name in read.settings.outputs],
                *read.empty_kept()]

    def saved(self, call, outs):
        return outs[len(_parse(*call.about)[0].outputs):]

    def gradient(self, call, saved, grads, wanted):
        read, flags = _Read(call), iter(wanted)
        grads = grads[:len(read.settings.outputs)]
        wanted = tuple(here and next(flags) for here in read.there)
        graph = call.graph(read.by_edge)
        recipe = read.recipe(graph)
        if recipe is None:
            results = differentiate(graph, read.settings, read.tensors,
                                          grads, wanted, False)
        else:
            placed, kept = read.placed(graph, recipe), [*saved]
            if not kept:
                kept = [recipe.new_kept(graph)]
                recipe.forward(graph, placed, *kept)
            results = recipe.backward(graph, placed, grads, wanted, *kept)
        return [g for g, here in zip(results, read.there) if here]


traced = _Traced()
"""The outputs of (about(), place, tensors)."""
