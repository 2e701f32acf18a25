"""MLPs on edges: by the library's kernels, with gradients, or by torch
operations."""

import ctypes
from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F

from . import _abi, _calls
from ._fallbacks import say_once
from ._context import raw_stream, with_room
from ._library import check, library
from ._programs import TYPES
from .errors import UnsupportedError

_FORWARD, _BACKWARD = _abi.PASSES["forward"], _abi.PASSES["backward"]


class Settings(NamedTuple):
    """A call's formula, in the words of dfgnn_edge_mlp."""
    layers: int
    activation: Optional[str] = None
    last: Optional[str] = None
    slope: float = 0.0
    gate: bool = False
    norm: Optional[str] = None
    epsilon: float = 0.0
    residual: bool = False
    reduce_dst: Optional[str] = None
    reduce_src: Optional[str] = None
    edges: bool = False  # whether e' is asked for
    tf32: bool = False

    @property
    def outputs(self):
        """The names of what a call returns, in order."""
        return [name for name, wanted in (
            ("edge_out", self.edges), ("out_dst", self.reduce_dst),
            ("out_src", self.reduce_src)) if wanted]


# The tensors of a call before its weights and biases, as fields of the args.
NAMES = ("edge", "dst_part", "src_part", "dst_factor", "src_factor",
         "norm_weight", "norm_bias")
_BY_EDGE = frozenset(("edge", "dst_factor", "src_factor"))
_REAL = frozenset(("norm_weight", "norm_bias"))


def _fields(settings):
    """(field, index or None) of each tensor of a call."""
    return [(name, None) for name in NAMES] + [
        (name, i) for name in ("weight", "bias")
        for i in range(settings.layers)]


def _ordered(graph, tensors):
    """The tensors with rows of edges in the graph's order."""
    return [graph.to_graph_order(t) if t is not None and i < len(NAMES)
            and NAMES[i] in _BY_EDGE else t for i, t in enumerate(tensors)]


def width_of(settings, tensors):
    """C, the width of e'."""
    last = tensors[len(NAMES) + settings.layers - 1]
    width = last.size(0) if last is not None else next(
        t for t in tensors[1:3] if t is not None).size(1)
    return width // 2 if settings.gate else width


def problem_of_text(text, dtype, tf32, number):
    """The _abi.Problem of an MLP's text; dtype: a number of _abi.DTYPES."""
    problem = _abi.Problem()
    check(library().dfgnn_edge_mlp_parse(
        ctypes.byref(problem), text.encode(), dtype,
        _abi.MATH_TF32 if tf32 else _abi.MATH_F32, number))
    return problem


def text_of(problem):
    """The text of a problem; None if it is of no MLP."""
    text = library().dfgnn_edge_mlp_text(ctypes.byref(problem))
    return None if text is None else text.decode()


# ---- by torch operations ----------------------------------------------------

def _activate(name, x, slope):
    if name is None:
        return x
    if name == "gelu_tanh":
        return F.gelu(x, approximate="tanh")
    if name == "elu":
        return F.elu(x, slope)
    if name == "leaky_relu":
        return F.leaky_relu(x, slope)
    if name in ("tanh", "sigmoid"):
        return getattr(torch, name)(x)
    return getattr(F, name)(x)


def _normalize(settings, x, weight, bias):
    if settings.norm == "layer":
        return F.layer_norm(x, x.shape[-1:], weight, bias, settings.epsilon)
    inverse = torch.rsqrt(x.square().mean(-1, keepdim=True)
                          + settings.epsilon)
    return x * inverse if weight is None else x * inverse * weight


def _reduce(name, x, factor, index, count):
    shape = count, x.size(1)
    if name in ("max", "min"):
        return x.new_zeros(shape).scatter_reduce(
            0, index.view(-1, 1).expand_as(x), x, "a" + name,
            include_self=False)
    if factor is not None:
        x = x * factor.view(-1, 1)
    total = x.new_zeros(shape).index_add(0, index, x)
    if name == "mean":
        times = torch.bincount(index, minlength=count).clamp(min=1)
        total = total / times.view(-1, 1).to(x.dtype)
    return total


def composite(graph, settings, tensors):
    """The outputs by torch operations, which are differentiable; rows of edges
    in the caller's order."""
    edge, dst_part, src_part, dst_factor, src_factor, scale, shift = \
        _ordered(graph, tensors)[:len(NAMES)]
    weights = tensors[len(NAMES):len(NAMES) + settings.layers]
    biases = tensors[len(NAMES) + settings.layers:]
    terms = [] if edge is None else [F.linear(edge, weights[0])]
    terms += [part.index_select(0, index) for part, index in (
        (dst_part, graph.dst), (src_part, graph.src)) if part is not None]
    x = sum(terms[1:], terms[0])
    if biases[0] is not None:
        x = x + biases[0]
    for weight, bias in zip(weights[1:], biases[1:]):
        x = F.linear(_activate(settings.activation, x, settings.slope),
                     weight, bias)
    if settings.gate:
        gate, x = x.chunk(2, -1)
        x = torch.sigmoid(gate) * _activate(settings.last, x, settings.slope)
    else:
        x = _activate(settings.last, x, settings.slope)
    if settings.norm:
        x = _normalize(settings, x, scale, shift)
    if settings.residual:
        x = x + edge
    made = {"edge_out": lambda: graph.to_caller_order(x),
            "out_dst": lambda: _reduce(settings.reduce_dst, x, dst_factor,
                                       graph.dst, graph.num_dst),
            "out_src": lambda: _reduce(settings.reduce_src, x, src_factor,
                                       graph.src, graph.num_src)}
    return tuple(made[name]() for name in settings.outputs)


# ---- by the kernels ---------------------------------------------------------

class Call:
    """A call of the library: its description and its tensors."""

    def __init__(self, graph, settings, tensors):
        self.graph, self.settings = graph, settings
        # the library knows the order of a list that it read itself
        self.listed = graph.handle.listed and graph.loops is None
        if not self.listed:
            tensors = _ordered(graph, tensors)
        self.tensors = [None if t is None else t.detach().contiguous()
                        for t in tensors]
        given = [t for t in self.tensors if t is not None]
        self.dtype, self.width = given[0].dtype, width_of(settings, tensors)
        self.kept = []  # what args point to

    def mlp(self):
        s, edge = self.settings, self.tensors[0]
        weights = self.tensors[len(NAMES):len(NAMES) + s.layers]
        first = next(t for t in (weights[0], self.tensors[1], self.tensors[2])
                     if t is not None)
        widths = [first.size(0) if first is weights[0] else first.size(1)]
        widths += [w.size(0) for w in weights[1:]]
        return _abi.EdgeMlp(
            dtype=TYPES[self.dtype],
            math=_abi.MATH_TF32 if s.tf32 else _abi.MATH_F32,
            layers=s.layers, edge_dim=0 if edge is None else edge.size(1),
            width=(ctypes.c_int64 * 4)(*widths),
            activation=_abi.ACTIVATIONS[s.activation],
            last=_abi.ACTIVATIONS[s.last], slope=s.slope, gate=int(s.gate),
            norm=_abi.NORMS[s.norm], epsilon=s.epsilon,
            residual=int(s.residual),
            reduce_dst=_abi.REDUCTIONS[s.reduce_dst],
            reduce_src=_abi.REDUCTIONS[s.reduce_src],
            edge_list=int(self.listed))

    def args(self):
        args = _abi.EdgeMlpArgs()
        for (name, i), tensor in zip(_fields(self.settings), self.tensors):
            self._put(args, name, i, tensor)
        return args

    def _put(self, args, name, i, tensor):
        if tensor is None:
            return
        self.kept.append(tensor)
        # an empty tensor has no memory, but is there
        pointer = tensor.data_ptr() or 256
        if i is None:
            setattr(args, name, pointer)
        else:
            getattr(args, name)[i] = pointer

    def _empty(self, rows, columns, dtype=None):
        return torch.empty(rows, columns, dtype=dtype or self.dtype,
                           device=self.graph.device)

    def _rows(self, name):
        return {"edge_out": self.graph.num_edges,
                "out_dst": self.graph.num_dst,
                "out_src": self.graph.num_src}[name]

    def forward(self):
        """(outputs, args of extremes by side)"""
        args, picked = self.args(), {}
        outs = [self._empty(self._rows(name), self.width)
                for name in self.settings.outputs]
        for name, out in zip(self.settings.outputs, outs):
            self._put(args, name, None, out)
        for side in ("dst", "src"):
            if getattr(self.settings, "reduce_" + side) in ("max", "min"):
                picked[side] = self._empty(self._rows("out_" + side),
                                           self.width, torch.int32)
                self._put(args, "arg_" + side, None, picked[side])
        self._execute(args, _FORWARD)
        return [self._as_given(name, out) for name, out in
                zip(self.settings.outputs, outs)], picked

    def _as_given(self, name, tensor):
        by_edge = name == "edge_out" or name in _BY_EDGE
        return tensor if self.listed or not by_edge else \
            self.graph.to_caller_order(tensor)

    def backward(self, picked, grads, wanted):
        """The gradients that are wanted of the call's tensors."""
        args = self.args()
        for side, tensor in picked.items():
            self._put(args, "arg_" + side, None, tensor)
        for name, grad in zip(self.settings.outputs, grads):
            if grad is None:
                continue
            if name == "edge_out" and not self.listed:
                grad = self.graph.to_graph_order(grad)
            self._put(args, "grad_" + name, None,
                      grad.detach().to(self.dtype).contiguous())
        made = [self._gradient(args, field, tensor) if want else None
                for field, tensor, want in zip(_fields(self.settings),
                                               self.tensors, wanted)]
        self._execute(args, _BACKWARD)
        return [None if grad is None else
                self._as_given(name, grad).to(self.dtype)
                for (name, _), grad in zip(_fields(self.settings), made)]

    def _gradient(self, args, field, tensor):
        name, i = field
        # a factor of a side that has no gradient has none either
        side = name[:3] if name.endswith("factor") else None
        if side and not getattr(args, "grad_out_" + side):
            return torch.zeros_like(tensor)
        parameter = i is not None or name in _REAL
        real = torch.float64 if self.dtype == torch.float64 else torch.float32
        grad = torch.empty_like(tensor, dtype=real if parameter else None)
        self._put(args, "grad_" + name, i, grad)
        return grad

    def _execute(self, args, number):
        mlp, device = self.mlp(), self.graph.device
        room = self._own_room(mlp, args, number)
        stream, handle = raw_stream(device), self.graph.handle

        def execute():
            check(with_room(
                device, lambda: library().dfgnn_edge_mlp_execute_in(
                    ctypes.byref(mlp), handle.pointer, ctypes.byref(args),
                    number, None if room is None else room.data_ptr(),
                    stream)))
        if _calls.watching is None:
            execute()
        else:
            _calls.watching.timed(execute, handle, self._problem(args, number),
                                  device)

    def _own_room(self, mlp, args, number):
        """Memory for a call that a CUDA graph records: the context's may
        move."""
        if self.graph.device.type == "cpu" or \
                not torch.cuda.is_current_stream_capturing():
            return None
        size = ctypes.c_size_t()
        check(library().dfgnn_edge_mlp_workspace(
            ctypes.byref(size), ctypes.byref(mlp), self.graph.handle.pointer,
            ctypes.byref(args), number))
        return torch.empty(max(size.value, 1), dtype=torch.uint8,
                           device=self.graph.device)

    def worst(self, outs):
        """The largest error of a forward pass on a CPU, as a multiple of its
        bound."""
        args, worst, mlp = self.args(), ctypes.c_double(), self.mlp()
        for name, out in zip(self.settings.outputs, outs):
            self._put(args, name, None, out)
        check(library().dfgnn_edge_mlp_check(
            ctypes.byref(worst), None, ctypes.byref(mlp),
            self.graph.handle.pointer, ctypes.byref(args), _FORWARD))
        return worst.value

    def _supposed(self, number, wanted):
        """The args of a pass whose outputs, or gradients of the tensors that
        are wanted, are nowhere."""
        args, nowhere = self.args(), 256
        prefix = "" if number == _FORWARD else "grad_"
        for name in self.settings.outputs:
            setattr(args, prefix + name, nowhere)
        for side in ("dst", "src"):
            if getattr(self.settings, "reduce_" + side) in ("max", "min"):
                setattr(args, "arg_" + side, nowhere)
        if number == _FORWARD:
            return args
        for (name, i), want in zip(_fields(self.settings), wanted):
            if want and i is None:
                setattr(args, "grad_" + name, nowhere)
            elif want:
                getattr(args, "grad_" + name)[i] = nowhere
        return args

    def refusal(self, wanted):
        """Why the device runs no pass of it; None if it does.  wanted: those
        that want a gradient."""
        status = self._serves(self._supposed(_FORWARD, wanted), _FORWARD)
        if status is None and any(wanted):
            status = self._serves(self._supposed(_BACKWARD, wanted), _BACKWARD)
        return status

    def _problem(self, args, number):
        problem = _abi.Problem()
        check(library().dfgnn_edge_mlp_problem(
            ctypes.byref(problem), ctypes.byref(self.mlp()),
            ctypes.byref(args), number))
        return problem

    def problem(self, number, wanted):
        """The _abi.Problem of a pass."""
        return self._problem(self._supposed(number, wanted), number)

    def refused(self, wanted):
        """Whether the device runs no pass of it, which is said once."""
        reason = self.refusal(wanted)
        if reason is not None:
            say_once(f"{reason}; it runs by torch operations instead, with "
                     "values of every edge in memory")
        return reason is not None

    def _serves(self, args, number):
        mlp = self.mlp()
        try:
            check(library().dfgnn_edge_mlp_serves(
                ctypes.byref(mlp), self.graph.handle.pointer,
                ctypes.byref(args), number))
        except UnsupportedError as error:
            return str(error)
        return None


def problem_of(graph, settings, tensors, backward):
    """The _abi.Problem of a call, or of its gradient by the tensors that
    require one (by all, if none does)."""
    there = [t is not None for t in tensors]
    wanted = [t is not None and t.requires_grad for t in tensors]
    return Call(graph, settings, tensors).problem(
        int(backward), wanted if any(wanted) else there)


class EdgeMlp(torch.autograd.Function):
    """The outputs of a call.  Gradients of gradients are made of torch's
    operations."""

    @staticmethod
    def forward(ctx, graph, settings, *tensors):
        outs, picked = Call(graph, settings, tensors).forward()
        ctx.about = graph, settings, list(picked)
        ctx.save_for_backward(*tensors, *picked.values())
        ctx.set_materialize_grads(False)
        return tuple(outs)

    @staticmethod
    def backward(ctx, *grads):
        graph, settings, sides = ctx.about
        count = len(_fields(settings))
        saved = ctx.saved_tensors  # a checkpoint allows it once
        tensors, picked = saved[:count], dict(zip(sides, saved[count:]))
        wanted = [w and t is not None for w, t in
                  zip(ctx.needs_input_grad[2:], tensors)]
        if all(g is None for g in grads) or not any(wanted):
            return (None,) * (2 + count)
        if torch.is_grad_enabled():
            made = differentiate(graph, settings, tensors, grads, wanted)
        else:
            made = Call(graph, settings, tensors).backward(picked, grads,
                                                            wanted)
        return (None, None, *made)


def differentiate(graph, settings, tensors, grads, wanted, again=True):
    """Gradients by torch operations, differentiable themselves if `again`."""
    with torch.enable_grad():
        # views, since one may be made of another, as gates are of edges
        tensors = [None if t is None else t.view_as(t) for t in tensors]
        outs = composite(graph, settings, tensors)
        pairs = [(o, g) for o, g in zip(outs, grads) if g is not None]
        sources = [t for t, w in zip(tensors, wanted) if w]
        found = iter(torch.autograd.grad(
            [o for o, _ in pairs], sources, [g for _, g in pairs],
            create_graph=again, allow_unused=True))
    return [next(found) if w else None for w in wanted]


def run(graph, settings, tensors):
    """The outputs; the tensors are of one type, in the caller's order of
    edges."""
    recorded = torch.is_grad_enabled()
    wanted = [t is not None and recorded and t.requires_grad for t in tensors]
    if graph.device.type != "cpu" and Call(graph, settings, tensors).refused(
            wanted):
        return composite(graph, settings, tensors)
    if any(wanted):
        return EdgeMlp.apply(graph, settings, *tensors)
    return tuple(Call(graph, settings, tensors).forward()[0])
