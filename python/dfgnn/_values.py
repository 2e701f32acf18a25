"""Values of sparse adjacencies: edge weights that come with the edges."""

import torch

_COMPRESSED = {torch.sparse_csr, torch.sparse_csc}


def is_adjacency(edges):
    """Whether edges is a matrix whose rows are destinations: a sparse tensor
    of torch, a SparseTensor of torch_sparse, or a matrix of SciPy."""
    if isinstance(edges, torch.Tensor):
        return edges.layout is not torch.strided
    return hasattr(edges, "sparse_sizes") or hasattr(edges, "tocsr")


def adjacency_values(edges):
    """The values [E] of a sparse adjacency, in the order in which
    ``as_graph(edges).edge_index`` has its edges; None if it has none.

    Everything that :func:`dfgnn.as_graph` takes is taken: an edge_index and a
    Graph have no values, an EdgeIndex of PyG has some if it was given some.
    """
    if type(edges) is torch.Tensor and edges.layout is torch.strided:
        return None
    if isinstance(edges, torch.Tensor):
        if edges.layout == torch.sparse_coo:
            return edges.coalesce().values()
        if edges.layout in _COMPRESSED:
            return edges.values()
        if hasattr(edges, "get_csc"):  # PyG's EdgeIndex
            return getattr(edges, "_value", None)
        return None
    if hasattr(edges, "sparse_sizes"):
        return edges.csr()[2]
    if hasattr(edges, "tocsr"):
        matrix = edges.tocsr()
        return torch.from_numpy(matrix.data)
    adjacency = getattr(edges, "adj_t", None)  # PyG's Data
    if adjacency is not None and edges.edge_index is None:
        return adjacency_values(adjacency)
    return None


def values_like(edges, features):
    """adjacency_values() in the type and on the device of features."""
    values = adjacency_values(edges)
    if values is None:
        return None
    if values.dtype == torch.bool or not values.is_floating_point():
        values = values.to(features.dtype)
    return values.to(features.device)


def refuse_values(edges, taker):
    """Raises if edges has values other than 1, which taker would drop."""
    values = adjacency_values(edges)
    if values is None or not values.numel():
        return
    if bool((values == 1).all()):
        return
    shown = ", ".join(f"{float(v):g}" for v in values.flatten()[:3])
    raise ValueError(
        f"{taker} takes no edge weights from an adjacency, and this one has "
        f"values other than 1 ({shown}{', ...' if values.numel() > 3 else ''})"
        "; pass dfgnn.as_graph(adjacency) to use its edges alone, or take a "
        "layer that takes edge_weight")
