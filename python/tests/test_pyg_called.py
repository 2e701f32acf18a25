"""Calls of a traced layer that follow others, after changes of the layer."""

import copy
import gc
import weakref

import pytest
import torch

pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from dfgnn.nn.pyg import _traced  # noqa: E402
from torch_geometric.nn import MessagePassing  # noqa: E402
from torch_geometric.nn.models.schnet import CFConv  # noqa: E402


def _layer():
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(),
                                  torch.nn.Dropout(0.5), torch.nn.Linear(4, 5))
    layer = CFConv(6, 7, 5, network, 1.0)
    layer.numbers = [1, 2]
    return layer


def _hook(layer):
    layer.nn[0].register_forward_hook(
        lambda module, inputs, out: 2 * out)


def _class(layer):
    layer.nn[0].__class__ = type("Mine", (torch.nn.Linear,), {
        "forward": lambda self, x: 3 * x[:, :1].expand(-1, 4)})


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
    "type": lambda layer: layer.double(),
    "hook": _hook, "class": _class, "module": _replaced,
    "parameter": _parameter,
    "more modules": lambda layer: layer.nn.append(torch.nn.Tanh()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_layer_is_seen(change):
    own = _layer()
    own.nn[2].p = 0.0
    ours = copy.deepcopy(own)
    dfgnn.accelerate(ours)
    edges, weights = torch.randint(0, 9, (2, 40)), torch.rand(40)
    x, e = torch.randn(9, 6), torch.randn(40, 3)
    for layer in (own, ours):
        layer(x, edges, weights, e)
    torch.manual_seed(1)
    CHANGES[change](own)
    torch.manual_seed(1)
    CHANGES[change](ours)
    if change == "type":
        x, e, weights = x.double(), e.double(), weights.double()
    torch.testing.assert_close(ours(x, edges, weights, e),
                               own(x, edges, weights, e))


def test_what_steps_of_training_change_needs_no_other_graph():
    layer = _layer()
    dfgnn.accelerate(layer)
    edges, weights = torch.randint(0, 9, (2, 40)), torch.rand(40)
    given = torch.randn(9, 6), edges, weights, torch.randn(40, 3)
    layer(*given)
    function = _traced._function(CFConv, "propagate")
    function.make = None  # no other graph can be made
    try:
        for _ in range(2):
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.add_(1)
            layer.load_state_dict(layer.state_dict())
            layer(*given).sum().backward()
            layer.zero_grad()
    finally:
        _traced._function.cache_clear()
    assert _traced.state(layer).served == 3


def test_a_layer_that_was_called_is_freed():
    layer = _layer()
    dfgnn.accelerate(layer)
    edges, weights = torch.randint(0, 9, (2, 40)), torch.rand(40)
    for _ in range(2):
        layer(torch.randn(9, 6), edges, weights, torch.randn(40, 3))
    gone = weakref.ref(layer)
    del layer
    gc.collect()
    assert gone() is None


class Shifted(MessagePassing):
    def __init__(self):
        super().__init__(aggr="add", node_dim=0)
        self.scale = 1.0

    def forward(self, x, edge_index, weight=None, size=None):
        return self.propagate(edge_index, x=x, weight=weight, size=size)

    def message(self, x_j, weight):
        out = self.scale * x_j
        return out if weight is None else out * weight.view(-1, 1)

    def update(self, inputs, x):
        return inputs + (x[1] if isinstance(x, tuple) else x)


def test_calls_that_follow_others():
    """Each is compared with the layer's own, whatever was called before."""
    ours, own = Shifted(), Shifted()
    dfgnn.accelerate(ours)
    x, edges = torch.randn(9, 4), torch.randint(0, 9, (2, 40))
    others, weight = torch.randint(0, 9, (2, 40)), torch.rand(40)
    pair = torch.randn(9, 4), torch.randn(7, 4)
    smaller = torch.stack([edges[0], edges[1] % 7])

    def write():
        edges[1] = edges[1].flip(0)

    def scale():
        ours.scale = own.scale = 3.0
    steps = [(x, edges), (x, edges), (x, others), (x, edges), write,
             (x, edges), (x.double(), edges), (x, edges, weight), scale,
             (x, edges, weight), (pair, smaller), (pair, smaller, weight),
             (x, edges), (x[:, :3], edges), (x, edges[:, :11]), (x, edges)]
    for step in [*steps, *steps[2:]]:
        if callable(step):
            step()
        else:
            torch.testing.assert_close(ours(*step), own(*step))
    assert _traced.state(ours).served == 2 * sum(
        not callable(step) for step in steps) - 2
    assert _traced.state(ours).reason is None


def test_wrong_calls_after_right_ones_raise_as_the_layer_does():
    ours, own = Shifted(), Shifted()
    dfgnn.accelerate(ours)
    x, edges = torch.randn(9, 4), torch.randint(0, 9, (2, 40))
    for _ in range(2):
        ours(x, edges)
    for layer in (ours, own):
        with pytest.raises(ValueError):
            layer(x, edges, None, (8, 8))
    edges[0, 0] = 9
    for layer in (ours, own):
        with pytest.raises((IndexError, RuntimeError)):
            layer(x, edges)


def test_a_class_that_a_submodule_gets_later():
    class Tripled(torch.nn.Linear):
        def forward(self, x):
            return 3 * super().forward(x)

    class Layer(MessagePassing):
        def __init__(self):
            super().__init__()
            self.network = torch.nn.Sequential(torch.nn.Linear(2, 3),
                                               torch.nn.ReLU())

        def forward(self, x, edge_index):
            return self.propagate(edge_index, x=x)

        def message(self, x_j):
            return self.network(x_j)
    own, x = Layer(), torch.randn(5, 2)
    edges = torch.randint(5, (2, 9))
    ours = copy.deepcopy(own)
    dfgnn.accelerate(ours, guard=False)
    ours(x, edges)
    for layer in own, ours:
        layer.network[0].__class__ = Tripled
    torch.testing.assert_close(ours(x, edges), own(x, edges))
