"""The modes of torch that a call can run in: torch.func, forward AD,
torch.jit.trace, inference mode, autocast, torch.compile."""

import functools
import sys
import threading
from contextlib import ExitStack

import torch

# whether torch.compile traces: it cannot trace is_inference_mode_enabled()
compiling = torch.compiler.is_compiling

# the innermost transform of torch.func, None outside of all of them
_transform = torch._C._functorch.peek_interpreter_stack

_forward_ad = torch.autograd.forward_ad
_jit_tracing = torch._C._get_tracing_state


def in_transform():
    """Whether a transform of torch.func (grad, jacrev, vmap, jvp) runs."""
    return _transform() is not None


def jit_tracing():
    return _jit_tracing() is not None


def constant(function):
    """torch.compiler.assume_constant_result(function) without importing the
    compiler."""
    function._dynamo_marked_constant = True
    return function


@constant  # torch.compile enters transforms as it traces, and guards them
def needs_composite():
    """Whether a call must be made of torch operations, because the kernels
    read memory that a transform, a dual number or a trace hides."""
    return (_transform() is not None or _jit_tracing() is not None
            or getattr(_forward_ad, "_current_level", -1) >= 0)


def unwrapped(tensor):
    """The tensor that transforms of torch.func wrapped.  Raises for what vmap
    split: a graph has one value for all of the batch."""
    if _transform() is None or not isinstance(tensor, torch.Tensor):
        return tensor
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            raise ValueError(
                "torch.func.vmap must not map over the edges of a graph: give "
                "the graph in_dims=None, and map over features")
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def lasting(function):
    """Calls function so that what it makes may be kept: it is no tensor of a
    transform of torch.func, and may take part in training even if it was made
    in inference mode."""
    if compiling():
        return function()
    if torchs_cuda_graphs():
        return _apart(function)
    if _transform() is None and not torch.is_inference_mode_enabled():
        return function()
    with ExitStack() as stack:
        if _transform() is not None:
            from torch._functorch.pyfunctorch import (
                temporarily_clear_interpreter_stack)
            stack.enter_context(temporarily_clear_interpreter_stack())
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        return function()


_thread = threading.local()  # .apart: whether _apart() made it


def torchs_cuda_graphs():
    """Whether a model that torch.compile made with CUDA graphs runs: it takes
    all memory that is allocated meanwhile for its own."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None or not torch.cuda.is_initialized() or \
            getattr(_thread, "apart", False):  # that thread has no manager
        return False
    manager = trees.get_manager(torch.cuda.current_device(), False)
    return manager is not None and \
        manager.path_state != trees.ExecutionState.NONE


def _apart(function):
    """The result of function(), which runs to its end in a thread of its own,
    so that no CUDA graph of torch owns the memory that it allocates."""
    from concurrent.futures import ThreadPoolExecutor
    device, done = torch.cuda.current_device(), None
    if not torch.cuda.is_current_stream_capturing():
        done = torch.cuda.current_stream().record_event()

    def run():
        _thread.apart = True
        with torch.cuda.device(device):
            if done is not None:
                done.synchronize()
            result = function()
            # a wait for the stream itself is refused where a capture is near
            torch.cuda.current_stream().record_event().synchronize()
            return result
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(run).result()


def refuse_in_cuda_graphs(argument):
    """Raises where torch's own CUDA graphs run, which give wrong numbers or
    none with the argument that is named."""
    if torchs_cuda_graphs():
        raise RuntimeError(
            f'{argument} cannot be in a model that torch.compile made with '
            'mode="reduce-overhead"; give the layer dfgnn.as_graph(edge_index, '
            "num_nodes) in place of the edge_index, or use dfgnn.capture")


def _skip_code(code):
    """Has torch.compile leave the frames of code alone.  Raises where this
    torch has no way to say so."""
    from torch._C._dynamo import eval_frame
    if hasattr(eval_frame, "skip_code"):
        return eval_frame.skip_code(code)
    eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(
        eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT))


def untraced(function):
    """torch.compiler.disable(function) without the second that it takes to
    import the compiler: torch.compile breaks its graph where the function is
    called."""
    try:
        from torch._C._dynamo.eval_frame import set_eval_frame

        @functools.wraps(function)
        def outside(*args, **kwargs):
            prior = set_eval_frame(None)
            try:
                return function(*args, **kwargs)
            finally:
                set_eval_frame(prior)
        _skip_code(outside.__code__)
    except (ImportError, AttributeError, TypeError):
        return torch.compiler.disable(function)
    outside._torchdynamo_disable = True
    return outside


_any_autocast = torch._C._is_any_autocast_enabled


def autocast_dtype(device_type):
    """The dtype of the autocast region, None outside of one."""
    if _any_autocast() and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return None


def common_type(tensors):
    """The type in which a call of several computes, None passed over: that of
    the autocast region, unless one is of float64, else the one that torch
    promotes to."""
    first, *rest = (t for t in tensors if t is not None)
    kind, lower = first.dtype, autocast_dtype(first.device.type)
    for tensor in rest:
        kind = torch.promote_types(kind, tensor.dtype)
    return kind if lower is None or kind == torch.float64 else lower


def autocasting():
    """Whether an autocast region of a CPU or a GPU is entered."""
    return _any_autocast() and any(map(autocast_dtype, ("cpu", "cuda")))


def autocast(spec, inputs):
    """The inputs with features in the type of the autocast region, as autocast
    has it for matrix products; scores keep their type.  Features of AGNN keep
    theirs, too, since no matrix product is in its cosines."""
    value = inputs[spec.value]
    if not _any_autocast() or not isinstance(value, torch.Tensor) \
            or spec.name == "agnn":
        return inputs
    dtype = autocast_dtype(value.device.type)
    if dtype is None:
        return inputs
    return tuple(
        t.to(dtype) if isinstance(t, torch.Tensor) and not input_.scalar
        and t.is_floating_point() and t.dtype != torch.float64 else t
        for input_, t in zip(spec.inputs, inputs))
