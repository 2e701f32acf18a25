"""The structs and numbers of _abi.py are those of dfgnn.h."""

import ctypes
import inspect
import os
import re
import shutil
import subprocess

import pytest

import dfgnn
from dfgnn import _abi

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MLP_NUMBERS = {"activation": _abi.ACTIVATIONS, "norm": _abi.NORMS,
               "reduce": _abi.REDUCTIONS}


def c_name(name):
    """"dfgnn_tune_options" of "TuneOptions"."""
    return "dfgnn" + re.sub(r"[A-Z]", lambda m: "_" + m[0].lower(), name)


def structs():
    return {name: kind for name, kind in vars(_abi).items()
            if inspect.isclass(kind) and issubclass(kind, ctypes.Structure)
            and hasattr(kind, "_fields_")}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The C compiler's numbers: by "struct.field" its offset and size."""
    if not shutil.which("cc"):
        pytest.skip("no C compiler")
    lines = []
    for name, kind in structs().items():
        c = c_name(name)
        lines.append(f'printf("{name} 0 %zu\\n", sizeof({c}));')
        for field, _ in kind._fields_:
            member = field.rstrip("_")
            lines.append(
                f'printf("{name}.{field} %zu %zu\\n", offsetof({c}, {member}),'
                f" sizeof((({c} *)0)->{member}));")
    for name, number in _abi.OPS.items():
        c = "DFGNN_OP_" + name.upper().replace("-", "_")
        lines.append(f'printf("op.{name} %d 0\\n", {c});')
    for name in _abi.DTYPES:
        lines.append(f'printf("dtype.{name} %d 0\\n", DFGNN_{name.upper()});')
    for name in _abi.EFFORTS:
        lines.append(f'printf("effort.{name} %d 0\\n", '
                     f"DFGNN_EFFORT_{name.upper()});")
    for kind, table in MLP_NUMBERS.items():
        for name in table:
            lines.append(f'printf("{kind}.{name} %d 0\\n", '
                         f"DFGNN_{kind.upper()}_{str(name).upper()});")
    for number, name in enumerate(_abi.SOURCES):
        lines.append(f'printf("source.{name} %d 0\\n", '
                     f"DFGNN_SOURCE_{name.upper()});")
    folder = tmp_path_factory.mktemp("abi")
    source = folder / "abi.c"
    source.write_text("#include <stdio.h>\n#include <dfgnn_graph.h>\n"
                      "#include <dfgnn_mlp.h>\n#include <dfgnn_operator.h>\n"
                      "#include <dfgnn_program.h>\n"
                      "#include <dfgnn_tune.h>\n"
                      "int main(void) {\n" + "\n".join(lines)
                      + "\nreturn 0;\n}\n")
    program = folder / "abi"
    subprocess.run(["cc", "-I", os.path.join(TOP, "include"), str(source),
                    "-o", str(program)], check=True)
    printed = subprocess.run([str(program)], check=True, text=True,
                             stdout=subprocess.PIPE).stdout
    return {line.split()[0]: tuple(map(int, line.split()[1:]))
            for line in printed.splitlines()}


@pytest.mark.parametrize("name", sorted(structs()))
def test_structs_lie_as_the_compiler_lays_them(name, compiled):
    kind = structs()[name]
    for field, _ in kind._fields_:
        place = getattr(kind, field)
        assert (place.offset, place.size) == compiled[f"{name}.{field}"], field
    # a newer header may have more fields, at the end
    assert ctypes.sizeof(kind) <= compiled[name][1]


def test_numbers_are_those_of_the_header(compiled):
    for kind, table in (("op", _abi.OPS), ("dtype", _abi.DTYPES),
                        ("effort", _abi.EFFORTS),
                        ("source", {n: i for i, n in
                                    enumerate(_abi.SOURCES)}),
                        *MLP_NUMBERS.items()):
        for name, number in table.items():
            assert compiled[f"{kind}.{name}"][0] == number, name


def test_the_structs_of_the_headers_are_found():
    assert {"Options", "Csr", "Problem", "Args", "Strides", "EdgeTensor",
            "EdgeMlpArgs", "TuneReport", "Part", "Signature"} <= set(structs())
    args = dict(_abi.Args._fields_)
    assert args["query_strides"] is _abi.Strides
    assert args["scale"] is ctypes.c_double
    assert args["arg_max"] is ctypes.c_void_p
    coo = dict(_abi.Coo._fields_)  # whose names of old share a union
    assert "source" in coo and "src" not in coo


def test_functions_have_the_types_of_the_header():
    header = ""
    for name in ("dfgnn.h", "dfgnn_graph.h", "dfgnn_mlp.h", "dfgnn_program.h",
                 "dfgnn_tune.h", "dfgnn_xla.h", "dfgnn_operator.h"):
        with open(os.path.join(TOP, "include", name)) as file:
            header += re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
    for name, (_, arguments) in _abi.FUNCTIONS.items():
        match = re.search(rf"\b{name}\((.*?)\);", header, re.S)
        assert match, f"{name} is not in the header"
        given = match[1].strip()
        count = 0 if given == "void" else given.count(",") + 1
        assert count == len(arguments), name
    assert len(_abi.FUNCTIONS) == len(re.findall(
        r"^DFGNN_API ", header, re.M))
    void, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, types in (
            ("version", (text,)),
            ("graph_destroy", (None, void)),
            ("graph_bytes", (ctypes.c_size_t, void)),
            ("plan_create", (number, void, void, void,
                             ctypes.POINTER(_abi.Problem))),
            ("edge_program_hash", (ctypes.c_uint64, void)),
            ("context_digest", (number, text, void))):
        result, arguments = _abi.FUNCTIONS["dfgnn_" + name]
        assert (result, *arguments) == types, name


def test_the_package_and_the_library_have_one_version():
    with open(os.path.join(TOP, "VERSION")) as file:
        assert dfgnn.__version__ == file.read().strip()
    assert dfgnn.version() == dfgnn.__version__
