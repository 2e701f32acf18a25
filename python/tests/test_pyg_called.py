"""What a traced layer's calls ask before they take the plan of the one before."""

import pytest
import torch

pytest.importorskip("torch_geometric.nn")

from dfgnn.nn.pyg._called import Seen  # noqa: E402
from torch_geometric.nn.models.schnet import CFConv  # noqa: E402


def _layer():
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(),
                                  torch.nn.Dropout(0.5), torch.nn.Linear(4, 5))
    layer = CFConv(6, 7, 5, network, 1.0)
    layer.numbers = [1, 2]
    return layer


def _hook(layer):
    layer.nn[0].register_forward_hook(lambda *_: None)


def _class(layer):
    layer.nn[0].__class__ = type("Mine", (torch.nn.Linear,), {})


def _replaced(layer):
    layer.nn[0] = torch.nn.Linear(3, 4)


def _parameter(layer):
    layer.nn[0].bias = None


CHANGES = {
    "attribute": lambda layer: setattr(layer, "cutoff", 2.0),
    "new attribute": lambda layer: setattr(layer, "more", 1),
    "item of a list": lambda layer: layer.numbers.append(3),
    "number for an object": lambda layer: setattr(layer, "numbers", 3),
    "training": lambda layer: layer.nn.eval(),
    "type": lambda layer: layer.half(),
    "hook": _hook, "class": _class, "module": _replaced,
    "parameter": _parameter,
    "more modules": lambda layer: layer.nn.append(torch.nn.ReLU()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_layer_is_seen(change):
    layer = _layer()
    seen = Seen(layer)
    assert seen.same()
    CHANGES[change](layer)
    assert not seen.same()


def test_what_steps_of_training_change_is_the_same():
    layer = _layer()
    seen = Seen(layer)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.grad = torch.ones_like(parameter)
            parameter.add_(1)
    layer.load_state_dict(layer.state_dict())
    layer.zero_grad()
    assert seen.same()
