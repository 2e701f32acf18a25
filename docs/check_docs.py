"""Runs the commands and code of README.md and docs/*.md as they stand.

    check_docs.py SOURCE BUILD [PAGE...]

Each page gets a fresh folder with links to the sources and the build, small graphs and
stores, the tools of BUILD first in PATH, and no store of the user's.  What runs there:

    indented blocks    one command after the other, with what they exported
    $ COMMAND          in a fence: compared with the lines below it, word by word;
                       numbers, units and variants may be any, columns and rows left out
    ```python          the blocks of a page, in one process, with no names but their own
    ```c               a program; a file of the library if its first line is /* NAME.c, which
                       is compiled

Links between pages have their files and headings.  Any other fence (```py, ```text, ```console) is for reading alone.  Lines that begin with
"make " are read by make -n and not run.  Where Python lacks a module that a page imports,
or there is no compiler of GPU kernels (exit status 77), blocks are counted as skipped.
"""

import glob
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap


def blocks(page):
    """(line, kind, text) of each block of a page that runs."""
    with open(page, encoding="utf-8") as file:
        lines = file.read().split("\n")
    i = 0
    while i < len(lines):
        start, fence = i, re.match(r"```(\w*)", lines[i])
        if fence:
            while not lines[i + 1].startswith("```"):
                i += 1
            text = "\n".join(lines[start + 1:i + 1]) + "\n"
            if fence[1] in ("python", "c"):
                yield start + 1, fence[1], text
            elif not fence[1] and text.startswith("$ "):
                yield start + 1, "session", text
            i += 1
        elif re.match(r" {4}\S", lines[i]) and not lines[i - 1].strip():
            while re.match(r" {4}", lines[i + 1]):
                i += 1
            yield start + 1, "shell", textwrap.dedent("\n".join(lines[start:i + 1])) + "\n"
        i += 1


def headings(page):
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    with open(page, encoding="utf-8") as file:
        text = re.sub(r"^```[\s\S]*?^```", "", file.read(), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)", text, re.MULTILINE)}


def broken_links(page):
    """What is wrong with each link of a page to another or to a heading."""
    with open(page, encoding="utf-8") as file:
        links = re.findall(r"\]\(([^()\s:]+)\)", file.read())
    for path, _, anchor in (link.partition("#") for link in links):
        target = os.path.join(os.path.dirname(page), path) if path else page
        if not os.path.exists(target):
            yield f"{page}: no file {path}"
        elif anchor and anchor not in headings(target):
            yield f"{page}: no heading {path}#{anchor}"


def words(line):
    """The words of a line, without numbers, units, variants and rulers.  Roles of one
    variant ("rule,paper") may differ: each counts as a word."""
    line = re.sub(r"\b(cpu|cuda)\.[a-z0-9_.]+(/\S+)?", "", line)
    return [word.strip(",.;:") for word in re.split(r"[\s,]+", line)
            if re.search(r"[A-Za-z]{3}", word) and not re.match(r"[\d.]", word)]


# Rows whose text is that of a measurement: reasons and names of processors.
ROW_LEFT_OPEN = re.compile(r"(chosen|ties with|slower: )|AMD|Intel|measured on this")


def missing(shown, printed):
    """The shown words that were not printed."""
    known = set(words(printed))
    return [word for line in shown.splitlines() if not ROW_LEFT_OPEN.search(line)
            for word in words(line) if word not in known]


class Checker:
    def __init__(self, source, build):
        self.source, self.build = os.path.abspath(source), os.path.abspath(build)
        self.ran, self.skipped, self.failed = 0, [], []

    def run(self, command, seconds=300):
        done = subprocess.run(command, cwd=self.folder, env=self.environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=seconds)
        return done.returncode, done.stdout

    def prepare(self, folder):
        self.folder = folder
        libs = os.path.join(self.build, ".libs")
        self.environment = {
            **{name: value for name, value in os.environ.items()
               if not name.startswith("DFGNN_")},
            "PATH": os.path.join(self.build, "tools") + os.pathsep + os.environ["PATH"],
            "XDG_DATA_HOME": os.path.join(folder, "home"),
            "XDG_CACHE_HOME": os.path.join(folder, "home"), "USER": "user",
            "DFGNN_TUNE_BUDGET": "0.05", "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.path.join(self.source, "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "DFGNN_PACKAGE_STORE": os.path.join(self.build, "data", "stores", "tuning.db"),
            "DFGNN_LIBRARY": os.path.join(libs, "libdfgnn.so"), "PKG_CONFIG_PATH": folder}
        for name in ("data", "docs", "tools", "kernels", "include", "lib"):
            os.symlink(os.path.join(self.source, name), os.path.join(folder, name))
        os.symlink(self.build, os.path.join(folder, "build"))
        cora = os.path.join(self.source, "data", "cora.npz")
        for name in ("cora.npz", "mygraph.npz", "graphs/a.npz"):
            os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
            shutil.copyfile(cora, os.path.join(folder, name))
        self.run(["dfgnn-graph", "convert", cora, "mygraph.mtx"])
        with open(os.path.join(folder, "mygraph.mtx"), "rb") as file, \
                gzip.open(os.path.join(folder, "mygraph.mtx.gz"), "wb") as packed:
            packed.write(file.read())
        for dim, name in enumerate(("tuning.db", "all.db", "node1.db", "node2.db",
                                    "node3.db"), 8):
            self.run(["dfgnn-tune", "run", cora, "--store", name, "--op", "gat", "--dim",
                      str(dim), "-q"])
        shutil.copyfile(os.path.join(self.source, "docs", "examples", "gt.c"),
                        os.path.join(folder, "gt.c"))
        with open(os.path.join(folder, "dfgnn.pc"), "w") as file:
            file.write(f"Name: dfgnn\nDescription: of a build\nVersion: 0\n"
                       f"Cflags: -I{self.source}/include\n"
                       f"Libs: -L{libs} -Wl,-rpath,{libs} -ldfgnn -lm\n")

    def shell(self, text):
        """What is wrong, or None: runs each command, and compares its output with the
        lines below it."""
        session, commands = text.startswith("$ "), []
        for line in re.sub(r"\\\n", "", text).splitlines():
            if not session or line.startswith("$ "):
                commands.append([line[2:] if session else line, ""])
            else:
                commands[-1][1] += line + "\n"
        for command, shown in commands:
            dry = re.match(r"(\w+=\S+ )*make ", command)
            script = command.replace("make ", "make -n ", 1) if dry else command
            where = self.build if dry and "-C build" not in command else self.folder
            status, printed = self.run(["bash", "-c", (
                f". {self.folder}/exported 2>/dev/null; cd {where}\n{script}\nstatus=$?\n"
                f"export -p >{self.folder}/exported\nexit $status")])
            if status == 77:
                return self.skipped.append("there is no NVRTC")
            if status and "dfgnn[report]" in printed:
                return self.skipped.append("there is no plotly")
            if status:
                return f"`{command}` ends with {status}:\n{printed[-2000:]}"
            lacking = missing(shown, printed) if not dry else []
            if lacking:
                return f"`{command}` shows {lacking} and prints\n{printed[-2000:]}"

    session = shell

    def c(self, text):
        name = re.match(r"/\* (\w+\.c)\b", text)
        path = os.path.join(self.folder, name[1] if name else "block.c")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return self.shell(
            f"cc -std=gnu11 -Wall -Werror -O2 -fopenmp -c {name[1]} -I{self.source} -I{self.build} "
            f"-I{self.source}/include" if name else "cc -std=c11 -Wall -Werror block.c -o block "
            "$(pkg-config --cflags --libs dfgnn) && ./block")

    def python(self, page, parts):
        """Runs the Python blocks of a page in one process."""
        program = "".join(f"print('== {line}', flush=True)\n{text}" for line, text in parts)
        path = os.path.join(self.folder, "blocks.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(program)
        status, printed = self.run([sys.executable, path], 900)
        lacking = re.search(r"ModuleNotFoundError: No module named '(\w+)'", printed)
        if lacking:
            self.skipped.append(f"there is no {lacking[1]}")
        elif status:
            line = re.findall(r"^== (\d+)$", printed, re.M)[-1]
            self.failed.append(f"{page}:{line}: ends with {status}:\n{printed[-2000:]}")
        self.ran += len(parts)

    def page(self, page):
        parts = []
        with tempfile.TemporaryDirectory() as folder:
            self.prepare(folder)
            self.failed += broken_links(page)
            for line, kind, text in blocks(page):
                if kind == "python":
                    parts.append((line, text))
                    continue
                wrong = getattr(self, kind)(text)
                self.ran += 1
                if wrong:
                    self.failed.append(f"{page}:{line}: {wrong}")
            if parts:
                self.python(page, parts)


def main():
    checker = Checker(*sys.argv[1:3])
    for page in sys.argv[3:] or [
            os.path.join(checker.source, "README.md"),
            *sorted(glob.glob(os.path.join(checker.source, "docs", "*.md")))]:
        checker.page(page)
    for text in checker.failed:
        print(text)
    for reason in sorted(set(checker.skipped)):
        print(f"skipped {checker.skipped.count(reason)}: {reason}")
    print(f"{checker.ran} blocks run, {len(checker.failed)} failed")
    if checker.failed or not checker.ran:
        sys.exit(1)


if __name__ == "__main__":
    main()
