"""Calls by the extension and by ctypes do the same."""

import ctypes
import os
import struct
import subprocess
import sys

import pytest
import torch

import dfgnn
from dfgnn import _abi, _library, _operators
from dfgnn._library import find

EXTENSION = os.path.join(os.path.dirname(find()), "dfgnn_call.abi3.so")
EXECUTE = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)

needs_extension = pytest.mark.skipif(
    not os.path.exists(EXTENSION) or sys.version_info < (3, 10),
    reason="Python.h of Python 3.10 was not there when make ran")


@pytest.fixture(params=["extension", "ctypes"])
def way(request, monkeypatch):
    """The way of calls that are made in the test."""
    if request.param == "ctypes":
        monkeypatch.setattr(_library, "call", None)
        monkeypatch.setattr(_library, "extension", None)
    elif _library.call is None:
        pytest.skip("there is no extension")
    return request.param


def edges():
    """Of 7 nodes, each of which has a loop; none is there twice."""
    torch.manual_seed(0)
    there = torch.eye(7, dtype=torch.bool) | (torch.rand(7, 7) < .3)
    return there.nonzero().t().contiguous()


def both_passes(function, *inputs):
    leaves = [t.detach().requires_grad_() for t in inputs]
    out = function(*leaves)
    return [out, *torch.autograd.grad(out.square().sum(), leaves)]


# ---- what the package calls -------------------------------------------------

@needs_extension
def test_the_extension_beside_the_library_is_used():
    assert _library.call is not None
    for value, there in (("0", False), ("1", True)):
        told = subprocess.run(
            [sys.executable, "-c", "from dfgnn import _library; "
             "print(_library.call is not None)"], text=True, check=True,
            stdout=subprocess.PIPE,
            env={**os.environ, "DFGNN_EXTENSION": value}).stdout
        assert told.strip() == str(there)


@needs_extension
def test_the_extension_needs_neither_torch_nor_a_version_of_python():
    read = subprocess.run(["readelf", "-d", EXTENSION], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    needed = [line for line in read.splitlines() if "(NEEDED)" in line]
    assert all("libc.so" in line or "libm.so" in line for line in needed)
    assert os.path.getsize(EXTENSION) <= 20480


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_layouts_of_inputs(way, dtype):
    """Dense rows, parts of rows, and rows that have to be copied."""
    index = edges()
    wide = torch.randn(7, 2, 12, dtype=torch.float64).to(dtype)
    layouts = [
        [part.contiguous() for part in wide.chunk(3, -1)],
        wide.chunk(3, -1),
        [part.transpose(1, 2).contiguous().transpose(1, 2)
         for part in wide.chunk(3, -1)]]
    exact = both_passes(lambda *t: dense_attention(index, *t),
                        *[t.double() for t in layouts[0]])
    for inputs in layouts:
        found = both_passes(lambda *t: dfgnn.gt_attention(index, *t), *inputs)
        for a, b in zip(found, exact):
            torch.testing.assert_close(
                a.double(), b, rtol=0,
                atol=1e-10 if dtype is torch.float64 else .05)


def dense_attention(index, query, key, value):
    scores = torch.einsum("dhf,shf->dsh", query, key) / query.size(-1) ** .5
    there = torch.zeros(7, 7, 1, dtype=torch.bool)
    there[index[1], index[0]] = True
    weights = scores.masked_fill(~there, float("-inf")).softmax(1)
    return torch.einsum("dsh,shf->dhf", weights, value)


def test_scores_of_another_type_are_converted(way):
    index, h = edges(), torch.randn(7, 2, 4).half()
    scores = torch.randn(7, 2), torch.randn(7, 2)
    wanted = both_passes(lambda *t: dfgnn.gat_attention(index, *t), h, *scores)
    found = both_passes(lambda *t: dfgnn.gat_attention(index, *t), h,
                        *[s.half() for s in scores])
    assert found[1].dtype == found[2].dtype == torch.float16
    torch.testing.assert_close(found[0], wanted[0], rtol=0, atol=.02)


def test_dropout_has_its_seed(way):
    index = edges()
    q = torch.randn(7, 2, 4, dtype=torch.float64)
    torch.manual_seed(3)
    found = both_passes(lambda t: dfgnn.gt_attention(
        index, t, t, t, dropout=.5), q)
    torch.manual_seed(3)
    again = both_passes(lambda t: dfgnn.gt_attention(
        index, t, t, t, dropout=.5), q)
    assert all(torch.equal(a, b) for a, b in zip(found, again))
    assert not torch.equal(found[0], dfgnn.gt_attention(index, q, q, q))


def test_a_layer_of_one_node(way):
    layer = dfgnn.nn.GATConv(8, 4, heads=2, dropout=.5).double()
    index, x = edges(), torch.randn(7, 8, dtype=torch.float64)
    torch.manual_seed(5)
    with torch.no_grad():
        wanted = layer(x, index)
    torch.manual_seed(5)
    out, grad = both_passes(lambda t: layer(t, index), x)
    torch.testing.assert_close(out, wanted)
    assert grad.abs().sum() > 0


def test_failures_are_raised(way):
    graph, (q, k, v) = dfgnn.as_graph(edges(), 7), torch.randn(3, 7, 2, 4)
    made = _operators.recipe(graph, "gt", (q, k, v),
                          dfgnn.functional.settings_of(
                              q, 1.0, 0.0, 0.0, False))
    call = made.call(graph, False)
    with pytest.raises(dfgnn.errors.InvalidError, match="key"):
        call.run(q.device, [q, None, v, torch.empty_like(q), None])


# ---- the extension alone ----------------------------------------------------

class Told:
    """A stand-in for dfgnn_execute that keeps the arguments."""

    def __init__(self, status=0):
        def execute(plan, args, workspace, stream):
            self.args = _abi.Args.from_buffer_copy(
                ctypes.string_at(args, ctypes.sizeof(_abi.Args)))
            self.others = plan, workspace, stream
            for name in ("inputs", "outputs"):
                address = getattr(self.args, "program_" + name)
                setattr(self, name, ctypes.cast(address, ctypes.POINTER(
                    _abi.EdgeTensor))[0].data if address else None)
            return status
        self.function = EXECUTE(execute)

    def form(self, *fields, scale=0.5, links=(), behind=b""):
        args = bytes(_abi.Args(scale=scale)) + behind
        head = struct.pack(
            "@PQQQ", ctypes.cast(self.function, ctypes.c_void_p).value,
            len(args), len(links), len(fields))
        return b"".join((head, *[struct.pack("@QQ", *link) for link in links],
                         *[struct.pack("@iiq", *f) for f in fields], args))


def offset(name):
    return getattr(_abi.Args, name).offset


BLOCK = ctypes.sizeof(_abi.Args)  # where what args point to begins


@needs_extension
def test_what_is_told():
    told, x = Told(), torch.randn(5, 2, 8)
    form = told.form((offset("query"), offset("query_strides"), 16),
                     (offset("key"), -1, 0), (offset("out"), -1, 0),
                     (offset("value"), -1, 0))
    part, room = x[..., :4], torch.empty(64, dtype=torch.uint8)
    given = [part, x, 4096, None]
    assert _library.call(form, 77, (None, torch.float32, None, None), room,
                        99, given) == 0
    assert told.others == (77, room.data_ptr(), 99)
    args = told.args
    assert (args.query, args.key, args.out, args.value, args.scale) == (
        x.data_ptr() + 16, x.data_ptr(), 4096, None, 0.5)
    strides = args.query_strides
    assert [getattr(strides, name) for name, _ in strides._fields_] == [
        16, 8, 1]
    # fewer tensors than fields: the rest stay as they are
    assert _library.call(form, 77, (None,) * 4, None, None, [x]) == 0
    assert told.args.key is None and told.others == (77, None, None)
    assert _library.call(Told(3).form(), None, (), None, None, []) == 3


@needs_extension
def test_what_is_told_of_a_program():
    told, x, size = Told(), torch.randn(5, 8), ctypes.sizeof(_abi.EdgeTensor)
    data = BLOCK + _abi.EdgeTensor.data.offset
    form = told.form((data, -1, 0), (data + size, -1, 0), links=[
        (offset("program_inputs"), BLOCK),
        (offset("program_outputs"), BLOCK + size)], behind=bytes(2 * size))
    assert _library.call(form, 77, (None,) * 2, None, None, [x, 4096]) == 0
    assert (told.inputs, told.outputs) == (x.data_ptr(), 4096)
    inputs = offset("program_inputs")
    for wrong in ((inputs, 8), (BLOCK, BLOCK), (inputs, BLOCK + 2 * size)):
        with pytest.raises(ValueError):
            _library.call(told.form(links=[wrong], behind=bytes(2 * size)), 77,
                         (), None, None, [])


@needs_extension
def test_tensors_that_do_not_lie_right_are_left_to_ctypes():
    told, x = Told(), torch.randn(5, 2, 8)
    form = told.form((offset("query"), offset("query_strides"), 0),
                     (offset("key"), -1, 0))
    for types, given in (
            ((None, torch.float64), [x, x]),         # another type
            ((None, None), [x, x[..., :4]]),         # parts where none may be
            ((None, None), [x.transpose(1, 2), x]),  # features apart
            ((None, None), [x.expand(2, 5, 2, 8)[..., :4], x])):  # four axes
        assert _library.call(form, 77, types, None, None, given) == -1
    assert not hasattr(told, "args")


@needs_extension
def test_wrong_calls_raise():
    told, x = Told(), torch.randn(3)
    form = told.form((offset("query"), -1, 0))
    for kind, given in (
            (TypeError, (form,)), (TypeError, (form, 77, [None], None, None, [x])),
            (TypeError, (form, 77, (None,), None, None, (x,))),
            (TypeError, ("text", 77, (None,), None, None, [x])),
            (ValueError, (b"", 77, (), None, None, [])),
            (ValueError, (form[:-1], 77, (None,), None, None, [x])),
            (ValueError, (form, 77, (None, None), None, None, [x, x])),
            (ValueError, (form, 77, (), None, None, [x])),
            (ValueError, (told.form((1 << 20, -1, 0)), 77, (None,), None, None,
                          [x])),
            (ValueError, (told.form((0, 1 << 20, 0)), 77, (None,), None, None,
                          [x])),
            (ValueError, (told.form((-8, -1, 0)), 77, (None,), None, None, [x])),
            (AttributeError, (form, 77, (None,), None, None, ["text"])),
            (AttributeError, (form, 77, (None,), "text", None, [x])),
            (OverflowError, (form, 77, (None,), None, None, [1 << 70]))):
        with pytest.raises(kind):
            _library.call(*given)
    assert not hasattr(told, "args")


# ---- graphs of batches ------------------------------------------------------

@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_graphs_of_batches(way, kind, loops):
    """A list that nobody has seen, as a layer gets it in each step."""
    layer = (dfgnn.nn.GATConv if loops else dfgnn.nn.SAGEConv)(5, 3).double()
    x = torch.randn(9, 5, dtype=torch.float64)
    for seed in range(3):
        torch.manual_seed(seed)
        index = torch.randint(9, (20, 2)).to(kind).t()  # not contiguous
        found = both_passes(lambda t: layer(t, index), x)
        graph = dfgnn.as_graph(index, 9)
        if loops:
            graph = graph.with_self_loops()
        torch.testing.assert_close(found, both_passes( lambda t: layer(t, graph), x))
        made = dfgnn.convert.known_graph(index, (9, 9), loops)
        # a layer does not ask how many edges are left beside its loops
        assert (made._edges is None) == loops and not made.empty
        assert made.num_edges == graph.num_edges
        assert torch.equal(made.edge_index, graph.edge_index)


def test_a_batch_with_a_wrong_edge(way):
    index = torch.tensor([[0, 1, 2], [0, 9, 1]])
    with pytest.raises(dfgnn.errors.InvalidError,
                       match=r"edge_index\[1, 1\]"):
        dfgnn.nn.SAGEConv(4, 4)(torch.randn(3, 4), index)


@needs_extension
def test_wrong_calls_of_graphs_raise():
    made = _library.extension
    for kind, call, given in (
            (TypeError, made.graph, ()), (TypeError, made.plan, (b"",)),
            (TypeError, made.destroy, (b"",)),
            (ValueError, made.graph, (b"", 1, 1, 1, True, 1, 1, False, None)),
            (ValueError, made.plan, (b"1", 1, 1, b"")),
            (ValueError, made.plan, (_library.functions, 1, 1, b"short")),
            (TypeError, made.plan, (_library.functions, 1, 1, "text")),
            (TypeError, made.graph, (_library.functions, 1, 1, "many", True, 1,
                                     1, False, None))):
        with pytest.raises(kind):
            call(*given)
