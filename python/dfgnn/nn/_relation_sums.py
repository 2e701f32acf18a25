"""Linear layers of the sums of all relations as one node of autograd.

Each type of destination takes a product of its reduced neighbours, those of
its relations side by side, and one of its own features.  Types whose result no
loss reads take no part in the backward pass.
"""

import itertools

import torch

from .. import _recording
from .._autograd import Kind, Recorded, by_operations
from .._autocast import autocasting
from .._execute import generation
from .._kernel_links import ByEdge, Reduced, Sum
from .._modes import in_transform, needs_composite
from ..errors import UnsupportedError
from ..hetero import HeteroGraph

# So many features of edges that no gradient comes through are worth a graph
# without them, which takes longer to make on a CPU than few of them to walk.
# On a GPU no gain was measured: the whole graph has a transpose to make and long
# columns (relbench of tools/bench/python_relations.py).
LEAST_LEFT_OUT = {"cpu": 1 << 18, "cuda": 0}


class Reduction:
    """What reduces neighbours: run(graph, table, weight) gives what the
    destinations of a graph get.

    weight: of edges [E], in the caller's order, or None.
    op: the operator that does the same, if there is one for it.
    """

    def __init__(self, run, op=None, weight=None):
        self.run, self.op, self.weight = run, op, weight

    def __call__(self, graph, table):
        return self.run(graph, table, self.weight)


def operator(names, weight):
    """The operator of reductions with weights of edges, None if there is none
    for all of them."""
    if weight is not None:
        return "spmm-weighted" if names == ("sum",) else None
    return {("sum",): "spmm-sum", ("mean",): "spmm-mean",
            ("max",): "reduce-max", ("min",): "reduce-min"}.get(names)


def joined(parts, dim=0):
    if len(parts) == 1:
        return parts[0]
    if not autocasting():
        return torch.cat(parts, dim)
    # a region of bfloat16 has no cat of float16
    with torch.autocast(parts[0].device.type, enabled=False):
        return torch.cat(parts, dim)


def _totals(lists):
    """The sum of each list of tensors, None of an empty one; pairs of all
    lists are added at once."""
    lists = [list(tensors) for tensors in lists]
    while True:
        pairs = [(n, k) for n, tensors in enumerate(lists)
                 for k in range(0, len(tensors) - 1, 2)]
        if not pairs:
            return [tensors[0] if tensors else None for tensors in lists]
        made = iter(torch._foreach_add([lists[n][k] for n, k in pairs],
                                       [lists[n][k + 1] for n, k in pairs]))
        lists = [[next(made) for _ in range(len(tensors) // 2)]
                 + tensors[len(tensors) // 2 * 2:] for tensors in lists]


def _spread(parts, counts):
    """Each of the tensors so many times, each time in memory of its own."""
    return torch.cat([part.unsqueeze(0).expand(count, *part.shape)
                      for part, count in zip(parts, counts)]).unbind(0)


def _links(graph, reduce, table):
    """The links that compute "sums" from "x"."""
    key = ("relation sums", reduce.op, generation(), table.dtype,
           table.size(1))
    recipes = graph.handle.recipes
    found = recipes.get(key)
    if found is None:
        if reduce.op in ("spmm-sum", "spmm-mean"):
            found = [Sum(reduce.op, "x", "sums", table.size(1),
                         table.dtype)]
        elif reduce.weight is None:
            found = [Reduced(reduce.op, "sums", value="x")]
        else:
            found = [ByEdge("edge_weight", "by edge"),
                     Reduced(reduce.op, "sums", value="x",
                             edge_weight="by edge")]
        recipes[key] = found
    return found


class _Call(Kind):
    """What a node knows beside its tensors, whose lists have an entry for each
    relation, with None where a relation has none:

      x            by type of sources, in the order of the table
      own          by type of destinations that are not those of x
      edge_weight  one, or none
      weights, biases, own_weights, own_biases
    """

    names = ("x", "own", "edge_weight", "weights", "biases", "own_weights",
             "own_biases")

    def __init__(self, graph, x, reduce, weights, biases, own, plain):
        self.graph, self.reduce, self.plain = graph, reduce, plain
        self.matrix = graph.graph(graph.by_relation("dst"),
                                  graph.by_node("src"))
        self.sources = [kind for kind, count in graph.num_src.items() if count]
        self.blocks = graph.blocks("dst")
        # what a recording fills anew in each step is the graph of all
        self.recorded = _recording.current is not None
        none = [None] * len(weights)
        self.make_own = None if own is None else type(own)
        own_weights, own_biases = (none, none) if own is None else \
            (own.weights, own.biases)
        # types whose own features are multiplied, and where they are
        self.own = {kind for kind, block in self.blocks.items()
                    if any(own_weights[r] is not None
                           for r in block.relations)}
        self.others = [kind for kind in self.blocks if kind in self.own
                       and x.src.get(kind) is not x.dst[kind]]
        self.given = dict(zip(self.names, (
            [x.src[kind] for kind in self.sources],
            [x.dst[kind] for kind in self.others],
            [] if reduce.weight is None else [reduce.weight],
            weights, biases, own_weights, own_biases)))
        self.sizes = [len(self.given[name]) for name in self.names]

    def named(self, flat):
        """By name the lists of tensors, or of what else there is of each."""
        flat = iter(flat)
        return {name: list(itertools.islice(flat, size))
                for name, size in zip(self.names, self.sizes)}

    def fits(self):
        """Whether the node serves these tensors."""
        first, out = self.given["x"][0], self.given["weights"][0].size(0)
        width = first.size(1)
        if not width or not out or self.reduce.weight is not None and \
                first.dtype not in (torch.float32, torch.float64):
            return False
        for name, shape in (("weights", (out, width)), ("biases", (out,)),
                            ("own_biases", (out,))):
            if any(t is not None and t.shape != shape
                   for t in self.given[name]):
                return False
        for kind in self.own:
            shapes = {self.given["own_weights"][r].shape
                      for r in self.blocks[kind].relations
                      if self.given["own_weights"][r] is not None}
            if len(shapes) > 1:
                return False
        return all(t is None or t.dtype == first.dtype
                   and t.device == first.device
                   for t in itertools.chain(*self.given.values()))

    def own_features(self, given, kind):
        if kind in self.others:
            return given["own"][self.others.index(kind)]
        return given["x"][self.sources.index(kind)]

    def rows(self, sums):
        """By type [nodes, relations * width] the sums."""
        width = sums.size(1)
        parts = sums.split([block.nodes * len(block.relations)
                            for block in self.blocks.values()])
        return {kind: part.view(block.nodes, len(block.relations) * width)
                for (kind, block), part in zip(self.blocks.items(), parts)}

    def by_columns(self, wide, width):
        """By type the rows of [relations * width, O], those of its
        relations."""
        return dict(zip(self.blocks, wide.split(
            [len(block.relations) * width
             for block in self.blocks.values()])))

    # ---- passes

    def forward(self, given):
        """(results by type, what the backward pass reads)."""
        values = {"x": joined(given["x"]).contiguous()}
        if given["edge_weight"]:
            values["edge_weight"], = given["edge_weight"]
        if _recording.current is not None:
            _recording.current.graph(self.matrix)
        links = _links(self.matrix, self.reduce, values["x"])
        for link in links:
            link.forward(self.matrix, values, True)
        sums, width = values["sums"], values["x"].size(1)
        blocks = self.blocks.values()
        wide = joined([given["weights"][r] for block in blocks
                       for r in block.relations], 1)

        def of(block, *names):
            return [given[name][r] for name in names for r in block.relations
                    if given[name][r] is not None]
        totals = _totals([of(block, "own_weights") for block in blocks]
                         + [of(block, "biases", "own_biases")
                            for block in blocks])
        own, biases = totals[:len(blocks)], totals[len(blocks):]
        outs, weights = [], self.by_columns(wide.t(), width)
        for (kind, rows), own_weight, bias in zip(
                self.rows(sums).items(), own, biases):
            out = rows.mm(weights[kind]) if bias is None else \
                torch.addmm(bias, rows, weights[kind])
            if own_weight is not None:
                out.addmm_(self.own_features(given, kind), own_weight.t())
            outs.append(out)
        kept = [values.get(name) for link in links for name in link.saves]
        return outs, [sums, wide, *own, *kept]

    def backward(self, given, kept, grads, needed):
        """needed: by name whether the gradient of each tensor is."""
        live = {kind: grad.contiguous() for kind, grad in
                zip(self.blocks, grads) if grad is not None}
        found = {name: [None] * size for name, size in
                 zip(self.names, self.sizes)}
        sums, wide, *kept = kept
        own = dict(zip(self.blocks, kept))
        self._of_parameters(given, sums, live, needed, found)
        if any(map(any, (needed[name] for name in self.names[:3]))):
            self._of_features(given, wide, own, kept[len(self.blocks):], live,
                              needed, found)
        return list(itertools.chain(*found.values()))

    def _of_parameters(self, given, sums, live, needed, found):
        width = sums.size(1)
        out = next(iter(live.values())).size(1)
        relations = [r for kind in live for r in self.blocks[kind].relations]
        if any(needed["weights"][r] for r in relations):
            made, rows = sums.new_empty(out, len(relations) * width), \
                self.rows(sums)
            for (kind, grad), part in zip(live.items(), made.split(
                    [rows[kind].size(1) for kind in live], 1)):
                torch.mm(grad.t(), rows[kind], out=part)
            made = made.view(out, -1, width).transpose(0, 1).contiguous()
            for r, part in zip(relations, made.unbind(0)):
                found["weights"][r] = part
        self._shared(live, needed, found, ("own_weights",), lambda kind:
                     live[kind].t().mm(self.own_features(given, kind)))
        self._shared(live, needed, found, ("biases", "own_biases"),
                     lambda kind: live[kind].sum(0))

    def _shared(self, live, needed, found, names, make):
        """Gives the parameters of a type's relations, which are added, the
        gradient that is the same for all of them."""
        made, places = [], []
        for kind in live:
            mine = [(name, r) for name in names
                    for r in self.blocks[kind].relations if needed[name][r]]
            if mine:
                made.append(make(kind))
                places.append(mine)
        # types with own weights may be of several widths
        for shape in dict.fromkeys(part.shape for part in made):
            group = [n for n, part in enumerate(made) if part.shape == shape]
            parts = _spread([made[n] for n in group],
                            [len(places[n]) for n in group])
            for (name, r), part in zip(
                    itertools.chain(*[places[n] for n in group]), parts):
                found[name][r] = part

    def _of_features(self, given, wide, own, kept, live, needed, found):
        of_x = None
        reached = {self.graph.relations[r][0] for kind in live
                   for r in self.blocks[kind].relations}
        if any(needed["edge_weight"]) or any(
                n and kind in reached
                for kind, n in zip(self.sources, needed["x"])):
            of_x = self._of_table(given, wide, kept, live, needed, found)
        parts = of_x or {}
        for number, kind in enumerate(self.sources):
            if needed["x"][number] and kind in reached:
                found["x"][number] = parts[kind]
        for kind in self.own:
            if kind not in live:
                continue
            name, among = ("own", self.others) if kind in self.others else \
                ("x", self.sources)
            number = among.index(kind)
            if not needed[name][number]:
                continue
            if found[name][number] is None:
                found[name][number] = live[kind].mm(own[kind])
            else:
                found[name][number].addmm_(live[kind], own[kind])

    def _of_table(self, given, wide, kept, live, needed, found):
        """By type of sources the gradient of its rows, or None; that of the
        weights of edges is put where it belongs."""
        width, of_weight = given["x"][0].size(1), any(needed["edge_weight"])
        graph = self._leading(live, width)
        matrix = graph.graph(graph.by_relation("dst"), graph.by_node("src"))
        make = wide.new_empty if len(live) == len(graph.blocks("dst")) else \
            wide.new_zeros
        grad = make(matrix.num_dst, width)
        rows = graph.split_blocks("dst", grad)
        weights = self.by_columns(wide.t(), width)
        for kind, part in live.items():
            torch.mm(part, weights[kind].t(), out=rows[kind].flatten(1))
        links = _links(matrix, self.reduce, given["x"][0])
        values = dict(zip((name for link in links for name in link.saves),
                          kept))
        wanted = {"sums"}
        if any(needed["x"]):
            wanted.add("x")
        if of_weight:
            wanted.update(("edge_weight", "by edge"))
        grads = {"sums": grad}
        for link in reversed(links):
            if link.out in wanted:
                link.backward(matrix, values, grads, wanted)
        if of_weight:
            found["edge_weight"][0] = grads["edge_weight"]
        of_x = grads.get("x")
        return None if of_x is None else graph.split_types("src", of_x)

    def _leading(self, live, width):
        """The HeteroGraph of the relations that end at live types, where that
        is worth a graph of its own; else that of all."""
        graph = self.graph
        numbers = [r for r, (_, _, end) in enumerate(graph.relations)
                   if end in live]
        if self.recorded or self.reduce.op not in ("spmm-sum", "spmm-mean") \
                or graph.counts is None:
            return graph
        edges = sum(graph.counts[r] for r in numbers)
        if 2 * edges > graph.num_edges or (graph.num_edges - edges) * width \
                < LEAST_LEFT_OUT[graph.device.type]:
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

    # ---- in autograd

    def record(self, count, flat, needed):
        outs, kept = self.forward(self.named(flat))
        return tuple(outs), (*flat, *kept), None

    def gradients(self, count, rest, saved, grads, needed, again):
        given, kept = saved[:count], saved[count:]
        if not again and not in_transform():
            try:
                return self.backward(self.named(given), kept, grads,
                                     self.named(needed))
            except UnsupportedError:
                pass
        return by_operations(lambda flat: self.plain(self, self.named(flat)),
                             given, grads, needed, again)


def linear_of_sums(graph, x, reduce, weights, biases, own, plain):
    """By type of destination the sum over its relations of the reduced
    neighbours times weights [O, F], with biases and the linear layers of own
    (an Own); None where one node does not serve.

    plain: (x, reduce, weights, biases, own) -> the same by operations that
        autograd records.
    """
    if reduce.op is None or autocasting() or needs_composite():
        return None

    features, run = type(x), reduce.run

    def again(call, given):
        """plain() of the tensors that a node was given.  It knows none of them
        itself, so that they are freed as the backward pass goes."""
        src = dict(zip(call.sources, given["x"]))
        dst = {kind: src[kind] for kind in call.own
               if kind not in call.others}
        dst.update(zip(call.others, given["own"]))
        made = plain(
            features(src, dst),
            Reduction(run, weight=(given["edge_weight"] or [None])[0]),
            given["weights"], given["biases"],
            call.make_own and call.make_own(given["own_weights"],
                                            given["own_biases"]))
        return [made[kind] for kind in call.blocks]
    call = _Call(graph, x, reduce, list(weights), list(biases), own, again)
    if not call.fits():
        return None
    given, call.given = call.given, None
    try:
        if torch.is_grad_enabled():
            flat = list(itertools.chain(*given.values()))
            outs = Recorded.apply(call, len(flat), *flat)
        else:
            outs, _ = call.forward(given)
    except UnsupportedError:
        return None
    return dict(zip(call.blocks, outs))
