"""A watched function of edges as programs, with torch's calls between them.

What depends on one end alone and is a linear map is torch's: it is computed
by node, once.  So is a wide linear map of values that both ends make, for
which a program writes its argument by edge.  Everything else becomes edge
programs, one where no such map stands between.
"""

import math

import torch

from . import (
    _evaluators, _nodes, _program_calls, _rewrites, _trace, _translations)
from ._checks import DTYPES
from ._facts import NOT_BY_ROW, refuse, rows_of
from ._nodes import Node, mapped
from ._rewrites import INLINE
from ._trace import DST, EDGE, PARAM, SRC, TraceError, Value
from ._trace_errors import at_line
from ._translations import canonical, fit
from .errors import InvalidError, UnsupportedError

# numbers of a value of an edge that is written rather than made again
NARROW = 4
_LINEAR = {"linear", "matmul", "einsum", "addmm", "bilinear"}


def _products(node):
    """Multiplications that a linear map takes for a row."""
    out = math.prod(node.shape[1:])
    if node.name == "einsum":
        gone = set("".join(node.args[0].split("->")[0].split(","))) - set(
            node.args[0].split("->")[-1])
        return out * max(1, len(gone)) * 16
    return out * node.operands()[0].shape[-1]


def _is_whole(node, name):
    """Whether a node computes with integers: it makes some, or compares
    several tensors of them."""
    if not isinstance(node.meta, torch.Tensor) or name in (
            "view", "expand", "transpose", "permute", "movedim",
            "__getitem__", "select", "narrow", "cat", "stack", "where",
            "masked_fill", "part", "detach", "repeat"):
        return False
    kinds = [n.meta.dtype for n in node.operands()
             if isinstance(n.meta, torch.Tensor)]
    if node.meta.dtype.is_floating_point or node.meta.dtype.is_complex:
        return False
    if node.meta.dtype == torch.bool:
        return kinds.count(torch.int64) + kinds.count(torch.int32) > 1 or \
            name in ("__add__", "__radd__", "sum")
    return True


def _is_more_by_nothing(node):
    """Whether a node is x + a or x.clamp(min=a), a next to 0."""
    name = canonical(node.name)
    if name not in ("__add__", "clamp") or not isinstance(node.args[0], Node):
        return False
    options = dict(zip(("other",) if name == "__add__" else ("min", "max"),
                       node.args[1:]), **node.kwargs)
    least = options.pop("other" if name == "__add__" else "min", None)
    return not options and isinstance(least, float) and 0 <= least < 1e-9


class Stages:
    """Which programs and calls compute the outputs, in which order.

    steps: ("call", node), ("program", Stage), in order.
    """

    def __init__(self, facts, outputs, effects, with_dropout=True):
        self.facts, self.with_dropout = facts, with_dropout
        self.called, self._levels, self._writes = {}, {}, {}
        self.outputs = [facts.now(n) for n in outputs]
        for move in (_rewrites.move_sums, _rewrites.find_mlps):
            move(facts, self._needed([*self.outputs, *effects]),
                 [*self.outputs, *effects])
            self.outputs = [facts.now(n) for n in outputs]
        needed = self._needed([*self.outputs, *effects])
        self._readers = _rewrites.readers_of(facts, needed)
        self._store(needed)
        needed = self._needed([*self.outputs, *effects])
        for node in needed:
            self._choose(node)
        self._order_early(needed)
        last = max((self.level(n) for n in self.outputs), default=0)
        wanted = {}  # level: nodes that its program writes
        for node in self.outputs:
            self._want(wanted, node)
        self.programs = {}
        for level in range(last, -1, -1):
            # writing one may want others of this level
            if wanted.get(level):
                self.programs[level] = Stage(self, wanted, level)
        self.steps = list(self._ordered(effects))
        self.random = any(canonical(n.name) == "dropout" and _rewrites.drops(n)
                          for n in self._needed(self.outputs))

    def fact(self, node):
        return self.facts.of(node)

    def _needed(self, roots):
        """The nodes that these are made of, arguments first."""
        order, seen = [], set()
        stack = [(self.facts.now(n), False) for n in reversed(roots)]
        while stack:
            node, done = stack.pop()
            if done:
                order.append(node)
            elif node not in seen:
                seen.add(node)
                stack.append((node, True))
                if self.fact(node).role in ("index", "number"):
                    continue  # of what others have, a shape alone
                stack.extend((self.facts.now(n), False)
                             for n in reversed(node.operands()))
        return order

    def _store(self, needed):
        """Has differences of positions, or the distances that they are wanted
        for, written by edge: a gradient then sends a few numbers by edge to
        positions of both ends, instead of making all that depends on them for
        each end."""
        widest = max((math.prod(n.shape[1:]) for n in needed if self.fact(
            n).rows == _nodes.EDGES and self.fact(n).role == "row" and
            isinstance(n.meta, torch.Tensor)), default=0)
        if widest <= 4 * NARROW:
            return
        for node in needed:
            if node not in self.facts.became and self._is_difference(node):
                self.facts.store(self._narrowest(node))
        self.outputs = [self.facts.now(n) for n in self.outputs]
        self._readers = _rewrites.readers_of(
            self.facts, self._needed(self.outputs))

    def _is_difference(self, node):
        ends = [self.fact(n) for n in node.operands()]
        return canonical(node.name) in ("sub", "__sub__") and math.prod(
            node.shape[1:]) <= NARROW and [f.place for f in ends] in (
                [DST, SRC], [SRC, DST]) and all(
                    f.role in ("lift", "given") for f in ends) and \
            self.fact(node).role == "row"

    def _narrowest(self, node):
        """The only user of a node, as long as it has no more numbers."""
        while True:
            readers = self._readers.get(node, ())
            if len(readers) != 1 or node in self.outputs:
                return node
            reader, = readers
            rows = [n for n in reader.operands() if self.fact(n).rows]
            if self.fact(reader).role != "row" or set(map(
                    self.facts.now, rows)) != {node} or canonical(
                        reader.name) not in _translations.TABLE or \
                    canonical(reader.name) in (*_LINEAR, *NOT_BY_ROW,
                                               "dropout") or \
                    not isinstance(reader.meta, torch.Tensor) or math.prod(
                        reader.shape[1:]) > math.prod(node.shape[1:]):
                return node
            node = reader

    def _choose(self, node):
        """Enters the node in .called if torch computes it: "pure", or "wide"
        of values that a program has written; "mlp" of an MLP on edges."""
        fact = self.fact(node)
        if fact.role == "mlp":
            self.called[node] = "mlp"
            if node.name == "mlp":
                for term in node.function.terms:
                    if term.place != EDGE:
                        self._call(term.node)
            return
        if fact.role in ("index", "number", "given", "lift", "reduce"):
            return
        if fact.role == "stored":
            self.called[node] = "wide"
            return
        if fact.rows is None:
            self._call(node)
            return
        name = canonical(node.name)
        known = name in _translations.TABLE or node.name == "part" or name in (
            "chunk", "split", "unbind")
        wide = name in _LINEAR and _products(node) > INLINE
        parent = self.facts.now(node.args[0]) if node.name == "part" else None
        if parent in self.called:
            self.called[node] = self.called[parent]
        elif _is_whole(node, name) or name in ("max", "min") and isinstance(
                node.meta, (tuple, list)):
            # torch's gradient of max(dim) goes to one of equal numbers; and
            # programs compute with real numbers, of which not all are whole
            if fact.pure:
                self._call(node)
            else:
                self.called[node] = "wide"
        elif self._settled(node, fact) or self._only_for_wide(node, fact, name):
            self.called[node] = "wide"
        elif fact.pure and name not in NOT_BY_ROW:
            if name in _LINEAR and (
                    fact.place != EDGE or wide
                    or node.operands()[0].shape[-1] > 16):
                self._call(node)
            elif fact.role == "row" and (
                    not known and fact.place == EDGE
                    or isinstance(node.meta, torch.Tensor)
                    and len(node.shape) > 4):
                self._call(node)
            elif not known:
                refuse(node, f"edge programs have no {node.name}")
        elif name in NOT_BY_ROW and fact.rows == _nodes.EDGES:
            if fact.pure and fact.place == EDGE:
                self._call(node)
            else:
                self.called[node] = "wide"
        elif wide or (name in _LINEAR and fact.rows != _nodes.EDGES):
            self.called[node] = "wide"
        elif not known:
            refuse(node, f"edge programs have no {node.name}")

    def _order_early(self, needed):
        """Has torch compute rows of edges in the graph's order where their
        inputs are narrower, so that the narrow rows are put in order."""
        readers = _rewrites.readers_of(self.facts, needed)

        def is_by_row(node):
            fact, name = self.fact(node), canonical(node.name)
            return self.called.get(node) == "pure" and not node.clones and \
                fact.rows == _nodes.EDGES and fact.place == EDGE and (
                    name in _LINEAR or name in _translations.TABLE) and \
                name not in (*NOT_BY_ROW, "dropout") and \
                isinstance(node.meta, torch.Tensor)

        def width(nodes):
            return sum(math.prod(n.shape[1:]) for n in nodes)
        for node in reversed(needed):
            chain, inputs = {}, {}
            front = [node]
            while front:
                one = front.pop()
                if is_by_row(one) and one not in self.outputs and all(
                        r in chain or self.called.get(r, "wide") == "wide"
                        for r in readers.get(one, ())):
                    chain[one] = "wide"
                    front += [n for n in map(self.facts.now, one.operands())
                              if self.fact(n).rows == _nodes.EDGES]
                else:
                    inputs[one] = None
            if node in chain and width(inputs) < width([node]):
                self.called.update(chain)

    def _settled(self, node, fact):
        """Whether all that the node is made of are tensors by edge that torch
        has made or that are given: there is nothing to fuse it with."""
        rows = [self.facts.now(n) for n in node.operands()
                if self.fact(n).rows]
        return fact.rows == _nodes.EDGES and fact.place == EDGE and any(
            self.called.get(n) == "wide" and self.fact(n).role != "stored"
            for n in rows) and all(
                n in self.called or self.fact(n).role == "given"
                for n in rows if self.fact(n).place == EDGE) and all(
                    self.fact(n).place == EDGE for n in rows)

    def _only_for_wide(self, node, fact, name):
        """A function that torch has in vectors and programs have not, whose
        result is written by edge in any case."""
        return (name == "gelu" and not fact.pure
                and fact.rows == _nodes.EDGES and all(
                    canonical(n.name) in _LINEAR and _products(n) > INLINE
                    for n in self._readers.get(node, [None])
                    if n is not None) and node in self._readers)

    def _call(self, node):
        """Torch computes a node and all that it is made of."""
        node = self.facts.now(node)
        fact = self.fact(node)
        if node in self.called or fact.role == "given":
            return
        if fact.role == "lift":
            self._call(fact.about[0])
            return
        if fact.role in ("index", "reduce"):
            refuse(node, f"{node.name} before a linear map")
        self.called[node] = "pure"
        for operand in node.operands():
            self._call(operand)

    # ---- levels: a program runs after the calls of its level

    def level(self, node):
        node = self.facts.now(node)
        level = self._levels.get(node)
        if level is None:
            level = self._levels[node] = self._level(node)
        return level

    def _level(self, node):
        fact = self.fact(node)
        below = [n for n in map(self.facts.now, node.operands())
                 if self.fact(n).role != "index"]
        if self.ready(node):
            return max([self.level(n) + (not self.ready(n)) for n in below],
                       default=0)
        if fact.role == "lift":
            source = self.facts.now(fact.about[0])
            crossed = self.fact(source).place != fact.place
            return self.level(source) + (
                crossed and not self.ready(source))
        return max([self.level(n) for n in below], default=0)

    def ready(self, node):
        """Whether a node is there before the program of its level runs."""
        fact = self.fact(node)
        if node in self.called or fact.role == "given":
            return True
        if fact.role == "lift" and fact.pure:
            source = self.facts.now(fact.about[0])
            return self.ready(source)
        return False

    def home(self, node):
        """The place of a node's tensor: what is of an end, and was computed by
        edge, is by edge."""
        fact = self.fact(node)
        by_edge = fact.rows == _nodes.EDGES and fact.role not in (
            "lift", "given") and self.called.get(node) != "pure"
        return EDGE if by_edge else fact.place

    def kept(self, node):
        """Whether the program of a node writes it for a later level, which
        computes again what is cheap."""
        node = self.facts.now(node)
        is_kept = self._writes.get(node)
        if is_kept is None:
            fact = self.fact(node)
            is_kept = self._writes[node] = not self.ready(node) and (
                fact.role == "reduce" or any(
                    self.kept(n) for n in node.operands()
                    if self.fact(n).role != "index"))
        return is_kept

    def _want(self, wanted, node):
        """Has a node's tensor computed: by its program, or the arguments of
        the calls that compute it."""
        node = self.facts.now(node)
        fact = self.fact(node)
        if fact.role in ("index", "given"):
            return
        if node in self.called:
            for operand in node.operands():
                self._want(wanted, operand)
        elif fact.role == "lift" and self.ready(node):
            self._want(wanted, fact.about[0])
        elif fact.role != "number" or rows_of(node.shape):
            wanted.setdefault(self.level(node), {})[node] = None

    def _ordered(self, effects):
        done = set()
        calls = [n for n in self._needed([*self.outputs, *effects])
                 if n in self.called]
        for level in range(max([-1, *self.programs,
                                *(self.level(n) for n in calls)]) + 1):
            for node in calls:
                if node not in done and self.level(node) <= level:
                    done.add(node)
                    yield "call", node
            if level in self.programs:
                yield "program", self.programs[level]


class Stage:
    """One program: .inputs and .outputs are nodes, in its order."""

    def __init__(self, stages, wanted, level):
        self.stages, self.wanted, self.level = stages, wanted, level
        self.text = _evaluators.Text()
        self.inputs, self._values = [], {}
        self.outputs = list(wanted[level])
        values = [self._output(node) for node in self.outputs]
        self._check_types()
        self.dtypes = [n.meta.dtype for n in self.outputs]
        # the type that integers are read in
        self.whole = torch.float64 if any(
            stages.facts.now(n).meta.dtype == torch.float64
            for n in (*self.inputs, *self.outputs)) else \
            torch.get_default_dtype()
        self.source = self.text.text(values)
        try:
            self.program = _program_calls.parse(self.source)
        except (InvalidError, UnsupportedError) as error:
            raise TraceError(f"its edge program is refused: {error}") from None
        self.random = self.text.drops > 0

    def _check_types(self):
        """Programs read real numbers, and whole ones as such, and write real
        ones."""
        for node in (*self.inputs, *self.outputs):
            kind = node.meta.dtype
            if kind not in DTYPES and (
                    node in self.outputs or kind.is_floating_point
                    or kind.is_complex):
                refuse(node, f"tensors of {kind}, which edge programs have "
                       "none of")

    def _output(self, node):
        value = fit(self.emit(node), node.shape[1:])
        fact = self.stages.fact(node)
        if fact.rows == _nodes.EDGES:
            value.place = EDGE
        elif value.place == PARAM:
            value.place = fact.place if fact.place != PARAM else DST
        return value

    def emit(self, node):
        node = self.stages.facts.now(node)
        value = self._values.get(node)
        if value is None:
            with at_line(node.line):
                value = self._values[node] = self._emit(node)
        if not isinstance(value, Value):
            return value
        # a copy, since an output changes its place
        return Value(value.recorder, value.handle, value.place, value.shape)

    def _emit(self, node):
        stages, fact = self.stages, self.stages.fact(node)
        if fact.role == "index":
            refuse(node, "the index of nodes is used as numbers")
        if fact.role == "number":
            return self.text.value(fact.about)
        if stages.ready(node) or stages.level(node) < self.level and \
                stages.kept(node):
            stages._want(self.wanted, node)
            return self._input(node, stages.home(node))
        if fact.role == "lift":
            source = stages.facts.now(fact.about[0])
            if stages.fact(source).place != fact.place:
                stages._want(self.wanted, source)
                return self._input(node, fact.place)
            return self.emit(source)
        if fact.role == "reduce":
            how, src, end = fact.about
            value = fit(self.emit(src), src.shape[1:])
            return _trace.method(how + ("_in" if end == "i" else "_out"))(
                value)
        return fit(self._operation(node), node.shape[1:])

    def _input(self, node, place):
        axes = node.shape if place == PARAM else node.shape[1:]
        if place == PARAM:
            while len(axes) > 1 and axes[0] == 1:
                axes = axes[1:]
        if len(axes) > 3:
            refuse(node, f"{len(axes)} axes, expected at most 3")
        name = f"t{len(self.inputs)}"
        self.inputs.append(node)
        return Value(self.text, self.text.leaf(name, None, place, axes),
                     place, axes)

    def _operation(self, node):
        softmax = self._softmax(node)
        if softmax is not None:
            return softmax
        if node.name == "part":
            return _translations.part(node, self.emit(node.args[0].operands()[
                0]))
        name = canonical(node.name)
        if name == "dropout":
            return self._dropout(node)

        def argument(x):
            if isinstance(x, Node):
                value = self.emit(x)
                if x.shape and rows_of(x.shape):
                    value = fit(value, x.shape[1:]) if value.shape or \
                        x.shape[1:] == () else value
                return value
            return x
        return _translations.TABLE[name](node, *mapped(node.args, argument),
                                       **mapped(node.kwargs, argument))

    def _dropout(self, node):
        value = self.emit(node.args[0])
        if not self.stages.with_dropout:
            return value
        return _translations.TABLE["dropout"](
            node, value, *node.args[1:], at=self.stages.fact(node).place,
            **node.kwargs)

    def _softmax(self, node):
        """exp(x - max) / sum(exp(x - max)) over edges, as PyG writes it."""
        now, fact = self.stages.facts.now, self.stages.fact
        if canonical(node.name) not in ("div", "__truediv__") or \
                len(node.args) != 2 or not all(
                    isinstance(n, Node) for n in node.args):
            return None
        top, below = map(now, node.args)
        if fact(below).role != "lift":
            return None
        total, end = now(fact(below).about[0]), fact(below).about[1]
        while _is_more_by_nothing(total):
            total = now(total.args[0])
        if fact(total).role != "reduce":
            return None
        if fact(total).about[0] != "sum" or fact(total).about[2] != end or \
                now(fact(total).about[1]) is not top or top.name != "exp":
            return None
        shifted = now(top.args[0])
        if canonical(shifted.name) not in ("sub", "__sub__"):
            return None
        x, peak = map(now, shifted.args[:2])
        if fact(peak).role != "lift" or fact(peak).about[1] != end:
            return None
        peak = now(fact(peak).about[0])
        if canonical(peak.name) == "detach":
            peak = now(peak.args[0])
        if fact(peak).role != "reduce" or fact(peak).about[0] != "max":
            return None
        source = now(fact(peak).about[1])
        if canonical(source.name) == "detach":
            source = now(source.args[0])
        if source is not x:
            return None
        value = fit(self.emit(x), x.shape[1:])
        return _trace.method("softmax_in" if end == "i" else "softmax_out")(
            value)
