"""Messages that cannot be traced, and what they read that changes or comes
later: an accelerated layer gives what its own path gives."""

import contextlib
import copy
import logging
import sys

import pytest
import torch

pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from torch_geometric.nn import (  # noqa: E402
    GATConv, GeneralConv, Linear, aggr)
from torch_geometric.utils import scatter, softmax  # noqa: E402

from traced_layers import (  # noqa: E402
    accelerated, Asserts, case, derivatives, edges, flat, N, Own, same, W)


class Branches(Own):
    def message(self, x_j):
        if x_j.abs().max() > 100:
            return x_j * 2
        return x_j


class Divides(Own):
    def message(self, x_j):
        return x_j / x_j.size(0)


class Sorts(Own):
    def message(self, x_j):
        return x_j.sort(dim=-1)[0]


class Remembers(Own):
    def __init__(self):
        super().__init__()
        self.seen = []

    def message(self, x_j):
        self.seen.append(x_j.sum().item())
        return x_j


class Recurrent(Own):
    def __init__(self):
        super().__init__(aggr=aggr.MedianAggregation())

    def message(self, x_j):
        return x_j


class Draws(Own):
    def message(self, x_j):
        return x_j * (torch.rand_like(x_j) * 0 + 1)


class Stops(Own):
    def message(self, x_j):
        with torch.no_grad():
            scale = x_j.sigmoid()
        return x_j * scale


class Rounds(Own):
    def message(self, x_j):
        return x_j.half().to(x_j.dtype)


class Outer(Own):
    """As of pygod's GNAConv: softmax over as many nodes as there are edges."""

    def message(self, x_i, x_j, edge_index):
        return x_j * softmax(x_i, edge_index[1], num_nodes=x_i.shape[0])


@pytest.mark.parametrize("kind, reason", [
    (Stops, "gradients are turned off or on; edge programs have detach()"),
    (Branches, "bool() asks what a tensor holds"),
    (Divides, "the number of edges is used as a number"),
    (Sorts, "edge programs have no sort"),
    (Remembers, "item() asks what a tensor holds"),
    (Recurrent, "a size depends on what a tensor holds"),
    (Outer, "values of nodes have several numbers of rows"),
    (Draws, "draws random numbers"),
    (Rounds, "a conversion to torch.float16, which rounds what edge")])
def test_what_cannot_be_traced_stays_and_says_why(kind, reason):
    layer, e, given = case(kind)
    fast, report = accelerated(layer)
    assert torch.equal(fast(e, **given), layer(e, **given))
    assert len(report.kept) == 1 and not report.traced
    assert reason in report.kept[0].reason
    if kind is not Recurrent:
        assert f"{__file__}, line " in report.kept[0].reason


class RoundsItsSoftmax(Own):
    def message(self, x_j):
        return x_j * x_j.softmax(-1, dtype=torch.bfloat16)


class RoundsAsItsWeight(Own):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(W, dtype=torch.half))

    def message(self, x_j):
        return (x_j.type_as(self.weight) * self.weight).type_as(x_j)


@pytest.mark.parametrize("kind, to", [
    (RoundsAsItsWeight, torch.float16), (RoundsItsSoftmax, torch.bfloat16)])
def test_neither_weights_nor_functions_hide_a_rounding(kind, to, recwarn):
    layer, (_, e, given) = kind(), case(Own)
    fast, report = accelerated(layer)
    assert torch.equal(fast(e, **given), layer(e, **given))
    assert f"a conversion to {to}" in report.kept[0].reason
    assert not [w for w in recwarn if "fault of dfgnn" in str(w.message)]


class Detaches(Own):
    def message(self, x_j):
        return 2 * x_j.detach()


@pytest.mark.parametrize("number", [1.0, float("nan")])
def test_a_result_has_a_gradient_where_its_own_has_one(number, recwarn):
    layer, e, given = case(Detaches)
    x = torch.full_like(given["x"], number, requires_grad=True)
    fast, report = accelerated(layer)
    assert not fast(e, x=x).requires_grad and not layer(e, x=x).requires_grad
    assert not report.kept
    assert not [w for w in recwarn if "fault of dfgnn" in str(w.message)]


class Fixed(Own):
    def __init__(self):
        super().__init__()
        self.lin = Linear(W, W)

    def message(self, x_j):
        return self.lin(x_j)


class Gates(Fixed):
    """No gradient leads to the parameters of lin."""

    def message(self, x_j):
        if self.way == "hard":
            return x_j * (self.lin(x_j) > 0)
        if self.way == "typed":
            weight = self.lin.weight
            return x_j.type_as(weight).to(weight).expand_as(weight[:1] + x_j)
        gate = torch.zeros_like(x_j)
        gate += self.lin(x_j).detach()
        return x_j * gate


@pytest.mark.parametrize("way", ["soft", "hard", "typed"])
def test_what_no_gradient_leads_to_has_none(way):
    layer, e, given = case(Gates)
    layer.way = way
    fast, report = accelerated(layer)
    same(derivatives(fast, e, given, 1), derivatives(layer, e, given, 1))
    assert fast.lin.weight.grad is None and not report.kept
    fast(e, **given).sum().backward()
    assert fast.lin.weight.grad is None


class Finds(Own):
    """Looks for attributes in ways that no guard of torch.compile's is on."""

    def message(self, x_j):
        return x_j * getattr(self, "by_" + self.way)()

    def by_error(self):
        try:
            return self.factor
        except AttributeError:
            return 1.0

    def by_dict(self):
        return self.__dict__.get("factor", 1.0)

    def by_context(self):
        with contextlib.suppress(AttributeError):
            return self.factor
        return 1.0


class Defaults(Own):
    def __getattr__(self, name):
        return 1.0 if name == "factor" else super().__getattr__(name)

    def message(self, x_j):
        return x_j * self.factor


@pytest.mark.parametrize("kind, way", [
    (Finds, "error"), (Finds, "dict"), (Finds, "context"), (Defaults, "")])
def test_attributes_that_come_later_are_found(kind, way):
    layer, e, given = case(kind)
    layer.way = way
    fast, _ = accelerated(layer)
    same(flat(fast(e, **given)), flat(layer(e, **given)))
    layer.factor = fast.factor = 3.0
    same(flat(fast(e, **given)), flat(layer(e, **given)))


def test_an_assert_of_what_a_tensor_holds_is_the_users():
    layer, e, given = case(Asserts)
    fast, _ = accelerated(layer)
    same(flat(fast(e, **given)), flat(layer(e, **given)))
    with pytest.raises(AssertionError, match="much"):
        fast(e, x=100 * given["x"].exp() + 100)


def weighted(total):
    """x_j by its share of a total that is changed."""
    def message(x_i, x_j, index, size):
        score = (x_i * x_j).sum(-1, keepdim=True)
        most = scatter(score.detach(), index, 0, size, "max")
        share = (score - most[index]).exp()
        return x_j * (share / total(scatter(share, index, 0, size))[index])
    return message


def bits(x_i, x_j, index, size):
    return x_i * (x_j.view(torch.int64) & -2048).view(x_j.dtype)


@pytest.mark.parametrize("message", [
    weighted(lambda total: total.clamp(max=1.5)),
    weighted(lambda total: torch.add(total, other=5.0)),
    weighted(lambda total: total.clamp(min=1e-10)), bits,
    lambda x_i, x_j, index, size: x_j.clamp(min=x_i) + x_j.clamp(max=x_i)])
def test_calls_mean_what_torch_means_where_nothing_is_compared(message):
    """As under torch.compile, which has no check."""
    class Calls(Own):
        def message(self, x_i, x_j, index, size_i):
            return message(x_i, x_j, index, size_i)
    layer, e = Calls(), edges()
    fast = copy.deepcopy(layer)
    x = (4 * torch.randn(N, W, dtype=torch.double)).round() / 4  # with equals
    dfgnn.accelerate(fast, check=False, guard=False)
    x.requires_grad_()
    same(derivatives(fast, e, {"x": x}, 1), derivatives(layer, e, {"x": x}, 1))


WAYS = [torch.tanh]


class Reads(Own):
    """What a call reads beside numbers that are attributes."""

    def __init__(self):
        super().__init__()
        self.factors, self.act = [1.0], torch.tanh

    def message(self, x_j):
        return WAYS[0](self.act(x_j)) * self.factors[0]


def test_torch_compile_reads_anew_what_has_changed(monkeypatch):
    from dfgnn.nn.pyg import _compiled
    layer, e, given = case(Reads)
    fast, _ = accelerated(layer)
    torch._dynamo.reset()
    compiled = torch.compile(fast, backend="eager")
    count = len(_compiled._MODULES)

    def agree():
        same(flat(compiled(e, **given)), flat(layer(e, **given)))
    agree()
    layer.factors[0] = fast.factors[0] = 4.0
    agree()
    layer.act = fast.act = torch.sin
    agree()
    monkeypatch.setattr(sys.modules[__name__], "WAYS", [torch.cos])
    agree()
    assert len(_compiled._MODULES) == count + 4


class Counts(Own):
    def message(self, x_j):
        return x_j * 2 if x_j.size(0) > 30 else x_j


def test_torch_compile_asks_for_the_number_of_edges_there_is():
    layer, e, given = case(Counts)
    fast, _ = accelerated(layer)
    torch._dynamo.reset()
    compiled = torch.compile(fast, backend="eager")
    for edges in (e, e[:, :20], e[:, :31], e[:, :1]):
        same(flat(compiled(edges, **given)), flat(layer(edges, **given)))


class Lazy(Own):
    """Knows the width of its edges' features after its first call."""

    def __init__(self):
        super().__init__()
        self.late = Linear(-1, W)

    def message(self, x_j, e):
        return x_j * self.late(e)


def test_a_layer_is_traced_once_its_parameters_have_shapes():
    layer, e, given = case(Lazy)
    given["e"] = torch.randn(e.size(1), 3, dtype=torch.double)
    fast, report = accelerated(layer)
    layer(e, **given)
    fast(e, **given)
    fast.load_state_dict(layer.state_dict())
    same(derivatives(fast, e, given, 1), derivatives(layer, e, given, 1))
    assert not report.kept


def test_a_wrong_call_says_nothing_but_its_error(capfd):
    """On a process's standard error, where torch logs."""
    layer, e, _ = case(Fixed)
    dfgnn.accelerate(layer)
    told = []
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    handler = logging.Handler()
    handler.emit = told.append
    logger.addHandler(handler)
    try:
        with pytest.raises(RuntimeError):
            layer(e, x=torch.randn(N, W + 1, dtype=torch.double))
        layer = GeneralConv(W, W, flow="target_to_source")
        dfgnn.accelerate(layer)
        with pytest.raises(IndexError):
            layer((torch.randn(2, W), torch.randn(N, W)), e.flip(0))
    finally:
        logger.removeHandler(handler)
    assert not told and not capfd.readouterr().err


class Listed(Own):
    """Keeps a list of the classes over it, which have to say their names."""
    classes = []

    def __init_subclass__(cls, title, **kwargs):
        super().__init_subclass__(**kwargs)
        Listed.classes.append((title, cls))

    def message(self, x_j):
        return x_j.sin()


class Titled(Listed, title="titled"):
    pass


@pytest.mark.parametrize("calling", [False, True])
def test_no_init_subclass_is_told_of_a_class_with_kernels(calling):
    if calling:  # a class whose calls of PyG's functions are served
        class Model(torch.nn.Module):
            def __init_subclass__(cls, title):
                raise AssertionError("there is no class over it")

            def forward(self, x, e):
                return scatter(x[e[0]], e[1], dim_size=N, reduce="max")
        layer, e, given = Model(), edges(), {"x": torch.randn(N, W)}
        layer(given["x"], e)
        fast, report = accelerated(layer)
        assert report.calling
        same([fast(given["x"], e)], [layer(given["x"], e)])
        return
    layer, e, given = case(Titled)
    fast, report = accelerated(layer)
    same(derivatives(fast, e, given, 1), derivatives(layer, e, given, 1))
    assert not report.kept and type(fast) is not Titled
    assert Listed.classes == [("titled", Titled)]


class Compares(Own):
    """Is another to a class over it."""
    calls = 0

    def message(self, x_j):
        return x_j * (2 if type(self) is Compares else 1)


class ComparesInForward(Own):
    def forward(self, e, x):
        return self.propagate(e, x=x) * {ComparesInForward: 3}[self.__class__]

    def message(self, x_j):
        return x_j


class Counted(Own):
    calls = 0

    def forward(self, e, x):
        type(self).calls += 1
        return self.propagate(e, x=x) * Counted.calls

    def message(self, x_j):
        return x_j


class CountedByClass(Fixed):
    calls = 0

    @classmethod
    def count(cls):
        cls.calls += 1

    def forward(self, e, x):
        self.count()
        return self.propagate(e, x=x) * CountedByClass.calls


class Numbered(Fixed):
    numbers = {}

    @classmethod
    def number(cls):
        return cls.numbers.setdefault(cls, len(cls.numbers))

    def forward(self, e, x):
        return self.propagate(e, x=x) * (1 + self.number())


class ComparesInProperty(Fixed):
    @property
    def gain(self):
        return 2 if any(type(self) is kind for kind in (Own, Fixed)) else 1

    def forward(self, e, x):
        return self.propagate(e, x=x) * self.gain


class Scatters(torch.nn.Module):
    def forward(self, e, x):
        return scatter(x[e[0]], e[1], dim_size=N, reduce="max") * (
            1 if type(self) == Scatters else 2)


@pytest.mark.parametrize("kind", [
    Compares, ComparesInForward, Counted, CountedByClass, Numbered,
    ComparesInProperty, Scatters])
def test_a_layer_that_compares_its_class_keeps_it(kind):
    layer, e, x = kind().double(), edges(), torch.randn(N, W).double()
    fast, report = accelerated(layer, guard=False)
    for k in range(3):
        expected = layer(e, x=x)
        if hasattr(kind, "calls"):
            kind.calls -= 1
        same([fast(e, x=x)], [expected])
    assert type(fast) is kind
    assert not report.kept or "compares its class" in str(report)


def test_a_layer_that_reads_of_its_class_does_not_compare_it():
    class Reads(Own):
        gain = 2.0

        @classmethod
        def made(cls, *args):  # which no method calls
            return cls(*args)

        def message(self, x_j):
            return x_j * type(self).gain * len(self.__class__.__name__)
    layer, e, x = Reads().double(), edges(), torch.randn(N, W).double()
    fast, report = accelerated(layer)
    same([fast(e, x=x)], [layer(e, x=x)])
    assert not report.kept


class Frozen(Fixed):
    """Forbids writes, and says of no layer whether it is another."""
    __hash__ = torch.nn.Module.__hash__

    def __eq__(self, other):
        raise TypeError

    def __setattr__(self, name, value):
        if "lin" in self.__dict__.get("_modules", ()):
            raise AttributeError(name)
        super().__setattr__(name, value)


@pytest.mark.parametrize("stance", [{"stance": "fail_on_recompile"},
                                    {"skip_guard_eval_unsafe": True}], ids=str)
def test_writes_that_are_forbidden_and_stances_are_the_users(stance):
    layer, e, x = Frozen().double(), edges(), torch.randn(N, W).double()
    fast, report = accelerated(layer)
    with torch.compiler.set_stance(**stance):
        for given in x, x[:, None], x:
            same([fast(e, x=given)], [layer(e, x=given)])
    assert report.traced and not report.kept


def _edge_less(self, x, edge_index):
    return self.lin(x)


@pytest.mark.parametrize("place, name, patch", [
    (GATConv, "forward", lambda theirs: _edge_less),
    (sys.modules[GATConv.__module__], "softmax",
     lambda theirs: lambda *args, **kwargs: 2 * theirs(*args, **kwargs))],
    ids=["class", "module"])
def test_what_somebody_puts_into_pyg_is_called(monkeypatch, place, name, patch):
    monkeypatch.setattr(place, name, patch(getattr(place, name)))
    layer, e, x = GATConv(W, W).double(), edges(), torch.randn(N, W).double()
    fast, report = accelerated(layer, guard=False)
    assert not report.swapped
    same([fast(x, e)], [layer(x, e)])


def test_a_forward_that_comes_later_is_called(monkeypatch):
    layer, x = Own().double(), torch.randn(N, W).double()
    fast, _ = accelerated(layer, guard=False)
    fast(edges(), x=x)
    monkeypatch.setattr(Own, "forward", lambda self, e, x: 3 * x)
    same([fast(edges(), x=x)], [3 * x])
