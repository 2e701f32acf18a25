"""The mixin over PyG's own class that makes a layer take the kernels."""

import functools
from typing import Callable, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import Linear, MessagePassing, aggr

from ..._checks import DTYPES
from ..._fallbacks import own_path
from ..._guard import guarded, own_propagate, takes_own_path
from ..._modes import compiling, constant, needs_composite
from ..._over import Over
from .._linear import LINEARS, hooked
from .._node import first, plain, surroundings
from ._edges import Looped, of_pyg, wide, with_wide_edges

# The methods that define a layer: whoever replaces one of them gets PyG's own
# path, which calls it.
METHODS = ("message", "aggregate", "update", "message_and_aggregate",
           "edge_update")
LINEARS.add(Linear)


def unfit(layer, reason):
    """Says once why the layer takes PyG's own path; gives the result with which
    a fused path then returns."""
    if not torch.compiler.is_dynamo_compiling():  # torch.export says it, too
        own_path(layer, reason)
    return NotImplemented


def _messages_hooked(state):
    return (state["_propagate_forward_pre_hooks"]
            or state["_propagate_forward_hooks"]
            or state["_message_forward_pre_hooks"]
            or state["_message_forward_hooks"]
            or state["_aggregate_forward_pre_hooks"]
            or state["_aggregate_forward_hooks"]
            or state["_message_and_aggregate_forward_pre_hooks"]
            or state["_message_and_aggregate_forward_hooks"]
            or state["_edge_update_forward_pre_hooks"]
            or state["_edge_update_forward_hooks"])


def _replaced(layer, state):
    return ("message" in state or "aggregate" in state or "update" in state
            or "message_and_aggregate" in state or "edge_update" in state
            or "edge_updater" in state
            or "propagate" in state and own_propagate(layer))


def obstacle(layer):
    """The reason why this call cannot take the fused path, whatever its
    arguments are, or None."""
    reason = own_obstacle(layer)
    if reason is None and compiling():
        return "a transform is at work" if needs_composite() else None
    return reason or surroundings()


def own_obstacle(layer):
    """The reason of obstacle() that lies in the layer itself, or None."""
    state = layer.__dict__
    if state["_explain"]:
        return "its messages are explained"
    if state["_decomposed_layers"] != 1:
        return "its features are decomposed"
    if _messages_hooked(state):
        return "a hook looks at its messages"
    if "parametrizations" in state["_modules"]:
        return "torch parametrizes it"  # may count how often it is read
    if layer._dfgnn_overridden or _replaced(layer, state):
        return (layer._dfgnn_overridden or "one of its methods") \
            + " is not PyG's"
    return None


def usual(layer, whole=False):
    """Whether the layer may take its fused path; whole: one that never calls
    its propagate."""
    if not compiling() and takes_own_path(layer):
        return False
    reason = obstacle(layer)
    if reason is None and whole and \
            type(layer).propagate is not Fused.propagate:
        reason = "its propagate is not PyG's"
    if reason is None:
        return True
    unfit(layer, reason)
    return False


def is_sum(layer):
    return type(layer.aggr_module) is aggr.SumAggregation \
        and not hooked(layer.aggr_module)


def fits(*tensors):
    """Whether kernels can read these tensors; None is passed over."""
    for tensor in tensors:
        if tensor is None:
            continue
        if (not plain(tensor) or tensor.dtype not in DTYPES
                or tensor.layout is not torch.strided
                or tensor.device.type not in ("cpu", "cuda")):
            return False
    return True


def attempt(function, layer, *args, **kwargs):
    """The result of a fused path; NotImplemented if it finds fault with the
    arguments: PyG has errors of its own, and takes one row of features for all
    edges."""
    if compiling():
        return function(layer, *args, **kwargs)
    try:
        return function(layer, *args, **kwargs)
    except (AttributeError, TypeError, ValueError) as error:
        return unfit(layer, str(error))


def tried(run):
    """A maker of forwards that try run(layer, x, edge_index, ...)."""
    def make(pyg_forward):
        def forward(self, x, edge_index, *args, **kwargs):
            if usual(self, whole=True):
                rows = x if compiling() else _trainable(x)
                out = attempt(run, self, rows, edge_index, *args, **kwargs)
                if out is not NotImplemented:
                    return out
            return pyg_forward(self, x, of_pyg(self, edge_index), *args,
                               **kwargs)
        return forward
    return make


def _trainable(value):
    """A tensor of inference mode, or those of a pair, as a copy that autograd
    may save; anything else is itself."""
    if type(value) is Tensor:
        return value.clone() if value.is_inference() and \
            torch.is_grad_enabled() else value
    if type(value) is tuple:
        return tuple([_trainable(v) for v in value])
    return value


class Fused(Over):
    """A mixin in front of a layer of PyG.  The classes that have it are made
    by :func:`fuse`, and users may derive from them."""

    _dfgnn_base = None  # PyG's class
    _dfgnn_fused = None  # propagate by kernels, or None
    _dfgnn_relation = None  # how its relations go together, or None
    _dfgnn_overridden = None  # the name of a method that a subclass overrides
    _dfgnn_in_graph = None  # _compiled.py, which serves while torch.compile traces

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        base = cls._dfgnn_base
        if base is None:
            return
        # other methods that PyG's layer calls, such as SuperGAT's
        # get_attention, count, too
        others = [name for name, value in vars(base).items()
                  if callable(value) and not name.startswith("_")
                  and name not in ("forward", "propagate", "reset_parameters")]
        fused = next(c for c in cls.__mro__ if "_dfgnn_base" in vars(c))
        cls._dfgnn_overridden = next(
            (name for name in (*METHODS, *others)
             if getattr(cls, name, None) not in (
                 getattr(base, name, None), getattr(fused, name, None))),
            None)

    def runs_in_steps(self):
        """Whether this call cannot be one node of autograd, whatever its
        arguments are."""
        return obstacle(self) is not None or "propagate" in self.__dict__ or \
            type(self).propagate is not Fused.propagate

    @constant
    def _dfgnn_constant(self, name, *arguments):
        """The reason that a function of _compiled.py gives for the layer, for
        torch.compile."""
        return getattr(Fused._dfgnn_in_graph, name)(self, *arguments)

    def propagate(self, edge_index, size=None, **kwargs):
        if not compiling():
            kwargs = {name: _trainable(v) for name, v in kwargs.items()}
        fused = type(self)._dfgnn_fused
        small = compiling() and Fused._dfgnn_in_graph.is_small(
            self, edge_index, kwargs)
        if small:
            self._dfgnn_constant("fused", "sums of few numbers")
        elif fused is not None and usual(self):
            out = attempt(fused, self, edge_index, size, **kwargs)
            if out is not NotImplemented:
                return out
        if compiling() and not small and usual(self):
            out = Fused._dfgnn_in_graph.propagate(self, edge_index, size, kwargs)
            if out is not NotImplemented:
                return out
        if isinstance(edge_index, Looped):
            edge_index, kwargs["edge_weight"] = edge_index.tensors(
                kwargs["edge_weight"])
        edge_index = wide(of_pyg(self, edge_index))
        if type(self)._dfgnn_overridden is not None \
                or self._decomposed_layers != 1 or self._explain:
            return MessagePassing.propagate(self, edge_index, size, **kwargs)
        return self._dfgnn_base.propagate(self, edge_index, size=size,
                                          **kwargs)

    def _set_jittable_templates(self, raise_on_error=False):
        """Makes PyG write its specialised propagate() into PyG's class, where
        ours finds it, and not over the one of the layer's class."""
        cls = type(self)
        if "_dfgnn_base" not in cls.__dict__:
            # a user's subclass: PyG's general propagate reads its signatures
            cls._orig_propagate = MessagePassing.propagate
            cls._jinja_propagate = cls.propagate
            return
        self.inspector._cls = base = cls._dfgnn_base
        pygs = base.__new__(base)  # of PyG's class, with this layer's state
        object.__setattr__(pygs, "__dict__", self.__dict__)
        MessagePassing._set_jittable_templates(pygs, raise_on_error)

    def __prepare_scriptable__(self):
        """torch.jit.script gets PyG's layer with the same parameters."""
        if "_dfgnn_base" not in type(self).__dict__:
            return self
        plain = self._dfgnn_base.__new__(self._dfgnn_base)
        plain.__dict__.update(self.__dict__)
        plain.__dict__.pop("propagate", None)
        return plain


class Row(NamedTuple):
    name: str  # the class in torch_geometric.nn
    # propagate by kernels: (layer, edge_index, size, **kwargs) -> a tensor, or
    # NotImplemented where PyG's own path is to be taken
    fused: Callable | None = None
    # makes the forward from PyG's, for layers whose forward makes the edges of
    # propagate anew each time, or scores edge by edge
    forward: Callable | None = None
    # by name, makers of other methods from PyG's
    methods: dict = {}
    # what forward tries first: the layer as one node of autograd
    node: Callable | None = None
    # how its relations go together, see relations/layers.py
    relation: tuple | None = None


def _forward_of(base):
    """The forward that a class of PyG's kind has when it is called."""
    @functools.wraps(base.forward)
    def forward(self, *args, **kwargs):
        return base.forward(self, *args, **kwargs)
    return forward


def fuse(base, row, **names):
    """The class with kernels for a class of PyG."""
    names = {"__doc__": base.__doc__, **names, "_dfgnn_base": base,
             "_dfgnn_fused": row.fused, "_dfgnn_relation": row.relation,
             "propagate": Fused.propagate,
             "_jinja_propagate": Fused.propagate,
             "_orig_propagate": MessagePassing.propagate}
    methods = row.methods
    if row.forward is not None:
        methods = dict(methods, forward=row.forward)
    for name, make in methods.items():
        theirs = getattr(base, name, None)
        if theirs is not None:
            names[name] = functools.wraps(theirs)(make(
                with_wide_edges(theirs)))
    names.setdefault("forward", _forward_of(base))
    if row.node is not None:
        names["forward"] = first(row.node)(names["forward"])
    names["forward"] = guarded(names["forward"])
    return type(base.__name__, (Fused, base), names)
