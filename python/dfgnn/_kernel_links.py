"""The links of chains that run the library's operators, or bring tensors by
edge into the order that they read; see _links.py."""

import weakref
from typing import NamedTuple

import torch

from . import _abi, _execute, _operators
from ._checks import exact
from ._device import raw_stream
from ._evaluators import counts, reduced
from ._execute import sum_settings
from ._links import add
from ._loops import fill_loops, loop_features
from ._operators import OPERATORS
from ._remember import remember, stamp
from .aggregation import sums
from .errors import InvalidError
from .functional import attend
from .ops import reordered


class _Ordered(NamedTuple):
    """The last result of _in_order() on a graph; of, result: weak refs."""
    of: object
    stamp: tuple
    order: torch.Tensor
    stream: object
    result: object

    def is_of(self, tensor, order, stream):
        return self.of() is tensor and self.stamp == stamp(tensor) and \
            self.order is order and self.stream == stream


def _in_order(graph, tensor):
    """A tensor by edge in the graph's order: the result of another layer on
    this stream, if that still keeps it for its gradient, else a new one."""
    about = graph.order, raw_stream(tensor.device)
    last = graph._derived.get("in order")
    if last is not None and last.is_of(tensor, *about):
        ordered = last.result()
        if ordered is not None:
            return ordered
    ordered = graph.to_graph_order(tensor)
    graph._derived["in order"] = _Ordered(
        weakref.ref(tensor), stamp(tensor), *about, weakref.ref(ordered))
    return ordered


def _may_share(tensor):
    """Whether layers may share results of a tensor: nobody writes to a computed
    one unseen, as .data of leaves lets them; but a CUDA graph has to compute
    all that it reads."""
    return tensor.grad_fn is not None and not (
        tensor.is_cuda and torch.cuda.is_current_stream_capturing())


class ByEdge:
    """out: a tensor by edge in the graph's order, from the caller's; or dense,
    in the caller's, if it is listed."""

    def __init__(self, source, out, listed=False):
        self.source, self.out, self.listed = source, out, listed
        self.reads, self.saves, self.makes = (source,), (), (out,)

    def forward(self, graph, values, keep):
        tensor = values[self.source]
        if self.listed:
            values[self.out] = tensor.contiguous()
        elif keep and graph.edge_order is not None and _may_share(tensor):
            values[self.out] = _in_order(graph, tensor)
        else:
            values[self.out] = graph.to_graph_order(tensor)

    def backward(self, graph, values, grads, wanted):
        grad = grads[self.out]
        add(grads, self.source, grad if self.listed else
             graph.to_caller_order(grad))

    def plain(self, graph, values):
        values[self.out] = values[self.source]  # attend() turns it itself


class ByLoopedEdge:
    """out: features [E, F] of the caller's edges as those of a graph with self
    loops, in its order; fill says what the loops have: "mean", "add" or
    "sum"."""

    def __init__(self, source, out, fill):
        self.source, self.out, self.fill = source, out, fill
        self.reads, self.saves, self.makes = (source,), (), (out,)

    def forward(self, graph, values, keep):
        values[self.out] = fill_loops(graph, values[self.source], self.fill)

    def backward(self, graph, values, grads, wanted):
        add(grads, self.source, fill_loops(graph, grads[self.out], self.fill,
                                           backward=True))

    def plain(self, graph, values):  # attend() turns it itself
        values[self.out] = loop_features(
            values[self.source], graph.kept, graph.edge_index, graph.num_dst,
            self.fill)


class _Kernel:
    """The base of links that run an operator's plans: a call for each
    graph and pass, made when it first runs."""

    def __init__(self, settings):
        self.settings = settings
        self._shared = [None, None]  # by pass, what graphs share

    def _call(self, graph, backward):
        handle = graph.handle
        call = handle.recipes.get((self, backward))
        if call is None:
            shared = self._shared[backward]
            if shared is None:
                args = _execute.arguments(self.settings)
                fields = self._fields(args, backward)
                shared = self._shared[backward] = (
                    self._problem(backward), _execute.Form(args, fields))
            wanted, form = shared
            call = handle.recipes.setdefault((self, backward), _execute.Call(
                _execute.Plan(handle, graph.device, wanted, self.settings),
                form))
        return call


class _Input(NamedTuple):
    """An input of an operator, with its fields of the forward and of the
    backward pass; exact: its gradient is in the type of scores."""
    slot: object
    name: str
    field: _execute.Field
    grad: _execute.Field
    exact: bool

    def of(self, tensor):
        """The tensor, or the address of its plane: of those that a tensor
        stacks."""
        plane = self.slot.plane
        if not plane:
            return tensor
        return tensor.data_ptr() + plane * tensor.stride(0) * \
            tensor.element_size()


class Attention(_Kernel):
    """out [N, H * D], and the log-sum-exp of its scores: attention by an
    operator.

    inputs: a Slot, or None, for each input of the operator.
    listed: features of edges are in the caller's order.
    """

    def __init__(self, op, inputs, out, heads, dim, dtype, settings,
                 edge_dim=0, listed=False):
        super().__init__(settings)
        self.listed = listed
        self.op, self.inputs, self.out = op, inputs, out
        self.heads, self.dim, self.dtype = heads, dim, dtype
        self.edge_dim = edge_dim
        self.exact = exact(dtype)
        self.lse = out + " lse"
        self.operands = []
        for spec, slot in zip(OPERATORS[op].inputs, inputs):
            if slot is not None:
                kind = self.exact if spec.scalar else dtype
                begin = slot.start * (torch.finfo(kind).bits // 8)
                self.operands.append(_Input(
                    slot, slot.name, _execute.Field(spec.field, kind, begin),
                    _execute.Field("grad_" + spec.field, None, begin),
                    spec.scalar or spec.dims[0] not in "NME"))
        self.reads = tuple(one.name for one in self.operands)
        self.makes = (out, self.lse)
        self.saves = (*self.reads, out, self.lse, "seed")

    def _problem(self, backward):
        return _operators.problem(
            self.op, backward, self.dtype, self.heads, self.dim, self.settings,
            False, self.edge_dim, self.listed)

    def _fields(self, args, backward):
        """The fields of a call; those of parts get strides."""
        fields = [one.field for one in self.operands]
        grads = [one.grad for one in self.operands] if backward else []
        for field, one in zip(fields + grads, self.operands * 2):
            slot = one.slot
            if slot.width is not None:
                setattr(args, field.name + "_strides", _abi.Strides(
                    slot.pitch, slot.width // self.heads, 1))
        names = ["seed", "edge_number"] if self.settings.dropout else []
        names += ["out", "lse", *(["grad_out"] if backward else [])]
        return fields + list(map(_execute.Field, names)) + grads

    def _inputs(self, graph, values):
        tensors = [one.of(values[one.name]) for one in self.operands]
        if self.settings.dropout:
            tensors += [values["seed"], graph.edge_number]
        return tensors

    def forward(self, graph, values, keep):
        call = self._call(graph, False)
        like, rows = values[self.reads[0]], graph.num_dst
        out, lse = like.new_empty(rows, self.heads * self.dim), None
        if keep:
            lse = like.new_empty((rows, self.heads), dtype=self.exact)
            values[self.lse] = lse
        call.run(graph.device, [*self._inputs(graph, values), out, lse])
        values[self.out] = out

    def backward(self, graph, values, grads, wanted):
        call = self._call(graph, True)
        tensors = self._inputs(graph, values)
        tensors += [values[self.out], values[self.lse], grads[self.out]]
        exact_grads = []
        for one in self.operands:
            name = one.name
            if name not in wanted:
                tensors.append(None)
                continue
            if one.slot.part:
                grad = grads.get(name)
                if grad is None:
                    grad = grads[name] = torch.empty_like(values[name])
            else:
                grad = torch.empty_like(values[name]) if not one.exact else \
                    torch.empty_like(values[name], dtype=self.exact)
                exact_grads.append((name, grad))
            tensors.append(one.of(grad))
        call.run(graph.device, tensors)
        for name, grad in exact_grads:
            dtype = values[name].dtype
            add(grads, name, grad if grad.dtype is dtype else grad.to(dtype))

    def plain(self, graph, values):
        spec = OPERATORS[self.op]
        shapes = {"HD": (self.heads, self.dim), "1": (1,)}
        inputs = []
        for input_, slot in zip(spec.inputs, self.inputs):
            tensor = None if slot is None else slot.of(values)
            if input_.dims in ("NHD", "MHD"):
                tensor = tensor.view(-1, self.heads, self.dim)
            elif tensor is not None and input_.dims in shapes:
                tensor = tensor.view(shapes[input_.dims])
            inputs.append(tensor)
        while inputs[-1] is None and len(inputs) > 3:
            inputs.pop()
        settings = self.settings
        out = attend(graph, self.op, tuple(inputs), None, settings.dropout,
                     draw=lambda device: values["seed"], scale=settings.scale,
                     slope=settings.slope, return_weights=False,
                     self_loops=False, edge_use=settings.edge_use)
        values[self.out] = out.flatten(1)


class FewEdges:
    """The edges of a call whose sums torch makes in less time than the host
    needs for a graph and kernels."""

    empty = False

    def __init__(self, edges, sizes):
        self.edges, self.num_dst, self.device = edges, sizes[1], edges.device

    def sums(self, op, x):
        """[num_dst, F] the sums or means of rows of neighbours."""
        src, dst = self.edges.unbind()
        try:
            total = reduced("sum", x.index_select(0, src), dst, self.num_dst)
        except torch.OutOfMemoryError:
            raise
        except (IndexError, RuntimeError) as error:  # of a node out of range
            raise InvalidError(str(error)) from None
        return total if op == "spmm-sum" else total / remember(
            self.edges, ("counts", self.num_dst, x.dtype),
            lambda: counts(dst, x, self.num_dst).clamp_(min=1))


class Reduced(_Kernel):
    """out [N, F]: rows of neighbours, or messages, reduced by an operator.

    inputs: by field of the operator's inputs the name of a tensor, None where
        there is none: value [M, F], and edge_weight [E] of spmm-weighted or
        edge_attr [E, F'] with edge_projection [F, F'] and edge_bias [F], or
        edge_attr [E, F].
    listed: edge_attr is in the caller's order.
    scales: a function (graph, dtype) that gives what rows of destinations and
        those of sources are multiplied by, or None.
    """

    def __init__(self, op, out, listed=False, scales=None, **inputs):
        super().__init__(sum_settings())
        self.op, self.out, self.listed = op, out, listed
        self.spec, self.scales = OPERATORS[op], scales
        self.inputs = {field: name for field, name in inputs.items()
                       if name is not None}
        args = {t.field: f"{out} {t.field}" for t in self.spec.outs if t.index}
        self.args = tuple(args.values())
        self.names = {**self.inputs, **args, "scale_dst": "scale_dst",
                      "scale_src": "scale_src"}  # by field
        self.value = self.inputs["value"]
        self.reads = tuple(self.inputs.values())
        again = {t.field for t in self.spec.backward
                 if t.flag == "none" or len(self.inputs) > 1}
        self.saves = (*self.args, *(name for field, name in self.inputs.items()
                                    if field in again))
        self.makes = (out, *self.args)
        self.recipe = None  # what calls on all graphs share

    def _shaped(self, field, tensor):
        """A tensor with a dimension of heads."""
        if field == "edge_attr" and "edge_projection" in self.inputs:
            return tensor
        by_row = field in ("value", "edge_attr") or self.op == "spmm-weighted"
        return tensor.unsqueeze(1 if by_row else 0)

    def _given(self, graph, values):
        """The tensors of an operator's call by field."""
        fields = {field: self._shaped(field, values[name])
                  for field, name in self.inputs.items()}
        if self.scales is not None:
            fields["scale_dst"], fields["scale_src"] = self.scales(
                graph, fields["value"].dtype)
        return fields

    def _first(self, graph, values):
        """The recipe, from the first of the graphs that a chain serves: they
        differ in numbers of rows alone."""
        recipe = _operators.Recipe(graph, self.op, self.spec.given(
            self._given(graph, values)), self.settings, self.listed)
        self.order = [self.names.get(field) for field, _ in recipe.places]
        self.kept = [self.names[field] for field in recipe.kept]
        self.grads = [(self.inputs.get(field), dtype)
                      for (field, _), (_, shape, dtype, _, _) in zip(
                          recipe.places, recipe.grads) if shape is not None]
        self.recipe = recipe  # last, as another thread may look for it
        return recipe

    def _problem(self, backward):
        return self.recipe.problem(backward)

    def _fields(self, args, backward):
        return self.recipe.fields(backward)

    def _run(self, graph, backward, values, names, more):
        """Runs a pass: of the tensors with these names, and of more."""
        if self.scales is not None:
            values["scale_dst"], values["scale_src"] = self.scales(
                graph, self.recipe.dtype)
        self._call(graph, backward).run(
            graph.device, [*map(values.get, names), *more])

    def forward(self, graph, values, keep):
        recipe, value = self.recipe, values[self.value]
        if recipe is None:
            recipe = self._first(graph, values)
        out = values[self.out] = value.new_empty(graph.num_dst, recipe.dim)
        results = [out]
        if keep and self.args:
            for name in self.args:
                values[name] = torch.empty_like(out, dtype=torch.int32)
                results.append(values[name])
        self._run(graph, False, values, self.order, results)

    def backward(self, graph, values, grads, wanted):
        dtype, grad, results = self.recipe.dtype, grads[self.out], []
        for name, kind in self.grads:
            if name not in wanted:
                results.append(None)
            elif name in values:
                results.append(torch.empty_like(values[name], dtype=kind))
            else:
                results.append(grad.new_empty(graph.num_src, self.recipe.dim))
        self._run(graph, True, values, self.kept, [grad, *results])
        for (name, kind), result in zip(self.grads, results):
            if result is not None:
                add(grads, name, result if kind is dtype else result.to(dtype))

    def plain(self, graph, values):
        if type(graph) is FewEdges:
            values[self.out] = graph.sums(self.op, values[self.value])
            return
        fields = self._given(graph, values)
        for field in self.inputs:
            if self.spec.inputs[self.spec.fields[field]].dims[0] == "E":
                fields[field] = reordered(graph, fields[field])
        out, = sums(graph, self.op, fields)
        values[self.out] = out.squeeze(1)
