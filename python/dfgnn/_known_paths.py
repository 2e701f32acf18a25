"""The times of the ways that a layer or a choice of _ways.py has, for later
processes.

A file beside the user's store has a line of JSON for each; one that is none is
passed over, and where nothing can be written each process times anew.
"""

import hashlib
import inspect
import json
import math
import os
import sys

import torch

from ._handle import context
from ._modes import autocast_dtype

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
    return None if not key or file is None else _known(file).get(key)


def _known(file):
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


def keep(key, times):
    """Adds a line with the ms by way."""
    file = place()
    if not key or file is None:
        return
    _known(file)[key] = times
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
    """What a decision depends on, as a digest; None of a class whose code is
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
    """What times depend on beside a call."""
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


def rounded(number):
    return number if number < 128 else -round(2 * math.log2(number))
