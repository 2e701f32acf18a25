"""What the models of python_models.py share: their list, graphs and molecules."""

import copy
import functools
from typing import Any, Callable, NamedTuple

import numpy
import torch

CASES = {}


class Case(NamedTuple):
    package: str
    module: str  # what is imported to tell whether the package is there
    build: Callable  # scale -> Client


class Client(NamedTuple):
    """A model, its inputs by name, and loss(model, inputs)."""
    model: torch.nn.Module
    inputs: Any  # or a list of batches, which the steps take in turn
    loss: Callable
    fast: Any = None  # the model with kernels; None: what accelerate() makes of a copy
    fresh: tuple = ()  # inputs that are new tensors in each step, as a loader makes them
    trains: bool = True   # whether a step ends with one of an optimizer


def case(package="torch_geometric", module=None, name=None):
    """Registers a function that makes the Client of a package at a scale."""
    def register(build):
        CASES[name or build.__name__] = Case(package, module or package, build)
        return build
    return register


def with_parameters_of(model, fast):
    """`fast` with the parameters of `model`, which have the same names."""
    fast.load_state_dict(copy.deepcopy(model.state_dict()))
    return fast


def graph(nodes, degree, seed=0):
    """Edges of `nodes` nodes that each receive from `degree` random ones, without self
    loops, sorted by destination."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(nodes).repeat_interleave(degree)
    offset = torch.randint(1, nodes, (nodes * degree,), generator=generator)
    return torch.stack([(target + offset) % nodes, target])


def mesh(edges, degree):
    """The same of nodes whose neighbours have near numbers."""
    nodes = max(edges // degree, 4)
    target = torch.arange(edges) * nodes // edges
    near = torch.randint(-1000, 1001, (edges,), generator=torch.Generator().manual_seed(1))
    return torch.stack([(target + near) % nodes, target]), nodes


def power_law(nodes, edges):
    """An undirected edge_index whose degrees follow a power law."""
    weight = torch.rand(nodes).clamp(min=1e-3) ** -0.6
    half = torch.stack([torch.multinomial(weight, edges // 2, True),
                        torch.randint(0, nodes, (edges // 2,))])
    return torch.cat([half, half.flip(0)], 1)


def batch(graphs, nodes, edges):
    """(edge_index, batch) of small graphs, side by side."""
    starts = torch.arange(graphs).repeat_interleave(edges) * nodes
    return (torch.randint(0, nodes, (2, graphs * edges)) + starts,
            torch.arange(graphs).repeat_interleave(nodes))


@functools.lru_cache(1)  # layers of a graph come one after the other
def load(path):
    """(nodes, edge_index, bounds of a batch's graphs or None) of dfgnn-graph's .npz."""
    file = numpy.load(path)
    rows, columns = (int(n) for n in file["shape"])
    if rows != columns:
        raise SystemExit(f"{path}: {rows} x {columns}; layers over x [N, F] want a square "
                         "matrix")
    degrees = torch.from_numpy(file["indptr"].astype(numpy.int64)).diff()
    targets = torch.arange(rows).repeat_interleave(degrees)
    sources = torch.from_numpy(file["indices"]).long()
    bounds = torch.from_numpy(file["graph_ptr"].astype(numpy.int64)) \
        if "graph_ptr" in file else None
    return rows, torch.stack([sources, targets]), bounds


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
