"""What a captured step reads from the device: counts of groups, rows of masks,
conditions and negatives, which its recording keeps and each replay checks."""

import functools

import numpy
import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import dfgnn

from conftest import close, random_edges
from test_capture import CLASSES, GPU, IN, N, fake, wait, waiting  # noqa: F401


def graph_sums(x, batch):
    """As PyG's global_add_pool."""
    return x.new_zeros(int(batch.max()) + 1).index_add(0, batch, x)


def own_sums(x, batch):
    return dfgnn.scatter(x, batch)


@pytest.mark.parametrize("step", [graph_sums, own_sums])
@pytest.mark.parametrize("other", [[0, 1, 1], [0, 1, 5]])
def test_a_number_of_graphs_is_kept_and_checked(fake, step, other):
    captured = dfgnn.capture(step, warmup=3)
    x = torch.tensor([1., 2, 4])
    for last in ([0, 1, 2], [0, 2, 2], [2, 1, 0], [1, 2, 2], [0, 0, 2]):
        batch = torch.tensor(last)
        assert torch.equal(captured(x, batch), step(x, batch))
    assert captured.recorded == 1
    captured(x, torch.tensor(other))  # writes nowhere beyond three graphs
    with pytest.raises(dfgnn.InvalidError, match="largest number is another "
                       "than in its first steps, 2:.*filled"):
        captured(x, torch.tensor([0, 1, 2]))
    batch = torch.tensor([2, 0, 0])
    assert torch.equal(captured(x, batch), step(x, batch))
    assert captured.recorded == 1


@pytest.mark.parametrize("step", [graph_sums, own_sums])
def test_each_index_has_its_own_number_of_groups(fake, step):
    captured = dfgnn.capture(lambda x, *each: [step(x, one) for one in each])
    for _ in range(6):
        x = torch.randn(4)
        each = [torch.cat([torch.tensor([most]), torch.randint(most, (3,))])
                for most in (2, 5, 1)]
        for out, one in zip(captured(x, *each), each):
            assert torch.equal(out, step(x, one))
    assert captured.recorded == 1


def test_batches_of_any_number_of_graphs_have_room(fake):
    most = dfgnn.Capacity(nodes=20, edges=40)
    captured = dfgnn.capture(graph_sums, capacity=dict(
        x=most.nodes, batch=most.nodes.filled(4)))
    for sizes in ([3, 2], [1], [4, 4, 4, 4], [2, 2], [5, 1, 1]):
        batch = torch.repeat_interleave(torch.arange(len(sizes)),
                                        torch.tensor(sizes))
        x = torch.randn(batch.numel())
        out = captured(x, batch)
        assert out.shape == (5,)
        close(out[:len(sizes)], graph_sums(x, batch), 1e-6)
    assert captured.recorded == 1


def test_a_number_of_another_kind_is_still_refused(fake):
    def step(x):
        return x * wait(x).float().max().item()
    with pytest.raises(dfgnn.CaptureError):
        dfgnn.capture(step, torch.ones(2))


def written(x, mask):
    x = x * 1
    x[mask] = x[mask] + 3
    x[~mask] = 0.5
    return x


MASKED = {
    "rows": lambda x, m: x[m],
    "loss": lambda x, m: F.cross_entropy(x[m], x.argmax(1)[m]),
    "columns": lambda x, m: x.t()[:, m] * 2,
    "beside numbers": lambda x, m: x[m, 1:],
    "two axes": lambda x, m: x[m.unsqueeze(1).expand(-1, 3)],
    "masked_select": lambda x, m: x.masked_select(m.unsqueeze(1)),
    "nonzero": lambda x, m: torch.stack([x, -x])[:, m.nonzero().view(-1)],
    "positions": lambda x, m: x[torch.nonzero(m, as_tuple=True)],
    "where": lambda x, m: x[torch.where(m)[0]],
    "count": lambda x, m: x.sum() / int(m.sum()),
    "written": written,
}


class Waits(TorchDispatchMode):
    """Operations of torch wait for the device as on a GPU."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in ("nonzero", "masked_select", "_local_scalar_dense") or \
                name in ("index", "index_put_") and any(
                    t is not None and t.dtype is torch.bool for t in args[1]
                ) and (name == "index" or args[2].dim()):
            wait()
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("step", MASKED.values(), ids=MASKED)
def test_the_rows_of_a_mask_are_kept_and_checked(fake, step):
    captured = dfgnn.capture(step, warmup=3)
    calls = [(torch.randn(6, 3), torch.randperm(6) < 4) for _ in range(7)]
    for x, mask in calls:
        expected = step(x, mask)
        with Waits():
            assert torch.equal(captured(x, mask), expected)
    assert captured.recorded == 1
    for wrong in (torch.arange(6) < 2, torch.arange(6) < 5):
        captured(x, wrong)
        with pytest.raises(dfgnn.InvalidError, match="a mask whose number of "
                           "True is another than in its first steps, (4|12)"):
            captured(*calls[0])
        assert torch.equal(captured(*calls[0]), step(*calls[0]))


def test_gradients_of_masked_rows(fake):
    weight = torch.randn(6, 3, requires_grad=True)

    def step(x, mask):
        weight.grad = None
        (x * weight)[mask].square().sum().backward()
        return weight.grad.clone()
    captured = dfgnn.capture(step, warmup=2)
    for _ in range(5):
        x, mask = torch.randn(6, 3), torch.randperm(6) < 4
        assert torch.equal(captured(x, mask), step(x, mask))
    assert captured.recorded == 1


def growing_mask(x):
    growing_mask.size += 1
    return x[torch.randperm(len(x), device=x.device) < growing_mask.size]


growing_mask.size = 0


def dropped_edges(x):
    dropped_edges.p = 1 - dropped_edges.p
    edges, _ = pytest.importorskip("torch_geometric.utils").dropout_edge(
        random_edges(N, N, 300), p=dropped_edges.p)
    return x.new_zeros(N).index_add(0, edges[1], x.expand(edges.size(1)))


dropped_edges.p = .2


@pytest.mark.parametrize("step, advice", [
    (growing_mask, "positions made before the step"),
    (dropped_edges, "drop edges or nodes before the step")])
def test_masks_of_another_size_in_each_step_are_refused(fake, step, advice):
    captured = dfgnn.capture(step)
    with pytest.raises(dfgnn.CaptureError, match="the mask takes .* rows, and"
                       ".*the step before.*" + advice) as found:
        for _ in range(3):
            captured(torch.ones(1 if step is dropped_edges else 99))
    assert "test_capture_reads.py:" in str(found.value)


@pytest.mark.parametrize("name", ["negative_sampling",
                                  "structured_negative_sampling"])
def test_sampling_on_the_host_is_refused(fake, name, monkeypatch):
    utils = pytest.importorskip("torch_geometric.utils")
    edges = random_edges(200, 200, 300)
    monkeypatch.setattr(numpy, "isin", waiting(numpy.isin))

    def step(x):
        found = getattr(utils, name)(edges, 200)
        return x + len(found)
    with pytest.raises(dfgnn.CaptureError, match="(?s)_negative_sampling.py.*"
                       "test_capture_reads.py.*draw them by dfgnn.negative_sampling"):
        dfgnn.capture(step, torch.ones(2))


BATCH = torch.arange(N) // 5


def batched_edges(count):
    graph = torch.randint(4, (count,))
    return torch.randint(5, (2, count)) + 5 * graph


@functools.cache
def graphs_of_nodes(device):
    """The batch vector there: a captured step copies nothing from the host."""
    return BATCH.to(device)


SAMPLED = {
    "few": (lambda e: dfgnn.negative_sampling(e, N, 5), random_edges, 5),
    "many": (lambda e: dfgnn.negative_sampling(e, N), random_edges, 63),
    "undirected": (lambda e: dfgnn.negative_sampling(
        e, N, force_undirected=True), random_edges, 62),
    "structured": (lambda e: torch.stack(dfgnn.structured_negative_sampling(
        e, N)[::2]), random_edges, 63),
    "batched": (lambda e: dfgnn.batched_negative_sampling(
        e, graphs_of_nodes(e.device), 3), batched_edges, 12),
}


def is_drawn(name, edges, found, count):
    """Whether found are pairs without an edge, as many as asked for."""
    pairs = list(map(tuple, found.t().tolist()))
    known = set(map(tuple, edges.t().tolist()))
    return len(pairs) == count and not known & set(pairs) and (
        name == "structured" or len(set(pairs)) == count) and (
        name != "batched" or all(i // 5 == j // 5 for i, j in pairs))


@pytest.mark.parametrize("name", SAMPLED)
def test_negatives_are_drawn_anew(fake, name):
    draw, make, count = SAMPLED[name]
    captured, seen = dfgnn.capture(draw), []
    for _ in range(7):
        edges = make(N, N, 60) if make is random_edges else make(30)
        with Waits():
            seen.append(captured(edges))
        assert is_drawn(name, edges, seen[-1], count)
    assert captured.recorded == 1
    with Waits():
        again = [captured(edges) for _ in range(3)]
    assert not torch.equal(again[0], again[1])


def test_fewer_negatives_than_in_the_first_steps_are_an_error(fake):
    def step(edges):
        return dfgnn.negative_sampling(edges, 5, 12)
    sparse = torch.tensor([[0, 1, 2, 2, 2, 2, 2, 2, 2], [1, 2] + [3] * 7])
    dense = torch.tensor([[0] * 4 + [1] * 4 + [2], [1, 2, 3, 4, 0, 2, 3, 4, 3]])
    captured = dfgnn.capture(step)
    for _ in range(5):
        assert captured(sparse).shape == (2, 12)
    captured(dense)
    with pytest.raises(dfgnn.InvalidError, match="another than in its first "
                       "steps, 12"):
        captured(sparse)
    assert captured(sparse).shape == (2, 12)


def link_prediction(kind, device="cpu"):
    """(a step of training by sampled negatives, its edges)."""
    pyg = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(2)
    layer = pyg.SuperGATConv(IN, CLASSES, edge_sample_ratio=1.0) \
        if kind == "SuperGATConv" else None
    model = {"GAE": lambda: pyg.GAE(pyg.GCNConv(IN, CLASSES)),
             "VGAE": lambda: pyg.VGAE(pyg.GCNConv(IN, CLASSES)),
             "SuperGATConv": lambda: torch.nn.ModuleList([layer]),
             "SignedGCN": lambda: pyg.SignedGCN(IN, CLASSES, 2)}[kind]()
    model.to(device)
    dfgnn.accelerate(model)
    edges = random_edges(N, N, 60, device)
    more = random_edges(N, N, 50, device)
    # Adam reads its count of steps on a CPU
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def step(x):
        optimizer.zero_grad()
        if kind == "SuperGATConv":
            loss = layer(x, edges).square().mean() + layer.get_attention_loss()
        elif kind == "SignedGCN":
            loss = model.loss(model(x, edges, more), edges, more)
        else:
            if kind == "VGAE":
                model.encode = lambda *args: model.reparametrize(
                    model.encoder(*args), model.encoder(*args))
            loss = model.recon_loss(model.encode(x, edges), edges)
        loss.backward()
        optimizer.step()
        return loss
    return step


LINKS = ["GAE", "VGAE", "SuperGATConv", "SignedGCN"]


@pytest.mark.parametrize("kind", LINKS)
def test_a_step_of_link_prediction(fake, kind):
    captured, x = dfgnn.capture(link_prediction(kind)), torch.randn(N, IN)
    with Waits():
        losses = [float(captured(x).detach()) for _ in range(40)]
    assert captured.recorded == 1
    assert sum(losses[-9:]) < sum(losses[:9])
    assert len(set(losses)) == 40


def molecules(device="cpu"):
    """A step of training a model of molecules, which counts them."""
    models = pytest.importorskip("torch_geometric.nn.models")
    torch.manual_seed(2)
    model = models.AttentiveFP(IN, 8, 1, 3, 2, 2).to(device)
    dfgnn.accelerate(model)
    batch = torch.arange(5).repeat_interleave(6)
    edges = torch.cat([random_edges(6, 6, 14) + 6 * i for i in range(5)], 1)
    x, features = torch.randn(30, IN), torch.randn(edges.size(1), 3)
    given = [t.to(device) for t in (x, edges, features, batch)]
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step():
        optimizer.zero_grad()
        loss = model(*given).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return step


@pytest.mark.parametrize("before", [0, 40])
def test_a_step_of_molecules(fake, before):
    step = molecules()
    for _ in range(before):
        step()
    captured = dfgnn.capture(step)
    with Waits():
        losses = [float(captured().detach()) for _ in range(8)]
    assert captured.recorded == 1 and losses[-1] < losses[0]


def test_a_pooling_that_keeps_other_nodes_is_refused(fake):
    pyg = pytest.importorskip("torch_geometric.nn")
    pool, edges = pyg.TopKPooling(IN, ratio=0.5), random_edges(N // 2, N // 2, 60)
    captured = dfgnn.capture(lambda x: pool(x, edges)[1].sum())
    x = torch.linspace(-1, 1, N).unsqueeze(1).repeat(1, IN)
    with pytest.raises(dfgnn.CaptureError, match="leaves another number of "
                       "edges in each step"):
        for sign in (1, -1, 1, -1):  # keeps one half and then the other
            captured(sign * x)


@pytest.mark.parametrize("step", [
    lambda x, m: x * 2 if m.all() else x * 3,
    lambda x, m: x if torch.equal(m, torch.ones_like(m)) else -x,
    lambda x, m: x + int(m.any())])
def test_a_condition_is_kept_and_checked(fake, step):
    captured = dfgnn.capture(step)
    x, holds = torch.randn(3), torch.ones(3, dtype=torch.bool)
    for _ in range(5):
        with Waits():
            assert torch.equal(captured(x, holds), step(x, holds))
    assert captured.recorded == 1
    captured(x, ~holds)
    with pytest.raises(dfgnn.InvalidError, match=r"a condition \(all, any, "
                       r"equal\) whose outcome is another.*decide it before"):
        captured(x, holds)
    changing = dfgnn.capture(step)
    changing(x, ~holds)
    changing(x, holds)
    with pytest.raises(dfgnn.CaptureError, match="a condition is 0, and 1 in "
                       "the step before.*one outcome of it"):
        changing(x, ~holds)


@pytest.mark.parametrize("key", [
    0, -1, slice(1, 3), (slice(None), 2), (Ellipsis, 0), (None, 1), (1, 2)],
    ids=str)
@pytest.mark.parametrize("value", [-1, 2.5, True])
def test_a_number_is_written(fake, key, value):
    def step(x, mask):
        y = x * 1
        y[key] = value
        return y * y.abs().max() + mask.sum()
    captured = dfgnn.capture(step)
    mask = torch.arange(5) < 2
    for _ in range(5):
        x = torch.randn(4, 3, requires_grad=True)
        assert torch.equal(captured(x, mask), step(x, mask))


@pytest.mark.parametrize("warmup", [2, 3])
def test_the_first_step_reads_what_it_keeps(fake, warmup):
    kept = []

    def step(x, mask):
        if not kept:
            kept.append(bool((x == x).all()) and int(mask.sum()))
        return x[mask] * kept[0]
    captured = dfgnn.capture(step, warmup=warmup)
    x, mask = torch.randn(6, 3), torch.arange(6) < 4
    for _ in range(6):
        assert torch.equal(captured(x, mask), x[mask] * 4)
    assert captured.recorded == 1
    captured(x, ~mask)
    with pytest.raises(dfgnn.InvalidError, match="a mask whose number of"):
        captured(x, mask)


# ---- a GPU ------------------------------------------------------------------

@GPU
@pytest.mark.parametrize("step", MASKED.values(), ids=MASKED)
def test_masks_on_the_gpu(step):
    captured = dfgnn.capture(step)
    calls = [(torch.randn(6, 3, device="cuda"),
              torch.randperm(6, device="cuda") < 4) for _ in range(7)]
    for x, mask in calls:
        assert torch.equal(captured(x, mask), step(x, mask))
    assert captured.recorded == 1
    captured(x, torch.arange(6, device="cuda") < 5)
    torch.cuda.synchronize()
    with pytest.raises(dfgnn.InvalidError, match="a mask whose number"):
        captured(*calls[0])
    assert torch.equal(captured(*calls[0]), step(*calls[0]))


@GPU
@pytest.mark.parametrize("name", SAMPLED)
def test_negatives_on_the_gpu(name):
    draw, make, count = SAMPLED[name]
    captured, seen = dfgnn.capture(draw), []
    for _ in range(8):
        edges = (make(N, N, 60) if make is random_edges else make(30)).cuda()
        seen.append(captured(edges).cpu())
        assert is_drawn(name, edges.cpu(), seen[-1], count)
    assert captured.recorded == 1
    assert len({tuple(captured(edges).view(-1).tolist()) for _ in range(9)}) > 7


@GPU
@pytest.mark.parametrize("kind", LINKS)
def test_a_step_of_link_prediction_on_the_gpu(kind):
    captured = dfgnn.capture(link_prediction(kind, "cuda"))
    x = torch.randn(N, IN, device="cuda")
    losses = [float(captured(x)) for _ in range(40)]
    assert captured.recorded == 1 and len(set(losses)) == 40
    assert sum(losses[-9:]) < sum(losses[:9])


@GPU
@pytest.mark.parametrize("before", [0, 2, 40])
def test_a_step_of_molecules_on_the_gpu(before):
    step = molecules("cuda")
    for _ in range(before):
        step()
    captured = dfgnn.capture(step)
    losses = [float(captured()) for _ in range(20)]
    assert captured.recorded == 1 and losses[-1] < losses[0]


@GPU
def test_a_mask_of_another_size_in_each_step_is_refused_on_the_gpu():
    with pytest.raises(dfgnn.CaptureError, match="the mask takes"):
        dfgnn.capture(growing_mask, torch.ones(99, device="cuda"))
