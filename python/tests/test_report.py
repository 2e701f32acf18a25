"""dfgnn.report gives pages that notebooks show."""

import base64
import json
import os
import re
import subprocess

import pytest

import dfgnn


def test_a_store_that_is_not_there_is_named(tmp_path):
    with pytest.raises(dfgnn.Error, match="absent.db"):
        dfgnn.report(store=tmp_path / "absent.db")


def test_a_report_is_a_page_that_notebooks_show(tmp_path):
    page = dfgnn.report("uniform:nodes=100,edges=400,seed=1",
                        title="<script>alert(1)</script>", store="")
    assert page.html.startswith("<!DOCTYPE html>")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page.html
    assert "<script>alert" not in page.html
    data = json.loads(re.search(r'id="data">(.*?)</script>', page.html,
                                re.S).group(1))
    assert sum(data["graphs"][0]["source_histogram"]) == pytest.approx(
        1, abs=1e-2)
    shown = page._repr_html_()
    inside = re.search(r"base64,([^\"]+)", shown).group(1)
    assert base64.b64decode(inside).decode() == page.html
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html


def test_a_page_replaces_a_page_and_no_other_file(tmp_path):
    page = dfgnn.report(store="")
    path = tmp_path / "page.html"
    for there in ("", page.html[:200]):
        path.write_text(there)
        page.save(path)
        assert path.read_text(encoding="utf-8") == page.html
    for there in ("my thesis", "<!DOCTYPE html><p>my own page"):
        path.write_text(there)
        with pytest.raises(dfgnn.InvalidError, match="begins with b'" +
                           there[:5]):
            page.save(path)
        assert path.read_text() == there
    assert sorted(os.listdir(tmp_path)) == ["page.html"]


def test_the_same_rows_give_the_same_page():
    assert dfgnn.report(store="").html == dfgnn.report(store="").html


def test_a_link_is_followed_and_a_fifo_written_to(tmp_path):
    page = dfgnn.report(store="")
    (tmp_path / "link").symlink_to("real")
    page.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text(encoding="utf-8") == page.html
    os.mkfifo(tmp_path / "fifo")
    reader = subprocess.Popen(["cat", tmp_path / "fifo"],
                              stdout=subprocess.PIPE)
    page.save(tmp_path / "fifo")
    assert reader.communicate()[0].decode() == page.html
    assert (tmp_path / "fifo").is_fifo()
