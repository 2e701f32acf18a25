"""The library's operators while torch.compile traces: attention, sums,
reductions and messages, as a family of _torch_library.py."""

import functools

import torch

from . import _abi, _capture_reads, _composite, _execute, _fused, _recipe
from ._modes import compiling  # noqa: F401 - used as this module's
from ._operators import OPERATORS, Settings, sum_settings
from ._torch_library import (  # noqa: F401 - the graphs, as this module's
    Family, place, untraced_graph, untraced_looped_graph)
from .errors import UnsupportedError


class _Form:
    """What a call says beside its tensors.

    fields: of dfgnn_args, that its tensors are.
    places: of each field among the inputs of spec; None: its seed.
    of_edges: the fields of tensors by edge.
    symmetric: GCN's scales, made once a graph.
    order: the number of the tensor that each input is, or None; seed: that of
        the seed, or None.
    direct: whether the inputs are the tensors as they were given.
    """

    def __init__(self, spec, settings, fields, loops, symmetric):
        self.spec, self.settings, self.fields = spec, settings, fields
        self.loops, self.symmetric = loops, symmetric
        self.places = tuple([spec.fields.get(field) for field in fields])
        self.of_edges = tuple(
            field for field, place in zip(fields, self.places)
            if place is not None and spec.inputs[place].dims[0] == "E")
        given = {field: n for n, field in enumerate(fields)}
        self.seed = given.pop("seed", None)
        self.direct = not (self.of_edges or symmetric or settings.weights)
        self.order = spec.given(given)


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


def _ready_directly(parsed, call):
    """_ready() of a call whose inputs are its tensors."""
    graph, tensors = call.graph(None, parsed.loops), call.tensors
    inputs = [None if n is None else tensors[n] for n in parsed.order]
    recipes = graph.handle.recipes
    key = parsed, _execute.generation(), *[(t.shape, t.dtype) for t in tensors]
    made = recipes.get(key)
    if made is None:
        made = recipes.setdefault(key, _recipe.recipe(
            graph, parsed.spec.name, inputs, parsed.settings))
    elif _capture_reads.current is not None:
        _capture_reads.current.graph(graph)
    return parsed, graph, made, inputs, \
        None if parsed.seed is None else tensors[parsed.seed]


def _ready(call):
    """(the form, graph, recipe, inputs in the order of the operator,
    seed); tensors by edge are those of the graph's edges, its loops included,
    in its order."""
    parsed = _parse(*call.about)
    if parsed.direct:
        return _ready_directly(parsed, call)
    spec, given = parsed.spec, dict(zip(parsed.fields, call.tensors))
    seed = given.pop("seed", None)
    graph = call.graph(given[parsed.of_edges[0]] if parsed.of_edges else None,
                       parsed.loops)
    for name in parsed.of_edges:
        given[name] = graph.to_looped_edges(given[name])
    if parsed.symmetric:
        given["scale_dst"], given["scale_src"] = _fused.normalization(
            graph, given["value"].dtype)
    inputs = spec.given(given)
    made = _recipe.recipe(graph, spec.name, inputs, parsed.settings)
    if parsed.of_edges:
        for name in parsed.of_edges:
            given[name] = graph.to_graph_order(given[name])
        inputs = spec.given(given)
    return parsed, graph, made, inputs, seed


class _Operators(Family):
    """The outputs are those of the operator's table that the call has, and the
    factors of dropout of weights that it shows."""

    name = "operator"

    def run(self, call):
        parsed, graph, made, inputs, seed = _ready(call)
        if parsed.direct and not made.empty:
            try:
                return made.forward(graph, inputs, seed)
            except UnsupportedError:
                pass  # which _fused says once
        like, outs = inputs[made.spec.value], []
        for (field, _, dtype, _), out in zip(made.outs, _fused.forward(
                graph, made, inputs, seed)):
            if out is None:
                out = like.new_empty(0, dtype=dtype)
            outs.append(graph.to_caller_order(out) if field == "weights"
                        else out)
        if made.settings.weights and made.settings.dropout:
            weights = outs[len(made.shown) - 1]
            outs.append(graph.to_caller_order(_composite.keep_factors(
                seed, graph.num_edges, weights.size(1), made.settings.dropout,
                graph.edge_number)).to(weights.dtype))
        return outs

    def fake(self, call):
        parsed = _parse(*call.about)
        value = call.tensors[parsed.fields.index("value")]
        settings = parsed.settings
        exact = torch.float64 if value.dtype == torch.float64 else \
            torch.float32
        sizes = dict(N=call.num_dst, M=call.num_src, E=call.num_edges,
                     H=value.size(1), D=value.size(2))
        first, rest = parsed.spec.results(settings)
        factors = first[-1:] if settings.weights and settings.dropout else []
        return [value.new_empty([sizes[d] for d in t.dims], dtype=torch.int32
                                if t.index else exact if t.scalar
                                else value.dtype)
                for t in (*first, *rest, *factors)]

    def gradient(self, call, saved, grads, wanted):
        parsed, graph, made, inputs, seed = _ready(call)
        outs = [out if out.shape == shape else None
                for (_, shape, _, _), out in zip(made.outs, saved)]
        grads = grads[:len(made.shown)]
        needed = [False] * len(inputs)
        for number, want in zip(parsed.places, wanted):
            if number is not None:
                needed[number] = want
        if parsed.direct and grads[0] is not None and made.plain:
            found = _fused.gradients(
                graph, made, made.keep(seed, inputs, outs), grads, needed)
            return [None if number is None else found[number]
                    for number in parsed.places]
        if "weights" in made.shown:
            number = made.shown.index("weights")
            outs[number] = graph.to_graph_order(outs[number])
            if grads[number] is not None:
                grads[number] = graph.to_graph_order(grads[number])
        found = _fused.gradients(
            graph, made, made.keep(seed, inputs, outs), grads, needed)
        found = [None if number is None else found[number]
                 for number in parsed.places]
        if parsed.of_edges:
            for number, field in enumerate(parsed.fields):
                if field in parsed.of_edges and found[number] is not None:
                    found[number] = graph.from_looped_edges(
                        graph.to_caller_order(found[number]),
                        call.tensors[number].size(0))
        return found


run = _Operators()
"""The outputs of (about(), place, tensors)."""


def _run(spec, given, edges, settings, loops, symmetric=False):
    """The results that a call shows, and factors; edges: those of place()."""
    outs = run(about(spec, given, settings, loops, symmetric), edges,
               given.values())
    shown = len(spec.results(settings)[0])
    factors = outs[-1:] if settings.weights and settings.dropout else []
    return (*outs[:shown], *factors)


def traced_sums(op, graph, num_dst, self_loops, symmetric, **given):
    """_fused.sums() while torch.compile traces."""
    given = {field: t for field, t in given.items() if t is not None}
    return _run(OPERATORS[op], given,
                place(graph, given["value"].size(0), num_dst), sum_settings(),
                self_loops, symmetric)


def traced_attention(spec, graph, inputs, seed, settings, loops):
    """functional._run() while torch.compile traces."""
    given = {t.field: tensor for t, tensor in zip(spec.inputs, inputs)
             if tensor is not None}
    size = {spec.inputs[spec.fields[field]].dims[0]: tensor.size(0)
            for field, tensor in given.items()}
    if seed is not None:
        given["seed"] = seed
    outs = _run(spec, given, place(graph, size["M"], size["N"]), settings,
                loops)
    if not settings.weights:
        return outs
    return (*outs[:-1], outs[-1].detach()) if settings.dropout else \
        (*outs, None)
