"""Checks before the first exchange: ranks must hold parts of one partition, and
choose the same kernels."""

import atexit
import ctypes
import os
import shutil
import tempfile

import torch
import torch.distributed as dist

from .. import _execute, _measure
from .._handle import context
from .._library import check, library
from ..errors import DistributedError, Error


def ranks(group):
    """(rank, number of ranks); (0, 1) without torch.distributed."""
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def gather(value, group):
    """The values of all ranks."""
    world = ranks(group)[1]
    values = [value]
    if world > 1:
        values = [None] * world
        dist.all_gather_object(values, value, group=group)
    return values


def all_or_none(problem, group, what):
    """Raises in all ranks what went wrong in one, so that none waits."""
    for rank, message in enumerate(gather(
            None if problem is None else str(problem), group)):
        if message is not None:
            if problem is not None:
                raise problem
            raise DistributedError(f"rank {rank} {what}: {message}")


def load(make, group):
    """make(rank, number of ranks); raises in all ranks where one cannot."""
    part = problem = None
    try:
        part = make(*ranks(group))
    except (OSError, ValueError) as error:
        problem = error
    all_or_none(problem, group, "cannot load its part")
    return part


def decisions(device):
    """The digest of the decisions by which a device's context chooses
    kernels."""
    ctx = context(device)
    text = ctypes.create_string_buffer(33)
    check(library().dfgnn_context_digest(text, ctx.handle))
    return text.value.decode()


_folder = None  # of the stores that contexts choose by since agree()


def _path(kind):
    global _folder
    if _folder is None:
        _folder = tempfile.mkdtemp(prefix="dfgnn-")
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    number = len(os.listdir(_folder))
    return os.path.join(_folder, f"{number}-{kind}.db")


def _choices(device):
    """The rows that a device's context chooses by, as the bytes of a store."""
    path = _path(device.type)
    check(library().dfgnn_context_save_choices(
        context(device).handle, os.fsencode(path)))
    with open(path, "rb") as file:
        return file.read()


def _take(device, choices):
    path = _path(device.type)
    with open(path, "wb") as file:
        file.write(choices)
    check(library().dfgnn_context_take_choices(
        context(device).handle, os.fsencode(path)))


def agree(group=None):
    """Makes all ranks choose kernels as rank 0 would now: its measurements,
    pins and bans are broadcast, and take the place of the ranks' own.

    From then on ranks measure nothing by themselves, until they call
    dfgnn.measure().  After the first steps of a job with DistributedDataParallel

        dfgnn.distributed.agree()

    lets all ranks keep what rank 0 has measured in them.  dfgnn.distributed.load()
    calls it where ranks would choose differently.  All ranks of the group must
    call it, and no other thread may use dfgnn meanwhile.
    """
    rank, world = ranks(group)
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices.append(torch.device("cuda", torch.cuda.current_device()))
    problem, choices = None, [None]
    try:
        if rank == 0 and world > 1:
            choices = [{d.type: _choices(d) for d in devices}]
    except (Error, OSError) as error:
        problem = error
    all_or_none(problem, group, "cannot save what it chooses by")
    if world > 1:
        dist.broadcast_object_list(
            choices, dist.get_global_rank(group, 0) if group else 0, group)
        for device in devices:
            if device.type in choices[0]:
                _take(device, choices[0][device.type])
    _execute.forget_plans()
    _measure.measure(False)


def choose_alike(group, device):
    """Calls agree() if ranks would choose differently.  Ranks that wait for
    each other in each step measure each other, so that none measures."""
    if ranks(group)[1] > 1:
        _measure.measure(False)
        if len(set(gather(decisions(device), group))) > 1:
            agree(group)


_ADVICE = {
    "decisions of the tuning store":
        "; give all ranks the same kind of device",
    **dict.fromkeys(("partition", "graph"),
                    "; load parts that were made together")}


def check_part(part, group, device):
    """Raises if a rank differs from rank 0 in a thing that all must share."""
    rank, world = ranks(group)
    mine = {
        "parts": part.parts, "partition": part.digest & (1 << 64) - 1,
        "graph": part.fingerprint & (1 << 64) - 1,
        "decisions of the tuning store": decisions(device),
        "version of dfgnn": library().dfgnn_version().decode(),
        "device": device.type}
    everyone = gather((part.rank, mine), group)
    for other, (number, theirs) in enumerate(everyone):
        if theirs["parts"] != world or number != other:
            raise DistributedError(
                f"rank {other} has part {number} of {theirs['parts']}, "
                f"expected part {other} of {world}: one part a rank")
        for name, value in everyone[0][1].items():
            if theirs[name] != value:
                actual, expected = (f"{v:016x}" if isinstance(v, int) else v
                                    for v in (theirs[name], value))
                raise DistributedError(
                    f"rank {other} differs from rank 0 in its {name}: "
                    f"{actual}, expected {expected}" + _ADVICE.get(name, ""))


def settle(exchange, group):
    """Sets in exchange whether any rank sends anything, and the generator of
    dropout's seeds, which gives all ranks the same."""
    base = int(torch.randint((1 << 62), (1,)))
    everyone = gather((exchange.num_halo, base), group)
    exchange.silent = not any(count for count, _ in everyone)
    exchange.seeds = torch.Generator().manual_seed(everyone[0][1])
