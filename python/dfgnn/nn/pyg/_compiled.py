"""Traced layers while torch.compile traces: what is made of a layer's graph, as
a module of torch's calls and of programs that are operators, stands in its graph.

torch.compile follows the layer's own propagate, too: its guards are then on all
that this looks at, what it writes is written, and its result, which nothing
reads, leaves the graph.
"""

import functools
import math
import re
import sys
import weakref

import sympy
import torch
from torch import Tensor
from torch.fx import Graph as Calls, GraphModule, Proxy
from torch.fx.experimental import symbolic_shapes
from torch.fx.proxy import GraphAppendingTracer
from torch_geometric.nn.aggr import MeanAggregation, SumAggregation

from ... import (
    _dynamo, _mlp_kernels, _nodes, _program_calls, _program_operator)
from ..._device import make_seed
from ..._fallbacks import say_once
from ..._modes import autocast_dtype
from ..._steps import Steps, staged
from ..._torch_library import operator as operator_of
from ..._trace import TraceError
from ..._ways import small_sums
from ...errors import Error
from ...graph import Graph
from ...programs import static
from ._mixin import Fused
from ._propagate_steps import Programs, own_function


class _Made:
    """The modules that layers are in a graph, by name: torch.compile reads an
    attribute as it is, and a dict as it was where it first saw it."""


_MADE = _Made()
_MODULES = vars(_MADE)
_RECORDED = weakref.WeakKeyDictionary()
# numbers of rows that stand for those of a call: equal ones for equal ones
_ROWS = (11, 7, 5, 3, 13, 17, 19, 23, 29, 31, 37, 41, 43)
_GUARDED = (int, float, bool, str, type(None))


def _watched(layer):
    return [(path, name, value) for path, module in layer.named_modules()
            for name, value in vars(module).items()
            if type(value) in _GUARDED]


def attributes(layer):
    """(path of a module, name) of each number and text among a layer's
    attributes, which torch.compile may take for symbols."""
    return tuple([about[:2] for about in _watched(layer)])


def attribute(layer, path, name):
    return getattr(_module(layer, path), name)


def changed(layer, name):
    """Says that a call wrote to what its operator would be made of."""
    say_once(f"{type(layer).__name__} takes PyG's own path under "
             f"torch.compile: the call has written to its attribute {name}")
    return name


def fused(layer, what="network and sums"):
    """Says that none of our operators is in the layer's graph."""
    say_once(f"{type(layer).__name__}'s {what} are torch's, which "
             "torch.compile fuses")


def exporting(_):
    """Whether torch.export traces, whose numbers of rows are not to be asked."""
    return getattr(torch.compiler, "is_exporting", bool)()


def is_small(layer, edge_index, kwargs):
    """Whether torch's kernels for the sums of a call, which torch.compile
    fuses, take less time than a call of ours."""
    if type(edge_index) is not Tensor or type(layer.aggr_module) not in (
            SumAggregation, MeanAggregation) or \
            layer._dfgnn_constant("exporting"):
        return False
    width = 1
    for value in kwargs.values():
        for tensor in value if isinstance(value, tuple) else (value,):
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                width = max(width, math.prod(tensor.shape[1:]))
    return _surely(small_sums(edge_index.device, edge_index.size(1) * width))


def recorded(layer, *about):
    """The result of _record(), kept during one compilation, which may begin
    anew, until anything changes that the layer reads."""
    compilation = torch._guards.CompileContext.try_get()
    key = about, tuple(_watched(layer))
    entry = _RECORDED.get(layer)
    if entry is None or compilation is None or \
            entry[0] is not compilation or entry[1] != key:
        entry = _RECORDED[layer] = compilation, key, _record(layer, *about)
    return entry[2]


def _record(layer, edge_dtype, device, rows, size, kwargs, training, autocast):
    """(the name of a call's module, which rows are its sources' and which its
    destinations', whether the first row of its edges receives, the keys of its
    tensors); None if there is no module."""
    device = torch.device(device)
    if autocast != autocast_dtype(device.type) or rows > len(_ROWS):
        return None

    def make(module):
        programs = Programs(module, ())
        for source in programs.numbers:
            if not source.startswith(("L['layer']", "L['kwargs']")):
                raise TraceError(f"the number {source} may change")
        _check_sizes(module, programs.notes.rows)
        return programs
    try:
        args = _stand_in(edge_dtype, device, size, kwargs)
        programs = _dynamo.look(own_function(
            type(layer)._dfgnn_base, "propagate"), make, layer, *args)
        # the layer's own propagate does the effects
        notes = programs.notes
        steps = staged(notes.nodes, notes.tree)
        steps.probe_device(device)
        module, keys = _as_module(steps, device, training,
                                  edge_dtype is not None)
        if any(key[0] != "given" for key in keys):
            raise TraceError("an index of nodes is used as numbers")
        tensors = tuple([_named(programs.sources[key[1]]) for key in keys])
        ends = [_ROWS.index(programs.hint(size)) for size in (
            notes.rows.sources, notes.rows.destinations)]
    except (TraceError, Error, ValueError) as reason:
        say_once(f"{type(layer).__name__} takes PyG's own path under "
                 f"torch.compile: {reason}")
        return None
    name = f"layer_{len(_MODULES)}"
    _MODULES[name] = module
    return name, *ends, notes.rows.flipped, tensors


def _check_sizes(module, rows):
    """Raises where Python has asked something of a number of rows that does
    not hold of every number: the graph's numbers stand for others."""
    sizes = [n for node in module.graph.nodes if node.op == "placeholder"
             for value in [node.meta["example_value"]]
             for n in (value.shape if isinstance(value, Tensor) else (value,))]
    for env in {n.node.shape_env for n in sizes if isinstance(n, torch.SymInt)}:
        counted = [env.replace(n) for n in rows.counted
                   if isinstance(n, sympy.Expr)]
        for guard in env.guards:
            expr = guard.expr
            counts = [s for s in expr.free_symbols if env.replace(s) in counted]
            if counts and not _holds(expr, counts, {
                    s: env.size_hint(s, allow_none=True)
                    for s in expr.free_symbols}):
                raise TraceError(f"Python asks whether {expr}, of a number "
                                 "of rows")


def _holds(expr, counts, hints):
    """Whether expr holds of other numbers of rows, too; counts that are equal
    here are equal in each call."""
    numbers = {int(n) + d for n in expr.atoms(sympy.Integer)
               for d in (-1, 0, 1)} | {2, 3, 4, 5, 7, 10007, 1 << 20}
    return all(
        expr.subs({s: n if s in counts and hints[s] == size else hint
                   for s, hint in hints.items()}) == sympy.true
        for size in {hints[s] for s in counts}
        for n in numbers - set(hints.values()) if n >= 2)


_ARGUMENT = re.compile(r"L\['kwargs'\]\['(\w+)'\](?:\[(\d)\])?$")
_PART = re.compile(r"\._modules\['([^']+)'\]")
_PARAMETER = re.compile(r"(?:\._(?:parameters|buffers)\['(\w+)'\]|\.(\w+))$")


def _named(source):
    """The key of what Dynamo calls a tensor: ("argument", name, place in a pair
    or None) or ("module", path, name)."""
    match = _ARGUMENT.match(source)
    if match:
        return "argument", match[1], match[2] and int(match[2])
    tensor = _PARAMETER.search(source)
    beginning = source[:tensor.start()] if tensor else ""
    parts = _PART.findall(beginning)
    if tensor and beginning == "L['layer']" + "".join(
            f"._modules['{part}']" for part in parts):
        return "module", ".".join(parts), tensor[1] or tensor[2]
    raise TraceError(f"{source} is no tensor of the layer or the call")


def _stand_in(edge_dtype, device, size, arguments):
    """Arguments of zeros, with as many rows where the call has as many."""
    def tensor(about):
        if about is None:
            return None
        rows, shape, dtype, differentiable = about
        shape = shape if rows is None else (_ROWS[rows], *shape)
        return torch.zeros(shape, dtype=dtype, device=device,
                           requires_grad=differentiable)
    kwargs = {}
    for name, kind, about in arguments:
        kwargs[name] = (tensor(about) if kind == "tensor" else
                        tuple(map(tensor, about)) if kind == "pair" else about)
    edges = torch.zeros(2, _ROWS[0], dtype=edge_dtype or torch.int64,
                        device=device)
    if size is not None:
        size = tuple(n if n is None else _ROWS[n] for n in size)
    return edges, size, kwargs


# sizes that torch.export knows from values alone, such as that of edges after
# remove_self_loops(), are equal to no others
_surely = getattr(symbolic_shapes, "guard_or_false", bool)


class _Rows:
    """Tells which numbers of rows are equal; each comparison is a guard."""

    def __init__(self, edges):
        self.sizes = [edges]

    def number(self, count):
        for k, size in enumerate(self.sizes):
            if _surely(size == count):
                return k
        self.sizes.append(count)
        return len(self.sizes) - 1

    def tensor(self, x):
        if x is None:
            return None
        about = x.dtype, x.requires_grad
        if x.dim() == 0:
            return None, (), *about
        return self.number(x.size(0)), static(x.shape[1:]), *about


def _described(kwargs, rows):
    """The arguments of a call as constants; None if they cannot be."""
    constants = []
    for name, value in kwargs.items():
        if isinstance(value, Tensor):
            constants.append((name, "tensor", rows.tensor(value)))
        elif isinstance(value, (tuple, list)) and len(value) == 2 and all(
                [x is None or isinstance(x, Tensor) for x in value]):
            constants.append((name, "pair", tuple([rows.tensor(x)
                                                   for x in value])))
        elif value is None or isinstance(value, (bool, int, float, str)):
            constants.append((name, "plain", value))
        else:
            return None
    return tuple(constants)


def _module(layer, path):
    return functools.reduce(getattr, path.split("."), layer) if path \
        else layer


def _tensor(layer, key, kwargs):
    kind, first, second = key
    if kind == "module":
        return getattr(_module(layer, first), second)
    return kwargs[first] if second is None else kwargs[first][second]


def propagate(layer, edge_index, size, kwargs):
    """PyG's propagate, or NotImplemented, as torch.compile follows it."""
    graph = edge_index if isinstance(edge_index, Graph) and \
        edge_index.exchange is None else None
    if graph is None and not isinstance(edge_index, Tensor):
        return NotImplemented
    rows = _Rows(edge_index.size(1) if graph is None else graph.num_edges)
    arguments = _described(kwargs, rows)
    if arguments is None:
        return NotImplemented
    if any([_surely(n < 2) for n in rows.sizes]):
        return NotImplemented  # torch.compile makes 0 and 1 constants
    about = size
    if size is not None:
        about = tuple([None if n is None else rows.number(n) for n in size])
    for path, attribute in layer._dfgnn_constant("attributes"):
        # each comparison is a guard, even of a float that is a dynamic size
        if getattr(_module(layer, path), attribute) != layer._dfgnn_constant(
                "attribute", path, attribute):
            layer._dfgnn_constant("changed", attribute)
            return NotImplemented
    device = edge_index.device
    recording = layer._dfgnn_constant(
        "recorded", None if graph is not None else edge_index.dtype,
        str(device), len(rows.sizes), about, arguments,
        torch.is_grad_enabled(), autocast_dtype(device.type))
    if recording is None:
        return NotImplemented
    name, src, dst, flipped, keys = recording
    src, dst = rows.sizes[src], rows.sizes[dst]
    if graph is None:
        edges = edge_index.flip(0) if flipped else edge_index
    elif (graph.num_src, graph.num_dst) == (src, dst):
        edges = graph.id
        edge_index = torch.stack([graph.src, graph.dst])
        edge_index = edge_index.flip(0) if flipped else edge_index
    else:
        return NotImplemented
    outs = getattr(_MADE, name)(
        edges, src, dst, rows.sizes[0],
        *[_tensor(layer, key, kwargs) for key in keys])
    # PyG's propagate writes to what the module has read
    own = layer._dfgnn_base.propagate(layer, edge_index, size=size, **kwargs)
    if isinstance(own, Tensor):
        return outs[0]
    return tuple(outs[:len(own)])


# ---- steps as a module of torch.fx: their calls of torch, and their programs as
# operators of torch.library

class _Ends:
    """The graph of steps that are recorded: tensors by edge are in
    the caller's order.  edges: an edge_index, or the number of a Graph."""

    edge_order = None
    num_relations = 0

    def __init__(self, device, listed, edges, num_src, num_dst, num_edges):
        self.device, self.listed = device, listed
        self.num_src, self.num_dst = num_src, num_dst
        self.num_edges = num_edges
        self.place = (*((edges, 0) if listed else (None, edges)), num_src,
                      num_dst, num_edges)

    def _end(self, number):
        if not self.listed:
            raise TraceError("torch gathers values of nodes by edge, for which "
                             "it has no edge_index of a Graph")
        return self.place[0][number]

    @property
    def src(self):
        return self._end(0)

    @property
    def dst(self):
        return self._end(1)

    def met(self, receives):
        nodes, count = (self.dst, self.num_dst) if receives else (
            self.src, self.num_src)
        return nodes.new_zeros((count,), dtype=torch.bool).index_fill(
            0, nodes, True), nodes[:1]

    def to_caller_order(self, tensor):
        return tensor


class _Recorder(Steps):
    """Runs the steps with proxies."""

    def __init__(self, steps, training):
        vars(self).update(vars(steps))
        self.training = training
        self.fx = Calls()
        self.tracer = GraphAppendingTracer(self.fx)

    def given(self, name):
        return Proxy(self.fx.placeholder(name), self.tracer)

    def _apply(self, function, args, kwargs):
        if getattr(function, "__name__", "") == "batch_norm":
            args, kwargs = _without_statistics(args, kwargs)
        return self.tracer.create_proxy("call_function", function,
                                        tuple(args), kwargs)

    def _operator(self, graph, family, about, tensors):
        name, counts, numbers = about
        return self._apply(operator_of(graph.listed), (
            family.name, name, list(counts), list(numbers), tensors,
            *graph.place), {})

    def _number(self, run, node, fact):
        shape = tuple(run.number(n) for n in node.shape)
        return self._apply(torch.full, (shape, fact.about), dict(
            dtype=node.meta.dtype, device=run.graph.device)), "graph"

    def _placed(self, tensor, device):
        return tensor

    def _shaped(self, tensor, shape):
        return tensor.reshape(shape)

    def _execute(self, graph, stage, tensors):
        program, outputs = stage.program, len(stage.program.outputs)
        if self.training:
            program = program.keep((True,) * outputs,
                                   (True,) * len(program.inputs))
        dtypes = [*stage.dtypes, *[None] * (len(program.outputs) - outputs)]
        inputs = [node.meta if node.meta.is_floating_point() else
                  torch.empty(0) for node in map(self.facts.now, stage.inputs)]
        if stage.random:
            tensors = [self._apply(make_seed, (graph.device,), {}), *tensors]
        types = _program_operator.numbers_of(
            _program_calls.types_of(program, inputs, dtypes))
        outs = self._operator(graph, _program_operator.run,
                              _program_operator.about(
                                  program.name, types, stage.random), tensors)
        return [outs[k] for k in range(outputs)]

    def _mlp(self, run, node):
        stack = node.function
        if node.name == "mlp" and not _mlp_kernels.may_serve(
                stack.settings, stack.widths, stack.computed_in,
                run.graph.device):
            raise TraceError("its MLP on edges is torch's products, which "
                             "torch.compile fuses with what is around them")
        super()._mlp(run, node)

    def _execute_mlp(self, graph, settings, tensors, dtype):
        about = _mlp_kernels.about(settings, tensors, self.training)
        outs = self._operator(graph, _mlp_kernels.traced, about,
                              [t for t in tensors if t is not None])
        return [outs[k] for k in range(len(settings.outputs))]


def _without_statistics(args, kwargs):
    """The arguments of a batch_norm that keeps no statistics: the layer's own
    call keeps them."""
    names = ("input", "running_mean", "running_var", "weight", "bias",
             "training")
    arguments = dict(zip(names, args), **kwargs)
    if not arguments.get("training", False):
        return args, kwargs
    arguments["running_mean"] = arguments["running_var"] = None
    more = tuple(args[len(names):])
    return tuple(arguments.pop(name, None)
                 for name in names) + more, arguments


_NAMES = "edges", "num_src", "num_dst", "num_edges"


def _as_module(steps, device, training, listed):
    """(the module of (edges, num_src, num_dst, num_edges, *tensors), the keys
    of those tensors).  training: whether there may be gradients; listed:
    whether edges are an edge_index, else the number of a Graph."""
    keys = []
    for _ in range(2):  # the first finds the keys
        recorder, tensors = _Recorder(steps, training), {}
        placeholders = [recorder.given(name) for name in _NAMES]
        for k, key in enumerate(keys):
            tensors[key] = recorder.given(f"t{k}")

        def fetch(key):
            if key not in tensors:
                tensors[key] = recorder.given(f"t{len(keys)}")
                keys.append(key)
            return tensors[key]
        outs = recorder.run(_Ends(device, listed, *placeholders), fetch)
        recorder.fx.output(_nodes.mapped(outs, lambda x: x.node if isinstance(
            x, Proxy) else x))
    return GraphModule({}, recorder.fx), keys


Fused._dfgnn_in_graph = sys.modules[__name__]
