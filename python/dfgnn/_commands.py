"""The commands of a wheel: dfgnn-tune, dfgnn-bench and dfgnn-graph.

The wheel's library holds the tools, too. They run in this process, beside the
OpenMP, the store and the compiled kernels that the package finds for it.
"""

import ctypes
import os
import signal
import sys

from ._library import library


def _run(name):
    lib = library()
    try:
        main = getattr(lib, f"dfgnn_main_{name}")
    except AttributeError:
        raise SystemExit(
            f"dfgnn-{name}: {lib._name} has no commands, as the library of a "
            "wheel has; install them with the library (make install)"
        ) from None
    # Signals end the command, as they end a program of C: Python would wait
    # for main to return, and would make an error of a pipe nobody reads.
    for number in (signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    words = [f"dfgnn-{name}", *sys.argv[1:]]
    arguments = (ctypes.c_char_p * (len(words) + 1))(
        *(os.fsencode(text) for text in words), None)
    sys.stdout.flush()
    sys.exit(main(len(words), arguments))


def tune():
    _run("tune")


def bench():
    _run("bench")


def graph():
    _run("graph")
