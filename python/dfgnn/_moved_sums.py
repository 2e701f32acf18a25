"""Sums of a linear map over edges as the linear map of sums: W maps a row for
each node then, and not for each edge, and nothing of its width is by edge."""

import torch
import torch.nn.functional as F

from . import _found_mlps, _nodes
from ._facts import Fact
from ._translations import canonical
from ._trace import EDGE
from ._nodes import Node

# A row of sums may be as many times as wide as the map's result, which would be
# summed otherwise.
WIDER = 2


def move(facts, nodes, outputs):
    """Has such sums among these nodes take the place of what they were."""
    readers = _found_mlps.readers_of(facts, nodes, outputs)
    for node in nodes:
        fact = facts.of(node)
        if fact.role == "reduce" and fact.about[0] in ("sum", "mean"):
            found = _linear(facts, readers, node, fact.about[1])
            if found is not None:
                facts.became[node] = _moved(facts, node, fact, *found)


def _linear(facts, readers, reader, node):
    """(x, weight, bias or None) of the map that alone makes the summed rows, or
    None."""
    while readers.get(facts.now(node)) == [reader]:
        if not _found_mlps.is_nothing(node):
            break
        reader, node = node, node.args[0]
    else:
        return None
    if canonical(node.name) != "linear" or node.function is None:
        return None
    given = dict(zip(("input", "weight", "bias"), node.args), **node.kwargs)
    x, weight, bias = given["input"], given["weight"], given.get("bias")
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


def _is_rows(facts, node):
    """Whether rows of nodes and edges are joined, and nothing is computed."""
    node = facts.now(node)
    if canonical(node.name) == "cat" and node.function is not None:
        return all(_is_rows(facts, part) for part in node.operands())
    return facts.of(node).role in ("given", "lift")


def _moved(facts, node, fact, x, weight, bias):
    how, _, end = fact.about
    if bias is not None:  # it is added as often as there are edges
        one = facts._new(torch.ones, "ones", ((x.shape[0], 1),), dict(
            dtype=x.meta.dtype, device=x.meta.device), node)
        x = facts._new(torch.cat, "cat", ([x, one], -1), {}, node)
        column = facts._new(torch.unsqueeze, "unsqueeze", (bias, 1), {}, node)
        weight = facts._new(torch.cat, "cat", ([weight, column], 1), {}, node)
    rows = Node(node.function, node.name, (x,), {}, node.meta.new_empty(
        node.shape[0], x.shape[1]), node.line)
    facts.found[rows] = Fact(fact.place, fact.rows, False, "reduce",
                             (how, x, end))
    return facts._new(F.linear, "linear", (rows, weight), {}, node)
