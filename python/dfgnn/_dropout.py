"""The library's dropout, kernels/common/dropout.h, in wrapping int64."""

import torch


def _signed(word):
    return word - (1 << 64) if word >= 1 << 63 else word


_STEP = _signed(0x9e3779b97f4a7c15)
_MIX = (_signed(0xbf58476d1ce4e5b9), _signed(0x94d049bb133111eb))


def _logical_shift(z, bits):
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _splitmix(z):
    z = (z ^ _logical_shift(z, 30)) * _MIX[0]
    z = (z ^ _logical_shift(z, 27)) * _MIX[1]
    return z ^ _logical_shift(z, 31)


def keep_factors(seed, edges, heads, dropout, edge_number=None):
    """[E, H] 0 where dropout drops a weight, else 1 / (1 - dropout).

    edge_number [E]: the number that each edge draws by; by default its
        position.
    """
    key = _splitmix(seed + _STEP)
    pairs = (heads + 1) // 2
    if edge_number is None:
        counter = torch.arange(1, edges * pairs + 1, device=seed.device)
    else:
        counter = (edge_number.view(-1, 1) * pairs + torch.arange(
            1, pairs + 1, device=seed.device)).view(-1)
    word = _splitmix(key + counter * _STEP)
    number = torch.stack([_logical_shift(word, 32), word & 0xffffffff], 1)
    kept = number.view(edges, 2 * pairs)[:, :heads] \
        >= int(dropout * 4294967296.0)
    return kept / (1.0 - dropout)
