"""Softmax and reductions over edges, for the functions of edge programs."""

from ._trace import OVER_EDGES, Value, method


def _over(name):
    def over(x):
        if not isinstance(x, Value):
            raise TypeError(f"{name} is called in the function of an "
                            f"edge_program, with a value; got "
                            f"{type(x).__name__}")
        return method(name)(x)
    what, way = name.rsplit("_", 1)
    edges = {"in": "in-edges of each destination",
             "out": "out-edges of each source",
             "rel": "edges of each relation"}[way]
    over.__name__ = over.__qualname__ = name
    over.__doc__ = f"The {what} over the {edges}, in an edge program."
    return over


OVER = {name: _over(name) for name in OVER_EDGES}


def softmax(x):
    """The softmax over the in-edges of each destination, in an edge
    program; each axis has its own."""
    return OVER["softmax_in"](x)


def logsumexp(x):
    """log(sum(exp(x))) over the in-edges of each destination, in an edge
    program."""
    return OVER["logsumexp_in"](x)
