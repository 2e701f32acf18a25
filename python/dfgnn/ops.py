"""The library's operators while torch.compile traces: attention, sums,
reductions and messages, as a family of _torch_operator.py."""

import functools
from typing import NamedTuple

import torch

from . import _composite, _execute, _fused
from ._modes import compiling  # noqa: F401: used as this module's
from ._operators import OPERATORS, Operator, Settings, sum_settings
from ._torch_operator import (  # noqa: F401: the graphs, as this module's
    AVAILABLE, Family, bits, place, untraced_graph, untraced_looped_graph)


class _Told(NamedTuple):
    """What the text of a call says; flags: weights, deterministic and tf32 of
    its Settings."""
    spec: Operator
    fields: tuple  # of dfgnn_args, that its tensors are
    of_edges: tuple  # those of them that are tensors by edge
    loops: bool
    symmetric: bool  # GCN's scales, made once a graph
    flags: list
    edge_use: str
    lse: bool

    def settings(self, numbers):
        return Settings(*numbers, *self.flags, self.edge_use, self.lse)


def _text(spec, fields, settings, loops, symmetric):
    return "|".join((spec.name, ",".join(fields), settings.edge_use, bits((
        loops, symmetric, settings.lse, settings.weights,
        settings.deterministic, settings.tf32))))


@functools.lru_cache(maxsize=1024)
def _told(text):
    name, fields, edge_use, flags = text.split("|")
    spec, fields = OPERATORS[name], tuple(fields.split(","))
    loops, symmetric, lse, *flags = [flag == "1" for flag in flags]
    return _Told(spec, fields, tuple(
        field for field in fields if field != "seed" and spec.inputs[
            spec.fields[field]].dims[0] == "E"),
        loops, symmetric, flags, edge_use, lse)


def _ready(call):
    """(graph, recipe, inputs in the order of the operator, seed); tensors by
    edge are those of the graph's edges, its loops included, in its order."""
    told = _told(call.text)
    spec, given = told.spec, dict(zip(told.fields, call.tensors))
    seed = given.pop("seed", None)
    graph = call.graph(given[told.of_edges[0]] if told.of_edges else None,
                       told.loops)
    for name in told.of_edges:
        given[name] = graph.to_looped_edges(given[name])
    if told.symmetric:
        given["scale_dst"], given["scale_src"] = _fused.normalization(
            graph, given["value"].dtype)
    made = _execute.recipe(graph, spec.name, spec.given(given),
                           told.settings(call.numbers))
    for name in told.of_edges:
        given[name] = graph.to_graph_order(given[name])
    return graph, made, spec.given(given), seed


class _Operators(Family):
    """The outputs are those of the operator's table that the call has, and the
    factors of dropout of weights that it shows."""

    name = "fused"

    def run(self, call):
        graph, made, inputs, seed = _ready(call)
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
        told = _told(call.text)
        value = call.tensors[told.fields.index("value")]
        settings = told.settings(call.numbers)
        exact = torch.float64 if value.dtype == torch.float64 else \
            torch.float32
        sizes = dict(N=call.num_dst, M=call.num_src, E=call.num_edges,
                     H=value.size(1), D=value.size(2))
        first, rest = told.spec.results(settings)
        factors = first[-1:] if settings.weights and settings.dropout else []
        return [value.new_empty([sizes[d] for d in t.dims], dtype=torch.int32
                                if t.index else exact if t.scalar
                                else value.dtype)
                for t in (*first, *rest, *factors)]

    def gradient(self, call, saved, grads, wanted):
        graph, made, inputs, seed = _ready(call)
        told = _told(call.text)
        outs = [out if out.shape == shape else None
                for (_, shape, _, _), out in zip(made.outs, saved)]
        grads = grads[:len(made.shown)]
        if "weights" in made.shown:
            number = made.shown.index("weights")
            outs[number] = graph.to_graph_order(outs[number])
            if grads[number] is not None:
                grads[number] = graph.to_graph_order(grads[number])
        asked = {field for field, want in zip(told.fields, wanted) if want}
        places = made.spec.inputs[:len(inputs)]
        found = dict(zip((t.field for t in places), _fused.gradients(
            graph, made, made.keep(seed, inputs, outs), grads,
            tuple(t.field in asked for t in places))))
        for field, tensor in zip(told.fields, call.tensors):
            if field in told.of_edges and found[field] is not None:
                found[field] = graph.from_looped_edges(
                    graph.to_caller_order(found[field]), tensor.size(0))
        return [found.get(field) for field in told.fields]


_operators = _Operators().define()


def _run(spec, given, edges, settings, loops, symmetric=False):
    """The results that a call shows, and factors; edges: those of place()."""
    outs = _operators(_text(spec, given, settings, loops, symmetric), edges,
                      given.values(), settings[:3])
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
    """_attention_call._run() while torch.compile traces."""
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
