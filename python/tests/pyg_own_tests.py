"""Runs PyG's own tests of convolutions with the classes of dfgnn in the place
of PyG's: those with kernels, and those that are traced.

    python pyg_own_tests.py FOLDER [pytest's options]

FOLDER is test/nn/conv of PyG's source, of the version that is installed.
"""

import sys

import pytest
import torch_geometric.nn as pyg
from torch_geometric.nn import conv

from dfgnn.nn.pyg import CLASSES
from dfgnn.nn.pyg import _traced


class Swap:
    """A plugin that puts our classes in place before tests import PyG's, and
    says at the end how many calls programs have served."""

    def __init__(self):
        self.classes, self.served = {}, 0
        for name in conv.__all__:
            kind = getattr(conv, name)
            if kind in CLASSES:
                self.classes[name] = CLASSES[kind]
            elif name != "MessagePassing" and issubclass(
                    kind, conv.MessagePassing) and \
                    _traced.traceable(kind) is None:
                self.classes[name] = _traced.traced_class(kind)
        for name, kind in self.classes.items():
            setattr(conv, name, kind)
            setattr(pyg, name, kind)
        run = _traced._run

        def counted(*args):
            found = run(*args)
            self.served += found is not NotImplemented
            return found
        _traced._run = counted

    def pytest_terminal_summary(self, terminalreporter):
        traced = [name for name, kind in self.classes.items()
                  if _traced.is_traced(kind)]
        terminalreporter.write_line(
            f"{len(self.classes)} classes, traced: {' '.join(traced)}; "
            f"{self.served} calls by programs")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(pytest.main([*sys.argv[1:], "-p", "no:cacheprovider"], [Swap()]))
