"""Sums of a linear map over edges as the linear map of sums: W maps a row for
each node then, and not for each edge, and nothing of its width is by edge.  So
are sums of rows times matrices that a linear map makes for each edge, as NNConv
has them: they are linear in the products of the row and the map's argument."""

import math

import torch
import torch.nn.functional as F

from . import _found_mlps, _nodes
from ._facts import Fact
from ._translations import canonical
from ._trace import EDGE, SRC
from ._nodes import Node

# A row of sums may be as many times as wide as the map's result, which would be
# summed otherwise.
WIDER = 2
WIDEST = 1024  # numbers of a row of products


def move(facts, nodes, outputs):
    """Has such sums among these nodes take the place of what they were."""
    readers = _found_mlps.readers_of(facts, nodes, outputs)
    for node in nodes:
        fact = facts.of(node)
        if fact.role == "reduce" and fact.about[0] in ("sum", "mean"):
            found = _linear(facts, readers, node, fact.about[1]) or \
                _bilinear(facts, readers, node, fact.about[1])
            if found is not None:
                facts.became[node] = _moved(facts, node, fact, *found)


def _past(facts, readers, reader, node, is_passed):
    """The first node that is not passed; None if others read what lies
    between."""
    while readers.get(facts.now(node)) == [reader]:
        if not is_passed(node):
            return node
        reader, node = node, node.args[0]
    return None


def _is_view(node):
    return _found_mlps.is_nothing(node) or canonical(node.name) == "view" and \
        node.name != "clone"


def _given(node):
    """(x, weight, bias or None) of a linear map, or None."""
    if node is None or canonical(node.name) != "linear" or \
            node.function is None:
        return None
    given = dict(zip(("input", "weight", "bias"), node.args), **node.kwargs)
    return given["input"], given["weight"], given.get("bias")


def _linear(facts, readers, reader, node):
    """(x, weight, bias or None) of the map that alone makes the summed rows, or
    None."""
    given = _given(_past(facts, readers, reader, node,
                         _found_mlps.is_nothing))
    if given is None:
        return None
    x, weight, bias = given
    x = facts.now(x)
    fact = facts.of(x)
    fits = (fact.rows == _nodes.EDGES and fact.place == EDGE
            and len(x.shape) == len(weight.shape) == 2
            and weight.shape[0] * weight.shape[1] > _found_mlps.INLINE
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
    given = _given(_past(facts, readers, product, matrix, _is_view))
    while _is_view(x) and x.shape[1:] != (k,):
        x = facts.now(x.args[0])
    if given is None or len(given[0].shape) != 2 or x.shape[1:] != (k,) or \
            node.shape[1:] != (o,):
        return None
    a, weight, bias = given
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
    facts.found[rows] = Fact(fact.place, fact.rows, False, "reduce",
                             (how, x, end))
    return facts._new(F.linear, "linear", (rows, weight), {}, node)
