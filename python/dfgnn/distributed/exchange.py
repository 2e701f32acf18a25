"""The exchange between ranks: each sends rows of its own nodes for the halos
of others, and the gradients of its halo back.

Each layer and direction takes one all_to_all_single: the tensors of a layer,
whatever their types, lie side by side in rows of bytes.  Buffers are used
again.
"""

import contextlib
import itertools
import math

import torch
import torch.distributed as dist

from ..errors import DistributedError

_ALIGN = 16  # bytes: kernels read vectors of 16


class Layout:
    """The places of several tensors in a row of bytes."""

    def __init__(self, tensors):
        self.parts, self.bytes = [], 0  # (shape of a row, type, begin, end)
        for tensor in tensors:
            tail = tuple(tensor.shape[1:])
            end = self.bytes + math.prod(tail) * tensor.element_size()
            self.parts.append((tail, tensor.dtype, self.bytes, end))
            self.bytes = -(-end // _ALIGN) * _ALIGN

    def views(self, buffer):
        """The tensors in a buffer [rows, bytes]."""
        return [buffer[:, begin:end].view(dtype).view(buffer.size(0), *tail)
                for tail, dtype, begin, end in self.parts]


class _Pending:
    """An exchange that is under way."""

    def __init__(self, exchange, work, layout, got, sent):
        self.exchange, self.work, self.layout = exchange, work, layout
        self.got, self.sent = got, sent

    def wait(self):
        """The received tensors, in the order of ranks.  On a GPU it is the
        stream that waits, not the host."""
        if self.work is not None:
            with self.exchange.losses_named():
                self.work.wait()
        self.exchange.give_back(self.sent)
        self.sent = None
        return self.layout.views(self.got)

    def done(self):
        """Gives back the buffer of the received tensors, which are no longer
        read."""
        self.exchange.give_back(self.got)
        self.got = None


class Exchange:
    """The lists of a part on a device, and the buffers of its exchanges."""

    def __init__(self, part, group, device):
        self.group = group
        self.rank, self.world = part.rank, part.parts
        self.device = device
        self.send_counts = part.send.tolist()
        self.receive_counts = part.receive.tolist()
        self.num_sends = sum(self.send_counts)
        self.num_halo = sum(self.receive_counts)
        self.send_row = torch.from_numpy(part.send_row).to(device)
        # False sends nothing: results are wrong, and the time is that of
        # everything else
        self.enabled = True
        self._free = {}
        ends = list(itertools.accumulate(self.send_counts))
        self._peers = [(end - count, end) for end, count in zip(
            ends, self.send_counts) if count]
        self.seeds = None
        self.silent = self.world == 1

    def take(self, rows, size):
        free = self._free.get((rows, size))
        if free:
            return free.pop()
        return torch.empty((rows, size), dtype=torch.uint8,
                           device=self.device)

    def give_back(self, buffer):
        if buffer is not None:
            free = self._free.setdefault(tuple(buffer.shape), [])
            if len(free) < 8:
                free.append(buffer)

    @property
    def nbytes(self):
        """Bytes of the buffers that wait for their next use."""
        return sum(b.numel() for free in self._free.values() for b in free)

    def start(self, tensors):
        """Sends rows of tensors of own nodes, [n, ...] each, to the ranks that
        have them in their halos."""
        layout = Layout(tensors)
        sent = self.take(self.num_sends, layout.bytes)
        for to, tensor in zip(layout.views(sent), tensors):
            if self.num_sends:
                torch.index_select(tensor.detach(), 0, self.send_row, out=to)
        got = self.take(self.num_halo, layout.bytes)
        return self._run(layout, got, sent, self.receive_counts,
                         self.send_counts)

    def begin_back(self, layout):
        """(buffer, views): the gradients of the halo are written to views
        before start_back(layout, buffer)."""
        buffer = self.take(self.num_halo, layout.bytes)
        return buffer, layout.views(buffer)

    def start_back(self, layout, buffer):
        """Sends gradients of the halo to the owners."""
        got = self.take(self.num_sends, layout.bytes)
        return self._run(layout, got, buffer, self.send_counts,
                         self.receive_counts)

    def _run(self, layout, got, sent, got_counts, sent_counts):
        work = None
        if not self.silent and self.enabled:
            with self.losses_named():
                work = dist.all_to_all_single(
                    got, sent, got_counts, sent_counts, group=self.group,
                    async_op=True)
        return _Pending(self, work, layout, got, sent)

    @contextlib.contextmanager
    def losses_named(self):
        """Says what torch's errors mean here."""
        try:
            yield
        except RuntimeError as error:
            raise DistributedError(
                f"rank {self.rank} of {self.world} cannot exchange halos: "
                "another rank has ended, or took longer than the time limit "
                f"of init_process_group ({error})") from error

    def add_returned(self, grads, returned):
        """Adds the returned gradients to grads [n, ...], rank by rank, so that
        the order of the sums is always the same."""
        for begin, end in self._peers:
            rows = self.send_row[begin:end]
            for grad, more in zip(grads, returned):
                if grad is not None:
                    grad.index_add_(0, rows, more[begin:end].to(grad.dtype))

    def seed(self, device):
        """[1] a random number, the same in all ranks."""
        return torch.randint((1 << 63) - 1, (1,), generator=self.seeds,
                             dtype=torch.int64).to(device)


# ---- calls that cannot overlap with the exchange ----------------------------

class _Extend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, exchange, x):
        pending = exchange.start([x])
        ctx.exchange, ctx.layout = exchange, pending.layout
        table = torch.cat([x, *pending.wait()])
        pending.done()
        return table

    @staticmethod
    def backward(ctx, grad):
        exchange = ctx.exchange
        num_own = grad.size(0) - exchange.num_halo
        mine = grad[:num_own].clone()
        buffer, (there,) = exchange.begin_back(ctx.layout)
        there.copy_(grad[num_own:])
        pending = exchange.start_back(ctx.layout, buffer)
        returned = pending.wait()
        exchange.add_returned([mine], returned)
        pending.done()
        return None, mine


def extend(graph, x):
    """A table of own nodes and the halo."""
    if x.size(0) != graph.num_dst:
        raise ValueError(f"the rank has {graph.num_dst} nodes, got a tensor "
                         f"of {x.size(0)} rows")
    if graph.exchange.silent and not graph.exchange.num_halo:
        return x
    return _Extend.apply(graph.exchange, x)
