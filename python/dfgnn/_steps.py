"""Runs the programs and calls that _staged made of a function."""

import torch

from . import _mlp_kernels, _nodes, _program_calls, _rewrites
from ._device import make_seed
from ._facts import Facts, refuse
from ._nodes import Node, mapped
from ._staged import Stages
from ._trace import DST, EDGE, PARAM, SRC, TraceError


class Run:
    """The tensors of one call, by node.

    By node of the graph, by edge in the caller's order ("caller") and in the
    graph's ("graph").
    """

    def __init__(self, graph, fetch):
        self.graph, self.fetch = graph, fetch
        self.tensors = {}

    def number(self, x):
        if isinstance(x, int) and not isinstance(x, bool) and x in _nodes.ROWS:
            return {_nodes.EDGES: self.graph.num_edges,
                    _nodes.SOURCES: self.graph.num_src,
                    _nodes.TOP_SOURCE: self.graph.num_src}.get(
                        int(x), self.graph.num_dst)
        return x


class Steps:
    """The steps of a traced function, each a program or a call of torch.  (A
    Plan of _execute is what the library makes of one kernel's call.)"""

    def __init__(self, stages, tree, effects):
        self.facts, self.steps = stages.facts, stages.steps
        self.called, self.random = stages.called, stages.random
        self.stages, self.tree, self.effects = stages, tree, effects

    @property
    def programs(self):
        return [step for kind, step in self.steps if kind == "program"]

    def probe_device(self, device):
        """probe() where there is no graph yet."""
        if device.type != "cpu":
            self.probe(_mlp_kernels.one_edge(device))

    def probe(self, graph):
        """Raises UnsupportedError if the graph's device has no kernels for a
        program, or for its gradient, which would run when it is too late for
        another way."""
        if graph.device.type != "cpu":
            for stage in self.programs:
                _program_calls.probe(stage.program, graph, stage.dtypes[0])

    def run(self, graph, fetch):
        """The outputs, in the shape of .tree; tensors by edge are in the
        caller's order.  Arguments that steps write to are written last."""
        run = Run(graph, fetch)
        for kind, step in self.steps:
            if kind == "call" and self.called[step] == "mlp":
                self._mlp(run, step)
            elif kind == "call":
                self._call(run, step)
            else:
                self._program(run, step)
        written = {}
        for target, source in self.effects.items():
            to = written[target] = written[source] = run.fetch(target.key)
            to.copy_(self._native(run, source)[0])
        return mapped(self.tree, lambda x: x if not isinstance(x, Node) else
                      written[x] if x in written else self._result(run, x))

    def _native(self, run, node):
        """(tensor, order) of a node; order: "graph" or "caller" of a tensor by
        edge, None of one by node or without rows."""
        node = self.facts.now(node)
        entry = run.tensors.get(node)
        if entry is None:
            fact = self.facts.of(node)
            if fact.role == "lift":
                return self._native(run, fact.about[0])[0], None
            if fact.role == "number":
                return self._number(run, node, fact)
            tensor = run.fetch(node.key)
            if node in self.effects:  # a gradient may read what it was
                tensor = tensor.clone()
            entry = run.tensors[node] = tensor, (
                "caller" if fact.place == EDGE and fact.rows else None)
        return entry

    def _number(self, run, node, fact):
        shape = [run.number(n) for n in node.shape]
        return torch.full(shape, fact.about, dtype=node.meta.dtype,
                          device=run.graph.device), "graph"

    def _graphs(self, run, node):
        """A node's tensor, by edge in the graph's order or by node."""
        node = self.facts.now(node)
        tensor, order = self._native(run, node)
        if order == "caller" and run.graph.edge_order is not None:
            key = node, "graph"
            if key not in run.tensors:
                run.tensors[key] = run.graph.to_graph_order(tensor)
            return run.tensors[key]
        return tensor

    def _by_edge(self, run, node):
        """A node's tensor by edge in the graph's order, also one of an end."""
        node = self.facts.now(node)
        fact = self.facts.of(node)
        tensor = self._graphs(run, node)
        if fact.rows != _nodes.EDGES or run.tensors.get(
                node, (None, None))[1] == "graph" or fact.place not in (
                    DST, SRC):
            return tensor
        return tensor.index_select(
            0, run.graph.dst if fact.place == DST else run.graph.src)

    def _by_node(self, run, node):
        """The tensor by node of a gather.  Nodes without an edge get the values
        of another: nothing is computed for them that is not for an edge, and
        what they hold, such as NaN, reaches no gradient."""
        node = self.facts.now(node)
        tensor, fact = self._native(run, node)[0], self.facts.of(node)
        if fact.role != "lift":
            return tensor
        key = node, "met"
        if key not in run.tensors:
            ends = run.graph.met(fact.place == DST)
            if ends is not None:
                there, node = ends
                tensor = self._apply(torch.where, (
                    there.view(-1, *(1,) * (len(key[0].shape) - 1)), tensor,
                    self._apply(torch.index_select, (tensor, 0, node), {})),
                    {})
            run.tensors[key] = tensor
        return run.tensors[key]

    def _call(self, run, node):
        fact = self.facts.of(node)
        wide = self.called[node] == "wide"
        order = None
        if fact.rows == _nodes.EDGES and (wide or fact.place == EDGE):
            order = "graph" if wide else "caller"
        by_node = fact.rows == _nodes.EDGES and not wide and \
            fact.place in (DST, SRC)
        end = "num_dst" if fact.place == DST else "num_src"

        def argument(x):
            if isinstance(x, Node):
                return self._by_edge(run, x) if wide else self._by_node(
                    run, x) if by_node else self._native(run, x)[0]
            if not isinstance(x, int):
                return x
            return getattr(run.graph, end) if by_node and \
                x == _nodes.EDGES else run.number(x)
        if node.flat:  # as almost all are
            args = [argument(x) for x in node.args]
            kwargs = {k: argument(x) for k, x in node.kwargs.items()}
        else:
            args = mapped(node.args, argument)
            kwargs = mapped(node.kwargs, argument)
        if node.name == "part":
            run.tensors[node] = args[0][args[1]], order
            return
        if node.clones:
            args = (args[0].clone(), *args[1:])
        run.tensors[node] = self._apply(node.function, args, kwargs), order

    def _apply(self, function, args, kwargs):
        return function(*args, **kwargs)

    def _mlp(self, run, node):
        if node.name != "mlp":  # one of its outputs, which are there
            mlp, i = node.args
            # an autocast region has types of its own
            tensor = run.tensors[mlp][0][i].to(node.meta.dtype)
            run.tensors[node] = tensor, "caller" if self.facts.of(
                node).rows == _nodes.EDGES else None
            return

        def by_edge(x):
            x = self.facts.now(x)
            tensor, order = self._native(run, x)
            return tensor if order == "caller" else \
                run.graph.to_caller_order(self._by_edge(run, x))
        run.tensors[node] = _rewrites.run(
            run.graph, node.function,
            lambda x: self._native(run, x)[0], by_edge,
            self._execute_mlp), None

    def _execute_mlp(self, graph, settings, tensors, dtype):
        return _mlp_kernels.run(graph, settings, tensors, dtype)

    def _program(self, run, stage):
        tensors = []
        for node, port in zip(stage.inputs, stage.program.inputs):
            tensor = self._graphs(run, node)
            if not self.facts.now(node).meta.is_floating_point():
                tensor = tensor.to(stage.whole)
            elif node.key is not None and not node.shape:
                tensor = self._placed(tensor, run.graph.device)
            tensors.append(self._shaped(
                tensor, port.rows(run.graph) + port.shape))
        results = self._execute(run.graph, stage, tensors)
        for node, tensor in zip(stage.outputs, results):
            run.tensors[node] = tensor, "graph" if self.facts.of(
                node).rows == _nodes.EDGES else None

    def _placed(self, tensor, device):
        """A number of Python's, which is on the CPU, or the tensor itself."""
        if tensor.device == device:
            return tensor
        return torch.full((), float(tensor), dtype=tensor.dtype,
                          device=device)

    def _shaped(self, tensor, shape):
        """tensor.reshape(shape), which is a node of autograd's, too."""
        return tensor if tensor.shape == shape else tensor.reshape(shape)

    def _execute(self, graph, stage, tensors):
        seed = make_seed(graph.device) if stage.random else None
        return _program_calls.run(stage.program, graph, stage.dtypes, seed,
                             *tensors)

    def _result(self, run, node):
        node = self.facts.now(node)
        fact = self.facts.of(node)
        tensor, order = self._native(run, node)
        if fact.rows != _nodes.EDGES or order == "caller":
            return tensor
        return run.graph.to_caller_order(self._by_edge(run, node))


def staged(nodes, tree, effects={}, with_dropout=True, whole=True):
    """The Steps that make the nodes of a tree of tuples.  effects: what is
    written, by the given Node that gets it; whole: whether linear maps of
    16-bit types round as one."""
    outputs = []
    mapped(tree, lambda x: outputs.append(x) if isinstance(x, Node) else None)
    facts = Facts(nodes, whole)
    for node in outputs:
        if _nodes.TOP_DESTINATION in node.shape or \
                _nodes.TOP_SOURCE in node.shape:
            refuse(node, "how many rows it has depends on the index: give "
                   "scatter a dim_size")
    return Steps(Stages(facts, outputs, [*effects.values()], with_dropout),
                 tree, effects)


# ---- edge programs with wide linear maps -------------------------------------

# the most products of a program for an edge: DFGNN_BIND_PRODUCTS of C
MOST_PRODUCTS = 1 << 14


def _check_mlps(steps, writes):
    """Raises TraceError unless MLPs and programs are all that runs by edge.
    writes: whether values between them may be tensors by edge."""
    kinds = steps.called
    if "mlp" not in kinds.values():
        raise TraceError("its linear maps are no MLP on edges: layers of sums "
                         "of maps of i, j and e, with one activation between "
                         "them")
    for node, kind in kinds.items():
        fact = steps.facts.of(node)
        if kind != "mlp" and fact.rows == _nodes.EDGES and (
                kind == "wide" or fact.place == EDGE):
            raise TraceError((node.line + ": " if node.line else "") +
                             f"{node.name} would write {list(node.shape[1:])} "
                             "for each edge outside of the MLP")
    if writes:
        return
    between = {node for stage in steps.programs for node in (
        *stage.inputs, *stage.outputs)} - set(steps.stages.outputs)
    for node in map(steps.facts.now, between):
        fact = steps.facts.of(node)
        if fact.rows == _nodes.EDGES and fact.role not in ("given", "lift"):
            raise TraceError(f"{list(node.shape[1:])} for each edge would be "
                             "written between it and a program")


def steps_of(trace, writes=True):
    """(the Steps, the tensors that it is given) of what a function returns,
    trace(recorder); raises TraceError if it is not one of MLPs on edges.
    writes: whether what is between those and programs may be written."""
    recorder = _nodes.Noted()
    try:
        values, _ = trace(recorder)
        handles = [v.handle for v in values]
        if any(isinstance(x, float) or v.place == PARAM
               for x, v in zip(handles, values)):
            raise TraceError("it returns a value that has no rows")
        if len({t.dtype for t in recorder.tensors}) != 1:
            raise TraceError("its tensors are of several types")
        steps = staged(recorder.nodes, handles, whole=False)
    except (TraceError, TypeError, RuntimeError) as error:
        raise TraceError(str(error)) from None
    _check_mlps(steps, writes)
    return steps, recorder.tensors
