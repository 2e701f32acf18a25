"""The links of the chains of _chain.py: each computes a tensor from those
before it, and their gradients from its own.

Links write no tensor but their own: ``values`` has the tensors of a pass by
name, ``grads`` their gradients, and ``wanted`` the names of those whose
gradient is asked for.  ``reads`` are the names that a link reads, ``makes``
those that it writes, and ``saves`` those that backward reads.  Each link
computes three ways:

  forward   quickly; nothing is recorded for gradients
  backward  quickly, the gradients of what it read
  plain     the same as forward by operations that autograd records, for
            gradients of gradients and passes without a kernel
"""

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F

from . import _abi, _execute, _fused
from ._attention_call import attend
from ._loops import fill_loops, loop_features
from ._operators import OPERATORS, sum_settings


class Slot(NamedTuple):
    """A tensor; or, with a width, its columns [start, start + width) of
    pitch."""
    name: str
    start: int = 0
    width: Optional[int] = None
    pitch: int = 0

    @property
    def part(self):
        return self.width is not None

    def of(self, values):
        tensor = values[self.name]
        if self.width is None:
            return tensor
        return tensor.narrow(1, self.start, self.width)

    def give(self, values, grads, grad):
        """Makes grad that of the tensor, or of its columns."""
        if self.width is None:
            grads[self.name] = grad
            return
        if self.name not in grads:
            grads[self.name] = torch.empty_like(values[self.name])
        self.of(grads).copy_(grad)


class Plane(NamedTuple):
    """One of the tensors that another stacks, which begins at element
    start."""
    name: str
    number: int
    start: int
    part = True
    width = None

    def of(self, values):
        return values[self.name][self.number]


def _add(grads, name, grad):
    """Adds a new tensor to a gradient."""
    before = grads.get(name)
    grads[name] = grad if before is None else grad.add_(before)


# ---- products ---------------------------------------------------------------

class Linear:
    """out = x [W_1; W_2; ...]^T + [b_1; b_2; ...], by one product; plus another
    tensor of its shape, which is overwritten.

    weights, biases: names; biases is empty or has as many as weights.
    rows: of each weight.
    """

    def __init__(self, x, weights, biases, rows, out, plus=None):
        self.x, self.weights, self.biases = x, weights, biases
        self.rows, self.out, self.plus = rows, out, plus
        self.reads = (x, *weights, *biases, *(() if plus is None else (plus,)))
        self.weight = weights[0] if len(weights) == 1 else out + " weight"
        self.makes = (out, self.weight)
        self.saves = (x, *weights, self.weight)

    def _parts(self, values):
        """(weight, bias or None) of the product."""
        weight, bias = values.get(self.weight), None
        if weight is None:
            weight = values[self.weight] = torch.cat(
                [values[name] for name in self.weights])
        if len(self.biases) == 1:
            bias = values[self.biases[0]]
        elif self.biases:
            bias = torch.cat([values[name] for name in self.biases])
        return weight, bias

    def forward(self, graph, values, keep):
        weight, bias = self._parts(values)
        if self.plus is None:
            values[self.out] = F.linear(values[self.x], weight, bias)
            return
        out = values[self.plus].addmm_(values[self.x], weight.t())
        values[self.out] = out if bias is None else out.add_(bias)

    def backward(self, graph, values, grads, wanted):
        grad, x = grads[self.out], values[self.x]
        if not wanted.isdisjoint(self.weights):
            self._split(grads, self.weights, grad.t().mm(x))
        if not wanted.isdisjoint(self.biases):
            self._split(grads, self.biases, grad.sum(0))
        if self.x in wanted:
            weight, before = values[self.weight], grads.get(self.x)
            grads[self.x] = grad.mm(weight) if before is None else \
                before.addmm_(grad, weight)
        if self.plus is not None:
            grads[self.plus] = grad

    def _split(self, grads, names, grad):
        parts = (grad,) if len(names) == 1 else \
            grad.unsafe_split_with_sizes(self.rows)
        for name, part in zip(names, parts):
            _add(grads, name, part)

    def plain(self, graph, values):
        out = F.linear(values[self.x], *self._parts(values))
        values[self.out] = out if self.plus is None else \
            out + values[self.plus]


class Scores:
    """out[k, n, h] = <h[n, h, :], a_k[h, :]> of several a_k [1, H, D], in the
    type that kernels read scores in; h [N, H * D].

    many: h has so many rows that a product with a matrix of mostly zeros
        costs less than passes over what elementwise operations hold.
    """

    def __init__(self, h, atts, out, exact, many=False):
        self.h, self.atts, self.out, self.exact = h, atts, out, exact
        self.many = many
        self.reads = self.saves = (h, *atts)
        self.makes = (out,)

    @staticmethod
    def _matrices(atts):
        """[K, H * D, H] of a_k [K, H, D]: column h has head h of a_k."""
        return torch.diag_embed(atts.transpose(1, 2), dim1=1, dim2=3).flatten(
            1, 2)

    def forward(self, graph, values, keep):
        if self.many:
            atts = torch.cat([values[name] for name in self.atts])
            h = values[self.h]
            values[self.out] = h.expand(len(self.atts), *h.shape).bmm(
                self._matrices(atts))
        else:
            self.plain(graph, values)
        if values[self.out].dtype is not self.exact:
            values[self.out] = values[self.out].to(self.exact)

    def backward(self, graph, values, grads, wanted):
        h, shape = values[self.h], values[self.atts[0]].shape
        grad = grads[self.out]
        if grad.dtype is not h.dtype:
            grad = grad.to(h.dtype)
        if self.many:
            self._through_matrices(values, grads, wanted, h, grad, shape)
            return
        grad = grad.unsqueeze(-1)
        if not wanted.isdisjoint(self.atts):
            found = (h.view(1, -1, *shape[1:]) * grad).sum(1)
            grads.update(zip(self.atts, found.unsafe_split_with_sizes(
                [1] * len(self.atts))))
        if self.h in wanted:
            before = grads.get(self.h)
            if before is None:
                before = grads[self.h] = torch.zeros_like(h)
            before = before.view(-1, *shape[1:])
            for one, att in zip(grad.unbind(), self.atts):
                before.addcmul_(one, values[att])

    def _through_matrices(self, values, grads, wanted, h, grad, shape):
        grad = grad.transpose(0, 1).flatten(1)  # [N, K * H]
        if not wanted.isdisjoint(self.atts):
            _, heads, dim = shape
            found = h.t().mm(grad).view(heads, dim, -1, heads).diagonal(
                dim1=0, dim2=3).permute(1, 2, 0)
            grads.update(zip(self.atts, found.split(1)))
        if self.h in wanted:
            matrices = self._matrices(torch.cat(
                [values[name] for name in self.atts]))
            matrix = matrices.transpose(0, 1).flatten(1).t()
            before = grads.get(self.h)
            grads[self.h] = grad.mm(matrix) if before is None else \
                before.addmm_(grad, matrix)

    def plain(self, graph, values):
        atts = torch.stack([values[name] for name in self.atts])
        h = values[self.h].view(1, -1, *atts.shape[2:])
        values[self.out] = (h * atts).sum(-1)


class EdgeScores:
    """out [E, H] = <a_h, W_h e> of edge features e [E, F], for att [1, H, D]
    and weight [H * D, F], in the type that kernels read scores in."""

    def __init__(self, edges, weight, att, out, exact):
        self.edges, self.weight, self.att = edges, weight, att
        self.out, self.exact = out, exact
        self.reads = self.saves = (edges, weight, att)
        self.makes = (out,)

    def _matrix(self, values):
        """([H, F] the weights of features, W [H, D, F], a [H, D, 1])."""
        att = values[self.att][0].unsqueeze(-1)
        weight = values[self.weight].view(*att.shape[:2], -1)
        return (att * weight).sum(1), weight, att

    def forward(self, graph, values, keep):
        self.plain(graph, values)
        if values[self.out].dtype is not self.exact:
            values[self.out] = values[self.out].to(self.exact)

    def backward(self, graph, values, grads, wanted):
        edges, grad = values[self.edges], grads[self.out]
        if grad.dtype is not edges.dtype:
            grad = grad.to(edges.dtype)
        matrix, weight, att = self._matrix(values)
        if self.edges in wanted:
            _add(grads, self.edges, grad.mm(matrix))
        if wanted.isdisjoint((self.weight, self.att)):
            return
        found = grad.t().mm(edges).unsqueeze(1)
        if self.weight in wanted:
            grads[self.weight] = (found * att).flatten(0, 1)
        if self.att in wanted:
            grads[self.att] = (found * weight).sum(-1).unsqueeze(0)

    def plain(self, graph, values):
        values[self.out] = values[self.edges] @ self._matrix(values)[0].t()


class ByEdge:
    """out: a tensor by edge in the graph's order, from the caller's; or dense,
    in the caller's, if it is listed."""

    def __init__(self, given, out, listed=False):
        self.given, self.out, self.listed = given, out, listed
        self.reads, self.saves, self.makes = (given,), (), (out,)

    def forward(self, graph, values, keep):
        given = values[self.given]
        values[self.out] = given.contiguous() if self.listed else \
            graph.to_graph_order(given)

    def backward(self, graph, values, grads, wanted):
        grad = grads[self.out]
        _add(grads, self.given, grad if self.listed else
             graph.to_caller_order(grad))

    def plain(self, graph, values):
        values[self.out] = values[self.given]  # attend() turns it itself


class ByLoopedEdge:
    """out: features [E, F] of the caller's edges as those of a graph with self
    loops, in its order; fill says what the loops have: "mean", "add" or
    "sum"."""

    def __init__(self, given, out, fill):
        self.given, self.out, self.fill = given, out, fill
        self.reads, self.saves, self.makes = (given,), (), (out,)

    def forward(self, graph, values, keep):
        values[self.out] = fill_loops(graph, values[self.given], self.fill)

    def backward(self, graph, values, grads, wanted):
        _add(grads, self.given, fill_loops(graph, grads[self.out], self.fill,
                                           backward=True))

    def plain(self, graph, values):  # attend() turns it itself
        values[self.out] = loop_features(
            values[self.given], graph.kept, graph.edge_index, graph.num_dst,
            self.fill)


# ---- kernels ----------------------------------------------------------------

class _Kernel:
    """What links have in common that run an operator's plans: a call for each
    pass, made when it first runs."""

    def __init__(self):
        self._calls = [None, None]

    def _call(self, graph, backward):
        plan = self._make(graph, backward)
        args = plan.arguments()
        fields = self._fields(args, backward)
        found = self._calls[backward] = _execute.Call(plan, args, fields)
        return found


class _Given(NamedTuple):
    """An input of an operator."""
    field: str
    slot: object
    name: str
    offset: int  # in bytes, from the beginning of the tensor
    exact: bool  # its gradient is in the type of scores
    convert: bool  # it may have to be converted to that type


class Attention(_Kernel):
    """out [N, H * D], and the log-sum-exp of its scores: attention by an
    operator.

    inputs: a Slot, or None, for each input of the operator.
    listed: features of edges are in the caller's order.
    """

    def __init__(self, graph, op, inputs, out, heads, dim, dtype, settings,
                 edge_dim=0, listed=False):
        super().__init__()
        self.listed = listed
        self.op, self.inputs, self.out = op, inputs, out
        self.heads, self.dim, self.dtype = heads, dim, dtype
        self.settings, self.edge_dim = settings, edge_dim
        self.exact = torch.float64 if dtype == torch.float64 else \
            torch.float32
        self.lse = out + " lse"
        self.shape = (graph.num_dst, heads * dim)
        self.lse_shape = (graph.num_dst, heads)
        self.given = []
        for spec, slot in zip(OPERATORS[op].inputs, inputs):
            if slot is not None:
                size = torch.finfo(self.exact if spec.scalar
                                   else dtype).bits // 8
                self.given.append(_Given(
                    spec.field, slot, slot.name, slot.start * size,
                    spec.scalar or spec.dims[0] not in "NME",
                    spec.scalar and dtype != self.exact))
        self.reads = tuple(given.name for given in self.given)
        self.makes = (out, self.lse)
        self.saves = (*self.reads, out, self.lse, "seed")

    def _make(self, graph, backward):
        return _execute.Plan(graph.handle, graph.device, _execute.problem(
            self.op, backward, self.dtype, self.heads, self.dim, self.settings,
            False, self.edge_dim, self.listed), self.settings)

    def _fields(self, args, backward):
        """The fields of a call's pointers; those of parts get strides."""
        fields = [given.field for given in self.given]
        grads = ["grad_" + field for field in fields] if backward else []
        for field, given in zip(fields + grads, self.given * 2):
            slot = given.slot
            if slot.width is not None:
                setattr(args, field + "_strides", _abi.Strides(
                    slot.pitch, slot.width // self.heads, 1))
        if self.settings.dropout:
            fields += ["seed", "edge_number"]
        fields += ["out", "lse"]
        return fields + ["grad_out"] + grads if backward else fields

    def _inputs(self, graph, values):
        """(pointers of the inputs, tensors that must stay alive until the call
        is made)."""
        pointers, kept = [], []
        for given in self.given:
            tensor = values[given.name]
            if given.convert and tensor.dtype != self.exact:
                tensor = tensor.to(self.exact)
                kept.append(tensor)
            pointers.append(tensor.data_ptr() + given.offset)
        if self.settings.dropout:
            number = graph.edge_number
            pointers += [values["seed"].data_ptr(),
                         None if number is None else number.data_ptr()]
        return pointers, kept

    def forward(self, graph, values, keep):
        call = self._calls[0] or self._call(graph, False)
        pointers, kept = self._inputs(graph, values)
        like = values[self.reads[0]]
        out, lse = like.new_empty(self.shape), None
        if keep:
            lse = like.new_empty(self.lse_shape, dtype=self.exact)
            values[self.lse] = lse
        call.run(graph.device, *pointers, out.data_ptr(),
                 None if lse is None else lse.data_ptr())
        values[self.out] = out

    def backward(self, graph, values, grads, wanted):
        call = self._calls[1] or self._call(graph, True)
        pointers, kept = self._inputs(graph, values)
        for tensor in values[self.out], values[self.lse], grads[self.out]:
            pointers.append(tensor.data_ptr())
        made = []
        for given in self.given:
            name = given.name
            if name not in wanted:
                pointers.append(None)
                continue
            if given.slot.part:
                grad = grads.get(name)
                if grad is None:
                    grad = grads[name] = torch.empty_like(values[name])
            else:
                grad = torch.empty_like(values[name]) if not given.exact else \
                    torch.empty_like(values[name], dtype=self.exact)
                made.append((name, grad))
            pointers.append(grad.data_ptr() + given.offset)
        call.run(graph.device, *pointers)
        for name, grad in made:
            dtype = values[name].dtype
            _add(grads, name, grad if grad.dtype is dtype else grad.to(dtype))

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
        out = attend(self.op, graph, tuple(inputs), None, settings.dropout,
                     draw=lambda device: values["seed"], scale=settings.scale,
                     slope=settings.slope, return_weights=False,
                     self_loops=False, edge_use=settings.edge_use)
        values[self.out] = out.flatten(1)


class Sum(_Kernel):
    """out [N, F]: the sum or mean of the rows x [M, F] of the neighbours, with
    GCN's scales if symmetric."""

    def __init__(self, graph, op, x, out, dim, dtype, symmetric=False):
        super().__init__()
        self.op, self.x, self.out = op, x, out
        self.dim, self.dtype, self.symmetric = dim, dtype, symmetric
        self.shape = (graph.num_dst, dim), (graph.num_src, dim)
        self.reads, self.saves, self.makes = (x,), (), (out,)

    def _make(self, graph, backward):
        settings = sum_settings()
        return _execute.Plan(graph.handle, graph.device, _execute.problem(
            self.op, backward, self.dtype, 1, self.dim, settings, False),
            settings)

    def _fields(self, args, backward):
        fields = ["grad_out", "grad_value"] if backward else ["value", "out"]
        return fields + ["scale_dst", "scale_src"] if self.symmetric else \
            fields

    def _run(self, graph, backward, given):
        call = self._calls[backward] or self._call(graph, backward)
        made = given.new_empty(self.shape[backward])
        scales = ()
        if self.symmetric:
            scales = [t.data_ptr() for t in
                      _fused.normalization(graph, self.dtype)]
        call.run(graph.device, given.data_ptr(), made.data_ptr(), *scales)
        return made

    def forward(self, graph, values, keep):
        values[self.out] = self._run(graph, False, values[self.x])

    def backward(self, graph, values, grads, wanted):
        _add(grads, self.x, self._run(graph, True, grads[self.out]))

    def plain(self, graph, values):
        values[self.out], = _fused.of_neighbours(
            graph, self.op, values[self.x], symmetric=self.symmetric)


class Reduced:
    """out [N, F]: messages reduced by an operator.

    given: by field of the operator's inputs the name of a tensor, None where
        there is none: value [M, F], and edge_weight [E] of spmm-weighted or
        edge_attr [E, F'] with edge_weight [F, F'] and edge_bias [F], or
        edge_attr [E, F].
    listed: edge_attr is in the caller's order.
    """

    def __init__(self, op, out, listed=False, **given):
        self.op, self.out, self.listed = op, out, listed
        self.spec = OPERATORS[op]
        self.given = {field: name for field, name in given.items()
                      if name is not None}
        args = {t.field: f"{out} {t.field}" for t in self.spec.outs if t.index}
        self.args = tuple(args.values())
        self.names = dict(self.given, **args)  # by field
        self.reads = tuple(self.given.values())
        again = {t.field for t in self.spec.backward
                 if t.flag == "none" or len(self.given) > 1}
        self.saves = (*self.args, *(name for field, name in self.given.items()
                                    if field in again))
        self.makes = (out, *self.args)
        self._made = None  # the recipe, since the first forward

    def _shaped(self, field, tensor):
        """A tensor with a dimension of heads."""
        if field not in self.given or field == "edge_attr" and \
                "edge_weight" in self.given:
            return tensor
        by_row = field in ("value", "edge_attr") or self.op == "spmm-weighted"
        return tensor.unsqueeze(1 if by_row else 0)

    def forward(self, graph, values, keep):
        inputs = self.spec.given({
            field: self._shaped(field, values[name])
            for field, name in self.given.items()})
        self._made = self._made or _execute.recipe(
            graph, self.op, inputs, sum_settings(), self.listed)
        out, *args = _execute.forward(graph, self._made, inputs, None, keep)
        values[self.out] = out.squeeze(1)
        values.update(zip(self.args, args))

    def backward(self, graph, values, grads, wanted):
        made = self._made
        kept = [self._shaped(field, values[self.names[field]])
                for field in made.kept]
        names = [self.given.get(field) for field, _ in made.places]
        found = _execute.backward(
            graph, made, kept, (grads[self.out].unsqueeze(1),),
            [name in wanted for name in names])
        for name, grad in zip(names, found):
            if grad is not None:
                shape = values[name].shape if name in values else \
                    (grad.size(0), -1)
                _add(grads, name, grad.view(shape))

    def plain(self, graph, values):
        given = {field: self._shaped(field, values[name])
                 for field, name in self.given.items()}
        for field in given:
            if self.spec.inputs[self.spec.fields[field]].dims[0] == "E":
                given[field] = graph.to_graph_order(given[field])
        out, = _fused.sums(graph, self.op, given)
        values[self.out] = out.squeeze(1)


# ---- rows of nodes ----------------------------------------------------------

class Own:
    """out = x plus (1 + eps) times a node's own row."""

    def __init__(self, x, own, eps, out):
        self.x, self.own, self.eps, self.out = x, own, eps, out
        self.reads, self.saves, self.makes = (x, own, eps), (own, eps), (out,)

    def forward(self, graph, values, keep):
        self.plain(graph, values)

    def backward(self, graph, values, grads, wanted):
        grad, own = grads[self.out], values[self.own]
        grads[self.x] = grad
        if self.eps in wanted:
            grads[self.eps] = (grad * own).sum().view(
                values[self.eps].shape)
        if self.own in wanted:
            _add(grads, self.own, grad * (1 + values[self.eps]))

    def plain(self, graph, values):
        values[self.out] = torch.addcmul(values[self.x], values[self.own],
                                         1 + values[self.eps])


class Relu:
    """out: x where it is above 0."""

    def __init__(self, x, out):
        self.x, self.out = x, out
        self.reads, self.saves, self.makes = (x,), (out,), (out,)

    def forward(self, graph, values, keep):
        self.plain(graph, values)

    def backward(self, graph, values, grads, wanted):
        out = values[self.out]
        _add(grads, self.x, torch.where(out > 0, grads[self.out],
                                        out.new_zeros(())))

    def plain(self, graph, values):
        values[self.out] = values[self.x].relu()


class Normalized:
    """out: the rows of x, each over its length."""

    least = 1e-12  # the length of a row of zeros, as F.normalize has it

    def __init__(self, x, out):
        self.x, self.out = x, out
        self.reads, self.saves, self.makes = (x,), (x,), (out,)

    def forward(self, graph, values, keep):
        self.plain(graph, values)

    def backward(self, graph, values, grads, wanted):
        x, grad = values[self.x], grads[self.out]
        length = x.norm(dim=-1, keepdim=True)
        long = length > self.least
        length = length.clamp(min=self.least)
        along = (grad * x).sum(-1, keepdim=True) / (length * length)
        _add(grads, self.x, (grad - x * along * long) / length)

    def plain(self, graph, values):
        values[self.out] = F.normalize(values[self.x], dim=-1)


class Gate:
    """out = b r + (1 - b) x, where b [N, 1] is the sigmoid of the product of
    [x, r, x - r] with weight [1, 3 C]; r is a Slot."""

    def __init__(self, x, r, weight, out):
        self.x, self.r, self.weight, self.out = x, r, weight, out
        self.gate = out + " gate"
        self.reads = (x, r.name, weight)
        self.makes = (out, self.gate)
        self.saves = (*self.reads, self.gate)

    def _weights(self, values):
        """Those of x and those of r, each [1, C]."""
        x, r, both = values[self.weight].chunk(3, 1)
        return x + both, r - both

    def forward(self, graph, values, keep):
        self.plain(graph, values)

    def backward(self, graph, values, grads, wanted):
        x, r, gate = values[self.x], self.r.of(values), values[self.gate]
        grad, (of_x, of_r) = grads[self.out], self._weights(values)
        inner = ((r - x) * grad).sum(1, keepdim=True) * gate * (1 - gate)
        if self.weight in wanted:
            along_x, along_r = inner.t().mm(x), inner.t().mm(r)
            grads[self.weight] = torch.cat(
                [along_x, along_r, along_x - along_r], 1)
        if self.r.name in wanted:
            self.r.give(values, grads, grad * gate + inner * of_r)
        if self.x in wanted:
            _add(grads, self.x, grad * (1 - gate) + inner * of_x)

    def plain(self, graph, values):
        x, r = values[self.x], self.r.of(values)
        of_x, of_r = self._weights(values)
        gate = values[self.gate] = (
            x @ of_x.t() + r @ of_r.t()).sigmoid()
        values[self.out] = gate * r + (1 - gate) * x


class Finish:
    """out [N, C], from x [N, H * D]: all heads side by side, or their mean; plus
    the columns of another tensor, and a bias."""

    def __init__(self, x, out, heads=1, mean=False, plus=None, bias=None):
        self.x, self.out, self.heads, self.mean = x, out, heads, mean
        self.plus, self.bias = plus, bias
        self.reads = (x, *(() if plus is None else (plus.name,)),
                      *(() if bias is None else (bias,)))
        self.saves, self.makes = (), (out,)

    def forward(self, graph, values, keep):
        self.plain(graph, values)

    def backward(self, graph, values, grads, wanted):
        grad = grads[self.out]
        if self.bias in wanted:
            grads[self.bias] = grad.sum(0)
        if self.plus is not None and self.plus.name in wanted:
            self.plus.give(values, grads, grad)
        if self.mean:
            grad = (grad / self.heads).repeat(1, self.heads)
        grads[self.x] = grad

    def plain(self, graph, values):
        out = values[self.x]
        if self.mean:
            out = out.view(out.size(0), self.heads, -1).mean(1)
        if self.plus is not None:
            out = out + self.plus.of(values)
        if self.bias is not None:
            out = out + values[self.bias]
        values[self.out] = out
