"""Types of features in torch's autocast regions."""

import torch


_any_autocast = torch._C._is_any_autocast_enabled


def autocast_dtype(device_type):
    """The dtype of the autocast region, None outside of one."""
    if _any_autocast() and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return None


def autocasting():
    """Whether an autocast region of a CPU or a GPU is entered."""
    return _any_autocast() and any(map(autocast_dtype, ("cpu", "cuda")))


def autocast(spec, inputs):
    """The inputs with features in the type of the autocast region, as autocast
    has it for matrix products; scores keep their type.  Features of AGNN keep
    theirs, too, since no matrix product is in its cosines."""
    value = inputs[spec.value]
    if not _any_autocast() or not isinstance(value, torch.Tensor) \
            or spec.name == "agnn":
        return inputs
    dtype = autocast_dtype(value.device.type)
    if dtype is None:
        return inputs
    return tuple(
        t.to(dtype) if isinstance(t, torch.Tensor) and not input_.scalar
        and t.is_floating_point() and t.dtype != torch.float64 else t
        for input_, t in zip(spec.inputs, inputs))
