"""What goes wrong between ranks."""


class DistributedError(RuntimeError):
    """Ranks do not fit together, or one of them is gone."""
