"""Functions that only edge programs have, as primitives of JAX."""

import jax.numpy as jnp
from jax.extend import core
from jax.interpreters import batching

from .. import _trace

OVER_EDGES = [name for name in _trace.OVER_EDGES if not name.endswith("_rel")]


def _primitive(name):
    primitive = core.Primitive("dfgnn_" + name)
    primitive.def_abstract_eval(lambda x, **_: x)

    def outside(*_, **__):
        raise TypeError(f"{name} is called outside of the function of an "
                        "edge_program")
    primitive.def_impl(outside)
    batching.defvectorized(primitive)
    return primitive


OVER = {name: _primitive(name) for name in OVER_EDGES}
_DROPOUT = _primitive("dropout")


def over(name):
    return _trace.as_over(lambda x: OVER[name].bind(jnp.asarray(x)), name)


def softmax(x):
    """The softmax over the in-edges of each destination, in an edge program;
    each element has its own."""
    return OVER["softmax_in"].bind(jnp.asarray(x))


def dropout(x, rate):
    """Drops elements with this probability and scales the others, in an edge
    program, whose call then takes a ``key``.  A value of a node is dropped, or
    not, for all of its edges."""
    return _DROPOUT.bind(jnp.asarray(x), rate=float(rate))
