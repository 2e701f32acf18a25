"""Layers whose edge_updater() and propagate() are one program, and those whose
text forbids it."""

import inspect

import pytest
import torch
import torch.nn.functional as F

pyg = pytest.importorskip("torch_geometric.nn")

from dfgnn.programs import _name_of  # noqa: E402
from dfgnn.nn.pyg import _deferred, _traced  # noqa: E402
from torch_geometric.nn.models.attentive_fp import GATEConv  # noqa: E402
from torch_geometric.utils import softmax  # noqa: E402

from traced_layers import (  # noqa: E402
    accelerated, derivatives, edges, N, Own, same, W)


class Scored(Own):
    """Scores by edge_updater(), which counts its calls."""

    calls = 0

    def edge_update(self, a_i, a_j, index, size_i):
        self.calls += 1
        self.kept = a_j.exp()
        return softmax(F.leaky_relu(a_i + a_j, 0.2), index, num_nodes=size_i)

    def message(self, x_j, alpha):
        return x_j * alpha.unsqueeze(-1)

    def forward(self, edge_index, x, a):
        alpha = self.edge_updater(edge_index, a=(a, a))
        out = self.propagate(edge_index, x=x, alpha=alpha)
        return out


class Sorted(Scored):
    """Its message has no program."""

    def message(self, x_j, alpha):
        return x_j.sort(-1)[0] * alpha.unsqueeze(-1)


def _given():
    return {"x": torch.randn(N, W, dtype=torch.double, requires_grad=True),
            "a": torch.randn(N, dtype=torch.double, requires_grad=True)}


def _operator(layer):
    """The name of the operator that a layer's only step is."""
    (_, stage), = _traced.state(layer).steps.steps
    found = stage.program.operator()
    return found and _name_of(found.op)


@pytest.mark.parametrize("kind, options, extra, operator", [
    (pyg.GATConv, {}, (), "gat"), (pyg.GATv2Conv, {}, (), "gatv2"),
    (pyg.GATConv, {"edge_dim": 3, "residual": True}, (3,), None),
    (pyg.GATv2Conv, {"edge_dim": 3, "concat": False}, (3,), None)])
def test_pygs_own_attention_is_one_program(kind, options, extra, operator):
    own = kind(W, 4, heads=2, add_self_loops=False, **options).double()
    ours = kind(W, 4, heads=2, add_self_loops=False, **options).double()
    ours.load_state_dict(own.state_dict())
    ours.__class__ = _traced.traced_class(kind)
    e = edges()
    given = {"x": _given()["x"], "edge_index": e}
    if extra:
        given["edge_attr"] = torch.randn(e.size(1), *extra,
                                         dtype=torch.double)
    want = own(**given)
    for _ in range(3):
        have = ours(**given)
        same([have], [want])
    about = _traced.state(ours)
    assert about.served == 3 and about.reason is None
    same(torch.autograd.grad(have.cos().sum(), [given["x"],
                                                *ours.parameters()]),
         torch.autograd.grad(want.cos().sum(), [given["x"],
                                                *own.parameters()]))
    if operator is not None:
        assert _operator(ours) == operator
    # its weights are asked for: what makes them runs by itself
    (out, (_, alpha)), (their, (_, theirs)) = (
        layer(**given, return_attention_weights=True) for layer in (ours, own))
    same([out, alpha], [their, theirs])
    assert about.served == 5


def test_a_layer_of_ones_own_is_one_program_with_two_orders_of_derivatives():
    layer, e, given = Scored(), edges(), _given()
    fast, report = accelerated(layer)
    assert len(report.traced) == 1, report
    for n in range(1, 4):
        fast.calls = layer.calls = 0
        same(derivatives(fast, e, given), derivatives(layer, e, given))
        assert fast.calls == layer.calls == 1 and \
            _traced.state(fast).served == n
        same([fast.kept], [layer.kept])


def test_what_has_no_program_together_runs_apart():
    layer, e, given = Sorted(), edges(), _given()
    fast, _ = accelerated(layer)
    for n in range(4):
        fast.calls = layer.calls = 0
        same(derivatives(fast, e, given, 1), derivatives(layer, e, given, 1))
        assert fast.calls == layer.calls == 1
    about = _traced.state(fast)
    assert len(about.refused) >= 1 and about.served  # its edge_updater() is


def test_an_error_of_edge_update_is_its_own():
    fast, _ = accelerated(Scored())
    with pytest.raises(RuntimeError, match="size of tensor"):
        fast(edges(), torch.randn(N, W), torch.randn(N, 2, 3)[:, :, :2].mT)
    given = _given()
    with pytest.raises(IndexError):
        fast(edges() + N, **given)
    same([fast(edges(), **given)], [Scored()(edges(), **given)])


# ---- texts ------------------------------------------------------------------

class Texts:
    """Forwards by whether, and where, what edge_updater() makes is read
    once."""

    def yes_returned(self, e, x):
        a = self.edge_updater(e, x=x)
        return self.propagate(e, x=x, a=a)

    def yes_with_another_before(self, e, a):
        a = a + 1
        a = self.edge_updater(e, a=a)
        out = self.propagate(e, b=a)
        return out

    def asked_weights(self, e, x, weights=None):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        if isinstance(weights, bool):
            return out, (e, a)
        return out

    def asked_not_none(self, e, x, weights=None):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        if weights is not None:
            if x is None:
                return a
        return out

    def asked_false(self, e, x, weights=False):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        if weights:
            return out, a
        return out

    def no_read_after(self, e, x):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        return out, a

    def no_else(self, e, x, weights=None):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        if weights:
            return out
        else:
            return out, a

    def no_turned(self, e, x, weights=None):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        if not weights:
            return out, a
        return out

    def no_none(self, e, x, weights=None):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        if weights is None:
            return out, a
        return out

    def no_argument_is_written(self, e, x, weights=None):
        weights = weights or 1
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        if weights:
            return out, a
        return out

    def no_between(self, e, x):
        a = self.edge_updater(e, x=x)
        self.kept = None
        return self.propagate(e, x=x, a=a)

    def no_computed(self, e, x):
        a = self.edge_updater(e, x=x)
        return self.propagate(e, x=x, a=a * 2)

    def no_attribute(self, e, x):
        a = self.edge_updater(e, x=x)
        return self.propagate(e, x=self.x, a=a)

    def no_two_reads(self, e, x):
        a = self.edge_updater(e, x=x)
        return self.propagate(e, x=(x, a), a=a)

    def no_part(self, e, x):
        a = self.edge_updater(e, x=x)
        return self.propagate(e, a=(a, x))

    def no_other_edges(self, e, x):
        a = self.edge_updater(e, x=x)
        return self.propagate(x, x=x, a=a)

    def no_loop(self, e, x):
        for _ in range(2):
            a = self.edge_updater(e, x=x)
            x = self.propagate(e, x=x, a=a)
        return x

    def no_other_call(self, e, x):
        b = self.edge_updater(e, x=x)
        a = self.edge_updater(e, x=x)
        return self.propagate(e, x=x, a=a) + b.sum()

    def no_closure(self, e, x):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        return (lambda: a)(), out

    def no_locals(self, e, x):
        a = self.edge_updater(e, x=x)
        out = self.propagate(e, x=x, a=a)
        return out, locals()["a"]

    def no_try(self, e, x):
        try:
            a = self.edge_updater(e, x=x)
            return self.propagate(e, x=x, a=a)
        finally:
            print(a)


@pytest.mark.parametrize("name", [n for n in vars(Texts) if n[0] != "_"])
def test_texts(name):
    found = _deferred._unread(vars(Texts)[name].__code__)
    want = {"yes": set(), "no": None,
            "asked": {("weights", name == "asked_false")}}
    assert found == want[name.split("_")[0]]


def test_a_text_that_has_changed_says_nothing(monkeypatch):
    text = inspect.getsource(Texts.asked_weights)
    for given, want in ((text, {("weights", False)}),
                        (text.replace("(e, a)", "(e, x)"), None)):
        _deferred._unread.cache_clear()
        monkeypatch.setattr(inspect, "getsource", lambda code: given)
        assert _deferred._unread(Texts.asked_weights.__code__) == want
    _deferred._unread.cache_clear()


def test_a_layer_of_molecules_is_one_program():
    layer, e = GATEConv(W, W, 3).double(), edges()
    fast, _ = accelerated(layer)
    given = {"x": _given()["x"], "edge_index": e,
             "edge_attr": torch.randn(e.size(1), 3, dtype=torch.double)}
    same([fast(**given)], [layer(**given)])
    assert _traced.state(fast).served == 1
