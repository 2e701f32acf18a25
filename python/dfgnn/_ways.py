"""Which of several ways a layer's sums and products go, where all of them have
the same result; and the times of ways, for later processes.

A choice ranks the ways that a call has, by estimates from the times beside it,
and gives the first of them, or the one that was the fastest when dfgnn.tune() of
a model measured the ways that a step meets.  Its times are kept by the machine
and by the arguments, where numbers count by half powers of 2.
"""

import contextlib
import functools
import hashlib
import inspect
import json
import math
import os
import sys

import torch

from . import _execute, _measure
from ._handle import context
from ._modes import autocast_dtype, compiling, jit_tracing

# ---- the file ----------------------------------------------------------------
#
# It is beside the user's store, with a line of JSON for each key; a line that is
# none is passed over, and where nothing can be written each process times anew.

MOST_BYTES = 1 << 20  # of the file, which begins anew beyond them
_PACKAGES = "torch", "torch_geometric", "dgl", "builtins", "dfgnn"
_files = {}  # by place, of each key the ms by way


def place():
    """The file; None if there is no user's store."""
    named = os.environ.get("DFGNN_STORE")
    if named is not None:
        store = named.split(":")[0]
        return store + ".paths" if store else None
    home = os.environ.get("XDG_DATA_HOME") or os.path.expanduser(
        "~/.local/share")
    return os.path.join(home, "dfgnn", "tuning.db.paths")


def look_up(key):
    """The ms by way; None if unknown."""
    file = place()
    return None if not key or file is None else _times_in(file).get(key)


def _times_in(file):
    if file not in _files:
        _files[file] = _read(file)
    return _files[file]


def _read(file):
    try:
        with open(file, "rb", opener=_open) as opened:
            lines = opened.read(MOST_BYTES).split(b"\n")
    except OSError:
        return {}
    return dict(filter(None, map(_entry, lines)))


def _entry(line):
    try:
        entry = json.loads(line)
        times = entry["ms"]
        if times and all(type(t) is float and 0 < t < math.inf
                         for t in times.values()):
            return str(entry["key"]), times
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # another program's, or cut off
    return None


def _open(file, flags):
    """The opened file; an error for a pipe, which would wait."""
    if os.path.exists(file) and not os.path.isfile(file):
        raise OSError(f"{file} is no file")
    return os.open(file, flags, 0o644)


def store(key, times):
    """Adds a line with the ms by way."""
    file = place()
    if not key or file is None:
        return
    _times_in(file)[key] = times
    # begins a line, as the one before may have been cut off
    line = "\n" + json.dumps({"key": key, "ms": times})
    try:
        os.makedirs(os.path.dirname(os.path.abspath(file)), exist_ok=True)
        with open(file, "ab", buffering=0, opener=_open) as opened:
            if opened.tell() > MOST_BYTES:
                opened.truncate(0)
            opened.write(line.encode())
    except OSError:
        pass  # it is read-only, or its disk is full


def key_of(layer, parts, recorded, graphs_of):
    """A digest of all that a decision depends on; None of a class whose code is
    not known.  Numbers of rows count by half powers of 2.

    graphs_of: gives the graphs that were made of a tensor."""
    own = getattr(type(layer), "_dfgnn_base", None)
    tensors = [t for t in parts if isinstance(t, torch.Tensor)]
    if own is None or not tensors:
        return None
    device = tensors[0].device
    try:
        where = machine(device)
        code = [inspect.getsource(kind) for kind in own.__mro__
                if _package(kind) not in _PACKAGES]
        text = repr(layer)
    except Exception:  # no store, no source, or an error of its own repr
        return None
    packages = {name: getattr(sys.modules[name], "__version__", "") for name
                in (*_PACKAGES, _package(own)) if name in sys.modules}
    facts = (
        own.__module__, own.__qualname__, code, text, sorted(
            (name, value) for name, value in vars(layer).items()
            if isinstance(value, (bool, int, float, str))
            and not name.startswith("_")),
        [(name, tuple(p.shape), p.dtype, p.requires_grad)
         for name, p in layer.named_parameters()],
        [_described(part, graphs_of) for part in parts], recorded, where,
        autocast_dtype(device.type),
        torch.get_float32_matmul_precision(), packages)
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()
    return f"{own.__name__} {digest[:32]}"


def machine(device):
    """All that times depend on beside a call."""
    info = context(device).device()
    return (sys.modules[__package__].__version__, device.type,
            info.model.decode(), info.units, torch.get_num_threads())


def _package(kind):
    return kind.__module__.partition(".")[0]


def _described(part, graphs_of):
    if isinstance(part, torch.Tensor):
        return part.dtype, part.requires_grad, tuple(map(
            rounded, part.shape)), [
                [rounded(graph.signature()[fact]) for fact in (
                    "max_degree", "max_source_degree", "p50_degree")]
                for graph in graphs_of(part)]
    if isinstance(part, int):
        return rounded(part)
    return part if isinstance(part, (float, str)) else type(part).__name__


def size_class(numbers):
    """The next power of 2, by which calls of many sizes have few choices."""
    return 1 << (numbers - 1).bit_length()


def rounded(number):
    return number if number < 128 else -round(2 * math.log2(number))


_known = {}  # by choice, device and arguments the way
_MOST_KNOWN = 4096
_forced = {}  # by the name of a choice, or its key, the way
_met = None  # by key the ranked ways and the way of each choice of a step


def _choice(ranked):
    """Decorates a function (device, *arguments) that gives the ways of a call,
    the one with the least estimate first."""
    @functools.wraps(ranked)
    def way(device, *arguments):
        if compiling() or jit_tracing():  # sizes may be no numbers
            return ranked(device, *arguments)[0]
        call = ranked.__name__, device, *arguments
        found = _known.get(call)
        if found is None or _met is not None:
            found = _find(call, ranked(device, *arguments))
        return found
    return way


def _find(call, ways):
    name, device, *arguments = call
    key = " ".join(map(str, (name, *machine(device), *(
        rounded(x) if type(x) is int else x for x in arguments))))
    way = _forced.get(name, _forced.get(key))
    if way not in ways:
        times = _measure.enabled and look_up(key) or {}
        way = min(ways, key=lambda one: times.get(one, float("inf")))
    if len(_known) >= _MOST_KNOWN:
        _known.clear()
    _known[call] = way
    if _met is not None and len(ways) > 1:
        _met[key] = name.replace("_", " "), ways, way
    return way


@contextlib.contextmanager
def forced(**ways):
    """Has choices, by name or by key, take ways where a call has them."""
    before = dict(_forced)
    _forced.update(ways)
    _changed()
    try:
        yield
    finally:
        _forced.clear()
        _forced.update(before)
        _changed()


def _changed():
    _known.clear()
    _execute.forget_plans()


@contextlib.contextmanager
def watch():
    """A dict that gets the choices of the calls inside: by key their name, their
    ways, and the way that the call took."""
    global _met
    before, _met = _met, {}
    _changed()  # what is kept of earlier calls asks again
    try:
        yield _met
    finally:
        _met = before


def keep(key, times):
    """Has later calls and processes take the fastest of ways, given the ms of
    each."""
    store(key, times)
    _changed()


FEW_NUMBERS = {"cpu": 1 << 15, "cuda": 1 << 24}
if os.environ.get("DFGNN_DETERMINISTIC", "0") != "0":
    del FEW_NUMBERS["cuda"]  # where torch adds in no order


@_choice
def product_of_edge_features(device, features, width):
    """Kernels multiply an edge's features by the matrix, or one product of all
    edges does before them."""
    # On an H200 with 1.2 million edges and 128 features in f32, forward and
    # backward take 3.7 ms for 11 features of an edge and 9.8 ms for 64; for edges
    # projected before they take 3.4 ms, to which the time of the product is added.
    # On a CPU with 10 to 100 thousand edges the product first takes .4 to .93 of
    # the time for 48 and 64 features of an edge, .5 to 1.4 times as long for 24
    # and 32, and twice as long for 4.
    ways = "in kernels", "before"
    return ways if features <= {"cuda": 16}.get(device.type, 32) \
        else ways[::-1]


@_choice
def sums_over_types(device, types, relations, rows):
    """The layers of sums of all types of nodes are one node of autograd, with a
    product for each type, or a few batched products."""
    # on a CPU large tiles take 1.1 to 1.6 times as long as products of types
    ways = "one node", "tiles"
    return ways[::-1] if types > 16 and (
        device.type == "cuda" or rows <= 64 * relations) else ways


@_choice
def rows_of_relations(device, rows, edges):
    """Relations have a row for each of their nodes, or for each that has
    edges."""
    ways = "nodes", "pairs"
    return ways if 2 * rows <= 3 * edges else ways[::-1]


@_choice
def gatv2_of_relations(device, edges, features):
    """All relations are one edge program with a vector of each row, or each has
    the operator's kernels."""
    # On a CPU 14 relations of 15 to 75 edges and 64 features take as long by one
    # pass as one by one, of 150 to 700 edges and 16 to 128 features twice as long.
    ways = "one pass", "each relation"
    return ways if device.type != "cpu" or edges * features <= 1 << 15 \
        else ways[::-1]


@_choice
def attention_of_relations(device, saved, weights, tf32):
    """Attention sums features that are projected, or those that came, so that
    sums are projected and `saved` rows fewer times a matrix of so many
    weights."""
    # 2^30 multiplications fewer are worth the launches; products in tf32 cost less
    # than sums of wide features
    ways = "projected first", "projected last"
    return ways[::-1] if saved * weights >= 1 << 30 and not tf32 else ways


@_choice
def sums_over_relations(device, nodes, edges, relations, bases, of_features):
    """Sums of typed edges multiply each (node, relation) pair that has edges, each
    node by all relations, or each node by the bases that relations share
    (0: none)."""
    # the rows of features that both passes move: a table is written, and so is its
    # gradient; a pair's features are gathered, reduced, multiplied and added; an
    # edge reads a row of each basis
    table = relations * nodes
    rows = {"by pair": 9 * edges} if of_features else {}
    rows["by node"] = 2 * table + edges
    if bases and device.type == "cuda":
        # launches bind a GPU, and a head for each basis takes the fewest
        rows["by bases"] = 0 if 3 * edges * bases < (3 + bases / 2) * table \
            else float("inf")
    elif bases:
        rows["by bases"] = bases * (nodes + edges)
    return sorted(rows, key=rows.get)


@_choice
def products_of_groups(device, rows, groups, in_one_kernel):
    """Groups of rows are multiplied one by one, in tiles by a batched product, or
    by torch's grouped product."""
    # Each tile takes a copy of its weights, and small groups leave much of a large
    # tile empty.
    sizes = (("tiles of 32", 64), ("tiles of 128", 512)) \
        if device.type == "cpu" else (("tiles of 128", 8192),)
    ways = [way for way, _ in sizes] + ["one by one"]
    if groups <= 8:
        best = "one by one"
    else:
        best = next((way for way, most in sizes if rows <= groups * most),
                    "one by one")
    if in_one_kernel:
        ways.append("one kernel")
        best = best if best == "one by one" else "one kernel"
    return sorted(ways, key=lambda way: way != best)


@_choice
def sums_by_index(device, reduce, numbers, width):
    """scatter() of numbers, in rows of a width, is a kernel's, which makes the
    index's graph, or torch's."""
    # On a CPU torch's sums are as fast, and extremes of 960 rows of 16 took 1.2
    # times as long by kernels as by torch, of 64 .6 (one thread).  The host needs
    # 170 us more for the sum of few numbers and its gradient by kernels.
    extremes, ways = reduce in ("min", "max"), ("torch", "kernels")
    if device.type == "cuda":
        best = extremes or not small_sums(device, numbers)
    else:
        best = extremes and width >= 8 and numbers >= 1 << 15
    return ways[::-1] if best else ways


def small_sums(device, numbers):
    """Whether sums and means of neighbours, of so many numbers of edges, take less
    time by torch's operations, which need no graph, than by kernels."""
    # The host binds below, and autograd calls three operations in less time than a
    # function of Python's: a GIN of five layers on 20 nodes takes 3.1 ms, by
    # kernels 3.5, with new edges 3.3 and 4.0 (a core of a CPU).  On an H200
    # torch.compile's GIN on 2000 molecules, of 9.2 million numbers a layer, took
    # 1.13 times as long by kernels, and layers of 150 million .75 times.
    return numbers <= FEW_NUMBERS.get(device.type, 0)


def ordered():
    """Whether sums are to have a fixed order, which torch's on a GPU have not."""
    return torch.are_deterministic_algorithms_enabled() or not _measure.enabled


@_choice
def sums_of_neighbours(device, numbers):
    """Sums and means of neighbours, of so many numbers of edges, are torch's
    operations or kernels."""
    ways = "torch", "kernels"
    return ways if small_sums(device, numbers) else ways[::-1]


GRAPHS_PAY = ("cuda",)  # where kernels are faster on a graph that is made


def graphs_pay(device):
    """Whether kernels are faster on a graph that is there, and no way is asked
    for or measured."""
    return device.type in GRAPHS_PAY and not _forced and _met is None


def sums_by_torch(device, numbers, lasting):
    """Whether sums_of_neighbours() are torch's.  lasting: a function that tells
    whether a graph is there, or will serve later calls."""
    # On an H200 a step of GINConv and SAGEConv on Cora, CiteSeer and PubMed takes
    # .68 to 1.0 of the time by kernels, each beside PyG's in its run.
    return sums_of_neighbours(device, numbers) == "torch" and (
        device.type not in GRAPHS_PAY or bool(_forced) or not lasting())
