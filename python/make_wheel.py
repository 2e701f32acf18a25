"""Makes a wheel of the package with libdfgnn, what it links and its store.

    python3 make_wheel.py --library .libs/libdfgnn_wheel.so --version 0.3.0

Nothing in the wheel is tied to a version of Python or torch.  Libraries that
manylinux counts on, and the OpenMP that torch brings, stay outside.  Without
--platform the wheel is one for machines like this one.
"""

import argparse
import base64
import glob
import hashlib
import os
import platform
import re
import subprocess
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
OUTSIDE = re.compile(r"lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+|gomp|z)\.so|"
                     r"linux-vdso|ld-linux")

METADATA = """Metadata-Version: 2.1
Name: dfgnn
Version: {version}
Summary: Fused, autotuned kernels for graph neural networks: faster layers for PyTorch Geometric
Author: The dfgnn developers
License: Apache-2.0
Keywords: graph neural networks,attention,CUDA,autotuning,SpMM,PyTorch Geometric
Classifier: Development Status :: 4 - Beta
Classifier: Intended Audience :: Science/Research
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Environment :: GPU :: NVIDIA CUDA
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Requires-Python: >=3.10
Requires-Dist: torch>=2.4
Provides-Extra: pyg
Requires-Dist: torch_geometric>=2.5; extra == "pyg"
Provides-Extra: report
Requires-Dist: pandas>=2; extra == "report"
Requires-Dist: plotly>=6; extra == "report"
Description-Content-Type: text/markdown
{links}
{description}"""

ENTRY_POINTS = """[console_scripts]
dfgnn-tune = dfgnn._commands:tune
dfgnn-bench = dfgnn._commands:bench
dfgnn-graph = dfgnn._commands:graph
"""
WHEEL = """Wheel-Version: 1.0
Generator: make_wheel.py
Root-Is-Purelib: false
Tag: {tag}
"""


def metadata(version):
    """METADATA of the wheel and PKG-INFO of the source: the page of an index
    is the README's first screen.  DFGNN_HOME_PAGE names the project's page,
    which a clone does not know."""
    path = os.path.join(HERE, "..", "README.md")
    description = ""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            description = file.read().partition("\n## ")[0]
    description = re.sub(r"<!--.*?-->\n?|!\[[^]]*\]\([^)]*\)\n?", "",
                         description, flags=re.S)
    home = os.environ.get("DFGNN_HOME_PAGE")
    links = f"Home-page: {home}\nProject-URL: Source, {home}\n" if home else ""
    return METADATA.format(version=version, links=links,
                           description=description)


def platform_tag():
    name, version = platform.libc_ver()
    if name != "glibc":
        return f"linux_{platform.machine()}"
    return "manylinux_{}_{}_{}".format(*version.split(".")[:2],
                                       platform.machine())


def dependencies(library):
    """Paths of the libraries to bring along, by the name they are asked
    for."""
    header = subprocess.run(["readelf", "-d", library], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", header)
    if all(OUTSIDE.match(name) for name in needed):
        return {}  # ldd cannot read a library of another processor
    listed = subprocess.run(["ldd", library], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    found = {}
    for line in listed.splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match and not OUTSIDE.match(match[1]):
            if match[2] == "not":
                raise SystemExit(f"make_wheel: {library} needs {match[1]}, "
                                 "which is not found")
            found[match[1]] = match[2]
    return found


def contents(options):
    """(name in the wheel, bytes) of every file."""
    package = os.path.join(HERE, "dfgnn")
    for path in sorted([*glob.glob(os.path.join(package, "**", "*.py"),
                                   recursive=True),
                        os.path.join(package, "py.typed")]):
        yield os.path.relpath(path, HERE), read(path)
    for path in sorted(glob.glob(os.path.join(HERE, "..", "include", "*.h"))):
        yield f"dfgnn/include/{os.path.basename(path)}", read(path)
    yield ("dfgnn/lib/libdfgnn.so.0",
           (read if options.platform else read_stripped)(options.library))
    if options.extension:
        yield ("dfgnn/lib/dfgnn_call.abi3.so",
               (read if options.platform else read_stripped)(
                   options.extension))
    for name, path in sorted(dependencies(options.library).items()):
        yield f"dfgnn/lib/needed/{name}", read(path)
    if options.store:
        yield "dfgnn/lib/tuning.db", read(options.store)
    if options.pack:
        yield "dfgnn/lib/kernels.pack", read(options.pack)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def read_stripped(path):
    """The library without symbols for debuggers, seven eighths of it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, os.path.basename(path))
        try:
            subprocess.run(["strip", "--strip-unneeded", "-o", copy, path],
                           check=True)
        except FileNotFoundError:
            return read(path)
        return read(copy)


def notices(folder):
    """(name, bytes) of the licences of Debian's source packages."""
    paths = sorted(glob.glob(os.path.join(folder, "*", "debian", "copyright")))
    if not paths:
        raise SystemExit(f"make_wheel: {folder} has no source packages")
    return [(path.split(os.sep)[-3], read(path)) for path in paths]


def digest(data):
    raw = hashlib.sha256(data).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", required=True)
    parser.add_argument("--extension", help="the extension that makes calls "
                        "without ctypes")
    parser.add_argument("--store")
    parser.add_argument("--pack", help="compiled GPU kernels")
    parser.add_argument("--version", required=True)
    parser.add_argument("--platform", help="the wheel's tag, such as "
                        "manylinux_2_28_x86_64; this machine's by default")
    parser.add_argument("--license", help="the file of the licence")
    parser.add_argument("--notices", help="folder of the Debian source "
                        "packages of the libraries that are linked in, whose "
                        "licences are added")
    parser.add_argument("--out", default="dist")
    options = parser.parse_args()
    tag = f"py3-none-{options.platform or platform_tag()}"
    info = f"dfgnn-{options.version}.dist-info"
    files = list(contents(options))
    files.append((f"{info}/METADATA",
                  metadata(options.version).encode()))
    files.append((f"{info}/entry_points.txt", ENTRY_POINTS.encode()))
    files.append((f"{info}/WHEEL", WHEEL.format(tag=tag).encode()))
    if options.license:
        files.append((f"{info}/LICENSE", read(options.license)))
    if options.notices:
        files += [(f"{info}/licenses/{name}", data)
                  for name, data in notices(options.notices)]
    record = [f"{name},{digest(data)},{len(data)}" for name, data in files]
    record.append(f"{info}/RECORD,,\n")
    files.append((f"{info}/RECORD", "\n".join(record).encode()))
    os.makedirs(options.out, exist_ok=True)
    path = os.path.join(options.out, f"dfgnn-{options.version}-{tag}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in files:
            entry = zipfile.ZipInfo(name)  # dated 1980: always the same bytes
            entry.external_attr = 0o100644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    print(path)


if __name__ == "__main__":
    main()
