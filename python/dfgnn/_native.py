"""The extension that makes calls without ctypes, python/native/call.c, where it
was built and this Python can load it.

It lies beside the library.  DFGNN_EXTENSION=0 leaves it out.
"""

import ctypes
import importlib.machinery
import importlib.util
import os
import struct
import sys

from . import _abi
from ._library import find, library

_NAME = "dfgnn_call"


def _load():
    """The extension, or None."""
    if sys.version_info < (3, 10) or os.environ.get("DFGNN_EXTENSION") == "0":
        return None
    path = os.path.join(os.path.dirname(find()), _NAME + ".abi3.so")
    if not os.path.exists(path):
        return None
    loader = importlib.machinery.ExtensionFileLoader(_NAME, path)
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    try:
        return importlib.util.module_from_spec(spec)
    except ImportError:  # of another processor, or a Python without abi3
        return None


def _address(name):
    return ctypes.cast(getattr(library(), name), ctypes.c_void_p).value


extension = _load()
call = None if extension is None else extension.call
# the functions that graphs of batches and their plans are made with, in the order
# of the extension's call_library
functions = b"" if extension is None else struct.pack("@6P", *map(_address, (
    "dfgnn_graph_create_deferred", "dfgnn_graph_csr", "dfgnn_graph_destroy_on",
    "dfgnn_plan_create", "dfgnn_plan_workspace", "dfgnn_plan_destroy")))


def form(template, strides, fields):
    """What the extension is told of calls: where in the arguments, which begin
    as the template does, the pointers of fields are, and the strides of each,
    by their names or None."""
    if call is None:
        return None
    execute = ctypes.cast(library().dfgnn_execute, ctypes.c_void_p).value
    packed = [struct.pack("@PQQ", execute, ctypes.sizeof(_abi.Args),
                          len(fields))]
    for field, name in zip(fields, strides):
        packed.append(struct.pack(
            "@iiq", getattr(_abi.Args, field.name).offset,
            -1 if name is None else getattr(_abi.Args, name).offset,
            field.begin))
    return b"".join((*packed, bytes(template)))
