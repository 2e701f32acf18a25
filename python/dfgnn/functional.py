"""Functions of attention over a graph, each a fused kernel.

Tensors by node are [nodes, heads, features]; tensors by edge are in the
caller's edge order: that of the edge_index the graph was made from.
"""

import math

import torch

from . import _attention, _composite, _execute, merge, ops
from ._modes import (
    constant, jit_tracing, needs_composite, untraced)
from ._operators import OPERATORS, Settings, by_edge, check_inputs
from ._values import refuse_values
from .convert import as_graph, known_graph, looped_graph
from .graph import Graph

__all__ = ["gt_attention", "agnn_attention", "gat_attention",
           "gatv2_attention", "score_attention", "edge_scores"]


# ---- types, dropout and settings of a call ----------------------------------

if hasattr(torch, "get_autocast_dtype"):
    def _autocast_dtype(device_type):
        if torch.is_autocast_enabled(device_type):
            return torch.get_autocast_dtype(device_type)
        return None
else:
    def _autocast_dtype(device_type):
        if device_type == "cuda":
            return (torch.get_autocast_gpu_dtype()
                    if torch.is_autocast_enabled() else None)
        return (torch.get_autocast_cpu_dtype()
                if torch.is_autocast_cpu_enabled() else None)


# one question instead of three where torch can answer it
_any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def autocast_dtype(device_type):
    """The dtype of the autocast region, None outside of one."""
    return _autocast_dtype(device_type) if _any_autocast() else None


def _autocast(spec, inputs):
    """The inputs with features in the type of the autocast region, as autocast
    has it for matrix products; scores keep their type.  Features of AGNN keep
    theirs, too, since no matrix product is in its cosines."""
    value = inputs[spec.value]
    if not _any_autocast() or not isinstance(value, torch.Tensor) \
            or spec.name == "agnn":
        return inputs
    dtype = _autocast_dtype(value.device.type)
    if dtype is None:
        return inputs
    return tuple(
        t.to(dtype) if isinstance(t, torch.Tensor) and not input_.scalar
        and t.is_floating_point() and t.dtype != torch.float64 else t
        for input_, t in zip(spec.inputs, inputs))


def _probability(dropout, training):
    if not 0 <= dropout <= 1:
        raise ValueError(f"dropout must be between 0 and 1, got {dropout!r}")
    return float(dropout) if training else 0.0


@constant  # torch.compile starts again when the setting changes
def _tf32_allowed():
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        # get_float32_matmul_precision() raises if the newer settings are used
        return torch.backends.cuda.matmul.fp32_precision == "tf32"
    return torch.get_float32_matmul_precision() != "highest"


def _settings(value, scale, slope, dropout, return_weights, edge_use="both",
              qk_norm="none", norm_eps=0.0):
    tf32 = (value.is_cuda and value.dtype == torch.float32
            and _tf32_allowed())
    return Settings(float(scale), float(slope), dropout, bool(return_weights),
                    torch.are_deterministic_algorithms_enabled(), tf32,
                    edge_use, qk_norm, float(norm_eps))


def make_seed(device):
    """[1] a number of torch's generator, on the device: the host does not wait
    for it, and a captured CUDA graph draws a new one at each replay."""
    return torch.randint((1 << 63) - 1, (1,), dtype=torch.int64,
                         device=device)


def _size(spec, inputs):
    """(sources, destinations) by the shapes of the inputs."""
    size = {}
    for input_, tensor in zip(spec.inputs, inputs):
        if isinstance(tensor, torch.Tensor) and tensor.dim():
            size.setdefault(input_.dims[0], tensor.size(0))
    return size.get("M"), size.get("N")


def _attend(name, graph, inputs, bias=None, scale=1.0, slope=0.2, dropout=0.0,
            return_weights=False, self_loops=False, edge_use="both",
            qk_norm="none", norm_eps=0.0, return_lse=False):
    """out, or (out, weights before dropout, factors of dropout or None), the
    latter two in the caller's edge order.  With return_lse (out, weights or
    None, factors or None, lse)."""
    spec = OPERATORS[name]
    inputs = _autocast(spec, inputs)
    if not isinstance(graph, Graph):
        refuse_values(graph, f"attention of {name}")
    call = dict(scale=scale, slope=slope, return_weights=return_weights,
                self_loops=self_loops, edge_use=edge_use, qk_norm=qk_norm,
                norm_eps=norm_eps)
    if isinstance(graph, Graph) and graph.exchange is not None:
        from .distributed import attention
        return attention.attend(name, graph, inputs, bias, dropout,
                                return_lse=return_lse, **call)
    if return_lse:
        return _with_lse(name, graph, inputs, bias, dropout, **call)
    if dropout == 1:
        return _all_dropped(_run(name, graph, inputs, bias, 0.0, **call),
                            return_weights)
    return _run(name, graph, inputs, bias, dropout, **call)


def _all_dropped(result, return_weights):
    """The result if every weight is dropped: zeros, with gradients of zero."""
    if not return_weights:
        return result * 0
    out, weights, _ = result
    return out * 0, weights, torch.zeros_like(weights)


def _run(name, graph, inputs, bias, dropout, scale, slope, return_weights,
         self_loops, **edges):
    spec = OPERATORS[name]
    seed = make_seed(inputs[spec.value].device) if dropout else None
    settings = _settings(inputs[spec.value], scale, slope, dropout,
                         return_weights, **edges)
    if ops.compiling():
        # the operator has to know the number of weights, loops included
        if self_loops and return_weights:
            graph, inputs, bias = _looped(spec, graph, inputs, bias)
            self_loops = False
        return ops.attend(name, graph, inputs, bias, seed, settings,
                          self_loops)
    if not isinstance(graph, Graph):
        size = _size(spec, inputs)
        known = known_graph(graph, size, self_loops)
        if known is None:
            make = looped_graph if self_loops else as_graph
            known = make(graph, size)
        graph = known
    elif self_loops:
        graph = graph.with_self_loops()
    if self_loops:
        inputs = by_edge(spec, inputs, graph.to_looped_edges)
        if bias is not None:
            bias = graph.to_looped_edges(bias)
    if needs_composite():
        return _by_torch(spec, graph, inputs, bias, seed, settings)
    made = _execute.recipe(graph, name, inputs, bias, settings)
    if made.edge_dim:
        inputs = by_edge(spec, inputs, graph.to_graph_order)
    if bias is not None:
        bias = graph.to_graph_order(bias)
    out, weights = _attention.attention(graph, made, inputs, bias, seed)
    if not return_weights:
        return out
    factors = None
    if dropout:
        factors = graph.to_caller_order(_composite.keep_factors(
            seed, weights.size(0), weights.size(1), dropout,
            graph.edge_number)).to(weights.dtype)
    return out, graph.to_caller_order(weights), factors


@untraced
def _with_lse(name, graph, inputs, bias, dropout, scale, slope,
              return_weights, self_loops, **edges):
    """(out, weights or None, factors or None, lse)."""
    spec = OPERATORS[name]
    seed = make_seed(inputs[spec.value].device) if 0 < dropout < 1 else None
    settings = _settings(inputs[spec.value], scale, slope,
                         dropout if dropout < 1 else 0.0, False, **edges)
    if not isinstance(graph, Graph):
        graph = as_graph(graph, _size(spec, inputs))
    if self_loops:
        graph = graph.with_self_loops()
        inputs = by_edge(spec, inputs, graph.to_looped_edges)
        if bias is not None:
            bias = graph.to_looped_edges(bias)
    _check_inputs(spec, graph, inputs, bias)
    inputs, bias = _in_graph_order(spec, graph, inputs, bias)
    found = None
    if not needs_composite():
        made = _execute.recipe(graph, name, inputs, bias, settings)
        found = merge.attention(graph, made, inputs, bias, seed)
    if found is None:
        out, _, lse = merge.by_torch(graph, name, inputs, bias, seed, settings)
        found = out, lse
    out, lse = found
    weights = factors = None
    if return_weights:
        settings = settings._replace(weights=True)
        made = _execute.recipe(graph, name, inputs, bias, settings)
        weights = graph.to_caller_order(
            _attention.attention(graph, made, inputs, bias, seed)[1])
        if settings.dropout:
            factors = graph.to_caller_order(_composite.keep_factors(
                seed, weights.size(0), weights.size(1), dropout,
                graph.edge_number)).to(weights.dtype)
    if dropout == 1:
        out = out * 0
        factors = None if weights is None else torch.zeros_like(weights)
    return out, weights, factors, lse


def extended(graph, x):
    """x by the graph's sources, from x by the nodes of this process."""
    return graph.extend(x) if isinstance(graph, Graph) else x


def _looped(spec, graph, inputs, bias):
    """(graph, inputs, bias) with the loops in the graph."""
    if not isinstance(graph, Graph) or graph.looped is None:
        graph = _make_loops(graph, _size(spec, inputs))
    else:
        graph = graph.looped
    return (graph, by_edge(spec, inputs, graph.to_looped_edges),
            None if bias is None else graph.to_looped_edges(bias))


@untraced
def _make_loops(graph, size):
    return looped_graph(graph, size)


def _check_inputs(spec, graph, inputs, bias):
    check_inputs(spec, inputs, bias,
                 {"N": graph.num_dst, "M": graph.num_src,
                  "E": graph.num_edges}, graph.device)


def _in_graph_order(spec, graph, inputs, bias):
    """(inputs, bias) with all tensors by edge in the graph's own order."""
    inputs = by_edge(spec, inputs, graph.to_graph_order)
    return inputs, None if bias is None else graph.to_graph_order(bias)


def _by_torch(spec, graph, inputs, bias, seed, settings):
    """_run() inside torch.func, forward AD and torch.jit.trace."""
    if not jit_tracing():  # a trace makes tensors of sizes
        _check_inputs(spec, graph, inputs, bias)
    inputs, bias = _in_graph_order(spec, graph, inputs, bias)
    out, weights = _composite.attention(spec.name, inputs, bias, seed, graph,
                                        settings)
    if not settings.weights:
        return out
    factors = None
    if settings.dropout:
        factors = graph.to_caller_order(_composite.keep_factors(
            seed, graph.num_edges, weights.size(1),
            settings.dropout, graph.edge_number)).to(weights.dtype)
    return out, graph.to_caller_order(weights), factors


if not ops.AVAILABLE:
    _attend = untraced(_attend)


def _pick(result, return_weights, return_lse=False):
    """The part of a result that the caller asked for; weights are those after
    dropout if return_weights is "after"."""
    if return_lse:
        out, weights, factors, lse = result
        if not return_weights:
            return out, lse
        return (*_pick((out, weights, factors), return_weights), lse)
    if not return_weights:
        return result
    out, weights, factors = result
    if return_weights == "after" and factors is not None:
        weights = weights * factors
    return out, weights


# ---- the functions ----------------------------------------------------------

EDGE_USES = ("both", "keys", "values")
QK_NORMS = ("none", "rms", "layer")


def _one_of(name, value, words):
    if value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, got "
                         f"{value!r}")
    return value


# the most features of an edge that kernels on a GPU multiply by W
MOST_EDGE_FEATURES = 64


def _edge_inputs(edge_attr, edge_weight, edge_bias, query):
    """(edge_attr, edge_weight, edge_bias) of a call, all None without
    features; edge_attr is projected here if it is on a GPU, whose kernels take
    no more than MOST_EDGE_FEATURES."""
    if edge_attr is None:
        return None, None, None
    if edge_attr.dim() == 3:
        if edge_weight is not None or edge_bias is not None:
            raise ValueError("edge_attr [edges, heads, features] is projected "
                             "already: it takes no edge_weight and edge_bias")
        return edge_attr, None, None
    if edge_weight is None:
        raise ValueError("edge_attr needs edge_weight [heads * features, F]")
    if edge_attr.size(-1) == 0:  # nothing to project
        return None, None, None
    fits = query.dim() == 3 and edge_weight.shape == (
        query.size(1) * query.size(2), edge_attr.size(-1))
    if fits and query.is_cuda and edge_attr.size(-1) > MOST_EDGE_FEATURES:
        projected = torch.nn.functional.linear(edge_attr, edge_weight,
                                               edge_bias)
        return projected.view(-1, *query.shape[1:]), None, None
    return edge_attr, edge_weight, edge_bias


def gt_attention(graph, query, key, value, *, scale=None, bias=None,
                 dropout=0.0, training=True, edge_attr=None, edge_weight=None,
                 edge_bias=None, edge_use="both", qk_norm=None,
                 query_norm=None, key_norm=None, norm_eps=1e-5,
                 return_weights=False, return_lse=False):
    """Dot-product attention of a graph transformer.

    out_i = sum_j alpha_ij v_j, alpha the softmax over the in-edges of i of
    scale <q_i, k_j> + bias_ij.

    graph: a :class:`dfgnn.Graph` or what :func:`dfgnn.as_graph` takes.
    query [N, H, D], key and value [M, H, D].
    scale: 1 / sqrt(D) by default.
    bias [E, H]: added to the scores.
    dropout: probability that an edge's weight is dropped while training.
    edge_attr [E, F], edge_weight [H * D, F], edge_bias [H * D] or None: their
        product, and the bias, are added to the keys and the values, as
        TransformerConv does with edge_dim; no tensor [E, H, D] is made.
        edge_attr [E, H, D] is that product already.
    edge_use: "both", or "keys" or "values" alone.
    qk_norm: "rms" or "layer": queries and keys are normalised over D first,
        with the weights query_norm and key_norm [D] (None: 1) and norm_eps.
    return_weights: also return alpha [E, H], before dropout; "after": after
        dropout.
    return_lse: also return, last, the log-sum-exp of the scores [N, H], for
        :func:`dfgnn.merge_attention`; it has a gradient.
    """
    dropout = _probability(dropout, training)
    _one_of("edge_use", edge_use, EDGE_USES)
    qk_norm = _one_of("qk_norm", qk_norm or "none", QK_NORMS)
    if scale is None:
        scale = 1 / math.sqrt(max(1, query.size(-1)))
    elif scale == 0:
        raise ValueError("scale must not be 0")
    if qk_norm == "none":
        if query_norm is not None or key_norm is not None:
            raise ValueError("query_norm and key_norm need qk_norm, \"rms\" or "
                             "\"layer\"")
        norm_eps = 0.0
    inputs = (query, key, value)
    edges = _edge_inputs(edge_attr, edge_weight, edge_bias, query)
    if edges[0] is None:
        edge_use = "both"
    if edges[0] is not None or qk_norm != "none":
        inputs += (*edges, query_norm, key_norm)
    return _pick(_attend("gt", graph, inputs, bias, scale=scale,
                         dropout=dropout, return_weights=return_weights,
                         edge_use=edge_use, qk_norm=qk_norm,
                         norm_eps=norm_eps, return_lse=return_lse),
                 return_weights, return_lse)


def agnn_attention(graph, h, beta=None, *, h_dst=None, bias=None, dropout=0.0,
                   training=True, return_weights=False, self_loops=False,
                   return_lse=False):
    """Attention by cosine: scores are beta cos(h_i, h_j), values h_j.

    h [M, H, D]: of sources; h_dst [N, H, D]: of destinations, h by default.
    beta [1]: 1 by default.
    """
    dropout = _probability(dropout, training)
    return _pick(_attend("agnn", graph, (h if h_dst is None else h_dst, h,
                                         beta), bias, dropout=dropout,
                         return_weights=return_weights,
                         self_loops=self_loops, return_lse=return_lse),
                 return_weights, return_lse)


def gat_attention(graph, h, score_dst, score_src, *, negative_slope=0.2,
                  edge_score=None, bias=None, dropout=0.0, training=True,
                  return_weights=False, self_loops=False, return_lse=False):
    """Additive attention: scores are leaky_relu(a_i + b_j), values h_j.

    h [M, H, D], score_dst a [N, H], score_src b [M, H].
    edge_score [E, H]: added to a_i + b_j, inside the leaky ReLU.
    bias [E, H]: added to the scores, outside of the leaky ReLU.
    self_loops: attends over the edges of ``graph.with_self_loops()``.
        edge_score and bias have a row for each of them, or [E + nodes, H]
        rows: for all edges of the graph and then for a loop of each node; the
        rows of edges that are self loops are not read.
    """
    dropout = _probability(dropout, training)
    inputs = (h, score_dst, score_src)
    if edge_score is not None:
        inputs += (edge_score,)
    return _pick(_attend("gat", graph, inputs, bias, slope=negative_slope,
                         dropout=dropout, return_weights=return_weights,
                         self_loops=self_loops, return_lse=return_lse),
                 return_weights, return_lse)


def gatv2_attention(graph, x_dst, x_src, att, *, negative_slope=0.2,
                    edge_attr=None, edge_weight=None, edge_bias=None,
                    bias=None, dropout=0.0, training=True,
                    return_weights=False, self_loops=False,
                    return_lse=False):
    """Dynamic attention: scores are <att, leaky_relu(x_i + y_j)>, values y_j.

    x_dst x [N, H, D], x_src y [M, H, D], att [H, D].
    edge_attr [E, F], edge_weight [H * D, F], edge_bias [H * D] or None: their
        product, and the bias, are added to x_i + y_j; no tensor [E, H, D] is
        made.  edge_attr [E, H, D] is that product already.
    self_loops: as in gat_attention().
    """
    dropout = _probability(dropout, training)
    inputs = (x_dst, x_src, att)
    edges = _edge_inputs(edge_attr, edge_weight, edge_bias, x_dst)
    if edges[0] is not None:
        inputs += edges
    return _pick(_attend("gatv2", graph, inputs, bias, slope=negative_slope,
                         dropout=dropout, return_weights=return_weights,
                         self_loops=self_loops, return_lse=return_lse),
                 return_weights, return_lse)


def score_attention(graph, scores, value, num_dst=None, *, dropout=0.0,
                    training=True, return_weights=False, self_loops=False,
                    return_lse=False):
    """Softmax of given scores [E, H] over in-edges, and the weighted sum of
    value [M, H, D]: attention of any other kind.

    num_dst: the number of destinations; by default that of a Graph, and for
        other edges that of the sources.
    self_loops: attends over the edges of ``graph.with_self_loops()``.  scores
        has a row for each of them, or [E + nodes, H] rows: for all edges of
        the graph and then for a loop of each node; the rows of edges that are
        self loops are not read.
    """
    dropout = _probability(dropout, training)
    num_src, heads, _ = value.shape
    if num_dst is None:
        num_dst = graph.num_dst if isinstance(graph, Graph) else num_src
    zeros = scores.new_zeros(1, 1)
    return _pick(_attend(
        "gat", graph, (value, zeros.expand(num_dst, heads),
                       zeros.expand(num_src, heads)), scores, slope=1.0,
        dropout=dropout, return_weights=return_weights,
        self_loops=self_loops, return_lse=return_lse),
                 return_weights, return_lse)


def edge_scores(op, edges, *inputs, scale=None, negative_slope=0.2):
    """[E, H] the raw scores, before softmax, of any edges: those of a graph or
    others, such as the sampled non-edges of SuperGAT.

    op: "gt" (query, key), "agnn" (h_dst, h_src[, beta]), "gat" (score_dst,
        score_src) or "gatv2" (x_dst, x_src, att).
    edges: a Graph, or an edge_index [2, E].
    """
    given = {"gt": 2, "agnn": 3, "gat": 2, "gatv2": 3}
    if op not in given:
        raise ValueError(f"op must be one of {sorted(given)}, got {op!r}")
    if op == "agnn" and len(inputs) == 2:
        inputs += (None,)
    if len(inputs) != given[op]:
        raise TypeError(f"edge_scores of {op} takes {given[op]} tensors, got "
                        f"{len(inputs)}")
    edge_index = edges.edge_index if isinstance(edges, Graph) else edges
    if op == "gt":
        inputs += (None,)
    elif op == "gat":
        inputs = (None,) + inputs
    if scale is None:
        scale = 1 / math.sqrt(inputs[0].size(-1)) if op == "gt" else 1.0
    return _composite.SCORES[op](
        inputs, _composite.Edges(edge_index[0], edge_index[1]),
        Settings(scale, negative_slope, 0.0, False, False, False))
