"""A graph that torch.compile made of a function of edges, as Nodes.

torch.compile's guards say when the graph holds; sizes are symbols in it.  Those
of edges and nodes are rows; any other is the number that it is now, on which a
guard then is.
"""

import functools
import operator
import re

import torch
from torch import SymBool, SymFloat, SymInt, Tensor

from ._nodes import (
    DESTINATIONS, EDGES, Node, ROWS, SOURCES, TOP_DESTINATION, TOP_SOURCE,
    VIEWS, mapped)
from ._translations import canonical
from ._trace import DST, EDGE, PARAM, SRC, TraceError
from ._trace_errors import is_users

MOST_NODES = 4096
# what takes the sizes of a tensor
_SHAPES = {"view", "reshape", "expand", "new_zeros", "zeros", "ones",
           "new_ones", "new_empty", "empty", "unflatten", "broadcast_to",
           "full", "new_full"}
# what takes a tensor for a number
_NUMERIC = {"__mul__", "__add__", "__sub__", "__truediv__", "__rmul__",
            "__radd__", "__rsub__", "__rtruediv__", "__imul__", "__iadd__",
            "__isub__", "__itruediv__", "mul", "add", "sub", "div", "__lt__",
            "__le__", "__gt__", "__ge__", "lt", "le", "gt", "ge"}
_RANDOM = {"gumbel_softmax", "dropout1d", "dropout2d", "dropout3d",
           "feature_dropout", "alpha_dropout", "feature_alpha_dropout"}
_KEEPS = {"batch_norm", "instance_norm"}
_IN_PLACE = {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__ipow__"}
_NUMBERS = (SymInt, SymFloat, SymBool)
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')


def line_of(stack):
    """The user's line, "file, line n", of a stack as torch writes it."""
    places = [f"{path}, line {line}" for path, line in _PLACE.findall(
        stack or "") if is_users(path)]
    return places[-1] if places else ""


def _lines(nodes):
    """(node, the user's line); that of the next where one has none."""
    pairs, line = [], ""
    for node in reversed(nodes):
        line = line_of(node.meta.get("stack_trace")) or line
        pairs.append((node, line))
    return reversed(pairs)


class Rows:
    """Which sizes are numbers of edges and of nodes.

    .flipped: whether the first row of the edge_index receives.  .sources,
    .destinations: their sizes.
    """

    def __init__(self, graph, edges):
        self.edges, self.flipped = edges, False
        self.counted = {}  # by size, which rows
        self.rows_of = ends = {edges: "ij"}
        sizes = {"0": [], "1": []}
        reduced = set()
        for node in graph.nodes:
            if node.op not in ("call_method", "call_function"):
                continue
            name, args = _name(node), node.args
            end = _row_of(name, node, ends)
            if end:
                ends[node] = end
            elif name == "index_select" and ends.get(
                    _keyword(node, 2, "index"), "ij") != "ij":
                sizes[ends[_keyword(node, 2, "index")]].append(node)
            elif name == "getitem" and not isinstance(args[1], (
                    tuple, slice)) and ends.get(args[1], "ij") != "ij":
                sizes[ends[args[1]]].append(node)
            elif canonical(name) in ("scatter_add", "scatter_reduce",
                                     "index_add") and ends.get(
                    _keyword(node, 2, "index"), "ij") != "ij":
                end = ends[_keyword(node, 2, "index")]
                reduced.add(end)
                sizes[end].append(node)
        self.flipped = reduced == {"0"}
        self.ends = ("i", "j") if self.flipped else ("j", "i")
        tops = self._tops(graph)
        counts = []
        for row in ("0", "1"):
            sizes[row] = [n for n in sizes[row] if isinstance(
                _meta(n.args[0]), Tensor) and _meta(n.args[0]).dim()
                and _key(_meta(n.args[0]).shape[0]) not in tops]
            known = {_key(x.shape[0]): x.shape[0] for x in (
                _meta(n.args[0]) for n in sizes[row])}
            if len(known) > 1 and not _all_equal(list(known.values())):
                line = dict(_lines(graph.nodes))[next(
                    n for n in sizes[row] if _key(_meta(n.args[0]).shape[0])
                    != next(iter(known)))]
                raise TraceError((line + ": " if line else "") +
                                 "values of nodes have several numbers of "
                                 "rows")
            counts.append(next(iter(known.values()), None))
        if counts == [None, None]:
            raise TraceError("nothing says how many nodes there are")
        first, second = (counts[0] if counts[0] is not None else counts[1],
                         counts[1] if counts[1] is not None else counts[0])
        self.sources, self.destinations = (
            (second, first) if self.flipped else (first, second))
        self.count = _meta(edges).shape[1]
        if any(isinstance(n, int) and n < 2 for n in (
                self.count, self.sources, self.destinations)):
            raise TraceError("there is one edge or node alone")
        self._count(self.sources, SOURCES)
        self._count(self.destinations, DESTINATIONS)
        self._count(self.count, EDGES)
        self.counted.update(tops)
        keys = list(map(_key, (self.count, self.sources, self.destinations)))
        if keys[0] in keys[1:]:
            raise TraceError("nodes have as many rows as there are edges")

    def _count(self, size, rows):
        self.counted[_key(size)] = rows

    def end_of(self, node):
        """"i" or "j" if a call gives an index by edge, or None."""
        row = self.rows_of.get(node)
        return self.ends[int(row)] if row in ("0", "1") else None

    def _tops(self, graph):
        """index.max() + 1 as a size."""
        tops = {}
        for node in graph.nodes:
            value = _meta(node)
            if _name(node) != "item" or not isinstance(value, SymInt):
                continue
            end = self.end_of(node.args[0])
            if end is not None:
                tops[_key(value + 1)] = TOP_DESTINATION if end == "i" else \
                    TOP_SOURCE
        return tops

    def size(self, n):
        """A number of rows as its sign, any other as a number."""
        sign = self.counted.get(_key(n))
        if sign is not None:
            return sign
        if isinstance(n, SymInt):
            try:
                n = int(n)
            except Exception:
                raise TraceError("a size depends on what a tensor "
                                 "holds") from None
        if n in ROWS:
            raise TraceError(f"a size is {n}")
        return n


def _all_equal(sizes):
    """Whether sizes are the same now, on which a guard then is."""
    try:
        return all(bool(n == sizes[0]) for n in sizes[1:])
    except Exception:  # one depends on what a tensor holds
        return False


def _key(n):
    """The key that tells a size from others."""
    return n.node.expr if isinstance(n, SymInt) else n


def _meta(node):
    return node.meta.get("example_value") if isinstance(
        node, torch.fx.Node) else None


def _keyword(node, place, name):
    return node.args[place] if len(node.args) > place else \
        node.kwargs.get(name)


def _row_of(name, node, ends):
    """Which row of the edge_index a call gives: "0", "1", "ij" of both."""
    first = node.args[0] if node.args else None
    row = ends.get(first) if isinstance(first, torch.fx.Node) else None
    if row is None or not isinstance(_meta(node), Tensor):
        if row == "ij" and name == "unbind":
            return "parts"
        return None
    if row == "parts" or row == "ij" and name == "getitem":
        return str(node.args[1]) if node.args[1] in (0, 1) else None
    if row == "ij" and name == "select":
        return str(node.args[2]) if node.args[1] == 0 else None
    if row != "ij" and name in (
            "view", "unsqueeze", "expand", "expand_as", "reshape", "long",
            "contiguous", "max", "view_as", "to", "repeat", "squeeze",
            "clone", "detach"):
        return None if name == "max" and len(node.args) + len(
            node.kwargs) > 1 else row
    return None


def _name(node):
    return node.target if isinstance(node.target, str) else getattr(
        node.target, "__name__", str(node.target))


def _dunder(node):
    """The name of a call, an operator's as Tensor's method."""
    name = _name(node)
    if getattr(operator, name, None) is node.target:
        return f"__{name.strip('_')}__"
    return name


class Notes:
    """The Nodes of a graph.

    numbers: which placeholders of Python's numbers stay parameters; others are
        constants, with a guard each.
    .nodes: Nodes; .effects: by the Node of a buffer, that of what is written
    to it; .statistics: buffers that calls of torch write to; .tree: the
    outputs; .rows: the Rows.
    """

    def __init__(self, module, edges, numbers=()):
        self.numbers, self.nodes, self.effects = numbers, [], {}
        self.statistics = []
        self.values, self.shared = {}, {}
        self.same, self.base = {}, {}  # by a written tensor: it, its buffer
        self.lifted, self.tree, self.line = {}, None, ""
        self.places = {}  # by the number of a placeholder, its place
        placeholders = [n for n in module.graph.nodes
                        if n.op == "placeholder"]
        try:
            self.rows = Rows(module.graph, edges)
            for k, node in enumerate(placeholders):
                self._placeholder(k, node, node is edges)
            for node, self.line in _lines(module.graph.nodes):
                self._node(node, module)
        except TraceError as error:
            reason = str(error)
            if self.line and not reason.startswith(self.line):
                reason = f"{self.line}: {reason}"
            raise TraceError(reason) from None

    @property
    def written(self):
        return [*self.effects, *self.statistics]

    def _placeholder(self, k, node, is_edges):
        value = _meta(node)
        if not isinstance(value, Tensor):
            self.values[node] = value
            return
        if getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False):
            self.values[node] = _Number(k, source_of(node))
            return
        if value.layout != torch.strided or type(value) not in (
                torch._subclasses.FakeTensor, torch.nn.Parameter):
            raise TraceError(f"{source_of(node)} is no plain tensor")
        place = EDGE if is_edges else self._place(value, source_of(node))
        self.places[k] = place
        note = Node(None, source_of(node), (), {}, self._empty(
            value, place), "", place, ("given", k))
        if is_edges:
            note.end, note.key = "ij", ("edge_index",)
        self._add(node, note)

    def _place(self, value, source):
        if not value.dim():
            return PARAM
        size = value.shape[0]
        rows = self.rows.counted.get(_key(size))
        if rows is None or not isinstance(size, SymInt) and \
                not source.startswith("L['kwargs']"):
            return PARAM
        if rows == SOURCES or rows == DESTINATIONS:
            return DST if rows == DESTINATIONS else SRC
        return EDGE

    def _empty(self, value, place=None):
        """A tensor of its shape and type that holds nothing."""
        shape = [self.rows.size(n) for n in value.shape]
        if place == PARAM:  # no size of it is one of rows
            shape = [int(n) for n in value.shape]
        return torch.empty(shape, dtype=value.dtype, device="meta")

    def _add(self, node, note, group=None):
        self.nodes.append(note)
        if len(self.nodes) > MOST_NODES:
            raise TraceError(f"more than {MOST_NODES} operations")
        self.values[node] = note
        self.shared[node] = group = [] if group is None else group
        group.append(node)

    def _node(self, node, module):
        if node.op == "placeholder":
            return
        if node.op == "output":
            self.tree = tuple(self._output(x) for x in node.args[0])
            return
        if node.op == "get_attr":
            target = module
            for part in node.target.split("."):
                target = getattr(target, part)
            raise TraceError(_refused(target))
        name = _dunder(node)
        value = _meta(node)
        if name in ("item", "wrapped_item", "__int__", "__float__") and \
                isinstance(value, _NUMBERS):
            self._item(node, value)
        elif isinstance(value, Tensor) or isinstance(
                value, (tuple, list)) and value and all(
                    isinstance(x, Tensor) for x in value):
            self._call(node, name, value)
        elif name == "Size" or isinstance(value, (tuple, list)):
            self.values[node] = mapped(node.args[0], self._value)
        elif isinstance(value, SymFloat) and all(
                x is None or not isinstance(self._value(x), _Number)
                for x in node.args):
            raise TraceError("a number of rows is used as a number")
        elif isinstance(value, SymInt):
            self.values[node] = value
        elif isinstance(value, (SymBool, bool)):
            self.values[node] = value
        elif name.startswith(("_check", "_assert")):
            return
        else:
            raise TraceError(_refused(node.target))

    def _output(self, x):
        value = self._value(x)
        if isinstance(value, _NUMBERS) or isinstance(value, _Number):
            raise TraceError("a number is a result")
        return value

    def _item(self, node, value):
        operand = self._value(node.args[0])
        if isinstance(operand, _Number):
            if operand.source in self.numbers:
                note = Node(None, operand.source, (), {}, torch.empty(
                    (), dtype=torch.float64, device="meta"), "", PARAM,
                    ("given", operand.k))
                self._add(node, note)
            else:
                self.values[node] = float(value)  # a guard is on it then
        elif isinstance(operand, Node) and operand.end in ("i", "j") and \
                operand.name == "max" and isinstance(value, SymInt):
            self.values[node] = value
        else:
            raise TraceError("item() asks what a tensor holds, on which "
                             "Python then depends")

    def _value(self, x):
        return self.values[self.same.get(x, x)] if isinstance(
            x, torch.fx.Node) else x

    def _argument(self, x, sizes):
        x = self._value(x)
        if isinstance(x, (SymFloat, SymBool, _Number)):
            raise TraceError("a number of rows is used as a number")
        if isinstance(x, SymInt):
            if not sizes:
                raise TraceError(
                    f"the number of {ROWS.get(self.rows.size(x), 'rows')} is "
                    "used as a number")
            return self.rows.size(x)
        if isinstance(x, int) and not isinstance(x, bool) and x in ROWS:
            raise TraceError(f"{x} is used as a number")
        if isinstance(x, tuple) or isinstance(x, list):
            return type(x)(self._argument(y, sizes) for y in x)
        return x

    def _call(self, node, name, value):
        if _draws(name):
            raise TraceError(f"{name} draws random numbers; dropout is what "
                             "edge programs have of those")
        sizes = name in _SHAPES
        args = mapped(node.args, lambda x: self._argument(x, sizes))
        kwargs = dict(mapped(node.kwargs, lambda x: self._argument(x, sizes)))
        if name in ("full", "new_full") and any(
                x in ROWS for x in (args[-1], kwargs.get("fill_value"))
                if isinstance(x, (int, float))):
            raise TraceError("the number of rows is used as a number")
        if kwargs.get("out") is not None:
            raise TraceError(f"{name} with out")
        if name == "view" and any(isinstance(x, torch.dtype) for x in (
                *args, *kwargs.values())):
            raise TraceError("bits are viewed as those of another type")
        if name in _KEEPS:
            self._keep(node, name)
        inplace = bool(kwargs.pop("inplace", False))
        if node.op == "call_function" and not inplace:
            args, inplace = _plain(node.target, args)
        if name == "__getitem__" and isinstance(args[0], Node) and \
                args[0].function is not None and isinstance(
                    args[0].meta, (tuple, list)):
            self._part(node, args[0], args[1], value)
            return
        writes = inplace or name in _IN_PLACE or (
            name.endswith("_") and not name.endswith("__"))
        function = node.target if node.op == "call_function" else getattr(
            Tensor, name)
        meta = self._empty(value) if isinstance(value, Tensor) else type(value)(
            self._empty(x) for x in value) if type(value) in (
                tuple, list) else tuple(map(self._empty, value))
        one = self._promoted(name, value, args)
        lift = self._lift(name, one)
        if lift is not None and lift in self.lifted:
            self.values[node] = self.lifted[lift]
            self.shared[node] = [node]
            return
        note = Node(function, name, one, kwargs, meta, self.line)
        note.end = self._end(node, note)
        note.clones = writes and not inplace
        if lift is not None:
            self.lifted[lift] = note
        if writes:
            self._write(node, name, note)
            return
        views = name in VIEWS or canonical(name) in ("view", "expand")
        source = next((self.same.get(x, x) for x in node.args if isinstance(
            x, torch.fx.Node) and self.same.get(x, x) in self.shared), None)
        self._add(node, note, self.shared[source] if views
                  and source is not None else None)

    @staticmethod
    def _lift(name, args):
        """The key that tells a gather from others."""
        if name == "index_select" and len(args) == 3 and isinstance(
                args[2], Node) and args[2].end in ("i", "j"):
            return args[0], args[1] % len(args[0].shape), args[2].end
        return None

    def _promoted(self, name, value, args):
        """The arguments in the type to which torch raises them, where a
        program would not."""
        if name in ("cat", "concat", "stack") and isinstance(
                args[0], (tuple, list)):
            kind = value.dtype
            return (type(args[0])(self._cast(x, kind) for x in args[0]),
                    *args[1:])
        numbers = [x for x in args if isinstance(x, Node) and x.name in
                   self.numbers]
        if numbers and (name not in _NUMERIC or any(
                isinstance(x, Node) and not x.meta.is_floating_point()
                for x in args)):
            raise TraceError(f"a number that changes in {name}")
        return args

    def _cast(self, x, kind):
        if not isinstance(x, Node) or x.meta.dtype == kind:
            return x
        note = Node(Tensor.to, "to", (x, kind), {}, x.meta.to(kind),
                    self.line)
        self.nodes.append(note)
        return note

    def _keep(self, node, name):
        """Notes the statistics that a call writes to."""
        if not (_keyword(node, 5, "training") or _keyword(
                node, 5, "use_input_stats")):
            return
        for k, keyword in enumerate(("running_mean", "running_var"), 1):
            buffer = _keyword(node, k, keyword)
            if buffer is None:
                continue
            if len(buffer.users) > 1 or self._value(buffer).key is None:
                raise TraceError(f"the statistics of {name} are read or "
                                 "written elsewhere")
            self.statistics.append(self._value(buffer))

    def _write(self, node, name, note):
        """A written tensor is another from here on; a buffer gets it
        when all has run, since steps do not run in this order."""
        target = node.args[0] if node.args else None
        target = self.same.get(target, target)
        if not isinstance(target, torch.fx.Node) or \
                target not in self.shared:
            raise TraceError(f"{name} writes into what is no tensor")
        before = self._value(target)
        if len(self.shared[target]) > 1:
            raise TraceError(f"{name} writes into a tensor that has another "
                             "view")
        if before.function is None:
            if before.place != PARAM or before.key is None:
                raise TraceError(f"{name} writes into an argument")
            self.base[target] = before
        if target in self.base:
            self.effects[self.base[target]] = note
        self.nodes.append(note)
        self.values[target], self.same[node] = note, target
        self.lifted = {k: v for k, v in self.lifted.items()
                       if k[0] is not before and v is not before}

    def _part(self, node, parent, k, value):
        if not isinstance(k, int):
            raise TraceError("a slice of several tensors")
        note = Node(None, "part", (parent, k), {}, self._empty(value),
                    self.line)
        note.end = self._end(node, parent)
        self._add(node, note, [node, node])

    def _end(self, node, call):
        """The end that an index by edge still belongs to after a call: none
        once it was written to."""
        first = next(iter(call.operands()), None)
        return None if first is None or first.end is None else \
            self.rows.end_of(node)


class _Number:
    """A number of Python's that is given as a tensor."""

    def __init__(self, k, source):
        self.k, self.source = k, source


def source_of(node):
    """The name that Dynamo gives a placeholder, such as L['kwargs']['x']."""
    graph_arg = node.meta.get("grapharg")
    name = getattr(getattr(graph_arg, "source", None), "name", "")
    return name() if callable(name) else name


def _plain(function, args):
    """(the arguments, whether it is in place) of a function of
    torch.nn.functional whose inplace is one of its args."""
    code = getattr(function, "__code__", None)
    names = code.co_varnames[:code.co_argcount] if code else ()
    if "inplace" in names:
        at = names.index("inplace")
        if len(args) > at:
            return (*args[:at], False, *args[at + 1:]), bool(args[at])
    return args, False


@functools.lru_cache(None)
def _draws(name):
    """Whether torch's function of a name draws random numbers."""
    packet = getattr(torch.ops.aten, name, None)
    return name in _RANDOM or name != "dropout" and any(
        torch.Tag.nondeterministic_seeded in getattr(packet, one).tags
        for one in getattr(packet, "overloads", list)())


def _refused(target):
    name = getattr(target, "__name__", str(target))
    if "grad_enabled" in name:
        return "gradients are turned off or on; edge programs have detach()"
    if "autocast" in name:
        return "an autocast region begins or ends"
    if "autograd_function" in name:
        return "a torch.autograd.Function has a gradient of its own"
    return f"edge programs have no {name}"
