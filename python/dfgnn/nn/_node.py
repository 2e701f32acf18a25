"""Layers, of dfgnn.nn, PyG and DGL, as one node of autograd each, for the calls
that most training steps make: what _attention_nodes.py and _sum_nodes.py have
in common.

Whatever looks into a layer (a hook, a parametrisation, a transform, autocast,
anomaly mode, an explainer) gets the layer's other path, which does the same
step by step: the conditions raise Other there.
"""

import functools

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.modules import module as _module

from .. import _measure, _remember, _ways
from .._autograd import (
    Kind, Recorded, ResultAlias, by_operations, wants_gradient)
from .._checks import DTYPES
from .._device import make_seed
from .._execute import generation, settings_of
from .._fallbacks import say_once
from .._guard import saved_elsewhere
from .._kernel_links import FewEdges
from .._modes import autocasting, compiling, in_transform
from .._operators import MOST_EDGE_FEATURES
from ..convert import batch_graph, is_edge_index, known_graph
from ..errors import InvalidError, UnsupportedError
from ..graph import Graph
from ._linear import LINEARS, hooked

PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
# operators by the class or name of a layer's aggregation; dfgnn.nn.pyg adds
# PyG's classes
REDUCTIONS = {"add": "spmm-sum", "sum": "spmm-sum", "mean": "spmm-mean",
              "max": "reduce-max", "min": "reduce-min"}


class Other(Exception):
    """The call takes the layer's other path."""


_GLOBAL_HOOKS = [getattr(_module, name) for name in (
    "_global_forward_hooks", "_global_forward_pre_hooks",
    "_global_backward_hooks", "_global_backward_pre_hooks")]


def watched():
    """Whether something in this process looks at modules or operations."""
    return (torch.is_anomaly_enabled() or autocasting()
            or any(_GLOBAL_HOOKS))


def surroundings():
    """The reason why PyG's own operations must run: something outside traces,
    transforms or watches them; None if nothing does."""
    if torch._C._get_tracing_state() is not None:
        return "torch.jit traces"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func is at work"
    if forward_ad._current_level >= 0:
        return "forward-mode derivatives are wanted"
    if torch._C._len_torch_dispatch_stack():
        return "a dispatch mode watches torch's operations"
    if any(_GLOBAL_HOOKS):
        return "a hook on all modules looks on"
    return None


def runs_in_steps(layer):
    """Whether this call cannot be one node of autograd, whatever its arguments
    are."""
    return surroundings() is not None


def plain(tensor):
    """Whether kernels can read a tensor: it is of no subclass that hides its
    memory; that of torch.export stands for a plain one."""
    kind = type(tensor)
    return kind in PLAIN_TENSORS or kind.__name__ == "FakeTensor" and \
        compiling()


def known(edge_index):
    """Whether the kernels' graph can be made of these edges: they are a Graph
    or an edge_index, and no matrix."""
    if isinstance(edge_index, Graph):
        return True
    return plain(edge_index) and is_edge_index(edge_index)


def linear(state, name):
    """(weight, bias or None) of a linear layer whose call would be a product
    and nothing else; (None, None) if the layer has none of this name."""
    layer = state["_modules"].get(name)
    if layer is None:
        return None, None
    inner = layer.__dict__
    if type(layer) not in LINEARS or hooked(layer):
        raise Other
    parameters = inner["_parameters"]
    try:
        return parameters["weight"], parameters["bias"]
    except KeyError:  # pruned, say, or sharded
        raise Other from None


def product(state, name):
    """The weight of a linear layer without a bias."""
    weight, bias = linear(state, name)
    if weight is None or bias is not None:
        raise Other
    return weight


def own(state, name):
    """A parameter of the layer itself, None if it is registered as none."""
    try:
        return state["_parameters"][name]
    except KeyError:  # parametrised, say
        raise Other from None


def number(state, name):
    scalar = state["_parameters"].get(name)
    if scalar is None:
        scalar = state["_buffers"].get(name)
    if scalar is None or scalar.numel() != 1:
        raise Other
    return scalar


def reduction(state):
    """The operator that reduces as the layer does."""
    module = state["_modules"].get("aggr_module")
    if module is None:
        kind = state["aggr"] if isinstance(state["aggr"], str) else None
    else:
        kind = None if hooked(module) else type(module)
    name = REDUCTIONS.get(kind)
    if name is None:
        raise Other
    return name


def sums(state):
    if reduction(state) != "spmm-sum":
        raise Other


def dropout_of(state):
    """The probability that attention drops an edge in this call."""
    dropout = state["dropout"] if state["training"] else 0.0
    if not 0 <= dropout < 1:
        raise Other
    return float(dropout)


def is_matrix(x):
    return type(x) in PLAIN_TENSORS and x.dim() == 2 \
        and x.layout is torch.strided


def single(x, size=None):
    """x, and the numbers of nodes that send and that receive."""
    if not is_matrix(x) or size is not None:
        raise Other
    return x, (x.size(0), x.size(0))


def pair(x, size=None):
    """(features that are sent, features that receive or None if they are the
    same, numbers of nodes of both)."""
    if type(x) is not tuple:
        return (*single(x, size)[:1], None, (x.size(0), x.size(0)))
    if len(x) != 2 or size is not None or not all(map(is_matrix, x)):
        raise Other
    src, dst = x
    return src, None if dst is src else dst, (src.size(0), dst.size(0))


def edge_features(state, edge_attr, x):
    """(edge_attr, weight of its projection), or (None, None)."""
    weight, bias = linear(state, "lin_edge")
    if edge_attr is None and weight is None:
        return None, None
    if edge_attr is None or weight is None or bias is not None \
            or not is_matrix(edge_attr) or not edge_attr.size(1) \
            or x.is_cuda and edge_attr.size(1) > MOST_EDGE_FEATURES:
        raise Other
    return edge_attr, weight


class Chain(Kind):
    """Links, see _links.py, and the names of the tensors that a call gives
    them.  It is made once for calls of one graph with the same shapes, types
    and settings, whose caller has checked them."""

    def __init__(self, names, links):
        self.names, self.links = names, links
        self.out = links[-1].out
        saved = {name for link in links for name in link.saves}
        results = dict.fromkeys(name for link in links for name in link.makes)
        self.saved = [name for name in dict.fromkeys((*names, *results))
                      if name in saved]
        self._saved_results = [name for name in results if name in saved]
        self.others = [n for n, name in enumerate(names)
                       if name not in saved]
        self._wanted = {}

    def __call__(self, graph, tensors):
        """The result for tensors in the order of names, each dense or None."""
        if wants_gradient(tensors):
            return Recorded.apply(self, graph, *tensors)
        return self.forward(graph, tensors, False)[self.out]

    def forward(self, graph, tensors, keep):
        values = dict(zip(self.names, tensors))
        for link in self.links:
            link.forward(graph, values, keep)
        return values

    def plain(self, graph, tensors):
        """The result by operations that autograd records."""
        values = dict(zip(self.names, tensors))
        for link in self.links:
            link.plain(graph, values)
        return values[self.out]

    def wanted(self, needed):
        """The names of the tensors whose gradients lead to those of the given
        tensors that need one."""
        names = self._wanted.get(needed)
        if names is None:
            names = {name for name, n in zip(self.names, needed) if n}
            for link in self.links:
                if names.intersection(link.reads):
                    names.add(link.out)
            self._wanted[needed] = names
        return names

    def backward(self, graph, values, grad, needed):
        wanted = self.wanted(needed)
        grads = {self.out: grad.contiguous()}
        for link in reversed(self.links):
            if link.out in wanted:
                link.backward(graph, values, grads, wanted)
                del grads[link.out]  # its memory may serve the next link
        return [grads.get(name) if n else None
                for name, n in zip(self.names, needed)]

    def record(self, graph, tensors, needed):
        """Tensors that only gradients of gradients read stand beside the saved
        ones: a write to them is an error there alone."""
        values = self.forward(graph, tensors, True)
        out, result_alias = values[self.out], None
        for name in self._saved_results:
            value = values.get(name)
            if value is not None and value.data_ptr() == out.data_ptr():
                result_alias = result_alias or ResultAlias(out)
                values[name] = result_alias.alias
        return out, [values.get(name) for name in self.saved], (result_alias, [
            (tensors[n], None if tensors[n] is None else tensors[n]._version)
            for n in self.others])

    def gradients(self, graph, rest, kept, grads, needed, again):
        (result_alias, others), grad = rest, grads[0]
        values = dict(zip(self.saved, kept))
        written = result_alias is not None and result_alias.written
        by_kernels = not again and not in_transform()
        if by_kernels and not written:
            try:
                return self.backward(graph, values, grad, needed)
            except UnsupportedError as error:
                say_once(f"{error}; gradients are made by torch operations "
                         "instead")
        for number, (tensor, version) in zip(self.others, others):
            if (again or written) and tensor is not None \
                    and tensor._version != version:
                raise RuntimeError(
                    f"{self.names[number]} of a layer was written to after "
                    "its forward pass; gradients of gradients, and those of a "
                    "result that was written to, need what it was")
            values[self.names[number]] = tensor
        tensors = [values[name] for name in self.names]
        if by_kernels and written:
            values = self.forward(graph, tensors, True)
            return self.backward(graph, values, grad, needed)
        return by_operations(lambda inputs: [self.plain(graph, inputs)],
                             tensors, [grad], needed, again)


def node(call):
    """The call that a layer's forward tries first: call(state, ...) with the layer's
    __dict__; NotImplemented where the other path is to be taken.  Its of_state
    takes what stands for a __dict__."""
    def of_state(state, *args, **kwargs):
        # DGL's layers have no flow
        if compiling() or watched() or \
                state.get("flow", "source_to_target") != "source_to_target" \
                or state.get("node_dim", 0) not in (-2, 0):
            return NotImplemented
        try:
            return call(state, *args, **kwargs)
        except (Other, InvalidError, UnsupportedError):
            return NotImplemented

    @functools.wraps(call)
    def attempt(layer, *args, **kwargs):
        # torch.compile guards all that runs_in_steps() reads: it is asked last
        return NotImplemented if compiling() or layer.runs_in_steps() else \
            of_state(layer.__dict__, *args, **kwargs)
    attempt.of_state = of_state
    return attempt


def first(node):
    """Decorates a layer's forward, which runs where node() does not."""
    def decorate(forward):
        @functools.wraps(forward)
        def tried(self, *args, **kwargs):
            out = node(self, *args, **kwargs)
            return forward(self, *args, **kwargs) if out is NotImplemented \
                else out
        return tried
    return decorate


def recipe(function):
    """Decorates a function (graph, settings, static, *tensors) that returns
    the links of a chain, or None where shapes are not as they should be; the
    tensors have its arguments' names in the links.  The first has features of
    nodes.

    The links serve all graphs alike: the function asks nothing of a graph but
    what its keys have of it, and nothing of how many rows nodes and edges have
    but whether these are the graph's.
    """
    code = function.__code__
    function.names = code.co_varnames[3:code.co_argcount]
    function.keys = tuple(
        _KEYS.get(name, lambda _, tensor: tensor.shape)
        for name in function.names)
    return function


def _key_of_edges(graph, tensor):
    rows = tensor.shape[:1]
    return (rows == (graph.num_edges,), rows == (graph.unlooped_edges,),
            graph.loops == graph.num_dst, graph.handle.listed, type(graph),
            tensor.shape[1:])


# By the name of a tensor with a row for each node, or for each edge, the
# function of what links ask of it; they ask the whole shape of others.
_KEYS = {**dict.fromkeys(("x", "x_dst"), lambda _, tensor: tensor.shape[1:]),
         **dict.fromkeys(("edge_attr", "edge_weight"), _key_of_edges)}


def graph_of(edges, sizes, loops=False):
    """The graph of a call, from PyG's edge_index or a Graph."""
    if isinstance(edges, Graph):
        if edges.exchange is not None or \
                (edges.num_src, edges.num_dst) != sizes:
            raise Other
        return edges.with_self_loops() if loops else edges
    graph = known_graph(edges, sizes, loops)
    if graph is None:
        if not known(edges):
            raise Other
        graph = batch_graph(edges, sizes, loops)
    return graph


def _lasting(edges, sizes, state):
    """Whether edges have a graph, or the layer of this state had them in an
    earlier call; False in a checkpoint, whose two runs must agree, and where
    a CUDA graph is captured before kernels ran."""
    if saved_elsewhere() or edges.is_inference():
        return False
    calls = _calls(edges)
    before = calls.get(id(state), 0)
    if _capturing(edges):
        return before > 1
    calls[id(state)] = before + 1
    return before > 0 or known_graph(edges, sizes) is not None


def _calls(edges):
    """The numbers of calls that layers had with the edges, by id of a state."""
    return _remember.keep(edges).setdefault("calls", {})


def _capturing(tensor):
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def graph_of_sums(state, edges, sizes, op, x):
    """The graph of a layer's call of the operator, or its FewEdges."""
    if type(edges) is Tensor and _ways.graphs_pay(edges.device) and \
            not saved_elsewhere() and not _capturing(edges):
        graph = known_graph(edges, sizes)  # in each step of a training loop
        if graph is not None:
            _calls(edges)[id(state)] = 2  # its kernels run
            return graph
    few = _few(state, edges, sizes, op, x)
    return FewEdges(edges, sizes) if few else graph_of(edges, sizes)


def _few(state, edges, sizes, op, x):
    if type(edges) is not Tensor or _remember.current is not None or \
            op not in ("spmm-sum", "spmm-mean") or _ways.ordered() or \
            x.dtype not in (torch.float32, torch.float64) or \
            not is_edge_index(edges):
        return False
    numbers = edges.size(1) * x.size(1)
    return numbers > 0 and not _measure.takes_calls() and _ways.sums_by_torch(
        x.device, _ways.size_class(numbers),
        lambda: _lasting(edges, sizes, state))


_chains = {}  # by the key that run() makes
_MOST_CHAINS = 4096


def run(graph, links, static, *tensors, dropout=0.0, scale=0.0, slope=0.0):
    """The result of the links of a recipe for its tensors.

    static: what the links depend on beside the shapes.
    """
    first = tensors[0]
    dtype, device, keys = first.dtype, first.device, []
    if graph.empty or not first.numel() or dtype not in DTYPES or \
            device != graph.device:
        raise Other
    for tensor, key in zip(tensors, links.keys):
        if tensor is None:
            keys.append(None)
            continue
        if type(tensor) not in PLAIN_TENSORS or tensor.dtype is not dtype \
                or tensor.device != device:
            raise Other
        keys.append(key(graph, tensor))
        if not tensor.is_contiguous():
            tensors = [t if t is None else t.contiguous() for t in tensors]
    if _remember.current is not None:
        _remember.note_graph(graph)
    settings = settings_of(first, scale, slope, dropout, False)
    key = (links, static, settings, generation(), dtype, *keys)
    chain = _chains.get(key)
    if chain is None:
        if len(_chains) >= _MOST_CHAINS:
            _chains.clear()
        names = (*links.names, "seed") if dropout else links.names
        parts = links(graph, settings, static, *tensors)
        chain = _chains[key] = Other if parts is None else Chain(names, parts)
    if chain is Other:
        raise Other
    if dropout:
        tensors = (*tensors, make_seed(device))
    return chain.plain(graph, tensors) if type(graph) is FewEdges else \
        chain(graph, tensors)


def fits(weight, bias, inputs):
    """Whether a linear layer takes so many features."""
    return (weight.dim() == 2 and weight.size(1) == inputs
            and (bias is None or bias.shape == weight.shape[:1]))


def named(name, tensor):
    return None if tensor is None else name
