"""The code of docs/programs.md runs as it stands, and each program there gives
what torch's operations give."""

import os
import re

import pytest
import torch

from dfgnn.programs import EdgeProgram

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                    "docs", "programs.md")
NAMES = ["attention", "biased", "point_transformer", "move", "filtered",
         "rotary", "gatv3", "difference", "related"]


@pytest.fixture(scope="module")
def calls():
    """By the name of a program, its calls on the page: (program, arguments).
    """
    with open(PAGE, encoding="utf-8") as file:
        code = "".join(re.findall(r"^```python\n(.*?)^```", file.read(),
                                  re.S | re.M))
    found, own = {}, EdgeProgram.__call__

    def call(self, *args, **given):
        found.setdefault(self.__name__, []).append((self, args, given))
        return own(self, *args, **given)
    torch.manual_seed(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EdgeProgram, "__call__", call)
        exec(compile(code, "docs/programs.md", "exec"), {})
    return found


def test_the_page_has_its_layers(calls):
    assert list(calls) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_layer_is_what_torch_computes(name, calls):
    program, (graph,), given = calls[name][0]
    leaves = []

    def ready(value):
        if isinstance(value, dict):
            return {k: ready(v) for k, v in value.items()}
        leaves.append(value.detach().double().requires_grad_())
        return leaves[-1]
    given = {k: ready(v) for k, v in given.items()}
    found = []
    for composite in (False, True):
        out = program(graph, **given, composite=composite)
        first = torch.autograd.grad((out * out.detach().cos()).sum(), leaves,
                                    create_graph=True)
        second = torch.autograd.grad(sum((g * g).sum() for g in first if
                                         g.requires_grad), leaves,
                                     materialize_grads=True) if any(
            g.requires_grad for g in first) else map(torch.zeros_like, leaves)
        found.append([out, *first, *second])
    for have, want in zip(*found, strict=True):
        torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)
