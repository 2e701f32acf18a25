"""The extension that makes calls without ctypes, python/native/call.c, where it
was built and this Python can load it.

It lies beside the library.  DFGNN_EXTENSION=0 leaves it out.
"""

import ctypes
import importlib.machinery
import importlib.util
import os
import struct

from ._library import find, library

_NAME = "dfgnn_call"


def _load():
    """The extension, or None."""
    if os.environ.get("DFGNN_EXTENSION") == "0":
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
functions = b"" if extension is None else struct.pack("@5P", *map(_address, (
    "dfgnn_graph_create_deferred", "dfgnn_graph_destroy_on",
    "dfgnn_plan_create", "dfgnn_plan_workspace", "dfgnn_plan_destroy")))


def form(template, links, slots):
    """The description of calls for the extension: where in the arguments, which begin
    as the template does, pointers are, and the strides of each, or -1, and how
    many bytes into its memory it points.  links: where pointers to parts of the
    arguments are, and those parts."""
    if call is None:
        return None
    execute = ctypes.cast(library().dfgnn_execute, ctypes.c_void_p).value
    return b"".join((
        struct.pack("@PQQQ", execute, ctypes.sizeof(template), len(links),
                    len(slots)),
        *[struct.pack("@QQ", *link) for link in links],
        *[struct.pack("@iiq", *slot) for slot in slots], bytes(template)))
