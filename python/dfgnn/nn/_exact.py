"""Attention in the types that the layers of PyG and DGL have."""

import torch


def outside_autocast(function, graph, *args, result=None, **kwargs):
    """An attention over a graph, as exact as its inputs are: PyG computes
    scores in their own type inside an autocast region, too.  result: the type
    of PyG's result."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        with torch.autocast(graph.device.type, enabled=False):
            found = function(graph, *args, **kwargs)
        out = found[0] if isinstance(found, tuple) else found
        if result is not None and out.dtype != result:
            out = out.to(result)
        return (out, found[1]) if isinstance(found, tuple) else out
    return function(graph, *args, **kwargs)


def softmax_type(scores):
    """The type that PyG's softmax gives such scores: autocast on a GPU makes
    exponentials float32."""
    return scores[:0].exp().dtype


def result_type(scores, value):
    return torch.promote_types(softmax_type(scores), value.dtype)
