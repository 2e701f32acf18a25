"""What the models of clients.py share: their list, graphs and molecules."""

from typing import Callable, NamedTuple

import torch
from torch.nn.functional import mse_loss

CASES = {}


class Case(NamedTuple):
    package: str
    module: str  # what is imported to tell whether the package is there
    build: Callable  # scale -> Client


class Client(NamedTuple):
    """A model, its inputs by name, and the loss of (model, inputs)."""
    model: torch.nn.Module
    inputs: dict
    loss: Callable


def case(package, module=None):
    """Registers a function that makes the Client of a package at a scale."""
    def register(build):
        CASES[build.__name__] = Case(package, module or package, build)
        return build
    return register


def graph(nodes, degree, seed=0):
    """Edges of `nodes` nodes that each receive from `degree` random ones, without self
    loops, sorted by destination."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(nodes).repeat_interleave(degree)
    offset = torch.randint(1, nodes, (nodes * degree,), generator=generator)
    return torch.stack([(target + offset) % nodes, target])


def of_nodes(model, scale, width=64, out=16, degree=8):
    """A Client that maps features of 20 000 nodes."""
    nodes = int(20_000 * scale)
    inputs = {"x": torch.randn(nodes, width), "y": torch.randn(nodes, out),
              "edge_index": graph(nodes, degree)}
    return Client(model, inputs, lambda m, i: mse_loss(
        m(i["x"], i["edge_index"]), i["y"]))


class Molecules(NamedTuple):
    """Atoms of molecules of equal size, and the pairs within 5 of each other."""
    number: torch.Tensor  # the atoms' elements
    position: torch.Tensor
    molecule: torch.Tensor
    count: int


def molecules(scale, atoms=20):
    count = max(1, int(320 * scale))
    number = torch.randint(1, 10, (count * atoms,))
    position = 2.5 * torch.randn(count * atoms, 3)
    return Molecules(number, position,
                     torch.arange(count).repeat_interleave(atoms), count)


def neighbours(position, count, cutoff=5.0):
    """edge_index of the atoms within the cutoff, sorted by destination."""
    inside = position.detach().view(count, -1, 3)
    atoms = inside.size(1)
    near = (torch.cdist(inside, inside) < cutoff) & ~torch.eye(
        atoms, dtype=torch.bool, device=position.device)
    molecule, target, source = near.nonzero().T
    return torch.stack([source, target]) + molecule * atoms
