"""Finds and loads libdfgnn; and the extension that makes calls without ctypes,
python/native/call.c, where it was built and this Python can load it.

The extension lies beside the library.  DFGNN_EXTENSION=0 leaves it out.
"""

import ctypes
import ctypes.util
import glob
import importlib.machinery
import importlib.util
import os
import re
import struct
import threading

from . import _abi
from .errors import BY_STATUS, Error, LibraryError

_HERE = os.path.dirname(os.path.abspath(__file__))
_BUNDLED = os.path.join(_HERE, "lib", "libdfgnn.so.0")
_lock = threading.Lock()
_library = None


def find():
    """The library DFGNN_LIBRARY names, else the wheel's, else the system's."""
    named = os.environ.get("DFGNN_LIBRARY")
    if named:
        return named
    if os.path.exists(_BUNDLED):
        return _BUNDLED
    return ctypes.util.find_library("dfgnn") or "libdfgnn.so.0"


def _open_openmp():
    """Makes OpenMP's functions visible to the wheel's library, which links no
    runtime of its own: two in a process would each keep a thread on every
    core.  A runtime that is loaded is taken first, then the one beside
    torch."""
    loaded = set()
    try:
        with open("/proc/self/maps") as maps:
            loaded = {line.split(None, 5)[5].strip() for line in maps
                      if re.search(r"/lib(gomp|omp|iomp5)[^/]*\.so", line)}
    except OSError:
        pass
    torch = importlib.util.find_spec("torch")
    beside = glob.glob(os.path.join(os.path.dirname(torch.origin), "lib",
                                    "libgomp*.so*")) if torch else []
    for path in [*sorted(loaded), *sorted(beside), "libgomp.so.1",
                 "libomp.so.5", "libiomp5.so"]:
        try:
            runtime = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            runtime.GOMP_parallel  # the function that GCC's programs call
            return
        except (OSError, AttributeError):
            continue
    raise LibraryError(
        "no OpenMP runtime was found, neither torch's libgomp nor the "
        "system's libgomp.so.1; install libgomp1 (Debian) or libgomp (RHEL)")


def _open_needed():
    """Loads the libraries that the wheel's library links.  One may need
    another, so those that fail are tried again as long as one succeeds."""
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
    path = find()
    try:
        if path == _BUNDLED:
            _open_openmp()
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
    """The version of libdfgnn, such as "0.3.0"."""
    return library().dfgnn_version().decode()


_EXTENSION = "dfgnn_call"


def _load():
    if os.environ.get("DFGNN_EXTENSION") == "0":
        return None
    path = os.path.join(os.path.dirname(find()), _EXTENSION + ".abi3.so")
    if not os.path.exists(path):
        return None
    loader = importlib.machinery.ExtensionFileLoader(_EXTENSION, path)
    spec = importlib.util.spec_from_file_location(_EXTENSION, path, loader=loader)
    try:
        return importlib.util.module_from_spec(spec)
    except ImportError:  # of another processor, or a Python without abi3
        return None


extension = _load()
call = None if extension is None else extension.call
# the functions that graphs of batches and their plans are made with, in the
# order of the extension's call_library
functions = b"" if extension is None else struct.pack("@5P", *[
    ctypes.cast(getattr(library(), name), ctypes.c_void_p).value for name in (
        "dfgnn_graph_create_deferred", "dfgnn_graph_destroy_on",
        "dfgnn_plan_create", "dfgnn_plan_workspace", "dfgnn_plan_destroy")])


def form(template, links, slots):
    """The description of calls for the extension: where in the arguments, which
    begin as the template does, pointers are, and the strides of each, or -1,
    and how many bytes into its memory it points.  links: where pointers to
    parts of the arguments are, and those parts."""
    if call is None:
        return None
    execute = ctypes.cast(library().dfgnn_execute, ctypes.c_void_p).value
    return b"".join((
        struct.pack("@PQQQ", execute, ctypes.sizeof(template), len(links),
                    len(slots)),
        *[struct.pack("@QQ", *link) for link in links],
        *[struct.pack("@iiq", *slot) for slot in slots], bytes(template)))
