"""Calls of the library's operators with gradients, by kernels and by torch's
operations where no kernel serves; and the same while torch.compile traces, as a
family of _torch_library.py.

Inputs are those of _operators.OPERATORS, in their order; tensors by edge are in
the graph's own order, except for edge features of a recipe that is listed,
which are in the caller's, and for what torch.compile traces.
"""

import functools

import torch

from . import _abi, _execute, _formulas, _operators
from ._autograd import Kind, Recorded, by_operations, wants_gradient
from ._checks import exact
from ._evaluators import inverse_root, keep_factors
from ._execute import Settings, sum_settings
from ._fallbacks import say_once, say_unfused
from ._operators import OPERATORS, input_of
from ._torch_library import Call, Family, place
from .errors import UnsupportedError

INSTEAD = "; it runs by torch operations instead"


class _Reordered(Kind):
    """A tensor by edge in the caller's order, or in the graph's; its gradient
    is brought back as it was brought, instead of being added to zeros."""

    def record(self, about, tensors, needed):
        return _moved(about[0], *tensors, about[1]), (), None

    def gradients(self, about, rest, kept, grads, needed, again):
        graph, to_caller = about
        return [reordered(graph, *grads, not to_caller)]


_REORDERED = _Reordered()


def _moved(graph, edges, to_caller):
    if not edges.stride(0):  # all rows are one
        return edges.view_as(edges)
    return graph.to_caller_order(edges) if to_caller else \
        graph.to_graph_order(edges)


def reordered(graph, edges, to_caller=False):
    """A tensor by edge in the graph's order, from one in the caller's, or the
    other way round, where gradients of gradients are recorded."""
    if graph.edge_order is None:
        return edges
    if not torch.is_grad_enabled():
        return _moved(graph, edges, to_caller)
    return Recorded.apply(_REORDERED, (graph, to_caller), edges)


def ordered(graph, recipe, inputs):
    """The inputs with edge features in the graph's order."""
    if not recipe.listed:
        return inputs
    place = recipe.spec.fields["edge_attr"]
    return (*inputs[:place], reordered(graph, inputs[place]),
            *inputs[place + 1:])


def _by_torch(graph, recipe, inputs, seed, saved=None):
    return _formulas.run(_formulas.ByTorch, graph, recipe.spec, recipe.shown,
                          ordered(graph, recipe, inputs), seed, recipe.settings,
                          saved)


def _by_program(graph, recipe, inputs, seed, saved, grads):
    """_by_torch() by an edge program, whose gradients hold no features of
    edges; None where none serves."""
    if dict(zip(recipe.shown, grads)).get("lse") is not None or (
            # a part of a graph numbers its edges otherwise
            recipe.settings.dropout and graph.edge_number is not None):
        return None
    shown = [name for name in recipe.shown if name != "lse"]
    results = _formulas.by_program(
        lambda way, graph: _formulas.run(
            way, graph, recipe.spec, shown, ordered(graph, recipe, inputs),
            seed, recipe.settings, saved), graph)
    if results is None or len(shown) == len(recipe.shown):
        return results
    return [dict(zip(shown, results)).get(name) for name in recipe.shown]


def _transposed(graph, recipe, inputs, saved, grad):
    """The gradient of a value whose messages are copies: a sum over
    out-edges, which reads no features of forward."""
    zeros = grad.new_zeros((graph.num_src,) + tuple(grad.shape[1:]))
    picked = saved.get("arg_" + recipe.op[-3:])
    if picked is not None and graph.num_edges:
        _, rows, there = _formulas.winners(graph, picked)
        return zeros.scatter_add(0, rows, grad * there)
    grad = _formulas.scaled(grad, input_of(recipe.spec, inputs, "scale_dst"))
    if recipe.op != "spmm-sum":
        grad = grad / _formulas.degrees_of(graph, grad)
    total = _formulas.by_program(_formulas.sum_out, graph, grad)
    if total is None:
        total = _formulas.sum_out(_formulas.ByTorch, graph, grad)
    return _formulas.scaled(total, input_of(recipe.spec, inputs, "scale_src"))


def _differentiate(graph, recipe, kept, grads, needed, create_graph):
    """Gradients by the composite path; with create_graph by an edge program
    where one serves, themselves differentiable."""
    inputs, saved, seed = recipe.parted(kept)
    if inputs[recipe.spec.value] is None:
        return [_transposed(graph, recipe, inputs, saved, grads[0])
                if w and n == recipe.spec.value else None
                for n, w in enumerate(needed)]

    def outs(tensors):
        results = None
        if create_graph:
            results = _by_program(graph, recipe, tensors, seed, saved, grads)
            if results is None:
                say_unfused()
        return _by_torch(graph, recipe, tensors, seed, saved) \
            if results is None else results
    return by_operations(outs, inputs, grads, [
        n and t is not None for n, t in zip(needed, inputs)], create_graph)


def by_kernels(graph, recipe, kept, grads, needed):
    """grads: those of recipe.cotangents."""
    try:
        return recipe.backward(graph, kept, grads, needed)
    except UnsupportedError as error:
        say_once(f"{error}; gradients are made by torch operations instead")
    return _differentiate(graph, recipe, kept, grads, needed, False)


# ---- those of a loss that reads the weights of an attention ------------------

def _through_weights(graph, recipe, inputs, weights, grad_weights, grads,
                    needed):
    """The sum of grads, those by the fused passes, and of the gradients that
    grad_weights sends through the scores; weights [E, H] before dropout."""
    weighted = weights * grad_weights.to(weights.dtype)
    sums = weighted.new_zeros((graph.num_dst, weights.size(1))).index_add(
        0, graph.dst, weighted)
    scores = weighted - weights * sums.index_select(0, graph.dst)
    through = _through_scores
    if not recipe.edge_dim:
        through = _BY_KERNELS.get(recipe.op, through)
    count = len(recipe.spec.inputs) - 1
    more = through(graph, recipe, inputs[:count], scores, needed)
    if len(inputs) > count:
        more.append(scores if needed[-1] else None)
    return [_add(a, b, t) for a, b, t in zip(grads, more, inputs)]


def _add(a, b, like):
    if a is None or b is None:
        grad = b if a is None else a
        return grad if grad is None else grad.to(like.dtype)
    return a + b.to(a.dtype)


def _through_products(graph, recipe, inputs, scores, needed):
    """The gradients of GT: two products with a sparse matrix."""
    query, key = (t.detach().contiguous() for t in inputs[:2])
    pair = key, (scores * recipe.settings.scale).contiguous()
    grads = [None] * len(inputs)
    try:
        sums = _operators.recipe(graph, "spmm-weighted", pair, sum_settings())
        if needed[0]:
            grads[0], = sums.forward(graph, pair)
        if needed[1]:
            grads[1], _ = sums.backward(graph, pair, (query,),
                                       (True, False))
    except UnsupportedError:
        return _through_scores(graph, recipe, inputs, scores, needed)
    return grads


def _through_sums(graph, recipe, inputs, scores, needed):
    """The gradients of GAT, by its formulas."""
    _, score_dst, score_src = inputs[:3]
    x = (score_dst.index_select(0, graph.dst)
         + score_src.index_select(0, graph.src))
    scores = torch.where(x > 0, scores, scores * recipe.settings.slope)
    return [None] + [
        torch.zeros_like(t, dtype=scores.dtype,
                         memory_format=torch.contiguous_format).index_add(
            0, index, scores) if wanted else None
        for t, index, wanted in ((score_dst, graph.dst, needed[1]),
                                 (score_src, graph.src, needed[2]))
    ] + [None] * (len(inputs) - 3)


# faster than programs, without features of edges
_BY_KERNELS = {"gt": _through_products, "gat": _through_sums}


def _through_scores(graph, recipe, inputs, scores, needed):
    """The inputs' gradients from those of the scores [E, H]."""
    with torch.enable_grad():
        leaves = [None if t is None else
                  t.detach().to(recipe.exact).requires_grad_(w)
                  for t, w in zip(inputs, needed)]
        outs = _formulas.by_program(_formulas.scores, graph, recipe.op, leaves,
                                    recipe.settings)
        if outs is None:
            say_once(f"gradients through the weights of {recipe.op} are made "
                     "by torch operations, which hold every edge's features")
            outs = _formulas.scores(_formulas.ByTorch, graph, recipe.op, leaves,
                                    recipe.settings)
        sources = [t for t in leaves if t is not None and t.requires_grad]
        grads = iter(torch.autograd.grad(outs, sources, scores,
                                         allow_unused=True)
                     if sources and outs.requires_grad
                     else [None] * len(sources))
    return [next(grads) if t is not None and t.requires_grad else None
            for t in leaves]


def gradients(graph, recipe, kept, grads, needed):
    """The gradient of each input, None where it is not needed.

    kept: the tensors of recipe.kept, None for what forward did not make.
    grads: those of recipe.shown, or None.
    """
    outs = list(grads[:len(recipe.cotangents)])
    of_weights = grads[-1] if len(outs) < len(grads) else None
    for tensor in kept:
        if tensor is None or of_weights is not None and recipe.empty:
            return _differentiate(graph, recipe, kept, grads, needed, False)
    results = recipe.no_grads
    if any(grad is not None for grad in outs):
        for number, grad in enumerate(outs):
            field, shape, dtype, _ = recipe.outs[number]
            if grad is None and field != "lse":
                outs[number] = torch.zeros(shape, dtype=dtype,
                                           device=recipe.device)
        results = by_kernels(graph, recipe, kept, outs, needed)
    if of_weights is None:
        return results
    inputs, saved, _ = recipe.parted(kept)
    return _through_weights(graph, recipe, inputs, saved["weights"], of_weights,
                            results, needed)


class _Called(Kind):
    """The results of recipe.shown; about: (graph, recipe, seed)."""

    def record(self, about, inputs, needed):
        graph, recipe, seed = about
        outs = recipe.forward(graph, inputs, seed)
        kept = recipe.keep(seed, inputs, outs) if recipe.kept else ()
        shown = len(recipe.shown)
        return outs[0] if shown == 1 else tuple(outs[:shown]), kept, None

    def gradients(self, about, rest, kept, grads, needed, again):
        graph, recipe, *_ = about
        if again:
            return _differentiate(graph, recipe, kept, grads, needed, True)
        if recipe.plain and len(grads) == 1:
            return by_kernels(graph, recipe, kept, grads, needed)
        return gradients(graph, recipe, kept, grads, needed)


_CALLED = _Called()


def call(graph, recipe, inputs, seed=None):
    """The results of recipe.shown, with gradients."""
    try:
        if wants_gradient(inputs):
            results = Recorded.apply(_CALLED, (graph, recipe, seed), *inputs)
            return (results,) if len(recipe.shown) == 1 else results
        return recipe.forward(graph, inputs, seed, False)
    except UnsupportedError as error:
        say_once(f"{error}{INSTEAD}")
    return _by_torch(graph, recipe, inputs, seed)


def forward(graph, recipe, inputs, seed=None):
    """All results of recipe.outs, without gradients; None for what torch's
    operations do not keep."""
    try:
        return recipe.forward(graph, inputs, seed)
    except UnsupportedError as error:
        say_once(f"{error}{INSTEAD}")
    with torch.no_grad():
        results = _by_torch(graph, recipe, inputs, seed)
    return [*results, *[None] * (len(recipe.outs) - len(results))]


def normalization(graph, dtype):
    """Scales of GCN, 1 / sqrt(degree) of destinations and of sources, made
    once for each graph."""
    def make():
        return inverse_root(graph.degrees.to(torch.float64)).to(exact(dtype))
    scale = graph._derive(("normalization", dtype == torch.float64), make)
    return scale, scale


# ---- while torch.compile traces ----------------------------------------------

class _Form:
    """What a call says beside its tensors.

    fields: of dfgnn_args, that its tensors are.
    places: of each field among the inputs of spec; None: its seed.
    of_edges: the numbers of tensors by edge.
    reads: whether the gradient reads each tensor, which may miss the value
        alone; saved: each output.
    symmetric: GCN's scales, made once a graph.
    order: the number of the tensor that each input is, or None; seed: that of
        the seed, or None.
    """

    def __init__(self, spec, settings, fields, loops, symmetric):
        self.spec, self.settings, self.fields = spec, settings, fields
        self.loops, self.symmetric = loops, symmetric
        self.places = tuple([spec.fields.get(field) for field in fields])
        self.of_edges = tuple(
            n for n, place in enumerate(self.places)
            if place is not None and spec.inputs[place].dims[0] == "E")
        read = {t.field for t in spec.backward if t.flag != "message"
                or {"edge_attr", "gate_dst"}.intersection(fields)}
        self.reads = tuple([f == "seed" or f in read for f in fields])
        shown, rest = spec.results(settings)
        self.saved = tuple([t.field == "weights" or t.field in read
                            for t in (*shown, *rest)])
        numbers = {field: n for n, field in enumerate(fields)}
        self.seed = numbers.pop("seed", None)
        if symmetric:
            numbers.update(scale_dst=len(fields), scale_src=len(fields) + 1)
        self.order = spec.given(numbers)


_SEED = -1  # in place of the number of an input


def about(spec, fields, settings, loops=False, symmetric=False):
    """The name, counts and numbers of a call."""
    counts = (loops, symmetric, settings.lse, settings.weights,
              settings.deterministic, settings.tf32,
              _abi.EDGE_USES[settings.edge_use],
              *[spec.fields.get(field, _SEED) for field in fields])
    return spec.name, [int(count) for count in counts], settings[:3]


@functools.lru_cache(maxsize=1024)
def _parse(name, counts, numbers):
    spec = OPERATORS[name]
    loops, symmetric, lse, *flags = map(bool, counts[:6])
    settings = Settings(*numbers, *flags, list(_abi.EDGE_USES)[counts[6]], lse)
    fields = tuple(["seed" if number == _SEED else spec.inputs[number].field
                    for number in counts[7:]])
    return _Form(spec, settings, fields, loops, symmetric)


def _ready(call):
    """(the form, graph, recipe, inputs in the order of the operator,
    seed); tensors by edge are those of the graph's edges, its loops included,
    in its order."""
    parsed, tensors = _parse(*call.about), call.tensors
    of_edges = parsed.of_edges
    graph = call.graph(tensors[of_edges[0]] if of_edges else None,
                       parsed.loops)
    key = parsed, _execute.generation(), *[(t.shape, t.dtype) for t in tensors]
    if of_edges or parsed.symmetric:
        tensors = [*tensors]
        for n in of_edges:
            tensors[n] = graph.in_order(tensors[n])
        if parsed.symmetric:
            tensors += normalization(graph, tensors[0].dtype)
    inputs = [None if n is None else tensors[n] for n in parsed.order]
    recipe = _execute.kept(graph, key, lambda: _operators.recipe(
        graph, parsed.spec.name, inputs, parsed.settings))
    return parsed, graph, recipe, inputs, \
        None if parsed.seed is None else tensors[parsed.seed]


class _Traced(Family):
    """The outputs are those of the operator's table that the call has, and the
    factors of dropout of weights that it shows."""

    name = "operator-2"

    def run(self, call):
        parsed, graph, recipe, inputs, seed = _ready(call)
        if not (recipe.empty or recipe.settings.weights):
            try:
                return recipe.forward(graph, inputs, seed)
            except UnsupportedError:
                pass  # which forward() says once
        like, outs = inputs[recipe.spec.value], []
        for (field, _, dtype, _), out in zip(recipe.outs, forward(
                graph, recipe, inputs, seed)):
            if out is None:
                out = like.new_empty(0, dtype=dtype)
            outs.append(graph.to_caller_order(out) if field == "weights"
                        else out)
        if recipe.settings.weights and recipe.settings.dropout:
            weights = outs[len(recipe.shown) - 1]
            outs.append(graph.to_caller_order(keep_factors(
                seed, graph.num_edges, weights.size(1), recipe.settings.dropout,
                graph.edge_number)).to(weights.dtype))
        return outs

    def read(self, call):
        return [t for t, reads in zip(call.tensors, _parse(
            *call.about).reads) if reads]

    def restored(self, call, grads):
        reads = _parse(*call.about).reads
        if len(call.tensors) == len(reads):
            return call
        like = grads[0]  # the value of a sum is not read
        if type(call.num_src) is not int or call.num_src != like.size(0):
            like = like.new_empty(()).expand(call.num_src, *like.shape[1:])
        tensors = iter(call.tensors)
        return Call(*call[:3], [next(tensors) if read else like
                                for read in reads], *call[4:])

    def saved(self, call, outs):
        return [out for out, is_saved in zip(outs, _parse(
            *call.about).saved) if is_saved]

    def fake(self, call):
        parsed = _parse(*call.about)
        value = call.tensors[parsed.fields.index("value")]
        settings = parsed.settings
        sizes = dict(N=call.num_dst, M=call.num_src, E=call.num_edges,
                     H=value.size(1), D=value.size(2))
        first, rest = parsed.spec.results(settings)
        factors = first[-1:] if settings.weights and settings.dropout else []
        return [value.new_empty([sizes[d] for d in t.dims], dtype=torch.int32
                                if t.index else exact(value.dtype) if t.scalar
                                else value.dtype)
                for t in (*first, *rest, *factors)]

    def dense(self, name, tensors):
        return list(tensors) if OPERATORS[name].attention else super().dense(
            name, tensors)

    def gradient(self, call, saved, grads, wanted):
        parsed, graph, recipe, inputs, seed = _ready(call)
        rest = iter(saved)
        outs = [next(rest) if is_saved else None for is_saved in parsed.saved]
        grads = grads[:len(recipe.shown)]
        needed = [False] * len(inputs)
        for number, want in zip(parsed.places, wanted):
            if number is not None:
                needed[number] = want
        if recipe.plain and all([g is not None for g in grads]):
            results = by_kernels(
                graph, recipe, recipe.keep(seed, inputs, outs), grads, needed)
        else:
            outs = [out if out is None or out.shape == shape else None
                    for (_, shape, _, _), out in zip(recipe.outs, outs)]
            if "weights" in recipe.shown:
                number = recipe.shown.index("weights")
                outs[number] = graph.to_graph_order(outs[number])
                if grads[number] is not None:
                    grads[number] = graph.to_graph_order(grads[number])
            results = gradients(
                graph, recipe, recipe.keep(seed, inputs, outs), grads, needed)
        results = [None if number is None else results[number]
                   for number in parsed.places]
        for n in parsed.of_edges:
            if results[n] is not None:
                results[n] = graph.as_given(results[n], call.tensors[n].size(0))
        return results


run = _Traced()
"""The outputs of (about(), place, tensors)."""


def _run(spec, fields, edges, settings, loops, symmetric=False):
    """The results that a call shows, and factors; edges: those of place()."""
    outs = run(about(spec, fields, settings, loops, symmetric), edges,
               fields.values())
    shown = len(spec.results(settings)[0])
    factors = outs[-1:] if settings.weights and settings.dropout else []
    return (*outs[:shown], *factors)


def traced_sums(op, graph, num_dst, self_loops, symmetric, **fields):
    """aggregation.sums() while torch.compile traces."""
    fields = {field: t for field, t in fields.items() if t is not None}
    return _run(OPERATORS[op], fields,
                place(graph, fields["value"].size(0), num_dst), sum_settings(),
                self_loops, symmetric)


def traced_attention(spec, graph, inputs, seed, settings, loops):
    """functional._run() while torch.compile traces."""
    fields = {t.field: tensor for t, tensor in zip(spec.inputs, inputs)
              if tensor is not None}
    size = {spec.inputs[spec.fields[field]].dims[0]: tensor.size(0)
            for field, tensor in fields.items()}
    if seed is not None:
        fields["seed"] = seed
    outs = _run(spec, fields, place(graph, size["M"], size["N"]), settings,
                loops)
    if not settings.weights:
        return outs
    return (*outs[:-1], outs[-1].detach()) if settings.dropout else \
        (*outs, None)
