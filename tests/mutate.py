#!/usr/bin/env python3
"""Plants small faults, one at a time, and says which test finds each.

    cd build && make check TESTS= && python3 ../tests/mutate.py [TEXT...]

Only faults whose file or text holds one of the TEXTs are planted.  Nothing in
the tree is changed: a file of C with a fault is compiled into a shared object
that is loaded before the library of the tests; the Python package and the
device code are copied.  Faults of Python need torch (PYTHON=its interpreter),
those of CUDA the emulator (make emulator); without them the faults are left
out, which is printed.

A test that fails without the fault, too, does not count.  The exit status is 1
if a fault was found by no test, 2 if one cannot be planted any more or none was
planted.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from mutants import FAULTS

TOP = Path(__file__).resolve().parent.parent
BUILD = Path.cwd()
SECONDS = int(os.environ.get("MUTATE_SECONDS", "600"))  # of a test program
PYTHON = os.environ.get("PYTHON", "python3")


def environment():
    """The environment of `make check`, without the user's DFGNN_ variables."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("DFGNN_")}
    home = str(BUILD / "tests/home")
    env.update(CK_TIMEOUT_MULTIPLIER="2",
               top_srcdir=str(TOP), top_builddir=str(BUILD),
               XDG_DATA_HOME=home, XDG_CACHE_HOME=home)
    return env


def flags(library, source):
    """The words of the compiler's command for a source of a library."""
    folder, name = source[:-len(".c")].rsplit("/", 1)
    said = subprocess.run(
        ["make", "-n", "V=1", "-W", os.path.relpath(TOP / source),
         f"{folder}/{library}_la-{name}.lo"],
        capture_output=True, text=True, check=True).stdout
    words = re.search(r"--mode=compile (.*?) -MT ", said).group(1)
    return [w for w in shlex.split(words) if w != "-shared"]


class CannotPlant(Exception):
    pass


def planted(fault, path):
    text = path.read_text()
    if text.count(fault.old) != 1:
        raise CannotPlant(f"{fault.file} has {text.count(fault.old)} times "
                          f"{fault.old!r}, expected one")
    return text.replace(fault.old, fault.new)


def plant_c(fault, folder):
    """The environment in which the library of the tests has the fault."""
    changed = folder / fault.file
    changed.parent.mkdir(parents=True)
    changed.write_text(planted(fault, TOP / fault.file))
    if fault.table:
        unit = str(Path(fault.file).parent / "kernels.c")
        words = flags(f"lib{fault.table}", unit)
        if fault.file != unit:
            shutil.copy(TOP / unit, folder / unit)
        unit = folder / unit
    else:
        unit, words = changed, flags("libdfgnn_internal", "select/select.c")
    shared = folder / "fault.so"
    subprocess.run(
        [*words, "-iquote", str(folder), "-O1", "-w", "-fPIC",
         "-shared", "-o", str(shared), str(unit)], check=True)
    return {"LD_PRELOAD": str(shared)}


def plant_python(fault, folder):
    shutil.copytree(TOP / "python/dfgnn", folder / "dfgnn")
    (folder / fault.file[len("python/"):]).write_text(
        planted(fault, TOP / fault.file))
    return {"PYTHONPATH": str(folder)}


def plant_cuda(fault, folder):
    for part in ("include", "kernels", "kernels/engine/device"):
        shutil.copytree(TOP / part, folder / part)
    (folder / fault.file).write_text(planted(fault, TOP / fault.file))
    return {"DFGNN_KERNEL_SOURCE": str(folder)}


def failures(test, extra):
    """The names of the tests of a program that fail.  `test` is
    "NAME=VALUE ... FILE", a program of tests/ or a file of pytest, which may
    have a case behind it."""
    env = dict(environment(), **extra)
    *settings, program = test.split()
    env.update(s.split("=", 1) for s in settings)
    if program.endswith(".py") or ".py::" in program:
        env.setdefault("PYTHONPATH", str(TOP / "python"))
        env["DFGNN_LIBRARY"] = str(BUILD / ".libs/libdfgnn.so")
        command = [PYTHON, "-m", "pytest", "-q", "-x", "-p",
                   "no:cacheprovider", str(TOP / "python/tests" / program)]
    elif program.startswith("check_gpu"):
        command = [str(TOP / "tests/emulator/run"),
                   str(BUILD / "tests/gpu" / program)]
    else:
        command = [str(BUILD / "tests/unit" / program)]
    try:
        done = subprocess.run(command, env=env, cwd=BUILD, text=True,
                              capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"does not end"}
    except FileNotFoundError:
        raise CannotPlant(f"{program} is not built")
    said = done.stdout + done.stderr
    found = set(re.findall(r"\.[ch]:\d+:[FE]:[^:]*:(\w+):", said))
    found |= set(re.findall(r"^(?:FAILED|ERROR) \S*::(\w+)", said, re.M))
    if done.returncode and not found:
        found.add(f"exit status {done.returncode}")
    return found


def runnable(fault):
    if fault.file.endswith(".py"):
        return subprocess.run([PYTHON, "-c", "import torch, pytest"],
                              capture_output=True).returncode == 0
    if fault.file.endswith(".cuh"):
        return (BUILD / "tests/emulator/lib").is_dir()
    return True


def find(fault, before):
    """(test program, what failed in it), or None."""
    plant = plant_python if fault.file.endswith(".py") else (
        plant_cuda if fault.file.endswith(".cuh") else plant_c)
    with tempfile.TemporaryDirectory() as folder:
        extra = plant(fault, Path(folder))
        for test in fault.tests:
            if test not in before:
                before[test] = failures(test, {})
            found = failures(test, extra) - before[test]
            if found:
                return test.split()[-1], sorted(found)
    return None


def main(wanted):
    before = {}
    planted_count, missed, stale = 0, 0, 0
    for fault in FAULTS:
        label = f"{fault.file}: {fault.what}"
        if wanted and not any(w in label for w in wanted):
            continue
        if not runnable(fault):
            print(f"left out  {label}", flush=True)
            continue
        try:
            found = find(fault, before)
        except CannotPlant as error:
            stale += 1
            print(f"stale     {label}: {error}", flush=True)
            continue
        planted_count += 1
        if found:
            program, names = found
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            print(f"found     {label}: {program}, {names[0]}{more}",
                  flush=True)
        else:
            missed += 1
            print(f"MISSED    {label}", flush=True)
    if not planted_count:
        print("no fault was planted", flush=True)
    return 2 if stale or not planted_count else 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
