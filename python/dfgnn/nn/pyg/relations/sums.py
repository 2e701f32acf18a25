"""Linear layers of the reduced neighbours of all relations.

Most calls are one node of autograd, in which each type of destination takes a
product of its reduced neighbours, those of its relations side by side, and one
of its own features.  Types whose result no loss reads take no part in the
backward pass.  Many types are batched products, see tiles.py.
"""

import itertools
from typing import Callable, NamedTuple

import torch
import torch.nn.functional as F

from .... import _remember, _ways
from ...._autograd import Kind, Recorded, by_operations, wants_gradient
from ...._execute import generation
from ...._kernel_links import ByEdge, Reduced
from ...._modes import autocasting, in_transform, needs_composite
from ...._relations.groups import alignment, product_type
from ....errors import UnsupportedError
from ....hetero import HeteroGraph
from ..._node import REDUCTIONS
from . import tiles
from .leading import Leading
from .rows import (
    Features, Own, by_group, finished, joined, own_terms, sent, total)


class Reduction(NamedTuple):
    """The reduction of neighbours."""
    run: Callable  # (graph, table, weight) -> what destinations of a graph get
    op: str | None = None  # the operator that does the same, if there is one
    weight: torch.Tensor | None = None  # of edges [E], in the caller's order

    def __call__(self, graph, table):
        return self.run(graph, table, self.weight)


def operator(names, weight):
    """The operator of reductions with weights of edges, None if there is none
    for all of them."""
    if weight is not None:
        return "spmm-weighted" if names == ("sum",) else None
    return REDUCTIONS.get(names[0]) if len(names) == 1 else None


def neighbours(graph, x, reduce, project=None):
    """[rows by relation, F] the neighbours of each relation, reduced.

    project: (weights, biases) of what sources go through first, with a ReLU;
        by default relations share the features of nodes.
    """
    if project is not None:
        return reduce(graph.graph(graph.by_relation("dst"), graph.as_sent()),
                      sent(graph, x.src, project)[0].relu())
    return reduce(graph.graph(graph.by_relation("dst"), graph.by_node("src")),
                  joined([x.src[kind] for kind in _sources(graph)]))


def _sources(graph):
    return [kind for kind, count in graph.num_src.items() if count]


def linear_of_sums(graph, x, summed, reduce, weights, biases, own,
                   project=None, post=None):
    """A linear layer, weights [O, F] and biases by relation, of the reduced
    neighbours, and what own adds: if summed, by type of destination the sum
    over its relations, else by relation."""
    if summed and post is None and project is None:
        way = _ways.sums_over_types(
            graph.device, len(graph.blocks("dst")), graph.num_relations,
            graph.by_relation("dst").size)
        for function in (_by_tiles, _in_one_node)[way == "one node":]:
            results = function(graph, x, reduce, weights, biases, own)
            if results is not None:
                return results
    leading = Leading(graph.relations)
    if project is None:
        x, = leading.enter(x)
    else:
        x, *project = leading.enter(x, *project)
    return leading.leave(_by_type(graph, x, summed, reduce, weights, biases,
                                  own, project, post), summed)


def _by_type(graph, x, summed, reduce, weights, biases, own, project=None,
             post=None):
    groups = by_group(
        graph, graph.split_blocks("dst", neighbours(graph, x, reduce,
                                                    project)),
        summed and post is None, lambda part: part.flatten(1))
    # over all relations it is one product, [N, R F] by [R F, out]
    products = ((kind, numbers, F.linear(
        rows, joined([weights[n] for n in numbers], 1),
        total([biases[n] for n in numbers])))
        for kind, numbers, rows in groups)
    return finished(graph, products, summed, own_terms(x.dst, own), post)


def _by_tiles(graph, x, reduce, weights, biases, own):
    """By type the sums, by batched products; None where a product for each
    type is better, or some relations have a parameter that others lack."""
    align = alignment(
        graph.by_relation("dst").size, graph.num_relations, graph.device,
        product_type(next(iter(x.src.values()))),
        {width for weight in (*weights, *own.weights) if weight is not None
         for width in weight.shape})
    if align == 1:
        return None
    parameters = []
    for by_relation in (weights, biases, own.weights, own.biases):
        absent = sum(parameter is None for parameter in by_relation)
        if 0 < absent < len(by_relation):
            return None
        parameters.append(None if absent else list(by_relation))
    return tiles.sums(graph, x, reduce, align, *parameters)


def _in_one_node(graph, x, reduce, weights, biases, own):
    """By type the sums, by one node; None where it does not serve."""
    if reduce.op is None or autocasting() or needs_composite():
        return None
    call, inputs = _Call.of(graph, x, reduce, weights, biases, own)
    if not call.serves(inputs):
        return None
    flat = list(itertools.chain(*inputs.values()))
    try:
        if wants_gradient(flat):
            outs = Recorded.apply(call, len(flat), *flat)
        else:
            outs, _ = call.forward(inputs)
    except UnsupportedError:
        return None
    return dict(zip(call.blocks, outs))


def _totals(lists):
    """The sum of each list of tensors, None of an empty one; tensors of all
    lists are added at once."""
    totals = [tensors[0] if tensors else None for tensors in lists]
    for turn in range(1, max(map(len, lists), default=0)):
        longer = [n for n, tensors in enumerate(lists) if len(tensors) > turn]
        for n, added in zip(longer, torch._foreach_add(
                [totals[n] for n in longer],
                [lists[n][turn] for n in longer])):
            totals[n] = added
    return totals


def _links(graph, op, weighted, table):
    """The links that compute "sums" from "x"."""
    key = ("relation sums", op, generation(), table.dtype, table.size(1))
    recipes = graph.handle.recipes
    if key not in recipes:
        links = [Reduced(op, "sums", value="x",
                         edge_weight="by edge" if weighted else None)]
        if weighted:
            links.insert(0, ByEdge("edge_weight", "by edge"))
        recipes.setdefault(key, links)
    return recipes[key]


class _Call(Kind):
    """A node without its tensors, which are lists by name; those by relation
    have None where a relation has none:

      x            by type of sources, in the order of the table
      own          of types of destinations whose features are not in x
      edge_weight  one, or none
      weights, biases, own_weights, own_biases   by relation
    """

    names = ("x", "own", "edge_weight", "weights", "biases", "own_weights",
             "own_biases")

    @classmethod
    def of(cls, graph, x, reduce, weights, biases, own):
        """(the node, its tensors)."""
        call = cls()
        call.graph, call.op, call.run = graph, reduce.op, reduce.run
        call.matrix = graph.graph(graph.by_relation("dst"),
                                  graph.by_node("src"))
        call.sources, call.blocks = _sources(graph), graph.blocks("dst")
        # a recording refills the graph of all relations in each step
        call.recorded = _remember.current is not None
        # by type with own weights, its features' list and place in it
        call.own, others = {}, []
        for kind, block in call.blocks.items():
            if all(own.weights[r] is None for r in block.relations):
                continue
            if kind in call.sources and x.src[kind] is x.dst[kind]:
                call.own[kind] = "x", call.sources.index(kind)
            else:
                call.own[kind] = "own", len(others)
                others.append(x.dst[kind])
        inputs = dict(zip(cls.names, (
            [x.src[kind] for kind in call.sources], others,
            [] if reduce.weight is None else [reduce.weight],
            *map(list, (weights, biases, *own)))))
        call.sizes = list(map(len, inputs.values()))
        return call, inputs

    def named(self, flat):
        """By name the lists of tensors, or of what else there is of each."""
        flat = iter(flat)
        return {name: list(itertools.islice(flat, size))
                for name, size in zip(self.names, self.sizes)}

    def serves(self, inputs):
        """Whether the node can be made of these tensors."""
        first, out = inputs["x"][0], inputs["weights"][0].size(0)
        width = first.size(1)
        if not width or not out or inputs["edge_weight"] and \
                first.dtype not in (torch.float32, torch.float64):
            return False
        shapes = {"weights": (out, width), "biases": (out,),
                  "own_biases": (out,)}
        widths = {(kind, inputs["own_weights"][r].shape)
                  for kind in self.own for r in self.blocks[kind].relations
                  if inputs["own_weights"][r] is not None}
        return len(widths) == len(self.own) and all(
            t is None or t.shape == shape for name, shape in shapes.items()
            for t in inputs[name]) and all(
            t is None or t.dtype == first.dtype and t.device == first.device
            for t in itertools.chain(*inputs.values()))

    def own_features(self, inputs, kind):
        name, number = self.own[kind]
        return inputs[name][number]

    def rows(self, sums):
        """By type [nodes, relations * width] the sums."""
        return {kind: part.flatten(1) for kind, part in
                self.graph.split_blocks("dst", sums).items()}

    def by_columns(self, wide, width):
        """By type the rows of [relations * width, O], those of its
        relations."""
        return dict(zip(self.blocks, wide.split(
            [len(block.relations) * width
             for block in self.blocks.values()])))

    def forward(self, inputs):
        """(results by type, what the backward pass reads)."""
        values = {"x": joined(inputs["x"]).contiguous()}
        if inputs["edge_weight"]:
            values["edge_weight"], = inputs["edge_weight"]
        _remember.note_graph(self.matrix)
        links = _links(self.matrix, self.op, inputs["edge_weight"], values["x"])
        for link in links:
            link.forward(self.matrix, values, True)
        sums, blocks = values["sums"], self.blocks.values()
        wide = joined([inputs["weights"][r] for block in blocks
                       for r in block.relations], 1)
        totals = _totals([[inputs[name][r] for name in names
                           for r in block.relations
                           if inputs[name][r] is not None]
                          for names in (("own_weights",),
                                        ("biases", "own_biases"))
                          for block in blocks])
        own, biases = totals[:len(blocks)], totals[len(blocks):]
        outs, weights = [], self.by_columns(wide.t(), values["x"].size(1))
        for (kind, rows), own_weight, bias in zip(
                self.rows(sums).items(), own, biases):
            out = rows.mm(weights[kind]) if bias is None else \
                torch.addmm(bias, rows, weights[kind])
            if own_weight is not None:
                out.addmm_(self.own_features(inputs, kind), own_weight.t())
            outs.append(out)
        return outs, [sums, wide, *own, *[
            values.get(name) for link in links for name in link.saves]]

    def backward(self, inputs, kept, grads, needed):
        """needed: by name whether the gradient of each tensor is."""
        live = {kind: grad.contiguous() for kind, grad in
                zip(self.blocks, grads) if grad is not None}
        gradients = {name: [None] * size for name, size in
                     zip(self.names, self.sizes)}
        sums, wide, *kept = kept
        own, kept = kept[:len(self.blocks)], kept[len(self.blocks):]
        self._of_weights(sums, live, needed, gradients)
        self._shared(live, needed, gradients, ("own_weights",), lambda kind:
                     live[kind].t().mm(self.own_features(inputs, kind)))
        self._shared(live, needed, gradients, ("biases", "own_biases"),
                     lambda kind: live[kind].sum(0))
        self._of_table(inputs, wide, kept, live, needed, gradients)
        for kind, weight in zip(self.blocks, own):
            name, number = self.own.get(kind, ("x", 0))
            if weight is None or kind not in live or not needed[name][number]:
                continue
            if gradients[name][number] is None:
                gradients[name][number] = live[kind].mm(weight)
            else:
                gradients[name][number].addmm_(live[kind], weight)
        return list(itertools.chain(*gradients.values()))

    def _of_weights(self, sums, live, needed, gradients):
        relations = [r for kind in live for r in self.blocks[kind].relations]
        if not any(needed["weights"][r] for r in relations):
            return
        width, rows = sums.size(1), self.rows(sums)
        out = next(iter(live.values())).size(1)
        products = sums.new_empty(out, len(relations) * width)
        for (kind, grad), part in zip(live.items(), products.split(
                [rows[kind].size(1) for kind in live], 1)):
            torch.mm(grad.t(), rows[kind], out=part)
        products = products.view(out, -1, width).transpose(0, 1).contiguous()
        for r, part in zip(relations, products.unbind(0)):
            gradients["weights"][r] = part

    def _shared(self, live, needed, gradients, names, make):
        """Sets gradients of parameters that a type's relations add: all have
        the same gradient, each in memory of its own."""
        by_shape = {}  # types with own weights may be of several widths
        for kind in live:
            places = [(name, r) for name in names
                      for r in self.blocks[kind].relations if needed[name][r]]
            if places:
                grad = make(kind)
                by_shape.setdefault(grad.shape, []).append((grad, places))
        for shape, parts in by_shape.items():
            copies = torch.cat([grad.expand(len(places), *shape)
                                for grad, places in parts])
            for (name, r), part in zip(itertools.chain(
                    *[places for _, places in parts]), copies.unbind(0)):
                gradients[name][r] = part

    def _of_table(self, inputs, wide, kept, live, needed, gradients):
        """The gradients of the features that are sent, and of the weights of
        edges."""
        reached = {self.graph.relations[r][0] for kind in live
                   for r in self.blocks[kind].relations}
        wanted = {name for name, want in (("x", any(
            n and kind in reached for kind, n in zip(
                self.sources, needed["x"]))), (
            "edge_weight", any(needed["edge_weight"]))) if want}
        if not wanted:
            return
        width, first = wide.size(1) // len(inputs["weights"]), inputs["x"][0]
        graph = self._leading(live)
        matrix = graph.graph(graph.by_relation("dst"), graph.by_node("src"))
        make = wide.new_empty if len(live) == len(graph.blocks("dst")) else \
            wide.new_zeros
        grads = {"sums": make(matrix.num_dst, width)}
        rows = graph.split_blocks("dst", grads["sums"])
        weights = self.by_columns(wide.t(), width)
        for kind, part in live.items():
            torch.mm(part, weights[kind].t(), out=rows[kind].flatten(1))
        links = _links(self.matrix, self.op, inputs["edge_weight"], first)
        values = dict(zip((name for link in links for name in link.saves),
                          kept))
        for link in reversed(links):
            if link.out in {"sums", "by edge", *wanted}:
                link.backward(matrix, values, grads,
                              {"sums", "by edge", *wanted})
        if "edge_weight" in wanted:
            gradients["edge_weight"][0] = grads["edge_weight"]
        if "x" in wanted:
            parts = graph.split_types("src", grads["x"])
            for number, kind in enumerate(self.sources):
                if needed["x"][number] and kind in reached:
                    gradients["x"][number] = parts[kind]

    def _leading(self, live):
        """The HeteroGraph of the relations that end at live types, where they
        are less than half of it; else that of all.

        On a CPU the first step of a graph walks all of it, as it may be the
        only one: to make a graph takes longer than to walk one.  On a GPU the
        whole has a transpose to make and long columns (relbench of
        tools/bench/cases/relations.py)."""
        graph = self.graph
        numbers = [r for r, (_, _, end) in enumerate(graph.relations)
                   if end in live]
        if self.recorded or self.op not in ("spmm-sum", "spmm-mean") \
                or graph.counts is None:
            return graph
        edges = sum(graph.counts[r] for r in numbers)
        if 2 * edges > graph.num_edges:
            return graph
        steps = graph._derive(("steps into", tuple(live)), list)
        if graph.device.type == "cpu" and not steps:
            steps.append("whole")
            return graph

        def make():
            parts = graph.edge_index.split(graph.counts, 1)
            begins = {graph.relations[r][0] for r in numbers}
            return HeteroGraph(
                {graph.relations[r]: parts[r] for r in numbers},
                {kind: (graph.num_src[kind] if kind in begins else 0,
                        graph.num_dst[kind] if kind in live else 0)
                 for kind in graph.node_types},
                family=graph.family, trusted=True)
        return graph._derive(("into", tuple(live)), make)

    def record(self, count, flat, needed):
        outs, kept = self.forward(self.named(flat))
        return tuple(outs), (*flat, *kept), None

    def gradients(self, count, rest, saved, grads, needed, again):
        inputs, kept = saved[:count], saved[count:]
        if not again and not in_transform():
            try:
                return self.backward(self.named(inputs), kept, grads,
                                     self.named(needed))
            except UnsupportedError:
                pass
        return by_operations(lambda flat: self._by_operations(
            self.named(flat)), inputs, grads, needed, again)

    def _by_operations(self, inputs):
        """The results by operations that autograd records."""
        x = Features(dict(zip(self.sources, inputs["x"])), {
            kind: self.own_features(inputs, kind) for kind in self.own})
        results = _by_type(
            self.graph, x, True,
            Reduction(self.run, weight=(inputs["edge_weight"] or [None])[0]),
            inputs["weights"], inputs["biases"],
            Own(inputs["own_weights"], inputs["own_biases"]))
        return [results[kind] for kind in self.blocks]
