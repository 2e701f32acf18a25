"""Models that PyG's to_hetero() made: the calls of a layer, one for each
relation, become one call that takes the relations together."""

import copy
import operator

import torch
from torch import fx

from ..._node import Other
from .._mixin import Fused, unfit
from .calls import Call, added, described, one_by_one, run_calls


def rewrite(model):
    """[(name of a layer, how its relations go together)] of a model; its graph
    of calls is replaced where two or more do."""
    if not isinstance(model, fx.GraphModule) or "_dfgnn_graph" in vars(model):
        return []
    graph, reports = copy.deepcopy(model.graph), []
    for name, calls in _layers(model, graph).items():
        layers = {_relation(node): model.get_submodule(node.target)
                  for node in calls}
        text = described(layers)
        if " in one pass" in text:
            _join(graph, name, calls)
            reports.append((name, text))
    if reports:
        graph.lint()
        model._dfgnn_graph = model.graph
        model.graph = graph
    return reports


def restore(model):
    """Gives a model the graph of calls that it had."""
    graph = vars(model).pop("_dfgnn_graph", None) \
        if isinstance(model, fx.GraphModule) else None
    if graph is not None:
        model.graph = graph


def _relation(node):
    return tuple(node.target.rpartition(".")[2].split("__"))


def _layers(model, graph):
    """By name of a layer its calls of (x, edge_index, ...), if there are
    several and nothing comes between them."""
    calls_of = {}
    for node in graph.nodes:
        if node.op != "call_module" or not isinstance(
                model.get_submodule(node.target), Fused):
            continue
        if len(node.args) >= 2 and len(_relation(node)) == 3:
            calls_of.setdefault(node.target.rpartition(".")[0], []).append(node)
    place = {node: n for n, node in enumerate(graph.nodes)}
    return {name: calls for name, calls in calls_of.items()
            if len(calls) > 1 and len({n.target for n in calls}) == len(calls)
            and all(place[user] > place[calls[-1]]
                    for node in calls for user in node.users)
            and all(place[value] < place[calls[0]]
                    for node in calls for value in node.all_input_nodes)}


def _total(nodes):
    """The node that is the sum of these, made by torch.add of two at a time;
    None if there is none."""
    left = set(nodes)
    while len(left) > 1:
        for node in left:
            users = list(node.users)
            if len(users) == 1 and users[0].target is torch.add and \
                    not users[0].kwargs and len(users[0].args) == 2 and \
                    set(users[0].args) <= left and \
                    users[0].args[0] is not users[0].args[1]:
                left = left - set(users[0].args) | {users[0]}
                break
        else:
            return None
    return left.pop()


def _join(graph, name, calls):
    """Puts one call in the place of several."""
    keys = [_relation(node) for node in calls]
    kinds = list(dict.fromkeys(key[2] for key in keys))
    totals = [_total([node for node, key in zip(calls, keys)
                      if key[2] == kind]) for kind in kinds]
    summed = None not in totals
    with graph.inserting_after(calls[-1]):
        holder = graph.get_attr(name)
    with graph.inserting_after(holder):
        joined = graph.call_function(together, (
            holder, tuple("__".join(key) for key in keys),
            tuple((node.args, dict(node.kwargs)) for node in calls), summed))
    after = joined
    for number, node in enumerate(totals if summed else calls):
        with graph.inserting_after(after):
            after = graph.call_function(operator.getitem, (joined, number))
        node.replace_all_uses_with(after)
    for node in reversed(list(graph.nodes)):
        if not node.users and (node.target is torch.add or node in calls):
            graph.erase_node(node)


def together(layers, names, arguments, summed):
    """The results of the layers of these names for (arguments by place, by
    name) each; if summed, those of the relations that end at one type of nodes
    are added."""
    calls = []
    for name, ((x, edges, *more), kwargs) in zip(names, arguments):
        src, dst = x if isinstance(x, tuple) else (x, x)
        calls.append(Call(tuple(name.split("__")), layers[name], src, dst,
                          edges, tuple(more), kwargs))
    try:
        by_type, by_relation = run_calls(layers, calls, summed)
    except Other as reason:
        unfit(calls[0].layer, str(reason))
        by_type, by_relation = {}, one_by_one(calls)
    if not summed:
        return tuple(by_relation[call.key] for call in calls)
    return tuple(added(calls, by_type, by_relation).values())
