"""Checks before the first exchange: ranks must hold parts of one partition, and
choose the same kernels."""

import ctypes

import torch
import torch.distributed as dist

from .._context import context
from .._library import check, library
from .errors import DistributedError


def ranks(group):
    """(rank, number of ranks); (0, 1) without torch.distributed."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def _gather(value, group):
    world = ranks(group)[1]
    found = [value]
    if world > 1:
        found = [None] * world
        dist.all_gather_object(found, value, group=group)
    return found


def all_or_none(problem, group):
    """Raises in all ranks what went wrong in one, so that none waits."""
    for rank, found in enumerate(_gather(
            None if problem is None else str(problem), group)):
        if found is not None:
            if problem is not None:
                raise problem
            raise DistributedError(
                f"rank {rank} cannot load its part: {found}")


def decisions(device):
    """The digest of the decisions by which a device's context chooses
    kernels."""
    ctx = context(device)
    text = ctypes.create_string_buffer(33)
    check(library().dfgnn_context_digest(text, ctx.handle))
    return text.value.decode()


def check_part(part, group, device):
    """Raises if a rank differs from rank 0 in a thing that all must share."""
    rank, world = ranks(group)
    mine = {
        "parts": part.parts, "partition": part.digest & (1 << 64) - 1,
        "graph": part.fingerprint & (1 << 64) - 1,
        "decisions of the tuning store": decisions(device),
        "version of dfgnn": library().dfgnn_version().decode(),
        "device": device.type}
    everyone = _gather((part.rank, mine), group)
    for other, (number, theirs) in enumerate(everyone):
        if theirs["parts"] != world or number != other:
            raise DistributedError(
                f"rank {other} has part {number} of {theirs['parts']}, "
                f"expected part {other} of {world}: one part a rank")
        for name, value in everyone[0][1].items():
            if theirs[name] != value:
                raise DistributedError(
                    f"rank {other} differs from rank 0 in its {name}: "
                    f"{_text(theirs[name])}, expected {_text(value)}"
                    + _advice(name))


def _text(value):
    return f"{value:016x}" if isinstance(value, int) else str(value)


def _advice(name):
    if name.startswith("decisions"):
        return ("; give all ranks the same DFGNN_STORE, or none, and the same "
                "kind of device")
    if name in ("partition", "graph"):
        return "; load parts that were made together"
    return ""


def agree(exchange, group):
    """Sets in exchange whether any rank sends anything, and the generator of
    dropout's seeds, which gives all ranks the same."""
    base = int(torch.randint((1 << 62), (1,)))
    found = _gather((exchange.num_halo, base), group)
    exchange.silent = not any(count for count, _ in found)
    exchange.seeds = torch.Generator().manual_seed(found[0][1])
