"""Functions of attention over a graph, each a fused kernel.

Tensors by node are [nodes, heads, features]; tensors by edge are in the
caller's edge order: that of the edge_index the graph was made from.
"""

import math
from typing import Union

import torch
from torch import Tensor

from . import _formulas, _operators, ops
from ._checks import (
    check_index, check_is_tensor, check_number, check_tensor, describe)
from ._device import make_seed
from ._evaluators import EdgeList, keep_factors
from ._execute import Settings, settings_of
from ._modes import autocast, compiling, jit_tracing, needs_composite
from ._operators import MOST_EDGE_FEATURES, OPERATORS, by_edge, check_call
from ._torch_library import untraced_looped_graph
from ._remember import remember
from ._values import refuse_values
from .convert import known_graph, looped_graph
from .errors import InvalidError
from .graph import Graph


# ---- a call over a graph of this process: the inputs in its order of edges,
# the seed of dropout, and the choice between kernels and torch's operations

def _size(spec, inputs):
    """(sources, destinations) by the shapes of the inputs."""
    size = {}
    for input_, tensor in zip(spec.inputs, inputs):
        if isinstance(tensor, torch.Tensor) and tensor.dim():
            size.setdefault(input_.dims[0], tensor.size(0))
    return size.get("M"), size.get("N")


def attend(graph, name, inputs, bias=None, dropout=0.0, *, draw=None,
           scale, slope, return_weights, self_loops, edge_use="both",
           return_lse=False):
    """out, or (out, weights before dropout, factors of dropout or None), the
    latter two in the caller's edge order.  With return_lse (out, weights or
    None, factors or None, lse).

    draw: makes the seed of dropout, of a device; make_seed by default.
    """
    spec, value = OPERATORS[name], inputs[OPERATORS[name].value]
    kept = dropout if dropout < 1 else 0.0
    seed = (draw or make_seed)(value.device) if kept else None
    settings = settings_of(value, scale, slope, kept, return_weights, edge_use,
                           return_lse)
    if bias is not None:
        inputs = spec.with_bias(inputs, bias)
    outs = _run(spec, graph, inputs, seed, settings, self_loops)
    if not (settings.weights or settings.lse or dropout == 1):
        return outs[0]
    results = dict(zip(shown(settings), outs))
    out, weights = results["out"], results.get("weights")
    factors = results.get("factors")
    if dropout == 1:  # every weight is dropped: zeros, with gradients of zero
        out = out * 0
        factors = None if weights is None else torch.zeros_like(weights)
    if return_lse:
        return out, weights, factors, results["lse"]
    return (out, weights, factors) if return_weights else out


def shown(settings):
    """The results of a call, in the order of the library's table, and then the
    factors of dropout of the weights."""
    return ("out", *(("lse",) if settings.lse else ()),
            *(("weights", "factors") if settings.weights else ()))


def _run(spec, graph, inputs, seed, settings, self_loops):
    """The results that shown() names."""
    if compiling():
        # the operator has to know the number of weights, loops included
        if self_loops and settings.weights:
            graph, inputs = _looped(spec, graph, inputs)
            self_loops = False
        return ops.traced_attention(spec, graph, inputs, seed, settings,
                                    self_loops)
    if not isinstance(graph, Graph):
        size = _size(spec, inputs)
        known = known_graph(graph, size, self_loops)
        if known is None:
            known = looped_graph(graph, size, self_loops)
        graph = known
    elif self_loops:
        graph = graph.with_self_loops()
    if self_loops:
        inputs = by_edge(spec, inputs, graph.to_looped_edges)
    if needs_composite():
        if not jit_tracing():  # a trace makes tensors of sizes
            check_call(graph, spec, inputs)
        results = shown(settings)
        outs = _formulas.run(
            _formulas.ByTorch, graph, spec,
            results[:-1] if settings.weights else results,
            by_edge(spec, inputs, graph.to_graph_order), seed, settings)
    else:
        recipe = _operators.recipe(graph, spec.name, inputs, settings, True)
        if recipe.listed:
            if recipe.biased:
                inputs = (*inputs[:-1], graph.to_graph_order(inputs[-1]))
        elif recipe.biased or recipe.edge_dim:
            inputs = by_edge(spec, inputs, graph.to_graph_order)
        outs = ops.call(graph, recipe, inputs, seed)
    if not settings.weights:
        return outs
    weights, factors = outs[-1], None
    if settings.dropout:
        factors = graph.to_caller_order(keep_factors(
            seed, graph.num_edges, weights.size(1), settings.dropout,
            graph.edge_number)).to(weights.dtype)
    return (*outs[:-1], graph.to_caller_order(weights), factors)


def _looped(spec, graph, inputs):
    """(graph, inputs) with the loops in the graph."""
    if not isinstance(graph, Graph) or graph.looped is None:
        graph = untraced_looped_graph(graph, _size(spec, inputs))
    else:
        graph = graph.looped
    return graph, by_edge(spec, inputs, graph.to_looped_edges)


def _call(name, graph, inputs, bias, dropout, training, return_weights,
          return_lse, *, scale=1.0, slope=0.2, self_loops=False,
          edge_use="both"):
    """The results of attention over a graph of this process or of several; with
    return_weights "after" the weights are those after dropout."""
    spec = OPERATORS[name]
    check_is_tensor(spec.inputs[spec.value].name, inputs[spec.value])
    if not 0 <= check_number("dropout", dropout) <= 1:
        raise ValueError(f"dropout must be between 0 and 1, got {dropout!r}")
    inputs = autocast(spec, inputs)
    if not isinstance(graph, Graph):
        refuse_values(graph, f"attention of {name}")
    run = attend
    if isinstance(graph, Graph) and graph.exchange is not None:
        run = type(graph).attend
    results = run(graph, name, inputs, bias,
                  float(dropout) if training else 0.0, scale=scale, slope=slope,
                  return_weights=return_weights, self_loops=self_loops,
                  edge_use=edge_use, return_lse=return_lse)
    if not (return_weights or return_lse):
        return results
    out, weights, factors, *lse = results
    if return_weights == "after" and factors is not None:
        weights = weights * factors
    return (out, *[weights] * bool(return_weights), *lse)


EDGE_USES = ("both", "keys", "values")
QK_NORMS = ("none", "rms", "layer")


def _one_of(name, value, words):
    if value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}, got "
                         f"{value!r}")
    return value


def _edge_inputs(edge_attr, edge_projection, edge_bias, query):
    """(edge_attr, edge_projection, edge_bias) of a call, all None without
    features; edge_attr is projected here if it is on a GPU, whose kernels take
    no more than MOST_EDGE_FEATURES."""
    if edge_attr is None:
        return None, None, None
    check_is_tensor("edge_attr", edge_attr)
    if edge_attr.dim() == 3:
        if edge_projection is not None or edge_bias is not None:
            raise ValueError("edge_attr [edges, heads, features] is projected "
                             "already: it takes no edge_projection, edge_bias")
        return edge_attr, None, None
    if edge_projection is None:
        raise ValueError(
            "edge_attr needs edge_projection [heads * features, F]")
    if edge_attr.size(-1) == 0:  # nothing to project
        return None, None, None
    fits = query.dim() == 3 and edge_projection.shape == (
        query.size(1) * query.size(2), edge_attr.size(-1))
    if fits and query.is_cuda and edge_attr.size(-1) > MOST_EDGE_FEATURES:
        projected = torch.nn.functional.linear(edge_attr, edge_projection,
                                               edge_bias)
        return projected.view(-1, *query.shape[1:]), None, None
    return edge_attr, edge_projection, edge_bias


def _normalized(name, x, kind, weight, eps):
    """x [nodes, H, D] normalised over D, times weight [D] unless it is None."""
    if weight is not None and weight.shape != x.shape[-1:]:
        raise ValueError(f"{name}_norm must be [features={x.size(-1)}], got "
                         + describe(weight))
    if weight is not None:
        weight = weight.to(x.dtype)
    if kind == "layer":
        result = torch.nn.functional.layer_norm(x, x.shape[-1:], weight, None,
                                                eps)
    else:
        result = torch.nn.functional.rms_norm(x, x.shape[-1:], weight, eps)
    return result.to(x.dtype)  # autocast may make it float32


# return_weights: False, True, or "after"
Wanted = bool | str
# the output, or a tuple of it and what else was asked for
Result = Union[Tensor, tuple[Tensor, ...]]


def gt_attention(graph, query: Tensor, key: Tensor, value: Tensor, *,
                 scale: float | None = None, bias: Tensor | None = None,
                 dropout: float = 0.0, training: bool = True,
                 edge_attr: Tensor | None = None,
                 edge_projection: Tensor | None = None,
                 edge_bias: Tensor | None = None, edge_use: str = "both",
                 qk_norm: str | None = None, query_norm: Tensor | None = None,
                 key_norm: Tensor | None = None, norm_eps: float = 1e-5,
                 return_weights: Wanted = False,
                 return_lse: bool = False) -> Result:
    """Dot-product attention of a graph transformer.

    out_i = sum_j alpha_ij v_j, alpha the softmax over the in-edges of i of
    scale <q_i, k_j> + bias_ij.

    graph: a :class:`dfgnn.Graph` or what :func:`dfgnn.as_graph` takes.
    query [N, H, D], key and value [M, H, D].
    scale: 1 / sqrt(D) by default.
    bias [E, H]: added to the scores.
    dropout: probability that an edge's weight is dropped while training.
    edge_attr [E, F], edge_projection [H * D, F], edge_bias [H * D] or None:
        their product, and the bias, are added to the keys and the values, as
        TransformerConv does with edge_dim; no tensor [E, H, D] is made.
        edge_attr [E, H, D] is that product already.
    edge_use: "both", or "keys" or "values" alone.
    qk_norm: "rms" or "layer": queries and keys are normalised over D first,
        by torch's rms_norm or layer_norm with the weights query_norm and
        key_norm [D] (None: 1) and norm_eps.
    return_weights: also return alpha [E, H], before dropout; "after": after
        dropout.
    return_lse: also return, last, the log-sum-exp of the scores [N, H], for
        :func:`dfgnn.merge_attention`; it has a gradient.
    """
    _one_of("edge_use", edge_use, EDGE_USES)
    qk_norm = _one_of("qk_norm", qk_norm or "none", QK_NORMS)
    check_is_tensor("query", query)
    if scale is None:
        scale = 1 / math.sqrt(max(1, query.size(-1)))
    if qk_norm == "none":
        if query_norm is not None or key_norm is not None:
            raise ValueError("query_norm and key_norm need qk_norm, \"rms\" or "
                             "\"layer\"")
    else:
        query = _normalized("query", query, qk_norm, query_norm, norm_eps)
        key = _normalized("key", key, qk_norm, key_norm, norm_eps)
    inputs = (query, key, value)
    edges = _edge_inputs(edge_attr, edge_projection, edge_bias, query)
    if edges[0] is None:
        edge_use = "both"
    else:
        inputs += edges
    return _call("gt", graph, inputs, bias, dropout, training, return_weights,
                 return_lse, scale=scale, edge_use=edge_use)


def agnn_attention(graph, h: Tensor, beta: Tensor | None = None, *,
                   h_dst: Tensor | None = None, bias: Tensor | None = None,
                   dropout: float = 0.0, training: bool = True,
                   return_weights: Wanted = False, self_loops: bool = False,
                   return_lse: bool = False) -> Result:
    """Attention by cosine: scores are beta cos(h_i, h_j), values h_j.

    h [M, H, D]: of sources; h_dst [N, H, D]: of destinations, h by default.
    beta [1]: 1 by default.
    """
    inputs = h if h_dst is None else h_dst, h, beta
    return _call("agnn", graph, inputs, bias, dropout, training,
                 return_weights, return_lse, self_loops=self_loops)


def gat_attention(graph, h: Tensor, score_dst: Tensor, score_src: Tensor, *,
                  negative_slope: float = 0.2,
                  edge_score: Tensor | None = None, bias: Tensor | None = None,
                  dropout: float = 0.0, training: bool = True,
                  return_weights: Wanted = False, self_loops: bool = False,
                  return_lse: bool = False) -> Result:
    """Additive attention: scores are leaky_relu(a_i + b_j), values h_j.

    h [M, H, D], score_dst a [N, H], score_src b [M, H].
    edge_score [E, H]: added to a_i + b_j, inside the leaky ReLU.
    bias [E, H]: added to the scores, outside of the leaky ReLU.
    self_loops: attends over the edges of ``graph.with_self_loops()``.
        edge_score and bias have a row for each of them, or [E + nodes, H]
        rows: for all edges of the graph and then for a loop of each node; the
        rows of edges that are self loops are not read.
    """
    inputs: tuple = (h, score_dst, score_src)
    if edge_score is not None:
        inputs += (edge_score,)
    return _call("gat", graph, inputs, bias, dropout, training,
                 return_weights, return_lse, slope=negative_slope,
                 self_loops=self_loops)


def gatv2_attention(graph, x_dst: Tensor, x_src: Tensor, att: Tensor, *,
                    negative_slope: float = 0.2,
                    edge_attr: Tensor | None = None,
                    edge_projection: Tensor | None = None,
                    edge_bias: Tensor | None = None,
                    bias: Tensor | None = None, dropout: float = 0.0,
                    training: bool = True, return_weights: Wanted = False,
                    self_loops: bool = False,
                    return_lse: bool = False) -> Result:
    """Dynamic attention: scores are <att, leaky_relu(x_i + y_j)>, values y_j.

    x_dst x [N, H, D], x_src y [M, H, D], att [H, D].
    edge_attr [E, F], edge_projection [H * D, F], edge_bias [H * D] or None:
        their product, and the bias, are added to x_i + y_j; no tensor
        [E, H, D] is made.  edge_attr [E, H, D] is that product already.
    self_loops: as in gat_attention().
    """
    inputs = (x_dst, x_src, att)
    edges = _edge_inputs(edge_attr, edge_projection, edge_bias, x_dst)
    if edges[0] is not None:
        inputs += edges
    return _call("gatv2", graph, inputs, bias, dropout, training,
                 return_weights, return_lse, slope=negative_slope,
                 self_loops=self_loops)


def score_attention(graph, scores: Tensor, value: Tensor,
                    num_dst: int | None = None, *, dropout: float = 0.0,
                    training: bool = True, return_weights: Wanted = False,
                    self_loops: bool = False,
                    return_lse: bool = False) -> Result:
    """Softmax of given scores [E, H] over in-edges, and the weighted sum of
    value [M, H, D]: attention of any other kind.

    num_dst: the number of destinations; by default that of a Graph, and for
        other edges that of the sources.
    self_loops: as in gat_attention(), of the rows of scores.
    """
    check_is_tensor("scores", scores)
    check_tensor("value", value, "MHD", {})
    num_src, heads, _ = value.shape
    if num_dst is None:
        num_dst = graph.num_dst if isinstance(graph, Graph) else num_src
    zeros = scores.new_zeros(1, 1)
    inputs = value, zeros.expand(num_dst, heads), zeros.expand(num_src, heads)
    return _call("gat", graph, inputs, scores, dropout, training,
                 return_weights, return_lse, slope=1.0, self_loops=self_loops)


def edge_scores(op: str, edges, *inputs, scale: float | None = None,
                negative_slope: float = 0.2) -> Tensor:
    """[E, H] the raw scores, before softmax, of any edges: those of a graph or
    others, such as the sampled non-edges of SuperGAT.

    op: "gt" (query, key), "agnn" (h_dst, h_src[, beta]), "gat" (score_dst,
        score_src) or "gatv2" (x_dst, x_src, att).
    edges: a Graph, or an edge_index [2, E].
    """
    counts = {"gt": 2, "agnn": 3, "gat": 2, "gatv2": 3}
    if op not in counts:
        raise ValueError(f"op must be one of {sorted(counts)}, got {op!r}")
    if op == "agnn" and len(inputs) == 2:
        inputs += (None,)
    if len(inputs) != counts[op]:
        raise TypeError(f"edge_scores of {op} takes {counts[op]} tensors, got "
                        f"{len(inputs)}")
    edge_index = edges.edge_index if isinstance(edges, Graph) else edges
    if op == "gt":
        inputs += (None,)
    elif op == "gat":
        inputs = (None,) + inputs
    if scale is None:
        scale = 1 / math.sqrt(inputs[0].size(-1)) if op == "gt" else 1.0
    src, dst = edge_index
    return _formulas.scores(
        _formulas.ByTorch, EdgeList(src, dst), op, inputs,
        Settings(scale, negative_slope, 0.0, False, False, False))


# ---- all nodes of a graph to each other, by graph of a batch -----------------

# A graph of more pairs takes a quarter of a gigabyte.
MOST_PAIRS = 1 << 26


def pairs_of(batch):
    """The Graph of all pairs of nodes with the same number in batch [N], which
    rises, made once for the tensor; raises InvalidError."""
    return remember(batch, "pairs of nodes", lambda: _make_pairs(batch))


def _make_pairs(batch):
    batch = batch.contiguous()
    first = torch.searchsorted(batch, batch)
    degrees = torch.searchsorted(batch, batch, right=True) - first
    offsets = torch.cat([degrees.new_zeros(1), degrees.cumsum(0)])
    falls = (batch[1:] < batch[:-1]).any()
    fallen, total = torch.stack([falls.long(), offsets[-1]]).tolist()
    if fallen:
        raise InvalidError("batch must never fall: the nodes of a graph stand "
                           "together")
    if total > MOST_PAIRS:
        raise InvalidError(f"the graphs of the batch have {total} pairs of "
                           f"nodes, and the most are {MOST_PAIRS}")
    # the edges of a node are the nodes of its graph in their order
    shift = (first - offsets[:-1]).repeat_interleave(degrees,
                                                     output_size=total)
    indices = (torch.arange(total, device=batch.device) + shift).int()
    ends = torch.unique_consecutive(first + degrees)
    return Graph(offsets, indices, trusted=True,
                 graph_ptr=torch.cat([ends.new_zeros(1), ends]))


def _places(batch, graph, most):
    """The place of each pair in a matrix [graphs, most, most]."""
    def make():
        first = torch.searchsorted(batch, batch)
        number = torch.zeros_like(batch)
        number[1:] = (batch[1:] != batch[:-1]).cumsum(0)
        place = torch.arange(batch.numel(), device=batch.device) - first
        dst, src = graph.dst.long(), graph.src.long()
        return (number[dst] * most + place[dst]) * most + place[src]
    return remember(batch, ("places of pairs", most), make)


def _of_pairs(batch, graph, bias):
    """bias [E, H] of a bias by pairs or by matrices."""
    check_is_tensor("bias", bias)
    if bias.dim() == 2 and bias.size(0) == graph.num_edges:
        return bias
    if bias.dim() != 4 or bias.size(2) != bias.size(3):
        raise ValueError(f"bias must be [pairs={graph.num_edges}, heads] or "
                         "[graphs, heads, nodes, nodes], got " + describe(bias))
    sizes = graph.graph_ptr.diff()
    if bias.size(0) != sizes.numel() or sizes.numel() and \
            bias.size(2) < int(sizes.max()):
        raise ValueError(
            f"bias must have {sizes.numel()} graphs of at least "
            f"{int(sizes.max())} nodes, got " + describe(bias))
    rows = bias.permute(0, 2, 3, 1).reshape(-1, bias.size(1))
    return rows.index_select(0, _places(batch, graph, bias.size(2)))


def dense_attention(batch: Tensor, query: Tensor, key: Tensor, value: Tensor,
                    bias: Tensor | None = None, *, scale: float | None = None,
                    dropout: float = 0.0, training: bool = True) -> Tensor:
    """Dot-product attention of each node to all nodes of its graph.

    batch [N]: the number of each node's graph, which never falls.
    query, key, value [N, H, D].
    bias: added to the scores: [graphs, H, nodes, nodes], of which the largest
        graph has at most `nodes`, or [pairs, H], by receiving node and then by
        sending node.
    scale: 1 / sqrt(D) by default.
    dropout: probability that a pair's weight is dropped while training.

    No tensor of [graphs, nodes, nodes] is made but the bias; what is known of
    the pairs is kept with batch.
    """
    check_index("batch", batch)
    graph = pairs_of(batch)
    if bias is not None:
        bias = _of_pairs(batch, graph, bias)
    return gt_attention(graph, query, key, value, scale=scale, bias=bias,
                        dropout=dropout, training=training)
