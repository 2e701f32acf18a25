"""Layers of one's own, traced by dfgnn.accelerate, against their own path."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("torch_geometric.nn")

import dfgnn  # noqa: E402
from dfgnn import _dynamo  # noqa: E402
from dfgnn.nn.pyg import _edges, _traced  # noqa: E402
from torch_geometric.nn import GATConv, GCN, NNConv  # noqa: E402
from torch_geometric.utils import softmax  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from conftest import fast_copy, random_edges  # noqa: E402
from traced_layers import (  # noqa: E402
    accelerated, Attention, by_kind, case, derivatives, edges, Filter, flat, H,
    M, N, Network, Normed, NormedEnd, NoSize, Own, same, Scattered, Updated, W,
    Wide)


class Neighbours(Own):
    def message(self, x_j):
        return 3 * x_j


class Dropped(Own):
    def message(self, x_j):
        return F.dropout(x_j, 0.5, self.training)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_each_replay_of_a_captured_layer_drops_anew():
    layer, e = Dropped().cuda(), edges().cuda()
    x = torch.randn(N, W, device="cuda", requires_grad=True)
    dfgnn.accelerate(layer)

    def step(x, e):
        out = layer(e, x=x)
        return out, *torch.autograd.grad(out.sum(), x)
    recorded = dfgnn.capture(step, x, e)
    outs = [[t.clone() for t in recorded(x, e)] for _ in range(4)]
    assert _traced.state(layer).reason is None
    assert len({out.sum().item() for out, _ in outs}) > 1
    for out, grad in outs:  # which is linear in x
        torch.testing.assert_close((grad * x).sum(), out.sum())


@by_kind
def test_two_orders_of_derivatives_are_the_layers_own(kind):
    layer, e, given = case(kind)
    fast, report = accelerated(layer)
    have, want = derivatives(fast, e, given), derivatives(layer, e, given)
    assert len(report.traced) == 1 and not report.kept, report
    same(have, want)
    same([*fast.buffers()], [*layer.buffers()])


class Written(torch.nn.Module):
    """A layer whose results are written to, as a bias is added by +=."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *edges, **given):
        return tuple([out.mul_(0.5).sub_(0.1) for out in flat(
            self.layer(*edges, **given))])


@by_kind
def test_results_may_be_written_to(kind):
    layer, e, given = case(kind)
    fast, report = accelerated(layer)
    try:
        want = derivatives(Written(layer), e, given)
    except RuntimeError as error:  # the layer's own gradient reads them
        assert "inplace operation" in str(error)
        return
    same(derivatives(Written(fast), e, given), want)
    assert report.traced and not report.kept, report


def test_what_is_given_may_be_written_to_where_no_gradient_reads_it():
    layer, e, given = case(Neighbours)
    fast, report = accelerated(layer)

    def grad(layer):
        x = given["x"] * 2
        out = layer(e, x=x)
        x += 1
        return torch.autograd.grad((out * x).sum(), [given["x"]])
    same(grad(fast), grad(layer))
    assert report.traced and not report.kept, report


def test_check_keeps_a_layer_whose_numbers_differ(monkeypatch):
    from dfgnn import _translations
    monkeypatch.setitem(_translations.TABLE, "sigmoid",
                        lambda node, x: x._make("sigmoid", [x]) * 1.001)
    kind = type("Wrong", (Scattered,), {})  # of which no graph was made yet
    _, e, given = case(Scattered)
    layer = kind().double()
    fast, report = accelerated(layer)
    with pytest.warns(UserWarning, match="differ from its own"):
        same(flat(fast(e, **given)), flat(layer(e, **given)))
    assert "differ from its own" in report.kept[0].reason


@by_kind
def test_what_the_layer_is_stays(kind):
    layer, e, given = case(kind)
    fast, _ = accelerated(layer)
    want = flat(fast(e, **given))
    assert isinstance(fast, kind) and type(fast).__name__ == kind.__name__
    assert list(fast.state_dict()) == list(layer.state_dict())
    if kind not in (Normed, NormedEnd):  # whose statistics move with every call
        for again in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
            assert type(again) is type(fast)
            same(flat(again(e, **given)), want)
    dfgnn.accelerate(fast, undo=True)
    assert type(fast) is kind


@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_two_kinds_of_nodes(flow):
    layer = Attention(flow=flow).double()
    reverse = flow != "source_to_target"
    e = random_edges(M, N, 40)
    e = e.flip(0) if reverse else e
    x = [torch.randn(n, H, W, dtype=torch.double, requires_grad=True)
         for n in (M, N)]
    x = (x[1], x[0]) if reverse else tuple(x)
    fast, report = accelerated(layer)
    found = []
    for one in (fast, layer):
        out = one(e, x=x, edge_attr=None)
        found.append([out, *torch.autograd.grad((out * out.cos()).sum(), x)])
    assert report.traced and not report.kept, report
    assert found[0][0].shape == (N, H, W)
    same(*found)


def test_narrow_rows_of_edges_are_put_in_order(monkeypatch):
    layer = NNConv(16, 16, torch.nn.Linear(3, 256))
    fast, _ = accelerated(layer)
    put, widths = dfgnn.Graph.to_graph_order, []

    def watched(graph, x):
        widths.append(x[0].numel())
        return put(graph, x)
    monkeypatch.setattr(dfgnn.Graph, "to_graph_order", watched)
    args = torch.randn(20, 16), torch.randint(0, 20, (2, 90)), torch.randn(
        90, 3)
    torch.testing.assert_close(fast(*args), layer(*args))
    assert widths and set(widths) == {3}


class Keeps(Own):
    """A buffer, or an attribute, has edge features that widen afterwards."""

    def __init__(self, count, writes):
        super().__init__()
        self.lin, self.writes = torch.nn.Linear(3, 256), writes
        self.register_buffer("kept", torch.zeros(count, 3))

    def message(self, x_j, e):
        wide = e + 1
        if self.writes:
            self.kept.copy_(wide)
        else:
            self.kept = wide
        return x_j * self.lin(wide)


@pytest.mark.parametrize("writes", [False, True])
def test_what_is_kept_of_edges_has_the_callers_order(writes):
    e = edges()
    layer = Keeps(e.size(1), writes)
    fast, _ = accelerated(layer)
    given = {"x": torch.randn(N, 256), "e": torch.randn(e.size(1), 3)}
    torch.testing.assert_close(fast(e, **given), layer(e, **given))
    assert _traced.state(fast).reason is None
    assert torch.equal(fast.kept, layer.kept)


def test_numbers_that_are_not_real_take_the_layers_own_path():
    layer, e, given = case(Neighbours)
    for make, kind in ((lambda x: torch.complex(x, x + 1), "complex128"),
                       (lambda x: x.mul(9).long(), "int64")):
        fast, report = accelerated(layer)
        x = make(given["x"].detach())
        assert torch.equal(fast(e, x=x), layer(e, x=x))
        assert f"tensors of torch.{kind}" in report.kept[0].reason


class Doubled(GATConv):
    def forward(self, x, edge_index):
        return 2 * super().forward(x, edge_index)


class Bounded(GATConv):
    def edge_update(self, alpha_j, alpha_i, index, ptr, dim_size):
        return softmax((alpha_j + alpha_i).tanh(), index, ptr, dim_size)


@pytest.mark.parametrize("kind", [Doubled, Bounded])
def test_a_subclass_of_a_layer_that_scores_its_edges_is_traced(kind):
    layer = kind(W, 3, heads=2).double()
    fast, report = accelerated(layer)
    x, e = torch.randn(N, W, dtype=torch.double), edges()
    same([fast(x, e)], [layer(x, e)])
    assert "runs by an edge program" in str(report)


def test_hooks_explanations_and_sparse_matrices_take_the_layers_own_path():
    layer, e, given = case(NoSize)
    fast, report = accelerated(layer)
    seen = []
    handle = fast.register_message_forward_hook(
        lambda module, inputs, out: seen.append(out.shape))
    same(flat(fast(e, **given)), flat(layer(e, **given)))
    assert seen == [(e.size(1), W)]
    handle.remove()
    layer, e, given = case(Network)
    inner, again = accelerated(layer)
    inner.nn[0].register_forward_hook(lambda *_: seen.append(1))
    same(flat(inner(e, **given)), flat(layer(e, **given)))
    assert seen[1:] == [1], again
    layer, e, given = case(NoSize)
    fast.explain, fast._edge_mask = True, torch.zeros(e.size(1))
    fast._apply_sigmoid = True
    half = fast(e, **given)
    fast.explain = False
    same([half * 2], flat(layer(e, **given)))
    same(flat(fast(e, **given)), flat(layer(e, **given)))
    assert report.traced
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same(flat(fast(e, **given)), flat(layer(e, **given)))
    none = e[:, :0]
    same(flat(fast(none, **given)), flat(layer(none, **given)))


def test_torch_func_takes_the_layers_own_path():
    layer, e, given = case(Filter)
    fast, _ = accelerated(layer)
    x, pos = given["x"].detach(), given["pos"].detach()

    def energy(one):
        return lambda x: one(e, x=x, pos=pos).square().sum()
    same([torch.func.grad(energy(fast))(x)], [torch.func.grad(energy(layer))(
        x)])


@pytest.mark.parametrize("kind, form", [
    *[(kind, "list") for kind in (Attention, Network, Normed, Filter,
                                  Updated)], (Filter, "graph")])
def test_torch_compile_has_programs_in_its_graph(kind, form):
    """The graph does not break, and has operators of programs; training and
    evaluation are graphs of their own."""
    from dfgnn.nn.pyg import _compiled
    layer, e, given = case(kind)
    fast, _ = accelerated(layer)
    torch._dynamo.reset()
    count = len(_compiled._MODULES)
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)
    edges = e if form == "list" else dfgnn.as_graph(e, N)
    same(derivatives(compiled, edges, given, 1),
         derivatives(layer, e, given, 1))
    same([*fast.buffers()], [*layer.buffers()])
    assert len(_compiled._MODULES) == count + 1
    code = list(_compiled._MODULES.values())[-1].code
    assert "torch.ops.dfgnn." in code
    fast.eval(), layer.eval()
    same(flat(compiled(edges, **given)), flat(layer(e, **given)))


class Twice(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.second = layer, copy.deepcopy(layer)

    def forward(self, e, **given):
        return self.first(e, **given) * self.second(e, **given)


def test_layers_of_a_model_are_in_one_graph():
    """What torch.compile has seen of a layer does not hide the next one's."""
    layer, e, given = case(Filter)
    model = Twice(layer)
    fast = copy.deepcopy(model)
    assert len(dfgnn.accelerate(fast).traced) == 2
    torch._dynamo.reset()
    compiled = torch.compile(fast, backend="aot_eager", fullgraph=True)
    same(derivatives(compiled, e, given, 1), derivatives(model, e, given, 1))


def test_inductor_compiles_programs():
    """One graph for other numbers of edges."""
    from dfgnn.nn.pyg import _compiled
    layer, e, given = case(Attention)
    fast, _ = accelerated(layer)
    torch._dynamo.reset()
    count = len(_compiled._MODULES)
    compiled = torch.compile(fast, fullgraph=True, dynamic=True)
    for edges in (e, e[:, :-5]):
        cut = {k: v[:edges.size(1)] if v.size(0) == e.size(1) else v
               for k, v in given.items()}
        outs = [module(edges, **cut) for module in (compiled, layer)]
        same(*([out, *torch.autograd.grad(out.square().sum(), cut["x"])]
               for out in outs))
    assert len(_compiled._MODULES) > count


def test_inductor_compiles_layers_that_make_the_same_edges():
    """It finds that the edges of both have one unknown number."""
    torch._dynamo.reset()
    plain = GCN(8, 16, 2, 4)
    x, edges = torch.randn(9, 8), torch.randint(9, (2, 30))
    weights = torch.rand(30)
    compiled = torch.compile(fast_copy(plain), fullgraph=True)
    out = compiled(x, edges, edge_weight=weights)
    torch.testing.assert_close(out, plain(x, edges, edge_weight=weights))


@pytest.mark.parametrize("kind", ["MX", "SD"])
def test_super_gat_is_a_program_which_compiles_whole(kind):
    from dfgnn.nn.pyg import SuperGATConv, _compiled, _traced
    layer = SuperGATConv(W, 4, H, attention_type=kind,
                         add_self_loops=False).double().eval()
    e, x = edges(), torch.randn(N, W, dtype=torch.float64, requires_grad=True)
    out = layer(x, e)
    assert _traced.state(layer).served == 1
    torch._dynamo.reset()
    count = len(_compiled._MODULES)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)(x, e)
    same(*([made, *torch.autograd.grad(made.square().sum(), x)]
           for made in (compiled, out)))
    assert len(_compiled._MODULES) == count + 1


def test_a_wrong_call_raises_what_the_layer_raises():
    layer, e, given = case(NoSize)
    fast, _ = accelerated(layer)
    for x in (torch.randn(N - 9, W), (torch.randn(N, W), torch.randn(3, W))):
        with pytest.raises(Exception) as own:
            layer(e, x=x)
        with pytest.raises(type(own.value)):
            fast(e, x=x)


@pytest.mark.parametrize("own, kind", [
    (Attention, torch.float32), (Network, torch.bfloat16),
    (Wide, torch.float16)])
def test_types_of_16_and_32_bits(own, kind):
    layer, e, given = case(own)
    wide = flat(layer(e, **given))
    fast, report = accelerated(layer.to(kind))
    out = flat(fast(e, **{k: t.detach().to(kind) for k, t in given.items()}))
    assert report.traced and out[0].dtype == kind
    tolerance = 1e-4 if kind == torch.float32 else 6e-2
    torch.testing.assert_close(out[0].double(), wide[0], rtol=tolerance,
                               atol=tolerance)


@by_kind
def test_autocast_gives_the_types_that_the_layer_has(kind):
    """The numbers, too, except those that statistics of 16 bits make."""
    layer, e, given = case(kind)
    layer = layer.float()
    given = {k: t.detach().float().requires_grad_() if t.is_floating_point()
             else t for k, t in given.items()}
    fast, report = accelerated(layer)
    found = []
    for one in (fast, layer):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outs = flat(one(e, **given))
        leaves = [t for t in given.values() if t.requires_grad]
        found.append([*outs, *[g for g in torch.autograd.grad(
            sum((x.float() * x.float().cos()).sum() for x in outs),
            [*leaves, *one.parameters()], allow_unused=True)
            if g is not None]])
    assert report.traced and not report.kept, report
    assert len(found[0]) == len(found[1])
    for a, b in zip(*found):
        assert a.shape == b.shape and a.dtype == b.dtype
        if kind is not NormedEnd:
            largest = max(1e-2, float(b.detach().abs().max()))
            assert float((a - b).detach().abs().max()) < 0.1 * largest


def test_autocast_leaves_rows_of_another_16_bit_type():
    layer, e, given = case(Neighbours)
    fast, report = accelerated(layer)
    x = given["x"].detach().half()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(fast(e, x=x), layer(e, x=x), rtol=1e-2,
                                   atol=1e-2)
    assert report.traced and not report.kept


def test_layers_of_anemoi_models():
    conv = pytest.importorskip("anemoi.models.layers.conv")
    from anemoi.utils.config import DotDict
    kernels = DotDict(Linear=torch.nn.Linear, LayerNorm=torch.nn.LayerNorm,
                      Activation=torch.nn.GELU)
    e = edges()
    q, k, v = (torch.randn(N, H, W, requires_grad=True) for _ in range(3))
    attr = torch.randn(e.size(1), H, W, requires_grad=True)
    x = torch.randn(N, W, requires_grad=True)
    flat_attr = torch.randn(e.size(1), W, requires_grad=True)
    for layer, args in ((conv.GraphTransformerConv(W), (q, k, v, attr, e)),
                        (conv.GraphConv(W, W, kernels), (x, flat_attr, e))):
        fast, report = accelerated(layer, check=True)
        leaves = [a for a in args if a.requires_grad]
        found = []
        for one in (fast, layer):
            outs = flat(one(*args))
            found.append([*outs, *torch.autograd.grad(
                sum((o * o.cos()).sum() for o in outs), leaves)])
        assert report.traced, report
        same(*found, tolerance=1e-4)


def test_outputs_of_static_graphs_are_dense():
    """Callers view them, as PyG's own tests do."""
    from torch_geometric.nn import GCNConv
    layer = GCNConv(W, 4, node_dim=1)
    x, e = torch.randn(3, N, W), edges()
    want = layer(x, e)
    dfgnn.accelerate(layer)
    out = layer(x, e)
    assert out.is_contiguous()
    same([out], [want], tolerance=1e-5)


def test_rows_of_edges_in_order_are_not_copied(place):
    edges = random_edges(M, N, 30, place)
    in_order = edges[:, edges[1].argsort(stable=True)]
    assert _edges.graph_of(Own(), edges, M, N).edge_order is not None
    assert _edges.graph_of(Own(), in_order, M, N).edge_order is None


def test_the_first_call_may_stand_in_a_checkpoint():
    """The check makes gradients, whose tensors are not the checkpoint's."""
    layer, e, given = case(Attention)
    fast, report = accelerated(layer)
    x = {name: t.detach().requires_grad_(t.is_floating_point())
         for name, t in given.items()}
    leaves = [t for t in x.values() if t.requires_grad]

    def gradients(layer):
        out = checkpoint(lambda: layer(e, **x), use_reentrant=False)
        return torch.autograd.grad(sum(t.sin().sum() for t in flat(out)),
                                   leaves)
    same(gradients(fast), gradients(layer))
    assert not report.kept, report


def test_gradients_have_the_strides_of_their_parameters():
    # an optimizer that takes all of them at once launches no kernel for each
    from torch_geometric.nn.models.attentive_fp import GATEConv
    layer = GATEConv(W, W, 3)
    assert not dfgnn.accelerate(layer, guard=False).kept
    layer(torch.randn(N, W), edges(), torch.randn(edges().size(1), 3)).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.stride() == parameter.stride(), name


def test_a_failure_of_dynamos_words_is_the_layers_own_path():
    def get_and_maybe_log_recompilation_reasons():
        raise KeyError("scaler")

    def own():
        raise KeyError("mine")
    function = _dynamo.Function(lambda x: x, None)
    function.known, function.there = [], True
    function.run = lambda x: get_and_maybe_log_recompilation_reasons()
    with pytest.raises(_dynamo.TraceError, match="scaler"):
        function(torch.nn.Module(), torch.ones(3))
    with pytest.raises(KeyError, match="mine"):
        _dynamo._compiled(own, None, ())


def test_the_process_ends_silently_with_what_is_kept():
    # what is kept holds what it is kept with
    code = "import torch, dfgnn\nfrom dfgnn import _remember\n" \
        "x = torch.ones(3)\n" \
        "_remember.remember(x, 'a', lambda: x)\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True)
    assert done.returncode == 0 and not done.stderr


def test_a_thread_that_has_ended_leaves_others_what_they_trace_with():
    code = """
import threading, torch, torch_geometric.nn as G, dfgnn
x, edges = torch.randn(9, 4), torch.randint(0, 9, (2, 20))
for layer in (G.GENConv(4, 4), G.LEConv(4, 4), G.FiLMConv(4, 4)):
    dfgnn.accelerate(layer)
    thread = threading.Thread(target=layer, args=(x, edges))
    thread.start()
    thread.join()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stderr
