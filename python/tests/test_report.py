"""dfgnn.report gives pages that stand alone, which notebooks show."""

import html
import json
import os
import re
import subprocess
import sys

import pytest

import dfgnn
from dfgnn import _report

EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(1)>"


pytest.importorskip("plotly")


def tune(*arguments):
    return subprocess.run(["dfgnn-tune", *map(str, arguments)], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """The rows of a small store."""
    store = tmp_path_factory.mktemp("store") / "s.db"
    tune("run", "uniform:nodes=100,edges=400,seed=1", "--device", "cpu", "--op", "gt,gat", "--dim",
         "8", "--budget", "0.1s", "--store", store, "-q")
    return [json.loads(line) for line in tune("export", "--store", store).splitlines()]


def store_of(path, rows, factor=1, **changes):
    """A store of these rows with other times and texts, and sharp intervals."""
    ms = [row["median_ms"] * factor for row in rows]
    (path.parent / "rows.jsonl").write_text("\n".join(json.dumps(
        {**row, "median_ms": t, "ci_low_ms": t, "ci_high_ms": t, **changes})
        for t, row in zip(ms, rows)))
    tune("import", path.parent / "rows.jsonl", "--store", path, "-q")
    return path


def elements(page):
    """A page without its scripts and styles."""
    return re.sub(r"<(script|style)[ >].*?</\1>", "", page, flags=re.S)


def words(page):
    return " ".join(html.unescape(re.sub("<[^>]*>", "", elements(page))).split())


def test_a_page_says_what_was_measured_and_stands_alone(tmp_path, rows):
    path = store_of(tmp_path / "s.db", rows, samples=9, disturbed=0)
    page = dfgnn.report(store=path)
    assert page.html == dfgnn.report(store=[path]).html
    text = words(page.html)
    for word in ("2 problems are measured on 1 graphs", "times as fast as the rule", str(path),
                 "gt forward 1x8 f32", "over rule", "cpu.attention.fwd."):
        assert word in text, word
    assert page.html.count("plotly.js v") == 1
    shown = re.search('srcdoc="([^"]*)"', page._repr_html_())
    assert html.unescape(shown.group(1)) == page.html
    noisy = dfgnn.report(store=store_of(tmp_path / "n.db", rows, samples=9, disturbed=9)).html
    assert "2 of them rest on noisy rows" in noisy and "as fast as the rule" not in noisy


def test_what_strangers_wrote_is_text(tmp_path, rows):
    path = store_of(tmp_path / "<b>.db", rows, graph=EVIL, model=EVIL, family=EVIL, reason=EVIL)
    page = dfgnn.report(store=path, against=path, title=EVIL).html
    assert "alert(1)</script>" not in page and "<img" not in elements(page)
    text = words(page)
    assert text.count(EVIL) > 20 and "<b>.db" in text


def test_stores_are_compared_worst_first(tmp_path, rows):
    old = store_of(tmp_path / "old.db", rows)
    gat = store_of(tmp_path / "gat.db", [r for r in rows if r["op"] == "gat"], 2)
    gt = store_of(tmp_path / "gt.db", [r for r in rows if r["op"] == "gt"], 0.5)
    page = words(dfgnn.report(store=[gt, gat], against=old).html)
    text = page.partition("Against another store")[2]
    assert "2 problems are in both (" in text and "1 slower" in text and "1 faster" in text
    assert "after/before is 1.000" in text
    assert text.index("gat forward 1x8") < text.index("gt forward 1x8")


def test_the_module_is_a_command_and_the_function(tmp_path, rows):
    path, out = store_of(tmp_path / "s.db", rows), tmp_path / "page.html"

    def run(*arguments, code=("-m", "dfgnn.report")):
        return subprocess.run([sys.executable, *code, *map(str, arguments)], text=True,
                              stderr=subprocess.PIPE)
    assert run(path, "-o", out, "--against", path).returncode == 0
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    both = f"import dfgnn, dfgnn.report; dfgnn.report(store={str(path)!r})"
    assert run(code=("-c", both)).returncode == 0
    (tmp_path / "text.db").write_text("no store")
    for wrong in ("absent.db", "text.db"):
        for arguments in ((tmp_path / wrong,), (path, "--against", tmp_path / wrong)):
            failed = run(*arguments, "-o", tmp_path / "no.html")
            assert failed.returncode == 1 and wrong in failed.stderr
            assert "Traceback" not in failed.stderr
    assert not list(tmp_path.glob("*no.html*"))
    lacking = "import sys, dfgnn; sys.modules['plotly'] = None; dfgnn.report()"
    assert "pip install 'dfgnn[report]'" in run(code=("-c", lacking)).stderr


def test_a_page_replaces_a_page_and_no_other_file(tmp_path):
    page = dfgnn.report(store="")
    assert "Nothing is measured here" in page.html
    path, link = tmp_path / "page.html", tmp_path / "link"
    link.symlink_to("page.html")
    for there in ("", page.html[:200]):
        path.write_text(there)
        page.save(link)
        assert link.is_symlink() and path.read_text(encoding="utf-8") == page.html
    path.write_text("my thesis")
    with pytest.raises(dfgnn.InvalidError, match="begins with b'my"):
        page.save(path)
    assert path.read_text() == "my thesis" and len(os.listdir(tmp_path)) == 2
    os.mkfifo(tmp_path / "fifo")
    reader = subprocess.Popen(["cat", tmp_path / "fifo"], stdout=subprocess.PIPE)
    page.save(tmp_path / "fifo")
    assert reader.communicate()[0].decode() == page.html


def test_an_older_tool_is_named(tmp_path, rows, monkeypatch):
    path, tell = store_of(tmp_path / "s.db", rows), _report._tune
    monkeypatch.setattr(_report, "_tune", lambda *arguments: [
        {k: v for k, v in row.items() if k != "fingerprint"} for row in tell(*arguments)])
    with pytest.raises(dfgnn.Error, match="dfgnn-tune is older"):
        dfgnn.report(store=path)
