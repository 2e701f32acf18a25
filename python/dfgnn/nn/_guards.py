"""The conditions of a layer's one node, see _node.py: each of these functions
raises Other where the layer's other path is to be taken."""

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.modules import module as _module

from .._modes import autocasting, compiling
from ..convert import is_edge_index
from ..functional import MOST_EDGE_FEATURES
from ..graph import Graph
from ._linear import LINEARS, hooked

PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
# operators by the class or name of a layer's aggregation; dfgnn.nn.pyg adds
# PyG's classes
REDUCTIONS = {"add": "spmm-sum", "sum": "spmm-sum", "mean": "spmm-mean",
              "max": "reduce-max", "min": "reduce-min"}


class Other(Exception):
    """The call takes the layer's other path."""


_GLOBAL_HOOKS = [getattr(_module, name) for name in (
    "_global_forward_hooks", "_global_forward_pre_hooks",
    "_global_backward_hooks", "_global_backward_pre_hooks")
    if hasattr(_module, name)]


def watched():
    """Whether something in this process looks at modules or operations."""
    return (torch.is_anomaly_enabled() or autocasting()
            or any(_GLOBAL_HOOKS))


def surroundings():
    """The reason why PyG's own operations must run: something outside traces,
    transforms or watches them; None if nothing does."""
    if torch._C._get_tracing_state() is not None:
        return "torch.jit traces"
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "a transform of torch.func is at work"
    if forward_ad._current_level >= 0:
        return "forward-mode derivatives are wanted"
    if torch._C._len_torch_dispatch_stack():
        return "a dispatch mode watches torch's operations"
    if any(_GLOBAL_HOOKS):
        return "a hook on all modules looks on"
    return None


def plain(tensor):
    """Whether kernels can read a tensor: it is of no subclass that hides its
    memory; that of torch.export stands for a plain one."""
    kind = type(tensor)
    return kind in PLAIN_TENSORS or kind.__name__ == "FakeTensor" and \
        compiling()


def known(edge_index):
    """Whether the kernels' graph can be made of these edges: they are a Graph
    or an edge_index, and no matrix."""
    if isinstance(edge_index, Graph):
        return True
    return plain(edge_index) and is_edge_index(edge_index)


def linear(state, name):
    """(weight, bias or None) of a linear layer whose call would be a product
    and nothing else; (None, None) if the layer has none of this name."""
    found = state["_modules"].get(name)
    if found is None:
        return None, None
    inner = found.__dict__
    if type(found) not in LINEARS or hooked(found):
        raise Other
    parameters = inner["_parameters"]
    try:
        return parameters["weight"], parameters["bias"]
    except KeyError:  # pruned, say, or sharded
        raise Other from None


def product(state, name):
    """The weight of a linear layer without a bias."""
    weight, bias = linear(state, name)
    if weight is None or bias is not None:
        raise Other
    return weight


def own(state, name):
    """A parameter of the layer itself, None if it is registered as none."""
    try:
        return state["_parameters"][name]
    except KeyError:  # parametrised, say
        raise Other from None


def number(state, name):
    found = state["_parameters"].get(name)
    if found is None:
        found = state["_buffers"].get(name)
    if found is None or found.numel() != 1:
        raise Other
    return found


def reduction(state):
    """The operator that reduces as the layer does."""
    module = state["_modules"].get("aggr_module")
    if module is None:
        kind = state["aggr"] if isinstance(state["aggr"], str) else None
    else:
        kind = None if hooked(module) else type(module)
    name = REDUCTIONS.get(kind)
    if name is None:
        raise Other
    return name


def sums(state):
    if reduction(state) != "spmm-sum":
        raise Other


def dropout_of(state):
    """The probability that attention drops an edge in this call."""
    dropout = state["dropout"] if state["training"] else 0.0
    if not 0 <= dropout < 1:
        raise Other
    return float(dropout)


def is_matrix(x):
    return type(x) in PLAIN_TENSORS and x.dim() == 2 \
        and x.layout is torch.strided


def single(x, size=None):
    """x, and the numbers of nodes that send and that receive."""
    if not is_matrix(x) or size is not None:
        raise Other
    return x, (x.size(0), x.size(0))


def pair(x, size=None):
    """(features that are sent, features that receive or None if they are the
    same, numbers of nodes of both)."""
    if type(x) is not tuple:
        return (*single(x, size)[:1], None, (x.size(0), x.size(0)))
    if len(x) != 2 or size is not None or not all(map(is_matrix, x)):
        raise Other
    src, dst = x
    return src, None if dst is src else dst, (src.size(0), dst.size(0))


def edge_features(state, edge_attr, x):
    """(edge_attr, weight of its projection), or (None, None)."""
    weight, bias = linear(state, "lin_edge")
    if edge_attr is None and weight is None:
        return None, None
    if edge_attr is None or weight is None or bias is not None \
            or not is_matrix(edge_attr) or not edge_attr.size(1) \
            or x.is_cuda and edge_attr.size(1) > MOST_EDGE_FEATURES:
        raise Other
    return edge_attr, weight
