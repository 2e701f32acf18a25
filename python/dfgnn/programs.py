"""Message functions of your own, fused, with gradients of any order.

    @dfgnn.edge_program
    def attention(i, j, e):              # receiving node, sending node, edge
        score = (i.q * (j.k + e.x)).sum(-1) / 32 ** .5
        return dfgnn.softmax(score) * (j.v + e.x)

    out = attention(graph, i={"q": q}, j={"k": k, "v": v}, e={"x": x})
"""

import functools
import operator
import warnings
from typing import NamedTuple

import torch

from . import (
    _abi, _evaluators, _program_calls, _program_operator, _rewrites, _steps,
    _trace)
from ._checks import check_tensor
from ._device import make_seed
from ._modes import compiling, constant, needs_composite, untraced
from ._names import LETTERS, MessageFunction, Names, plain, surroundings
from ._program_calls import EDGE, PARAM, SRC
from ._relations import by_type
from ._steps import Steps
from ._torch_library import place
from ._trace import OVER_EDGES, TraceError
from .convert import of_sizes
from .errors import Error, InvalidError, UnsupportedError
from .graph import Graph
from .hetero import HeteroGraph

__all__ = ["EdgeProgram", "TraceError", "edge_program", "softmax",
           "logsumexp", *OVER_EDGES]


globals().update(OVER_EDGES)


def softmax(x):
    """The softmax over the in-edges of each destination, in an edge
    program; each axis has its own."""
    return OVER_EDGES["softmax_in"](x)


def logsumexp(x):
    """log(sum(exp(x))) over the in-edges of each destination, in an edge
    program."""
    return OVER_EDGES["logsumexp_in"](x)


def _by_letter(i, j, e, others):
    """The tensors of each letter; r is one if it is a dictionary, too."""
    by_letter = {"i": i, "j": j, "e": e}
    if isinstance(others.get("r"), dict):
        by_letter["r"] = others.pop("r")
    return by_letter


def _name_of(op):
    return next(name for name, number in _abi.OPS.items() if number == op)


def _sizes_of(by_letter):
    """(sources, destinations) by the rows of j and of i; None if it has
    none."""
    def rows(letter):
        tensors = [t for t in (by_letter[letter] or {}).values()
                   if isinstance(t, torch.Tensor) and t.dim()]
        return tensors[0].size(0) if tensors else None
    return rows("j"), rows("i")


def _tensors_of(by_letter, others):
    """All tensors, in the order of a function that looks at all of them."""
    tensors = [t for letter in LETTERS for t in (
        by_letter.get(letter) or {}).values()]
    return tensors + [v for v in others.values()
                      if isinstance(v, torch.Tensor)]


def static(shape):
    """Sizes that torch.compile then takes as they are."""
    return tuple([operator.index(n) for n in shape])


_ROWS = {"i": "N", "j": "M", "e": "E", "r": "R"}  # as check_tensor() has them


class _Traced(NamedTuple):
    """The trace of a kind of calls."""
    program: _program_calls.Program
    outputs: list  # the place of each
    types: tuple
    single: bool
    random: bool
    native: bool  # whether every tensor is of a type that programs take
    wide: object = None  # the Steps of MLPs on edges, or why there are none


def _wide_serves(traced, graph):
    """Whether MLPs on edges run such a call."""
    return isinstance(traced.wide, Steps) and graph.exchange is None and \
        graph.num_edges > 0


class EdgeProgram(MessageFunction):
    """The program that :func:`edge_program` makes of a function."""

    _warned = False  # why a GPU runs torch's operations

    def __init__(self, function, reduce):
        super().__init__(function, reduce)
        self._found = {}  # what was traced, by the kind of call

    def _trace(self, recorder, by_letter, others):
        """The values that the function returns, and whether it was one."""
        arguments = dict(others)
        for letter in LETTERS:
            if letter not in self.names or letter in others:
                continue
            tensors = by_letter.get(letter) or {}
            arguments[letter] = Names(letter, {
                name: recorder.input(f"{letter}_{name}", tensor,
                                     LETTERS[letter])
                for name, tensor in tensors.items()})
        for name, value in list(arguments.items()):
            if isinstance(value, torch.Tensor):
                arguments[name] = recorder.input(f"p_{name}", value, PARAM)
        outs = self.function(**arguments)
        single = not isinstance(outs, (tuple, list))
        values = [recorder.value(v) for v in ([outs] if single else outs)]
        if self.reduce:
            reduce = _trace.method(self.reduce + "_in")
            values = [reduce(v) if v.place in (SRC, EDGE) else v
                      for v in values]
        return values, single

    def _written(self, by_letter, others):
        """(the recorder of the program, its values, whether it is one)."""
        recorder = _evaluators.Text()
        return recorder, *self._trace(recorder, by_letter, others)

    def _check(self, graph, by_letter):
        sizes = {"N": graph.num_dst, "M": graph.num_src, "E": graph.num_edges}
        if by_letter.get("r"):
            sizes["R"] = graph.num_relations
        for letter, tensors in by_letter.items():
            if tensors and letter not in self.names:
                raise TypeError(f"{self.__name__} takes no {letter}")
            rows = _ROWS[letter]
            for name, tensor in (tensors or {}).items():
                if not isinstance(tensor, torch.Tensor) or not tensor.dim() \
                        or tensor.size(0) != sizes[rows]:
                    check_tensor(f"{letter}.{name}", tensor, rows + "*", sizes,
                                 dtypes=None)

    @staticmethod
    def _check_tensors(recorder, graph):
        """The library reads memory of the graph's device, real numbers."""
        for name, tensor in zip(recorder.names, recorder.tensors):
            check_tensor(name, tensor, "*", {}, graph.device)

    @staticmethod
    def _prepared(graph, by_letter):
        """Tensors in the order of the graph, of other ranks too."""
        def ready(letter, tensor):
            if not (tensor.is_floating_point() or tensor.is_complex()):
                tensor = tensor.to(torch.get_default_dtype())
            if letter == "e":
                return graph.to_graph_order(tensor)
            return graph.extend(tensor) if letter == "j" else tensor
        return {letter: {name: ready(letter, t) for name, t in
                         (tensors or {}).items()}
                for letter, tensors in by_letter.items()}

    def text(self, i=None, j=None, e=None, **others):
        """The program of these tensors, as text: dfgnn-program(5)."""
        by_letter = by_type.any_order(_by_letter(i, j, e, others))
        recorder, values, _ = self._written(by_letter, others)
        return recorder.text(values)

    def explain(self, i=None, j=None, e=None, **others):
        """The way that a call with these tensors runs."""
        by_letter = by_type.any_order(_by_letter(i, j, e, others))
        recorder, values, _ = self._written(by_letter, others)
        program = _program_calls.parse(recorder.text(values))
        wide, _ = self._wide(recorder, by_letter, others)
        device = recorder.tensors[0].device if recorder.tensors else "cpu"
        rows, columns = program.walks()
        builtin = program.operator()
        how = (f"the library's operator {_name_of(builtin.op)}" if builtin else
               "an MLP on edges, as dfgnn.edge_mlp" if isinstance(
                   wide, Steps) else
               "the library's evaluator, fused" if str(device) == "cpu" else
               "generated kernels, fused")
        return (f"{self.__name__}, hash {program.hash:016x}, on {device}: "
                f"{how}; {rows} walks over rows, {columns} over columns\n"
                + program.text)

    def problem(self, graph, i=None, j=None, e=None, *, backward=False,
                **others):
        """The _abi.Problem of a call with these tensors on a graph, or of its
        gradient by those that require one (by all, if none does)."""
        by_letter = _by_letter(i, j, e, others)
        if isinstance(graph, HeteroGraph):
            by_letter = by_type.joined(graph, by_letter)
            graph = graph.with_relations()
        recorder, values, _ = self._written(by_letter, others)
        program = _program_calls.parse(recorder.text(values))
        wide, _ = self._wide(recorder, by_letter, others)
        if isinstance(wide, Steps):
            raise InvalidError(
                "the program runs as MLPs on edges, whose kernels are not "
                "tuned; dfgnn.tune(step, ...) of a function that does a step "
                "measures the programs beside them")
        wanted = [t.requires_grad for t in recorder.tensors]
        training = backward or any(wanted)
        wanted = wanted if any(wanted) else [True] * len(wanted)
        if backward:
            program = _program_calls.trained(program, wanted)
        elif training:
            program = program.keep((True,) * len(program.outputs), wanted)
        kinds = {t.dtype for t in recorder.tensors}
        narrow = sorted(kinds - {torch.float32, torch.float64}, key=str)
        return program.problem(_program_calls.TYPES[
            torch.float64 if torch.float64 in kinds else
            narrow[0] if narrow else torch.float32])

    def __call__(self, graph, i=None, j=None, e=None, *, composite=False,
                 **others):
        """graph: a Graph, what :func:`dfgnn.as_graph` takes, or a HeteroGraph.
        i, j, e: tensors by name, [destinations, ...], [sources, ...] and
            [edges, ...] in the caller's order of edges, with at most three
            further axes.
        r: tensors by name, [relations, ...], for a graph that set_relations()
            gave relations.
        others: the function's further arguments; tensors are parameters.
        composite: computed with torch's operations, as in torch.func, or where
            no kernel can be made, which a warning says.

        Over a HeteroGraph tensors of i and j may be dictionaries by type of
        nodes, those of e and r by relation, all of one width; or tensors, with
        the rows of HeteroGraph.by_node(), in the order of its edges and of its
        relations.  Results of nodes are dictionaries by type, those of edges
        and of relations dictionaries by relation.
        """
        by_letter = _by_letter(i, j, e, others)
        if compiling() and not composite and \
                not isinstance(graph, HeteroGraph):
            outs = self._compiled(graph, by_letter, others)
            if outs is not None:
                return outs
        return self._called(graph, by_letter, others, composite)

    @untraced
    def _called(self, graph, by_letter, others, composite):
        types = graph if isinstance(graph, HeteroGraph) else None
        if types is None:
            if not isinstance(graph, Graph):
                graph = of_sizes(graph, lambda: _sizes_of(by_letter))
        else:
            graph = types.with_relations()
            by_letter = by_type.joined(types, by_letter)
        self._check(graph, by_letter)
        on_gpu = graph.device.type != "cpu"
        if composite or needs_composite():
            outs, places, single = self._run_torch(graph, by_letter, others)
        else:
            try:
                outs, places, single = self._run(graph, by_letter, others)
            except UnsupportedError as reason:
                if not on_gpu:
                    raise
                self._tell(graph, reason)
                outs, places, single = self._run_torch(graph, by_letter, others)
        if types is not None:
            outs = [by_type.split(types, x, place)
                    for x, place in zip(outs, places)]
        return outs[0] if single else tuple(outs)

    def _compiled(self, graph, by_letter, others):
        """The call as an operator of torch.library; None if it cannot be one,
        as where the function finds a tensor outside of itself."""
        num_src, num_dst = _sizes_of(by_letter)
        if isinstance(graph, Graph):
            if graph.exchange is not None:
                return None
            num_src, num_dst = graph.num_src, graph.num_dst
            self._check(graph, by_letter)
        elif num_src is None or num_dst is None:
            return None
        tensors, kinds = [], []
        for letter, named in by_letter.items():
            for name, t in (named or {}).items():
                tensors.append(t)
                kinds.append((letter, name, static(t.shape[1:]), t.dtype,
                              t.requires_grad))
        plain = []
        for name, value in others.items():
            if isinstance(value, torch.Tensor):
                tensors.append(value)
                kinds.append(("", name, static(value.shape), value.dtype,
                              value.requires_grad))
            else:
                plain.append((name, value))
        about = self._described(tuple(kinds), tuple(plain),
                                torch.is_grad_enabled())
        if about is None:
            return None
        single, random, count, types, name = about
        about = _program_operator.about(name, types, random)
        tensors = [t if t.is_floating_point() else
                   t.to(torch.get_default_dtype()) for t in tensors]
        if random:
            tensors = [make_seed(tensors[0].device), *tensors]
        outs = _program_operator.run(about, place(graph, num_src, num_dst),
                                     tensors)[:count]
        return outs[0] if single else tuple(outs)

    @constant
    def _described(self, kinds, plain, differentiated):
        """The facts of such a call for _compiled(); None if it must run outside
        of compiled code."""
        by_letter, others = {letter: {} for letter in LETTERS}, dict(plain)
        for letter, name, shape, dtype, _ in kinds:
            tensor = torch.empty((1, *shape) if letter else shape,
                                 dtype=dtype, device="meta")
            (by_letter[letter] if letter else others)[name] = tensor
        try:
            recorder, values, single = self._written(by_letter, others)
            program = _program_calls.parse(recorder.text(values))
        except (TraceError, Error):
            return None  # which the call itself raises
        if isinstance(self._wide(recorder, by_letter, others)[0], Steps):
            return None
        types = [t.dtype for t in recorder.tensors]
        if len(types) != len(kinds) or not types or any(
                t not in _program_calls.TYPES for t in types):
            return None
        random, out = "dropout(" in program.name, len(values)
        kind = functools.reduce(torch.promote_types, types)
        wanted = [differentiated and w for *_, w in kinds]
        if any(wanted):
            program = program.keep((True,) * out, wanted)
        result_types = _program_calls.types_of(
            program, recorder.tensors, [kind] * len(program.outputs))
        return single, random, out, tuple(
            _program_operator.numbers_of(result_types)), program.name

    def _tell(self, graph, reason):
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"edge program {self.__name__} runs as torch operations on "
                f"{graph.device}, with values of every edge in memory: "
                f"{reason}", stacklevel=4)

    def _run(self, graph, callers, others):
        """callers: the tensors by letter in the caller's order of edges."""
        key = self._key(callers, others)
        traced = None if key is None else self._found.get(key)
        rows = _tensors_of(callers, others)
        if traced is not None and any(t.device != graph.device for t in rows):
            self._check_tensors(self._written(callers, others)[0],
                                graph)
        if traced is not None and traced.native and graph.exchange is None \
                and (not callers.get("e") or graph.edge_order is None):
            tensors = rows
        elif traced is None or not _wide_serves(traced, graph):
            prepared = self._prepared(graph, callers)
            tensors = _tensors_of(prepared, others)
        if traced is None:
            recorder, values, single = self._written(prepared, others)
            self._check_tensors(recorder, graph)
            text = recorder.text(values)
            wide, wide_rows = self._wide(recorder, callers, others)
            kind = functools.reduce(
                torch.promote_types, [t.dtype for t in recorder.tensors]) \
                if recorder.tensors else torch.float32
            traced = _Traced(
                _program_calls.parse(text), [v.place for v in values],
                (kind,) * len(values), single, "dropout(" in text,
                all(t.dtype in _program_calls.TYPES for t in rows), wide)
            if isinstance(wide, Steps):
                wide.probe(graph)
                rows = wide_rows
            if key is not None and len(recorder.tensors) == len(tensors) and \
                    all(a is b for a, b in zip(recorder.tensors, tensors)):
                self._found[key] = traced
            tensors = recorder.tensors
        if _wide_serves(traced, graph):
            with torch.autocast(graph.device.type, enabled=False):
                outs = traced.wide.run(graph, lambda key: rows[key[1]])
        else:
            outs = self._run_program(graph, traced, tensors)
        return outs, traced.outputs, traced.single

    def _run_program(self, graph, traced, tensors):
        seed = make_seed(graph.device) if traced.random else None
        try:
            outs = _program_calls.run(traced.program, graph, traced.types, seed,
                                 *tensors)[:len(traced.outputs)]
        except UnsupportedError as error:
            if not isinstance(traced.wide, str):
                raise
            raise UnsupportedError(
                f"{error}. As an MLP on edges, which dfgnn.edge_mlp computes "
                f"for widths up to 4096, it is not taken: {traced.wide}"
            ) from None
        return self._in_callers_order(graph, outs, traced.outputs)

    def _wide(self, recorder, by_letter, others):
        """The form that _steps gives a function in which a recorder found wide
        linear maps: (its Steps, tensors), or (why there are none, None); (None,
        None) if it found none."""
        if recorder.widest <= _rewrites.INLINE:
            return None, None
        try:
            return _steps.steps_of(
                lambda rows: self._trace(rows, by_letter, others),
                writes=recorder.widest > _steps.MOST_PRODUCTS)
        except TraceError as error:
            return str(error), None

    def _key(self, by_letter, others):
        """The values that a trace depends on; None if one of them cannot be
        compared."""
        try:
            return (
                tuple([(letter, name, t.shape[1:], t.dtype)
                       for letter in LETTERS
                       for name, t in (by_letter.get(letter) or {}).items()]),
                tuple([(name, ("tensor", v.shape, v.dtype) if isinstance(
                    v, torch.Tensor) else plain(v))
                    for name, v in others.items()]),
                surroundings(self.function))
        except (TypeError, AttributeError, ValueError):
            return None

    def _run_torch(self, graph, by_letter, others):
        with torch.autocast(graph.device.type, enabled=False):
            recorder = _evaluators.Torch(graph)
            values, single = self._trace(
                recorder, self._prepared(graph, by_letter), others)
            outs = list(map(recorder.result, values))
            places = [v.place for v in values]
            return self._in_callers_order(graph, outs, places), places, single

    @staticmethod
    def _in_callers_order(graph, outs, places):
        return [graph.to_caller_order(x) if place == EDGE else x
                for x, place in zip(outs, places)]


def edge_program(function=None, *, reduce="sum"):
    """Makes a fused operation of a function of destination, source and edge.

    The function takes ``i`` (the receiving node), ``j`` (the sending node),
    ``e`` (the edge), or some of them, and further arguments by name.  Its
    values have the axes of a row: ``i.q`` of a tensor [N, heads, features]
    has heads and features.  A sum or another reduction along an axis leaves
    it with size 1, so that a number a head spreads over its row.  What it
    returns for an edge, or of a source, is reduced over the in-edges of each
    destination, as ``reduce`` says: "sum", "mean", "max", "min", or None for
    the values themselves; values of destinations stay.  Several values may be
    returned.

    It is called with values that stand for tensors, once for each kind of
    call (shapes, types, numbers among the arguments, and what it finds outside
    of itself), and has to do the same whatever they hold.  What edge programs
    do not have is refused by name, with its line (:class:`TraceError`).  The
    library runs the program
    without a value of every edge in memory: as one of its operators where the
    program is one, else with its evaluator on a CPU and with kernels that are
    made for the program on a GPU; :meth:`EdgeProgram.explain` says which.
    """
    if function is None:
        return functools.partial(edge_program, reduce=reduce)
    return EdgeProgram(function, reduce)
