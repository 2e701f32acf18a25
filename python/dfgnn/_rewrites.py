"""Rewrites of the calls that _nodes noted: one takes the place of several.

MLPs on edges, linear maps with activations between them, of what both ends and
the edge make, with a norm, a residual and the reductions that read them, become
one call of _mlp_kernels.  Sums of a linear map over edges become the linear map
of sums: W maps a row for each node then, and not for each edge, and nothing of
its width is by edge.  So do sums of rows times matrices that a linear map makes
for each edge, as NNConv has them: they are linear in the products of the row
and the map's argument.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F

from . import _mlp_formula, _nodes
from ._facts import Fact
from ._nodes import Node
from ._trace import DST, EDGE, PARAM, SRC
from ._translations import canonical

# products of linear maps that a program computes for each edge; more are a
# matrix product of torch over all edges, or an MLP on edges
INLINE = 128


class Term(NamedTuple):
    """A product of the first layer: of rows by place, and its sign."""
    place: int
    node: Node  # the product by node, or the rows by edge
    weight: Node | None  # of rows by edge
    sign: int


class Stack(NamedTuple):
    """An MLP: what _mlp_kernels.run takes, as nodes."""
    settings: _mlp_formula.Settings
    terms: tuple
    scale: Node | None
    shift: Node | None
    weights: tuple  # of further layers
    biases: tuple  # a tuple of nodes for each layer, which are added
    dtype: torch.dtype | None  # an autocast region casts what it reads

    @property
    def widths(self):
        """The width of rows by edge, and of each layer, None where there is
        none."""
        edges = [term.weight.meta for term in self.terms if term.place == EDGE]
        return sum(w.size(1) for w in edges) or None, edges[0].size(
            0) if edges else None, *[w.meta.size(0) for w in self.weights]

    @property
    def computed_in(self):
        return self.dtype or self.terms[0].node.meta.dtype


def _activation(node):
    """(name, slope) of an activation's call, or None."""
    name, rest = canonical(node.name), node.args[1:]
    kwargs = dict(node.kwargs)
    kwargs.pop("inplace", None)
    if name in ("relu", "silu", "tanh", "sigmoid"):
        return (name, 0.0) if not kwargs else None
    if name == "gelu":
        how = kwargs.get("approximate", rest[0] if rest else "none")
        return ("gelu_tanh" if how == "tanh" else "gelu"), 0.0
    if name == "softplus":
        beta = kwargs.get("beta", rest[0] if rest else 1)
        return (name, 0.0) if beta == 1 else None
    key, usual = {"elu": ("alpha", 1.0), "leaky_relu": (
        "negative_slope", 0.01)}.get(name, (None, None))
    if key is None:
        return None
    return name, float(kwargs.get(key, rest[0] if rest else usual))


class _No(Exception):
    """Says that the calls are no MLP."""


class _Match:
    """Follows calls from the last to the first."""

    def __init__(self, facts, readers):
        self.facts, self.readers = facts, readers

    def plain(self, node):
        """The node, past calls that change nothing."""
        node = self.facts.now(node)
        while is_nothing(node):
            node = self.facts.now(node.args[0])
        return node

    def fact(self, node):
        return self.facts.of(node)

    def read_once(self, node):
        """Whether one call alone reads a node."""
        return len(self.readers.get(node, ())) == 1

    def by_edge(self, node):
        fact = self.fact(node)
        return _is_matrix(node) and fact.rows == _nodes.EDGES and \
            fact.role in ("row", "lift", "given")

    # ---- from e' to the last layer

    def stack(self, node):
        """The Stack that makes a node; raises _No."""
        if canonical(node.name) == "__add__" and not node.kwargs and \
                all(isinstance(n, Node) for n in node.args):
            for x, e in (node.args, node.args[::-1]):
                try:
                    return self._normed(self._inner(x), self.plain(e))
                except _No:
                    continue
        return self._normed(self.plain(node), None)

    def _inner(self, node):
        node = self.plain(node)
        if not self.read_once(node):
            raise _No
        return node

    def _normed(self, node, residual):
        norm, scale, shift, eps = None, None, None, 0.0
        if canonical(node.name) in ("layer_norm", "rms_norm"):
            norm, scale, shift, eps = self._norm(node)
            node = self._inner(node.args[0])
        last = _activation(node)
        if last:
            node = self._inner(node.args[0])
        dtype = node.meta.dtype
        if residual is not None and residual.meta.dtype != dtype:
            raise _No  # it stays of float where autocast lowers the products
        (terms, biases), rest, inner = self._layers(node)
        last = last or (None, 0.0)
        edge = [t for t in terms if t.place == EDGE]
        if residual is not None and not (
                len(edge) == 1 and edge[0].node is residual
                and edge[0].sign > 0):
            raise _No
        products = sum(math.prod(w.shape) for w in [
            *[w for w, _ in rest], *[t.weight for t in edge]])
        if not rest or products <= INLINE:
            raise _No  # a program does it
        names = {name for name, _ in inner}
        slopes = {slope for _, slope in [*inner, last] if slope}
        if len(names) > 1 or len(slopes) > 1 or len(rest) > 3:
            raise _No
        settings = _mlp_formula.Settings(
            1 + len(rest), names.pop() if names else None, last[0],
            slopes.pop() if slopes else 0.0, False, norm, eps,
            residual is not None)
        stack = Stack(settings, tuple(terms), scale, shift,
                      tuple(w for w, _ in rest),
                      (tuple(biases), *[(b,) if b is not None else ()
                                        for _, b in rest]), dtype)
        one = {node.meta.dtype for node in _operands(stack)} == {dtype}
        return stack._replace(dtype=None) if one else stack

    def _norm(self, node):
        by_name = node.arguments("input", "shape", "weight", *(
            ["bias"] if canonical(node.name) == "layer_norm" else []), "eps")
        shape = by_name.get("shape", by_name.get("normalized_shape"))
        if tuple(shape) != tuple(node.shape[-1:]):
            raise _No
        eps = by_name.get("eps", 1e-5 if "layer" in node.name else None)
        if eps is None:
            eps = torch.finfo(node.meta.dtype).eps
        return ("layer" if "layer" in node.name else "rms",
                by_name.get("weight"), by_name.get("bias"), float(eps))

    def _layers(self, node):
        """((terms, biases) of the first layer, [(weight, bias)] of the
        others, their activations)."""
        rest, between = [], []
        while canonical(node.name) == "linear":
            x, weight, bias = _linear_map(node)
            x = self.plain(x)
            activation = _activation(x) if self.by_edge(x) else None
            below = self.plain(x.args[0]) if activation else None
            if not activation or self.fact(node).pure or not self._sums(below) \
                    or not (self.read_once(x) and self.read_once(below)):
                break  # x is read by others, too: e' of another MLP
            rest.insert(0, (weight, bias))
            between.append(activation)
            node = below
        first = [], []
        self._first(node, 1, *first)
        return first, rest, between

    def _sums(self, node):
        return node.function is not None and canonical(node.name) in (
            "linear", "__add__", "sub", "__sub__") and self.by_edge(node)

    def _first(self, node, sign, terms, biases):
        """Sums of products of the first layer."""
        node = self.plain(node)
        name, fact = canonical(node.name), self.fact(node)
        if fact.place == PARAM and isinstance(node.meta, torch.Tensor) and \
                node.meta.dim() == 1 and sign > 0:
            biases.append(node)
            return
        if not self.by_edge(node):
            raise _No
        if fact.pure and fact.place in (DST, SRC):
            terms.append(Term(fact.place, node, None, sign))
        elif name in ("__add__", "sub", "__sub__") and not node.kwargs and \
                all(isinstance(n, Node) for n in node.args[:2]):
            self._first(node.args[0], sign, terms, biases)
            self._first(node.args[1], -sign if "sub" in name else sign,
                        terms, biases)
        elif name == "neg":
            self._first(node.args[0], -sign, terms, biases)
        elif name == "linear":
            x, weight, bias = _linear_map(node)
            x = self.plain(x)
            if not self.by_edge(x) or len(weight.shape) != 2:
                raise _No
            terms.append(Term(EDGE, x, weight, sign))
            if bias is not None:
                if sign < 0:
                    raise _No
                biases.append(bias)
        else:
            raise _No


def _linear_map(node):
    """(x, weight, bias or None) of a linear map, or None."""
    if node is None or canonical(node.name) != "linear" or \
            node.function is None:
        return None
    by_name = node.arguments("input", "weight", "bias")
    return by_name["input"], by_name["weight"], by_name.get("bias")


def _is_matrix(node):
    return isinstance(node.meta, torch.Tensor) and node.meta.dim() == 2


def is_nothing(node):
    """Whether a call gives its argument."""
    name = canonical(node.name)
    if name == "to":
        first = node.args[0]
        return isinstance(first, Node) and node.function is not None and \
            first.meta.dtype == node.meta.dtype and not node.kwargs
    return name == "dropout" and not drops(node)


def drops(node):
    training = node.kwargs.get("training", node.args[2] if len(node.args) > 2
                               else True)
    p = node.kwargs.get("p", node.args[1] if len(node.args) > 1 else 0.5)
    return bool(training) and p > 0


def readers_of(facts, nodes, outputs=()):
    """By node, what reads it among these nodes, None for the caller; the nodes
    are in order, the outputs some of them."""
    readers = {}
    for node in nodes:
        if facts.of(node).role in ("index", "number"):
            continue  # they ask for a shape
        operands = node.operands()
        for operand in operands[:1] if canonical(node.name) == "to" else \
                operands:  # another tells a type
            readers.setdefault(facts.now(operand), []).append(node)
    for node in outputs:
        readers.setdefault(node, []).append(None)
    return readers


def find_mlps(facts, nodes, outputs):
    """Has MLPs among these nodes take the place of what computes them."""
    readers = readers_of(facts, nodes, outputs)
    match = _Match(facts, readers)
    inside = set()
    for node in reversed(nodes):
        fact = facts.of(node)
        if node in inside or fact.rows != _nodes.EDGES or fact.pure or \
                fact.role != "row" or not readers.get(node) or \
                not _is_matrix(node) or node.function is None:
            continue
        try:
            stack = match.stack(node)
        except _No:
            continue
        inside |= _between(facts, node, stack)
        _replace(facts, node, stack, readers[node])


def _between(facts, node, stack):
    """The nodes that an MLP computes inside."""
    ends = {t.node for t in stack.terms}
    seen, waiting = set(), [node]
    while waiting:
        node = facts.now(waiting.pop())
        if node not in seen and node not in ends:
            seen.add(node)
            waiting.extend(node.operands())
    return seen


def _operands(stack):
    """The nodes that an MLP reads."""
    return (*[t.node for t in stack.terms],
            *[t.weight for t in stack.terms if t.weight is not None],
            *[n for n in (stack.scale, stack.shift, *stack.weights)
              if n is not None],
            *[b for group in stack.biases for b in group])


def _replace(facts, node, stack, readers):
    reduced, others = {}, False
    for reader in readers:
        fact = None if reader is None else facts.of(reader)
        if fact and fact.role == "reduce" and fact.about[0] in ("max", "min"):
            stack = stack._replace(dtype=None)  # in 16 bits many would be largest
        end = fact.about[2] if fact and fact.role == "reduce" else None
        if end and facts.now(fact.about[1]) is node and end not in reduced:
            reduced[end] = reader, fact.about[0]
        else:
            others = True
    settings = stack.settings._replace(
        edges=others, **{name: reduced[end][1] for end, name in (
            ("i", "reduce_dst"), ("j", "reduce_src")) if end in reduced})
    stack = stack._replace(settings=settings)
    mlp = Node(stack, "mlp", _operands(stack), {}, node.meta, node.line)
    facts.by_node[mlp] = Fact(EDGE, None, False, "mlp")
    outputs = ([node] if others else []) + [
        reduced[end][0] for end in ("i", "j") if end in reduced]
    for i, old in enumerate(outputs):
        part = Node(None, "part", (mlp, i), {}, old.meta, old.line)
        fact = facts.of(old)
        facts.by_node[part] = Fact(fact.place, fact.rows, False, "mlp")
        facts.became[facts.now(old)] = part


# A row of sums may be as many times as wide as the map's result, which would be
# summed otherwise.
WIDER = 2
WIDEST = 1024  # numbers of a row of products


def move_sums(facts, nodes, outputs):
    """Puts linear maps of sums in the place of sums of linear maps."""
    readers = readers_of(facts, nodes, outputs)
    for node in nodes:
        fact = facts.of(node)
        if fact.role == "reduce" and fact.about[0] in ("sum", "mean"):
            linear_map = _linear(facts, readers, node, fact.about[1]) or \
                _bilinear(facts, readers, node, fact.about[1])
            if linear_map is not None:
                facts.became[node] = _moved(facts, node, fact, *linear_map)


def _past(facts, readers, reader, node, is_passed):
    """The first node that is not passed; None if others read what lies
    between."""
    while readers.get(facts.now(node)) == [reader]:
        if not is_passed(node):
            return node
        reader, node = node, node.args[0]
    return None


def _is_view(node):
    return is_nothing(node) or canonical(node.name) == "view" and \
        node.name != "clone"


def _linear(facts, readers, reader, node):
    """(x, weight, bias or None) of the map that alone makes the summed rows, or
    None."""
    parts = _linear_map(_past(facts, readers, reader, node, is_nothing))
    if parts is None:
        return None
    x, weight, bias = parts
    x = facts.now(x)
    fact = facts.of(x)
    fits = (fact.rows == _nodes.EDGES and fact.place == EDGE
            and len(x.shape) == len(weight.shape) == 2
            and weight.shape[0] * weight.shape[1] > INLINE
            and weight.shape[1] <= WIDER * weight.shape[0]
            and _is_rows(facts, x)
            # of 16 bits, sums would be rounded before the map
            and {n.meta.dtype for n in (node, x, weight)}
            in ({torch.float32}, {torch.float64}))
    return (x, weight, bias) if fits else None


def _bilinear(facts, readers, reader, node):
    """The same of x[e] @ (W a[e] + b).view(k, o): the rows are the products of
    each number of x[e] and each of [a[e], 1], the map is W in that order."""
    product = _past(facts, readers, reader, node, _is_view)
    if product is None or canonical(product.name) != "matmul" or \
            len(product.args) != 2:
        return None
    x, matrix = map(facts.now, product.args)
    if len(matrix.shape) != 3 or x.shape[1:-1] != (1,):
        return None
    k, o = matrix.shape[1:]
    parts = _linear_map(_past(facts, readers, product, matrix, _is_view))
    while _is_view(x) and x.shape[1:] != (k,):
        x = facts.now(x.args[0])
    if parts is None or len(parts[0].shape) != 2 or x.shape[1:] != (k,) or \
            node.shape[1:] != (o,):
        return None
    a, weight, bias = parts
    wide = weight.shape[1] + (bias is not None)
    both = [facts.of(n) for n in (x, a)]
    if {f.rows for f in both} != {_nodes.EDGES} or \
            {both[0].place, both[1].place} != {SRC, EDGE} or \
            k * wide > min(WIDEST, WIDER * math.prod(weight.shape)) or \
            {n.meta.dtype for n in (node, x, a, weight)} not in (
                {torch.float32}, {torch.float64}):
        return None

    def call(name, *args):
        return facts._new(getattr(torch, name), name, args, {}, node)
    a, weight = _with_ones(facts, node, a, weight, bias)
    weight = call("movedim", call("unflatten", weight, 0, (k, o)), 0, 1)
    rows = call("mul", call("unsqueeze", x, 2), call("unsqueeze", a, 1))
    return call("flatten", rows, 1), call("flatten", weight, 1), None


def _is_rows(facts, node):
    """Whether rows of nodes and edges are joined, and nothing is computed."""
    node = facts.now(node)
    if canonical(node.name) == "cat" and node.function is not None:
        return all(_is_rows(facts, part) for part in node.operands())
    return facts.of(node).role in ("given", "lift")


def _with_ones(facts, node, x, weight, bias):
    """x and weight of the map: a bias is a column of the weight, which a column
    of ones in x adds as often as there are edges."""
    if bias is None:
        return x, weight
    one = facts._new(torch.ones, "ones", ((x.shape[0], 1),), dict(
        dtype=x.meta.dtype, device=x.meta.device), node)
    column = facts._new(torch.unsqueeze, "unsqueeze", (bias, 1), {}, node)
    return (facts._new(torch.cat, "cat", ([x, one], -1), {}, node),
            facts._new(torch.cat, "cat", ([weight, column], 1), {}, node))


def _moved(facts, node, fact, x, weight, bias):
    how, _, end = fact.about
    x, weight = _with_ones(facts, node, x, weight, bias)
    rows = Node(node.function, node.name, (x,), {}, node.meta.new_empty(
        node.shape[0], x.shape[1]), node.line)
    facts.by_node[rows] = Fact(fact.place, fact.rows, False, "reduce",
                               (how, x, end))
    return facts._new(F.linear, "linear", (rows, weight), {}, node)


def run(graph, stack, by_node, by_edge, execute):
    """The outputs of an MLP.  by_node: a node's tensor by node, or of no rows;
    by_edge: in the caller's order of edges; execute: _mlp_kernels.run, or what
    stands for it."""
    parts, edges, weights = {}, [], []
    for term in stack.terms:
        if term.place == EDGE:
            edges.append(by_edge(term.node))
            weight = by_node(term.weight)
            weights.append(weight if term.sign > 0 else -weight)
            continue
        part = by_node(term.node)
        known = parts.get(term.place)
        if known is None:
            parts[term.place] = part if term.sign > 0 else -part
        else:
            parts[term.place] = known + part if term.sign > 0 else \
                known - part
    edge = edges[0] if len(edges) == 1 else \
        torch.cat(edges, 1) if edges else None
    weight = weights[0] if len(weights) == 1 else \
        torch.cat(weights, 1) if weights else None

    def bias(group):
        biases = [by_node(b) for b in group]
        return sum(biases[1:], biases[0]) if biases else None
    tensors = [edge, parts.get(DST), parts.get(SRC), None, None,
               *[None if n is None else by_node(n)
                 for n in (stack.scale, stack.shift)],
               weight, *[by_node(w) for w in stack.weights],
               *[bias(group) for group in stack.biases]]
    if stack.dtype is not None:
        tensors = [None if t is None else t.to(stack.dtype) for t in tensors]
    return execute(graph, stack.settings, tensors, stack.computed_in)
