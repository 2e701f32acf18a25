"""The library's operators while torch.compile traces: attention, sums,
reductions and messages, as a family of _torch_library.py."""

import functools

import torch

from . import _abi, _capture_reads, _composite, _execute, _fused, _recipe
from ._modes import compiling  # noqa: F401 - used as this module's
from ._operators import OPERATORS, Settings, sum_settings
from ._torch_library import (  # noqa: F401 - the graphs, as this module's
    Call, Family, place, untraced_graph, untraced_looped_graph)
from .errors import UnsupportedError


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
        given = {field: n for n, field in enumerate(fields)}
        self.seed = given.pop("seed", None)
        if symmetric:
            given.update(scale_dst=len(fields), scale_src=len(fields) + 1)
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
            tensors += _fused.normalization(graph, tensors[0].dtype)
    inputs = [None if n is None else tensors[n] for n in parsed.order]
    recipes = graph.handle.recipes
    made = recipes.get(key)
    if made is None:
        made = recipes.setdefault(key, _recipe.recipe(
            graph, parsed.spec.name, inputs, parsed.settings))
    elif _capture_reads.current is not None:
        _capture_reads.current.graph(graph)
    return parsed, graph, made, inputs, \
        None if parsed.seed is None else tensors[parsed.seed]


class _Operators(Family):
    """The outputs are those of the operator's table that the call has, and the
    factors of dropout of weights that it shows."""

    name = "operator-2"

    def run(self, call):
        parsed, graph, made, inputs, seed = _ready(call)
        if not (made.empty or made.settings.weights):
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
        given = iter(call.tensors)
        return Call(*call[:3], [next(given) if read else like
                                for read in reads], *call[4:])

    def saved(self, call, outs):
        return [out for out, is_saved in zip(outs, _parse(
            *call.about).saved) if is_saved]

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

    def dense(self, name, tensors):
        return list(tensors) if OPERATORS[name].attention else super().dense(
            name, tensors)

    def gradient(self, call, saved, grads, wanted):
        parsed, graph, made, inputs, seed = _ready(call)
        given = iter(saved)
        outs = [next(given) if is_saved else None for is_saved in parsed.saved]
        grads = grads[:len(made.shown)]
        needed = [False] * len(inputs)
        for number, want in zip(parsed.places, wanted):
            if number is not None:
                needed[number] = want
        if made.plain and all([g is not None for g in grads]):
            found = _fused.by_kernels(
                graph, made, made.keep(seed, inputs, outs), grads, needed)
        else:
            outs = [out if out is None or out.shape == shape else None
                    for (_, shape, _, _), out in zip(made.outs, outs)]
            if "weights" in made.shown:
                number = made.shown.index("weights")
                outs[number] = graph.to_graph_order(outs[number])
                if grads[number] is not None:
                    grads[number] = graph.to_graph_order(grads[number])
            found = _fused.gradients(
                graph, made, made.keep(seed, inputs, outs), grads, needed)
        found = [None if number is None else found[number]
                 for number in parsed.places]
        for n in parsed.of_edges:
            if found[n] is not None:
                found[n] = graph.as_given(found[n], call.tensors[n].size(0))
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
