"""dfgnn.report: a page of HTML about measurements."""

import base64
import ctypes
import os
import tempfile
from typing import Optional

from . import _abi
from ._library import check, library
from .errors import InvalidError


# how a page begins: a file that begins so may be replaced by one
_BEGIN = '<!DOCTYPE html>\n<html lang="en"><head><meta name="generator" ' \
    'content="dfgnn">'


class Report:
    """A page of HTML that needs no other file and no network; notebooks show
    it."""

    def __init__(self, html):
        self.html = html

    def save(self, path):
        """Writes the page to a file, whole or not at all. A link is followed,
        a device or FIFO written to; of files that are there, only such a page
        and an empty one are replaced."""
        path = os.path.realpath(os.fspath(path))
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(self.html)
            return
        if os.path.exists(path):
            with open(path, "rb") as file:
                begin = file.read(len(_BEGIN))
            if begin and begin != _BEGIN.encode():
                raise InvalidError(
                    f"{path}: a file that is not a report of dfgnn is there, "
                    f"and is not replaced by one: it begins with "
                    f"{begin[:40]!r}; remove it, or choose another name")
        with tempfile.NamedTemporaryFile(
                "w", encoding="utf-8", dir=os.path.dirname(path),
                delete=False) as file:
            try:
                file.write(self.html)
                file.flush()
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(file.name, 0o666 & ~mask)
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise

    def _repr_html_(self):
        """The page in a frame of its own, so that neither its style nor its
        script reaches the notebook."""
        page = base64.b64encode(self.html.encode()).decode()
        return (f'<iframe src="data:text/html;charset=utf-8;base64,{page}" '
                'sandbox="allow-scripts" title="dfgnn report" '
                'style="width:100%;height:40em;border:1px solid #8888">'
                "</iframe>")

    def __repr__(self):
        return f"<dfgnn.Report, {len(self.html) / 1e6:.2f} MB of HTML>"


def _bytes(path):
    return None if path is None else os.fsencode(path)


def report(*graphs, store=None, against=None, title: Optional[str] = None,
           copy_gbps: float = 0.0, all: bool = False) -> Report:
    """The measurements of a store as a Report.

    graphs: files, or specifications of generated graphs, whose degrees are to
        be shown.
    store: a file, or several; by default the stores that are in use.
    against: a store to compare with.
    copy_gbps: copy bandwidth of the device in GB/s, for floors; 0: the one
        that the library knows of the device.
    all: every variant is shown, not the best of each problem alone.
    """
    if store is not None and not isinstance(store, (str, os.PathLike)):
        store = ":".join(os.fspath(path) for path in store)
    names = (ctypes.c_char_p * (len(graphs) + 1))(
        *[_bytes(graph) for graph in graphs], None)
    options = _abi.ReportOptions(
        store=_bytes(store), against=_bytes(against), graphs=names,
        title=None if title is None else title.encode(),
        copy_gbps=float(copy_gbps), all=bool(all))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "report.html")
        check(library().dfgnn_report(os.fsencode(path),
                                     ctypes.byref(options)))
        with open(path, encoding="utf-8") as file:
            return Report(file.read())
