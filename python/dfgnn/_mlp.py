"""MLPs on edges by the library's kernels, with gradients.

A call has two ends, features of nodes or None, and the tensors of fields_of().
With a layout its first weight has columns of the ends, too: their products over
nodes are made here and become dst_part and src_part.
"""

import ctypes
import itertools
import operator
from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F

from . import _abi, _execute, _recording
from ._autograd import Kind, Recorded, by_operations
from ._fallbacks import say_once
from ._library import check, library
from ._mlp_formula import (  # noqa: F401
    BY_EDGE, NAMES, Settings, composite as _formula, fields_of, kept_width,
    problem_of_text, text_of, width_of)
from ._operators import sum_settings
from ._programs import TYPES
from .errors import UnsupportedError

_FORWARD, _BACKWARD = _abi.PASSES["forward"], _abi.PASSES["backward"]
_FIRST = len(NAMES)  # the place of the first weight
_NOWHERE = 256  # an empty tensor has no memory, but is there


_PARAMETERS = 5  # the place of the first


class Layout(NamedTuple):
    """The columns of the first weight, (the first of them, their number); None
    for what is not there."""
    dst: Optional[tuple]
    src: Optional[tuple]
    edge: Optional[tuple]
    one: bool = False  # src is dst: the call has dst alone

    def ends(self, dst, src):
        """((features, columns) of each end that there is, place of the
        part)."""
        return [(x, columns, n) for x, columns, n in (
            (dst, self.dst, 1), (dst if self.one else src, self.src, 2))
            if columns is not None]


def _parts(layout, dst, src, tensors, dtype):
    """dst_part and src_part with the products of the ends."""
    parts = list(tensors[1:3])
    if layout is not None:
        weight = tensors[_FIRST].to(dtype)
        for x, columns, n in layout.ends(dst, src):
            made, part = F.linear(x, weight.narrow(1, *columns)), tensors[n]
            parts[n - 1] = made if part is None else made + part
    return parts


def fields_by_torch(tensors, layout=None, dtype=None, ends=(None, None)):
    """The tensors of the fields, of one type, by torch operations."""
    if dtype is not None:
        tensors = [None if t is None else t.to(dtype) for t in tensors]
    if layout is None:
        return tensors
    first = None if layout.edge is None else \
        tensors[_FIRST].narrow(1, *layout.edge)
    return [tensors[0], *_parts(layout, *ends, tensors, tensors[_FIRST].dtype),
            *tensors[3:_FIRST], first, *tensors[_FIRST + 1:]]


def composite(graph, settings, tensors, *more):
    """The outputs of a call by torch operations; more: the other arguments of
    fields_by_torch()."""
    return _formula(graph, settings, fields_by_torch(tensors, *more))


# ---- arguments as words -----------------------------------------------------

# dfgnn_edge_mlp_args is its size and pointers
_WORDS = ctypes.sizeof(_abi.EdgeMlpArgs) // 8
_Words = ctypes.c_uint64 * _WORDS


def _word(name, i=None):
    """The number of the word of a field."""
    return getattr(_abi.EdgeMlpArgs, name).offset // 8 + (i or 0)


# what dfgnn_edge_mlp_args keeps between the passes
_KEPT = [_word("kept", i) for i in range(4)]
# the word that says whether there is a gradient of a factor, by its place
_FACTORS = {3: _word("grad_out_dst"), 4: _word("grad_out_src")}


# Products an edge up to which a CPU's kernels are as fast as torch in both
# passes; a forward pass alone has room for twice as many.  Measured by layers of
# 64 to 1024 on one core with AVX-512 and AMX: with 131 k products in f32 the
# passes take 1.1 times as long as torch's, with 262 k 1.5 and with 1.6 M twice;
# in bf16 262 k take as long, 524 k 1.2 times.
_MOST_PRODUCTS = {torch.float32: 3 << 16, torch.bfloat16: 3 << 17}


def _args(words):
    return _abi.EdgeMlpArgs.from_buffer(_Words(*words))


# ---- recipes ----------------------------------------------------------------

class Recipe:
    """What calls of the same settings, shapes and types share; they are made
    once.  The methods take the graph, whose handle keeps the recipe."""

    __slots__ = ("settings", "layout", "dtype", "exact", "listed", "kinds",
                 "shapes", "by_edge", "products", "slots", "grad_slots", "outs", "picks",
                 "grad_outs", "mlp", "blank", "plans", "reasons", "width",
                 "kept", "keeps")

    def __init__(self, graph, settings, tensors, layout, dtype):
        self.settings, self.layout, self.dtype = settings, layout, dtype
        self.exact = torch.float64 if dtype == torch.float64 else torch.float32
        # the library knows the order of a list that it read itself
        self.listed = graph.handle.listed and graph.loops is None
        fields = fields_of(settings)
        self.by_edge = [name in BY_EDGE for name, _ in fields]
        self.slots = [_word(*field) for field in fields]
        self.grad_slots = [_word("grad_" + name, i) for name, i in fields]
        self.kinds = [None if t is None else t.dtype for t in tensors]
        self._sizes(graph, tensors)
        self.plans, self.reasons, self.keeps = {}, {}, {}

    def _sizes(self, graph, tensors):
        s, first = self.settings, tensors[_FIRST]
        weights = tensors[_FIRST:_FIRST + s.layers]
        widths = [next(t for t in tensors[1:3] if t is not None).size(1)
                  if first is None else first.size(0)]
        widths += [w.size(0) for w in weights[1:]]
        self.width = widths[-1] // 2 if s.gate else widths[-1]
        inputs = [0 if tensors[0] is None else tensors[0].size(1), *widths]
        self.products = sum(map(operator.mul, inputs, widths))
        rows = {"edge_out": graph.num_edges, "out_dst": graph.num_dst,
                "out_src": graph.num_src}
        self.outs = [(_word(name), (rows[name], self.width),
                      name == "edge_out" and not self.listed)
                     for name in s.outputs]
        self.grad_outs = [_word("grad_" + name) for name in s.outputs]
        self.picks = [(_word("arg_" + side), (rows["out_" + side], self.width))
                      for side in s.picked]
        edge = tensors[0]
        self.mlp = _abi.EdgeMlp(
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
        self.kept = [(word, library().dfgnn_edge_mlp_kept_width(
            ctypes.byref(self.mlp), i)) for i, word in enumerate(_KEPT)]
        self.blank = [0] * _WORDS
        self.blank[_word("struct_size")] = ctypes.sizeof(_abi.EdgeMlpArgs)

    # ---- tensors as the library reads them

    def _placed(self, graph, tensor, by_edge):
        if tensor.dtype is not self.dtype:
            tensor = tensor.to(self.dtype)
        if by_edge and not self.listed:
            tensor = graph.to_graph_order(tensor)
        return tensor if tensor.is_contiguous() else tensor.contiguous()

    def cast(self, tensors):
        """The tensors, whose parameters have the call's type: two launches
        cast all that have another."""
        others = [n for n in range(_PARAMETERS, len(tensors))
                  if tensors[n] is not None and
                  tensors[n].dtype is not self.dtype]
        sizes = [tensors[n].numel() for n in others]
        if len(others) < 2 or any(size % 8 for size in sizes) or \
                len({tensors[n].dtype for n in others}) > 1:
            return tensors  # each alone, by place(): they would not be aligned
        tensors = list(tensors)
        flat = torch.cat([tensors[n].reshape(-1) for n in others])
        for n, made in zip(others, flat.to(self.dtype).split(sizes)):
            tensors[n] = made.view(tensors[n].shape)
        return tensors

    def place(self, graph, tensors, parts, parameters=None):
        """The tensors of the fields; parts: dst_part and src_part; parameters:
        those that were placed before."""
        tensors = [tensors[0], *parts, *tensors[3:]]
        if parameters is not None:
            tensors[_PARAMETERS:] = parameters
        elif self.layout is not None:
            edge = self.layout.edge
            tensors[_FIRST] = None if edge is None else \
                tensors[_FIRST].narrow(1, *edge)
        return [None if t is None else self._placed(graph, t, by_edge)
                for t, by_edge in zip(tensors, self.by_edge)]

    def parts(self, dst, src, tensors):
        """dst_part and src_part with the products of the ends."""
        return _parts(self.layout, dst, src, tensors, self.dtype)

    def inner(self, wanted):
        """Which fields have a gradient; wanted: which of the ends and the
        tensors want one."""
        dst, src, *fields = wanted
        if self.layout is not None:
            first = fields[_FIRST]
            for want, _, n in self.layout.ends(dst, src):
                fields[n] |= want or first
            fields[_FIRST] = first and self.layout.edge is not None
        return tuple(fields)

    def of_ends(self, dst, src, tensors, found, wanted):
        """The gradients of the ends and the tensors, from those of the
        fields."""
        if self.layout is None:
            return [None, None, *found]
        ends, wide = [None, None], []
        weight = tensors[_FIRST].to(self.dtype)
        for x, columns, n in self.layout.ends(dst, src):
            k, part = 0 if self.layout.one else n - 1, found[n]
            if wanted[k]:
                columns_of = weight.narrow(1, *columns)
                ends[k] = part @ columns_of if ends[k] is None else \
                    ends[k].addmm_(part, columns_of)
            if wanted[2 + _FIRST]:
                wide.append((columns, part.t() @ x))
            if not wanted[2 + n]:
                found[n] = None
        if wanted[2 + _FIRST]:
            if self.layout.edge is not None:
                wide.append((self.layout.edge, found[_FIRST]))
            found[_FIRST] = torch.cat([grad for _, grad in sorted(
                wide, key=lambda one: one[0])], 1).to(self.kinds[_FIRST])
        return [*ends, *found]

    def _fill(self, placed):
        words = self.blank[:]
        for slot, tensor in zip(self.slots, placed):
            if tensor is not None:
                words[slot] = tensor.data_ptr() or _NOWHERE
        return words

    # ---- passes

    def new_kept(self, graph):
        """Memory for inner values between the passes."""
        return torch.empty(
            graph.num_edges * sum(width for _, width in self.kept),
            dtype=self.dtype, device=graph.device)

    def _fill_kept(self, words, graph, kept):
        if kept is None:
            return
        address = kept.data_ptr() or _NOWHERE
        for slot, width in self.kept:
            if width:
                words[slot] = address
                address += graph.num_edges * width * kept.element_size()

    def forward(self, graph, placed, kept=None):
        """(outputs in the caller's order, the args of extremes); kept: of
        new_kept()."""
        words, device = self._fill(placed), graph.device
        self._fill_kept(words, graph, kept)
        outs, picked = [], []
        for slot, shape, _ in self.outs:
            out = torch.empty(shape, dtype=self.dtype, device=device)
            words[slot] = out.data_ptr() or _NOWHERE
            outs.append(out)
        for slot, shape in self.picks:
            pick = torch.empty(shape, dtype=torch.int32, device=device)
            words[slot] = pick.data_ptr() or _NOWHERE
            picked.append(pick)
        self._execute(graph, words, _FORWARD, kept is not None)
        return [graph.to_caller_order(out) if turned else out for
                out, (_, _, turned) in zip(outs, self.outs)], picked

    def backward(self, graph, placed, picked, grads, wanted, kept=None):
        """The gradients that are wanted of the fields; wanted: a tuple."""
        words, alive = self._fill(placed), []
        there = [kept is not None, *wanted]
        self._fill_kept(words, graph, kept)
        for (slot, _), pick in zip(self.picks, picked):
            words[slot] = pick.data_ptr() or _NOWHERE
        for grad, slot, (_, _, turned) in zip(grads, self.grad_outs,
                                              self.outs):
            there.append(grad is not None)
            if grad is not None:
                alive.append(self._placed(graph, grad, turned))
                words[slot] = alive[-1].data_ptr() or _NOWHERE
        found, flat = self._new_gradients(words, placed, wanted)
        self._execute(graph, words, _BACKWARD, tuple(there))
        casts = {self.exact: flat}
        for n, (grad, tensor) in enumerate(zip(found, placed)):
            if isinstance(grad, int):
                kind = self.kinds[n]
                if kind not in casts:
                    casts[kind] = flat.to(kind)
                found[n] = casts[kind].as_strided(
                    tensor.shape, tensor.stride(), grad)
            elif grad is not None and self.by_edge[n] and not self.listed:
                found[n] = graph.to_caller_order(grad)
        return found

    def _new_gradients(self, words, placed, wanted):
        """(tensors of the gradients, but of parameters where theirs begin in
        the second result, the second result): one cast is for all of these."""
        found, begin = [], 0
        for n, (tensor, want) in enumerate(zip(placed, wanted)):
            if not want:
                found.append(None)
            elif n >= _PARAMETERS:
                found.append(begin)
                begin += -(-tensor.numel() // 64) * 64  # aligned
            elif n in _FACTORS and not words[_FACTORS[n]]:
                found.append(torch.zeros_like(tensor))
            else:
                found.append(torch.empty_like(tensor))
                words[self.grad_slots[n]] = found[n].data_ptr() or _NOWHERE
        flat = torch.empty(begin, dtype=self.exact, device=next(
            t for t in placed if t is not None).device)
        address, size = flat.data_ptr() or _NOWHERE, flat.element_size()
        for n, begin in enumerate(found):
            if isinstance(begin, int):
                words[self.grad_slots[n]] = address + begin * size
        return found, flat

    def _execute(self, graph, words, number, key):
        found = self.plans.get((number, key))
        if found is None:
            found = self.plans[number, key] = self._plan(graph, words, number)
        plan, template = found
        args, block = _abi.Args.from_buffer_copy(template), _Words(*words)
        args.mlp_args = ctypes.addressof(block)
        plan.run(args, graph.device)

    def _plan(self, graph, words, number):
        plan = _execute.Plan(graph.handle, graph.device,
                             self._problem(words, number), sum_settings())
        template = plan.arguments()
        template.mlp = ctypes.addressof(self.mlp)
        return plan, template

    # ---- what a call is

    def _problem(self, words, number):
        problem = _abi.Problem()
        check(library().dfgnn_edge_mlp_problem(
            ctypes.byref(problem), ctypes.byref(self.mlp),
            ctypes.byref(_args(words)), number))
        return problem

    def _supposed(self, there, number, wanted, keep=False):
        """The words of a pass whose tensors are nowhere; there: which fields
        there are; wanted: those with a gradient."""
        words = self.blank[:]
        for slot, width in self.kept:
            words[slot] = _NOWHERE if keep and width else 0
        slots = [slot for slot, here in zip(self.slots, there) if here]
        slots += [slot for slot, _ in self.picks]
        if number == _FORWARD:
            slots += [slot for slot, _, _ in self.outs]
        else:
            slots += self.grad_outs
            slots += [slot for slot, want in zip(self.grad_slots, wanted)
                      if want]
        for slot in slots:
            words[slot] = _NOWHERE
        return words

    def keeps_for(self, graph, tensors, wanted, keep):
        """Whether inner values are kept between the passes; keep: what the
        caller says, None leaves it to the library."""
        if keep is not None or graph.device.type == "cpu":
            return bool(keep) and graph.device.type != "cpu"
        if wanted not in self.keeps:
            there = self.fields_there(tensors)
            forward, backward = (
                _args(self._supposed(there, number, wanted))
                for number in (_FORWARD, _BACKWARD))
            size = ctypes.c_int64()
            check(library().dfgnn_edge_mlp_keep(
                ctypes.byref(size), ctypes.byref(self.mlp),
                graph.handle.pointer, ctypes.byref(forward),
                ctypes.byref(backward)))
            self.keeps[wanted] = size.value > 0
        return self.keeps[wanted]

    def fields_there(self, tensors):
        """Which of the fields there are, with those that ends make."""
        there = [t is not None for t in tensors]
        if self.layout is not None:
            there[1] |= self.layout.dst is not None
            there[2] |= self.layout.src is not None
            there[_FIRST] &= self.layout.edge is not None
        return there

    def problem(self, there, number, wanted, keep=False):
        """The _abi.Problem of a pass."""
        return self._problem(self._supposed(there, number, wanted, keep),
                             number)

    def refusal(self, graph, there, wanted):
        """Why the device runs no pass of it; None if it does."""
        for number in (_FORWARD, _BACKWARD) if any(wanted) else (_FORWARD,):
            try:
                check(library().dfgnn_edge_mlp_serves(
                    ctypes.byref(self.mlp), graph.handle.pointer, ctypes.byref(
                        _args(self._supposed(there, number, wanted))), number))
            except UnsupportedError as error:
                return str(error)
        return None

    def refused(self, graph, tensors, wanted):
        """Whether the device runs no pass of it, which is said once."""
        if graph.device.type == "cpu":
            return False
        if wanted not in self.reasons:
            there = self.fields_there(tensors)
            self.reasons[wanted] = self.refusal(graph, there, wanted)
        reason = self.reasons[wanted]
        if reason is not None:
            say_once(f"{reason}; it runs by torch operations instead, with "
                     "values of every edge in memory")
        return reason is not None

    def left_to_torch(self, graph, train, keep):
        """Whether torch's products are faster on a CPU: from some number of
        products an edge on, since the weights of its kernels leave the caches
        and they compute inner values again.  keep=False is never left: torch
        holds values of every edge."""
        most = _MOST_PRODUCTS.get(self.dtype)
        return graph.device.type == "cpu" and keep is not False and \
            most is not None and self.products > (1 if train else 2) * most

    def worst(self, graph, placed, outs):
        """The largest error of a forward pass on a CPU, as a multiple of its
        bound."""
        words, worst = self._fill(placed), ctypes.c_double()
        for (slot, _, _), out in zip(self.outs, outs):
            words[slot] = out.data_ptr()
        check(library().dfgnn_edge_mlp_check(
            ctypes.byref(worst), None, ctypes.byref(self.mlp),
            graph.handle.pointer, ctypes.byref(_args(words)), _FORWARD))
        return worst.value


def recipe(graph, settings, tensors):
    """The Recipe of tensors of one type, without a layout."""
    key = ("mlp", settings, _execute.generation(), graph.loops is None, *[
        None if t is None else (t.shape, t.dtype) for t in tensors])
    return kept(graph, key, lambda: Recipe(
        graph, settings, tensors, None,
        next(t for t in tensors if t is not None).dtype))


def kept(graph, key, make):
    """The Recipe that the graph has for a key, which make() makes; it keeps
    none if the key is None."""
    if _recording.current is not None:
        _recording.current.graph(graph)
    recipes = graph.handle.recipes
    found = recipes.get(key)
    if found is None:
        found = make()
        if key is not None:
            recipes[key] = found
    return found


def problem_of(made, ends, tensors, backward, keep=False):
    """The _abi.Problem of a Recipe's call, or of its gradient by the tensors
    that require one (by all, if none does)."""
    there = made.fields_there(tensors)
    wanted = made.inner([t is not None and t.requires_grad
                         for t in (*ends, *tensors)])
    return made.problem(there, int(backward), wanted if any(wanted) else there,
                        keep)


# ---- autograd ---------------------------------------------------------------

class _EdgeMlps(Kind):
    """The outputs of a call; about: (graph, made, keep), the tensors are the
    ends and those of the fields.  Gradients of gradients are made of torch's
    operations."""

    def record(self, about, given, needed):
        graph, made, keep = about
        dst, src, *tensors = given
        cast = made.cast(tensors)
        parts = made.parts(dst, src, cast)
        placed = made.place(graph, cast, parts)
        kept = made.new_kept(graph) if keep else None
        outs, picked = made.forward(graph, placed, kept)
        return tuple(outs), (*given, *parts, *placed[_PARAMETERS:], kept,
                             *picked), None

    def gradients(self, about, rest, saved, grads, needed, again):
        graph, made, _ = about
        count = len(made.slots)
        given = iter(saved)
        ends, tensors, parts, parameters = (
            list(itertools.islice(given, size))
            for size in (2, count, 2, count - _PARAMETERS))
        kept = next(given)
        wanted = [w and t is not None
                  for w, t in zip(needed, (*ends, *tensors))]
        if again:
            return differentiate(graph, made.settings, tensors, grads, wanted,
                                 True, made.layout, made.dtype, ends)
        found = made.backward(
            graph, made.place(graph, tensors, parts, parameters), given,
            grads, made.inner(wanted), kept)
        return made.of_ends(*ends, tensors, found, wanted)


_EDGE_MLPS = _EdgeMlps()


def differentiate(graph, settings, tensors, grads, wanted, again=True,
                  layout=None, dtype=None, ends=(None, None)):
    """Gradients of the ends and the tensors by torch operations,
    differentiable themselves if `again`."""
    return by_operations(
        lambda given: composite(graph, settings, given[2:], layout, dtype,
                                given[:2]),
        (*ends, *tensors), grads, wanted, again)


def call(graph, made, ends, tensors, keep=None):
    """The outputs of a Recipe's call.  Rows are in the caller's order of edges
    and of the recipe's type; keep: as keeps_for() has it."""
    wanted = (False,)
    if torch.is_grad_enabled():
        wanted = [t is not None and t.requires_grad
                  for t in (*ends, *tensors)]
    train = any(wanted)
    if made.refused(graph, tensors, made.inner(wanted) if train else wanted) \
            or made.left_to_torch(graph, train, keep):
        return composite(graph, made.settings, tensors, made.layout,
                         made.dtype, ends)
    if train:
        keep = made.keeps_for(graph, tensors, made.inner(wanted), keep)
        return Recorded.apply(_EDGE_MLPS, (graph, made, keep), *ends,
                              *tensors)
    tensors = made.cast(tensors)
    parts = made.parts(*ends, tensors)
    return tuple(made.forward(graph, made.place(graph, tensors, parts))[0])


def run(graph, settings, tensors):
    """The outputs of tensors of one type, in the caller's order of edges."""
    return call(graph, recipe(graph, settings, tensors), (None, None), tensors)
