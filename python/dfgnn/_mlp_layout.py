"""The first layer of an MLP on edges, whose columns are of its ends: what they
give is a product over nodes, dst_part and src_part, and not one over edges."""

from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F

from ._mlp_formula import NAMES

FIRST = len(NAMES)  # the place of the first weight


class Layout(NamedTuple):
    """The columns of the first weight, (the first of them, their number); None
    for what is not there."""
    dst: Optional[tuple]
    src: Optional[tuple]
    edge: Optional[tuple]
    one: bool = False  # src is dst: the call has dst alone

    def ends(self, dst, src):
        """((features, columns) of each end that there is, place of the
        part)."""
        return [(x, columns, n) for x, columns, n in (
            (dst, self.dst, 1), (dst if self.one else src, self.src, 2))
            if columns is not None]


def parts_of(layout, dst, src, tensors, dtype):
    """dst_part and src_part with the products of the ends."""
    parts = list(tensors[1:3])
    if layout is not None:
        weight = tensors[FIRST].to(dtype)
        for x, columns, n in layout.ends(dst, src):
            made, part = F.linear(x, weight.narrow(1, *columns)), tensors[n]
            parts[n - 1] = made if part is None else made + part
    return parts


def fields_by_torch(tensors, layout=None, dtype=None, ends=(None, None)):
    """The tensors of the fields, of one type, by torch operations."""
    if dtype is not None:
        tensors = [None if t is None else t.to(dtype) for t in tensors]
    if layout is None:
        return tensors
    first = None if layout.edge is None else \
        tensors[FIRST].narrow(1, *layout.edge)
    return [tensors[0], *parts_of(layout, *ends, tensors, tensors[FIRST].dtype),
            *tensors[3:FIRST], first, *tensors[FIRST + 1:]]


def inner(layout, wanted):
    """Which fields have a gradient; wanted: which of the ends and the tensors
    want one."""
    dst, src, *fields = wanted
    if layout is not None:
        first = fields[FIRST]
        for want, _, n in layout.ends(dst, src):
            fields[n] |= want or first
        fields[FIRST] = first and layout.edge is not None
    return tuple(fields)


def of_ends(layout, ends, tensors, found, wanted, dtype):
    """The gradients of the ends and the tensors, from those of the fields;
    dtype: of the products."""
    if layout is None:
        return [None, None, *found]
    of, wide = [None, None], []
    weight = tensors[FIRST].to(dtype)
    for x, columns, n in layout.ends(*ends):
        k, part = 0 if layout.one else n - 1, found[n]
        if wanted[k]:
            columns_of = weight.narrow(1, *columns)
            of[k] = part @ columns_of if of[k] is None else \
                of[k].addmm_(part, columns_of)
        if wanted[2 + FIRST]:
            wide.append((columns, part.t() @ x))
        if not wanted[2 + n]:
            found[n] = None
    if wanted[2 + FIRST]:
        if layout.edge is not None:
            wide.append((layout.edge, found[FIRST]))
        found[FIRST] = torch.cat([grad for _, grad in sorted(
            wide, key=lambda one: one[0])], 1).to(tensors[FIRST].dtype)
    return [*of, *found]
