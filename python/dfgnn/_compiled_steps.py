"""Steps as a module of torch.fx: their calls of torch, and their programs as
operators of torch.library, which torch.compile takes into its graph."""

import torch
from torch.fx import Graph, GraphModule, Proxy
from torch.fx.proxy import GraphAppendingTracer

from . import _mlp_kernels, _nodes, _program_calls, _program_operator
from ._device import make_seed
from ._steps import Steps
from ._torch_library import operator
from ._trace import TraceError


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
        self.fx = Graph()
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
        return self._apply(operator(graph.listed), (
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
        own = [*stage.dtypes, *[None] * (len(program.outputs) - outputs)]
        given = [node.meta if node.meta.is_floating_point() else
                 torch.empty(0) for node in map(self.facts.now, stage.inputs)]
        if stage.random:
            tensors = [self._apply(make_seed, (graph.device,), {}), *tensors]
        types = _program_operator.numbers_of(
            _program_calls.types_of(program, given, own))
        made = self._operator(graph, _program_operator.run,
                              _program_operator.about(
                                  program.name, types, stage.random), tensors)
        return [made[k] for k in range(outputs)]

    def _execute_mlp(self, graph, settings, tensors, dtype):
        if not _mlp_kernels.has_kernels(settings, tensors, dtype,
                                         graph.device):
            raise TraceError("its MLP on edges is torch's products, which "
                             "torch.compile fuses with what is around them")
        about = _mlp_kernels.about(settings, tensors, self.training)
        made = self._operator(graph, _mlp_kernels.traced, about,
                              [t for t in tensors if t is not None])
        return [made[k] for k in range(len(settings.outputs))]


def _without_statistics(args, kwargs):
    """The arguments of a batch_norm that keeps no statistics: the layer's own
    call keeps them."""
    names = ("input", "running_mean", "running_var", "weight", "bias",
             "training")
    given = dict(zip(names, args), **kwargs)
    if not given.get("training", False):
        return args, kwargs
    given["running_mean"] = given["running_var"] = None
    more = tuple(args[len(names):])
    return tuple(given.pop(name, None) for name in names) + more, {
        k: v for k, v in given.items()}


_NAMES = "edges", "num_src", "num_dst", "num_edges"


def record(steps, device, training, listed=True):
    """(the module of (edges, num_src, num_dst, num_edges, *tensors), the keys
    of those tensors).  training: whether there may be gradients; listed:
    whether edges are an edge_index, else the number of a Graph."""
    keys = []
    for _ in range(2):  # the first finds the keys
        recorder, tensors = _Recorder(steps, training), {}
        given = [recorder.given(name) for name in _NAMES]
        for k, key in enumerate(keys):
            tensors[key] = recorder.given(f"t{k}")

        def fetch(key):
            if key not in tensors:
                tensors[key] = recorder.given(f"t{len(keys)}")
                keys.append(key)
            return tensors[key]
        made = recorder.run(_Ends(device, listed, *given), fetch)
        recorder.fx.output(_nodes.mapped(made, lambda x: x.node if isinstance(
            x, Proxy) else x))
    return GraphModule({}, recorder.fx), keys
