"""Tensors of edge programs over a HeteroGraph: dictionaries by type of nodes or
by relation, as tensors of all rows."""

import torch

from .._checks import describe
from .._program_calls import DST, EDGE, REL, SRC


def _in_order(what, keys, sizes, tensors):
    """The tensors of a dictionary one after the other; a key without rows may
    be missing."""
    unknown = [key for key in tensors if key not in keys]
    if unknown:
        raise ValueError(f"{what} has {unknown[0]!r}, the graph has "
                         + ", ".join(map(repr, keys)))
    parts = []
    for key, size in zip(keys, sizes):
        part = tensors.get(key)
        if part is None:
            if size:
                raise ValueError(f"{what} has no {key!r}, which has {size} "
                                 "rows")
            continue
        if not isinstance(part, torch.Tensor) or not part.dim() or \
                part.size(0) != size:
            raise ValueError(f"{what}[{key!r}] must have {size} rows, got "
                             + describe(part))
        if parts and part.shape[1:] != parts[0].shape[1:]:
            raise ValueError(f"{what}[{key!r}] is {describe(part)}, but others "
                             f"have rows of {list(parts[0].shape[1:])}: all "
                             "must be of one width")
        parts.append(part)
    if not parts:
        raise ValueError(f"{what} has no tensor")
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _one(graph, letter, name, tensors):
    what = f"{letter}.{name}"
    if letter == "r":
        return _in_order(what, graph.relations, [1] * graph.num_relations, {
            key: t.unsqueeze(0) for key, t in tensors.items()})
    if letter == "e":
        if graph.counts is None:
            raise ValueError(f"{what} must be a tensor [E, ...]: the edges of "
                             "this graph came in one list")
        return _in_order(what, graph.relations, graph.counts, tensors)
    if letter == "j":
        tensors = graph.extend(tensors)
    sizes = graph.num_src if letter == "j" else graph.num_dst
    return _in_order(what, graph.node_types, sizes.values(), tensors)


def joined(graph, by_letter):
    """The tensors of a call by letter and name, each of all rows."""
    return {letter: {name: _one(graph, letter, name, t)
                     if isinstance(t, dict) else t
                     for name, t in (tensors or {}).items()}
            for letter, tensors in by_letter.items()}


def any_order(by_letter):
    """joined() without a graph, where shapes alone matter."""
    return {letter: {name: (torch.stack if letter == "r" else torch.cat)(
        list(t.values())) if isinstance(t, dict) else t
        for name, t in (tensors or {}).items()}
        for letter, tensors in by_letter.items()}


def split(graph, result, place):
    """A result as a dictionary, if it has rows of nodes, edges or
    relations."""
    if place in (DST, SRC):
        return graph.split_types("dst" if place == DST else "src", result)
    if place == EDGE and graph.counts is not None:
        return graph.split(result)
    if place == REL and graph.counts is not None:
        return dict(zip(graph.relations, result.unbind(0)))
    return result
