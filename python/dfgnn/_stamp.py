"""Whether a tensor still is what something was derived from."""

import os

import torch

# "edges" among the words of DFGNN_CHECK: the content of edge lists is compared
# in each call, too.
_BY_CONTENT = "edges" in os.environ.get("DFGNN_CHECK", "").split(",")
PLAIN = (torch.Tensor, torch.nn.Parameter)


def stamp(tensor):
    """The version of a tensor and where its memory is.

    Writes through ``.data``, DLPack or NumPy count in no version.  With
    DFGNN_CHECK=edges the stamp of integers holds their bytes, too.
    """
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided:
        return tensor._version, 0
    if _BY_CONTENT and not tensor.is_floating_point():
        return tensor._version, tensor.data_ptr(), \
            tensor.detach().cpu().numpy().tobytes()
    return tensor._version, tensor.data_ptr()


def is_stamped(tensor, known):
    """Whether the stamp of a tensor is the known one."""
    now = stamp(tensor)
    if now == known:
        return True
    if len(now) == len(known) == 3 and now[:2] == known[:2]:
        raise RuntimeError(
            f"DFGNN_CHECK=edges: a tensor {list(tensor.shape)} that a graph "
            "was made of was written to in a way that torch does not count "
            "(.data, DLPack, NumPy); the graph made before would be used. "
            "Write to the tensor itself, or make a new one")
    return False
