"""Layers of sums and reductions as one node of autograd each, see _node.py."""

import weakref

import torch
from torch.nn import functional as F

from .. import _ways
from .._guard import saved_elsewhere
from .._kernel_links import ByEdge, Reduced
from .._links import Finish, Linear as Product, Normalized, Own
from .._loops import gcn_weights
from .._remember import is_stamped, note, stamp
from ..graph import Graph
from ..ops import normalization
from ._node import (
    Other, PLAIN_TENSORS, fits, graph_of, graph_of_sums, is_matrix, known,
    linear, named, node, number, own, pair, product, recipe, reduction, run,
    single, sums)


@node
def gcn(state, x, edge_index, edge_weight=None):
    if not state["normalize"]:
        raise Other
    sums(state)
    x, sizes = single(x)
    loops = state["add_self_loops"]
    pygs = "inspector" in state  # a layer of PyG's
    kept = state["_cached_edge_index" if pygs else "_cached"]
    if state["cached"] or kept is not None:
        graph, edge_weight = _cached(kept, pygs, edge_index, sizes, loops)
    elif edge_weight is None:
        graph = graph_of(edge_index, sizes, loops)
    else:
        graph, edge_weight = _normalized(
            graph_of(edge_index, sizes), edge_weight, loops,
            2.0 if state["improved"] else 1.0)
    return run(graph, _gcn, (), x, product(state, "lin"), own(state, "bias"),
               edge_weight)


def _cached(kept, pygs, edge_index, sizes, loops):
    """(graph, weights of its edges or None) that a call before kept; pygs:
    whether they have the loops."""
    if kept is None or not known(edge_index) or saved_elsewhere():
        raise Other  # a checkpoint's second run saves what its first one did
    edges, weight = kept
    graph = graph_of(edges, sizes, loops and not pygs)
    if weight is None and not pygs:
        return graph, None
    if loops and not pygs:
        weight = graph.to_looped_edges(weight)
    _check_weights(graph, weight)
    return graph, weight


def _check_weights(graph, weight):
    if type(weight) not in PLAIN_TENSORS or weight.dtype not in (
            torch.float32, torch.float64) or \
            weight.shape != (graph.num_edges,) or \
            weight.device != graph.device:
        raise Other


def _normalized(graph, weight, loops, fill):
    """(graph, weights by its edges) as GCN sums by them; kept with the graph
    as long as weights that need no gradient are the same."""
    _check_weights(graph, weight)
    key, keeps = ("gcn weights", loops, fill), type(graph) is Graph and \
        not weight.requires_grad and not weight.is_inference()
    entry = graph._derived.get(key) if keeps else None
    note(weight)
    if entry is None or entry[0]() is not weight or \
            not is_stamped(weight, entry[1]):
        result = gcn_weights(graph, weight, loops, fill)
        if not keeps:
            return result
        entry = graph._derived[key] = weakref.ref(weight), stamp(weight), result
    return entry[2]


@recipe
def _gcn(graph, settings, static, x, weight, bias, edge_weight):
    if not fits(weight, bias, x.size(1)):
        return None
    links = [Product("x", ("weight",), (), (), "h")]
    if edge_weight is None:
        links.append(Reduced("spmm-sum", "sums", scales=normalization,
                             value="h"))
    else:
        links += [ByEdge("edge_weight", "by edge"),
                  Reduced("spmm-weighted", "sums", value="h",
                          edge_weight="by edge")]
    return [*links, Finish("sums", "out", bias=named("bias", bias))]


@node
def sage(state, x, edge_index, size=None):
    return _sums_and_own(state, x, edge_index, size, "lin_l",
                         "lin_r" if state["root_weight"] else "",
                         normalize=state["normalize"],
                         first="lin" if state["project"] else "")


@node
def graph_conv(state, x, edge_index, edge_weight=None, size=None):
    return _sums_and_own(state, x, edge_index, size, "lin_rel", "lin_root",
                         edge_weight=edge_weight)


def _sums_and_own(state, x, edge_index, size, of_sums, of_own,
                  edge_weight=None, normalize=False, first=""):
    """A linear layer of the reduced neighbours, which went through the linear
    layer `first` and a ReLU if there is one, plus one of a node's own features
    unless its name is empty."""
    src, dst, sizes = pair(x, size)
    op = reduction(state)
    graph = graph_of(edge_index, sizes) if edge_weight is not None else \
        graph_of_sums(state, edge_index, sizes, op, src)
    weights = *linear(state, of_sums), *linear(state, of_own)
    w_first, b_first = linear(state, first)
    if w_first is not None:
        src, dst = F.linear(src, w_first, b_first).relu(), \
            src if dst is None else dst
    return run(graph, _neighbours, (op, normalize), src, dst, *weights,
               edge_weight)


def _optional(name):
    return () if name is None else (name,)


@recipe
def _neighbours(graph, settings, static, x, x_dst, w_sums, b_sums, w_own,
                b_own, edge_weight):
    op, normalize = static
    receives = x if x_dst is None else x_dst
    links, weight = [], None
    if w_sums is None or w_own is not None and (
            not fits(w_own, b_own, receives.size(1))
            or w_own.size(0) != w_sums.size(0)):
        return None
    biases = [named("b_sums", b_sums), named("b_own", b_own)]
    if w_own is not None:
        if b_own is None:  # one operation makes the first product and adds b
            biases.reverse()
        # this product is first, so that the sums' gradient by x is added to its
        links.append(Product("x" if x_dst is None else "x_dst", ("w_own",),
                             _optional(biases[1]), (), "own"))
    if edge_weight is not None:
        if op != "spmm-sum" or edge_weight.shape != (graph.num_edges,) or \
                x.dtype not in (torch.float32, torch.float64):
            return None
        links.append(ByEdge("edge_weight", "by edge"))
        weight = "by edge"
    if not fits(w_sums, b_sums, x.size(1)):
        return None
    result = "whole" if normalize else "out"
    links += [Reduced(op if weight is None else "spmm-weighted", "sums",
                      value="x", edge_weight=weight),
              Product("sums", ("w_sums",), _optional(biases[0]), (), result,
                      None if w_own is None else "own")]
    return links + [Normalized("whole", "out")] if normalize else links


@node
def gin(state, x, edge_index, size=None):
    src, dst, sizes = pair(x, size)
    op = reduction(state)
    graph = graph_of_sums(state, edge_index, sizes, op, src)
    out = run(graph, _gin, op, src, dst, number(state, "eps"))
    return state["_modules"]["nn"](out)


@recipe
def _gin(graph, settings, op, x, x_dst, eps):
    if x_dst is not None and x_dst.size(1) != x.size(1):
        return None
    return [Reduced(op, "sums", value="x"),
            Own("sums", "x" if x_dst is None else "x_dst", "eps", "out")]


@node
def gine(state, x, edge_index, edge_attr=None, size=None):
    src, dst, sizes = pair(x, size)
    weight, bias = linear(state, "lin")
    if not is_matrix(edge_attr):
        raise Other
    op = reduction(state)
    if not op.startswith("spmm"):
        raise Other
    out = run(graph_of(edge_index, sizes), _gine, op, src, dst,
              number(state, "eps"), edge_attr, weight, bias)
    return state["_modules"]["nn"](out)


@recipe
def _gine(graph, settings, op, x, x_dst, eps, edge_attr, w_edge, b_edge):
    width = edge_attr.size(1) if w_edge is None else w_edge.size(0)
    if width != x.size(1) or edge_attr.size(0) != graph.num_edges \
            or w_edge is not None and not fits(w_edge, b_edge,
                                               edge_attr.size(1)) \
            or x_dst is not None and x_dst.size(1) != x.size(1):
        return None
    links, features, projection = [], "edge_attr", {}
    if w_edge is not None and _ways.product_of_edge_features(
            x.device, edge_attr.size(1), width) == "in kernels":
        projection = dict(edge_projection="w_edge",
                          edge_bias=named("b_edge", b_edge))
    elif w_edge is not None:
        features = "projected"
        links.append(Product("edge_attr", ("w_edge",),
                             _optional(named("b_edge", b_edge)), (), features))
    listed = graph.handle.listed and not projection
    return [*links, ByEdge(features, "by edge", listed),
            Reduced(op, "sums", listed, value="x", edge_attr="by edge",
                    **projection),
            Own("sums", "x" if x_dst is None else "x_dst", "eps", "out")]
