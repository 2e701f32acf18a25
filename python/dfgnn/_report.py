"""A page of HTML about measurements: ``dfgnn.report()`` in a notebook, or

    python -m dfgnn.report [STORE...] -o report.html [--against OLD.db]

Tables are made by pandas and charts by plotly, which ``pip install dfgnn[report]``
brings, from what ``dfgnn-tune show --all --json`` prints.
"""

import argparse
import html
import json
import math
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from typing import Any

from .errors import Error, InvalidError, StoreError

# how a page begins: a file that begins so may be replaced by one
_BEGIN = '<!DOCTYPE html>\n<html lang="en"><head><meta name="generator" content="dfgnn">'
# the page's own scripts may run, and nothing is loaded from elsewhere
_HEAD = _BEGIN + """<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="
default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:">
<title>{title}</title><style>
body {{ font: 15px/1.4 sans-serif; margin: 2em; }}
table {{ border-collapse: collapse; }}
td, th {{ border-bottom: 1px solid #ddd; padding: .2em .6em; vertical-align: top; }}
</style></head><body><h1>{title}</h1>
"""
_MOST = 3000  # rows of a table
_OPERATOR = ["device", "op", "pass", "dtype"]
_EXTRAS = ["edge_dim", "edge_use", "message", "program_text"]  # where they are not the default
_PROBLEM = [*_OPERATOR, "backend", "arch", "math", "layout", "heads", "dim", *_EXTRAS, "weights",
            "bias", "dropout", "deterministic", "protocol", "graph", "fingerprint", "index"]
_FIGURES = ["median_ms", "ci_low_ms", "ci_high_ms", "ratio", "slower", "speedup_unfused",
            "floor_share", "samples"]
_COLUMNS = [*_PROBLEM, *_FIGURES, "destinations", "edges", "variant", "tied", "doubtful", "status",
            "reason"]
_OVER = ["over rule", "over unfused", "over paper"]


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
                    f"{path}: a file that is not a report of dfgnn is there, and is not replaced "
                    f"by one: it begins with {begin[:40]!r}; remove it, or choose another name")
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=os.path.dirname(path),
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
        scripts reach the notebook."""
        return (f'<iframe srcdoc="{html.escape(self.html)}" sandbox="allow-scripts" title="dfgnn '
                'report" style="width:100%;height:40em;border:1px solid #8888"></iframe>')

    def __repr__(self):
        return f"<dfgnn.Report, {len(self.html) / 1e6:.2f} MB of HTML>"


def _libraries() -> Any:
    """pandas and the parts of plotly, which nothing else here needs."""
    try:
        import pandas
        from plotly import express, offline
    except ImportError as error:
        raise ImportError("dfgnn.report needs pandas and plotly: pip install 'dfgnn[report]' "
                          f"({error})") from None
    return pandas, express, offline


def _tune(stores, command, *arguments):
    """What a command of dfgnn-tune prints as JSON."""
    tool = shutil.which("dfgnn-tune", path=sysconfig.get_path("scripts")) or \
        shutil.which("dfgnn-tune")
    if tool is None:
        raise Error("dfgnn-tune is not found; a wheel of dfgnn and make install bring it")
    chosen = {} if stores is None else {"DFGNN_STORE": ":".join(stores)}
    done = subprocess.run([tool, command, "--json", "-q", *arguments], capture_output=True,
                          text=True, errors="replace", env={**os.environ, **chosen})
    if done.returncode:
        raise StoreError(done.stderr.strip())
    return json.loads(done.stdout)


def _read(stores, graphs=()):
    """(every measured variant, the chosen one of each problem) as tables."""
    pandas, _, _ = _libraries()
    entries = _tune(stores, "show", "--all", "--", *graphs)
    if entries and "fingerprint" not in entries[0]:
        raise Error("dfgnn-tune is older than the package: it tells no fingerprints of graphs")
    rows = pandas.DataFrame([{**dict.fromkeys(_EXTRAS, ""), **row} for row in entries],
                            columns=_COLUMNS)
    rows = rows.astype(dict.fromkeys(_FIGURES, float))
    rows["device"] = rows["device"].where(rows["device"] != "", rows["arch"])
    rows["protocol"] = [text.partition(",")[0] for text in rows["protocol"]]  # no ",partial"
    rows["problem"] = [_name(row) for row in rows.to_dict("records")]
    paper = {row["variant"] for row in _tune(stores, "variants") if row["paper"]}
    rows["paper"] = rows["slower"].where(rows["variant"].isin(paper))
    least = rows.groupby(_PROBLEM, sort=False)[["slower", "paper"]].transform("min")
    best = rows.assign(least=least["slower"], paper=least["paper"])
    best = best[best["slower"].notna()].drop_duplicates(_PROBLEM)  # the first is the chosen one
    best = best.assign(**{
        "rule ms": best["median_ms"] / best["ratio"], "over rule": 1 / best["ratio"],
        "best ms": best["median_ms"] * best["least"] / best["slower"],
        "over unfused": best["speedup_unfused"], "over paper": best["paper"] / best["slower"]})
    best[_OVER] = best[_OVER].mask(best["doubtful"].astype(bool))
    return rows, best


def _name(row):
    """"gt forward 8x16 f32 bias": a problem without its graph."""
    usual = {"math": ("f32", row["dtype"]), "layout": ("nhd",), "protocol": ("warm",)}
    return " ".join([
        row["op"], row["pass"], f"{row['heads']}x{row['dim']}", row["dtype"],
        *(name for name in ("weights", "bias", "dropout") if row[name]),
        *(row[name] for name in usual if row[name] not in usual[name]),
        *(() if row["deterministic"] else ("any order",)),
        *(f"{name}={row[name]}" for name in _EXTRAS if row[name] != "")])


def _mean(values):
    """The geometric mean of those that are known."""
    known = values[values.between(0, math.inf, "neither")]
    return math.exp(known.map(math.log).mean()) if len(known) else math.nan


def _table(frame):
    """An HTML table of at most _MOST rows; all text in it is escaped."""
    pandas, _, _ = _libraries()
    with pandas.option_context("display.max_colwidth", None):
        text = frame.head(_MOST).to_html(border=0, na_rep="", float_format="{:.4g}".format,
                                         index=frame.index.names[0] is not None, escape=True)
    left = len(frame) - _MOST
    return text + (f"<p>{left} more rows are left out.</p>" if left > 0 else "")


def _chart(frame, x, y, title, name):
    """A chart of two times of each problem."""
    _, express, _ = _libraries()
    shown = frame.assign(op=frame["op"].map(html.escape),
                         label=(frame["problem"] + " on " + frame["graph"]).map(html.escape))
    figure = express.scatter(shown, x=x, y=y, color="op", hover_name="label", log_x=True,
                             log_y=True, title=title, render_mode="svg", template="plotly_white")
    low, high = frame[[x, y]].min().min(), frame[[x, y]].max().max()
    figure.add_shape(type="line", x0=low, y0=low, x1=high, y1=high, line_color="#888")
    return figure.to_html(full_html=False, include_plotlyjs=False, div_id=name)


def _comparison(best, old):
    """The problems that two stores have in common, worst first."""
    both = best.merge(old[[*_PROBLEM, "variant", "median_ms", "ci_low_ms", "ci_high_ms"]],
                      on=_PROBLEM, suffixes=("", " before"))
    both["after/before"] = both["median_ms"] / both["median_ms before"]
    both["verdict"] = "alike"
    both.loc[both["ci_low_ms"] > both["ci_high_ms before"], "verdict"] = "slower"
    both.loc[both["ci_high_ms"] < both["ci_low_ms before"], "verdict"] = "faster"
    both = both.sort_values("after/before", ascending=False)
    counts = ", ".join(f"{n} {verdict}" for verdict, n in both["verdict"].value_counts().items())
    text = (f"<h2>Against another store</h2><p>{len(both)} problems are in both ({counts} by their "
            f"intervals), {(both['variant'] != both['variant before']).sum()} with another variant."
            f" The geometric mean of after/before is {_mean(both['after/before']):.3f}.</p>")
    if len(both):
        text += _chart(both, "median_ms before", "median_ms", "Time before and after", "against")
    return text + _table(both[["graph", "problem", "device", "median_ms before", "median_ms",
                               "after/before", "verdict", "variant before", "variant"]])


def _body(rows, best):
    """What is said of one list of stores."""
    gain, doubtful = _mean(best["over rule"]), best["doubtful"].sum()
    means = {name: (name, _mean) for name in _OVER}
    text = (f"<p>{len(best)} problems are measured on {best['fingerprint'].nunique()} graphs and "
            f"{best['device'].nunique()} devices. ")
    if not math.isnan(gain):
        text += (f"Tuned choices are <b>{gain:.2f} times</b> as fast as the rule that serves "
                 "graphs nobody measured (geometric mean). ")
    if doubtful:
        text += (f"{doubtful} of them rest on noisy rows and are in no mean: <code>dfgnn-tune run "
                 "--again noisy</code> measures those again.")
    text += "</p><h2>Operators</h2><p>Geometric means of the time of the rule, of unfused passes " \
        "and of the paper's fastest measured kernel over that of the chosen variant.</p>" + _table(
            best.groupby(_OPERATOR).agg(graphs=("fingerprint", "nunique"), problems=(
                "problem", "size"), noisy=("doubtful", "sum"), **means))
    text += _chart(best, "rule ms", "median_ms", "Time of the rule and the chosen variant", "gain")
    text += "<h2>Graphs</h2>" + _table(best.groupby(["graph", "fingerprint"]).agg(
        nodes=("destinations", "first"), edges=("edges", "first"), problems=("problem", "size"),
        **means))
    text += "<h2>Problems</h2>" + _table(best.sort_values("over rule", ascending=False)[[
        "graph", "problem", "device", "median_ms", "rule ms", "best ms", *_OVER, "floor_share",
        "doubtful", "variant"]]) + "<h2>Variants</h2>"
    for names, part in rows.groupby(_OPERATOR):
        text += f"<details><summary>{html.escape(' '.join(names))}</summary>"
        text += _table(part.set_index(["graph", "problem", "variant"])[[
            "median_ms", "ci_low_ms", "ci_high_ms", "slower", "tied", "samples", "status",
            "reason"]]) + "</details>"
    return text


def report(*graphs, store=None, against=None, title: str | None = None) -> Report:
    """The measurements of a store as a Report.

    graphs: names, in which * matches any text, or files of the graphs to show;
        by default all.
    store: a file, or several; by default the stores that are in use.
    against: a store to compare with.
    """
    pandas, _, offline = _libraries()
    if isinstance(store, (str, os.PathLike)):
        store = [store]
    stores = None if store is None else [os.fspath(path) for path in store]
    rows, best = _read(stores, [os.fspath(graph) for graph in graphs])
    read = [row["name"] for row in _tune(stores, "info", "--device", "cpu")
            if row["kind"] == "store" and row["exists"]]
    page = _HEAD.format(title=html.escape(title or "dfgnn: measurements"))
    page += "<h2>Stores</h2>" + _table(pandas.DataFrame({"store": read}))
    if len(best):
        page += f"<script>{offline.get_plotlyjs()}</script>" + _body(rows, best)
    else:
        page += "<p>Nothing is measured here. <code>dfgnn-tune run GRAPH</code> measures.</p>"
    if against is not None:
        page += _comparison(best, _read([os.fspath(against)])[1])
    return Report(page + "</body></html>\n")


def main():
    """The command python -m dfgnn.report."""
    parser = argparse.ArgumentParser("python -m dfgnn.report", description="Makes a page of HTML "
                                     "about the measurements of tuning stores.")
    parser.add_argument("stores", nargs="*", metavar="STORE", help="default: those in use")
    parser.add_argument("-o", "--output", default="report.html", help="default: %(default)s")
    parser.add_argument("--against", metavar="STORE", help="a store to compare with")
    options = parser.parse_args()
    try:
        report(store=options.stores or None, against=options.against).save(options.output)
    except (Error, ImportError, OSError) as error:
        sys.exit(f"dfgnn.report: {error}")
