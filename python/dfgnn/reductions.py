"""Reductions by an index or by segments, with the signatures of
torch_geometric.utils (scatter, segment, softmax) and of torch_scatter (the
others), and torch_scatter itself, for code that imports it.

The groups of an index are known once, for as long as the tensor lives and is
not written to: their number, for which nothing waits again, and their graph,
where kernels reduce them.
"""

import functools
import math
import sys
import types
from importlib.machinery import ModuleSpec

import torch
from torch import Tensor

from . import _remember, _ways
from ._checks import DTYPES, check_index, check_is_tensor
from ._evaluators import scattered
from ._modes import compiling, needs_composite
from ._remember import remember
from ._trace import OVER_EDGES
from .aggregation import aggregate, spmm
from .graph import Graph

_NAMES = {"add": "sum", "amin": "min", "amax": "max"}
_REDUCTIONS = "sum", "mean", "mul", "min", "max", "any"
_WIDEST = 65536  # features of a row that kernels take
_BY_KERNELS = "sum", "mean", "min", "max"


def group_count(index):
    """The largest number of an index plus one; nothing waits for a device
    where it is known."""
    if not index.numel():
        return 0
    current = _remember.current
    if current is not None and current.counts is not None:
        return current.counts.largest(index) + 1
    if compiling() or index.is_inference():
        return int(index.max()) + 1
    return remember(index, "groups", lambda: int(index.max()) + 1)


def fit(x, index, count, reduce):
    """Whether kernels reduce rows by an index [R]."""
    width = x.numel() // max(1, index.numel())
    return (reduce in _BY_KERNELS and x.device.type in ("cpu", "cuda")
            and x.dtype in DTYPES and type(x) in (torch.Tensor,
                                                  torch.nn.Parameter)
            and index.dtype in (torch.int32, torch.int64) and count > 0
            and 0 < width <= _WIDEST and not compiling()
            and not needs_composite()
            and not torch._C._len_torch_dispatch_stack()
            # the values of a captured step's index change with each call
            and _remember.current is None
            and (_ways.sums_by_index(x.device, reduce, _ways.size_class(
                x.numel()), width) == "kernels"
                 or x.is_cuda and _ways.ordered()))


def _rows(x, index, count, reduce):
    """x [R, F] reduced by index [R] to [count, F]; an empty group is 0, or 1 of
    a product."""
    if fit(x, index, count, reduce):
        def make():  # from rows to their groups
            rows = torch.arange(index.numel(), dtype=index.dtype,
                                device=index.device)
            return Graph.from_edge_index(torch.stack([rows, index]),
                                         (index.numel(), count))
        graph = remember(index, ("graph", count), make)
        return spmm(graph, x, reduce=reduce) if reduce in ("sum", "mean") \
            else aggregate(graph, x, reduce)
    return scattered(x, index, count, reduce)


class _Groups:
    """Turns a tensor and an index along one of its axes, of any shape that
    spreads over the tensor's, into rows and their groups, and back."""

    def __init__(self, x, index, dim, count, out=None):
        check_is_tensor("src", x)
        check_index("index", index, None)
        self.dim = dim = dim + x.dim() if dim < 0 else dim
        if not 0 <= dim < x.dim():
            raise ValueError(f"dim must be between {-x.dim()} and "
                             f"{x.dim() - 1}, got {dim}")
        if out is not None:
            count = out.size(dim)
        self.count = group_count(index) if count is None else count
        if not self.count and x.numel():  # index_add would not say it
            raise ValueError("index has numbers, but dim_size is 0")
        self.length = x.size(dim)
        # axes with groups of their own, and those that share them
        axes = [] if index.dim() == 1 else [
            d for d in range(max(index.dim(), dim + 1)) if d != dim]
        rest = [d for d in range(x.dim()) if d != dim and d not in axes]
        self.order = [*axes, dim, *rest]
        self.lead = [x.size(d) for d in axes]
        self.rest = [x.size(d) for d in rest]
        self.parts = math.prod(self.lead)
        self.index = self._flat(x, index, axes) if axes else index

    def _flat(self, x, index, axes):
        """The numbers of all groups, those of each part after another."""
        shape = x.shape[:len(axes) + 1]
        index = index.view(*index.shape, *[1] * (
            len(shape) - index.dim())).expand(shape)
        index = index.permute(*axes, self.dim).reshape(self.parts,
                                                       self.length)
        # a number out of range is that of no other part's group
        index = index.masked_fill((index < 0) | (index >= self.count),
                                  self.parts * self.count)
        parts = torch.arange(self.parts, device=index.device)
        return (index + (parts * self.count).unsqueeze(1)).reshape(-1)

    def enter(self, x):
        x = x.permute(self.order)
        return x.reshape(self.parts * x.size(len(self.lead)),
                         math.prod(self.rest))

    def leave(self, rows, size):
        """Rows back, with so many numbers along the axis."""
        x = rows.view(*self.lead, size, *self.rest)
        return x.permute([self.order.index(d)
                          for d in range(len(self.order))])

    def reduce(self, x, reduce):
        return self.leave(_rows(self.enter(x), self.index,
                                self.parts * self.count, reduce), self.count)

    def spread(self, out):
        """The value of its group for each element."""
        return self.leave(self.enter(out).index_select(0, self.index),
                          self.length)

    def shifted(self, x):
        """(x without the largest of its group, these)."""
        most = self.reduce(x.detach(), "max")
        return x - self.spread(most), most

    def first(self, x, out):
        """[..] the place along the axis of the first element that is its
        group's; the axis' length of a group that has none."""
        rows, best = self.enter(x.detach()), self.enter(out.detach())
        length = self.length
        place = torch.arange(rows.size(0), device=x.device) % max(1, length)
        place = torch.where(rows == best.index_select(0, self.index),
                            place.unsqueeze(1), length)
        firsts = torch.full(best.shape, length, dtype=torch.int64,
                            device=x.device)
        firsts = firsts.scatter_reduce(
            0, self.index.long().unsqueeze(1).expand_as(rows), place, "amin")
        return self.leave(firsts, self.count)


def _reduction(reduce):
    name = _NAMES.get(reduce, reduce)
    if name not in _REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(_REDUCTIONS)}, got "
                         f"{reduce!r}")
    return name


# ---- those of torch_geometric.utils -----------------------------------------

def scatter(src: Tensor, index: Tensor, dim: int = 0,
            dim_size: int | None = None, reduce: str = "sum") -> Tensor:
    """Elements of src reduced along an axis by the groups that index has for
    them: "sum" ("add"), "mean", "min", "max", "mul" or "any".

    index: int64 or int32, of one axis, or of a shape that spreads over src's.
    dim_size: the number of groups; by default the largest plus one.

    An empty group is 0, or 1 of "mul".  The gradient of an extreme goes to the
    first of equal elements where kernels find it, and to all of them in equal
    parts elsewhere.
    """
    groups, name = _Groups(src, index, dim, dim_size), _reduction(reduce)
    if name == "mean" and not src.is_floating_point():
        count = groups.reduce(torch.ones_like(src), "sum").clamp(min=1)
        return groups.reduce(src, "sum") / count
    return groups.reduce(src, name)


def _known_index(ptr, size):
    """The segment of each of so many elements: 0 before the first one, 1 in
    it, and so on."""
    def make():
        rows = ptr.reshape(-1, ptr.size(-1)).contiguous()
        places = torch.arange(size, dtype=ptr.dtype, device=ptr.device)
        return torch.searchsorted(
            rows, places.expand(rows.size(0), -1).contiguous(),
            right=True).view(*ptr.shape[:-1], size)
    return make() if compiling() else remember(ptr, ("segments", size), make)


def _of_segments(src, ptr, reduce):
    if not ptr.numel():
        return src.clone(), None
    dim, size = ptr.dim() - 1, ptr.size(-1)
    if dim:
        ptr = ptr.expand(*src.shape[:dim], -1)
    # the first and the last group are of elements outside of all segments
    groups = _Groups(src, _known_index(ptr, src.size(dim)), dim, size + 1)
    result = groups.reduce(src, reduce)
    return result.narrow(dim, 1, size - 1), (groups, result)


def segment(src: Tensor, ptr: Tensor, reduce: str = "sum") -> Tensor:
    """Elements of src reduced in the ranges ptr[k] to ptr[k + 1] - 1 along the
    last axis of ptr; reductions are those of scatter()."""
    return _of_segments(src, ptr, _reduction(reduce))[0]


def gather_csr(src: Tensor, ptr: Tensor) -> Tensor:
    """Element k of src as often as the range ptr[k] to ptr[k + 1] - 1 is
    long, along the last axis of ptr: what segment() adds up."""
    if not ptr.numel():
        return src.clone()
    dim = ptr.dim() - 1
    size = int(ptr.max()) if compiling() else remember(
        ptr, "elements", lambda: int(ptr.max()))
    index = _known_index(ptr, size) - 1
    index = index.clamp(0, max(0, src.size(dim) - 1))
    return _gather_coo(src, index)


def _gather_coo(src, index):
    dim = index.dim() - 1
    if not dim:
        return src.index_select(0, index)
    index = index.view(*index.shape, *[1] * (src.dim() - index.dim()))
    return src.gather(dim, index.expand(
        *src.shape[:dim], index.size(dim), *src.shape[dim + 1:]))


def softmax(src, index: Tensor | None = None, ptr: Tensor | None = None,
            num_nodes: int | None = None, dim: int = 0):
    """The softmax of src along an axis in the groups of index, or in the
    segments of ptr.  In the function of an edge_program, softmax(x) is that
    over the in-edges of each destination."""
    if not isinstance(src, torch.Tensor) or index is None and ptr is None:
        return OVER_EDGES["softmax_in"](src)
    if index is None and ptr is not None:
        dim = dim + src.dim() if dim < 0 else dim
        index, num_nodes = _known_index(ptr, src.size(dim)), ptr.numel() + 1
    return _softmax(_Groups(src, index, dim, num_nodes), src, 1e-16)


def _softmax(groups, src, epsilon):
    out = groups.shifted(src)[0].exp()
    return out / (groups.spread(groups.reduce(out, "sum")) + epsilon)


# ---- those of torch_scatter -------------------------------------------------

def _of_floats(src, name):
    if not src.is_floating_point():
        raise ValueError(f"{name} is of floating point numbers, got "
                         f"{src.dtype}")


def scatter_softmax(src: Tensor, index: Tensor, dim: int = -1,
                    dim_size: int | None = None) -> Tensor:
    """The softmax of src along an axis in the groups of index."""
    _of_floats(src, "scatter_softmax")
    return _softmax(_Groups(src, index, dim, dim_size), src, 0)


def scatter_log_softmax(src: Tensor, index: Tensor, dim: int = -1,
                        eps: float = 1e-12,
                        dim_size: int | None = None) -> Tensor:
    """The logarithm of scatter_softmax()."""
    _of_floats(src, "scatter_log_softmax")
    groups = _Groups(src, index, dim, dim_size)
    out, _ = groups.shifted(src)
    total = groups.reduce(out.exp(), "sum")
    return out - groups.spread((total + eps).log())


def scatter_logsumexp(src: Tensor, index: Tensor, dim: int = -1,
                      out: Tensor | None = None, dim_size: int | None = None,
                      eps: float = 1e-12) -> Tensor:
    """log(sum(exp(src))) along an axis in the groups of index, 0 of an empty
    one; out: numbers that are summed with them, in place."""
    _of_floats(src, "scatter_logsumexp")
    groups = _Groups(src, index, dim, dim_size, out)
    # -inf is a maximum, and 0 that of an empty group
    above, most = groups.shifted(src)
    total = groups.reduce(above.masked_fill(above.isnan(), -float("inf"))
                          .exp(), "sum")
    filled = groups.reduce(torch.ones_like(src), "any") > 0
    if out is not None:
        total = total + torch.where(filled, (out - most).exp(), 0)
    result = torch.where(filled, (total + eps).log() + most, 0)
    if out is None:
        return result
    return out.copy_(torch.where(filled & result.isfinite(), result, out))


def scatter_std(src: Tensor, index: Tensor, dim: int = -1,
                out: Tensor | None = None, dim_size: int | None = None,
                unbiased: bool = True) -> Tensor:
    """The standard deviation of src along an axis in the groups of index."""
    groups = _Groups(src, index, dim, dim_size, out)
    count = groups.reduce(torch.ones_like(src), "sum").clamp(min=1)
    mean = groups.reduce(src, "sum") / count
    total = groups.reduce((src - groups.spread(mean)).square(), "sum")
    if unbiased:
        count = (count - 1).clamp(min=1)
    spread = total > 0  # a root of 0 has no gradient
    total = torch.where(spread, total, 1) / (count + 1e-6)
    result = torch.where(spread, total.sqrt(), 0)
    return result if out is None else out.copy_(result)


def _scatter(reduce, src, index, dim=-1, out=None, dim_size=None):
    groups = _Groups(src, index, dim, dim_size, out)
    if out is None:
        result = groups.reduce(src, reduce)
    elif reduce in ("sum", "mean"):
        result = out.add_(groups.reduce(src, "sum"))
        if reduce == "mean":
            count = groups.reduce(torch.ones_like(src), "sum").clamp(min=1)
            result = out.div_(count) if out.is_floating_point() else \
                out.div_(count, rounding_mode="floor")
    elif reduce == "mul":
        result = out.mul_(groups.reduce(src, reduce))
    else:
        result = groups.reduce(src, reduce)
        better = torch.minimum if reduce == "min" else torch.maximum
        there = groups.first(src, result) < groups.length
        result = out.copy_(torch.where(there, better(out, result), out))
    return (result, groups.first(src, result)) if reduce in ("min", "max") \
        else result


def _segment_csr(reduce, src, indptr, out=None):
    result, groups = _of_segments(src, indptr, reduce)
    out = result if out is None else out.copy_(result)
    if reduce not in ("min", "max"):
        return out
    if groups is None:
        return out, torch.zeros_like(result, dtype=torch.int64)
    groups, result = groups
    return out, groups.first(src, result).narrow(groups.dim, 1,
                                                 indptr.size(-1) - 1)


def _segment_coo(reduce, src, index, out=None, dim_size=None):
    return _scatter(reduce, src, index, index.dim() - 1, out, dim_size)


def _value(function, reduce, *args):
    name = _NAMES.get(reduce, reduce)
    if name not in ("sum", "mean", "min", "max", "mul"):
        raise ValueError("reduce must be sum, mul, mean, min or max, got "
                         f"{reduce!r}")
    result = function(name, *args)
    return result[0] if isinstance(result, tuple) else result


def _module():
    module = types.ModuleType("torch_scatter", "torch_scatter by dfgnn.")
    module.__version__ = "2.1.2"
    module.__spec__ = ModuleSpec("torch_scatter", None)  # for find_spec()
    for name in ("sum", "add", "mul", "mean", "min", "max"):
        for function, kind in ((_scatter, "scatter_{}"),
                               (_segment_csr, "segment_{}_csr"),
                               (_segment_coo, "segment_{}_coo")):
            setattr(module, kind.format(name), functools.partial(
                function, _NAMES.get(name, name)))

    def scatter(src, index, dim=-1, out=None, dim_size=None, reduce="sum"):
        return _value(_scatter, reduce, src, index, dim, out, dim_size)

    def segment_csr(src, indptr, out=None, reduce="sum"):
        return _value(_segment_csr, reduce, src, indptr, out)

    def segment_coo(src, index, out=None, dim_size=None, reduce="sum"):
        return _value(_segment_coo, reduce, src, index, out, dim_size)

    def gather_into(function):
        def gather(src, index, out=None):
            result = function(src, index)
            return result if out is None else out.copy_(result)
        return gather
    module.gather_csr = gather_into(gather_csr)
    module.gather_coo = gather_into(_gather_coo)
    for function in (scatter, segment_csr, segment_coo, scatter_softmax,
                     scatter_log_softmax, scatter_logsumexp, scatter_std):
        setattr(module, function.__name__, function)
    return module


def install_as_torch_scatter() -> types.ModuleType:
    """Makes `import torch_scatter` give functions of torch_scatter's names and
    arguments that run by dfgnn and torch, for packages that import it where
    there is no wheel; torch.jit.script does not take them.  One that is
    imported already stays.  Returns the module."""
    return sys.modules.setdefault("torch_scatter", _module())
