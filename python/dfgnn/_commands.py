"""The commands of a wheel: dfgnn-tune, dfgnn-bench and dfgnn-graph.

The programs lie beside the library in the wheel, and run with the libraries,
the store and the compiled kernels that it brings.
"""

import ctypes
import glob
import importlib.util
import os
import sys

_LIB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")


def _openmp():
    """The OpenMP runtime beside torch, where the system has none."""
    try:
        ctypes.CDLL("libgomp.so.1")
        return None
    except OSError:
        torch = importlib.util.find_spec("torch")
    folder = os.path.dirname(torch.origin) if torch else ""
    found = (glob.glob(os.path.join(folder, "lib", "libgomp*.so*"))
             + glob.glob(os.path.join(folder + ".libs", "libgomp*.so*")))
    return found[0] if found else None


def environment():
    """That of this process, with what the wheel brings."""
    variables = dict(os.environ)
    paths = [os.path.join(_LIB, "needed"), variables.get("LD_LIBRARY_PATH")]
    variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, paths))
    preload = [variables.get("LD_PRELOAD"), _openmp()]
    if any(preload):
        variables["LD_PRELOAD"] = " ".join(filter(None, preload))
    for name, file in (("DFGNN_PACKAGE_STORE", "tuning.db"),
                       ("DFGNN_KERNEL_PACK", "kernels.pack")):
        path = os.path.join(_LIB, file)
        if os.path.exists(path):
            variables.setdefault(name, path)
    return variables


def _become(name):
    program = os.path.join(_LIB, "bin", name)
    if not os.path.exists(program):
        raise SystemExit(
            f"{name}: this installation of the Python package has no "
            "commands; install them with the library (make install)")
    os.execve(program, [name, *sys.argv[1:]], environment())


def tune():
    _become("dfgnn-tune")


def bench():
    _become("dfgnn-bench")


def graph():
    _become("dfgnn-graph")
