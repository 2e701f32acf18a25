"""The blocks of physicsnemo (nvidia-physicsnemo 2.2) and orb-models (0.5), as they
are installed: a test that asks for one that is not is skipped."""

import importlib.metadata
import sys
import types

import pytest
from torch_geometric.utils import scatter

_LAYERS = "physicsnemo.nn.module.gnn_layers."
_MODULES = {"MeshEdgeBlock": _LAYERS + "mesh_edge_block",
            "HybridMeshEdgeBlock": _LAYERS + "mesh_edge_block",
            "MeshNodeBlock": _LAYERS + "mesh_node_block",
            "MeshGraphEncoder": _LAYERS + "mesh_graph_encoder",
            "MeshGraphDecoder": _LAYERS + "mesh_graph_decoder",
            "AttentionInteractionNetwork": "orb_models.forcefield.gns"}


def block(name):
    """The class of this name."""
    module = _MODULES[name]
    package = module.partition(".")[0]
    if package == "physicsnemo":
        _scatter_of_pyg()
    return getattr(pytest.importorskip(
        module, reason=f"{package} is not installed",
        exc_type=ImportError), name)


def _scatter_of_pyg():
    """physicsnemo asks for torch_scatter, which has to be compiled: PyG's scatter
    serves it."""
    try:
        import torch_scatter  # noqa: F401
    except ImportError:
        module, own = types.ModuleType("torch_scatter"), \
            importlib.metadata.version
        module.scatter = scatter
        sys.modules["torch_scatter"] = module
        importlib.metadata.version = lambda name: "2.1.2" if name.replace(
            "-", "_") == "torch_scatter" else own(name)
