"""The exception of dfgnn.distributed."""


class DistributedError(RuntimeError):
    """Ranks do not fit together, or one of them is gone."""
