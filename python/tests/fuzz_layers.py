"""The layers that fuzz_pyg.py draws from, and their options."""

import functools
from typing import Callable, NamedTuple

import torch
import torch_geometric.nn as G
from torch.nn import Linear, ReLU, Sequential

WIDTH, OUT, EDGE_WIDTH, RELATIONS = 6, 5, 4, 3
KINDS = (["a", "b"], [("a", "to", "a"), ("b", "to", "a"), ("a", "to", "b")])
YES = [False, True]
REDUCTIONS = ["add", "mean", "max", "min", "std", "var", "median", "mul",
              ["mean", "min", "max", "std"], ["sum", "max"], ["mean", "var"],
              ["mean", "std", "median"]]
SIMPLE = ["add", "mean", "max", "min"]


class Spec(NamedTuple):
    name: str
    make: Callable  # (case, rng, options) -> layer
    options: dict = {}
    pair: bool = False  # takes (x of sources, x of destinations)
    half: bool = False  # takes (x of sources, None)
    size: bool = False
    weight: float = 0.0  # how often edge_weight is given
    edge_attr: bool = False  # always wants edge_attr
    types: bool = False
    root: bool = False  # takes x_0
    static: bool = False  # takes x of three dimensions
    attention: bool = False  # takes return_attention_weights
    sparse: bool = False
    flow: bool = True
    hetero: bool = False  # takes dictionaries by kind
    same_dropout: bool = False  # its dropout draws as PyG's
    nn: bool = False  # is a layer of dfgnn.nn, too


def spread(layer):
    """Moves parameters, so that those that PyG starts at zero or one have
    other values."""
    with torch.no_grad():
        for parameter in layer.parameters():
            if not isinstance(parameter, torch.nn.UninitializedParameter):
                parameter.add_(0.3 * torch.randn_like(parameter))


def _ins(case, lazy=0.0):
    if lazy and case.rng.random() < lazy:
        return (-1, -1) if case.bipartite else -1
    return (WIDTH, WIDTH) if case.bipartite else WIDTH


def by_width(kind, *rest, lazy=0.0):
    """A maker of layers that take the width of x, and then rest."""
    return lambda case, rng, options: case.kind_of(kind)(
        _ins(case, lazy), *rest, **options)


def fixed(kind, *arguments):
    return lambda case, rng, options: case.kind_of(kind)(*arguments, **options)


def network(width_in, rng, deep=True):
    if not deep or rng.random() < 0.4:
        return Sequential(Linear(width_in, OUT))
    return Sequential(Linear(width_in, 7), ReLU(), Linear(7, OUT))


def histogram(case):
    degree = torch.bincount(case.edge_index[1], minlength=case.num_dst)
    return torch.bincount(degree, minlength=2) + 1


def pna(case, rng, options):
    names = rng.choice([["mean", "min", "max", "std"], ["sum"], ["var", "max"],
                        ["mean", "median"]])
    scalers = rng.choice([["identity"], ["amplification", "attenuation"],
                          ["linear", "inverse_linear", "identity"]])
    return G.PNAConv(WIDTH, OUT * 2, names, scalers, histogram(case),
                     **options)


def rgcn(case, rng, options, kind=G.RGCNConv):
    options = dict(options)
    weights = rng.choice(["full", "bases", "blocks"])
    if weights == "bases":
        options["num_bases"] = 2
    out = OUT + 1
    if weights == "blocks":
        options["num_blocks"] = 2
    return kind(_ins(case), out, RELATIONS, **options)


def rgat(case, rng, options):
    options = dict(options)
    if rng.random() < 0.5:
        options["attention_mode"] = "multiplicative-self-attention"
        options["dim"] = 2
    kind = rng.choice(["full", "bases", "blocks"])
    if kind == "bases":
        options["num_bases"] = 2
    if kind == "blocks":
        options["num_blocks"] = 2
    options.setdefault("heads", 2)
    if options.get("dropout"):
        options["mod"] = None
    layer = G.RGATConv(WIDTH, 4, RELATIONS, **options)
    torch.nn.init.normal_(layer.l2)  # PyG leaves it uninitialised
    return layer


def gen(case, rng, options):
    options = dict(options)
    if "edge_dim" in options:
        options["edge_dim"] = EDGE_WIDTH
    if options.get("aggr") == "softmax_sg":
        options.pop("learn_t", None)
    options["norm"] = rng.choice(["layer", "batch", None])
    return G.GENConv(_ins(case), OUT, **options)


def general(case, rng, options):
    options = dict(options)
    if options.pop("edge_dim", None):
        options["in_edge_channels"] = EDGE_WIDTH
    return G.GeneralConv(_ins(case), OUT, **options)


def gated(case, rng, options):
    return case.kind_of(G.ResGatedGraphConv)(_ins(case), OUT, **options)


def gine(case, rng, options):
    return case.kind_of(G.GINEConv)(network(WIDTH, rng), edge_dim=EDGE_WIDTH,
                                    **options)


_ATTENTION = dict(heads=[1, 2, 3], concat=YES, dropout=[0.5], bias=YES)
_GAT = dict(_ATTENTION, negative_slope=[0.1], add_self_loops=YES,
            edge_dim=[EDGE_WIDTH], fill_value=["mean", "add", "max", 0.5],
            residual=YES)
_NORM = dict(add_self_loops=YES)

SPECS = [
    Spec("GCNConv", by_width(G.GCNConv, OUT, lazy=0.1),
         dict(improved=YES, cached=YES, bias=YES), weight=0.5, static=True,
         sparse=True, nn=True),
    Spec("GCNConv without loops", fixed(G.GCNConv, WIDTH, OUT, False, False,
                                        False),
         dict(normalize=YES, aggr=["mean", "max"]), weight=0.5, static=True,
         sparse=True),
    Spec("GCNConv with some loops", by_width(G.GCNConv, OUT),
         dict(normalize=[False], add_self_loops=[False], improved=YES,
              bias=YES), weight=0.5, static=True, nn=True),
    Spec("SAGEConv", by_width(G.SAGEConv, OUT, lazy=0.1),
         dict(aggr=REDUCTIONS, normalize=YES, root_weight=YES, bias=YES),
         pair=True, half=True, size=True, static=True, sparse=True, nn=True),
    Spec("SAGEConv with projection", by_width(G.SAGEConv, OUT),
         dict(aggr=["mean", "max"], project=[True]), pair=True, size=True,
         nn=True),
    Spec("GraphConv", by_width(G.GraphConv, OUT, lazy=0.1),
         dict(aggr=SIMPLE, bias=YES), pair=True, half=True, size=True,
         weight=0.5, static=True, sparse=True, nn=True),
    Spec("GINConv", lambda c, r, o: c.kind_of(G.GINConv)(network(WIDTH, r), **o),
         dict(eps=[0.3], train_eps=YES, aggr=["mean", "max"]), pair=True,
         half=True, size=True, static=True, sparse=True, nn=True),
    Spec("GINEConv", gine, dict(eps=[0.3], train_eps=YES, aggr=SIMPLE),
         pair=True, half=True, size=True, edge_attr=True, nn=True),
    Spec("GATConv", by_width(G.GATConv, OUT, lazy=0.1), _GAT, pair=True,
         half=True, size=True, attention=True, nn=True),
    Spec("GATv2Conv", by_width(G.GATv2Conv, OUT, lazy=0.1),
         dict(_GAT, share_weights=YES), pair=True, attention=True, nn=True),
    Spec("TransformerConv", by_width(G.TransformerConv, OUT, lazy=0.1),
         dict(_ATTENTION, beta=YES, edge_dim=[EDGE_WIDTH], root_weight=YES),
         pair=True, attention=True, nn=True),
    Spec("AGNNConv", fixed(G.AGNNConv), dict(requires_grad=YES, **_NORM),
         nn=True),
    Spec("SuperGATConv", fixed(G.SuperGATConv, WIDTH, OUT),
         dict(_ATTENTION, attention_type=["SD", "MX"], add_self_loops=YES),
         flow=False),
    Spec("SGConv", fixed(G.SGConv, WIDTH, OUT),
         dict(K=[0, 2], cached=YES, **_NORM), weight=0.4, sparse=True),
    Spec("TAGConv", fixed(G.TAGConv, WIDTH, OUT),
         dict(K=[1, 2], normalize=YES, bias=YES), weight=0.4, static=True,
         sparse=True),
    Spec("APPNP", fixed(G.APPNP, 3, 0.2),
         dict(dropout=[0.4], cached=YES, **_NORM), weight=0.4, sparse=True,
         same_dropout=True),
    Spec("APPNP without norm", fixed(G.APPNP, 3, 0.2, 0.0, False, False,
                                     False), weight=0.5),
    Spec("SSGConv", fixed(G.SSGConv, WIDTH, OUT, 0.1),
         dict(K=[2], cached=YES, **_NORM), weight=0.4, sparse=True),
    Spec("GCN2Conv", fixed(G.GCN2Conv, WIDTH, 0.2),
         dict(shared_weights=YES, cached=YES, normalize=YES, **_NORM),
         weight=0.4, root=True, sparse=True),
    Spec("LGConv", fixed(G.LGConv), dict(normalize=YES), weight=0.4,
         static=True, sparse=True),
    Spec("ChebConv", fixed(G.ChebConv, WIDTH, OUT, 3),
         dict(normalization=[None, "rw", "sym"], bias=YES), weight=0.4),
    Spec("ARMAConv", fixed(G.ARMAConv, WIDTH, OUT),
         dict(num_stacks=[2, 3], num_layers=[2], shared_weights=YES,
              dropout=[0.3], bias=YES), weight=0.4, same_dropout=True),
    Spec("GatedGraphConv", fixed(G.GatedGraphConv, WIDTH + 1, 2),
         dict(aggr=SIMPLE, bias=YES), weight=0.4),
    Spec("PDNConv", fixed(G.PDNConv, WIDTH, OUT, EDGE_WIDTH, 7),
         dict(normalize=YES, bias=YES, **_NORM), edge_attr=True),
    Spec("ClusterGCNConv", fixed(G.ClusterGCNConv, WIDTH, OUT),
         dict(diag_lambda=[0.5], bias=YES, **_NORM)),
    Spec("SimpleConv", fixed(G.SimpleConv),
         dict(aggr=REDUCTIONS, combine_root=["sum", "cat", "self_loop"]),
         pair=True, half=True, size=True, weight=0.4, static=True,
         sparse=True),
    Spec("MixHopConv", fixed(G.MixHopConv, WIDTH, OUT),
         dict(powers=[[0, 1], [1, 3]], bias=YES, **_NORM), weight=0.4),
    Spec("LEConv", by_width(G.LEConv, OUT), dict(bias=YES), pair=True,
         weight=0.5),
    Spec("FAConv", fixed(G.FAConv, WIDTH),
         dict(eps=[0.0], cached=YES, dropout=[0.4], **_NORM), root=True,
         attention=True, same_dropout=True),
    Spec("EGConv", fixed(G.EGConv, WIDTH, 8),
         dict(num_heads=[2], num_bases=[3], cached=YES, bias=YES, aggregators=[
             ["sum"], ["symnorm", "max"], ["mean", "std"]], **_NORM)),
    Spec("HGTConv", lambda c, r, o: G.HGTConv(WIDTH, 8, KINDS, **o),
         dict(heads=[2, 4]), hetero=True, flow=False),
    Spec("HANConv", lambda c, r, o: G.HANConv(WIDTH, 8, KINDS, **o),
         dict(heads=[2, 4], negative_slope=[0.1], dropout=[0.5]), hetero=True,
         flow=False),
    Spec("PNAConv", pna, dict(towers=[2], divide_input=YES, pre_layers=[2],
                              post_layers=[2], edge_dim=[EDGE_WIDTH],
                              train_norm=YES)),
    Spec("GENConv", gen, dict(
        aggr=["softmax", "powermean", "add", "mean", "max", "softmax_sg",
              ["mean", "max"]], learn_t=YES, t=[0.7], msg_norm=YES,
        edge_dim=[EDGE_WIDTH]), pair=True, half=True, size=True),
    Spec("EdgeConv", lambda c, r, o: G.EdgeConv(network(2 * WIDTH, r), **o),
         dict(aggr=SIMPLE), pair=True),
    Spec("FastRGCNConv", functools.partial(rgcn, kind=G.FastRGCNConv),
         dict(aggr=["add", "mean"], root_weight=YES, bias=YES), types=True),
    Spec("RGCNConv", rgcn, dict(aggr=SIMPLE, root_weight=YES, bias=YES),
         pair=True, types=True),
    Spec("RGATConv", rgat, dict(
        heads=[1, 3], concat=YES, edge_dim=[EDGE_WIDTH], dropout=[0.4],
        mod=["additive", "scaled", "f-additive", "f-scaled"], bias=YES,
        attention_mechanism=["within-relation"]), types=True, attention=True),
    Spec("ResGatedGraphConv", gated, dict(edge_dim=[EDGE_WIDTH],
                                          root_weight=YES, bias=YES,
                                          aggr=SIMPLE), pair=True, nn=True),
    Spec("GeneralConv", general, dict(
        aggr=SIMPLE, skip_linear=YES, directed_msg=YES, heads=[2],
        attention=YES, attention_type=["dot_product", "additive"],
        l2_normalize=YES, bias=YES, edge_dim=[EDGE_WIDTH]), pair=True,
        size=True),
    Spec("FiLMConv", by_width(G.FiLMConv, OUT), dict(act=[None], aggr=SIMPLE),
         pair=True),
    Spec("FiLMConv of relations", by_width(G.FiLMConv, OUT, RELATIONS),
         dict(act=[None]), types=True),
]
