"""Calls of an MLP on edges by the library's kernels: what those of the same
settings, shapes and types share."""

import ctypes
import operator
import struct

import torch
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

from . import _abi, _mlp_layout
from ._execute import Recipe as _Recipe, mlp_form
from ._fallbacks import say_once
from ._library import check, library
from ._mlp_formula import fields_of
from ._mlp_layout import FIRST, parts_of
from ._operators import sum_settings
from ._programs import TYPES
from ._table import MLP
from .errors import UnsupportedError

_FORWARD, _BACKWARD = _abi.PASSES["forward"], _abi.PASSES["backward"]
PARAMETERS = 5  # the place of the first
_NOWHERE = 256  # an empty tensor has no memory, but is there
_KEPT = [f"kept[{layer}]" for layer in range(4)]

# Products an edge up to which a CPU's kernels are as fast as torch in both
# passes; a forward pass alone has room for twice as many.  Measured by layers of
# 64 to 1024 on one core with AVX-512 and AMX: with 131 k products in f32 the
# passes take 1.1 times as long as torch's, with 262 k 1.5 and with 1.6 M twice;
# in bf16 262 k take as long, 524 k 1.2 times.
_MOST_PRODUCTS = {torch.float32: 3 << 16, torch.bfloat16: 3 << 17}


def _args(pointers):
    """The _abi.EdgeMlpArgs with addresses by field."""
    args = _abi.EdgeMlpArgs()
    for field, address in pointers.items():
        struct.pack_into("P", args, MLP[field].offset, address)
    return args


class Recipe(_Recipe):
    """What calls of an MLP share.  The methods take the graph.

    fields: of the tensors of a call, in their order.
    outs, picks: (field, shape) of what forward writes: what a call returns,
        and the edges of extremes.
    kept: (field, width) of inner values between the passes.
    """

    __slots__ = ("settings", "layout", "dtype", "exact", "listed", "kinds",
                 "by_edge", "products", "fields", "outs", "picks", "mlp",
                 "forms", "hollow", "reasons", "kept", "keeps")

    def __init__(self, graph, settings, tensors, layout, dtype):
        self.settings, self.layout, self.dtype = settings, layout, dtype
        self.exact = torch.float64 if dtype == torch.float64 else torch.float32
        # the library knows the order of a list that it read itself
        self.listed = graph.handle.listed and graph.loops is None
        self.fields = fields_of(settings)
        self.by_edge = [self._turns(field) for field in self.fields]
        self.kinds = [None if t is None else t.dtype for t in tensors]
        self._sizes(graph, tensors)
        self.forms, self.calls = [None, None], {}
        self.reasons, self.keeps = {}, {}

    def _turns(self, field):
        """Whether a tensor is by edge, in the graph's order."""
        return MLP[field].dims[0] == "E" and not self.listed

    def _sizes(self, graph, tensors):
        s, first, edge = self.settings, tensors[FIRST], tensors[0]
        weights = tensors[FIRST:FIRST + s.layers]
        widths = [next(t for t in tensors[1:3] if t is not None).size(1)
                  if first is None else first.size(0)]
        widths += [w.size(0) for w in weights[1:]]
        edge_dim = 0 if edge is None else edge.size(1)
        self.products = sum(map(operator.mul, [edge_dim, *widths], widths))
        self.mlp = _abi.EdgeMlp(
            dtype=TYPES[self.dtype],
            math=_abi.MATH_TF32 if s.tf32 else _abi.MATH_F32,
            layers=s.layers, edge_dim=edge_dim,
            width=(ctypes.c_int64 * 4)(*widths),
            activation=_abi.ACTIVATIONS[s.activation],
            last=_abi.ACTIVATIONS[s.last], slope=s.slope, gate=int(s.gate),
            norm=_abi.NORMS[s.norm], epsilon=s.epsilon,
            residual=int(s.residual),
            reduce_dst=_abi.REDUCTIONS[s.reduce_dst],
            reduce_src=_abi.REDUCTIONS[s.reduce_src],
            edge_list=int(self.listed))
        sizes = {"N": graph.num_dst, "M": graph.num_src, "E": graph.num_edges,
                 "C": widths[-1] // 2 if s.gate else widths[-1]}
        self.hollow = not all(sizes.values())

        def shaped(fields):
            return [(field, [sizes[d] for d in MLP[field].dims])
                    for field in fields]
        self.outs = shaped(s.outputs)
        self.picks = shaped(["arg_" + side for side in s.picked])
        self.kept = [(field, library().dfgnn_edge_mlp_kept_width(
            ctypes.byref(self.mlp), i)) for i, field in enumerate(_KEPT)]

    # ---- tensors as the library reads them

    def _placed(self, graph, tensor, turns):
        if tensor.dtype is not self.dtype:
            tensor = tensor.to(self.dtype)
        if turns:
            tensor = graph.to_graph_order(tensor)
        return tensor if tensor.is_contiguous() else tensor.contiguous()

    def cast(self, tensors):
        """The tensors, whose parameters have the call's type: two launches
        cast all that have another."""
        others = [n for n in range(PARAMETERS, len(tensors))
                  if tensors[n] is not None and
                  tensors[n].dtype is not self.dtype]
        given = [tensors[n] for n in others]
        sizes = [tensor.numel() for tensor in given]
        if len(given) < 2 or not all(sizes) or \
                any(size % 8 for size in sizes) or \
                len({tensor.dtype for tensor in given}) > 1:
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
        elif self.layout is not None:
            edge = self.layout.edge
            tensors[FIRST] = None if edge is None else \
                tensors[FIRST].narrow(1, *edge)
        return [None if t is None else self._placed(graph, t, turns)
                for t, turns in zip(tensors, self.by_edge)]

    def new_kept(self, graph):
        """Memory for inner values between the passes."""
        return torch.empty(
            graph.num_edges * sum(width for _, width in self.kept),
            dtype=self.dtype, device=graph.device)

    def _addresses(self, graph, kept):
        """Where the inner values of each layer are in such memory."""
        if kept is None:
            return [None] * len(self.kept)
        found, address = [], kept.data_ptr() or _NOWHERE
        for _, width in self.kept:
            found.append(address if width else None)
            address += graph.num_edges * width * kept.element_size()
        return found

    # ---- passes

    def forward(self, graph, placed, kept=None):
        """(outputs in the caller's order, the args of extremes); kept: of
        new_kept()."""
        device = graph.device
        outs = [torch.empty(shape, dtype=self.dtype, device=device)
                for _, shape in self.outs]
        picked = [torch.empty(shape, dtype=torch.int32, device=device)
                  for _, shape in self.picks]
        self._run(graph, _FORWARD, kept is not None, [
            *placed, *self._addresses(graph, kept), *outs, *picked])
        return [graph.to_caller_order(out) if self._turns(field) else out
                for out, (field, _) in zip(outs, self.outs)], picked

    def backward(self, graph, placed, picked, grads, wanted, kept=None):
        """The gradients that are wanted of the fields; wanted: a tuple."""
        given = [None if grad is None else
                 self._placed(graph, grad, self._turns(field))
                 for grad, (field, _) in zip(grads, self.outs)]
        found, addresses, flat = self._new_gradients(graph, placed, wanted, {
            field for grad, (field, _) in zip(given, self.outs)
            if grad is not None})
        there = kept is not None, *[g is not None for g in given], *wanted
        self._run(graph, _BACKWARD, there, [
            *placed, *self._addresses(graph, kept), *picked, *given,
            *addresses])
        casts = {self.exact: flat}
        for n, (grad, tensor) in enumerate(zip(found, placed)):
            if isinstance(grad, int):
                kind = self.kinds[n]
                if kind not in casts:
                    casts[kind] = flat.to(kind)
                found[n] = casts[kind].as_strided(
                    tensor.shape, tensor.stride(), grad)
            elif grad is not None and self.by_edge[n]:
                found[n] = graph.to_caller_order(grad)
        return found

    def _new_gradients(self, graph, placed, wanted, of):
        """(tensors of the gradients, but of parameters where theirs begin in
        the last result; what the library is given of each; memory of those of
        parameters, for which one cast is enough).  of: the outputs that have a
        gradient, without which a factor has none."""
        found, begin = [], 0
        for n, (tensor, want) in enumerate(zip(placed, wanted)):
            if want and n >= PARAMETERS:
                found.append(begin)
                begin += -(-tensor.numel() // 64) * 64  # aligned
            else:
                found.append(torch.empty_like(tensor) if want else None)
        flat = torch.empty(begin, dtype=self.exact, device=graph.device)
        address, size = flat.data_ptr() or _NOWHERE, flat.element_size()
        given = [address + grad * size if isinstance(grad, int) else grad
                 for grad in found]
        for n, side in ((3, "dst"), (4, "src")):
            if found[n] is not None and "out_" + side not in of:
                found[n].zero_()
                given[n] = None
        return found, given, flat

    def _names(self, number):
        """The fields of a pass, in the order in which it is given tensors."""
        outs = [field for field, _ in self.outs]
        picks = [field for field, _ in self.picks]
        return [*self.fields, *_KEPT, *(
            outs + picks if number == _FORWARD else
            picks + ["grad_" + field for field in outs + self.fields])]

    def _run(self, graph, number, key, tensors):
        if self.hollow:
            tensors = [_NOWHERE if isinstance(t, torch.Tensor)
                       and not t.numel() else t for t in tensors]
        self.call(graph, (number, key), tensors).run(graph.device, tensors)

    def describe(self, graph, key, tensors):
        number, _ = key
        names = self._names(number)
        if self.forms[number] is None:
            self.forms[number] = mlp_form(self.mlp, names)
        return self._problem([name for name, t in zip(names, tensors)
                              if t is not None], number), sum_settings(), \
            self.forms[number]

    # ---- what a call is

    def _problem(self, names, number):
        problem = _abi.Problem()
        check(library().dfgnn_edge_mlp_problem(
            ctypes.byref(problem), ctypes.byref(self.mlp),
            ctypes.byref(_args(dict.fromkeys(names, _NOWHERE))), number))
        return problem

    def _supposed(self, there, number, wanted, keep=False):
        """The fields of a pass; there: which of its fields there are; wanted:
        those with a gradient."""
        names = [field for field, here in zip(self.fields, there) if here]
        names += [field for field, width in self.kept if keep and width]
        names += [field for field, _ in self.picks]
        if number == _FORWARD:
            return names + [field for field, _ in self.outs]
        return names + ["grad_" + field for field, _ in self.outs] + [
            "grad_" + field for field, want in zip(self.fields, wanted)
            if want]

    def problem(self, there, number, wanted, keep=False):
        """The _abi.Problem of a pass."""
        return self._problem(self._supposed(there, number, wanted, keep),
                             number)

    def problem_of(self, ends, tensors, backward, keep=False):
        """That of a call, or of its gradient by the tensors that require one
        (by all, if none does)."""
        there = self.fields_there(tensors)
        wanted = self.inner([t is not None and t.requires_grad
                             for t in (*ends, *tensors)])
        return self.problem(there, int(backward),
                            wanted if any(wanted) else there, keep)

    def fields_there(self, tensors):
        return _mlp_layout.there(self.layout, tensors)

    def inner(self, wanted):
        return _mlp_layout.inner(self.layout, wanted)

    def _nowhere(self, there, number, wanted):
        return ctypes.byref(_args(dict.fromkeys(
            self._supposed(there, number, wanted), _NOWHERE)))

    # ---- how a call runs

    def keeps_for(self, graph, tensors, wanted, keep):
        """Whether inner values are kept between the passes; keep: what the
        caller says, None leaves it to the library."""
        if keep is not None or graph.device.type == "cpu":
            return bool(keep) and graph.device.type != "cpu"
        if wanted not in self.keeps:
            there, size = self.fields_there(tensors), ctypes.c_int64()
            check(library().dfgnn_edge_mlp_keep(
                ctypes.byref(size), ctypes.byref(self.mlp),
                graph.handle.pointer, self._nowhere(there, _FORWARD, wanted),
                self._nowhere(there, _BACKWARD, wanted)))
            self.keeps[wanted] = size.value > 0
        return self.keeps[wanted]

    def refusal(self, graph, there, wanted):
        """Why the device runs no pass of it; None if it does."""
        for number in (_FORWARD, _BACKWARD) if any(wanted) else (_FORWARD,):
            try:
                check(library().dfgnn_edge_mlp_serves(
                    ctypes.byref(self.mlp), graph.handle.pointer,
                    self._nowhere(there, number, wanted), number))
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
        given = dict(zip(self.fields, placed))
        given.update((field, out) for (field, _), out in zip(self.outs, outs))
        worst = ctypes.c_double()
        check(library().dfgnn_edge_mlp_check(
            ctypes.byref(worst), None, ctypes.byref(self.mlp),
            graph.handle.pointer, ctypes.byref(_args({
                field: tensor.data_ptr() for field, tensor in given.items()
                if tensor is not None})), _FORWARD))
        return worst.value
