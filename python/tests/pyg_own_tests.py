"""Runs PyG's own tests of convolutions with the classes of dfgnn in the place
of PyG's: those with kernels, those that are traced, HeteroConv, and models of
to_hetero after dfgnn.accelerate.

    python pyg_own_tests.py [--plain] PATHS [pytest's options]

PATHS are of PyG's source, of the version that is installed: test/nn/conv, or
for layers of relations

    cd test/nn; python pyg_own_tests.py test_to_hetero*.py \\
        conv/test_{rgcn,rgat,hgt,han,heat,hetero}_conv.py

--plain runs them with PyG's classes, which tells what fails without us.
"""

import functools
import sys

import pytest
import torch_geometric.nn as pyg
from torch_geometric.nn import conv, to_hetero_transformer

import dfgnn
from dfgnn import _fallbacks
from dfgnn._over import own
from dfgnn.nn.pyg import CLASSES, UNITS
from dfgnn.nn.pyg import _traced


def _classes():
    """By name the class that stands for each of PyG's."""
    found = {}
    for name in conv.__all__:
        kind = getattr(conv, name)
        if kind in CLASSES or kind in UNITS:
            found[name] = CLASSES.get(kind) or UNITS[kind]
        elif name != "MessagePassing" and issubclass(
                kind, conv.MessagePassing) and \
                _traced.traceable(kind) is None:
            found[name] = _traced.traced_class(kind)
    return found


class Swap:
    """A plugin that puts our classes in place before tests import PyG's, and
    says at the end how many calls programs have served, and why calls took
    PyG's own path."""

    def __init__(self):
        self.classes, self.served, self.joined = _classes(), 0, 0
        for name, kind in self.classes.items():
            setattr(conv, name, kind)
            setattr(pyg, name, kind)
        run = _traced._run

        def counted(*args):
            found = run(*args)
            self.served += found is not NotImplemented
            return found
        _traced._run = counted
        self._accelerate_models()

    def _accelerate_models(self):
        original = to_hetero_transformer.to_hetero

        @functools.wraps(original)
        def to_hetero(*args, **kwargs):
            model = original(*args, **kwargs)
            self.joined += len(dfgnn.accelerate(model).joined)
            return model
        to_hetero_transformer.to_hetero = pyg.to_hetero = to_hetero

    def pytest_terminal_summary(self, terminalreporter):
        traced = [name for name, kind in self.classes.items()
                  if own(kind, _traced.traced_class)]
        terminalreporter.write_line(
            f"{len(self.classes)} classes, traced: {' '.join(traced)}; "
            f"{self.served} calls by programs; {self.joined} layers of "
            "to_hetero joined")
        for message in sorted(_fallbacks._said):
            terminalreporter.write_line(message)


if __name__ == "__main__":
    plain = "--plain" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--plain"]
    if not arguments:
        sys.exit(__doc__)
    sys.exit(pytest.main([*arguments, "-p", "no:cacheprovider"],
                         [] if plain else [Swap()]))
