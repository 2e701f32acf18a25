"""The exceptions of dfgnn."""


class Error(RuntimeError):
    """A call into libdfgnn failed; the message is the library's."""


class InvalidError(Error, ValueError):
    """An argument is wrong."""


class UnsupportedError(Error, NotImplementedError):
    """No variant can do this."""


class NotTunedError(Error):
    """The effort is "stored", and no stored measurement matches."""


class DeviceError(Error):
    """The device refused a launch or a copy."""


class StoreError(Error):
    """A tuning store is invalid or not writable."""


class CaptureError(RuntimeError):
    """dfgnn.capture() met what a CUDA graph cannot hold."""


class DistributedError(RuntimeError):
    """Ranks of dfgnn.distributed do not fit together, or one is gone."""


class LibraryError(ImportError):
    """libdfgnn cannot be loaded."""


BY_STATUS = {
    -1: InvalidError,
    -3: UnsupportedError,
    -4: NotTunedError,
    -5: DeviceError,
    -8: StoreError,
}
