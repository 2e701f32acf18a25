"""Finds and loads libdfgnn."""

import ctypes
import ctypes.util
import glob
import os
import threading

from . import _abi
from .errors import BY_STATUS, Error, LibraryError

_HERE = os.path.dirname(os.path.abspath(__file__))
_BUNDLED = os.path.join(_HERE, "lib", "libdfgnn.so.0")
_lock = threading.Lock()
_library = None


def _find():
    """The library DFGNN_LIBRARY names, else the wheel's, else the system's."""
    named = os.environ.get("DFGNN_LIBRARY")
    if named:
        return named
    if os.path.exists(_BUNDLED):
        return _BUNDLED
    return ctypes.util.find_library("dfgnn") or "libdfgnn.so.0"


def _open_needed():
    """Loads what the wheel's library links.  Each may need another, so those
    that fail are tried again as long as one succeeds."""
    waiting = glob.glob(os.path.join(_HERE, "lib", "needed", "*"))
    loaded = True
    while waiting and loaded:
        failed = []
        for path in waiting:
            try:
                ctypes.CDLL(path)
            except OSError:
                failed.append(path)
        loaded = len(failed) < len(waiting)
        waiting = failed


def _open():
    path = _find()
    try:
        if path == _BUNDLED:
            _open_needed()
            os.environ.setdefault("DFGNN_PACKAGE_STORE",
                                  os.path.join(_HERE, "lib", "tuning.db"))
            pack = os.path.join(_HERE, "lib", "kernels.pack")
            if os.path.exists(pack):
                os.environ.setdefault("DFGNN_KERNEL_PACK", pack)
        return ctypes.CDLL(path)
    except OSError as error:
        raise LibraryError(
            f"cannot load libdfgnn ({path}: {error}); install the wheel, or "
            "name the library with DFGNN_LIBRARY") from None


def _declare(library):
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            version = library.dfgnn_version().decode()
            raise LibraryError(
                f"{library._name} is dfgnn {version}, which has no {name}; "
                "it is older than the Python package") from None
        function.restype = result
        function.argtypes = arguments


def library():
    """libdfgnn with its functions declared."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                loaded = _open()
                loaded.dfgnn_version.restype = ctypes.c_char_p
                _declare(loaded)
                _library = loaded
    return _library


def failure(status):
    """The exception of a status that is not OK."""
    lib = library()
    message = lib.dfgnn_last_error().decode(errors="replace")
    return BY_STATUS.get(status, Error)(
        message or lib.dfgnn_status_string(status).decode())


def check(status):
    if status:
        raise failure(status)


def version():
    """The version of libdfgnn, such as "0.1.0"."""
    return library().dfgnn_version().decode()
