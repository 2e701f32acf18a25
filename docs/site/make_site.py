"""Makes the pages of the documentation's site.

    make_site.py SOURCE BUILD PAGES

Markdown of docs/ and the README are copied with their links turned to pages of the
site; the C reference comes out of include/dfgnn*.h, the Python reference out of
docstrings (read, not imported), the commands out of the man pages of BUILD.
"""

import ast
import os
import re
import shutil
import subprocess
import sys

SECTION = re.compile(r"/\* ---- (.+?) -+ \*/")
PUBLIC = ["_accelerate", "functional", "graph", "tuning", "aggregation",
          "convert", "errors", "ops", "_capture", "merge", "jax"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def relink(text, source, pages):
    """Links to files that are no pages become their names alone."""
    def link(match):
        label, target = match[1], match[2]
        if re.match(r"[a-z]+:|#", target):
            return match[0]
        path, _, anchor = target.partition("#")
        page = os.path.basename(path)
        page += ".md" if page == "HACKING" else ""
        page = "index.md" if path == "../README.md" else page
        if path.startswith("docs/figures") or path.startswith("figures"):
            return f"{label}(figures/{page})"
        if page in pages:
            return f"{label}({page}{'#' + anchor if anchor else ''})"
        if os.path.exists(os.path.join(source, path)):
            return label.strip("[]!")
        raise SystemExit(f"make_site: there is no {target}")
    return re.sub(r"(!?\[[^\]]*\])\(([^)\s]+)\)", link, text)


HEADERS = ("dfgnn.h", "dfgnn_types.h", "dfgnn_graph.h", "dfgnn_tune.h",
           "dfgnn_program.h", "dfgnn_mlp.h", "dfgnn_operator.h", "dfgnn_xla.h")


def c_reference(include):
    """A section of a header is a heading and its code."""
    out = ["# C reference\n\nThe headers as they are installed: every function with its "
           "shapes, units, ownership and errors.\n"]
    for header in HEADERS:
        parts = SECTION.split(read(os.path.join(include, header)))
        out.append(f"## {header}\n\n```c\n{parts[0].strip()}\n```\n")
        for name, body in zip(parts[1::2], parts[2::2]):
            title = name.strip()
            out.append(f"## {title[0].upper()}{title[1:]}\n\n```c\n{body.strip()}\n```\n")
    return "\n".join(out)


def signature(node):
    if isinstance(node, ast.ClassDef):
        for item in node.body:
            if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                arguments = ast.unparse(item.args)
                return re.sub(r"^self(, )?", "", arguments)
        return ""
    return re.sub(r"^(self|cls)(, )?", "", ast.unparse(node.args))


def python_reference(package):
    out = ["# Python reference\n\nThe public functions and classes of `dfgnn`, from their "
           "docstrings. The layers of `dfgnn.nn` and `dfgnn.nn.pyg` take the arguments of "
           "PyG's, those of `dfgnn.nn.dgl` the arguments of DGL's: "
           "[PyG and DGL users](python.md).\n"]
    modules = [f"{name}.py" for name in PUBLIC
               if os.path.exists(os.path.join(package, f"{name}.py"))]
    modules += [os.path.join(folder, "__init__.py")
                for folder in ("nn", "nn/pyg", "nn/dgl", "distributed")
                if os.path.exists(os.path.join(package, folder, "__init__.py"))]
    for module in modules:
        tree = ast.parse(read(os.path.join(package, module)))
        name = "dfgnn." + re.sub(r"(/__init__)?\.py$", "", module).replace("/", ".")
        out.append(f"## {name.replace('._', '.')}\n")
        if ast.get_docstring(tree):
            out.append(code(ast.get_docstring(tree)))
        for node in tree.body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or \
                    node.name.startswith("_") or not ast.get_docstring(node):
                continue
            out.append(f"### {node.name}\n\n```python\n{node.name}({signature(node)})\n```\n")
            out.append(code(ast.get_docstring(node)))
            for item in getattr(node, "body", []) if isinstance(node, ast.ClassDef) else []:
                if isinstance(item, ast.FunctionDef) and not item.name.startswith("_") \
                        and ast.get_docstring(item):
                    out.append(f"`{item.name}({signature(item)})`\n")
                    out.append(code(ast.get_docstring(item)))
    return "\n".join(out)


def code(text):
    return "```text\n" + text.strip() + "\n```\n"


def commands(source, build):
    """The man pages, as a terminal shows them."""
    out = ["# Commands\n\nThe man pages, as they are installed.\n"]
    found = {}
    for folder in (os.path.join(source, "docs/man"), os.path.join(build, "docs/man")):
        if os.path.isdir(folder):
            found.update((name, os.path.join(folder, name)) for name in os.listdir(folder)
                         if re.search(r"\.[1-9]$", name))
    for name, path in sorted(found.items()):
        page = subprocess.run(["man", "--nh", "--nj", "-l", path], check=True, text=True,
                              stdout=subprocess.PIPE, env={**os.environ, "MANWIDTH": "90"}).stdout
        page = re.sub(".\b", "", page)
        page = re.sub("\x1b\\[[0-9;]*m", "", page)
        title = re.sub(r"\.([1-9])$", r"(\1)", name)
        out.append(f"## {title}\n\n{code(page)}")
    return "\n".join(out)


REPORT = """# A report of measurements

[The page of the package's store](h200.html), as `python -m dfgnn.report` writes it for
any store: one file that needs no network. [Tuning your own graphs](tuning.md#the-report) lists its
contents.
"""


def main():
    source, build, pages = sys.argv[1:]
    shutil.rmtree(pages, ignore_errors=True)
    os.makedirs(pages)
    docs = os.path.join(source, "docs")
    shutil.copytree(os.path.join(docs, "figures"), os.path.join(pages, "figures"))
    texts = {name: read(os.path.join(docs, name)) for name in os.listdir(docs)
             if name.endswith(".md")}
    texts["index.md"] = read(os.path.join(source, "README.md"))
    tops = ("SECURITY.md", "CHANGELOG.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md")
    for name in tops:
        texts[name] = read(os.path.join(source, name))
    names = set(texts) | {"HACKING.md"}
    for name, text in texts.items():
        top = source if name in ("index.md", *tops) else docs
        write(pages, name, relink(text, top, names))
    write(pages, "HACKING.md",
          f"# Hacking dfgnn\n\n{code(read(os.path.join(source, 'HACKING')))}")
    write(pages, "c-reference.md", c_reference(os.path.join(source, "include")))
    write(pages, "python-reference.md",
          python_reference(os.path.join(source, "python/dfgnn")))
    write(pages, "report.md", REPORT)
    write(pages, "commands.md", commands(source, build))


if __name__ == "__main__":
    main()
