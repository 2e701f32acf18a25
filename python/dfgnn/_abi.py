"""The structs, numbers and functions of the C headers, read from them.

Every descriptor begins with its own size, so a library newer than the headers
fills in what they do not know.  tests/test_abi.py compares each offset with
what the C compiler makes of the headers.
"""

import ctypes
import os
import re
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_void_p

_HERE = os.path.dirname(os.path.abspath(__file__))
# those of the wheel, or of the source tree
FOLDERS = (os.path.join(_HERE, "include"),
           os.path.join(_HERE, "..", "..", "include"))
HEADERS = ("dfgnn_types.h", "dfgnn.h", "dfgnn_graph.h", "dfgnn_tune.h",
           "dfgnn_program.h", "dfgnn_mlp.h", "dfgnn_operator.h", "dfgnn_xla.h")


def _read():
    """The headers without comments and C++."""
    folder = next(filter(os.path.isdir, FOLDERS), None)
    if folder is None:
        raise ImportError("dfgnn's C headers are in none of " + ", ".join(
            FOLDERS) + "; a wheel of dfgnn has them in dfgnn/include")
    text = ""
    for name in HEADERS:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text += file.read()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S).replace("\\\n", " ")
    return re.sub(r"#ifdef __cplusplus\n(?:(?!#else|#endif).)*"
                  r"(?:#else\n(.*?))?#endif", r"\1", text, flags=re.S)


class Descriptor(ctypes.Structure):
    """A struct that is zero except for its size, as DFGNN_INIT makes it."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(type(self)), **fields)


_TYPES = {"void": None, "char": ctypes.c_char, "int": c_int,
          "size_t": ctypes.c_size_t, "double": ctypes.c_double,
          **{f"{sign}int{bits}_t": getattr(ctypes, f"c_{sign}int{bits}")
             for sign in ("", "u") for bits in (32, 64)}}


def _type(words):
    """The ctypes type of words such as "const dfgnn_csr *": a typed pointer to
    a struct of the headers or to a text, an address for any other."""
    stars = words.count("*")
    name = re.sub(r"\b(const|struct|unsigned)\b|\*", "", words).strip()
    ctype = _TYPES.get(name, c_void_p)
    if not stars:
        return ctype
    if name == "char" and "unsigned" not in words:
        return c_char_p if stars == 1 else POINTER(c_char_p)
    if stars == 1 and isinstance(ctype, type(ctypes.Structure)):
        return POINTER(ctype)
    return c_void_p


def _split(declared):
    """(type, name, size of an array or None) of "const char *name[4]"."""
    kind, name, size = re.fullmatch(
        r"(.*?)(\w+)\s*(?:\[(\w+)\])?", declared.strip(), re.S).groups()
    return kind, name, size


def _arguments(text):
    text = re.sub(r"\s+", " ", text)
    declared = [] if text == "void" else map(_split, text.split(","))
    return [_type(kind if size is None else kind + "*")
            for kind, _, size in declared]


def _fields(body):
    for line in filter(None, map(str.strip, body.split(";"))):
        function = re.fullmatch(r"(\w+) \(\*(\w+)\)\((.*)\)", line, re.S)
        if function:
            result, name, arguments = function.groups()
            yield name, CFUNCTYPE(_type(result), *_arguments(arguments))
            continue
        first, *others = line.split(",")
        kind, name, size = _split(first)
        declared = [(kind, name, size)]
        for other in others:  # "int *a, *b" is int and two declarators
            stars, name, size = _split(other)
            declared.append((kind.replace("*", "") + stars, name, size))
        for kind, name, size in declared:
            ctype = _type(kind)
            if size is not None:
                ctype *= int(_DEFINED.get(size, size))
            yield "pass_" if name == "pass" else name, ctype


def numbers(enum, prefix, separator="_"):
    """{"spmm-sum": 4} of the constants of an enum before its count."""
    constants, number = {}, -1
    for line in filter(None, map(str.strip, _ENUMS[enum].split(","))):
        name, _, value = line.partition("=")
        number = int(value) if value else number + 1
        name = name.strip()
        if name.endswith("_COUNT"):
            break
        constants[name[len(prefix):].lower().replace("_", separator)] = number
    return constants


# ---- what the headers have --------------------------------------------------

_text = _read()
_DEFINED = dict(re.findall(r"^#define (DFGNN_\w+) +\(?(-?\d+)\)?\s*$", _text,
                           re.M))
_ENUMS = {name: body for name, body in re.findall(
    r"typedef enum (\w+) \{(.*?)\}", _text, re.S)}
_TYPES.update((name, c_int) for name in _ENUMS)
for _name, _body in re.findall(r"typedef struct (\w+) \{(.*?)\}", _text, re.S):
    _class = "".join(word.title() for word in _name.split("_")[1:])
    _members = list(_fields(_body))
    _base = Descriptor if _members[0][0] == "struct_size" else ctypes.Structure
    _TYPES[_name] = globals()[_class] = type(_class, (_base,),
                                            {"_fields_": _members})

# The functions by name: (type of the result, types of the arguments).  Callers
# pass a status to _library.check().
FUNCTIONS = {name: (_type(result), _arguments(arguments))
             for result, name, arguments in re.findall(
                 r"DFGNN_API ([\w\s*]*?)(dfgnn_\w+)\(([^;]*)\);", _text)}

OPS = numbers("dfgnn_op", "DFGNN_OP_", "-")
OP_PROGRAM = int(re.search(r"DFGNN_OP_PROGRAM = (\d+)",
                           _ENUMS["dfgnn_op"])[1])
PASSES = numbers("dfgnn_pass", "DFGNN_PASS_")
DTYPES = numbers("dfgnn_dtype", "DFGNN_")
MATH_F32, MATH_TF32 = numbers("dfgnn_math", "DFGNN_MATH_").values()
INDEX_I32, INDEX_I64 = numbers("dfgnn_index_type", "DFGNN_INDEX_").values()
EDGE_USES = numbers("dfgnn_edge_use", "DFGNN_EDGE_")
EDGE_PROJECTED = int(_DEFINED["DFGNN_EDGE_PROJECTED"])
MESSAGES = numbers("dfgnn_message", "DFGNN_MESSAGE_", "-")
EFFORTS = numbers("dfgnn_effort", "DFGNN_EFFORT_")
SOURCES = tuple(numbers("dfgnn_source", "DFGNN_SOURCE_"))
ACTIVATIONS, NORMS, REDUCTIONS = (
    {None if name == "none" else name: number for name, number in
     numbers(f"dfgnn_{kind}", f"DFGNN_{kind.upper()}_").items()}
    for kind in ("activation", "norm", "reduce"))
PARTITIONINGS = numbers("dfgnn_partitioning", "DFGNN_PARTITION_")
PROGRESS, STOP = (dict(globals()["TuneOptions"]._fields_)[name]
                  for name in ("progress", "stop"))

_STATUS = numbers("dfgnn_status", "DFGNN_")
OK = _STATUS["ok"]
ERROR_MEMORY = _STATUS["error_memory"]
ERROR_NOT_TUNED = _STATUS["error_not_tuned"]
ERROR_UNSUPPORTED = _STATUS["error_unsupported"]
