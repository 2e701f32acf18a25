"""PNAConv whose networks are single linear layers, as one node of autograd.

The message A x_i + B x_j needs none by edge: A x_i shifts mean, min and max,
and leaves std alone.  What a tower's network W makes of the scaled reductions
is x W_x + sum over scalers s of f_s (r W_s), for a node's reductions r and its
factors f, so that no features are held once for each scaler.
"""

import functools

import torch
import torch.nn.functional as F
from torch_geometric.nn import aggr

from ... import _fused, _recipe
from ..._edge_sums import degrees
from ..._links import Linear as Product, Link, add
from ..._operators import sum_settings
from .._guards import Other, linear, single
from .._linear import hooked
from .._node import fits, graph_of, node, recipe, run
from ._reduce import reductions

ORDER = ("mean", "min", "max", "std")  # of the operator's results
_SHIFTED = ORDER[:3]

# by scaler: (its factor for degrees, and degrees that are at least 1; exponents
# of the averages of log(degree + 1) and of degrees, which multiply the factor)
SCALERS = {
    "identity": (lambda d, least: torch.ones_like(d), 0, 0),
    "amplification": (lambda d, least: (d + 1).log(), -1, 0),
    "attenuation": (lambda d, least: (least + 1).log().reciprocal(), 1, 0),
    "linear": (lambda d, least: d, 0, -1),
    "inverse_linear": (lambda d, least: least.reciprocal(), 0, 1)}


# ---- links ------------------------------------------------------------------

class Ends(Link):
    """own and sent [N, H * F], the products of x [N, F] with the left and the
    right halves of weights [F, 2 F], one for each of H towers; biases are
    those of own."""

    def __init__(self, x, weights, biases, own, sent):
        self.x, self.weights, self.biases = x, weights, biases
        self.own, self.sent = own, sent
        self.out = sent  # made from x; own is, too
        self.reads = (x, *weights, *biases)
        self.makes, self.saves = (own, sent), (x, *weights)

    def _halves(self, values):
        both = [values[name] for name in self.weights]
        both = both[0] if len(both) == 1 else torch.cat(both)
        return both.chunk(2, 1)

    def backward(self, graph, values, grads, wanted):
        x, own, sent = values[self.x], grads.pop(self.own), grads[self.sent]
        left, right = self._halves(values)
        if self.x in wanted:
            add(grads, self.x, torch.addmm(own.mm(left), sent, right))
        towers = len(self.weights)
        if not wanted.isdisjoint(self.weights):
            found = torch.cat([own.t().mm(x), sent.t().mm(x)], 1)
            grads.update(zip(self.weights, found.chunk(towers)))
        if not wanted.isdisjoint(self.biases):
            grads.update(zip(self.biases, own.sum(0).chunk(towers)))

    def plain(self, graph, values):
        x, (left, right) = values[self.x], self._halves(values)
        bias = [values[name] for name in self.biases]
        values[self.own] = F.linear(x, left, torch.cat(bias) if bias else None)
        values[self.sent] = F.linear(x, right)


class Reductions:
    """out [H, N, K * F]: K reductions of own_i + sent_j, for own and sent
    [N, H * F]."""

    def __init__(self, names, towers, own, sent, out):
        self.names, self.towers = names, towers
        self.own, self.sent, self.out = own, sent, out
        self.held = {field: f"{out} {field}" for field in (
            "out", "out_std", "arg_min", "arg_max")}
        self.reads = own, sent
        self.makes = (out, *self.held.values())
        self.saves = (sent, *self.held.values())

    def _by_tower(self, tensor):
        return tensor.view(tensor.size(0), self.towers, -1)

    def _joined(self, graph, values, found):
        own = self._by_tower(values[self.own])
        own = own * (degrees(graph, own.dtype) > 0).view(-1, 1, 1)
        values[self.out] = torch.stack([
            found[name] + own if name in _SHIFTED else found[name]
            for name in self.names], 2).flatten(2).transpose(0, 1)

    def forward(self, graph, values, keep):
        inputs = [self._by_tower(values[self.sent])]
        made = _recipe.recipe_of(self, graph, "reduce-pna", inputs,
                                  sum_settings())
        found = made.forward(graph, inputs, None, keep)
        fields = dict(zip([field for field, *_ in made.outs], found))
        for field, name in self.held.items():
            values[name] = fields.get(field)
        self._joined(graph, values, dict(zip(ORDER, found)))

    def backward(self, graph, values, grads, wanted):
        sent, made = values[self.sent], graph.handle.recipes[self]
        found = dict(zip(self.names, grads[self.out].transpose(0, 1).unflatten(
            2, (len(self.names), -1)).unbind(2)))
        # two reductions at least, and one of them shifts
        shift = sum(found[name] for name in self.names if name in _SHIFTED)
        there = (degrees(graph, sent.dtype) > 0).view(-1, 1, 1)
        grads[self.own] = (shift * there).flatten(1)
        kept = [self._by_tower(sent) if field == "value"
                else values[self.held[field]] for field in made.kept]
        of_outs = [found[name].contiguous() if name in found
                   else torch.zeros_like(kept[0][:graph.num_dst])
                   for name in ORDER]
        grad, = made.backward(graph, kept, of_outs, (True,))
        grads[self.sent] = grad.flatten(1)

    def plain(self, graph, values):
        found = _fused.sums(graph, "reduce-pna", {
            "value": self._by_tower(values[self.sent])})
        self._joined(graph, values, dict(zip(ORDER, found)))


class Scaled(Link):
    """out [N, H * G]: for each of H towers the product of a weight
    [G, F + S * K] with the features x [N, F] and S multiples of reduced
    [H, N, K]; the averages are those of _factors()."""

    def __init__(self, scalers, x, reduced, weights, biases, averages, out):
        self.scalers, self.x, self.reduced = scalers, x, reduced
        self.weights, self.biases, self.out = weights, biases, out
        self.averages, self.factors = averages, out + " factors"
        self.reads = (x, reduced, *weights, *biases)
        self.saves = (x, reduced, *weights, self.factors)
        self.makes = (out, self.factors)

    def _parts(self, values):
        """(weights [H, G, F] of x, weights [H, S * G, K] of reductions)."""
        both = torch.stack([values[name] for name in self.weights])
        width, many = values[self.x].size(1), len(self.scalers)
        return both[..., :width], both[..., width:].unflatten(
            2, (many, -1)).transpose(1, 2).flatten(1, 2)

    def _factors(self, graph, values):
        """[N, S] what each scaler multiplies a node's reductions by."""
        x = values[self.x]

        def make():
            degree = degrees(graph, x.dtype)
            least, rows = degree.clamp(min=1), [SCALERS[s] for s in
                                                self.scalers]
            return torch.stack([row[0](degree, least) for row in rows], 1), \
                torch.tensor([row[1:] for row in rows], dtype=x.dtype,
                             device=x.device).t()
        factors, exponents = graph._derive(
            ("scalers", self.scalers, x.dtype), make)
        for name, exponent in zip(self.averages, exponents):
            factors = factors * values[name].pow(exponent)
        return factors

    def backward(self, graph, values, grads, wanted):
        x, reduced = values[self.x], values[self.reduced]
        grad, towers = grads[self.out], len(self.weights)
        of_x, of_reduced = self._parts(values)
        by_tower = grad.view(grad.size(0), towers, -1).transpose(0, 1)
        scaled = (by_tower.unsqueeze(2)
                  * values[self.factors].unsqueeze(-1)).flatten(2)
        if not wanted.isdisjoint(self.weights):
            first = grad.t().mm(x).view(of_x.shape)
            rest = scaled.transpose(1, 2).bmm(reduced).unflatten(
                1, (len(self.scalers), -1)).transpose(1, 2).flatten(2)
            grads.update(zip(self.weights, torch.cat(
                [first, rest], 2).unbind()))
        if not wanted.isdisjoint(self.biases):
            grads.update(zip(self.biases, grad.sum(0).chunk(towers)))
        if self.reduced in wanted:
            grads[self.reduced] = scaled.bmm(of_reduced)
        if self.x in wanted:
            add(grads, self.x, grad.mm(of_x.flatten(0, 1)))

    def plain(self, graph, values):
        of_x, of_reduced = self._parts(values)
        factors = values[self.factors] = self._factors(graph, values)
        bias = [values[name] for name in self.biases]
        out = F.linear(values[self.x], of_x.flatten(0, 1),
                       torch.cat(bias) if bias else None)
        made = values[self.reduced].bmm(of_reduced.transpose(1, 2)).unflatten(
            2, (len(self.scalers), -1)) * factors.unsqueeze(-1)
        values[self.out] = out + made.sum(2).transpose(0, 1).flatten(1)


# ---- the layer --------------------------------------------------------------

def _networks(state, name):
    """The weights, then the biases, of networks of one linear layer each."""
    found = []
    for network in state["_modules"][name]:
        inner = network.__dict__
        if type(network) is not torch.nn.Sequential or hooked(network) or \
                "forward" in inner or len(network) != 1:
            raise Other
        found.append(linear(inner, "0"))
    weights, biases = zip(*found)
    if any(bias is None for bias in biases):
        raise Other
    return *weights, *biases


def _scaling(state):
    """(names of reductions, names of scalers, the averages)."""
    module = state["_modules"]["aggr_module"]
    if type(module) is not aggr.DegreeScalerAggregation or \
            "forward" in module.__dict__:
        raise Other
    names, scalers = reductions(module), tuple(module.scaler)
    averages = [module._buffers.get("avg_deg_" + of) for of in ("log", "lin")]
    if names is None or len(set(names)) != len(names) or len(names) < 2 or \
            not set(names) <= set(ORDER) or not set(scalers) <= set(SCALERS) \
            or any(a is None or a.requires_grad for a in averages):
        raise Other
    return names, scalers, averages


@node
def pna(state, x, edge_index, edge_attr=None):
    towers = state["towers"]
    if edge_attr is not None or state["edge_dim"] is not None or \
            state["divide_input"] and towers > 1:
        raise Other
    x, sizes = single(x)
    names, scalers, averages = _scaling(state)
    return run(graph_of(edge_index, sizes), _links(towers), (names, scalers),
               x, *averages, *linear(state, "lin"),
               *_networks(state, "pre_nns"), *_networks(state, "post_nns"))


@functools.lru_cache(maxsize=None)
def _links(towers):
    """The recipe of a layer with so many towers."""
    w_pre, b_pre, w_post, b_post = (
        tuple(f"{name}{tower}" for tower in range(towers))
        for name in ("w_pre", "b_pre", "w_post", "b_post"))
    of_all = "x", "average_log", "average", "w_lin", "b_lin"

    @recipe(" ".join((*of_all, *w_pre, *b_pre, *w_post, *b_post)))
    def links(graph, settings, static, x, average_log, average, w_lin, b_lin,
              *networks):
        names, scalers = static
        width = x.size(1)
        parts = [networks[k * towers:(k + 1) * towers] for k in range(4)]
        outs = parts[2][0].size(0)
        many = (1 + len(names) * len(scalers)) * width
        if w_lin is None or not fits(w_lin, b_lin, towers * outs) or not all(
                fits(w, b, 2 * width) and w.size(0) == width
                for w, b in zip(*parts[:2])) or not all(
                fits(w, b, many) and w.size(0) == outs
                for w, b in zip(*parts[2:])):
            return None
        return [Ends("x", w_pre, b_pre, "own", "sent"),
                Reductions(names, towers, "own", "sent", "reduced"),
                Scaled(scalers, "x", "reduced", w_post, b_post,
                       ("average_log", "average"), "scaled"),
                Product("scaled", ("w_lin",), ("b_lin",) if b_lin is not None
                        else (), (), "out")]
    return links
