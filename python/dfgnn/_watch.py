"""What a function does with tensors, as a graph of torch's calls.

The function is called once with tensors that hold nothing (torch's meta
tensors): torch itself says which shape and type each call gives, and each call
is noted as a Node.  How many edges and nodes there are is not known meanwhile:
rows are Counts, with which Python can shape tensors and not calculate.  A
function that asks what a tensor holds is refused (TraceError), with its line.
"""

import functools
import inspect

import torch
from torch.overrides import TorchFunctionMode

from ._autocast import autocast_dtype
from ._trace import PARAM, TraceError
from ._trace_errors import place_of_line, where

# Primes that no layer has as a number of features, so that the rows of edges
# and nodes are known in a shape.
EDGES, DESTINATIONS, SOURCES = 1299709, 1299721, 1299743
# rows up to the largest index of a destination, and of a source
TOP_DESTINATION, TOP_SOURCE = 1299763, 1299791
ROWS = {EDGES: "edges", DESTINATIONS: "destinations", SOURCES: "sources",
        TOP_DESTINATION: "destinations that have an edge",
        TOP_SOURCE: "sources that have an edge"}
MOST_NODES = 4096

_INFORMATION = {"shape", "dtype", "device", "ndim", "layout", "is_cuda",
                "is_cpu", "is_sparse", "is_quantized", "is_mkldnn", "is_meta",
                "is_mps", "is_xpu", "is_nested", "names", "itemsize",
                "is_sparse_csr"}
_LOOKS = {"__bool__", "item", "__float__", "__int__", "__index__", "tolist",
          "numpy", "__contains__", "equal", "allclose", "is_nonzero",
          "__array__", "nonzero", "unique", "cpu", "cuda", "data_ptr",
          "requires_grad_", "backward", "register_hook", "__setitem__",
          "storage", "untyped_storage", "__complex__", "set_", "resize_"}
_RANDOM = {"rand", "randn", "randint", "rand_like", "randn_like", "randperm",
           "bernoulli", "bernoulli_", "multinomial", "normal", "normal_",
           "uniform_", "randint_like", "gumbel_softmax", "poisson", "rrelu",
           "feature_dropout", "alpha_dropout", "exponential_"}
VIEWS = {"view", "reshape", "unsqueeze", "squeeze", "transpose", "permute",
         "expand", "expand_as", "flatten", "unflatten", "__getitem__",
         "select", "narrow", "chunk", "split", "unbind", "detach", "t", "T",
         "mT", "view_as", "contiguous", "to", "float", "double", "type_as",
         "movedim", "swapaxes", "reshape_as", "broadcast_to", "data", "type"}


# what autocast computes in its lower type, and what it raises to float32 on a
# GPU (torch's autocast_mode.h)
_LOWERED = {"linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm",
            "addmm", "addbmm", "baddbmm", "einsum", "chain_matmul", "mv",
            "addmv"}
_RAISED = {"__pow__", "__rdiv__", "__rpow__", "__rtruediv__", "acos", "asin",
           "cosh", "sinh", "tan", "exp", "expm1", "log", "log10", "log1p",
           "log2", "reciprocal", "rsqrt", "pow", "softplus", "layer_norm",
           "group_norm", "norm", "cosine_similarity", "softmax", "softmin",
           "log_softmax", "prod", "cumprod", "cumsum", "dist", "cdist",
           "renorm", "logsumexp", "sum"}


class Count(int):
    """How many rows there are: it shapes tensors, and is no number yet."""

    def __repr__(self):
        return f"the number of {ROWS[int(self)]}"


def _no_number(name):
    def refused(self, *others):
        raise TraceError(where() + f"{self!r} is used as a number")
    refused.__name__ = name
    return refused


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv",
              "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow",
              "rpow", "neg", "float", "round"):
    setattr(Count, f"__{_name}__", _no_number(_name))


class Node:
    """One call, or a tensor that is given (function is None).

    meta: a tensor of its shape and type, or several; line: of the caller;
    place: of a given tensor; key: what the given tensor is to the caller;
    end: "i" or "j" of an index by edge, "ij" of both.
    """

    __slots__ = ("function", "name", "args", "kwargs", "meta", "line", "place",
                 "key", "end", "clones", "flat")

    def __init__(self, function, name, args, kwargs, meta, line, place=None,
                 key=None, end=None):
        self.function, self.name = function, name
        self.args, self.kwargs, self.meta = args, kwargs, meta
        self.line, self.place, self.key, self.end = line, place, key, end
        self.clones = False  # whether the first argument is written to
        self.flat = not any(isinstance(x, (tuple, list, dict, slice))
                            for x in (*args, *kwargs.values()))

    @property
    def shape(self):
        return tuple(self.meta.shape)

    def operands(self):
        found = []
        _each((self.args, self.kwargs), found.append)
        return found

    def __repr__(self):
        return f"{self.name}{list(self.shape)}"


def _each(tree, function):
    if isinstance(tree, Node):
        function(tree)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            _each(item, function)
    elif isinstance(tree, dict):
        for item in tree.values():
            _each(item, function)


def mapped(tree, function):
    """The same nested tuples, lists and dicts of function(leaf)."""
    if type(tree) is tuple or type(tree) is torch.Size:
        return tuple(mapped(item, function) for item in tree)
    if isinstance(tree, tuple):  # a named one
        return type(tree)(*(mapped(item, function) for item in tree))
    if isinstance(tree, list):
        return [mapped(item, function) for item in tree]
    if isinstance(tree, dict):
        return {k: mapped(item, function) for k, item in tree.items()}
    if isinstance(tree, slice):
        return slice(*(mapped(x, function)
                       for x in (tree.start, tree.stop, tree.step)))
    return function(tree)


class Watched(torch.Tensor):
    """A tensor that holds nothing; .node says how it comes about."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        raise TraceError(
            where() + "a tensor that stood for others while a layer was "
            "traced is used afterwards: something has kept it")

    def __repr__(self):
        return f"<{self.node!r}>"


@functools.lru_cache(maxsize=None)
def _signature(function):
    """The signature of one of torch.nn.functional's with an inplace."""
    if not inspect.isfunction(function):
        return None
    try:
        found = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    return found if "inplace" in found.parameters else None


def _plain_inplace(function, args, kwargs):
    """(args, kwargs, whether it is in place) without inplace=True."""
    found = _signature(function)
    if found is None:
        return args, kwargs, False
    bound = found.bind(*args, **kwargs)
    inplace = bool(bound.arguments.get("inplace", False))
    if inplace:
        bound.arguments["inplace"] = False
    return bound.args, bound.kwargs, inplace


_GETTERS = {"__get__": lambda f: f.__self__.__name__}
_IN_PLACE = {"__iadd__", "__isub__", "__imul__", "__itruediv__", "__idiv__",
             "__ipow__"}


class Watch(TorchFunctionMode):
    """Notes what is done in its ``with`` block.

    known: by id, the key of each tensor that the function may find outside of
        its arguments, such as a parameter; others are refused.
    """

    def __init__(self, device, known):
        super().__init__()
        self.device, self.known = device, known
        self.lower = autocast_dtype(device.type)
        self.nodes, self.leaves, self.effects = [], {}, []
        self.refused = None
        self._kept_alive = []

    # ---- tensors that are given

    def given(self, key, shape, dtype, place, end=None):
        """A tensor that stands for one that is given, of this shape."""
        meta = torch.empty(shape, dtype=dtype, device="meta")
        node = Node(None, str(key), (), {}, meta, "", place, key, end)
        self.nodes.append(node)
        return self._watched(node)

    def _watched(self, node, storage=None):
        watched = node.meta.as_subclass(Watched)
        if watched is node.meta:
            watched = node.meta.view_as(node.meta).as_subclass(Watched)
        watched.node = node
        watched.storage = [] if storage is None else storage
        watched.storage.append(None)
        return watched

    def _leaf(self, tensor):
        """The node of a real tensor, which the function found."""
        found = self.leaves.get(id(tensor))
        if found is None:
            key = self.known.get(id(tensor))
            if key is None:
                self.refuse("a tensor is used that is neither an argument nor "
                            "a parameter, buffer or attribute of the module")
            meta = torch.empty_strided(tensor.shape, tensor.stride(),
                                       dtype=tensor.dtype, device="meta")
            found = Node(None, str(key), (), {}, meta, "", PARAM, key)
            self.leaves[id(tensor)] = found
            self.nodes.append(found)
            self._kept_alive.append(tensor)
        return found

    def refuse(self, text):
        self.refused = where() + text
        raise TraceError(self.refused)

    # ---- calls

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(function, "__name__", str(function))
        if name in _GETTERS:
            name = _GETTERS[name](function)
        seen = []
        mapped((args, kwargs), lambda x: seen.append(x)
               if isinstance(x, (torch.Tensor, Count)) else None)
        about_real = not any(isinstance(x, (Watched, Count)) for x in seen)
        if name in _INFORMATION or name in _SIZES:
            if about_real:
                return function(*args, **kwargs)
            return self._information(name, args, kwargs)
        if name == "requires_grad":
            return any(isinstance(x, torch.nn.Parameter) for x in seen)
        if name in ("is_floating_point", "is_complex", "is_tensor",
                    "is_same_size", "result_type", "promote_types",
                    "can_cast", "is_signed", "is_grad_enabled",
                    "is_autocast_enabled", "is_inference", "get_default_dtype",
                    "is_storage", "is_warn_always_enabled"):
            with torch._C.DisableTorchFunctionSubclass():
                return function(*self._metas(args), **self._metas(kwargs))
        if name == "__int__" and isinstance(args[0], Watched) and \
                args[0].node.name == "max" and args[0].node.end:
            return (TOP_DESTINATION if args[0].node.end == "i"
                    else TOP_SOURCE) - 1
        if name in _LOOKS:
            self.refuse(f"{name.strip('_')}() asks what a tensor holds, on "
                        "which Python then depends")
        if name == "_set_grad_enabled":
            self.refuse("gradients are turned off or on; edge programs have "
                        "detach()")
        if name in _RANDOM:
            self.refuse(f"{name} draws random numbers; dropout is what edge "
                        "programs have of those")
        return self._call(function, name, args, kwargs)

    def _metas(self, tree):
        def meta(x):
            if isinstance(x, Watched):
                return x.node.meta
            if isinstance(x, torch.Tensor):
                return self._leaf(x).meta
            return int(x) if isinstance(x, Count) else x
        return mapped(tree, meta)

    def _nodes_of(self, tree):
        def node(x):
            if isinstance(x, Watched):
                return x.node
            return self._leaf(x) if isinstance(x, torch.Tensor) else x
        return mapped(tree, node)

    def _call(self, function, name, args, kwargs):
        args, kwargs, inplace = _plain_inplace(function, args, kwargs)
        writes = inplace or name in _IN_PLACE or (
            name.endswith("_") and not name.endswith("__"))
        target = args[0] if writes and args else None
        if writes:
            self._check_write(target, name)
        metas, options = self._metas(args), dict(self._metas(kwargs))
        if self.lower is not None:
            metas, options = self._autocast(name, (metas, options))
        if writes and not inplace:
            metas = (metas[0].clone(), *metas[1:])
        if "device" in options:
            options["device"] = "meta"
        elif not any(isinstance(x, torch.Tensor) for x in
                     _flat((metas, options))):
            options["device"] = "meta"
        try:
            with torch._C.DisableTorchFunctionSubclass():
                made = function(*metas, **options)
        except TraceError:
            raise
        except Exception as error:
            self.refuse(f"{name}: {str(error).strip().splitlines()[0]}"
                        if str(error) else f"{name} fails")
        made_of = next((x for x in _flat((args, kwargs))
                        if isinstance(x, Watched)), None)
        return self._noted(function, name, args, kwargs, made, target,
                           made_of, clones=writes and not inplace)

    def _autocast(self, name, tree):
        """The tensors in the types that an autocast region gives them; torch
        has none for tensors that hold nothing."""
        kind = None
        if name in _LOWERED:
            kind = self.lower
        elif name in _RAISED and self.device.type == "cuda":
            kind = torch.float32

        def cast(x):
            if kind is None or not isinstance(x, torch.Tensor) or \
                    not x.is_floating_point() or x.dtype == torch.float64:
                return x
            with torch._C.DisableTorchFunctionSubclass():
                return x.to(kind)
        return mapped(tree, cast)

    def _check_write(self, target, name):
        if isinstance(target, Watched):
            if target.node.function is None and target.node.place is not None \
                    and not target.node.key[0] == "lifted":
                self.refuse(f"{name} writes into an argument")
            if len(target.storage) > 1:
                self.refuse(f"{name} writes into a tensor that has another "
                            "view")

    def _noted(self, function, name, args, kwargs, made, target, made_of,
               clones):
        if not isinstance(made, (torch.Tensor, tuple, list)):
            self.refuse(f"edge programs have no {name}")
        if len(self.nodes) >= MOST_NODES:
            self.refuse(f"more than {MOST_NODES} operations")
        args, kwargs = self._nodes_of(args), dict(self._nodes_of(kwargs))
        node = Node(function, name, args, kwargs, made, place_of_line())
        node.clones = clones
        node.end = _end(node)
        self.nodes.append(node)
        if isinstance(target, torch.Tensor) and not isinstance(
                target, Watched):
            self.effects.append(node)  # a buffer of the module is written to
            self.leaves[id(target)] = node
            return target
        if target is not None:
            target.node = node
            return target
        shared = made_of.storage if name in VIEWS and made_of is not None \
            else None
        if isinstance(made, torch.Tensor):
            return self._watched(node, shared)
        parts = []
        for k, meta in enumerate(made):
            part = Node(None, "part", (node, k), {}, meta, node.line)
            self.nodes.append(part)
            parts.append(self._watched(part, shared))
        kind = type(made)
        if kind in (tuple, list):
            return kind(parts)
        return kind(parts) if hasattr(made, "n_fields") else tuple(parts)

    def _information(self, name, args, kwargs):
        watched = args[0]
        if not isinstance(watched, Watched):
            self.refuse(f"{name} of what is no tensor")
        meta = watched.node.meta
        if name == "device":
            return self.device
        if name in ("is_cuda", "is_cpu", "is_meta"):
            return name == "is_" + self.device.type
        if name in ("shape", "size"):
            shape = tuple(Count(n) if n in ROWS else n for n in meta.shape)
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            return shape if dim is None else shape[dim]
        if name in ("dim", "ndimension", "ndim"):
            return meta.dim()
        if name == "numel" or name == "nelement":
            rows = [n for n in meta.shape if n in ROWS]
            return Count(rows[0]) if rows else meta.numel()
        if name == "__len__":
            return Count(meta.shape[0]) if meta.shape[0] in ROWS else \
                meta.shape[0]
        with torch._C.DisableTorchFunctionSubclass():
            return getattr(meta, name)


_SIZES = {"size", "dim", "ndimension", "numel", "nelement", "__len__"}


def _flat(tree):
    found = []
    mapped(tree, found.append)
    return found


def _end(node):
    """The end that an index by edge still belongs to after a call."""
    first = next(iter(node.operands()), None)
    if first is None or first.end is None:
        return None
    if first.end == "ij":
        key = node.args[1] if node.name in ("__getitem__", "select") else None
        if node.name == "select":
            key = node.args[2] if node.args[1] == 0 else None
        if key in (0, 1):
            return first.key[key + 1]
        return None
    if node.name in ("view", "unsqueeze", "expand", "expand_as", "reshape",
                     "long", "contiguous", "max", "view_as", "to", "repeat",
                     "squeeze", "clone", "detach"):
        if node.name == "max" and len(node.args) + len(node.kwargs) > 1:
            return None
        return first.end
    return None
