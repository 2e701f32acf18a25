"""Rows of relations: what each projects of the nodes that send and receive,
where its results stand, and what nodes of a type add of their own."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from ...._autograd import Kind, Recorded
from ...._modes import autocast_dtype, autocasting
from ...._relations.groups import take
from ....aggregation import spmm
from ....hetero import gatherer


class Features(NamedTuple):
    """Features [nodes, F] by type, of nodes that send and that receive."""
    src: dict
    dst: dict


class Own(NamedTuple):
    """The share that a relation adds of the destinations' own features: by relation a
    weight [O, F] or None and a bias [O] or None."""
    weights: list
    biases: list


def joined(parts, dim=0):
    if len(parts) == 1:
        return parts[0]
    if not autocasting():
        return torch.cat(parts, dim)
    # a region of bfloat16 has no cat of float16
    with torch.autocast(parts[0].device.type, enabled=False):
        return torch.cat(parts, dim)


def in_product_type(x):
    """The Features that products of an autocast region would make of these,
    made once for all products."""
    kind = autocast_dtype(next(iter(x.src.values())).device.type)
    if kind is None:
        return x
    casts = {}

    def cast(t):
        if id(t) not in casts:
            casts[id(t)] = t.to(kind)
        return casts[id(t)]
    return Features(*[{name: cast(t) for name, t in side.items()}
                      for side in x])


# ---- linear layers whose results lie one below the other: each product writes
# its rows of one tensor

def _sizes(rows, weights):
    return [x.size(0) * w.size(0) for x, w in zip(rows, weights)]


class _Tables(Kind):
    """The results of count linear layers in one flat tensor, from their rows
    [rows, F], then their weights [O, F], then biases [O] or nothing."""

    def record(self, count, inputs, needed):
        rows, weights = inputs[:count], inputs[count:2 * count]
        biases, sizes = inputs[2 * count:], _sizes(rows, weights)
        flat = rows[0].new_empty(sum(sizes))
        for n, out in enumerate(flat.split(sizes)):
            out = out.view(rows[n].size(0), weights[n].size(0))
            if biases:
                torch.addmm(biases[n], rows[n], weights[n].t(), out=out)
            else:
                torch.mm(rows[n], weights[n].t(), out=out)
        return flat, inputs[:2 * count], None

    def gradients(self, count, rest, kept, grads, needed, again):
        rows, weights = kept[:count], kept[count:]
        grads = [part.view(-1, w.size(0)) for part, w in
                 zip(grads[0].split(_sizes(rows, weights)), weights)]
        results = [g @ w if want else None
                   for g, w, want in zip(grads, weights, needed)]
        results += [g.t() @ x if want else None
                    for g, x, want in zip(grads, rows, needed[count:])]
        return results + [g.sum(0) if want else None
                          for g, want in zip(grads, needed[2 * count:])]


_TABLES = _Tables()


def tables(rows, weights, biases=None):
    """A flat tensor of rows[n] @ weights[n].T + biases[n], one after the
    other; biases may be None."""
    kind = autocast_dtype(rows[0].device.type)
    tensors = [*rows, *weights, *(biases or ())]
    if kind is not None:
        tensors = [t.to(kind) for t in tensors]
    return Recorded.apply(_TABLES, len(rows), *tensors)


class _Total(torch.autograd.Function):
    """The sum of tensors.  Each gets a gradient in memory of its own, which
    may be written to."""

    @staticmethod
    def forward(ctx, *tensors):
        ctx.count = len(tensors)
        ctx.set_materialize_grads(False)
        return torch.stack(tensors).sum(0)

    @staticmethod
    def backward(ctx, grad):
        if grad is None:
            return (None,) * ctx.count
        return grad.expand(ctx.count, *grad.shape).clone().unbind(0)


def total(tensors):
    """The sum of parameters; None if there are none."""
    tensors = [t for t in tensors if t is not None]
    if not tensors:
        return None
    return tensors[0] if len(tensors) == 1 else _Total.apply(*tensors)


def project(graph, side, x, weights, biases=None):
    """[rows by relation, width] of x by type, each relation with its own
    weight [width, features] and bias."""
    wide, rows, more = [], [], []
    for kind, block in graph.blocks(side).items():
        rows.append(x[kind])
        wide.append(joined([weights[r] for r in block.relations]))
        if biases is not None and biases[0] is not None:
            more.append(joined([biases[r] for r in block.relations]))
    return tables(rows, wide, more).view(-1, weights[0].size(0))


def sent(graph, x, *linears):
    """For each (weights, biases) project() of sources, laid out as
    graph.as_sent(); rows that are gathered are gathered once."""
    if 0 not in graph.as_sent().step:
        return [project(graph, "src", x, *linear) for linear in linears]
    rows = _rows_sent(graph, x)
    return [tables(rows, weights, None if biases is None or biases[0] is None
                   else biases).view(-1, weights[0].size(0))
            for weights, biases in linears]


def _rows_sent(graph, x):
    """By relation the features that graph.as_sent() has rows for."""
    features = [x[source] for source, _, _ in graph.relations]
    for kind, rows in x.items():
        numbers = [n for n, step in enumerate(graph.as_sent().step)
                   if not step and graph.relations[n][0] == kind]
        if not numbers:
            continue
        edges = graph.edge_index[0].split(graph.counts)
        index = joined([edges[n] for n in numbers])
        if rows.requires_grad and torch.is_grad_enabled():
            among = rows.size(0)
            rows = take(rows, graph._derive(
                ("sent by", kind), lambda: gatherer(index, among)))
        else:
            rows = rows.index_select(0, index)
        parts = rows.split([graph.counts[n] for n in numbers])
        for number, part in zip(numbers, parts):
            features[number] = part
    return features


class Rows:
    """The rows of attention within relations: those by relation, or, if few of
    them have edges, those of graph.pairs()."""

    def __init__(self, graph, summed, columns=None):
        columns = columns or graph.as_sent()
        self.graph = graph
        self.few = summed and graph.has_few_pairs()
        self.pairs = graph.pairs(columns) if self.few else None
        self.matrix = self.pairs.within if self.few else graph.graph(
            graph.by_relation("dst"), columns)

    def project(self, x, weights, biases=None):
        rows = project(self.graph, "dst", x, weights, biases)
        if not self.few:
            return rows
        return rows.index_select(0, self.graph.pairs_in(
            self.graph.by_relation("dst")))

    def spread(self, parameters):
        """[rows, ...] of parameters [...] by relation."""
        if self.few:
            return take(torch.stack(parameters), self.graph._derive(
                "relations of pairs", lambda: gatherer(
                    self.pairs.relation, len(parameters))))
        shape = parameters[0].shape
        parts = [torch.stack([parameters[r] for r in block.relations]).expand(
            block.nodes, -1, *shape).flatten(0, 1)
            for block in self.graph.blocks("dst").values()]
        return joined(parts)

    def results(self, out, summed, own_term, post=None):
        """The result of a kind, from its rows [rows, F].

        own_term: (kind, numbers of relations) -> what the nodes of a type add
            to the sum of these relations, or None.
        post: (number, rows, kind) -> the result of a relation of this number,
            from its rows.
        """
        graph, together = self.graph, summed and post is None
        parts = graph.split_types("dst", spmm(self.pairs.across, out)) \
            if self.few else graph.split_blocks("dst", out)
        return finished(graph, by_group(
            graph, parts, together, lambda part: part if self.few
            else part.sum(1)), summed, own_term, post)


def by_group(graph, parts, together, join):
    """(type, numbers of relations, rows) of each relation, or, if together, of
    all of a type.  parts: by type of destinations [nodes, relations, F]; join:
    such a part -> the rows of all."""
    for kind, block in graph.blocks("dst").items():
        if together:
            yield kind, block.relations, join(parts[kind])
            continue
        for number, rows in zip(block.relations, parts[kind].unbind(1)):
            yield kind, (number,), rows


def finished(graph, groups, summed, own_term, post=None):
    """The results of the groups of by_group(); own_term and post are those of
    Rows.results()."""
    results = {}
    for kind, numbers, rows in groups:
        more = own_term(kind, numbers)
        rows = rows if more is None else rows + more
        if post is not None:
            rows = post(numbers[0], rows, kind)
        put(results, graph, kind, numbers, rows, summed)
    return results


def put(results, graph, kind, numbers, rows, summed):
    if not summed:
        results[graph.relations[numbers[0]]] = rows
    else:
        results[kind] = results[kind] + rows if kind in results else rows


def own_terms(x, own, biases=None):
    """The own_term of an Own, and of further biases by relation."""
    def term(kind, numbers):
        weight = total([own.weights[n] for n in numbers])
        bias = total([values[n] for values in (own.biases, biases)
                      if values is not None for n in numbers])
        return bias if weight is None else F.linear(x[kind], weight, bias)
    return term
