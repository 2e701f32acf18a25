"""The facts about the calls that _nodes noted: whose rows they give, and which
are gathers, reductions over edges or operations by row."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from . import _trace, _nodes
from ._modes import autocasting
from ._translations import canonical
from ._trace import DST, EDGE, PARAM, SRC, TraceError
from ._nodes import Node, mapped

_MADE = {"zeros": 0.0, "ones": 1.0, "new_zeros": 0.0, "new_ones": 1.0,
         "zeros_like": 0.0, "ones_like": 1.0}
# what depends on all rows together
NOT_BY_ROW = {"batch_norm", "instance_norm", "group_norm", "embedding_bag"}
_REDUCED = {"sum": "sum", "add": "sum", "mean": "mean", "amax": "max",
            "amin": "min"}


class Fact(NamedTuple):
    """The facts about a node.

    rows: EDGES, DESTINATIONS (by node), or None of a tensor without rows.
    pure: torch can compute it from what is given, by node if place says so.
    role: "index", "number", "lift", "reduce", "row", "given", "torch", or
        "stored" of what is a tensor between two programs.
    about: of a number its value; of a lift (node, end); of a reduction
        (what, node, end).
    """
    place: int
    rows: int | None
    pure: bool
    role: str
    about: object = None


def _same(x):
    return x


def refuse(node, text):
    raise TraceError((node.line + ": " if node.line else "") + text)


class Facts:
    """The facts of nodes in their order; a linear map of a sum, or of joined
    rows, becomes a sum of linear maps, except one of 16 bits if `whole` says
    that it is rounded once."""

    def __init__(self, nodes, whole=True):
        self.whole = whole
        self.by_node, self.became, self._slices = {}, {}, {}
        for node in nodes:
            self.add(node)

    def of(self, node):
        return self.by_node[self.now(node)]

    def now(self, node):
        """The node that took the place of a node."""
        while node in self.became:
            node = self.became[node]
        return node

    def add(self, node):
        if canonical(node.name) == "linear" and node.function is not None:
            self._spread(node)
        if node not in self.became:
            self.by_node[node] = self._fact(node)
        return self.now(node)

    def store(self, node):
        """Puts a tensor in the place of a node."""
        original = Node(node.function, node.name, node.args, node.kwargs,
                        node.meta, node.line)
        kept = Node(_same, "stored", (original,), {}, node.meta, node.line)
        self.by_node[original] = self.by_node[node]
        self.by_node[kept] = self.by_node[node]._replace(
            role="stored", pure=False)
        self.became[node] = kept

    def _fact(self, node):
        if node.end is not None:
            return Fact(EDGE, _nodes.EDGES, True, "index", node.end)
        if node.function is None and node.name != "part":
            return Fact(node.place, rows_of(node.shape), True, "given")
        name = canonical(node.name)
        if node.name in _MADE or node.name in ("full", "new_full"):
            return self._constant(node)
        gathered = self._gathered(node, name)
        if gathered is not None:
            return gathered
        if (name == "to" or node.kwargs.get("dtype")) and node.args and \
                self._rounds(node):
            refuse(node, f"a conversion to {node.meta.dtype}, which rounds "
                   "what edge programs keep")
        reduced = self._reduced(node, name)
        return reduced if reduced is not None else self._row(node, name)

    @staticmethod
    def _rounds(node):
        """Whether a conversion has fewer digits than all given tensors that its
        value is made of; those of an autocast region are rounded by it."""
        def error(x):
            return torch.finfo(x.meta.dtype).eps if isinstance(x, Node) and \
                isinstance(x.meta, torch.Tensor) and \
                x.meta.is_floating_point() else 0
        made_of, waiting = {}, [node.args[0]]
        if autocasting() or not 0 < error(node.args[0]) < error(node):
            return False
        while waiting:
            x = waiting.pop()
            if x not in made_of:
                made_of[x] = 0 if x.key is None else error(x)
                waiting += x.operands()
        return 0 < max(made_of.values()) < error(node)

    def _constant(self, node):
        number = _MADE.get(node.name)
        if number is None:
            number = node.kwargs.get("fill_value", node.args[-1])
            if not isinstance(number, (int, float)):
                refuse(node, f"{node.name} with a tensor")
        return Fact(PARAM, rows_of(node.shape), False, "number", float(number))

    def _gathered(self, node, name):
        """x[index], x.index_select(0, index)."""
        if name == "index_select":
            args = node.arguments("input", "dim", "index")
            x, index = args["input"], args["index"]
            along = args["dim"] in (0, -len(x.shape))
        elif name == "__getitem__" and isinstance(node.args[1], Node):
            (x, index), along = node.args[:2], True
        else:
            return None
        fact = self.of(index)
        if fact.role != "index" or not along:
            return None
        source = self.of(x)
        if fact.about not in ("i", "j") or source.rows == _nodes.EDGES:
            refuse(node, "edges are taken by an index of nodes")
        if source.rows is None:
            refuse(node, f"a tensor {list(x.shape)} is taken by nodes, of "
                   "which there may be more or fewer")
        place = DST if fact.about == "i" else SRC
        return Fact(place, _nodes.EDGES, source.pure, "lift", (x, fact.about))

    def _reduced(self, node, name):
        if name not in ("scatter_add", "scatter_reduce", "index_add"):
            return None
        by_name = node.arguments("input", "dim", "index", "src", *(
            ["reduce"] if name != "index_add" else []))
        by_name.setdefault("src", by_name.get("source"))
        how = _REDUCED.get(by_name.get("reduce", "sum"))
        x, index, src = by_name["input"], by_name["index"], by_name["src"]
        base, fact = self.of(x), self.of(index)
        if fact.role != "index" or by_name["dim"] not in (0, -len(x.shape)):
            return None
        whole = not by_name.get("include_self", True) or how == "sum"
        if base.role != "number" or base.about != 0 or how is None or \
                not whole or by_name.get("alpha", 1) != 1:
            refuse(node, f"{node.name} into a tensor that is not of zeros, or "
                   "by what is no sum, mean, maximum or minimum")
        if rows_of(src.shape) != _nodes.EDGES or fact.about not in ("i", "j"):
            refuse(node, f"{node.name} of {list(src.shape)}")
        return Fact(DST if fact.about == "i" else SRC, _nodes.DESTINATIONS,
                    False, "reduce", (how, src, fact.about))

    def _row(self, node, name):
        operands = [(n, self.of(n)) for n in node.operands()]
        if any(f.role == "index" for _, f in operands):
            refuse(node, f"{node.name} of the index of nodes")
        rows = {f.rows for _, f in operands} - {None}
        places = {f.place for _, f in operands if f.rows} - {PARAM}
        pure = all(f.pure or f.role == "number" for _, f in operands)
        if not rows:
            return Fact(PARAM, None, True, "torch")
        if isinstance(node.meta, (tuple, list)):
            return Fact(max(places, default=PARAM), rows.pop(), pure
                        and len(places) < 2, "row")
        if len(rows) > 1:
            refuse(node, f"{node.name} of edges and of nodes")
        rows = rows.pop()
        if rows != _nodes.EDGES and len(places) > 1:
            refuse(node, f"{node.name} of destinations and of sources")
        place = PARAM
        for p in places:
            place = p if place == PARAM else _trace.join(place, p)
        given_edges = pure and place == EDGE and len(places) == 1
        if not node.shape or rows_of(node.shape) is None:
            if given_edges:  # such as edge_weight.max()
                return Fact(PARAM, None, True, "torch")
            refuse(node, f"{node.name} of all rows")
        if any(n in _nodes.ROWS for n in node.shape[1:]) or (
                rows_of(node.shape) != rows):
            shape = ", ".join(_nodes.ROWS.get(n, str(n)) for n in node.shape)
            refuse(node, f"{node.name} gives [{shape}], expected rows of "
                   f"{_nodes.ROWS.get(rows, 'edges or nodes')} first, and of "
                   "nothing else")
        pure = pure and len(places) == 1
        if (name in NOT_BY_ROW or name == "dropout") and place != EDGE and \
                rows == _nodes.EDGES:
            # each node counts, and is drawn, as often as its edges
            place, pure = EDGE, False
        return Fact(place, rows, pure, "row")

    def _spread(self, node):
        by_name = node.arguments("input", "weight", "bias")
        x, weight, bias = (by_name.get(name) for name in (
            "input", "weight", "bias"))
        x = self.now(x)
        about = self.by_node[x]
        if (about.pure or about.rows is None or len(weight.shape) != 2
                or self.whole and x.meta.dtype in (torch.float16,
                                                   torch.bfloat16)
                or node.meta.dtype != x.meta.dtype):  # of an autocast region
            return
        terms = list(self._terms(x, 0, x.shape[-1], 1))
        if len(terms) < 2 or not any(self.of(t[0]).pure for t in terms):
            return
        total = None
        for part, begin, sign in terms:
            size = part.shape[-1]
            term = self._new(F.linear, "linear", (
                part, self._columns(weight, begin, size)), {}, node)
            if total is None and sign < 0:
                term = self._new(torch.neg, "neg", (term,), {}, node)
            total = term if total is None else self._new(
                torch.add if sign > 0 else torch.sub,
                "add" if sign > 0 else "sub", (total, term), {}, node)
        if bias is not None:
            total = self._new(torch.add, "add", (total, bias), {}, node)
        self.became[node] = total

    def _terms(self, x, begin, size, sign):
        """(rows, their first column, sign) of the parts of a sum or joint x."""
        x, name = self.now(x), canonical(x.name)
        if self.by_node[x].pure or x.function is None:
            yield x, begin, sign
        elif name == "cat" and self._last(x):
            for part in x.args[0]:
                yield from self._terms(part, begin, part.shape[-1], sign)
                begin += part.shape[-1]
        elif name in ("__add__", "__radd__", "sub", "__sub__") and all(
                isinstance(n, Node) and n.shape == x.shape and
                self.of(n).rows for n in x.args[:2]) and not x.kwargs:
            first, second = x.args[:2]
            yield from self._terms(first, begin, size, sign)
            yield from self._terms(second, begin, size,
                                   -sign if "sub" in name else sign)
        else:
            yield x, begin, sign

    @staticmethod
    def _last(node):
        dim = node.kwargs.get("dim", node.kwargs.get(
            "axis", node.args[1] if len(node.args) > 1 else 0))
        rank = len(node.shape)
        return dim in (-1, rank - 1) and rank > 1 and all(
            isinstance(p, Node) and len(p.shape) == rank
            for p in node.args[0])

    def _columns(self, weight, begin, size):
        if (begin, size) == (0, weight.shape[1]):
            return weight
        key = weight, begin, size
        columns = self._slices.get(key)
        if columns is None:
            columns = self._slices[key] = self._new(
                torch.narrow, "narrow", (weight, 1, begin, size), {}, weight)
        return columns

    def _new(self, function, name, args, kwargs, like):
        metas = mapped(args, lambda x: self.now(x).meta if isinstance(
            x, Node) else x)
        node = Node(function, name, args, kwargs, function(*metas, **kwargs),
                    like.line)
        return self.add(node)


def rows_of(shape):
    """Which rows a tensor of this shape has, or None."""
    if not shape or shape[0] not in _nodes.ROWS:
        return None
    return _nodes.EDGES if shape[0] == _nodes.EDGES else _nodes.DESTINATIONS
