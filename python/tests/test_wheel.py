"""A wheel has metadata, commands, and files that its record lists; the backend
that pip calls makes one."""

import csv
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest

PYTHON = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, PYTHON)
import build_backend  # noqa: E402
import make_wheel  # noqa: E402
# A process that a test spawns gets this path, and is to import the package that
# is tested, which may be an installed one, and not the sources beside this file.
sys.path.remove(PYTHON)


@pytest.fixture
def wheel(tmp_path):
    """Makes a wheel whose library is the program of a shell: its contents do
    not matter here, and what it links is brought along."""
    subprocess.run(
        [sys.executable, os.path.join(PYTHON, "make_wheel.py"), "--library",
         "/bin/sh", "--extension", "/bin/sh", "--version", "7.8", "--out", str(tmp_path / "dist")],
        check=True, stdout=subprocess.DEVNULL)
    path, = (tmp_path / "dist").iterdir()
    with zipfile.ZipFile(path) as archive:
        yield archive


def test_metadata_say_what_the_package_is(wheel):
    text = wheel.read("dfgnn-7.8.dist-info/METADATA").decode()
    head, _, description = text.partition("\n\n")
    for field in ("Name: dfgnn", "Version: 7.8", "Summary: ", "Author: ",
                  "License: Apache-2.0", "Classifier: ", "Keywords: ",
                  "Requires-Dist: torch>=",
                  "Description-Content-Type: text/markdown"):
        assert f"\n{field}" in "\n" + head, field
    assert "dfgnn.accelerate(model)" in description
    assert "<!--" not in description


def test_a_home_page_is_named_if_it_is_known(monkeypatch):
    monkeypatch.delenv("DFGNN_HOME_PAGE", raising=False)
    assert "Home-page" not in make_wheel.metadata("1")
    monkeypatch.setenv("DFGNN_HOME_PAGE", "https://example.org/dfgnn")
    assert "\nHome-page: https://example.org/dfgnn\n" in \
        make_wheel.metadata("1")


def test_the_headers_that_the_package_reads_are_in_it(wheel):
    names = wheel.namelist()
    for name in ("dfgnn.h", "dfgnn_types.h", "dfgnn_program.h"):
        assert f"dfgnn/include/{name}" in names


def test_the_extension_lies_beside_the_library(wheel):
    names = wheel.namelist()
    assert "dfgnn/lib/libdfgnn.so.0" in names
    assert "dfgnn/lib/dfgnn_call.abi3.so" in names


def test_commands_are_entry_points(wheel):
    points = wheel.read("dfgnn-7.8.dist-info/entry_points.txt").decode()
    for name in ("tune", "bench", "graph"):
        assert f"\ndfgnn-{name} = dfgnn._commands:{name}\n" in points


def test_the_record_lists_every_file(wheel):
    import base64
    rows = list(csv.reader(io.StringIO(
        wheel.read("dfgnn-7.8.dist-info/RECORD").decode())))
    assert {row[0] for row in rows} == set(wheel.namelist())
    for name, digest, size in rows[:-1]:
        data = wheel.read(name)
        raw = hashlib.sha256(data).digest()
        assert digest == "sha256=" + base64.urlsafe_b64encode(raw).rstrip(
            b"=").decode()
        assert int(size) == len(data)


def run_command(library, command, *arguments):
    code = ("import sys; from dfgnn import _commands; "
            f"sys.argv[1:] = {list(arguments)!r}; _commands.{command}()")
    return subprocess.run(
        [sys.executable, "-c", code], text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PYTHON, "DFGNN_STORE": "",
             "DFGNN_LIBRARY": str(library)})


def wheel_library():
    path = os.path.join(os.path.dirname(os.environ.get("DFGNN_LIBRARY", "")),
                        "libdfgnn_wheel.so")
    if not os.path.exists(path):
        pytest.skip("make libdfgnn_wheel.la makes the library of a wheel")
    return path


def test_commands_run_in_the_library_of_a_wheel():
    library = wheel_library()
    for command in ("tune", "bench", "graph"):
        done = run_command(library, command, "--version")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"dfgnn-{command} ")
    done = run_command(library, "graph", "info",
                       "uniform:nodes=100,edges=400,seed=1", "--json")
    assert '"edges": 400' in done.stdout or '"edges":400' in done.stdout
    done = run_command(library, "tune", "explian")
    assert done.returncode == 2 and "explain" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_library_without_commands_says_so():
    library = os.environ.get("DFGNN_LIBRARY")
    if not library:
        pytest.skip("make check-python names a library without commands")
    done = run_command(library, "graph")
    assert done.returncode == 1 and "make install" in done.stderr


def test_the_backend_makes_a_wheel_in_a_configured_folder(tmp_path):
    """make is this Makefile's, which says what it was asked for."""
    build, wheels = tmp_path / "build", tmp_path / "wheels"
    build.mkdir(), wheels.mkdir()
    (build / "Makefile").write_text(
        "wheel-here:\n\techo '$(PYTHON)' >'$(DIST)/dfgnn-1-py3-none-any.whl'"
        "\n")
    name = build_backend.build_wheel(str(wheels), {"build": str(build)})
    assert name == "dfgnn-1-py3-none-any.whl"
    assert os.listdir(wheels) == [name]
    assert (wheels / name).read_text().strip() == sys.executable


def test_the_backend_says_what_is_missing(tmp_path):
    (tmp_path / "Makefile").write_text("wheel-here:\n\tfalse\n")
    with pytest.raises(SystemExit, match="tools/setup.sh"):
        build_backend.build_wheel(str(tmp_path), {"build": str(tmp_path)})


def test_the_source_archive_has_what_a_build_needs(tmp_path):
    name = build_backend.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        files = {member.name.partition("/")[2] for member in archive}
    assert {"PKG-INFO", "pyproject.toml", "configure.ac", "autogen.sh",
            "python/build_backend.py", "include/dfgnn.h",
            "kernels/sources.am"} <= files
    assert not [name for name in files if name.endswith((".o", ".lo"))]
